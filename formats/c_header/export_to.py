"""A described model with its weights as a C header."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a conversion asks for the endings alone
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.export_target import ExportedGraph
    from rnnconvert.scaffolding.weights import LayerWeights

NAME = "c_header"
TITLE = "a C header"
SUFFIXES = (".h",)
BY_STEPS = "the functions NAME_step and NAME_run of a C header go on from the state that they are handed"
OPTIONS = ("name", "dtype", "storage")


def graph(
    description: Description, weights: LayerWeights, name: str = "model", dtype: str | None = None, storage: str = "float"
) -> ExportedGraph:
    """Return a model as C: see formats/c_header/target.py."""
    from rnnconvert.formats.c_header.model_header import exported

    return exported(description, weights, name, "int8" if storage == "int8" else dtype or "float32")
