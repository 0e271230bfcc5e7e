"""A whole ONNX model as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from pathlib import Path

from rnnconvert.scaffolding.description import Description

NAME = "onnx"


def describe(path: Path, partial: bool = False) -> Description:
    """Return the model of a file: see formats/onnx/describe/model.py."""
    from rnnconvert.formats.onnx.describe.model import describe as describe_model

    return describe_model(path, partial)
