"""Models of Keras 1 and 2 with layers that have no equivalent: a layer that does nothing stands for each, so that the rest can be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.keras.describe.source import read
from rnnconvert.formats.keras.upgrade.old import SourceLayer

_MOST = 500
"""The most layers that are left out of one model."""


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
