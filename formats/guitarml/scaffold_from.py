"""A whole file of GuitarML as rnnconvert.scaffolding describes models.

Source: Alec-Wright/CoreAudioML networks.py, SimpleRNN.forward.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rnnconvert.core.errors import RefusedError, UsageError

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.scaffolding.description import Description

NAME = "guitarml"


def describe(path: Path, partial: bool = False) -> Description:
    """Return the model of a file: `rec`, `lin` and `skip`. Raises UsageError for a state dictionary alone."""
    from rnnconvert.files.load import load
    from rnnconvert.formats.guitarml.files import GuitarMetadata
    from rnnconvert.models.readers import model_of
    from rnnconvert.scaffolding.rows import LayerRow

    checkpoint = load(path, NAME)
    about = checkpoint.metadata_as(GuitarMetadata)["document"].get("model_data")
    units = {unit.name: unit for unit in model_of(checkpoint).units}
    stack = [unit for name, unit in units.items() if unit.stack is not None and name.partition("[")[0] == "rec"]
    head = units.get("lin")
    if not about or not stack or head is None or len(stack) + 1 != len(units):
        raise UsageError(f"{path} holds weights without a model: that of GuitarML has model_data, rec and lin")
    first = stack[0].stack
    assert first is not None
    skip, width = about.get("skip") or 0, checkpoint.tensors["lin.weight"].shape[0]
    if skip not in (0, width) or (skip and width > first.input_size):
        raise RefusedError(
            f"skip = {skip}", "a model", f"it gives {width} values a step and reads {first.input_size}, which cannot be added"
        )
    row = LayerRow(first.input_size)
    x = row.dense(head, row.recurrent(stack, row.begin), width, len(head.names) > 1)
    return row.described(row.plus_input(x, row.begin) if skip else x)
