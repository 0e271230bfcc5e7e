"""How a transplant went, kept so that what belongs to the weights can go the same way."""

from __future__ import annotations

from dataclasses import dataclass

from rnnconvert.models.flattening import Flattening
from rnnconvert.models.model import Model
from rnnconvert.models.pairing import Pair
from rnnconvert.rewrites import Step


@dataclass(frozen=True, eq=False)
class Plan:
    """The way that the weights went.

    target, source  the models, layer by layer
    pairs           the layers that belong together
    steps           what was done to bring layers into the target's form
    orders          where the values of a flattened convolution stand on both sides
    """

    target: Model
    source: Model
    pairs: tuple[Pair, ...]
    steps: tuple[Step, ...]
    orders: Flattening
