"""The effects of PyTorch's operators on elements between layers: operators that move them as their descriptions say, on arrays.

Source: torch/csrc/jit/runtime/register_prim_ops.cpp for operators on numbers and lists; aten/src/ATen/native/PackedSequence.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.pytorch.aten_operator import AtenOperator, BoundCall, Move, ProgramBuilder
from rnnconvert.graphs import moves
from rnnconvert.graphs.operators import Applied, ChangesError, Computes, Formula, Moves, UnfitError
from rnnconvert.graphs.sizes import Dim, Dims
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Value
from rnnconvert.scaffolding.tensors import SourceTensor


def _held(array: Array) -> SourceTensor:
    return SourceTensor(array.shape, str(array.dtype), numbers=array)


def _array(x: SourceTensor | Value) -> Array:
    assert isinstance(x, SourceTensor) and x.numbers is not None
    return x.numbers


def _padded(x: Array, pairs: Sequence[tuple[int, int]], mode: str, number: float) -> Array:
    """Return padded elements; what is put there comes from no source."""
    if mode != "constant":
        raise ChangesError(f"pad by {mode}")
    return moves.pad(x, *zip(*pairs, strict=True)) if pairs else x


_KINDS: Mapping[type[kinds.Kind], Callable[..., Array]] = {
    kinds.Gather: moves.take,
    kinds.GatherElements: np.take_along_axis,
    kinds.Tile: lambda x, by: moves.tile(x, by),
    kinds.PadAxes: _padded,
}
"""The nodes of a description, as functions of arrays."""


class ElementBuilder(ProgramBuilder):
    """A builder whose tensors are arrays, and which adds nothing to a model."""

    def transpose(self, x: SourceTensor, order: Sequence[int]) -> SourceTensor:
        return _held(_array(x).transpose(order))

    def squeeze(self, x: SourceTensor, axes: Sequence[int]) -> SourceTensor:
        return _held(np.squeeze(_array(x), tuple(axes)))

    def unsqueeze(self, x: SourceTensor, axes: Sequence[int]) -> SourceTensor:
        return _held(moves.unsqueeze(_array(x), axes))

    def reshape(self, x: SourceTensor, dims: Dims) -> SourceTensor:
        return _held(moves.reshape(_array(x), self._sizes(dims)))

    def expand(self, x: SourceTensor, dims: Dims) -> SourceTensor:
        return _held(np.broadcast_to(_array(x), self._sizes(dims)))

    def flip(self, x: SourceTensor, axis: int) -> SourceTensor:
        return _held(np.flip(_array(x), axis))

    def cast(self, x: SourceTensor, dtype: str) -> SourceTensor:
        return x

    def select(self, x: SourceTensor, axis: int, index: Dim) -> SourceTensor:
        return _held(np.asarray(np.take(_array(x), self._sizes([index])[0], axis)))

    def slice(self, x: SourceTensor, axis: int, start: Dim, end: Dim, step: int) -> SourceTensor:
        if step < 1:
            raise UnfitError("slice with a step below 1")
        low, high = self._sizes([start, end])
        moves.check_range(_array(x).shape[axis], low, high)
        return _held(_array(x)[(slice(None),) * axis + (slice(low, high, step),)])

    def stacked(self, parts: Sequence[SourceTensor]) -> SourceTensor:
        return _held(np.stack([_array(part) for part in parts]))

    def concatenate(self, tensors: Sequence[SourceTensor], axis: int) -> SourceTensor:
        return _held(np.concatenate([_array(tensor) for tensor in tensors], axis))

    def several(
        self,
        kind: kinds.Kind,
        layer: str,
        inputs: Sequence[SourceTensor | Value],
        outputs: Sequence[tuple[Dims, str, str]],
        named: Mapping[str, Sequence[SourceTensor]] | None = None,
    ) -> list[SourceTensor]:
        arrays = [_array(x) for x in inputs]
        if isinstance(kind, kinds.Split):
            return [_held(part) for part in moves.split(arrays[0], kind.axis, kind.sizes)]
        return [_held(_KINDS[type(kind)](*arrays, **vars(kind)))]

    def need(self, dim: Dim, length: Dim) -> None:
        if dim != length:
            raise UnfitError(f"an axis of {dim} where {length} is asked for", self._sizes([dim, length]))

    def reaches(self, dim: Dim, length: int) -> None:
        if self._sizes([dim])[0] < length:
            raise UnfitError(f"an axis of {dim} where {length} or more are asked for")

    @staticmethod
    def _sizes(dims: Sequence[Dim]) -> list[int]:
        return [dim for dim in dims if isinstance(dim, int)]


_ELEMENTS = ElementBuilder(DescribedModel("elements"))
_OF_PLACES = ("index", "indices")
"""Parameters that are tensors of places."""


def moving(parameters: str, move: Move, data: tuple[int, ...] | None = (0,), counted: bool = False) -> Moves:
    """Return the effect of an operator that moves numbers on elements.

    data     which inputs have elements to move; None for all
    counted  whether it gives as many parts as the code takes
    """
    entry = AtenOperator(parameters)

    def function(applied: Applied) -> Array | list[Array]:
        try:
            results = move(_ELEMENTS, BoundCall(str(applied.kind), entry, applied, *_arguments(entry, applied, data)))
        except RefusedError as error:
            raise ChangesError(error.feature) from None
        if not isinstance(results, list):
            return _array(results)
        if counted:
            _check_count(applied, len(results))
        return [_array(part) for part in results]

    return Moves(function, data)


def _check_count(applied: Applied, parts: int) -> None:
    """See that an operator gives as many parts as the code takes. Raises UnfitError, ChangesError for what longer sequences change."""
    count = applied.attributes.get("count", parts)
    if count != parts:
        raise UnfitError(f"{applied.kind} into {parts} parts", [count])
    if "split" in str(applied.kind) and count == 1 and applied.input(1).ndim == 0:
        # Another number of parts is what a longer sequence would give; "cat of" joins them all.
        raise ChangesError(f"{applied.kind}, which cuts what is longer than {applied.integers(1)[0]},")


def _arguments(entry: AtenOperator, applied: Applied, data: tuple[int, ...] | None) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of an operator as its move reads them, and further ones that the code states."""
    words = entry.parameters.split()
    first = next((place for place, word in enumerate(words) if word.endswith("*")), len(words))

    def argument(place: int, array: Array | None) -> Any:
        if array is None:
            return None
        of_tensors = data is None or place in data or words[min(place, first, len(words) - 1)].rstrip("*") in _OF_PLACES
        return _held(array) if of_tensors else array.tolist()

    values = [argument(place, array) for place, array in enumerate(applied.inputs)]
    return (values if first == len(words) else [*values[:first], values[first:]]), _stated(applied, entry.names)


