"""Recurrent layers as operations RNN, GRU and LSTM: one for each layer, or for each direction where both differ.

Source: onnx/docs/Operators.md, RNN, GRU and LSTM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rnnconvert.core.errors import RefusedError
from rnnconvert.core.remedies import Flag
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.graphs.program.masked_steps import CountedSteps
from rnnconvert.language import registry
from rnnconvert.rewrites.fit_to_layout import fit_to_layout
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.directions import WAYS
from rnnconvert.scaffolding.graph.by_steps import by_steps
from rnnconvert.scaffolding.graph.scans import flipped
from rnnconvert.scaffolding.graph.writer import GraphWriter, Holds

OPERATORS = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}
"""The operations by the kind of their cells; what they compute is their attribute `stack`, since no input of theirs is a weight."""


def none(stack: Recurrent, counted: bool, cells: bool) -> bool:
    """Return that a framework has no operation for any recurrent layer: see rnnconvert.scaffolding.graph.writer.Holds."""
    return False


def held_by(layouts: str, counts: bool = True) -> Holds:
    """Return a predicate of layers: whether a format's layouts have an operation for one.

    layouts  the format that they are of
    counts   whether its operations give the last cell state of sequences of different lengths
    """

    def holds(stack: Recurrent, counted: bool, cells: bool) -> bool:
        if counted and cells and stack.cell.kind == "lstm" and not counts:
            return False
        try:
            fit_to_layout(stack, registry.layouts_of(layouts))
        except RefusedError:
            return False
        return not stack.first.projection_size  # it would be folded, so that the states are others

    return holds


@dataclass(frozen=True)
class _NodeOutputs:
    """The outputs of one operation.

    every    its outputs (time, directions, batch, units)
    ends     its last states (directions, batch, units)
    """

    every: str
    ends: Sequence[str]


@dataclass(frozen=True)
class _DirectionOutputs:
    """The outputs of one direction: at each step (batch, time, units) in the order of time, and its last states (batch, units)."""

    every: str
    last: str
    finals: Sequence[str]


def recurrent(g: GraphWriter, node: Node[kinds.Recurrent]) -> None:
    """Add a recurrent layer."""
    if node.kind.stateful:
        raise g.refused(
            node,
            "stateful = True",
            "its states last from one call to the next, and the graph keeps none",
            f"Write its states as inputs and outputs ({Flag('stateful')}), or build it without.",
        )
    directions = g.weights.directions(g.path(node))
    ways, mask = len(directions), node.named.get("mask", ())
    counting = g.counted(mask[0]) if mask else None
    turned = (node.kind.backwards,) if ways == 1 else (False, True)
    directions = tuple(direction.replace(reverse=reverse) for direction, reverse in zip(directions, turned, strict=True))
    per = 2 if directions[0].cell.kind == "lstm" else 1
    states = [g(value) for value in node.named.get("states", ())]
    if ways == 1 or node.kind.unlike:
        outputs_by_way = []
        for way, direction in enumerate(directions):
            initial, label = states[:per], g.label(node) if ways == 1 else f"{g.label(node)}/{WAYS[way]}"
            del states[:per]
            ran = _run(g, node, label, [direction], counting, initial)
            outputs_by_way.append(_way(g, node, label, ran, 0, direction.reverse, counting, initial))
    else:
        ran = _run(g, node, g.label(node), directions, counting, states)
        if node.kind.sequences and node.kind.merge == "concat" and counting is None:
            _side_by_side(g, node, ran)
            return
        outputs_by_way = [
            _way(g, node, f"{g.label(node)}/{word}", ran, way, bool(way), counting, states[way * per : (way + 1) * per])
            for way, word in enumerate(WAYS)
        ]
    _give(g, node, outputs_by_way, ways)


def _run(
    g: GraphWriter,
    node: Node[kinds.Recurrent],
    label: str,
    directions: Sequence[Direction],
    counting: CountedSteps | None,
    states: Sequence[str],
) -> _NodeOutputs:
    """Add the operation of some directions, which has the inputs of ONNX's but for the weights.

    states  h, and c of an LSTM, for each direction; none for zeros
    """
    kind, x = directions[0].cell.kind, g(node.x)
    read = x if counting is None else counting.front(g, label, x)
    lengths = "" if counting is None else counting.lengths(g, label)
    inputs = [g.transposed(read, [1, 0, 2], f"{label}/in"), "", "", "", lengths]
    per = 2 if kind == "lstm" else 1
    for word in range(per):
        initial = [g.add("Unsqueeze", [state, g.integers(0)], f"{label}/initial") for state in states[word::per]]
        inputs.append("" if not initial else initial[0] if len(initial) == 1 else g.add("Concat", initial, f"{label}/initials", axis=0))
    stack = Recurrent(label, (Layer(tuple(directions)),))
    words = f"{label} ({OPERATORS[kind]} {stack.input_size} -> {directions[0].output_size})"
    if not g.holds(stack, counting is not None, _reads_cells(g, node)):
        return _composed(g, node, label, directions, inputs, words)
    name = g.name(label)
    g.recurs(name, words)
    outputs = [g.name(f"{name}/{word}") for word in ("Y", "Y_h", "Y_c")[: 1 + per]]
    stack = stack.replace(name=name)
    way = "bidirectional" if len(directions) == 2 else "reverse" if directions[0].reverse else "forward"
    g.node(OPERATORS[kind], inputs, outputs, name, stack=stack, hidden_size=directions[0].output_size, direction=way)
    return _NodeOutputs(outputs[0], outputs[1:])


def _reads_cells(g: GraphWriter, node: Node[kinds.Recurrent]) -> bool:
    """Whether anything in the model reads a last cell state of an LSTM, or it is an output."""
    read = {id(value) for each in g.scope.nodes for value in each.reads()} | {id(value) for value in g.scope.outputs}
    return any(id(value) in read for value in node.outputs[_outputs(node) :][1::2])


def _outputs(node: Node[kinds.Recurrent]) -> int:
    """Return how many outputs a layer has in front of its last states."""
    return 2 if len(node.kind.cells) == 2 and node.kind.merge is None else 1


def _composed(
    g: GraphWriter, node: Node[kinds.Kind], label: str, directions: Sequence[Direction], inputs: Sequence[str], words: str
) -> _NodeOutputs:
    """Add the steps of some directions in basic operations, with the inputs and outputs of an operation."""
    x, *_, lengths = inputs[:5]
    outputs_by_way = []
    for way, direction in enumerate(directions):
        place = g.index(way)
        states = [g.add("Gather", [state, place], f"{label}/initial", axis=0) for state in inputs[5:] if state]
        of_way = label if len(directions) == 1 else f"{label}/{WAYS[way]}"
        outputs = by_steps(g, of_way, direction, x, lengths, states, node.x.shape[0], words)
        outputs_by_way.append([g.add("Unsqueeze", [out, g.integers(int(not n))], f"{label}/way") for n, out in enumerate(outputs)])
    every, *ends = (
        g.add("Concat", list(parts), f"{label}/ways", axis=int(not n)) if len(parts) > 1 else parts[0]
        for n, parts in enumerate(zip(*outputs_by_way, strict=True))
    )
    return _NodeOutputs(every, ends)


def _way(
    g: GraphWriter,
    node: Node[kinds.Recurrent],
    label: str,
    ran: _NodeOutputs,
    way: int,
    backwards: bool,
    counting: CountedSteps | None,
    states: Sequence[str],
) -> _DirectionOutputs:
    """Return the outputs of one direction of a node."""
    index = g.index(way)
    ends = [g.add("Gather", [end, index], f"{label}/last", axis=0) for end in ran.ends]
    zero = node.kind.zero
    if counting is None:
        last, finals = ends[0], ends
    else:
        first = list(states) or [g.zero()] * len(ends)
        finals = [counting.ended(g, label, *both) for both in zip(ends, first, strict=True)]
        last = counting.last(g, label, ends[0], backwards, zero)
    if not node.kind.sequences:
        return _DirectionOutputs("", last, finals)
    every = g.transposed(g.add("Gather", [ran.every, index], f"{label}/states", axis=1), [1, 0, 2], f"{label}/out")
    if counting is not None:
        every = counting.spread(g, label, every, backwards, zero)
    return _DirectionOutputs(every, last, finals)


def _side_by_side(g: GraphWriter, node: Node[kinds.Kind], ran: _NodeOutputs) -> None:
    """Let a layer give the outputs of both directions side by side, and its last states."""
    label = g.label(node)
    every = g.add("Transpose", [ran.every], f"{label}/out", perm=[2, 0, 1, 3])
    g.give(node.y, g.add("Reshape", [every, g.integers(0, 0, node.y.shape[-1] or -1)], f"{label}/joined"))
    per = len(ran.ends)
    for number, value in enumerate(node.outputs[1:]):
        way, word = divmod(number, per)
        index = g.index(way)
        g.give(value, g.add("Gather", [ran.ends[word], index], f"{label}/last", axis=0))


def _give(g: GraphWriter, node: Node[kinds.Recurrent], outputs_by_way: Sequence[_DirectionOutputs], ways: int) -> None:
    """Let a layer give what comes of its directions."""
    merge, label = node.kind.merge, g.label(node)
    outputs = [way.every if node.kind.sequences else way.last for way in outputs_by_way]
    count = _outputs(node)
    if ways == 1:
        output = outputs[0]
        if node.kind.backwards and node.kind.sequences:
            reader = g.scope.only_reader(node.y)
            if reader is not None and isinstance(reader.kind, kinds.Flip) and reader.kind.axes == (1,):
                g.join(reader)
                g.give(reader.y, output)
            else:
                output = flipped(g, output, [1], f"{label}/in_processing_order")
        outputs = [output]
    elif merge == "concat":
        outputs = [g.add("Concat", outputs, f"{label}/joined", axis=-1)]
    elif merge is not None:
        joined = g.add("Mul" if merge == "mul" else "Add", outputs, f"{label}/joined")
        outputs = [g.add("Mul", [joined, g.number(0.5)], f"{label}/halved") if merge == "ave" else joined]
    finals = [final for way in outputs_by_way for final in way.finals]
    for value, name in zip(node.outputs, [*outputs[:count], *finals], strict=False):
        g.give(value, name)
