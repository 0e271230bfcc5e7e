"""Small arrays of Julia's frameworks, written down from their sources; see the head of tests/literals/__init__.py.

Matrices are as Julia shapes them. A flat vector is written as its source fills it: a matrix of (inputs, units) in Julia's
order of memory, one unit's inputs after another.
"""

from __future__ import annotations

from typing import Any

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import BOTH, PLAIN

INPUT_BIAS = PLAIN | {"input_bias"}
HIDDEN = {"initial_hidden"}
STATES = {"initial_hidden", "initial_cell"}

# fmt: off
_LSTM_WI = [
    [1111, 1112, 1113], [1121, 1122, 1123], [1211, 1212, 1213], [1221, 1222, 1223], [1311, 1312, 1313], [1321, 1322, 1323],
    [1411, 1412, 1413], [1421, 1422, 1423],
]
_LSTM_WH = [[2111, 2112], [2121, 2122], [2211, 2212], [2221, 2222], [2311, 2312], [2321, 2322], [2411, 2412], [2421, 2422]]
_LSTM_B = [3110, 3120, 3210, 3220, 3310, 3320, 3410, 3420]
_LSTM_BH = [4110, 4120, 4210, 4220, 4310, 4320, 4410, 4420]
_GRU_WI = [[1111, 1112, 1113], [1121, 1122, 1123], [1211, 1212, 1213], [1221, 1222, 1223], [1311, 1312, 1313], [1321, 1322, 1323]]
_GRU_WH = [[2111, 2112], [2121, 2122], [2211, 2212], [2221, 2222], [2311, 2312], [2321, 2322]]
_GRU_B = [3110, 3120, 3210, 3220, 3310, 3320]
_GRU_BH = [4110, 4120, 4210, 4220, 4310, 4320]
_RNN_WI = [[1111, 1112, 1113], [1121, 1122, 1123]]
_RNN_WH = [[2111, 2112], [2121, 2122]]
_RNN_B = [3110, 3120]
_RNN_BH = [4110, 4120]

