"""The first states of a TensorFlow 1 graph's cells: zeros, numbers that the graph holds, or a caller's.

From a cell's product back to the state that it reads, at the first step of its loop, and on to what that is made of.

Sources (1.15.5): tensorflow/python/ops/rnn_cell_impl.py, the call of each cell; python/ops/rnn.py, dynamic_rnn and static_rnn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.malformed import MALFORMED, passes
from rnnconvert.formats.tensorflow1.graph import CellGraph, CellProduct, loop_around, origin, stored_name
from rnnconvert.formats.tensorflow1.served import VARIABLES
from rnnconvert.graphs.program.kinds import MEASURING, MOVING, REPEATING
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.spread import spread
from rnnconvert.recognition.functions import TWO
from rnnconvert.recognition.masks import same_numbers

_FED = {"IteratorGetNext", "QueueDequeueV2", "QueueDequeueManyV2", "OneShotIterator"}
_MOST = 100_000
_DEEP = 40
UNSEEN = "the graph does not show where it comes from"
"""Why a state cannot be read whose cell is computed inside a function."""


@dataclass(frozen=True)
class Start:
    """The beginning of a state.

    numbers  one vector for every sequence, zeros too
    fed      the node that computes it from what the model reads, "" if none does
    odd      why it cannot be read, "" if it can
    made_of  the variables and constants that it is made of
    """

    numbers: Array | None = None
    fed: str = ""
    odd: str = ""
    made_of: frozenset[str] = frozenset()


def starts(graph: CellGraph, matrix: str, sizes: Mapping[str, int]) -> dict[str, Start]:
    """Return the beginning of each state of a cell, by part.

    matrix  the variable of a cell's matrix, for a GRU, of its gates
    sizes   the width of each state, by part
    """
    products = graph.products(matrix)
    several: dict[str, dict[tuple[object, ...], Start]] = {part: {} for part in sizes}
    for product in products:
        first = _first_step(product.scope)
        for part, value in {"initial_hidden": _hidden_state(product), "initial_cell": _cell_state(product)}.items():
            made_of = [*_made_of(first, value)] if value and part in sizes else []
            # Where the cell's own product is behind it, it is the state that the step before it left.
            if not made_of or any(node is each.node for _, _, node in made_of for each in products):
                continue
            start = _start(first, value, made_of, sizes[part])
            several[part][None if start.numbers is None else start.numbers.tobytes(), start.fed, start.odd] = start
    return {part: _agreed([*by_content.values()]) for part, by_content in several.items()}


def _agreed(several: list[Start]) -> Start:
    """Return the start that every use of a cell has."""
    if not several:
        return Start(odd=UNSEEN)
    unfed = [start for start in several if not start.fed]
    if len(unfed) > 1:
        return next((start for start in unfed if start.odd), Start(odd="the graph uses the cell more than once, with different states"))
    fed = next((start.fed for start in several if start.fed), "")
    return replace(unfed[0], fed=fed) if unfed else several[0]


def _first_step(scope: Scope) -> Scope:
    """Return the graph of a loop's step in which the states are those that the loop begins with; any other graph as it is."""
    outer, loop = scope.outer, loop_around(scope)
    if outer is None or loop is None:
        return scope
    (first,) = outer.inner(loop, 0)
    for state, before in zip(first.body.inputs[2:], loop.inputs[2:], strict=False):
        first.bind(state, outer, before)
    return first


def _hidden_state(product: CellProduct) -> str:
    """Return the old state, which stands behind what a cell reads; "" if unclear."""
    joined = product.scope.producer(same_numbers(product.scope, product.node.inputs[0]))
    return joined[0].inputs[1] if joined is not None and joined[0].kind == "Concat" and len(joined[0].inputs) == 2 else ""


