"""The layers of a program as a model has them: which operations are one layer, what its arrays are called, and what is left."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Layer
from rnnconvert.files.adapter import unique
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.graphs.program.kinds import EACH, SAME
from rnnconvert.graphs.program.operations import COMMON, Declared, Operation, bodies
from rnnconvert.graphs.program.places import place, sources
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.models.model import Flat, Model, Unit
from rnnconvert.models.units import Owner, loose_units, plain_units, single_layers
from rnnconvert.recognition.flow import ReadProgram
from rnnconvert.recognition.graph_layers import GraphLayer, read_by
from rnnconvert.recognition.stacked import ReadStacks
from rnnconvert.recognition.surroundings import layers


@dataclass(eq=False)
class ProgramModel:
    """A file's program on its way to a model. A room whose exporters show more of the layers overrides what begins with "layer".

    checkpoint  what the adapter read
    arrays      every array by its name in the model: its tensor's, where it is stored as one
    values      the graph's value that each of them is
    inputs      the operations' inputs that read each array of a layer
    plain_layers  the layers without recurrence, by name; those that are called again under names of their own
    """

    checkpoint: Checkpoint
    arrays: dict[str, Array] = field(default_factory=dict)
    values: dict[str, tuple[Scope, str]] = field(default_factory=dict)
    inputs: dict[str, list[tuple[Operation, int]]] = field(default_factory=dict)
    plain_layers: dict[str, GraphLayer] = field(default_factory=dict)
    _same: dict[object, tuple[Scope, str]] = field(default_factory=dict)

    @property
    def read(self) -> ReadProgram:
        """The program as its adapter read it."""
        return self.checkpoint.read_as(ReadProgram)

    @property
    def gives(self) -> Sequence[str]:
        """The values that the model gives."""
        return self.read.scopes[0].body.outputs

    @property
    def reads(self) -> Sequence[str]:
        """The values that it reads."""
        return self.read.scopes[0].body.inputs

    @property
    def declared(self) -> dict[str, Declared]:
        """The file's statements about the values of its main graph; a statement about an input takes precedence."""
        return {value.name: value for value in reversed(self.read.scopes[0].body.declared)}

    @property
    def notes(self) -> Sequence[str]:
        """The notes for a reader of the written file."""
        return ()

    def input_name(self, value: str) -> str:
        """Return the name of an input."""
        return self.read.inputs.get(value, value)

    # What exporters show of layers

    def layer_of_operation(self, name: str) -> Unit:
        """Return the layer that a recurrent operation is."""
        stack = self.checkpoint.layers[name]
        return Unit(name, stack=stack, title=stack.describe())

    def layer_computed(self, name: str) -> Unit:
        """Return a layer that other operations compute."""
        stack = self.read.computed[name].stack
        return Unit(name, stack=stack, title=stack.describe())

    def layer_path(self, node: Operation, tensors: Sequence[str]) -> str:
        """Return the module that a layer was made from; "" where nothing shows it.

        tensors  names of its arrays, the weight first
        """
        labels = [label for name in (node.name, *tensors) for label in name.split(";")]
        return max(labels, key=lambda label: label.count("/")).rpartition("/")[0]

    def array_label(self, scope: Scope, value: str) -> str:
        """Return the file's name for a constant value."""
        stored = scope.stored(value)
        return stored.name if stored is not None and stored.name else scope.label(value)

    def is_made_up(self, value: str) -> bool:
        """Return whether the name of a value is made up, and not a parameter's; in programs that rooms write, every name is."""
        return True

    def model(self, title: str) -> Model:
        """Return the layers in the order of the nodes, and the arrays of no layer."""
        calls = self.read.calls
        units: list[Unit] = []
        steps: list[tuple[Scope, Sequence[Operation], str]] = []
        seen: dict[object, str] = {}
        used, called = {*calls, *self.read.computed}, set[str]()
        twice = False
        inside = {node for computed in self.read.computed.values() for node in computed.nodes}
        within = set(bodies(inside))
        for scope in self.read.scopes:
            if scope.body in within:
                continue
            recurrent = {call.node: name for name, call in calls.items() if call.scope is scope}
            plain = {layer.nodes[0]: layer for layer in layers(scope, self.is_made_up) if layer.nodes[0] not in inside}
            last = {computed.nodes[-1]: name for name, computed in self.read.computed.items()} if scope is self.read.scopes[0] else {}
            for node in scope.nodes:
                unit: Unit | None = None
                step: tuple[Scope, Sequence[Operation], str]
                if node in last:
                    unit = self.layer_computed(last[node])
                    step = (scope, self.read.computed[last[node]].nodes, self.read.computed[last[node]].reads[0])
                elif node in recurrent:
                    name = recurrent[node]
                    unit = self.layer_of_operation(name)
                    step = (scope, [node], calls[name].call.sequence[0])
                elif node in plain:
                    unit = self._plain(plain[node])
                    step = (scope, plain[node].nodes, plain[node].data)
                if unit is None:
                    continue
                first = seen.get(_what(unit))
                # A plain layer gives way to a recurrent one of its name; a second call of a layer is named after the first.
                unit = unit.replace(name=unique(unit.name, used if node in plain else called))
                (used if node in plain else called).add(unit.name)
                if node in plain:
                    self.plain_layers[unit.name] = plain[node]
                if first is not None:
                    twice = True  # a layer that is called twice is one, with two names
                    units.append(unit.replace(alias=first))
                    continue
                seen[_what(unit)] = unit.name
                units.append(unit)
                steps.append(step)
        main = self.read.scopes[0]
        flow = not twice and all(scope is main for scope, _, _ in steps)
        flow = flow and in_line(main, [(nodes, data) for _, nodes, data in steps])
        aside = self._others()
        units += loose_units(self.arrays, [*aside, *(name for unit in units for name in unit.arrays)])
        return Model(
            self.checkpoint.format,
            title,
            tuple(units),
            self.arrays,
            flow,
            False,
            aside,
            notes=self.checkpoint.warnings,
            questions=self.checkpoint.questions,
        )

    def _plain(self, layer: GraphLayer) -> Unit | None:
        node = layer.nodes[0]
        tensors = [tensor.name for value in layer.values.values() for tensor in sources(layer.scope, value)]
        path = self.layer_path(node, tensors) or node.name or node.outputs[0]
        shapes: dict[str, Array] = {}
        for local, value in layer.values.items():
            array = layer.scope.constant(value)
            assert array is not None
            shapes[local] = array
        label = f"{layer.operator} {node.name}".strip()
        owner = Owner(path, layer.operator, {local: local for local in shapes}, layer.facts.get, label)
        units = plain_units(COMMON, owner, shapes)
        if not units:
            return None
        names = {local: self.add(layer.scope, value, layer.inputs) for local, value in layer.values.items()}
        unit = units[0].replace(names=names, stated=True)
        return unit.replace(reads=flattened(layer.scope, layer.data))

    def add(self, scope: Scope, value: str, inputs: Iterable[tuple[Operation, int]]) -> str:
        """Note an array of a layer; return the name that it has in the model."""
        where, resolved = scope.resolve(value)
        array = where.constant(resolved)
        assert array is not None
        inputs = list(inputs)
        stored = place(where, resolved)
        if stored is not None:
            # Two values that nodes make of the same stored numbers, in the same way, are one array.
            same = self._same.setdefault((*stored.key(), array.shape), (where, resolved))
            where, resolved = same
        label = self.array_label(where, resolved)
        names = [label, f"{label} (read by {inputs[0][0].name or inputs[0][0].kind})"]
        if where.stored(resolved) is None:
            full_names = [t.name for t in sources(where, resolved) if t.name and math.prod(t.dims) == array.size > 1]
            names = [*(full_names if len(full_names) == 1 else []), *names]
        more = (f"{label} ({number})" for number in itertools.count(2))  # calls of one function may bear one name
        free = (name for name in itertools.chain(names, more) if self.values.get(name, (where, resolved)) == (where, resolved))
        name = next(free)
        self.arrays.setdefault(name, array)
        self.values.setdefault(name, (where, resolved))
        self.inputs.setdefault(name, []).extend(inputs)
        return name

    def _others(self) -> dict[str, str]:
        """Add the tensors of no layer, and say which of them are not weights."""
        used = {tensor for where, value in self.values.values() for tensor in sources(where, value)}
        main = self.read.scopes[0]
        nodes = [node for computed in self.read.computed.values() for node in computed.nodes]
        inside = {value for node in nodes for value in node.reads}
        within = set(bodies(nodes))
        used |= {tensor for value in inside if _resolved(main, value) is not None for tensor in sources(main, value)}
        calls = self.read.calls.values()
        states = {tensor for call in calls for value in call.call.initial for tensor in sources(call.scope, value)}
        used |= {tensor for call in calls for value in call.weights for tensor in sources(call.scope, value)}
        products = [(scope, node) for scope in self.read.scopes for node in scope.nodes if node.kind == "MatMulInteger"]
        matrices = {scope.key(value) for scope, node in products for value in node.inputs[1:2]}
        aside = {}
        for scope in self.read.scopes:
            for value, tensor in scope.weights() if scope.body not in within else ():
                if tensor in used:
                    continue
                name = self.array_label(scope, value)
                if (where := self.values.get(name)) is not None and where[0].key(where[1]) != scope.key(value):
                    name = unique(name, self.values)  # graphs may bear one name
                array = tensor.read()
                if array.dtype.kind in "iub" and scope.key(value) not in matrices:
                    aside[name] = "integers, not weights"
                elif tensor in states and not array.any():
                    aside[name] = "the zeros that a recurrent layer begins with"
                elif array.size and (array == array.flat[0]).all() and self.is_made_up(value):
                    aside[name] = "a constant of the computation"
                self.arrays.setdefault(name, array)
                self.values.setdefault(name, (scope, value))
        return aside


