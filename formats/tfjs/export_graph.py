"""A described model as a layers model, before it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rnnconvert.core.arrays import nbytes
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.tfjs.export_config import as_float32
from rnnconvert.formats.tfjs.export_layers import RULES, refusals
from rnnconvert.formats.tfjs.export_model import LayersWriter, TensorPlace, TfjsLayer
from rnnconvert.formats.tfjs.written import write_model
from rnnconvert.scaffolding.channels import channels_last
from rnnconvert.scaffolding.description import Check, Description, Value
from rnnconvert.scaffolding.directions import apart
from rnnconvert.scaffolding.export_target import ExportedGraph
from rnnconvert.scaffolding.graph.checks import fixed
from rnnconvert.scaffolding.spelling import axes
from rnnconvert.scaffolding.weights import LayerWeights

_TYPES = {"float32": "float32", "int32": "int32", "int64": "int32"}
_NUMBERS = "its numbers are in a file next to it, NAME.DIGEST.data, from which tf.loadLayersModel reads them: copy both"
_CLASSES = ("LSTM", "GRU", "SimpleRNN")


def exported(description: Description, weights: LayerWeights, title: str) -> ExportedGraph:
    """Return a described model as layers. Raises RefusedError for a layer or a setting that TensorFlow.js lacks."""
    top = description.scope.copy()
    channels_last(top)
    apart(top)
    m = LayersWriter(top, RULES, weights, title)
    for number, value in enumerate(top.inputs):
        _input(m, number, value, description.checks)
    m.run(top)
    for error in refusals(m):
        raise error
    outputs = _outputs(m, top.outputs)
    config = {
        "name": top.name or "model",
        "layers": [layer.document() for layer in m.layers.values()],
        "input_layers": [m.place(value).listed for value in top.inputs],
        "output_layers": [place.listed for place in outputs],
    }
    arrays = {f"{layer.name}/{name}": array for layer in m.layers.values() for name, array in layer.weights.items()}
    wide = any(array.dtype.itemsize > 4 for array in arrays.values())
    model = {"class_name": "Functional", "config": config}
    return ExportedGraph(
        [f"{m.place(value).layer} {_words(value, description)}" for value in top.inputs],
        [f"{place.layer} {_words(value, description)}" for value, place in zip(top.outputs, outputs, strict=True)],
        sum(layer.class_name != "InputLayer" for layer in m.layers.values()),
        [_recurrent(layer) for layer in m.layers.values() if _inner(layer) is not None],
        [_NUMBERS, *(["its numbers are rounded to float32, the only type of a model's weights there"] if wide else [])],
        sum(4 * nbytes(array) // array.dtype.itemsize for array in arrays.values()),
        # The model, and the file of its numbers next to it.
        lambda path: write_model(path, model, {name: as_float32(array) for name, array in arrays.items()}),
    )


def _input(m: LayersWriter, number: int, value: Value, checks: Sequence[Check]) -> None:
    """Add an input. Raises RefusedError for one of another type, and for a condition on lengths that no shape states."""
    lengths = {}
    for check in checks:
        place = fixed(check)
        if place is None and any(axis >= 0 for _, axis in check.axes) and not check.always:
            text = check.spelled([each.name for each in m.scope.inputs])[1]
            raise RefusedError(f"the condition {text}", m.title, "its models check no lengths")
        if place is not None and place[0] == number:
            lengths[place[1]] = place[2]
    if value.dtype not in _TYPES:
        raise RefusedError(f"the input {value.name!r} of {value.dtype}", m.title, "its models read float32 and int32")
    shape = [lengths.get(axis, size) for axis, size in enumerate(value.shape)]
    config = {"batch_input_shape": shape, "dtype": _TYPES[value.dtype], "sparse": False}
    layer, call = m.add(value.name, "InputLayer", config, [])
    m.put(value, TensorPlace(layer.name, call))


def _outputs(m: LayersWriter, values: Sequence[Value]) -> list[TensorPlace]:
    """Return where the outputs come from, each from a separate layer: tools tell outputs apart by the names of their layers."""
    places: list[TensorPlace] = []
    for value in values:
        place = m.place(value)
        layer = m.layers[place.layer]
        alone = place.layer not in {other.layer for other in places} and len(layer.calls) == 1 and not layer.config.get("return_state")
        if not alone or place.output or layer.class_name == "InputLayer" or layer.config.get("merge_mode", "") is None:
            written, call = m.add("output", "Activation", {"activation": "linear"}, [place])
            place = TensorPlace(written.name, call)
        places.append(place)
    return places


def _words(value: Value, description: Description) -> str:
    return axes(value.shape, [description.words.get(word, "") for word in value.axes])


def _inner(layer: TfjsLayer) -> Mapping[str, Any] | None:
    """Return a recurrent layer's class and configuration, also where another is around it."""
    inner: Mapping[str, Any] = layer.config["layer"] if layer.class_name == "Bidirectional" else vars(layer)
    return inner if inner["class_name"] in _CLASSES else None


def _recurrent(layer: TfjsLayer) -> str:
    inner = _inner(layer)
    assert inner is not None
    width = next(array.shape[0] for name, array in layer.weights.items() if name.rpartition("/")[2] == "kernel")
    return f"{layer.name} ({inner['class_name']} {width} -> {inner['config']['units']})"
