"""Programs of Core ML as bytes: types, operations with their arguments, values, blocks.

Source: apple/coremltools, mlmodel/format/MIL.proto.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rnnconvert.containers.wire import field, varint
from rnnconvert.core.arrays import Array
from rnnconvert.files.adapter import unique
from rnnconvert.formats.coreml.encode import entry, number, text
from rnnconvert.formats.coreml.package import PLACE

CODES: Mapping[str, int] = {"bool": 1, "str": 2, "fp16": 10, "fp32": 11, "int8": 21, "int32": 23}
"""The element types of MIL.proto by the names that coremltools has for them."""
_STORED: Mapping[str, tuple[int, str]] = {"fp32": (1, "<f4"), "fp16": (7, "<f2"), "int8": (7, "i1")}
"""Where a value in the program itself holds the numbers of a type, and how they lie there."""


def tensor(dtype: str, shape: Sequence[int | None] = ()) -> bytes:
    """Return the type of a tensor; None is a length that is not known."""
    lengths = [field(3, field(2, b"") if length is None else field(1, number(1, length))) for length in shape]
    return field(1, number(1, CODES[dtype]) + (number(2, len(shape)) if shape else b"") + b"".join(lengths))


def named(name: str, kind: bytes) -> bytes:
    """Return a name with a type."""
    return text(1, name) + field(2, kind)


def word(value: str) -> bytes:
    """Return a text as a value."""
    return field(2, tensor("str")) + field(3, field(1, field(4, text(1, value))))


def immediate(dtype: str, array: Array) -> bytes:
    """Return numbers or truths as a value that lies in the program itself."""
    if dtype in _STORED:
        place, stored = _STORED[dtype]
        content = field(place, field(1, np.ascontiguousarray(array, stored).tobytes()))
    else:
        place = 3 if dtype == "bool" else 2
        content = field(place, field(1, b"".join(varint(int(value) & 0xFFFFFFFFFFFFFFFF) for value in array.reshape(-1))))
    return field(2, tensor(dtype, array.shape)) + field(3, field(1, content))


def in_file(dtype: str, shape: Sequence[int], offset: int) -> bytes:
    """Return numbers as a value that lies in the file of weights, by the place of its header there."""
    return field(2, tensor(dtype, shape)) + field(5, text(1, PLACE) + number(2, offset))


def operation(
    kind: str,
    name: str,
    inputs: Mapping[str, Sequence[str]],
    outputs: Iterable[tuple[str, bytes]],
    attributes: Mapping[str, bytes] | None = None,
    blocks: Iterable[bytes] = (),
) -> bytes:
    """Return an operation.

    inputs   the names that it reads, by parameter
    outputs  the names that it gives, with their types
    """
    arguments = b"".join(
        entry(2, parameter, b"".join(field(1, text(1, source)) for source in sources)) for parameter, sources in inputs.items()
    )
    output_fields = b"".join(field(3, named(*output)) for output in outputs)
    inner = b"".join(field(4, each) for each in blocks)
    stated = {"name": word(name), **(attributes or {})}
    return text(1, kind) + arguments + output_fields + inner + b"".join(entry(5, key, value) for key, value in stated.items())


def block(operations: Iterable[bytes], outputs: Iterable[str], inputs: Iterable[tuple[str, bytes]] = ()) -> bytes:
    """Return a block: what a function, a loop or its condition computes."""
    return (
        b"".join(field(1, named(*each)) for each in inputs)
        + b"".join(text(2, name) for name in outputs)
        + b"".join(field(3, each) for each in operations)
    )


def program(opset: str, inputs: Iterable[tuple[str, bytes]], main: bytes) -> bytes:
    """Return a program of one function."""
    function = b"".join(field(1, named(*each)) for each in inputs) + text(2, opset) + entry(3, opset, main)
    return number(1, 1) + entry(2, "main", function)


class ProgramNames:
    """The names of a program, each output_fields once."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def unique(self, wanted: str) -> str:
        """Return a name that no value has, of letters, digits and underscores."""
        free = unique(plain(wanted), self._used)
        self._used.add(free)
        return free


def plain(name: str) -> str:
    """Return a name that a program may have: letters, digits and underscores."""
    letters = re.sub(r"\W", "_", name, flags=re.ASCII) or "rnn"
    return letters if not letters[0].isdigit() else f"_{letters}"
