"""Small arrays in each framework's layout, written down from the framework's documentation.

Each number says where it comes from: 1000 * part + 100 * gate + 10 * row + column, with

    part     1 input, 2 recurrent, 3 input_bias, 4 recurrent_bias, 5 peephole, 6 projection,
             7 initial_hidden, 8 initial_cell
    gate     LSTM 1 i, 2 f, 3 g, 4 o; GRU 1 r, 2 z, 3 n; RNN 1 n; 0 where a part has no gates
    row      from 1; column from 1, and 0 in a vector

and 10000 more in the backward direction, 20000 more in the second layer. There are 3 inputs and 2 units. A bias of
a gate that a framework has no place for is zero, and no number stands for it. `LSTM.rows(1, "ifgo", 3)` is a matrix of the
input with a row for each unit of i, then of f, g and o; `columns` has a column for each, `vector` one number (_numbers.py).
These arrays are never regenerated from the code that they judge.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import BOTH, PLAIN
from tests.literals._numbers import GRU, LSTM, RNN, flat

INPUT_BIAS = PLAIN | {"input_bias"}

# fmt: off
LITERALS: list[tuple[str, Sizes, dict[str, list[Any]]]] = [
    # W_ii|W_if|W_ig|W_io (torch.nn.LSTM, weight_ih_l[k])
    ("pytorch.lstm", Sizes("lstm", 3, 2), {
        "weight_ih_l0": LSTM.rows(1, "ifgo", 3), "weight_hh_l0": LSTM.rows(2, "ifgo", 2), "bias_ih_l0": LSTM.vector(3, "ifgo"),
        "bias_hh_l0": LSTM.vector(4, "ifgo"),
    }),
    # a hidden state of one, projected by weight_hr_l[k] (torch.nn.LSTM, proj_size)
    ("pytorch.lstm", Sizes("lstm", 3, 2, 1, 1, 1, BOTH | {"projection"}), {
        "weight_ih_l0": LSTM.rows(1, "ifgo", 3), "weight_hh_l0": LSTM.rows(2, "ifgo", 1), "bias_ih_l0": LSTM.vector(3, "ifgo"),
        "bias_hh_l0": LSTM.vector(4, "ifgo"), "weight_hr_l0": [[6011, 6012]],
    }),
    # W_ir|W_iz|W_in (torch.nn.GRU, weight_ih_l[k])
    ("pytorch.gru", Sizes("gru", 3, 2), {
        "weight_ih_l0": GRU.rows(1, "rzn", 3), "weight_hh_l0": GRU.rows(2, "rzn", 2), "bias_ih_l0": GRU.vector(3, "rzn"),
        "bias_hh_l0": GRU.vector(4, "rzn"),
    }),
    # a second layer reads both directions, forward first (torch.nn.RNN, weight_ih_l[k])
    ("pytorch.rnn", Sizes("rnn", 3, 2, 2, 2), {
        "weight_ih_l0": RNN.rows(1, "n", 3), "weight_hh_l0": RNN.rows(2, "n", 2), "bias_ih_l0": [3110, 3120], "bias_hh_l0": [4110, 4120],
        "weight_ih_l0_reverse": RNN.rows(11, "n", 3), "weight_hh_l0_reverse": RNN.rows(12, "n", 2), "bias_ih_l0_reverse": [13110, 13120],
        "bias_hh_l0_reverse": [14110, 14120], "weight_ih_l1": RNN.rows(21, "n", 4), "weight_hh_l1": RNN.rows(22, "n", 2),
        "bias_ih_l1": [23110, 23120], "bias_hh_l1": [24110, 24120], "weight_ih_l1_reverse": RNN.rows(31, "n", 4),
        "weight_hh_l1_reverse": RNN.rows(32, "n", 2), "bias_ih_l1_reverse": [33110, 33120], "bias_hh_l1_reverse": [34110, 34120],
    }),
    # as torch.nn.LSTM, without the layer's number
    ("pytorch.lstm_cell", Sizes("lstm", 3, 2), {
        "weight_ih": LSTM.rows(1, "ifgo", 3), "weight_hh": LSTM.rows(2, "ifgo", 2), "bias_ih": LSTM.vector(3, "ifgo"),
        "bias_hh": LSTM.vector(4, "ifgo"),
    }),
    # as torch.nn.GRU, without the layer's number
    ("pytorch.gru_cell", Sizes("gru", 3, 2), {
        "weight_ih": GRU.rows(1, "rzn", 3), "weight_hh": GRU.rows(2, "rzn", 2), "bias_ih": GRU.vector(3, "rzn"),
        "bias_hh": GRU.vector(4, "rzn"),
    }),
    # as torch.nn.RNN, without the layer's number
    ("pytorch.rnn_cell", Sizes("rnn", 3, 2), {
        "weight_ih": RNN.rows(1, "n", 3), "weight_hh": RNN.rows(2, "n", 2), "bias_ih": [3110, 3120], "bias_hh": [4110, 4120],
    }),
    # columns: i, f, c, o = ops.split(z, 4, axis=1) (keras LSTMCell.call)
    ("keras.lstm", Sizes("lstm", 3, 2, parts=INPUT_BIAS), {
        "kernel": LSTM.columns(1, "ifgo", 3), "recurrent_kernel": LSTM.columns(2, "ifgo", 2), "bias": LSTM.vector(3, "ifgo"),
    }),
    # columns z, r, h; bias: the input's, the recurrent one (keras GRUCell.call)
    ("keras.gru", Sizes("gru", 3, 2), {
        "kernel": GRU.columns(1, "zrn", 3), "recurrent_kernel": GRU.columns(2, "zrn", 2),
        "bias": [GRU.vector(3, "zrn"), GRU.vector(4, "zrn")],
    }),
    # columns z, r, h; one bias (keras GRUCell.call)
    ("keras.gru_reset_before", Sizes("gru", 3, 2, parts=INPUT_BIAS), {
        "kernel": GRU.columns(1, "zrn", 3), "recurrent_kernel": GRU.columns(2, "zrn", 2), "bias": GRU.vector(3, "zrn"),
    }),
    # keras SimpleRNNCell.call
    ("keras.rnn", Sizes("rnn", 3, 2, parts=INPUT_BIAS), {
        "kernel": RNN.columns(1, "n", 3), "recurrent_kernel": RNN.columns(2, "n", 2), "bias": [3110, 3120],
    }),
    # a kernel block is the (2, 3) matrix's memory read as (3, 2), a recurrent block is the matrix
    # weights named input_gate_peephole_weights, forget_gate_..., output_gate_... (PeepholeLSTMCell.build)
    ("keras.peephole_lstm", Sizes("lstm", 3, 2, parts=INPUT_BIAS | {"peephole"}), {
        "kernel": LSTM.columns(1, "ifgo", 3), "recurrent_kernel": LSTM.columns(2, "ifgo", 2), "bias": LSTM.vector(3, "ifgo"),
        "input_gate_peephole_weights": [5110, 5120], "forget_gate_peephole_weights": [5210, 5220],
        "output_gate_peephole_weights": [5410, 5420],
    }),
    # (tf_keras hdf5_format.py, _convert_rnn_weights: transpose_input, and R transposed to plain Keras's)
    ("keras.cudnn_lstm", Sizes("lstm", 3, 2), {
        "kernel": [flat(LSTM.rows(1, "ifgo", 2, 1)), [1113, 1121, 1213, 1221, 1313, 1321, 1413, 1421], [1122, 1123, 1222, 1223, 1322, 1323,
            1422, 1423]],
        "recurrent_kernel": [flat(LSTM.rows(2, "ifgo", 2, 1)), [2121, 2122, 2221, 2222, 2321, 2322, 2421, 2422]],
        "bias": flat(LSTM.vector(3, "ifgo"), LSTM.vector(4, "ifgo")),
    }),
    # the same, with z before r
    ("keras.cudnn_gru", Sizes("gru", 3, 2), {
        "kernel": [flat(GRU.rows(1, "zrn", 2, 1)), [1213, 1221, 1113, 1121, 1313, 1321], [1222, 1223, 1122, 1123, 1322, 1323]],
        "recurrent_kernel": [flat(GRU.rows(2, "zrn", 2, 1)), [2221, 2222, 2121, 2122, 2321, 2322]],
        "bias": flat(GRU.vector(3, "zrn"), GRU.vector(4, "zrn")),
    }),
    # trainable_weights: W_i U_i b_i, W_c U_c b_c, W_f U_f b_f, W_o U_o b_o (keras 1.2.2 LSTM.build)
    ("keras.keras_1_lstm", Sizes("lstm", 3, 2, parts=INPUT_BIAS), {
        "W_i": LSTM.columns(1, "i", 3), "U_i": LSTM.columns(2, "i", 2), "b_i": [3110, 3120], "W_c": LSTM.columns(1, "g", 3),
        "U_c": LSTM.columns(2, "g", 2), "b_c": [3310, 3320], "W_f": LSTM.columns(1, "f", 3), "U_f": LSTM.columns(2, "f", 2),
        "b_f": [3210, 3220], "W_o": LSTM.columns(1, "o", 3), "U_o": LSTM.columns(2, "o", 2), "b_o": [3410, 3420],
    }),
    # W_z U_z b_z, W_r U_r b_r, W_h U_h b_h (keras 1.2.2 GRU.build)
    ("keras.keras_1_gru", Sizes("gru", 3, 2, parts=INPUT_BIAS), {
        "W_z": GRU.columns(1, "z", 3), "U_z": GRU.columns(2, "z", 2), "b_z": [3210, 3220], "W_r": GRU.columns(1, "r", 3),
        "U_r": GRU.columns(2, "r", 2), "b_r": [3110, 3120], "W_h": GRU.columns(1, "n", 3), "U_h": GRU.columns(2, "n", 2),
        "b_h": [3310, 3320],
    }),
    # columns i, f, c, o of one product (keras 1.2.2 LSTM.step, consume_less gpu)
    ("keras.keras_1_lstm_gpu", Sizes("lstm", 3, 2, parts=INPUT_BIAS), {
        "W": LSTM.columns(1, "ifgo", 3), "U": LSTM.columns(2, "ifgo", 2), "b": LSTM.vector(3, "ifgo"),
    }),
    # columns z, r, h (keras 1.2.2 GRU.step, consume_less gpu)
    ("keras.keras_1_gru_gpu", Sizes("gru", 3, 2, parts=INPUT_BIAS), {
        "W": GRU.columns(1, "zrn", 3), "U": GRU.columns(2, "zrn", 2), "b": GRU.vector(3, "zrn"),
    }),
    # keras 1.2.2 SimpleRNN.build
    ("keras.keras_1_rnn", Sizes("rnn", 3, 2, parts=INPUT_BIAS), {
        "W": RNN.columns(1, "n", 3), "U": RNN.columns(2, "n", 2), "b": [3110, 3120],
    }),
    # W[iofc], R[iofc]; B is Wb[iofc] then Rb[iofc]; P[iof] (onnx Operators.md, LSTM)
    ("onnx.lstm", Sizes("lstm", 3, 2, 1, 2, parts=BOTH | {"peephole", "initial_hidden", "initial_cell"}), {
        "W": [LSTM.rows(1, "iofg", 3), LSTM.rows(11, "iofg", 3)], "R": [LSTM.rows(2, "iofg", 2), LSTM.rows(12, "iofg", 2)],
        "B": [flat(LSTM.vector(3, "iofg"), LSTM.vector(4, "iofg")), flat(LSTM.vector(13, "iofg"), LSTM.vector(14, "iofg"))],
        "P": [LSTM.vector(5, "iof"), LSTM.vector(15, "iof")], "initial_h": [[7010, 7020], [17010, 17020]],
        "initial_c": [[8010, 8020], [18010, 18020]],
    }),
    # W[zrh], R[zrh], B is Wb[zrh] then Rb[zrh] (onnx Operators.md, GRU)
    ("onnx.gru", Sizes("gru", 3, 2, parts=BOTH | {"initial_hidden"}), {
        "W": [GRU.rows(1, "zrn", 3)], "R": [GRU.rows(2, "zrn", 2)], "B": [flat(GRU.vector(3, "zrn"), GRU.vector(4, "zrn"))],
        "initial_h": [[7010, 7020]],
    }),
    # the same with linear_before_reset = 0
    ("onnx.gru_reset_before", Sizes("gru", 3, 2), {
        "W": [GRU.rows(1, "zrn", 3)], "R": [GRU.rows(2, "zrn", 2)], "B": [flat(GRU.vector(3, "zrn"), GRU.vector(4, "zrn"))],
    }),
    # onnx Operators.md, RNN
    ("onnx.rnn", Sizes("rnn", 3, 2, 1, 2), {
        "W": [RNN.rows(1, "n", 3), RNN.rows(11, "n", 3)], "R": [RNN.rows(2, "n", 2), RNN.rows(12, "n", 2)],
        "B": [[3110, 3120, 4110, 4120], [13110, 13120, 14110, 14120]],
    }),
    # linLayerID 0 to 7: W of i f g o, R of i f g o; then their biases (cudnnGetRNNWeightParams)
    ("cudnn.lstm", Sizes("lstm", 3, 2), {
        "params": flat(LSTM.rows(1, "ifgo", 3), LSTM.rows(2, "ifgo", 2), LSTM.vector(3, "ifgo"), LSTM.vector(4, "ifgo")),
    }),
    # the forward direction's projection (linLayerID 8) before the backward direction's matrices
    ("cudnn.lstm", Sizes("lstm", 3, 2, 1, 2, 1, BOTH | {"projection"}), {
        "params": [
            1111, 1112, 1113, 1121, 1122, 1123, 1211, 1212, 1213, 1221, 1222, 1223, 1311, 1312, 1313, 1321, 1322, 1323, 1411, 1412,
            1413, 1421, 1422, 1423, 2111, 2121, 2211, 2221, 2311, 2321, 2411, 2421, 6011, 6012, 11111, 11112, 11113, 11121, 11122,
            11123, 11211, 11212, 11213, 11221, 11222, 11223, 11311, 11312, 11313, 11321, 11322, 11323, 11411, 11412, 11413, 11421,
            11422, 11423, 12111, 12121, 12211, 12221, 12311, 12321, 12411, 12421, 16011, 16012, 3110, 3120, 3210, 3220, 3310, 3320,
            3410, 3420, 4110, 4120, 4210, 4220, 4310, 4320, 4410, 4420, 13110, 13120, 13210, 13220, 13310, 13320, 13410, 13420,
            14110, 14120, 14210, 14220, 14310, 14320, 14410, 14420,
        ],
    }),
    # W of r z n, R of r z n; then their biases
    ("cudnn.gru", Sizes("gru", 3, 2), {
        "params": flat(GRU.rows(1, "rzn", 3), GRU.rows(2, "rzn", 2), GRU.vector(3, "rzn"), GRU.vector(4, "rzn")),
    }),
    # pseudo-layers: layer 0 forward, layer 0 backward, layer 1 forward, layer 1 backward
    ("cudnn.rnn", Sizes("rnn", 3, 2, 2, 2), {
        "params": [
            1111, 1112, 1113, 1121, 1122, 1123, 2111, 2112, 2121, 2122, 11111, 11112, 11113, 11121, 11122, 11123, 12111, 12112,
            12121, 12122, 21111, 21112, 21113, 21114, 21121, 21122, 21123, 21124, 22111, 22112, 22121, 22122, 31111, 31112, 31113,
            31114, 31121, 31122, 31123, 31124, 32111, 32112, 32121, 32122, 3110, 3120, 4110, 4120, 13110, 13120, 14110, 14120,
            23110, 23120, 24110, 24120, 33110, 33120, 34110, 34120,
        ],
    }),
    # CUDNN_RNN_SINGLE_INP_BIAS: only the biases of linLayerID 0 to 2
    ("cudnn.gru", Sizes("gru", 3, 2, parts=INPUT_BIAS), {
        "params": flat(GRU.rows(1, "rzn", 3), GRU.rows(2, "rzn", 2), GRU.vector(3, "rzn")),
    }),
    # CUDNN_RNN_SINGLE_REC_BIAS: only the biases of linLayerID 3 to 5
    ("cudnn.gru", Sizes("gru", 3, 2, parts=PLAIN | {"recurrent_bias"}), {
        "params": flat(GRU.rows(1, "rzn", 3), GRU.rows(2, "rzn", 2), GRU.vector(4, "rzn")),
    }),
    # CUDNN_RNN_NO_BIAS
    ("cudnn.rnn", Sizes("rnn", 3, 2, parts=PLAIN), {"params": flat(RNN.rows(1, "n", 3), RNN.rows(2, "n", 2))}),
    # ii if ig io from the input, hi hf hg ho from the state, biases with the latter (flax.linen.LSTMCell.__call__)
    ("flax.lstm", Sizes("lstm", 3, 2, parts=INPUT_BIAS), {
        "ii/kernel": LSTM.columns(1, "i", 3), "if/kernel": LSTM.columns(1, "f", 3), "ig/kernel": LSTM.columns(1, "g", 3),
        "io/kernel": LSTM.columns(1, "o", 3), "hi/kernel": LSTM.columns(2, "i", 2), "hf/kernel": LSTM.columns(2, "f", 2),
        "hg/kernel": LSTM.columns(2, "g", 2), "ho/kernel": LSTM.columns(2, "o", 2), "hi/bias": [3110, 3120], "hf/bias": [3210, 3220],
        "hg/bias": [3310, 3320], "ho/bias": [3410, 3420],
    }),
    # ir iz in with biases, hr hz hn with a bias in hn alone (flax.linen.GRUCell.__call__)
    ("flax.gru", Sizes("gru", 3, 2), {
        "ir/kernel": GRU.columns(1, "r", 3), "iz/kernel": GRU.columns(1, "z", 3), "in/kernel": GRU.columns(1, "n", 3),
        "ir/bias": [3110, 3120], "iz/bias": [3210, 3220], "in/bias": [3310, 3320], "hr/kernel": GRU.columns(2, "r", 2),
        "hz/kernel": GRU.columns(2, "z", 2), "hn/kernel": GRU.columns(2, "n", 2), "hn/bias": [4310, 4320],
    }),
    # if in with biases, hf hn with a bias in hn: f is both gates (flax.linen.MGUCell.__call__)
    ("flax.mgu", Sizes("gru", 3, 2), {
        "if/kernel": GRU.columns(1, "z", 3), "in/kernel": GRU.columns(1, "n", 3), "if/bias": [3210, 3220], "in/bias": [3310, 3320],
        "hf/kernel": GRU.columns(2, "z", 2), "hn/kernel": GRU.columns(2, "n", 2), "hn/bias": [4310, 4320],
    }),
    # flax.linen.SimpleCell.__call__
    ("flax.rnn", Sizes("rnn", 3, 2, parts=INPUT_BIAS), {
        "i/kernel": RNN.columns(1, "n", 3), "i/bias": [3110, 3120], "h/kernel": RNN.columns(2, "n", 2),
    }),
    # ii if_ ig io, hi hf hg ho with biases (flax.nnx.LSTMCell.__init__)
    ("nnx.lstm", Sizes("lstm", 3, 2, parts=INPUT_BIAS), {
        "ii/kernel": LSTM.columns(1, "i", 3), "if_/kernel": LSTM.columns(1, "f", 3), "ig/kernel": LSTM.columns(1, "g", 3),
        "io/kernel": LSTM.columns(1, "o", 3), "hi/kernel": LSTM.columns(2, "i", 2), "hf/kernel": LSTM.columns(2, "f", 2),
        "hg/kernel": LSTM.columns(2, "g", 2), "ho/kernel": LSTM.columns(2, "o", 2), "hi/bias": [3110, 3120], "hf/bias": [3210, 3220],
        "hg/bias": [3310, 3320], "ho/bias": [3410, 3420],
    }),
    # columns i, f, g, o of one product, the bias in dense_h (flax.nnx.OptimizedLSTMCell.__call__)
    ("nnx.optimized_lstm", Sizes("lstm", 3, 2, parts=INPUT_BIAS), {
        "dense_i/kernel": LSTM.columns(1, "ifgo", 3), "dense_h/kernel": LSTM.columns(2, "ifgo", 2), "dense_h/bias": LSTM.vector(3, "ifgo"),
    }),
    # columns r, z, n, the bias in dense_i (flax.nnx.GRUCell.__call__)
    ("nnx.gru", Sizes("gru", 3, 2, parts=INPUT_BIAS), {
        "dense_i/kernel": GRU.columns(1, "rzn", 3), "dense_i/bias": GRU.vector(3, "rzn"), "dense_h/kernel": GRU.columns(2, "rzn", 2),
    }),
    # flax.nnx.SimpleCell.__call__
    ("nnx.rnn", Sizes("rnn", 3, 2, parts=INPUT_BIAS), {
        "dense_i/kernel": RNN.columns(1, "n", 3), "dense_i/bias": [3110, 3120], "dense_h/kernel": RNN.columns(2, "n", 2),
    }),
    # rows of x above rows of h; columns i, g, f, o (haiku.LSTM.__call__)
    ("haiku.lstm", Sizes("lstm", 3, 2, parts=INPUT_BIAS), {
        "linear/w": LSTM.columns(1, "igfo", 3) + LSTM.columns(2, "igfo", 2), "linear/b": LSTM.vector(3, "igfo"),
    }),
    # columns z, r, a; z is 1 - z here (haiku.GRU.__call__)
    ("haiku.gru", Sizes("gru", 3, 2, parts=INPUT_BIAS), {
        "w_i": [[-1211, -1221, 1111, 1121, 1311, 1321], [-1212, -1222, 1112, 1122, 1312, 1322], [-1213, -1223, 1113, 1123, 1313, 1323]],
        "w_h": [[-2211, -2221, 2111, 2121, 2311, 2321], [-2212, -2222, 2112, 2122, 2312, 2322]],
        "b": [-3210, -3220, 3110, 3120, 3310, 3320],
    }),
    # haiku.VanillaRNN.__call__, and with double_bias=False
    ("haiku.rnn", Sizes("rnn", 3, 2), {
        "linear/w": RNN.columns(1, "n", 3), "linear/b": [3110, 3120], "linear_1/w": RNN.columns(2, "n", 2), "linear_1/b": [4110, 4120],
    }),
    ("haiku.rnn", Sizes("rnn", 3, 2, parts=INPUT_BIAS), {
        "linear/w": RNN.columns(1, "n", 3), "linear/b": [3110, 3120], "linear_1/w": RNN.columns(2, "n", 2),
    }),
    # rows i, f, g, o (equinox.nn.LSTMCell.__call__)
    ("equinox.lstm", Sizes("lstm", 3, 2, parts=INPUT_BIAS), {
        "weight_ih": LSTM.rows(1, "ifgo", 3), "weight_hh": LSTM.rows(2, "ifgo", 2), "bias": LSTM.vector(3, "ifgo"),
    }),
    # rows reset, input, new; bias_n stands inside the reset product (equinox.nn.GRUCell.__call__)
    ("equinox.gru", Sizes("gru", 3, 2), {
        "weight_ih": GRU.rows(1, "rzn", 3), "weight_hh": GRU.rows(2, "rzn", 2), "bias": GRU.vector(3, "rzn"), "bias_n": [4310, 4320],
    }),
    # SliceChannel(gates): in_gate, forget_gate, in_transform, out_gate (gluon.rnn.LSTMCell.hybrid_forward)
    ("mxnet.lstm", Sizes("lstm", 3, 2), {
        "l0_i2h_weight": LSTM.rows(1, "ifgo", 3), "l0_h2h_weight": LSTM.rows(2, "ifgo", 2), "l0_i2h_bias": LSTM.vector(3, "ifgo"),
        "l0_h2h_bias": LSTM.vector(4, "ifgo"),
    }),
    # a hidden state of one, projected by h2r_weight (gluon.rnn.LSTM, projection_size)
    ("mxnet.lstm", Sizes("lstm", 3, 2, 1, 1, 1, BOTH | {"projection"}), {
        "l0_i2h_weight": LSTM.rows(1, "ifgo", 3), "l0_h2h_weight": LSTM.rows(2, "ifgo", 1), "l0_i2h_bias": LSTM.vector(3, "ifgo"),
        "l0_h2h_bias": LSTM.vector(4, "ifgo"), "l0_h2r_weight": [[6011, 6012]],
    }),
    # i2h_r, i2h_z, i2h (gluon.rnn.GRUCell.hybrid_forward)
    ("mxnet.gru", Sizes("gru", 3, 2), {
        "l0_i2h_weight": GRU.rows(1, "rzn", 3), "l0_h2h_weight": GRU.rows(2, "rzn", 2), "l0_i2h_bias": GRU.vector(3, "rzn"),
        "l0_h2h_bias": GRU.vector(4, "rzn"),
    }),
    # a second layer reads both directions, l first (gluon.rnn.RNN, _RNNLayer.__init__)
    ("mxnet.rnn", Sizes("rnn", 3, 2, 2, 2), {
        "l0_i2h_weight": RNN.rows(1, "n", 3), "l0_h2h_weight": RNN.rows(2, "n", 2), "l0_i2h_bias": [3110, 3120],
        "l0_h2h_bias": [4110, 4120], "r0_i2h_weight": RNN.rows(11, "n", 3), "r0_h2h_weight": RNN.rows(12, "n", 2),
        "r0_i2h_bias": [13110, 13120], "r0_h2h_bias": [14110, 14120], "l1_i2h_weight": RNN.rows(21, "n", 4),
        "l1_h2h_weight": RNN.rows(22, "n", 2), "l1_i2h_bias": [23110, 23120], "l1_h2h_bias": [24110, 24120],
        "r1_i2h_weight": RNN.rows(31, "n", 4), "r1_h2h_weight": RNN.rows(32, "n", 2), "r1_i2h_bias": [33110, 33120],
        "r1_h2h_bias": [34110, 34120],
    }),
    # as gluon.rnn.LSTM, without the layer's number
    ("mxnet.lstm_cell", Sizes("lstm", 3, 2), {
        "i2h_weight": LSTM.rows(1, "ifgo", 3), "h2h_weight": LSTM.rows(2, "ifgo", 2), "i2h_bias": LSTM.vector(3, "ifgo"),
        "h2h_bias": LSTM.vector(4, "ifgo"),
    }),
    # as gluon.rnn.GRU, without the layer's number
    ("mxnet.gru_cell", Sizes("gru", 3, 2), {
        "i2h_weight": GRU.rows(1, "rzn", 3), "h2h_weight": GRU.rows(2, "rzn", 2), "i2h_bias": GRU.vector(3, "rzn"),
        "h2h_bias": GRU.vector(4, "rzn"),
    }),
    # as gluon.rnn.RNN, without the layer's number
    ("mxnet.rnn_cell", Sizes("rnn", 3, 2), {
        "i2h_weight": RNN.rows(1, "n", 3), "h2h_weight": RNN.rows(2, "n", 2), "i2h_bias": [3110, 3120], "h2h_bias": [4110, 4120],
    }),
    # gluon.contrib.rnn.LSTMPCell
    ("mxnet.lstm_cell", Sizes("lstm", 3, 2, 1, 1, 1, BOTH | {"projection"}), {
        "i2h_weight": LSTM.rows(1, "ifgo", 3), "h2h_weight": LSTM.rows(2, "ifgo", 1), "i2h_bias": LSTM.vector(3, "ifgo"),
        "h2h_bias": LSTM.vector(4, "ifgo"), "h2r_weight": [[6011, 6012]],
    }),
    # i2h, h2h, h2r, then the biases (gluon/rnn/rnn_layer.py, _forward_kernel)
    ("mxnet.lstm_flat", Sizes("lstm", 3, 2, 1, 1, 1, BOTH | {"projection"}), {
        "parameters": [1111, 1112, 1113, 1121, 1122, 1123, 1211, 1212, 1213, 1221, 1222, 1223, 1311, 1312, 1313, 1321, 1322, 1323, 1411,
            1412, 1413, 1421, 1422, 1423, 2111, 2121, 2211, 2221, 2311, 2321, 2411, 2421, 6011, 6012, 3110, 3120, 3210, 3220, 3310, 3320,
            3410, 3420, 4110, 4120, 4210, 4220, 4310, 4320, 4410, 4420],
    }),
    # l, then r; all weights before all biases (mx.rnn.FusedRNNCell._slice_weights)
    ("mxnet.gru_flat", Sizes("gru", 3, 2, 1, 2), {
        "parameters": flat(GRU.rows(1, "rzn", 3), GRU.rows(2, "rzn", 2), GRU.rows(11, "rzn", 3), GRU.rows(12, "rzn", 2),
            GRU.vector(3, "rzn"), GRU.vector(4, "rzn"), GRU.vector(13, "rzn"), GRU.vector(14, "rzn")),
    }),
    # layer by layer (mx.rnn.FusedRNNCell._slice_weights)
    ("mxnet.rnn_flat", Sizes("rnn", 3, 2, 2), {
        "parameters": [1111, 1112, 1113, 1121, 1122, 1123, 2111, 2112, 2121, 2122, 21111, 21112, 21121, 21122, 22111, 22112, 22121, 22122,
            3110, 3120, 4110, 4120, 23110, 23120, 24110, 24120],
    }),
    # _gate_names: _i, _f, _c, _o (mx.rnn.FusedRNNCell)
    ("mxnet.lstm_gates", Sizes("lstm", 3, 2, 1, 2), {
        "l0_i2h_i_weight": LSTM.rows(1, "i", 3), "l0_i2h_f_weight": LSTM.rows(1, "f", 3), "l0_i2h_c_weight": LSTM.rows(1, "g", 3),
        "l0_i2h_o_weight": LSTM.rows(1, "o", 3), "l0_h2h_i_weight": LSTM.rows(2, "i", 2), "l0_h2h_f_weight": LSTM.rows(2, "f", 2),
        "l0_h2h_c_weight": LSTM.rows(2, "g", 2), "l0_h2h_o_weight": LSTM.rows(2, "o", 2), "l0_i2h_i_bias": [3110, 3120],
        "l0_i2h_f_bias": [3210, 3220], "l0_i2h_c_bias": [3310, 3320], "l0_i2h_o_bias": [3410, 3420], "l0_h2h_i_bias": [4110, 4120],
        "l0_h2h_f_bias": [4210, 4220], "l0_h2h_c_bias": [4310, 4320], "l0_h2h_o_bias": [4410, 4420],
        "r0_i2h_i_weight": LSTM.rows(11, "i", 3), "r0_i2h_f_weight": LSTM.rows(11, "f", 3), "r0_i2h_c_weight": LSTM.rows(11, "g", 3),
        "r0_i2h_o_weight": LSTM.rows(11, "o", 3), "r0_h2h_i_weight": LSTM.rows(12, "i", 2), "r0_h2h_f_weight": LSTM.rows(12, "f", 2),
        "r0_h2h_c_weight": LSTM.rows(12, "g", 2), "r0_h2h_o_weight": LSTM.rows(12, "o", 2), "r0_i2h_i_bias": [13110, 13120],
        "r0_i2h_f_bias": [13210, 13220], "r0_i2h_c_bias": [13310, 13320], "r0_i2h_o_bias": [13410, 13420], "r0_h2h_i_bias": [14110, 14120],
        "r0_h2h_f_bias": [14210, 14220], "r0_h2h_c_bias": [14310, 14320], "r0_h2h_o_bias": [14410, 14420],
    }),
    # _gate_names: _r, _z, _o, and _o is the candidate (mx.rnn.FusedRNNCell)
    ("mxnet.gru_gates", Sizes("gru", 3, 2), {
        "l0_i2h_r_weight": GRU.rows(1, "r", 3), "l0_i2h_z_weight": GRU.rows(1, "z", 3), "l0_i2h_o_weight": GRU.rows(1, "n", 3),
        "l0_h2h_r_weight": GRU.rows(2, "r", 2), "l0_h2h_z_weight": GRU.rows(2, "z", 2), "l0_h2h_o_weight": GRU.rows(2, "n", 2),
        "l0_i2h_r_bias": [3110, 3120], "l0_i2h_z_bias": [3210, 3220], "l0_i2h_o_bias": [3310, 3320], "l0_h2h_r_bias": [4110, 4120],
        "l0_h2h_z_bias": [4210, 4220], "l0_h2h_o_bias": [4310, 4320],
    }),
    # mx.rnn.LSTMCell.unpack_weights
    ("mxnet.lstm_cell_gates", Sizes("lstm", 3, 2), {
        "i2h_i_weight": LSTM.rows(1, "i", 3), "i2h_f_weight": LSTM.rows(1, "f", 3), "i2h_c_weight": LSTM.rows(1, "g", 3),
        "i2h_o_weight": LSTM.rows(1, "o", 3), "h2h_i_weight": LSTM.rows(2, "i", 2), "h2h_f_weight": LSTM.rows(2, "f", 2),
        "h2h_c_weight": LSTM.rows(2, "g", 2), "h2h_o_weight": LSTM.rows(2, "o", 2), "i2h_i_bias": [3110, 3120], "i2h_f_bias": [3210, 3220],
        "i2h_c_bias": [3310, 3320], "i2h_o_bias": [3410, 3420], "h2h_i_bias": [4110, 4120], "h2h_f_bias": [4210, 4220],
        "h2h_c_bias": [4310, 4320], "h2h_o_bias": [4410, 4420],
    }),
    # mx.rnn.GRUCell.unpack_weights
    ("mxnet.gru_cell_gates", Sizes("gru", 3, 2), {
        "i2h_r_weight": GRU.rows(1, "r", 3), "i2h_z_weight": GRU.rows(1, "z", 3), "i2h_o_weight": GRU.rows(1, "n", 3),
        "h2h_r_weight": GRU.rows(2, "r", 2), "h2h_z_weight": GRU.rows(2, "z", 2), "h2h_o_weight": GRU.rows(2, "n", 2),
        "i2h_r_bias": [3110, 3120], "i2h_z_bias": [3210, 3220], "i2h_o_bias": [3310, 3320], "h2h_r_bias": [4110, 4120],
        "h2h_z_bias": [4210, 4220], "h2h_o_bias": [4310, 4320],
    }),
]
# fmt: on

# More of them stand in files of their own, a family of frameworks each.
for _file in sorted(Path(__file__).parent.glob("[!_]*.py")):
    LITERALS += importlib.import_module(f"tests.literals.{_file.stem}").LITERALS
