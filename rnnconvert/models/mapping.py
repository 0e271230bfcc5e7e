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

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rnnconvert.core.errors import MissingPackageError, UnreadableError, UsageError
from rnnconvert.models.flattening import Flatten, orders
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.pairing import Pair, Pairing, pair

_KEYS = ("layers", "leave", "accept", "flatten", "trust_order")


@dataclass(frozen=True)
class Mapped:
    """What a mapping says; see the module."""

    layers: dict[str, str] = field(default_factory=dict)
    leave: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    flatten: Flatten = None
    trust_order: bool = False


def mapped(mapping: str | os.PathLike[str] | Mapping[str, str] | None) -> Mapped:
    """Return a mapping that was handed in: a file, or layers by name.

    Raises UnreadableError for a file that is not a mapping, UsageError for one that cannot be read.
    """
    if mapping is None:
        return Mapped()
    if isinstance(mapping, Mapping):
        return Mapped({str(key): str(value) for key, value in mapping.items()})
    return read(Path(mapping))


def read(path: Path) -> Mapped:
    """Read a mapping file. Raises UnreadableError if it is not one, naming what is wrong. Raises UnreadableError if it
    is not one, naming what is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableError(path, f"cannot read the mapping: {error}") from None
    found = _parse(path, text)
    if found is None:
        return Mapped()
    if not isinstance(found, dict):
        raise UnreadableError(path, "a mapping has keys, such as 'layers:', but this has none")
    unknown = [key for key in found if key not in _KEYS]
    if unknown:
        raise UnreadableError(path, f"unknown key {unknown[0]!r}, expected some of {', '.join(_KEYS)}")
    layers = found.get("layers") or {}
    if not isinstance(layers, dict) or not all(isinstance(name, str) for pair in layers.items() for name in pair):
        wrong = (
            next((key for key, value in layers.items() if not isinstance(value, str)), "")
            if isinstance(layers, dict)
            else ""
        )
        where = f", but {wrong!r} has none" if wrong else ""
        raise UnreadableError(
            path, f"'layers' has the name of a source for each target's name{where}; quote names that are numbers"
        )
    lists = {}
    for key in ("leave", "accept"):
        value = found.get(key) or []
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise UnreadableError(path, f"{key!r} must be a list of names")
        lists[key] = tuple(value)
    flatten, trust = found.get("flatten"), found.get("trust_order", False)
    if not isinstance(flatten, (str, dict, type(None))) or not isinstance(trust, bool):
        raise UnreadableError(
            path,
            "'flatten' must be none, or {target: channels_first, source: channels_last}, and 'trust_order' must be true or false",
        )
    try:
        orders(flatten)
    except UsageError as error:
        raise UnreadableError(path, str(error)) from None
    return Mapped(dict(layers), lists["leave"], lists["accept"], flatten, trust)


def _parse(path: Path, text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingPackageError("pyyaml", "read a mapping file") from None

    # Of a key that stands twice YAML's own loader takes the last; this one refuses it.
    Loader: Any = type("Loader", (yaml.SafeLoader,), {})

    def construct(loader: Any, node: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, (str, int, float, bool)):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a name", key_node.start_mark)
            if key in found:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} appears twice", key_node.start_mark)
            found[key] = loader.construct_object(value_node, deep=True)
        return found

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, construct)
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise UnreadableError(path, f"not valid YAML{where}: {getattr(error, 'problem', None) or error}") from None


def propose(target: Model, source: Model, told: Mapped | None = None) -> str:
    """Return a mapping file for two models, with the evidence of each line; ambiguous pairs are listed to choose from.

    told  what a person has decided already: it stays, and the same models give the same text
    """
    known = told or Mapped()
    found = pair(target, source, known.layers, known.leave, known.trust_order)
    # What would be found anyway keeps its evidence: a mapping that nobody edited comes out as it went in.
    own = {(one.target.name, one.source.name): one for one in pair(target, source, trust_order=known.trust_order).pairs}
    pairs = [own.get((one.target.name, one.source.name), one) for one in found.pairs]
    lines = [
        "# Which layer of the target is filled from which layer of the source.",
        f"# target: {target.title} ({target.framework})",
        f"# source: {source.title} ({source.framework})",
        "",
        "layers:",
    ]
    rows = [(f"  {_quoted(one.target.name)}: {_quoted(one.source.name)}", _kind_and(one)) for one in pairs]
    width = max((len(row) for row, _ in rows), default=0)
    lines += [f"{row:<{width}}  # {evidence}" for row, evidence in rows]
    if not rows:
        lines[-1] = "layers: {}"
    for choice in found.ambiguous:
        lines += [
            "",
            f"  # Ambiguous ({choice.kind}): these fit one another in several ways. Choose, and remove the #.",
        ]
        lines += [
            f"  # {_quoted(name)}: {' or '.join(_quoted(other) for other in choice.sources)}" for name in choice.targets
        ]
    lines += _left(found)
    if known.accept:
        lines += ["", "accept:", *(f"  - {_quoted(name)}" for name in known.accept)]
    if known.flatten:
        said = ", ".join(f"{side}: {order}" for side, order in orders(known.flatten).items())
        lines += ["", f"flatten: {{{said}}}" if said else f"flatten: {known.flatten}"]
    if known.trust_order:
        lines += ["", "trust_order: true"]
    return "\n".join(lines) + "\n"


def _kind_and(one: Pair) -> str:
    return f"{one.kind.replace('_', ' ')}: {one.evidence}"


def _left(found: Pairing) -> list[str]:
    lines = []
    if found.skipped:
        lines += ["", "leave:", *(f"  - {_quoted(unit.name)}" for unit in found.skipped)]
    if found.unfilled:
        lines += [
            "",
            "# Nothing in the source fits these layers of the target. To leave them unchanged, name them under 'leave:'.",
        ]
        lines += [_comment(unit) for unit in found.unfilled]
    if found.unused:
        lines += ["", "# Nothing in the target takes these layers of the source."]
        lines += [_comment(unit) for unit in found.unused]
    return lines


def _comment(unit: Unit) -> str:
    return f"#   {_quoted(unit.name)} ({' or '.join(unit.kinds)})"


_WORDS_OF_YAML = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")


def _quoted(name: str) -> str:
    """Return a name as YAML holds it."""
    plain = re.fullmatch(r"[A-Za-z_][\w./\[\]-]*", name) and name.lower() not in _WORDS_OF_YAML
    return name if plain else json.dumps(name, ensure_ascii=False)
