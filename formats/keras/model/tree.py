"""A Keras model as a tree of layers, each with its own arrays of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import MODEL_LAYERS, MODEL_NESTING
from rnnconvert.formats.keras.model.entries import MODELS, NORMED, NORMS, SHAPES, Entry, entry, listed

_MERGES = {"sum": "Add", "mul": "Multiply", "ave": "Average", "max": "Maximum", "concat": "Concatenate"}
"""The layer of Keras 3 for each mode of Keras 1's Merge. Source: keras 1.2.2 engine/topology.py, Merge.call."""
_MERGE_ASIDE = ("mode", "mode_type", "dot_axes", "output_shape_type", "output_mask_type", "node_indices", "tensor_indices")
"""Keys of a Merge that change nothing in these modes."""


@dataclass
class SourceLayer:
    """A layer.

    entry   what its configuration states
    inside  the layers of a model, a wrapper's layer, both of a Bidirectional, or the cells of an RNN
    arrays  its own weights, by their first names in the table
    """

    entry: Entry
    inside: list[SourceLayer] = field(default_factory=list)
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
    def config(self) -> Mapping[str, Any]:
        """Its settings."""
        return self.entry.config

    @property
    def is_model(self) -> bool:
        """Whether it is a model of layers."""
        return self.kind in MODELS

    def walk(self) -> Iterator[SourceLayer]:
        """Yield it and everything inside it."""
        yield self
        for inner in self.inside:
            yield from inner.walk()


def tree(raw: Mapping[str, Any], depth: int = 0) -> SourceLayer:
    """Return a layer of a configuration with everything inside it.

    Raises UnreadableError for a configuration of an unknown form.
    """
    where = _merge(entry(raw))
    if depth > MODEL_NESTING:
        raise UnreadableError("the configuration", f"its models are nested more than {MODEL_NESTING} deep")
    layer = SourceLayer(where)
    if where.class_name in MODELS:
        layers = where.config.get("layers")
        if not isinstance(layers, list) or len(layers) > MODEL_LAYERS:
            raise UnreadableError("the configuration", f"the model {where.name!r} has no list of layers")
        layer.inside = [tree(_mapping(child), depth + 1) for child in layers]
        for later in layer.inside[where.class_name == "Sequential" :]:
            _forget_shapes(later)
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
    elif where.class_name == NORMED:
        layer.inside = [SourceLayer(Entry(word, "LayerNormalization", {})) for word in NORMS]
    elif where.class_name == "StackedRNNCells":
        cells_ = where.config.get("cells")
        layer.inside = [tree(_mapping(cell_config), depth + 1) for cell_config in (cells_ if isinstance(cells_, list) else [])]
    return layer


def _forget_shapes(layer: SourceLayer) -> None:
    """Drop what Keras does not read: only the first layer of a Sequential takes the shape of its input from its configuration."""
    if layer.is_model or layer.kind == "InputLayer":
        return
    layer.entry = replace(layer.entry, config={key: value for key, value in layer.config.items() if key not in SHAPES})
    for inner in layer.inside:
        _forget_shapes(inner)


def _merge(where: Entry) -> Entry:
    """Return the Merge of Keras 1 as the layer that computes the same; any other layer as it is."""
    config = where.config
    kind = _MERGES.get(str(config.get("mode")))
    if where.class_name != "Merge" or kind is None or "layers" in config:
        return where
    settings = {key: value for key, value in config.items() if key not in _MERGE_ASIDE and value not in (None, {})}
    axis = settings.pop("concat_axis", -1)
    return replace(where, class_name=kind, config=settings | ({"axis": axis} if kind == "Concatenate" else {}))


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not isinstance(value.get("config"), (Mapping, list)):
        raise UnreadableError("the configuration", "a layer in it has an unknown form")
    return value


def _side(layer: Mapping[str, Any], word: str, **more: Any) -> Mapping[str, Any]:
    config = layer["config"]
    return {**layer, "config": {**config, "name": f"{word}_{config.get('name', 'layer')}", **more}}
