"""Keras models as a transplant sees them: live ones on any backend, and files of every era."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rnnconvert.containers import hdf5
from rnnconvert.containers.files import lowered
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UsageError
from rnnconvert.core.names import is_count
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.keras import heads, keras_zip
from rnnconvert.formats.keras.cells import StatedLayers
from rnnconvert.formats.keras.cells_of_layers import place_of
from rnnconvert.formats.keras.config import snake_case, tree
from rnnconvert.formats.keras.flow import KerasFlow
from rnnconvert.formats.keras.live import described, numbers
from rnnconvert.formats.keras.live_units import FOREIGN, fill, layers_with_weights, live_units, lookup, recurrent_units
from rnnconvert.formats.keras.metadata import KerasMetadata
from rnnconvert.formats.keras.model.entries import Entry, children, entry
from rnnconvert.formats.keras.normed import units_of_normed
from rnnconvert.language import outline, registry
from rnnconvert.models.model import Model, Unit, by_class, channels_given
from rnnconvert.models.units import Owner, loose_units, plain_units, units_of_ours

_LACKING = {"use_bias": ("bias", "b"), "scale": ("gamma",), "center": ("beta",)}
"""The options that a configuration can turn off, and the variables that are then absent."""
_ASIDE = re.compile(r"(^|/)(_?optimizer(_weights)?|training|metrics|loss|seed_generator(_\d+)?|top_level_model_weights)(/|$)")


NAME = "keras"
TAKES = "a Keras model"


def takes(value: Any) -> bool:
    """Return whether a live object is a Keras layer or model."""
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(value, keras.layers.Layer)


_OPTIMIZER = re.compile(r"_?optimizer(_weights)?(/|$)|training(/|$)")


def of_live(model: Any) -> Model:
    """Return a keras.Model or layer, with the variables of all its layers.

    Raises UsageError for a model that is not built yet, or is quantized.
    """
    if not model.built or not (model.weights or getattr(model, "inputs", None)):
        raise UsageError(f"the Keras model {model.name!r} is not built yet. Call it once, or model.build(input_shape)")
    variables: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    units: list[Unit] = []
    for path, layer, named in layers_with_weights(model):
        if getattr(layer, "quantization_mode", None):
            raise UsageError(f"layer {path!r} is quantized. Fill the float model first, then quantize it")
        variables |= named
        own_arrays = {name: numbers(weight) for name, weight in named.items()}
        arrays |= own_arrays
        units += live_units(path, layer, own_arrays)
    config_entry = entry(described(model)) if hasattr(model, "layers") else None
    units, line = _in_graph(units, config_entry, arrays)
    units += loose_units(arrays, [name for unit in units for name in unit.arrays])
    ties: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, weight in variables.items():
        if first.setdefault(id(weight), name) != name:
            ties[name] = first[id(weight)]
    return Model(
        "keras", f"Keras model {model.name!r}", tuple(units), arrays, line, False, {}, ties, lambda new: fill(model, variables, new), model
    )


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return a file of any era; without a configuration, a layer's name and arrays show its class."""
    read = checkpoint.read_as(StatedLayers)
    model, arrays = read.model, checkpoint.arrays
    aside = {name: "state of training, not weights" for name in checkpoint.tensors if _ASIDE.search(name)}
    units: list[Unit] = []
    stated = checkpoint.metadata_as(KerasMetadata).get("root_config")
    tree_of_layers = entry(stated) if model is None and stated else model
    paths = dict(tree(model)) if model is not None else {}
    layers = ConfiguredLayers(tree_of_layers, model, paths)
    called_so_far, listing = set[str](), 0
    for name, stack in checkpoint.layers.items():
        if name in read.ours:
            ours = read.ours[name]
            units += units_of_ours(name, stack, outline.KERAS, ours, {"batch_first": True}, "OwnRecurrent")
        else:
            place = read.places[name]
            where = read.entries[name]
            called = where.name if where is not None and where.name in layers.repeated else name
            called = layers.path_of(called, place_of(place.cells[0, 0]))
            units += recurrent_units(name if called in called_so_far else called, stack, place, where)
            called_so_far |= {unit.name for unit in units[listing:]}
            listing = len(units)
    for name, place in read.normed.items():
        units += units_of_normed(name, place, arrays)
    used = {name for unit in units for name in unit.arrays} | set(aside)
    classes: dict[str, tuple[str, str]] = {}
    for owner, names in _owners(checkpoint, [name for name in checkpoint.tensors if name not in used]).items():
        where = layers.described(owner)
        class_name, name = (where.class_name, where.name) if where is not None else (_class_in(owner), "")
        known_class = class_name if by_class("keras", class_name) else ""
        if where is not None:
            classes |= dict.fromkeys(names, (where.name, where.class_name))
        if where is not None and not where.built_in:
            known_class = class_name = FOREIGN
        elif where is not None and not known_class and not (children(where) or where.inner("layer")):
            known_class = class_name  # a class of Keras's own without such layouts: names are no evidence against it
        name = name or _said_name(checkpoint, owner)
        name = layers.path_of(name, owner)
        locals_ = _locals(names, class_name, where)
        config: Mapping[str, Any] = where.config if where is not None else {}
        settings = lookup(config, where.rank if where is not None else 0, read.era)
        plain = plain_units("keras", Owner(name, known_class, locals_, settings, class_name), arrays)
        units += (unit.replace(stated=where is not None and where.built_in) for unit in plain)
    units, line = _in_graph(units, model, arrays, read.era.major if read.era.text else 0)
    units += loose_units(arrays, {name for unit in units for name in unit.arrays} | set(aside))
    return Model("keras", checkpoint.path, tuple(units), arrays, line, False, aside, questions=checkpoint.questions, classes=classes)


