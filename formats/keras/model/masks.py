"""Layers and masks: one table of effects by class, and from it the mask on a layer's output.

Sources: keras 3.15 keras/src/layers/layer.py (Layer.__call__) and compute_mask of every layer; tf_keras/src/layers/**, likewise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rnnconvert.formats.keras.model.entries import OWN_RECURRENT, RECURRENT, Entry

_PASSING = (
    "Activation", "ReLU", "LeakyReLU", "PReLU", "ELU", "ThresholdedReLU", "Softmax", "Dropout", "SpatialDropout1D", "SpatialDropout2D",
    "SpatialDropout3D", "GaussianNoise", "GaussianDropout", "AlphaDropout", "ActivityRegularization", "Dense",
    "TimeDistributedDense", "MaxoutDense", "Highway", "Identity", "BatchNormalization", "BatchNormalizationV1", "BatchNormalizationV2",
    "LayerNormalization", "GroupNormalization", "UnitNormalization", "Normalization", "Rescaling", "TimeDistributed",
    "MultiHeadAttention", "GroupedQueryAttention", "Attention", "AdditiveAttention", "TFOpLambda",
)  # fmt: skip
ADDING = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum")
"""Layers that compute one number from those at one place in all that they read."""
EFFECTS: Mapping[str, str] = {
    **dict.fromkeys(_PASSING, "pass"),
    **dict.fromkeys((*ADDING, "Concatenate", "Merge"), "join"),
    **dict.fromkeys(RECURRENT, "sequences"),
    **dict.fromkeys(("Masking", "Embedding", "ReversibleEmbedding"), "make"),
    "SpectralNormalization": "inside",
}
"""Whether the output of a layer has the mask of what it reads first ("pass"), those of all that it reads ("join"), that of its sequence
if it gives one ("sequences"), one of its own ("make"), or what the layer inside it gives ("inside"); the output of others has none."""
DROPPED_BEFORE = ("Rescaling",)
"""Layers that give no mask before Keras 3."""
READING = (
    *RECURRENT, "BatchNormalization", "BatchNormalizationV1", "BatchNormalizationV2", "Softmax", "TimeDistributed",
    "GlobalAveragePooling1D", "Attention", "AdditiveAttention",
)  # fmt: skip
"""Layers that Keras 3 calls with the mask of what they read."""
MAY_MASK = ", of a class that is not built in,"
"""The words behind the name of a layer whose class is unknown: it may make a mask, pass one on or drop it."""


def hands_masks_on(layer: Entry) -> bool:
    """Return whether a layer may give what it reads with its mask, or the masks of several joined."""
    effect = EFFECTS.get(layer.class_name, "")
    if not layer.built_in or effect in ("pass", "join"):
        return True
    inner = layer.inner("layer") if effect == "inside" or layer.class_name == "Bidirectional" else layer
    if inner is None or effect == "inside":
        return inner is not None and hands_masks_on(inner)
    return effect == "sequences" and bool(inner.config.get("return_sequences", layer.class_name == OWN_RECURRENT))


def mask_after(layer: Entry, masks: Sequence[str], label: str, passed: str = "") -> str:
    """Return the origin of the mask on the first output of a layer, in words; "" for none.

    masks   the masks of the tensors that it is called on
    passed  the origin of the mask that its call passes
    """
    config: Any = layer.config
    effect = EFFECTS.get(layer.class_name, "")
    if effect == "inside":
        inner = layer.inner("layer")
        return mask_after(inner, masks, label, passed) if inner is not None else f"{label}{MAY_MASK}"
    if layer.class_name == "Masking" or (layer.built_in and config.get("mask_zero") and layer.class_name != "Lambda"):
        return label
    if effect == "sequences":
        inner = layer.inner("layer") if layer.class_name == "Bidirectional" else layer
        # A layer of a user that is called like one, or has no such key, gives sequences as far as is known.
        return passed if inner is None or inner.config.get("return_sequences", layer.class_name == OWN_RECURRENT) else ""
    if effect == "join":
        words = list(dict.fromkeys(masks))
        # Add and its like mask where all do, Concatenate not at all where one of them has no mask.
        return "" if "" in words else " and ".join(words)
    if layer.class_name == "Lambda":
        return f"a function of {label}" if config.get("mask") is not None else ""
    if not layer.built_in:
        return f"{label}{MAY_MASK}"
    return next(iter(masks), "") if effect == "pass" else ""
