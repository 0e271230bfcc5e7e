"""How a transplant went, kept so that what belongs to the weights can go the same way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rnnconvert.arrays import Array
from rnnconvert.rewrites import Step
from rnnconvert.transplant.model import Model
from rnnconvert.transplant.pairing import Pair


@dataclass(frozen=True, eq=False)
class Plan:
    """The way that the weights went.

    target, source  the models, layer by layer
    pairs           the layers that belong together
    steps           what was done to bring layers into the target's form
    columns         which of the source's columns stand where in a matrix that reads a flattened convolution
    """

    target: Model
    source: Model
    pairs: tuple[Pair, ...]
    steps: tuple[Step, ...]
    columns: Callable[[Pair, int], Array | None]
