"""Literal arrays of OpenVINO's IR (operation-sets, LSTMSequence-5, GRUSequence-5, RNNSequence-5): see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import PLAIN

_INPUT = PLAIN | {"input_bias"}

# fmt: off
LITERALS = [
    # rows f, i, c, o
    ("openvino.lstm", Sizes("lstm", 2, 1, 1, 2, parts=_INPUT), {
        "W": [[[1211, 1212], [1111, 1112], [1311, 1312], [1411, 1412]],
              [[11211, 11212], [11111, 11112], [11311, 11312], [11411, 11412]]],
        "R": [[[2211], [2111], [2311], [2411]], [[12211], [12111], [12311], [12411]]],
        "B": [[3210, 3110, 3310, 3410], [13210, 13110, 13310, 13410]]}),
    # rows z, r, h; a fourth bias is the candidate's recurrent one
    ("openvino.gru", Sizes("gru", 1, 2), {
        "W": [[[1211], [1221], [1111], [1121], [1311], [1321]]],
        "R": [[[2211, 2212], [2221, 2222], [2111, 2112], [2121, 2122], [2311, 2312], [2321, 2322]]],
        "B": [[3210, 3220, 3110, 3120, 3310, 3320, 4310, 4320]]}),
    ("openvino.gru_reset_before", Sizes("gru", 1, 2, parts=_INPUT), {
        "W": [[[1211], [1221], [1111], [1121], [1311], [1321]]],
        "R": [[[2211, 2212], [2221, 2222], [2111, 2112], [2121, 2122], [2311, 2312], [2321, 2322]]],
        "B": [[3210, 3220, 3110, 3120, 3310, 3320]]}),
    ("openvino.rnn", Sizes("rnn", 3, 2, parts=_INPUT), {
        "W": [[[1111, 1112, 1113], [1121, 1122, 1123]]], "R": [[[2111, 2112], [2121, 2122]]], "B": [[3110, 3120]]}),
]
