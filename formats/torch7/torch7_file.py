"""Torch7's .t7 files: objects as plain data, tensors as views of the mapped file. Functions are stepped over, never run.

A file is one object. Tables, objects of classes and functions have numbers, and a number that was met before stands for
the same thing again: so shared storages stay shared.

Sources: torch/torch7, File.lua (readObject, writeObject), lib/TH/THDiskFile.c; generic/Tensor.c and generic/Storage.c,
torch_Tensor_(write) and torch_Storage_(write).
"""

from __future__ import annotations

import contextlib
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.files import map_file, view
from rnnconvert.containers.reading import charging
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import PATHS_LENGTH, REPEATED_NUMBERS

NIL, NUMBER, STRING, TABLE, TORCH, BOOLEAN = range(6)
"""The tag before each value."""
_FUNCTIONS = (6, 7, 8)
TYPES = {"Byte": "u1", "Char": "i1", "Short": "<i2", "Int": "<i4", "Long": "<i8", "Half": "<f2", "Float": "<f4", "Double": "<f8", "": "<f4"}
"""Element types by Torch7's word for them; CudaTensor, without one, is float."""
_ARRAY = re.compile(r"torch\.(?P<cuda>Cuda)?(?P<type>Byte|Char|Short|Int|Long|Half|Float|Double|)(?P<what>Tensor|Storage)")
# Classes that write themselves in ways of their own: what follows them cannot be found.
_OPAQUE = re.compile(r"tds\.|torch\.(Cl|Generator|Timer|.*File$)")
_MOST_AXES = 64


