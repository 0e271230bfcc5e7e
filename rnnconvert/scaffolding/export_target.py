"""What a room writes whole models as files by, and what it returns: its module `export_to`, and a model in its form."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rnnconvert.files.adapter import Ports, variables
from rnnconvert.models.runners import FileModel, ModelApart
from rnnconvert.scaffolding.description import Description
from rnnconvert.scaffolding.inputs import drawn
from rnnconvert.scaffolding.weights import LayerWeights

Recipe = Callable[[Path, Ports], Sequence[str]]
"""Returns the lines of Python that run a file; what an `export_to` module has as `recipe`."""


@dataclass(frozen=True)
class ExportedGraph:
    """A model in the form of a target, with its weights, before it is written.

    inputs        its inputs, with their axes, in words
    outputs       its outputs, likewise
    nodes         how many nodes it has
    recurrent     the recurrent ones among them, in words
    notes         notes for a reader of the graph
    size          how many bytes its numbers have
    write         writes a new file; large numbers stream into it, or into one with it
    rounded       why its numbers differ from its source's, in words; "" if they do not differ
    opened        returns the written file as a model that reads and gives what its source does; None where it has the source's axes
    recipe        returns the lines that run a file of it in its language; None if that is Python
    steps         how many steps its sequences have where layers are written out; None for any number
    step_by_step  whether what it has for one step goes on from its state
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    nodes: int
    recurrent: Sequence[str]
    notes: Sequence[str]
    size: int
    write: Callable[[Path], object]
    rounded: str = ""
    opened: Callable[[FileModel], ModelApart] | None = None
    recipe: Callable[[Path], Sequence[str]] | None = None
    steps: int | None = None
    step_by_step: bool = False


class ExportTarget(Protocol):
    """A room's module `export_to`: descriptions with their weights as files.

    With OPTIONS its `graph` takes these, too: "name" for the file's, "dtype", and settings by their names. With FOLDER = True it writes a
    folder. It may have

        companions(path)  the files that a written one needs with it
        limits(path)      what runs on drawn inputs do not show of a written file
        recipe(path, ports)  the lines of Python that run a written file once: see Recipe
        BY_STEPS          why its files need no states as inputs and outputs: what runs them goes on from one call to the next
    """

    NAME: str
    TITLE: str
    SUFFIXES: tuple[str, ...]

    def graph(self, description: Description, weights: LayerWeights, **options: str) -> ExportedGraph:
        """Return a model in this form. Raises RefusedError for a layer or a setting without an equivalent."""
        ...


_SIZES = (2, 7)
"""The batch, and every other axis that a model leaves open."""
_BETWEEN_AXES = re.compile(r", (?!axis \d)")
"""What divides axes; an open one may be called "x, axis 1"."""


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
        shape = array.shape[-len(_BETWEEN_AXES.split(axes)) :] if axes else ()
        lines.append(f"{names[name]} = np.{'ones' if array.dtype.kind in 'iu' else 'zeros'}({shape}, np.{array.dtype})  # ({axes})")
    read, written = ({name: names[name] for name, _, _ in side} for side in (split[: len(inputs)], split[len(inputs) :]))
    return Ports(read, written, lines)
