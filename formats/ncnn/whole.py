"""ncnn models as a transplant sees them: files, whose layers give their weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.readers import by_names
from rnnconvert.scaffolding.programs.units import ProgramModel, computing_in

NAME = "ncnn"


class NcnnModel(ProgramModel):
    """A net, whose layers compute in float32, however their weights are stored."""

    @property
    def notes(self) -> Sequence[str]:
        names = [f"{blob} is {name}" for blob, name in zip(self.gives, (f"output_{n}" for n in range(len(self.gives))), strict=True)]
        batch = "a net of ncnn computes one sequence at a time, and what is written any number of them, the batch in front"
        return [batch, *([f"of what it gives {', '.join(names)}"] if len(names) > 1 else [])]

    def layer_of_operation(self, name: str) -> Unit:
        unit = super().layer_of_operation(name)
        assert unit.stack is not None
        return unit.replace(stack=unit.stack.replace(layers=tuple(computing_in(each, np.dtype(np.float32)) for each in unit.stack.layers)))


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return a file by its layers; by its names where these are not as ncnn asks."""
    return by_names(checkpoint) if checkpoint.read is None else NcnnModel(checkpoint).model(checkpoint.path)
