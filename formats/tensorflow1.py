"""TensorFlow 1: the cells of tf.nn.rnn_cell and tf.contrib, one step of one direction.

Sources (1.15.5): tensorflow/python/ops/rnn_cell_impl.py; tensorflow/contrib/rnn/python/ops/{lstm_ops,gru_ops}.py;
tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py. An LSTM adds forget_bias (1 if nothing is said) to gate f at
every call, and stores it nowhere; its candidate is spelt j. A GRU mixes with its update gate u as h' = u h + (1 - u) c.
"""

from rnnconvert.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "tensorflow1", "TensorFlow 1", "1.0 to 1.15; the names of before 1.2 are read as tf.contrib's checkpoint_convert has them",
    "executed: tensorflow 1.15.5 (tensorflow1-cpu)",
    ("forget_bias, the activation and the clips are in the graph alone: a .meta beside the checkpoint or a frozen .pb is read for "
     "them, and what none says is told",
     "a MultiRNNCell is one stack; what a wrapper without variables does between its layers (residuals) is not seen",
     "cells with normalisation, attention or other equations are refused by their names (layer_norm_basic_lstm_cell, nas_cell, ...)"),
)  # fmt: skip
_FUNCTIONS = ("tanh", "relu", "sigmoid", "linear", "softsign", "softplus", "elu", "selu")
_HOLDS = Holds(biases=("input",), activations=_FUNCTIONS, layers=False, joins=("layer", "end"), differing=True)
_LSTM = Holds(**{**vars(_HOLDS), "constants": {"f": 1.0}, "chosen": ("f",), "clips": ("cell", "projection")})
_BOTH = Holds(**{**vars(_HOLDS), "biases": ("both",), "activations": ("tanh",)})
_SOURCE = "python/ops/rnn_cell_impl.py, class "


def _pair(name: str, gates: str) -> tuple[Tensor, ...]:
    """The kernel that acts on the input and the state side by side, and the bias, of some gates."""
    kernel = Tensor(f"{name}kernel", f"input{gates} recurrent{gates}", "(part in) (gate hidden)")
    return (kernel, Tensor(f"{name}bias", f"input_bias{gates}", "(gate hidden)"))


LSTM = Layout(
    "tensorflow1.lstm", "lstm", "i g f o",
    (*_pair("", ""), Tensor("w_{gate}_diag", "peephole", "hidden"), Tensor("projection/kernel", "projection", "in hidden")),
    _SOURCE + "LSTMCell; the same of BasicLSTMCell, LSTMBlockCell, LSTMBlockFusedCell, CudnnCompatibleLSTMCell",
    "tf.nn.rnn_cell.LSTMCell", holds=_LSTM,
)  # fmt: skip
GRU = Layout(
    "tensorflow1.gru", "gru", "r z n", (*_pair("gates/", "[r z]"), *_pair("candidate/", "[n]")),
    _SOURCE + "GRUCell; the same of GRUBlockCellV2", "tf.nn.rnn_cell.GRUCell", reset_after=False, holds=_HOLDS,
)  # fmt: skip
GRU_BLOCK = Layout(
    "tensorflow1.gru_block", "gru", "r z n",
    (
        Tensor("w_ru", "input[r z] recurrent[r z]", "(part in) (gate hidden)"), Tensor("b_ru", "input_bias[r z]", "(gate hidden)"),
        Tensor("w_c", "input[n] recurrent[n]", "(part in) (gate hidden)"), Tensor("b_c", "input_bias[n]", "(gate hidden)"),
    ),
    "contrib/rnn/python/ops/gru_ops.py, class GRUBlockCell", "tf.contrib.rnn.GRUBlockCell", reset_after=False,
    holds=Holds(**{**vars(_HOLDS), "activations": ("tanh",)}),
)  # fmt: skip
CUDNN_GRU = Layout(
    "tensorflow1.cudnn_gru", "gru", "r z n",
    (
        *_pair("gates/", "[r z]"),
        Tensor("candidate/input_projection/kernel", "input[n]", "in (gate hidden)"),
        Tensor("candidate/input_projection/bias", "input_bias[n]", "(gate hidden)"),
        Tensor("candidate/hidden_projection/kernel", "recurrent[n]", "in (gate hidden)"),
        Tensor("candidate/hidden_projection/bias", "recurrent_bias[n]", "(gate hidden)"),
    ),
    "contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, class CudnnCompatibleGRUCell",
    "tf.contrib.cudnn_rnn.CudnnCompatibleGRUCell", reset_after=True, holds=_BOTH,
)  # fmt: skip
RNN = Layout(
    "tensorflow1.rnn", "rnn", "n", _pair("", ""), _SOURCE + "BasicRNNCell", "tf.nn.rnn_cell.BasicRNNCell", holds=_HOLDS
)
