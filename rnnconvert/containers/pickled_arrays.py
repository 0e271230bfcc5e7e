"""Pickles of arrays by name: dictionaries, lists and objects, read as data; no code of the file runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from rnnconvert.containers import pickles
from rnnconvert.containers.files import map_file
from rnnconvert.containers.numpy_values import numpy_value
from rnnconvert.containers.pickle_values import Foreign, Global
from rnnconvert.containers.reading import Reading, charging
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError

_DEEPEST = 64
_STEPS = 100
"""What a value costs of the budget: about as many steps as reading a small array takes."""
_FIRST = (b"}", b"]", b")", b"(", b"c", b"\x8c", b"X")
"""What the pickle of a container or an object begins with: it is empty, or marked, or begins with a class's name."""
_PLAIN = (str, bytes, int, float, complex, bool, type(None), Global)


def looks_like(head: bytes) -> bool:
    """Return whether a file begins as a pickle, of any protocol, of a container or an object."""
    if head[:1] != b"\x80":
        return head.startswith((b"}q\0", b"]q\0")) or (head[:1] in (b"c", b"(") and b"\n" in head[:300])
    first = head[11:12] if head[2:3] == b"\x95" else head[2:3]  # a frame and its length may come before
    return head[1:2] <= b"\x05" and first in _FIRST


def read(path: str | os.PathLike[str]) -> Stored:
    """Return every array by its path, with a slash between keys, places and attributes; those of a list alone are called
    arr_0, arr_1 and so on, as numpy.savez calls them.

    Metadata "unreadable" says of objects without an array in them what made them.

    Raises UnreadableError if the pickle is damaged, or if its objects are nested too deep.
    """
    data = map_file(path)
    root, _ = pickles.load(data, path, most=data.size)
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    whole = {f"arr_{place}": one for place, one in enumerate(root)} if isinstance(root, list | tuple) else root
    for name, found in _walk((path, charging(data.size)), whole, "", 0):
        if isinstance(found, str):
            unreadable.setdefault(name, found)
        elif name in arrays:
            raise UnreadableError(path, f"two of its arrays are called {name!r}")
        else:
            arrays[name] = found
    return Stored(arrays, {"unreadable": unreadable})


def _walk(of: tuple[object, Reading], value: Any, name: str, depth: int) -> Iterator[tuple[str, Array | str]]:
    """Yield the arrays at and under a value by their paths, and for each object that has none what made it."""
    path, budget = of
    if isinstance(value, _PLAIN):
        return
    budget.work(_STEPS, path)
    if depth > _DEEPEST:
        raise UnreadableError(path, f"its objects are nested more than {_DEEPEST} deep")
    array = numpy_value(value) if isinstance(value, Foreign) else None
    if array is not None:
        yield name, array
        return
    met = False
    for key, inner in _inside(value):
        for found in _walk(of, inner, f"{name}/{key}" if name and key else name or key, depth + 1):
            met = True
            yield found
    if isinstance(value, Foreign) and not met:
        yield name, f"it is not an array, but an object made by {value.made_by}"


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values in a container or an object: by key, place or attribute; what an object is made of has no name of
    its own.
    """
    if isinstance(value, dict):
        yield from ((str(key), inner) for key, inner in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(place), inner) for place, inner in enumerate(value))
    elif isinstance(value, Foreign):
        yield from (("", inner) for inner in value.args if isinstance(inner, dict | Foreign))
        states = value.state if isinstance(value.state, tuple) else (value.state,)
        for state in (*states, value.entries):
            if isinstance(state, dict):
                yield from _inside(state)
        yield from _inside(value.items)
