"""A whole model as a header: what `export` reports of it, and the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rnnconvert.core.arrays import nbytes
from rnnconvert.formats.c_header.layer_code import StoredMatrix, WrittenLayer
from rnnconvert.formats.c_header.model_code import WrittenModel
from rnnconvert.formats.c_header.target import built, model_of
from rnnconvert.formats.c_header.write import guard_of, rendered, write_lines
from rnnconvert.scaffolding.description import Description
from rnnconvert.scaffolding.weights import LayerWeights


@dataclass(frozen=True)
class HeaderExport:
    """A model as C, before it is written.

    model      its code
    layers     its recurrent layers
    recurrent  these in words
    notes      what a reader of it should know
    """

    model: WrittenModel
    layers: Sequence[WrittenLayer]
    recurrent: Sequence[str]
    notes: Sequence[str]

    @property
    def inputs(self) -> list[str]:
        """Its inputs, with their axes."""
        return [f"{port.name} ({', '.join(map(str, port.axes))})" for port in self.model.inputs]

    @property
    def outputs(self) -> list[str]:
        """Its outputs, with their axes."""
        return [f"{port.name} ({', '.join(map(str, port.axes))})" for port in self.model.outputs]

    @property
    def nodes(self) -> int:
        """How many operations it has."""
        return len(self.model.program.operations)

    @property
    def size(self) -> int:
        """How many bytes its numbers have."""
        stored: list[StoredMatrix] = [*self.model.arrays.values(), *(layer.stored for layer in self.layers)]
        return sum(nbytes(array) for each in stored for array in (*each.numbers.values(), *each.scales.values()))

    @property
    def rounded(self) -> str:
        """Why its numbers differ from its source's, in words."""
        words = {"int8": "its matrices are rounded to int8", "float16": "its weights are rounded to float16"}
        return words.get(self.model.storage, "")

    @property
    def goes_step_by_step(self) -> bool:
        """Whether it has a function for one step, which goes on from its state."""
        return not self.model.why_no_step

    def recipe(self, path: Path) -> list[str]:
        """Return lines of C that run the model once."""
        return [f'#include "{path.name}"', *self.model.call(7)]

    def write(self, path: Path) -> None:
        """Write a new file; its numbers become text piece by piece."""
        write_lines(path, rendered(self.layers, guard_of(path), self.model))


def exported(description: Description, weights: LayerWeights, name: str, storage: str) -> HeaderExport:
    """Return a described model as a C header.

    Raises RefusedError for a layer or a setting without an equivalent.
    """
    builder = built(description, weights, name, storage)
    model = model_of(builder)
    notes = [*builder.notes, *model.notes]
    if description.checks:
        notes.append(f"{model.name}_run checks no lengths: what it is called with has to fulfil these conditions")
    return HeaderExport(model, list(builder.layers.values()), builder.recurrent, notes)
