"""An old Keras model as a tree of layers, each with its own arrays of the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rnnconvert.containers.layer_config import Entry, entry, listed
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.formats.keras.config import snake_case
from rnnconvert.formats.keras.upgrade import tables as tables
from rnnconvert.formats.keras.upgrade.config import refuse, rule_of

DEPTH = 40
"""How deep models may be nested."""
LAYERS = 20_000

_PER_GATE = {"LSTM": "icfo", "GRU": "zrh"}
_OLD_STYLE = re.compile(r"[WUb](_[icfozrh])?|gamma|beta|running_mean|running_std|alphas")
"""Weights that Keras 1 names after their layer: dense_1_W."""

_OPERATIONS = frozenset(
    [
        "NotEqual",
        "Any",
        "All",
        "Equal",
        "Less",
        "Greater",
        "LogicalNot",
        "LogicalOr",
        "LogicalAnd",
        "Where",
        "Cast",
        "ExpandDims",
        "GetItem",
    ]
)
"""What Keras 3 makes of a mask (Bidirectional and wrappers call it by hand) and writes among the layers."""


@dataclass
class SourceLayer:
    """A layer.

    entry   what its configuration states
    inside  the layers of a model, a wrapper's layer, both of a Bidirectional, or the cells of an RNN
    raw     its serialized form: how it is called stands there
    arrays  its own weights, by their first names in the table
    """

    entry: Entry
    inside: list[SourceLayer] = field(default_factory=list)
    raw: Mapping[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in the file."""
        return self.entry.name

    @property
    def kind(self) -> str:
        """Its class in the file."""
        return self.entry.class_name

    @property
    def is_model(self) -> bool:
        """Whether it is a model of layers."""
        return self.kind in tables.MODELS

    @property
    def is_operation(self) -> bool:
        """Whether it is an operation on tensors, which may have the name of a layer.

        Keras 3's HDF5 files state no module: there the names decide that no layer bears.
        """
        module = self.raw.get("module")
        return self.kind in _OPERATIONS if module is None else str(module).startswith("keras.src.ops")

    def walk(self) -> Iterator[SourceLayer]:
        """Yield it and everything inside it."""
        yield self
        for inner in self.inside:
            yield from inner.walk()

    def words(self, per_gate: bool) -> list[tuple[tuple[str, ...], bool]]:
        """Return the names of its own weights, and whether each is trained."""
        if self.is_model or self.inside or self.kind == "InputLayer":
            return []
        rule = rule_of(self.name, self.kind, self.entry.built_in)
        if per_gate and self.kind in _PER_GATE:
            return [((f"{part}_{gate}",), True) for gate in _PER_GATE[self.kind] for part in "WUb"]
        words = []
        for word in rule.weights.split():
            word, _, condition = word.partition("?")
            if not condition or self._true(condition):
                words.append((tuple(word.lstrip("-").split("|")), not word.startswith("-")))
        return words

    def _true(self, key: str) -> bool:
        config = self.entry.config
        return bool(config.get("bias" if key == "use_bias" and "bias" in config else key, key != "use_scale"))


def tree(raw: Mapping[str, Any], depth: int = 0) -> SourceLayer:
    """Return a layer of a configuration with everything inside it.

    Raises UnreadableError for a configuration of an unknown form.
    """
    where = _merge(entry(raw))
    if depth > DEPTH:
        raise UnreadableError("the configuration", f"its models are nested more than {DEPTH} deep")
    layer = SourceLayer(where, raw=raw)
    if where.class_name in tables.MODELS and where.built_in:
        layers = where.config.get("layers")
        if not isinstance(layers, list) or len(layers) > LAYERS:
            raise UnreadableError("the configuration", f"the model {where.name!r} has no list of layers")
        layer.inside = [tree(_mapping(child), depth + 1) for child in layers]
    elif where.class_name == "Bidirectional":
        forward = _mapping(where.config.get("layer"))
        backward = where.config.get("backward_layer")
        layer.inside = [tree(_side(forward, "forward"), depth + 1)]
        if isinstance(backward, Mapping):
            layer.inside.append(tree(backward, depth + 1))
        else:
            turned = not entry(forward).config.get("go_backwards")
            layer.inside.append(tree(_side(forward, "backward", go_backwards=turned), depth + 1))
    elif where.class_name == "TimeDistributed":
        layer.inside = [tree(_mapping(where.config.get("layer")), depth + 1)]
    elif where.class_name == "RNN":
        cell = where.config.get("cell")
        cells = listed(cell) if isinstance(cell, list) else []
        if cells and isinstance(cell, list):
            inside = [tree(_mapping(cell_config), depth + 1) for cell_config in cell]
            layer.inside = [SourceLayer(Entry("stacked_rnn_cells", "StackedRNNCells", {}), inside)]
        else:
            layer.inside = [tree(_mapping(cell), depth + 1)]
    elif where.class_name == "StackedRNNCells":
        cells_ = where.config.get("cells")
        layer.inside = [tree(_mapping(cell_config), depth + 1) for cell_config in (cells_ if isinstance(cells_, list) else [])]
    return layer


