"""A whole network of Deeplearning4j as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.scaffolding.description import Description

NAME = "dl4j"


def describe(path: Path, partial: bool = False) -> Description:
    """Return the network of a file: see rnnconvert/scaffolding/programs/reading.py.

    Raises RefusedError for a layer or a vertex that is not known, and for a setting of one.
    """
    from rnnconvert.scaffolding.programs.reading import describe_file
    from rnnconvert.scaffolding.programs.units import ProgramModel

    return describe_file(path, NAME, ProgramModel, partial)
