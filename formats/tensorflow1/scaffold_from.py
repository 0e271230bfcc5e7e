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
    from rnnconvert.scaffolding.fixed import as_array
    from rnnconvert.scaffolding.programs.reading import describe as describe_program

    program, decided = _program(path, fix)
    rest = {name: value for name, value in fix.items() if name not in decided}
    # The layers are those that the operations show: those of cells are known by the names of their variables otherwise.
    described = describe_program(program, "", partial, axes, rest)
    fixed = {**described.fixed, **{name: as_array(name, truth) for name, truth in decided.items()}}
    return replace(described, model=program.model(str(path)), fixed=fixed, through="model.onnx")


def _program(path: Path, fix: FixedInputs) -> tuple[ProgramModel, dict[str, bool | float]]:
    """Return the graph, and those of the fixed inputs that decide conditions and dropout in it."""
    from rnnconvert.containers.graph_def import GraphDef
    from rnnconvert.files.load import load_with
    from rnnconvert.files.options import Options
    from rnnconvert.formats.tensorflow1 import graph_model, loops
    from rnnconvert.formats.tensorflow1.control_flow import Conditions
    from rnnconvert.formats.tensorflow1.files import whole_graph
    from rnnconvert.formats.tensorflow1.names import CellPlaces
    from rnnconvert.formats.tensorflow1.whole_graph import GraphModel
    from rnnconvert.recognition.flow import ReadProgram

    checkpoint = load_with(path, NAME, Options())
    program = checkpoint.read_as(CellPlaces).program
    graph = whole_graph(path) if fix else None
    truths = {name: value for name, value in fix.items() if isinstance(value, (bool, int, float))}
    conditions = Conditions(graph or GraphDef({}), truths)
    decided = {name: truths[name] for name in conditions.decided_by}
    if decided:
        looked = loops.read(path, conditions.decided())
        program = ReadProgram(looked.scopes, {}, looked.layers) if looked.scopes else None
    if program is None:
        raise UsageError(f"{path} holds weights without a frozen graph, and states no model that can be written")
    model = GraphModel(checkpoint.replace(read=program))
    model.stated = graph_model.signature(path)
    return model, decided
