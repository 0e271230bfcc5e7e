"""Paddle's models as a transplant sees them: files, an inference model by the operators of its program."""

from __future__ import annotations

from collections.abc import Sequence

from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.models.model import Model
from rnnconvert.models.readers import by_names
from rnnconvert.scaffolding.programs.units import StackedModel

NAME = "paddle"


class PaddleModel(StackedModel):
    """A program, whose layers are called as their arrays are."""

    def layer_path(self, node: Operation, tensors: Sequence[str]) -> str:
        """Return what Paddle calls a layer: its arrays are linear_0.w_0 and linear_0.b_0."""
        return next((name.rpartition(".")[0] for name in tensors if "." in name), "")


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return an inference model by its operators, any other file by its names."""
    return by_names(checkpoint) if checkpoint.read is None else PaddleModel(checkpoint).model(checkpoint.path)
