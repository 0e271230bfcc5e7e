"""Paddle's program in protobuf: Fluid's next to its parameters (`__model__`), and Paddle 2's (`.pdmodel`).

Only the attributes of operators and the names and shapes of variables are read; nothing runs.

Source: paddle/fluid/framework/framework.proto (1.8, 2.6), ProgramDesc, BlockDesc, OpDesc and VarDesc; python/paddle/fluid/layers/nn.py, fc.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rnnconvert.containers import wire
from rnnconvert.containers.files import map_file
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import PROGRAM_BYTES
from rnnconvert.formats.paddle import lod_tensor

_RECURRENT = ("gru", "lstm")
_LOD_TENSOR = 7
"""VarType.Type of a tensor."""
_SIMPLE = {3: "whole", 4: "real", 5: "text", 10: "truth", 13: "whole"}
"""OpDesc.Attr's fields of single values: int32, float, text, bool and int64."""

_LISTS = (6, 15)
"""Its fields of whole numbers in a row: int32 and int64."""

_REALS = 7
"""Its field of real numbers in a row."""

Value = str | float | bool


@dataclass(frozen=True)
class ProgramOperator:
    """One operator: its type, the variables that it reads and writes by parameter, its attributes that are one value, those that are
    whole numbers or real ones in a row, and the names of all others.
    """

    type: str
    inputs: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, tuple[str, ...]]
    attributes: Mapping[str, Value]
    lists: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    reals: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    others: frozenset[str] = frozenset()

    def read(self, parameter: str) -> str:
        """Return the one variable that is read as a parameter, or ""."""
        names = self.inputs.get(parameter, ())
        return names[0] if len(names) == 1 else ""


@dataclass(frozen=True)
class LayerStatement:
    """A program's statements about a recurrent layer.

    operator  its operator
    fc        the name of the fc before it, "" if something else gives its input
    reads     the variable that this fc reads
    """

    operator: ProgramOperator
    fc: str
    reads: str = ""


def program_in(folder: Path) -> Path | None:
    """Return the program of a folder of parameters, if it is there."""
    names = ("__model__", "model")
    matches = [folder / name for name in names if (folder / name).is_file()] + sorted(folder.glob("*.pdmodel"))
    return matches[0] if matches else None


@dataclass(frozen=True)
class StatedProgram:
    """A model's graphs, the first of which runs the others: their operators in order, the shapes of all parameters by name, those of
    other variables that it states, -1 for a length that is open, and the element types of all: numbers of VarType.Type, or words.
    """

    path: Path
    graphs: tuple[tuple[ProgramOperator, ...], ...]
    parameters: Mapping[str, tuple[int, ...]]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    types: Mapping[str, int | str] = field(default_factory=dict)


