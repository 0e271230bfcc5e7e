"""ONNX: the operators RNN, GRU and LSTM, one layer to a node.

Source: onnx/docs/Operators.md, sections RNN, GRU and LSTM; onnx/docs/Changelog.md for older opsets.
"""

from rnnconvert.language.layout import Holds, Layout, Option, System, Tensor
from rnnconvert.language.surroundings import Surrounding, SurroundingTensor

SYSTEM = System(
    "onnx",
    "ONNX",
    "operator sets 1 to 22; GRU's default is linear_before_reset=0, but exporters write 1",
    "executed: onnxruntime 1.31.1 on the CPU",
    (
        "onnxruntime's CUDA provider does not run peepholes, other functions or linear_before_reset=0; it leaves them to the CPU",
        "layers that the main graph computes in Loop, Scan or written-out steps are read once that is proved on random inputs",
    ),
    speaking=True,
    asks={"input_forget": "f (onnxruntime) by default", "initial_state": "the model has inputs for them"},
    options=(
        Option("opset", (), "operator set to write, 7 to 22; by default 22 for bfloat16 and 17 otherwise", "write", "whole"),
        Option("batch_first", ("true", "false"), "whether sequences are (batch, time, values) in the model's inputs and outputs", "write"),
        Option("sequence_lens", ("true", "false"), "whether the model has an input for the lengths of the sequences", "write"),
        Option(
            "states",
            ("input", "stream", "zeros"),
            "`input`: the initial states are inputs that every call gives; `stream`: likewise, and no layer reads from the end, so that a "
            "sequence may be given in pieces; `zeros`: no inputs, although the source has them; by default the states are inputs where "
            "they are the source's, and else constants of the model",
            "write",
        ),
        Option("external_data", ("true", "false"), "whether weights go into a file of their own; past 2 GiB they always do", "write"),
    ),
    channels="channels_first",
    family="deployment",
    called="onnxruntime tensorrt trt directml winml ml.net barracuda sentis opencv",
)

_TENSORS = (
    Tensor("W", "input", "direction (gate hidden) in"),
    Tensor("R", "recurrent", "direction (gate hidden) in"),
    Tensor("B", "input_bias recurrent_bias", "direction (part gate hidden)"),
)
# initial_h and initial_c are inputs of the node, (directions, batch, hidden): a learned one has batch 1.
_HIDDEN = Tensor("initial_h", "initial_hidden", "direction hidden")
_CELL = Tensor("initial_c", "initial_cell", "direction hidden")

_FUNCTIONS = (
    "sigmoid",
    "tanh",
    "relu",
    "linear",
    "affine",
    "leaky_relu",
    "thresholded_relu",
    "scaled_tanh",
    "hard_sigmoid",
    "elu",
    "softsign",
    "softplus",
)
_HOLDS = Holds(
    activations=_FUNCTIONS,
    gate_activations=_FUNCTIONS,
    output_activation="any",
    coupled=("f",),
    clips=("gates",),
    layers=False,
    reverse=True,
    merges=("concat", "sum", "mul", "ave", "none"),
    initial_states=True,
    readout=True,
    mixed_directions=True,
    processing_order=True,
)

LSTM = Layout(
    "onnx.lstm",
    "lstm",
    "i o f g",
    (*_TENSORS, Tensor("P", "peephole[i o f]", "direction (gate hidden)"), _HIDDEN, _CELL),
    "onnx/docs/Operators.md#LSTM",
    "LSTM",
    holds=_HOLDS,
)
GRU = Layout(
    "onnx.gru",
    "gru",
    "z r n",
    (*_TENSORS, _HIDDEN),
    "onnx/docs/Operators.md#GRU",
    "GRU(linear_before_reset=1)",
    reset_after=True,
    holds=_HOLDS,
)
GRU_RESET_BEFORE = Layout(
    "onnx.gru_reset_before",
    "gru",
    "z r n",
    (*_TENSORS, _HIDDEN),
    "onnx/docs/Operators.md#GRU",
    "GRU(linear_before_reset=0)",
    reset_after=False,
    holds=_HOLDS,
)
RNN = Layout("onnx.rnn", "rnn", "n", (*_TENSORS, _HIDDEN), "onnx/docs/Operators.md#RNN", "RNN", holds=_HOLDS)

