"""A described model with its weights as a .tflite file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a conversion asks for the endings alone
    from rnnconvert.files.adapter import Ports
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.export_target import ExportedGraph
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


def recipe(path: Path, ports: Ports) -> list[str]:
    """Return the lines that run a file in TFLite's interpreter of today."""
    fed = [(f"inputs[{number}]['index']", variable) for number, variable in enumerate(ports.inputs.values())]
    return [
        "import numpy as np",
        "from ai_edge_litert.interpreter import Interpreter",
        f"interpreter = Interpreter({str(path)!r})",
        "inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()",
        *ports.lines,
        *(f"interpreter.resize_tensor_input({place}, {variable}.shape)" for place, variable in fed),
        "interpreter.allocate_tensors()",
        *(f"interpreter.set_tensor({place}, {variable})" for place, variable in fed),
        "interpreter.invoke()",
        *(f"{name} = interpreter.get_tensor(outputs[{number}]['index'])" for number, name in enumerate(ports.outputs.values())),
    ]
