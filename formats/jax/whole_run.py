"""Whole modules of Flax nnx, which hold their own code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import FLOATS, Array, epsilon
from rnnconvert.core.errors import UsageError
from rnnconvert.formats.jax.arrays import named_arrays, with_arrays
from rnnconvert.models.model import Unit
from rnnconvert.models.runners import FileModel, ModelOutputs, argument_names, moved

NAME = "nnx"
BY_APPLY = True
"""Whether a function of the caller's runs a tree instead, where one is handed in."""


def open_file(path: Path, config: Path | None = None) -> FileModel:
    """Raise UsageError: a file of arrays holds no code."""
    raise UsageError(f"{path} holds a tree without code. Hand in the module: report.verify(inputs, source=module)")


def run(live: Any, inputs: Sequence[Array], units: Sequence[Unit], before: Sequence[Sequence[Array]] = ()) -> ModelOutputs:
    """Return the outputs of a module as it stands, in evaluation if it was set to that. Raises UsageError for a state without code."""
    import jax.numpy as jnp

    if not callable(live):
        raise UsageError(
            f"{type(live).__name__} holds no code. Hand in the function that calls it, as in apply=lambda tree, x: module.apply(tree, x)"
        )
    begin_anew = getattr(live, "reset_states", lambda: None) if before else lambda: None  # of a class that scaffold wrote
    begin_anew()
    for earlier in before:
        live(*(jnp.asarray(value) for value in earlier))
    outputs = live(*(jnp.asarray(value) for value in inputs))
    begin_anew()
    listed = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return ModelOutputs(tuple(np.asarray(value) for value in listed), {})


def input_names(live: Any) -> list[str]:
    """Return the names of the arguments that the module is called with."""
    return argument_names(live)


def shaken(live: Any, seed: int) -> Any:
    """Return a copy with every floating-point array about one unit in the last place off."""

    generator = np.random.default_rng(seed)
    arrays = {name: array for name, array in named_arrays(live).items() if str(array.dtype) in FLOATS}
    eps = {name: epsilon(array.dtype) for name, array in arrays.items()}
    return with_arrays(live, {name: moved(array, eps[name], generator).astype(array.dtype) for name, array in arrays.items()})
