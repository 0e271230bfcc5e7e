"""TFLite models as a transplant sees them: files, whose layers give their weights."""

from __future__ import annotations

from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.models.model import Model
from rnnconvert.models.readers import by_names

NAME = "tflite"


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return a file by the operations of its main graph; by its names where these are not as its operators ask."""
    from rnnconvert.scaffolding.programs.units import ProgramModel

    return by_names(checkpoint) if checkpoint.read is None else ProgramModel(checkpoint).model(checkpoint.path)
