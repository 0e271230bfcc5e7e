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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rnnconvert.containers.addresses import local
from rnnconvert.core.errors import MissingPackageError, UnreadableError, UsageError
from rnnconvert.core.printable import printable
from rnnconvert.core.text_file import read_text
from rnnconvert.models.flattening import Flatten, orders
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.pairing import Choice, Pair, Pairing, fitting, pair

_KEYS = ("layers", "leave", "accept", "flatten", "trust_order")


@dataclass(frozen=True)
class Mapped:
    """What a mapping says; see the module.

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
"""What `propose` writes behind the pairs that it found itself."""


def mapped(mapping: str | os.PathLike[str] | Mapping[str, str] | None) -> Mapped:
    """Return a mapping that was handed in: a file, or layers by name.

    Raises UnreadableError for a file that is not a mapping, UsageError for one that cannot be read.
    """
    if mapping is None:
        return Mapped()
    if isinstance(mapping, Mapping):
        return Mapped({str(key): str(value) for key, value in mapping.items()})
    return read(local(mapping))


def read(path: Path) -> Mapped:
    """Read a mapping file. Raises UnreadableError if it is not one, naming what is wrong."""
    text = read_text(path)
    remarks: dict[str, str] = {}
    found = _parse(path, text, remarks)
    if found is None:
        return Mapped()
    if not isinstance(found, dict):
        raise UnreadableError(path, "a mapping has keys, such as 'layers:', but this has none")
    unknown = [key for key in found if key not in _KEYS]
    if unknown:
        raise UnreadableError(path, f"unknown key {unknown[0]!r}, expected some of {', '.join(_KEYS)}")
    layers = found.get("layers") or {}
    if not isinstance(layers, dict) or not all(isinstance(name, str) for pair in layers.items() for name in pair):
        wrong = next((key for key, value in layers.items() if not isinstance(value, str)), "") if isinstance(layers, dict) else ""
        where = f", but {wrong!r} has none" if wrong else ""
        raise UnreadableError(path, f"'layers' has the name of a source for each target's name{where}; quote names that are numbers")
    lists = {}
    for key in ("leave", "accept"):
        value = found.get(key) or []
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise UnreadableError(path, f"{key!r} must be a list of names")
        lists[key] = tuple(value)
    flatten, trust = found.get("flatten"), found.get("trust_order", False)
    if not isinstance(flatten, (str, dict, type(None))) or not isinstance(trust, bool):
        raise UnreadableError(
            path, "'flatten' must be none, or {target: channels_first, source: channels_last}, and 'trust_order' must be true or false"
        )
    try:
        orders(flatten)
    except UsageError as error:
        raise UnreadableError(path, str(error)) from None
    own = {name: remarks[name] for name in layers if name in remarks}
    return Mapped(dict(layers), lists["leave"], lists["accept"], flatten, trust, own)


def _parse(path: Path, text: str, remarks: dict[str, str]) -> Any:
    """Return what YAML holds, and add the comments behind its keys and values."""
    try:
        import yaml
    except ImportError:
        raise MissingPackageError("pyyaml", "read a mapping file") from None

    # Of a key that stands twice YAML's own loader takes the last; this one refuses it.
    Loader: Any = type("Loader", (yaml.SafeLoader,), {})
    rows = re.split("\r\n|[\n\r\x85\u2028\u2029]", text)  # what ends a line in YAML

    def construct(loader: Any, node: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, (str, int, float, bool)):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a name", key_node.start_mark)
            if key in found:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} appears twice", key_node.start_mark)
            found[key] = loader.construct_object(value_node, deep=True)
            end = value_node.end_mark
            behind = rows[end.line][end.column :].strip() if end.line < len(rows) else ""
            if isinstance(key, str) and behind.startswith("#"):
                remarks[key] = behind[1:].strip()
        return found

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, construct)
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise UnreadableError(path, f"not valid YAML{where}: {getattr(error, 'problem', None) or error}") from None


@dataclass(frozen=True)
class Proposal:
    """A mapping of two models with its evidence; as text, it is a mapping file for a person to edit.

    target, source  the models
    known           what was decided already
    found           which layers belong together, and what is left
    """

    target: Model
    source: Model
    known: Mapped
    found: Pairing

    def __str__(self) -> str:
        lines = [
            "# Which layer of the target is filled from which layer of the source.",
            f"# target: {printable(self.target.title)} ({self.target.framework})",
            f"# source: {printable(self.source.title)} ({self.source.framework})",
            "",
            "layers:",
        ]
        pairs = self.found.pairs
        rows = [(f"  {_quoted(one.target.name)}: {_quoted(one.source.name)}", _kind_and(one)) for one in pairs]
        width = max((len(row) for row, _ in rows), default=0)
        lines += [f"{row:<{width}}  # {evidence}" for row, evidence in rows]
        for choice in self.found.ambiguous:
            lines += _to_choose(choice)
        lines += self._left()
        known = self.known
        if known.accept:
            lines += ["", "accept:", *(f"  - {_quoted(name)}" for name in known.accept)]
        if known.flatten:
            said = ", ".join(f"{side}: {order}" for side, order in orders(known.flatten).items())
            lines += ["", f"flatten: {{{said}}}" if said else f"flatten: {known.flatten}"]
        if known.trust_order:
            lines += ["", "trust_order: true"]
        return "\n".join(lines) + "\n"

    def _left(self) -> list[str]:
        """Return the layers that have no counterpart: those of the target as a list to leave unchanged."""
        lines: list[str] = []
        if self.found.skipped or self.found.unfilled:
            lines += ["", "leave:", *(f"  - {_quoted(unit.name)}" for unit in self.found.skipped)]
        none, taken = self._unfilled()
        for units, why in (
            (none, "Nothing in the source fits these layers of the target."),
            (taken, "What fits these layers of the target in the source is taken by others."),
        ):
            if units:
                lines += [f"  # {why} To leave one unchanged, remove its #."]
                lines += [f"  # - {_quoted(unit.name)}  # {_kinds(unit)}" for unit in units]
        if self.found.unused:
            lines += ["", "# Nothing in the target takes these layers of the source."]
            lines += [f"#   {_quoted(unit.name)} ({_kinds(unit)})" for unit in self.found.unused]
        return lines

    def _unfilled(self) -> tuple[list[Unit], list[Unit]]:
        """Return the layers of the target that nothing in the source fits, and those whose counterparts are taken."""
        fits = fitting(self.target, self.source)
        taken = [one for one in self.found.unfilled if any(fits(one, other) for other in self.source.units)]
        return [one for one in self.found.unfilled if one not in taken], taken

    def as_dict(self) -> dict[str, Any]:
        """Return the proposal as JSON can hold it."""
        none, taken = self._unfilled()
        return {
            "target": self.target.title,
            "source": self.source.title,
            "layers": [
                {
                    "target": one.target.name,
                    "source": one.source.name,
                    "kind": one.kind,
                    "evidence": one.evidence,
                    "confidence": one.confidence,
                }
                for one in self.found.pairs
            ],
            "ambiguous": [{"targets": list(one.targets), "sources": list(one.sources), "kind": one.kind} for one in self.found.ambiguous],
            "leave": [unit.name for unit in self.found.skipped],
            "without_counterpart": [unit.name for unit in none],
            "counterparts_taken": [unit.name for unit in taken],
            "unused": [unit.name for unit in self.found.unused],
        }


def propose(target: Model, source: Model, told: Mapped | None = None) -> Proposal:
    """Return a mapping for two models, with the evidence of each pair; ambiguous pairs are listed to choose from.

    told  what a person has decided already: it stays, and the same models give the same mapping
    """
    known = told or Mapped()

    def paired(layers: Mapping[str, str]) -> dict[tuple[str, str], Pair]:
        found = pair(target, source, layers, known.leave, known.trust_order)
        return {(one.target.name, one.source.name): one for one in found.pairs}

    found = pair(target, source, known.layers, known.leave, known.trust_order)
    # A line of a file is a person's, unless it follows from the models and from what a person chose: then it has that
    # evidence. So a mapping that nobody edited comes out as it went in.
    chosen = known.chosen
    if not known.remarks:
        free = paired({})
        chosen = {name: other for name, other in chosen.items() if (name, other) not in free}
    follow = paired(chosen)
    for one in found.pairs:
        key = (one.target.name, one.source.name)
        if one.confidence == "told" and key not in follow and known.layers.get(key[0]) == key[1]:
            chosen[key[0]] = key[1]
    follow = paired(chosen)
    pairs = [follow.get((one.target.name, one.source.name), one) for one in found.pairs]
    return Proposal(target, source, known, replace(found, pairs=pairs))


def _kind_and(one: Pair) -> str:
    return f"{one.kind.replace('_', ' ')}: {one.evidence}"


def _to_choose(choice: Choice) -> list[str]:
    """Return lines to choose from: each is valid once its # is removed, and names the other layers that fit."""
    lines = [
        "",
        f"  # Ambiguous ({choice.kind.replace('_', ' ')}): these fit one another in several ways, and are listed in order.",
        "  # Remove the # before a layer to fill it, and write another source where you mean another.",
    ]
    for number, name in enumerate(choice.targets):
        first = choice.sources[min(number, len(choice.sources) - 1)]
        rest = [_quoted(other) for other in choice.sources if other != first]
        lines.append(f"  # {_quoted(name)}: {_quoted(first)}" + (f"  # or {', '.join(rest)}" if rest else ""))
    return lines


def _kinds(unit: Unit) -> str:
    return " or ".join(kind.replace("_", " ") for kind in unit.kinds)


_WORDS_OF_YAML = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")


def _quoted(name: str) -> str:
    """Return a name as YAML holds it, in printable characters."""
    if re.fullmatch(r"[A-Za-z_][\w./\[\]-]*", name) and name.lower() not in _WORDS_OF_YAML:
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else _escaped(char) for char in escaped) + '"'


def _escaped(char: str) -> str:
    """Return a character as YAML escapes it."""
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"
