"""Haiku: the parameters of LSTM, GRU and VanillaRNN, one step of one direction.

Source: haiku/_src/recurrent.py (0.0.17), each class's __call__. LSTM adds 1 to the forget gate at every call, not once after initialisation
as its docstring says; GRU mixes with 1 - z, and its docstring takes reset and update for each other; VanillaRNN is a ReLU.
"""

from rnnconvert.language.layout import Holds, Layout, System, Tensor
from rnnconvert.language.surroundings import Surrounding, SurroundingTensor

SYSTEM = System(
    "haiku",
    "Haiku",
    "0.0.1 to 0.0.17",
    "executed: haiku 0.0.17 (haiku-cpu)",
    ("LSTM adds 1 to the forget gate at every call; GRU has the reset gate before the product and mixes with 1 - z; VanillaRNN is a ReLU",),
    asks={"prefix": ""},
    channels="channels_last",
    called="jax",
)

_SOURCE = "haiku/_src/recurrent.py, class "

LSTM = Layout(
    "haiku.lstm",
    "lstm",
    "i g f o",
    (Tensor("linear/w", "input recurrent", "(part in) (gate hidden)"), Tensor("linear/b", "input_bias", "(gate hidden)")),
    _SOURCE + "LSTM",
    "haiku.LSTM",
    holds=Holds(biases=("input",), constants={"f": 1.0}, layers=False, directions=1),
)
GRU = Layout(
    "haiku.gru",
    "gru",
    "-z r n",
    (
        Tensor("w_i", "input", "in (gate hidden)"),
        Tensor("w_h", "recurrent", "in (gate hidden)"),
        Tensor("b", "input_bias", "(gate hidden)"),
    ),
    _SOURCE + "GRU",
    "haiku.GRU",
    reset_after=False,
    holds=Holds(biases=("input",), layers=False, directions=1),
)
RNN = Layout(
    "haiku.rnn",
    "rnn",
    "n",
    (
        Tensor("linear/w", "input", "in hidden"),
        Tensor("linear/b", "input_bias", "hidden"),
        Tensor("linear_1/w", "recurrent", "in hidden"),
        Tensor("linear_1/b", "recurrent_bias", "hidden"),
    ),
    _SOURCE + "VanillaRNN",
    "haiku.VanillaRNN",
    holds=Holds(biases=("both", "input"), activations=("relu",), layers=False, directions=1),
)

# Around the recurrent core. Source: haiku/_src/{basic,embed,conv,layer_norm,batch_norm}.py. The moments of a norm are in
# the state that stands beside the parameters.
_WEIGHT_AND_BIAS = (SurroundingTensor("w", "weight", "in out"), SurroundingTensor("b", "bias"))
_SPACE = (SurroundingTensor("w", "weight", "*space in out"), SurroundingTensor("b", "bias"))

DENSE = Surrounding("haiku", "dense", "Linear", _WEIGHT_AND_BIAS, "basic.py, Linear")
EMBEDDING = Surrounding("haiku", "embedding", "Embed", (SurroundingTensor("embeddings", "weight"),), "embed.py, Embed")
CONV = Surrounding("haiku", "conv", "Conv1D Conv2D Conv3D", _SPACE, "conv.py, ConvND")
LAYER_NORM = Surrounding(
    "haiku",
    "layer_norm",
    "LayerNorm",
    (SurroundingTensor("scale", "scale"), SurroundingTensor("offset", "shift")),
    "layer_norm.py, LayerNorm",
    defaults={"epsilon": 1e-5},
)
BATCH_NORM = Surrounding(
    "haiku",
    "batch_norm",
    "BatchNorm",
    (
        SurroundingTensor("scale", "scale", "*1 channel"),
        SurroundingTensor("offset", "shift", "*1 channel"),
        SurroundingTensor("~/mean_ema/average", "mean", "*1 channel"),
        SurroundingTensor("~/var_ema/average", "variance", "*1 channel"),
    ),
    "batch_norm.py, BatchNorm",
    defaults={"epsilon": 1e-5},
)
