"""Recurrent operations of programs, and the layers that other operators compute, in the words of a description.

An operation may give its outputs with an axis of directions, (time, direction, batch, unit); what turns them afterwards is written only
where something is left of it.
"""

from __future__ import annotations

from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.sizes import Dim
from rnnconvert.models.model import Unit
from rnnconvert.recognition.computed import Computed
from rnnconvert.recognition.flow import FINAL_WORDS, PlacedCall
from rnnconvert.recognition.recognised import ReadSequence
from rnnconvert.scaffolding import kinds, operations
from rnnconvert.scaffolding.moved import Atom, MovedAxes
from rnnconvert.scaffolding.programs.reading import GraphReading
from rnnconvert.scaffolding.recurrent import recurrent as called
from rnnconvert.scaffolding.tensors import SourceTensor


def recurrent(r: GraphReading, placed: PlacedCall, unit: Unit) -> list[SourceTensor | None]:
    """Return the outputs of a recurrent operation, one by one."""
    stack, scope, call = unit.stack, placed.scope, placed.call
    assert stack is not None
    value, axes = call.sequence
    source = r.tensor(scope, value)
    r.build.check_sized([source], len(axes))
    if sorted(axes) != ["b", "i", "t"]:
        raise r.build.refuse("an operation that computes one step at a call", "its state stays from call to call")
    x = r.build.transpose(source, [axes.index(letter) for letter in "bti"])
    ways, lstm = stack.num_directions, stack.cell.kind == "lstm"
    used = r.uses(scope)
    sequences = {name: order for name, order in call.outputs.items() if used.any(name)}
    orders = {order for order in call.outputs.values() if "d" in order}
    batch = next((order.index("b") for order in orders), 1) == 0
    states = _states(r, placed, ways, lstm, batch, x.dims[0])
    mask = _mask(r, scope, call.lengths[0], x) if call.lengths else None
    merge = stack.layers[0].merge if ways > 1 else "concat"
    sequence, finals = called(r.build, unit, x, states, mask, bool(sequences), merge)
    values: dict[str, SourceTensor] = {}
    for name, order in sequences.items():
        turned = stack.output_order == "time" and stack.first.reverse and ways == 1
        values[name] = _with_axes(_turned(r, sequence) if turned else sequence, ways, order)
    for name, words in call.states.items():
        number = FINAL_WORDS.index(words)
        state = r.build.stacked(finals[number :: 1 + lstm])
        values[name] = r.build.transpose(state, (1, 0, 2)) if batch else state
    for name, tensor in values.items():
        r.give(scope, name, tensor)
    return [values.get(name) for name in placed.node.outputs]


def _states(r: GraphReading, placed: PlacedCall, ways: int, lstm: bool, batch_first: bool, batch: Dim) -> list[SourceTensor]:
    """Return the initial states, for each direction its hidden state and its cell state; none where they are zeros."""
    stated = [r.tensor(placed.scope, value) for value in placed.call.initial]
    if all(map(r.build.is_zero, stated)):
        return []
    if len(stated) != 1 + lstm:
        raise r.build.refuse("one initial state of two", "the other begins with zeros, and layers take both or none")
    axis = 1 if batch_first else 0
    return [_for_batch(r, r.build.select(x, axis, way), batch) for way in range(ways) for x in stated]


def _for_batch(r: GraphReading, state: SourceTensor, batch: Dim) -> SourceTensor:
    """Return a state of (batch, unit), where it is learned the same for every sequence."""
    if state.dims[0] == batch:
        return state
    if state.dims[0] != 1 and isinstance(state.dims[0], int) and isinstance(batch, int):
        raise r.build.refuse(f"initial states of {state.dims[0]} sequences for a batch of {batch}", "the node has no such use")
    return r.build.expand(state, (batch, state.dims[1]))


def _mask(r: GraphReading, scope: Scope, lengths: str, x: SourceTensor) -> SourceTensor | None:
    """Return which steps count by the lengths of the sequences; None where these are as long as there are steps."""
    where, spread = scope.resolve(lengths)
    producer = where.producer(spread)
    if producer is not None and producer[0].kind == "Expand":  # one length for all sequences of the batch
        spread = producer[0].inputs[0]
    numbers = r.tensor(where, spread).numbers
    if numbers is not None and all(length == x.dims[1] for length in numbers.reshape(-1)):
        return None
    return r.build.add(kinds.Mask(operation="lengths"), [r.tensor(scope, lengths), x], x.dims[:2], "bool", name="mask")


def _turned(r: GraphReading, x: SourceTensor) -> SourceTensor:
    """Return a sequence turned around."""
    return r.build.flip(x, 1)