class LuaTable(dict[Any, Any]):
    """A table of Lua's: keys are texts, numbers (whole ones as int) and other objects. Only itself is equal to it."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other

    def listed(self) -> list[Any]:
        """Return the values under 1, 2, 3 ..., as far as they go."""
        entries: list[Any] = []
        while len(entries) + 1 in self:
            entries.append(self[len(entries) + 1])
        return entries


@dataclass(eq=False)
class Object:
    """An object of a class, and its fields; a function has the class "function" and none."""

    name: str
    fields: LuaTable = field(default_factory=LuaTable)


@dataclass(eq=False)
class Torch7Storage:
    """Numbers one after the other: those of tensors, or a shape."""

    data: Array


def numbers_of(value: Any) -> list[int]:
    """Return the whole numbers in a table, a storage or an array. Raises ValueError for anything else."""
    listed = value.listed() if isinstance(value, LuaTable) else value.data if isinstance(value, Torch7Storage) else value
    if not isinstance(listed, list | np.ndarray):
        raise ValueError(f"no list of numbers: {value!r}")
    return [int(number) for number in np.asarray(listed, np.int64).reshape(-1)]


@dataclass
class _PartialObject:
    """Something whose parts are being read: it is full when `left` parts have come."""

    value: Any
    left: int
    kind: str
    dtype: str = ""
    key: Any = None
    shape: tuple[tuple[int, ...], tuple[int, ...], int] = ((), (), 0)


def looks_like(head: bytes) -> bool:
    """Return whether a file begins as .t7 does in binary mode: with a table or an object, of the number 1."""
    if len(head) < 12:
        return False
    kind, number, size = (int(word) for word in struct.unpack("<iii", head[:12]))
    return number == 1 and 0 <= size < {TABLE: 1 << 24, TORCH: 256}.get(kind, 0)


def read(path: Path) -> Any:
    """Return the content of a file: numbers, texts, Table, Object, and arrays for tensors.

    Raises UnreadableError for damaged files, for text mode, and for classes that cannot be skipped.
    """
    data = map_file(path)
    if re.match(rb"[0-8]\n", data[:2].tobytes()):
        raise UnreadableError(path, "it was saved in ASCII mode", "Load it in Torch7 and save it in binary mode, the usual one.")
    try:
        return _Torch7Reader(data, path, 8).read()
    except UnreadableError as error:
        try:  # 32-bit machines, and Windows, write numbers of 4 bytes where others write 8
            return _Torch7Reader(data, path, 4).read()
        except UnreadableError:
            raise error from None


class _Torch7Reader:
    """One pass over a file, without recursion: chains of objects may be long."""

    def __init__(self, data: Array, path: Path, long: int) -> None:
        self.data, self.path, self.long = data, path, long
        self.bytes = data.data
        self.at = 0
        self.objects: dict[int, Any] = {}
        self.stack: list[_PartialObject] = []
        self._spent = charging(data.size)

    def read(self) -> Any:
        while True:
            value, unfinished = self._value()
            while unfinished:
                if not self.stack:
                    if self.at != len(self.bytes):
                        raise self._wrong(f"{len(self.bytes) - self.at} bytes follow the object")
                    return value
                frame = self.stack[-1]
                unfinished = self._take(frame, value)
                if unfinished:
                    value = self.stack.pop().value

    def _wrong(self, what: str) -> UnreadableError:
        return UnreadableError(self.path, f"{what} (near byte {self.at})")

    def _raw(self, count: int) -> memoryview:
        if count < 0 or count > len(self.bytes) - self.at:
            raise self._wrong(f"{count} bytes should follow, but only {len(self.bytes) - self.at} do")
        self.at += count
        return self.bytes[self.at - count : self.at]

    def _int(self) -> int:
        return int.from_bytes(self._raw(4), "little", signed=True)

    def _long(self) -> int:
        return int.from_bytes(self._raw(self.long), "little", signed=True)

    def _text(self) -> str:
        return bytes(self._raw(self._int())).decode("utf-8", "surrogateescape")

    def _value(self) -> tuple[Any, bool]:
        """Read the next value, and whether it is whole; if not, what waits for its parts is on the stack."""
        self._spent.work(4, self.path)
        kind = self._int()
        if kind == NIL:
            return None, True
        if kind == NUMBER:
            number = struct.unpack("<d", self._raw(8))[0]
            counts = np.isfinite(number) and number == int(number)
            return (int(number) if counts else number), True
        if kind == STRING:
            return self._text(), True
        if kind == BOOLEAN:
            return self._int() == 1, True
        if kind not in (TABLE, TORCH, *_FUNCTIONS):
            raise self._wrong(f"a value of the unknown type {kind}")
        if kind == 6:  # the oldest functions have no number
            self._raw(self._int())
            return self._begin(Object("function"), 1, "upvalues")
        number = self._int()
        if number in self.objects:
            return self.objects[number], True
        if kind in _FUNCTIONS:
            self._raw(self._int())
            self.objects[number] = Object("function")
            return self._begin(self.objects[number], 1, "upvalues")
        if kind == TABLE:
            size = self._int()
            if size < 0 or 8 * size > len(self.bytes) - self.at:
                raise self._wrong(f"a table of {size} entries")
            self.objects[number] = LuaTable()
            return self._begin(self.objects[number], 2 * size, "table")
        return self._object(number)

    def _begin(self, value: Any, left: int, kind: str, **more: Any) -> tuple[Any, bool]:
        if not left:
            return value, True
        self.stack.append(_PartialObject(value, left, kind, **more))
        return None, False

    def _object(self, number: int) -> tuple[Any, bool]:
        name = self._text()
        if re.fullmatch(r"V \d+", name):
            name = self._text()  # files older than versions begin with the class
        match = _ARRAY.fullmatch(name)
        if match is None:
            if _OPAQUE.match(name):
                raise self._wrong(f"an object of the class {name!r}, which serializes itself in its own way")
            self.objects[number] = Object(name)
            return self._begin(self.objects[number], 1, "object")
        dtype = TYPES[match["type"]]
        if match["what"] == "Storage":
            size = self._long()
            if size < 0:
                raise self._wrong(f"a storage of {size} elements")
            item = np.dtype(dtype if not (self.long == 4 and match["type"] == "Long") else "<i4")
            begin = self.at
            self._raw(size * item.itemsize)
            self.objects[number] = Torch7Storage(view(self.data, begin, (size,), item, self.path, name))
            return self.objects[number], True
        axes = self._int()
        if not 0 <= axes <= _MOST_AXES:
            raise self._wrong(f"a tensor of {axes} axes")
        shape, strides = (tuple(self._long() for _ in range(axes)) for _ in range(2))
        offset = self._long() - 1
        self.stack.append(_PartialObject(None, 1, "tensor", dtype, number, (shape, strides, offset)))
        return None, False

    def _take(self, frame: _PartialObject, value: Any) -> bool:
        """Give a value to what waits for it; return whether that is now whole."""
        frame.left -= 1
        if frame.kind == "table":
            if frame.left % 2:
                frame.key = value
            else:
                with contextlib.suppress(TypeError):  # a tensor as a key: nothing is found by it
                    frame.value[frame.key] = value
        elif frame.kind == "object":
            if isinstance(value, LuaTable):
                frame.value.fields = value
            elif value is not None:
                raise self._wrong(f"an object of the class {frame.value.name!r} whose fields are not a table")
        elif frame.kind == "tensor":
            frame.value = self.objects[frame.key] = self._tensor(frame, value)
        return frame.left == 0

    def _tensor(self, frame: _PartialObject, storage: Any) -> Array:
        (shape, strides, offset), dtype = frame.shape, np.dtype(frame.dtype)
        if not shape or 0 in shape:
            few = all(length >= 0 for length in shape) and math.prod(max(length, 1) for length in shape) < 1 << 40
            return np.zeros(shape or (0,), dtype) if few else self._odd(shape)
        if not isinstance(storage, Torch7Storage):
            raise self._wrong(f"a tensor of shape {shape} without a storage")
        reach = sum((length - 1) * step for length, step in zip(shape, strides, strict=True))
        # Steps of zero make much of little: no layer is as large.
        if any(length < 1 for length in shape) or math.prod(shape) > max(REPEATED_NUMBERS, storage.data.size):
            return self._odd(shape)
        if any(step < 0 for step in strides) or offset < 0:
            return self._odd(shape)
        if offset + reach >= storage.data.size:
            raise self._wrong(f"a tensor of shape {shape} that reaches beyond its {storage.data.size} numbers")
        item = storage.data.dtype.itemsize
        return np.lib.stride_tricks.as_strided(storage.data[offset:], shape, tuple(step * item for step in strides), writeable=False)

    def _odd(self, shape: tuple[int, ...]) -> Array:
        raise self._wrong(f"a tensor of shape {shape}, for which no memory could be allocated")


def walk(root: Any, skip: frozenset[str] = frozenset(), file: object = "", seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield everything that can be reached, once: its path, with a slash between the steps, and itself; nearer values first.

    skip  fields that lead nowhere worth seeing
    file  what an error is about
    seen  the ids of what was reached before, which is not reached again; it grows

    Raises UnreadableError where objects are nested very deeply.
    """
    queue: list[tuple[str, Any]] = [("", root)]
    seen = set() if seen is None else seen
    long = 0
    for path, value in queue:
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield path, value
        inner = value.fields if isinstance(value, Object) else value
        if isinstance(inner, LuaTable):
            children = [
                (key, child)
                for key, child in inner.items()
                if isinstance(key, str | int) and key not in skip and isinstance(child, LuaTable | Object | np.ndarray)
            ]
            long += sum(len(path) + len(str(key)) for key, _ in children)
            if long > PATHS_LENGTH:
                raise UnreadableError(file, f"its {len(seen)} objects and more are nested too deep")
            queue += [(f"{path}/{key}".lstrip("/"), child) for key, child in children]