def write(path: Path, checkpoint: Checkpoint, arrays: Mapping[str, Array]) -> list[str]:
    """Write a file like the one that was read, with some arrays replaced.

    Raises UsageError for another kind of file, and for a SavedModel or TensorFlow checkpoint.
    """
    source = Path(checkpoint.file)
    zipped, asked = "metadata" in checkpoint.metadata, lowered(path).suffix == ".keras"
    if source.is_dir() or not {lowered(path).suffix, lowered(source).suffix} <= {".keras", ".h5", ".hdf5"} or zipped != asked:
        kind = ".keras" if zipped else ".h5"
        raise UsageError(f"{path}: the target {checkpoint.path} is a {kind} file and can only be written as one")
    written = {name: arrays.get(name, array) for name, array in checkpoint.arrays.items() if not _OPTIMIZER.match(name)}
    attributes = checkpoint.metadata_as(KerasMetadata).get("attributes", {})
    attributes = {name: values for name, values in attributes.items() if not _OPTIMIZER.match(name)}
    if zipped:
        config = checkpoint.metadata_as(KerasMetadata)["config"]
        metadata = checkpoint.metadata_as(KerasMetadata)["metadata"]
        keras_zip.write(path, config, metadata, written, attributes)
    else:
        hdf5.write(path, written, attributes)
    left_out = len(written) < len(checkpoint.arrays)
    return ["the optimizer's state of the target file is left out: it belongs to the old weights"] if left_out else []


def _owners(checkpoint: Checkpoint, names: Iterable[str]) -> dict[str, list[str]]:
    """Return arrays by the layer that they belong to: its path in Keras 3, its name before."""
    attributes = checkpoint.metadata_as(KerasMetadata).get("attributes", {})
    by_layers = checkpoint.metadata_as(KerasMetadata).get("by_layers", False)
    owners: dict[str, list[str]] = {}
    for name in names:
        path = name.removeprefix("model_weights/")
        if "/vars/" in f"/{path}":
            owner = path.rpartition("/vars/")[0]
        else:
            parts = path.split("/")
            listed = [part for part in parts if f"model_weights/{part}" in attributes or part in attributes]
            inner = [part for part in parts[:-1] if part not in ("kernel", "bias")]
            if by_layers:
                listed, inner = [], ["/".join(inner)] if inner else []
            owner = "/".join(dict.fromkeys([*listed[:1], *inner[-1:]])) if inner else path
        owners.setdefault(owner, []).append(name)
    return owners


class ConfiguredLayers:
    """The layers of a configuration, found by names and places: each model's are listed once, however many ask.

    tree    the model, also where it says no more than names
    model   the model, None where its configuration says no more than that
    paths   the layers by the places that Keras 3 has for them
    """

    def __init__(self, tree: Entry | None, model: Entry | None, paths: Mapping[str, Entry]) -> None:
        self._tree, self._paths = tree, paths
        counts = Counter(layer.name for layer in _every(tree)) if tree is not None else Counter[str]()
        self.repeated = {name for name, count in counts.items() if count > 1}
        self._named = {layer.name: layer for layer in _every(model)} if model is not None else {}
        self._inside: dict[int, tuple[Entry, dict[str, Entry]]] = {}

    def _child(self, layer: Entry, name: str) -> Entry | None:
        """Return the first layer of a name in a model."""
        listing = self._inside.get(id(layer))
        if listing is None:  # the model is held, so that no other takes its place in memory
            listing = self._inside[id(layer)] = layer, {child.name: child for child in reversed(children(_each_step(layer)))}
        return listing[1].get(name)

    def path_of(self, name: str, place: str) -> str:
        """Return the name of a layer: its own or its wrapper's, with the models around it if other layers have it, too.

        place  where its arrays are
        """
        if self._tree is None:
            return name
        inside, path, last, parts = self._tree, list[str](), name.rpartition("/")[2], place.split("/")
        for number, part in enumerate(parts):
            below = self._paths.get("/".join(parts[: number + 1])) or self._child(inside, part)
            if below is not None:
                # A path may name the model inside of a TimeDistributed, or only the layers of that.
                path += [_each_step(below).name] if _each_step(inside) is inside or below.name != path[-1] else []
                inside = below
        wrapped = inside.inner("layer")
        by_wrapper = wrapped is not None and wrapped.name == last
        return "/".join(path) if by_wrapper or (last in self.repeated and path[-1:] == [last]) else name

    def described(self, owner: str) -> Entry | None:
        """Return the configuration of the layer that arrays belong to."""
        around, _, word = owner.rpartition("/")
        if around:
            attention = self.described(around)
            if attention is not None and (dense := heads.part(attention, word)) is not None:
                return dense
        where = self._paths.get(owner) or self._paths.get(owner.removesuffix("/cell"))
        if where is None:
            where = next((self._named[part] for part in reversed(owner.split("/")) if part in self._named), None)
        while where is not None and where.class_name in ("TimeDistributed", "SpectralNormalization"):
            inner = where.inner("layer")
            where = replace(inner, name=where.name) if inner is not None else None
        if where is None or where.built_in or owner in self._paths or owner.rpartition("/")[2] == where.name:
            return where
        return None  # a layer inside of one that is the user's own


