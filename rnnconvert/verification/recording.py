"""Executors' recordings of a model that runs whole: requested, checked, and what one call shows of another."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import ExecutorError
from rnnconvert.running.models import Calls, ModelAnswer, ModelProcess, NamedArrays, RefusedInputsError
from rnnconvert.verification.running import Subject, rounding

SMALL = 1 << 20
"""A file of more bytes is run whole only beside another, or where layers were joined: to load a model again takes time."""

MOST_BYTES = 1 << 26
"""The same for two files that are compared."""

MOST_FILES = 16
"""A folder of more files is not a small model."""


@dataclass(frozen=True)
class ModelsInputs:
    """The user's own inputs of whole models.

    label     where they are from
    arrays    one for each input, by the names of either model, or in order
    not_of_layers  why they cannot be inputs of the models' layers; "" where they may be those alone
    """

    label: str
    arrays: NamedArrays
    not_of_layers: str = ""

    @property
    def required(self) -> bool:
        """Whether the models have to take them."""
        return bool(self.not_of_layers)


@dataclass(frozen=True)
class TriedInputs:
    """Inputs of one call.

    what  what they try: "" as drawn, "longer", "large", "negative", "padded", "single" or "own"
    """

    inputs: NamedArrays
    what: str = ""


@dataclass(frozen=True)
class Recording:
    """The calls of a model's layers while it ran whole, twice on the same inputs.

    executor  what ran it
    runs      in each run, the calls of each layer by its name (rnnconvert.running.witness.Witness.record)
    reasons   why a layer's calls are not recorded, by its name
    inputs    the inputs of the model, with their names
    stated    the names of its inputs, and their lengths as it states them: names or None for open axes; None where it does not
    paddings  what ends the sequences of each input, or None
    rows      what the integers of each input stay below, or None
    outputs   what it gave in the first run, by name
    random    whether it gave something else in the second
    rounding  the element types that the executor rounds like, by that of the weights
    ordered   whether its inputs and outputs have an order, and not names alone
    """

    executor: str
    runs: Sequence[Mapping[str, Calls]]
    reasons: Mapping[str, str]
    inputs: NamedArrays
    stated: Sequence[tuple[str, Sequence[Any] | None]]
    paddings: Sequence[float | None]
    rows: Sequence[int | None]
    outputs: Mapping[str, Array]
    random: bool
    rounding: Mapping[str, str]
    ordered: bool

    def trials(self, fillings: Iterable[float]) -> list[TriedInputs]:
        """Return inputs of calls one after the other: the same ones twice, then others of the same kind that show something else.

        fillings  what ends sequences
        """
        return [
            TriedInputs(self.inputs),
            TriedInputs(self.inputs),
            *self._others(),
            *(TriedInputs(self._filled(each), "padded") for each in fillings),
            *self._single(),
        ]

    def full_trials(self) -> list[TriedInputs]:
        """Return the same without anything at the end of sequences that a model leaves out."""
        inputs = []
        for (name, array), padding in zip(self.inputs, self.paddings, strict=True):
            if padding is not None and array.ndim > 1 and array.shape[1] > _FILLED:
                array = array.copy()
                array[-1, -_FILLED:] = array[-1, :_FILLED]
            inputs.append((name, array))
        return replace(self, inputs=inputs).trials(())

    def _others(self) -> Iterator[TriedInputs]:
        yield TriedInputs(self._varied(1.5, (_LESS, _MORE)), "longer")
        # Of a table's rows as many as may be.
        batch, time = next((array.shape[:2] for _, array in self.inputs if array.ndim > 1), (1, 1))
        wanted = min(_LARGEST_BATCH, -(-max((rows or 0 for rows in self.rows), default=0) // time))
        yield TriedInputs(self._varied(_LARGE, (max(batch, wanted), 0)), "large")
        negative = [(name, _negative(array, padding)) for (name, array), padding in zip(self.inputs, self.paddings, strict=True)]
        if any(array is not drawn for (_, array), (_, drawn) in zip(negative, self.inputs, strict=True)):
            yield TriedInputs(negative, "negative")

    def _single(self) -> Iterator[TriedInputs]:
        """Yield one sequence of one step, where an axis is open: what is squeezed, or branches there, differs nowhere else."""
        single = self._varied(1.5, (1, 1))
        if any(array.shape != drawn.shape for (_, array), (_, drawn) in zip(single, self.inputs, strict=True)):
            yield TriedInputs(single, "single")

    def _varied(self, factor: float, lengths: tuple[int, int]) -> NamedArrays:
        """Return inputs of other values, and of other lengths along open axes. The filling that ends a sequence stays there.

        factor   the factor of floats; integers are drawn from the whole table
        lengths  of the first two axes; 0 for no other
        """
        chosen: dict[int, int] = {}
        random = np.random.default_rng(0)
        result = []
        for (name, array), (_, dims), rows, padding in zip(self.inputs, self.stated, self.rows, self.paddings, strict=True):
            for axis, length in enumerate(array.shape[:2]):
                fixed = dims is not None and isinstance(dims[axis], int) and dims[axis] > 0
                if not fixed and lengths[axis]:
                    chosen.setdefault(length, lengths[axis])
                    array = array.take(np.arange(chosen[length]) * length // chosen[length], axis)
            if array.dtype.kind == "f":
                array = np.where(array == padding, array, array * np.asarray(factor, array.dtype))
            elif array.dtype.kind == "b":  # those that are drawn are true throughout
                array = np.asarray(random.random(array.shape) < (0.7 if array.size > 1 else 0))
            elif rows is not None and rows > 2 and array.ndim > 1:
                array = np.where(array == padding, array, random.integers(1, rows, array.shape)).astype(array.dtype)
            result.append((name, array))
        return result

    def _filled(self, filling: float) -> NamedArrays:
        """Return inputs whose last sequence ends with a filling, whichever of its axes is time."""
        result = []
        for name, array in self.inputs:
            if array.ndim > 1 and array.dtype.kind in "fiu":
                value = filling if array.dtype.kind == "f" else 0
                array = array.copy()
                for view in (array, array.swapaxes(0, 1)):
                    if view.shape[1] > _FILLED:
                        view[-1, -_FILLED:] = value
            result.append((name, array))
        return result


def _negative(array: Array, padding: float | None) -> Array:
    """Return floats below zero but for the filling, others as they are: among many of both signs, a greatest one or a sum rarely is."""
    return np.where(array == padding, array, -np.abs(array)) if array.dtype.kind == "f" else array


_MORE, _LESS = 11, 2
"""Other lengths of open axes: of the second, and of the first, which is most often the batch."""

_LARGE = 10.0
"""How many times larger inputs are tried: far from where functions are nearly straight, and beyond where values are clipped."""

_LARGEST_BATCH = 32
"""The largest batch in which the rows of a table are tried."""

_FILLED = 2
"""How many steps of a sequence are filling."""


def wanted(subject: Subject, alone: bool) -> bool:
    """Return whether the model of a layer is run whole: where layers were joined, or where it takes little time.

    alone  whether there is no other model to compare it with
    """
    path = Path(subject.checkpoint.file)
    files = [path] if path.is_file() else itertools.islice(path.rglob("*"), MOST_FILES + 1)
    sizes = [file.stat().st_size for file in files if file.is_file()]
    return len(subject.pieces) > 1 or (0 < len(sizes) <= MOST_FILES and sum(sizes) <= (SMALL if alone else MOST_BYTES))


def record(
    model: ModelProcess, subjects: Sequence[Subject], seed: int, inputs: ModelsInputs | None = None, alone: bool = False
) -> Recording:
    """Run the model of these layers whole on drawn inputs, or on the user's own if it runs on no drawn ones or is the only model.

    Raises ExecutorError if the executor does not run it.
    """
    names = list(dict.fromkeys(name for subject in subjects for name in subject.pieces))
    executor = model.process.executor

    def on_those(arrays: NamedArrays) -> ModelAnswer:
        try:
            return model.run([arrays, arrays], names)
        except RefusedInputsError as error:
            raise ExecutorError(executor.name, str(error)) from None

    drawn = inputs is None or not (alone and inputs.required)
    try:
        answer = model.drawn(names, seed) if inputs is None or drawn else on_those(inputs.arrays)
    except ExecutorError as error:
        if inputs is None or not drawn or error.weights_alone:
            raise
        answer, drawn = on_those(inputs.arrays), False
    outputs, again = answer.run.outputs[:2]
    types = {kind for subject in subjects for kind in (str(subject.stack.dtype), subject.computed_in)}
    rounds = {dtype: rounding(executor, dtype) for dtype in types}
    # What goes on from one call to the next gives other numbers in the second, too.
    random = drawn and any(not np.allclose(array, again[name], 1e-3, 1e-3, equal_nan=True) for name, array in outputs.items())
    return Recording(
        executor.name,
        answer.run.layers,
        answer.reasons,
        answer.inputs,
        answer.stated,
        answer.paddings,
        answer.rows,
        outputs,
        random,
        rounds,
        answer.ordered,
    )


def carried_on(calls: Calls) -> list[Mapping[str, Any]]:
    """Return calls of a layer; those that begin with the states at the end of the one before are one call."""
    runs: list[Mapping[str, Any]] = []
    for call in calls:
        if runs and follows(runs[-1], call):
            before = runs[-1]
            steps = {name: np.concatenate([before[name], call[name]]) for name in ("x", "y")}
            count = before.get("steps", 1) + 1
            runs[-1] = {**before, **steps, "h_n": call["h_n"], "c_n": call["c_n"], "steps": count}
        else:
            runs.append(call)
    return runs


def follows(before: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    pairs = [(before["h_n"], call["hidden"]), (before["c_n"] or [], call["cell"] or [])]
    complete = all(each["mask"] is None and each["y"] is not None for each in (before, call))
    if not complete or not call["hidden"] or before["h_n"] is None or before["x"].shape[1:] != call["x"].shape[1:]:
        return False
    return all(len(left) == len(begun) and all(map(np.array_equal, left, begun)) for left, begun in pairs)


def is_input(x: Array, model_input: Array) -> bool:
    """Return whether a sequence is an input of the model, with either axis first; turned around it is another."""
    return model_input.ndim == 3 and any(np.array_equal(x, array) for array in (model_input, model_input.swapaxes(0, 1)))


def rows_of(values: Array, width: int) -> Iterator[Array]:
    if width and values.size % width == 0:
        yield from np.ascontiguousarray(values, np.float32).reshape(-1, width)


def gap(call: Mapping[str, Any], reader: Mapping[str, Any]) -> str:
    """Return how far what a layer reads is from what the one before it gives; "" for not at all."""
    if call["y"] is None:
        return "that is its last step alone"
    if call["y"].shape != reader["x"].shape:
        return f"{call['y'].shape} becomes {reader['x'].shape}"
    live = np.ones(reader["x"].shape[:2], bool) if call["mask"] is None else call["mask"]
    off = float(np.nan_to_num(np.abs(call["y"] - reader["x"]))[live].max(initial=0.0))
    return f"it is off by {off:.2g}" if off else ""


def apart(call: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two calls gave other numbers."""
    for name in ("y", "last"):
        value, other_value = call[name], other[name]
        if value is not None and other_value is not None and not np.array_equal(value, other_value, equal_nan=True):
            return True
    return False
