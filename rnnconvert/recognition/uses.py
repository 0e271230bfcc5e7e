"""The main graph with what reads each value, and what of written-out steps is read and used."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.graphs.program.kinds import SAME
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.recognition.expression import Origin
from rnnconvert.recognition.recognised import ReadSequence, RecognisedLayer, Use

STEP = 400
"""The most nodes of one step that are looked through."""


class UsedGraph:
    """The main graph, with what reads each value."""

    def __init__(self, scope: Scope, shapes: Shapes) -> None:
        self.scope, self.shapes = scope, shapes
        self.nodes = list(scope.nodes)
        self.readers: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for name in node.inputs:
                if name:
                    self.readers.setdefault(name, []).append(index)
        self.places = {output: index for index, node in enumerate(self.nodes) for output in node.outputs if output}
        self.outputs = set(scope.body.outputs)
        self.inner: set[str] = set()
        for node in self.nodes:
            for _, body in node.bodies:
                self.inner |= body.free

    def after(self, name: str, limit: int, most: int = 20 * STEP) -> list[int]:
        """Return the nodes before a place in the file that depend on a value, in the file's order."""
        reached: set[int] = set()
        waiting = list(self.readers.get(name, ()))
        while waiting and len(reached) < most:
            index = waiting.pop()
            if index < limit and index not in reached:
                reached.add(index)
                for output in self.nodes[index].outputs:
                    waiting += self.readers.get(output, ())
        return sorted(reached)


def read(graph: UsedGraph, origins: Sequence[Origin], width: int) -> tuple[ReadSequence, bool | None]:
    """Return the sequence whose elements the steps read one after another, or its elements; and whether from its end."""
    first = origins[0]
    if first.axis is not None and all(origin.value == first.value and origin.axis == first.axis for origin in origins):
        numbers = [origin.step if origin.step is not None else -1 for origin in origins]
        dims = graph.shapes.dims(graph.scope, first.value)
        length = dims[first.axis] if dims is not None else None
        # Steps that go up by one read forward, steps that go down from the end.
        up, down = (list(range(numbers[0], numbers[0] + len(numbers))), list(range(numbers[-1], numbers[-1] + len(numbers))))
        for way, order in ((False, numbers == up), (True, numbers[::-1] == down and len(numbers) > 1)):
            if order:
                low, high = min(numbers), max(numbers) + 1
                if low < 0 or (length is not None and high > length):
                    break
                window = None if (low, high) == (0, length) else (low, high)
                return ReadSequence(first.value, width, first.axis, window=window), way
    if any(origin.axis is not None for origin in origins):
        raise UnmatchedError("its steps read elements of a sequence in another order than that of time")
    return ReadSequence("", width, 0, tuple(origin.value for origin in origins)), None


def uses(graph: UsedGraph, ends: Sequence[tuple[str, str]], rank: int, backward: bool) -> list[Use]:
    """Return the uses of the steps' states behind them: all states stacked, single ones, and the last cell state.

    ends  the hidden and the cell state after each step
    """
    result: list[Use] = []
    count = len(ends)
    inner = inside_of(graph, [name for pair in ends for name in pair if name])
    stacks, stacked = _stacks(graph, [after for after, _ in ends], rank, backward)
    result += stacks
    for number, (after, new) in enumerate(ends):
        # Places in the outputs are in the order of time.
        at = count - 1 - number if backward else number
        for name in same(graph, after):
            readers = (index for index in graph.readers.get(name, ()) if index not in inner and index not in stacked)
            if name in graph.outputs or name in graph.inner or any(True for _ in readers):
                result.append(Use(name, "hidden" if number == count - 1 else "step", step=at, rank=rank))
        read = new in graph.outputs or any(index not in inner for index in graph.readers.get(new, ()))
        if read and number < count - 1:
            raise UnmatchedError(f"the cell state {new!r} of a step in the middle is used, and the operator gives the last alone")
        if read:
            result.append(Use(new, "cell", rank=rank))
    return result


_WIDE = (np.dtype(np.float32), np.dtype(np.float64))


def same(graph: UsedGraph, name: str) -> Iterator[str]:
    """Yield the values that a state is, through nodes that change nothing."""
    while True:
        yield name
        index = graph.places.get(name)
        if index is None:
            return
        node = graph.nodes[index]
        if node.domain:
            return
        widens = node.kind == "Cast" and graph.scope.attributes(node)["to"] in _WIDE
        if widens or node.kind in SAME:
            name = node.inputs[0]
            continue
        chosen = graph.shapes.number(graph.scope, node.inputs[0]) if node.kind == "Where" else None
        if chosen is None or not chosen.size or chosen.min() != chosen.max():
            return
        name = node.inputs[1 if chosen.all() else 2]


def inside(graph: UsedGraph, layer: RecognisedLayer) -> set[str]:
    """Return the values that only compute a layer's steps."""
    before = {name for read in layer.reads for name in (read.value, *read.steps)} | set(layer.states.values())
    nodes = inside_of(graph, [use.value for use in layer.uses], before)
    return {name for index in nodes for name in graph.nodes[index].outputs}


def inside_of(graph: UsedGraph, ends: Sequence[str], before: Collection[str] = ()) -> set[int]:
    """Return the nodes that values are computed by, up to some other values."""
    waiting = list(ends)
    inside: set[int] = set()
    while waiting:
        name = waiting.pop()
        index = graph.places.get(name)
        if index is not None and index not in inside and name not in before:
            inside.add(index)
            waiting += graph.nodes[index].inputs
    return inside


def _stacks(graph: UsedGraph, states: Sequence[str], rank: int, backward: bool) -> tuple[list[Use], set[int]]:
    """Return the sequences of all states in their order, and the nodes that do nothing but put them together."""
    parts: list[list[tuple[int, str]]] = []
    for state in states:
        outputs = []
        for index in graph.readers.get(state, ()):
            node = graph.nodes[index]
            if node.kind in ("Unsqueeze", "Reshape"):
                outputs.append((index, node.outputs[0]))
        parts.append(outputs)
    uses: list[Use] = []
    stacked: set[int] = set()
    order = [index for index in range(len(states))]
    if backward:
        order.reverse()
    for index, first in parts[order[0]]:
        for reader in graph.readers.get(first, ()):
            node = graph.nodes[reader]
            if node.kind != "Concat" or len(node.inputs) != len(states):
                continue
            axis = node.attributes["axis"]
            if axis not in (0, 1) or rank != 2 or _axis(graph, index) != axis:
                continue
            members = [
                next((i for i, out in parts[number] if out == operand and _axis(graph, i) == axis), None)
                for number, operand in zip(order, node.inputs, strict=True)
            ]
            if None in members:
                continue
            uses.append(Use(node.outputs[0], "sequence", axis, rank=rank))
            for member in members:
                if member is not None and graph.readers.get(graph.nodes[member].outputs[0]) == [reader]:
                    stacked.add(member)
    return uses, stacked


def _axis(graph: UsedGraph, index: int) -> int | None:
    """Return where a node puts an axis of length 1."""
    node = graph.nodes[index]
    if node.kind == "Unsqueeze":
        axes = graph.shapes.integers(graph.scope, node, "axes", 1)
        return axes[0] if axes is not None and len(axes) == 1 else None
    dims = graph.shapes.number(graph.scope, node.inputs[1])
    if dims is None or dims.size != 3:
        return None
    return next((axis for axis in (0, 1) if dims.reshape(-1)[axis] == 1), None)
