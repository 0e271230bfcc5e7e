"""A report as JSON: written, and read again."""

from __future__ import annotations

import math
import os
from typing import Any

from rnnconvert.containers import json_text
from rnnconvert.containers.files import map_file
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.printable import json_of
from rnnconvert.core.remedies import Command
from rnnconvert.core.verdict import NOT_COMPARED, NOT_EQUAL, Verdict
from rnnconvert.reports.schema import NAME, ordered, problems
from rnnconvert.reports.words import DIFFERENT, Document, blocks, every_run, tally

_CONSTANTS = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


def _remedy() -> str:
    return f"Give the JSON report that `{Command('verify', report='FILE.json')}` wrote."


def to_json(document: Document) -> str:
    """Return the document as JSON: fields in the order of the schema, lists of numbers on one line, finite numbers only."""
    return _text(ordered(document), "") + "\n"


def read(path: str | os.PathLike[str]) -> Document:
    """Return a report that was saved as JSON.

    Raises UnreadableError if the file is not a report, or contradicts itself.
    """
    return checked(values(path), path)


def values(path: str | os.PathLike[str]) -> Any:
    """Return the value in a file of JSON. Raises UnreadableError."""
    try:
        return json_text.loads(bytes(map_file(path)).decode("utf-8-sig"), path, parse_constant=_CONSTANTS.__getitem__)
    except UnreadableError:
        raise
    except ValueError as error:
        raise UnreadableError(path, f"it is not JSON: {error}", _remedy()) from None


def checked(document: Any, path: str | os.PathLike[str]) -> Document:
    """Return a report that a file holds. Raises UnreadableError if the file is not a report, or contradicts itself."""
    if not isinstance(document, dict) or document.get("schema") != NAME:
        schema = document.get("schema") if isinstance(document, dict) else None
        raise UnreadableError(path, f"it is not a report: its schema is {schema!r}, expected {NAME!r}", _remedy())
    for problem in problems(document):
        raise UnreadableError(path, f"it is not a report: {problem}", _remedy())
    contradiction = _contradiction(document)
    if contradiction:
        raise UnreadableError(path, f"it contradicts itself: {contradiction}", "It was changed after it was written.")
    return document


def _contradiction(document: Document) -> str:
    """Return how the verdict contradicts the comparisons, or ""."""
    for layer, run in every_run(document):
        failed = sum(not comparison["passed"] for comparison in run["comparisons"])
        if failed and run["verdict"] != DIFFERENT:
            return f"{run['executor']} in layer {layer['name']!r} failed {failed} comparisons, but is called equal"
        if blocks(run) and document["verdict"] not in (NOT_EQUAL, NOT_COMPARED):
            return f"the verdict is {document['verdict']}, but {run['executor']} in layer {layer['name']!r} is not"
    ran_whole = (document.get("whole") or {}).get("status") == "equal"
    if document["verdict"] not in (NOT_EQUAL, NOT_COMPARED) and not tally(document).passed and not ran_whole:
        return f"the verdict is {document['verdict']}, but nothing was compared"
    if document.get("reasons") and document["verdict"] != NOT_EQUAL:
        return f"the verdict is {document['verdict']}, but it has reasons why it is not"
    return Verdict.read(document).contradiction


def _text(value: Any, indent: str) -> str:
    """Return JSON, indented if that helps a reader."""
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        rows = (f"{deeper}{_scalar(str(key))}: {_text(item, deeper)}" for key, item in value.items())
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, (list, tuple)) and any(isinstance(item, (dict, list, tuple)) for item in value):
        return "[\n" + ",\n".join(deeper + _text(item, deeper) for item in value) + f"\n{indent}]"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_scalar, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        value = str(value)
    return json_of(value, allow_nan=False)
