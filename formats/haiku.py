"""Haiku: the parameters of LSTM, GRU and VanillaRNN, one step of one direction.

Source: haiku/_src/recurrent.py (0.0.17), each class's __call__. LSTM adds 1 to the forget gate at every call, not once
after initialisation as its docstring says; GRU mixes with 1 - z, and its docstring takes reset and update for each
other; VanillaRNN is a ReLU.
"""

from rnnconvert.layout import Holds, Layout, Tensor

_SOURCE = "haiku/_src/recurrent.py, class "

LSTM = Layout(
    "haiku.lstm", "lstm", "i g f o",
    (
        Tensor("linear/w", "input recurrent", "(part in) (gate hidden)"),
        Tensor("linear/b", "input_bias", "(gate hidden)"),
    ),
    _SOURCE + "LSTM", "haiku.LSTM",
    holds=Holds(biases=("input",), constants={"f": 1.0}, layers=False, directions=1),
)  # fmt: skip
GRU = Layout(
    "haiku.gru", "gru", "-z r n",
    (
        Tensor("w_i", "input", "in (gate hidden)"),
        Tensor("w_h", "recurrent", "in (gate hidden)"),
        Tensor("b", "input_bias", "(gate hidden)"),
    ),
    _SOURCE + "GRU", "haiku.GRU", reset_after=False, holds=Holds(biases=("input",), layers=False, directions=1),
)  # fmt: skip
RNN = Layout(
    "haiku.rnn", "rnn", "n",
    (
        Tensor("linear/w", "input", "in hidden"), Tensor("linear/b", "input_bias", "hidden"),
        Tensor("linear_1/w", "recurrent", "in hidden"), Tensor("linear_1/b", "recurrent_bias", "hidden"),
    ),
    _SOURCE + "VanillaRNN", "haiku.VanillaRNN",
    holds=Holds(biases=("both", "input"), activations=("relu",), layers=False, directions=1),
)  # fmt: skip
