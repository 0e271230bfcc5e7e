"""PaddlePaddle Fluid 1.x: fluid.layers.dynamic_gru and dynamic_lstm, with the fc that must stand before them.

Source: paddle/fluid/operators/{gru_op,lstm_op}.{cc,h} and operators/math/{gru,lstm}_compute (1.8). Their own weights act
on the state; the matrix of the input is that of the layer fc before them. dynamic_gru has a weight of shape (D, 3D) and
reads its memory as a (D, 2D) matrix of update and reset gate and then a (D, D) one of the candidate, so it is a vector
here. It mixes with 1 - z unless origin_mode is set. The bias of dynamic_lstm ends in the peepholes of i, f and o.
"""

from rnnconvert.language.layout import Holds, Layout, Option, System, Tensor

SYSTEM = System(
    "fluid",
    "PaddlePaddle Fluid",
    "1.x: a folder with one file per parameter, or a program with all of them in one file",
    "golden: paddlepaddle 1.8.5; corpus: jieba's LAC",
    (
        "it is only read, not written: no maintained framework runs it",
        "all parameters in one file (`__params__`, `params`) are read by the names in the program next to it",
        "a program next to the parameters (`__model__`) states origin_mode, is_reverse, the functions and the fc before a layer; without "
        "one they are asked",
    ),
    asks={
        **dict.fromkeys(("activation", "recurrent_activation", "go_backwards"), ""),
        "output_activation": "dynamic_lstm's cell_activation",
    },
    options=(
        Option("fc", (), "the fc before a layer; by default the one of its width, or with its number"),
        Option("origin_mode", ("true", "false"), "a dynamic_gru: whether z keeps the old state; false by default"),
    ),
)

_FC = (Tensor("fc.w", "input", "in (gate hidden)"), Tensor("fc.b", "input_bias", "(gate hidden)"))
_FUNCTIONS = ("tanh", "relu", "sigmoid", "linear")
_HOLDS = Holds(("both", "recurrent", "input", "none"), _FUNCTIONS, _FUNCTIONS, "any", layers=False, directions=1, reverse=True)
_FLAT = Tensor("gru.w", "recurrent[z r] | recurrent[n]", "(section in gate hidden)")
_BIAS = Tensor("gru.b", "recurrent_bias", "1 (gate hidden)")
_GRU = "paddle/fluid/operators/gru_op.h, gru_op.cc"

GRU = Layout(
    "fluid.gru", "gru", "-z r n", (*_FC, _FLAT, _BIAS), _GRU, "paddle.fluid.layers.dynamic_gru", False, holds=_HOLDS, writable=False
)
GRU_ORIGIN = Layout(
    "fluid.gru_origin",
    "gru",
    "z r n",
    (*_FC, _FLAT, _BIAS),
    _GRU,
    "paddle.fluid.layers.dynamic_gru(origin_mode=True)",
    False,
    holds=_HOLDS,
    writable=False,
)
LSTM = Layout(
    "fluid.lstm",
    "lstm",
    "g i f o",
    (
        *_FC,
        Tensor("lstm.w", "recurrent", "in (gate hidden)"),
        Tensor("lstm.b", "recurrent_bias | peephole[i f o]", "1 (section gate hidden)"),
    ),
    "paddle/fluid/operators/lstm_op.h, lstm_op.cc",
    "paddle.fluid.layers.dynamic_lstm",
    holds=_HOLDS,
    writable=False,
)