def _stated(applied: Applied, words: Collection[str]) -> dict[str, Any]:
    """Return arguments that the code states by name. Raises ChangesError for one that is computed."""
    stated = {word: value for word, value in applied.attributes.items() if word in words and value is not None}
    for word, value in stated.items():
        if not isinstance(value, (int, str)):
            raise ChangesError(f"{applied.kind} with a {word} that is computed")
    return stated


def rejoined(split: Moves, join: Callable[..., Array]) -> Moves:
    """Return the operator that joins all parts of another's list."""
    return Moves(lambda applied: join(split.function(applied), axis=_stated(applied, ["dim"]).get("dim", 0)))


def dropout(applied: Applied) -> Array:
    """Return elements. Raises ChangesError where dropout is on."""
    train, rate = (applied.inputs[place] if place < len(applied.inputs) else None for place in (2, 1))
    if train is None or train.size != 1 or (train.any() and (rate is None or rate.size != 1 or rate.any())):
        raise ChangesError("Dropout that is on")
    return applied.input(0)


def measured(applied: Applied) -> Array:
    """Return the lengths of axes, or of one."""
    shape = applied.input(0).shape
    if len(applied.attributes.get("axes", ())) == 1:
        return np.asarray(shape[applied.attributes["axes"][0]])
    return np.asarray(shape, np.int64)


def length(applied: Applied) -> Array:
    """Return the length of the first axis."""
    return np.asarray(applied.input(0).shape[0])


def batches(applied: Applied) -> Array:
    """Return the sizes of the batches of a packed sequence whose lengths are all the whole."""
    time, batch = applied.input(0).shape[:2][:: -1 if applied.attributes["batch_first"] else 1]
    return np.full(time, batch)


def pack(applied: Applied) -> Array:
    """Return the data of a packed sequence whose lengths are all the whole: steps one after the other.

    Source: aten/src/ATen/native/PackedSequence.cpp, _pack_padded_sequence.
    """
    array = applied.input(0)
    array = array.swapaxes(0, 1) if applied.attributes["batch_first"] else array
    return array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])


def steps(applied: Applied) -> Array:
    """Return a packed sequence's data as (time, batch, values)."""
    array, sizes = applied.input(0), applied.integers(1)
    return array.reshape(len(sizes), sizes[0], *array.shape[1:])


def padded(applied: Applied) -> Array:
    """Return a padded sequence of packed data."""
    sequence = steps(applied)
    return sequence.swapaxes(0, 1) if applied.attributes["batch_first"] else sequence


def _bound(applied: Applied, index: int) -> int | None:
    return None if index >= len(applied.inputs) or applied.inputs[index] is None else applied.integers(index)[0]


def slice_list(applied: Applied) -> Array:
    """Return a slice of a list of numbers."""
    return applied.input(0)[_bound(applied, 1) : _bound(applied, 2) : _bound(applied, 3)]


def item(applied: Applied) -> Array:
    """Return an item of a list of numbers."""
    return np.asarray(applied.input(0)[applied.integers(1)[0]])


def to(applied: Applied) -> np.dtype[Any]:
    """Return an element type. Raises ChangesError for one that is computed."""
    dtype = applied.attributes.get("dtype")
    if not isinstance(dtype, np.dtype):
        raise ChangesError(f"{applied.kind}, another element type that is computed,")
    return dtype


def on_numbers(function: Callable[..., Any], formula: Formula | None = None) -> Computes:
    """Return the operator that computes numbers of numbers."""

    def compute(applied: Applied) -> Array:
        try:
            return np.asarray(function(*applied.arrays))
        except (ArithmeticError, AttributeError) as error:
            raise UnfitError(str(error)) from None

    return Computes(compute, formula=formula)


def equal(first: Array, other: Array) -> bool:
    """Return whether numbers, or lists of them, are the same."""
    if max(first.ndim, other.ndim) > 1:
        raise UnfitError("comparison of tensors")
    return np.array_equal(first, other)


def divided(dividend: Array, other: Array) -> Array:
    """Return quotients, rounded down. Raises UnfitError for zero."""
    if not np.all(other):
        raise UnfitError("division by zero")
    return np.floor_divide(dividend, other)
