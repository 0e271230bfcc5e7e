"""A described model as a file of Keras 3: a function that builds it, functional or Sequential."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

from rnnconvert.containers.temporary import new_folder
from rnnconvert.scaffolding.description import Description
from rnnconvert.scaffolding.text import imported, text

NAME = "keras"
TITLE = "Keras"
NEEDS = ("keras",)
WEIGHTS = (".weights.h5", ".keras")


def write(description: Description, source: str) -> tuple[str, tuple[str, ...]]:
    """Return the text of the file, and what is left out of it.

    source  the file that was described, as its docstring names it

    Raises RefusedError for a layer without an equivalent.
    """
    from rnnconvert.formats.keras.scaffold.writer import STYLE

    return text(description, source, STYLE)


def model(path: Path) -> tuple[Any, dict[str, str]]:
    """Return a new model of a file that `write` wrote, and its layers with what fills them; nothing else is ever run here."""
    make, layers = imported(path)
    return make(), layers


def save(model: Any, file: IO[bytes], name: str) -> None:
    """Write the weights of a model by save_weights, or the whole model by save, as the name's ending says."""
    with new_folder() as folder:
        place = Path(folder) / ("model.weights.h5" if name.endswith(".h5") else "model.keras")
        (model.save_weights if name.endswith(".h5") else model.save)(place)
        file.write(place.read_bytes())
