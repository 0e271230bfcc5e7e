"""The graphs of an ONNX model, and the values in them that are constant."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx

from rnnconvert.containers.reading import charging
from rnnconvert.core.arrays import FLOATS, Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.formats.onnx.proto.file import DTYPES, OnnxFile
from rnnconvert.graphs.program.fold import Call, fold

SCOPES = 10_000
"""The most graphs of one model that are visited, each call of a function counted."""

DEPTH = 100
FOLD_DEPTH = 120

_ONNX = ("", "ai.onnx")
_MOVING = ("Identity", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Split", "Gather", "Concat")
"""The operators that move numbers without changing any."""


def _is_float(tensor: onnx.TensorProto) -> bool:
    return DTYPES.get(tensor.data_type) in FLOATS.values()


class _Model:
    """What all scopes of a model share: the file, its functions, and how much may still be computed."""

    def __init__(self, file: OnnxFile) -> None:
        self.file = file
        self.functions = {(f.domain, f.name): f for f in file.model.functions}
        self.depth = 0
        self._reading = charging(file.data.size)
        self._scopes = 0

    def enter(self, path: str, depth: int) -> None:
        """Count a scope. Raises UnreadableError if they do not end, as when functions call each other."""
        self._scopes += 1
        if self._scopes > SCOPES or depth > DEPTH:
            raise UnreadableError(self.file.path, f"its graphs are too many or too deep at {path[:200]!r}")

    def charge(self, size: int) -> None:
        """Account for numbers to be computed. Raises BudgetError."""
        self._reading.memory(size, self.file.path)
        self._reading.work(10 + size // 256, self.file.path)

    def tensor(self, proto: onnx.TensorProto) -> Array | None:
        """Return a tensor's numbers; None for strings and the like."""
        return self.file.tensor(proto) if proto.data_type in DTYPES else None


