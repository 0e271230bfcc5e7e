"""A whole Keras model's weights, with the recurrent ones converted and the others carried over unchanged.

From a Keras 3 file every path is kept. From a legacy file the paths follow from the layers' classes
and order, by its configuration or, without one, by names and arrays that leave only one class.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job
from rnnconvert.formats.keras.cells import CellPlace, StatedLayers
from rnnconvert.formats.keras.config import KINDS, labels, snake_case
from rnnconvert.formats.keras.graph import CLASSES, pack_direction
from rnnconvert.formats.keras.metadata import KerasMetadata, stated_model
from rnnconvert.formats.keras.model.entries import MODELS, RECURRENT, Entry, children, entry
from rnnconvert.formats.keras.upgrade.tables import LAYERS

_PLAIN = {
    name: [(words.partition("|")[0].lstrip("-"), bool(key)) for words, _, key in (word.partition("?") for word in rule.weights.split())]
    for name, rule in LAYERS.items()
    if name == rule.new and rule.weights and name not in (*RECURRENT, *KINDS)
}
"""The weights of classes that have them in the same order in Keras 2 and Keras 3, and whether each may be missing."""
_NO_OPTIMIZER = "the optimizer's state is left out: read the weights before model.compile"
_UNAMBIGUOUS = ("Dense", "Embedding", "PReLU", "BatchNormalization")


def _class_now(layer: Entry) -> str:
    """Return the class of a layer in Keras 3, whose name is in its path."""
    if layer.class_name == "Model":
        return "Functional"
    return LAYERS[layer.class_name].new if layer.class_name in LAYERS else layer.short_class_name


@dataclass
class VariableTree:
    """Variables in a Keras 3 file.

    arrays      by path
    attributes  of groups, by path
    notes       what a user should know
    dropped     carried tensors that have no place in it
    """

    arrays: dict[str, Array | PiecewiseArray]
    attributes: dict[str, dict[str, Any]]
    notes: list[str] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)

    def name(self, path: str, name: str) -> None:
        """Note the name of a layer next to its variables."""
        if name:
            self.attributes[f"{path}/vars"] = {"name": name}

    def put(self, path: str, arrays: Iterable[Array | PiecewiseArray], name: str = "") -> None:
        """Store a layer's or cell's variables, numbered."""
        self.name(path, name)
        self.arrays.update({f"{path}/vars/{number}": array for number, array in enumerate(arrays)})


def carry(job: Job) -> VariableTree | None:
    """Return the whole model's weights, or None if the source is not a whole Keras model, or not all of it is converted."""
    read = job.source.read
    stacks = {part.stack.name: part.stack for part in job.parts}
    if not isinstance(read, StatedLayers) or not read.places or list(stacks) != list(job.source.layers):
        return None
    places = read.places
    if not set(stacks) <= set(places):  # a layer of our own, which stays none
        return None
    if not all(_same(stacks[name], job.source.layers[name]) for name in stacks):
        return None
    names = [array for place in places.values() for cell in place.cells.values() for array in cell.names]
    if all("/vars/" in f"/{name}" for name in names):
        return _carried(job, stacks, places)
    return _Legacy(job, stacks, places).tree() if _order(job) else None


def _same(stack: Recurrent, source: Recurrent) -> bool:
    """Return whether a stack's arrays are its source's, apart from their numbers."""
    if stack.readout or (stack.num_layers, stack.num_directions) != (source.num_layers, source.num_directions):
        return False
    pairs = zip(stack.directions(), source.directions(), strict=True)
    return all((a.input_size, a.hidden_size) == (b.input_size, b.hidden_size) for (_, _, a), (_, _, b) in pairs)


def _is_state_of_training(name: str) -> bool:
    return re.match(r"_?optimizer(_weights)?/|training/", name) is not None