def _with_axes(sequence: SourceTensor, ways: int, axes: str) -> SourceTensor:
    """Return (batch, time, units of both directions) with its axes in an order: "btu", or "tdbh" with one for the directions."""
    batch, time, both = sequence.dims
    assert isinstance(both, int)
    parts = {"b": Atom(batch), "t": Atom(time), "d": Atom(ways), "h": Atom(both // ways)}
    groups = {letter: (atom,) if atom.dim != 1 else () for letter, atom in parts.items()}
    groups["d"] = () if ways == 1 else groups["d"]
    groups["u"] = (Atom(both),) if "u" in axes else (*groups["d"], *groups["h"])
    dims = {**{letter: atom.dim for letter, atom in parts.items()}, "u": both}
    moved = MovedAxes((groups["b"], groups["t"], groups["u"]), tuple(groups[letter] for letter in axes))
    return SourceTensor(tuple(dims[letter] for letter in axes), sequence.dtype, sequence.name, origin=(sequence, moved))


def computed(r: GraphReading, scope: Scope, unit: Unit, layer: Computed) -> None:
    """Read a layer that other operators compute, and note each of its outputs that is used."""
    match, stack = layer.recognised, layer.stack
    r.build.place = f"{stack.name} ({match.what})"
    values = layer.reads if layer.turned else [read.value for read in match.reads]
    x = r.build.concatenate([_sequence(r, scope, read, value) for read, value in zip(match.reads, values, strict=True)], 2)
    states = [r.tensor(scope, match.states[letter]) for letter in ("h", "c") if letter in match.states]
    if all(map(r.build.is_zero, states)):
        states = []
    states = [r.build.squeeze(state, [0]) if state.rank == 3 else state for state in states]
    wanted = any(use.kind in ("sequence", "step") for use in match.uses)
    mask, zero = _computed_mask(r, scope, layer, x, bool(states))
    sequence, finals = called(r.build, unit, x, states, mask, wanted, zero=zero)
    if wanted and stack.first.reverse and not layer.turned and not match.processing:
        sequence = _turned(r, sequence)
    for use in match.uses:
        if use.kind == "sequence":
            output = sequence
            if use.rank != 2:
                output = r.build.unsqueeze(sequence, [0])  # (1, batch, time, unit): time is put in its place below
            order = [n for n in range(output.rank) if n != output.rank - 2]
            order.insert(use.axis, output.rank - 2)
            output = r.build.transpose(output, order)
        else:
            final = finals[1 if use.kind == "cell" else 0]
            output = r.build.select(sequence, 1, use.step) if use.kind == "step" else final
            output = r.build.unsqueeze(output, [0]) if use.rank == 3 else output
        r.give(scope, use.value, output)


def _computed_mask(r: GraphReading, scope: Scope, layer: Computed, x: SourceTensor, begun: bool) -> tuple[SourceTensor | None, bool]:
    """Return which steps of (batch, time) count, None for all; and whether the outputs of the others are zero.

    begun  whether it begins with other states than zeros
    """
    match = layer.recognised
    if match.mask is None:
        return None, True
    fills = {use.fill if use.fill == "zero" or begun else "output" for use in match.uses if use.kind in ("sequence", "step")}
    if match.direction.reverse:
        raise r.build.refuse("a loop from the end that skips steps of its sequences", "no line is known for it")
    if len(fills) > 1 or "state" in fills or any(use.fill == "zero" for use in match.uses if use.kind in ("hidden", "cell")):
        raise r.build.refuse("a loop whose outputs at skipped steps are not alike", "it is not a plain layer")
    rank = match.mask.rank
    if rank == 1:
        return _mask(r, scope, match.mask.value, x), fills == {"zero"}
    value = r.tensor(scope, match.mask.value)
    value = r.build.squeeze(value, [2]) if rank == 3 else value
    value = r.build.transpose(value, (1, 0)) if match.mask.axis == 0 else value
    value = operations.function(r.build, value, "not", "bool") if match.mask.negated else value
    value = _turned(r, value) if layer.turned else value  # its steps are turned around as those of the sequence are
    return value, fills == {"zero"}


def _sequence(r: GraphReading, scope: Scope, read: ReadSequence, value: str) -> SourceTensor:
    """Return the sequence that a layer reads as (batch, time, features): a value, or its written-out steps."""
    if read.steps:
        steps = [r.tensor(scope, step) for step in read.steps]
        if any(step.rank != 2 for step in steps):
            raise r.build.refuse("written-out steps over other than (batch, features)", "it is not a plain layer")
        return r.build.concatenate([r.build.unsqueeze(step, [1]) for step in steps], 1)
    x = r.tensor(scope, value)
    rest = [axis for axis in range(x.rank) if axis != read.axis]
    if x.rank != 3:
        raise r.build.refuse(f"a loop over a tensor of {x.rank} axes", "a sequence has three")
    x = r.build.transpose(x, (rest[0], read.axis, rest[1]))
    return x if read.window is None else r.build.slice(x, 1, read.window[0], read.window[1], 1)
