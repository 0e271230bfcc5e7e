"""C headers: our own, which say in JSON what they hold, and the tables of RNNoise and CMSIS-NN."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers import c_text
from rnnconvert.containers.c_text import CSource
from rnnconvert.containers.files import lowered
from rnnconvert.containers.reading import charging, read_small
from rnnconvert.core.arrays import FLOATS, Array
from rnnconvert.core.cells import Activation, Cell, Clip
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import C_BYTES
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult, unique, written_layouts
from rnnconvert.files.checkpoint import Checkpoint, Contents
from rnnconvert.files.opened import KIND, STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.c_header.layer_code import StoredMatrix, WrittenLayer
from rnnconvert.formats.c_header.layouts import FUNCTIONS
from rnnconvert.formats.c_header.model_read import HeaderModel, whole_model
from rnnconvert.formats.c_header.originals import compared, edited, runnable
from rnnconvert.formats.c_header.tables import FoundLayer, cmsis, rnnoise
from rnnconvert.formats.c_header.write import TAG, text, write_lines
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import assemble, unpack

NAME = "c_header"
SUFFIXES = registry.endings(NAME)

__all__ = ["NAME", "SUFFIXES", "layouts", "read", "recognise", "runnable", "write"]

_MOST = 1e30
"""Constants of functions are smaller."""
_LEAST_CODE, _LARGEST_CODE = -128, 127
"""C holds another number for one that an int8_t has no place for."""
_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_STATED = frozenset({"name", "prefix", "layout", "storage", "dtype", "shapes", "activation", "gate_activation", "output_activation",
                     "clips"})  # fmt: skip


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize our own comment, RNNoise's types and tables as text, and CMSIS-NN's names."""
    if file.head.startswith(_MAGIC):
        return FormatClaim(STATED, "RNNoise's tables as text, as ffmpeg's arnndn loads them")
    if lowered(file.path).suffix not in SUFFIXES:
        return None
    if TAG.encode() in file.head:
        return FormatClaim(STATED, "a C header with rnnconvert's description")
    if b"GRULayer" in file.head or b"rnn_weight" in file.head:
        return FormatClaim(STATED, "C with the types of RNNoise's tables")
    if re.search(rb"_gate_(input_weights|hidden_weights|bias)", file.head):
        return FormatClaim(STATED, "C with the names of CMSIS-NN's LSTM tables")
    return FormatClaim(KIND, "a C source, by its ending")


layouts = written_layouts(NAME)  # those by rows go first


def read(path: Path, options: Options) -> Checkpoint:
    """Return every layer whose tables are there.

    Raises UnreadableError for a damaged file.
    """
    source = _rnnoise_text(path) if Opened(path).head.startswith(_MAGIC) else c_text.read(path)
    contents = Contents()
    layers, warnings, unread = contents.layers, contents.warnings, contents.unread
    used: set[str] = set()
    written: list[WrittenLayer] = []
    for name, layout, layer_arrays, cell, notes, stored in (
        *_ours(path, source, options),
        *rnnoise(path, source),
        *cmsis(path, source, options),
    ):
        if not layer_arrays:
            unread += [LayerNote(name, warning, UNREAD) for warning in notes["warnings"]]
            continue
        called = unique(name, layers)
        shapes = {local: tuple(array.shape) for local, array in layer_arrays.items()}
        sizes = fit(layout, shapes)
        if sizes is None:
            raise UnreadableError(path, f"the arrays of {name!r} do not fit together: {misfit([layout], shapes)}")
        layers[called] = assemble(called, cell, unpack(layout, sizes, layer_arrays), 1)
        if stored is not None:
            prefix, dtype, numbers = stored
            written.append(WrittenLayer(prefix, layout, layers[called].replace(name=name), dtype, numbers))
        contents.arrays |= {f"{called}/{local}": array for local, array in layer_arrays.items()}
        used |= set(notes["arrays"])
        warnings += [LayerNote(called, warning, *notes["kind"]) for warning in notes["warnings"]]
    model = whole_model(path, source, written)
    if model:
        _turn(layers, written, model, unread)
    plain = source.arrays if layers or model else c_text.arrays(source)
    used |= model.used if model else set()
    contents.others = {name: array.astype(np.float32) for name, array in plain.items() if name not in used}
    contents.others |= dict(model.arrays) if model else {}
    contents.evidence = [f"{name}: tables of C" for name in layers]
    original = compared(path, written, model.model if model else None) if written or model else None
    if model:
        warnings.append(model.words)
    if original is not None and original.line:
        warnings.insert(0, f"only its numbers and its description are read: {edited(original.line)}")
    int8 = frozenset(name for name, entry in zip(layers, written, strict=False) if entry.stored.scales)
    parts = tuple(str(file) for file in source.files[1:])
    return contents.checkpoint(path, NAME, options, read=original, beside=parts, int8=int8)


