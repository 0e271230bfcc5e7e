"""A described model as a file of Flax nnx: a class for every model, a line for every layer."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

from rnnconvert.scaffolding.description import Description
from rnnconvert.scaffolding.text import imported, text

NAME = "flax"
TITLE = "Flax"
NEEDS = ("flax",)
WEIGHTS = (".msgpack", ".safetensors")


def write(description: Description, source: str) -> tuple[str, tuple[str, ...]]:
    """Return the text of the file, and what is left out of it.

    source  the file that was described, as its docstring names it

    Raises RefusedError for a layer without an equivalent.
    """
    from rnnconvert.formats.jax.scaffold.writer import STYLE

    return text(description, source, STYLE)


def model(path: Path) -> tuple[Any, dict[str, str]]:
    """Return a new model of a file that `write` wrote, and its layers with what fills them; nothing else is ever run here."""
    from flax import nnx

    make, layers = imported(path)
    model_class = make(nnx.Rngs(0))
    model_class.eval()
    return model_class, layers


def save(model: Any, file: IO[bytes], name: str) -> None:
    """Write the state of a model by nnx.to_pure_dict and flax.serialization, or by paths as safetensors.

    Random numbers and what stateful layers keep are left out.
    """
    from flax import nnx

    state = nnx.state(model, nnx.Not(nnx.Any(nnx.RngState, nnx.Cache)))
    if name.endswith(".msgpack"):
        from flax.serialization import msgpack_serialize

        file.write(msgpack_serialize(nnx.to_pure_dict(state)))
        return
    from safetensors.numpy import save as packed

    from rnnconvert.formats.jax.arrays import named_arrays

    file.write(packed({path: array.copy() for path, array in named_arrays(state).items()}))
