"""Paddle's models as a transplant sees them: files, an inference model by the operators of its program."""

from __future__ import annotations

from collections.abc import Sequence

from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.paddle.flow import ReadStacks
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.readers import by_names
from rnnconvert.models.units import single_layers
from rnnconvert.scaffolding.programs.units import ProgramModel

NAME = "paddle"


class PaddleModel(ProgramModel):
    """A program, in which one operator is a whole stack of layers."""

    @property
    def read(self) -> ReadStacks:
        """The program as its adapter read it."""
        return self.checkpoint.read_as(ReadStacks)

    def layer_path(self, node: Operation, tensors: Sequence[str]) -> str:
        """Return what Paddle calls a layer: its arrays are linear_0.w_0 and linear_0.b_0."""
        return next((name.rpartition(".")[0] for name in tensors if "." in name), "")

    def layer_of_operation(self, name: str) -> Unit:
        """Return one of the layers of an operator."""
        singles = [single for stack in self.checkpoint.layers.values() for single in single_layers(stack)]
        stack = next(single for single in singles if single.name == self.read.singles[name].name)
        return Unit(stack.name, stack=stack, title=stack.describe())


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return an inference model by its operators, any other file by its names."""
    return by_names(checkpoint) if checkpoint.read is None else PaddleModel(checkpoint).model(checkpoint.path)
