"""A whole TFLite model as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.scaffolding.description import Description

NAME = "tflite"


def describe(path: Path, partial: bool = False) -> Description:
    """Return the main graph of a file: see rnnconvert/scaffolding/programs/reading.py.

    Raises RefusedError where an operator is not used as it asks.
    """
    from rnnconvert.scaffolding.programs.reading import describe_file
    from rnnconvert.scaffolding.programs.units import ProgramModel

    return describe_file(path, NAME, ProgramModel, partial)
