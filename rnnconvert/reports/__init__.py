"""Reports: one document in several forms, chosen by the ending of the file.

`schema.json` describes the document; every form is made from it alone.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from rnnconvert.containers.files import replacing
from rnnconvert.containers.reading import writing_freely
from rnnconvert.core.errors import UsageError, unwritable
from rnnconvert.reports.document import checked as checked
from rnnconvert.reports.document import read as read
from rnnconvert.reports.document import values as values
from rnnconvert.reports.words import Document

FORMS = {
    ".json": "document.to_json",
    ".xml": "junit.to_junit",
    ".md": "markdown.to_markdown",
    ".html": "html.to_html",
    ".sarif": "sarif.to_sarif",
}
"""Endings, and the function below this package that makes the form."""


def check(*paths: str | os.PathLike[str]) -> list[str]:
    """Return the endings of reports' files; call it before anything runs for them.

    Raises UsageError if no form has such an ending, if there is no folder to write to, or if one file is named twice.
    """
    endings = [Path(path).suffix.lower() for path in paths]
    for number, (path, ending) in enumerate(zip(map(Path, paths), endings, strict=True)):
        if ending not in FORMS:
            raise UsageError(f"{path}: unknown form of report. Choose a name that ends in one of {', '.join(FORMS)}")
        if path.is_dir() or not path.parent.is_dir():
            raise UsageError(f"{path}: {'this is a folder' if path.is_dir() else f'there is no folder {path.parent}'}")
        if path.resolve() in [Path(other).resolve() for other in paths[:number]]:
            raise UsageError(f"{path}: this report is named twice. Name each file once")
    return endings


def render(document: Document, ending: str) -> str:
    """Return a report in the form that an ending stands for."""
    module, _, function = FORMS[ending].partition(".")
    text: str = getattr(importlib.import_module(f"{__name__}.{module}"), function)(document)
    return text


def write(document: Document, *paths: str | os.PathLike[str]) -> None:
    """Write a report in the forms that the files' endings stand for; existing files are replaced.

    Raises UsageError, before any is written, if one of the files cannot be.
    """
    texts = [encoded(render(document, ending)) for ending in check(*paths)]
    for path, text in zip(paths, texts, strict=True):
        with writing_freely(), replacing(path) as file:
            file.write(text)


def encoded(text: str) -> bytes:
    """Return text as UTF-8, with escapes for characters in the names of damaged files that UTF-8 cannot hold."""
    return text.encode("utf-8", "backslashreplace")


def summary_to_github(document: Document) -> bool:
    """Append the Markdown form to the summary of a step of GitHub Actions, and return whether there is one.

    Raises UsageError if the file that GITHUB_STEP_SUMMARY names cannot be written.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return False
    try:
        with Path(path).open("ab") as file:
            file.write(encoded(render(document, ".md") + "\n"))
    except OSError as error:
        raise unwritable(path, error, ". It is the summary that GITHUB_STEP_SUMMARY names") from None
    return True
