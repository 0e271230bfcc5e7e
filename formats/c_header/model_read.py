"""A header of a whole model, read again: what its description says, checked, and the arrays of its layers.

Nothing of the description becomes code but what the writer itself makes of it: words are among those that it knows, numbers are numbers.
"""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.c_text import CSource
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import LAYER_CALLS
from rnnconvert.formats.c_header.layer_code import StoredMatrix, WrittenLayer
from rnnconvert.formats.c_header.model_code import MODEL_TAG, STORAGES, ModelPort, WrittenModel, matrices
from rnnconvert.formats.c_header.program import Settings, StepProgram, StepValues, TimeAxis
from rnnconvert.formats.c_header.sequence_operations import KINDS
from rnnconvert.formats.c_header.target import BATCH, TIME

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_LARGEST_CODE = 127


@dataclass(frozen=True)
class HeaderModel:
    """A whole model of a header.

    model   as the writer takes it
    arrays  the arrays of its layers without recurrence, as the numbers that they stand for
    used    the names of the arrays that hold them
    """

    model: WrittenModel
    arrays: Mapping[str, Array]
    used: frozenset[str]

    @property
    def words(self) -> str:
        """The contents of the header in addition to its recurrent layers."""
        kinds = collections.Counter(each.kind for each in self.model.program.operations if each.kind != "recurrent")
        listed = ", ".join(f"{kind} ({count})" if count > 1 else kind for kind, count in kinds.items())
        return f"the header is a whole model, {self.model.name}_run; beside its recurrent layers it computes: {listed or 'nothing'}"

    @property
    def calls(self) -> Mapping[str, Sequence[Settings]]:
        """The calls of each recurrent layer, by its name in C, each as the settings of its operation."""
        result: dict[str, list[Settings]] = {}
        for operation in self.model.program.operations:
            if operation.kind == "recurrent":
                result.setdefault(operation.name, []).append(operation.settings)
        return result


def whole_model(path: Path, source: CSource, layers: list[WrittenLayer]) -> HeaderModel | None:
    """Return the whole model of a header, None where it holds layers alone.

    layers  its recurrent layers

    Raises UnreadableError for a description that is not what the writer makes.
    """
    if MODEL_TAG not in source.comment:
        return None
    begin = source.comment.index(MODEL_TAG) + len(MODEL_TAG)
    try:
        stated, _ = json.JSONDecoder().raw_decode(source.comment[begin:].lstrip())
        return _model(source, stated, layers)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(path, f"its description of the whole model is damaged: {error}") from None


