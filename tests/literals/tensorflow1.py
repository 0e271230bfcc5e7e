"""TensorFlow 1 and Torch7: small arrays by the rule of tests.literals, written down from the frameworks' sources."""

from __future__ import annotations

from typing import Any

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import BOTH, PLAIN

_ONE_BIAS = PLAIN | {"input_bias"}

# fmt: off
LITERALS: list[tuple[str, Sizes, dict[str, list[Any]]]] = [
    # tensorflow/python/ops/rnn_cell_impl.py, class LSTMCell, call: concat([inputs, m_prev]) times the kernel, split into
    # i, j, f, o; j is the candidate
    ("tensorflow1.lstm", Sizes("lstm", 3, 2, parts=_ONE_BIAS), {
        "kernel": [
            [1111, 1121, 1311, 1321, 1211, 1221, 1411, 1421], [1112, 1122, 1312, 1322, 1212, 1222, 1412, 1422],
            [1113, 1123, 1313, 1323, 1213, 1223, 1413, 1423], [2111, 2121, 2311, 2321, 2211, 2221, 2411, 2421],
            [2112, 2122, 2312, 2322, 2212, 2222, 2412, 2422],
        ],
        "bias": [3110, 3120, 3310, 3320, 3210, 3220, 3410, 3420],
    }),
    # the same with use_peepholes=True and num_proj=1; the state that goes through the kernel is the projected one
    ("tensorflow1.lstm", Sizes("lstm", 3, 2, 1, 1, 1, _ONE_BIAS | {"peephole", "projection"}), {
        "kernel": [
            [1111, 1121, 1311, 1321, 1211, 1221, 1411, 1421], [1112, 1122, 1312, 1322, 1212, 1222, 1412, 1422],
            [1113, 1123, 1313, 1323, 1213, 1223, 1413, 1423], [2111, 2121, 2311, 2321, 2211, 2221, 2411, 2421],
        ],
        "bias": [3110, 3120, 3310, 3320, 3210, 3220, 3410, 3420],
        "w_i_diag": [5110, 5120],
        "w_f_diag": [5210, 5220],
        "w_o_diag": [5410, 5420],
        "projection/kernel": [[6011], [6012]],
    }),
    # rnn_cell_impl.py, class GRUCell, call: r, u = split(sigmoid(...)); the candidate reads [inputs, r * state];
    # new_h = u * state + (1 - u) * c, so u is z
    ("tensorflow1.gru", Sizes("gru", 3, 2, parts=_ONE_BIAS), {
        "gates/kernel": [
            [1111, 1121, 1211, 1221], [1112, 1122, 1212, 1222], [1113, 1123, 1213, 1223], [2111, 2121, 2211, 2221],
            [2112, 2122, 2212, 2222],
        ],
        "gates/bias": [3110, 3120, 3210, 3220],
        "candidate/kernel": [[1311, 1321], [1312, 1322], [1313, 1323], [2311, 2321], [2312, 2322]],
        "candidate/bias": [3310, 3320],
    }),
    # contrib/rnn/python/ops/gru_ops.py, class GRUBlockCell, build and call; the equations in ops/gru_ops.cc's documentation
    ("tensorflow1.gru_block", Sizes("gru", 3, 2, parts=_ONE_BIAS), {
        "w_ru": [
            [1111, 1121, 1211, 1221], [1112, 1122, 1212, 1222], [1113, 1123, 1213, 1223], [2111, 2121, 2211, 2221],
            [2112, 2122, 2212, 2222],
        ],
        "b_ru": [3110, 3120, 3210, 3220],
        "w_c": [[1311, 1321], [1312, 1322], [1313, 1323], [2311, 2321], [2312, 2322]],
        "b_c": [3310, 3320],
    }),
    # contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, class CudnnCompatibleGRUCell, call
    ("tensorflow1.cudnn_gru", Sizes("gru", 3, 2, parts=BOTH), {
        "gates/kernel": [
            [1111, 1121, 1211, 1221], [1112, 1122, 1212, 1222], [1113, 1123, 1213, 1223], [2111, 2121, 2211, 2221],
            [2112, 2122, 2212, 2222],
        ],
        "gates/bias": [3110, 3120, 3210, 3220],
        "candidate/input_projection/kernel": [[1311, 1321], [1312, 1322], [1313, 1323]],
        "candidate/input_projection/bias": [3310, 3320],
        "candidate/hidden_projection/kernel": [[2311, 2321], [2312, 2322]],
        "candidate/hidden_projection/bias": [4310, 4320],
    }),
    # rnn_cell_impl.py, class BasicRNNCell, call
    ("tensorflow1.rnn", Sizes("rnn", 3, 2, parts=_ONE_BIAS), {
        "kernel": [[1111, 1121], [1112, 1122], [1113, 1123], [2111, 2121], [2112, 2122]],
        "bias": [3110, 3120],
    }),
    # contrib/rnn/python/ops/rnn_cell.py, class CoupledInputForgetGateLSTMCell, call: j, f, o = split(...), and
    # c = f_act * c_prev + (1 - f_act) * activation(j): gate i has no arrays
    ("tensorflow1.coupled_lstm", Sizes("lstm", 3, 2, 1, 1, 1, _ONE_BIAS | {"peephole", "projection"}), {
        "W_0": [
            [1311, 1321, 1211, 1221, 1411, 1421], [1312, 1322, 1212, 1222, 1412, 1422], [1313, 1323, 1213, 1223, 1413, 1423],
            [2311, 2321, 2211, 2221, 2411, 2421],
        ],
        "B": [3310, 3320, 3210, 3220, 3410, 3420],
        "W_F_diag": [5210, 5220],
        "W_O_diag": [5410, 5420],
        "W_P_0": [[6011], [6012]],
    }),
    # contrib/cudnn_rnn: the buffer is cuDNN's: for each layer and direction all matrices of the input, then of the state; then the biases
    ("tensorflow1.lstm_flat", Sizes("lstm", 1, 1, parts=BOTH), {
        "opaque_kernel": [1111, 1211, 1311, 1411, 2111, 2211, 2311, 2411, 3110, 3210, 3310, 3410, 4110, 4210, 4310, 4410],
    }),
    ("tensorflow1.gru_flat", Sizes("gru", 2, 1, parts=BOTH), {
        "opaque_kernel": [1111, 1112, 1211, 1212, 1311, 1312, 2111, 2211, 2311, 3110, 3210, 3310, 4110, 4210, 4310],
    }),
    ("tensorflow1.rnn_flat", Sizes("rnn", 2, 1, 2, 2, parts=BOTH), {
        "opaque_kernel": [
            1111, 1112, 2111, 11111, 11112, 12111, 21111, 21112, 22111, 31111, 31112, 32111, 3110, 4110, 13110, 14110, 23110, 24110,
            33110, 34110,
        ],
    }),
    # Element-Research/rnn SeqLSTM.lua: columns of cur_gates: i, f, o through sigmoid, then g through tanh
    ("torch7.seq_lstm", Sizes("lstm", 3, 2, parts=_ONE_BIAS), {
        "weight": [
            [1111, 1121, 1211, 1221, 1411, 1421, 1311, 1321], [1112, 1122, 1212, 1222, 1412, 1422, 1312, 1322],
            [1113, 1123, 1213, 1223, 1413, 1423, 1313, 1323], [2111, 2121, 2211, 2221, 2411, 2421, 2311, 2321],
            [2112, 2122, 2212, 2222, 2412, 2422, 2312, 2322],
        ],
        "bias": [3110, 3120, 3210, 3220, 3410, 3420, 3310, 3320],
    }),
    # SeqLSTMP.lua: next_h is the hidden one times weightO, (hidden, out)
    ("torch7.seq_lstm", Sizes("lstm", 3, 2, 1, 1, 1, _ONE_BIAS | {"projection"}), {
        "weight": [
            [1111, 1121, 1211, 1221, 1411, 1421, 1311, 1321], [1112, 1122, 1212, 1222, 1412, 1422, 1312, 1322],
            [1113, 1123, 1213, 1223, 1413, 1423, 1313, 1323], [2111, 2121, 2211, 2221, 2411, 2421, 2311, 2321],
        ],
        "bias": [3110, 3120, 3210, 3220, 3410, 3420, 3310, 3320],
        "weightO": [[6011], [6012]],
    }),
    # SeqGRU.lua: columns r, u, hc; next_h = (1-u) . hc + u . prev_h
    ("torch7.seq_gru", Sizes("gru", 3, 2, parts=_ONE_BIAS), {
        "weight": [
            [1111, 1121, 1211, 1221, 1311, 1321], [1112, 1122, 1212, 1222, 1312, 1322], [1113, 1123, 1213, 1223, 1313, 1323],
            [2111, 2121, 2211, 2221, 2311, 2321], [2112, 2122, 2212, 2222, 2312, 2322],
        ],
        "bias": [3110, 3120, 3210, 3220, 3310, 3320],
    }),
    # torch-rnn VanillaRNN.lua: weight[{{1, D}}] acts on x, the rest on h
    ("torch7.vanilla_rnn", Sizes("rnn", 3, 2, parts=_ONE_BIAS), {
        "weight": [[1111, 1121], [1112, 1122], [1113, 1123], [2111, 2121], [2112, 2122]],
        "bias": [3110, 3120],
    }),
    # FastLSTM.lua: "input, hidden, forget, output" after nn.Reshape(4, outputSize); a Linear's rows are its outputs
    ("torch7.fast_lstm", Sizes("lstm", 3, 2, parts=_ONE_BIAS), {
        "i2g/weight": [
            [1111, 1112, 1113], [1121, 1122, 1123], [1311, 1312, 1313], [1321, 1322, 1323], [1211, 1212, 1213], [1221, 1222, 1223],
            [1411, 1412, 1413], [1421, 1422, 1423],
        ],
        "i2g/bias": [3110, 3120, 3310, 3320, 3210, 3220, 3410, 3420],
        "o2g/weight": [
            [2111, 2112], [2121, 2122], [2311, 2312], [2321, 2322], [2211, 2212], [2221, 2222], [2411, 2412], [2421, 2422],
        ],
    }),
    # LSTM.lua: each gate a Linear of the input, one of the last output, and a CMul of the cell
    ("torch7.lstm", Sizes("lstm", 3, 2, parts=_ONE_BIAS | {"peephole"}), {
        "inputGate/input/weight": [[1111, 1112, 1113], [1121, 1122, 1123]],
        "forgetGate/input/weight": [[1211, 1212, 1213], [1221, 1222, 1223]],
        "hiddenLayer/input/weight": [[1311, 1312, 1313], [1321, 1322, 1323]],
        "outputGate/input/weight": [[1411, 1412, 1413], [1421, 1422, 1423]],
        "inputGate/input/bias": [3110, 3120],
        "forgetGate/input/bias": [3210, 3220],
        "hiddenLayer/input/bias": [3310, 3320],
        "outputGate/input/bias": [3410, 3420],
        "inputGate/output/weight": [[2111, 2112], [2121, 2122]],
        "forgetGate/output/weight": [[2211, 2212], [2221, 2222]],
        "hiddenLayer/output/weight": [[2311, 2312], [2321, 2322]],
        "outputGate/output/weight": [[2411, 2412], [2421, 2422]],
        "inputGate/cell/weight": [5110, 5120],
        "forgetGate/cell/weight": [5210, 5220],
        "outputGate/cell/weight": [5410, 5420],
    }),
    # GRU.lua: i2g and o2g give r then z; the candidate's Linears are in hidden
    ("torch7.gru", Sizes("gru", 3, 2, parts=_ONE_BIAS), {
        "i2g/weight": [[1111, 1112, 1113], [1121, 1122, 1123], [1211, 1212, 1213], [1221, 1222, 1223]],
        "i2g/bias": [3110, 3120, 3210, 3220],
        "o2g/weight": [[2111, 2112], [2121, 2122], [2211, 2212], [2221, 2222]],
        "t1/weight": [[1311, 1312, 1313], [1321, 1322, 1323]],
        "t1/bias": [3310, 3320],
        "t2/weight": [[2311, 2312], [2321, 2322]],
    }),
    # cuDNN's own order: for each layer and direction all matrices of the input, then of the state; then the biases
    ("torch7.cudnn_lstm", Sizes("lstm", 1, 1, parts=BOTH), {
        "weight": [1111, 1211, 1311, 1411, 2111, 2211, 2311, 2411, 3110, 3210, 3310, 3410, 4110, 4210, 4310, 4410],
    }),
    ("torch7.cudnn_gru", Sizes("gru", 2, 1, parts=BOTH), {
        "weight": [1111, 1112, 1211, 1212, 1311, 1312, 2111, 2211, 2311, 3110, 3210, 3310, 4110, 4210, 4310],
    }),
    ("torch7.cudnn_rnn", Sizes("rnn", 2, 1, 2, 2, parts=BOTH), {
        "weight": [
            1111, 1112, 2111, 11111, 11112, 12111, 21111, 21112, 22111, 31111, 31112, 32111, 3110, 4110, 13110, 14110, 23110, 24110,
            33110, 34110,
        ],
    }),
]