def _turn(layers: dict[str, Recurrent], written: Sequence[WrittenLayer], model: HeaderModel, unread: list[LayerNote]) -> None:
    """Let layers that a model has read their sequences from the end do so; one that it has read them both ways is not read."""
    names = dict(zip((layer.name for layer in written), layers, strict=False))
    for prefix, calls in model.calls.items():
        name, ways = names[prefix], {bool(call["backwards"]) for call in calls}
        if len(ways) > 1:
            del layers[name]
            unread.append(LayerNote(name, "the model has it read sequences from both ends", UNREAD))
        elif ways == {True}:
            (layer,) = layers[name].layers
            (direction,) = layer.directions
            turned = any(call["turned"] for call in calls)
            backward = (replace(layer, directions=(direction.replace(reverse=True),)),)
            layers[name] = layers[name].replace(layers=backward, output_order="processing" if turned else "time")


def _ours(path: Path, source: CSource, options: Options) -> Iterator[FoundLayer]:
    """Yield the layers of a header of our own."""
    if TAG not in source.comment:
        return
    begin = source.comment.index(TAG) + len(TAG)
    try:
        described, _ = json.JSONDecoder().raw_decode(source.comment[begin:].lstrip())
    except (ValueError, RecursionError) as error:
        raise UnreadableError(path, f"its description is not JSON: {error}") from None
    if not isinstance(described, list) or not all(isinstance(entry, dict) for entry in described):
        raise UnreadableError(path, "its description is not a list of layers")
    by_name = {layout.name: layout for layout in layouts(options)}
    named: set[tuple[str, str]] = set()
    for description in described:
        prefix, name = description.get("prefix"), description.get("name")
        layout = by_name.get(str(description.get("layout")))
        if (
            not isinstance(prefix, str)
            or not _PREFIX.fullmatch(prefix)
            or not isinstance(name, str)
            or layout is None
            or not isinstance(description.get("shapes"), dict)
        ):
            raise UnreadableError(path, "its description names no prefix, layout and shapes of a layer")
        # A layer's sizes are macros, whose names are in capitals: two layers of one prefix would have the sizes of one.
        both = {("name", name), ("prefix", prefix.upper())}
        if both & named:
            raise UnreadableError(path, f"its description gives two layers the {min(both & named)[0]} of {name!r}")
        named |= both
        facts = options.facts(name, "its description", description)
        facts.take(*_STATED)
        layer_arrays, used = {}, []
        numbers, scales = dict[str, Array](), dict[str, Array]()
        stored = StoredMatrix(numbers, scales)
        narrow = description.get("storage") == "int8"
        order = [tensor.name for tensor in layout.tensors]
        for local in sorted(description["shapes"], key=lambda each: order.index(each) if each in order else len(order)):
            shape = description["shapes"][local]
            layer_arrays[local], names = _stored(path, source, f"{prefix}_{local}", shape, description, narrow)
            used += names
            numbers[local] = layer_arrays[local]
            if len(names) > 1:
                numbers[local] = source.arrays[names[0]].astype(np.int8).reshape(shape)
                scales[local] = source.arrays[names[1]]
        warnings = ["its matrices are stored as int8, and are read as the float numbers that these stand for"] if narrow else []
        yield (
            name,
            layout,
            layer_arrays,
            _cell(path, layout, description),
            {"arrays": used, "warnings": warnings, "kind": []},
            (prefix, FLOATS[description["dtype"]], stored),
        )


def _stored(path: Path, source: CSource, full: str, shape: Any, entry: Mapping[str, Any], narrow: bool) -> tuple[Array, list[str]]:
    """Return an array of a header of our own, and the names of those that hold it."""
    if full not in source.arrays:
        raise UnreadableError(path, f"it lacks the array {full!r}")
    numbers, dtype = source.arrays[full], FLOATS.get(str(entry.get("dtype")))
    fits = isinstance(shape, list) and 0 < len(shape) < 3 and all(type(length) is int and length > 0 for length in shape)
    if not fits or dtype is None or int(np.prod(shape, dtype=object)) != numbers.size:
        raise UnreadableError(path, f"{full!r} has {numbers.size} numbers, but its description says {shape} of {entry.get('dtype')}")
    if not narrow or len(shape) != 2:
        if dtype == np.float16:
            if ((numbers < 0) | (numbers > 0xFFFF) | (numbers != np.floor(numbers))).any():
                raise UnreadableError(path, f"{full!r} does not hold the 16 bits of half precision")
            return numbers.astype(np.uint16).view(np.float16).reshape(shape), [full]
        return numbers.astype(dtype).reshape(shape), [full]
    scales = source.arrays.get(f"{full}_scale")
    rows = 1 if str(entry.get("layout")).endswith("_columns") else 0
    if scales is None or scales.size != shape[rows]:
        raise UnreadableError(path, f"it lacks the array {full + '_scale'!r} of {shape[rows]} numbers")
    if ((numbers < _LEAST_CODE) | (numbers > _LARGEST_CODE) | (numbers != np.floor(numbers))).any():
        raise UnreadableError(path, f"{full!r} does not hold integers of 8 bits")
    spread = scales.astype(np.float32).reshape((1, -1) if rows else (-1, 1))
    return (numbers.reshape(shape) * spread.astype(np.float64)).astype(dtype), [full, f"{full}_scale"]


