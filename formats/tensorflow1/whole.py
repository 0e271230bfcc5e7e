"""Files of TensorFlow 1 as a transplant sees them: by the names of their variables, and a frozen graph by its operations, too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.tensorflow1.names import CellPlaces
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.readers import by_names

NAME = "tensorflow1"


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return a file by its names, with the layers that only the operations of a frozen graph show.

    A recurrent layer keeps the name of its cell; the one that its operations have, as in code that was written of the graph, is another
    name of it.
    """
    model = by_names(checkpoint)
    program = checkpoint.read_as(CellPlaces).program if isinstance(checkpoint.read, CellPlaces) else None
    if program is None:
        return model
    from rnnconvert.formats.tensorflow1.whole_graph import GraphModel

    of_operations = GraphModel(checkpoint.replace(read=program)).model(checkpoint.path)
    added = list(_added(model, of_operations))
    # The operations' layers have their arrays' axes in their own order, not as the file stores them.
    arrays = {name: of_operations.arrays[name] for unit in added for name in unit.names.values()}
    return model.replace(units=(*model.units, *added), arrays={**model.arrays, **arrays})


def _added(model: Model, of_operations: Model) -> Iterator[Unit]:
    """Yield the layers of a graph's operations that the names of its variables do not show, and other names of those that they do."""
    held = {name for unit in model.units for name in unit.arrays}
    for unit in of_operations.units:
        if model.unit(unit.name) is not None:
            continue
        if unit.stack is not None:
            same = next((other for other in model.units if other.stack is not None and _equal(other.stack, unit.stack)), None)
            if same is not None:
                yield unit.replace(alias=same.name)
        elif not unit.alias and not held & {*unit.arrays} and {*unit.arrays} <= model.arrays.keys():
            yield unit


_MATRICES = ("input", "recurrent")


def _equal(stack: Recurrent, other: Recurrent) -> bool:
    """Return whether the matrices of two layers hold the same numbers: a constant may stand in the biases of one of them."""
    pairs = [[direction for _, _, direction in each.directions()] for each in (stack, other)]
    return len(pairs[0]) == len(pairs[1]) and all(
        np.array_equal(np.asarray(array), np.asarray(second.get(*key)))
        for first, second in zip(*pairs, strict=True)
        for key, array in first.arrays.items()
        if key[0] in _MATRICES
    )
