"""ncnn models: a .param with its .bin, whose layers LSTM, GRU and RNN are read, and all others as operations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rnnconvert.containers.companions import companion
from rnnconvert.containers.data_files import replacing_both
from rnnconvert.containers.files import ChecksumWriter, check_one_write
from rnnconvert.containers.reading import charging
from rnnconvert.core.arrays import Array, PiecewiseArray, nbytes
from rnnconvert.core.errors import MissingFileError, UnreadableError
from rnnconvert.core.notes import INTEGERS, PASSED, UNREAD, LayerNote
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.files.adapter import Job, Ports, WriteResult, unique, written_layouts, zeros
from rnnconvert.files.checkpoint import Checkpoint, Contents
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.ncnn import param
from rnnconvert.formats.ncnn.export_to import recipe
from rnnconvert.formats.ncnn.lowering import RECURRENT, NcnnNet
from rnnconvert.formats.ncnn.param import Numbers
from rnnconvert.formats.ncnn.stored import INT8, arrays_of
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.packing import pack, unpack
from rnnconvert.recognition.lowered import read_program, recognise_in
from rnnconvert.rewrites import split_stack

NAME = "ncnn"
SUFFIXES = registry.endings(NAME)
ZERO_STATES = True

_GATES = {"lstm": (4, 4), "gru": (3, 4), "rnn": (1, 1)}
"""How many gates the matrices have, and how many blocks the bias."""
_MOST = 1 << 31


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize the number in the first line."""
    if file.head.startswith(param.MAGIC.encode()):
        return FormatClaim(STATED, "a text that begins with ncnn's number")
    return FormatClaim(1, "a .param file, by its ending") if file.path.suffix.lower() == ".param" else None


