"""OpenVINO's operations as a graph: the effect of each on the elements on their way from one recurrent operation to the next.

Source: docs.openvino.ai, Operation Sets; for each operation its class in src/core/src/op. An operation of another set than OpenVINO's
("opset1" to "opset16") is an extension, which may compute anything under any name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import INPUT, Call
from rnnconvert.formats.openvino.net import TYPES, Net, NetOperation, Value
from rnnconvert.graphs import SAME, Applied, Casts, ChangesError, Computes, Dialect, Graph, LayerCall, Measures, Moves, moves, received
from rnnconvert.graphs import calls as followed
from rnnconvert.graphs.graph import CallSizes
from rnnconvert.graphs.lengths import NUMBERS, QUOTIENT, counted, multiplied

_OPSET = re.compile(r"opset\d{1,2}")
_TYPES = {"FP16": "f2", "FP64": "f8"}
"""Element types other than float32 in which recurrent operations compute, by the IR's names of precisions."""


@dataclass(frozen=True)
class GraphOperation:
    """A recurrent operation.

    name     the layer that is read of it
    axes     of what it reads
    states   which of its inputs are states
    lengths  which one is the lengths of its sequences; 0 for none
    outputs  the whole sequences that it gives, or that operations make of them that belong to the layer, with their axes
    hidden, directions, width  of what it gives and reads
    """

    name: str
    axes: str
    states: Sequence[int]
    lengths: int
    outputs: Mapping[Value, str]
    hidden: int
    directions: int
    width: int


def calls(net: Net, operations: Mapping[str, GraphOperation]) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each recurrent operation of a graph, by its layer's name.

    operations  by the ids of their layers in the IR
    """
    graph = Graph(_DIALECT)
    layers: dict[str, LayerCall] = {}
    for layer in net.layers.values():
        keys = [(layer.id, port) for port in range(len(layer.input_shapes))]
        for key, shape in zip(keys, layer.input_shapes, strict=True):
            graph.value(key).name = f"{layer.name} (layer {layer.id})" + (f", output {key[1]}" if key[1] else "")
            graph.describe(key, _dims(layer, shape))
        if layer.id in operations:
            layers[layer.id] = _call(graph, layer, operations[layer.id])
        elif layer.type == "Const" and keys:
            graph.constant(keys[0], _numbers(net, layer))
        elif layer.type not in ("Const", "Parameter", "ReadValue"):  # what ReadValue gives is from the run before
            kind = layer.type if _OPSET.fullmatch(layer.version) else (layer.version, layer.type)
            graph.add(kind, layer.inputs, keys, layer.data, layer.type)
    for number, call in layers.items():
        operation, inputs = operations[number], net.layers[number].inputs
        begin = received.states(graph, [inputs[place] for place in operation.states if inputs[place] is not None])
        if begin == INPUT and net.where:
            begin = "what the loop around it hands on"
        lengths = received.source(graph, inputs[operation.lengths]) if operation.lengths else ""
        call.received = replace(call.received, states=begin, lengths=lengths)
    return followed(graph)


def _numbers(net: Net, layer: NetOperation) -> Any:
    return lambda: net.constant((layer.id, 0))


def _call(graph: Graph, layer: NetOperation, operation: GraphOperation) -> LayerCall:
    others = [(layer.id, port) for port in range(len(layer.input_shapes)) if (layer.id, port) not in operation.outputs]
    dtype = np.dtype(_TYPES.get(layer.precision, "f4"))
    return graph.call(
        operation.name,
        (layer.inputs[0], operation.axes),
        operation.outputs,
        {key: "the last states" if key[1] else "the outputs of both directions" for key in others},
        sizes=CallSizes(operation.hidden, directions=operation.directions, dtype=dtype, width=operation.width),
    )


def _dims(layer: NetOperation, shape: tuple[int, ...]) -> list[int | str | None]:
    """Return the lengths of a value's axes; each open one of an input goes by a name."""
    named = layer.type == "Parameter" or None
    return [length if length >= 0 else named and f"{layer.id} {axis}" for axis, length in enumerate(shape)]


# What operations do ---------------------------------------------------------------------------------------------


def _words(applied: Applied, key: str) -> list[int]:
    """Return an attribute that is a list of whole numbers: "1, 0, 1"."""
    return [int(word) for word in str(applied.attributes.get(key, "")).split(",") if word.strip()]


def _number(applied: Applied, key: str, default: int = 0) -> int:
    return int(applied.attributes.get(key, default))


def _optional(applied: Applied, index: int) -> list[int]:
    return applied.integers(index) if index < len(applied.inputs) else []


def _convert(applied: Applied) -> np.dtype[Any]:
    dtype = TYPES.get(applied.attributes.get("destination_type", ""))
    if dtype is None:
        raise ChangesError(f"Convert to {applied.attributes.get('destination_type', '')!r}")
    return dtype


