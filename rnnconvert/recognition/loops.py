"""Recurrent layers in the nodes Loop and Scan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rnnconvert.core.arrays import FLOATS
from rnnconvert.core.weights import Direction
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.rules import Dims
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.recognition import counts as counts
from rnnconvert.recognition import masks as masks
from rnnconvert.recognition.cell import match
from rnnconvert.recognition.expression import FORWARD, REVERSE
from rnnconvert.recognition.fills import Fills, State
from rnnconvert.recognition.masks import same_numbers
from rnnconvert.recognition.recognised import ReadSequence, RecognisedLayer, Use, reverse, weights
from rnnconvert.recognition.states import given_at_run_time
from rnnconvert.recognition.trace import Tracer
from rnnconvert.recognition.trial import Match

_FLOATS = tuple(FLOATS.values())


@dataclass(frozen=True, eq=False)
class LoopBody:
    """A Loop or Scan.

    states    the body's names of its states, what they become, what they begin with, and the node's final outputs
    scanned   elements of sequences: the body's name, and the sequence, its axis and the step
    gathered  what the body gives at each step, the node's outputs, the axis, and whether they are put before the others
    """

    scope: Scope
    inner: Scope
    node: Operation
    states: Sequence[State]
    scanned: Mapping[str, tuple[str, int, int]]
    gathered: Sequence[tuple[str, str, int, bool]]


def loops(scope: Scope, shapes: Shapes, used: Iterable[str]) -> Iterable[tuple[Operation, RecognisedLayer | UnmatchedError]]:
    """Yield each Loop and Scan of a graph with the layer that it is, or what prevents that."""
    needed = set(used)
    for node in scope.nodes:
        if node.kind not in ("Loop", "Scan") or node.domain:
            continue
        try:
            layer = _recognise(scope, node, shapes, needed)
        except UnmatchedError as problem:
            yield node, problem
            continue
        _learn(scope, shapes, layer)
        yield node, layer


def _learn(scope: Scope, shapes: Shapes, layer: RecognisedLayer) -> None:
    """Note the shapes of the sequences that a layer gives: as long as those that it reads."""
    read = layer.reads[0]
    dims = shapes.dims(scope, read.value)
    for use in layer.uses:
        if use.kind == "sequence" and use.rank == 2:
            axes = ((read.value, read.axis), (read.value, 1 - read.axis))
            shapes.sources[use.value] = axes if use.axis == 0 else axes[::-1]
        if use.kind == "sequence" and use.rank == 2 and dims is not None and len(dims) == 3:
            leading = [dims[read.axis], dims[1 - read.axis]]
            shapes.learn(use.value, [*(leading if use.axis == 0 else leading[::-1]), layer.direction.hidden_size])


def _recognise(scope: Scope, node: Operation, shapes: Shapes, used: set[str]) -> RecognisedLayer:
    body = body_of(scope, node)
    inner = body.inner
    for name, _, first, _ in body.states:
        shapes.give(inner, name, shapes.dims(scope, first))
    for name, (outer, axis, _) in body.scanned.items():
        outer_dims = shapes.dims(scope, outer)
        shapes.give(
            inner, name, None if outer_dims is None else [length for n, length in enumerate(outer_dims) if n != axis % len(outer_dims)]
        )
    carried = [state for state in body.states if same_numbers(inner, state[1]) != state[0]]
    for name, _, first, _ in body.states:
        if not any(name == state[0] for state in carried):
            # A state that no step changes is a value from around the loop.
            inner.bind(name, scope, first)
    # A whole number that grows by one at each step counts them.
    counters = {name for name, _, _, _ in carried if _counts(inner, name, carried)}
    hidden = [state for state in carried if state[0] not in counters and _is_float(inner, state[0])]
    rest = [state[0] for state in carried if state not in hidden and state[0] not in counters]
    if rest:
        raise UnmatchedError(f"it carries {rest[0]!r}, which is not a state of a cell")
    if not hidden:
        raise UnmatchedError("it carries no state of numbers")
    iteration = inner.body.inputs[0] if node.kind == "Loop" else ""
    # Only a counter from zero is the place of a step's element in its sequence.
    begins = {name for name, _, first, _ in carried if name in counters and _zero(scope, first)}
    longest = set[str]()
    if node.kind == "Loop":
        longest = check_end(scope, inner, node, [state for state in carried if state[0] in counters], {iteration, *begins})

    def counted(name: str) -> int | None:
        where, resolved = inner.resolve(same_numbers(inner, name))
        return FORWARD if where is inner and (resolved == iteration or resolved in begins) else None

    later = _reached(inner, [state[0] for state in hidden])
    tracer = Tracer(inner, shapes, [state[0] for state in hidden], later, dict(body.scanned), counted)
    truth, becoming = masks.masked_states(inner, [(state[0], state[1]) for state in hidden])
    new = [(name, becoming[name], first, final) for name, _, first, final in hidden if name in becoming]
    # Loops with a mask carry a copy of the output, too, for the steps that do not count.
    new = [candidate for candidate in new if masks.is_read(inner, candidate[0])]
    cell_match, state = _cell(tracer, inner, hidden if truth is None else new)
    fills = None if truth is None else Fills(scope, inner, truth, hidden, state)
    packed = weights(cell_match, state[0], scope)
    backward = reverse(packed.origins)
    reads = []
    for origin, size in packed.origins.items():
        if origin.axis is None:
            raise UnmatchedError(f"it reads {origin.value!r}, which is the same at every step")
        reads.append(ReadSequence(origin.value, size, origin.axis))
    if node.kind == "Loop":
        check_limits(scope, inner, node, [shapes.dims(scope, read.value) for read in reads], [read.axis for read in reads])
    dims = shapes.dims(scope, state[2]) or shapes.dims(inner, state[0])
    rank = len(dims) if dims is not None else 2
    if rank not in (2, 3):
        raise UnmatchedError(f"its state has {rank} axes")
    states = {"h": state[2]}
    if cell_match.old is not None:
        states["c"] = next(candidate[2] for candidate in hidden if candidate[0] == cell_match.old.origin.value)
    cell = None if cell_match.old is None else next(candidate for candidate in hidden if candidate[0] == cell_match.old.origin.value)
    mask = None
    if fills is not None and truth is not None:
        fills.check(hidden, becoming, cell)
        mask = masks.mask(inner, shapes, truth, tracer.element, counted)
    uses = _uses(body, used, state, cell, hidden, rank) if fills is None else fills.uses(body.states, body.gathered, used, cell)
    # Outputs that are put in front of earlier ones are in the order of time if the loop reads from the end.
    order = {before for value, _, _, before in ((g[1], g[0], g[2], g[3]) for g in body.gathered) if value in used}
    processing = backward and False in order
    if mask is not None and (backward or True in order or rank == 3):
        raise UnmatchedError(f"it has the mask {mask.value!r}, and reads from the end or has states of three axes")
    if len(order) > 1 or (not backward and True in order):
        raise UnmatchedError("it stores its outputs in another order than it reads its inputs")
    if longest:
        # What is behind the longest sequence is then nobody's, unless it is zero as the lists of the framework are.
        by_lengths = mask is not None and mask.rank == 1 and longest == {scope.resolve(masks.plain(scope, mask.value))[1]}
        zero = all(use.fill == "zero" for use in uses if use.kind == "sequence")
        if not by_lengths or not zero or len(scope.attributes(node).get("sizes", ())) < len(body.gathered):
            raise UnmatchedError(f"it ends after the longest of the lengths {min(longest)!r}, and its sequence may be longer")
    return RecognisedLayer(
        node.name or next(filter(None, node.outputs), node.kind),
        f"a {node.kind}",
        Direction(cell_match.cell, packed.arrays, backward),
        reads,
        states,
        uses,
        rank,
        processing,
        None,
        node,
        mask,
        [] if fills is None else fills.zeros(body.gathered),
        longest=next(iter(longest), ""),
    )


def body_of(scope: Scope, node: Operation) -> LoopBody:
    """Return a Loop or Scan with what it hands on, reads and gives. Raises UnmatchedError for a body that does not fit."""
    inner = next(iter(scope.inner(node, 0)), None)
    if inner is None:
        raise UnmatchedError("it states no body")
    return _loop(scope, inner, node) if node.kind == "Loop" else _scan(scope, inner, node)


def _loop(scope: Scope, inner: Scope, node: Operation) -> LoopBody:
    body = inner.body
    inputs, outputs = list(body.inputs), list(body.outputs)
    # The iteration and the condition come before the states; the body gives only the condition before them.
    count = len(inputs) - 2
    finals = [*node.outputs, *[""] * (len(outputs) - 1 - len(node.outputs))]
    if count != len(node.inputs) - 2 or len(outputs) - 1 < count:
        raise UnmatchedError("its body does not fit its inputs")
    states = list(zip(inputs[2:], outputs[1:], node.inputs[2:], finals, strict=False))[:count]
    gathered = [(value, final, 0, False) for value, final in zip(outputs[1 + count :], finals[count:], strict=False)]
    return LoopBody(scope, inner, node, states, {}, gathered)


def _scan(scope: Scope, inner: Scope, node: Operation) -> LoopBody:
    if scope.opset < 9:
        raise UnmatchedError("Scan has another meaning before the operator set 9")
    body, attributes = inner.body, scope.attributes(node)
    scanned = attributes["num_scan_inputs"]
    inputs, outputs = list(body.inputs), list(body.outputs)
    count = len(inputs) - scanned
    scan_outputs = len(outputs) - count

    def listed(name: str, length: int) -> list[int]:
        return list(attributes.get(name, [0] * length))

    if not 0 <= count <= len(outputs) or len(node.inputs) != len(inputs):
        raise UnmatchedError("its body does not fit its inputs")
    finals = [*node.outputs, *[""] * (len(outputs) - len(node.outputs))]
    axes, ways = listed("scan_input_axes", scanned), listed("scan_input_directions", scanned)
    out_axes, out_ways = listed("scan_output_axes", scan_outputs), listed("scan_output_directions", scan_outputs)
    elements = {
        name: (outer, axis, REVERSE if way else FORWARD)
        for name, outer, axis, way in zip(inputs[count:], node.inputs[count:], axes, ways, strict=True)
    }
    states = list(zip(inputs[:count], outputs[:count], node.inputs[:count], finals[:count], strict=True))
    gathered = [
        (value, final, axis, bool(way)) for value, final, axis, way in zip(outputs[count:], finals[count:], out_axes, out_ways, strict=True)
    ]
    return LoopBody(scope, inner, node, states, elements, gathered)


def _counts(inner: Scope, name: str, states: Sequence[State]) -> bool:
    """Return whether a state becomes itself plus one."""
    after = next(state[1] for state in states if state[0] == name)
    producer = inner.producer(same_numbers(inner, after))
    if producer is None or producer[0].kind != "Add":
        return False
    inputs = [same_numbers(inner, operand) for operand in producer[0].inputs]
    others = [operand for operand in inputs if operand != name]
    if len(others) != 1:
        return False
    step = inner.constant(others[0])
    return step is not None and step.dtype.kind == "i" and step.size == 1 and int(step.reshape(())) == 1


def _zero(scope: Scope, name: str) -> bool:
    first = scope.constant(name)
    return first is not None and first.size == 1 and not first.any()


def _is_float(inner: Scope, name: str) -> bool:
    dtype = next((value.dtype for value in inner.body.declared if value.name == name), None)
    return dtype is None or dtype in _FLOATS


def _reached(inner: Scope, starts: Iterable[str]) -> set[str]:
    reached = set(starts)
    for node in inner.nodes:
        if reached & set(node.inputs):
            reached.update(filter(None, node.outputs))
    return reached


def _cell(tracer: Tracer, inner: Scope, hidden: Sequence[State]) -> tuple[Match, State]:
    """Return the cell, and which of the states is its hidden one."""
    problem: UnmatchedError | None = None
    for state in hidden:
        try:
            pieces = tracer.trace(state[1])
            if len(pieces) != 1:
                raise UnmatchedError("its state is put together from parts")
            others = [other[0] for other in hidden if other is not state]
            cell_match = match(pieces[0], state[0], others)
            if cell_match.old is not None and cell_match.new is not None:
                after = next((entry[1] for entry in hidden if entry[0] == cell_match.old.origin.value), "")
                if not after:
                    raise UnmatchedError("its cell state is kept at other steps than its hidden state")
                # The new cell state inside the output and the one that is carried must be the same formula.
                (new,) = tracer.trace(after)
                if new.key != cell_match.new.key:
                    raise UnmatchedError("its new cell state is not what its output is made of")
            for candidate in hidden:
                cell_states = (state[0], cell_match.old.origin.value if cell_match.old is not None else "")
                if candidate[0] not in cell_states and same_numbers(inner, candidate[1]) != same_numbers(inner, state[1]):
                    raise UnmatchedError(
                        f"it carries {candidate[0]!r} besides the states of its cell, as a stack of cells in one loop does"
                    )
            return cell_match, state
        except UnmatchedError as error:
            problem = problem or error
    raise problem or UnmatchedError("it carries no state")


def _uses(body: LoopBody, used: set[str], state: State, memory: State | None, hidden: Sequence[State], rank: int) -> list[Use]:
    """Return the outputs of a loop that something reads. Raises UnmatchedError for what the operator does not give."""
    inner = body.inner
    uses = []
    for name, after, first, final in body.states:
        if final not in used:
            continue
        if name == state[0] or (any(name == entry[0] for entry in hidden) and same_numbers(inner, after) == same_numbers(inner, state[1])):
            uses.append(Use(final, "hidden", rank=rank))
        elif memory is not None and name == memory[0]:
            uses.append(Use(final, "cell", rank=rank))
        else:
            raise UnmatchedError(f"{final!r}, which is not a state of its cell, is used behind it ({first!r} at first)")
    for value, final, axis, _ in body.gathered:
        if final not in used:
            continue
        if same_numbers(inner, value) != same_numbers(inner, state[1]):
            raise UnmatchedError(f"{final!r} collects something else than its state at each step")
        uses.append(Use(final, "sequence", axis, rank=rank))
    return uses


# When a Loop ends: after a number of steps that is the sequence's, or not at all.

_TRIED = 3
"""Up to how many steps every proof of a whole model runs at least, and one more."""


_ENDLESS = 2**31 - 1


_LISTED = 1000


_BOUNDS = {"Less": 1, "LessOrEqual": 1, "Greater": 0, "GreaterOrEqual": 0}
"""Comparisons of a count with the number at which a Loop ends: the place of that number."""


def check_end(scope: Scope, inner: Scope, node: Operation, counting: Sequence[State], begins: set[str]) -> set[str]:
    """Return the lengths of sequences after the longest of which a Loop may end.

    Raises UnmatchedError unless shapes, constants and such lengths alone decide when it ends.

    counting  the states that count its steps
    begins    which of these, with the iteration, count from zero
    """
    zero_based = {*begins, *(same_numbers(inner, state[1]) for state in counting if state[0] in begins)}
    names = {*begins, *(state[0] for state in counting)}
    lengths = set[str]()
    waiting = [(scope, name) for name in (*node.inputs[:2], *(state[2] for state in counting)) if name]
    waiting.append((inner, inner.body.outputs[0]))
    seen: set[tuple[Scope, str]] = set()
    while waiting:
        start, unresolved = waiting.pop()
        where, name = start.resolve(unresolved)
        if (where, name) in seen or (where is not inner and not given_at_run_time(where, name)):
            continue
        seen.add((where, name))
        producer = where.producer(name)
        bound = (where, name) if (where, name) == scope.resolve(node.inputs[0]) else None
        if producer is not None and producer[0].kind in _BOUNDS and not producer[0].domain:
            place = _BOUNDS[producer[0].kind]
            count = same_numbers(where, producer[0].inputs[1 - place])
            if count in zero_based if where is inner else _zero(where, count):
                bound = (where, producer[0].inputs[place])
        longest = None if bound is None else counts.longest(*bound)
        if longest is not None:
            lengths |= longest
        elif producer is not None and (where is inner or producer[0].kind == "And"):
            waiting += [(where, operand) for operand in producer[0].inputs if operand]
        elif where is not inner:
            raise UnmatchedError(f"how often it runs depends on numbers that the model is given ({name!r})")
        elif name not in names and inner.constant(name) is None and name != inner.body.inputs[1]:
            raise UnmatchedError(f"it ends by what it computes ({name!r})")
    return lengths


def check_limits(scope: Scope, inner: Scope, node: Operation, shapes: Sequence[Dims | None], axes: Sequence[int]) -> None:
    """Raise UnmatchedError where a stored number may end a Loop before its sequence: no proof runs sequences of every length."""
    lengths = {dims[axis] for dims, axis in zip(shapes, axes, strict=True) if dims is not None}
    waiting = [(scope, name) for name in node.inputs[:2] if name] + [(inner, inner.body.outputs[0])]
    seen: set[tuple[Scope, str]] = set()
    while waiting:
        start, unresolved = waiting.pop()
        where, name = start.resolve(unresolved)
        if (where, name) in seen:
            continue
        seen.add((where, name))
        stored = where.constant(name)
        if stored is not None:
            for number in np.abs(stored.astype(np.float64)).reshape(-1)[:_LISTED].tolist():
                if _TRIED < number < _ENDLESS and number not in lengths:
                    raise UnmatchedError(f"the number {number:g} ({name!r}) has a part in when it ends, and its sequence may be longer")
            continue
        producer = where.producer(name)
        if producer is None or producer[0].kind in ("Shape", "Size"):
            continue
        if producer[0].domain or bool(producer[0].bodies):
            raise UnmatchedError(f"a node {producer[0].kind} ({name!r}) decides when it ends")
        waiting += [(where, name) for name in producer[0].inputs if name]
