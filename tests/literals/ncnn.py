"""Literal arrays of ncnn (src/layer/lstm.cpp, gru.cpp, rnn.cpp): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN
from tests.literals._numbers import LSTM, RNN

_INPUT = PLAIN | {"input_bias"}

# fmt: off
LITERALS = [
    # rows i, f, o, g
    ("ncnn.lstm", Sizes("lstm", 2, 2, 1, 1, 1, _INPUT | {"projection"}), {
        "weight_xc_data": [LSTM.rows(1, "ifog", 2)], "weight_hc_data": [LSTM.rows(2, "ifog", 1)], "bias_c_data": [LSTM.vector(3, "ifog")],
        "weight_hr_data": [[[6011, 6012]]],
    }),
    # rows r, u, n; the fourth bias is the candidate's recurrent one
    ("ncnn.gru", Sizes("gru", 1, 1, 1, 2), {
        "weight_xc_data": [[[1111], [1211], [1311]], [[11111], [11211], [11311]]],
        "weight_hc_data": [[[2111], [2211], [2311]], [[12111], [12211], [12311]]],
        "bias_c_data": [[3110, 3210, 3310, 4310], [13110, 13210, 13310, 14310]]}),
    ("ncnn.rnn", Sizes("rnn", 3, 2, parts=_INPUT), {
        "weight_xc_data": [RNN.rows(1, "n", 3)], "weight_hc_data": [RNN.rows(2, "n", 2)], "bias_c_data": [[3110, 3120]],
    }),
]
