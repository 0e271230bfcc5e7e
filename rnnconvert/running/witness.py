"""The inputs and outputs of a model, and of its recurrent layers, when the model itself runs, whole.

This file belongs to the far side of the pipe, as child.py does: it imports numpy and nothing of rnnconvert. An
executor's `witness(request)` receives a `Witness` as request["witness"]: it declares the model's inputs to it, and gets
arrays for them, drawn or handed in; then it lets it run the model, and records every call of the layers that are asked for.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rnnconvert.running.sequences import WeightsAloneError

Array = np.ndarray

SIZES = ((5, 7, 3), (17, 19, 13), (67, 71, 61))
"""The lengths of a model's open axes, those in their order; the later ones for models that convolve or pool first."""

LARGEST = 1 << 24
"""The most numbers that an input may have, and that may be recorded."""


class TooLargeError(NotImplementedError):
    """An input or a recording is larger than is run."""


class InputsError(NotImplementedError):
    """Inputs that are handed in are not those that a model takes."""


class ModelInput(NamedTuple):
    """An input as its model states it.

    dims     its lengths; a name, or None, for an open axis; None for axes that are not stated
    below    what integers stay below: the rows of a table; 3 if None
    padding  of an input (batch, time, ...): what its last sequence ends with
    """

    name: str
    dims: Sequence[Any] | None
    dtype: str = "float32"
    below: int | None = None
    padding: float | None = None


