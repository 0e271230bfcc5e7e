"""A whole frozen graph of TensorFlow's as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
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
    from rnnconvert.graphs.program.lowering import needed
    from rnnconvert.graphs.program.shapes import Shapes
    from rnnconvert.scaffolding.programs.units import ProgramModel

    checkpoint = load_with(path, NAME, Options())
    program = checkpoint.read_as(CellPlaces).program
    if program is None:
        raise UsageError(f"{path} holds weights without a frozen graph, and states no model that can be written")

    class GraphModel(ProgramModel):
        """A graph, in which every value that nothing reads is an output."""

        def input_name(self, value: str) -> str:
            """Return the name of the operation that gives it."""
            return value.partition(":")[0]

        @cached_property
        def gives(self) -> Sequence[str]:
            """Those that are numbers, of operations of which nothing is read and in which an input has a part."""
            main = self.read.scopes[0]
            shapes, reached = Shapes(main.program), set(main.body.inputs)
            read = {name for node in main.nodes for name in node.reads}
            ends = list[str]()
            for node in main.nodes:
                if node.reads & reached:
                    reached.update(node.outputs)
                    ends += [] if read & {*node.outputs} else [name for name in node.outputs if main.constant(name) is None]
            floats = [name for name in ends if (kind := shapes.kind(main, name)) is not None and kind.kind == "f"]
            return floats or ends

        @cached_property
        def reads(self) -> Sequence[str]:
            """Those that outputs depend on."""
            main = self.read.scopes[0]
            read = {name for node in needed(main.nodes, self.gives) for name in node.reads}
            return [name for name in main.body.inputs if name in read]

    return GraphModel(checkpoint.replace(read=program))
