"""Small arrays of Chainer, Lasagne, Deeplearning4j and Paddle, written down from their sources.

The numbers follow the rule of tests.literals. These arrays are never regenerated from the code that they judge.
"""

from __future__ import annotations

from typing import Any

from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import BOTH, PLAIN
from tests.literals._numbers import GRU, LSTM, RNN, flat

INPUT_BIAS = PLAIN | {"input_bias"}
RECURRENT_BIAS = PLAIN | {"recurrent_bias"}

# fmt: off
LITERALS: list[tuple[str, Sizes, dict[str, list[Any]]]] = [
    # x.reshape((len(x), x.shape[1] // 4, 4) + x.shape[2:]), of which [:, :, i] are a, i, f, o
    # (chainer/functions/rnn/lstm.py, _extract_gates): the gates of a unit follow one another
    ("chainer.lstm", Sizes("lstm", 3, 2, parts=INPUT_BIAS), {
        "upward/W": [[1311, 1312, 1313], [1111, 1112, 1113], [1211, 1212, 1213], [1411, 1412, 1413], [1321, 1322, 1323], [1121, 1122, 1123],
            [1221, 1222, 1223], [1421, 1422, 1423]],
        "upward/b": [3310, 3110, 3210, 3410, 3320, 3120, 3220, 3420],
        "lateral/W": [[2311, 2312], [2111, 2112], [2211, 2212], [2411, 2412], [2321, 2322], [2121, 2122], [2221, 2222], [2421, 2422]],
    }),
    # F.lstm(c, l1_x(x) + l1_h(h)) with the gates of _extract_gates
    ("chainer.function_lstm", Sizes("lstm", 3, 2), {
        "x/W": [[1311, 1312, 1313], [1111, 1112, 1113], [1211, 1212, 1213], [1411, 1412, 1413], [1321, 1322, 1323], [1121, 1122, 1123],
            [1221, 1222, 1223], [1421, 1422, 1423]],
        "x/b": [3310, 3110, 3210, 3410, 3320, 3120, 3220, 3420],
        "h/W": [[2311, 2312], [2111, 2112], [2211, 2212], [2411, 2412], [2321, 2322], [2121, 2122], [2221, 2222], [2421, 2422]],
        "h/b": [4310, 4110, 4210, 4410, 4320, 4120, 4220, 4420],
    }),
    # the same, and peep_i, peep_f, peep_o, of which the diagonals are here (peephole.py, forward)
    ("chainer.peephole_lstm", Sizes("lstm", 3, 2, parts=INPUT_BIAS | {"peephole"}), {
        "upward/W": [[1311, 1312, 1313], [1111, 1112, 1113], [1211, 1212, 1213], [1411, 1412, 1413], [1321, 1322, 1323], [1121, 1122, 1123],
            [1221, 1222, 1223], [1421, 1422, 1423]],
        "upward/b": [3310, 3110, 3210, 3410, 3320, 3120, 3220, 3420],
        "lateral/W": [[2311, 2312], [2111, 2112], [2211, 2212], [2411, 2412], [2321, 2322], [2121, 2122], [2221, 2222], [2421, 2422]],
        "peep_i/W": [5110, 5120], "peep_f/W": [5210, 5220], "peep_o/W": [5410, 5420],
    }),
    # h' = (1 - z) * h + z * n, so z is negated (gru.py, StatelessGRU.forward)
    ("chainer.gru", Sizes("gru", 3, 2), {
        "W_r/W": GRU.rows(1, "r", 3), "W_z/W": [[-1211, -1212, -1213], [-1221, -1222, -1223]], "W/W": GRU.rows(1, "n", 3),
        "W_r/b": [3110, 3120], "W_z/b": [-3210, -3220], "W/b": [3310, 3320], "U_r/W": GRU.rows(2, "r", 2),
        "U_z/W": [[-2211, -2212], [-2221, -2222]], "U/W": GRU.rows(2, "n", 2), "U_r/b": [4110, 4120], "U_z/b": [-4210, -4220],
        "U/b": [4310, 4320],
    }),
    # w0 and w4 go to i, w1 and w5 to f, w2 and w6 through tanh, w3 and w7 to o (functions/rnn/n_step_lstm.py, _lstm)
    ("chainer.n_step_lstm", Sizes("lstm", 3, 2), {
        "0/w0": LSTM.rows(1, "i", 3), "0/w1": LSTM.rows(1, "f", 3), "0/w2": LSTM.rows(1, "g", 3), "0/w3": LSTM.rows(1, "o", 3),
        "0/w4": LSTM.rows(2, "i", 2), "0/w5": LSTM.rows(2, "f", 2), "0/w6": LSTM.rows(2, "g", 2), "0/w7": LSTM.rows(2, "o", 2),
        "0/b0": [3110, 3120], "0/b1": [3210, 3220], "0/b2": [3310, 3320], "0/b3": [3410, 3420], "0/b4": [4110, 4120], "0/b5": [4210, 4220],
        "0/b6": [4310, 4320], "0/b7": [4410, 4420],
    }),
    # w0 and w3 to r, w1 and w4 to z, w2 and w5 to the candidate (functions/rnn/n_step_gru.py, _gru); the backward
    # direction is the next child
    ("chainer.n_step_gru", Sizes("gru", 3, 2, 1, 2), {
        "0/w0": GRU.rows(1, "r", 3), "0/w1": GRU.rows(1, "z", 3), "0/w2": GRU.rows(1, "n", 3), "0/w3": GRU.rows(2, "r", 2),
        "0/w4": GRU.rows(2, "z", 2), "0/w5": GRU.rows(2, "n", 2), "0/b0": [3110, 3120], "0/b1": [3210, 3220], "0/b2": [3310, 3320],
        "0/b3": [4110, 4120], "0/b4": [4210, 4220], "0/b5": [4310, 4320], "1/w0": GRU.rows(11, "r", 3), "1/w1": GRU.rows(11, "z", 3),
        "1/w2": GRU.rows(11, "n", 3), "1/w3": GRU.rows(12, "r", 2), "1/w4": GRU.rows(12, "z", 2), "1/w5": GRU.rows(12, "n", 2),
        "1/b0": [13110, 13120], "1/b1": [13210, 13220], "1/b2": [13310, 13320], "1/b3": [14110, 14120], "1/b4": [14210, 14220],
        "1/b5": [14310, 14320],
    }),
    # child layer * directions + direction (n_step_rnn.py, NStepRNNBase.__init__)
    ("chainer.n_step_rnn", Sizes("rnn", 3, 2, 2, 2), {
        "0/w0": RNN.rows(1, "n", 3), "0/w1": RNN.rows(2, "n", 2), "0/b0": [3110, 3120], "0/b1": [4110, 4120], "1/w0": RNN.rows(11, "n", 3),
        "1/w1": RNN.rows(12, "n", 2), "1/b0": [13110, 13120], "1/b1": [14110, 14120], "2/w0": RNN.rows(21, "n", 4),
        "2/w1": RNN.rows(22, "n", 2), "2/b0": [23110, 23120], "2/b1": [24110, 24120], "3/w0": RNN.rows(31, "n", 4),
        "3/w1": RNN.rows(32, "n", 2), "3/b0": [33110, 33120], "3/b1": [34110, 34120],
    }),
    # add_gate_params for ingate, forgetgate, cell, outgate; then W_cell_to_*; then cell_init, hid_init
    # (lasagne/layers/recurrent.py, LSTMLayer.__init__); T.dot(input, W)
    ("lasagne.lstm", Sizes("lstm", 3, 2, parts=INPUT_BIAS | {"peephole", "initial_hidden", "initial_cell"}), {
        "W_in_to_ingate": LSTM.columns(1, "i", 3), "W_hid_to_ingate": LSTM.columns(2, "i", 2), "b_ingate": [3110, 3120],
        "W_in_to_forgetgate": LSTM.columns(1, "f", 3), "W_hid_to_forgetgate": LSTM.columns(2, "f", 2), "b_forgetgate": [3210, 3220],
        "W_in_to_cell": LSTM.columns(1, "g", 3), "W_hid_to_cell": LSTM.columns(2, "g", 2), "b_cell": [3310, 3320],
        "W_in_to_outgate": LSTM.columns(1, "o", 3), "W_hid_to_outgate": LSTM.columns(2, "o", 2), "b_outgate": [3410, 3420],
        "W_cell_to_ingate": [5110, 5120], "W_cell_to_forgetgate": [5210, 5220], "W_cell_to_outgate": [5410, 5420],
        "cell_init": [[8010, 8020]], "hid_init": [[7010, 7020]],
    }),
    # (1 - updategate) * hid_previous + updategate * hidden_update (GRULayer.get_output_for); the update gate first
    ("lasagne.gru", Sizes("gru", 3, 2, parts=INPUT_BIAS | {"initial_hidden"}), {
        "W_in_to_updategate": [[-1211, -1221], [-1212, -1222], [-1213, -1223]], "W_hid_to_updategate": [[-2211, -2221], [-2212, -2222]],
        "b_updategate": [-3210, -3220], "W_in_to_resetgate": GRU.columns(1, "r", 3), "W_hid_to_resetgate": GRU.columns(2, "r", 2),
        "b_resetgate": [3110, 3120], "W_in_to_hidden_update": GRU.columns(1, "n", 3), "W_hid_to_hidden_update": GRU.columns(2, "n", 2),
        "b_hidden_update": [3310, 3320], "hid_init": [[7010, 7020]],
    }),
    # its own hid_init before what its two DenseLayers have (CustomRecurrentLayer.get_params)
    ("lasagne.rnn", Sizes("rnn", 3, 2, parts=INPUT_BIAS | {"initial_hidden"}), {
        "hid_init": [[7010, 7020]], "input_to_hidden.W": RNN.columns(1, "n", 3), "input_to_hidden.b": [3110, 3120],
        "hidden_to_hidden.W": RNN.columns(2, "n", 2),
    }),
    # W (in, 4H), RW (H, 4H), b, matrices column by column; blocks: activation, f, o, input gate
    # (LSTMParamInitializer.init; LSTMHelpers.activateHelper)
    ("dl4j.lstm", Sizes("lstm", 3, 2, parts=INPUT_BIAS), {
        "params": flat(LSTM.rows(1, "gfoi", 3), LSTM.rows(2, "gfoi", 2), LSTM.vector(3, "gfoi")),
    }),
    # three more columns of RW: wFF, wOO, wGG (LSTMHelpers); all of the forward direction before the backward one
    # (GravesBidirectionalLSTMParamInitializer.init)
    ("dl4j.graves_lstm", Sizes("lstm", 1, 2, 1, 2, parts=INPUT_BIAS | {"peephole"}), {
        "params": flat(LSTM.rows(1, "gfoi", 1), LSTM.rows(2, "gfoi", 2), LSTM.vector(5, "foi"), LSTM.vector(3, "gfoi"),
            LSTM.rows(11, "gfoi", 1), LSTM.rows(12, "gfoi", 2), LSTM.vector(15, "foi"), LSTM.vector(13, "gfoi")),
    }),
    # W (in, H), RW (H, H), b (SimpleRnnParamInitializer.getSubsets)
    ("dl4j.rnn", Sizes("rnn", 3, 2, 1, 2, parts=INPUT_BIAS), {
        "params": flat(RNN.rows(1, "n", 3), RNN.rows(2, "n", 2), RNN.vector(3, "n"), RNN.rows(11, "n", 3), RNN.rows(12, "n", 2),
            RNN.vector(13, "n")),
    }),
    # chunked_gates: i, f, c, o (python/paddle/nn/layer/rnn.py, LSTMCell.forward); one direction is called cell
    ("paddle.lstm", Sizes("lstm", 3, 2), {
        "0.cell.weight_ih": LSTM.rows(1, "ifgo", 3), "0.cell.weight_hh": LSTM.rows(2, "ifgo", 2), "0.cell.bias_ih": LSTM.vector(3, "ifgo"),
        "0.cell.bias_hh": LSTM.vector(4, "ifgo"),
    }),
    # h = matmul(h, weight_ho): weight_ho is (hidden, projection) (LSTMCell.forward)
    ("paddle.lstm", Sizes("lstm", 1, 2, 1, 2, 1, BOTH | {"projection"}), {
        "0.cell_fw.weight_ih": LSTM.rows(1, "ifgo", 1), "0.cell_fw.weight_hh": LSTM.rows(2, "ifgo", 1),
        "0.cell_fw.bias_ih": LSTM.vector(3, "ifgo"), "0.cell_fw.bias_hh": LSTM.vector(4, "ifgo"), "0.cell_fw.weight_ho": [[6011], [6012]],
        "0.cell_bw.weight_ih": LSTM.rows(11, "ifgo", 1), "0.cell_bw.weight_hh": LSTM.rows(12, "ifgo", 1),
        "0.cell_bw.bias_ih": LSTM.vector(13, "ifgo"), "0.cell_bw.bias_hh": LSTM.vector(14, "ifgo"),
        "0.cell_bw.weight_ho": [[16011], [16012]],
    }),
    # r, z, c; (pre_h - c) * z + c (GRUCell.forward)
    ("paddle.gru", Sizes("gru", 3, 2, 1, 2), {
        "0.cell_fw.weight_ih": GRU.rows(1, "rzn", 3), "0.cell_fw.weight_hh": GRU.rows(2, "rzn", 2),
        "0.cell_fw.bias_ih": GRU.vector(3, "rzn"), "0.cell_fw.bias_hh": GRU.vector(4, "rzn"), "0.cell_bw.weight_ih": GRU.rows(11, "rzn", 3),
        "0.cell_bw.weight_hh": GRU.rows(12, "rzn", 2), "0.cell_bw.bias_ih": GRU.vector(13, "rzn"),
        "0.cell_bw.bias_hh": GRU.vector(14, "rzn"),
    }),
    ("paddle.rnn", Sizes("rnn", 3, 2, 2), {
        "0.cell.weight_ih": RNN.rows(1, "n", 3), "0.cell.weight_hh": RNN.rows(2, "n", 2), "0.cell.bias_ih": [3110, 3120],
        "0.cell.bias_hh": [4110, 4120], "1.cell.weight_ih": RNN.rows(21, "n", 2), "1.cell.weight_hh": RNN.rows(22, "n", 2),
        "1.cell.bias_ih": [23110, 23120], "1.cell.bias_hh": [24110, 24120],
    }),
    ("paddle.lstm_cell", Sizes("lstm", 1, 2, 1, 1, 1, BOTH | {"projection"}), {
        "weight_ih": LSTM.rows(1, "ifgo", 1), "weight_hh": LSTM.rows(2, "ifgo", 1), "bias_ih": LSTM.vector(3, "ifgo"),
        "bias_hh": LSTM.vector(4, "ifgo"), "weight_ho": [[6011], [6012]],
    }),
    ("paddle.gru_cell", Sizes("gru", 1, 2, parts=INPUT_BIAS), {
        "weight_ih": GRU.rows(1, "rzn", 1), "weight_hh": GRU.rows(2, "rzn", 2), "bias_ih": GRU.vector(3, "rzn"),
    }),
    ("paddle.rnn_cell", Sizes("rnn", 3, 2, parts=RECURRENT_BIAS), {
        "weight_ih": RNN.rows(1, "n", 3), "weight_hh": RNN.rows(2, "n", 2), "bias_hh": [4110, 4120],
    }),
    # fc (x W, W of (in, 3D)): update, reset, candidate. gru_op.h: the first 2 * D * D numbers of the weight are a matrix
    # (D, 2D), whose columns are update and reset, the others (D, D); h = h_prev - u * (h_prev - c) without origin_mode
    ("fluid.gru", Sizes("gru", 3, 2), {
        "fc.w": [[-1211, -1221, 1111, 1121, 1311, 1321], [-1212, -1222, 1112, 1122, 1312, 1322], [-1213, -1223, 1113, 1123, 1313, 1323]],
        "fc.b": [-3210, -3220, 3110, 3120, 3310, 3320],
        "gru.w": [-2211, -2221, 2111, 2121, -2212, -2222, 2112, 2122, 2311, 2321, 2312, 2322],
        "gru.b": [[-4210, -4220, 4110, 4120, 4310, 4320]],
    }),
    # with origin_mode, h = u * h_prev + (1 - u) * c
    ("fluid.gru_origin", Sizes("gru", 1, 2), {
        "fc.w": GRU.columns(1, "zrn", 1), "fc.b": GRU.vector(3, "zrn"), "gru.w": flat(GRU.columns(2, "zr", 2), GRU.columns(2, "n", 2)),
        "gru.b": [GRU.vector(4, "zrn")],
    }),
    # Weight = {W_ch, W_ih, W_fh, W_oh}; Bias = {b_c, b_i, b_f, b_o, W_ic, W_fc, W_oc} (lstm_op.cc, LSTMOpMaker)
    ("fluid.lstm", Sizes("lstm", 1, 2, parts=BOTH | {"peephole"}), {
        "fc.w": LSTM.columns(1, "gifo", 1), "fc.b": LSTM.vector(3, "gifo"), "lstm.w": LSTM.columns(2, "gifo", 2),
        "lstm.b": [flat(LSTM.vector(4, "gifo"), LSTM.vector(5, "ifo"))],
    }),
]
