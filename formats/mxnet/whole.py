"""MXNet's models as a transplant sees them: files of parameters, with the graph next to them by its operators."""

from __future__ import annotations

from collections.abc import Sequence

from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.models.model import Model
from rnnconvert.models.readers import by_names
from rnnconvert.models.units import single_layers
from rnnconvert.scaffolding.programs.units import StackedModel

NAME = "mxnet"


class SymbolModel(StackedModel):
    """A graph, whose layers are called as their arrays are."""

    def layer_path(self, node: Operation, tensors: Sequence[str]) -> str:
        """Return the beginning of the names of a layer's arrays, dense0_weight and dense0_bias."""
        return next((name.partition(":")[2] or name for name in tensors), "").rpartition("_")[0]


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return a file by the operators of its graph; by its names without one, and where the graph does not show each of its layers."""
    if checkpoint.read is None:
        return by_names(checkpoint)
    work = SymbolModel(checkpoint)
    in_graph = {*work.read.computed, *(stack.name for stack in work.read.singles.values())}
    singles = [single.name for stack in checkpoint.layers.values() for single in single_layers(stack)]
    return work.model(checkpoint.path) if in_graph.issuperset(singles) else by_names(checkpoint)
