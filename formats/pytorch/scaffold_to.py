"""A described model as a file of PyTorch: a class for every model, a line for every layer."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import IO, Any

from rnnconvert.scaffolding.description import Description

NAME = "pytorch"
WEIGHTS = (".pt", ".pth")


def write(description: Description, source: str) -> str:
    """Return the text of the file.

    source  the file that was described, as its docstring names it

    Raises RefusedError for a layer without an equivalent.
    """
    from rnnconvert.formats.pytorch.scaffold.writer import text

    return text(description, source)


def model(path: Path) -> tuple[Any, dict[str, str]]:
    """Return a new model of a file that `write` wrote, and its layers with what fills them; nothing else is ever run here."""
    spec = importlib.util.spec_from_file_location("rnnconvert_scaffold", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    made = next(
        kind
        for kind in reversed(list(vars(module).values()))
        if isinstance(kind, type) and kind.__module__ == spec.name
    )
    return made().eval(), getattr(module, "LAYERS", {})


def save(model: Any, file: IO[bytes], name: str) -> None:
    """Write the weights of a model by torch.save."""
    import torch

    torch.save(model.state_dict(), file)
