"""A described model with its weights as a .tflite file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a conversion asks for the endings alone
    from rnnconvert.models.runners import FileModel
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.export import ExportedGraph
    from rnnconvert.scaffolding.weights import LayerWeights

NAME = "tflite"
TITLE = "TFLite"
SUFFIXES = (".tflite",)


def graph(description: Description, weights: LayerWeights) -> ExportedGraph:
    """Return a model as a TFLite graph: see formats/tflite/export_graph.py."""
    from rnnconvert.formats.tflite.export_graph import LACKING, exported
    from rnnconvert.scaffolding.graph.model import operation_graph

    return exported(operation_graph(description, weights, TITLE, LACKING))


def open_file(path: Path) -> FileModel:
    """Return a written model as LiteRT runs it."""
    from rnnconvert.models.runners import FileModel

    return FileModel(path, ["litert-cpu"])
