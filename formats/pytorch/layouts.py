"""PyTorch: torch.nn.RNN, GRU, LSTM and their *Cell modules.

Source: torch/nn/modules/rnn.py (2.13): RNNBase.__init__ for names and shapes, the docstrings of
RNN, GRU and LSTM for the gate order and the equations.
"""

from rnnconvert.language.layout import Holds, Layout, Option, System, Tensor
from rnnconvert.language.surroundings import Surrounding, SurroundingTensor

SYSTEM = System(
    "pytorch",
    "PyTorch",
    "every version since 0.4; projections since 1.8",
    "executed: torch 2.13.0 on the CPU (torch-cpu, torch-flat)",
    ("a GRU with the reset gate before the product, peepholes and clips are refused: torch has no such cells",),
    asks={"nonlinearity": "", "module": "", "prefix": ""},
    options=(
        Option(
            "reparametrised",
            ("weight_norm",),
            "a state dictionary with a parametrization of two arrays, original0 and original1: which one it is; weight norm is assumed",
        ),
    ),
    channels="channels_first",
    words={"epsilon": "eps", "padding_index": "padding_idx"},
    new_momentum=True,
    own_layer="rnnconvert.to_torch",
    called="torch libtorch tch candle tinygrad lightning pytorch_lightning transformers huggingface safetensors torchscript",
)

_STACK = (
    Tensor("weight_ih_l{layer}{direction}", "input", "(gate hidden) in"),
    Tensor("weight_hh_l{layer}{direction}", "recurrent", "(gate hidden) in"),
    Tensor("bias_ih_l{layer}{direction}", "input_bias", "(gate hidden)"),
    Tensor("bias_hh_l{layer}{direction}", "recurrent_bias", "(gate hidden)"),
)
_PROJECTION = Tensor("weight_hr_l{layer}{direction}", "projection", "hidden in")
_CELL = (
    Tensor("weight_ih", "input", "(gate hidden) in"),
    Tensor("weight_hh", "recurrent", "(gate hidden) in"),
    Tensor("bias_ih", "input_bias", "(gate hidden)"),
    Tensor("bias_hh", "recurrent_bias", "(gate hidden)"),
)
_SOURCE = "torch/nn/modules/rnn.py, class "
_RNN = Holds(activations=("tanh", "relu"))

LSTM = Layout(
    "pytorch.lstm", "lstm", "i f g o", (*_STACK, _PROJECTION), _SOURCE + "LSTM", "torch.nn.LSTM", holds=Holds(full_projection=False)
)
GRU = Layout("pytorch.gru", "gru", "r z n", _STACK, _SOURCE + "GRU", "torch.nn.GRU", reset_after=True)
RNN = Layout("pytorch.rnn", "rnn", "n", _STACK, _SOURCE + "RNN", "torch.nn.RNN", holds=_RNN)

LSTM_CELL = Layout(
    "pytorch.lstm_cell", "lstm", "i f g o", _CELL, _SOURCE + "LSTMCell", "torch.nn.LSTMCell", holds=Holds(layers=False, directions=1)
)
GRU_CELL = Layout(
    "pytorch.gru_cell",
    "gru",
    "r z n",
    _CELL,
    _SOURCE + "GRUCell",
    "torch.nn.GRUCell",
    reset_after=True,
    holds=Holds(layers=False, directions=1),
)
RNN_CELL = Layout(
    "pytorch.rnn_cell",
    "rnn",
    "n",
    _CELL,
    _SOURCE + "RNNCell",
    "torch.nn.RNNCell",
    holds=Holds(activations=("tanh", "relu"), layers=False, directions=1),
)