class Scope:
    """One graph and the names that are visible in it.

    path   where it is: "main", "main/if_3.then_branch", "main/encoder()" for a function's call
    graph  the graph or function itself
    outer  the scope around it, whose names are visible too; None for the main graph and functions
    """

    def __init__(
        self,
        model: _Model,
        path: str,
        graph: onnx.GraphProto | onnx.FunctionProto,
        outer: Scope | None,
        opsets: Mapping[str, int],
        depth: int = 0,
    ) -> None:
        model.enter(path, depth)
        self.path = path
        self.graph = graph
        self.outer = outer
        self.opsets = opsets
        self._model = model
        self._depth = depth
        self._known: dict[str, Array | None] = {}
        self._folded: dict[int, Sequence[Array | None] | None] = {}
        self._open: set[str] = set()
        self._arguments: dict[str, tuple[Scope, str]] = {}
        self._attributes: dict[str, onnx.AttributeProto] = {}
        # the node is kept with its scope: its id would be given away as soon as it is dropped
        self._calls: dict[int, tuple[onnx.NodeProto, Scope]] = {}
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._tensors: dict[str, onnx.TensorProto] = {}
        self._inputs: set[str] = set()
        if isinstance(graph, onnx.GraphProto):
            for tensor in graph.initializer:
                if tensor.name in self._initializers:
                    raise UnreadableError(model.file.path, f"two initializers of {path} have the name {tensor.name!r}")
                self._initializers[tensor.name] = tensor
            self._inputs = {value.name for value in graph.input}
        else:
            self._inputs = set(graph.input)
        self._producers: dict[str, tuple[onnx.NodeProto, int]] = {}
        for node in graph.node:
            for index, name in enumerate(node.output):
                if name:
                    self._producers.setdefault(name, (node, index))

    @property
    def nodes(self) -> Sequence[onnx.NodeProto]:
        """The nodes in the order of the file."""
        nodes: Sequence[onnx.NodeProto] = self.graph.node
        return nodes

    def charge(self, size: int) -> None:
        """Account for bytes of constants that are about to be computed. Raises BudgetError."""
        self._model.charge(size)

    def producer(self, name: str) -> tuple[onnx.NodeProto, int] | None:
        """Return the node of this graph that makes a value, and which of its outputs the value is."""
        return self._producers.get(name)

    def attributes(self, node: onnx.NodeProto) -> dict[str, onnx.AttributeProto]:
        """Return a node's attributes by name; in a function, references stand for what the caller gave."""
        found: dict[str, onnx.AttributeProto] = {}
        for attribute in node.attribute:
            if not attribute.ref_attr_name:
                found[attribute.name] = attribute
            elif attribute.ref_attr_name in self._holder()._attributes:
                found[attribute.name] = self._holder()._attributes[attribute.ref_attr_name]
        return found

    def constant(self, name: str) -> Array | None:
        """Return the value of that name if it can be known without running the model, else None.

        Raises UnreadableError if its numbers are missing from the file, or implausibly many.
        """
        if name in self._known:
            return self._known[name]
        if not name or name in self._open or self._model.depth >= FOLD_DEPTH:
            return None
        self._open.add(name)
        self._model.depth += 1
        try:
            self._known[name] = self._evaluate(name)
        finally:
            self._model.depth -= 1
            self._open.discard(name)
        return self._known[name]

    def unknown(self, name: str) -> tuple[Scope, str, onnx.NodeProto | None]:
        """Return why a value is not constant: the first value on its way that is not, its scope, and the node that cannot be
        evaluated although all that it reads is constant; None for an input of the graph.
        """
        where, own = self.resolve(name)
        met: set[tuple[int, str]] = set()
        while (id(where), own) not in met:
            met.add((id(where), own))
            node, index = where._producers.get(own, (None, 0))
            if node is None:
                return where, own, None
            if where.calls(node):
                where, own = (called := where.call(node)), called.graph.output[index]
            else:
                lacking = next((given for given in node.input if given and where.constant(given) is None), None)
                if lacking is None:
                    break
                own = lacking
            where, own = where.resolve(own)
        return where, own, node

    def resolve(self, name: str) -> tuple[Scope, str]:
        """Return the scope that makes a value visible here, and the value's name there."""
        if name in self._arguments:
            caller, actual = self._arguments[name]
            return caller.resolve(actual)
        if name in self._initializers or name in self._producers or name in self._inputs or self.outer is None:
            return self, name
        return self.outer.resolve(name)

    def bind(self, name: str, outer: Scope, value: str) -> None:
        """Let an input of this graph be a value of another one: a state of a loop that never changes."""
        self._arguments[name] = (outer, value)

    def stored(self, name: str) -> onnx.TensorProto | None:
        """Return the tensor that a value of this graph is: an initializer's, or a Constant node's; None for others."""
        if name in self._initializers or name in self._tensors:
            return self._initializers[name] if name in self._initializers else self._tensors[name]
        node, _ = self._producers.get(name, (None, 0))
        if node is None or node.op_type != "Constant" or node.domain not in _ONNX:
            return None
        attribute = self.attributes(node).get("value")
        if attribute is None or not attribute.HasField("t"):
            return None
        self._tensors[name] = attribute.t  # kept: who asks compares tensors by their identity
        return self._tensors[name]

    def weights(self) -> Iterator[tuple[str, onnx.TensorProto]]:
        """Yield what may be weights, by name: the initializers, and the Constant nodes with more than one floating-point number."""
        for name, tensor in self._initializers.items():
            if tensor.data_type in DTYPES:
                yield name, tensor
        for node in self.nodes:
            tensor = self.stored(node.output[0]) if node.op_type == "Constant" and node.output else None
            if tensor is not None and _is_float(tensor) and math.prod(tensor.dims) > 1:
                yield node.output[0], tensor

    def key(self, name: str) -> tuple[int, str]:
        """Return what tells a value of this graph from those of the same name in other graphs of the model."""
        return id(self.graph), name

    def label(self, name: str) -> str:
        """Return what a value of this graph is called in the whole model."""
        return name if self.path == "main" else f"{self.path}/{name}"

    def calls(self, node: onnx.NodeProto) -> bool:
        """Return whether a node calls a function of the model's own."""
        return (node.domain, node.op_type) in self._model.functions

    def moves(self, node: onnx.NodeProto, index: int) -> bool:
        """Return whether a node moves the numbers of one of its inputs without changing any."""
        return node.domain in _ONNX and node.op_type in _MOVING and (index == 0 or node.op_type == "Concat")

    def moved(self, name: str, numbers: Callable[[onnx.TensorProto], Array]) -> Array | None:
        """Return a constant value as it would be with other numbers in the stored tensors, if nodes only move numbers
        there.

        name     a value for which `constant` gives an array
        numbers  for each stored tensor, an array of its shape

        None where a number is computed on the way, or no tensor holds it.
        """
        known: dict[tuple[int, str], Array | None] = {}

        def follow(scope: Scope, name: str) -> Array | None:
            scope, name = scope.resolve(name)
            key = id(scope), name
            if key not in known:
                tensor = scope.stored(name)
                known[key] = numbers(tensor) if tensor is not None else through(scope, name)
            return known[key]

        def through(scope: Scope, name: str) -> Array | None:
            node, output = scope._producers.get(name, (None, 0))
            if node is None:
                return None
            if scope.calls(node):
                called = scope.call(node)
                return follow(called, called.graph.output[output])
            if not scope.moves(node, 0):
                return None
            inputs = [
                follow(scope, given) if scope.moves(node, index) else scope.constant(given)
                for index, given in enumerate(node.input)
            ]
            outputs = scope._outputs(node, inputs, lambda size: None)  # `constant` has paid for arrays of this size
            return outputs[output] if outputs is not None and output < len(outputs) else None

        return follow(self, name)

    def _evaluate(self, name: str) -> Array | None:
        if name in self._initializers:
            return self._model.tensor(self._initializers[name])
        if name in self._producers:
            node, index = self._producers[name]
            if id(node) not in self._folded:  # all outputs at once: each is asked for by its own name
                self._folded[id(node)] = self._outputs(node)
            outputs = self._folded[id(node)]
            return outputs[index] if outputs is not None and index < len(outputs) else None
        if name in self._arguments:
            caller, actual = self._arguments[name]
            return caller.constant(actual)
        if name in self._inputs or self.outer is None:
            return None
        return self.outer.constant(name)

    def _outputs(
        self, node: onnx.NodeProto, given: list[Array | None] | None = None, charge: Callable[[int], None] | None = None
    ) -> Sequence[Array | None] | None:
        """Return what a node gives, if all it works on is constant, or on inputs that are given."""
        if self.calls(node):
            called = self.call(node)
            return [called.constant(name) for name in called.graph.output]
        if node.domain not in _ONNX:
            return None
        values = self.values(node)
        if values is None:
            return None
        inputs = [self.constant(name) for name in node.input] if given is None else given
        if any(value is None and name for name, value in zip(node.input, inputs, strict=True)):
            return None
        opset = self.opsets.get("", self.opsets.get("ai.onnx", 1))
        self._model.charge(64 * (len(node.input) + len(node.output)))
        return fold(Call(node.op_type, inputs, values, len(node.output), opset, charge or self._model.charge))

    def values(self, node: onnx.NodeProto) -> dict[str, Any] | None:
        """Return a node's attributes as Python values and arrays; None if one is of a kind that no constant needs."""
        values = {key: self._value(attribute) for key, attribute in self.attributes(node).items()}
        return None if len(values) != len(node.attribute) or any(value is None for value in values.values()) else values

    def _value(self, attribute: onnx.AttributeProto) -> Any:
        """Return an attribute as a Python value or array; None if no constant needs its kind."""
        kind = onnx.AttributeProto
        if attribute.type == kind.TENSOR:
            return self._model.tensor(attribute.t)
        if attribute.type == kind.STRING:
            return attribute.s.decode("utf-8", "replace")
        plain = {kind.FLOAT: "f", kind.INT: "i", kind.FLOATS: "floats", kind.INTS: "ints"}
        if attribute.type not in plain:
            return None
        value = getattr(attribute, plain[attribute.type])
        return value if isinstance(value, (int, float)) else list(value)

    def call(self, node: onnx.NodeProto) -> Scope:
        """Return the body of the function that a node calls, with the node's inputs and attributes in place."""
        if id(node) not in self._calls:
            function = self._model.functions[node.domain, node.op_type]
            opsets = {entry.domain: entry.version for entry in function.opset_import}
            label = node.name.strip("/") or node.op_type
            path = f"{self.path}/{label}()"
            called = Scope(self._model, path, function, None, opsets, self._depth + 1)
            given = (name for name in node.input)
            called._arguments = {formal: (self, actual) for formal, actual in zip(function.input, given, strict=False)}
            defaults = {attribute.name: attribute for attribute in function.attribute_proto}
            called._attributes = defaults | self.attributes(node)
            self._calls[id(node)] = (node, called)
        return self._calls[id(node)][1]

    def inner(self, node: onnx.NodeProto, index: int) -> Iterator[Scope]:
        """Yield the graphs inside a node: bodies and branches, or the function that it calls."""
        label = node.name.strip("/") or f"{node.op_type}_{index}"
        for attribute in node.attribute:
            graphs = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
            for graph in graphs:
                path = f"{self.path}/{label}.{attribute.name}"
                yield Scope(self._model, path, graph, self, self.opsets, self._depth + 1)
        if self.calls(node):
            yield self.call(node)

    def _holder(self) -> Scope:
        """Return the scope whose attributes a reference means: the function around all nested graphs."""
        scope = self
        while scope.outer is not None:
            scope = scope.outer
        return scope


