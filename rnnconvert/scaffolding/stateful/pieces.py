"""A written stream beside its source: the sequences are cut into pieces, and the states of one call go into the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UsageError
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.runners import ModelApart, ModelOutputs
from rnnconvert.running.inputs import in_order
from rnnconvert.running.models import NamedArrays
from rnnconvert.scaffolding.description import Value
from rnnconvert.scaffolding.stateful.carried import StreamedDescription

_PATTERNS = ((3, 1, 4), (1,), (1, 5, 2))
"""How many steps the pieces have, in turn; the number of steps decides which of these."""
_PIECES = 5
"""How many pieces sequences have where each has the same number of steps."""


class StreamRun(ModelApart):
    """A written stream that reads and gives whole sequences, as its source does."""

    def __init__(self, written: ModelApart, streamed: StreamedDescription) -> None:
        self._written, self._streamed = written, streamed
        self.notes, self.coarse = written.notes, written.coarse
        pairs = zip(written.fixed, streamed.inputs, strict=False)
        self._steps = next((sizes[axis] for sizes, axis in pairs if axis is not None and sizes[axis] is not None), None)
        if self._steps is not None:
            length = self._steps * _PIECES
            self.fixed = [
                [length if place == axis else None for place in range(len(value.shape))]
                for value, axis in zip(streamed.source.scope.inputs, streamed.inputs, strict=True)
            ]

    @property
    def model(self) -> Model:
        return self._written.model

    def ran(
        self, inputs: NamedArrays, units: Sequence[Unit], before: Sequence[NamedArrays] = (), shakes: int = 0
    ) -> tuple[ModelOutputs, list[ModelOutputs]]:
        """Run the stream from zeros on; of a source that keeps its states on the calls before, too."""
        names = [value.name for value in self._streamed.source.scope.inputs]
        calls = [in_order(call, names, "the model") for call in ((*before, inputs) if self._streamed.lasting else (inputs,))]

        def called(place: int) -> ModelOutputs:
            def call(arrays: Sequence[Array]) -> Sequence[Array]:
                plain, shaken = self._written.ran([("", array) for array in arrays], [], shakes=shakes if place >= 0 else 0)
                return (plain if place < 0 else shaken[place]).outputs

            states: Sequence[Array] = self._zeros(calls[-1])
            for arrays in calls:
                outputs, states = self._through(arrays, states, call)
            return ModelOutputs(outputs, {})

        return called(-1), [called(place) for place in range(shakes)]

    def _through(
        self, arrays: Sequence[Array], states: Sequence[Array], call: Callable[[Sequence[Array]], Sequence[Array]]
    ) -> tuple[tuple[Array, ...], Sequence[Array]]:
        """Return the outputs of the stream for whole sequences, and the states behind them."""
        axes, count = self._streamed.inputs, len(self._streamed.outputs)
        lengths = {array.shape[axis] for array, axis in zip(arrays, axes, strict=True) if axis is not None}
        if len(lengths) > 1:
            raise UsageError(f"the inputs have {' and '.join(map(str, sorted(lengths)))} steps. Hand in sequences of one length")
        pieces = []
        for start, end in _cuts(lengths.pop(), self._steps):
            cut = [
                array if axis is None else array[(slice(None),) * axis + (slice(start, end),)]
                for array, axis in zip(arrays, axes, strict=True)
            ]
            gave = call([*cut, *states])
            pieces.append(gave[:count])
            states = gave[count:]
        outputs = [
            values[-1] if axis is None else np.concatenate(values, axis)
            for values, axis in zip(zip(*pieces, strict=True), self._streamed.outputs, strict=True)
        ]
        return tuple(outputs), states

    def _zeros(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the states that a stream begins with."""
        inputs, every = self._streamed.source.scope.inputs, self._streamed.description.scope.inputs
        return [np.zeros((_batch(value, inputs, arrays), *value.shape[1:]), value.dtype) for value in every[len(inputs) :]]


def _cuts(length: int, steps: int | None) -> Iterator[tuple[int, int]]:
    """Yield where pieces begin and end; each has so many steps, if that is stated."""
    pattern, start, number = (steps,) if steps else _PATTERNS[length % len(_PATTERNS)], 0, 0
    while start < length:
        end = min(start + pattern[number % len(pattern)], length)
        yield start, end
        start, number = end, number + 1


def _batch(state: Value, inputs: Sequence[Value], arrays: Sequence[Array]) -> int:
    """Return how many sequences there are: an axis of an input is of a state's batch where the source says so, else it is the first."""
    if state.shape[0] is not None:
        return state.shape[0]
    for value, array in zip(inputs, arrays, strict=True):
        if state.axes and state.axes[0] in value.axes:
            return int(array.shape[value.axes.index(state.axes[0])])
    return int(arrays[0].shape[0])
