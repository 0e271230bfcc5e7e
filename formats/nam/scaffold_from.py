"""The LSTM of a whole .nam file, with its head, as rnnconvert.scaffolding describes models.

Source: NeuralAmpModelerCore, NAM/lstm.cpp, LSTM::_process_sample.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rnnconvert.core.errors import RefusedError

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.scaffolding.description import Description

NAME = "nam"


def describe(path: Path, partial: bool = False) -> Description:
    """Return the model of a file. Raises RefusedError for another architecture."""
    from rnnconvert.files.load import load
    from rnnconvert.models.readers import model_of
    from rnnconvert.scaffolding.rows import LayerRow

    checkpoint = load(path, NAME)
    units = model_of(checkpoint).units
    stack, head = [unit for unit in units if unit.stack is not None], next((unit for unit in units if unit.name == "head"), None)
    if not stack or head is None:
        raise RefusedError("its architecture", "a model of layers", "of Neural Amp Modeler's, LSTM alone is known")
    first = stack[0].stack
    assert first is not None
    row = LayerRow(first.input_size)
    x = row.dense(head, row.recurrent(stack, row.begin), checkpoint.tensors["head.weight"].shape[0], True)
    return row.described(
        x, ["the plug-in runs half a second of silence before the first sample, so that its states have settled; this does not"]
    )