def _every(model: Entry) -> Iterator[Entry]:
    yield model
    for child in children(_each_step(model)):
        yield from _every(child)


def _each_step(layer: Entry) -> Entry:
    """Return the model inside of a TimeDistributed; any other layer itself."""
    inner = layer.inner("layer") if layer.class_name == "TimeDistributed" else None
    return inner if inner is not None and children(inner) else layer


def _class_in(owner: str) -> str:
    """Return the class that a path or a name made by Keras states: layers/batch_normalization_1."""
    words = {snake_case(name): name for layout in registry.surroundings("keras") for name in layout.classes.split()}
    return words.get(re.sub(r"_\d+$", "", owner.rpartition("/")[2]), "")


def _said_name(checkpoint: Checkpoint, owner: str) -> str:
    attributes = checkpoint.metadata_as(KerasMetadata).get("attributes", {})
    label = attributes.get(f"{owner}/vars", {}).get("name")
    if isinstance(label, str) and label:
        return label
    if "layers/" in owner:
        return owner.rpartition("/")[2]
    return owner


def _locals(names: Sequence[str], class_name: str, where: Entry | None) -> dict[str, str]:
    """Return a layer's variables by their own names; Keras 3 numbers them, in the order in which the class makes them."""
    if "/vars/" not in f"/{names[0]}":
        locals_ = {}
        for name in names:
            leaf = name.rpartition("/")[2].partition(":")[0]
            old = re.fullmatch(r".+_(W_carry|b_carry|W|b|gamma|beta|running_mean|running_std)", leaf)
            locals_[old[1] if old and leaf not in ("depthwise_W",) else leaf] = name
        return locals_
    layouts = by_class("keras", class_name)
    chosen = [layout for layout in layouts if layout.path] or layouts[:1]
    words = list(dict.fromkeys(tensor.name for layout in chosen for tensor in layout.tensors))
    off = [word for key, gone in _LACKING.items() for word in gone if where is not None and where.config.get(key) is False]
    words = [word for word in words if word not in off]
    numbered = sorted(names, key=lambda name: int(last) if is_count(last := name.rpartition("/")[2]) else 0)
    needed = [word for word in words if not any(word in gone for gone in _LACKING.values())]
    if where is None and len(numbered) != len(words):
        words = needed  # without a configuration, some of what may be absent is not told from the rest of it
    return dict(zip(words, numbered, strict=True)) if len(numbered) == len(words) else {name: name for name in names}


def _in_graph(units: list[Unit], model: Entry | None, arrays: Mapping[str, Array], era: int = 0) -> tuple[list[Unit], bool]:
    """Return the layers in the model's order, each noting how its input was flattened, and whether data goes through one after the other.

    era  the Keras that the model is of, 0 where that is not stated
    """
    if model is None:
        return units, False
    order = [layer.name for layer in _every(model)]
    rank = {name: number for number, name in enumerate(order)}

    def place(unit: Unit) -> int:
        parts = unit.name.partition("[")[0].split("/")
        return next((rank[part] for part in reversed(parts) if part in rank), len(rank))

    graph = KerasFlow(model, era)
    gives = graph.unflattened()
    channels = {}
    for unit in units:
        if (channels_before := channels_given(unit, arrays)) is not None:
            channels[_layer_of(unit)] = channels_before
    units = sorted(units, key=place)
    line = graph.is_line(unit.name.partition("[")[0] for unit in units)
    return [
        unit.replace(reads=graph.flattened(name, channels), gives=gives.get(name), facts=_masked(unit, graph.masks(name)))
        for unit, name in zip(units, map(_layer_of, units), strict=True)
    ], line


def _masked(unit: Unit, masks: str) -> Mapping[str, Any]:
    """Return a layer's settings; for a recurrent one, which steps it skips, too."""
    return {**unit.facts, "masking": masks} if unit.stack is not None else unit.facts


def _layer_of(unit: Unit) -> str:
    """Return the layer that a unit is, or is a part of."""
    name = unit.name.partition("[")[0]
    return name.removesuffix("/depthwise").removesuffix("/pointwise").split("/")[-1]
