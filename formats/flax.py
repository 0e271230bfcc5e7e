"""Flax linen: the parameters of LSTMCell, OptimizedLSTMCell, GRUCell, MGUCell and SimpleCell, one step of one direction.

Source: flax/linen/recurrent.py (0.12.8), each class's __call__. nn.RNN and nn.Bidirectional have a cell's
parameters under names of their own. A `residual` SimpleCell is another cell, and has the same parameters.
"""

from rnnconvert.layout import Holds, Layout, Tensor

_INPUT = Tensor("i{gate}/kernel", "input", "in hidden")
_RECURRENT = Tensor("h{gate}/kernel", "recurrent", "in hidden")
_SOURCE = "flax/linen/recurrent.py, class "

LSTM = Layout(
    "flax.lstm", "lstm", "i f g o", (_INPUT, _RECURRENT, Tensor("h{gate}/bias", "input_bias", "hidden")),
    _SOURCE + "LSTMCell", "flax.linen.LSTMCell", holds=Holds(biases=("input",), layers=False, directions=1),
)  # fmt: skip
_GRU = (
    _INPUT, Tensor("i{gate}/bias", "input_bias", "hidden"),
    _RECURRENT, Tensor("hn/bias", "recurrent_bias[n]", "hidden"),
)  # fmt: skip
_GRU_HOLDS = Holds(biases=("both",), layers=False, directions=1)
GRU = Layout(
    "flax.gru", "gru", "r z n", _GRU, _SOURCE + "GRUCell", "flax.linen.GRUCell", reset_after=True, holds=_GRU_HOLDS
)
# A GRU whose reset gate is its update gate. Without reset_gate it has no hn/bias, and is none.
MGU = Layout(
    "flax.mgu", "gru", "r z n", _GRU, _SOURCE + "MGUCell", "flax.linen.MGUCell", reset_after=True, letters="f f n",
    holds=_GRU_HOLDS, writable=False,
)  # fmt: skip
RNN = Layout(
    "flax.rnn", "rnn", "n",
    (
        Tensor("i/kernel", "input", "in hidden"), Tensor("i/bias", "input_bias", "hidden"),
        Tensor("h/kernel", "recurrent", "in hidden"),
    ),
    _SOURCE + "SimpleCell", "flax.linen.SimpleCell",
    holds=Holds(biases=("input",), activations=("tanh", "relu"), layers=False, directions=1),
)  # fmt: skip
