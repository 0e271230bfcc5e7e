"""The metadata of the files of this room, in addition to their arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rnnconvert.containers.stored import FileMetadata, Stored
from rnnconvert.formats.keras.config import of_json


class KerasMetadata(FileMetadata, total=False):
    """The metadata of Keras's files.

    config         the model's configuration, parsed
    metadata       the versions that a .keras file states
    groups_of      the first version of Keras that named groups as these are named
    keras_version  the version that a SavedModel or a layers model of TensorFlow.js states
    training_config  how a layers model of TensorFlow.js was compiled
    by_layers      whether the names of arrays are those of the layers around them
    layer_configs  the configurations of layers by their names, if there is no configuration of the model
    root_config    the configuration of the object around them
    places         the names of layers by their places in a graph of objects
    kind           "tensorflow" for a checkpoint of TensorFlow's
    names_alone    whether nothing but the names of arrays says that they are Keras's
    """

    config: Any
    metadata: dict[str, Any]
    groups_of: str
    keras_version: str
    training_config: Any
    by_layers: bool
    layer_configs: Mapping[str, Mapping[str, Any]]
    root_config: Mapping[str, Any] | None
    places: Mapping[str, str]
    kind: str
    names_alone: bool


def stated_model(path: object, metadata: KerasMetadata) -> Any:
    """Return the configuration of the model that the file of its weights itself has, None where it has none.

    Raises UnreadableError for a text that is not JSON.
    """
    config = metadata.get("config") or metadata.get("attributes", {}).get("", {}).get("model_config")
    return of_json(path, config) if isinstance(config, (str, bytes)) else config


def stated_of_file(stored: Stored, key: str, of_model: str = "") -> str:
    """Return what a file states of all of itself, "" where it does not: its keras_version, its backend.

    of_model  what the file of its model's configuration states, which precedes what a graph of objects shows
    """
    metadata = stored.metadata_as(KerasMetadata)
    attributes = metadata.get("attributes", {})
    places: list[Mapping[str, Any]] = [metadata.get("metadata", {}), attributes.get("", {}), attributes.get("model_weights", {})]
    every: Mapping[str, object] = metadata
    return next((str(place[key]) for place in places if place.get(key)), of_model) or str(every.get(key, ""))


_OF_KERAS_1 = re.compile(r"((.*[/_])?[WU]_[icfozrh]|.*_W)(:\d+)?", re.S)


def version_shown(stored: Stored) -> str:
    """Return the Keras that the names of groups and weights show, "" where they show none."""
    names = any(map(_OF_KERAS_1.fullmatch, stored.arrays))
    return stored.metadata_as(KerasMetadata).get("groups_of", "") or ("1" if names else "")
