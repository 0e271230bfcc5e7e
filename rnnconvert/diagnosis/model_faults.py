"""Faults around recurrent layers that people make, each as its effect on a whole model's inputs, outputs or one of its weights.

fault_tables has the faults of layers; these need no reference, since the model itself runs with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.printable import quoted
from rnnconvert.models.model import Model
from rnnconvert.running.inputs import exchanged

Change = Callable[[Array], "Array | None"]
"""Gives an array with the fault, or None where it does not apply."""

_LARGEST = 1 << 22
"""The most numbers of a weight that is changed: it goes through the pipe for each fault that is tried."""


@dataclass(frozen=True, eq=False)
class ModelFault:
    """Something wrong with how a model is called, or with its content.

    name      its name in reports
    sentence  the completion of "the model gives the same if ..."
    remedy    the remedy, or ""
    input     its effect on each input with several axes
    output    its effect on an output that differs; for a fault of inputs, on every output
    weight    the weight's numbers, and those with the fault
    exact     whether it has no fitted constants: a fault with such constants, or the same by other means, is tried only if nothing else
              explains the difference
    """

    name: str
    sentence: str
    remedy: str = ""
    input: Change | None = None
    output: Change | None = None
    weight: tuple[Array, Array] | None = None
    exact: bool = True

    def of_inputs(self, arrays: Sequence[Array]) -> list[Array] | None:
        """Return inputs with the fault, None where it changes nothing."""
        if self.input is None:
            return list(arrays)
        changed = [self.input(array) if array.ndim > 1 else None for array in arrays]
        if all(array is None for array in changed):
            return None
        return [array if new is None else new for array, new in zip(arrays, changed, strict=True)]


def _softmax(axis: int) -> Change:
    def change(y: Array) -> Array | None:
        if axis >= y.ndim - 1 or y.shape[axis] < 2:
            return None
        powers = np.exp(y.astype(np.float64) - y.max(axis=axis, keepdims=True))
        return np.asarray(powers / powers.sum(axis=axis, keepdims=True))

    return change


def _log_softmax(y: Array) -> Array | None:
    softmax = _softmax(-1)(y)
    if softmax is None:
        return None
    shifted = y.astype(np.float64) - y.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def _function(function: Callable[[Array], Array]) -> Change:
    return lambda y: np.asarray(function(y.astype(np.float64)))


def _halves(join: Callable[[Array, Array], Array]) -> Change:
    return lambda y: None if y.ndim < 2 or y.shape[-1] % 2 else join(*np.split(y, 2, axis=-1))


def _flipped(axis: int) -> Change:
    return lambda array: np.flip(array, axis).copy() if array.ndim > max(axis, 1) else None


def _flipped_features(array: Array) -> Array | None:
    return np.flip(array, -1).copy() if array.ndim > 2 and array.shape[-1] > 1 else None


def _flipped_output(axis: int) -> Change:
    return lambda array: np.flip(array, axis).copy() if array.ndim > 2 else None


def _flipped_sequence(axis: int) -> Change:
    return lambda array: np.flip(array, axis).copy() if array.ndim > 2 else array


def _filling(array: Array) -> Array | None:
    """Return how many steps at the end of each sequence are zero, (batch); None where no sequence ends so, or one holds nothing else."""
    zero = (array == 0).reshape(*array.shape[:2], -1).all(axis=2)
    count = np.cumprod(zero[:, ::-1], axis=1).sum(axis=1)
    return count if count.any() and (count < array.shape[1]).all() else None


def _filled_before(array: Array) -> Array | None:
    count = _filling(array)
    return None if count is None else np.stack([np.roll(row, int(steps), axis=0) for row, steps in zip(array, count, strict=True)])


def _filled_after(array: Array) -> Array | None:
    turned = _filled_before(np.flip(array, 1))
    return None if turned is None else np.flip(turned, 1).copy()


def _standardised(*axes: int) -> Change:
    def change(x: Array) -> Array | None:
        if x.dtype.kind != "f" or x.ndim < 3:
            return None
        wide = x.astype(np.float64)
        spread = wide.std(axis=axes, keepdims=True)
        return None if (spread == 0).any() else np.asarray((wide - wide.mean(axis=axes, keepdims=True)) / spread).astype(x.dtype)

    return change


def _numbered(step: int) -> Change:
    return lambda x: x + np.asarray(step, x.dtype) if x.dtype.kind in "iu" and (x + step >= 0).all() else None


_ORDER = "give both models their steps in one order"
_FEATURES = "give both models the features of a step in one order"
_BOTH = "give both models the same inputs: both standardised, or neither"

EXCHANGED = ModelFault(
    "batch and time exchanged",
    "the first two axes of its sequences are exchanged",
    "exchange them where the model is called, or set batch_first",
    exchanged,
    lambda y: exchanged(y) if y.ndim > 2 else y,
)
"""How a model with the other order of axes is called."""

OUTPUT_FAULTS = (
    *(
        ModelFault(f"{name} at the end", f"{words} is applied to its output", f"give {words} to both or to neither", output=change)
        for name, words, change in (
            ("softmax", "softmax", _softmax(-1)),
            ("log_softmax", "log_softmax", _log_softmax),
            ("sigmoid", "a sigmoid", _function(lambda y: 1 / (1 + np.exp(-y)))),
            ("tanh", "tanh", _function(np.tanh)),
            ("relu", "relu", _function(lambda y: np.maximum(y, 0))),
            ("logarithm", "a logarithm", _function(np.log)),
            ("softmax over axis 1", "softmax over axis 1", _softmax(1)),
            ("softmax over axis 0", "softmax over axis 0", _softmax(0)),
        )
    ),
    *(
        ModelFault(name, f"the two halves of its output are {words}", "join the directions alike (merge)", output=_halves(join))
        for name, words, join in (
            ("directions summed", "added", np.add),
            ("directions averaged", "averaged", lambda forward, backward: (forward + backward) / 2),
            ("directions multiplied", "multiplied", np.multiply),
            ("output halves exchanged", "exchanged", lambda forward, backward: np.concatenate([backward, forward], axis=-1)),
        )
    ),
    *(
        ModelFault(f"output reversed along axis {axis}", f"its output is reversed along axis {axis}", _ORDER, output=_flipped_output(axis))
        for axis in (1, 0)
    ),
)  # fmt: skip
"""Faults of outputs, for both of two models."""

INPUT_FAULTS = (
    *(
        ModelFault(f"input reversed along axis {axis}", f"its input is reversed along axis {axis}", _ORDER, _flipped(axis))
        for axis in (1, 0)
    ),
    ModelFault("features reversed", "the features of its input stand in reverse order", _FEATURES, _flipped_features),
    *(
        ModelFault(
            f"input and output reversed along axis {axis}",
            f"its input and its output are reversed along axis {axis}",
            _ORDER,
            _flipped(axis),
            _flipped_sequence(axis),
        )
        for axis in (1, 0)
    ),
    ModelFault("padding first", "the filling stands before the steps of a sequence", "fill sequences on the other side", _filled_before),
    ModelFault("padding last", "the filling stands behind the steps of a sequence", "fill sequences on the other side", _filled_after),
    *(
        ModelFault(f"input standardised {name}", f"its input has mean 0 and deviation 1 {words}", _BOTH, _standardised(*axes))
        for name, words, axes in (
            ("by feature", "in each feature", (0, 1)),
            ("by sequence", "in each feature of each sequence", (1,)),
            ("as a whole", "as a whole", (0, 1, 2)),
        )
    ),
    *(
        ModelFault(
            f"numbers of tokens {words}", f"the numbers of its tokens are {words}", "number the tokens alike", _numbered(step), exact=False
        )
        for step, words in ((1, "1 higher"), (-1, "1 lower"))
    ),
)
"""Faults of inputs."""


def _without_first(table: Array) -> Array:
    changed = table.copy()
    changed[0] = 0
    return changed


def _shifted(step: int, fill: bool) -> Callable[[Array], Array]:
    def change(table: Array) -> Array:
        changed = np.roll(table, step, axis=0)
        if not fill:
            changed[0 if step > 0 else -1] = 0
        return changed

    return change


_WEIGHTS: tuple[tuple[str, str, bool, Callable[[Array], Array]], ...] = (
    ("transposed", "is transposed", False, lambda array: array.T.copy() if array.ndim == 2 and len(set(array.shape)) == 1 else array),
    ("negated", "has the other sign", False, lambda array: -array),
    ("missing", "is zero", False, lambda array: np.zeros_like(array) if array.ndim == 1 else array),
    ("row 0 zeroed", "is zero in row 0, as for padding", True, _without_first),
    *(
        (f"rows {words}", f"has its rows {words}", True, _shifted(step, fill))
        for step, words in ((1, "1 lower"), (-1, "1 higher"))
        for fill in (True, False)
    ),
)  # fmt: skip
"""Faults of a weight: the name, the completion of "the weight ...", whether it is one of tables (embeddings), and the change."""


def weight_faults(model: Model, other: Model | None) -> Iterator[ModelFault]:
    """Yield the faults of each weight of a model that is in no recurrent layer, and that they change.

    other  the other model, where there is one: a weight that both have is right
    """
    right = [] if other is None else [np.asarray(array) for array in other.arrays.values()]
    alike = other is not None and other.framework == model.framework
    for unit in model.units:
        if unit.stack is not None or unit.alias:
            continue
        table = bool({"embedding", "array"} & set(unit.kinds))
        for name in unit.arrays:
            array = np.asarray(model.arrays[name])
            if array.dtype.kind != "f" or not 1 <= array.ndim <= 2 or array.size > _LARGEST or _among(array, right, alike):
                continue
            for what, words, of_tables, change in _WEIGHTS:
                changed = change(array) if not of_tables or (table and array.ndim == 2 and len(array) > 2) else array
                if not np.array_equal(changed, array):
                    yield ModelFault(
                        f"{name} {what}", f"its weight {quoted(name)} {words}", "", weight=(array, changed.astype(array.dtype))
                    )


def _among(array: Array, others: Sequence[Array], alike: bool) -> bool:
    """Return whether a weight is among others; of a square one only their own framework says how it lies."""
    square = array.ndim == 2 and len(set(array.shape)) == 1
    forms = (array,) if square or alike else (array, array.T)
    return (alike or not square) and any(form.shape == other.shape and np.array_equal(form, other) for form in forms for other in others)


_CONSTANTS = (255.0, 256.0, 127.5, 127.0, 128.0, 100.0, 1000.0, 32767.0, 32768.0, 65535.0)
SCALES = (1.0, *(power for constant in _CONSTANTS for power in (1 / constant, constant)))
"""The most common factors of inputs: where a search for another factor begins."""


def linear(what: str, change: str, factor: Array, offset: Array, fault: ModelFault) -> ModelFault:
    """Return the fault of an input or output that is multiplied and shifted.

    what    "input" or "output"
    change  what reports call it
    """
    words = " and ".join(
        text
        for text, neutral in (
            (f"multiplied by {_numbers(factor)}", (factor == 1).all()),
            (f"shifted by {_numbers(offset)}", (offset == 0).all()),
        )
        if not neutral
    )
    remedy = "do that for both models, or for neither"
    return replace(fault, name=f"{what} {change}", sentence=f"its {what} is {words}", remedy=remedy, exact=False)


def _numbers(values: Array) -> str:
    flat = np.ravel(values)
    inverse = next((constant for constant in _CONSTANTS if np.isclose(flat[0] * constant, 1, rtol=1e-5, atol=0)), None)
    if flat.size == 1:
        return f"1/{inverse:g}" if inverse else f"{flat[0]:.7g}"
    return f"({', '.join(f'{value:.5g}' for value in flat[:4])}{', ...' if flat.size > 4 else ''})"
