"""Loops of a program over the steps of sequences, as one node each: what a step computes is a model in the model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.pytorch.described.modules import read_by, renewed
from rnnconvert.formats.pytorch.program.program import LoopState, OperatorCall, Ref, UnknownLoop
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
    r.build.place = "a loop"
    try:
        _LoopReading(r, loop, operations).read()
    except (RefusedError, NeedError) as error:
        for ref in (*(state.last for state in loop.states if isinstance(state.last, Ref)), *(ref for _, ref in loop.listed)):
            r.give(ref, error)


class _LoopReading:
    """A loop on its way into a description."""

    def __init__(self, r: ProgramReading, loop: UnknownLoop, operations: Sequence[OperatorCall]) -> None:
        self._r, self._loop, self._operations = r, loop, operations
        self._inside: dict[Ref, OperatorCall] = {ref: operation for operation in operations for ref in operation.outputs.values()}
        self._handed = {state.handed for state in loop.states}
        self._inputs: list[Value] = []
        self._captured: list[SourceTensor] = []

    def read(self) -> None:
        r, loop, build = self._r, self._loop, self._r.build
        count = None if loop.count is None else r.value(loop.count)
        if not isinstance(count, (int, Size)) or isinstance(count, bool):
            raise build.refuse("a loop whose steps a run decides", "it is not one over the steps of a sequence, read from the first to the last")
        taken = {operation: (operation.inputs[0], operation.inputs[1]) for operation in self._operations if self._takes_step(operation)}
        sequences = {key: self._in_time(*key, count) for key in dict.fromkeys(taken.values())}
        if not sequences:
            raise build.refuse("a loop that reads no sequence step by step", "how many steps it has is decided by a run")
        changed = [state for state in loop.states if state.last is not state.before]
        begins = [self._tensor(state.before) for state in changed]
        body = [operation for operation in self._operations if operation not in taken and loop.index not in operation.outputs.values()]
        outside = {ref: r.outcome(ref) for ref in self._from_outside(body)}
        same = {state.handed: r.value(state.before) for state in loop.states if state not in changed}
        scope = DescribedModel(build.scope.name, build.scope.path)
        with r.within(scope):
            for state, x in zip(changed, begins, strict=True):
                r.give(state.handed, self._enter(x))
            steps = {key: self._enter(SourceTensor(x.dims[1:], x.dtype, x.name)) for key, x in sequences.items()}
            for operation, key in taken.items():
                r.give(operation.outputs[0], steps[key])
            for ref, outcome in (*outside.items(), *same.items()):
                r.give(ref, renewed(outcome, self._capture))
            for operation in body:
                r.read(operation)
            after, listed = [self._tensor(state.left) for state in changed], [self._tensor(element) for element, _ in loop.listed]
            self._check(changed, begins, after)
            scope.inputs, scope.outputs = tuple(self._inputs), tuple(r.build.read(x) for x in (*after, *listed))
        gives = [*((x.dims, x.dtype, x.name) for x in after), *(((count, *x.dims), x.dtype, x.name) for x in listed)]
        read = [*begins, *sequences.values(), *self._captured]
        results = build.several("loop", "", read, gives, scope=scope, states=len(begins), sequences=len(sequences))
        for state, x in zip(changed, results, strict=False):
            r.give(state.last, x)
        for (_, ref), x in zip(loop.listed, results[len(changed) :], strict=True):
            r.give(ref, StepList(x))

    def _takes_step(self, operation: OperatorCall) -> bool:
        """Return whether an operator takes the step of a sequence that the loop has come to."""
        return operation.kind == "select" and len(operation.inputs) == 3 and operation.inputs[2] is self._loop.index

    def _in_time(self, base: Any, axis: Any, count: Dim) -> SourceTensor:
        """Return a sequence with its time in front, of which the loop reads every step."""
        self._read_before(base)
        x, build = self._tensor(base), self._r.build
        if not isinstance(axis, int) or not -x.rank <= axis < x.rank:
            raise build.refuse(f"a step of axis {axis} of {x.rank}", "it has no such axis")
        axis %= x.rank
        if x.dims[axis] != count:
            raise build.refuse(f"a loop of {count} steps over an axis of {x.dims[axis]}", "it may end before its sequence")
        return build.transpose(x, [axis, *(other for other in range(x.rank) if other != axis)])

    def _read_before(self, ref: Any) -> None:
        """Read, ahead of the loop, the operators in it that a sequence comes from. Raises RefusedError where they read a state."""
        operation = self._inside.get(ref) if isinstance(ref, Ref) else None
        if ref in self._handed or ref is self._loop.index:
            raise self._r.build.refuse("a loop that reads steps of what it computes", "its sequences have to be there before it")
        if operation is not None:
            for other in read_by(operation):
                self._read_before(other)
            self._r.read(operation)

    def _from_outside(self, body: Sequence[OperatorCall]) -> list[Ref]:
        """Return the values from outside that operators of a step read, but for the arrays of the file."""
        read = [*(ref for operation in body for ref in read_by(operation)), *(state.left for state in self._loop.states)]
        inside = {*self._inside, *self._handed}
        return [*dict.fromkeys(ref for ref in read if isinstance(ref, Ref) and ref not in inside and not ref.stored)]

    def _tensor(self, argument: Any) -> SourceTensor:
        x = self._r.value(argument)
        if not isinstance(x, SourceTensor):
            raise self._r.build.refuse("a loop that hands on other than tensors", "a state is a tensor")
        return x

    def _enter(self, x: SourceTensor) -> SourceTensor:
        """Return what stands for a tensor in a step."""
        value = self._r.build.value(x)
        self._inputs.append(value)
        return SourceTensor(x.dims, x.dtype, x.name, value)

    def _capture(self, x: SourceTensor) -> Value:
        """Return what stands in a step for a tensor from outside that is the same in each."""
        self._captured.append(x)
        self._inputs.append(self._r.build.value(x))
        return self._inputs[-1]

    def _check(self, states: Sequence[LoopState], begins: Sequence[SourceTensor], after: Sequence[SourceTensor]) -> None:
        """Raise RefusedError for a state that is of another form after a step."""
        for state, x, y in zip(states, begins, after, strict=True):
            if (x.dims, x.dtype) != (y.dims, y.dtype):
                forms = f"{list(map(str, x.dims))} and leaves {list(map(str, y.dims))}"
                raise self._r.build.refuse(f"a loop whose state {state.handed.name!r} begins with {forms}", "they have to be alike")
