"""Where the numbers of constant values are stored, and how new numbers get there through the nodes that move them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.graphs.program.operations import Operation, StoredNumbers
from rnnconvert.graphs.program.scopes import Scope


@dataclass(frozen=True, eq=False)
class ConstantPlace:
    """Where a constant value is stored.

    tensors  the tensors that hold its numbers
    index    for each of its numbers, in C order, where it stands in the tensors laid end to end; None if the
             value is the first tensor itself
    """

    tensors: tuple[StoredNumbers, ...]
    index: Array | None = None

    def key(self) -> tuple[object, ...]:
        """Return a key that is equal for places that are the same: the tensors, and the order of their numbers."""
        index = np.arange(_size(self.tensors[0])) if self.index is None else self.index
        return self.tensors, index.astype(np.int64).tobytes()


def place(scope: Scope, name: str) -> ConstantPlace | None:
    """Return where a constant value is stored, or None if it cannot be written: it is computed, or repeats a number."""
    scope, name = scope.resolve(name)
    tensor = scope.stored(name)
    if tensor is not None:
        return ConstantPlace((tensor,))
    starts: dict[StoredNumbers, int] = {}
    tensors: list[StoredNumbers] = []

    def numbered(stored: StoredNumbers) -> Array:
        if stored not in starts:
            starts[stored] = sum(_size(before) for before in tensors)
            tensors.append(stored)
        start = starts[stored]
        return np.arange(start, start + _size(stored)).reshape(stored.dims)

    numbers = scope.moved(name, numbered)
    # A number that is stored once and stands in the value twice could not be filled with two numbers.
    if numbers is None or np.unique(numbers).size != numbers.size:
        return None
    return ConstantPlace(tuple(tensors), numbers.reshape(-1))


def _size(tensor: StoredNumbers) -> int:
    return math.prod(tensor.dims)


def sources(scope: Scope, name: str) -> list[StoredNumbers]:
    """Return every stored tensor that a value depends on."""
    waiting, seen = [scope.resolve(name)], set()
    result = []
    while waiting:
        where, value = waiting.pop()
        if (where, value) in seen:
            continue
        seen.add((where, value))
        tensor, producer = where.stored(value), where.producer(value)
        if tensor is not None:
            result.append(tensor)
        elif producer is not None:
            waiting += [where.resolve(operand) for operand in producer[0].inputs if operand]
    return result


def stored_by(scope: Scope, nodes: Iterable[Operation]) -> set[str]:
    """Return the names of the stored tensors that some operations read, themselves or through others that make constants of them."""
    constants = {value for node in nodes for value in node.reads if scope.constant(value) is not None}
    return {tensor.name for value in constants for tensor in sources(scope, value)}


@dataclass
class Scattered:
    """Numbers on their way into stored tensors.

    tensors   each tensor that changes, and all of its new numbers
    problems  what does not fit, in words
    """

    tensors: list[tuple[StoredNumbers, Array]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def scatter(new: Mapping[str, Array], places: Mapping[str, ConstantPlace]) -> Scattered:
    """Return the stored tensors with new numbers for some values.

    Two values that share a stored number but need different ones are a problem.
    """
    done = Scattered()
    written: dict[StoredNumbers, list[str]] = {}
    for name in new:
        for tensor in places[name].tensors:
            written.setdefault(tensor, []).append(name)
    held: dict[StoredNumbers, _Held] = {}
    for owner, name in enumerate(new):
        values = np.asarray(new[name]).reshape(-1)
        where = places[name]
        first = where.tensors[0]
        if where.index is None and written[first] == [name]:
            done.tensors.append((first, values.reshape(first.dims)))
            continue
        start = 0
        for tensor in where.tensors:
            size = _size(tensor)
            if tensor not in held:
                held[tensor] = _Held(tensor, tensor.read().reshape(-1).copy(), np.full(size, -1))
            index = np.arange(size) if where.index is None else where.index - start
            inside = (index >= 0) & (index < size)
            other = held[tensor].put(index[inside], values[inside], owner)
            if other is not None:
                done.problems.append(
                    f"{name!r} and {list(new)[other]!r} are one array in the target ({tensor.name!r}), but the source "
                    "has two that differ; untie them in the target"
                )
            start += size
    done.tensors += [(holding.tensor, holding.numbers.reshape(holding.tensor.dims)) for holding in held.values()]
    return done


@dataclass(eq=False)
class _Held:
    """A tensor's numbers while several values write them, and which value wrote each; -1 for none yet."""

    tensor: StoredNumbers
    numbers: Array
    owners: Array

    def put(self, at: Array, values: Array, owner: int) -> int | None:
        """Put some numbers; return a value that wrote others there before, or None."""
        # Two NaNs count as the same.
        same = (self.numbers[at] == values) | ((self.numbers[at] != self.numbers[at]) & (values != values))
        before = self.owners[at][~same & (self.owners[at] >= 0)]
        self.numbers[at], self.owners[at] = values, owner
        return int(before[0]) if before.size else None


class Readers:
    """Which nodes read a stored tensor."""

    def __init__(self, scopes: Sequence[Scope]) -> None:
        self._starts: dict[StoredNumbers, list[tuple[Scope, str]]] = {}
        self._reads: dict[tuple[Scope, str], list[tuple[Scope, Operation, int]]] = {}
        self._outputs: set[tuple[Scope, str]] = set()
        for scope in scopes:
            names = list(scope.body.stored)
            names += [node.outputs[0] for node in scope.nodes if node.kind == "Constant" and node.outputs]
            for name in names:
                tensor = scope.stored(name)
                if tensor is not None:
                    self._starts.setdefault(tensor, []).append((scope, name))
            for node in scope.nodes:
                for index, operand in enumerate(node.inputs):
                    where, value = scope.resolve(operand)
                    self._reads.setdefault((where, value), []).append((scope, node, index))
            for output in scope.body.outputs:
                where, value = scope.resolve(output)
                self._outputs.add((where, value))

    def other(self, tensor: StoredNumbers, uses: Iterable[tuple[Operation, int]]) -> str:
        """Return in words a node that reads a tensor's numbers and is not among `uses` (nodes and which input), or ""."""
        mine = {(node, index) for node, index in uses}
        waiting, seen = list(self._starts.get(tensor, ())), set()
        while waiting:
            scope, name = waiting.pop()
            if (scope, name) in seen:
                continue
            seen.add((scope, name))
            if (scope, name) in self._outputs:
                return f"it is an output of {scope.path}"
            for where, node, index in self._reads.get((scope, name), ()):
                if (node, index) in mine or node.kind in ("Shape", "Size") or where.calls(node):
                    continue
                # Nodes that move numbers hand on the tensor's; any other one reads it.
                if not where.moves(node, index):
                    return f"a node {node.kind} {node.name!r} reads it too"
                waiting += [(where, output) for output in node.outputs]
        return ""
