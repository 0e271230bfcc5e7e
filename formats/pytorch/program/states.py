"""The first states of a program's layers, and where the lengths of their sequences come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import INPUT, Recurrent
from rnnconvert.formats.pytorch import aten
from rnnconvert.formats.pytorch.program import cells
from rnnconvert.formats.pytorch.program.kinds import BRANCH, RECURRENT
from rnnconvert.formats.pytorch.program.program import OperatorCall, OperatorProgram, Ref, refs
from rnnconvert.graphs.operators import SAME, Moves

_VISITED = 1 << 12
"""The most operators that are followed back from a weight or a state."""


class GivenStates:
    """The states that layers are given.

    learned  for each layer and each of its calls: the states that are parameters, by layer and direction
    """

    def __init__(self, program: OperatorProgram, owned: Mapping[OperatorCall, str], arrays: Mapping[str, Array]) -> None:
        """Begin.

        owned   the layers that operators call
        arrays  every array by its name
        """
        self.learned: dict[str, list[dict[str, Array]]] = {}
        self._program, self._owned, self._arrays = program, owned, arrays
        self._lengths_of: dict[Ref | str, int] = {}

    def words_of_states(self, stack: Recurrent, states: list[Any], cell: bool = False) -> str:
        """Return where a call's initial states come from; learned ones are noted."""
        learned: dict[str, Array] = {}
        words: dict[str, None] = {}
        count = stack.num_layers * stack.num_directions
        for part, state in zip(("initial_hidden", "initial_cell"), states, strict=False):
            width = stack.first.output_size if part == "initial_hidden" else stack.hidden_size
            array = self._parameter(state)
            if array is not None and cell and array.ndim == 2:
                array = array[None]
            if array is not None and array.shape[::2] == (count, width) and array.shape[1] and (array == array[:, :1]).all():
                if array.any():
                    learned[part] = array[:, 0].astype(stack.dtype, copy=False)
                continue
            words[self._source(state)] = None
        words.pop("", None)
        self.learned.setdefault(stack.name, []).append({} if words else learned)
        if words and learned:
            words["parameters of the model"] = None
        return " and ".join(words)

    def lengths(self, sizes: Any) -> str:
        """Return where the lengths of packed sequences come from: those that were packed with the same ones share them."""
        operation = sizes.operation if isinstance(sizes, Ref) else None
        if operation is not None and operation.kind == "batches":
            sizes = operation.attributes.get("lengths")
            while isinstance(sizes, Ref) and _kind(cells.plain(sizes)) in aten.CASTS:
                sizes = cells.plain(sizes).operation.inputs[0]
        place = self._lengths_of.setdefault(sizes if isinstance(sizes, Ref) else str(sizes), len(self._lengths_of) + 1)
        return f"those of {sizes}" if place == 1 else f"those of {sizes} ({place})"

    def _parameter(self, state: Any) -> Array | None:
        """Return the parameter that is spread over the batch to be a state."""
        axes: list[int] = []
        for _ in range(_VISITED):
            if not isinstance(state, Ref) or self._program.is_changed(state):
                return None
            operation = state.operation
            if operation is None:
                array = self._arrays.get(state.stored)
                for axis in reversed(axes):
                    if array is None or not -array.ndim - 1 <= axis <= array.ndim:
                        return None
                    array = np.expand_dims(array, axis)
                return array
            if operation.kind == BRANCH and cells.plain(state) is not state:
                # Layers take states with and without a batch: the way of less axes is for those without.
                state = min((operand for operand in operation.inputs[1:] if isinstance(operand, Ref)), key=_added_axes, default=None)
                continue
            if operation.kind == "unsqueeze" and isinstance(operation.inputs[1], int):
                axes.append(operation.inputs[1])
            elif operation.kind not in _SPREADING or not operation.inputs:
                return None
            state = operation.inputs[0]
        return None

    def _source(self, state: Any) -> str:
        """Return where a state comes from, in words; "" for zeros."""
        waiting, seen, words = [state], set[Ref](), dict[str, None]()
        while waiting and len(seen) < _VISITED:
            ref = waiting.pop()
            if not isinstance(ref, Ref):
                if ref is not None:
                    words["numbers in the code"] = None
                continue
            if ref in seen:
                continue
            seen.add(ref)
            operation = ref.operation
            if operation is None:
                words["parameters of the model" if ref.stored else INPUT] = None
            elif operation.kind in aten.ZEROS or (operation.kind == "full" and operation.inputs[1:2] in ([0], [0.0])):
                words[""] = None
            elif operation in self._owned:
                words[f"the states of {self._owned[operation]!r}"] = None
            elif operation.kind == BRANCH:
                waiting += operation.inputs[1:]
            elif operation.kind in aten.CASTS:
                waiting += operation.inputs[:1]
            elif isinstance(operator := aten.DIALECT.get(operation.kind), Moves):
                data = range(len(operation.inputs)) if operator.data is None else operator.data[:1]
                waiting += [operation.inputs[number] for number in data]
            else:
                words[f"computed by {operation.label}"] = None
        if len(words) > 1:
            words.pop("", None)
        return " and ".join(sorted(words)) if words else "not known"


def _added_axes(value: Ref) -> int:
    """Return how many axes are added to a value last."""
    count = 0
    while count < _VISITED and value.operation is not None and value.operation.kind == "unsqueeze":
        count, value = count + 1, value.operation.inputs[0]
    return count


_SPREADING = frozenset({"expand", "repeat", "expand_as", *(name for name, operator in aten.DIALECT.items() if operator is SAME)})


def between(value: Ref) -> Iterator[OperatorCall]:
    """Yield the operators between a value and what the program keeps."""
    waiting, seen = [value], set[Ref]()
    while waiting and len(seen) < _VISITED:
        ref = waiting.pop()
        if ref.operation is not None and ref not in seen:
            seen.add(ref)
            yield ref.operation
            waiting += refs(ref.operation.inputs)


def kept_names(values: Iterable[Ref]) -> set[str]:
    """Return the names of what some values are computed from."""
    names: set[str] = set()
    waiting, seen = list(values), set[Ref]()
    while waiting and len(seen) < _VISITED:
        ref = waiting.pop()
        if ref in seen:
            continue
        seen.add(ref)
        if ref.stored:
            names.add(ref.stored)
        elif ref.operation is not None and ref.operation.kind not in RECURRENT:
            waiting += refs(ref.operation.inputs)
    return names


def _kind(ref: Ref) -> str:
    return ref.operation.kind if ref.operation is not None else ""
