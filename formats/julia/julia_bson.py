"""BSON.jl's files of Julia's values: decoded as plain BSON, without building any type that they name.

BSON.jl itself builds any type that a file asks for, and runs code in doing so. Here pymongo's `bson` decodes a file,
and its documents are only inspected.

Source: JuliaIO/BSON.jl, src/extensions.jl and src/write.jl. An array is {tag: "array", type, size, data}, its data in column-major order; a
tuple {tag: "tuple", data}; a struct {tag: "struct", type, data} without the names of its fields, but a named tuple's names are the first
parameter of its type; a value that several places share is in `_backrefs`, and {tag: "backref", ref} counts from 1 into that.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.files import lowered, map_file, shaped
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import MissingPackageError, UnreadableError
from rnnconvert.core.limits import NESTING
from rnnconvert.core.names import first_twice
from rnnconvert.core.version import requirement
from rnnconvert.formats.julia.julia_tree import ELEMENTS, Tree, below

LARGEST = (1 << 31) - 1
"""A document's length is a signed number of 32 bits."""

_DICTIONARIES = ("Dict", "IdDict", "OrderedDict", "Dictionary")
_REMEDY = "It is truncated, damaged or not a file of BSON.jl; save it again."


def looks_like(path: Path, head: bytes) -> bool:
    """Return whether a file is a BSON document with values as BSON.jl writes them; cut or not, if its name says so."""
    sized = len(head) > 4 and int.from_bytes(head[:4], "little") == path.stat().st_size
    tagged = b"\x02tag\x00" in head  # behind the numbers of a large first array it would not be met here
    return (sized and tagged) or (lowered(path).suffix == ".bson" and (sized or tagged))


def read(path: str | os.PathLike[str]) -> Stored:
    """Return every array by its path, as Julia shapes it; in metadata "values", "types" and "unreadable", as in a Tree.

    Raises UnreadableError for a damaged file, MissingPackageError without pymongo.
    """
    data = map_file(path)
    if data.size > LARGEST:
        raise UnreadableError(path, f"it has {data.size} bytes, but a BSON document has at most {LARGEST}")
    bson = import_bson()
    try:
        document = bson.decode(data.tobytes(), codec_options=bson.CodecOptions(document_class=_Document))
    except Exception as error:  # the library lets errors of several types through on damaged bytes
        raise UnreadableError(path, f"not a valid BSON document: {str(error)[:200].rstrip('.')}", _REMEDY) from None
    return _BsonReader(path, document).read()


def import_bson() -> Any:
    try:
        bson: Any = importlib.import_module("bson")
        bson.Int64, bson.decode  # noqa: B018 - another package of the same name has neither
    except (ImportError, AttributeError):
        raise MissingPackageError(
            "pymongo", "read and write files of BSON.jl", f"Install it with: pip install {requirement('julia')}"
        ) from None
    return bson