class StackedModel(ProgramModel):
    """A program in which one operator may be a whole stack of layers."""

    @property
    def read(self) -> ReadStacks:
        """The program as its adapter read it."""
        return self.checkpoint.read_as(ReadStacks)

    def layer_of_operation(self, name: str) -> Unit:
        """Return one of the layers of an operator."""
        singles = (single for stack in self.checkpoint.layers.values() for single in single_layers(stack))
        stack = next(single for single in singles if single.name == self.read.singles[name].name)
        return Unit(stack.name, stack=stack, title=stack.describe())


def computing_in(layer: Layer, dtype: np.dtype[Any]) -> Layer:
    """Return a layer whose weights were stored in a narrower element type than it computes in."""
    if layer.directions[0].dtype == dtype:
        return layer
    arrays = [{key: np.asarray(array, dtype) for key, array in each.arrays.items()} for each in layer.directions]
    return replace(layer, directions=tuple(each.with_arrays(new) for each, new in zip(layer.directions, arrays, strict=True)))


def _resolved(scope: Scope, value: str) -> Array | None:
    where, resolved = scope.resolve(value)
    return where.constant(resolved)


def _what(unit: Unit) -> object:
    """Return a key that is equal for nodes of one layer: the same arrays, used alike. A layer whose arrays are not seen has its own key."""
    if not unit.arrays:
        return unit.name
    layouts = [group.layout.name for group in unit.groups]
    return unit.kinds, unit.arrays, tuple(layouts), tuple((word, str(value)) for word, value in unit.facts.items())


