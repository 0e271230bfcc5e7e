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
    from rnnconvert.formats.ncnn.whole import NcnnModel
    from rnnconvert.scaffolding.programs.reading import describe as describe_program
    from rnnconvert.scaffolding.programs.reading import with_graph

    model = NcnnModel(with_graph(path, NAME))
    dims = {value.name: value.dims for value in model.declared.values() if value.name in model.reads}
    lacking = min((name for name in dims if dims[name] is None), default="")
    if lacking:
        raise RefusedError(
            f"the input {lacking!r} without sizes", "a model of layers", "no layer shows how many axes it has", _stated(lacking, 1)
        )
    try:
        return describe_program(model, "", partial)
    except RefusedError as error:
        name = next((name for name, lengths in dims.items() if lengths is not None and None in lengths), "")
        if error.remedy or not name:
            raise
        raise RefusedError(error.feature, error.target, error.reason, _stated(name, len(dims[name] or ()) - 1), error.layer) from None


def _stated(blob: str, rank: int) -> str:
    """Return the way out where open lengths decide something: to state them in the file, as ncnn's tools do not."""
    sizes = "0=WIDTH 1=STEPS, -1 for any number" if rank < 3 else "0=WIDTH 1=HEIGHT 2=CHANNELS"
    return f"Where lengths decide that, state its sizes in the .param: Input {blob} 0 1 {blob} {sizes}."