def _gather(applied: Applied) -> Array:
    if _number(applied, "batch_dims"):
        raise ChangesError("Gather by batch")
    (axis,) = applied.integers(2)
    return moves.take(applied.input(0), applied.input(1), axis)


def _strided(applied: Applied) -> Array:
    begin, end = applied.integers(1), applied.integers(2)
    masks = [_words(applied, f"{key}_mask") for key in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")]
    filled = [[bool(flag) for flag in mask] + [False] * (len(begin) - len(mask)) for mask in masks]
    return moves.strided(applied.input(0), begin, end, _optional(applied, 3) or [1] * len(begin), masks=filled)


def _slice(applied: Applied) -> Array:
    starts, stops, steps = (applied.integers(place) for place in (1, 2, 3))
    return moves.cut(applied.input(0), starts, stops, steps, _optional(applied, 4))


def _pad(applied: Applied) -> Array:
    if applied.attributes.get("pad_mode") != "constant":
        raise ChangesError(f"Pad of the mode {applied.attributes.get('pad_mode')!r}")
    return moves.pad(applied.input(0), applied.integers(1), applied.integers(2))


def _broadcast(applied: Applied) -> Array:
    array, shape = applied.input(0), applied.integers(1)
    mode = applied.attributes.get("mode", "numpy")
    if mode == "explicit":
        raise ChangesError("Broadcast of the mode 'explicit'")
    return moves.broadcast(array, np.broadcast_shapes(array.shape, shape) if mode == "bidirectional" else shape)


def _tile(applied: Applied) -> Array:
    array, repeats = applied.input(0), applied.integers(1)
    rank = max(array.ndim, len(repeats))
    array = array.reshape([1] * (rank - array.ndim) + list(array.shape))
    return moves.tile(array, [1] * (rank - len(repeats)) + repeats)


def _reversed(applied: Applied) -> Array:
    places = applied.input(1).reshape(-1)
    mask = applied.attributes.get("mode") == "mask"
    return moves.reverse(applied.input(0), [int(axis) for axis in (np.flatnonzero(places) if mask else places)])


def _range(applied: Applied) -> Array:
    start, stop, step = (float(applied.input(place).reshape(())) for place in range(3))
    moves.bounded([int(max(0, (stop - start) // step + 1))])
    return np.arange(start, stop, step).astype(np.int64)


_DIALECT: Dialect = {
    # src/core/src/op/identity.cpp, result.cpp
    "Identity": SAME,
    "Result": SAME,
    "Convert": Casts(_convert),
    "Transpose": Moves(lambda applied: moves.transpose(applied.input(0), applied.integers(1))),
    "Reshape": Moves(
        lambda applied: moves.reshape(applied.input(0), applied.integers(1), applied.attributes.get("special_zero") in ("true", "1"))
    ),
    "Squeeze": Moves(lambda applied: moves.squeeze(applied.input(0), _optional(applied, 1))),
    "Unsqueeze": Moves(lambda applied: moves.unsqueeze(applied.input(0), applied.integers(1))),
    "Concat": Moves(
        lambda applied: moves.concatenate([applied.input(place) for place in range(len(applied.inputs))], _number(applied, "axis")), None
    ),
    "Split": Moves(lambda applied: moves.split(applied.input(0), applied.integers(1)[0], _number(applied, "num_splits", 1))),
    "VariadicSplit": Moves(lambda applied: moves.split(applied.input(0), applied.integers(1)[0], applied.integers(2))),
    "Gather": Moves(_gather),
    "StridedSlice": Moves(_strided),
    "Slice": Moves(_slice),
    "Pad": Moves(_pad),
    "Tile": Moves(_tile),
    "Broadcast": Moves(_broadcast),
    "Reverse": Moves(_reversed),
    "ReverseSequence": Moves(
        lambda applied: moves.reverse_sequences(
            applied.input(0), applied.input(1).reshape(-1), _number(applied, "seq_axis", 1), _number(applied, "batch_axis")
        )
    ),
    "Roll": Moves(lambda applied: moves.roll(applied.input(0), applied.integers(1), applied.integers(2))),
    "ShapeOf": Measures(lambda applied: np.array(applied.input(0).shape, np.int64)),
    "Add": NUMBERS["add"],
    "Subtract": NUMBERS["subtract"],
    "Multiply": NUMBERS["multiply"],
    "Divide": Computes(lambda applied: applied.input(0) // applied.input(1), formula=QUOTIENT),
    "Maximum": NUMBERS["maximum"],
    "Minimum": NUMBERS["minimum"],
    "Range": Computes(_range, formula=counted),
    "ReduceProd": Computes(
        lambda applied: np.prod(applied.input(0), keepdims=applied.attributes.get("keep_dims") == "true"), formula=multiplied
    ),
}