def _carried(job: Job, stacks: Mapping[str, Recurrent], places: Mapping[str, CellPlace]) -> VariableTree | None:
    """Return a Keras 3 file's tree, with the recurrent arrays replaced in place."""
    tree = VariableTree({}, {})
    attributes = job.source.metadata_as(KerasMetadata).get("attributes", {})
    for path, values in attributes.items():
        if path.endswith("vars") and not _is_state_of_training(path):
            tree.attributes[path] = dict(values)
    for name, stack in stacks.items():
        for layer, number, direction in stack.directions():
            cell = places[name].cells[layer, number]
            packed = pack_direction(direction, job)
            if set(packed) != set(cell.arrays):
                return None
            where = dict(zip(cell.arrays, cell.names, strict=True))
            tree.arrays.update({where[local]: array for local, array in packed.items()})
    for name, array in job.carried.items():
        if _is_state_of_training(name):
            tree.dropped.add(name)
        else:
            tree.arrays[name] = array
    tree.notes.append("load_weights reads it into the source's model: every path is the source's")
    if tree.dropped:
        tree.notes.append(_NO_OPTIMIZER)
    return tree


def _weights_group(job: Job) -> str:
    attributes = job.source.metadata_as(KerasMetadata).get("attributes", {})
    return "model_weights/" if "layer_names" in attributes.get("model_weights", {}) else ""


def _order(job: Job) -> list[str]:
    """Return the layers' names in a legacy file, in the model's order."""
    attributes = job.source.metadata_as(KerasMetadata).get("attributes", {})
    names: list[str] = attributes.get(_weights_group(job).rstrip("/"), {}).get("layer_names", [])
    return names if isinstance(names, list) else []


