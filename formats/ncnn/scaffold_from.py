"""A whole net of ncnn as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.scaffolding.description import Description

NAME = "ncnn"


def describe(path: Path, partial: bool = False) -> Description:
    """Return a net for batches, of which ncnn computes one sequence: see rnnconvert/scaffolding/programs/reading.py.

    Raises RefusedError where a layer is not used as it asks.
    """
    from rnnconvert.core.errors import RefusedError
    from rnnconvert.files.load import load_with
    from rnnconvert.files.options import Options
    from rnnconvert.formats.ncnn.whole import NetModel
    from rnnconvert.scaffolding.programs.reading import describe as describe_program

    checkpoint = load_with(path, NAME, Options())
    if checkpoint.read is None:
        raise RefusedError("its graph", "a model of layers", "an operator is not used as it asks")
    model = NetModel(checkpoint)
    if unsized := [value.name for value in model.declared.values() if value.name in model.reads and value.dims is None]:
        remedy = f"State its sizes in the .param: Input {unsized[0]} 0 1 {unsized[0]} 0=WIDTH 1=STEPS, -1 for any number."
        raise RefusedError(f"the input {unsized[0]!r} without sizes", "a model of layers", "no layer shows how many axes it has", remedy)
    return describe_program(model, "", partial)
