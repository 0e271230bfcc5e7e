"""Loops of a program over the steps of sequences, as one node each: what a step computes is a model in the model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.pytorch.aten_operator import StepList
from rnnconvert.formats.pytorch.described.modules import read_by
from rnnconvert.formats.pytorch.program.program import LoopState, OperatorCall, Ref, UnknownLoop, refs
from rnnconvert.graphs.sizes import Dim, Size, open_size, reaches
from rnnconvert.scaffolding.description import DescribedModel, Value
from rnnconvert.scaffolding.loops import in_time, loop_node, name_axes, step_numbers
from rnnconvert.scaffolding.needs import NeedError
from rnnconvert.scaffolding.tensors import SourceTensor, renewed

if TYPE_CHECKING:
    from rnnconvert.formats.pytorch.described.reading import ProgramReading


_NESTED = 8
"""The most operators within one another of the place of a step in its sequence."""


@dataclass(frozen=True)
class _StepPlace:
    """Where in an axis a step of a loop reads: `start + by * n` in step n."""

    start: Dim
    by: int


@dataclass(frozen=True)
class _StepElements:
    """The elements of a sequence that the steps of a loop read, one each.

    base   the sequence
    axis   the axis that holds them
    place  where
    """

    base: Any
    axis: Any
    place: _StepPlace


def by_loop(operations: Sequence[OperatorCall]) -> Iterator[tuple[UnknownLoop | None, list[OperatorCall]]]:
    """Yield operators in their order, a loop's operators together."""
    for loop, group in itertools.groupby(operations, lambda operation: operation.loop):
        yield loop, list(group)


def read_loop(r: ProgramReading, loop: UnknownLoop, operations: Sequence[OperatorCall]) -> None:
    """Read a loop; what it gives is an error where something reads it, if it is not one over the steps of sequences."""
    try:
        _LoopReading(r, loop, operations).read()
    except (RefusedError, NeedError) as error:
        lasts = [state.last for state in loop.states if isinstance(state.last, Ref) and state.last is not state.before]
        inside = [ref for operation in operations for ref in operation.outputs.values()]
        for ref in (*lasts, *inside, *(each.filled for each in loop.listed)):
            r.give(ref, error)


@dataclass(frozen=True)
class _LoopStep:
    """A step of a loop.

    scope     as a model: it reads the states, a step of each sequence, and values that all steps share; it gives the next ones
    left      the states after it
    listed    the values that it puts into lists
    captured  the values that it reads from around the loop
    """

    scope: DescribedModel
    left: Sequence[SourceTensor]
    listed: Sequence[SourceTensor]
    captured: Sequence[SourceTensor]


def _spreads(x: SourceTensor, y: SourceTensor) -> bool:
    """Return whether a tensor is like another once its axes of length 1 are as long as that one's."""
    return x.rank == y.rank and all(dim in (1, other) for dim, other in zip(x.dims, y.dims, strict=True))


def _scaled(x: _StepPlace, by: _StepPlace, more: _StepPlace = _StepPlace(0, 0)) -> _StepPlace | None:
    """Return `x * by + more`, if that is a line over the number of the step."""
    if by.by or not isinstance(by.start, int):
        return None
    return _StepPlace(x.start * by.start + more.start, x.by * by.start + more.by)


