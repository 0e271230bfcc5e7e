"""A described model with its weights as an ncnn model: NAME.param and NAME.bin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a conversion asks for the endings alone
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.export import ExportedGraph
    from rnnconvert.scaffolding.weights import LayerWeights

NAME = "ncnn"
TITLE = "ncnn"
SUFFIXES = (".param",)


def graph(description: Description, weights: LayerWeights) -> ExportedGraph:
    """Return a model in ncnn's layers: see formats/ncnn/export_rules.py."""
    from rnnconvert.formats.ncnn.export_rules import exported

    return exported(description, weights)


def companions(path: Path) -> Sequence[Path]:
    """Return the file of the numbers."""
    return (path.with_suffix(".bin"),)
