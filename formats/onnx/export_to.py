"""A described model with its weights as an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a conversion asks for the endings alone
    from rnnconvert.core.verdict import Limit
    from rnnconvert.files.adapter import Ports
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.export_target import ExportedGraph
    from rnnconvert.scaffolding.weights import LayerWeights

NAME = "onnx"
TITLE = "ONNX"
SUFFIXES = (".onnx",)


def graph(description: Description, weights: LayerWeights) -> ExportedGraph:
    """Return a model as an ONNX graph: see formats/onnx/export_graph.py."""
    from rnnconvert.formats.onnx.export_graph import exported
    from rnnconvert.scaffolding.graph.model import operation_graph
    from rnnconvert.scaffolding.graph.recurrent import held_by

    return exported(operation_graph(description, weights, TITLE, holds=held_by(NAME)))


def limits(path: Path) -> Sequence[Limit]:
    """Return the layers for which onnxruntime gives infinity although their value is finite: drawn inputs do not reach so far."""
    from rnnconvert.verification.beyond import beyond

    return tuple(beyond(path, "onnxruntime-cpu"))


def recipe(path: Path, ports: Ports) -> list[str]:
    """Return the lines that run a file in onnxruntime."""
    fed = ", ".join(f"{name!r}: {variable}" for name, variable in ports.inputs.items())
    outputs = ", ".join(ports.outputs.values())
    results = outputs if len(ports.outputs) > 1 else f"[{outputs}]"
    return [
        "import numpy as np",
        "import onnxruntime",
        f"session = onnxruntime.InferenceSession({str(path)!r})",
        *ports.lines,
        f"{results} = session.run(None, {{{fed}}})",
    ]
