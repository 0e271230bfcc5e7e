"""TensorFlow.js's share of the layers of Keras: its classes, the entries that it reads of their configurations, and its functions.

Source: tfjs-layers 4.22 src/layers/*.ts, the constructors and `call`; src/activations.ts; src/layers/preprocessing/image_preprocessing.ts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_ENDED = ("activation", "use_bias")
_WINDOW = ("kernel_size", "strides", "padding")

CLASSES: Mapping[str, tuple[str, ...]] = {
    "Activation": ("activation",),
    "Add": (),
    "Average": (),
    "AveragePooling1D": ("pool_size", "strides", "padding"),
    "AveragePooling2D": ("pool_size", "strides", "padding"),
    "AveragePooling3D": ("pool_size", "strides", "padding"),
    "BatchNormalization": ("momentum", "epsilon", "scale", "center"),
    "Concatenate": ("axis",),
    "Conv1D": ("filters", *_WINDOW, "dilation_rate", *_ENDED),
    "Conv2D": ("filters", *_WINDOW, "dilation_rate", *_ENDED),
    "Conv2DTranspose": ("filters", *_WINDOW, *_ENDED),
    "Conv3D": ("filters", *_WINDOW, *_ENDED),
    "Conv3DTranspose": ("filters", *_WINDOW, *_ENDED),
    "Cropping2D": ("cropping",),
    "Dense": ("units", *_ENDED),
    "DepthwiseConv2D": (*_WINDOW, "depth_multiplier", *_ENDED),
    "Dot": ("axes", "normalize"),
    "Dropout": ("rate",),
    "Embedding": ("input_dim", "output_dim", "mask_zero"),
    "Flatten": (),
    "GlobalAveragePooling1D": (),
    "GlobalAveragePooling2D": (),
    "GlobalMaxPooling1D": (),
    "GlobalMaxPooling2D": (),
    "LayerNormalization": ("axis", "epsilon", "scale", "center"),
    "LeakyReLU": ("alpha",),
    "Masking": ("mask_value",),
    "Maximum": (),
    "MaxPooling1D": ("pool_size", "strides", "padding"),
    "MaxPooling2D": ("pool_size", "strides", "padding"),
    "MaxPooling3D": ("pool_size", "strides", "padding"),
    "Minimum": (),
    "Multiply": (),
    "Permute": ("dims",),
    "PReLU": ("shared_axes",),
    "ReLU": ("max_value",),
    "RepeatVector": ("n",),
    "Rescaling": ("scale", "offset"),
    "Reshape": ("target_shape",),
    "SpatialDropout1D": ("rate",),
    "TimeDistributed": ("layer",),
    "UpSampling2D": ("size",),
    "ZeroPadding2D": ("padding",),
}
"""Its classes without recurrence, with the settings that it computes by. DepthwiseConv2D takes no notice of a
dilation, and Softmax over another axis than the last one stops when it runs.
"""

RENAMED: Mapping[tuple[str, str], str] = {("LeakyReLU", "negative_slope"): "alpha"}
"""Settings that it has by another name than Keras 3."""

NEUTRAL: Mapping[tuple[str, str], object] = {("ReLU", "negative_slope"): 0, ("ReLU", "threshold"): 0}
"""Settings that it does not have, and what they are in a layer that it computes nevertheless."""

PAIRS = ("UpSampling2D", "ZeroPadding2D", "Cropping2D")
"""The classes whose sizes are stated for each axis, also where they are alike."""


def _beside_one(size: int) -> list[int]:
    return [size, 1]


def _beside_none(ends: int | tuple[int, int]) -> list[list[int]]:
    return [[ends, ends] if isinstance(ends, int) else list(ends), [0, 0]]


_WIDE_WINDOW = {"kernel_size": _beside_one, "strides": _beside_one, "dilation_rate": _beside_one}
LINES: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "Conv1D": _WIDE_WINDOW,
    "Conv1DTranspose": _WIDE_WINDOW,
    "Cropping1D": {"cropping": _beside_none},
    "DepthwiseConv1D": _WIDE_WINDOW,
    "UpSampling1D": {"size": _beside_one},
    "ZeroPadding1D": {"padding": _beside_none},
}
"""The layers over lines that it lacks, with what makes their settings those of its layers over images of a width of 1. Of Conv1D it
lacks the causal one: it loads such a layer, and stops when it runs.
"""

FIRST_ARRAYS: Mapping[str, tuple[str, ...]] = {"DepthwiseConv2D": ("depthwise_kernel",)}
"""The names of the first array of a class, if they are as in Keras 2 and not as in Keras 3."""

FUNCTIONS: Mapping[str, str] = {
    "elu": "elu", "gelu": "gelu", "linear": "linear", "log_softmax": "log_softmax", "mish": "mish", "relu": "relu", "relu6": "relu6",
    "selu": "selu", "sigmoid": "sigmoid", "silu": "swish", "softmax": "softmax", "softplus": "softplus", "softsign": "softsign",
    "tanh": "tanh",
}  # fmt: skip
"""Its functions, by the names that Keras 3 has for them. Its hard_sigmoid is that of Keras 2, 0.2 x + 0.5."""

PASSING = (
    "Activation", "BatchNormalization", "Dense", "Dropout", "LayerNormalization", "PReLU", "ReLU", "SpatialDropout1D", "TimeDistributed",
)  # fmt: skip
"""The classes that hand on the mask of what they read (`supportsMasking`, without a computeMask of their own); others drop it."""
