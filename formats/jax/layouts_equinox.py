"""Equinox: the fields of LSTMCell and GRUCell, one step of one direction.

Source: equinox/nn/_rnn.py (0.13.8), each class's __call__. Without biases they are named as PyTorch's cells are, and hold the same.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor
from rnnconvert.language.surroundings import Surrounding, SurroundingTensor

SYSTEM = System(
    "equinox",
    "Equinox",
    "0.5 to 0.13",
    "executed: equinox 0.13.8 (equinox-cpu)",
    ("a GRU has one bias, and the candidate's recurrent one as bias_n",),
    asks={"arrays": ".eqx files", "prefix": ""},
    channels="channels_first",
    recipes={".eqx": ("import equinox", "import jax", "cell = equinox.tree_deserialise_leaves({path}, {call})")},
    heads=(
        (
            0,
            b"\x93NUMPY",
            "a bare array of numpy's, or an Equinox .eqx file with no arrays shaped as those of its cells: if a cell is in it, "
            "read it with its own model and hand that to rnnconvert.from_jax",
        ),
    ),
    called="jax",
)

_TENSORS = (
    Tensor("weight_ih", "input", "(gate hidden) in"),
    Tensor("weight_hh", "recurrent", "(gate hidden) in"),
    Tensor("bias", "input_bias", "(gate hidden)"),
)
_SOURCE = "equinox/nn/_rnn.py, class "

LSTM = Layout(
    "equinox.lstm",
    "lstm",
    "i f g o",
    _TENSORS,
    _SOURCE + "LSTMCell",
    "equinox.nn.LSTMCell",
    holds=Holds(biases=("input", "none"), layers=False, directions=1),
)
GRU = Layout(
    "equinox.gru",
    "gru",
    "r z n",
    (*_TENSORS, Tensor("bias_n", "recurrent_bias[n]", "hidden")),
    _SOURCE + "GRUCell",
    "equinox.nn.GRUCell",
    reset_after=True,
    holds=Holds(biases=("both", "none"), layers=False, directions=1),
)

# Around the recurrent core. Source: equinox/nn/_{linear,embedding,conv,normalisation,activations}.py.
_WEIGHT_AND_BIAS = (SurroundingTensor("weight", "weight"), SurroundingTensor("bias", "bias"))
_SPACE = (SurroundingTensor("weight", "weight"), SurroundingTensor("bias", "bias", "out *1"))
_CONV = {"stride": "stride", "padding": "padding", "dilation": "dilation", "groups": "groups", "padding_mode": "padding_mode"}
_NORM = (SurroundingTensor("weight", "scale"), SurroundingTensor("bias", "shift"))

DENSE = Surrounding("equinox", "dense", "Linear", _WEIGHT_AND_BIAS, "_linear.py, Linear")
EMBEDDING = Surrounding("equinox", "embedding", "Embedding", _WEIGHT_AND_BIAS[:1], "_embedding.py, Embedding")
CONV = Surrounding("equinox", "conv", "Conv Conv1d Conv2d Conv3d", _SPACE, "_conv.py, Conv", _CONV)
LAYER_NORM = Surrounding("equinox", "layer_norm", "LayerNorm", _NORM, "_normalisation.py, LayerNorm", {"epsilon": "eps"})
GROUP_NORM = Surrounding(
    "equinox", "group_norm", "GroupNorm", _NORM, "_normalisation.py, GroupNorm", {"epsilon": "eps", "groups": "groups"}
)
RMS_NORM = Surrounding("equinox", "rms_norm", "RMSNorm", _NORM[:1], "_normalisation.py, RMSNorm", {"epsilon": "eps"})
