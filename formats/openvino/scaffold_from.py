"""A whole OpenVINO model as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.scaffolding.description import Description

NAME = "openvino"


def describe(path: Path, partial: bool = False) -> Description:
    """Return the main graph of a file: see rnnconvert/scaffolding/programs/reading.py.

    Raises RefusedError where an operation is not used as it asks.
    """
    from rnnconvert.formats.openvino.whole import NetModel
    from rnnconvert.scaffolding.programs.reading import describe_file

    return describe_file(path, NAME, NetModel, partial)
