"""Literal arrays of OpenVINO's IR (operation-sets, LSTMSequence-5, GRUSequence-5, RNNSequence-5): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN
from tests.literals._numbers import GRU, LSTM, RNN, flat

_INPUT = PLAIN | {"input_bias"}

# fmt: off
LITERALS = [
    # rows f, i, c, o
    ("openvino.lstm", Sizes("lstm", 2, 1, 1, 2, parts=_INPUT), {
        "W": [LSTM.rows(1, "figo", 2, 1), LSTM.rows(11, "figo", 2, 1)], "R": [LSTM.rows(2, "figo", 1, 1), LSTM.rows(12, "figo", 1, 1)],
        "B": [LSTM.vector(3, "figo", 1), LSTM.vector(13, "figo", 1)],
    }),
    # rows z, r, h; a fourth bias is the candidate's recurrent one
    ("openvino.gru", Sizes("gru", 1, 2), {
        "W": [GRU.rows(1, "zrn", 1)], "R": [GRU.rows(2, "zrn", 2)], "B": [flat(GRU.vector(3, "zrn"), GRU.vector(4, "n"))],
    }),
    ("openvino.gru_reset_before", Sizes("gru", 1, 2, parts=_INPUT), {
        "W": [GRU.rows(1, "zrn", 1)], "R": [GRU.rows(2, "zrn", 2)], "B": [GRU.vector(3, "zrn")],
    }),
    ("openvino.rnn", Sizes("rnn", 3, 2, parts=_INPUT), {"W": [RNN.rows(1, "n", 3)], "R": [RNN.rows(2, "n", 2)], "B": [[3110, 3120]]}),
]
