"""Whole models of C headers, compiled and run in a process of their own."""

from __future__ import annotations

from pathlib import Path

from rnnconvert.core.errors import UsageError
from rnnconvert.files.load import load
from rnnconvert.formats.c_header.originals import WRITTEN, Original, written_again
from rnnconvert.models.runners import FileModel, NotRunError

NAME = "c_header"


def open_file(path: Path, config: Path | None = None) -> FileModel:
    """Return the model of a header that rnnconvert wrote: what is compiled is written again from its numbers and its description.

    Raises UsageError for a header of layers alone, NotRunError for one whose code was changed.
    """
    original = load(path, NAME).read
    if not isinstance(original, Original) or original.model is None:
        raise UsageError(f"{path} holds layers and no whole model: `rnnconvert export` writes such headers")

    def write(copy: Path) -> str:
        try:
            written_again(path, original, copy.parent)
        except NotImplementedError as error:
            raise NotRunError(f"{path} is not run: {error}") from None
        return ""

    return FileModel.of_copy(path, ["c-cc"], WRITTEN, write)
