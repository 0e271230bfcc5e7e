"""The metadata of the files of this room, in addition to their arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnnconvert.containers.stored import FileMetadata


class KerasMetadata(FileMetadata, total=False):
    """The metadata of Keras's files.

    config         the model's configuration, parsed
    metadata       the versions that a .keras file states
    groups_of      the first version of Keras that named groups as these are named
    keras_version  the version that a SavedModel states
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
    layer_configs: Mapping[str, Mapping[str, Any]]
    root_config: Mapping[str, Any] | None
    places: Mapping[str, str]
    kind: str
    names_alone: bool