def _merge(where: Entry) -> Entry:
    """Return the Merge of Keras 1 as the layer that computes the same; any other layer as it is."""
    config = where.config
    kind = tables.MERGES.get(str(config.get("mode")))
    if where.class_name != "Merge" or kind is None or "layers" in config:
        return where
    settings = {key: value for key, value in config.items() if key not in tables.MERGE_ASIDE and value not in (None, {})}
    axis = settings.pop("concat_axis", -1)
    return replace(where, class_name=kind, config=settings | ({"axis": axis} if kind == "Concatenate" else {}))


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not isinstance(value.get("config"), (Mapping, list)):
        raise UnreadableError("the configuration", "a layer in it has an unknown form")
    return value


def _side(layer: Mapping[str, Any], word: str, **more: Any) -> Mapping[str, Any]:
    config = layer["config"]
    return {**layer, "config": {**config, "name": f"{word}_{config.get('name', 'layer')}", **more}}


def _trainable(old: SourceLayer, per_gate: bool) -> list[tuple[SourceLayer, bool]]:
    """Return whose weights the trained ones of a layer are, in the order in which Keras lists them."""
    if not old.entry.config.get("trainable", True):
        return []
    trained_words = [(old, True) for _, trained in old.words(per_gate) if trained]
    return trained_words + [pair for child in old.inside for pair in _trainable(child, per_gate)]


def _others(old: SourceLayer, per_gate: bool) -> list[tuple[SourceLayer, bool]]:
    frozen_words = [(old, False) for _, trained in old.words(per_gate) if not trained]
    below = [other for child in old.inside for other in _others(child, per_gate)]
    if old.entry.config.get("trainable", True):
        return frozen_words + below
    frozen = [(old, True) for _, trained in old.words(per_gate) if trained]
    return [*frozen, *[pair for child in old.inside for pair in _trainable(child, per_gate)], *frozen_words, *below]


def assign(top: SourceLayer, names: Sequence[str], arrays: Mapping[str, Array]) -> set[str]:
    """Give a layer of the file, and what is inside it, its arrays; return their names.

    names  as the file lists them for the layer: trained first, then the others, each in the order of the layers
    Raises RefusedError if they are not those that the configuration asks for.
    """
    per_gate = any(re.search(r"_[WU]_[icfozrh](:0)?$", name) for name in names)
    owners = _trainable(top, per_gate) + _others(top, per_gate)
    if len(owners) != len(names):
        raise refuse(top.name, f"{len(names)} weights", f"its configuration asks for {len(owners)}: {', '.join(names)[:200]}")
    around = dict(_labels(top))
    labels = {layer.name for layer in top.walk() if not layer.is_model and layer is not top}
    rest: dict[int, list[str]] = {}
    by_id = {id(layer): layer for layer in top.walk()}
    for (owner, _), name in zip(owners, names, strict=True):
        rest.setdefault(id(owner), []).append(name)
        components = set(name.split("/")[:-1]) & labels
        if top.is_model and components and not components & around[id(owner)]:
            raise refuse(top.name, f"the weight {name!r}", f"by its place it belongs to {owner.name!r}, by its name to another layer")
    for identity, full_names in rest.items():
        owner = by_id[identity]
        for full in full_names:
            if full not in arrays:
                raise refuse(top.name, f"the weight {full!r}", "the file lists it, but does not hold it")
        owner.arrays = {word: arrays[full] for word, full in _matched(owner, full_names, per_gate).items()}
    return set(names)


def _labels(layer: SourceLayer, above: frozenset[str] = frozenset()) -> Iterator[tuple[int, frozenset[str]]]:
    """Yield of each layer its own name with those of the layers around it."""
    names = above | {layer.name}
    yield id(layer), names
    for inner in layer.inside:
        yield from _labels(inner, names)


def _matched(owner: SourceLayer, names: Sequence[str], per_gate: bool) -> dict[str, str]:
    """Return a layer's weights by the first names of the table. Raises RefusedError if they are others."""
    leaves = {full: full.rpartition("/")[2].partition(":")[0] for full in names}
    matched: dict[str, str] = {}
    for exact in (True, False):
        for alternatives, _ in owner.words(per_gate):
            for full, leaf in leaves.items():
                fits = any(
                    leaf == alternative if exact else _OLD_STYLE.fullmatch(alternative) is not None and leaf.endswith(f"_{alternative}")
                    for alternative in alternatives
                )
                if fits and alternatives[0] not in matched and full not in matched.values():
                    matched[alternatives[0]] = full
    missing = [alternatives[0] for alternatives, _ in owner.words(per_gate) if alternatives[0] not in matched]
    if missing or len(matched) != len(names):
        raise refuse(owner.name, f"weights named {', '.join(leaves.values())}", f"a {owner.kind} has {', '.join(missing) or 'fewer'}")
    return matched