def walk(file: OnnxFile) -> Iterator[Scope]:
    """Yield every graph of a model: the main one, those nested in nodes, a function once for each call.

    Functions that nobody calls come last, with nothing known about their inputs.
    Raises UnreadableError if functions call themselves or the graphs are too many or too deep.
    """
    model = _Model(file)
    opsets = {entry.domain: entry.version for entry in file.model.opset_import}
    called: set[tuple[str, str]] = set()
    waiting = [Scope(model, "main", file.model.graph, None, opsets)]
    while waiting:
        scope = waiting.pop()
        if isinstance(scope.graph, onnx.FunctionProto):
            called.add((scope.graph.domain, scope.graph.name))
        yield scope
        found = [inner for index, node in enumerate(scope.nodes) for inner in scope.inner(node, index)]
        waiting += reversed(found)
        uncalled = [key for key in model.functions if key not in called]
        if not waiting and uncalled:
            function = model.functions[uncalled[0]]
            own = {entry.domain: entry.version for entry in function.opset_import}
            waiting.append(Scope(model, f"{function.domain}::{function.name}()", function, None, own))


SHAPES = ("Shape", "Size")
"""Operators whose numbers are those of a shape."""


def behind(scope: Scope, name: str) -> Iterator[tuple[str, onnx.NodeProto | None]]:
    """Yield the values that a value is computed from, itself the first, each with the node that gives it.

    Constants are left out, and what is behind a shape: it does not decide the shape's numbers.
    """
    waiting, seen = [name], set()
    while waiting:
        own = waiting.pop()
        if not own or own in seen or scope.constant(own) is not None:
            continue
        seen.add(own)
        producer = scope.producer(own)
        node = None if producer is None else producer[0]
        yield own, node
        if node is not None and node.op_type not in SHAPES:
            waiting += node.input
