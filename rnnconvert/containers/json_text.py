"""JSON out of files that nobody vouches for: its memory is charged to the reading before it is taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rnnconvert.containers.reading import charging
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.malformed import Fields
from rnnconvert.core.names import first_twice

_LIST, _OBJECT, _VALUE, _TEXT = 88, 232, 40, 64
"""Bytes of Python's values, measured on 3.11: a list or object with its first entry, an entry with its number, a text."""
_DECODER = 2048
"""Bytes of the decoder of one text, rounded up."""


def loads(text: str | bytes, path: object, **hooks: Any) -> Any:
    """Return the values of a JSON text, as json.loads does with these hooks; objects are Fields.

    Raises ValueError for what is not JSON or nested too deep, UnreadableError for an object that has two values for one key, BudgetError
    for more values than a file of this size can need.
    """
    # One character outside ASCII, written or escaped, can make every character of its text four bytes wide.
    width = 1 if text.isascii() and not _count(text, "\\u") else 4
    size = _DECODER + width * len(text) + _TEXT * (1 + _count(text, '"') // 2) + _VALUE * (_count(text, ",") + _count(text, ":"))
    charging(len(text)).memory(size + _LIST * _count(text, "[") + _OBJECT * _count(text, "{"), path)

    try:
        return json.loads(text, object_pairs_hook=fields_of(path), **hooks)
    except RecursionError:
        raise ValueError("lists or objects too deep inside one another") from None


def fields_of(path: object) -> Callable[[list[tuple[str, Any]]], Fields]:
    """Return the function that makes Fields of an object's keys and values, for json.loads; it raises UnreadableError if a key repeats."""

    def fields(pairs: list[tuple[str, Any]]) -> Fields:
        values = Fields(pairs)
        if len(values) < len(pairs):
            key = first_twice(key for key, _ in pairs)
            raise UnreadableError(path, f"it is JSON with two values for the key {key!r} of one object")
        return values

    return fields


def _count(text: str | bytes, word: str) -> int:
    return text.count(word.encode()) if isinstance(text, bytes) else text.count(word)
