"""A described model with its weights as a model of OpenVINO's IR."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a conversion asks for the endings alone
    from rnnconvert.files.adapter import Ports
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.export_target import ExportedGraph
    from rnnconvert.scaffolding.weights import LayerWeights

NAME = "openvino"
TITLE = "OpenVINO"
SUFFIXES = (".xml",)


def graph(description: Description, weights: LayerWeights) -> ExportedGraph:
    """Return a model in the IR: see formats/openvino/export_graph.py."""
    from rnnconvert.formats.openvino.export_graph import LACKING, exported
    from rnnconvert.scaffolding.graph.model import operation_graph
    from rnnconvert.scaffolding.graph.recurrent import held_by

    return exported(operation_graph(description, weights, TITLE, LACKING, held_by(NAME, counts=False)))


def companions(path: Path) -> Sequence[Path]:
    """Return the file of the numbers."""
    from rnnconvert.formats.openvino import xml_graph

    return xml_graph.companions(path)


def recipe(path: Path, ports: Ports) -> list[str]:
    """Return the lines that run a file in OpenVINO on the CPU, in float32 everywhere."""
    return [
        "import numpy as np",
        "import openvino",
        f"model = openvino.Core().compile_model({str(path)!r}, 'CPU', {{'INFERENCE_PRECISION_HINT': 'f32'}})",
        *ports.lines,
        f"results = model([{', '.join(ports.inputs.values())}])",
        *(f"{variable} = results[{name!r}]" for name, variable in ports.outputs.items()),
    ]
