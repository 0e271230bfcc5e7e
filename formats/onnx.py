"""ONNX: the operators RNN, GRU and LSTM, one layer to a node.

Source: onnx/docs/Operators.md, sections RNN, GRU and LSTM; onnx/docs/Changelog.md for older opsets.
"""

from rnnconvert.layout import Holds, Layout, Tensor

_TENSORS = (
    Tensor("W", "input", "direction (gate hidden) in"),
    Tensor("R", "recurrent", "direction (gate hidden) in"),
    Tensor("B", "input_bias recurrent_bias", "direction (part gate hidden)"),
)
# initial_h and initial_c are inputs of the node, (directions, batch, hidden): a learned one has batch 1.
_HIDDEN = Tensor("initial_h", "initial_hidden", "direction hidden")
_CELL = Tensor("initial_c", "initial_cell", "direction hidden")

_FUNCTIONS = (
    "sigmoid", "tanh", "relu", "linear", "affine", "leaky_relu", "thresholded_relu", "scaled_tanh",
    "hard_sigmoid", "elu", "softsign", "softplus",
)  # fmt: skip
_HOLDS = Holds(
    activations=_FUNCTIONS, gate_activations=_FUNCTIONS, output_activation="any", coupled=("f",), clips=("gates",),
    layers=False, reverse=True, merges=("concat", "sum", "mul", "ave", "none"), initial_states=True, readout=True,
    differing=True, processing_order=True,
)  # fmt: skip

LSTM = Layout(
    "onnx.lstm", "lstm", "i o f g",
    (*_TENSORS, Tensor("P", "peephole[i o f]", "direction (gate hidden)"), _HIDDEN, _CELL),
    "onnx/docs/Operators.md#LSTM", "LSTM", holds=_HOLDS,
)  # fmt: skip
GRU = Layout(
    "onnx.gru", "gru", "z r n", (*_TENSORS, _HIDDEN), "onnx/docs/Operators.md#GRU",
    "GRU(linear_before_reset=1)", reset_after=True, holds=_HOLDS,
)  # fmt: skip
GRU_RESET_BEFORE = Layout(
    "onnx.gru_reset_before", "gru", "z r n", (*_TENSORS, _HIDDEN), "onnx/docs/Operators.md#GRU",
    "GRU(linear_before_reset=0)", reset_after=False, holds=_HOLDS,
)  # fmt: skip
RNN = Layout("onnx.rnn", "rnn", "n", (*_TENSORS, _HIDDEN), "onnx/docs/Operators.md#RNN", "RNN", holds=_HOLDS)
