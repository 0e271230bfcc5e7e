"""The successors of the layers of Keras 1, Keras 2 and tf.keras in Keras 3, as data: each class, each key of its configuration,
each of its weights.

A key is `old`, `old>new` or `old>new:kind`, with a kind of keys.TYPES or of the Translator; `old!` changes no number and is left out;
`old~` concerns only training and is left out with a note; `old=a|b` (JSON) may have only these values, which state nothing. A weight is
its names in every era, joined by "|", with "-" before weights that are not trained and "?key" if a false key leaves it out.

Sources: keras 1.2.2 and 2.3.1 keras/layers, tf_keras 2.21 tf_keras/src/layers, keras 3.15 keras/src/layers: each get_config and build.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rnnconvert.formats.keras.model.entries import NORMED


@dataclass(frozen=True)
class ClassRule:
    """The successor of a class of layers.

    new      its class in Keras 3
    keys     the rules for its configuration
    weights  its variables, in the order of both eras
    scaled   its weights that a function on its outputs sees, if any function is
    several  whether it takes a list of inputs
    fixed    keys of Keras 3 that are always the same
    turned   weights that a true convolution, as Theano's, has reversed
    sizes    keys that its weights in Keras 3 show, each as key:weight.axis, or key:weight.space for all but the last two axes
    """

    new: str
    keys: str = ""
    weights: str = ""
    scaled: str = ""
    several: bool = False
    fixed: Mapping[str, object] | None = None
    turned: str = ""
    sizes: str = ""


COMMON = (
    "name! trainable:flag dtype:dtype activity_regularizer:regularizer dynamic=false autocast! "
    "batch_input_shape! batch_shape! input_shape! input_dtype! input_dim! input_length! weights=null shared_object_id!"
)
"""The keys that every layer may have. Shapes of inputs move to the InputLayer."""

_BIAS = (
    "use_bias:flag bias>use_bias:flag bias_initializer:initializer bias_regularizer:regularizer b_regularizer>bias_regularizer:regularizer "
    "bias_constraint:constraint b_constraint>bias_constraint:constraint"
)


def _kernel(name: str = "kernel") -> str:
    return (
        f"{name}_initializer:initializer {name}_regularizer:regularizer {name}_constraint:constraint "
        f"init>{name}_initializer:initializer W_regularizer>{name}_regularizer:regularizer "
        f"W_constraint>{name}_constraint:constraint"
    )


_SPACE = "data_format dim_ordering>data_format:ordering"
_PADDED = "padding:padding border_mode>padding:padding"
_CONV = (
    f"filters:size nb_filter>filters:size kernel_size:sizes strides:sizes subsample>strides:sizes {_PADDED} {_SPACE} "
    "dilation_rate:sizes atrous_rate>dilation_rate:sizes "
    f"groups:size activation:activation {_BIAS} "
)
_LAST = {"data_format": "channels_last"}
_RNN = (
    f"units:size output_dim>units:size activation:function {_BIAS} {_kernel()} recurrent_initializer:initializer "
    "recurrent_regularizer:regularizer recurrent_constraint:constraint inner_init>recurrent_initializer:initializer "
    "U_regularizer>recurrent_regularizer:regularizer dropout:rate dropout_W>dropout:rate recurrent_dropout:rate "
    "dropout_U>recurrent_dropout:rate "
    "implementation! consume_less! return_sequences:flag return_state:flag go_backwards:flag stateful:flag unroll:flag time_major=false "
    "zero_output_for_mask:flag num_constants=null seed use_cudnn!"
)
_GATED = f"{_RNN} recurrent_activation:function inner_activation>recurrent_activation:function"
_CELL = "kernel|W recurrent_kernel|U bias|b?use_bias"
_FORGET = "unit_forget_bias forget_bias_init>unit_forget_bias:forget"
_GRU = f"{_GATED} reset_after:flag"
_CONVOLVING = (
    f"filters:size kernel_size:sizes strides:sizes padding:padding data_format dilation_rate:sizes "
    f"{_GATED.removeprefix('units:size output_dim>units:size ')} unit_forget_bias"
)
_POOL = f"pool_size pool_length>pool_size strides:sizes stride>strides {_PADDED} {_SPACE}"
_DROP = "rate:rate p>rate:rate seed rng_type!"


def _separable(space: str) -> ClassRule:
    words = "depthwise_initializer:initializer depthwise_regularizer:regularizer depthwise_constraint:constraint "
    words += words.replace("depthwise", "pointwise")
    return ClassRule(
        f"SeparableConv{space}",
        _CONV.replace("groups:size", "groups=1") + words + "depth_multiplier:size "
        "kernel_initializer! kernel_regularizer=null kernel_constraint=null",
        "depthwise_kernel pointwise_kernel bias|b?use_bias",
        "pointwise_kernel bias",
        fixed=_LAST,
        sizes="filters:pointwise_kernel.-1 filters:bias.0 depth_multiplier:depthwise_kernel.-1 kernel_size:depthwise_kernel.space",
    )


def _conv(new: str, more: str = "", one_group: bool = False) -> ClassRule:
    keys = _CONV.replace("groups:size", "groups=1") if one_group else _CONV
    return ClassRule(
        new,
        f"{keys}{_kernel()} {more}",
        "kernel|W bias|b?use_bias",
        "kernel bias",
        fixed=_LAST,
        turned="kernel",
        sizes=f"filters:kernel.{-2 if 'Transpose' in new else -1} filters:bias.0 kernel_size:kernel.space",
    )


_CONV1D = _conv("Conv1D", "filter_length>kernel_size:sizes subsample_length>strides:sizes")
_CONV2D = _conv("Conv2D", "nb_row>kernel_size.0:size nb_col>kernel_size.1:size")
_DENSE = ClassRule(
    "Dense",
    f"units:size output_dim>units:size activation:activation {_BIAS} {_kernel()}",
    "kernel|W bias|b?use_bias",
    "kernel bias",
    sizes="units:kernel.-1 units:bias.0",
)
_BATCH_NORM = ClassRule(
    "BatchNormalization",
    "axis:axis momentum:number epsilon:number center:flag scale:flag beta_initializer:initializer gamma_initializer:initializer "
    "beta_init>beta_initializer:initializer gamma_init>gamma_initializer:initializer moving_mean_initializer:initializer "
    "moving_variance_initializer:initializer beta_regularizer:regularizer gamma_regularizer:regularizer beta_constraint:constraint "
    "gamma_constraint:constraint mode=0|2 fused! renorm=false renorm_clipping! renorm_momentum! virtual_batch_size=null "
    "adjustment=null synchronized=false",
    "gamma?scale beta?center -moving_mean|running_mean -moving_variance|running_std",
)
_DEPTHWISE = ClassRule(
    "DepthwiseConv2D",
    _CONV.replace("groups:size", "groups=1").replace("filters:size nb_filter>filters:size", "")
    + "depth_multiplier:size depthwise_initializer:initializer depthwise_regularizer:regularizer depthwise_constraint:constraint "
    "kernel_initializer! kernel_regularizer=null kernel_constraint=null",
    "depthwise_kernel bias?use_bias",
    "depthwise_kernel bias",
    fixed=_LAST,
    sizes="depth_multiplier:depthwise_kernel.-1 kernel_size:depthwise_kernel.space",
)
_EMBEDDINGS = _kernel("embeddings").replace("input_dim!", "")

LAYERS: dict[str, ClassRule] = {
    "Dense": _DENSE,
    "TimeDistributedDense": _DENSE,
    "Embedding": ClassRule("Embedding", f"input_dim:size output_dim:size {_EMBEDDINGS} mask_zero:flag dropout~ sparse=false",
                      "embeddings|W",
                      sizes="input_dim:embeddings.0 output_dim:embeddings.1"),
    "LSTM": ClassRule("LSTM", f"{_GATED} {_FORGET}", _CELL),
    "GRU": ClassRule("GRU", _GRU, _CELL),
    "SimpleRNN": ClassRule("SimpleRNN", _RNN, _CELL),
    "CuDNNLSTM": ClassRule(
        "LSTM", f"{_RNN} {_FORGET}", _CELL,
        fixed={"activation": "tanh", "recurrent_activation": "sigmoid", "use_bias": True},
    ),
    "CuDNNGRU": ClassRule(
        "GRU", _RNN, _CELL,
        fixed={"activation": "tanh", "recurrent_activation": "sigmoid", "use_bias": True, "reset_after": True},
    ),
    "LSTMCell": ClassRule("LSTMCell", f"{_GATED} {_FORGET}", _CELL),
    "GRUCell": ClassRule("GRUCell", _GRU, _CELL),
    "SimpleRNNCell": ClassRule("SimpleRNNCell", _RNN, _CELL),
    NORMED: ClassRule(
        "LayerNormLSTMCell",
        f"{_GATED} {_FORGET} norm_gamma_initializer:initializer norm_beta_initializer:initializer norm_epsilon:number", _CELL,
        sizes="units:recurrent_kernel.0",
    ),
    "StackedRNNCells": ClassRule("StackedRNNCells", "cells! reverse_state_order=false"),
    "RNN": ClassRule("RNN", "cell! return_sequences:flag return_state:flag go_backwards:flag stateful:flag unroll:flag time_major=false "
                "zero_output_for_mask:flag "
                "num_constants=null"),
    "Bidirectional": ClassRule("Bidirectional", "layer! backward_layer! merge_mode:merge"),
    "TimeDistributed": ClassRule("TimeDistributed", "layer!"),
    "Conv1D": _CONV1D, "Convolution1D": _CONV1D, "AtrousConvolution1D": _CONV1D,
    "Conv2D": _CONV2D, "Convolution2D": _CONV2D, "AtrousConvolution2D": _CONV2D,
    "Conv3D": _conv("Conv3D", "kernel_dim1>kernel_size.0:size kernel_dim2>kernel_size.1:size kernel_dim3>kernel_size.2:size"),
    **{f"ConvLSTM{n}D": ClassRule(f"ConvLSTM{n}D", _CONVOLVING, "kernel recurrent_kernel bias?use_bias", fixed=_LAST,
                                  sizes="filters:recurrent_kernel.-2 kernel_size:kernel.space kernel_size:recurrent_kernel.space")
       for n in (1, 2, 3)},
    **{f"Conv{n}DTranspose": _conv(f"Conv{n}DTranspose", "output_padding", one_group=True) for n in (1, 2, 3)},
    "SeparableConv1D": _separable("1D"), "SeparableConv2D": _separable("2D"),
    **{f"DepthwiseConv{n}D": replace(_DEPTHWISE, new=f"DepthwiseConv{n}D") for n in (1, 2)},
    "BatchNormalization": _BATCH_NORM, "BatchNormalizationV1": _BATCH_NORM, "BatchNormalizationV2": _BATCH_NORM,
    "LayerNormalization": ClassRule(
        "LayerNormalization", "axis epsilon:number center:flag scale:flag beta_initializer:initializer gamma_initializer:initializer "
        "beta_regularizer:regularizer gamma_regularizer:regularizer beta_constraint:constraint gamma_constraint:constraint",
        "gamma?scale beta?center",
    ),
    "GroupNormalization": ClassRule(
        "GroupNormalization", "groups axis:axis epsilon:number center:flag scale:flag beta_initializer:initializer "
        "gamma_initializer:initializer beta_regularizer:regularizer gamma_regularizer:regularizer beta_constraint:constraint "
        "gamma_constraint:constraint", "gamma?scale beta?center",
    ),
    "UnitNormalization": ClassRule("UnitNormalization", "axis"),
    "Activation": ClassRule("Activation", "activation:activation"),
    "ReLU": ClassRule("ReLU", "max_value:number negative_slope:number threshold:number"),
    "LeakyReLU": ClassRule("LeakyReLU", "alpha>negative_slope:number negative_slope:number"),
    "ThresholdedReLU": ClassRule("ReLU", "theta>threshold:number"),
    "ELU": ClassRule("ELU", "alpha:number"),
    "Softmax": ClassRule("Softmax", "axis"),
    "PReLU": ClassRule("PReLU", "alpha_initializer:initializer alpha_regularizer:regularizer alpha_constraint:constraint "
                  "shared_axes init>alpha_initializer:initializer", "alpha|alphas"),
    "Dropout": ClassRule("Dropout", f"{_DROP} noise_shape"),
    "SpatialDropout1D": ClassRule("SpatialDropout1D", f"{_DROP} trainable! noise_shape=null"),
    "SpatialDropout2D": ClassRule("SpatialDropout2D", f"{_DROP} trainable! noise_shape=null {_SPACE}", fixed=_LAST),
    "SpatialDropout3D": ClassRule("SpatialDropout3D", f"{_DROP} trainable! noise_shape=null {_SPACE}", fixed=_LAST),
    "GaussianNoise": ClassRule("GaussianNoise", "stddev:number sigma>stddev:number seed rng_type!"),
    "GaussianDropout": ClassRule("GaussianDropout", _DROP),
    "AlphaDropout": ClassRule("AlphaDropout", f"{_DROP} noise_shape"),
    "ActivityRegularization": ClassRule("ActivityRegularization", "l1:number l2:number"),
    "Masking": ClassRule("Masking", "mask_value:number"),
    "Flatten": ClassRule("Flatten", "data_format", fixed=_LAST),
    "Reshape": ClassRule("Reshape", "target_shape"),
    "Permute": ClassRule("Permute", "dims"),
    "RepeatVector": ClassRule("RepeatVector", "n:size"),
    "Rescaling": ClassRule("Rescaling", "scale offset"),
    **{f"{kind}Pooling{n}D": ClassRule(f"{kind}Pooling{n}D", _POOL, fixed=_LAST)
       for kind in ("Max", "Average") for n in (1, 2, 3)},
    **{f"GlobalMaxPooling{n}D": ClassRule(f"GlobalMaxPooling{n}D", f"{_SPACE} keepdims:flag", fixed=_LAST)
       for n in (1, 2, 3)},
    **{f"GlobalAveragePooling{n}D": ClassRule(f"GlobalAveragePooling{n}D", f"{_SPACE} keepdims:flag", fixed=_LAST)
       for n in (1, 2, 3)},
    "ZeroPadding1D": ClassRule("ZeroPadding1D", "padding"),
    "ZeroPadding2D": ClassRule("ZeroPadding2D", f"padding {_SPACE}", fixed=_LAST),
    "ZeroPadding3D": ClassRule("ZeroPadding3D", f"padding {_SPACE}", fixed=_LAST),
    "Cropping1D": ClassRule("Cropping1D", "cropping"),
    "Cropping2D": ClassRule("Cropping2D", f"cropping {_SPACE}", fixed=_LAST),
    "Cropping3D": ClassRule("Cropping3D", f"cropping {_SPACE}", fixed=_LAST),
    "UpSampling1D": ClassRule("UpSampling1D", "size length>size"),
    "UpSampling2D": ClassRule("UpSampling2D", f"size {_SPACE} interpolation:interpolation", fixed=_LAST),
    "UpSampling3D": ClassRule("UpSampling3D", f"size {_SPACE}", fixed=_LAST),
    **{name: ClassRule(name, several=True)
       for name in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum")},
    "Concatenate": ClassRule("Concatenate", "axis", several=True),
    "Dot": ClassRule("Dot", "axes normalize:flag", several=True),
    "Attention": ClassRule("Attention", 'use_scale:flag score_mode="dot" dropout:rate causal=false seed', "scale?use_scale", several=True),
    "AdditiveAttention": ClassRule("AdditiveAttention", "use_scale:flag dropout:rate causal=false seed", "scale?use_scale", several=True),
}  # fmt: skip
"""Every class of layers that is known, by its old name."""

CODE = {
    "Lambda": "it holds Python code, which is not run, and which Keras 3 refuses in safe mode",
    "TensorFlowOpLayer": "it is an operation of TensorFlow in a graph",
}
"""Classes without an equivalent, and why."""

READING_MERGES = ("Multiply", "Maximum", "Minimum")
"""Layers that take masked values for ones or leave them out in Keras 3, and did not before; its operations do not."""
