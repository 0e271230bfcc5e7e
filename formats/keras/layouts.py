"""Keras 3, Keras 2, tf.keras and Keras 1: SimpleRNN, GRU, LSTM and the CuDNN layers, one direction of one layer.

Sources: keras/src/layers/rnn/{simple_rnn,gru,lstm}.py (3.15), Keras 2.3.1 and 1.2.2 layers/recurrent.py,
and for the CuDNN layers tf_keras/src/saving/legacy/hdf5_format.py, _convert_rnn_weights.
"""

from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3, Activation
from rnnconvert.language.layout import Holds, Layout, Option, System, Tensor
from rnnconvert.language.surroundings import Surrounding, SurroundingTensor

SYSTEM = System(
    "keras",
    "Keras",
    "0.3 to 3.15, tf.keras and tf_keras; hard_sigmoid is another function since 3.0, the gates' default is sigmoid since "
    "2.3, GRU's reset_after is true by default in tf.keras 2 and Keras 3",
    "executed: keras 3.15.1 on TensorFlow 2.21, torch and JAX; corpus: files of Keras 1, 2 and tf.keras",
    ("Keras 3 has no projection: it is folded, and a Dense layer follows",),
    speaking=True,
    asks={
        **dict.fromkeys(("activation", "recurrent_activation", "merge_mode", "go_backwards"), "weights without a configuration"),
        "reset_after": "GRU weights without a configuration and without biases",
    },
    options=(
        Option(
            "hard_sigmoid",
            ("keras2", "keras3"),
            "which hard_sigmoid a file means: 0.2 x + 0.5, or x / 6 + 0.5; by default that of the version that wrote it",
        ),
        Option(
            "config",
            (),
            "weights without a configuration: the file that states their model, as model.to_json wrote it, or a whole model's file",
        ),
        Option("return_state", ("true", "false"), "whether the model in a .keras file gives the final states as well", "write"),
    ),
    functions={"Keras 2's hard_sigmoid": HARD_SIGMOID_KERAS_2, "Keras 3's hard_sigmoid": HARD_SIGMOID_KERAS_3},
    channels="channels_last",
    words={"stride": "strides", "dilation": "dilation_rate", "input_dropout": "dropout"},
    called="tensorflow tensorflow2 tf tf2 tf.keras tf_keras keras2 keras3 h5 hdf5 savedmodel saved_model",
)

# keras/src/activations/activations.py (3.15), with the constants that a name alone stands for.
_FUNCTIONS = (
    "tanh",
    "sigmoid",
    "relu",
    "linear",
    "softsign",
    "softplus",
    "exponential",
    "silu",
    "gelu",
    "selu",
    Activation("elu", 1.0),
    Activation("leaky_relu", 0.2),
    HARD_SIGMOID_KERAS_3,
)
_ANY = Holds(
    biases=("input", "none"),
    activations=_FUNCTIONS,
    gate_activations=_FUNCTIONS,
    layers=False,
    reverse=True,
    reverse_order="processing",
    merges=("concat", "sum", "mul", "ave", "none"),
    mixed_directions=True,
    processing_order=True,
    readout=True,
)
_TWO = Holds(**{**vars(_ANY), "biases": ("both", "none")})

_KERNELS = (Tensor("kernel", "input", "in (gate hidden)"), Tensor("recurrent_kernel", "recurrent", "in (gate hidden)"))
_BIAS = Tensor("bias", "input_bias", "(gate hidden)")
_SOURCE = "keras/src/layers/rnn/"

LSTM = Layout("keras.lstm", "lstm", "i f g o", (*_KERNELS, _BIAS), _SOURCE + "lstm.py, LSTMCell.call", "keras.layers.LSTM", holds=_ANY)
GRU = Layout(
    "keras.gru",
    "gru",
    "z r n",
    (*_KERNELS, Tensor("bias", "input_bias recurrent_bias", "part (gate hidden)")),
    _SOURCE + "gru.py, GRUCell.call",
    "keras.layers.GRU(reset_after=True)",
    reset_after=True,
    holds=_TWO,
)
GRU_RESET_BEFORE = Layout(
    "keras.gru_reset_before",
    "gru",
    "z r n",
    (*_KERNELS, _BIAS),
    _SOURCE + "gru.py, GRUCell.call",
    "keras.layers.GRU(reset_after=False)",
    reset_after=False,
    holds=_ANY,
)
RNN = Layout(
    "keras.rnn", "rnn", "n", (*_KERNELS, _BIAS), _SOURCE + "simple_rnn.py, SimpleRNNCell.call", "keras.layers.SimpleRNN", holds=_ANY
)

