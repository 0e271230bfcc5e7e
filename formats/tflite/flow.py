"""TFLite's operators as a graph: what each does to the elements on their way from one recurrent layer to the next.

Source: tensorflow/lite/schema/schema.fbs for the options, whose fields are named by their places; tensorflow/lite/kernels/*.cc. A custom
operator goes by its own code and may compute anything.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.weights import Call, Recurrent
from rnnconvert.formats.tflite import lists
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.graph import Operator
from rnnconvert.formats.tflite.graph import Subgraph as Stated
from rnnconvert.graphs import Applied, Casts, ChangesError, Dialect, Graph, Measures, Moves, moves, received
from rnnconvert.graphs import calls as followed
from rnnconvert.graphs.graph import CallSizes
from rnnconvert.graphs.lengths import NUMBERS

_TYPES = {**{kind: np.dtype(dtype) for kind, dtype in s.TYPES.items()}, 18: BFLOAT16}
_READ, _STEPS, _WAYS = "what a layer reads", "what a layer gives", "the directions of a layer"
"""Operators that stand for no operator of the file."""
_OPTIONS, _OUTPUT_TYPES = "options", "output types"


@dataclass(frozen=True)
class FusedOperator:
    """A recurrent operator.

    reads      the tensor that it reads: the one before REVERSE_V2 where that belongs to the layer
    gives      the tensors that it gives: those behind REVERSE_V2 where that belongs to the layer
    time_major whether the time comes first
    step       whether it computes one step at a call
    """

    operator: Operator
    stack: Recurrent
    reads: int
    gives: Sequence[int]
    time_major: bool
    step: bool


@dataclass(frozen=True)
class SteppedSequence:
    """A sequence that a layer reads: one tensor with the axis of its time and the steps that are read, or one tensor for each step."""

    tensors: Sequence[Hashable]
    axis: int = 0
    steps: bool = False
    window: tuple[int, int] | None = None


@dataclass(frozen=True)
class LoopOutput:
    """A tensor that is all outputs of a layer, with the axis of its time; the output at one step; or a last state, in words.

    rank  how many axes one output has: 2, or 3 with a first of length 1
    """

    tensor: Hashable
    axis: int = 0
    step: int | None = None
    words: str = ""
    rank: int = 2


@dataclass(frozen=True)
class Looped:
    """A layer that other operators compute.

    turned   whether operators turn its sequence around before it, and its outputs behind it
    states   the tensors of its initial states
    mask, lengths  which steps it leaves out, as `Call` has it
    """

    stack: Recurrent
    reads: Sequence[SteppedSequence]
    gives: Sequence[LoopOutput]
    states: Sequence[Hashable]
    turned: bool
    mask: str = ""
    lengths: str = ""


Layers: TypeAlias = "Mapping[str, FusedOperator | Looped]"


def calls(stated: Stated, layers: Layers) -> dict[str, tuple[Call, ...]]:
    """Return what each recurrent layer of a graph receives, by its name."""
    graph = Graph(_DIALECT)
    for place, tensor in enumerate(stated.tensors):
        graph.value(place).name = tensor.name
        names = [f"{place} {axis}" if place in stated.inputs else None for axis in range(len(tensor.dims))]
        if tensor.dims:  # none are stated for a scalar, and for what has no shape
            graph.describe(place, [name if length is None else length for length, name in zip(tensor.dims, names, strict=True)])
        if tensor.stored is not None and not tensor.odd:
            graph.constant(place, tensor.stored)
    for name, layer in layers.items():
        if isinstance(layer, FusedOperator):
            _fused(graph, name, layer)
        else:
            _looped(graph, name, layer)
    for operator in stated.operators:
        label = operator.label
        types = [stated.tensors[place].kind if place >= 0 else -1 for place in operator.outputs]
        inputs, outputs = ([place if place >= 0 else None for place in places] for places in (operator.inputs, operator.outputs))
        kind = (operator.code, label) if operator.name or _rescaled(stated, operator) else operator.code
        graph.add(kind, inputs, outputs, {_OPTIONS: operator.options, _OUTPUT_TYPES: types}, label)
    for call in graph.layers:  # where states come from shows once all operators are there
        layer = layers[call.layer]
        if isinstance(layer, Looped):
            begin = received.states(graph, layer.states)
            call.received = replace(call.received, states=begin, mask=layer.mask, lengths=layer.lengths)
    return followed(graph)


def _rescaled(stated: Stated, operator: Operator) -> bool:
    """Return whether an operator's integers stand for other numbers than those that it reads."""
    tensors = [stated.tensors[place] for place in (*operator.inputs, *operator.outputs) if place >= 0]
    scales = {(tensor.scales.tobytes(), tensor.zeros.tobytes()) for tensor in tensors if tensor.scales.size}
    return bool(scales) and (len(scales) > 1 or operator.code == s.DEQUANTIZE)


