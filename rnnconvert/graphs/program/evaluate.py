"""Operations of a graph, computed in double precision: what the steps of a recurrent layer give, without any framework.

Stored numbers and inputs of any float type become doubles, and rounding to another float type is left out. An operator that
is not here, or a use of one that makes no sense, raises UnmatchedError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rnnconvert.core.arrays import FLOATS, Array, is_float
from rnnconvert.core.limits import PROOF_NODES, PROOF_NUMBERS, PROOF_WORK
from rnnconvert.core.malformed import MALFORMED, passes
from rnnconvert.graphs.program.computing import computed
from rnnconvert.graphs.program.fold_call import FoldedCall
from rnnconvert.graphs.program.kinds import CUTTING, MEASURING, SAME
from rnnconvert.graphs.program.operations import Operation, Program
from rnnconvert.graphs.program.scopes import Scope

_OVERHEAD = 1 << 14
"""The cost of a node in addition to its numbers, in multiplications."""
_LEAST, _EACH_BYTE = 1 << 34, 1 << 14
_EACH = 16
_LOOKING = (*SAME, *CUTTING, *MEASURING, "MatMul")
"""Operations that do not go through all that they read, or account for it by themselves."""
_FLOATS = tuple(FLOATS.values())


class UnmatchedError(Exception):
    """A part of a graph is not what was searched for, or cannot be computed; its text says why."""


class Budget:
    """How much may still be computed."""

    def __init__(self, work: int = PROOF_WORK, overall: Budget | None = None) -> None:
        """Begin.

        work   how many multiplications
        overall  what all proofs of a file may take together
        """
        self.nodes, self.work, self.stored, self.overall = PROOF_NODES, work, PROOF_NUMBERS, overall

    def spend(self, nodes: int, work: int) -> None:
        """Account for work that is about to be done. Raises UnmatchedError, and ValueError for less than none."""
        if min(nodes, work) < 0:
            raise ValueError(f"the work of {nodes} nodes is {work}")
        self.nodes -= nodes
        self.work -= work
        if self.overall is not None:
            self.overall.work -= work + _OVERHEAD * nodes
            if self.overall.work < 0:
                raise UnmatchedError("what the file's layers take to compute is more than a file of its size may")
        if self.nodes < 0 or self.work < 0:
            raise UnmatchedError("its steps take more work to compute than this proof may")


def budget_of(program: Program) -> Budget:
    """Return the work allowed for all proofs of a file's layers together: as much as its numbers need, and no more."""
    return Budget(min(64 * PROOF_WORK, _LEAST + _EACH_BYTE * max(0, program.size + program.companion_bytes)))


