"""The graphs of a program, and the values in them that are constant."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rnnconvert.containers.reading import charging
from rnnconvert.core.arrays import FLOATS, Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import FOLD_NESTING, GRAPH_NESTING, SCOPES
from rnnconvert.core.malformed import Fields
from rnnconvert.graphs.program.fold import fold
from rnnconvert.graphs.program.fold_call import FoldedCall
from rnnconvert.graphs.program.kinds import MOVING
from rnnconvert.graphs.program.operations import AttributeReference, Body, Operation, Program, StoredNumbers


class ModelScopes:
    """The state that all scopes of a program share: its functions, and how much may still be computed."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.functions = program.functions
        self.depth = 0
        self._reading = charging(program.size)
        self._scopes = 0

    def enter(self, path: str, depth: int) -> None:
        """Count a scope. Raises UnreadableError if they do not end, as when functions call each other."""
        self._scopes += 1
        if self._scopes > SCOPES or depth > GRAPH_NESTING:
            raise UnreadableError(self.program.path, f"its graphs are too many or too deep at {path[:200]!r}")

    def charge(self, size: int) -> None:
        """Account for bytes to be computed. Raises BudgetError, and ValueError for fewer than none, which would give back what is spent."""
        if size < 0:
            raise ValueError(f"{size} bytes")
        self._reading.memory(size, self.program.path)
        self._reading.work(10 + size // 256, self.program.path)


class Scope:
    """One graph and the names that are visible in it.

    path   where it is: "main", "main/if_3.then_branch", "main/encoder()" for a function's call
    body   the graph or function itself
    outer  the scope around it, whose names are visible too; None for the main graph and functions
    opset  the version of the common set of operations
    """

    def __init__(self, model: ModelScopes, path: str, body: Body, outer: Scope | None, opsets: Mapping[str, int], depth: int = 0) -> None:
        model.enter(path, depth)
        self.path = path
        self.body = body
        self.outer = outer
        self.opset = opsets.get("", 1)
        self._opsets = opsets
        self._model = model
        self._depth = depth
        self._constants: dict[str, Array | None] = {}
        self._folded: dict[Operation, Sequence[Array | None] | None] = {}
        self._open: set[str] = set()
        self._arguments: dict[str, tuple[Scope, str]] = {}
        self._attributes: Mapping[str, Any] = {}
        self._calls: dict[Operation, Scope] = {}
        self._inputs = set(body.inputs)
        self._producers: dict[str, tuple[Operation, int]] = {}
        for node in body.nodes:
            for index, name in enumerate(node.outputs):
                if name:
                    self._producers.setdefault(name, (node, index))

    @property
    def nodes(self) -> Sequence[Operation]:
        """The operations in the order of the file."""
        return self.body.nodes

    @property
    def program(self) -> Program:
        """The program that it is of."""
        return self._model.program

    def charge(self, size: int) -> None:
        """Account for bytes of constants that are about to be computed. Raises BudgetError."""
        self._model.charge(size)

    def producer(self, name: str) -> tuple[Operation, int] | None:
        """Return the operation of this graph that makes a value, and which of its outputs the value is."""
        return self._producers.get(name)

    def attributes(self, node: Operation) -> Mapping[str, Any]:
        """Return an operation's attributes by name; in a function, references stand for what the caller gave."""
        if not any(isinstance(value, AttributeReference) for value in node.attributes.values()):
            return node.attributes
        outer = self._holder()._attributes
        result = Fields()
        for name, value in node.attributes.items():
            if not isinstance(value, AttributeReference):
                result[name] = value
            elif value.name in outer:
                # A reference is to a plain number, which for a Cast means an element type.
                typed = node.kind == "Cast" and name == "to"
                result[name] = self._model.program.dtype(outer[value.name]) if typed else outer[value.name]
        return result

    def constant(self, name: str) -> Array | None:
        """Return the value of that name if it can be known without running the model, else None.

        Raises UnreadableError if its numbers are missing from the file, or implausibly many.
        """
        if name in self._constants:
            return self._constants[name]
        # A value that is open already depends on itself: the file is damaged.
        if not name or name in self._open or self._model.depth >= FOLD_NESTING:
            return None
        self._open.add(name)
        self._model.depth += 1
        try:
            self._constants[name] = self._evaluate(name)
        finally:
            self._model.depth -= 1
            self._open.discard(name)
        return self._constants[name]

    def unknown(self, name: str) -> tuple[Scope, str, Operation | None]:
        """Return why a value is not constant: the first value on its way that is not, its scope, and the node that cannot be
        evaluated although all that it reads is constant; None for an input of the graph.
        """
        where, resolved = self.resolve(name)
        seen: set[tuple[Scope, str]] = set()
        while (where, resolved) not in seen:
            seen.add((where, resolved))
            node, index = where._producers.get(resolved, (None, 0))
            if node is None:
                return where, resolved, None
            if where.calls(node):
                where, resolved = (called := where.call(node)), called.body.outputs[index]
            else:
                lacking = next((operand for operand in node.inputs if operand and where.constant(operand) is None), None)
                if lacking is None:
                    break
                resolved = lacking
            where, resolved = where.resolve(resolved)
        return where, resolved, node

    def resolve(self, name: str) -> tuple[Scope, str]:
        """Return the scope that makes a value visible here, and the value's name there."""
        if name in self._arguments:
            caller, actual = self._arguments[name]
            # A function's input is the value that its caller passes, under the caller's name.
            return caller.resolve(actual)
        if name in self.body.stored or name in self._producers or name in self._inputs or self.outer is None:
            return self, name
        return self.outer.resolve(name)

    def bind(self, name: str, outer: Scope, value: str) -> None:
        """Let an input of this graph be a value of another one: a state of a loop that never changes."""
        self._arguments[name] = (outer, value)

    def fix(self, numbers: Mapping[str, Array]) -> None:
        """Let inputs of this graph be numbers."""
        self.body.stored = {**self.body.stored, **{name: StoredNumbers.of(array, name) for name, array in numbers.items()}}

    def forget(self) -> None:
        """Forget which values are constant: inputs have become so."""
        self._constants.clear()
        self._folded.clear()

    def stored(self, name: str) -> StoredNumbers | None:
        """Return the stored numbers of a value of this graph: its own, or a Constant's; None for others."""
        if name in self.body.stored:
            return self.body.stored[name]
        node, _ = self._producers.get(name, (None, 0))
        if node is None or node.kind != "Constant" or node.domain:
            return None
        value = self.attributes(node).get("value")
        return value if isinstance(value, StoredNumbers) else None

    def weights(self) -> Iterator[tuple[str, StoredNumbers]]:
        """Yield the candidates for weights, by name: the graph's stored numbers, and Constants of more than one floating-point number."""
        for name, tensor in self.body.stored.items():
            if tensor.dtype is not None:
                yield name, tensor
        for node in self.nodes:
            constant = self.stored(node.outputs[0]) if node.kind == "Constant" and node.outputs else None
            floats = constant is not None and constant.dtype is not None and constant.dtype in FLOATS.values()
            if constant is not None and floats and math.prod(constant.dims) > 1:
                yield node.outputs[0], constant

    def key(self, name: str) -> tuple[Body, str]:
        """Return a key that distinguishes a value of this graph from values of the same name in other graphs of the program."""
        return self.body, name

    def label(self, name: str) -> str:
        """Return the name of a value of this graph in the whole model."""
        return name if self.path == "main" else f"{self.path}/{name}"

    def calls(self, node: Operation) -> bool:
        """Return whether a node calls a function of the model's own."""
        return (node.domain, node.kind) in self._model.functions

    def moves(self, node: Operation, index: int) -> bool:
        """Return whether a node moves the numbers of one of its inputs without changing any."""
        return not node.domain and node.kind in MOVING and (index == 0 or node.kind == "Concat")

    def moved(self, name: str, numbers: Callable[[StoredNumbers], Array]) -> Array | None:
        """Return a constant value as it would be with other numbers in the stored tensors, if nodes only move numbers there.

        name     a value for which `constant` gives an array
        numbers  for each stored tensor, an array of its shape

        None where a number is computed on the way, or no tensor holds it.
        """
        cache: dict[tuple[Scope, str], Array | None] = {}

        def follow(scope: Scope, name: str) -> Array | None:
            scope, name = scope.resolve(name)
            key = scope, name
            if key not in cache:
                tensor = scope.stored(name)
                cache[key] = numbers(tensor) if tensor is not None else through(scope, name)
            return cache[key]

        def through(scope: Scope, name: str) -> Array | None:
            node, output = scope._producers.get(name, (None, 0))
            if node is None:
                return None
            if scope.calls(node):
                called = scope.call(node)
                return follow(called, called.body.outputs[output])
            if not scope.moves(node, 0):
                return None
            inputs = [
                follow(scope, operand) if scope.moves(node, index) else scope.constant(operand) for index, operand in enumerate(node.inputs)
            ]
            outputs = scope._outputs(node, inputs, lambda size: None)  # `constant` has paid for arrays of this size
            return outputs[output] if outputs is not None and output < len(outputs) else None

        return follow(self, name)

    def _evaluate(self, name: str) -> Array | None:
        if name in self.body.stored:
            return self.body.stored[name].numbers
        if name in self._producers:
            node, index = self._producers[name]
            if node not in self._folded:  # all outputs at once: each is asked for by its own name
                self._folded[node] = self._outputs(node)
            outputs = self._folded[node]
            return outputs[index] if outputs is not None and index < len(outputs) else None
        if name in self._arguments:
            caller, actual = self._arguments[name]
            return caller.constant(actual)
        if name in self._inputs or self.outer is None:
            return None
        return self.outer.constant(name)

    def _outputs(
        self, node: Operation, operands: list[Array | None] | None = None, charge: Callable[[int], None] | None = None
    ) -> Sequence[Array | None] | None:
        """Return the outputs of a node, if it works only on constants, or on inputs that are given."""
        if self.calls(node):
            called = self.call(node)
            return [called.constant(name) for name in called.body.outputs]
        if node.domain:
            return None
        values = self.values(node)
        if values is None:
            return None
        inputs = [self.constant(name) for name in node.inputs] if operands is None else operands
        if any(value is None and name for name, value in zip(node.inputs, inputs, strict=True)):
            return None
        self._model.charge(64 * (len(node.inputs) + len(node.outputs)))
        return fold(FoldedCall(node.kind, inputs, values, len(node.outputs), self.opset, charge or self._model.charge))

    def values(self, node: Operation) -> dict[str, Any] | None:
        """Return an operation's attributes as Python values and arrays; None if one is of a kind that no constant needs."""
        attributes = self.attributes(node)
        if node.odd or node.bodies or len(attributes) != len(node.attributes):
            return None
        values = Fields()
        for name, value in attributes.items():
            values[name] = value.numbers if isinstance(value, StoredNumbers) else value
            # Lists of texts are no part of any constant.
            if values[name] is None or (isinstance(value, list) and value and isinstance(value[0], str)):
                return None
        return values

    def call(self, node: Operation) -> Scope:
        """Return the body of the function that an operation calls, with the operation's inputs and attributes in place."""
        if node not in self._calls:
            function = self._model.functions[node.domain, node.kind]
            label = node.name.strip("/") or node.kind
            called = Scope(self._model, f"{self.path}/{label}()", function, None, function.opsets, self._depth + 1)
            called._arguments = {formal: (self, actual) for formal, actual in zip(function.inputs, node.inputs, strict=False)}
            called._attributes = {**function.defaults, **self.attributes(node)}
            self._calls[node] = called
        return self._calls[node]

    def inner(self, node: Operation, index: int) -> Iterator[Scope]:
        """Yield the graphs inside an operation: bodies and branches, or the function that it calls."""
        label = node.name.strip("/") or f"{node.kind}_{index}"
        for name, body in node.bodies:
            yield Scope(self._model, f"{self.path}/{label}.{name}", body, self, self._opsets, self._depth + 1)
        if self.calls(node):
            yield self.call(node)

    def _holder(self) -> Scope:
        """Return the scope whose attributes a reference means: the function around all nested graphs."""
        scope = self
        while scope.outer is not None:
            scope = scope.outer
        return scope


def label_of(scope: Scope, node: Operation) -> str:
    """Return the name of a node in words, with the graph that it is in."""
    name = node.name or next((output for output in node.outputs if output), node.kind)
    return str(name) if scope.path == "main" else f"{scope.path}/{name}"
