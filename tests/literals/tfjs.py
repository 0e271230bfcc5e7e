"""Literal arrays of TensorFlow.js (tfjs-layers/src/layers/recurrent.ts): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN
from tests.literals._numbers import GRU, LSTM, RNN

_INPUT = PLAIN | {"input_bias"}

# fmt: off
LITERALS = [
    # columns i, f, c, o; forward and backward
    ("tfjs.lstm", Sizes("lstm", 1, 1, 1, 2, parts=_INPUT), {
        "forward/kernel": [[1111, 1211, 1311, 1411]], "forward/recurrent_kernel": [[2111, 2211, 2311, 2411]],
        "forward/bias": [3110, 3210, 3310, 3410], "backward/kernel": [[11111, 11211, 11311, 11411]],
        "backward/recurrent_kernel": [[12111, 12211, 12311, 12411]], "backward/bias": LSTM.vector(13, "ifgo", 1),
    }),
    # columns z, r, h
    ("tfjs.gru", Sizes("gru", 2, 2, parts=_INPUT), {
        "kernel": GRU.columns(1, "zrn", 2), "recurrent_kernel": GRU.columns(2, "zrn", 2), "bias": GRU.vector(3, "zrn"),
    }),
    ("tfjs.rnn", Sizes("rnn", 3, 2, parts=PLAIN), {"kernel": RNN.columns(1, "n", 3), "recurrent_kernel": RNN.columns(2, "n", 2)}),
]
