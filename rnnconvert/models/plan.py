"""How the weights moved in a transplant, kept so that what belongs to them can move the same way."""

from __future__ import annotations

from dataclasses import dataclass

from rnnconvert.models.flattening import Flattening
from rnnconvert.models.model import Model
from rnnconvert.models.pairs import FilledPair
from rnnconvert.rewrites import Step


@dataclass(frozen=True, eq=False)
class TransplantPlan:
    """The way the weights moved.

    target, source  the models, layer by layer
    pairs           the layers that belong together
    steps           what was done to bring layers into the target's form
    orders          the order of a flattened convolution's values on both sides
    """

    target: Model
    source: Model
    pairs: tuple[FilledPair, ...]
    steps: tuple[Step, ...]
    orders: Flattening