def _fused(graph: Graph, name: str, layer: FusedOperator) -> None:
    (pair,) = layer.stack.layers
    if layer.step:
        order = "b"
    elif layer.time_major:
        order = "tb"
    else:
        order = "bt"
    ways = len(pair.directions)
    if ways == 2 and len(layer.gives) == 2:
        outputs: dict[Any, str] = {(name, _WAYS): f"d{order}h"}
        graph.add(_WAYS, [(name, _WAYS)], layer.gives, None, None)
    else:
        outputs = dict.fromkeys(layer.gives, f"{order}u")
    graph.call(
        name,
        (layer.reads, f"{order}i"),
        outputs,
        sizes=CallSizes(pair.directions[0].output_size, directions=ways, width=layer.stack.input_size),
    )


def _looped(graph: Graph, name: str, layer: Looped) -> None:
    """Note the call of a layer that other operators compute; single steps are put together, or taken out."""
    # Between two operators that turn its sequence around, it computes from the last step to the first.
    time = "T" if layer.turned else "t"
    tensors = [tensor for read in layer.reads for tensor in read.tensors]
    graph.add(_READ, tensors, [(name, _READ)], {"reads": layer.reads}, None)
    for output in layer.gives:
        if not output.words:
            graph.add(_STEPS, [(name, _STEPS)], [output.tensor], {"given": output}, None)
    graph.call(
        name,
        ((name, _READ), f"{time}bi"),
        {(name, _STEPS): f"{time if layer.stack.output_order == 'time' else 't'}bu"},
        {loop_output.tensor: loop_output.words for loop_output in layer.gives if loop_output.words},
        sizes=CallSizes(layer.stack.hidden_size, width=layer.stack.input_size),
    )


# What operators do ----------------------------------------------------------------------------------------------


def _option(applied: Applied, field: int, code: str = "i") -> int:
    options = applied.attributes[_OPTIONS]
    return 0 if options is None else int(options.number(field, code, 0))


def _listed(applied: Applied) -> list[int]:
    """Return whole numbers that are the second input, or the first option in files without that input."""
    if len(applied.inputs) > 1 and applied.inputs[1] is not None:
        return applied.integers(1)
    options = applied.attributes[_OPTIONS]
    return [] if options is None else [int(number) for number in options.vector(0, "<i4")]


def _concatenation(applied: Applied) -> Array:
    if number := _option(applied, 1, "b"):
        raise ChangesError(f"CONCATENATION with the function {s.FUNCTIONS.get(number, number)}")
    return moves.concatenate(applied.arrays, _option(applied, 0))


def _gather(applied: Applied) -> Array:
    if _option(applied, 1):
        raise ChangesError("GATHER by batch")
    return moves.take(applied.input(0), applied.input(1), _option(applied, 0))


def _strided(applied: Applied) -> Array:
    begin, end, steps = (applied.integers(index) for index in (1, 2, 3))
    if _option(applied, 5, "?"):  # offset: the end is counted from the begin
        end = [low + length for low, length in zip(begin, end, strict=True)]
    masks = [[bool(_option(applied, field) >> place & 1) for place in range(len(begin))] for field in range(5)]
    return moves.strided(applied.input(0), begin, end, steps, masks=masks)


