"""An old Keras model as a tree of layers, each with its own arrays of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import MODEL_LAYERS, MODEL_NESTING
from rnnconvert.formats.keras.model.entries import Entry, entry, listed
from rnnconvert.formats.keras.upgrade import tables as tables
from rnnconvert.formats.keras.upgrade.config import rule_of

_PER_GATE = {"LSTM": "icfo", "GRU": "zrh"}
_OPERATIONS = frozenset((
    "NotEqual", "Any", "All", "Equal", "Less", "LessEqual", "Greater", "GreaterEqual", "LogicalNot", "LogicalOr", "LogicalAnd", "Where",
    "Cast", "ExpandDims", "GetItem", "ConvertToTensor", "ZerosLike", "OnesLike", "Transpose", "Flip", "Squeeze", "Stack", "Matmul", "Clip",
    "Sum", "Mean", "Max", "Min", "LogSoftmax", "Divide", "TrueDivide", "Power", "Sqrt", "Rsqrt", "Log", "Square", "Sin", "Cos", "Tan",
    "Erf", "Floor", "Ceil", "Round", "Sign", "Abs", "Absolute", "Negative", "Exp", "Relu", "Relu6", "Sigmoid", "HardSigmoid", "Tanh",
    "Silu", "Selu", "Softplus", "Softsign",
))  # fmt: skip
"""Operations of Keras 3 that no layer has the name of: what functional models call of keras.ops, and what becomes of masks."""
_SHAPES = ("batch_input_shape", "batch_shape", "input_shape")
_ALSO_LAYERS = frozenset(("Add", "Subtract", "Multiply", "Maximum", "Minimum", "Reshape"))
"""Operations that have the name of a layer: x + y in a functional model, and Add()([x, y])."""


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

        Keras 3's HDF5 files state no module: there the names decide that no layer bears, and what every layer states.
        """
        module = self.raw.get("module")
        if module is not None:
            return str(module).startswith("keras.src.ops")
        return self.kind in _OPERATIONS or (self.kind in _ALSO_LAYERS and "trainable" not in self.entry.config)

    def walk(self) -> Iterator[SourceLayer]:
        """Yield it and everything inside it."""
        yield self
        for inner in self.inside:
            yield from inner.walk()

    def words(self, per_gate: bool) -> list[tuple[tuple[str, ...], bool]]:
        """Return the names of the layer's own weights, and whether each is trained."""
        if self.is_model or self.inside or self.kind == "InputLayer":
            return []
        rule = rule_of(self.entry)
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
    if depth > MODEL_NESTING:
        raise UnreadableError("the configuration", f"its models are nested more than {MODEL_NESTING} deep")
    layer = SourceLayer(where, raw=raw)
    if where.class_name in tables.MODELS:
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
    elif where.class_name == "StackedRNNCells":
        cells_ = where.config.get("cells")
        layer.inside = [tree(_mapping(cell_config), depth + 1) for cell_config in (cells_ if isinstance(cells_, list) else [])]
    return layer


def _forget_shapes(layer: SourceLayer) -> None:
    """Drop what Keras does not read: only the first layer of a Sequential takes the shape of its input from its configuration."""
    for part in [] if layer.is_model or layer.kind == "InputLayer" else layer.walk():
        part.entry = replace(part.entry, config={key: value for key, value in part.entry.config.items() if key not in _SHAPES})


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
