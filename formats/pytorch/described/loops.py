"""Loops of a program over the steps of sequences, as one node each: what a step computes is a model in the model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.pytorch.described.modules import read_by, renewed
from rnnconvert.formats.pytorch.program.program import LoopState, OperatorCall, Ref, UnknownLoop, refs
from rnnconvert.graphs.sizes import Dim, Size
from rnnconvert.scaffolding.description import DescribedModel, Value
from rnnconvert.scaffolding.needs import NeedError
from rnnconvert.scaffolding.tensors import SourceTensor

if TYPE_CHECKING:
    from rnnconvert.formats.pytorch.described.reading import ProgramReading


@dataclass(frozen=True)
class StepList:
    """A list with a value for each step of a loop, as one tensor whose first axis is the time."""

    x: SourceTensor


def by_loop(operations: Sequence[OperatorCall]) -> Iterator[tuple[UnknownLoop | None, list[OperatorCall]]]:
    """Yield operators in their order, those of a loop together."""
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
    """What a step of a loop computes.

    scope     as a model: it reads the states, a step of each sequence, and what is the same in all steps; it gives what follows
    left      the states after it
    listed    what it puts into lists
    captured  what it reads from around the loop
    """

    scope: DescribedModel
    left: Sequence[SourceTensor]
    listed: Sequence[SourceTensor]
    captured: Sequence[SourceTensor]


def _spreads(x: SourceTensor, y: SourceTensor) -> bool:
    """Return whether a tensor is like another once its axes of length 1 are as long as that one's."""
    return x.rank == y.rank and all(dim in (1, other) for dim, other in zip(x.dims, y.dims, strict=True))


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
        picked = {operation: picked for operation in self._operations if (picked := self._step_taken(operation, count)) is not None}
        sequences = {key: self._in_time(*key, count) for key in dict.fromkeys(picked.values())}
        if not sequences:
            raise self._refused("it reads no sequence from the first step to the last")
        changed = [state for state in loop.states if state.last is not state.before]
        begins = [self._tensor(state.before) for state in changed]
        build.call(count, "time")
        for x in begins:
            build.call(x.dims[0] if x.dims else 0, "batch")
        step = self._step(changed, begins, picked, sequences)
        spread = [y.dims if _spreads(x, y) else x.dims for x, y in zip(begins, step.left, strict=True)]
        if spread != [x.dims for x in begins]:  # a state of one row for all sequences
            begins = [build.expand(x, dims) for x, dims in zip(begins, spread, strict=True)]
            step = self._step(changed, begins, picked, sequences)
        self._check(changed, begins, step.left)
        gives = [*((x.dims, x.dtype, "loop") for x in step.left), *(((count, *x.dims), x.dtype, "steps") for x in step.listed)]
        read = [*begins, *sequences.values(), *step.captured]
        results = build.several("loop", "", read, gives, scope=step.scope, states=len(begins), sequences=len(sequences))
        for state, x in zip(changed, results, strict=False):
            r.give(state.last, x)
        for each, x in zip(loop.listed, results[len(changed) :], strict=True):
            r.give(each.filled, StepList(build.flip(x, 0) if each.at_front else x))

    def _step(
        self,
        changed: Sequence[LoopState],
        begins: Sequence[SourceTensor],
        picked: Mapping[OperatorCall, Any],
        sequences: Mapping[Any, SourceTensor],
    ) -> _LoopStep:
        """Return what a step computes.

        begins     what the states that it changes begin with
        picked     the operators that take a step of a sequence, and which
        sequences  these, with the time in front
        """
        r, loop, captured, inputs = self._r, self._loop, list[SourceTensor](), list[Value]()
        body = [operation for operation in self._operations if operation not in picked and loop.index not in operation.outputs.values()]
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
            for operation, key in picked.items():
                for ref in operation.outputs.values():
                    r.give(ref, steps[key])
            for ref, outcome in outside.items():
                r.give(ref, renewed(outcome, capture))
            for operation in body:
                r.read(operation)
            left, listed = [self._tensor(state.left) for state in changed], [self._tensor(each.element) for each in loop.listed]
            scope.inputs, scope.outputs = tuple(inputs), tuple(r.build.read(x) for x in (*left, *listed))
        return _LoopStep(scope, left, listed, captured)

    def _step_taken(self, operation: OperatorCall, count: Dim) -> tuple[Any, Any, bool] | None:
        """Return the sequence of which an operator takes the step that the loop has come to, its axis, and whether its end comes first."""
        if operation.kind != "select" or len(operation.inputs) != 3:
            return None
        base, axis, index = operation.inputs
        if index is self._loop.index:
            return base, axis, False
        derived = index.operation if isinstance(index, Ref) else None
        if derived is None or derived.kind != "derive_index" or derived.inputs[0] is not self._loop.index:
            return None
        for operator in (other for start in refs(derived.inputs[1:2]) for other in self._before(start)):
            self._r.read(operator)
        start, step = (self._r.value(argument) for argument in derived.inputs[1:])
        return (base, axis, step < 0) if (start, step) in ((0, 1), (count - 1, -1)) else None

    def _in_time(self, base: Any, axis: Any, backwards: bool, count: Dim) -> SourceTensor:
        """Return a sequence with its time in front, of which the loop reads every step."""
        for operator in self._before(base):
            self._r.read(operator)
        listed = self._r.value(base)
        x = listed.x if isinstance(listed, StepList) else self._tensor(base)
        if not isinstance(axis, int) or not -x.rank <= axis < x.rank:
            raise self._refused(f"it reads steps of axis {axis} of a tensor with {x.rank}")
        axis %= x.rank
        if not self._alike(x.dims[axis], count):
            raise self._refused(f"it has {count} steps, and reads an axis of {x.dims[axis]}, which may be longer")
        x = self._r.build.transpose(x, [axis, *(other for other in range(x.rank) if other != axis)])
        return self._r.build.flip(x, 0) if backwards else x

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
        if not isinstance(x, SourceTensor):
            raise self._refused("it hands on, or puts into a list, other than tensors")
        return x

    def _check(self, states: Sequence[LoopState], begins: Sequence[SourceTensor], after: Sequence[SourceTensor]) -> None:
        """Raise RefusedError for a state that is of another form after a step."""
        for state, x, y in zip(states, begins, after, strict=True):
            if x.rank != y.rank or x.dtype != y.dtype or not all(map(self._alike, x.dims, y.dims)):
                forms = f"{list(map(str, x.dims))}, and a step leaves {list(map(str, y.dims))}"
                raise self._refused(f"its state {state.handed.name!r} begins as {forms}")

    def _alike(self, dim: Dim, other: Dim) -> bool:
        """Return whether two lengths are one. Raises NeedError where an open one has to be the other."""
        if isinstance(dim, Size) and isinstance(other, Size) and dim != other and dim.symbol and other.symbol:
            raise NeedError(dim.symbol, other)
        try:
            self._r.build.need(dim, other)
        except ValueError:
            return False
        return dim == other

    def _check_elements(self) -> None:
        """Raise RefusedError for an operator in place that may change what another step, or the model around, reads."""
        around = {ref.storage for operation in self._operations for ref in read_by(operation) if ref not in self._inside}
        around |= {ref.storage for ref in self._handed}
        for operation in self._operations:
            if operation.base is not None and (operation.base.parents or operation.base in around):
                raise self._refused(f"{operation.label} changes in place what another step may read")

    def _refused(self, reason: str) -> RefusedError:
        self._r.build.place = "a loop"
        return self._r.build.refuse("a loop whose steps a run decides", reason)
