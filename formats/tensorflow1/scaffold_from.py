"""A whole frozen graph of TensorFlow's as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from rnnconvert.core.errors import UsageError

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.fixed import FixedInputs
    from rnnconvert.scaffolding.needs import StatedAxes
    from rnnconvert.scaffolding.programs.units import ProgramModel

NAME = "tensorflow1"
ASKS = ("axes", "fix")


def describe(path: Path, partial: bool = False, axes: StatedAxes = (), fix: FixedInputs = MappingProxyType({})) -> Description:
    """Return the graph of a file: see rnnconvert/scaffolding/programs/reading.py.

    Raises UsageError for weights alone.
    """
    from rnnconvert.scaffolding.programs.reading import describe as describe_program

    program = _program(path)
    # The layers are those that the operations show: those of cells are known by the names of their variables otherwise.
    return replace(describe_program(program, "", partial, axes, fix), model=program.model(str(path)))


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
