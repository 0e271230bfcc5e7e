"""Deeplearning4j's networks as a transplant sees them: their layers and vertices in the order in which they are computed."""

from __future__ import annotations

from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.models.model import Model
from rnnconvert.models.readers import by_names
from rnnconvert.scaffolding.programs.units import ProgramModel

NAME = "dl4j"


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return a file by its layers; by its names where these are not as Deeplearning4j asks."""
    return by_names(checkpoint) if checkpoint.read is None else ProgramModel(checkpoint).model(checkpoint.path)