def read(path: Path) -> StatedProgram:
    """Return the statements of a program. Raises UnreadableError for a file that is not one."""
    data = map_file(path)
    if data.size > PROGRAM_BYTES:
        raise UnreadableError(path, f"the program has {data.size} bytes, more than the limit of {PROGRAM_BYTES}")
    graphs: list[tuple[ProgramOperator, ...]] = []
    parameters: dict[str, tuple[int, ...]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    types: dict[str, int | str] = {}
    for number, block in wire.fields(data.data, path):
        if number != 1:
            continue
        fields = list(wire.fields(block, path))
        graphs.append(tuple(_operator(content, path) for which, content in fields if which == 4))
        for described in (_variable(content, path) for which, content in fields if which == 3):
            if described is not None:
                name, shape, stored, types[name] = described
                (parameters if stored else shapes)[name] = shape
    return StatedProgram(path, tuple(graphs), parameters, shapes, types)


def _variable(content: memoryview, path: Path) -> tuple[str, tuple[int, ...], bool, int] | None:
    """Return the name and shape of a tensor, whether it is stored, and its element type; None for another variable."""
    fields = dict(wire.values(content, path))
    name, kind = fields.get(1), fields.get(2)
    if not isinstance(name, memoryview) or not isinstance(kind, memoryview):
        return None
    tensor = dict(wire.values(kind, path))
    described = tensor.get(3)
    if tensor.get(1) != _LOD_TENSOR or not isinstance(described, memoryview):
        return None
    dtype, shape = -1, list[int]()
    for number, inner in wire.values(described, path):
        if number == 1 and isinstance(inner, memoryview):
            dtype, shape = lod_tensor.described(bytes(inner), path)
    return wire.text_of(name, path), tuple(shape), fields.get(3) == 1, dtype


def stated(program: StatedProgram) -> dict[str, list[LayerStatement]]:
    """Return a program's statements about each use of a recurrent weight, by the weight's name."""
    uses: dict[str, list[LayerStatement]] = {}
    for operators in program.graphs:
        makes = {name: operator for operator in operators for names in operator.outputs.values() for name in names}
        for recurrent in operators:
            if recurrent.type in _RECURRENT and recurrent.read("Weight"):
                uses.setdefault(recurrent.read("Weight"), []).append(LayerStatement(recurrent, *_fc(recurrent, makes)))
    return uses


def _fc(operator: ProgramOperator, makes: Mapping[str, ProgramOperator]) -> tuple[str, str]:
    """Return the fc that makes an operator's input, and what it reads: a product with its weight, and the sum with its bias where it
    has one.
    """
    before = makes.get(operator.read("Input"))
    if before is not None and before.type == "elementwise_add" and before.read("Y").endswith(".b_0"):
        before = makes.get(before.read("X"))
    weight = before.read("Y") if before is not None and before.type in ("mul", "matmul") else ""
    if before is None or not weight.endswith(".w_0"):
        return "", ""
    return weight.removesuffix(".w_0"), before.read("X")


def _operator(content: memoryview, path: Path) -> ProgramOperator:
    kind = ""
    sides: dict[int, dict[str, tuple[str, ...]]] = {1: {}, 2: {}}
    attributes: dict[str, Value] = {}
    lists: dict[str, tuple[int, ...]] = {}
    reals: dict[str, tuple[float, ...]] = {}
    others = set[str]()
    for number, value in wire.fields(content, path):
        if number == 3:
            kind = wire.text_of(value, path)
        elif number in sides:
            words = list(wire.fields(value, path))
            parameter = next((wire.text_of(part, path) for which, part in words if which == 1), "")
            sides[number][parameter] = tuple(wire.text_of(part, path) for which, part in words if which == 2)
        elif number == 4:
            name, single, row, real, other = _attribute(value, path)
            if single is not None:
                attributes[name] = single
            elif real:
                reals[name] = real
            elif other:
                others.add(name)
            else:
                lists[name] = row
    return ProgramOperator(kind, sides[1], sides[2], attributes, lists, reals, frozenset(others))


def _attribute(content: memoryview, path: Path) -> tuple[str, Value | None, tuple[int, ...], tuple[float, ...], bool]:
    """Return an attribute: its name, its value where it is one, whole or real numbers in a row, and whether it is anything else."""
    name, single, row, reals, other = "", None, list[int](), list[float](), False
    for number, value in wire.values(content, path):
        if number == 1 and isinstance(value, memoryview):
            name = wire.text_of(value, path)
        elif number in _LISTS and isinstance(value, int):  # proto2 writes them one by one
            row.append(wire.signed(value))
        elif number == _REALS and isinstance(value, int):
            reals.append(_real(value))
        elif number in _SIMPLE:
            single = _single(number, value, path)
        elif number > 2:
            other = True
    return name, single, tuple(row), tuple(reals), other


def _real(bits: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]
    return value


def _single(number: int, value: int | memoryview, path: Path) -> Value:
    """Return the value of a field of OpDesc.Attr."""
    if isinstance(value, memoryview):
        return wire.text_of(value, path)
    typed: Value = {"truth": bool(value), "real": _real(value), "whole": wire.signed(value)}.get(_SIMPLE[number], value)
    return typed
