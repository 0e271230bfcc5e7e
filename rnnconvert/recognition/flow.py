"""A model as a graph of the floor: what its recurrent layers receive."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rnnconvert.core.weights import Call, Recurrent
from rnnconvert.graphs.between import calls
from rnnconvert.graphs.graph import PLAIN, UNFOLLOWED, CallSizes, Graph
from rnnconvert.graphs.program.dialect import DIALECT, GIVE, OPSET, READ
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.recognition.computed import Computed, RecognisedLayers

FINAL_WORDS = ("the final state", "the final cell state")
_FINAL = dict(zip(("hidden", "cell"), FINAL_WORDS, strict=True))
_FOLDED = 1 << 12
"""The most numbers of a constant that the graph needs to know: shapes, axes and indices."""


@dataclass(frozen=True)
class RecurrentCall:
    """A recurrent operation, by the values of its graph; sequences go with their axes (see rnnconvert/graphs/graph.py).

    sequence  the sequence that it reads
    outputs   the sequences that it gives
    sizes     its widths, directions and element type
    states    the states that it gives, in words
    initial   the states that it begins with
    lengths   the lengths of its sequences
    besides   other things that it receives, in words
    """

    sequence: tuple[str, str]
    outputs: Mapping[str, str]
    sizes: CallSizes
    states: Mapping[str, str]
    initial: Sequence[str] = ()
    lengths: Sequence[str] = ()
    besides: Call = PLAIN


@dataclass(frozen=True)
class PlacedCall:
    """A recurrent operation of a program.

    scope, node  the operation, and the graph that it is in
    call         what it reads and gives
    weights      the values of its weights
    continues    whether it goes on from one call of the model to the next
    """

    scope: Scope
    node: Operation
    call: RecurrentCall
    weights: Sequence[str] = ()
    continues: bool = False


@dataclass(frozen=True)
class ReadProgram:
    """A file's program with its recurrent layers.

    scopes    every graph, the main one first
    calls     the recurrent operations, by the names of the layers
    computed  the layers that other operations of the main graph compute, by their names
    inputs    what the file calls the inputs of the main graph, where their values are called otherwise
    """

    scopes: Sequence[Scope]
    calls: Mapping[str, PlacedCall]
    computed: Mapping[str, Computed]
    inputs: Mapping[str, str] = field(default_factory=dict)


def common_call(scope: Scope, node: Operation, stack: Recurrent) -> RecurrentCall:
    """Return the call of a recurrent operation of the common set."""
    batch_first = scope.attributes(node).get("layout") == 1
    lengths = node.inputs[4] if len(node.inputs) > 4 else ""
    return RecurrentCall(
        (node.inputs[0], "bti" if batch_first else "tbi"),
        {name: "btdh" if batch_first else "tdbh" for name in [*node.outputs][:1] if name},
        CallSizes(stack.hidden_size, directions=stack.num_directions, dtype=stack.dtype, width=stack.input_size),
        {name: _FINAL["cell" if place else "hidden"] for place, name in enumerate([*node.outputs][1:]) if name},
        [name for name in node.inputs[5:7] if name],
        [lengths] if lengths else [],
    )


def received(
    scopes: Sequence[Scope], homes: Iterable[tuple[str, Scope, RecurrentCall]], looked: RecognisedLayers
) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each layer of a model, with all that it receives.

    homes   the recurrent operations: the layer's name, the graph that it is in, and its call, of which a layer may have several
    looked  the layers that other operators compute
    """
    return calls(_Flow(scopes, homes, looked).graph)


def _nothing() -> None:
    """Return no numbers: large constants decide no places."""


