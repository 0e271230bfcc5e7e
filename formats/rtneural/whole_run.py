"""Whole files of RTNeural and AIDA-X, run by the equations of formats/rtneural/run.py."""

from __future__ import annotations

from pathlib import Path

from rnnconvert.models.runners import FileModel

NAME = "rtneural"


def open_file(path: Path, config: Path | None = None) -> FileModel:
    """Return the model of a file."""
    return FileModel(path, ["rtneural-numpy"])
