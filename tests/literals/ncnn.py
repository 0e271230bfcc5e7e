"""Literal arrays of ncnn (src/layer/lstm.cpp, gru.cpp, rnn.cpp): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN

_INPUT = PLAIN | {"input_bias"}

# fmt: off
LITERALS = [
    # rows i, f, o, g
    ("ncnn.lstm", Sizes("lstm", 2, 2, 1, 1, 1, _INPUT | {"projection"}), {
        "weight_xc_data": [[
            [1111, 1112], [1121, 1122], [1211, 1212], [1221, 1222], [1411, 1412], [1421, 1422], [1311, 1312], [1321, 1322]]],
        "weight_hc_data": [[[2111], [2121], [2211], [2221], [2411], [2421], [2311], [2321]]],
        "bias_c_data": [[3110, 3120, 3210, 3220, 3410, 3420, 3310, 3320]], "weight_hr_data": [[[6011, 6012]]]}),
    # rows r, u, n; the fourth bias is the candidate's recurrent one
    ("ncnn.gru", Sizes("gru", 1, 1, 1, 2), {
        "weight_xc_data": [[[1111], [1211], [1311]], [[11111], [11211], [11311]]],
        "weight_hc_data": [[[2111], [2211], [2311]], [[12111], [12211], [12311]]],
        "bias_c_data": [[3110, 3210, 3310, 4310], [13110, 13210, 13310, 14310]]}),
    ("ncnn.rnn", Sizes("rnn", 3, 2, parts=_INPUT), {
        "weight_xc_data": [[[1111, 1112, 1113], [1121, 1122, 1123]]], "weight_hc_data": [[[2111, 2112], [2121, 2122]]],
        "bias_c_data": [[3110, 3120]]}),
]
