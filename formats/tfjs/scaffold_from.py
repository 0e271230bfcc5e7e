"""Whole layers models as descriptions: models of Keras in other files."""

from __future__ import annotations

from pathlib import Path

from rnnconvert.formats.keras import scaffold_from as of_keras
from rnnconvert.formats.keras.layers_model import file_of
from rnnconvert.scaffolding.description import Description

NAME = "tfjs"
ASKS = of_keras.ASKS


def describe(path: Path, partial: bool = False, config: Path | None = None) -> Description:
    """Return the model of a file, or of the folder that has it: see formats/keras/describe/model.py."""
    return of_keras.describe(file_of(path), partial, config)
