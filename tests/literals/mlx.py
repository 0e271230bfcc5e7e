"""Literal arrays of MLX (mlx/nn/layers/recurrent.py): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import BOTH, PLAIN
from tests.literals._numbers import GRU, LSTM

# fmt: off
LITERALS = [
    ("mlx.rnn", Sizes("rnn", 2, 2, parts=PLAIN | {"input_bias"}), {
        "Wxh": [[1111, 1112], [1121, 1122]], "Whh": [[2111, 2112], [2121, 2122]], "bias": [3110, 3120]}),
    ("mlx.lstm", Sizes("lstm", 2, 1, parts=PLAIN | {"input_bias"}), {  # i, f, g, o
        "Wx": LSTM.rows(1, "ifgo", 2, 1), "Wh": LSTM.rows(2, "ifgo", 1, 1), "bias": [3110, 3210, 3310, 3410],
    }),
    ("mlx.gru", Sizes("gru", 1, 2, parts=BOTH), {  # r, z, n; hidden units within a gate
        "Wx": GRU.rows(1, "rzn", 1), "Wh": GRU.rows(2, "rzn", 2), "b": GRU.vector(3, "rzn"), "bhn": [4310, 4320],
    }),
]
