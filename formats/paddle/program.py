"""Fluid's program next to its parameters (`__model__`): what the operators of recurrent layers state.

Only their attributes and the names of their variables are read; nothing runs.

Source: paddle/fluid/framework/framework.proto (1.8), ProgramDesc, BlockDesc and OpDesc; python/paddle/fluid/layers/nn.py, fc.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rnnconvert.containers import wire
from rnnconvert.containers.files import map_file
from rnnconvert.core.errors import UnreadableError

MOST = 1 << 28
"""The most bytes of a program."""

_RECURRENT = ("gru", "lstm")
_SIMPLE = {3: "whole", 4: "real", 5: "text", 10: "truth", 13: "whole"}
"""OpDesc.Attr's fields of single values: int32, float, text, bool and int64."""

Value = str | float | bool


@dataclass(frozen=True)
class Operator:
    """One operator: its type, the variables that it reads and writes by parameter, and its attributes that are one value."""

    type: str
    inputs: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, tuple[str, ...]]
    attributes: Mapping[str, Value]

    def read(self, parameter: str) -> str:
        """Return the one variable that is read as a parameter, or ""."""
        names = self.inputs.get(parameter, ())
        return names[0] if len(names) == 1 else ""


@dataclass(frozen=True)
class Stated:
    """What a program states about a recurrent layer.

    operator  its operator
    fc        the name of the fc before it, "" where something else gives its input
    """

    operator: Operator
    fc: str


def beside(folder: Path) -> Path | None:
    """Return the program of a folder of parameters, if it is there."""
    names = ("__model__", "model")
    found = [folder / name for name in names if (folder / name).is_file()] + sorted(folder.glob("*.pdmodel"))
    return found[0] if found else None


def read(path: Path) -> dict[str, list[Stated]]:
    """Return what a program states about each use of a recurrent weight, by the weight's name.

    Raises UnreadableError for a file that is not a program.
    """
    data = map_file(path)
    if data.size > MOST:
        raise UnreadableError(path, f"the program has {data.size} bytes, more than the limit of {MOST}")
    found: dict[str, list[Stated]] = {}
    for number, block in wire.fields(data.data, path):
        if number != 1:
            continue
        operators = [_operator(content, path) for which, content in wire.fields(block, path) if which == 4]
        makes = {name: one for one in operators for names in one.outputs.values() for name in names}
        for one in operators:
            if one.type in _RECURRENT and one.read("Weight"):
                found.setdefault(one.read("Weight"), []).append(Stated(one, _fc(one, makes)))
    return found


def _fc(operator: Operator, makes: Mapping[str, Operator]) -> str:
    """Return the fc that makes an operator's input: a product with its weight, and the sum with its bias where it has one."""
    before = makes.get(operator.read("Input"))
    if before is not None and before.type == "elementwise_add" and before.read("Y").endswith(".b_0"):
        before = makes.get(before.read("X"))
    weight = before.read("Y") if before is not None and before.type in ("mul", "matmul") else ""
    return weight.removesuffix(".w_0") if weight.endswith(".w_0") else ""


def _operator(content: memoryview, path: Path) -> Operator:
    kind = ""
    sides: dict[int, dict[str, tuple[str, ...]]] = {1: {}, 2: {}}
    attributes: dict[str, Value] = {}
    for number, value in wire.fields(content, path):
        if number == 3:
            kind = _text(value, path)
        elif number in sides:
            words = list(wire.fields(value, path))
            parameter = next((_text(one, path) for which, one in words if which == 1), "")
            sides[number][parameter] = tuple(_text(one, path) for which, one in words if which == 2)
        elif number == 4:
            attributes |= _attribute(value, path)
    return Operator(kind, sides[1], sides[2], attributes)


def _attribute(content: memoryview, path: Path) -> dict[str, Value]:
    """Return an attribute by its name, where it is one value; an empty dictionary for lists and blocks."""
    said = dict(wire.values(content, path))
    name = said.get(1)
    for number, sort in _SIMPLE.items():
        value = said.get(number)
        if value is None or not isinstance(name, memoryview):
            continue
        if isinstance(value, memoryview):
            return {_text(name, path): _text(value, path)}
        real = struct.unpack("<f", struct.pack("<I", value & 0xFFFFFFFF))[0]
        made: Value = {"truth": bool(value), "real": real, "whole": wire.signed(value)}.get(sort, value)
        return {_text(name, path): made}
    return {}


def _text(content: memoryview, path: Path) -> str:
    try:
        return bytes(content).decode()
    except UnicodeDecodeError:
        raise UnreadableError(path, f"{bytes(content[:40])!r} is not valid text") from None