# tf.keras.experimental.PeepholeLSTMCell, of TensorFlow 2.0 to 2.8.
_PEEPHOLES = tuple(
    Tensor(f"{name}_gate_peephole_weights", f"peephole[{gate}]", "(gate hidden)")
    for name, gate in (("input", "i"), ("forget", "f"), ("output", "o"))
)
PEEPHOLE_LSTM = Layout(
    "keras.peephole_lstm",
    "lstm",
    "i f g o",
    (*_KERNELS, _BIAS, *_PEEPHOLES),
    "tensorflow 2.6 keras/layers/recurrent.py, PeepholeLSTMCell",
    "PeepholeLSTMCell",
    holds=_ANY,
    writable=False,
)

# Keras 2's GPU-only layers. Each gate's kernel block is the memory of cuDNN's (hidden, in) matrix, read as
# (in, hidden): not a transpose. The recurrent blocks have the rows of the matrix as their rows.
_CUDNN = (
    Tensor("kernel", "input", "in (gate hidden)", reinterpreted=True),
    Tensor("recurrent_kernel", "recurrent", "hidden (gate in)"),
    Tensor("bias", "input_bias recurrent_bias", "(part gate hidden)"),
)
_CUDNN_HOLDS = Holds(  # these layers cannot be made without biases
    biases=("both",), layers=False, directions=2, merges=_ANY.merges, mixed_directions=True, processing_order=True
)
CUDNN_LSTM = Layout(
    "keras.cudnn_lstm",
    "lstm",
    "i f g o",
    _CUDNN,
    "tf_keras hdf5_format.py, _convert_rnn_weights",
    "keras.layers.CuDNNLSTM",
    holds=_CUDNN_HOLDS,
    writable=False,
)
CUDNN_GRU = Layout(
    "keras.cudnn_gru",
    "gru",
    "z r n",
    _CUDNN,
    "tf_keras hdf5_format.py, _convert_rnn_weights",
    "keras.layers.CuDNNGRU",
    reset_after=True,
    holds=_CUDNN_HOLDS,
    writable=False,
)

# Keras 1, one array for each gate; with consume_less="gpu" the arrays are those of Keras 2 under the names W, U, b.
_PER_GATE = (
    Tensor("W_{gate}", "input", "in hidden"),
    Tensor("U_{gate}", "recurrent", "in hidden"),
    Tensor("b_{gate}", "input_bias", "hidden"),
)
_WHOLE_ARRAYS = (
    Tensor("W", "input", "in (gate hidden)"),
    Tensor("U", "recurrent", "in (gate hidden)"),
    Tensor("b", "input_bias", "(gate hidden)"),
)
_KERAS_1 = "keras 1.2.2 keras/layers/recurrent.py, class "
KERAS_1_LSTM = Layout(
    "keras.keras_1_lstm", "lstm", "i g f o", _PER_GATE, _KERAS_1 + "LSTM", "Keras 1 LSTM", letters="i c f o", holds=_ANY, writable=False
)
KERAS_1_LSTM_WHOLE = Layout(
    "keras.keras_1_lstm_gpu",
    "lstm",
    "i f g o",
    _WHOLE_ARRAYS,
    _KERAS_1 + "LSTM",
    "Keras 1 LSTM(consume_less='gpu')",
    holds=_ANY,
    writable=False,
)
KERAS_1_GRU = Layout(
    "keras.keras_1_gru",
    "gru",
    "z r n",
    _PER_GATE,
    _KERAS_1 + "GRU",
    "Keras 1 GRU",
    reset_after=False,
    letters="z r h",
    holds=_ANY,
    writable=False,
)
KERAS_1_GRU_WHOLE = Layout(
    "keras.keras_1_gru_gpu",
    "gru",
    "z r n",
    _WHOLE_ARRAYS,
    _KERAS_1 + "GRU",
    "Keras 1 GRU(consume_less='gpu')",
    reset_after=False,
    holds=_ANY,
    writable=False,
)
KERAS_1_RNN = Layout(
    "keras.keras_1_rnn", "rnn", "n", _WHOLE_ARRAYS, _KERAS_1 + "SimpleRNN", "Keras 1 SimpleRNN", holds=_ANY, writable=False
)

