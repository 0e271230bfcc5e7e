"""A described model with its weights as a ComputationGraph of Deeplearning4j: a chain of layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rnnconvert.language import registry

if TYPE_CHECKING:  # a conversion asks for the endings alone
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.export_target import ExportedGraph
    from rnnconvert.scaffolding.weights import LayerWeights

NAME = "dl4j"
TITLE = "Deeplearning4j"
SUFFIXES = registry.endings(NAME)
BY_STEPS = "Deeplearning4j's rnnTimeStep goes on from the states of the last call"


def graph(description: Description, weights: LayerWeights) -> ExportedGraph:
    """Return a model as a chain of layers: see formats/dl4j/export_chain.py."""
    from rnnconvert.formats.dl4j.export_chain import exported

    return exported(description, weights)
