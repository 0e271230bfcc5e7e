"""The modules of a program as models in models: each call of a user's module is a node, and the module is written once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.pytorch.described.graph import Caller, Graph, Size, Step, Tensor
from rnnconvert.scaffolding.description import Description, Scope, Shape, Value, prune

Rule = Callable[["Reader", Step], Any]
"""Adds what an operator computes, and returns what it gives: a Value, another known thing, or a list of these."""
_SYSTEM = "a description"
_CONTAINERS = ("torch.nn.modules.container.",)


@dataclass(frozen=True)
class Zeros:
    """Zeros, such as the states before the first step."""


@dataclass(frozen=True)
class Stacked:
    """Tensors side by side along a new first axis, which are mostly read one by one.

    name   what the program calls them together
    parts  the tensors
    """

    name: str
    parts: tuple[Value, ...]


@dataclass(frozen=True)
class Held:
    """A parameter, a buffer or a constant of the program, by its name in the module."""

    name: str
    tensor: Tensor

    @property
    def owner(self) -> str:
        """The module's path, with slashes."""
        return self.name.rpartition(".")[0].replace(".", "/")


@dataclass
class _Module:
    """A module that was described.

    read   the tensors that it reads, by the names of the call that was described
    inputs  what its steps give, by the number of the step and of the output
    """

    scope: Scope
    steps: list[Step]
    read: list[str]
    inputs: dict[tuple[int, int], Any]
    sizes: dict[int, tuple[Size, ...]]


@dataclass(eq=False)
class Reader:
    """A program on its way into a description.

    graph  the program
    scope  the model whose nodes are being added
    names  what a file may call each layer, by its path
    sizes  the axes of every Value as the program states them, by its identity
    """

    graph: Graph
    scope: Scope
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    cache: dict[str, Any] = field(default_factory=dict)
    sizes: dict[int, tuple[Size, ...]] = field(default_factory=dict)
    _modules: dict[str, _Module] = field(default_factory=dict)

    # What rules use

    def value(self, tensor: Tensor, name: str = "") -> Value:
        """Return a new Value of a tensor's axes and type."""
        value = Value(name or tensor.name, shape(tensor.shape), tensor.dtype)
        self.sizes[id(value)] = tensor.shape
        return value

    def __call__(self, tensor: Any) -> Any:
        """Return what stands for an argument. Raises RefusedError for a tensor of which nothing is known."""
        if isinstance(tensor, (list, tuple)):
            return [self(item) for item in tensor]
        if not isinstance(tensor, Tensor):
            return tensor
        if tensor.name in self.graph.held:
            return Held(self.graph.held[tensor.name], tensor)
        return self.cache[tensor.name]

    def plain(self, tensor: Any, step: Step) -> Value:
        """Return an argument as a Value: stacked ones are laid side by side, a parameter is read.

        Raises RefusedError for zeros that the program makes, and for anything that is not a tensor.
        """
        value = self(tensor)
        if isinstance(value, Value):
            return value
        if isinstance(value, Stacked):
            described = self.value(tensor)
            self.scope.add("stack", "", value.parts, [described], axis=0)
            self.cache[tensor.name] = described
            return described
        if isinstance(value, Held):
            described = self.value(value.tensor, value.name.rpartition(".")[2])
            layer = self.layer(value.name.replace(".", "/"), value.name)
            self.scope.add("parameter", layer, [], [described], sizes=tuple(value.tensor.shape))
            return described
        raise self.refused(step, f"{step.operator} of {type(value).__name__.lower()}", "only tensors are known here")

    def layer(self, path: str, *names: str) -> str:
        """Return a module's path within the scope, and note what a file may call it."""
        self.names[path] = tuple(names) or (path.replace("/", "."),)
        return path.removeprefix(f"{self.scope.path}/") if self.scope.path else path

    def add(self, kind: str, layer: str, inputs: Sequence[Value], tensor: Tensor, named: Any = None, **settings: Any) -> Value:
        """Add a node of one output, and return that."""
        output = self.value(tensor, layer.replace("/", "_"))
        self.scope.add(kind, layer, inputs, [output], named, **settings)
        return output

    def turned(self, value: Value, order: Sequence[int], tensor: Tensor) -> Value:
        """Add a transposition, as one with the transposition that the tensor comes from; none where both cancel out."""
        before = next((node for node in self.scope.nodes if node.kind == "transpose" and node.y is value), None)
        if before is not None:
            order, value = tuple(before["order"][axis] for axis in order), before.x
        if tuple(order) == tuple(range(len(order))):
            return value
        return self.add("transpose", "", [value], tensor, order=tuple(order))

    def refused(self, step: Step, feature: str, reason: str) -> RefusedError:
        """Return the refusal of an operator, with the module that called it."""
        where = step.callers[-1].path if step.callers else ""
        return RefusedError(feature, _SYSTEM, reason, "", where)

    # The walk

    def run(self, steps: Sequence[Step], depth: int, rules: Mapping[str, Rule]) -> None:
        """Add the nodes of some steps; each run of steps in one call of a user's module becomes one node.

        depth  how many of a step's callers the scope stands for
        """
        left = list(steps)
        for key, group in itertools.groupby(left, lambda step: _caller(step, depth)):
            inside = list(group)
            if key is None or sum(_caller(step, depth) == key for step in left) != len(inside):
                for step in inside:
                    self._step(step, rules)
            else:
                self._call(key, inside, depth, rules)

    def _step(self, step: Step, rules: Mapping[str, Rule]) -> None:
        rule = rules.get(step.operator) or rules.get(step.operator.rstrip("_"))
        if rule is None:
            raise self.refused(step, f"the operator {step.operator}", "it is unknown")
        result = rule(self, step)
        results = result if isinstance(result, list) else [result]
        for tensor, value in zip(step.outputs, results, strict=False):
            if tensor is not None:
                self.cache[tensor.name] = value

    def _call(self, caller: Caller, steps: list[Step], depth: int, rules: Mapping[str, Rule]) -> None:
        """Add a call of a module, which gives everything that its steps do: what nothing reads is dropped in the end."""
        read = _read(steps, self.graph.held)
        module = self._modules.get(caller.path)
        if module is None:
            module = self._modules[caller.path] = self._described(caller, steps, depth, rules, read)
        elif _form(module.steps, module.read) != _form(steps, read):
            raise RefusedError("a module that is called in two ways", _SYSTEM, "it is written once, for one kind of input", "", caller.path)
        outs: list[Value] = []
        for (number, place), inside in module.inputs.items():
            tensor = steps[number].outputs[place]
            parts = [self.value(Tensor(value.name, module.sizes.get(id(value), ()), value.dtype)) for value in _values(inside)]
            outs += parts
            if tensor is not None:
                self.sizes.update(dict.fromkeys(map(id, parts), tensor.shape) if isinstance(inside, Value) else {})
                self.cache[tensor.name] = Stacked(inside.name, tuple(parts)) if isinstance(inside, Stacked) else parts[0]
        ins = [value for name in read for value in _values(self.cache[name])]
        layer = caller.path.replace(".", "/")
        self.scope.add("model", layer.removeprefix(f"{self.scope.path}/") if self.scope.path else layer, ins, outs, scope=module.scope)

    def _described(self, caller: Caller, steps: list[Step], depth: int, rules: Mapping[str, Rule], read: list[str]) -> _Module:
        outer, outer_cache = self.scope, self.cache
        self.scope, self.cache = Scope(caller.kind.rpartition(".")[2], caller.path.replace(".", "/")), {}
        for name in read:
            self.cache[name] = self._within(outer_cache[name])
        self.run(steps, depth + 1, rules)
        bound = {
            (number, place): self.cache[tensor.name]
            for number, step in enumerate(steps)
            for place, tensor in enumerate(step.outputs)
            if tensor is not None and _values(self.cache[tensor.name])
        }
        self.scope.outputs = tuple(value for inside in bound.values() for value in _values(inside))
        module = _Module(self.scope, steps, read, bound, self.sizes)
        self.scope, self.cache = outer, outer_cache
        return module

    def _within(self, value: Any) -> Any:
        """Return what stands for an outer value in a module that reads it."""
        if isinstance(value, Stacked):
            return Stacked(value.name, tuple(self._within(part) for part in value.parts))
        if not isinstance(value, Value):
            return value
        start = Value(value.name, value.shape, value.dtype)
        self.sizes[id(start)] = self.sizes.get(id(value), ())
        self.scope.inputs += (start,)
        return start


