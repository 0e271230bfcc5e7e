"""Literal arrays of MLX (mlx/nn/layers/recurrent.py): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import BOTH, PLAIN

# fmt: off
LITERALS = [
    ("mlx.rnn", Sizes("rnn", 2, 2, parts=PLAIN | {"input_bias"}), {
        "Wxh": [[1111, 1112], [1121, 1122]], "Whh": [[2111, 2112], [2121, 2122]], "bias": [3110, 3120]}),
    ("mlx.lstm", Sizes("lstm", 2, 1, parts=PLAIN | {"input_bias"}), {  # i, f, g, o
        "Wx": [[1111, 1112], [1211, 1212], [1311, 1312], [1411, 1412]],
        "Wh": [[2111], [2211], [2311], [2411]], "bias": [3110, 3210, 3310, 3410]}),
    ("mlx.gru", Sizes("gru", 1, 2, parts=BOTH), {  # r, z, n; hidden units within a gate
        "Wx": [[1111], [1121], [1211], [1221], [1311], [1321]],
        "Wh": [[2111, 2112], [2121, 2122], [2211, 2212], [2221, 2222], [2311, 2312], [2321, 2322]],
        "b": [3110, 3120, 3210, 3220, 3310, 3320], "bhn": [4310, 4320]}),
]
