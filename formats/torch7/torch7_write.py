"""Torch7's .t7 files, written as torch.save writes them in binary mode.

Source: torch/torch7, File.lua, writeObject; generic/Tensor.c and generic/Storage.c, torch_Tensor_(write) and torch_Storage_(write).
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import IO, Any

import numpy as np

from rnnconvert.containers.files import replacing, write_pieces
from rnnconvert.core.arrays import Array, PiecewiseArray, nbytes
from rnnconvert.core.errors import UsageError
from rnnconvert.formats.torch7.torch7_file import BOOLEAN, NIL, NUMBER, STRING, TABLE, TORCH, TYPES, Object, Torch7Storage

_NAMES = {np.dtype(code): name for name, code in TYPES.items() if name}


def write(path: Path, root: Any) -> None:
    """Write a file that torch.load reads: texts, numbers, truth values, Table, dict, list, Object and arrays.

    Raises UsageError for anything else, or if nothing can be written there.
    """
    with replacing(path) as file:
        _ObjectWriter(file, path).put(root)


class _ObjectWriter:
    """Objects in the order in which they occur, each with a number; one that was met before is its number alone."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.file, self.path = file, path
        self.objects: dict[int, tuple[int, Any]] = {}
        self.count = 0

    def put(self, value: Any) -> None:
        """Write a value."""
        if value is None:
            self._ints(NIL)
        elif isinstance(value, bool):
            self._ints(BOOLEAN, int(value))
        elif isinstance(value, int | float):
            self._ints(NUMBER)
            self.file.write(struct.pack("<d", value))
        elif isinstance(value, str):
            self._ints(STRING)
            self._text(value)
        elif id(value) in self.objects:
            kind = TORCH if isinstance(value, Object | np.ndarray | PiecewiseArray) else TABLE
            self._ints(kind, self.objects[id(value)][0])
        elif isinstance(value, dict | list):
            entries = dict(enumerate(value, 1)) if isinstance(value, list) else value
            self._ints(TABLE, self._number(value), len(entries))
            for key, inner in entries.items():
                self.put(key)
                self.put(inner)
        elif isinstance(value, Object) and value.name != "function":
            self._class(value.name, value)
            self.put(value.fields)
        elif isinstance(value, np.ndarray | PiecewiseArray):
            self._array(value)
        elif isinstance(value, Torch7Storage):
            self._storage(value, value.data)
        else:
            raise UsageError(f"{self.path}: Torch7's files cannot hold {type(value).__name__}")

    def _ints(self, *numbers: int) -> None:
        self.file.write(struct.pack(f"<{len(numbers)}i", *numbers))

    def _longs(self, *numbers: int) -> None:
        self.file.write(struct.pack(f"<{len(numbers)}q", *numbers))

    def _text(self, text: str) -> None:
        raw = text.encode("utf-8", "surrogateescape")
        self._ints(len(raw))
        self.file.write(raw)

    def _number(self, value: Any) -> int:
        self.count += 1
        self.objects[id(value)] = (self.count, value)  # kept, so that no other object gets its place in memory
        return self.count

    def _class(self, name: str, value: Any) -> None:
        self._ints(TORCH, self._number(value))
        self._text("V 1")
        self._text(name)

    def _array(self, array: Array | PiecewiseArray) -> None:
        name = _NAMES.get(array.dtype.newbyteorder("<"))
        if name is None:
            raise UsageError(f"{self.path}: Torch7's files cannot hold elements of type {array.dtype}")
        empty = 0 in array.shape
        shape = () if empty else tuple(array.shape)
        strides = tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape)))
        self._class(f"torch.{name}Tensor", array)
        self._ints(len(shape))
        self._longs(*shape, *strides, 1)
        if empty or not shape:
            self._ints(NIL)
            return
        self._storage(object(), array)

    def _storage(self, value: object, array: Array | PiecewiseArray) -> None:
        self._class(f"torch.{_NAMES[array.dtype.newbyteorder('<')]}Storage", value)
        self._longs(nbytes(array) // array.dtype.itemsize)
        write_pieces(self.file, array)
