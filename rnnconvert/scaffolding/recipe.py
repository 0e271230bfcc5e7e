"""The lines that run an exported file once, for its reader to paste: inputs of zeros as the file takes them, the call, and its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rnnconvert.files.adapter import Ports, variables
from rnnconvert.scaffolding.description import Description
from rnnconvert.scaffolding.inputs import drawn

_SIZES = (2, 7)
"""The batch, and every other axis that the model leaves open."""


Recipe = Callable[[Path, Ports], Sequence[str]]
"""Returns the lines of Python that run a file; what an `export_to` module has as `recipe`."""


def ports(description: Description, inputs: Sequence[str], outputs: Sequence[str]) -> Ports:
    """Return the ports of an export from its words for them, such as "x (batch, time, 6)".

    A file that has no axis for the batch is given one sequence.
    """
    arrays = next(drawn(description, cases=(_SIZES,)))
    split = [word.rpartition(" (") for word in (*inputs, *outputs)]
    names = variables(dict.fromkeys(name for name, _, _ in split))
    lines = []
    for (name, _, words), array in zip(split, arrays, strict=False):
        axes = words[:-1]
        shape = array.shape[-len(axes.split(", ")) :] if axes else ()
        lines.append(f"{names[name]} = np.{'ones' if array.dtype.kind in 'iu' else 'zeros'}({shape}, np.{array.dtype})  # ({axes})")
    read, written = ({name: names[name] for name, _, _ in side} for side in (split[: len(inputs)], split[len(inputs) :]))
    return Ports(read, written, lines)
