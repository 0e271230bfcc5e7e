"""Flax nnx: the parameters of LSTMCell, OptimizedLSTMCell, GRUCell and SimpleCell, one step of one direction.

Source: flax/nnx/nn/recurrent.py (0.12.8), each class's __init__ and __call__. GRUCell's hidden Linear has no bias,
though its docstring's equation has b_hn; OptimizedLSTMCell has other arrays than LSTMCell, though its docstring calls
them compatible. A `residual` SimpleCell is another cell, and has the same parameters.
"""

from rnnconvert.layout import Holds, Layout, Tensor

_MATRICES = (
    Tensor("dense_i/kernel", "input", "in (gate hidden)"),
    Tensor("dense_h/kernel", "recurrent", "in (gate hidden)"),
)
_INPUT_BIAS = Tensor("dense_i/bias", "input_bias", "(gate hidden)")
_SOURCE = "flax/nnx/nn/recurrent.py, class "
_HOLDS = Holds(biases=("input",), layers=False, directions=1)

LSTM = Layout(
    "nnx.lstm", "lstm", "i f g o",
    (
        Tensor("i{gate}/kernel", "input", "in hidden", letters="i f_ g o"),
        Tensor("h{gate}/kernel", "recurrent", "in hidden"),
        Tensor("h{gate}/bias", "input_bias", "hidden"),
    ),
    _SOURCE + "LSTMCell", "flax.nnx.LSTMCell", holds=_HOLDS,
)  # fmt: skip
OPTIMIZED_LSTM = Layout(
    "nnx.optimized_lstm", "lstm", "i f g o", (*_MATRICES, Tensor("dense_h/bias", "input_bias", "(gate hidden)")),
    _SOURCE + "OptimizedLSTMCell", "flax.nnx.OptimizedLSTMCell", holds=_HOLDS,
)  # fmt: skip
GRU = Layout(
    "nnx.gru", "gru", "r z n", (*_MATRICES, _INPUT_BIAS), _SOURCE + "GRUCell", "flax.nnx.GRUCell",
    reset_after=True, holds=_HOLDS,
)  # fmt: skip
RNN = Layout(
    "nnx.rnn", "rnn", "n", (*_MATRICES, _INPUT_BIAS), _SOURCE + "SimpleCell", "flax.nnx.SimpleCell",
    holds=Holds(biases=("input",), activations=("tanh", "relu"), layers=False, directions=1),
)  # fmt: skip
