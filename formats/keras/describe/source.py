"""A model of Keras 1 or 2 as the Keras 3 model that is described.

Where some of its layers have no equivalent, a layer that does nothing may stand for each, so that the rest can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.keras.describe.layer_facts import TARGET
from rnnconvert.formats.keras.model.tree import SourceLayer, tree
from rnnconvert.formats.keras.upgrade.assign import assign_by_path
from rnnconvert.formats.keras.upgrade.files import as_keras_3

_MOST = 500
"""The most layers that are left out of one model."""


def read(path: Path, config_file: Path | None = None, altered: Callable[[Any], Any] = lambda config: config) -> SourceLayer:
    """Return the layers of a model, with their weights: their shapes say what a layer reads where nothing else does.

    config_file  the model of weights that are alone, as model.to_json wrote it
    altered      returns the configuration to read in place of the stated one
    """
    (config, model), _ = as_keras_3(path, TARGET, config_file, altered, keeps_weights=True)
    top = tree(config)
    assign_by_path(top, "", {name: np.asarray(array) for name, array in model.arrays.items()})
    return top


def read_in_part(path: Path, config: Path | None) -> tuple[SourceLayer, dict[str, RefusedError]]:
    """Return a model of Keras 1 or 2, and why layers of it, by their names, are not what they were.

    Raises RefusedError where something other than a layer is refused, or a layer with weights that cannot be read.
    """
    errors: dict[str, RefusedError] = {}
    while True:
        try:
            return read(path, config, lambda document: _without(document, errors)), errors
        except RefusedError as error:
            if not error.layer or error.layer in errors or len(errors) > _MOST:
                raise
            errors[error.layer] = error


def _without(value: Any, names: Mapping[str, Any]) -> Any:
    """Return a configuration with a linear Activation for each layer of these names, which is called on the same tensors."""
    if isinstance(value, list):
        return [_without(inner, names) for inner in value]
    if not isinstance(value, Mapping):
        return value
    config = value.get("config")
    name = value.get("name") or (config.get("name") if isinstance(config, Mapping) else None)
    if "class_name" not in value or name not in names:
        return {key: _without(inner, names) for key, inner in value.items()}
    plain = {"class_name": "Activation", "name": name, "config": {"name": name, "activation": "linear"}}
    nodes = value.get("inbound_nodes")
    return {**plain, "inbound_nodes": _plain_calls(nodes)} if nodes is not None else plain


def _plain_calls(nodes: Any) -> Any:
    """Return calls with their tensors alone, without other arguments."""
    if isinstance(nodes, list):
        return [_plain_calls(node) for node in nodes]
    return {} if isinstance(nodes, Mapping) else nodes