# How data flows through an ONNX graph: which layers follow one another, and how a convolution's output is flattened.

_POOLS_AND_NORMS = "MaxPool AveragePool LpPool GlobalAveragePool GlobalMaxPool BatchNormalization InstanceNormalization GroupNormalization"
_PASSED = (*SAME, "Cast", *EACH, *_POOLS_AND_NORMS.split())
"""Operators that leave the channels second."""


def flattened(scope: Scope, value: str) -> Flat | None:
    """Return how a value was flattened from a convolution's output; None if that is not seen."""
    node = _through(scope, value)
    if node is None or not _flattens(scope, node):
        return None
    node = _through(scope, node.inputs[0])
    order = "channels_first"
    if node is not None and node.kind == "Transpose":
        perm = scope.attributes(node).get("perm", [])
        if perm != [0, *range(2, len(perm)), 1]:
            return None
        order = "channels_last"
        # Between this and the convolution a pool or a normalisation has channels second, too.
        node = _through(scope, node.inputs[0])
    if node is None or node.kind not in ("Conv", "ConvTranspose"):
        return None
    weight = scope.constant(node.inputs[1])
    if weight is None:
        return None
    groups = scope.attributes(node).get("group", 1)
    return Flat(order, weight.shape[0] if node.kind == "Conv" else weight.shape[1] * groups)


def _through(scope: Scope, value: str) -> Operation | None:
    """Return the node that a value comes from, past nodes that leave the channels where they are."""
    producer = scope.producer(value)
    while producer is not None and producer[0].kind in _PASSED and producer[0].inputs:
        producer = scope.producer(producer[0].inputs[0])
    return producer[0] if producer is not None else None


def _flattens(scope: Scope, node: Operation) -> bool:
    """Return whether a node joins all axes but the first."""
    if node.kind == "Flatten":
        return bool(scope.attributes(node).get("axis", 1) == 1)
    if node.kind != "Reshape":
        return False
    shape = scope.constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if shape is not None:
        return shape.size == 2
    producer = scope.producer(node.inputs[1]) if len(node.inputs) > 1 else None
    return producer is not None and producer[0].kind == "Concat" and len(producer[0].inputs) == 2


def in_line(scope: Scope, steps: Sequence[tuple[Sequence[Operation], str]]) -> bool:
    """Return whether data goes through layers one after the other: each one's output reaches the next one's input.

    steps  for each layer its nodes, the last of which gives its output, and the value that it reads
    """
    last = {nodes[-1]: number for number, (nodes, _) in enumerate(steps)}
    above: dict[str, int] = {}
    for node in scope.nodes:
        mask = 0
        for name in read_by(node):
            mask |= above.get(name, 0)
        if node in last:
            mask |= 1 << last[node]
        above |= dict.fromkeys(node.outputs, mask)
    return all(above.get(data, 0) >> number & 1 for number, (_, data) in enumerate(steps[1:]))
