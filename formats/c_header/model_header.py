"""A whole model as a header: what `export` reports of it, and the file."""

from __future__ import annotations

from rnnconvert.core.arrays import nbytes
from rnnconvert.formats.c_header.target import built, model_of
from rnnconvert.formats.c_header.write import guard_of, rendered, write_lines
from rnnconvert.scaffolding.description import Description
from rnnconvert.scaffolding.export_target import ExportedGraph
from rnnconvert.scaffolding.weights import LayerWeights

_ROUNDED = {"int8": "its matrices are rounded to int8", "float16": "its weights are rounded to float16"}


def exported(description: Description, weights: LayerWeights, name: str, storage: str) -> ExportedGraph:
    """Return a described model as a C header.

    Raises RefusedError for a layer or a setting without an equivalent.
    """
    builder = built(description, weights, name, storage)
    model, layers = model_of(builder), [*builder.layers.values()]
    notes = [*builder.notes, *model.notes]
    if description.checks:
        notes.append(f"{model.name}_run checks no lengths: what it is called with has to fulfil these conditions")
    inputs, outputs = ([f"{port.name} ({', '.join(map(str, port.axes))})" for port in ports] for ports in (model.inputs, model.outputs))
    stored = [*model.arrays.values(), *(layer.stored for layer in layers)]
    size = sum(nbytes(array) for each in stored for array in (*each.numbers.values(), *each.scales.values()))
    return ExportedGraph(
        inputs,
        outputs,
        len(model.program.operations),
        builder.recurrent,
        notes,
        size,
        lambda path: write_lines(path, rendered(layers, guard_of(path), model)),  # its numbers become text piece by piece
        _ROUNDED.get(storage, ""),
        recipe=lambda path: [f'#include "{path.name}"', *model.call(7)],
        step_by_step=not model.why_no_step,
    )
