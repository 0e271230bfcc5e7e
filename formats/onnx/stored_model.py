"""An ONNX model as a transplant sees it: its layers, their arrays, and where these are stored."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from rnnconvert.core.arrays import Array
from rnnconvert.core.cached import cached_property
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.formats.onnx import quantised
from rnnconvert.formats.onnx.node import NAME, NodePlace, ReadModel
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.places import ConstantPlace, Readers, Scattered, place, scatter, sources
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.language import registry
from rnnconvert.language.packing import pack
from rnnconvert.language.surroundings import equal
from rnnconvert.models.model import Group, Model, Unit
from rnnconvert.scaffolding.programs.units import ProgramModel

Changed = list[tuple[onnx.TensorProto, Array]]
"""Stored tensors, and their new numbers."""


@dataclass(eq=False)
class OnnxModel(ProgramModel):
    """A model on its way, and where its arrays are stored."""

    _places: dict[str, ConstantPlace | None] = field(default_factory=dict)
    _stuck: dict[str, str] = field(default_factory=dict)

    @property
    def read(self) -> ReadModel:
        """The model as its adapter read it."""
        return self.checkpoint.read_as(ReadModel)

    def model(self, title: str) -> Model:
        """Return the layers, which can be filled."""
        return super().model(title).replace(hinders=self.hinders)

    def is_made_up(self, value: str) -> bool:
        """Return whether an exporter made up the name of a value."""
        return made_up(value)

    def layer_path(self, node: Operation, tensors: Sequence[str]) -> str:
        """Return the module that a layer was made from; "" where nothing shows it."""
        return module_path(node, tensors)

    def array_label(self, scope: Scope, value: str) -> str:
        """Return the name of a value, with the graph that it is in."""
        return scope.label(value)

    @cached_property
    def _paths(self) -> Mapping[str, str]:
        """The modules that recurrent nodes were made from; for several layers of one module, with their numbers."""
        paths = {
            name: module_path(home.node, [tensor.name for tensor in sources(home.scope, home.values["W"])])
            for name, home in self.read.homes.items()
        }
        of_path: dict[str, list[str]] = {}
        for name, path in paths.items():
            if path:
                of_path.setdefault(path, []).append(name)
        return {
            name: path if len(names) == 1 else f"{path}[{number}]" for path, names in of_path.items() for number, name in enumerate(names)
        }

    def layer_of_operation(self, name: str) -> Unit:
        """Return the layer that a recurrent node is, with its arrays."""
        stack, home = self.checkpoint.layers[name], self.read.homes[name]
        places = {"W": 1, "R": 2, "B": 3, "P": 7}
        names = {
            local: self.add(home.scope, value, [(home.node, places[local])]) for local, value in home.values.items() if local in places
        }
        for local, number in (("initial_h", 5), ("initial_c", 6)):
            if local in home.values and (state := self._add_state(home, home.values[local], number, stack.num_directions)):
                names[local] = state
        if stack.unconvertible or not set(home.values) <= set(names):
            self._stuck[names["W"]] = f"the layer {name!r} begins from a state that nodes of the model make"
        if quantised.is_one(home.node):
            self._stuck |= dict.fromkeys(names.values(), f"the layer {name!r} is stored as integers with scales")
        group = Group(home.layout, tuple(range(stack.num_directions)), names)
        return Unit(name, stack=stack, groups=(group,), title=stack.describe(), called=self._paths.get(name, ""))

    def layer_computed(self, name: str) -> Unit:
        """Return a layer that other operators compute: its arrays are those that the node would have."""
        unit = super().layer_computed(name)
        stack = self.checkpoint.layers[name]
        layout = registry.layout(NAME, stack.cell.kind, stack.cell.reset_after)
        states = [key for key in stack.first.arrays if key[0].startswith("initial")]
        bare = stack.first.with_arrays(dict.fromkeys(states))
        packed = pack(layout, Recurrent(name, (Layer((bare,)),)))
        names = {local: f"{name}/{local}" for local in packed}
        self.arrays.update({names[local]: np.asarray(array) for local, array in packed.items()})
        return unit.replace(groups=(Group(layout, (0,), names),))

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
        name = self.add(home.scope, value, inputs)
        self.arrays[name] = array.reshape(-1, array.shape[2])  # without the batch's axis, of length 1
        return name

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


# The names that exporters give in ONNX models, and what they show about the model that was exported.

_SCOPES = "pkg.torch.onnx.name_scopes"


def made_up(name: str) -> bool:
    """Return whether an exporter made up the name of a value, which then is not a parameter of the exported model."""
    return bool(re.fullmatch(r".*onnx::\w+_\d+|(.*/)?val_\d+|.*_output_\d+|(.*/)?Constant(_\d+)?|(.*/)?\d+|const_.*", name))


def module_path(node: Operation, values: Sequence[str]) -> str:
    """Return the module that a layer was made from, according to its exporter; "" where nothing shows it.

    values  names of its arrays, the weight first

    PyTorch leaves its parameters' names, or a node's path: "/blocks/blocks.0/MatMul" in the older exporter, and in the
    newer one the node's metadata. tf2onnx has TensorFlow's names, "sequential_1/dense_1/MatMul".
    """
    for value in values:
        if re.fullmatch(r"\w+(\.\w+)+", value):
            return value.rpartition(".")[0]
    scopes = next((entry.value for entry in node.source.metadata_props if entry.key == _SCOPES), "")
    if scopes:
        return _innermost(scopes)
    parts = node.name.split("/")
    if len(parts) < 2:
        return ""
    if not parts[0]:
        inner = [part for part in parts[1:-1] if part]
        after = [*inner[1:], ""]
        scoped = [path for path, following in zip(inner, after, strict=False) if not following.startswith(f"{path}.")]
        return ".".join(scoped)
    return next((part for part in reversed(parts[:-1]) if part not in ("Tensordot", "add", "batchnorm")), "")


def _innermost(scopes: str) -> str:
    try:
        names = ast.literal_eval(scopes)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    return str(names[-2]) if isinstance(names, list) and len(names) > 1 else ""