class Witness:
    """Inputs of a model, what it gives for them, and the calls of its layers in each of its runs.

    layers  the names of the layers that are asked for
    handed  inputs of one call after another, each with its name, or ""; None where they are drawn
    shakes  how often the model runs once more with each of its weights about one unit in the last place off
    exact   whether a model that computes in a coarser type than its weights have is to compute in theirs, where it can
    named   whether open axes of different names have different lengths; otherwise those in one place have the same
    changes  weights, each with the numbers that take its place
    apart   whether calls that are handed in begin anew, each, and do not follow on one another
    """

    def __init__(
        self,
        layers: Sequence[str],
        seed: int,
        sizes: Sequence[int],
        handed: Sequence[Sequence[tuple[str, Array]]] | None = None,
        shakes: int = 0,
        exact: bool = False,
        named: bool = True,
        changes: Sequence[tuple[Array, Array]] = (),
        apart: bool = False,
    ) -> None:
        self.layers, self.exact, self._changes = list(layers), exact, changes
        self._apart = apart or handed is None
        self.handed, self._shakes, self._seed = handed, shakes, seed
        self._random, self._sizes, self._by_name = np.random.RandomState(seed), sizes, named
        self._open: dict[Any, int] = {}
        self._inputs: Sequence[Array] = []
        self._stated: Sequence[ModelInput] = []
        self._runs: list[dict[str, list[dict[str, Any]]]] = []
        self._recorded: dict[str, list[dict[str, Any]]] = {}
        self._outputs: list[list[tuple[str, Array]]] = []
        self._shaken: list[list[list[tuple[str, Array]]]] = []
        self._shaken_runs: list[dict[str, list[dict[str, Any]]]] = []
        self._shaking = False
        self.ordered = True
        """Whether the model's inputs and outputs have an order, and not names alone; an executor says where they have none."""
        self._notes: list[str] = []
        self._reasons: dict[str, str] = {}
        self._numbers = 0

    input = ModelInput
    """An input as its model states it, for executors, which cannot import it from here."""

    def calls(self, stated: Sequence[ModelInput]) -> list[list[Array]]:
        """Return the inputs of each call of a model that states these: those that are handed in, or twice the same ones, drawn.

        Raises InputsError for others than the model states, NotImplementedError for those that cannot be drawn.
        """
        self._stated = self._stated or stated
        if self.handed is not None:
            return [_fitting(stated, call) for call in self.handed]
        drawn = [_cast(self.draw(each.dims or [], each.dtype, each.below, each.padding), each.dtype) for each in stated]
        return [drawn, drawn]

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
            dim if isinstance(dim, int) and dim > 0 else self.length(dim if self._by_name and isinstance(dim, str) and dim else place)
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
        return drawn

    def run(
        self,
        calls: Sequence[Sequence[Array]],
        call: Callable[[list[Array]], Mapping[str, Array]],
        reset: Callable[[], Any] = lambda: None,
        shake: Callable[[Callable[[Array], Array]], Any] | None = None,
    ) -> None:
        """Run the model on the inputs of each call: where they are drawn, what is random in it gives other numbers the second time.

        call   returns the model's outputs by their names for copies of its inputs, in its order
        reset  forgets what a call left behind: calls that are handed in follow on one another
        shake  replaces each weight of the model as it was loaded by what a function returns for it; None where it cannot

        Raises InputsError where a weight that is to be changed is none of the model's.
        """
        if self._changes:
            self._change(shake)
        outputs = self._sequence(calls, call, reset, self._runs)
        if self._outputs:  # of a model with several functions the first counts, and the others show their layers
            return
        self._inputs, self._outputs = calls[0] if calls else [], outputs
        if shake is None:
            return
        for number in range(self._shakes):
            self._shaking = True
            shake(functools.partial(self._moved, _mover(self._seed + number)))
            runs: list[dict[str, list[dict[str, Any]]]] = []
            self._shaken.append(self._sequence(calls, call, reset, runs))
            self._shaken_runs += runs[-1:]

    def _change(self, shake: Callable[[Callable[[Array], Array]], Any] | None) -> None:
        changed = set()

        def change(weight: Array) -> Array:
            new = self._changed(weight)
            if new is not weight:
                changed.add(id(new))
            return new

        if shake is not None:
            shake(change)
        if len(changed) < len(self._changes):
            raise InputsError("it has no weight with the numbers that are to be changed")

    def _moved(self, move: Callable[[Array], Array], weight: Array) -> Array:
        return move(self._changed(weight))

    def _changed(self, weight: Array) -> Array:
        for old, new in self._changes:
            if weight.shape == old.shape and np.array_equal(weight, old):
                return new
        return weight

    def _sequence(
        self,
        calls: Sequence[Sequence[Array]],
        call: Callable[[list[Array]], Mapping[str, Array]],
        reset: Callable[[], Any],
        runs: list[dict[str, list[dict[str, Any]]]],
    ) -> list[list[tuple[str, Array]]]:
        results = []
        for number, arrays in enumerate(calls):
            if number == 0 or self._apart:
                reset()
            runs.append({})
            self._recorded = runs[-1]
            outputs = call([array.copy() for array in arrays])
            results.append([(str(name), _numbers(str(name), array)) for name, array in outputs.items()])
            if sum(array.size for _, array in results[-1]) > LARGEST:
                raise TooLargeError("what it gives is too large to be kept for a proof")
        return results

    def record(
        self,
        layer: str,
        x: Array | None,
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
        if self._shaking:  # what rounding moves is what a layer gives
            x, states, finals = None, (None, None), (None, None)
        last = y is not None and y.ndim == 2
        values = {"x": x, "y": None if last else y, "last": y if last else None, "mask": mask}
        call: dict[str, Any] = {name: None if array is None else np.array(array, order="C") for name, array in values.items()}
        for names, pair in ((("hidden", "cell"), states), (("h_n", "c_n"), finals)):
            for name, several in zip(names, pair):  # noqa: B905 - Python 3.7 runs this file, too
                call[name] = None if several is None else [np.array(state, order="C") for state in several]
        for value in call.values():
            self._numbers += sum(array.size for array in (value if isinstance(value, list) else [value]) if array is not None)
        if self._numbers > (4 + self._shakes) * LARGEST:
            raise TooLargeError("what its layers read and give is too large to be kept for a proof")
        self._recorded.setdefault(layer, []).append(call)

    def explain(self, layer: str, why: str) -> None:
        """Say why the calls of a layer are not recorded."""
        self._reasons[layer] = why

    def note(self, text: str) -> None:
        """Note how the model ran, if not as it stands."""
        self._notes.append(text)

    def named(self, values: Any, array: Callable[[Any], Array], name: str = "") -> dict[str, Array]:
        """Return the outputs of a model, however they are nested, each by its path: "0", "head", "head.1"; "output" for a single one.

        Of several with one path, such as "c" in "a.b" and "b.c" in "a", the later ones are numbered: "a.b.c (2)". Raises
        NotImplementedError for anything but tensors.
        """
        if type(values) in (str, bytes, bool, int, float, complex, type(None)):
            raise _strange(name or "output", f"a {type(values).__name__}")
        if not isinstance(values, (Mapping, list, tuple)):
            return {name or "output": array(values)}
        self.ordered = self.ordered and not isinstance(values, Mapping)
        pairs = values.items() if isinstance(values, Mapping) else enumerate(values)
        result: dict[str, Array] = {}
        for key, value in pairs:
            if value is not None:
                for path, each in self.named(value, array, f"{name}.{key}".lstrip(".")).items():
                    numbered = (path if number == 1 else f"{path} ({number})" for number in itertools.count(1))
                    result[next(free for free in numbered if free not in result)] = each
        return result

    def answer(self) -> dict[str, Any]:
        """Return the answer for the pipe: the calls of each layer in each run, and reasons by layer.

        inputs       the inputs of the first call
        stated       the model's inputs, as it states them
        paddings     the filling that ends the sequences of each, or None
        rows         the bound below which the integers of each stay, or None
        outputs      the outputs of each run, with their names
        shaken       outputs of each call, of each sequence of calls with other weights
        shaken_runs  the outputs of the layers in the last call of each of these
        notes        how the model ran, if not as it stands
        ordered      whether its inputs and outputs have an order, and not only names
        """
        return {
            "runs": self._runs,
            "reasons": self._reasons,
            "inputs": self._inputs,
            "stated": [[each.name, None if each.dims is None else list(each.dims), each.dtype] for each in self._stated],
            "paddings": [each.padding for each in self._stated],
            "rows": [each.below for each in self._stated],
            "outputs": self._outputs,
            "shaken": self._shaken,
            "shaken_runs": self._shaken_runs,
            "notes": self._notes,
            "ordered": self.ordered,
        }


def _fitting(stated: Sequence[ModelInput], call: Sequence[tuple[str, Array]]) -> list[Array]:
    """Return the inputs of a call in the model's order and types; they go by their names, where these are the model's."""
    names = [each.name for each in stated]
    if len(call) != len(names):
        raise InputsError(f"it takes {len(names)} inputs ({', '.join(names)}), got {len(call)}")
    by_name = dict(call)
    ordered = [by_name[name] for name in names] if set(by_name) == set(names) else [array for _, array in call]
    lengths: dict[str, int] = {}
    for each, array in zip(stated, ordered):  # noqa: B905 - Python 3.7 runs this file, too
        if array.dtype.kind == "f" and each.dtype.lstrip("u").startswith("int") and not np.array_equal(array, np.trunc(array)):
            raise InputsError(f"its input {each.name} holds whole numbers ({each.dtype}), got {array.dtype} with fractions")
        if array.size and each.dtype.lstrip("u").startswith("int") and array.dtype.kind in "iuf":
            bounds = np.iinfo(each.dtype)
            outside = next((value for value in (array.min(), array.max()) if not bounds.min <= value <= bounds.max), None)
            if outside is not None:
                raise InputsError(f"its input {each.name} holds {each.dtype}, which does not hold {outside}")
        if each.dims is None:
            continue
        if array.ndim != len(each.dims):
            raise InputsError(f"its input {each.name} has {len(each.dims)} axes, got {array.shape}")
        for axis, (dim, length) in enumerate(zip(each.dims, array.shape)):  # noqa: B905
            expected = lengths.setdefault(dim, length) if isinstance(dim, str) and dim else dim
            if isinstance(expected, int) and expected > 0 and expected != length:
                raise InputsError(f"axis {axis} of its input {each.name} is {expected}, got {length} ({array.shape})")
    return [_cast(array, each.dtype) for each, array in zip(stated, ordered)]  # noqa: B905


def _numbers(name: str, values: Any) -> Array:
    """Return a copy of an output. Raises NotImplementedError for texts and the like, which are not compared."""
    if isinstance(values, (list, tuple, Mapping)):
        raise _strange(name, "several values in one")
    array = np.array(values, order="C")
    if array.dtype.kind in "OUSMm":
        texts = array.dtype.kind in "US" or all(isinstance(value, (str, bytes)) for value in array.flat)
        raise _strange(name, "text" if texts else f"of type {array.dtype}")
    return array


def _strange(name: str, kind: str) -> NotImplementedError:
    return NotImplementedError(f"its output {name} is {kind} and not a tensor of numbers, so it is not compared")


def _mover(seed: int) -> Callable[[Array], Array]:
    """Return a function that moves numbers about one unit in the last place of their type, up or down."""
    random = np.random.RandomState(seed)

    def moved(values: Array) -> Array:
        step = np.where(random.rand(*values.shape) < 0.5, -0.5, 0.5)
        return np.asarray(values.astype(np.float64) * (1 + step * np.finfo(values.dtype).eps)).astype(values.dtype)

    return moved


def _cast(array: Array, dtype: str) -> Array:
    """Return numbers in the type of an input, "" for any; numpy has no bfloat16, for which float32 stands."""
    return array.astype("float32" if dtype == "bfloat16" else dtype or array.dtype, copy=False)


def witnessed(module: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Return the records of an executor's `witness`.

    Raises NotImplementedError for an executor without one, and for a model that does not run on inputs drawn for it.
    """
    if not hasattr(module, "witness"):
        raise WeightsAloneError("it runs layers by name, and no model as a whole")
    wanted = request["witness"]
    handed, shakes = wanted.get("calls"), wanted.get("shakes", 0)
    if handed is not None:
        more = {name: wanted[name] for name in ("exact", "changes", "apart") if name in wanted}
        recorder = Witness(wanted["layers"], wanted["seed"], SIZES[0], handed, shakes, **more)
        try:
            module.witness({**request, "witness": recorder})
        except InputsError as misfit:
            return {"misfit": str(misfit)}
        return recorder.answer()
    error: tuple[str, ...] = ()
    # Exporters name axes apart that have to be of one length.
    for sizes, named in ((SIZES[0], True), (SIZES[0], False), *((longer, True) for longer in SIZES[1:])):
        recorder = Witness(wanted["layers"], wanted["seed"], sizes, None, shakes, named=named)
        try:
            module.witness({**request, "witness": recorder})
            return recorder.answer()
        except NotImplementedError:
            raise
        except Exception as problem:  # what a longer sequence mends is tried with one
            error = error or (f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}",)
    raise NotImplementedError(f"it does not run on inputs that are drawn for it: {error[0]}")
