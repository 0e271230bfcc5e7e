"""Layers and masks: one table of effects by class and era, and from it the mask on what a layer gives.

Sources: keras 3.15 keras/src/layers/layer.py (Layer.__call__) and compute_mask of every layer; tf_keras/src/layers/**, likewise;
keras 1.2.2 engine/topology.py, Merge.compute_mask.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rnnconvert.formats.keras.model.entries import OWN_RECURRENT, RECURRENT, Entry

_PASSING = (
    "Activation", "ReLU", "LeakyReLU", "PReLU", "ELU", "ThresholdedReLU", "Softmax", "Dropout", "SpatialDropout1D", "SpatialDropout2D",
    "SpatialDropout3D", "GaussianNoise", "GaussianDropout", "AlphaDropout", "ActivityRegularization", "Dense",
    "TimeDistributedDense", "MaxoutDense", "Highway", "Identity", "BatchNormalization", "BatchNormalizationV1", "BatchNormalizationV2",
    "LayerNormalization", "GroupNormalization", "UnitNormalization", "Normalization", "Rescaling", "TimeDistributed",
    "MultiHeadAttention", "GroupedQueryAttention", "Attention", "AdditiveAttention",
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
DROPPED_BEFORE = ("Identity", "Normalization", "Rescaling", "SpectralNormalization")
"""Layers that give no mask before Keras 3."""
READING = (
    *RECURRENT, "BatchNormalization", "BatchNormalizationV1", "BatchNormalizationV2", "Softmax", "TimeDistributed",
    "GlobalAveragePooling1D", "Attention", "AdditiveAttention",
)  # fmt: skip
"""Layers that Keras 3 calls with the mask of what they read."""
MAY_MASK = ", of a class that is not built in,"
"""The words behind the name of a layer whose class is unknown: it may make a mask, pass one on or drop it."""

Mask = TypeVar("Mask")


def effect_of(layer: Entry, era: int) -> str:
    """Return the effect of a layer of Keras 1, 2 or 3 on masks: one of the table, "" for none, "unknown" for a class of a user's own."""
    if layer.is_operation:
        return ""
    if not layer.built_in and layer.class_name not in EFFECTS:
        return "unknown"
    return "" if era < 3 and layer.class_name in DROPPED_BEFORE else EFFECTS.get(layer.class_name, "")


def makes_mask(layer: Entry) -> bool:
    """Return whether a layer makes a mask of its own."""
    return layer.class_name == "Masking" or (EFFECTS.get(layer.class_name) == "make" and bool(layer.config.get("mask_zero")))


def mask_value(layer: Entry) -> float | None:
    """Return the number that a Masking masks, which some versions write as an array of one; None for anything else."""
    value = layer.config.get("mask_value", 0.0)
    for key in ("config", "value"):
        value = value[key] if isinstance(value, Mapping) and key in value else value
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def gives_sequences(layer: Entry) -> bool:
    """Return whether a recurrent layer gives what it computes at each step; a Bidirectional does what the layer inside it does.

    A layer of a user that is called like one, or has no such key, gives sequences as far as is known.
    """
    inner = layer.inner("layer") if layer.class_name == "Bidirectional" else layer
    return inner is None or bool(inner.config.get("return_sequences", layer.class_name == OWN_RECURRENT))


def masked_outputs(layer: Entry) -> int:
    """Return how many of its outputs a recurrent layer gives the mask: both sequences of two directions that it gives apart."""
    return 2 if layer.class_name == "Bidirectional" and layer.config.get("merge_mode", "concat") is None else 1


class MaskRules(ABC, Generic[Mask]):
    """What becomes of masks in a model; what a mask is, a subclass decides.

    era  the Keras that the model is of: 1, 2 or 3
    """

    def __init__(self, era: int) -> None:
        self.era = era

    @abstractmethod
    def new_mask(self, layer: Entry) -> Mask | None:
        """Return the mask that a layer makes."""

    @abstractmethod
    def joined(self, layer: Entry, masks: Sequence[Mask | None]) -> Mask | None:
        """Return the mask on the output of a layer that joins what it reads; one of the masks at least is there.

        Before Keras 3 a step counts if it counts in all that have a mask; then if it counts in one, and what a merge reads all has one.
        """

    def after(self, layer: Entry, masks: Sequence[Mask | None]) -> list[Mask | None]:
        """Return the masks on the outputs of a layer, as far as its first ones have any.

        masks  on what it is called on, or those that its call passes
        """
        effect = effect_of(layer, self.era)
        inner = layer.inner("layer") if effect == "inside" else None
        if inner is not None:
            return self.after(inner, masks)
        if effect == "make":
            return [self.new_mask(layer) if makes_mask(layer) else None]
        first = next(iter(masks), None)
        if effect == "sequences":
            return [first] * masked_outputs(layer) if gives_sequences(layer) else [None]
        if effect == "join":
            return [self.joined(layer, masks) if any(mask is not None for mask in masks) else None]
        return [first if effect == "pass" else None]


@dataclass(frozen=True)
class MaskOrigin:
    """A layer that masks steps.

    words  the layer, as messages call it
    steps  the steps that a Masking masks, in words; "" of another layer
    """

    words: str
    steps: str = ""


Origins = tuple[MaskOrigin, ...]


class NamedMasks(MaskRules[Origins]):
    """Masks by the layers that make them.

    label  what messages call the layer
    """

    def __init__(self, era: int, label: str) -> None:
        super().__init__(era)
        self.label = label

    def new_mask(self, layer: Entry) -> Origins | None:
        """Return the layer itself."""
        number = mask_value(layer) if layer.class_name == "Masking" else None
        steps = "" if number is None else f"all {number:g}"
        return (MaskOrigin(repr(self.label), steps),)

    def joined(self, layer: Entry, masks: Sequence[Origins | None]) -> Origins | None:
        """Return all that make one of the masks: see MaskRules.joined."""
        present = [mask for mask in masks if mask is not None]
        along_steps = layer.class_name == "Concatenate" and layer.config.get("axis", -1) not in (-1, 2)
        if self.era >= 3 and len(present) < len(masks) and not along_steps:
            return None  # of a Concatenate all steps count then
        return tuple(dict.fromkeys(origin for mask in present for origin in mask))

    def after(self, layer: Entry, masks: Sequence[Origins | None]) -> list[Origins | None]:
        """Return the origins of the masks on the outputs; code of a user that may make one is named, too."""
        if layer.class_name == "Lambda":
            return [(MaskOrigin(f"a function of {self.label!r}"),) if layer.config.get("mask") is not None else None]
        if effect_of(layer, self.era) == "unknown":
            return [(MaskOrigin(f"{self.label!r}{MAY_MASK}"),)]
        return super().after(layer, masks)
