"""MXNet's models as a transplant sees them: files of parameters, with the graph next to them by its operators."""

from __future__ import annotations

from collections.abc import Sequence

from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.mxnet.flow import ReadSymbol
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.readers import by_names
from rnnconvert.models.units import single_layers
from rnnconvert.scaffolding.programs.units import ProgramModel

NAME = "mxnet"


class SymbolModel(ProgramModel):
    """A graph, in which one operator is a whole stack of layers."""

    @property
    def read(self) -> ReadSymbol:
        """The graph as its adapter read it."""
        return self.checkpoint.read_as(ReadSymbol)

    def layer_path(self, node: Operation, tensors: Sequence[str]) -> str:
        """Return the beginning of the names of a layer's arrays, dense0_weight and dense0_bias."""
        return next((name.partition(":")[2] or name for name in tensors), "").rpartition("_")[0]

    def layer_of_operation(self, name: str) -> Unit:
        """Return one of the layers of an operator."""
        singles = [single for stack in self.checkpoint.layers.values() for single in single_layers(stack)]
        stack = next(single for single in singles if single.name == self.read.singles[name].name)
        return Unit(stack.name, stack=stack, title=stack.describe())


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return a file by the operators of its graph; by its names without one, and where the graph does not show each of its layers."""
    if checkpoint.read is None:
        return by_names(checkpoint)
    work = SymbolModel(checkpoint)
    in_graph = {*work.read.computed, *(stack.name for stack in work.read.singles.values())}
    singles = [single.name for stack in checkpoint.layers.values() for single in single_layers(stack)]
    return work.model(checkpoint.path) if in_graph.issuperset(singles) else by_names(checkpoint)
