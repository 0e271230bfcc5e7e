"""A whole frozen graph of TensorFlow's as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rnnconvert.core.errors import UsageError

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.models.model import Model
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.programs.units import ProgramModel

NAME = "tensorflow1"
ASKS = ("axes",)


def describe(path: Path, partial: bool = False, axes: Sequence[int] = ()) -> Description:
    """Return the graph of a file: see rnnconvert/scaffolding/programs/reading.py.

    Raises UsageError for weights alone.
    """
    from rnnconvert.scaffolding.programs.reading import describe as describe_program

    return describe_program(_program(path), "", partial, axes)


def weights_of(path: Path) -> Model:
    """Return the layers as the operations of the graph show them: those of cells are known by the names of their variables otherwise."""
    return _program(path).model(str(path))


def _program(path: Path) -> ProgramModel:
    from rnnconvert.files.load import load_with
    from rnnconvert.files.options import Options
    from rnnconvert.formats.tensorflow1.names import CellPlaces
    from rnnconvert.formats.tensorflow1.whole_graph import GraphModel

    checkpoint = load_with(path, NAME, Options())
    program = checkpoint.read_as(CellPlaces).program
    if program is None:
        raise UsageError(f"{path} holds weights without a frozen graph, and states no model that can be written")

    return GraphModel(checkpoint.replace(read=program))