class _Legacy:
    """A legacy file on its way into Keras 3's tree."""

    def __init__(self, job: Job, stacks: Mapping[str, Recurrent], places: Mapping[str, CellPlace]) -> None:
        self.job, self.stacks, self.places = job, stacks, places
        self.written = VariableTree({}, {})
        self.placed: set[str] = set()
        self.left: list[str] = []
        self.listed: list[str] = []
        self.root = _weights_group(job)

    def tree(self) -> VariableTree | None:
        """Return everything that has a known place; None if a recurrent layer has none."""
        described = list(self._layers())
        placed: list[Entry] = []
        unknown = [self._weights(layer.name) for layer in described if not layer.class_name]
        # A layer of unknown class may be any of these, and then the others of that class have other numbers.
        uncertain = {class_name for class_name in _PLAIN if any(self._fits(class_name, variables) for variables in unknown)}
        for layer in described:
            weights = self._weights(layer.name)
            class_name = _class_now(layer)
            if class_name == "InputLayer" or (not class_name and not weights):
                continue
            if not class_name or class_name in uncertain:
                self.left.append(layer.name)
                continue
            placed.append(layer)
        for layer, label in zip(placed, labels(map(_class_now, placed)), strict=True):
            if weights := self._weights(layer.name):
                self.listed.append(f"{layer.name} ({_class_now(layer)})")
                self._place(layer, f"layers/{label}", weights)
        recurrent = {name for place in self.places.values() for cell in place.cells.values() for name in cell.names}
        if not recurrent <= self.placed:
            return None
        self.written.dropped = set(self.job.carried) - self.placed
        self.written.notes.append(
            "load_weights reads it into a Keras 3 model whose layers with weights are, in this order: " + ", ".join(self.listed)
        )
        if self.left:
            self.written.notes.append(
                f"left out, as their place in a Keras 3 file is not certain: {', '.join(self.left)}; "
                "pass skip_mismatch=True to load_weights, and set these weights by hand"
            )
        if any(_is_state_of_training(name) for name in self.written.dropped):
            self.written.notes.append(_NO_OPTIMIZER)
        return self.written

    def _layers(self) -> list[Entry]:
        source = self.job.source
        config = stated_model(source.path, source.metadata_as(KerasMetadata))
        if isinstance(config, Mapping):
            return children(entry(config))
        return [Entry(name, self._inferred(name), {}) for name in _order(self.job)]

    def _weights(self, layer: str) -> list[str]:
        """Return the full names of a layer's arrays, in order."""
        attributes = self.job.source.metadata_as(KerasMetadata).get("attributes", {})
        names: Any = attributes.get(f"{self.root}{layer}", {}).get("weight_names", [])
        return [f"{self.root}{layer}/{name}" for name in names] if isinstance(names, list) else []

    def _inferred(self, layer: str, wrapped: bool = False) -> str:
        """Return the class of a layer that no configuration describes; "" where it may be several."""
        if not wrapped and re.fullmatch(r"time_distributed(_\d+)?", layer):
            return "TimeDistributed"
        weights = self._weights(layer)
        for name, place in self.places.items():
            cells = place.cells
            if set(weights) == {array for cell in cells.values() for array in cell.names}:
                stack = self.stacks[name]
                if stack.num_directions == 2:
                    return "Bidirectional"
                around_cells = stack.num_layers > 1 or re.fullmatch(r"rnn(_\d+)?", layer)
                return "RNN" if around_cells else CLASSES[stack.cell.kind]
        fitting = [class_name for class_name in _PLAIN if self._fits(class_name, weights)]
        named = [name for name in fitting if re.fullmatch(rf"{snake_case(name)}(_\d+)?", layer)]
        certain = [name for name in fitting if name in _UNAMBIGUOUS and self._rank(name, weights)]
        return (named or certain or [""])[0]

    def _fits(self, class_name: str, weights: Sequence[str]) -> bool:
        """Return whether a layer's arrays have the names of a class's variables, in their order."""
        leaves = [name.rpartition("/")[2].partition(":")[0] for name in weights]
        present = [word for word, optional in _PLAIN[class_name] if not optional or word in leaves]
        return bool(leaves) and leaves == present

    def _rank(self, class_name: str, weights: Sequence[str]) -> bool:
        return class_name != "Dense" or self.job.carried[weights[0]].ndim == 2

    def _place(self, layer: Entry, path: str, weights: Sequence[str]) -> None:
        """Give a layer's arrays their paths, or note that it is left out."""
        class_name = _class_now(layer)
        stack = next((n for n, p in self.places.items() if set(weights) == {a for c in p.cells.values() for a in c.names}), None)
        if class_name == "TimeDistributed":
            inner = layer.inner("layer") or Entry(layer.name, self._inferred(layer.name, wrapped=True), {})
            self._place(inner, f"{path}/layer", weights)
        elif stack is not None and class_name not in MODELS:
            self._recurrent(stack, layer, path)
        elif class_name in MODELS:
            self._nested(layer, path, weights)
        elif class_name in _PLAIN and self._fits(class_name, weights) and all(w in self.job.carried for w in weights):
            self.written.put(path, [self.job.carried[name] for name in weights], layer.name)
            self.placed.update(weights)
        else:
            self.left.append(layer.name)

    def _nested(self, model: Entry, path: str, weights: Sequence[str]) -> None:
        layers = children(model)
        for layer, label in zip(layers, labels(_class_now(layer) for layer in layers), strict=True):
            inside = [name for name in weights if layer.name in name[len(self.root) :].split("/")[1:]]
            if inside:
                self._place(layer, f"{path}/layers/{label}", inside)

    def _recurrent(self, name: str, layer: Entry, path: str) -> None:
        stack = self.stacks[name]
        self.written.name(path, layer.name)
        for number, word in enumerate(("forward_", "backward_") if stack.num_directions == 2 else ("",)):
            cells = [(index, direction) for index, side, direction in stack.directions() if side == number]
            groups = labels(f"{CLASSES[direction.cell.kind]}Cell" for _, direction in cells)
            for (index, direction), group in zip(cells, groups, strict=True):
                below = f"{path}/{word}layer/cell" if word else f"{path}/cell"
                below += f"/cells/{group}" if stack.num_layers > 1 else ""
                cell = snake_case(f"{CLASSES[direction.cell.kind]}Cell")
                self.written.put(below, pack_direction(direction, self.job).values(), cell)
                self.placed.update(self.places[name].cells[index, number].names)
