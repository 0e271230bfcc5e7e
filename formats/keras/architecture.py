"""The architecture of a model in a file of its own, beside its weights: `to_json`, `to_yaml`, config.json, or a whole model's file."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rnnconvert.containers import enclosed, json_file, json_text
from rnnconvert.containers.companions import companion
from rnnconvert.containers.layer_config import entry, every
from rnnconvert.containers.reading import charging, read_small
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.files.opened import Opened
from rnnconvert.formats.keras.files import YAML, is_architecture, stored_in

_MOST_NODES = 1_000_000
_NAMES = ("model.json", "config.json", "architecture.json", "model.yaml", "model.yml", "architecture.yaml")
"""What people call such a file."""


def read(path: Path) -> tuple[Mapping[str, Any], str]:
    """Return a model's configuration, and the version of Keras that wrote it, "" if it is not stated.

    Raises UnreadableError if the file holds none, UsageError for YAML where no package reads it.
    """
    document, version = stated(path)
    if not is_architecture(document):
        raise UnreadableError(
            path,
            "it has no configuration of a Keras model",
            "Give what model.to_json wrote, or a file of the whole model.",
        )
    assert isinstance(document, Mapping)
    return document, version or _version_shown(document)


def stated(path: Path) -> tuple[Any, str]:
    """Return what a file states in place of a model's configuration, of any class or of any other kind, and the version of Keras
    that it states.

    Raises what `read` raises.
    """
    file = Opened(path)
    if "pickle" in file.kinds and (texts := enclosed.texts_in_pickle(path)):
        return stated(texts[0].path)
    if file.json is None and path.suffix.lower() not in (*YAML, ".json"):
        return _of_model(path)
    document = _inside(_yaml(path) if path.suffix.lower() in YAML else _json(path))
    return document, str(document.get("keras_version", "")) if isinstance(document, Mapping) else ""


def _json(path: Path) -> Any:
    try:
        return json_text.loads(read_small(path), path)
    except UnreadableError:
        raise
    except ValueError:
        raise UnreadableError(path, "it is not JSON") from None


def _version_shown(document: Mapping[str, Any]) -> str:
    """Return "3" for what Keras 3 alone writes: an input's batch_shape, which Keras 2 calls batch_input_shape."""
    try:
        return "3" if any("batch_shape" in one.config for one in every(entry(document))) else ""
    except (KeyError, TypeError, AttributeError):
        return ""


def _inside(document: Any) -> Any:
    """Return the architecture in a document: itself, the text in it (`json.dump(model.to_json())`), or a model's own settings."""
    return json_text.loads(document.encode(), "the architecture") if isinstance(document, str) else document


def _of_model(path: Path) -> tuple[Any, str]:
    """Return the configuration in a file of a whole model."""
    metadata = stored_in(path).metadata
    attributes: Mapping[str, Any] = metadata.get("attributes", {}).get("", {})
    config = metadata.get("config") or attributes.get("model_config")
    version = metadata.get("metadata", {}).get("keras_version") or attributes.get("keras_version", "")
    return json_text.loads(config, path) if isinstance(config, str | bytes) else config, str(version)


def _yaml(path: Path) -> Any:
    """Return the value of a YAML file, with tuples as lists. Raises UnreadableError, UsageError without PyYAML."""
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        raise UsageError(
            f"{path}: YAML needs the package pyyaml. Install it, or give what model.to_json wrote"
        ) from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Safe YAML, and the tuples that Keras wrote into it."""

    Loader.add_constructor("tag:yaml.org,2002:python/tuple", Loader.construct_sequence)
    try:
        document = yaml.load(read_small(path, 1 << 24), Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableError(path, f"it is not YAML: {str(error)[:200]}") from None
    for number, _ in enumerate(_nodes(document)):  # aliases may make it far larger than its text
        if number > _MOST_NODES:
            raise UnreadableError(path, "its aliases make it too large")
    return document


def _nodes(value: Any) -> Iterator[Any]:
    left = [value]
    while left:
        yield (node := left.pop())
        if isinstance(node, dict):
            left += node.values()
        elif isinstance(node, list):
            left += node


def beside(path: Path, layers: set[str]) -> str:
    """Return the name of a file next to weights that states a model with these layers; "" if there is none."""
    if path.is_dir() or not layers:
        return ""
    stems = {path.name.split(".")[0], path.stem}
    names = (*_NAMES, *(f"{stem}{end}" for stem in sorted(stems) for end in (".json", *YAML)))
    for name in dict.fromkeys(names):
        try:
            other = companion(path, name)
            if not other.is_file() or other.stat().st_size > 1 << 24:
                continue
            charging(0).work(1000, path)
            document = _inside(_yaml(other) if other.suffix in YAML else json_file.read(other))
            if is_architecture(document) and layers <= {one.name for one in every(entry(document))}:
                return name
        except (UnreadableError, UsageError, OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return ""
