"""A described model with its weights as an ncnn model: NAME.param and NAME.bin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a conversion asks for the endings alone
    from rnnconvert.files.adapter import Ports
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.export_target import ExportedGraph
    from rnnconvert.scaffolding.weights import LayerWeights

NAME = "ncnn"
TITLE = "ncnn"
SUFFIXES = (".param",)
OPTIONS = ("steps",)


def graph(description: Description, weights: LayerWeights, steps: str = "") -> ExportedGraph:
    """Return a model in ncnn's layers: see formats/ncnn/export_rules.py."""
    from rnnconvert.formats.ncnn.export_rules import exported

    return exported(description, weights, steps)


def companions(path: Path) -> Sequence[Path]:
    """Return the file of the numbers."""
    return (path.with_suffix(".bin"),)


def recipe(path: Path, ports: Ports) -> list[str]:
    """Return the lines that run a file in ncnn on one sequence."""
    (numbers,) = companions(path)
    return [
        "import ncnn",
        "import numpy as np",
        "net = ncnn.Net()",
        f"net.load_param({str(path)!r})",
        f"net.load_model({str(numbers)!r})",
        "run = net.create_extractor()",
        *ports.lines,
        *(f"run.input({name!r}, ncnn.Mat({variable}).clone())" for name, variable in ports.inputs.items()),
        *(f"{variable} = np.array(run.extract({name!r})[1])" for name, variable in ports.outputs.items()),
    ]