def shape(sizes: Sequence[Size]) -> Shape:
    """Return the axes of a tensor, None for those that are open."""
    return tuple(size if isinstance(size, int) else None for size in sizes)


def _values(value: Any) -> list[Value]:
    if isinstance(value, Value):
        return [value]
    return list(value.parts) if isinstance(value, Stacked) else []


def _caller(step: Step, depth: int) -> Caller | None:
    """Return the user's module at a depth in whose call a step ran: torch.nn's containers stand for their contents."""
    callers = [caller for caller in step.callers if caller.path and not caller.is_plain]
    return callers[depth] if depth < len(callers) else None


def _read(steps: Sequence[Step], held: Mapping[str, str]) -> list[str]:
    """Return the names of the tensors that some steps read and do not give."""
    produced = {tensor.name for step in steps for tensor in step.outputs if tensor}
    read = dict.fromkeys(tensor.name for step in steps for tensor in step.tensors())
    return [name for name in read if name not in produced and name not in held]


def _form(steps: Sequence[Step], read: Sequence[str]) -> Any:
    """Return what is the same for two calls of a module that compute the same: tensors by where they come from, open sizes alike."""
    origins: dict[str, Any] = {name: number for number, name in enumerate(read)}
    for number, step in enumerate(steps):
        origins.update({tensor.name: (number, place) for place, tensor in enumerate(step.outputs) if tensor})

    def plain(value: Any) -> Any:
        if isinstance(value, Tensor):
            return origins.get(value.name, value.name), shape(value.shape), value.dtype
        if isinstance(value, (list, tuple)):
            return tuple(map(plain, value))
        return "size" if isinstance(value, str) else value

    return [(step.operator, {key: plain(value) for key, value in step.arguments.items()}) for step in steps]


def describe(graph: Graph) -> Description:
    """Return a program as a model. Raises RefusedError for an operator that is not known, with the module that called it."""
    from rnnconvert.formats.pytorch.described.operators import RULES

    reader = Reader(graph, Scope(graph.name))
    for tensor in graph.inputs:
        reader.cache[tensor.name] = value = reader.value(tensor)
        reader.scope.inputs += (value,)
    reader.run(graph.steps, 0, RULES)
    last = Step("output", {"self": list(graph.outputs)}, ())
    reader.scope.outputs = tuple(reader.plain(tensor, last) for tensor in graph.outputs)
    prune(reader.scope)
    return Description(reader.scope, (), reader.names)
