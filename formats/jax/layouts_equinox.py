"""Equinox: the fields of LSTMCell and GRUCell, one step of one direction.

Source: equinox/nn/_rnn.py (0.13.8), each class's __call__. Without biases they are named as PyTorch's cells are, and
hold the same.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor
from rnnconvert.language.plain import Plain, PlainTensor

SYSTEM = System(
    "equinox", "Equinox", "0.5 to 0.13", "executed: equinox 0.13.8 (equinox-cpu)",
    ("a GRU has one bias, and the candidate's recurrent one as bias_n",),
)  # fmt: skip

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

# Around the recurrent core. Source: equinox/nn/_{linear,embedding,conv,normalisation,activations}.py.
_WEIGHT_AND_BIAS = (PlainTensor("weight", "weight"), PlainTensor("bias", "bias"))
_SPACE = (PlainTensor("weight", "weight"), PlainTensor("bias", "bias", "out *1"))
_CONV = {
    "stride": "stride",
    "padding": "padding",
    "dilation": "dilation",
    "groups": "groups",
    "padding_mode": "padding_mode",
}
_NORM = (PlainTensor("weight", "scale"), PlainTensor("bias", "shift"))

DENSE = Plain("equinox", "dense", "Linear", _WEIGHT_AND_BIAS, "_linear.py, Linear")
EMBEDDING = Plain("equinox", "embedding", "Embedding", _WEIGHT_AND_BIAS[:1], "_embedding.py, Embedding")
CONV = Plain("equinox", "conv", "Conv Conv1d Conv2d Conv3d", _SPACE, "_conv.py, Conv", _CONV)
LAYER_NORM = Plain("equinox", "layer_norm", "LayerNorm", _NORM, "_normalisation.py, LayerNorm", {"epsilon": "eps"})
GROUP_NORM = Plain(
    "equinox", "group_norm", "GroupNorm", _NORM, "_normalisation.py, GroupNorm", {"epsilon": "eps", "groups": "groups"}
)
RMS_NORM = Plain("equinox", "rms_norm", "RMSNorm", _NORM[:1], "_normalisation.py, RMSNorm", {"epsilon": "eps"})
