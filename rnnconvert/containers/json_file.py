"""JSON files that hold weights as numbers: read into plain values, every size bounded, and written number by number.

A list of numbers, or of such lists of one length, is an array; so is an object of a `shape` and its `values`, one after the
other. What runs these models takes each number in double precision and rounds it to single; so do we. What we write is the
shortest text that comes back as the same float32.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.files import map_file, replacing
from rnnconvert.containers.json_text import fields_of
from rnnconvert.containers.reading import foresee_output
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import BudgetError, UnreadableError, UsageError
from rnnconvert.core.limits import DOCUMENT_NESTING, JSON_AXES, JSON_BYTES, JSON_LISTS, JSON_TEXTS
from rnnconvert.core.names import checked_name

_FEW = 1 << 14  # numbers written at once
_OFTEN = 64  # numbers whose texts are measured
_SEPARATOR = ", "
_SHORTEST, _LONGEST = len("0.0, "), len("[[-1.1754943508222875e-38]], ")  # texts of one number


def looks_like(head: bytes) -> bool:
    """Return whether a file begins as a JSON object."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")[:1] == b"{"


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the object in a file, as plain values. Raises UnreadableError."""
    data = map_file(path)
    if data.size > JSON_BYTES:
        raise UnreadableError(path, f"it is JSON of {data.size} bytes, and at most {JSON_BYTES} are read")
    text = data.tobytes()
    for most, what, count in (
        (JSON_LISTS, "lists and objects", text.count(b"[") + text.count(b"{")),
        (JSON_TEXTS, "keys and texts", text.count(b'"') // 2),
    ):
        if count > most:
            raise UnreadableError(path, f"it is JSON with {count} {what}, and at most {most} are read")

    def constant(word: str) -> Any:
        raise UnreadableError(path, f"it has the number {word}, which JSON does not have and a weight cannot be")

    try:
        tree = json.loads(text.decode("utf-8-sig"), object_pairs_hook=fields_of(path), parse_constant=constant)
    except UnreadableError:
        raise
    except RecursionError:
        raise UnreadableError(path, "it is JSON with lists or objects too deep inside one another") from None
    except ValueError as error:  # not JSON, not UTF-8, an integer of thousands of digits
        raise UnreadableError(path, f"it is not valid JSON: {error}", "The file is truncated or damaged; fetch it again.") from None
    if not isinstance(tree, dict):
        raise UnreadableError(path, "it is JSON, but not one object")
    return tree


def arrays_in(tree: Mapping[str, Any], path: object) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays of an object and of those inside it, and what else they hold, by names that dots join.

    Raises UnreadableError for a list that is not an array, for two things of one name, for one that is too long and for objects
    too deep inside one another.
    """
    arrays: dict[str, Array] = {}
    others: dict[str, Any] = {}
    for name, value in _leaves(tree, "", 0, path):
        if name in arrays or name in others:
            raise UnreadableError(path, f"two things in it have the name {_quoted(name)}")
        if isinstance(value, list) or _is_shaped(value):
            arrays[name] = array(value, path, name)
        else:
            others[name] = value
    return arrays, others


def stored(path: str | os.PathLike[str]) -> Stored:
    """Return the arrays of a file; a list in it that is not an array is left out, with the reason. Raises UnreadableError."""
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    for name, value in _leaves(read(path), "", 0, path):
        if not (isinstance(value, list) or _is_shaped(value)):
            continue
        try:
            arrays[name] = array(value, path, name)
        except UnreadableError as error:
            unreadable[name] = error.problem
    return Stored(arrays, {"unreadable": unreadable} if unreadable else {})


def _leaves(tree: Mapping[str, Any], above: str, depth: int, path: object) -> Iterator[tuple[str, Any]]:
    if depth > DOCUMENT_NESTING:
        raise UnreadableError(path, f"its objects are nested more than {DOCUMENT_NESTING} deep")
    for key, value in tree.items():
        name = checked_name(above + key, path)
        if isinstance(value, dict) and value and not _is_shaped(value):
            yield from _leaves(value, f"{name}.", depth + 1, path)
        else:
            yield name, value


_SHAPED = {"shape", "values"}


def _is_shaped(value: object) -> bool:
    return isinstance(value, dict) and set(value) == _SHAPED and all(isinstance(inner, list) for inner in value.values())