class Evaluation:
    """Values of a graph, computed from some that are given.

    scope   the graph
    arrays  values by name
    budget  what this may cost
    shaken  where numbers come from that put every stored float about one unit in the last place off, as rounding does
    """

    def __init__(self, scope: Scope, arrays: Mapping[str, Array], budget: Budget, shaken: np.random.Generator | None = None) -> None:
        self.scope, self.budget, self.shaken = scope, budget, shaken
        self._values: dict[tuple[Scope, str], Array] = {(scope, name): _as_float64(array) for name, array in arrays.items()}
        self._stored: dict[tuple[Scope, str], Array] = {}
        self._bodies: dict[tuple[Scope, Operation], Scope] = {}
        self.held = 0

    def run(self, nodes: Sequence[Operation], outputs: Sequence[str]) -> list[Array]:
        """Compute nodes in their order; return some of their outputs."""
        with np.errstate(all="ignore"):
            for node in nodes:
                self._compute(self.scope, node)
        return [self._value(self.scope, name) for name in outputs]

    def _value(self, scope: Scope, name: str) -> Array:
        scope, name = scope.resolve(name)
        key = scope, name
        if key in self._values:
            return self._values[key]
        if key not in self._stored:
            stored = scope.constant(name)
            if stored is None:
                raise UnmatchedError(f"{name!r} is not known when it is read")
            self._stored[key] = self._shaken(stored)
        return self._stored[key]

    def _shaken(self, stored: Array) -> Array:
        self.held += stored.size
        if self.held > self.budget.stored:
            raise UnmatchedError("its matrices are larger than this proof may hold")
        self.budget.spend(1, stored.size)
        array = _as_float64(stored)
        if self.shaken is None or not is_float(stored) or stored.size == 1:  # one number may be what others equal
            return array
        eps = float(2.0**-7 if stored.dtype.kind == "V" or stored.dtype.name == "bfloat16" else np.finfo(stored.dtype).eps)
        return np.asarray(array * (1 + eps * self.shaken.uniform(-1, 1, array.shape)))

    def _compute(self, scope: Scope, node: Operation) -> None:
        if node.kind == "Constant" and not node.domain:
            return  # looked up where it is read
        inputs = [self._value(scope, name) if name else None for name in node.inputs]
        for name, array in zip(node.outputs, self._outputs(scope, node, inputs), strict=False):
            if name:
                self._values[scope, name] = array

    def _outputs(self, scope: Scope, node: Operation, inputs: list[Array | None]) -> Sequence[Array]:
        kind = node.kind
        looked = 0 if kind in _LOOKING else sum(array.size for array in inputs if array is not None)
        self.budget.spend(1, _EACH * looked + 50)
        try:
            if node.domain:
                raise UnmatchedError(f"a node {kind} of the domain {node.domain!r} is not computed here")
            if kind in ("Loop", "Scan"):
                return self._loop(scope, node, inputs) if kind == "Loop" else self._scan(scope, node, inputs)
            attributes = scope.values(node)
            if attributes is None:
                raise ValueError("its attributes are of kinds that no number needs")
            if kind == "Cast" and inputs[0] is not None and inputs[0].dtype.kind == "f" and attributes["to"] in _FLOATS:
                return [inputs[0]]
            size = len(node.outputs)
            call = FoldedCall(kind, inputs, attributes, size, scope.opset, lambda count: self.budget.spend(0, count))
            results = computed(call)
        except MALFORMED as error:
            if passes(error):
                raise
            raise UnmatchedError(f"a node {kind} ({next(iter(node.outputs), '')!r}) cannot be computed here: {error}") from None
        if results is None:
            raise UnmatchedError(f"a node {kind} ({next(iter(node.outputs), '')!r}) cannot be computed here")
        return [_as_float64(result) for result in results]

    def _body(self, scope: Scope, node: Operation) -> Scope:
        """Return the graph in a loop: the same one each time that the loop runs, for it keeps the values of its last step."""
        if (scope, node) not in self._bodies:
            self._bodies[scope, node] = next(scope.inner(node, 0))
        return self._bodies[scope, node]

    def _step(self, inner: Scope, arguments: Sequence[tuple[str, Array]], first: bool) -> list[Array]:
        self.budget.spend(1, len(inner.nodes))
        moving = {name for name, _ in arguments}
        for name, array in arguments:
            self._values[inner, name] = array
        for node in inner.nodes:
            if not moving.isdisjoint(node.reads):
                moving.update(node.outputs)
            elif not first:
                continue  # what no step changes is as the first one computed it
            self._compute(inner, node)
        return [self._value(inner, name) for name in inner.body.outputs]

    def _loop(self, scope: Scope, node: Operation, inputs: Sequence[Array | None]) -> list[Array]:
        inner = self._body(scope, node)
        names = inner.body.inputs
        most = None if inputs[0] is None else int(inputs[0].reshape(()))
        going = inputs[1] is None or bool(inputs[1].reshape(()))
        states = [_required(array) for array in inputs[2:]]
        gathered: list[list[Array]] = [[] for _ in inner.body.outputs[1 + len(states) :]]
        number = 0
        while going and (most is None or number < most):
            # The body receives the iteration and the condition before its states.
            arguments = [np.array(number, np.int64), np.array(True), *states]
            results = self._step(inner, list(zip(names, arguments, strict=True)), not number)
            going = bool(results[0].reshape(()))
            states = results[1 : 1 + len(states)]
            for collected, output in zip(gathered, results[1 + len(states) :], strict=True):
                collected.append(output)
            number += 1
        return [*states, *map(self._stacked, gathered)]

    def _scan(self, scope: Scope, node: Operation, inputs: Sequence[Array | None]) -> list[Array]:
        inner, attributes = self._body(scope, node), scope.attributes(node)
        count = len(inputs) - attributes["num_scan_inputs"]

        def listed(name: str, length: int) -> list[int]:
            return list(attributes.get(name, [0] * length))

        states = [_required(array) for array in inputs[:count]]
        sequences = [
            np.moveaxis(_required(array), axis, 0)
            for array, axis in zip(inputs[count:], listed("scan_input_axes", len(inputs) - count), strict=True)
        ]
        ways = listed("scan_input_directions", len(sequences))
        sequences = [sequence[::-1] if way else sequence for sequence, way in zip(sequences, ways, strict=True)]
        names = inner.body.inputs
        gathered: list[list[Array]] = [[] for _ in inner.body.outputs[count:]]
        for number in range(min(len(sequence) for sequence in sequences)):
            results = self._step(inner, list(zip(names, [*states, *(sequence[number] for sequence in sequences)], strict=True)), not number)
            states = results[:count]
            for collected, output in zip(gathered, results[count:], strict=True):
                collected.append(output)
        stacked = []
        scanned = zip(gathered, listed("scan_output_axes", len(gathered)), listed("scan_output_directions", len(gathered)), strict=True)
        for parts, axis, way in scanned:
            stacked.append(np.moveaxis(self._stacked(parts[::-1] if way else parts), 0, axis))
        return [*states, *stacked]

    def _stacked(self, parts: Sequence[Array]) -> Array:
        self.budget.spend(0, _EACH * sum(part.nbytes for part in parts))
        return np.stack(parts)


def _required(array: Array | None) -> Array:
    if array is None:
        raise UnmatchedError("a state without a first value")
    return array


def _as_float64(array: Array) -> Array:
    """Return floats as doubles, and anything else as it is."""
    return np.asarray(array, np.float64) if is_float(array) else np.asarray(array)
