"""A whole inference model of Paddle's as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from rnnconvert.core.errors import RefusedError, UsageError

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
    from rnnconvert.files.load import load_with
    from rnnconvert.files.opened import Opened
    from rnnconvert.files.options import Options
    from rnnconvert.formats.paddle import inference
    from rnnconvert.formats.paddle.whole import PaddleModel
    from rnnconvert.scaffolding.programs.reading import describe as describe_program

    if inference.recognise(Opened(path)) is None:
        raise UsageError(f"{path} holds weights without a program. Save the model with paddle.jit.save, and name what that writes")
    checkpoint = load_with(path, NAME, Options())
    if checkpoint.read is None:
        raise RefusedError("its graph", "a model of layers", "an operator is not used as it asks")
    return describe_program(PaddleModel(checkpoint), "", partial, axes, fix)
