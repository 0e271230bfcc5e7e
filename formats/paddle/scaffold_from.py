"""A whole inference model of Paddle's as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from rnnconvert.core.errors import UsageError

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.fixed import FixedInputs
    from rnnconvert.scaffolding.needs import StatedAxes

NAME = "paddle"
ASKS = ("axes", "fix")


def describe(path: Path, partial: bool = False, axes: StatedAxes = (), fix: FixedInputs = MappingProxyType({})) -> Description:
    """Return the program of an inference model: see rnnconvert/scaffolding/programs/reading.py.

    Raises UsageError for a state_dict, RefusedError where an operator is not used as it asks.
    """
    from rnnconvert.files.opened import Opened
    from rnnconvert.formats.paddle import inference
    from rnnconvert.formats.paddle.whole import PaddleModel
    from rnnconvert.scaffolding.programs.reading import describe as describe_program
    from rnnconvert.scaffolding.programs.reading import with_graph

    if inference.recognise(Opened(path)) is None:
        raise UsageError(f"{path} holds weights without a program. Save the model with paddle.jit.save, and name what that writes")
    return describe_program(PaddleModel(with_graph(path, NAME)), "", partial, axes, fix)
