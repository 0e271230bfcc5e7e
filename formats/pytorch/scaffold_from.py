"""TorchScript archives and exported programs as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from pathlib import Path

from rnnconvert.models.runners import Loaded
from rnnconvert.scaffolding.description import Description

NAME = "pytorch"


def describe(path: Path, config: Path | None = None) -> Description:
    """Return the model of a file: see formats/pytorch/describe/model.py."""
    from rnnconvert.formats.pytorch.describe.model import describe as whole

    return whole(path, config)


def open_file(path: Path, config: Path | None = None) -> Loaded:
    """Return the live program of a file: see formats/pytorch/whole_run.py."""
    from rnnconvert.formats.pytorch.whole_run import open_file as opened

    return opened(path)
