"""Modules and programs of PyTorch as rnnconvert.scaffolding describes models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnnconvert.core.errors import UsageError
from rnnconvert.models.runners import Loaded
from rnnconvert.scaffolding.description import Description

NAME = "pytorch"


def describe(path: Path, config: Path | None = None) -> Description:
    """Raise UsageError: a file of weights states no model."""
    raise UsageError(
        f"{path} holds weights without a model. Models come from files that state their layers, or from a live module"
    )


def takes(value: Any) -> bool:
    """Return whether a live object is a torch.nn.Module, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def describe_live(module: Any, example: Sequence[Any]) -> Description:
    """Return the model of a live module: see formats/pytorch/described.

    example  its inputs; sizes that the module does not depend on stay open
    """
    from rnnconvert.formats.pytorch.described.graph import traced
    from rnnconvert.formats.pytorch.described.scopes import describe as whole

    return whole(traced(module, example))


def open_file(path: Path, config: Path | None = None) -> Loaded:
    """Return the live program of a file: see formats/pytorch/whole_run.py."""
    from rnnconvert.formats.pytorch.whole_run import open_file as opened

    return opened(path)