def _slice(applied: Applied) -> Array:
    begin, sizes = applied.integers(1), applied.integers(2)
    ends = [None if size == -1 else low + size for low, size in zip(begin, sizes, strict=True)]
    return moves.cut(applied.input(0), begin, ends)


def _pad(applied: Applied) -> Array:
    widths = applied.input(1).reshape(-1, 2).tolist()
    return moves.pad(applied.input(0), [low for low, _ in widths], [high for _, high in widths])


def _dtype(applied: Applied) -> np.dtype[Any]:
    (number,) = applied.attributes[_OUTPUT_TYPES]
    if number not in _TYPES:
        raise ChangesError(f"{s.OPERATORS[int(str(applied.kind))]} to type {number}")
    return _TYPES[number]


def _reads(applied: Applied) -> Array:
    """Return the sequences that a layer reads, side by side, the time first."""
    sequences, place = [], 0
    for read in applied.attributes["reads"]:
        parts = [applied.input(place + index) for index in range(len(read.tensors))]
        place += len(parts)
        sequence = np.stack(parts) if read.steps else np.moveaxis(parts[0], read.axis, 0)
        sequence = sequence[slice(*read.window)] if read.window is not None else sequence
        sequences.append(sequence.reshape(sequence.shape[0], -1, sequence.shape[-1]))
    return np.concatenate(sequences, 2)


def _gives(applied: Applied) -> Array:
    """Return a layer's outputs in the form in which they are used."""
    output, sequence = applied.attributes["given"], applied.input(0)
    if output.step is None:
        return np.moveaxis(sequence[:, None] if output.rank == 3 else sequence, 0, output.axis)
    step: Array = sequence[output.step]
    return step[None] if output.rank == 3 else step


_DIALECT: Dialect = {
    2: Moves(_concatenation, None),
    6: Casts(_dtype),  # DEQUANTIZE of float16
    22: Moves(lambda applied: moves.reshape(applied.input(0), _listed(applied))),
    34: Moves(_pad),
    36: Moves(_gather),
    39: Moves(lambda applied: moves.transpose(applied.input(0), applied.integers(1))),
    43: Moves(lambda applied: moves.squeeze(applied.input(0), _listed(applied))),
    45: Moves(_strided),
    49: Moves(lambda applied: moves.split(applied.input(1), applied.integers(0)[0], applied.outputs), (1,)),
    53: Casts(_dtype),
    65: Moves(_slice),
    69: Moves(lambda applied: moves.tile(applied.input(0), applied.integers(1))),
    70: Moves(lambda applied: moves.unsqueeze(applied.input(0), applied.integers(1))),
    77: Measures(lambda applied: np.array(applied.input(0).shape, np.int64)),
    83: Moves(lambda applied: moves.stack(applied.arrays, _option(applied, 1)), None),
    88: Moves(lambda applied: moves.unstack(applied.input(0), _option(applied, 1))),
    94: Moves(lambda applied: moves.broadcast(applied.input(1), applied.integers(0)), (1,)),
    102: Moves(lambda applied: moves.split(applied.input(0), applied.integers(2)[0], applied.integers(1))),
    105: Moves(lambda applied: moves.reverse(applied.input(0), applied.integers(1))),
    112: Moves(lambda applied: moves.reverse_sequences(applied.input(0), applied.input(1), _option(applied, 0), _option(applied, 1))),
    130: Moves(lambda applied: moves.broadcast(applied.input(0), applied.integers(1))),
    0: NUMBERS["add"],
    18: NUMBERS["multiply"],
    41: NUMBERS["subtract"],
    93: Measures(lambda applied: np.zeros(applied.input(0).shape)),
    (s.CUSTOM, lists.FROM_TENSOR): Moves(lambda applied: applied.input(0)),
    (s.CUSTOM, lists.STACK): Moves(lambda applied: applied.input(0)),
    _READ: Moves(_reads, None),
    _STEPS: Moves(_gives),
    _WAYS: Moves(lambda applied: moves.unstack(applied.input(0), 0)),
}