def _cell_state(product: CellProduct) -> str:
    """Return the old cell state: what the forget gate is multiplied with; "" if unclear."""
    waiting, seen = [product.value], {product.node}
    for value in waiting:
        for node in product.readers(value):
            if node in seen:
                continue
            seen.add(node)
            if node.kind == "Add":
                waiting.append(node.outputs[0])
            elif node.kind == "Split":
                waiting.append(node.outputs[2 if len(node.outputs) == 4 else 1])
            elif node.kind == "Sigmoid":
                for mixed in product.readers(node.outputs[0]):
                    others = [operand for operand in mixed.inputs if operand != node.outputs[0]]
                    if mixed.kind == "Mul" and len(others) == 1:
                        return others[0]
    return ""


def _made_of(scope: Scope, value: str) -> Iterator[tuple[Scope, str, Operation | None]]:
    """Yield the values whose numbers a value is made from, itself the first, each with the operation that gives it."""
    waiting, seen = [scope.resolve(value)], set[tuple[Scope, str]]()
    while waiting and len(seen) < _MOST:
        place, name = waiting.pop()
        if (place, name) in seen:
            continue
        seen.add((place, name))
        producer = place.producer(name)
        node = None if producer is None else producer[0]
        yield place, name, node
        if node is not None and node.kind not in MEASURING:
            waiting += [place.resolve(read) for read in node.reads]


def _start(scope: Scope, value: str, made_of: list[tuple[Scope, str, Operation | None]], size: int) -> Start:
    """Return the beginning of a state."""
    try:
        numbers = _numbers(scope, value)
        odd = "" if numbers is not None else _unread(scope, value)
    except MALFORMED as error:
        if passes(error):
            raise
        numbers, odd = None, f"the graph computes it from numbers that do not fit: {error}"
    name = origin(scope, value)[1].rpartition(":")[0]
    if numbers is None:
        is_fed = any(name in place.body.inputs if node is None else node.kind in _FED for place, name, node in made_of)
        return Start(fed=name) if is_fed else Start(odd=odd)
    rows = numbers.reshape(1, -1) if numbers.ndim < 2 else numbers
    if numbers.ndim == 0 or numbers.shape == (1,):
        rows = np.broadcast_to(rows, (1, size))
    if rows.ndim != 2 or rows.shape[1] != size or not len(rows):
        return Start(odd=f"{name!r} has the shape {numbers.shape}, expected {size} numbers for each sequence")
    if (rows != rows[:1]).any():
        return Start(odd=f"{name!r} has other numbers for each of {len(rows)} sequences")
    stored = {stored_name(place, name) for place, name, node in made_of if node is None}
    return Start(np.ascontiguousarray(rows[0]), made_of=frozenset(stored - {""}))


def _numbers(scope: Scope, value: str, depth: int = 0) -> Array | None:
    """Return the numbers of a state, the same for every sequence; None where they are not seen."""
    scope, value = origin(scope, value)
    node, _ = scope.producer(value) or (None, 0)
    if node is None or node.kind not in TWO or depth > _DEEP:
        return spread(scope, value)
    first, second = (_numbers(scope, operand, depth + 1) for operand in node.inputs[:2])
    return None if first is None or second is None else np.asarray(TWO[node.kind](first, second))


def _unread(scope: Scope, value: str) -> str:
    """Return the first operation on the way of a state whose numbers are not seen, although those that it reads are."""
    for _ in range(_MOST):
        scope, value = origin(scope, value)
        producer = scope.producer(value)
        if producer is None:
            break
        node = producer[0]
        data = node.inputs[:1] if node.kind in (*MOVING, *REPEATING) and node.kind != "Concat" else node.inputs
        lacking = next((operand for operand in data if operand and _numbers(scope, operand) is None), None)
        if lacking is None:
            label = repr(node.name or value)
            computed = node.kind not in VARIABLES
            return f"the graph computes it ({node.operator} {label})" if computed else f"the variable {label} is not in the file"
        value = lacking
    return f"the graph does not show where {value!r} comes from"
