"""TensorFlow 1 and Torch7: small arrays by the rule of tests.literals, written down from the frameworks' sources."""

from __future__ import annotations

from typing import Any

from rnnconvert.layout import Form
from tests.stacks import BOTH, PLAIN

_ONE_BIAS = PLAIN | {"input_bias"}

# fmt: off
LITERALS: list[tuple[str, Form, dict[str, list[Any]]]] = [
    # tensorflow/python/ops/rnn_cell_impl.py, class LSTMCell, call: concat([inputs, m_prev]) times the kernel, split into
    # i, j, f, o; j is the candidate
    ("tensorflow1.lstm", Form("lstm", 3, 2, parts=_ONE_BIAS), {
        "kernel": [
            [1111, 1121, 1311, 1321, 1211, 1221, 1411, 1421],
            [1112, 1122, 1312, 1322, 1212, 1222, 1412, 1422],
            [1113, 1123, 1313, 1323, 1213, 1223, 1413, 1423],
            [2111, 2121, 2311, 2321, 2211, 2221, 2411, 2421],
            [2112, 2122, 2312, 2322, 2212, 2222, 2412, 2422],
        ],
        "bias": [3110, 3120, 3310, 3320, 3210, 3220, 3410, 3420],
    }),
    # the same with use_peepholes=True and num_proj=1; the state that goes through the kernel is the projected one
    ("tensorflow1.lstm", Form("lstm", 3, 2, 1, 1, 1, _ONE_BIAS | {"peephole", "projection"}), {
        "kernel": [
            [1111, 1121, 1311, 1321, 1211, 1221, 1411, 1421],
            [1112, 1122, 1312, 1322, 1212, 1222, 1412, 1422],
            [1113, 1123, 1313, 1323, 1213, 1223, 1413, 1423],
            [2111, 2121, 2311, 2321, 2211, 2221, 2411, 2421],
        ],
        "bias": [3110, 3120, 3310, 3320, 3210, 3220, 3410, 3420],
        "w_i_diag": [5110, 5120],
        "w_f_diag": [5210, 5220],
        "w_o_diag": [5410, 5420],
        "projection/kernel": [[6011], [6012]],
    }),
    # rnn_cell_impl.py, class GRUCell, call: r, u = split(sigmoid(...)); the candidate reads [inputs, r * state];
    # new_h = u * state + (1 - u) * c, so u is z
    ("tensorflow1.gru", Form("gru", 3, 2, parts=_ONE_BIAS), {
        "gates/kernel": [
            [1111, 1121, 1211, 1221],
            [1112, 1122, 1212, 1222],
            [1113, 1123, 1213, 1223],
            [2111, 2121, 2211, 2221],
            [2112, 2122, 2212, 2222],
        ],
        "gates/bias": [3110, 3120, 3210, 3220],
        "candidate/kernel": [[1311, 1321], [1312, 1322], [1313, 1323], [2311, 2321], [2312, 2322]],
        "candidate/bias": [3310, 3320],
    }),
    # contrib/rnn/python/ops/gru_ops.py, class GRUBlockCell, build and call; the equations in ops/gru_ops.cc's documentation
    ("tensorflow1.gru_block", Form("gru", 3, 2, parts=_ONE_BIAS), {
        "w_ru": [
            [1111, 1121, 1211, 1221],
            [1112, 1122, 1212, 1222],
            [1113, 1123, 1213, 1223],
            [2111, 2121, 2211, 2221],
            [2112, 2122, 2212, 2222],
        ],
        "b_ru": [3110, 3120, 3210, 3220],
        "w_c": [[1311, 1321], [1312, 1322], [1313, 1323], [2311, 2321], [2312, 2322]],
        "b_c": [3310, 3320],
    }),
    # contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, class CudnnCompatibleGRUCell, call
    ("tensorflow1.cudnn_gru", Form("gru", 3, 2, parts=BOTH), {
        "gates/kernel": [
            [1111, 1121, 1211, 1221],
            [1112, 1122, 1212, 1222],
            [1113, 1123, 1213, 1223],
            [2111, 2121, 2211, 2221],
            [2112, 2122, 2212, 2222],
        ],
        "gates/bias": [3110, 3120, 3210, 3220],
        "candidate/input_projection/kernel": [[1311, 1321], [1312, 1322], [1313, 1323]],
        "candidate/input_projection/bias": [3310, 3320],
        "candidate/hidden_projection/kernel": [[2311, 2321], [2312, 2322]],
        "candidate/hidden_projection/bias": [4310, 4320],
    }),
    # rnn_cell_impl.py, class BasicRNNCell, call
    ("tensorflow1.rnn", Form("rnn", 3, 2, parts=_ONE_BIAS), {
        "kernel": [[1111, 1121], [1112, 1122], [1113, 1123], [2111, 2121], [2112, 2122]],
        "bias": [3110, 3120],
    }),
]
