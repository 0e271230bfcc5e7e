"""Core ML's models as a transplant sees them: files, whose layers give their weights."""

from __future__ import annotations

from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.models.model import Model
from rnnconvert.models.readers import by_names

NAME = "coreml"
FORMATS = (NAME, "coreml_nn")


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return a file by its operations; by its names where these are not as they ask, and for a row of models."""
    from rnnconvert.scaffolding.programs.units import ProgramModel

    return by_names(checkpoint) if checkpoint.read is None else ProgramModel(checkpoint).model(checkpoint.path)
