"""A whole ONNX model as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.fixed import FixedInputs
    from rnnconvert.scaffolding.needs import StatedAxes

NAME = "onnx"
ASKS = ("axes", "fix")
_BY_EXPORTERS = ("main_graph", "main", "tf2onnx", "torch_jit", "torch-jit-export", "torch-jit-exporter", "graph", "onnx_graph", "onnx")
"""The names that exporters have for the graph of any model."""


def describe(path: Path, partial: bool = False, axes: StatedAxes = (), fix: FixedInputs = MappingProxyType({})) -> Description:
    """Return the model of a file: see rnnconvert/scaffolding/programs/reading.py."""
    from rnnconvert.files.load import load_with
    from rnnconvert.files.options import Options
    from rnnconvert.formats.onnx.stored_model import OnnxModel
    from rnnconvert.scaffolding.programs.reading import describe as describe_program

    work = OnnxModel(load_with(path, NAME, Options()))
    title = work.read.file.model.graph.name
    return describe_program(work, "" if title.lower() in _BY_EXPORTERS else title, partial, axes, fix)
