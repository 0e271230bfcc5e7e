"""The outcome of a batch, for people: in words, by kind, and as an index of all files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.malformed import malformed
from rnnconvert.core.remedies import Command
from rnnconvert.reports.many import IndexEntry
from rnnconvert.reports.words import Outcome

TITLE = "Every file"
KIND = "rnnconvert_batch"
"""The key of a document of a batch; its value is the version."""
VERSION = 1
WITHOUT_LAYERS = "no recurrent layer"
WORDS = {
    0: "converted",
    1: "not equal",
    2: "wrong line or setting",
    3: "unreadable",
    4: "refused",
    5: "package missing",
    7: "not run whole",
    74: "target not written",
    70: "fault, or a worker that died",
}


def next_command(code: int, source: str, target: str) -> Command | None:
    """Return the command to type next for a file that was not converted; None if its error states it."""
    if code == 1:
        return Command("convert", source, target, verify=True, report="report.html")
    return Command("inspect", source, **({"targets": True} if code == 4 else {})) if code in (3, 4) else None


def grouped(entries: Sequence[Any]) -> list[list[str]]:
    """Return the sources that failed among the entries of a journal, grouped by exit code and text, the largest group first."""
    groups: dict[tuple[int, str], list[str]] = {}
    for entry in entries:
        if entry.code:
            groups.setdefault((entry.code, unnamed(entry)), []).append(entry.source)
    return sorted(groups.values(), key=len, reverse=True)


def unnamed(entry: Any) -> str:
    """Return the error of a file without the file's name."""
    return str(entry.message).removeprefix(f"{entry.source}: ").replace(entry.source, "FILE")


def index_entry(file: Mapping[str, Any]) -> IndexEntry:
    """Return the entry of an index, of a file as a batch's document has it."""
    name = f"{file['source']} to {file['target']}"
    message, seconds, code = str(file["message"]), float(file["seconds"]), int(file["code"])
    if file["without_layers"]:
        return IndexEntry(name, "skipped", WITHOUT_LAYERS, message, seconds)
    outcome: Outcome = "failure" if code == 1 else "error" if code else "passed"
    return IndexEntry(name, outcome, WORDS.get(code, f"exit code {code}"), message, seconds)


def index_of(document: Any, path: object) -> list[IndexEntry] | None:
    """Return the entries of the document that a batch wrote; None for any other one. Raises UnreadableError for a damaged one.

    path  the file that it was read from
    """
    if not isinstance(document, dict) or KIND not in document:
        return None
    if document[KIND] != VERSION:
        raise UnreadableError(path, f"it is version {document[KIND]!r} of a batch's document, and {VERSION} is known here")
    with malformed(lambda what: UnreadableError(path, f"it is not whole: {what}", "It was changed after it was written.")):
        return [index_entry(file) for file in document["files"]]
