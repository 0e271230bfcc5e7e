"""The architecture of a model in a separate file, next to its weights: `to_json`, `to_yaml`, config.json, or a whole model's file."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rnnconvert.containers import enclosed, json_text
from rnnconvert.containers.files import map_file
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.limits import ARCHITECTURE_BYTES, ENTRIES
from rnnconvert.files.opened import Opened
from rnnconvert.formats.keras import layers_model
from rnnconvert.formats.keras.config import of_json
from rnnconvert.formats.keras.files import YAML, is_architecture, stored_in
from rnnconvert.formats.keras.metadata import KerasMetadata, stated_model, stated_of_file
from rnnconvert.formats.keras.model.entries import entry, era_shown, of_file


def read(path: Path) -> tuple[Mapping[str, Any], str]:
    """Return a model's configuration, and the version of Keras that wrote it, "" if it is not stated.

    Raises UnreadableError if the file holds none, UsageError for YAML where no package reads it.
    """
    document, version = stated(path)
    if not is_architecture(document):
        raise UnreadableError(
            path, "it has no configuration of a Keras model", "Give what model.to_json wrote, or a file of the whole model."
        )
    assert isinstance(document, Mapping)
    return document, version or _version_shown(document)


def stated(path: Path) -> tuple[Any, str]:
    """Return the document that a file states in place of a model's configuration, of any class or of any other kind, and the version of
    Keras that it states.

    Raises the errors of `read`.
    """
    file = Opened(path)
    if "pickle" in file.kinds and (texts := enclosed.texts_in_pickle(path)):
        return stated(texts[0].path)
    if file.json is None and path.suffix.lower() not in (*YAML, ".json"):
        return _of_model(path)
    document = _inside(_yaml(path) if path.suffix.lower() in YAML else _json(path))
    if layers_model.is_layers_model(document):
        return layers_model.stated(document, path)
    return document, str(document.get("keras_version", "")) if isinstance(document, Mapping) else ""


def _text(path: Path) -> bytes:
    """Return the bytes of a file, which belongs from now on to what is read. Raises UnreadableError for a large one."""
    content = map_file(path)
    if content.size > ARCHITECTURE_BYTES:
        raise UnreadableError(path, f"it is larger than {ARCHITECTURE_BYTES >> 20} MiB, which no architecture of a model is")
    return content.tobytes()


def _json(path: Path) -> Any:
    try:
        return json_text.loads(_text(path), path)
    except UnreadableError:
        raise
    except ValueError:
        raise UnreadableError(path, "it is not JSON") from None


def _version_shown(document: Mapping[str, Any]) -> str:
    """Return "3" for what Keras 3 alone writes."""
    try:
        with of_file("the architecture"):
            return "3" if era_shown(entry(document)) == 3 else ""
    except UnreadableError:
        return ""


def _inside(document: Any) -> Any:
    """Return the architecture in a document: itself, the text in it (`json.dump(model.to_json())`), or a model's own settings."""
    return of_json("the architecture", document.encode(), "its text") if isinstance(document, str) else document


def _of_model(path: Path) -> tuple[Any, str]:
    """Return the configuration in a file of a whole model."""
    stored = stored_in(path)
    return stated_model(path, stored.metadata_as(KerasMetadata)), stated_of_file(stored, "keras_version")


def _yaml(path: Path) -> Any:
    """Return the value of a YAML file, with tuples as lists. Raises UnreadableError, UsageError without PyYAML."""
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        raise UsageError(f"{path}: YAML needs the package pyyaml. Install it, or give what model.to_json wrote") from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Safe YAML without two values for one key, and the tuples that Keras wrote into it."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            values: dict[Any, Any] = super().construct_mapping(node, deep)
            if len(values) < len(node.value):
                raise yaml.constructor.ConstructorError(None, None, "a key appears twice", node.start_mark)
            return values

    Loader.add_constructor("tag:yaml.org,2002:python/tuple", Loader.construct_sequence)
    try:
        document = yaml.load(_text(path), Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableError(path, f"it is not YAML: {str(error)[:200]}") from None
    for number, _ in enumerate(_nodes(document)):  # aliases may make it far larger than its text
        if number > ENTRIES:
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
