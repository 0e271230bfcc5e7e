"""TensorFlow 1: the cells of tf.nn.rnn_cell and tf.contrib, one step of one direction.

Sources (1.15.5): tensorflow/python/ops/rnn_cell_impl.py; tensorflow/contrib/rnn/python/ops/{lstm_ops,gru_ops}.py;
tensorflow/contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py. An LSTM adds forget_bias (1 by default) to gate f at
every call, and stores it nowhere; its candidate is spelt j. A GRU mixes with its update gate u as h' = u h + (1 - u) c.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System(
    "tensorflow1",
    "TensorFlow 1",
    "1.0 to 1.15; names from before 1.2 are read as tf.contrib's checkpoint_convert maps them",
    "executed: tensorflow 1.15.5 (tensorflow1-cpu, tensorflow1-block), whose files with outputs are kept; BlockLSTM and GRUBlockCell "
    "of tensorflow 2.21 (tensorflow2-raw)",
    (
        "forget_bias, the activation and the clips are only in the graph: the checkpoint's .meta or a frozen .pb is read for "
        "them, and whatever neither states is reported",
        "bidirectional_dynamic_rnn gives the outputs of both directions apart; they are read as side by side",
        "a MultiRNNCell is one stack; residuals between its layers, one cell used for several layers, and sequences reversed by "
        "hand (tf.reverse, TimeReversedFusedRNN) are reported where the graph exists, and cannot be seen without it",
        "while loops and unrolled steps of a frozen .pb (Keras 1 to 3, TensorFlow 1 and 2) are read as layers once that "
        "is proved on random "
        "inputs",
        "cells with normalization, attention or other equations are refused by their names (layer_norm_basic_lstm_cell, nas_cell, ...)",
    ),
    asks={
        **dict.fromkeys(("activation", "forget_bias", "cell_clip", "proj_clip"), "where no graph shows it"),
        "cell": "a scope without the name of a class",
        "prefix": "",
    },
    unstated=("activation", "forget_bias", "cell_clip", "proj_clip"),
    heads=(
        (4, b"TFL3", "a TensorFlow Lite model"),
        (0, b"\x08\x01\x12", "the graph of a SavedModel, whose numbers are in the folder `variables`: give the folder that has both"),
        (0, b'model_checkpoint_path: "', "TensorFlow's list of the checkpoints next to it; give the path of one of them"),
    ),
    called="tensorflow tf tf1",
)
_FUNCTIONS = ("tanh", "relu", "sigmoid", "linear", "softsign", "softplus", "elu", "selu")
_HOLDS = Holds(biases=("input",), activations=_FUNCTIONS, layers=False, joins=("layer", "end"), mixed_directions=True)
_LSTM = Holds(**{**vars(_HOLDS), "constants": {"f": 1.0}, "chosen": ("f",), "clips": ("cell", "projection")})
_BOTH = Holds(**{**vars(_HOLDS), "biases": ("both",), "activations": ("tanh",)})
_SOURCE = "python/ops/rnn_cell_impl.py, class "


def _pair(name: str, gates: str) -> tuple[Tensor, ...]:
    """Return the kernel that acts on the input and the state side by side, and the bias, of some gates."""
    kernel = Tensor(f"{name}kernel", f"input{gates} recurrent{gates}", "(part in) (gate hidden)")
    return (kernel, Tensor(f"{name}bias", f"input_bias{gates}", "(gate hidden)"))


LSTM = Layout(
    "tensorflow1.lstm",
    "lstm",
    "i g f o",
    (*_pair("", ""), Tensor("w_{gate}_diag", "peephole", "hidden"), Tensor("projection/kernel", "projection", "in hidden")),
    _SOURCE + "LSTMCell; the same of BasicLSTMCell, LSTMBlockCell, LSTMBlockFusedCell, CudnnCompatibleLSTMCell",
    "tf.nn.rnn_cell.LSTMCell",
    holds=_LSTM,
)
GRU = Layout(
    "tensorflow1.gru",
    "gru",
    "r z n",
    (*_pair("gates/", "[r z]"), *_pair("candidate/", "[n]")),
    _SOURCE + "GRUCell; the same of GRUBlockCellV2",
    "tf.nn.rnn_cell.GRUCell",
    reset_after=False,
    holds=_HOLDS,
)
GRU_BLOCK = Layout(
    "tensorflow1.gru_block",
    "gru",
    "r z n",
    (
        Tensor("w_ru", "input[r z] recurrent[r z]", "(part in) (gate hidden)"),
        Tensor("b_ru", "input_bias[r z]", "(gate hidden)"),
        Tensor("w_c", "input[n] recurrent[n]", "(part in) (gate hidden)"),
        Tensor("b_c", "input_bias[n]", "(gate hidden)"),
    ),
    "contrib/rnn/python/ops/gru_ops.py, class GRUBlockCell",
    "tf.contrib.rnn.GRUBlockCell",
    reset_after=False,
    holds=Holds(**{**vars(_HOLDS), "activations": ("tanh",)}),
)
CUDNN_GRU = Layout(
    "tensorflow1.cudnn_gru",
    "gru",
    "r z n",
    (
        *_pair("gates/", "[r z]"),
        Tensor("candidate/input_projection/kernel", "input[n]", "in (gate hidden)"),
        Tensor("candidate/input_projection/bias", "input_bias[n]", "(gate hidden)"),
        Tensor("candidate/hidden_projection/kernel", "recurrent[n]", "in (gate hidden)"),
        Tensor("candidate/hidden_projection/bias", "recurrent_bias[n]", "(gate hidden)"),
    ),
    "contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, class CudnnCompatibleGRUCell",
    "tf.contrib.cudnn_rnn.CudnnCompatibleGRUCell",
    reset_after=True,
    holds=_BOTH,
)
RNN = Layout("tensorflow1.rnn", "rnn", "n", _pair("", ""), _SOURCE + "BasicRNNCell", "tf.nn.rnn_cell.BasicRNNCell", holds=_HOLDS)
COUPLED_LSTM = Layout(
    "tensorflow1.coupled_lstm",
    "lstm",
    "g f o",
    (
        Tensor("W_0", "input recurrent", "(part in) (gate hidden)"),
        Tensor("B", "input_bias", "(gate hidden)"),
        Tensor("W_{gate}_diag", "peephole", "hidden"),
        Tensor("W_P_0", "projection", "in hidden"),
    ),
    "contrib/rnn/python/ops/rnn_cell.py, class CoupledInputForgetGateLSTMCell",
    "tf.contrib.rnn.CoupledInputForgetGateLSTMCell",
    letters="J F O",
    coupled="i",
    holds=Holds(**{**vars(_LSTM), "coupled": ("i",), "clips": ("projection",)}),
    writable=False,
)

# What CudnnLSTM and its kin train; their Saver writes the cells above, others write this as it is. It is cuDNN's buffer.
_FLAT = (Tensor("opaque_kernel", "input recurrent | input_bias recurrent_bias", "(section layer direction part gate hidden in)"),)
_OPAQUE = Holds(biases=("both",), skip_input=True)
_FLAT_PROOF = "source: the vector is passed to cuDNN unchanged"
_FLAT_SOURCE = "contrib/cudnn_rnn/python/layers/cudnn_rnn.py, class _CudnnRNN, build; kernels/cudnn_rnn_ops.cc"
LSTM_FLAT = Layout(
    "tensorflow1.lstm_flat",
    "lstm",
    "i f g o",
    _FLAT,
    _FLAT_SOURCE,
    "tf.contrib.cudnn_rnn.CudnnLSTM",
    holds=_OPAQUE,
    writable=False,
    proof=_FLAT_PROOF,
)
GRU_FLAT = Layout(
    "tensorflow1.gru_flat",
    "gru",
    "r z n",
    _FLAT,
    _FLAT_SOURCE,
    "tf.contrib.cudnn_rnn.CudnnGRU",
    reset_after=True,
    holds=_OPAQUE,
    writable=False,
    proof=_FLAT_PROOF,
)
RNN_FLAT = Layout(
    "tensorflow1.rnn_flat",
    "rnn",
    "n",
    _FLAT,
    _FLAT_SOURCE,
    "tf.contrib.cudnn_rnn.CudnnRNNTanh or CudnnRNNRelu",
    holds=Holds(**{**vars(_OPAQUE), "activations": ("tanh", "relu")}),
    writable=False,
    proof=_FLAT_PROOF,
)
