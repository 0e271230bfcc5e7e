"""A report as annotations of GitHub Actions: lines that it shows beside the files of a pull request."""

from __future__ import annotations

import os

from rnnconvert.core.verdict import BUT_FOR, BY_LAYER, EQUAL, LAYERS
from rnnconvert.reports.findings import finding, headline
from rnnconvert.reports.words import Document, clean, pair

_LONGEST = 4000
"""The most characters of an annotation."""


def wanted() -> bool:
    """Return whether this runs in GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def of_report(document: Document) -> list[str]:
    """Return the workflow commands for a report: none where it is equal; a warning where something was left out."""
    if document["verdict"] == EQUAL:
        return []
    path = document["models"][-1]["path"] if document["models"] else ""
    level = "warning" if document["verdict"] in (BUT_FOR, BY_LAYER, LAYERS) else "error"
    text = headline(document)
    text = text if len(text) <= _LONGEST else finding(document)  # half a command is none
    return [annotation(text, f"{document['verdict']}: {pair(document)}", path, level)]


def annotation(text: str, title: str, path: str = "", level: str = "error") -> str:
    """Return one error, or warning, as a workflow command."""
    fields = {"file": _relative(path), "title": f"rnnconvert, {title}"}
    settings = ",".join(f"{name}={_property(clean(field))}" for name, field in fields.items() if field)
    return f"::{level} {settings}::{_data(clean(text, _LONGEST))}"


def _relative(path: str) -> str:
    """Return a path as GitHub names it: relative to the workspace."""
    root = os.environ.get("GITHUB_WORKSPACE", "")
    if not path or not root:
        return path
    try:
        relative = os.path.relpath(path, root)
    except ValueError:  # another drive
        return path
    return path if relative.startswith("..") else relative


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
