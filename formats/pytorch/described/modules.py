"""The modules of a program as models in models: each call of a user's module is a node, and the module is written once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.pytorch.aten_operator import BatchSizes, PackedSteps
from rnnconvert.formats.pytorch.program.program import Caller, OperatorCall, Ref, refs
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Value
from rnnconvert.scaffolding.needs import NeedError
from rnnconvert.scaffolding.tensors import SourceTensor, renewed

if TYPE_CHECKING:
    from rnnconvert.formats.pytorch.described.reading import ProgramReading


class Modules:
    """The modules of one program.

    reading  the program on its way into a description
    """

    def __init__(self, reading: ProgramReading, operations: Sequence[OperatorCall], outputs: Any) -> None:
        self.reading = reading
        self._done: dict[str, DescribedModel] = {}
        self._readers: dict[Ref, list[OperatorCall | None]] = {}
        for operation in operations:
            for ref in read_by(operation):
                self._readers.setdefault(ref, []).append(operation)
        for ref in refs([outputs]):
            self._readers.setdefault(ref, []).append(None)
        self._wanted = self._read_outside(operations)

    def _read_outside(self, operations: Sequence[OperatorCall]) -> dict[str, set[tuple[int, int]]]:
        """Return which outputs of each module are read outside of any of its calls: by operator and output, by the module's path."""
        calls: dict[Caller, list[OperatorCall]] = {}
        for operation in operations:
            for caller in operation.callers:
                calls.setdefault(caller, []).append(operation)
        wanted: dict[str, set[tuple[int, int]]] = {}
        for caller, inside in calls.items():
            within = set(inside)
            for place, operation in enumerate(inside):
                for number, ref in operation.outputs.items():
                    if any(reader not in within for reader in self._readers.get(ref, ())):
                        wanted.setdefault(caller.path, set()).add((place, number))
        return wanted

    def run(self, operations: Sequence[OperatorCall], depth: int = 0) -> None:
        """Read operators in their order; the operators of one call of a user's module become one node.

        depth  how many of an operator's callers the scope stands for
        """
        counts: dict[Caller | None, int] = {}
        for operation in operations:
            counts[_caller(operation, depth)] = counts.get(_caller(operation, depth), 0) + 1
        for caller, group in itertools.groupby(operations, lambda operation: _caller(operation, depth)):
            inside = list(group)
            if caller is None:
                for operation in inside:
                    self.reading.read(operation)
            elif caller.path in self.reading.build.needs or counts[caller] != len(inside) or not self._call(caller, inside, depth):
                self.run(inside, depth + 1)

    def _call(self, caller: Caller, operations: list[OperatorCall], depth: int) -> bool:
        """Add a call of a module; return whether it can be a separate model."""
        wanted = sorted(self._wanted.get(caller.path, ()))
        if any(place >= len(operations) or number not in operations[place].outputs for place, number in wanted):
            raise _unlike(caller)
        gives = [operations[place].outputs[number] for place, number in wanted]
        results = self._described(caller, operations, depth, gives)
        if results is None:
            if caller.path in self._done:
                raise _unlike(caller)
            return False
        scope, inputs, outputs = results
        first = self._done.setdefault(caller.path, scope)
        if first is not scope and _form(first) != _form(scope):
            raise _unlike(caller)
        build = self.reading.build
        read = [build.read(x) for x in inputs]
        after = {ref: renewed(inside, build.value) for ref, inside in zip(gives, outputs, strict=True)}
        values = [value for outside in after.values() for value in _values(outside)]
        path = caller.path.replace(".", "/")
        build.scope.add(kinds.Model(scope=first), path.removeprefix(f"{build.scope.path}/") if build.scope.path else path, read, values)
        for ref, outside in after.items():
            self.reading.give(ref, outside)
        return True

    def _described(
        self, caller: Caller, operations: list[OperatorCall], depth: int, gives: list[Ref]
    ) -> tuple[DescribedModel, list[SourceTensor], list[Any]] | None:
        """Return a module as a model, the tensors that it reads and what it gives; None for one that cannot be a model."""
        reading = self.reading
        produced = {ref for operation in operations for ref in operation.outputs.values()}
        wanted = dict.fromkeys(ref for operation in operations for ref in read_by(operation) if ref not in produced and not ref.stored)
        outside = {ref: reading.outcome(ref) for ref in wanted}
        if any(isinstance(value, Exception | PackedSteps | BatchSizes) for value in outside.values()):
            return None
        done, inputs = dict(self._done), list[SourceTensor]()
        scope = DescribedModel(caller.kind.rpartition(".")[2], caller.path.replace(".", "/"))
        with reading.within(scope):

            def enter(x: SourceTensor) -> Value:
                inputs.append(x)
                value = reading.build.value(x)
                scope.inputs += (value,)
                return value

            for ref, value in outside.items():
                reading.give(ref, renewed(value, enter))
            self.run(operations, depth + 1)
            results = [reading.outcome(ref) for ref in gives]
            try:
                if any(isinstance(result, PackedSteps | BatchSizes) for result in results):
                    raise reading.build.refuse("packed sequences between modules", "a model takes and gives tensors")
                if any(isinstance(result, Exception) for result in results):
                    raise next(result for result in results if isinstance(result, Exception))
                scope.outputs = tuple(reading.build.read(x) for result in results for x in _tensors(result))
            except RefusedError:
                self._done = done
                return None
        return scope, inputs, results


def _unlike(caller: Caller) -> NeedError:
    """Return the request for a reading in which the operators of a module that is called in two ways stand among those around it."""
    return NeedError(caller.path, "among those around it")


def _tensors(value: Any) -> list[SourceTensor]:
    """Return the tensors that `renewed` makes anew, in its order."""
    tensors: list[SourceTensor] = []

    def note(x: SourceTensor) -> Value:
        tensors.append(x)
        return Value(x.name, ())

    renewed(value, note)
    return tensors


def _values(value: Any) -> list[Value]:
    if isinstance(value, list):
        return [inner for item in value for inner in _values(item)]
    if not isinstance(value, SourceTensor):
        return []
    return [value.value] if value.value is not None else [inner for part in value.parts for inner in _values(part)]


def _caller(operation: OperatorCall, depth: int) -> Caller | None:
    """Return the user's module at a depth in whose call an operator ran: torch.nn's containers stand for their contents."""
    callers = [caller for caller in operation.callers if caller.path and not caller.kind.startswith("torch.nn.modules.")]
    return callers[depth] if depth < len(callers) else None


def read_by(operation: OperatorCall) -> Iterable[Ref]:
    """Return the values that an operator reads, as it is called or in the form of the dialect."""
    called = () if operation.called is None else (operation.called[1], list(operation.called[2].values()))
    return refs([operation.inputs, *called])


def _form(scope: DescribedModel) -> Any:
    """Return a signature that is equal for two calls of a module that compute the same."""
    numbers: dict[int, int] = {}

    def number(value: Value) -> Any:
        return numbers.setdefault(id(value), len(numbers)), value.shape, value.dtype

    def setting(value: Any) -> Any:
        return _form(value) if isinstance(value, DescribedModel) else value.tobytes() if isinstance(value, np.ndarray) else repr(value)

    def settings(kind: kinds.Kind) -> Any:
        return type(kind), [setting(value) for value in vars(kind).values()]

    start = [number(value) for value in scope.inputs]
    nodes = [(settings(node.kind), node.layer, [number(value) for value in (*node.reads(), *node.outputs)]) for node in scope.nodes]
    return start, nodes, [number(value) for value in scope.outputs]
