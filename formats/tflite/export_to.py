"""A described model with its weights as a .tflite file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a conversion asks for the endings alone
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.export import ExportedGraph
    from rnnconvert.scaffolding.weights import LayerWeights

NAME = "tflite"
TITLE = "TFLite"
SUFFIXES = (".tflite",)
OPTIONS = ("dtype",)


def graph(description: Description, weights: LayerWeights, dtype: str = "float32") -> ExportedGraph:
    """Return a model as a TFLite graph: see formats/tflite/export_graph.py. Raises UsageError for another element type."""
    from rnnconvert.core.errors import UsageError
    from rnnconvert.core.remedies import Flag
    from rnnconvert.formats.tflite.export_graph import LACKING, exported
    from rnnconvert.formats.tflite.export_tables import STORAGES
    from rnnconvert.scaffolding.graph.model import operation_graph

    storage = STORAGES.get(dtype)
    if storage is None:
        raise UsageError(f"{Flag('dtype', dtype)}: TFLite's kernels compute in float32. Choose float32, float16 or int8")
    return exported(operation_graph(description, weights, TITLE, LACKING), storage)
