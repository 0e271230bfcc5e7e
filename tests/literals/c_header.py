"""Literal arrays of C headers: our own (formats/c_header/write.py), RNNoise's (src/rnn.c) and CMSIS-NN's: see tests.literals."""

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import BOTH, PLAIN

_INPUT = PLAIN | {"input_bias"}
_FULL = _INPUT | {"peephole", "projection"}

# fmt: off
LITERALS = [
    # rows i, f, g, o
    ("c_header.lstm", Sizes("lstm", 2, 2, 1, 1, 1, _FULL), {
        "W": [[1111, 1112], [1121, 1122], [1211, 1212], [1221, 1222], [1311, 1312], [1321, 1322], [1411, 1412], [1421, 1422]],
        "R": [[2111], [2121], [2211], [2221], [2311], [2321], [2411], [2421]],
        "b": [3110, 3120, 3210, 3220, 3310, 3320, 3410, 3420], "P": [5110, 5120, 5210, 5220, 5410, 5420],
        "projection": [[6011, 6012]]}),
    ("c_header.lstm_columns", Sizes("lstm", 2, 2, 1, 1, 1, _FULL), {
        "W": [[1111, 1121, 1211, 1221, 1311, 1321, 1411, 1421], [1112, 1122, 1212, 1222, 1312, 1322, 1412, 1422]],
        "R": [[2111, 2121, 2211, 2221, 2311, 2321, 2411, 2421]],
        "b": [3110, 3120, 3210, 3220, 3310, 3320, 3410, 3420], "P": [5110, 5120, 5210, 5220, 5410, 5420],
        "projection": [[6011], [6012]]}),
    # rows r, z, n; the last bias is the candidate's recurrent one
    ("c_header.gru", Sizes("gru", 1, 2, parts=BOTH), {
        "W": [[1111], [1121], [1211], [1221], [1311], [1321]],
        "R": [[2111, 2112], [2121, 2122], [2211, 2212], [2221, 2222], [2311, 2312], [2321, 2322]],
        "b": [3110, 3120, 3210, 3220, 3310, 3320, 4310, 4320]}),
    ("c_header.gru_columns", Sizes("gru", 1, 2, parts=BOTH), {
        "W": [[1111, 1121, 1211, 1221, 1311, 1321]],
        "R": [[2111, 2121, 2211, 2221, 2311, 2321], [2112, 2122, 2212, 2222, 2312, 2322]],
        "b": [3110, 3120, 3210, 3220, 3310, 3320, 4310, 4320]}),
    ("c_header.gru_reset_before", Sizes("gru", 1, 1, parts=_INPUT), {
        "W": [[1111], [1211], [1311]], "R": [[2111], [2211], [2311]], "b": [3110, 3210, 3310]}),
    ("c_header.gru_reset_before_columns", Sizes("gru", 2, 1, parts=_INPUT), {
        "W": [[1111, 1211, 1311], [1112, 1212, 1312]], "R": [[2111, 2211, 2311]], "b": [3110, 3210, 3310]}),
    ("c_header.rnn", Sizes("rnn", 2, 2, parts=_INPUT), {
        "W": [[1111, 1112], [1121, 1122]], "R": [[2111, 2112], [2121, 2122]], "b": [3110, 3120]}),
    ("c_header.rnn_columns", Sizes("rnn", 3, 2, parts=_INPUT), {
        "W": [[1111, 1121], [1112, 1122], [1113, 1123]], "R": [[2111, 2121], [2112, 2122]], "b": [3110, 3120]}),
    # columns z, r, h
    ("c_header.rnnoise_gru", Sizes("gru", 2, 1, parts=_INPUT), {
        "weights": [[1211, 1111, 1311], [1212, 1112, 1312]], "recurrent_weights": [[2211, 2111, 2311]], "bias": [3210, 3110, 3310]}),
    ("c_header.cmsis_lstm", Sizes("lstm", 2, 1, parts=_INPUT), {
        "input_gate_input_weights": [[1111, 1112]], "forget_gate_input_weights": [[1211, 1212]],
        "cell_gate_input_weights": [[1311, 1312]], "output_gate_input_weights": [[1411, 1412]],
        "input_gate_hidden_weights": [[2111]], "forget_gate_hidden_weights": [[2211]],
        "cell_gate_hidden_weights": [[2311]], "output_gate_hidden_weights": [[2411]],
        "input_gate_bias": [3110], "forget_gate_bias": [3210], "cell_gate_bias": [3310], "output_gate_bias": [3410]}),
]
