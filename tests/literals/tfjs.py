"""Literal arrays of TensorFlow.js (tfjs-layers/src/layers/recurrent.ts): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN

_INPUT = PLAIN | {"input_bias"}

# fmt: off
LITERALS = [
    # columns i, f, c, o; forward and backward
    ("tfjs.lstm", Sizes("lstm", 1, 1, 1, 2, parts=_INPUT), {
        "forward/kernel": [[1111, 1211, 1311, 1411]], "forward/recurrent_kernel": [[2111, 2211, 2311, 2411]],
        "forward/bias": [3110, 3210, 3310, 3410],
        "backward/kernel": [[11111, 11211, 11311, 11411]], "backward/recurrent_kernel": [[12111, 12211, 12311, 12411]],
        "backward/bias": [13110, 13210, 13310, 13410]}),
    # columns z, r, h
    ("tfjs.gru", Sizes("gru", 2, 2, parts=_INPUT), {
        "kernel": [[1211, 1221, 1111, 1121, 1311, 1321], [1212, 1222, 1112, 1122, 1312, 1322]],
        "recurrent_kernel": [[2211, 2221, 2111, 2121, 2311, 2321], [2212, 2222, 2112, 2122, 2312, 2322]],
        "bias": [3210, 3220, 3110, 3120, 3310, 3320]}),
    ("tfjs.rnn", Sizes("rnn", 3, 2, parts=PLAIN), {
        "kernel": [[1111, 1121], [1112, 1122], [1113, 1123]], "recurrent_kernel": [[2111, 2121], [2112, 2122]]}),
]
