"""Literal arrays of libraries whose weights are the memory of a program: see tests.literals."""

from __future__ import annotations

from typing import Any

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import BOTH, PLAIN
from tests.literals._numbers import GRU, LSTM, RNN

_INPUT_BIAS = PLAIN | {"input_bias"}

# fmt: off
LITERALS: list[tuple[str, Sizes, dict[str, list[Any]]]] = [
    # GRULayer: w3s0 [3 * hidden, features]; w3sN, u3s [layers, 3 * hidden, hidden]; bW3s, bU3s [layers, 1, 3 * hidden]
    ("arraymancer.gru", Sizes("gru", 3, 2, 2), {
        "w3s0": GRU.rows(1, "rzn", 3), "w3sN": [GRU.rows(21, "rzn", 2)], "u3s": [GRU.rows(2, "rzn", 2), GRU.rows(22, "rzn", 2)],
        "bW3s": [[GRU.vector(3, "rzn")], [GRU.vector(23, "rzn")]], "bU3s": [[GRU.vector(4, "rzn")], [GRU.vector(24, "rzn")]],
    }),
    # its own kernels: W by columns, and nothing else
    ("persistent_rnn.rnn", Sizes("rnn", 2, 2, parts=frozenset({"recurrent"}), skip_input=True), {"weights": [2111, 2121, 2112, 2122]}),
    # what it hands to cuDNN: linLayerIDs 0 to 2 r z n of W, 3 to 5 of R, then the biases
    ("persistent_rnn.gru", Sizes("gru", 1, 1), {"weights": [1111, 1211, 1311, 2111, 2211, 2311, 3110, 3210, 3310, 4110, 4210, 4310]}),
    ("persistent_rnn.lstm", Sizes("lstm", 1, 1), {
        "weights": [1111, 1211, 1311, 1411, 2111, 2211, 2311, 2411, 3110, 3210, 3310, 3410, 4110, 4210, 4310, 4410],
    }),
    ("persistent_rnn.rnn_cudnn", Sizes("rnn", 3, 2), {
        "weights": [1111, 1112, 1113, 1121, 1122, 1123, 2111, 2112, 2121, 2122, 3110, 3120, 4110, 4120],
    }),
    # ldigo: (layer, direction, input, gate, output); LSTM i f c~ o, peepholes i f o, projection ldio
    ("onednn.lstm", Sizes("lstm", 3, 2, 1, 2, 0, _INPUT_BIAS | {"peephole"}), {
        "weights_layer": [[
            [[[1111, 1121], [1211, 1221], [1311, 1321], [1411, 1421]],
             [[1112, 1122], [1212, 1222], [1312, 1322], [1412, 1422]],
             [[1113, 1123], [1213, 1223], [1313, 1323], [1413, 1423]]],
            [[[11111, 11121], [11211, 11221], [11311, 11321], [11411, 11421]],
             [[11112, 11122], [11212, 11222], [11312, 11322], [11412, 11422]],
             [[11113, 11123], [11213, 11223], [11313, 11323], [11413, 11423]]],
        ]],
        "weights_iter": [[[[[2111, 2121], [2211, 2221], [2311, 2321], [2411, 2421]], [[2112, 2122], [2212, 2222], [2312, 2322], [2412,
            2422]]], [[[12111, 12121], [12211, 12221], [12311, 12321], [12411, 12421]], [[12112, 12122], [12212, 12222], [12312, 12322],
            [12412, 12422]]]]],
        "bias": [[[[3110, 3120], [3210, 3220], [3310, 3320], [3410, 3420]], [[13110, 13120], [13210, 13220], [13310, 13320], [13410,
            13420]]]],
        "weights_peephole": [[[[5110, 5120], [5210, 5220], [5410, 5420]], [[15110, 15120], [15210, 15220], [15410, 15420]]]],
    }),
    ("onednn.lstm", Sizes("lstm", 3, 2, 1, 1, 1, _INPUT_BIAS | {"projection"}), {
        "weights_layer": [[[[[1111, 1121], [1211, 1221], [1311, 1321], [1411, 1421]], [[1112, 1122], [1212, 1222], [1312, 1322], [1412,
            1422]], [[1113, 1123], [1213, 1223], [1313, 1323], [1413, 1423]]]]],
        "weights_iter": [[[[[2111, 2121], [2211, 2221], [2311, 2321], [2411, 2421]]]]],
        "bias": [[[[3110, 3120], [3210, 3220], [3310, 3320], [3410, 3420]]]], "weights_projection": [[[[6011], [6012]]]],
    }),
    # ldgoi: the input last; projection ldoi
    ("onednn.lstm_ldgoi", Sizes("lstm", 3, 2, 1, 1, 1, _INPUT_BIAS | {"projection"}), {
        "weights_layer_ldgoi": [[[LSTM.rows(1, "i", 3), LSTM.rows(1, "f", 3), LSTM.rows(1, "g", 3), LSTM.rows(1, "o", 3)]]],
        "weights_iter_ldgoi": [[[[[2111], [2121]], [[2211], [2221]], [[2311], [2321]], [[2411], [2421]]]]],
        "bias": [[[[3110, 3120], [3210, 3220], [3310, 3320], [3410, 3420]]]], "weights_projection_ldoi": [[[[6011, 6012]]]],
    }),
    # GRU: u r o, three biases
    ("onednn.gru", Sizes("gru", 3, 2, 1, 1, 0, _INPUT_BIAS), {
        "weights_layer": [[[[[1211, 1221], [1111, 1121], [1311, 1321]], [[1212, 1222], [1112, 1122], [1312, 1322]], [[1213, 1223], [1113,
            1123], [1313, 1323]]]]],
        "weights_iter": [[[[[2211, 2221], [2111, 2121], [2311, 2321]], [[2212, 2222], [2112, 2122], [2312, 2322]]]]],
        "bias": [[[[3210, 3220], [3110, 3120], [3310, 3320]]]],
    }),
    ("onednn.gru_ldgoi", Sizes("gru", 3, 2, 1, 1, 0, _INPUT_BIAS), {
        "weights_layer_ldgoi": [[[GRU.rows(1, "z", 3), GRU.rows(1, "r", 3), GRU.rows(1, "n", 3)]]],
        "weights_iter_ldgoi": [[[GRU.rows(2, "z", 2), GRU.rows(2, "r", 2), GRU.rows(2, "n", 2)]]],
        "bias": [[[[3210, 3220], [3110, 3120], [3310, 3320]]]],
    }),
    # lbr_gru: four biases, u r o u', the last one the candidate's beside the recurrent product
    ("onednn.lbr_gru", Sizes("gru", 3, 2, 1, 1, 0, BOTH), {
        "weights_layer": [[[[[1211, 1221], [1111, 1121], [1311, 1321]], [[1212, 1222], [1112, 1122], [1312, 1322]], [[1213, 1223], [1113,
            1123], [1313, 1323]]]]],
        "weights_iter": [[[[[2211, 2221], [2111, 2121], [2311, 2321]], [[2212, 2222], [2112, 2122], [2312, 2322]]]]],
        "bias": [[[[3210, 3220], [3110, 3120], [3310, 3320], [4310, 4320]]]],
    }),
    ("onednn.lbr_gru_ldgoi", Sizes("gru", 3, 2, 1, 1, 0, BOTH), {
        "weights_layer_ldgoi": [[[GRU.rows(1, "z", 3), GRU.rows(1, "r", 3), GRU.rows(1, "n", 3)]]],
        "weights_iter_ldgoi": [[[GRU.rows(2, "z", 2), GRU.rows(2, "r", 2), GRU.rows(2, "n", 2)]]],
        "bias": [[[[3210, 3220], [3110, 3120], [3310, 3320], [4310, 4320]]]],
    }),
    ("onednn.rnn", Sizes("rnn", 3, 2, 1, 1, 0, _INPUT_BIAS), {
        "weights_layer": [[[[[1111, 1121]], [[1112, 1122]], [[1113, 1123]]]]], "weights_iter": [[[[[2111, 2121]], [[2112, 2122]]]]],
        "bias": [[[[3110, 3120]]]],
    }),
    ("onednn.rnn_ldgoi", Sizes("rnn", 3, 2, 1, 1, 0, _INPUT_BIAS), {
        "weights_layer_ldgoi": [[[RNN.rows(1, "n", 3)]]], "weights_iter_ldgoi": [[[RNN.rows(2, "n", 2)]]], "bias": [[[[3110, 3120]]]],
    }),
]
# fmt: on
