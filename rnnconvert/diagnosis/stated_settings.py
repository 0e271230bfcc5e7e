"""The statements of a file's layer, as settings of a conversion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.weights import Recurrent, gates_of
from rnnconvert.files.catalogue import OPTIONS
from rnnconvert.files.checkpoint import Checkpoint


def settings_of(asked: Sequence[str], wanted: Recurrent) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield settings under which a reader that asks for these options may give the layer that is wanted: keys and values."""
    cell = wanted.cell
    derived = {
        "forget_bias": f"{cell.constants.get('f', 0.0):g}",
        "activation": str(cell.activation),
        "recurrent_activation": str(cell.gate_activation),
        "output_activation": str(cell.output_activation),
        "go_backwards": str(wanted.first.reverse).lower(),
        "merge_mode": wanted.layers[-1].merge,
    }
    for key in asked:
        if key in derived:
            yield ((key, derived[key]),)
        elif key not in ("clip", "unaccounted", "dtype"):
            yield from (((key, value),) for value in OPTIONS[key].choices)
    if cell.kind != "rnn" and "recurrent_activation" in asked:
        named = ("recurrent_activation", cell.gate_activation.name)
        yield (named,)
        # Functions of one name in several eras: another option decides.
        for key in asked:
            if key == cell.gate_activation.name:
                yield from ((named, (key, value)) for value in OPTIONS[key].choices)


def arrays_of(checkpoint: Checkpoint, stack: Recurrent) -> dict[str, Array]:
    """Return a layer's arrays as the file has them; where they are not to be told apart, a matrix and a bias for each part."""
    sources = [np.asarray(source) for *_, d in stack.directions() for source in d.arrays.values()]
    arrays = {name: np.asarray(array) for name, array in checkpoint.arrays.items() if name not in checkpoint.tensors}
    arrays = {name: array for name, array in arrays.items() if is_float(array) and array.size and array.ndim}
    if len(checkpoint.layers) > 1:
        arrays = {name: array for name, array in arrays.items() if any(np.may_share_memory(array, source) for source in sources)}
    if arrays and sum(array.size for array in arrays.values()) >= sum(source.size for source in sources):
        return arrays
    joined = {}
    for index, number, d in stack.directions():
        for part in dict.fromkeys(part for part, _ in d.arrays):
            blocks = [
                np.asarray(d.arrays[part, gate])
                for gate in gates_of(d.cell.kind, part)
                if (part, gate) in d.arrays and not (gate and gate == d.cell.coupled)
            ]
            joined[f"{part} {index} {number}"] = np.concatenate(blocks)
    return joined
