"""The configuration and the weights of a layer, of what Keras code has and of the description.

Source: tfjs-layers 4.22 src/layers/*.ts, the constructors and `build`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.formats.keras.scaffold.configured import KerasLayer
from rnnconvert.formats.tfjs.export_tables import CLASSES, FIRST_ARRAYS, FUNCTIONS, LINES, NEUTRAL, PAIRS, RENAMED
from rnnconvert.models.model import by_class
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node

if TYPE_CHECKING:
    from rnnconvert.formats.tfjs.export_model import LayersWriter


def lifted(keras_layer: KerasLayer) -> KerasLayer | None:
    """Return the layer over images that computes what one over lines does, where TensorFlow.js has only that; None for any other."""
    settings = keras_layer.settings
    if keras_layer.class_name == "Conv1D" and settings.get("padding") != "causal":
        return None
    sizes = LINES.get(keras_layer.class_name)
    if sizes is None or isinstance(settings.get("layer"), KerasLayer):
        return None
    wide = {key: sizes[key](value) if key in sizes else value for key, value in settings.items()}
    return KerasLayer(keras_layer.class_name.replace("1D", "2D"), wide)


def configured(m: LayersWriter, node: Node[kinds.Kind], keras_layer: KerasLayer) -> dict[str, Any]:
    """Return the configuration of a layer. Raises RefusedError for a class or a setting that TensorFlow.js lacks."""
    keys = CLASSES.get(keras_layer.class_name)
    if keys is None:
        raise m.refused(node, f"the layer {keras_layer.class_name}", "it has no layer of this class")
    config: dict[str, Any] = {}
    if keras_layer.class_name == "BatchNormalization" and "axis" in keras_layer.settings:
        raise m.refused(
            node, f"BatchNormalization with axis = {keras_layer.settings['axis']}", "its own computes with the numbers of the last axis"
        )
    for key, value in keras_layer.settings.items():
        word = RENAMED.get((keras_layer.class_name, key), key)
        if (keras_layer.class_name, key) in NEUTRAL and value == NEUTRAL[keras_layer.class_name, key]:
            continue
        if word not in keys:
            raise m.refused(node, f"{keras_layer.class_name} with {key} = {value}", f"its {keras_layer.class_name} has no such setting")
        config[word] = _stated(m, node, keras_layer, key, value)
    return config


def _stated(m: LayersWriter, node: Node[kinds.Kind], keras_layer: KerasLayer, key: str, value: Any) -> Any:
    """Return a setting as the file states it."""
    if isinstance(value, KerasLayer):
        return {"class_name": value.class_name, "config": configured(m, node, value)}
    if isinstance(node.kind, kinds.Reshape):  # TensorFlow.js takes what -1 stands for as unknown
        return [-1 if length is None else length for length in node.y.shape[1:]]
    if key == "activation":
        if value not in FUNCTIONS:
            reason = "its hard_sigmoid is 0.2 x + 0.5, as in Keras 2" if value == "hard_sigmoid" else "it has no such function"
            raise m.refused(node, f"the activation {value!r}", reason)
        return FUNCTIONS[value]
    if keras_layer.class_name in PAIRS and isinstance(value, int):
        return [value, value] if key == "size" else [[value, value], [value, value]]
    return list(value) if isinstance(value, tuple) else value


def arrays(m: LayersWriter, node: Node[kinds.Kind], class_name: str) -> dict[str, Array | PiecewiseArray]:
    """Return the weights of a layer without recurrence, by their names in it."""
    path = m.scope.inside(node.source)
    if isinstance(node.kind, kinds.PReLU):
        return {"alpha": m.weights.numbers(path).reshape(node.kind.slopes)}
    first = FIRST_ARRAYS.get(class_name, ("kernel", "embeddings", "gamma"))
    layout = next((layout for layout in by_class("keras", class_name) if layout.tensors[0].name in first), None)
    if layout is None:
        return {}
    parts = m.weights.parts(path, layout.kind)
    stored: dict[str, Array | PiecewiseArray] = {}
    for tensor in layout.tensors:
        if tensor.part in parts:
            array = parts[tensor.part]
            shape = _kernel(node, array) if tensor.part == "weight" else array.shape
            try:
                plain = layout.stored(tensor, array, shape)
                wide = (
                    tensor.part == "weight" and "2D" in class_name and isinstance(node.kind, kinds.Windowed) and node.kind.rank == 1
                )  # over lines, written as over images
                stored[tensor.name] = np.expand_dims(plain, 1) if wide else plain
            except ValueError as error:
                raise m.refused(node, "its weights", f"the {tensor.part} does not fit: {error}") from None
    return stored


def _kernel(node: Node[kinds.Kind], weight: Array) -> tuple[int, ...]:
    """Return the shape of a layer's kernel, by that of its canonical weight."""
    sizes: tuple[int, ...] = weight.shape
    if isinstance(node.kind, kinds.Embedding):
        return sizes
    if isinstance(node.kind, kinds.Conv) and node.kind.groups > 1:
        return (*node.kind.kernel, node.kind.channels, node.kind.filters // node.kind.channels)
    if isinstance(node.kind, kinds.Conv | kinds.ConvTransposed):
        return (*node.kind.kernel, *sizes[1::-1])
    return sizes[::-1]


def as_float32(array: Array | PiecewiseArray) -> Array | PiecewiseArray:
    """Return an array in the only type of weights."""
    return np.asarray(array, np.float32) if isinstance(array, np.ndarray) and array.dtype != np.float32 else array
