"""What a model's recurrent layers receive and give when the model itself runs, whole, on random inputs.

This file belongs to the far side of the pipe, as child.py does: it imports numpy and nothing of rnnconvert. An
executor's `witness(request)` receives a `Witness` as request["witness"]: it draws the model's inputs with it, runs the
model twice, and records every call of the layers that are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray

SIZES = ((5, 7, 3), (17, 19, 13), (67, 71, 61))
"""The lengths of a model's open axes, those in their order; the later ones for models that convolve or pool first."""

LARGEST = 1 << 24
"""The most numbers that an input may have, and that may be recorded."""


class TooLargeError(NotImplementedError):
    """An input or a recording is larger than is run."""


class Witness:
    """Inputs of a model, and the calls of its layers in each of its runs.

    layers  the names of the layers that are asked for
    """

    def __init__(self, layers: Sequence[str], seed: int, sizes: Sequence[int]) -> None:
        self.layers = list(layers)
        self._random, self._sizes = np.random.RandomState(seed), sizes
        self._open: dict[Any, int] = {}
        self._inputs: list[Array] = []
        self._runs: list[dict[str, list[dict[str, Any]]]] = []
        self._reasons: dict[str, str] = {}
        self._numbers = 0

    def length(self, axis: Any) -> int:
        """Return the length of an open axis, by its name or its place: the same one for every input."""
        if axis not in self._open:
            self._open[axis] = self._sizes[min(len(self._open), len(self._sizes) - 1)]
        return self._open[axis]

    def draw(self, dims: Sequence[Any], dtype: str = "float32", below: int | None = None, padding: float | None = None) -> Array:
        """Return an input: random floats, integers from 1 on, or true throughout.

        dims     its lengths; a name, or None, for an open axis
        below    what integers stay below: the rows of a table; 3 if None
        padding  of an input (batch, time, ...): what its last sequence ends with

        Raises NotImplementedError for another kind of numbers, and for more than LARGEST.
        """
        shape = tuple(
            dim if isinstance(dim, int) and dim > 0 else self.length(dim if isinstance(dim, str) and dim else place)
            for place, dim in enumerate(dims)
        )
        if np.prod(shape, dtype=np.float64) > LARGEST:
            raise TooLargeError(f"one of its inputs is {shape}: too large to be run for a proof")
        kind = "f" if dtype in ("bfloat16", "float16", "float32", "float64") else np.dtype(dtype).kind
        if kind == "f":
            # bfloat16 holds these numbers, so that every element type receives the same.
            drawn = self._random.standard_normal(shape).astype(np.float32)
            drawn = (drawn.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        elif kind in "iu":
            # One number a sequence may be its length.
            most = max(2, min(3 if below is None or len(shape) < 2 else below, 100))
            drawn = self._random.randint(1, most, shape).astype(dtype)
        elif kind == "b":
            drawn = np.ones(shape, bool)
        else:
            raise NotImplementedError(f"one of its inputs holds {dtype}, and nothing says which values it takes")
        if padding is not None and drawn.ndim > 1 and drawn.shape[1] > 2:
            drawn[-1, -2:] = padding
        self._inputs.append(drawn.copy())
        return drawn

    def twice(self, run: Callable[[], Any], reset: Callable[[], Any] = lambda: None) -> None:
        """Run the model twice on the same inputs: what is random in it gives other numbers.

        reset  forgets what a run left behind
        """
        for _ in range(2):
            reset()
            self._runs.append({})
            run()

    def record(
        self,
        layer: str,
        x: Array,
        y: Array | None = None,
        mask: Array | None = None,
        states: Sequence[Sequence[Array] | None] = (None, None),
        finals: Sequence[Sequence[Array] | None] = (None, None),
    ) -> None:
        """Record a copy of a call of a layer, since the model may change in place what its layers gave; axes as in a request.

        y       every step, (time, batch, out), or the last one, (batch, out), where the model keeps that alone
        mask    (time, batch), which steps count; None for all
        states  hidden and cell states that it receives; None where it receives none
        finals  hidden and cell states that it gives; None where it gives none
        """
        last = y is not None and y.ndim == 2
        values = {"x": x, "y": None if last else y, "last": y if last else None, "mask": mask}
        call: dict[str, Any] = {name: None if array is None else np.array(array, order="C") for name, array in values.items()}
        for names, pair in ((("hidden", "cell"), states), (("h_n", "c_n"), finals)):
            for name, several in zip(names, pair):  # noqa: B905 - Python 3.7 runs this file, too
                call[name] = None if several is None else [np.array(state, order="C") for state in several]
        for value in call.values():
            self._numbers += sum(array.size for array in (value if isinstance(value, list) else [value]) if array is not None)
        if self._numbers > 4 * LARGEST:
            raise TooLargeError("what its layers read and give is too large to be kept for a proof")
        self._runs[-1].setdefault(layer, []).append(call)

    def explain(self, layer: str, why: str) -> None:
        """Say why the calls of a layer are not recorded."""
        self._reasons[layer] = why

    def answer(self) -> dict[str, Any]:
        """Return what the pipe carries: the calls of each layer in each run, reasons by layer, and the inputs."""
        return {"runs": self._runs, "reasons": self._reasons, "inputs": self._inputs}


def witnessed(module: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Return what an executor's `witness` records.

    Raises NotImplementedError for an executor without one, and for a model that does not run on inputs drawn for it.
    """
    if not hasattr(module, "witness"):
        raise NotImplementedError("it runs layers by name, and no model as a whole")
    wanted = request["witness"]
    error: tuple[str, ...] = ()
    for sizes in SIZES:
        recorder = Witness(wanted["layers"], wanted["seed"], sizes)
        try:
            module.witness({**request, "witness": recorder})
            return recorder.answer()
        except NotImplementedError:
            raise
        except Exception as problem:  # what a longer sequence mends is tried with one
            error = error or (f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}",)
    raise NotImplementedError(f"it does not run on inputs that are drawn for it: {error[0]}")