def _cell(path: Path, layout: Layout, entry: Mapping[str, Any]) -> Cell:
    functions: dict[str, Any] = {}
    for key in ("activation", "gate_activation", "output_activation"):
        function = entry.get(key)
        if function is None:
            continue
        numbers = (
            isinstance(function, list)
            and len(function) == 3
            and all(value is None or (type(value) in (int, float) and abs(value) < _MOST) for value in function[1:])
        )
        if not numbers or function[0] not in FUNCTIONS:
            raise UnreadableError(path, f"its description has the {key} {function!r}, which is not a function with its constants")
        functions[key] = Activation(*function)
    return layout.cell.replace(**functions, clips=tuple(_clip(path, layout, clip) for clip in entry.get("clips") or ()))


def _clip(path: Path, layout: Layout, stated: Any) -> Clip:
    """Return a clip of a description: its kind and its two bounds."""
    plain = isinstance(stated, list) and len(stated) == 3 and stated[0] in layout.holds.open_clips
    if not plain or not all(type(bound) in (int, float) for bound in stated[1:]) or not stated[1] <= stated[2]:
        raise UnreadableError(path, f"its description has the clip {stated!r}, which is not a kind with its two bounds")
    return Clip(*stated)


def write(path: Path, job: Job) -> WriteResult:
    """Write a header with the layers' arrays and a function for a step of each."""
    lines, notes, recipe = text(path, job)
    if not job.dry_run:
        write_lines(path, lines)
    return WriteResult(notes, recipe, [*job.carried])


# RNNoise's tables as text, in the files that ffmpeg's arnndn and rnnoise-nu load (.rnnn).
# Sources: GregorR/rnnoise-nu, src/rnn_reader.c; FFmpeg, libavfilter/af_arnndn.c, rnnoise_model_from_file.

_MAGIC = b"rnnoise-nu model file version 1"
_LAYERS = (
    ("input_dense", "DenseLayer"), ("vad_gru", "GRULayer"), ("noise_gru", "GRULayer"), ("denoise_gru", "GRULayer"),
    ("denoise_output", "DenseLayer"), ("vad_output", "DenseLayer"),
)  # fmt: skip
_ACTIVATIONS = ("ACTIVATION_TANH", "ACTIVATION_SIGMOID", "ACTIVATION_RELU")
_WIDEST = 128
"""The most inputs or neurons that the programs take."""


def _rnnoise_text(path: Path) -> CSource:
    """Return the tables of a file, under the names that rnn_data.c gives them. Raises UnreadableError.

    After the first line come whole numbers alone: of each layer its inputs, its neurons, its activation, and its tables.
    """
    content = read_small(path, C_BYTES)
    reading = charging(len(content))
    reading.work(len(content) // 4, path)
    reading.memory(8 * len(content), path)
    try:
        numbers = np.array(content.removeprefix(_MAGIC).split(), np.int64)
    except (ValueError, OverflowError):
        raise UnreadableError(path, "after its first line are other things than whole numbers") from None
    source, at = CSource(files=[path]), 0
    for name, kind in _LAYERS:
        header = numbers[at : at + 3].tolist()
        if len(header) < 3 or not all(0 < size <= _WIDEST for size in header[:2]) or not 0 <= header[2] < len(_ACTIVATIONS):
            raise UnreadableError(path, f"it ends before {name!r}, or states the sizes and the activation {header} for it")
        at += 3
        width, units, activation = header
        sizes = {"bias": units, "weights": width * units, "recurrent_weights": units * units}
        order = ("weights", "bias") if kind == "DenseLayer" else ("weights", "recurrent_weights", "bias")
        for local in order:
            size = sizes[local] * (3 if kind == "GRULayer" else 1)
            if at + size > numbers.size:
                raise UnreadableError(path, f"it ends inside the {local} of {name!r}")
            source.arrays[f"{name}_{local}"] = numbers[at : at + size]
            at += size
        tables = [f"{name}_{local}" for local in sizes if local in order]
        source.words[name] = (kind, [*tables, str(width), str(units), _ACTIVATIONS[activation]])
    return source
