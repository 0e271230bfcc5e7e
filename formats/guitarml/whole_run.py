"""Whole files of GuitarML, run by the equations of formats/guitarml/run.py."""

from __future__ import annotations

from pathlib import Path

from rnnconvert.models.runners import FileModel

NAME = "guitarml"


def open_file(path: Path, config: Path | None = None) -> FileModel:
    """Return the model of a file."""
    return FileModel(path, ["guitarml-numpy"])