class _LoopReading:
    """A loop on its way into a description."""

    def __init__(self, r: ProgramReading, loop: UnknownLoop, operations: Sequence[OperatorCall]) -> None:
        self._r, self._loop, self._operations = r, loop, operations
        self._inside: dict[Ref, OperatorCall] = {ref: operation for operation in operations for ref in operation.outputs.values()}
        self._handed = {state.handed for state in loop.states}

    def read(self) -> None:
        """Add the loop. Raises RefusedError for one that is not over the steps of sequences, NeedError where a length has to be another."""
        r, loop, build = self._r, self._loop, self._r.build
        count = None if loop.count is None else r.value(loop.count)
        if loop.why or not isinstance(count, (int, Size)):
            raise self._refused(loop.why or "it is not one over the steps of a sequence, from the first to the last")
        self._check_elements()
        picked, sequences = dict[OperatorCall, tuple[_StepElements, bool]](), dict[_StepElements | None, SourceTensor]()
        for operation in self._operations:
            elements = self._step_taken(operation)
            if elements is not None and (x := sequences.get(elements[0]) or self._in_time(elements[0], count)) is not None:
                picked[operation], sequences[elements[0]] = elements, x
        self._not_empty(count)
        body = self._body(picked)
        if not sequences or any(ref is loop.index for operation in body for ref in read_by(operation)):
            sequences[None] = step_numbers(build, count)
        changed = [state for state in loop.states if state.last is not state.before]
        begins = [self._tensor(state.before) for state in changed]
        name_axes(build, count, begins)
        step = self._step(changed, begins, body, picked, sequences)
        spread = [y.dims if _spreads(x, y) else x.dims for x, y in zip(begins, step.left, strict=True)]
        if spread != [x.dims for x in begins]:  # a state of one row for all sequences
            begins = [build.expand(x, dims) for x, dims in zip(begins, spread, strict=True)]
            step = self._step(changed, begins, body, picked, sequences)
        self._check(changed, begins, step.left)
        results = loop_node(build, step.scope, count, [begins, [*sequences.values()], step.captured], step.left, step.listed)
        for state, x in zip(changed, results, strict=False):
            r.give(state.last, x)
        for each, x in zip(loop.listed, results[len(changed) :], strict=True):
            place = _StepPlace(0, -1 if each.at_front else 1) if each.index is None else self._place(each.index)
            if place is None or place.by not in (1, -1):
                raise self._refused("it fills other places of a tensor than those from one to another")
            first = place.start if place.by > 0 else place.start - count + 1
            r.give(each.filled, StepList(build.flip(x, 0) if place.by < 0 else x, first))

    def _step(
        self,
        changed: Sequence[LoopState],
        begins: Sequence[SourceTensor],
        body: Sequence[OperatorCall],
        picked: Mapping[OperatorCall, tuple[_StepElements, bool]],
        sequences: Mapping[_StepElements | None, SourceTensor],
    ) -> _LoopStep:
        """Return a step of the loop.

        begins     the first values of the states that it changes
        body       the operators that compute it
        picked     the operators that take a step of a sequence, which, and whether its axis stays
        sequences  these, with the time in front; the numbers of the steps as None
        """
        r, loop, captured, inputs = self._r, self._loop, list[SourceTensor](), list[Value]()
        outside = {ref: r.outcome(ref) for ref in self._from_outside(body)}
        outside |= {state.handed: r.value(state.before) for state in loop.states if state not in changed}

        def enter(x: SourceTensor) -> SourceTensor:
            inputs.append(r.build.value(x))
            return SourceTensor(x.dims, x.dtype, x.name, inputs[-1])

        def capture(x: SourceTensor) -> Value:
            captured.append(x)
            inputs.append(r.build.value(x))
            return inputs[-1]

        scope = DescribedModel(r.build.scope.name, r.build.scope.path)
        with r.within(scope):
            for state, x in zip(changed, begins, strict=True):
                r.give(state.handed, enter(x))
            steps = {key: enter(SourceTensor(x.dims[1:], x.dtype, x.name)) for key, x in sequences.items()}
            capture(next(iter(sequences.values())))  # whose first axis says how many steps there are
            if None in steps and loop.index is not None:
                r.give(loop.index, steps[None])
            for operation, (key, stays) in picked.items():
                for ref in operation.outputs.values():
                    r.give(ref, r.build.unsqueeze(steps[key], [key.axis % (steps[key].rank + 1)]) if stays else steps[key])
            for ref, outcome in outside.items():
                r.give(ref, renewed(outcome, capture))
            for operation in body:
                r.read(operation)
            left, listed = [self._tensor(state.left) for state in changed], [self._tensor(each.element) for each in loop.listed]
            scope.inputs, scope.outputs = tuple(inputs), tuple(r.build.read(x) for x in (*left, *listed))
        return _LoopStep(scope, left, listed, captured)

    def _not_empty(self, count: Dim) -> None:
        """Note how long an axis has to be so that there is a step: runtimes take no loop without one."""
        symbol, zero = count.root if isinstance(count, Size) and not reaches(count, 1) else ("", 0)
        if symbol and reaches(count - open_size(symbol) + zero, 0):
            self._r.build.reaches(open_size(symbol), zero + 1)

    def _body(self, picked: Mapping[OperatorCall, Any]) -> list[OperatorCall]:
        """Return the operators that what a step leaves is computed by, in their order."""
        loop, wanted = self._loop, dict[OperatorCall, None]()
        waiting = [*refs([state.left for state in loop.states]), *refs([each.element for each in loop.listed])]
        while waiting:
            ref = waiting.pop()
            operation = self._inside.get(ref)
            if operation is not None and operation not in wanted and operation not in picked and ref is not loop.index:
                wanted[operation] = None
                waiting += read_by(operation)
        return [operation for operation in self._operations if operation in wanted]

    def _step_taken(self, operation: OperatorCall) -> tuple[_StepElements, bool] | None:
        """Return the sequence of which an operator takes an element in each step, and whether it keeps its axis; None for another."""
        base, axis, index, *rest = [*operation.inputs, None, None, None][:5]
        place = self._place(index) if operation.kind in ("select", "slice") else None
        if place is None or not place.by or not isinstance(axis, int):
            return None
        stays = operation.kind == "slice"
        if stays and (operation.inputs[4:] not in ([], [1]) or self._place(rest[0]) != _StepPlace(place.start + 1, place.by)):
            return None
        return _StepElements(base, axis, place), stays

    def _place(self, index: Any, depth: int = 0) -> _StepPlace | None:
        """Return which place an index is in each step, where it is a line over the number of the step."""
        if index is self._loop.index and index is not None:
            return _StepPlace(0, 1)
        operation = self._inside.get(index) if isinstance(index, Ref) else None
        if operation is None or operation.kind not in ("add", "sub", "mul", "neg", "derive_index"):
            number = self._same_in_all(index)
            return _StepPlace(number, 0) if isinstance(number, (int, Size)) and not isinstance(number, bool) else None
        terms = [self._place(operand, depth + 1) for operand in operation.inputs] if depth < _NESTED else [None]
        places = [term for term in terms if term is not None]
        if len(places) < len(terms) or len(terms) > (3 if operation.kind == "derive_index" else 2):
            return None
        first, second = (*places, _StepPlace(0, 0))[:2]
        if operation.kind == "derive_index":
            return _scaled(first, places[2], second) if len(places) == 3 else None
        if operation.kind == "mul":
            return _scaled(first, second) or _scaled(second, first)
        sign = _StepPlace(-1, 0)
        if operation.kind == "neg":
            return _scaled(first, sign)
        return _scaled(second, _StepPlace(1, 0) if operation.kind == "add" else sign, first)

    def _same_in_all(self, argument: Any) -> Any:
        """Return an argument that is the same in all steps; None for one that is not."""
        try:
            for operator in self._before(argument):
                self._r.read(operator)
            return self._r.value(argument)
        except RefusedError:
            return None

    def _in_time(self, elements: _StepElements, count: Dim) -> SourceTensor | None:
        """Return the elements of a sequence that the steps read, with the time in front; None where a run decides which these are."""
        listed = self._same_in_all(elements.base)
        x = listed.x if isinstance(listed, StepList) else listed
        if not isinstance(x, SourceTensor) or not -x.rank <= elements.axis < x.rank:
            return None
        return in_time(self._r.build, x, elements.axis % x.rank, elements.place.start, elements.place.by, count, self._alike)

    def _before(self, ref: Any) -> list[OperatorCall]:
        """Return the operators in the loop that a value comes from, in their order. Raises RefusedError where they read a state."""
        operators: dict[OperatorCall, None] = {}
        waiting = [ref]
        while waiting:
            ref = waiting.pop()
            if ref in self._handed or ref is self._loop.index:
                raise self._refused("it reads steps of what it computes")
            operation = self._inside.get(ref) if isinstance(ref, Ref) else None
            if operation is not None and operation not in operators:
                operators[operation] = None
                waiting += read_by(operation)
        return [operation for operation in self._operations if operation in operators]

    def _from_outside(self, body: Sequence[OperatorCall]) -> list[Ref]:
        """Return the values from outside that operators of a step read, but for the arrays of the file."""
        read = [*(ref for operation in body for ref in read_by(operation)), *(state.left for state in self._loop.states)]
        inside = {*self._inside, *self._handed}
        return [*dict.fromkeys(ref for ref in read if isinstance(ref, Ref) and ref not in inside and not ref.stored)]

    def _tensor(self, argument: Any) -> SourceTensor:
        self._r.build.place = "a loop"
        x = self._r.value(argument)
        if isinstance(x, (int, Size)) and not isinstance(x, bool):
            return SourceTensor((), "int64", "number", numbers=np.asarray(x, object if isinstance(x, Size) else np.int64))
        if not isinstance(x, SourceTensor):
            raise self._refused("it hands on, or puts into a list, other than tensors")
        return x

    def _check(self, states: Sequence[LoopState], begins: Sequence[SourceTensor], after: Sequence[SourceTensor]) -> None:
        """Raise RefusedError for a state that is of another form after a step."""
        for state, x, y in zip(states, begins, after, strict=True):
            if x.dtype != y.dtype:
                self._r.ask_type(y, x.dtype)
                self._r.ask_type(x, y.dtype)
            if x.rank != y.rank or x.dtype != y.dtype or not all(map(self._alike, x.dims, y.dims)):
                forms = f"{list(map(str, x.dims))}, and a step leaves {list(map(str, y.dims))}"
                raise self._refused(f"its state {state.handed.name!r} begins as {forms}")

    def _alike(self, dim: Dim, other: Dim) -> bool:
        """Return whether two lengths are one. Raises NeedError where an open one has to be the other."""
        try:
            self._r.same(dim, other)
        except ValueError:
            return False
        return dim == other

    def _check_elements(self) -> None:
        """Raise RefusedError for an operator in place that may change what another step, or the model around, reads."""
        around = {ref.storage for operation in self._operations for ref in read_by(operation) if ref not in self._inside}
        around |= {ref.storage for ref in self._handed}
        for operation in self._operations:
            if operation.base is not None and not around.isdisjoint(operation.base.lineage()):
                raise self._refused(f"{operation.label} changes in place what another step may read")

    def _refused(self, reason: str) -> RefusedError:
        self._r.build.place = "a loop"
        return self._r.build.refuse("a loop whose steps a run decides", reason)
