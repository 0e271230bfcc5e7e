"""MXNet: gluon.rnn's layers and cells, the fused operator's flat vector, and the per-gate names of mx.rnn.

Source: python/mxnet/gluon/rnn/{rnn_layer,rnn_cell}.py, gluon/contrib/rnn/rnn_cell.py and rnn/rnn_cell.py (1.9.1);
src/operator/rnn-inl.h for the flat vector, which is cuDNN's. The candidate of an LSTM is spelt c, that of a GRU o. Every
class has both biases. gluon of MXNet 2 keeps the flat vector, as `rnn_param`.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "mxnet",
    "Apache MXNet",
    "1.x; 2.0's rnn_param is read according to its source",
    "executed: mxnet 1.9.1 (mxnet-gluon; its RNN operator with oneDNN's kernels and its own)",
    (
        "relu is the default of gluon's RNN layers, but parameters do not state it",
        "the clip of the cell state is kept as cuDNN computes it, where the state is read; only cuDNN accepts it",
    ),
    recipes={".params": ("import mxnet", "layer = {call}", "layer.load_parameters({path})")},
    asks={
        "nonlinearity": "relu in gluon's layers by default",
        **dict.fromkeys(("activation", "recurrent_activation"), "an LSTMCell without its graph"),
        **dict.fromkeys(("cell", "input_size", "hidden_size", "num_layers", "bidirectional", "projection_size"), ""),
        "module": "flat for the RNN operator's vector, gates for the arrays of mx.rnn",
        "prefix": "",
    },
)

_PARTS = (("i2h", "input"), ("h2h", "recurrent"))


def _tensors(start: str, gate: str = "") -> tuple[Tensor, ...]:
    """Return a matrix and a bias of the input and of the state, named from `start`; with `gate`, of one gate each."""
    rows = "hidden" if gate else "(gate hidden)"
    weights = [Tensor(f"{start}{name}{gate}_weight", part, f"{rows} in") for name, part in _PARTS]
    return (*weights, *(Tensor(f"{start}{name}{gate}_bias", f"{part}_bias", rows) for name, part in _PARTS))


_SIDES = ("l", "r")
_LAYER, _CELL = "{direction}{layer}_", ""
_LAYERS, _CELLS = _tensors(_LAYER), _tensors(_CELL)
_GATES, _CELL_GATES = _tensors(_LAYER, "_{gate}"), _tensors(_CELL, "_{gate}")
_AXES = "(section layer direction part gate hidden in)"
_FLAT = (Tensor("parameters", "input recurrent | input_bias recurrent_bias", _AXES),)
_PROJECTED = (Tensor("parameters", "input recurrent projection | input_bias recurrent_bias", _AXES),)

_STACK = Holds(biases=("both",))
_STEP = Holds(biases=("both",), layers=False, directions=1)
_RNN = Holds(biases=("both",), activations=("tanh", "relu"))
_RNN_STEP = Holds(biases=("both",), activations=("tanh", "relu"), layers=False, directions=1)

_LAYER_SOURCE = "gluon/rnn/rnn_layer.py, class _RNNLayer; gates as in rnn_cell.py, class "
LSTM = Layout(
    "mxnet.lstm",
    "lstm",
    "i f g o",
    (*_LAYERS, Tensor(f"{_LAYER}h2r_weight", "projection", "hidden in")),
    _LAYER_SOURCE + "LSTMCell",
    "mxnet.gluon.rnn.LSTM",
    spelling=_SIDES,
    holds=_STACK,
)
GRU = Layout("mxnet.gru", "gru", "r z n", _LAYERS, _LAYER_SOURCE + "GRUCell", "mxnet.gluon.rnn.GRU", True, spelling=_SIDES, holds=_STACK)
RNN = Layout("mxnet.rnn", "rnn", "n", _LAYERS, _LAYER_SOURCE + "RNNCell", "mxnet.gluon.rnn.RNN", spelling=_SIDES, holds=_RNN)

_CELL_SOURCE = "gluon/rnn/rnn_cell.py, class "
LSTM_CELL = Layout(
    "mxnet.lstm_cell",
    "lstm",
    "i f g o",
    (*_CELLS, Tensor("h2r_weight", "projection", "hidden in")),
    _CELL_SOURCE + "LSTMCell; gluon/contrib/rnn/rnn_cell.py, class LSTMPCell",
    "mxnet.gluon.rnn.LSTMCell",
    holds=_STEP,
)
GRU_CELL = Layout("mxnet.gru_cell", "gru", "r z n", _CELLS, _CELL_SOURCE + "GRUCell", "mxnet.gluon.rnn.GRUCell", True, holds=_STEP)
RNN_CELL = Layout("mxnet.rnn_cell", "rnn", "n", _CELLS, _CELL_SOURCE + "RNNCell", "mxnet.gluon.rnn.RNNCell", holds=_RNN_STEP)

_FLAT_SOURCE = "src/operator/rnn-inl.h, GetRnnParamSize; rnn/rnn_cell.py, FusedRNNCell._slice_weights"
LSTM_FLAT = Layout("mxnet.lstm_flat", "lstm", "i f g o", _PROJECTED, _FLAT_SOURCE, "mxnet.nd.RNN(mode='lstm')", holds=_STACK)
GRU_FLAT = Layout("mxnet.gru_flat", "gru", "r z n", _FLAT, _FLAT_SOURCE, "mxnet.nd.RNN(mode='gru')", True, holds=_STACK)
RNN_FLAT = Layout("mxnet.rnn_flat", "rnn", "n", _FLAT, _FLAT_SOURCE, "mxnet.nd.RNN(mode='rnn_tanh' or 'rnn_relu')", holds=_RNN)

# What save_rnn_checkpoint writes: a plain RNN's arrays are then called as gluon's are.
_GATES_SOURCE = "rnn/rnn_cell.py, FusedRNNCell._slice_weights and _gate_names"
LSTM_GATES = Layout(
    "mxnet.lstm_gates",
    "lstm",
    "i f g o",
    _GATES,
    _GATES_SOURCE,
    "mxnet.rnn.FusedRNNCell(mode='lstm')",
    letters="i f c o",
    spelling=_SIDES,
    holds=_STACK,
)
GRU_GATES = Layout(
    "mxnet.gru_gates",
    "gru",
    "r z n",
    _GATES,
    _GATES_SOURCE,
    "mxnet.rnn.FusedRNNCell(mode='gru')",
    True,
    letters="r z o",
    spelling=_SIDES,
    holds=_STACK,
)
_CELL_GATES_SOURCE = "rnn/rnn_cell.py, BaseRNNCell.unpack_weights, _gate_names of "
LSTM_CELL_GATES = Layout(
    "mxnet.lstm_cell_gates",
    "lstm",
    "i f g o",
    _CELL_GATES,
    _CELL_GATES_SOURCE + "LSTMCell",
    "mxnet.rnn.LSTMCell",
    letters="i f c o",
    holds=_STEP,
)
GRU_CELL_GATES = Layout(
    "mxnet.gru_cell_gates",
    "gru",
    "r z n",
    _CELL_GATES,
    _CELL_GATES_SOURCE + "GRUCell",
    "mxnet.rnn.GRUCell",
    True,
    letters="r z o",
    holds=_STEP,
)