def _model(source: CSource, stated: Any, layers: list[WrittenLayer]) -> HeaderModel:
    """Return a model as its description states it. Raises ValueError for a damaged one."""
    name, storage, stateful, inputs, axes, outputs, operations = _fields(
        stated, {"calls"}, name=str, storage=str, stateful=bool, inputs=list, axes=list, outputs=list, operations=list
    )
    if not _NAME.fullmatch(name) or storage not in STORAGES or len(operations) > LAYER_CALLS or not inputs:
        raise ValueError("its name, its storage, or how many operations it has")
    program = StepProgram(KINDS)
    for length in axes:
        if length is not None and (type(length) is not int or not 0 < length < 1 << 24):
            raise ValueError("the length of a time axis")
        program.axes.append(TimeAxis(length))
    for layer in layers:
        first = layer.stack.first
        program.layers[layer.name] = (first.input_size, first.output_size, first.hidden_size if first.cell.kind == "lstm" else 0)
    ports = []
    for number, entry in enumerate(inputs):
        called, kinds, integral, size = _fields(entry, {"time"}, name=str, axes=list, whole=bool, size=int)
        time = entry["time"]
        if time is not None and (type(time) is not int or not 0 <= time < len(axes)):
            raise ValueError("the time axis of an input")
        if not 0 < size < 1 << 24:
            raise ValueError("the size of an input")
        program.values.append(StepValues(size, time, integral))
        ports.append(ModelPort(called, number, _axes(kinds, size, time is not None)))
    for entry in operations:
        if not (isinstance(entry, list) and len(entry) == 4 and isinstance(entry[1], list) and isinstance(entry[3], dict)):
            raise ValueError("an operation")
        kind, reads, called, settings = entry
        if not isinstance(kind, str) or not isinstance(called, str) or (called and not _NAME.fullmatch(called)):
            raise ValueError("the name of an operation")
        program.add(kind, reads, called, settings)
    results = []
    for entry in outputs:
        called, value, kinds = _fields(entry, name=str, value=int, axes=list)
        if not 0 <= value < len(program.values):
            raise ValueError("the value of an output")
        results.append(ModelPort(called, value, _axes(kinds, program.values[value].size, program.values[value].time is not None)))
    stored, arrays, used = {}, dict[str, Array](), set[str]()
    for called, shapes in program.arrays().items():
        narrow = matrices(shapes) if storage == "int8" else []
        numbers, scales = dict[str, Array](), dict[str, Array]()
        for local, shape in shapes.items():
            full = f"{called}_{local}"
            numbers[local] = _numbers(source, full, shape, storage, local in narrow)
            used.add(full)
            if local in narrow:
                scales[local] = _array(source, f"{full}_scale", (shape[0],)).astype(np.float32)
                used.add(f"{full}_scale")
            wide = numbers[local].astype(np.float64) * scales[local][:, None] if local in narrow else numbers[local]
            arrays[full] = wide.astype(np.float32) if local in narrow else wide
        stored[called] = StoredMatrix(numbers, scales)
    return HeaderModel(WrittenModel(name, program, ports, results, storage, stateful, stored), arrays, frozenset(used))


def _fields(entry: Any, more: set[str] | None = None, **kinds: type) -> list[Any]:
    """Return the fields of a description, each of its type. Raises ValueError for others, and for more."""
    if not isinstance(entry, dict) or set(entry) != {*kinds, *(more or set())} or any(type(entry[key]) is not kinds[key] for key in kinds):
        raise ValueError("what it states of itself, of an input or of an output")
    return [entry[key] for key in kinds]


def _axes(stated: list[Any], size: int, timed: bool) -> tuple[str | int, ...]:
    """Return axes. Raises ValueError if they are not the axes of a value."""
    lengths = [axis for axis in stated if type(axis) is int]
    words = [axis for axis in stated if type(axis) is not int]
    product = int(np.prod(lengths, dtype=object)) if lengths else 1
    if words not in ([BATCH], [BATCH, TIME], [TIME, BATCH], [TIME], []) or product != size or (TIME in words) != timed:
        raise ValueError("the axes of an input or an output")
    return tuple(stated)


def _array(source: CSource, full: str, shape: tuple[int, ...]) -> Array:
    """Return an array of the header. Raises ValueError where it is missing, or has another size."""
    numbers = source.arrays.get(full)
    if numbers is None or numbers.size != int(np.prod(shape, dtype=object)):
        raise ValueError(f"the array {full!r} is missing, or has another size than {shape}")
    return numbers.reshape(shape)


def _numbers(source: CSource, full: str, shape: tuple[int, ...], storage: str, narrow: bool) -> Array:
    """Return an array as it is stored. Raises ValueError for numbers that its type has no place for."""
    numbers = _array(source, full, shape)
    if not narrow and storage != "float16":
        return numbers.astype({"int8": "float32"}.get(storage, storage))
    low, high = (-_LARGEST_CODE - 1, _LARGEST_CODE) if narrow else (0, 0xFFFF)
    if not ((numbers >= low) & (numbers <= high) & (numbers == np.floor(numbers))).all():
        raise ValueError(f"the array {full!r} holds numbers that its type has no place for")
    return numbers.astype(np.int8) if narrow else numbers.astype(np.uint16).view(np.float16)