class _Flow:
    """A model's graphs as one, with functions in place of their calls."""

    def __init__(self, scopes: Sequence[Scope], homes: Iterable[tuple[str, Scope, RecurrentCall]], looked: RecognisedLayers) -> None:
        self.graph = Graph(DIALECT)
        self._bodies = {scope.body: scope for scope in scopes if scope.outer is not None}
        self._around = {
            self._bodies[body]: node.kind for scope in scopes for node in scope.nodes for _, body in node.bodies if body in self._bodies
        }
        for scope in scopes:
            self._values(scope)
            for node in scope.nodes:
                self._add(scope, node)
        for name, scope, home in homes:
            self._home(name, scope, home)
        for name, computed in looked.layers.items():
            if looked.scope is not None:
                self._computed(looked.scope, name, computed)

    @staticmethod
    def _key(scope: Scope, name: str) -> Hashable:
        where, value = scope.resolve(name)
        return where, where.label(value)

    def _read(self, scope: Scope, name: str) -> Hashable:
        """Return the key under which a node reads a value. What a body reads of the graphs around it has come through the node
        that decides whether, and how often, the body runs.
        """
        key, (where, value) = self._key(scope, name), scope.resolve(name)
        if scope not in self._around or where is scope or where.stored(value) is not None:
            return key
        inside = scope, key
        if self.graph.value(inside).node is None:
            self.graph.add(self._around[scope], [key], [inside])
        return inside

    def _values(self, scope: Scope) -> None:
        """Note the constants of a graph, and the shapes that it states."""
        for value in scope.body.declared:
            if value.dims is not None and value.name not in scope.body.outputs:
                self.graph.describe(self._key(scope, value.name), [length or None for length in value.dims])
        for name, tensor in scope.weights():
            few = math.prod(tensor.dims) <= _FOLDED
            self.graph.constant(self._key(scope, name), partial(scope.constant, name) if few else _nothing)

    def _add(self, scope: Scope, node: Operation) -> None:
        inputs = [self._read(scope, name) if name else None for name in node.inputs]
        outputs = [self._key(scope, name) if name else None for name in node.outputs]
        label = node.operator if node.operator != "" else f"{node.kind} of {node.domain}" if node.domain else node.kind
        if scope.calls(node):
            called = scope.call(node)
            for name, output in zip(called.body.outputs, outputs, strict=False):
                self.graph.add(("", "Identity"), [self._key(called, name)], [output])
            return
        bodies = [self._bodies[body] for _, body in node.bodies if body in self._bodies]
        if bodies:
            # What is inside may read any value of the graphs around it, and gives the node's outputs.
            around = [self._key(body, name) for body in bodies for read in body.nodes for name in read.inputs if name]
            begins = [self._key(body, name) for body in bodies for name in body.body.inputs]
            ends = [self._key(body, name) for body in bodies for name in body.body.outputs]
            self.graph.add(node.kind, inputs, begins, label=label)
            self.graph.add(node.kind, [*inputs, *around, *ends], outputs, label=label)
            return
        values = scope.values(node) or {}
        self.graph.add((node.domain, node.kind), inputs, outputs, {**values, OPSET: scope.opset}, label)

    def _home(self, name: str, scope: Scope, home: RecurrentCall) -> None:
        """Note the call of a recurrent operation."""
        value, axes = home.sequence
        self.graph.call(
            name,
            (self._read(scope, value), axes),
            {self._key(scope, output): output_axes for output, output_axes in home.outputs.items()},
            {self._key(scope, state): words for state, words in home.states.items()},
            sizes=home.sizes,
            received=home.besides,
            initial=[self._read(scope, state) for state in home.initial],
            lengths=[self._read(scope, length) for length in home.lengths],
        )

    def _computed(self, scope: Scope, name: str, computed: Computed) -> None:
        """Note the call of a layer that other operators compute; single steps are put together, or taken out."""
        layer, stack = computed.recognised, computed.stack
        values = [self._key(scope, value) for read in layer.reads for value in read.steps or (read.value,)]
        # Between two operators that turn its sequence around, it computes from the last step to the first.
        time = "T" if computed.turned else "t"
        sequence, states = (name, "what it reads"), (name, "its states")
        self.graph.add(READ, values, [sequence], {"reads": layer.reads}, "Concat")
        # Among other steps, the final state is the last one of them.
        steps = any(use.kind == "step" for use in layer.uses) and layer.mask is None and not layer.direction.reverse
        uses = [use._replace(kind="step", step=-1) if steps and use.kind == "hidden" else use for use in layer.uses]
        for use in uses:
            if use.kind not in _FINAL:
                self.graph.add(GIVE, [states], [self._key(scope, use.value)], {"use": use}, "Slice", over=True)
        mask = "" if layer.mask is None else f"{layer.mask.value!r}"
        lengths = layer.mask is not None and layer.mask.rank == 1
        self.graph.call(
            name,
            (sequence, f"{time}bi"),
            {states: f"{time if stack.output_order == 'time' else 't'}bu"},
            {self._key(scope, use.value): _FINAL[use.kind] for use in uses if use.kind in _FINAL},
            sizes=CallSizes(stack.hidden_size, dtype=stack.dtype, width=stack.input_size),
            received=Call(UNFOLLOWED, mask="" if lengths else mask, lengths=mask if lengths else ""),
            initial=[self._key(scope, value) for value in layer.states.values()],
        )