class _Document(dict[str, Any]):
    """A document on its way, which takes one value for each name."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self:
            raise ValueError(f"two things in it have the name {name!r}")
        super().__setitem__(name, value)


class _BsonReader:
    """One walk over one decoded file."""

    def __init__(self, path: object, document: dict[str, Any]) -> None:
        self._tree = Tree(path)
        self._shared = document.pop("_backrefs", [])
        self._document = document
        self._decoded: dict[int, Array] = {}
        if not isinstance(self._shared, list):
            raise UnreadableError(path, "its _backrefs are not a list", _REMEDY)

    def read(self) -> Stored:
        for name, value in self._document.items():
            self._value(value, name)
        return self._tree.stored()

    def _resolved(self, value: Any, where: str) -> Any:
        """Return a value, or the one that it refers to."""
        for _ in range(NESTING):
            if not isinstance(value, dict) or value.get("tag") != "backref":
                return value
            number = value.get("ref")
            if not isinstance(number, int) or not 1 <= number <= len(self._shared):
                count = len(self._shared)
                raise self._damaged(where, f"refers to shared value {number!r}, but there are {count}")
            value = self._shared[number - 1]
        raise self._damaged(where, "refers to itself")

    def _damaged(self, where: str, problem: str) -> UnreadableError:
        return UnreadableError(self._tree.path, f"{where[:200]!r} {problem}", _REMEDY)

    def _value(self, value: Any, where: str) -> None:
        value = self._resolved(value, where)
        with self._tree.visit(where, id(value) if isinstance(value, (dict, list)) else object()) as new:
            if not new:
                return
            if isinstance(value, bytes):
                self._tree.arrays[where] = np.frombuffer(value, np.uint8)
            elif isinstance(value, list):
                self._children(dict(enumerate(value, 1)), where)
            elif not isinstance(value, dict):
                self._tree.values[where] = value
            elif value.get("tag") == "array":
                self._array(value, where)
            elif value.get("tag") in ("tuple", "svec"):
                self._children(dict(enumerate(self._list(value, where), 1)), where)
            elif value.get("tag") == "struct":
                self._struct(value, where)
            elif value.get("tag") == "symbol":
                self._tree.values[where] = str(value.get("name"))
            elif value.get("tag") == "datatype":
                self._tree.values[where] = self._type_name(value, where)
            elif isinstance(value.get("tag"), str):
                self._tree.unreadable[where] = f"a value of the kind {value['tag'][:60]!r}"
            else:
                self._children(value, where)

    def _children(self, children: Mapping[Any, Any], where: str) -> None:
        for name, child in children.items():
            self._value(child, below(where, name))

    def _list(self, value: dict[str, Any], where: str) -> list[Any]:
        data = self._resolved(value.get("data"), where)
        if data is None:
            return []
        if not isinstance(data, list):
            raise self._damaged(where, f"is a {value['tag']} with data of the type {type(data).__name__}")
        return data

    def _struct(self, value: dict[str, Any], where: str) -> None:
        kind = self._resolved(value.get("type"), where)
        words = self._type_words(kind, where)
        name = words[-1]
        if isinstance(value.get("data"), bytes):
            self._tree.unreadable[where] = f"a value of the type {name}"
            return
        fields = self._list(value, where)
        if name.startswith("#") and not fields:  # the type of a function has its name
            self._tree.values[where] = name.lstrip("#")
        elif name == "NamedTuple":
            names = self._names(kind, where)
            if len(names) != len(fields):
                raise self._damaged(where, f"has {len(names)} names and {len(fields)} values")
            self._children(self._apart(names, fields, where), where)
        elif name in _DICTIONARIES and len(fields) == 2:
            keys, values = (self._resolved(field_, where) for field_ in fields)
            if not isinstance(keys, list) or not isinstance(values, list) or len(keys) != len(values):
                self._tree.unreadable[where] = f"a {name} whose keys and values do not match"
            elif any(self._is_object(key) for key in keys):
                self._tree.unreadable[where] = f"a {name} whose keys are arrays, as in the state of an optimizer"
            else:
                self._children(self._apart([self._key(key, where) for key in keys], values, where), where)
        else:
            self._tree.types[where] = (words, len(fields))
            self._children(dict(enumerate(fields, 1)), where)

    def _apart(self, names: list[str], values: list[Any], where: str) -> dict[str, Any]:
        """Return values by their names. Raises UnreadableError where two have one name."""
        twice = first_twice(names)
        if twice is not None:
            raise self._damaged(where, f"has two values of the name {twice[:60]!r}")
        return dict(zip(names, values, strict=True))

    def _is_object(self, key: Any) -> bool:
        """Return whether a key is neither a name nor a number."""
        key = self._resolved(key, "a key")
        return isinstance(key, list) or (isinstance(key, dict) and key.get("tag") != "symbol")

    def _key(self, key: Any, where: str) -> str:
        key = self._resolved(key, where)
        return str(key.get("name") if isinstance(key, dict) else key)

    def _names(self, kind: dict[str, Any], where: str) -> list[str]:
        """Return the names of a named tuple's fields: symbols, the first parameter of its type."""
        parameters = self._resolved(kind.get("params"), where)
        first = self._resolved(parameters[0], where) if isinstance(parameters, list) and parameters else None
        if not isinstance(first, dict):
            raise self._damaged(where, "is a named tuple without names")
        return [self._key(symbol, where) for symbol in self._list({"tag": "tuple", **first}, where)]

    def _type_name(self, kind: Any, where: str) -> str:
        """Return the last word of a type's name; the words before it vary between versions."""
        return self._type_words(kind, where)[-1]

    def _type_words(self, kind: Any, where: str) -> tuple[str, ...]:
        kind = self._resolved(kind, where)
        name = kind.get("name") if isinstance(kind, dict) else None
        return tuple(map(str, name)) if isinstance(name, list) and name else ("a type without a name",)

    def _array(self, value: dict[str, Any], where: str) -> None:
        if id(value) in self._decoded:
            self._tree.arrays[where] = self._decoded[id(value)]
            return
        data, size = self._resolved(value.get("data"), where), self._resolved(value.get("size"), where)
        if isinstance(data, list):
            self._children(dict(enumerate(data, 1)), where)
            return
        kind = self._type_name(value.get("type"), where)
        if kind not in ELEMENTS:
            self._tree.unreadable[where] = f"an array with elements of the type {kind}"
            return
        lengths = size if isinstance(size, list) else [-1]
        if not isinstance(data, bytes) or not all(isinstance(length, int) and length >= 0 for length in lengths):
            raise self._damaged(where, f"is an array of the size {str(size)[:100]}, with {type(data).__name__} for data")
        expected = math.prod(lengths) * ELEMENTS[kind].itemsize
        if len(data) != expected:
            dims_text = " by ".join(map(str, lengths))
            raise self._damaged(where, f"should be {dims_text} of {kind}, which is {expected} bytes, but has {len(data)}")
        array = shaped(np.frombuffer(data, ELEMENTS[kind]), lengths, self._tree.path, where[:200], "F")
        self._decoded[id(value)] = self._tree.arrays[where] = array