LITERALS: list[tuple[str, Sizes, dict[str, list[Any]]]] = [
    # input, forget, cell, output = chunk(g, 4; dims = 1) (LSTMCell of 0.16)
    ("flux.lstm", Sizes("lstm", 3, 2, parts=INPUT_BIAS), {"Wi": _LSTM_WI, "Wh": _LSTM_WH, "bias": _LSTM_B}),
    ("flux.lstm", Sizes("lstm", 3, 2, parts=PLAIN), {"Wi": _LSTM_WI, "Wh": _LSTM_WH}),
    # r from the first chunk, z from the second, h̃ from the third (GRUCell of 0.16)
    ("flux.gru", Sizes("gru", 3, 2, parts=INPUT_BIAS), {"Wi": _GRU_WI, "Wh": _GRU_WH, "b": _GRU_B}),
    # ghs[3] is never read, h̃ takes Wh_h̃ (GRUv3Cell of 0.16)
    ("flux.gru_v3", Sizes("gru", 3, 2, parts=INPUT_BIAS), {
        "Wi": _GRU_WI,
        "Wh": [[2111, 2112], [2121, 2122], [2211, 2212], [2221, 2222], [0, 0], [0, 0]],
        "b": _GRU_B,
        "Wh_h̃": [[2311, 2312], [2321, 2322]],
    }),
    ("flux.rnn", Sizes("rnn", 3, 2, parts=INPUT_BIAS), {"Wi": _RNN_WI, "Wh": _RNN_WH, "bias": _RNN_B}),
    # state0 is (init_state(out, 1), init_state(out, 1)), h before c (LSTMCell of 0.12)
    ("flux.lstm_0_12", Sizes("lstm", 3, 2, parts=INPUT_BIAS | STATES), {
        "Wi": _LSTM_WI, "Wh": _LSTM_WH, "b": _LSTM_B,
        "state0/1": [[7010], [7020]], "state0/2": [[8010], [8020]],
    }),
    ("flux.gru_0_12", Sizes("gru", 3, 2, parts=INPUT_BIAS | HIDDEN), {
        "Wi": _GRU_WI, "Wh": _GRU_WH, "b": _GRU_B, "state0": [[7010], [7020]],
    }),
    # Wh has out * 2 rows: multigate(Wh*h, o, Val(2)) (GRUv3Cell of 0.12 to 0.14)
    ("flux.gru_v3_0_12", Sizes("gru", 3, 2, parts=INPUT_BIAS | HIDDEN), {
        "Wi": _GRU_WI,
        "Wh": [[2111, 2112], [2121, 2122], [2211, 2212], [2221, 2222]],
        "b": _GRU_B,
        "Wh_h̃": [[2311, 2312], [2321, 2322]],
        "state0": [[7010], [7020]],
    }),
    ("flux.rnn_0_12", Sizes("rnn", 3, 2, parts=INPUT_BIAS | HIDDEN), {
        "Wi": _RNN_WI, "Wh": _RNN_WH, "b": _RNN_B, "state0": [[7010], [7020]],
    }),
    # hidden(m) is (m.h, m.c), vectors (LSTMCell of 0.9)
    ("flux.lstm_0_8", Sizes("lstm", 3, 2, parts=INPUT_BIAS | STATES), {
        "Wi": _LSTM_WI, "Wh": _LSTM_WH, "b": _LSTM_B, "h": [7010, 7020], "c": [8010, 8020],
    }),
    ("flux.gru_0_8", Sizes("gru", 3, 2, parts=INPUT_BIAS | HIDDEN), {
        "Wi": _GRU_WI, "Wh": _GRU_WH, "b": _GRU_B, "h": [7010, 7020],
    }),
    ("flux.rnn_0_8", Sizes("rnn", 3, 2, parts=INPUT_BIAS | HIDDEN), {
        "Wi": _RNN_WI, "Wh": _RNN_WH, "b": _RNN_B, "h": [7010, 7020],
    }),
    # wx = (input, hidden*n), then wh = (hidden, hidden*n), then the bias; cuDNN's second biases after it (rnncompat.jl)
    ("flux.lstm_flat", Sizes("lstm", 3, 2), {"params": [
        1111, 1112, 1113, 1121, 1122, 1123, 1211, 1212, 1213, 1221, 1222, 1223, 1311, 1312, 1313, 1321, 1322, 1323, 1411, 1412,
        1413, 1421, 1422, 1423, 2111, 2112, 2121, 2122, 2211, 2212, 2221, 2222, 2311, 2312, 2321, 2322, 2411, 2412, 2421, 2422,
        3110, 3120, 3210, 3220, 3310, 3320, 3410, 3420, 4110, 4120, 4210, 4220, 4310, 4320, 4410, 4420,
    ]}),
    ("flux.gru_flat", Sizes("gru", 3, 2), {"params": [
        1111, 1112, 1113, 1121, 1122, 1123, 1211, 1212, 1213, 1221, 1222, 1223, 1311, 1312, 1313, 1321, 1322, 1323, 2111, 2112,
        2121, 2122, 2211, 2212, 2221, 2222, 2311, 2312, 2321, 2322, 3110, 3120, 3210, 3220, 3310, 3320, 4110, 4120, 4210, 4220,
        4310, 4320,
    ]}),
    ("flux.rnn_flat", Sizes("rnn", 3, 2), {"params": [
        1111, 1112, 1113, 1121, 1122, 1123, 2111, 2112, 2121, 2122, 3110, 3120, 4110, 4120,
    ]}),
    # W_ii, W_if, W_ig, W_io; the memory is a vector (LSTMCell of 1.x)
    ("lux.lstm", Sizes("lstm", 3, 2, parts=BOTH | STATES), {
        "weight_ih": _LSTM_WI, "weight_hh": _LSTM_WH, "bias_ih": _LSTM_B, "bias_hh": _LSTM_BH,
        "hidden_state": [7010, 7020], "memory": [8010, 8020],
    }),
    # W_ir, W_iz, W_in (GRUCell of 1.x), in a BidirectionalRNN: forward_rnn, and backward_rnn with rev1, rnn and rev2
    ("lux.gru", Sizes("gru", 3, 2, 1, 2), {
        "forward_rnn/weight_ih": _GRU_WI,
        "backward_rnn/rnn/weight_ih": [
            [11111, 11112, 11113], [11121, 11122, 11123], [11211, 11212, 11213], [11221, 11222, 11223], [11311, 11312, 11313],
            [11321, 11322, 11323],
        ],
        "forward_rnn/weight_hh": _GRU_WH,
        "backward_rnn/rnn/weight_hh": [
            [12111, 12112], [12121, 12122], [12211, 12212], [12221, 12222], [12311, 12312], [12321, 12322],
        ],
        "forward_rnn/bias_ih": _GRU_B,
        "backward_rnn/rnn/bias_ih": [13110, 13120, 13210, 13220, 13310, 13320],
        "forward_rnn/bias_hh": _GRU_BH,
        "backward_rnn/rnn/bias_hh": [14110, 14120, 14210, 14220, 14310, 14320],
    }),
    ("lux.gru", Sizes("gru", 3, 2), {
        "weight_ih": _GRU_WI, "weight_hh": _GRU_WH, "bias_ih": _GRU_B, "bias_hh": _GRU_BH,
    }),
    ("lux.rnn", Sizes("rnn", 3, 2, parts=BOTH | HIDDEN), {
        "weight_ih": _RNN_WI, "weight_hh": _RNN_WH, "bias_ih": _RNN_B, "bias_hh": _RNN_BH, "hidden_state": [7010, 7020],
    }),
    # bias = vcat of init_bias(rng, out_dims, 1) (LSTMCell of 0.5)
    ("lux.lstm_0_5", Sizes("lstm", 3, 2, parts=INPUT_BIAS | STATES), {
        "weight_i": _LSTM_WI, "weight_h": _LSTM_WH,
        "bias": [[3110], [3120], [3210], [3220], [3310], [3320], [3410], [3420]],
        "hidden_state": [7010, 7020], "memory": [8010, 8020],
    }),
    # bias_i is b_in, bias_h is b_hr, b_hz, b_hn (GRUCell of 0.5)
    ("lux.gru_0_5", Sizes("gru", 3, 2, parts=BOTH | HIDDEN), {
        "weight_i": _GRU_WI, "weight_h": _GRU_WH,
        "bias_i": [[3310], [3320]],
        "bias_h": [[4110], [4120], [4210], [4220], [4310], [4320]],
        "hidden_state": [7010, 7020],
    }),
    ("lux.rnn_0_5", Sizes("rnn", 3, 2, parts=INPUT_BIAS | HIDDEN), {
        "weight_ih": _RNN_WI, "weight_hh": _RNN_WH, "bias": _RNN_B, "hidden_state": [7010, 7020],
    }),
    # init_state(rng, out_dims, 1) (RNNCell of 0.4)
    ("lux.rnn_0_4", Sizes("rnn", 3, 2, parts=INPUT_BIAS | HIDDEN), {
        "weight_ih": _RNN_WI, "weight_hh": _RNN_WH, "bias": _RNN_B, "init_state": [[7010], [7020]],
    }),
    # inputgate = 1,5; forget = 2,6; newmem = 3,7; output = 4,8 (rnnparam)
    ("knet.lstm", Sizes("lstm", 3, 2), {"w": [
        1111, 1112, 1113, 1121, 1122, 1123, 1211, 1212, 1213, 1221, 1222, 1223, 1311, 1312, 1313, 1321, 1322, 1323, 1411, 1412,
        1413, 1421, 1422, 1423, 2111, 2112, 2121, 2122, 2211, 2212, 2221, 2222, 2311, 2312, 2321, 2322, 2411, 2412, 2421, 2422,
        3110, 3120, 3210, 3220, 3310, 3320, 3410, 3420, 4110, 4120, 4210, 4220, 4310, 4320, 4410, 4420,
    ]}),
    # reset = 1,4; update = 2,5; newmem = 3,6 (rnnparam)
    ("knet.gru", Sizes("gru", 3, 2), {"w": [
        1111, 1112, 1113, 1121, 1122, 1123, 1211, 1212, 1213, 1221, 1222, 1223, 1311, 1312, 1313, 1321, 1322, 1323, 2111, 2112,
        2121, 2122, 2211, 2212, 2221, 2222, 2311, 2312, 2321, 2322, 3110, 3120, 3210, 3220, 3310, 3320, 4110, 4120, 4210, 4220,
        4310, 4320,
    ]}),
    # forward and back layers alternate; a second layer reads 2 * hidden values; all matrices come before all biases
    ("knet.rnn", Sizes("rnn", 3, 2, 2, 2), {"w": [
        1111, 1112, 1113, 1121, 1122, 1123, 2111, 2112, 2121, 2122, 11111, 11112, 11113, 11121, 11122, 11123, 12111, 12112, 12121,
        12122, 21111, 21112, 21113, 21114, 21121, 21122, 21123, 21124, 22111, 22112, 22121, 22122, 31111, 31112, 31113, 31114,
        31121, 31122, 31123, 31124, 32111, 32112, 32121, 32122, 3110, 3120, 4110, 4120, 13110, 13120, 14110, 14120, 23110, 23120,
        24110, 24120, 33110, 33120, 34110, 34120,
    ]}),
]
# fmt: on
