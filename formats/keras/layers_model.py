"""Layers models of TensorFlow.js: the configuration of a Keras model in JSON, and its weights in files next to it.

TensorFlow.js and tensorflowjs_converter name weights by the layers around them; of a .keras file the converter keeps the paths. What
TensorFlow.js saves itself it runs by the rules of Keras 2.0.

Sources: tfjs-converter 4.22 python/tensorflowjs/converters/keras_h5_conversion.py; tfjs-layers 4.22 src/engine/container.ts, toJSON
and loadWeights, and src/models.ts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnnconvert.containers import graph_def_json, json_file
from rnnconvert.containers.stored import Stored
from rnnconvert.core.errors import UnreadableError
from rnnconvert.files import weight_groups
from rnnconvert.files.opened import Opened
from rnnconvert.formats.keras.config import Era
from rnnconvert.formats.keras.metadata import KerasMetadata
from rnnconvert.formats.keras.model.entries import entry, era_shown, every, of_file

_SAVED = "2.0 ({})"
"""The version of what TensorFlow.js itself wrote: Keras 2.0, from which it has its rules."""


class LayersModelMetadata(KerasMetadata, total=False):
    """The metadata of a layers model.

    document  the file
    narrow    the types of quantized weights as they are stored, by the weights' names
    files     the files of the weights
    """

    document: Mapping[str, Any]
    narrow: Mapping[str, str]
    files: tuple[str, ...]


def file_of(path: Path) -> Path:
    """Return the file that states a model: its folder has it under the name that TensorFlow.js gives it."""
    return path / "model.json" if path.is_dir() and not (path / "saved_model.pb").exists() else path


def is_layers_model(document: object) -> bool:
    """Return whether a document of JSON is a layers model."""
    manifest = document.get("weightsManifest") if isinstance(document, Mapping) else None
    return isinstance(document, Mapping) and isinstance(manifest, list) and not graph_def_json.is_graph(document.get("modelTopology"))


def stated(document: Mapping[str, Any], path: Path) -> tuple[Mapping[str, Any] | None, str]:
    """Return the configuration of a layers model, None for weights alone, and the version of Keras whose rules it follows.

    Raises UnreadableError for a topology that is not made of layers.
    """
    topology = document.get("modelTopology")
    if topology is None:
        return None, ""
    model = topology.get("model_config", topology) if isinstance(topology, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(model.get("config"), (Mapping, list)):
        raise UnreadableError(path, "its modelTopology is not a model of layers")
    version = str(topology.get("keras_version") or "")
    if version[:1].isdecimal():
        return model, version
    with of_file(path):
        model = _as_keras({key: value for key, value in model.items() if key not in ("keras_version", "backend")})
        return model, "3" if era_shown(entry(model)) == 3 else _SAVED.format(version or "TensorFlow.js")


def _as_keras(value: Any) -> Any:
    """Return a configuration as Keras states it.

    For a setting that is null TensorFlow.js takes its default, but for the merge_mode of a Bidirectional that gives both of its outputs. Of
    an RNN it states the settings of the cell inside, too.
    """
    if isinstance(value, list):
        return [_as_keras(inner) for inner in value]
    if not isinstance(value, Mapping):
        return value
    plain = {key: _as_keras(inner) for key, inner in value.items() if inner is not None or key == "merge_mode"}
    cell = plain.get("cell")
    copied = cell["config"] if isinstance(cell, Mapping) and isinstance(cell.get("config"), Mapping) else {}
    return {key: inner for key, inner in plain.items() if key in ("name", "trainable") or copied.get(key, plain) != inner}


def notes(stored: Stored) -> list[str]:
    """Return notes on how a model's weights were read: that they are quantized; and of what TensorFlow.js itself makes of it."""
    metadata = stored.metadata_as(LayersModelMetadata)
    kinds = sorted({*metadata.get("narrow", {}).values()})
    lines = [f"weights stored as {' and '.join(kinds)} are read as the float numbers that these stand for"] if kinds else []
    config = metadata.get("config")
    layers = list(every(entry(config))) if config is not None and Era(metadata.get("keras_version", "")).of_javascript else []
    if any(layer.class_name == "BatchNormalization" and layer.config.get("axis", -1) not in (-1, [-1]) for layer in layers):
        lines.append(
            "a BatchNormalization states its axis: where that is not the last one, TensorFlow.js computes something else on the CPU"
        )
    return lines


def read(path: Path) -> Stored:
    """Return the content of a layers model. Raises UnreadableError, MissingFileError for weights that are not next to it."""
    document = Opened(path).cached(json_file.read)
    arrays, narrow, files = weight_groups.read(path, document.get("weightsManifest"))
    config, version = stated(document, path)
    topology = document.get("modelTopology")
    training = topology.get("training_config") if isinstance(topology, Mapping) else None
    metadata = LayersModelMetadata(
        document=document,
        narrow=narrow,
        files=tuple(map(str, files)),
        keras_version=version,
        training_config=document.get("trainingConfig") or training,
        by_layers=not any("/vars/" in name for name in arrays),
    )
    if config is not None:
        metadata["config"] = config
    return Stored(arrays, metadata)
