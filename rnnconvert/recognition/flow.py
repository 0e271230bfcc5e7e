"""A model as a graph of the floor: what its recurrent layers receive."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import onnx

from rnnconvert.core.weights import Call, Recurrent
from rnnconvert.formats.onnx.node import Home
from rnnconvert.graphs import UNFOLLOWED, Graph, LayerCall, calls
from rnnconvert.graphs.program.dialect import DIALECT, GIVE, OPSET, READ
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.received import states as states_of
from rnnconvert.recognition.computed import Computed, Looked

_FINAL = {"hidden": "the final state", "cell": "the final cell state"}
_FOLDED = 1 << 12
"""The most numbers of a constant that the graph needs to know: shapes, axes and indices."""


def received(
    scopes: Sequence[Scope], homes: Mapping[str, Home], looked: Looked, layers: Mapping[str, Recurrent]
) -> dict[str, tuple[Call, ...]]:
    """Return what each layer of a model receives.

    homes   where the recurrent nodes are
    looked  the layers that other operators compute
    """
    return calls(_Flow(scopes, homes, looked, layers).graph)


def _nothing() -> None:
    """Return no numbers: those of large constants decide no places."""


class _Flow:
    """A model's graphs as one, with functions in place of their calls."""

    def __init__(
        self, scopes: Sequence[Scope], homes: Mapping[str, Home], looked: Looked, layers: Mapping[str, Recurrent]
    ) -> None:
        self.graph = Graph(DIALECT)
        self._bodies = {id(scope.graph): scope for scope in scopes if scope.outer is not None}
        self._around = {
            id(self._bodies[id(graph)]): node.op_type
            for scope in scopes for node in scope.nodes for graph in _inside(node) if id(graph) in self._bodies
        }  # fmt: skip
        for scope in scopes:
            self._values(scope)
            for node in scope.nodes:
                self._add(scope, node)
        states = []
        for name, home in homes.items():
            states.append((self._home(name, home, layers[name]), self._states(home)))
        for name, computed in looked.layers.items():
            if looked.scope is not None:
                call = self._computed(looked.scope, name, computed)
                states.append((call, [self._key(looked.scope, value) for value in computed.found.states.values()]))
        for call, keys in states:
            call.given = replace(call.given, states=states_of(self.graph, keys))

    @staticmethod
    def _key(scope: Scope, name: str) -> Hashable:
        where, value = scope.resolve(name)
        return id(where), where.label(value)

    def _read(self, scope: Scope, name: str) -> Hashable:
        """Return the key under which a node reads a value. What a body reads of the graphs around it has come through the node
        that decides whether, and how often, the body runs.
        """
        key, (where, value) = self._key(scope, name), scope.resolve(name)
        if id(scope) not in self._around or where is scope or where.stored(value) is not None:
            return key
        inside = id(scope), key
        if self.graph.value(inside).node is None:
            self.graph.add(self._around[id(scope)], [key], [inside])
        return inside

    def _values(self, scope: Scope) -> None:
        """Note the constants of a graph, and the shapes that it states."""
        if isinstance(scope.graph, onnx.GraphProto):
            for value in (*scope.graph.input, *scope.graph.value_info):
                if value.type.tensor_type.HasField("shape"):
                    axes = value.type.tensor_type.shape.dim
                    dims = [axis.dim_value or axis.dim_param or None for axis in axes]
                    self.graph.describe(self._key(scope, value.name), dims)
        for name, tensor in scope.weights():
            few = math.prod(tensor.dims) <= _FOLDED
            self.graph.constant(self._key(scope, name), partial(scope.constant, name) if few else _nothing)

    def _add(self, scope: Scope, node: onnx.NodeProto) -> None:
        inputs = [self._read(scope, name) if name else None for name in node.input]
        outputs = [self._key(scope, name) if name else None for name in node.output]
        domain = "" if node.domain in ("", "ai.onnx") else node.domain
        label = node.op_type if not domain else f"{node.op_type} of {domain}"
        if scope.calls(node):
            called = scope.call(node)
            for name, output in zip(called.graph.output, outputs, strict=False):
                self.graph.add(("", "Identity"), [self._key(called, name)], [output])
            return
        bodies = [self._bodies[id(graph)] for graph in _inside(node) if id(graph) in self._bodies]
        if bodies:
            # What is inside may read any value of the graphs around it, and gives the node's outputs.
            around = [self._key(body, name) for body in bodies for read in body.nodes for name in read.input if name]
            begins = [self._key(body, value.name) for body in bodies for value in body.graph.input]
            ends = [self._key(body, value.name) for body in bodies for value in body.graph.output]
            self.graph.add(node.op_type, inputs, begins)
            self.graph.add(node.op_type, [*inputs, *around, *ends], outputs)
            return
        values = scope.values(node) or {}
        self.graph.add((domain, node.op_type), inputs, outputs, {**values, OPSET: scope.opsets.get("", 1)}, label)

    def _home(self, name: str, home: Home, stack: Recurrent) -> LayerCall:
        """Note the call of a recurrent node."""
        scope, node = home.scope, home.node
        batch_first = "layout" in scope.attributes(node) and scope.attributes(node)["layout"].i == 1
        outputs = [self._key(scope, value) if value else None for value in node.output]
        states = {
            key: _FINAL["cell" if place else "hidden"] for place, key in enumerate(outputs[1:]) if key is not None
        }
        sequence = self._read(scope, node.input[0]), "bti" if batch_first else "tbi"
        lengths = node.input[4] if len(node.input) > 4 else ""
        given = Call(UNFOLLOWED, lengths=f"{lengths!r}" if lengths and scope.constant(lengths) is None else "")
        return self.graph.call(
            name, sequence, {key: "btdh" if batch_first else "tdbh" for key in outputs[:1] if key is not None}, states,
            hidden=stack.hidden_size, directions=stack.num_directions, dtype=stack.dtype, width=stack.input_size, given=given,
        )  # fmt: skip

    def _states(self, home: Home) -> list[Hashable]:
        return [self._read(home.scope, name) for name in home.node.input[5:7] if name]

    def _computed(self, scope: Scope, name: str, computed: Computed) -> LayerCall:
        """Note the call of a layer that other operators compute; single steps are put together, or taken out."""
        found, stack = computed.found, computed.stack
        values = [self._key(scope, value) for read in found.reads for value in read.steps or (read.value,)]
        # Between two operators that turn its sequence around, it computes from the last step to the first.
        time = "T" if computed.turned else "t"
        sequence, states = (name, "what it reads"), (name, "its states")
        self.graph.add(READ, values, [sequence], {"reads": found.reads}, "Concat")
        for use in found.uses:
            if use.kind not in _FINAL:
                self.graph.add(GIVE, [states], [self._key(scope, use.value)], {"use": use}, "Slice", over=True)
        mask = "" if found.mask is None else f"{found.mask.value!r}"
        lengths = found.mask is not None and found.mask.rank == 1
        return self.graph.call(
            name, (sequence, f"{time}bi"), {states: f"{time if stack.output_order == 'time' else 't'}bu"},
            {self._key(scope, use.value): _FINAL[use.kind] for use in found.uses if use.kind in _FINAL},
            hidden=stack.hidden_size, dtype=stack.dtype, width=stack.input_size,
            given=Call(UNFOLLOWED, mask="" if lengths else mask, lengths=mask if lengths else ""),
        )  # fmt: skip


def _inside(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs in a node."""
    for attribute in node.attribute:
        yield from [attribute.g] if attribute.HasField("g") else attribute.graphs
