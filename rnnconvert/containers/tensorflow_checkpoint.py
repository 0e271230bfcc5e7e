"""TensorFlow checkpoints and SavedModels, through tensorflow where it is installed."""

from __future__ import annotations

from pathlib import Path

from rnnconvert.containers.stored import Stored
from rnnconvert.errors import MissingPackageError


def recognise(path: Path) -> str:
    """A folder with a saved_model.pb, or the index of a checkpoint (or the name that its files share)."""
    if (path / "saved_model.pb").is_file():
        return "a folder with a saved_model.pb"
    index = path if path.suffix == ".index" else path.with_name(path.name + ".index")
    return f"a TensorFlow checkpoint, {index.name}" if index.is_file() else ""


def read(path: Path) -> Stored:
    """Every variable by its name.

    Raises MissingPackageError without tensorflow.
    """
    raise MissingPackageError("tensorflow", "read TensorFlow checkpoints and SavedModels")
