"""The first states of a TensorFlow 1 graph's cells: zeros, numbers that the graph holds, or a caller's.

From a cell's product back to the state that it reads, out of the loop, and on to the constants and variables that it is made of.

Sources (1.15.5): tensorflow/python/ops/rnn_cell_impl.py, the call of each cell; python/ops/rnn.py, dynamic_rnn and
static_rnn; python/ops/control_flow_ops.py, the nodes of a loop; core/ops/rnn_ops.cc, the inputs of the block operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rnnconvert.containers.graph_def import GraphDef, output
from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.core.arrays import Array
from rnnconvert.core.malformed import MALFORMED, passes
from rnnconvert.formats.tensorflow1.ancestors import SAME, ancestors, producer, state_before
from rnnconvert.formats.tensorflow1.graph import readers, step_products

_STATES = {"BlockLSTM": (2, 3), "LSTMBlockCell": (1, 2), "GRUBlockCell": (None, 1)}
"""Which inputs of a block operation are the old cell state and the old state."""
_PEEPHOLES = {"BlockLSTM": (5, 6, 7), "LSTMBlockCell": (4, 5, 6)}
"""Which are the weights of peepholes."""
_FED = {"Placeholder", "PlaceholderV2", "IteratorGetNext", "QueueDequeueV2", "QueueDequeueManyV2", "OneShotIterator"}
_VARIABLES = {"Variable", "VariableV2", "VarHandleOp"}
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


class _Unread(Exception):  # never leaves this module
    """Why a value cannot be read."""


def starts(graph: GraphDef, matrix: str, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Start]:
    """Return the beginning of each state of a cell, by part.

    matrix  the variable of a cell's matrix, for a GRU, of its gates
    arrays  the variables' numbers
    sizes   the width of each state, by part
    """
    products = step_products(graph, matrix)
    names = {node.name for node in products}
    starts_by_part: dict[str, dict[tuple[object, ...], Start]] = {part: {} for part in sizes}
    for node in products:
        for part, source in _states(graph, node).items():
            if part not in sizes:
                continue
            before = state_before(graph, source) if source else ""
            if not before:
                continue
            reached = ancestors(graph, before, names)
            if reached is None:  # the state that the step before it left
                continue
            start = _start(graph, before, reached, arrays, sizes[part])
            numbers = None if start.numbers is None else start.numbers.tobytes()
            starts_by_part[part][numbers, start.fed, start.odd] = start
    return {part: _agreed(list(several.values())) for part, several in starts_by_part.items()}


def _agreed(several: list[Start]) -> Start:
    """Return the start that every use of a cell has."""
    if not several:
        return Start(odd=UNSEEN)
    unfed = [start for start in several if not start.fed]
    if len(unfed) > 1:
        return next((start for start in unfed if start.odd), Start(odd="the graph uses the cell more than once, with different states"))
    fed = next((start.fed for start in several if start.fed), "")
    return replace(unfed[0], fed=fed) if unfed else several[0]


def _states(graph: GraphDef, product: GraphDefNode) -> dict[str, str]:
    """Return the states that a cell reads at a step, by part; "" for one that is not found."""
    if product.op in _STATES:
        cell, hidden = _STATES[product.op]
        states = {"initial_hidden": _input(product, hidden)}
        return states if cell is None else {**states, "initial_cell": _input(product, cell)}
    joined = producer(graph, product.inputs[0]) if product.inputs else None
    values = joined.read if joined else ()
    if joined is None or joined.op not in ("Concat", "ConcatV2") or len(values) != 3:
        return {"initial_hidden": "", "initial_cell": ""}
    hidden_state = values[2] if joined.op == "Concat" else values[1]
    return {"initial_hidden": hidden_state, "initial_cell": _cell_state(graph, product)}


def _input(node: GraphDefNode, number: int) -> str:
    return node.inputs[number] if number < len(node.inputs) else ""


def _cell_state(graph: GraphDef, product: GraphDefNode) -> str:
    """Return the old cell state: what the forget gate is multiplied with."""
    queue, seen = [output(product.name)], set()
    for source in queue:
        for node in readers(graph, source):
            if node.name in seen:
                continue
            seen.add(node.name)
            if node.op in ("Add", "AddV2", "BiasAdd"):
                queue.append(output(node.name))
            elif node.op in ("Split", "SplitV"):
                queue.append(f"{node.name}:{2 if node.number('num_split', 0) == 4 else 1}")
            elif node.op == "Sigmoid":
                for mixed in readers(graph, output(node.name)):
                    others = [operand for operand in mixed.inputs if output(operand) != output(node.name)]
                    if mixed.op == "Mul" and len(others) == 1:
                        return others[0]
    return ""


def _start(graph: GraphDef, source: str, made_of: list[GraphDefNode], arrays: Mapping[str, Array], size: int) -> Start:
    """Return the beginning of a state."""
    name = source.partition(":")[0]
    try:
        value = np.asarray(_BatchlessNumbers(graph, arrays).of(source, 0))
    except _Unread as error:
        if any(node.op in _FED for node in made_of):
            return Start(fed=name)
        return Start(odd=str(error))
    rows = value.reshape(1, -1) if value.ndim < 2 else value
    if value.ndim == 0 or value.shape == (1,):
        rows = np.broadcast_to(rows, (1, size))
    if rows.ndim != 2 or rows.shape[1] != size or not len(rows):
        return Start(odd=f"{name!r} has the shape {value.shape}, expected {size} numbers for each sequence")
    if (rows != rows[:1]).any():
        return Start(odd=f"{name!r} has other numbers for each of {len(rows)} sequences")
    return Start(np.ascontiguousarray(rows[0]), made_of=frozenset(node.name for node in made_of if node.name in arrays))


class _BatchlessNumbers:
    """The numbers of outputs, but for the length of the batch: an axis along which all are alike has the length 1."""

    def __init__(self, graph: GraphDef, arrays: Mapping[str, Array]) -> None:
        self.graph, self.arrays = graph, arrays
        self._cache: dict[str, Array | _Unread] = {}

    def of(self, source: str, depth: int) -> Array:
        """Return the numbers of an output, each computed once. Raises _Unread."""
        if source not in self._cache:
            try:
                self._cache[source] = self._of(source, depth)
            except _Unread as error:
                self._cache[source] = error
            except MALFORMED as error:
                if passes(error):
                    raise
                self._cache[source] = _Unread(f"the graph computes {source!r} from numbers that do not fit: {error}")
        value = self._cache[source]
        if isinstance(value, _Unread):
            raise value
        return value

    def _of(self, source: str, depth: int) -> Array:
        node = producer(self.graph, source)
        number = int(source.partition(":")[2] or 0)
        if node is None or depth > 40:
            raise _Unread(f"the graph does not show where {source!r} comes from")
        read = node.read

        def value(which: int) -> Array:
            if which >= len(read):
                raise _Unread(f"the operation {node.op} {node.name!r} lacks an input")
            return self.of(read[which], depth + 1)

        if node.op in _VARIABLES:
            if node.name not in self.arrays:
                raise _Unread(f"the variable {node.name!r} is not in the file")
            return np.asarray(self.arrays[node.name])
        if node.op == "Const":
            if node.tensor is None or node.tensor.size > 1 << 26:
                raise _Unread(f"the constant {node.name!r} cannot be read")
            return np.asarray(node.tensor)
        if node.op in SAME:
            return value(0)
        if node.op in ("ZerosLike", "OnesLike"):
            return np.full((), float(node.op == "OnesLike"))
        if node.op == "Fill":
            return value(1).reshape(())
        if node.op == "Tile":
            return self._tiled(value(0), read[1], node)
        if node.op == "BroadcastTo":
            return value(0)
        if node.op == "ExpandDims":
            return np.expand_dims(value(0), int(value(1).reshape(()))) if value(0).ndim else value(0)
        if node.op in ("Add", "AddV2", "Sub", "Mul"):
            function = {"Sub": np.subtract, "Mul": np.multiply}.get(node.op, np.add)
            try:
                return np.asarray(function(value(0), value(1)))
            except ValueError:
                raise _Unread(f"the shapes that {node.name!r} reads do not fit together") from None
        if node.op in ("Unpack", "Split") and node.number("axis" if node.op == "Unpack" else "split_dim", 0) == 0:
            packed, pieces = (value(0), 0) if node.op == "Unpack" else (value(1), int(node.number("num_split", 0)))
            if node.op == "Unpack" and packed.ndim and number < len(packed):
                return np.asarray(packed[number])
            axis = int(value(0).reshape(())) if node.op == "Split" else 0
            inside = -packed.ndim <= axis < packed.ndim and 0 < pieces <= packed.shape[axis]
            if inside and packed.shape[axis] % pieces == 0 and number < pieces:
                return np.split(packed, pieces, axis)[number]
        raise _Unread(f"the graph computes it ({node.op} {node.name!r})")

    def _tiled(self, array: Array, times: str, node: GraphDefNode) -> Array:
        """Return an array that is repeated only along its first axis."""
        counts = self._last_counts(times)
        if array.ndim == 2 and counts == [1] and len(array) == 1:
            return array
        raise _Unread(f"{node.name!r} repeats numbers along an axis that is not the batch's")

    def _last_counts(self, source: str) -> list[int]:
        """Return how often an array is repeated along the axes after the first."""
        node = producer(self.graph, source)
        if node is not None and node.op == "Const" and node.tensor is not None:
            return [int(length) for length in np.asarray(node.tensor).reshape(-1)[1:]]
        if node is not None and node.op == "Pack":
            read = node.read
            return [int(self.of(operand, 0).reshape(())) for operand in read[1:]]
        raise _Unread(f"the graph computes how often a state is repeated ({source!r})")


def state_variables(graph: GraphDef) -> set[str]:
    """Return the variables and constants that block operations read as states, or as peepholes that they do not use."""
    names = set()
    for node in graph.nodes.values():
        if node.op not in _STATES:
            continue
        idle = () if node.number("use_peephole", 0) else _PEEPHOLES.get(node.op, ())
        for number, source in enumerate(node.inputs):
            if number in _STATES[node.op] or number in idle:
                names.add(state_before(graph, source).partition(":")[0])
    return names