def array(value: object, path: object, name: str) -> Array:
    """Return a list of numbers, or of lists of one length, or a shape and its values, as an array of float32.

    Raises UnreadableError for anything else, and for a number that float32 does not have.
    """
    if isinstance(value, dict) and _is_shaped(value):
        numbers, dims = array(value["values"], path, name), value["shape"]
        fits = len(dims) <= JSON_AXES and all(type(size) is int and 0 <= size <= numbers.size for size in dims)
        if numbers.ndim != 1 or not fits or math.prod(dims) != numbers.size:
            raise UnreadableError(path, f"{name!r} states the shape {_quoted(dims)}, but it has values of the shape {list(numbers.shape)}")
        return numbers.reshape(dims)
    if not isinstance(value, list):
        raise UnreadableError(path, f"{name!r} is not a list of numbers: {_quoted(value)}")
    shape: list[int] = []
    level: list[Any] = [value]
    while level and all(type(item) is list for item in level):
        lengths = {len(item) for item in level}
        if len(lengths) > 1 or len(shape) == JSON_AXES:
            why = f"its lists have the lengths {sorted(lengths)[:4]}" if len(lengths) > 1 else "its lists are too deep"
            raise UnreadableError(path, f"{name!r} is not an array: {why}")
        shape.append(lengths.pop())
        level = [number for item in level for number in item]
    odd = next((item for item in level if type(item) is not float and type(item) is not int), None)
    if odd is not None or not {type(item) for item in level} <= {int, float}:
        raise UnreadableError(path, f"{name!r} is not a list of numbers: it has {_quoted(odd)} in it")
    try:
        with np.errstate(over="ignore"):
            numbers = np.array(level, np.float64).astype(np.float32)
    except OverflowError:
        numbers = np.array([math.inf], np.float32)
    if not np.isfinite(numbers).all():
        raise UnreadableError(path, f"{name!r} has a number that is too large for float32")
    return numbers.reshape(shape)


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def write(path: Path, tree: Mapping[str, Any]) -> None:
    """Write an object of plain values and arrays.

    Raises UsageError for a number that JSON does not have, and for more bytes than are read.
    """
    _foresee([*_arrays(tree)])
    size = 0
    with replacing(path) as file:
        for piece in _texts(tree, path):
            size += file.write(piece.encode("ascii"))
            if size > JSON_BYTES:
                raise UsageError(f"{path}: it would be JSON of more than {JSON_BYTES} bytes. Choose another format")
        file.write(b"\n")


def _texts(value: Any, path: Path) -> Iterator[str]:
    if isinstance(value, Mapping):
        for number, (key, inner) in enumerate(value.items()):
            yield f"{', ' if number else '{'}{json.dumps(str(key))}: "
            yield from _texts(inner, path)
        yield "}" if value else "{}"
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield ", " if number else "["
            yield from _texts(inner, path)
        yield "]" if value else "[]"
    elif value is None or isinstance(value, str | bool | int | float):
        try:
            yield json.dumps(value, allow_nan=False)
        except ValueError:
            raise UsageError(f"{path}: JSON does not have the number {value}") from None
    else:
        yield from _numbers(np.asarray(value), path)


def _arrays(value: Any) -> Iterator[Array | PiecewiseArray]:
    """Yield the arrays of an object to be written."""
    if isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _arrays(inner)
    elif value is not None and not isinstance(value, str | bool | int | float):
        yield value


def _foresee(arrays: Sequence[Array | PiecewiseArray]) -> None:
    """Refuse arrays at once whose text is more than may be written; they are measured only where it could be. Raises BudgetError."""
    try:
        foresee_output(sum(math.prod(array.shape) for array in arrays) * _LONGEST)
    except BudgetError:
        foresee_output(sum(least_text(np.asarray(array)) for array in arrays))


def _numbers(values: Array | PiecewiseArray, path: Path) -> Iterator[str]:
    """Yield an array as lists of numbers."""
    numbers = np.asarray(values).astype(np.float32)
    if not np.isfinite(numbers).all():
        raise UsageError(f"{path}: JSON does not have numbers that are not finite, and some of these weights are not")
    yield from _lists(numbers if numbers.ndim else numbers.reshape(-1))


def _lists(numbers: Array) -> Iterator[str]:
    """Yield lists of numbers, as many rows at a time as have few numbers together."""
    width = numbers.shape[-1]
    yield "["
    if numbers.ndim == 1:
        for start in range(0, width, _FEW):
            yield _SEPARATOR * bool(start) + _SEPARATOR.join(shortest(numbers[start : start + _FEW]))
    elif numbers.ndim == 2 and 0 < width < _FEW:
        count = _FEW // width
        for start in range(0, len(numbers), count):
            texts = shortest(numbers[start : start + count].reshape(-1))
            rows = (f"[{_SEPARATOR.join(texts[place : place + width])}]" for place in range(0, len(texts), width))
            yield _SEPARATOR * bool(start) + _SEPARATOR.join(rows)
    else:
        for number, row in enumerate(numbers):
            yield _SEPARATOR * bool(number)
            yield from _lists(row)
    yield "]"


def least_text(numbers: Array) -> int:
    """Return how many characters an array takes at least, without writing it: the texts of its commonest numbers are measured."""
    flat = np.abs(numbers.reshape(-1).astype(np.float32))
    least = flat.size * _SHORTEST
    if flat.size > _FEW:
        often = np.unique(flat[:: flat.size // _FEW])[:_OFTEN]
        texts = shortest(often)
        least += sum(int(np.count_nonzero(flat == number)) * (len(text) - len("0.0")) for number, text in zip(often, texts, strict=True))
    return least


def shortest(numbers: Array) -> list[str]:
    """Return for each float32 the shortest text that comes back as the same number, by way of double precision."""
    texts: list[str] = numbers.astype("U32").tolist()
    again = np.array(texts, np.float64).astype(np.float32)
    for index in np.flatnonzero(again.view(np.uint32) != numbers.view(np.uint32)):
        texts[index] = repr(float(numbers[index]))
    return texts