# Around the recurrent core: the inputs of the operators that hold weights, as Operators.md calls them; MatMul's bias is
# what the Add behind it adds. A bias and a scale may have axes of length 1 before or behind, for broadcasting.
_BIAS = SurroundingTensor("B", "bias")
_SPREAD_BIAS = SurroundingTensor("C", "bias", "*1 out")
_CONV = {"stride": "strides", "padding": "pads", "dilation": "dilations", "groups": "group"}
_SCALE_AND_SHIFT = (SurroundingTensor("scale", "scale"), SurroundingTensor("B", "shift"))

GEMM = Surrounding("onnx", "dense", "Gemm", (SurroundingTensor("B", "weight", "in out"), _SPREAD_BIAS), "onnx/docs/Operators.md#Gemm")
GEMM_TRANSPOSED = Surrounding("onnx", "dense", "Gemm(transB=1)", (SurroundingTensor("B", "weight"), _SPREAD_BIAS), GEMM.source)
MATMUL = Surrounding("onnx", "dense", "MatMul", (SurroundingTensor("B", "weight", "in out"), _SPREAD_BIAS), "onnx/docs/Operators.md#MatMul")
GATHER = Surrounding("onnx", "embedding", "Gather", (SurroundingTensor("data", "weight"),), "onnx/docs/Operators.md#Gather")
CONV = Surrounding("onnx", "conv", "Conv", (SurroundingTensor("W", "weight"), _BIAS), "onnx/docs/Operators.md#Conv", _CONV)
CONV_TRANSPOSE = Surrounding(
    "onnx",
    "conv_transpose",
    "ConvTranspose",
    (SurroundingTensor("W", "weight"), _BIAS),
    "onnx/docs/Operators.md#ConvTranspose",
    {**_CONV, "output_padding": "output_padding"},
)
BATCH_NORM = Surrounding(
    "onnx",
    "batch_norm",
    "BatchNormalization",
    (*_SCALE_AND_SHIFT, SurroundingTensor("input_mean", "mean"), SurroundingTensor("input_var", "variance")),
    "onnx/docs/Operators.md#BatchNormalization",
    {"epsilon": "epsilon", "momentum": "momentum"},
)
LAYER_NORM = Surrounding(
    "onnx", "layer_norm", "LayerNormalization", _SCALE_AND_SHIFT, "onnx/docs/Operators.md#LayerNormalization", {"epsilon": "epsilon"}
)
RMS_NORM = Surrounding(
    "onnx", "rms_norm", "RMSNormalization", _SCALE_AND_SHIFT[:1], "onnx/docs/Operators.md#RMSNormalization", {"epsilon": "epsilon"}
)
INSTANCE_NORM = Surrounding(
    "onnx",
    "instance_norm",
    "InstanceNormalization",
    _SCALE_AND_SHIFT,
    "onnx/docs/Operators.md#InstanceNormalization",
    {"epsilon": "epsilon"},
)
# An instance norm is a group norm with a group for each channel.
INSTANCE_NORM_AS_GROUPS = Surrounding(
    "onnx", "group_norm", INSTANCE_NORM.classes, _SCALE_AND_SHIFT, INSTANCE_NORM.source, INSTANCE_NORM.facts
)
GROUP_NORM = Surrounding(
    "onnx",
    "group_norm",
    "GroupNormalization",
    (SurroundingTensor("scale", "scale", "channel *1"), SurroundingTensor("B", "shift", "channel *1")),
    "onnx/docs/Operators.md#GroupNormalization",
    {"epsilon": "epsilon", "groups": "num_groups"},
)
PRELU = Surrounding("onnx", "prelu", "PRelu", (SurroundingTensor("slope", "slope", "*1 channel"),), "onnx/docs/Operators.md#PRelu")
PRELU_OVER_SPACE = Surrounding("onnx", "prelu", "PRelu", (SurroundingTensor("slope", "slope", "channel *1"),), PRELU.source)
PRELU_OF_A_BATCH = Surrounding("onnx", "prelu", "PRelu", (SurroundingTensor("slope", "slope", "1 channel *1"),), PRELU.source)
