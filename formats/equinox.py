"""Equinox: the fields of LSTMCell and GRUCell, one step of one direction.

Source: equinox/nn/_rnn.py (0.13.8), each class's __call__. Without biases they are named as PyTorch's cells are, and
hold the same.
"""

from rnnconvert.layout import Holds, Layout, Tensor

_TENSORS = (
    Tensor("weight_ih", "input", "(gate hidden) in"),
    Tensor("weight_hh", "recurrent", "(gate hidden) in"),
    Tensor("bias", "input_bias", "(gate hidden)"),
)
_SOURCE = "equinox/nn/_rnn.py, class "

LSTM = Layout(
    "equinox.lstm", "lstm", "i f g o", _TENSORS, _SOURCE + "LSTMCell", "equinox.nn.LSTMCell",
    holds=Holds(biases=("input", "none"), layers=False, directions=1),
)  # fmt: skip
GRU = Layout(
    "equinox.gru", "gru", "r z n", (*_TENSORS, Tensor("bias_n", "recurrent_bias[n]", "hidden")),
    _SOURCE + "GRUCell", "equinox.nn.GRUCell", reset_after=True,
    holds=Holds(biases=("both", "none"), layers=False, directions=1),
)  # fmt: skip
