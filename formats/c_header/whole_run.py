"""Whole models of C headers, compiled and run in a process of their own."""

from __future__ import annotations

import contextlib
from pathlib import Path

from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.errors import UsageError, show_as
from rnnconvert.files.load import load
from rnnconvert.formats.c_header.originals import Original, written_again
from rnnconvert.models.runners import FileModel, NotRunError

NAME = "c_header"


def open_file(path: Path, config: Path | None = None) -> FileModel:
    """Return the model of a header that rnnconvert wrote: what is compiled is written again from its numbers and its description.

    Raises UsageError for a header of layers alone, NotRunError for one whose code was changed.
    """
    original = load(path, NAME).read
    if not isinstance(original, Original) or original.model is None:
        raise UsageError(f"{path} holds layers and no whole model: `rnnconvert export` writes such headers")
    until = contextlib.ExitStack()
    with contextlib.ExitStack() as failing:
        failing.push(until)
        folder = until.enter_context(new_folder())
        try:
            copy = written_again(path, original, folder)
        except NotImplementedError as error:
            raise NotRunError(f"{path} is not run: {error}") from None
        show_as(copy, path)
        opened = FileModel(path, ["c-cc"], copy, until=until)
        failing.pop_all()
    return opened
