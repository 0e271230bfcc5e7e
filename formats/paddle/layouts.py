"""PaddlePaddle: paddle.nn.LSTM, GRU and SimpleRNN under the names of their cells, and the cells themselves.

Source: python/paddle/nn/layer/rnn.py (3.3.1), each class's forward for the equations and the order of the gates, RNNBase
for the names. A state_dict lists most arrays a second time, as weight_ih_l0 and so on; in a projected LSTM these second
names are taken for each other (weight_ih_l0_reverse is the forward projection), so nothing is read by them.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "paddle",
    "PaddlePaddle",
    "2.0 to 3.3; Fluid 1.x is the format fluid",
    "executed: paddlepaddle 3.3.1 (paddle)",
    (
        "inference models (.pdmodel or .json, with .pdiparams) are read by the operators rnn of their program; golden: "
        "2.6.2 and 3.3.1. One "
        "that computes a cell in a loop is not",
        "a .pdparams states neither whether a SimpleRNN is a rectifier nor whether a paddle.nn.RNN around a cell reads from the end",
        "biases of zero are written where there are none: Paddle 3.3 crashes on the CPU with a layer made with bias_ih_attr=False",
        "Paddle itself confuses the second names of a projected LSTM's arrays, so they are neither read nor written",
    ),
    asks={"nonlinearity": "", "go_backwards": "a paddle.nn.RNN around a cell"},
    recipes={".pdparams": ("import paddle", "layer = {call}", "layer.set_state_dict(paddle.load({path}))")},
)

_MODES = ("both", "input", "recurrent", "none")


def _tensors(start: str) -> tuple[Tensor, ...]:
    """Return the arrays of a cell."""
    return (
        Tensor(f"{start}weight_ih", "input", "(gate hidden) in"),
        Tensor(f"{start}weight_hh", "recurrent", "(gate hidden) in"),
        Tensor(f"{start}bias_ih", "input_bias", "(gate hidden)"),
        Tensor(f"{start}bias_hh", "recurrent_bias", "(gate hidden)"),
    )


_LAYER = "{layer}.{direction}."
_STACK, _CELL = _tensors(_LAYER), _tensors("")
_SIDES = ("cell_fw", "cell_bw")
_FUNCTIONS = ("tanh", "relu")
_SOURCE = "python/paddle/nn/layer/rnn.py, class "
_STEP = Holds(_MODES, layers=False, directions=1)

LSTM = Layout(
    "paddle.lstm",
    "lstm",
    "i f g o",
    (*_STACK, Tensor(f"{_LAYER}weight_ho", "projection", "in hidden")),
    _SOURCE + "LSTM",
    "paddle.nn.LSTM",
    holds=Holds(_MODES, full_projection=False),
    spelling=_SIDES,
    alone="cell",
)
GRU = Layout(
    "paddle.gru", "gru", "r z n", _STACK, _SOURCE + "GRU", "paddle.nn.GRU", True, holds=Holds(_MODES), spelling=_SIDES, alone="cell"
)
RNN = Layout(
    "paddle.rnn",
    "rnn",
    "n",
    _STACK,
    _SOURCE + "SimpleRNN",
    "paddle.nn.SimpleRNN",
    holds=Holds(_MODES, _FUNCTIONS),
    spelling=_SIDES,
    alone="cell",
)
LSTM_CELL = Layout(
    "paddle.lstm_cell",
    "lstm",
    "i f g o",
    (*_CELL, Tensor("weight_ho", "projection", "in hidden")),
    _SOURCE + "LSTMCell",
    "paddle.nn.LSTMCell",
    holds=Holds(_MODES, layers=False, directions=1, full_projection=False),
)
GRU_CELL = Layout("paddle.gru_cell", "gru", "r z n", _CELL, _SOURCE + "GRUCell", "paddle.nn.GRUCell", True, holds=_STEP)
RNN_CELL = Layout(
    "paddle.rnn_cell",
    "rnn",
    "n",
    _CELL,
    _SOURCE + "SimpleRNNCell",
    "paddle.nn.SimpleRNNCell",
    holds=Holds(_MODES, _FUNCTIONS, layers=False, directions=1),
)
