"""TensorFlow 1 and Torch7: small arrays by the rule of tests.literals, written down from the frameworks' sources."""

from __future__ import annotations

from typing import Any

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import BOTH, PLAIN
from tests.literals._numbers import GRU, LSTM, RNN

_ONE_BIAS = PLAIN | {"input_bias"}

# fmt: off
LITERALS: list[tuple[str, Sizes, dict[str, list[Any]]]] = [
    # tensorflow/python/ops/rnn_cell_impl.py, class LSTMCell, call: concat([inputs, m_prev]) times the kernel, split into
    # i, j, f, o; j is the candidate
    ("tensorflow1.lstm", Sizes("lstm", 3, 2, parts=_ONE_BIAS), {
        "kernel": LSTM.columns(1, "igfo", 3) + LSTM.columns(2, "igfo", 2), "bias": LSTM.vector(3, "igfo"),
    }),
    # the same with use_peepholes=True and num_proj=1; the state that goes through the kernel is the projected one
    ("tensorflow1.lstm", Sizes("lstm", 3, 2, 1, 1, 1, _ONE_BIAS | {"peephole", "projection"}), {
        "kernel": LSTM.columns(1, "igfo", 3) + LSTM.columns(2, "igfo", 1), "bias": LSTM.vector(3, "igfo"), "w_i_diag": [5110, 5120],
        "w_f_diag": [5210, 5220], "w_o_diag": [5410, 5420], "projection/kernel": [[6011], [6012]],
    }),
    # rnn_cell_impl.py, class GRUCell, call: r, u = split(sigmoid(...)); the candidate reads [inputs, r * state];
    # new_h = u * state + (1 - u) * c, so u is z
    ("tensorflow1.gru", Sizes("gru", 3, 2, parts=_ONE_BIAS), {
        "gates/kernel": GRU.columns(1, "rz", 3) + GRU.columns(2, "rz", 2), "gates/bias": GRU.vector(3, "rz"),
        "candidate/kernel": GRU.columns(1, "n", 3) + GRU.columns(2, "n", 2), "candidate/bias": [3310, 3320],
    }),
    # contrib/rnn/python/ops/gru_ops.py, class GRUBlockCell, build and call; the equations in ops/gru_ops.cc's documentation
    ("tensorflow1.gru_block", Sizes("gru", 3, 2, parts=_ONE_BIAS), {
        "w_ru": GRU.columns(1, "rz", 3) + GRU.columns(2, "rz", 2), "b_ru": GRU.vector(3, "rz"),
        "w_c": GRU.columns(1, "n", 3) + GRU.columns(2, "n", 2), "b_c": [3310, 3320],
    }),
    # contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, class CudnnCompatibleGRUCell, call
    ("tensorflow1.cudnn_gru", Sizes("gru", 3, 2, parts=BOTH), {
        "gates/kernel": GRU.columns(1, "rz", 3) + GRU.columns(2, "rz", 2), "gates/bias": GRU.vector(3, "rz"),
        "candidate/input_projection/kernel": GRU.columns(1, "n", 3), "candidate/input_projection/bias": [3310, 3320],
        "candidate/hidden_projection/kernel": GRU.columns(2, "n", 2), "candidate/hidden_projection/bias": [4310, 4320],
    }),
    # rnn_cell_impl.py, class BasicRNNCell, call
    ("tensorflow1.rnn", Sizes("rnn", 3, 2, parts=_ONE_BIAS), {
        "kernel": RNN.columns(1, "n", 3) + RNN.columns(2, "n", 2), "bias": [3110, 3120],
    }),
    # contrib/rnn/python/ops/rnn_cell.py, class CoupledInputForgetGateLSTMCell, call: j, f, o = split(...), and
    # c = f_act * c_prev + (1 - f_act) * activation(j): gate i has no arrays
    ("tensorflow1.coupled_lstm", Sizes("lstm", 3, 2, 1, 1, 1, _ONE_BIAS | {"peephole", "projection"}), {
        "W_0": LSTM.columns(1, "gfo", 3) + LSTM.columns(2, "gfo", 1), "B": LSTM.vector(3, "gfo"), "W_F_diag": [5210, 5220],
        "W_O_diag": [5410, 5420], "W_P_0": [[6011], [6012]],
    }),
    # contrib/cudnn_rnn: the buffer is cuDNN's: for each layer and direction all matrices of the input, then of the state; then the biases
    ("tensorflow1.lstm_flat", Sizes("lstm", 1, 1, parts=BOTH), {
        "opaque_kernel": [1111, 1211, 1311, 1411, 2111, 2211, 2311, 2411, 3110, 3210, 3310, 3410, 4110, 4210, 4310, 4410],
    }),
    ("tensorflow1.gru_flat", Sizes("gru", 2, 1, parts=BOTH), {
        "opaque_kernel": [1111, 1112, 1211, 1212, 1311, 1312, 2111, 2211, 2311, 3110, 3210, 3310, 4110, 4210, 4310],
    }),
    ("tensorflow1.rnn_flat", Sizes("rnn", 2, 1, 2, 2, parts=BOTH), {
        "opaque_kernel": [1111, 1112, 2111, 11111, 11112, 12111, 21111, 21112, 22111, 31111, 31112, 32111, 3110, 4110, 13110, 14110, 23110,
            24110, 33110, 34110],
    }),
    # Element-Research/rnn SeqLSTM.lua: columns of cur_gates: i, f, o through sigmoid, then g through tanh
    ("torch7.seq_lstm", Sizes("lstm", 3, 2, parts=_ONE_BIAS), {
        "weight": LSTM.columns(1, "ifog", 3) + LSTM.columns(2, "ifog", 2), "bias": LSTM.vector(3, "ifog"),
    }),
    # SeqLSTMP.lua: next_h is the hidden one times weightO, (hidden, out)
    ("torch7.seq_lstm", Sizes("lstm", 3, 2, 1, 1, 1, _ONE_BIAS | {"projection"}), {
        "weight": LSTM.columns(1, "ifog", 3) + LSTM.columns(2, "ifog", 1), "bias": LSTM.vector(3, "ifog"), "weightO": [[6011], [6012]],
    }),
    # SeqGRU.lua: columns r, u, hc; next_h = (1-u) . hc + u . prev_h
    ("torch7.seq_gru", Sizes("gru", 3, 2, parts=_ONE_BIAS), {
        "weight": GRU.columns(1, "rzn", 3) + GRU.columns(2, "rzn", 2), "bias": GRU.vector(3, "rzn"),
    }),
    # torch-rnn VanillaRNN.lua: weight[{{1, D}}] acts on x, the rest on h
    ("torch7.vanilla_rnn", Sizes("rnn", 3, 2, parts=_ONE_BIAS), {
        "weight": RNN.columns(1, "n", 3) + RNN.columns(2, "n", 2), "bias": [3110, 3120],
    }),
    # FastLSTM.lua: "input, hidden, forget, output" after nn.Reshape(4, outputSize); a Linear's rows are its outputs
    ("torch7.fast_lstm", Sizes("lstm", 3, 2, parts=_ONE_BIAS), {
        "i2g/weight": LSTM.rows(1, "igfo", 3), "i2g/bias": LSTM.vector(3, "igfo"), "o2g/weight": LSTM.rows(2, "igfo", 2),
    }),
    # LSTM.lua: each gate a Linear of the input, one of the last output, and a CMul of the cell
    ("torch7.lstm", Sizes("lstm", 3, 2, parts=_ONE_BIAS | {"peephole"}), {
        "inputGate/input/weight": LSTM.rows(1, "i", 3), "forgetGate/input/weight": LSTM.rows(1, "f", 3),
        "hiddenLayer/input/weight": LSTM.rows(1, "g", 3), "outputGate/input/weight": LSTM.rows(1, "o", 3),
        "inputGate/input/bias": [3110, 3120], "forgetGate/input/bias": [3210, 3220], "hiddenLayer/input/bias": [3310, 3320],
        "outputGate/input/bias": [3410, 3420], "inputGate/output/weight": LSTM.rows(2, "i", 2),
        "forgetGate/output/weight": LSTM.rows(2, "f", 2), "hiddenLayer/output/weight": LSTM.rows(2, "g", 2),
        "outputGate/output/weight": LSTM.rows(2, "o", 2), "inputGate/cell/weight": [5110, 5120], "forgetGate/cell/weight": [5210, 5220],
        "outputGate/cell/weight": [5410, 5420],
    }),
    # GRU.lua: i2g and o2g give r then z; the candidate's Linears are in hidden
    ("torch7.gru", Sizes("gru", 3, 2, parts=_ONE_BIAS), {
        "i2g/weight": GRU.rows(1, "rz", 3), "i2g/bias": GRU.vector(3, "rz"), "o2g/weight": GRU.rows(2, "rz", 2),
        "t1/weight": GRU.rows(1, "n", 3), "t1/bias": [3310, 3320], "t2/weight": GRU.rows(2, "n", 2),
    }),
    # cuDNN's own order: for each layer and direction all matrices of the input, then of the state; then the biases
    ("torch7.cudnn_lstm", Sizes("lstm", 1, 1, parts=BOTH), {
        "weight": [1111, 1211, 1311, 1411, 2111, 2211, 2311, 2411, 3110, 3210, 3310, 3410, 4110, 4210, 4310, 4410],
    }),
    ("torch7.cudnn_gru", Sizes("gru", 2, 1, parts=BOTH), {
        "weight": [1111, 1112, 1211, 1212, 1311, 1312, 2111, 2211, 2311, 3110, 3210, 3310, 4110, 4210, 4310],
    }),
    ("torch7.cudnn_rnn", Sizes("rnn", 2, 1, 2, 2, parts=BOTH), {
        "weight": [1111, 1112, 2111, 11111, 11112, 12111, 21111, 21112, 22111, 31111, 31112, 32111, 3110, 4110, 13110, 14110, 23110, 24110,
            33110, 34110],
    }),
]