# Around the recurrent core. Source: torch/nn/modules/{linear,sparse,conv,batchnorm,normalization,instancenorm,activation}.py.
_WEIGHT_AND_BIAS = (SurroundingTensor("weight", "weight"), SurroundingTensor("bias", "bias"))
_SCALE_AND_SHIFT = (SurroundingTensor("weight", "scale"), SurroundingTensor("bias", "shift"))
_MOMENTS = (SurroundingTensor("running_mean", "mean"), SurroundingTensor("running_var", "variance"))
_CONV = {"stride": "stride", "padding": "padding", "dilation": "dilation", "groups": "groups", "padding_mode": "padding_mode"}
_NORM = {"epsilon": "eps", "momentum": "1 - momentum"}

LINEAR = Surrounding("pytorch", "dense", "Linear", _WEIGHT_AND_BIAS, "torch/nn/modules/linear.py, Linear")
EMBEDDING = Surrounding(
    "pytorch",
    "embedding",
    "Embedding EmbeddingBag",
    _WEIGHT_AND_BIAS[:1],
    "torch/nn/modules/sparse.py, Embedding",
    {"padding_index": "padding_idx", "max_norm": "max_norm", "bag": "mode"},
)
CONV = Surrounding("pytorch", "conv", "Conv1d Conv2d Conv3d", _WEIGHT_AND_BIAS, "torch/nn/modules/conv.py, Conv1d", _CONV)
CONV_LSTM = Surrounding(
    "pytorch",
    "conv_lstm",
    "WrittenConvLSTM",
    (SurroundingTensor("input_weight", "weight"), SurroundingTensor("recurrent_weight", "recurrent"), SurroundingTensor("bias", "bias")),
    "rnnconvert formats/pytorch/scaffold/convolving.py",
)
CONV_TRANSPOSE = Surrounding(
    "pytorch",
    "conv_transpose",
    "ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    _WEIGHT_AND_BIAS,
    "torch/nn/modules/conv.py, _ConvTransposeNd.__init__",
    {**_CONV, "output_padding": "output_padding"},
)
BATCH_NORM = Surrounding(
    "pytorch",
    "batch_norm",
    "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm",
    (*_SCALE_AND_SHIFT, *_MOMENTS),
    "torch/nn/modules/batchnorm.py, _NormBase.__init__",
    _NORM,
    defaults={"epsilon": 1e-5},
)
LAYER_NORM = Surrounding(
    "pytorch",
    "layer_norm",
    "LayerNorm",
    _SCALE_AND_SHIFT,
    "torch/nn/modules/normalization.py, LayerNorm",
    {"epsilon": "eps"},
    defaults={"epsilon": 1e-5},
)
RMS_NORM = Surrounding(
    "pytorch",
    "rms_norm",
    "RMSNorm",
    _SCALE_AND_SHIFT[:1],
    "torch/nn/modules/normalization.py, RMSNorm",
    {"epsilon": "eps"},
    defaults={"epsilon": 1.1920928955078125e-07},  # eps=None is that of float32
)
GROUP_NORM = Surrounding(
    "pytorch",
    "group_norm",
    "GroupNorm",
    _SCALE_AND_SHIFT,
    "torch/nn/modules/normalization.py, GroupNorm",
    {"epsilon": "eps", "groups": "num_groups"},
    defaults={"epsilon": 1e-5},
)
INSTANCE_NORM = Surrounding(
    "pytorch",
    "instance_norm",
    "InstanceNorm1d InstanceNorm2d InstanceNorm3d",
    (*_SCALE_AND_SHIFT, *_MOMENTS),
    "torch/nn/modules/instancenorm.py, _InstanceNorm",
    _NORM,
    defaults={"epsilon": 1e-5},
)
# Without moments an instance norm is a group norm with a group for each channel.
INSTANCE_NORM_AS_GROUPS = Surrounding(
    "pytorch",
    "group_norm",
    INSTANCE_NORM.classes,
    _SCALE_AND_SHIFT,
    INSTANCE_NORM.source,
    {"epsilon": "eps", "groups": "num_features"},
    defaults={"epsilon": 1e-5},
)
PRELU = Surrounding("pytorch", "prelu", "PReLU", (SurroundingTensor("weight", "slope"),), "torch/nn/modules/activation.py, PReLU")
