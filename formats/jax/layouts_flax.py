"""Flax linen: the parameters of LSTMCell, OptimizedLSTMCell, GRUCell, MGUCell and SimpleCell, one step of one direction.

Source: flax/linen/recurrent.py (0.12.8), each class's __call__. nn.RNN and nn.Bidirectional have a cell's
parameters under names of their own. A `residual` SimpleCell is another cell, and has the same parameters.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor
from rnnconvert.language.surroundings import Surrounding, SurroundingTensor

SYSTEM = System(
    "flax",
    "Flax linen",
    "0.3 to 0.12",
    "executed: flax 0.12.8 (flax-cpu)",
    ("two directions are two cells, under forward_rnn and backward_rnn",),
    asks={"nonlinearity": "", "activation": "", "recurrent_activation": "", "prefix": ""},
    channels="channels_last",
    recipes={
        ".msgpack": (
            "from pathlib import Path",
            "import flax.linen",
            "import flax.serialization",
            "cell = {call}",
            "variables = {'params': flax.serialization.msgpack_restore(Path({path}).read_bytes())}",
        )
    },
    called="jax linen",
)

_INPUT = Tensor("i{gate}/kernel", "input", "in hidden")
_RECURRENT = Tensor("h{gate}/kernel", "recurrent", "in hidden")
_FUNCTIONS = ("activation", "recurrent_activation")  # activation_fn and gate_fn
_SOURCE = "flax/linen/recurrent.py, class "

LSTM = Layout(
    "flax.lstm",
    "lstm",
    "i f g o",
    (_INPUT, _RECURRENT, Tensor("h{gate}/bias", "input_bias", "hidden")),
    _SOURCE + "LSTMCell",
    "flax.linen.LSTMCell",
    holds=Holds(biases=("input",), asked_functions=_FUNCTIONS, layers=False, directions=1),
)
_GRU = (_INPUT, Tensor("i{gate}/bias", "input_bias", "hidden"), _RECURRENT, Tensor("hn/bias", "recurrent_bias[n]", "hidden"))
_GRU_HOLDS = Holds(biases=("both",), asked_functions=_FUNCTIONS, layers=False, directions=1)
GRU = Layout("flax.gru", "gru", "r z n", _GRU, _SOURCE + "GRUCell", "flax.linen.GRUCell", reset_after=True, holds=_GRU_HOLDS)
# A GRU whose reset gate is its update gate. Without reset_gate it has no hn/bias, and is none.
MGU = Layout(
    "flax.mgu",
    "gru",
    "r z n",
    _GRU,
    _SOURCE + "MGUCell",
    "flax.linen.MGUCell",
    reset_after=True,
    letters="f f n",
    holds=_GRU_HOLDS,
    writable=False,
)
RNN = Layout(
    "flax.rnn",
    "rnn",
    "n",
    (Tensor("i/kernel", "input", "in hidden"), Tensor("i/bias", "input_bias", "hidden"), Tensor("h/kernel", "recurrent", "in hidden")),
    _SOURCE + "SimpleCell",
    "flax.linen.SimpleCell",
    holds=Holds(biases=("input",), activations=("tanh", "relu"), layers=False, directions=1),
)

# Around the recurrent core. Source: flax/linen/{linear,normalization,activation}.py.
_KERNEL_AND_BIAS = (SurroundingTensor("kernel", "weight", "in out"), SurroundingTensor("bias", "bias"))
_SCALE_AND_SHIFT = (SurroundingTensor("scale", "scale"), SurroundingTensor("bias", "shift"))

DENSE = Surrounding("flax", "dense", "Dense", _KERNEL_AND_BIAS, "linear.py, Dense")
EMBEDDING = Surrounding("flax", "embedding", "Embed", (SurroundingTensor("embedding", "weight"),), "linear.py, Embed")
CONV = Surrounding(
    "flax", "conv", "Conv", (SurroundingTensor("kernel", "weight", "*space in out"), SurroundingTensor("bias", "bias")), "linear.py, Conv"
)
# Its kernel runs the other way than a gradient of a convolution would have it: lax.conv_transpose does not turn it.
CONV_TRANSPOSE = Surrounding(
    "flax",
    "conv_transpose",
    "ConvTranspose",
    (SurroundingTensor("kernel", "weight", "-*space in out"), SurroundingTensor("bias", "bias")),
    "linear.py, ConvTranspose",
)
BATCH_NORM = Surrounding(
    "flax",
    "batch_norm",
    "BatchNorm",
    (*_SCALE_AND_SHIFT, SurroundingTensor("mean", "mean"), SurroundingTensor("var", "variance")),
    "normalization.py, BatchNorm",
    defaults={"epsilon": 1e-5},
)
LAYER_NORM = Surrounding("flax", "layer_norm", "LayerNorm", _SCALE_AND_SHIFT, "normalization.py, LayerNorm", defaults={"epsilon": 1e-6})
GROUP_NORM = Surrounding("flax", "group_norm", "GroupNorm", _SCALE_AND_SHIFT, "normalization.py, GroupNorm", defaults={"epsilon": 1e-6})
RMS_NORM = Surrounding("flax", "rms_norm", "RMSNorm", _SCALE_AND_SHIFT[:1], "normalization.py, RMSNorm", defaults={"epsilon": 1e-6})
PRELU = Surrounding("flax", "prelu", "PReLU", (SurroundingTensor("negative_slope", "slope", "*1", "1"),), "activation.py")
