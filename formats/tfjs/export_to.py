"""A described model with its weights as a layers model of TensorFlow.js."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rnnconvert.language import registry

if TYPE_CHECKING:  # a conversion asks for the endings alone
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.export_target import ExportedGraph
    from rnnconvert.scaffolding.weights import LayerWeights

NAME = "tfjs"
TITLE = "TensorFlow.js"
SUFFIXES = registry.endings(NAME)
OPTIONS = ("form",)


def graph(description: Description, weights: LayerWeights, form: str = "") -> ExportedGraph:
    """Return a layers model, or a graph model where no layers compute it: see formats/tfjs/export_graph.py and export_operations.py.

    form  "layers" or "graph" for that one alone; "" for layers where they hold the model
    """
    from dataclasses import replace

    from rnnconvert.core.errors import RefusedError
    from rnnconvert.formats.tfjs import export_graph, export_operations
    from rnnconvert.scaffolding.graph.model import operation_graph

    notes = []
    if form != "graph":
        try:
            return export_graph.exported(description, weights, TITLE)
        except RefusedError as error:
            if form:
                raise
            notes.append(
                f"its layers have no place for {error.feature} (layer {error.layer!r}), since {error.reason}: the model is a graph"
            )
    written = export_operations.exported(operation_graph(description, weights, TITLE, export_operations.LACKING))
    return replace(written, notes=[*notes, *written.notes])
