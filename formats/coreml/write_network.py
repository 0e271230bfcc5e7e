"""A Core ML neural network that holds recurrent layers alone: a .mlmodel, in version 1 of the specification.

A stack is a chain of layers from the input `x`, (steps, 1, width) with the axes that Core ML adds, to the output `y`. Each layer has inputs
and outputs for its states, NAME_h_in and NAME_h_out, which may be left out. With several stacks each name is preceded by the stack's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rnnconvert.containers.files import replacing, write_pieces
from rnnconvert.containers.wire import field, prefix
from rnnconvert.core.arrays import Array, PiecewiseArray, nbytes
from rnnconvert.core.cells import Activation
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult, outputs_turned, unique
from rnnconvert.formats.coreml import encode
from rnnconvert.formats.coreml.encode import number, real, text
from rnnconvert.formats.coreml.network import FUNCTIONS, GRU_FIELDS, LSTM_FIELDS, RNN_FIELDS, WITH_CONSTANTS
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import split_stack

_FIELDS = {function: place for place, function in FUNCTIONS.items()}
_UNCLIPPED = 50000.0
Message = list["bytes | Array | PiecewiseArray"]
"""A message as pieces: bytes, and arrays whose numbers stand between them."""


def write(path: Path, job: Job) -> WriteResult:
    """Write the model."""
    notes: list[str] = []
    layers: Message = []
    inputs: list[bytes] = []
    outputs: list[bytes] = []
    names: set[str] = set()
    for part in job.parts:
        prefix = "" if len(job.parts) == 1 else f"{part.stack.name}/"
        after = f"{part.stack.name} gives its outputs in processing order: turn y around"
        notes += outputs_turned(part.stack, "coreml_nn", after, "; or write an ML program, a .mlpackage")
        inputs.append(encode.feature(f"{prefix}x", (part.stack.input_size,), encode.DOUBLE))
        below, singles = f"{prefix}x", split_stack(part.stack)
        for place, single in enumerate(singles, 1):
            name = unique(single.name or single.cell.kind, names)
            names.add(name)
            output = f"{prefix}y" if place == len(singles) else f"{name}_out"
            begins, ends = _states(single, name)
            layers += _field(1, [*_header(name, [below, *begins], [output, *ends]), *_layer(part.layout, single, job)])
            inputs += [encode.feature(begin, (single.hidden_size,), encode.DOUBLE, optional=True) for begin in begins]
            outputs += [encode.feature(end, (single.hidden_size,), encode.DOUBLE) for end in ends]
            below = output
        outputs.insert(0, encode.feature(f"{prefix}y", (part.stack.layers[-1].output_size,), encode.DOUBLE))
        notes.append(f"{part.stack.name or 'the layer'}: input {prefix}x (steps, 1, {part.stack.input_size}), output {prefix}y")
    description = encode.described(inputs, outputs, {"written by": "rnnconvert"})
    recipe = encode.prediction(path, job)
    if not job.dry_run:
        with replacing(path) as file:
            for piece in [number(1, 1) + field(2, description), *_field(500, layers)]:
                if isinstance(piece, bytes):
                    file.write(piece)
                else:
                    write_pieces(file, piece)
    return WriteResult(notes, recipe, [*job.carried])  # a model of its own has no place for other tensors


def _size(message: Message) -> int:
    return sum(len(element) if isinstance(element, bytes) else nbytes(element) for element in message)


def _field(place: int, message: Message) -> Message:
    return [prefix(place, _size(message)), *message]


def _header(name: str, inputs: list[str], outputs: list[str]) -> Message:
    return [text(1, name) + b"".join(text(2, input_name) for input_name in inputs) + b"".join(text(3, output) for output in outputs)]


def _states(single: Recurrent, name: str) -> tuple[list[str], list[str]]:
    """Return the names of a layer's states, those that it reads and those that it gives."""
    letters = "hc" if single.cell.kind == "lstm" else "h"
    ways = ("", "_rev")[: len(single.layers[0].directions)]
    begins, ends = ([f"{name}_{letter}_{end}{way}" for way in ways for letter in letters] for end in ("in", "out"))
    return begins, ends


def _layer(layout: Layout, single: Recurrent, job: Job) -> Message:
    """Return the field of a layer's parameters."""
    directions, cell = single.layers[0].directions, single.cell
    packed = pack(layout, single, job.dtype, job.watch)
    sizes = number(1, single.input_size) + number(2, single.hidden_size)
    biases = any(local.lower().endswith("biasvector") for local in packed)
    reverse = number(100, 1) if len(directions) == 1 and directions[0].reverse else b""
    flags = number(15, 1) + (number(20, 1) if biases else b"")
    if cell.kind == "rnn":
        return _field(400, [sizes + field(10, _function(cell.activation)) + flags, *_weights(packed, RNN_FIELDS), reverse])
    if cell.kind == "gru":
        functions = b"".join(field(10, _function(function)) for function in (cell.gate_activation, cell.activation))
        return _field(410, [sizes + functions + flags, *_weights(packed, GRU_FIELDS), reverse])
    roles = (cell.gate_activation, cell.activation, cell.output_activation)
    both = len(directions) == 2
    functions = b"".join(field(way, _function(role)) for way in (10, 11)[: 1 + both] for role in roles)
    settings = number(10, 1) + (number(20, 1) if biases else b"")
    settings += number(40, 1) if any(local.endswith("PeepholeVector") for local in packed) else b""
    settings += number(50, 1) if cell.coupled else b""
    settings += real(60, cell.clips[0].high if cell.clips else _UNCLIPPED)
    weights: Message = []
    for way in ("forward/", "backward/") if both else ("",):
        way_arrays = {local.removeprefix(way): array for local, array in packed.items() if local.startswith(way)}
        weights += _field(20, _weights(way_arrays, LSTM_FIELDS))
    return _field(430 if both else 420, [sizes + functions + field(15, settings), *weights, reverse])


def _weights(packed: Mapping[str, PiecewiseArray], fields: Mapping[str, int]) -> Message:
    """Return the fields of the arrays that a layer has, each a message with one packed list of float32 numbers."""
    body: Message = []
    for local, place in fields.items():
        if local in packed:
            body += _field(place, _field(1, [packed[local]]))
    return body


def _function(function: Activation) -> bytes:
    place = _FIELDS[function.name]
    constants = real(1, function.alpha or 0.0) + real(2, function.beta or 0.0) if place in WITH_CONSTANTS else b""
    return field(place, constants)
