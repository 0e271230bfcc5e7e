"""Flax nnx: the parameters of LSTMCell, OptimizedLSTMCell, GRUCell and SimpleCell, one step of one direction.

Source: flax/nnx/nn/recurrent.py (0.12.8), each class's __init__ and __call__. GRUCell's hidden Linear has no bias,
though its docstring's equation has b_hn; OptimizedLSTMCell has other arrays than LSTMCell, though its docstring calls
them compatible. A `residual` SimpleCell is another cell, and has the same parameters.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor
from rnnconvert.language.surroundings import Surrounding, SurroundingTensor

SYSTEM = System(
    "nnx",
    "Flax nnx",
    "since nnx had cells; its GRU never had a recurrent bias, though its docstring shows one",
    "executed: flax 0.12.8 (nnx-cpu)",
    ("a GRU whose candidate has a recurrent bias is refused",),
    asks={"nonlinearity": "", "activation": "", "recurrent_activation": "", "prefix": "", "module": "optimized for OptimizedLSTMCell"},
    channels="channels_last",
    called="jax",
)

_MATRICES = (Tensor("dense_i/kernel", "input", "in (gate hidden)"), Tensor("dense_h/kernel", "recurrent", "in (gate hidden)"))
_INPUT_BIAS = Tensor("dense_i/bias", "input_bias", "(gate hidden)")
_FUNCTIONS = ("activation", "recurrent_activation")  # activation_fn and gate_fn
_SOURCE = "flax/nnx/nn/recurrent.py, class "
_HOLDS = Holds(biases=("input",), asked_functions=_FUNCTIONS, layers=False, directions=1)

LSTM = Layout(
    "nnx.lstm",
    "lstm",
    "i f g o",
    (
        Tensor("i{gate}/kernel", "input", "in hidden", letters="i f_ g o"),
        Tensor("h{gate}/kernel", "recurrent", "in hidden"),
        Tensor("h{gate}/bias", "input_bias", "hidden"),
    ),
    _SOURCE + "LSTMCell",
    "flax.nnx.LSTMCell",
    holds=_HOLDS,
)
OPTIMIZED_LSTM = Layout(
    "nnx.optimized_lstm",
    "lstm",
    "i f g o",
    (*_MATRICES, Tensor("dense_h/bias", "input_bias", "(gate hidden)")),
    _SOURCE + "OptimizedLSTMCell",
    "flax.nnx.OptimizedLSTMCell",
    holds=_HOLDS,
)
GRU = Layout("nnx.gru", "gru", "r z n", (*_MATRICES, _INPUT_BIAS), _SOURCE + "GRUCell", "flax.nnx.GRUCell", reset_after=True, holds=_HOLDS)
RNN = Layout(
    "nnx.rnn",
    "rnn",
    "n",
    (*_MATRICES, _INPUT_BIAS),
    _SOURCE + "SimpleCell",
    "flax.nnx.SimpleCell",
    holds=Holds(biases=("input",), activations=("tanh", "relu"), layers=False, directions=1),
)

# Around the recurrent core. Source: flax/nnx/nn/{linear,normalization,activations}.py.
_KERNEL_AND_BIAS = (SurroundingTensor("kernel", "weight", "in out"), SurroundingTensor("bias", "bias"))
_SCALE_AND_SHIFT = (SurroundingTensor("scale", "scale"), SurroundingTensor("bias", "shift"))
_CONV = {"stride": "strides", "padding": "padding", "dilation": "kernel_dilation", "groups": "feature_group_count"}
_EPSILON = {"epsilon": "epsilon"}

DENSE = Surrounding("nnx", "dense", "Linear", _KERNEL_AND_BIAS, "linear.py, Linear")
EMBEDDING = Surrounding("nnx", "embedding", "Embed", (SurroundingTensor("embedding", "weight"),), "linear.py, Embed")
CONV = Surrounding(
    "nnx",
    "conv",
    "Conv",
    (SurroundingTensor("kernel", "weight", "*space in out"), SurroundingTensor("bias", "bias")),
    "linear.py, Conv",
    _CONV,
)
# Its kernel runs the other way than a gradient of a convolution would have it: lax.conv_transpose does not turn it.
CONV_LSTM = Surrounding(
    "nnx",
    "conv_lstm",
    "WrittenConvLSTM",
    (
        SurroundingTensor("input_kernel", "weight", "*space in out"),
        SurroundingTensor("recurrent_kernel", "recurrent", "*space hidden out"),
        SurroundingTensor("bias", "bias"),
    ),
    "rnnconvert formats/jax/scaffold/convolving.py",
)
CONV_TRANSPOSE = Surrounding(
    "nnx",
    "conv_transpose",
    "ConvTranspose",
    (SurroundingTensor("kernel", "weight", "-*space in out"), SurroundingTensor("bias", "bias")),
    "linear.py, ConvTranspose",
    {word: attribute for word, attribute in _CONV.items() if word != "groups"},
)
BATCH_NORM = Surrounding(
    "nnx",
    "batch_norm",
    "BatchNorm",
    (*_SCALE_AND_SHIFT, SurroundingTensor("mean", "mean"), SurroundingTensor("var", "variance")),
    "normalization.py, BatchNorm",
    {**_EPSILON, "momentum": "momentum"},
    defaults={"epsilon": 1e-5},
)
LAYER_NORM = Surrounding(
    "nnx", "layer_norm", "LayerNorm", _SCALE_AND_SHIFT, "normalization.py, LayerNorm", _EPSILON, defaults={"epsilon": 1e-6}
)
GROUP_NORM = Surrounding(
    "nnx",
    "group_norm",
    "GroupNorm",
    _SCALE_AND_SHIFT,
    "normalization.py, GroupNorm",
    {**_EPSILON, "groups": "num_groups"},
    defaults={"epsilon": 1e-6},
)
RMS_NORM = Surrounding(
    "nnx", "rms_norm", "RMSNorm", _SCALE_AND_SHIFT[:1], "normalization.py, RMSNorm", _EPSILON, defaults={"epsilon": 1e-6}
)
PRELU = Surrounding("nnx", "prelu", "PReLU", (SurroundingTensor("negative_slope", "slope", "*1", "1"),), "activation.py")
