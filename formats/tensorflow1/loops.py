"""Recurrent layers that a frozen graph computes in other operations: while loops, and steps that are written out.

The graph is written in the common operations, in which the layers are recognized and proved (rnnconvert/recognition).
"""

from __future__ import annotations

import re
from pathlib import Path

from rnnconvert.containers.graph_def import GraphDef
from rnnconvert.formats.tensorflow1.lowering import GraphDefLowering
from rnnconvert.recognition.computed import Computed, RecognisedLayers
from rnnconvert.recognition.lowered import recognise_in

__all__ = ["RecognisedLayers", "constants", "names", "read"]

_LATER = re.compile(r"(/(Stateful)?PartitionedCall|/while|/MatMul|/BiasAdd)(_\d+)?(/while_context|/while|/MatMul)?$")


def read(path: Path, graph: GraphDef) -> RecognisedLayers:
    """Return the layers that a graph computes; their names are the scopes of their operations."""
    return recognise_in(lambda: GraphDefLowering(graph).program(path), _LATER)[0]


def constants(layer: Computed) -> set[str]:
    """Return the operations whose stored numbers a layer's operators read, in a loop or around it."""
    read = {value for node in layer.nodes for value in node.reads}
    inside = {name.removeprefix(f"{node.name}/body/") for node in layer.nodes for _, body in node.bodies for name in body.stored}
    return {value.removesuffix(":0") for value in read | inside}


def names(layer: Computed) -> set[str]:
    """Return the graph's names for the operations that compute a layer; for a loop, its frame."""
    return {node.name for node in layer.nodes}
