"""A described model as one that is called piece by piece: its states are inputs and outputs.

It is a description like any other, so any target that writes initial states and last ones writes it, and needs to know nothing of this.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from rnnconvert.core.errors import RefusedError
from rnnconvert.core.remedies import Flag
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import RANK, Check, DescribedModel, Description, Length, Node, Value
from rnnconvert.scaffolding.graph.checks import fixed
from rnnconvert.scaffolding.stateful.rules import SO_FAR, Place
from rnnconvert.scaffolding.stateful.steps import STREAM, StreamSteps
from rnnconvert.scaffolding.weights import LayerWeights

_MOST_TRIED = 64
L = TypeVar("L", bound="Length | int")


@dataclass(frozen=True)
class StreamedDescription:
    """A model whose states go in and out.

    description  it, with its states as its last inputs and outputs: see Description.states
    source       what it was made of
    inputs       for each input of the source the axis that is the time; None for one that is handed over whole with each piece
    outputs      for each of its outputs likewise; None for one that stands for the stream so far
    lasting      whether the source keeps its states from one call to the next itself
    """

    description: Description
    source: Description
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    lasting: bool

    def notes(self, inputs: Sequence[str], outputs: Sequence[str], steps: int | None = None) -> list[str]:
        """Return the notes for the user.

        inputs   the names of the inputs in the written file, with their axes in brackets behind them; outputs likewise
        steps    how many steps a piece has, None where any number
        """
        reads, gives = ([text.rpartition(" (")[0] for text in texts] for texts in (inputs, outputs))
        pairs = zip(reads[len(self.inputs) :], gives[len(self.outputs) :], strict=True)
        carried = ", ".join(f"{start} <- {end}" for start, end in pairs)
        notes = [f"its states begin with zeros, and each call goes on from those that the call before it gave: {carried}"]
        times = [
            f"axis {axis} of {value.name}" for value, axis in zip(self.source.scope.inputs, self.inputs, strict=True) if axis is not None
        ]
        count = {None: "any number of steps from 1 on", 1: "one step"}.get(steps, f"{steps} steps")
        notes.append(f"the time is {' and '.join(times)}: a piece has {count}")
        notes += [f"{name} is handed over whole with each piece" for name, axis in zip(reads, self.inputs, strict=False) if axis is None]
        so_far = [name for name, axis in zip(gives, self.outputs, strict=False) if axis is None]
        return [*notes, *(f"{name} is what the model gives for the stream so far" for name in so_far)]


def streamed(description: Description, weights: LayerWeights) -> StreamedDescription:
    """Return a model whose recurrent layers go on from states that are inputs, and give their last ones as outputs.

    Which axes of its inputs are the time is tried, until each of its layers can be cut between any two steps.

    Raises RefusedError for a layer that cannot, by its name, and for a model that keeps nothing from one step to the next.
    """
    top = description.scope
    reason = "it keeps nothing from one step to the next"
    best = RefusedError("a model without recurrent layers over its input", STREAM, reason)
    furthest = (False, -1) if any(isinstance(node.kind, kinds.Recurrent) for node in top.every_node()) else (True, len([*top.every_node()]))
    candidates = itertools.product(*(_candidates(value) for value in top.inputs))
    for places in itertools.islice(candidates, _MOST_TRIED):
        steps = StreamSteps(top, places)
        try:
            steps.run(top)
            if not steps.carried:
                continue
            _check_lengths(description, places)
        except RefusedError as error:
            reached = (not steps.misplaced, steps.seen)
            best, furthest = (error, reached) if reached > furthest else (best, furthest)
            continue
        outputs = tuple(None if (place := steps(value)) == SO_FAR else place for value in top.outputs)
        return _with_states(description, weights, steps, places, outputs)
    remedy = " ".join(filter(None, [best.remedy, f"It is written for whole sequences without {Flag('stateful')}."]))
    raise RefusedError(best.feature, best.target, best.reason, remedy, best.layer)


def _candidates(value: Value) -> list[int | None]:
    """Return which axis of an input may be the time, the most likely first: an open one behind the batch, or in front."""
    axes = [axis for axis in (1, 0, *range(2, len(value.shape))) if axis < len(value.shape)]
    opened = [axis for axis in axes if value.shape[axis] is None]
    likely = [axis for axis in axes[:1] if axis in opened]
    return [*likely, None, *(axis for axis in opened if axis not in likely), *(axis for axis in axes if axis not in opened)]


def _check_lengths(description: Description, places: Sequence[Place]) -> None:
    """Raise RefusedError for a model that computes otherwise for other numbers of steps, of those that it takes."""
    names = [value.name for value in description.scope.inputs]
    for check in description.checks:
        if _of_time(check, places) and not check.always and fixed(check) is None:
            raise RefusedError(
                "a condition on the number of steps", STREAM, f"the model asks for {check.spelled(names)[1]}, and a piece has any number"
            )


def _of_time(check: Check, places: Sequence[Place]) -> bool:
    return any(axis != RANK and places[number] == axis for number, axis in check.axes)


def _with_states(
    description: Description, weights: LayerWeights, steps: StreamSteps, inputs: Sequence[Place], outputs: tuple[int | None, ...]
) -> StreamedDescription:
    keep = {
        node.kind.stateful
        for node in description.scope.every_node()
        if id(node.outputs[0]) in steps.carried and isinstance(node.kind, kinds.Recurrent)
    }
    if len(keep) > 1:
        raise RefusedError(
            "layers that keep their states beside others that begin anew", STREAM, "in a stream all layers go on", "Build all alike."
        )
    work = _Carrying(weights, steps, description.scope)
    scope, starts, ends = work.scope(description.scope)
    scope.inputs += tuple(starts)
    scope.outputs += tuple(ends)
    checks = tuple(check for check in description.checks if not _of_time(check, inputs))
    every = replace(description, scope=scope, states=len(starts), checks=checks)
    return StreamedDescription(every, description, tuple(inputs), outputs, keep == {True})


@dataclass
class _Carrying:
    """A model that is being written anew, with states.

    weights  the weights of its layers
    steps    where the time of its tensors is
    top      the outermost model
    """

    weights: LayerWeights
    steps: StreamSteps
    top: DescribedModel
    _values: dict[int, Value] = field(default_factory=dict)
    _scopes: dict[int, tuple[DescribedModel, list[Value], list[Value]]] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def scope(self, source: DescribedModel) -> tuple[DescribedModel, list[Value], list[Value]]:
        """Return a model anew, the states that it begins with, and those that it ends with: they are to be its inputs and outputs."""
        if id(source) in self._scopes:
            return self._scopes[id(source)]
        model = DescribedModel(source.name, source.path, tuple(map(self._opened, source.inputs)))
        starts: list[Value] = []
        ends: list[Value] = []
        for node in source.nodes:
            carried = id(node.y) in self.steps.carried and isinstance(node.kind, kinds.Recurrent)
            states = self._states(source, node) if carried else []
            new = self._anew(node)
            if carried and isinstance(new.kind, kinds.Recurrent):
                first, last = ([pair[n] for pair in states] for n in range(2))
                kind = replace(new.kind, stateful=False)
                new = replace(new, outputs=(new.y, *last), kind=kind, named={**new.named, "states": tuple(first)})
            elif isinstance(new.kind, kinds.Model):
                new, states = self._called(source, new, new.kind.scope)
            starts += [start for start, _ in states]
            ends += [end for _, end in states]
            model.nodes.append(new)
        model.outputs = tuple(map(self._opened, source.outputs))
        self._scopes[id(source)] = model, starts, ends
        return self._scopes[id(source)]

    def _opened(self, value: Value) -> Value:
        """Return a tensor whose time has any length."""
        if id(value) not in self._values:
            place = self.steps(value)
            fixed = place is not None and place != SO_FAR and value.shape[place] is not None
            shape = tuple(None if axis == place else length for axis, length in enumerate(value.shape))
            self._values[id(value)] = replace(value, shape=shape) if fixed else value
        return self._values[id(value)]

    def _anew(self, node: Node[kinds.Kind]) -> Node[kinds.Kind]:
        """Return a node on the tensors of the new model."""
        named = {key: tuple(map(self._opened, values)) for key, values in node.named.items()}
        new = replace(node, inputs=tuple(map(self._opened, node.inputs)), outputs=tuple(map(self._opened, node.outputs)), named=named)
        return self._resized(node, new) if new.inputs and new.x is not node.x else new

    def _resized(self, node: Node[kinds.Kind], new: Node[kinds.Kind]) -> Node[kinds.Kind]:
        """Return a node that stated how many steps there are, for any number. Raises RefusedError where it cannot be said so."""
        kind, place = node.kind, self.steps(node.x)
        if place is None or place == SO_FAR:  # it reads last states, which have no steps
            return new
        if isinstance(kind, kinds.Slice | kinds.SliceBetween) and kind.axis % len(node.x.shape) == place:
            return replace(new, kind=replace(kind, end=None))
        if isinstance(kind, kinds.Select) and kind.axis % len(node.x.shape) == place:
            return replace(new, kind=replace(kind, index=-1))
        if isinstance(kind, kinds.Expand | kinds.SplitAxis):
            raise self.steps.refused(node, "a shape with the number of steps", "a stream has any number of them")
        if isinstance(kind, kinds.Reshape | kinds.ReshapeAll):
            return replace(new, kind=replace(kind, sizes=self._reshaped(node, kind.sizes)))
        if isinstance(kind, kinds.View):
            return replace(new, kind=kinds.View(self._reshaped(node, kind.lengths)))
        return new

    def _reshaped(self, node: Node[kinds.Kind], stated: tuple[L, ...]) -> tuple[L | int, ...]:
        """Return the lengths of a shape, with the number of steps left open."""
        place, sizes = self.steps(node.y), list[L | int](stated)
        assert place is not None
        behind = place - len(node.y.shape) + len(sizes)  # Keras's do not state the batch
        if behind >= 0 and sizes[behind] == node.y.shape[place]:
            if -1 in sizes:
                raise self.steps.refused(node, "a shape with the number of steps", "a stream has any number of them")
            sizes[behind] = -1
        return tuple(sizes)

    def _states(self, source: DescribedModel, node: Node[kinds.Kind]) -> list[tuple[Value, Value]]:
        """Return the states of a recurrent layer: what it begins with, and what it ends with, under names that tell."""
        path = source.inside(node.layer)
        direction = self.weights.stack(source.inside(node.source)).first
        x = node.x
        axes = (x.axes[0], "") if x.axes else ()
        states = []
        for place, (letter, width) in enumerate((("h", direction.output_size), ("c", direction.hidden_size))):
            if letter == "h" or direction.cell.kind == "lstm":
                start = Value(self._name(source, f"{path}/initial_{letter}"), (x.shape[0], width), axes=axes)
                end = Value(self._name(source, f"{path}/{letter}_n"), start.shape, axes=axes)
                for value in node.outputs[1 + place : 2 + place]:  # which the model reads, too
                    self._values[id(value)] = end
                states.append((start, end))
        return states

    def _called(
        self, source: DescribedModel, node: Node[kinds.Kind], called: DescribedModel
    ) -> tuple[Node[kinds.Kind], list[tuple[Value, Value]]]:
        """Return the call of a model in the model, which hands its states through, and these."""
        scope, starts, ends = self.scope(called)
        if len(scope.inputs) == len(node.inputs):  # its first call
            scope.inputs += tuple(starts)
            scope.outputs += tuple(ends)
        mine, finals = ([replace(value, name=self._name(source, value.name)) for value in values] for values in (starts, ends))
        anew = replace(node, inputs=(*node.inputs, *mine), outputs=(*node.outputs, *finals), kind=kinds.Model(scope))
        return anew, list(zip(mine, finals, strict=True))

    def _name(self, source: DescribedModel, wanted: str) -> str:
        """Return the name of a state, which no other state of the outermost model has."""
        if source is not self.top:
            return wanted
        name, number = wanted, 2
        while name in self._names:
            name, number = f"{wanted}_{number}", number + 1
        self._names.add(name)
        return name
