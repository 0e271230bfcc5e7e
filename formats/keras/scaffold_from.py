"""A whole Keras model as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from pathlib import Path

from rnnconvert.scaffolding.description import Description

NAME = "keras"
ASKS = ("config",)


def describe(path: Path, partial: bool = False, config: Path | None = None) -> Description:
    """Return the model of a file: see formats/keras/describe/model.py."""
    from rnnconvert.formats.keras.describe.model import describe as describe_model

    return describe_model(path, config, partial)