layouts = written_layouts(NAME)


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent layer. What lies behind a layer of unknown size is named as unread.

    Raises UnreadableError for a damaged file, and where there is no .bin next to it.
    """
    described = param.read(path)
    weights_file = companion(path, path.with_suffix(".bin").name)
    if not weights_file.exists():
        raise MissingFileError(weights_file)
    numbers = Numbers(weights_file)
    for row in described[:1]:
        if row.type == "Input" and param.CHECKSUM in row.parameters:
            check_one_write(path, weights_file, numbers.data, row.integer(param.CHECKSUM, path), param.BITS)
    contents = Contents()
    layers, lost = contents.layers, ""
    arrays: list[Mapping[str, Array]] = []
    rows: dict[str, tuple[int, Recurrent]] = {}
    for place, row in enumerate(described):
        arrays.append({})
        if row.type not in RECURRENT:
            read_numbers = None if lost else arrays_of(row, numbers, path)
            lost = lost or ("" if read_numbers is not None else f"{row.name!r} ({row.type})")
            held, note = read_numbers or ({}, "")
            arrays[-1] = held
            contents.others |= {unique(f"{row.name}/{local}", contents.others): array for local, array in held.items()}
            contents.warnings += [LayerNote(row.name, note, INTEGERS)] if note else []
            continue
        name = unique(row.name, layers)
        if lost:
            contents.unread.append(LayerNote(name, f"its numbers lie behind those of layer {lost}, whose size is unknown here", UNREAD))
            continue
        stored, notes = _stored(path, row, numbers)
        contents.warnings += [LayerNote(name, text, INTEGERS) for text in notes]
        layers[name] = _layer(path, row, name, stored, options)
        rows[name] = place, layers[name]
        if len(row.bottoms) > 1:
            contents.warnings.append(LayerNote(name, "its initial state is given at run time. Pass it yourself", PASSED))
        contents.arrays |= {f"{name}/{local}": array for local, array in stored.items()}
    if not lost and not contents.unread and numbers.at < numbers.data.size:
        raise UnreadableError(weights_file, f"it has {numbers.data.size} bytes, but the layers of {path.name} take {numbers.at}")
    net = NcnnNet(path, described, arrays, rows, path.stat().st_size + numbers.data.nbytes)
    calls = net.calls()
    looked, received = recognise_in(net.program, _LATER, calls.items())
    for name in rows:
        layers[name] = layers[name].replace(calls=received[name])
        contents.evidence.append(f"{name}: a layer {layers[name].cell.kind.upper()}")
    for name, computed in looked.layers.items():
        layers[name] = computed.stack
        contents.warnings += computed.warnings
        contents.evidence.append(computed.evidence)
    if looked.layers or not (layers or contents.unread):
        contents.unread += looked.refusals()
    contents.batch_first = dict.fromkeys(layers, False)
    return contents.checkpoint(path, NAME, options, read=read_program(looked, calls), beside=(str(weights_file),))


_LATER = re.compile(r"$^")
"""What the framework adds to the names of layers: nothing."""


def _stored(path: Path, layer: param.ParamLayer, numbers: Numbers) -> tuple[dict[str, Array], list[str]]:
    """Return the arrays of a layer as numbers, and what a user should know of how they were stored."""
    kind, way = RECURRENT[layer.type], layer.integer(2, path)
    output, size = layer.integer(0, path), layer.integer(1, path)
    hidden = layer.integer(3, path, output) if kind == "lstm" else output
    if way not in (0, 1, 2):
        raise UnreadableError(path, f"layer {layer.name!r} has the direction {way}, expected 0, 1 or 2")
    ways, (gates, blocks) = 1 + (way == 2), _GATES[kind]
    rows = ways * gates * hidden
    if not (0 < output < _MOST and 0 < hidden < _MOST and size > 0) or size % rows:
        raise UnreadableError(path, f"layer {layer.name!r} has {output} outputs, {hidden} units and {size} weights of its input")
    width, what = size // rows, f"the numbers of layer {layer.name!r} ({layer.type})"
    result = {
        "weight_xc_data": numbers.tagged(size, what).reshape(ways, gates * hidden, width),
        "bias_c_data": numbers.tagged(ways * blocks * hidden, what).reshape(ways, blocks * hidden),
        "weight_hc_data": numbers.tagged(rows * output, what).reshape(ways, gates * hidden, output),
    }
    if output != hidden:
        result["weight_hr_data"] = numbers.tagged(ways * output * hidden, what).reshape(ways, output, hidden)
    notes: list[str] = []
    if layer.integer(8, path):
        for local in ("weight_xc_data", "weight_hc_data"):
            scales = numbers.raw(rows, what).reshape(ways, gates * hidden, 1)
            charging(result[local].nbytes).memory(8 * result[local].size, path)
            with np.errstate(all="ignore"):
                result[local] = (result[local] / scales.astype(np.float64)).astype(np.float32)
        notes.append(f"its matrices are {INT8}")
    integers = [local for local, array in result.items() if array.dtype.kind != "f"]
    if integers:
        raise UnreadableError(path, f"{integers[0]} of layer {layer.name!r} are integers without scales")
    if len({array.dtype for array in result.values()}) > 1:
        result = {local: np.asarray(array, np.float32) for local, array in result.items()}
    return result, notes


def _layer(path: Path, layer: param.ParamLayer, name: str, stored: dict[str, Array], options: Options) -> Recurrent:
    stated = {f"parameter {key}": value for key, value in layer.parameters.items()}
    facts = options.facts(name, "its layer", stated)
    facts.take(*(f"parameter {key}" for key in (0, 1, 2, 8, *((3,) if layer.type == "LSTM" else ()))))
    layout = registry.layout(NAME, RECURRENT[layer.type], True if layer.type == "GRU" else None)
    shapes = {local: tuple(array.shape) for local, array in stored.items()}
    sizes = fit(layout, shapes)
    if sizes is None:
        raise UnreadableError(path, f"the weights of {name!r} do not fit together: {misfit([layout], shapes)}")
    unpacked = unpack(layout, sizes, stored)
    way = layer.integer(2, path)
    return Recurrent(
        name,
        (
            Layer(
                tuple(
                    Direction(layout.cell, unpacked[0, number], reverse=number == 1 or way == 1) for number in range(sizes.num_directions)
                )
            ),
        ),
    )


def companions(path: Path) -> tuple[Path, ...]:
    """Return the file of the numbers."""
    return (path.with_suffix(".bin"),)


def write(path: Path, job: Job) -> WriteResult:
    """Write a chain of layers for each stack, with the last states as blobs, and the numbers next to it."""
    rows: list[str] = []
    blobs: list[str] = []
    data: list[tuple[int, PiecewiseArray]] = []
    names: set[str] = set()
    notes = []
    for number, part in enumerate(job.parts):
        below = f"in{number}"
        rows.append(f"Input {below} 0 1 {below}")
        blobs.append(below)
        singles = split_stack(part.stack)
        for place, single in enumerate(singles):
            name = unique(_name(single), names)
            names.add(name)
            tops = [f"out{number}" if place == len(singles) - 1 else f"{name}/y", f"{name}/h_n"]
            tops += [f"{name}/c_n"] if single.cell.kind == "lstm" else []
            packed = pack(part.layout, single, job.dtype, job.watch)
            stated = " ".join(f"{key}={value}" for key, value in parameters(single).items())
            rows.append(f"{part.layout.class_name} {name} 1 {len(tops)} {below} {' '.join(tops)} {stated}")
            blobs += tops
            below = tops[0]
            tag = param.HALF if (job.dtype or single.dtype) == np.float16 else 0
            data += [(tag, packed[local]) for local in ORDER if local in packed]
        notes.append(f"{part.stack.name or 'the layer'}: input in{number} (time, {part.stack.input_size}), output out{number}")
    (weights_file,) = companions(path)
    notes.append(f"its numbers are in {weights_file.name}, which belongs next to it")
    lines = [zeros(f"in{number}", {"time": 7}, part.stack.input_size) for number, part in enumerate(job.parts)]
    read, written = ({name: name for name in (f"{end}{number}" for number in range(len(job.parts)))} for end in ("in", "out"))
    if not job.dry_run:
        with replacing_both(path, weights_file) as (file, numbers):
            summed = ChecksumWriter(numbers)
            for tag, array in data:
                summed.write(tag.to_bytes(4, "little"))
                summed.pieces(array)
                summed.write(bytes(-nbytes(array) % 4))
            rows[0] += f" {param.CHECKSUM}={summed.value & (1 << param.BITS) - 1}"
            file.write("\n".join([param.MAGIC, f"{len(rows)} {len(blobs)}", *rows, ""]).encode())
    return WriteResult(notes, recipe(path, Ports(read, written, lines)), [*job.carried])


def _name(single: Recurrent) -> str:
    """Return a layer's name as ncnn reads it: without spaces and control characters, of at most 255 bytes (paramdict.cpp, sscanf)."""
    printable = "".join(letter if letter.isprintable() and not letter.isspace() else "_" for letter in single.name)
    return printable.strip("_").encode()[:_LONGEST_NAME].decode("utf-8", "ignore") or single.cell.kind


_LONGEST_NAME = 200
ORDER = ("weight_xc_data", "bias_c_data", "weight_hc_data", "weight_hr_data")


def parameters(single: Recurrent) -> dict[int, int]:
    """Return the parameters of a layer by their numbers."""
    directions = single.layers[0].directions
    first = directions[0]
    gates = _GATES[single.cell.kind][0]
    size = len(directions) * gates * first.hidden_size * first.input_size
    way = 2 if len(directions) == 2 else int(first.reverse)
    return {0: first.output_size, 1: size, 2: way} | ({3: first.hidden_size} if first.projection_size else {})
