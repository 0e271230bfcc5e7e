"""The axes of what layers read, in programs that do not state them."""

from __future__ import annotations

from typing import Any

from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.pytorch import aten
from rnnconvert.formats.pytorch.program import cells
from rnnconvert.formats.pytorch.program.kinds import BRANCH
from rnnconvert.formats.pytorch.program.program import Ref, refs
from rnnconvert.graphs.graph import Dims, Graph
from rnnconvert.graphs.operators import SAME, Computes

_VISITED = 1 << 12
"""The most operators that are followed back from a layer."""


def lengths(batch_first: bool, stack: Recurrent) -> Dims:
    """Return the axes of what a layer reads: time and batch have one name for all layers, which mostly share them."""
    return ["batch", "time", stack.input_size] if batch_first else ["time", "batch", stack.input_size]


def describe(value: Any, dims: Dims, graph: Graph) -> None:
    """Note the axes of what a layer reads, if nothing states them; back through what keeps or permutes axes to an input."""
    for _ in range(_VISITED):
        if not isinstance(value, Ref) or value.dims is not None or value.stored:
            return
        before = _before(value, dims)
        if before is None:
            value.dims = dims
            graph.describe(value, dims)
            return
        value, dims = before


def _before(value: Ref, dims: Dims) -> tuple[Any, Dims] | None:
    """Return the input from which an operator gives axes of some lengths, and the lengths of its axes; None if that is unknown."""
    operation = value.operation
    if operation is None or not operation.inputs:
        return None
    first = operation.inputs[0]
    numbers = [number for number in operation.inputs[1:] if isinstance(number, int)]
    operator = aten.DIALECT.get(operation.kind)
    if operation.kind == BRANCH:
        return (cells.plain(value), dims) if cells.plain(value) is not value else None
    if operation.kind == "transpose" and len(numbers) == 2:
        order = list(range(len(dims)))
        first_axis, other = (number % len(dims) for number in numbers)
        order[first_axis], order[other] = order[other], order[first_axis]
        return first, [dims[axis] for axis in order]
    if operation.kind == "unsqueeze" and len(numbers) == 1 and -len(dims) <= numbers[0] < len(dims):
        return first, [length for axis, length in enumerate(dims) if axis != numbers[0] % len(dims)]
    if operation.kind == "embedding":
        return operation.inputs[1], dims[:-1]
    if operation.kind == "linear":
        return first, [*dims[:-1], None]
    computes = isinstance(operator, Computes) and sum(1 for _ in refs(operation.inputs)) == 1
    return (first, dims) if operator is SAME or computes else None
