"""The mapping file: which layer of the target is filled from which layer of the source, as a person edits it.

It is YAML:

    layers:
      encoder: bidirectional_1      # target: source
    leave:
      - head                        # layers of the target that stay unchanged
    accept:
      - batch_first                 # differences that you take over
    flatten: {target: channels_first}  # how a side (target, source) that does not show it flattens; none: nothing is
    trust_order: true               # layers that fit in several ways go in the order in which they stand
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rnnconvert.containers.addresses import local
from rnnconvert.core.errors import MissingPackageError, UnreadableError, UsageError
from rnnconvert.core.text_file import read_text
from rnnconvert.models.flattening import Flatten, orders

_KEYS = ("layers", "leave", "accept", "flatten", "trust_order")


@dataclass(frozen=True)
class StatedMapping:
    """A mapping as it is stated; see the module.

    remarks  the comments of a file behind the layers, by the target's
    """

    layers: dict[str, str] = field(default_factory=dict)
    leave: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    flatten: Flatten = None
    trust_order: bool = False
    remarks: Mapping[str, str] = field(default_factory=dict)

    @property
    def chosen(self) -> dict[str, str]:
        """The layers that a person paired: of a file, the lines that do not have the evidence of `propose` behind them."""
        return {name: other for name, other in self.layers.items() if not _EVIDENCE.match(self.remarks.get(name, ""))}


_PERSON = "chosen by a person"
_EVIDENCE = re.compile(rf"[a-z_ ]+: (?!{_PERSON})")
"""The remark that `propose` writes behind the pairs that it found itself."""


def mapped(mapping: str | os.PathLike[str] | Mapping[str, str] | None) -> StatedMapping:
    """Return a mapping that was handed in: a file, or layers by name.

    Raises UnreadableError for a file that is not a mapping, UsageError for one that cannot be read.
    """
    if mapping is None:
        return StatedMapping()
    if isinstance(mapping, Mapping):
        return StatedMapping({str(key): str(value) for key, value in mapping.items()})
    return read(local(mapping))


def read(path: Path) -> StatedMapping:
    """Read a mapping file. Raises UnreadableError if it is not one, naming what is wrong."""
    text = read_text(path)
    remarks: dict[str, str] = {}
    document = _parse(path, text, remarks)
    if document is None:
        return StatedMapping()
    if not isinstance(document, dict):
        raise UnreadableError(path, "a mapping has keys, such as 'layers:', but this has none")
    unknown = [key for key in document if key not in _KEYS]
    if unknown:
        raise UnreadableError(path, f"unknown key {unknown[0]!r}, expected some of {', '.join(_KEYS)}")
    layers = document.get("layers") or {}
    if not isinstance(layers, dict) or not all(isinstance(name, str) for pair in layers.items() for name in pair):
        wrong = next((key for key, value in layers.items() if not isinstance(value, str)), "") if isinstance(layers, dict) else ""
        where = f", but {wrong!r} has none" if wrong else ""
        raise UnreadableError(path, f"'layers' has the name of a source for each target's name{where}; quote names that are numbers")
    lists = {}
    for key in ("leave", "accept"):
        value = document.get(key) or []
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise UnreadableError(path, f"{key!r} must be a list of names")
        lists[key] = tuple(value)
    flatten, trust = document.get("flatten"), document.get("trust_order", False)
    if not isinstance(flatten, (str, dict, type(None))) or not isinstance(trust, bool):
        raise UnreadableError(
            path, "'flatten' must be none, or {target: channels_first, source: channels_last}, and 'trust_order' must be true or false"
        )
    try:
        orders(flatten)
    except UsageError as error:
        raise UnreadableError(path, str(error)) from None
    layer_remarks = {name: remarks[name] for name in layers if name in remarks}
    return StatedMapping(dict(layers), lists["leave"], lists["accept"], flatten, trust, layer_remarks)


def _parse(path: Path, text: str, remarks: dict[str, str]) -> Any:
    """Return the content of a YAML text, and add the comments behind its keys and values."""
    try:
        import yaml
    except ImportError:
        raise MissingPackageError("pyyaml", "read a mapping file") from None

    # Of a key that stands twice YAML's own loader takes the last; this one refuses it.
    Loader: Any = type("Loader", (yaml.SafeLoader,), {})
    rows = re.split("\r\n|[\n\r\x85\u2028\u2029]", text)  # what ends a line in YAML

    def construct(loader: Any, node: Any) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, (str, int, float, bool)):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a name", key_node.start_mark)
            if key in result:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} appears twice", key_node.start_mark)
            result[key] = loader.construct_object(value_node, deep=True)
            end = value_node.end_mark
            behind = rows[end.line][end.column :].strip() if end.line < len(rows) else ""
            if isinstance(key, str) and behind.startswith("#"):
                remarks[key] = behind[1:].strip()
        return result

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, construct)
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise UnreadableError(path, f"not valid YAML{where}: {getattr(error, 'problem', None) or error}") from None
