"""A whole model of Torch7's modules as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rnnconvert.core.errors import RefusedError, UsageError

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.scaffolding.description import Description

NAME = "torch7"


def describe(path: Path, partial: bool = False) -> Description:
    """Return the outermost module of a file: see rnnconvert/scaffolding/programs/reading.py.

    Raises UsageError for a file of layers alone; RefusedError for several models, for a module that is not known, and for a field.
    """
    from rnnconvert.formats.torch7.files import ReadModules
    from rnnconvert.formats.torch7.whole import ModuleModel
    from rnnconvert.scaffolding.programs.reading import describe as describe_program
    from rnnconvert.scaffolding.programs.reading import with_graph

    checkpoint = with_graph(path, NAME)
    read = checkpoint.read_as(ReadModules)
    if read.models > 1 and not read.containers:
        raise UsageError(f"{path} holds {read.models} layers without a model: that of Torch7 is an nn.Sequential")
    if read.models > 1:
        raise RefusedError(f"{read.models} modules", "one model", "nothing shows which of them is the model")
    for name, reason in read.refused.items():
        raise RefusedError(name, "a model of layers", reason)
    return describe_program(ModuleModel(checkpoint), "", partial)
