"""Pickles of arrays by name: dictionaries, lists and objects, read as data; no code of the file runs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from rnnconvert.containers import pickles
from rnnconvert.containers.files import map_file
from rnnconvert.containers.numpy_values import JOBLIB_ARRAY, content, numpy_value
from rnnconvert.containers.pickle_values import Foreign, Global, Key
from rnnconvert.containers.reading import Reading, charging
from rnnconvert.containers.stored import FileMetadata, Stored
from rnnconvert.core.arrays import Array, identical
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import NESTING
from rnnconvert.core.names import add, checked_name

_STEPS = 100
"""The cost of a value in the budget: about as many steps as reading a small array takes."""
_FIRST = (b"}", b"]", b")", b"(", b"c", b"\x8c", b"X")
"""The beginnings of the pickle of a container or an object: it is empty, or marked, or begins with a class's name."""
_PLAIN = (str, bytes, int, float, complex, bool, type(None), Global)
_HOLDERS = (dict, list, tuple, Foreign)


def looks_like(head: bytes) -> bool:
    """Return whether a file begins as a pickle, of any protocol, of a container or an object."""
    if head[:1] != b"\x80":
        return head.startswith((b"}q\0", b"]q\0")) or (head[:1] in (b"c", b"(") and b"\n" in head[:300])
    first = head[11:12] if head[2:3] == b"\x95" else head[2:3]  # a frame and its length may come before
    return head[1:2] <= b"\x05" and first in _FIRST


def value(path: str | os.PathLike[str]) -> Any:
    """Return the value that a pickle describes, as `pickles.load_row` does, with the arrays that joblib puts between its instructions.

    It is read once for all that ask for it in one reading. Raises UnreadableError.
    """
    looked = charging(0).looked(path)
    if value not in looked:
        looked[value] = pickles.load_row(map_file(path), path, meanings(path)), None
    return looked[value][0]


def read(path: str | os.PathLike[str]) -> Stored:
    """Return every array by its path, with a slash between keys, places and attributes; for a plain list they are called arr_0, arr_1 and
    so on, as numpy.savez calls them.

    Metadata "unreadable" names the makers of objects without an array in them, "makers" those of objects with arrays.

    Raises UnreadableError if the pickle is damaged, or if its objects are nested too deep.
    """
    root = value(path)
    size = map_file(path).size
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    makers: dict[str, list[str]] = {}
    entries = {f"arr_{place}": item for place, item in enumerate(root)} if isinstance(root, list | tuple) else root
    budget = charging(size)
    for name, element in _walk((path, budget), entries, "", 0):
        if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
            raise UnreadableError(path, f"the name {name!r} is not valid text")
        if isinstance(element, Global):
            makers.setdefault(name, []).append(str(element))
        elif isinstance(element, str):
            unreadable.setdefault(name, element)
        elif name in arrays:
            budget.work(element.nbytes, path)
            if not identical(element, arrays[name]):  # NumPy pickles two equal states of its random numbers
                add(arrays, name, element, path)
        else:
            arrays[name] = element
    return Stored(arrays, FileMetadata(unreadable=unreadable, makers=makers))


def _walk(of: tuple[object, Reading], value: Any, name: str, depth: int) -> Iterator[tuple[str, Array | str | Global]]:
    """Yield the arrays at and under a value by their paths, and what made each object: as text where it has no array."""
    path, budget = of
    if isinstance(value, _PLAIN):
        return
    budget.work(_STEPS, path)
    if depth > NESTING:
        raise UnreadableError(path, f"its objects are nested more than {NESTING} deep")
    checked_name(name, path)
    array = numpy_value(value) if isinstance(value, Foreign) else None
    if array is not None:
        yield name, array
        return
    has_arrays = False
    for key, inner in _inside(value):
        for entry in _walk(of, inner, f"{name}/{key}" if name and key else name or key, depth + 1):
            has_arrays |= not isinstance(entry[1], str)
            yield entry
    if isinstance(value, Foreign):
        yield name, value.made_by if has_arrays else f"it is not an array, but an object made by {value.made_by}"


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values in a container or an object: by key, place or attribute; what an object is made of has no name of
    its own where it is one value, and its place among several.
    """
    if isinstance(value, dict):
        yield from ((_key_text(key, place), inner) for place, (key, inner) in enumerate(value.items()))
    elif isinstance(value, list | tuple):
        yield from ((str(place), inner) for place, inner in enumerate(value))
    elif isinstance(value, Foreign):
        held = [(str(place), inner) for place, inner in enumerate(value.args) if isinstance(inner, _HOLDERS)]
        yield from held if len(held) > 1 else (("", inner) for _, inner in held)
        states = value.state if isinstance(value.state, tuple) else (value.state,)
        for state in (*states, value.entries):
            if isinstance(state, dict | list):  # a list: the fields of a dataclass with slots, the objects of an array
                yield from _inside(state)
        yield from _inside(value.items)


def _key_text(key: Any, place: int) -> str:
    """Return a dictionary's key as text: a tuple's parts with slashes between, and the place of an object."""
    value = key.value if isinstance(key, Key) else key
    parts = value if isinstance(value, tuple) else (value,)
    if not parts or not all(isinstance(part, str) or _is_short(part) for part in parts):
        raw = content(value)
        return f"<{place}>" if raw is None else raw.decode("utf-8", "backslashreplace")
    return "/".join(map(str, parts))


def _is_short(value: Any) -> bool:
    if isinstance(value, int):
        return value.bit_length() <= 64  # Python refuses to print many thousand digits
    return value is None or isinstance(value, float | Global)


# joblib's pickles, which have the bytes of arrays between their instructions.
# Source: joblib/numpy_pickle.py of 1.5, NumpyArrayWrapper.write_array.

_ITEM = re.compile(r"[biufcmMSVU](\d{1,9})")


def meanings(path: object) -> pickles.Meanings:
    """Return, for `pickles.load`, the reader of an array's bytes: they become the last argument of its object.

    An array of objects is a separate pickle: its value becomes that argument.
    """

    def follow(wrapper: Foreign, data: memoryview, at: int) -> int:
        if not isinstance(wrapper.state, dict):
            raise UnreadableError(path, "its pickle has an array of joblib's without a description")
        size = _item_size(wrapper.state.get("dtype"))
        if size is None:
            value, end = pickles.load(np.frombuffer(data[at:], np.uint8), path, meanings(path), most=len(data))
            wrapper.args = (*wrapper.args, value)
            return at + end
        if wrapper.state.get("numpy_array_alignment_bytes") is not None:
            at += 1 + data[at]
        length = math.prod(wrapper.state["shape"]) * size
        if not 0 <= length <= len(data) - at:
            raise UnreadableError(path, "its pickle is truncated: an array of joblib's reaches beyond its end")
        wrapper.args = (*wrapper.args, bytes(data[at : at + length]))
        return at + length

    return pickles.Meanings(followers={JOBLIB_ARRAY: follow})


def _item_size(dtype: Any) -> int | None:
    """Return the bytes of an element, as its pickled type states them; None for objects."""
    text = dtype.args[0]
    if text == "O8":
        return None
    match = _ITEM.fullmatch(text)
    if match is None:
        raise ValueError(f"elements of the type {text!r:.40}")
    return int(match[1]) * (4 if text[0] == "U" else 1)
