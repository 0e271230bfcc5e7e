"""OpenVINO models as a transplant sees them: files, whose layers give their weights."""

from __future__ import annotations

from dataclasses import replace

from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.readers import by_names
from rnnconvert.scaffolding.programs.units import ProgramModel, computing_in

NAME = "openvino"


class NetModel(ProgramModel):
    """A graph, in which other operations join the two directions of a recurrent one."""

    def layer_of_operation(self, name: str) -> Unit:
        """Return the layer that a recurrent operation is, its directions side by side, in the element type that it computes in."""
        unit = super().layer_of_operation(name)
        assert unit.stack is not None
        dtype = self.read.calls[name].call.sizes.dtype
        return unit.replace(
            stack=unit.stack.replace(layers=tuple(replace(computing_in(layer, dtype), merge="concat") for layer in unit.stack.layers))
        )


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return a file by the operations of its main graph; by its names where these are not as its operations ask."""
    return by_names(checkpoint) if checkpoint.read is None else NetModel(checkpoint).model(checkpoint.path)