Places = Callable[[SourceLayer], "Mapping[str, str] | None"]
"""What tells of a layer at which path below its own each of its weights is, None where the table tells."""


def _nowhere(old: SourceLayer) -> None:
    """Leave every layer to the table."""


def assign_by_path(top: SourceLayer, path: str, arrays: Mapping[str, Array], places: Places = _nowhere) -> set[str]:
    """Give a model the arrays of the tree that a .keras file holds; return their names.

    places  tells of layers that the table lacks
    """
    used: set[str] = set()
    counts: dict[str, int] = {}
    for child in top.inside:
        if child.is_operation:
            continue
        if top.is_model or top.kind == "StackedRNNCells":
            kind, listed_ = snake_case(child.kind), "layers" if top.is_model else "cells"
            number = counts.get(kind, 0)
            counts[kind] = number + 1
            below = f"{path}/{listed_}/{kind}_{number}" if number else f"{path}/{listed_}/{kind}"
        else:
            words = {"Bidirectional": ("forward_layer", "backward_layer")}.get(top.kind, ("cell" if top.kind == "RNN" else "layer",))
            below = f"{path}/{words[top.inside.index(child)]}" if len(words) >= len(top.inside) else path
        used |= assign_by_path(child, below.lstrip("/"), arrays, places)
    paths = places(top)
    if paths is None:
        inner = "cell/vars" if _has_cell(top) else "vars"
        firsts = [alternatives[0] for alternatives, _ in top.words(False)]
        paths = {word: f"{inner}/{number}" for number, word in enumerate(firsts)}
    for word, below in paths.items():
        name = f"{path}/{below}"
        if name not in arrays:
            raise refuse(top.name, f"the weight {word!r}", f"the file holds no {name!r}")
        top.arrays[word] = arrays[name]
        used.add(name)
    return used


def _has_cell(layer: SourceLayer) -> bool:
    """Return whether a layer's weights are those of a cell of its own."""
    return tables.LAYERS.get(layer.kind, tables.ClassRule("")).takes == "states" and not layer.kind.startswith("CuDNN")


def assign_by_names(top: SourceLayer, arrays: Mapping[str, Array]) -> set[str]:
    """Give a model the arrays of a SavedModel, whose names hold those of the layers around a weight; return their names.

    Raises RefusedError for a weight that the file lacks or holds more than once.
    """
    labels = frozenset(layer.name for layer in top.walk() if layer is not top)
    by_place: dict[tuple[bool, frozenset[str], str], list[str]] = {}
    for name in arrays:
        *components, leaf = name.split("/")
        by_place.setdefault((False, labels.intersection(components), leaf), []).append(name)
        by_place.setdefault((True, labels.intersection(components[:-1]), leaf), []).append(name)
    around = dict(_labels(top))
    used: set[str] = set()
    for layer in top.walk():
        place = (around[id(layer)] - {top.name}) & labels
        for alternatives, _ in layer.words(False):
            names = [name for word in alternatives for name in by_place.get((_has_cell(layer), place, word), ())]
            if len(names) != 1:
                raise refuse(layer.name, f"the weight {alternatives[0]!r}", f"the file holds {len(names)} arrays of that name for it")
            layer.arrays[alternatives[0]] = arrays[names[0]]
            used.add(names[0])
    return used


def is_shape(shape: object) -> bool:
    """Return whether a value is a list of sizes, some of them open."""
    return isinstance(shape, list) and bool(shape) and all(size is None or (isinstance(size, int) and size >= 0) for size in shape)


def shape_of(model: SourceLayer, inside: Sequence[SourceLayer]) -> list[int | None] | None:
    """Return the shape of a Sequential's input, as its first layer or the model itself states it."""
    first = inside[0].entry.config if inside else {}
    within = inside[0].inside[0].entry.config if inside and inside[0].inside and not inside[0].is_model else {}
    shapes = [config.get(key) for config in (first, within) for key in ("batch_input_shape", "batch_shape")]
    for shape in (*shapes, model.entry.config.get("build_input_shape")):
        if isinstance(shape, list) and is_shape(shape):
            return list(shape)
    return None


def batch_of(model: SourceLayer) -> int | None:
    """Return the batch that every input of a graph has, if they have one."""
    shapes = [layer.entry.config.get("batch_input_shape") or [None] for layer in model.inside if layer.kind == "InputLayer"]
    sizes = {shape[0] for shape in shapes if isinstance(shape, list)}
    return sizes.pop() if len(sizes) == 1 else None
