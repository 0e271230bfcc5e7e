"""Layers models as a transplant sees them: models of Keras in other files."""

from __future__ import annotations

from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.keras import whole
from rnnconvert.models.model import Model

NAME = "tfjs"


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return a file, layer by layer."""
    return whole.of_checkpoint(checkpoint).replace(framework=NAME)
