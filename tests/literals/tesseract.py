"""Literal arrays of Tesseract (src/lstm/lstm.h, WeightType; columns of the input, the last output, the bias): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN

# fmt: off
LITERALS = [
    ("tesseract.lstm", Sizes("lstm", 2, 1, parts=PLAIN | {"input_bias"}), {
        "CI/input": [[1311, 1312]], "CI/recurrent": [[2311]], "CI/bias": [3310], "GI/input": [[1111, 1112]], "GI/recurrent": [[2111]],
        "GI/bias": [3110], "GF1/input": [[1211, 1212]], "GF1/recurrent": [[2211]], "GF1/bias": [3210], "GO/input": [[1411, 1412]],
        "GO/recurrent": [[2411]], "GO/bias": [3410]}),
]
