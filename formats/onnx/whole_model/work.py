"""An ONNX model on its way to a transplant's view of it: its layers, their arrays, and where these are stored."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.files.adapter import unique
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.onnx import quantised
from rnnconvert.formats.onnx.node import NodePlace, ReadModel
from rnnconvert.formats.onnx.proto.places import ConstantPlace, Readers, Scattered, place, scatter, sources
from rnnconvert.formats.onnx.whole_model.flow import flattened, in_line
from rnnconvert.formats.onnx.whole_model.layers import layers
from rnnconvert.formats.onnx.whole_model.names import made_up, module_path
from rnnconvert.formats.onnx.whole_model.nodes import GraphLayer
from rnnconvert.graphs.program.operations import Operation, bodies
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.language import registry
from rnnconvert.language.packing import pack
from rnnconvert.language.surroundings import equal
from rnnconvert.models.model import Group, Model, Unit
from rnnconvert.models.units import Owner, loose_units, plain_units

Changed = list[tuple[onnx.TensorProto, Array]]
"""Stored tensors, and their new numbers."""


@dataclass(eq=False)
class OnnxModel:
    """A model on its way, and where its arrays are stored.

    checkpoint  what the adapter read
    arrays      every array by its name in the model: its tensor's, where it is stored as one
    values      the graph's value that each of them is
    inputs      the nodes' inputs that read each array of a layer
    plain_layers  the layers without recurrence, by name; those that are called again under names of their own
    """

    checkpoint: Checkpoint
    arrays: dict[str, Array] = field(default_factory=dict)
    values: dict[str, tuple[Scope, str]] = field(default_factory=dict)
    inputs: dict[str, list[tuple[Operation, int]]] = field(default_factory=dict)
    plain_layers: dict[str, GraphLayer] = field(default_factory=dict)
    _places: dict[str, ConstantPlace | None] = field(default_factory=dict)
    _stuck: dict[str, str] = field(default_factory=dict)
    _same: dict[object, tuple[Scope, str]] = field(default_factory=dict)

    @property
    def read(self) -> ReadModel:
        """The model as its adapter read it."""
        return self.checkpoint.read_as(ReadModel)

    def model(self, title: str) -> Model:
        """Return the layers in the order of the nodes, and the arrays of no layer."""
        homes = self.read.homes
        units: list[Unit] = []
        steps: list[tuple[Scope, Sequence[Operation], str]] = []
        paths = self._paths(homes)
        seen: dict[object, str] = {}
        used: set[str] = set()
        twice = False
        inside = {node for computed in self.read.computed.values() for node in computed.nodes}
        within = set(bodies(inside))
        for scope in self.read.scopes:
            if scope.body in within:
                continue
            recurrent = {home.node: name for name, home in homes.items() if home.scope is scope}
            plain = {layer.nodes[0]: layer for layer in layers(scope) if layer.nodes[0] not in inside}
            last = {computed.nodes[-1]: name for name, computed in self.read.computed.items()} if scope is self.read.scopes[0] else {}
            for node in scope.nodes:
                unit: Unit | None = None
                step: tuple[Scope, Sequence[Operation], str]
                if node in last:
                    unit = self._computed(last[node])
                    step = (scope, self.read.computed[last[node]].nodes, self.read.computed[last[node]].reads[0])
                elif node in recurrent:
                    name = recurrent[node]
                    unit = self._recurrent(name, homes[name], paths.get(name, ""))
                    step = (scope, [node], node.inputs[0])
                elif node in plain:
                    unit = self._plain(plain[node])
                    step = (scope, plain[node].nodes, plain[node].data)
                if unit is None:
                    continue
                first = seen.get(_what(unit))
                unit = unit.replace(name=unique(unit.name, used))
                used.add(unit.name)
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
        aside = self._others(homes)
        units += loose_units(self.arrays, [*aside, *(name for unit in units for name in unit.arrays)])
        return Model(
            "onnx",
            title,
            tuple(units),
            self.arrays,
            flow,
            False,
            aside,
            hinders=self.hinders,
            notes=self.checkpoint.warnings,
            questions=self.checkpoint.questions,
        )

    def _paths(self, homes: Mapping[str, NodePlace]) -> dict[str, str]:
        """Return the modules that recurrent nodes were made from; for several layers of one module, with their numbers."""
        paths = {
            name: module_path(home.node, [tensor.name for tensor in sources(home.scope, home.values["W"])]) for name, home in homes.items()
        }
        of_path: dict[str, list[str]] = {}
        for name, path in paths.items():
            if path:
                of_path.setdefault(path, []).append(name)
        return {
            name: path if len(names) == 1 else f"{path}[{number}]" for path, names in of_path.items() for number, name in enumerate(names)
        }

    def _recurrent(self, name: str, home: NodePlace, path: str) -> Unit:
        stack = self.checkpoint.layers[name]
        places = {"W": 1, "R": 2, "B": 3, "P": 7}
        names = {
            local: self._add(home.scope, value, [(home.node, places[local])]) for local, value in home.values.items() if local in places
        }
        for local, number in (("initial_h", 5), ("initial_c", 6)):
            if local in home.values and (state := self._add_state(home, home.values[local], number, stack.num_directions)):
                names[local] = state
        if stack.unconvertible or not set(home.values) <= set(names):
            self._stuck[names["W"]] = f"the layer {name!r} begins from a state that nodes of the model make"
        if quantised.is_one(home.node):
            self._stuck |= dict.fromkeys(names.values(), f"the layer {name!r} is stored as integers with scales")
        group = Group(home.layout, tuple(range(stack.num_directions)), names)
        return Unit(name, stack=stack, groups=(group,), title=stack.describe(), called=path)

    def _computed(self, name: str) -> Unit:
        """Return a layer that other operators compute: its arrays are those that the node would have."""
        stack = self.checkpoint.layers[name]
        layout = registry.layout("onnx", stack.cell.kind, stack.cell.reset_after)
        states = [key for key in stack.first.arrays if key[0].startswith("initial")]
        bare = stack.first.with_arrays(dict.fromkeys(states))
        packed = pack(layout, Recurrent(name, (Layer((bare,)),)))
        names = {local: f"{name}/{local}" for local in packed}
        self.arrays.update({names[local]: np.asarray(array) for local, array in packed.items()})
        group = Group(layout, (0,), names)
        return Unit(name, stack=stack, groups=(group,), title=stack.describe())

    def _add_state(self, home: NodePlace, value: str, number: int, directions: int) -> str:
        """Note a learned state, which nodes may spread over the batch; "" for one that is not stored as one array."""
        inputs = [(home.node, number)]
        shapes = (directions, 1), (1, directions)
        while (array := home.scope.constant(value)) is None or array.shape[:-1] not in shapes:
            producer = home.scope.producer(value)
            if producer is None or producer[0].kind not in ("Expand", "Gather"):
                return ""
            inputs.append((producer[0], 0))
            value = producer[0].inputs[0]
        name = self._add(home.scope, value, inputs)
        self.arrays[name] = array.reshape(-1, array.shape[2])  # without the batch's axis, of length 1
        return name

    def _plain(self, layer: GraphLayer) -> Unit | None:
        node = layer.nodes[0]
        tensors = [tensor.name for value in layer.values.values() for tensor in sources(layer.scope, value)]
        path = module_path(node, tensors) or node.name or node.outputs[0]
        shapes: dict[str, Array] = {}
        for local, value in layer.values.items():
            array = layer.scope.constant(value)
            assert array is not None
            shapes[local] = array
        label = f"{layer.operator} {node.name}".strip()
        owner = Owner(path, layer.operator, {local: local for local in shapes}, layer.facts.get, label)
        units = plain_units("onnx", owner, shapes)
        if not units:
            return None
        names = {local: self._add(layer.scope, value, layer.inputs) for local, value in layer.values.items()}
        unit = units[0].replace(names=names, stated=True)
        return unit.replace(reads=flattened(layer.scope, layer.data))

    def _add(self, scope: Scope, value: str, inputs: Iterable[tuple[Operation, int]]) -> str:
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
        label = where.label(resolved)
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

    def _others(self, homes: Mapping[str, NodePlace]) -> dict[str, str]:
        """Add the tensors of no layer, and say which of them are not weights."""
        used = {tensor for where, value in self.values.values() for tensor in sources(where, value)}
        main = self.read.scopes[0]
        nodes = [node for computed in self.read.computed.values() for node in computed.nodes]
        inside = {value for node in nodes for value in node.reads}
        within = set(bodies(nodes))
        used |= {tensor for value in inside if main.constant(value) is not None for tensor in sources(main, value)}
        states = {tensor for home in homes.values() for value in home.node.inputs[4:] for tensor in sources(home.scope, value) if value}
        aside = {}
        for scope in self.read.scopes:
            for value, tensor in scope.weights() if scope.body not in within else ():
                if tensor in used:
                    continue
                name = scope.label(value)
                if (where := self.values.get(name)) is not None and where[0].key(where[1]) != scope.key(value):
                    name = unique(name, self.values)  # graphs may bear one name
                array = tensor.read()
                if array.dtype.kind in "iub":
                    aside[name] = "integers, not weights"
                elif tensor in states and not array.any():
                    aside[name] = "the zeros that a recurrent layer begins with"
                elif array.size and (array == array.flat[0]).all() and made_up(value):
                    aside[name] = "a constant of the computation"
                self.arrays.setdefault(name, array)
                self.values.setdefault(name, (scope, value))
        return aside

    def _place(self, name: str) -> ConstantPlace | None:
        if name not in self._places:
            self._places[name] = place(*self.values[name]) if name in self.values else None
        return self._places[name]

    def hinders(self, new: Mapping[str, Array]) -> list[str]:
        """Return why some arrays cannot be written: they are computed, other nodes read them, or layers share them."""
        readers = Readers(self.read.scopes)
        uses = [use for inputs in self.inputs.values() for use in inputs]
        problems = []
        for name, array in new.items():
            where = self._place(name)
            if name not in self.values:
                why = (
                    f"{name!r} cannot be written: other operators compute its layer. Make one node of it first: rnnconvert fuse "
                    "MODEL.onnx -o FAST.onnx"
                )
            elif where is None:
                why = f"{name!r} cannot be written: nodes of the model compute it from others. Export the model with its constants folded"
            elif name in self._stuck:
                why = f"{name!r} cannot be written alone: {self._stuck[name]}"
            else:
                others = [other for tensor in where.tensors if (other := readers.other(tensor, uses))]
                why = f"{name!r} cannot be written alone: {others[0]}" if others and name in self.inputs else ""
            if why and not equal(array, self.arrays[name]):
                problems.append(why)
        scattered = self._scattered(new)
        return problems + scattered.problems + self._dragged(new, scattered)

    def _dragged(self, new: Mapping[str, Array], scattered: Scattered) -> list[str]:
        """Return arrays of layers that should stay unchanged but would change with the stored numbers of others."""
        changed = dict(scattered.tensors)
        problems = []
        for name in self.inputs:
            where = self._place(name)
            if name in new or where is None:
                continue
            shared = [tensor for tensor in where.tensors if tensor in changed]
            if not shared:
                continue
            ends = [(changed[tensor] if tensor in changed else tensor.read()).reshape(-1) for tensor in where.tensors]
            numbers = np.concatenate(ends)
            after = numbers if where.index is None else numbers[where.index]
            if not equal(after.reshape(self.arrays[name].shape), self.arrays[name]):
                others = [other for other in new if (position := self._place(other)) and set(position.tensors) & set(shared)]
                problems.append(
                    f"{name!r} would change with {', '.join(map(repr, others))}, since the model makes both from the stored "
                    f"tensor {shared[0].name!r}; fill both from layers that agree, or give each a tensor of its own"
                )
        return problems

    def _scattered(self, new: Mapping[str, Array]) -> Scattered:
        places = {name: where for name in new if (where := self._place(name)) is not None}
        return scatter({name: new[name] for name in places}, places)

    def changed(self, new: Mapping[str, Array]) -> Changed:
        """Return the stored tensors that get other numbers, for arrays that nothing hinders."""
        return [(tensor.source, numbers) for tensor, numbers in self._scattered(new).tensors]


def _what(unit: Unit) -> object:
    """Return what two nodes share that are one layer: the same arrays, used alike."""
    layouts = [group.layout.name for group in unit.groups]
    return unit.kinds, unit.arrays, tuple(layouts), tuple((word, str(value)) for word, value in unit.facts.items())