# Around the recurrent core. Sources: keras/src/layers/{core,convolutional,normalization,activations}/*.py (3.15).
_BIAS_BEHIND = SurroundingTensor("bias", "bias")
_ACTIVATED = {"activation": "activation"}
_CHANNEL_AXIS, _AXIS = {"channel_axis": "axis"}, {"axis": "axis"}
_CONV = {
    **_ACTIVATED,
    "stride": "strides",
    "padding": "padding",
    "dilation": "dilation_rate",
    "groups": "groups",
    "data_format": "data_format",
}
_SCALE_AND_SHIFT = (SurroundingTensor("gamma", "scale"), SurroundingTensor("beta", "shift"))

DENSE = Surrounding(
    "keras", "dense", "Dense", (SurroundingTensor("kernel", "weight", "in out"), _BIAS_BEHIND), "core/dense.py, Dense.build", _ACTIVATED
)
# The projections of a MultiHeadAttention are EinsumDense, told apart by their equations: formats/keras/heads.py.
TO_HEADS = Surrounding(
    "keras",
    "dense",
    "EinsumDenseToHeads",
    (
        SurroundingTensor("kernel", "weight", "in head size", "(head size) in"),
        SurroundingTensor("bias", "bias", "head size", "(head size)"),
    ),
    "attention/multi_head_attention.py, MultiHeadAttention.build",
    _ACTIVATED,
)
OF_HEADS = Surrounding(
    "keras",
    "dense",
    "EinsumDenseOfHeads",
    (SurroundingTensor("kernel", "weight", "head size out", "out (head size)"), _BIAS_BEHIND),
    "attention/multi_head_attention.py, MultiHeadAttention._make_output_dense",
    _ACTIVATED,
)
EMBEDDING = Surrounding(
    "keras",
    "embedding",
    "Embedding",
    (SurroundingTensor("embeddings", "weight"),),
    "core/embedding.py, Embedding.build",
    {"mask_zero": "mask_zero"},
)
CONV = Surrounding(
    "keras",
    "conv",
    "Conv1D Conv2D Conv3D",
    (SurroundingTensor("kernel", "weight", "*space in out"), _BIAS_BEHIND),
    "convolutional/base_conv.py, BaseConv.build",
    _CONV,
)
CONV_TRANSPOSE = Surrounding(
    "keras",
    "conv_transpose",
    "Conv1DTranspose Conv2DTranspose Conv3DTranspose",
    (SurroundingTensor("kernel", "weight", "*space out in"), _BIAS_BEHIND),
    "convolutional/base_conv_transpose.py, BaseConvTranspose.build",
    {**_CONV, "output_padding": "output_padding"},
)
DEPTHWISE_CONV = Surrounding(
    "keras",
    "conv",
    "DepthwiseConv1D DepthwiseConv2D",
    (SurroundingTensor("kernel", "weight", "*space channel copy", "(channel copy) 1 *space"), _BIAS_BEHIND),
    "convolutional/base_depthwise_conv.py, BaseDepthwiseConv.build",
    {word: attribute for word, attribute in _CONV.items() if word != "groups"},
)
SEPARABLE_FIRST = Surrounding(
    "keras",
    "conv",
    "SeparableConv1D SeparableConv2D",
    (SurroundingTensor("depthwise_kernel", "weight", "*space channel copy", "(channel copy) 1 *space"),),
    "convolutional/base_separable_conv.py, BaseSeparableConv.call",
    {"stride": "strides", "padding": "padding", "dilation": "dilation_rate", "data_format": "data_format"},
    "depthwise",
)
SEPARABLE_SECOND = Surrounding(
    "keras",
    "conv",
    "SeparableConv1D SeparableConv2D",
    (SurroundingTensor("pointwise_kernel", "weight", "*space in out"), _BIAS_BEHIND),
    "convolutional/base_separable_conv.py, BaseSeparableConv.call",
    _ACTIVATED,
    "pointwise",
)
CONV_LSTM = Surrounding(
    "keras",
    "conv_lstm",
    "ConvLSTM1D ConvLSTM2D ConvLSTM3D ConvLSTMCell",
    (
        SurroundingTensor("kernel", "weight", "*space in out"),
        SurroundingTensor("recurrent_kernel", "recurrent", "*space hidden out"),
        _BIAS_BEHIND,
    ),
    "rnn/conv_lstm.py, ConvLSTMCell.build",
    {word: attribute for word, attribute in _CONV.items() if word != "groups"} | {"gate_activation": "recurrent_activation"},
)
_NORMED_SOURCE = "tensorflow_addons 0.23 rnn/layer_norm_lstm_cell.py, LayerNormLSTMCell.build"
NORMED_INPUT, NORMED_RECURRENT = (
    Surrounding("keras", "dense", "Addons>LayerNormLSTMCell", (SurroundingTensor(word, "weight", "in out"),), _NORMED_SOURCE, path=path)
    for word, path in (("kernel", "input"), ("recurrent_kernel", "recurrent"))
)
BATCH_NORM = Surrounding(
    "keras",
    "batch_norm",
    "BatchNormalization",
    (*_SCALE_AND_SHIFT, SurroundingTensor("moving_mean", "mean"), SurroundingTensor("moving_variance", "variance")),
    "normalization/batch_normalization.py, BatchNormalization.build",
    {"epsilon": "epsilon", "momentum": "momentum", "mode": "mode", **_CHANNEL_AXIS},
    defaults={"epsilon": 1e-3},
)
LAYER_NORM = Surrounding(
    "keras",
    "layer_norm",
    "LayerNormalization",
    _SCALE_AND_SHIFT,
    "normalization/layer_normalization.py, LayerNormalization.build",
    {"epsilon": "epsilon", "rms_scaling": "rms_scaling", **_AXIS},
    defaults={"epsilon": 1e-3},
)
RMS_NORM = Surrounding(
    "keras",
    "rms_norm",
    "RMSNormalization",
    (SurroundingTensor("scale", "scale"),),
    "normalization/rms_normalization.py, RMSNormalization.build",
    {"epsilon": "epsilon", **_AXIS},
    defaults={"epsilon": 1e-6},
)
GROUP_NORM = Surrounding(
    "keras",
    "group_norm",
    "GroupNormalization",
    _SCALE_AND_SHIFT,
    "normalization/group_normalization.py, GroupNormalization.build",
    {"epsilon": "epsilon", "groups": "groups", **_CHANNEL_AXIS},
    defaults={"epsilon": 1e-3},
)
PRELU = Surrounding("keras", "prelu", "PReLU", (SurroundingTensor("alpha", "slope", "*1 channel"),), "activations/prelu.py, PReLU.build")
KERAS_2_DEPTHWISE_CONV = Surrounding(
    "keras",
    "conv",
    "DepthwiseConv2D",
    (SurroundingTensor("depthwise_kernel", "weight", "*space channel copy", "(channel copy) 1 *space"), _BIAS_BEHIND),
    "keras 2.3.1 keras/layers/convolutional.py, DepthwiseConv2D.build",
    DEPTHWISE_CONV.facts,
)
_KERAS_1_CORE = "keras 1.2.2 keras/layers/core.py, class "
KERAS_1_DENSE = Surrounding(
    "keras",
    "dense",
    "Dense TimeDistributedDense",
    (SurroundingTensor("W", "weight", "in out"), SurroundingTensor("b", "bias")),
    _KERAS_1_CORE + "Dense",
    _ACTIVATED,
)
KERAS_1_EMBEDDING = Surrounding(
    "keras", "embedding", "Embedding", (SurroundingTensor("W", "weight"),), "keras 1.2.2 keras/layers/embeddings.py", EMBEDDING.facts
)
# Its running_std is the variance: the layer takes its square root. Source: keras 1.2.2 layers/normalization.py, call.
KERAS_1_BATCH_NORM = Surrounding(
    "keras",
    "batch_norm",
    "BatchNormalization",
    (*_SCALE_AND_SHIFT, SurroundingTensor("running_mean", "mean"), SurroundingTensor("running_std", "variance")),
    "keras 1.2.2 keras/layers/normalization.py, BatchNormalization",
    BATCH_NORM.facts,
    defaults={"epsilon": 1e-3},
)
# Two dense layers in one: y = t * act(H x) + (1 - t) * x with the gate t = sigmoid(T x).
KERAS_1_HIGHWAY = Surrounding(
    "keras",
    "dense",
    "Highway",
    (SurroundingTensor("W", "weight", "in out"), SurroundingTensor("b", "bias")),
    _KERAS_1_CORE + "Highway",
    _ACTIVATED,
    "transform",
)
KERAS_1_HIGHWAY_GATE = Surrounding(
    "keras",
    "dense",
    "Highway",
    (SurroundingTensor("W_carry", "weight", "in out"), SurroundingTensor("b_carry", "bias")),
    _KERAS_1_CORE + "Highway",
    path="gate",
)
