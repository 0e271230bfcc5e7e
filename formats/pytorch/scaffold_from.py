"""Modules and programs of PyTorch as rnnconvert.scaffolding describes models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.fixed import FixedInputs
    from rnnconvert.scaffolding.needs import StatedAxes

NAME = "pytorch"
ASKS = ("axes", "fix")


def describe(path: Path, partial: bool = False, axes: StatedAxes = (), fix: FixedInputs = MappingProxyType({})) -> Description:
    """Return the program of a file of torch.jit.save or torch.export.save: see formats/pytorch/described.

    axes  how many axes each input has that does not state it
    fix   the values of inputs that are plain numbers

    Raises UsageError for a file of weights, which states no model.
    """
    from rnnconvert.formats.pytorch.described.model import describe as describe_file

    return describe_file(path, partial, axes, fix)


def takes(value: Any) -> bool:
    """Return whether a live object is a torch.nn.Module, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def describe_live(module: Any, example: Sequence[Any], partial: bool = False) -> Description:
    """Return the model of a live module: see formats/pytorch/described.

    example  its inputs; sizes that the module does not depend on stay open
    partial  leave out the operators that are not known
    """
    from rnnconvert.formats.pytorch.described.model import describe_live as describe_module

    return describe_module(module, example, partial)
