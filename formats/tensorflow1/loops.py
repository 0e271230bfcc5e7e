"""Recurrent layers that a frozen graph computes in operations of its own: while loops, and steps that are written out.

The graph becomes one of ONNX's in memory, in which loops are Loop nodes; there the layers are recognized and proved
(formats/onnx/computed.py).
"""

from __future__ import annotations

import re
from pathlib import Path

from rnnconvert.core.errors import RnnConvertError
from rnnconvert.formats.onnx.block import in_memory
from rnnconvert.formats.onnx.computed import ODD, Computed, Looked, look
from rnnconvert.formats.onnx.fuse_graph import reads
from rnnconvert.formats.onnx.onnx_scopes import walk
from rnnconvert.formats.onnx.unread import looks_recurrent
from rnnconvert.formats.tensorflow1.lowering import Lowering
from rnnconvert.formats.tensorflow1.tensorflow_graph import Graph

__all__ = ["Looked", "constants", "read"]

_LATER = re.compile(r"(/(Stateful)?PartitionedCall|/while|/MatMul|/BiasAdd)(_\d+)?(/while_context|/while|/MatMul)?$")


def read(path: Path, graph: Graph) -> Looked:
    """Return the layers that a graph computes; their names are the scopes of their operations."""
    try:
        message, arrays = Lowering(graph).model()
    except ODD as error:
        if isinstance(error, RnnConvertError):
            raise
        return Looked(reasons={"": f"the graph is not as its operations ask ({type(error).__name__}: {error})"})
    file = in_memory(path, message, arrays)
    scopes = list(walk(file))  # kept: nodes are known by their identity
    scope = scopes[0]
    found = look(path, scope, message, (), looks_recurrent(scope))
    layers: dict[str, Computed] = {}
    for name, one in found.layers.items():
        shown = _LATER.sub("", name)
        label = shown if shown and shown not in layers else name
        layers[label] = one.renamed(label)
    return Looked(layers, found.reasons, found.scope)


def constants(one: Computed) -> set[str]:
    """Return the operations whose stored numbers a layer's operators read."""
    return {value.removesuffix(":0") for node in one.nodes for value in reads(node)}
