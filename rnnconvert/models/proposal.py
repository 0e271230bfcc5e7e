"""A mapping that is proposed: with evidence, and what is ambiguous to choose from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rnnconvert.core.printable import printable
from rnnconvert.models.flattening import orders
from rnnconvert.models.mapping import StatedMapping
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.pairing import fitting, pair
from rnnconvert.models.pairs import Choice, FilledPair, Pairing


@dataclass(frozen=True)
class Proposal:
    """A mapping of two models with its evidence; as text, it is a mapping file for a person to edit.

    target, source  the models
    mapped          what was decided already
    pairing         which layers belong together, and what is left
    """

    target: Model
    source: Model
    mapped: StatedMapping
    pairing: Pairing

    def __str__(self) -> str:
        lines = [
            "# Which layer of the target is filled from which layer of the source.",
            f"# target: {printable(self.target.title)} ({self.target.framework})",
            f"# source: {printable(self.source.title)} ({self.source.framework})",
            "",
            "layers:",
        ]
        pairs = self.pairing.pairs
        rows = [(f"  {_quoted(entry.target.name)}: {_quoted(entry.source.name)}", _kind_and(entry)) for entry in pairs]
        width = max((len(row) for row, _ in rows), default=0)
        lines += [f"{row:<{width}}  # {evidence}" for row, evidence in rows]
        for choice in self.pairing.ambiguous:
            lines += _to_choose(choice)
        lines += self._left()
        stated = self.mapped
        if stated.accept:
            lines += ["", "accept:", *(f"  - {_quoted(name)}" for name in stated.accept)]
        if stated.flatten:
            sides = ", ".join(f"{side}: {order}" for side, order in orders(stated.flatten).items())
            lines += ["", f"flatten: {{{sides}}}" if sides else f"flatten: {stated.flatten}"]
        if stated.trust_order:
            lines += ["", "trust_order: true"]
        return "\n".join(lines) + "\n"

    def _left(self) -> list[str]:
        """Return the layers that have no counterpart: the target's as a list to leave unchanged."""
        lines: list[str] = []
        if self.pairing.skipped or self.pairing.unfilled:
            lines += ["", "leave:", *(f"  - {_quoted(unit.name)}" for unit in self.pairing.skipped)]
        none, claimed = self._unfilled()
        for units, why in (
            (none, "Nothing in the source fits these layers of the target."),
            (claimed, "What fits these layers of the target in the source is taken by others."),
        ):
            if units:
                lines += [f"  # {why} To leave one unchanged, remove its #."]
                lines += [f"  # - {_quoted(unit.name)}  # {_kinds(unit)}" for unit in units]
        if self.pairing.unused:
            lines += ["", "# Nothing in the target takes these layers of the source."]
            lines += [f"#   {_quoted(unit.name)} ({_kinds(unit)})" for unit in self.pairing.unused]
        return lines

    def _unfilled(self) -> tuple[list[Unit], list[Unit]]:
        """Return the layers of the target that nothing in the source fits, and those whose counterparts are taken."""
        fits = fitting(self.target, self.source)
        claimed = [unit for unit in self.pairing.unfilled if any(fits(unit, other) for other in self.source.units)]
        return [unit for unit in self.pairing.unfilled if unit not in claimed], claimed

    def as_dict(self) -> dict[str, Any]:
        """Return the proposal as JSON can hold it."""
        none, claimed = self._unfilled()
        return {
            "target": self.target.title,
            "source": self.source.title,
            "layers": [
                {
                    "target": entry.target.name,
                    "source": entry.source.name,
                    "kind": entry.kind,
                    "evidence": entry.evidence,
                    "confidence": entry.confidence,
                }
                for entry in self.pairing.pairs
            ],
            "ambiguous": [
                {"targets": list(choice.targets), "sources": list(choice.sources), "kind": choice.kind} for choice in self.pairing.ambiguous
            ],
            "leave": [unit.name for unit in self.pairing.skipped],
            "without_counterpart": [unit.name for unit in none],
            "counterparts_taken": [unit.name for unit in claimed],
            "unused": [unit.name for unit in self.pairing.unused],
        }


def propose(target: Model, source: Model, stated: StatedMapping | None = None) -> Proposal:
    """Return a mapping for two models, with the evidence of each pair; ambiguous pairs are listed to choose from.

    stated  what a person has decided already: it stays, and the same models give the same mapping
    """
    options = stated or StatedMapping()

    def paired(layers: Mapping[str, str]) -> dict[tuple[str, str], FilledPair]:
        pairing = pair(target, source, layers, options.leave, options.trust_order)
        return {(entry.target.name, entry.source.name): entry for entry in pairing.pairs}

    result = pair(target, source, options.layers, options.leave, options.trust_order)
    # A line of a file is a person's, unless it follows from the models and from what a person chose: then it has that
    # evidence. So a mapping that nobody edited comes out as it went in.
    chosen = options.chosen
    if not options.remarks:
        free = paired({})
        chosen = {name: other for name, other in chosen.items() if (name, other) not in free}
    follow = paired(chosen)
    for candidate in result.pairs:
        key = (candidate.target.name, candidate.source.name)
        if candidate.confidence == "told" and key not in follow and options.layers.get(key[0]) == key[1]:
            chosen[key[0]] = key[1]
    follow = paired(chosen)
    pairs = [follow.get((other.target.name, other.source.name), other) for other in result.pairs]
    return Proposal(target, source, options, replace(result, pairs=pairs))


def _kind_and(entry: FilledPair) -> str:
    return f"{entry.kind.replace('_', ' ')}: {entry.evidence}"


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
