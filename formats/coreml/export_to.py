"""A described model with its weights as a program of Core ML, in a package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rnnconvert.language import registry

if TYPE_CHECKING:  # a conversion asks for the endings alone
    from rnnconvert.files.adapter import Ports
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.export_target import ExportedGraph
    from rnnconvert.scaffolding.weights import LayerWeights

NAME = "coreml"
TITLE = "Core ML"
SUFFIXES = registry.endings(NAME)
OPTIONS = ("dtype",)
FOLDER = True


def graph(description: Description, weights: LayerWeights, dtype: str = "float32") -> ExportedGraph:
    """Return a model as a program: see formats/coreml/export_graph.py. Raises UsageError for another element type."""
    from rnnconvert.core.errors import UsageError
    from rnnconvert.core.remedies import Flag
    from rnnconvert.formats.coreml.export_graph import LACKING, exported
    from rnnconvert.formats.coreml.export_recurrent import holds
    from rnnconvert.scaffolding.graph.model import operation_graph
    from rnnconvert.scaffolding.inputs import drawn

    if dtype not in ("float32", "float16"):
        raise UsageError(
            f"{Flag('dtype', dtype)}: a program of Core ML computes in float32 here. Choose float32, or float16 for its weights"
        )
    one_sequence = (
        array[:1] if value.shape[:1] == (None,) else array
        for value, array in zip(description.scope.inputs, next(drawn(description)), strict=True)
    )
    lengths = [array.shape for array in one_sequence]
    return exported(operation_graph(description, weights, TITLE, LACKING, holds), lengths, "float16" if dtype == "float16" else "float32")


def recipe(path: Path, ports: Ports) -> list[str]:
    """Return the lines that run a file on a Mac."""
    fed = ", ".join(f"{name!r}: {variable}" for name, variable in ports.inputs.items())
    return [
        "import coremltools  # predicts on macOS alone",
        "import numpy as np",
        f"model = coremltools.models.MLModel({str(path)!r})",
        *ports.lines,
        f"results = model.predict({{{fed}}})",
        *(f"{variable} = results[{name!r}]" for name, variable in ports.outputs.items()),
    ]
