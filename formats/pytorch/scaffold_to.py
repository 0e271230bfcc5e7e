"""A described model as a file of PyTorch: a class for every model, a line for every layer."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

from rnnconvert.scaffolding.description import Description
from rnnconvert.scaffolding.text import imported, text

NAME = "pytorch"
TITLE = "PyTorch"
NEEDS = ("torch",)
WEIGHTS = (".pt", ".pth")


def write(description: Description, source: str) -> tuple[str, tuple[str, ...]]:
    """Return the text of the file, and what is left out of it.

    source  the file that was described, as its docstring names it

    Raises RefusedError for a layer without an equivalent.
    """
    from rnnconvert.formats.pytorch.scaffold.writer import STYLE

    return text(description, source, STYLE)


def model(path: Path) -> tuple[Any, dict[str, str]]:
    """Return a new model of a file that `write` wrote, and its layers with what fills them; nothing else is ever run here."""
    make, layers = imported(path)
    return make().eval(), layers


def save(model: Any, file: IO[bytes], name: str) -> None:
    """Write the weights of a model by torch.save."""
    import torch

    torch.save(model.state_dict(), file)
