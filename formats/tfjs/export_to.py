"""A described model with its weights as a layers model of TensorFlow.js."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rnnconvert.language import registry

if TYPE_CHECKING:  # a conversion asks for the endings alone
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.export import ExportedGraph
    from rnnconvert.scaffolding.weights import LayerWeights

NAME = "tfjs"
TITLE = "TensorFlow.js"
SUFFIXES = registry.endings(NAME)


def graph(description: Description, weights: LayerWeights) -> ExportedGraph:
    """Return a layers model: see formats/tfjs/export_graph.py."""
    from rnnconvert.formats.tfjs.export_graph import exported

    return exported(description, weights, TITLE)
