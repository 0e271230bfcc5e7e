"""Torch7's files as a transplant sees them: their modules in the order in which they compute."""

from __future__ import annotations

from collections.abc import Sequence

from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.torch7.files import ReadModules
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.models.model import Model
from rnnconvert.models.readers import by_names
from rnnconvert.scaffolding.programs.units import StackedModel

NAME = "torch7"


class ModuleModel(StackedModel):
    """The modules of a file, whose layers are called as their places in it are."""

    @property
    def notes(self) -> Sequence[str]:
        return self.checkpoint.read_as(ReadModules).notes

    def layer_path(self, node: Operation, tensors: Sequence[str]) -> str:
        """Return the place of the module that a layer was made from."""
        return next(iter(tensors), "").rpartition("/")[0]


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return a file by its modules; by its names where none is a whole model."""
    return by_names(checkpoint) if checkpoint.read is None else ModuleModel(checkpoint).model(checkpoint.path)
