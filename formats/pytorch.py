"""PyTorch: torch.nn.RNN, GRU, LSTM and their *Cell modules.

Source: torch/nn/modules/rnn.py (2.13): RNNBase.__init__ for names and shapes, the docstrings of
RNN, GRU and LSTM for the gate order and the equations.
"""

from rnnconvert.layout import Holds, Layout, Tensor

_STACK = (
    Tensor("weight_ih_l{layer}{direction}", "input", "(gate hidden) in"),
    Tensor("weight_hh_l{layer}{direction}", "recurrent", "(gate hidden) in"),
    Tensor("bias_ih_l{layer}{direction}", "input_bias", "(gate hidden)"),
    Tensor("bias_hh_l{layer}{direction}", "recurrent_bias", "(gate hidden)"),
)
_PROJECTION = Tensor("weight_hr_l{layer}{direction}", "projection", "hidden in")
_CELL = (
    Tensor("weight_ih", "input", "(gate hidden) in"),
    Tensor("weight_hh", "recurrent", "(gate hidden) in"),
    Tensor("bias_ih", "input_bias", "(gate hidden)"),
    Tensor("bias_hh", "recurrent_bias", "(gate hidden)"),
)
_SOURCE = "torch/nn/modules/rnn.py, class "
_RNN = Holds(activations=("tanh", "relu"))

LSTM = Layout(
    "pytorch.lstm", "lstm", "i f g o", (*_STACK, _PROJECTION), _SOURCE + "LSTM", "torch.nn.LSTM",
    holds=Holds(full_projection=False),
)  # fmt: skip
GRU = Layout("pytorch.gru", "gru", "r z n", _STACK, _SOURCE + "GRU", "torch.nn.GRU", reset_after=True)
RNN = Layout("pytorch.rnn", "rnn", "n", _STACK, _SOURCE + "RNN", "torch.nn.RNN", holds=_RNN)

LSTM_CELL = Layout(
    "pytorch.lstm_cell", "lstm", "i f g o", _CELL, _SOURCE + "LSTMCell", "torch.nn.LSTMCell",
    holds=Holds(layers=False, directions=1),
)  # fmt: skip
GRU_CELL = Layout(
    "pytorch.gru_cell", "gru", "r z n", _CELL, _SOURCE + "GRUCell", "torch.nn.GRUCell", reset_after=True,
    holds=Holds(layers=False, directions=1),
)  # fmt: skip
RNN_CELL = Layout(
    "pytorch.rnn_cell", "rnn", "n", _CELL, _SOURCE + "RNNCell", "torch.nn.RNNCell",
    holds=Holds(activations=("tanh", "relu"), layers=False, directions=1),
)  # fmt: skip
