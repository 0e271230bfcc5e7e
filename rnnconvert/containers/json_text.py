"""JSON out of files that nobody vouches for: its memory is charged to the reading before it is taken."""

from __future__ import annotations

import json
from typing import Any

from rnnconvert.containers.reading import charging
from rnnconvert.core.malformed import Fields

_LIST, _OBJECT, _VALUE, _TEXT = 88, 232, 40, 64
"""Bytes of Python's values, measured on 3.11: a list or object with its first entry, an entry with its number, a text."""
_FIELDS = json.JSONDecoder(object_hook=Fields)


def loads(text: str | bytes, path: object, **hooks: Any) -> Any:
    """Return the values of a JSON text, as json.loads does with these hooks; without any, objects as Fields.

    Raises ValueError for what is not JSON or nested too deep, BudgetError for more values than a file of this size can need.
    """
    # One character outside ASCII, written or escaped, can make every character of its text four bytes wide.
    width = 1 if text.isascii() and not _count(text, "\\u") else 4
    size = width * len(text) + _TEXT * (1 + _count(text, '"') // 2) + _VALUE * (_count(text, ",") + _count(text, ":"))
    charging(len(text)).memory(size + _LIST * _count(text, "[") + _OBJECT * _count(text, "{"), path)
    try:
        if hooks:
            return json.loads(text, **hooks)
        return _FIELDS.decode(text if isinstance(text, str) else text.decode(json.detect_encoding(text), "surrogatepass"))
    except RecursionError:
        raise ValueError("lists or objects too deep inside one another") from None


def _count(text: str | bytes, word: str) -> int:
    return text.count(word.encode()) if isinstance(text, bytes) else text.count(word)
