"""A report as SARIF 2.1.0, which GitHub and others show as findings of a code scan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from rnnconvert.core.printable import json_of
from rnnconvert.core.verdict import BUT_FOR, BY_LAYER, LAYERS, NOT_COMPARED, NOT_EQUAL
from rnnconvert.reports.findings import causes, failures, headline
from rnnconvert.reports.words import Document, called, clean, figures, worst

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_RULES: dict[str, tuple[str, str]] = {
    NOT_EQUAL: ("not-equal", "Two models do not compute the same."),
    NOT_COMPARED: ("not-compared", "Nothing proves that two models compute the same."),
    BUT_FOR: ("equal-but-for", "Two models compute the same, but for what was left out."),
    LAYERS: ("rest-not-compared", "The recurrent layers of two models compute the same; the rest was not compared."),
    BY_LAYER: ("not-run-whole", "Layer by layer two models compute the same; the whole source was not run."),
}
"""The rule of each verdict that is less than equal: its name and what it says."""
_LEVELS = {NOT_EQUAL: "error", NOT_COMPARED: "error"}
"""How bad the findings are; any other is a warning."""


def to_sarif(document: Document) -> str:
    """Return the document as SARIF."""
    return merged([document])


def merged(documents: Sequence[Document]) -> str:
    """Return several reports as one SARIF file."""
    version = documents[0]["rnnconvert"] if documents else ""
    rules = [{"id": name, "shortDescription": {"text": text}} for name, text in _RULES.values()]
    driver = {"name": "rnnconvert", "version": version, "rules": rules}
    run = {"tool": {"driver": driver}, "results": [result for document in documents for result in _results(document)]}
    return json_of({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _results(document: Document) -> list[dict[str, Any]]:
    verdict = document["verdict"]
    if verdict not in _RULES:
        return []
    path = document["models"][-1]["path"] if document["models"] else ""
    rule, level = _RULES[verdict][0], _LEVELS.get(verdict, "warning")
    results = [_result(rule, level, headline(document), path, "")]
    for failure in failures(document):
        comparison = worst(failure.run)
        numbers = f" {comparison['output']} is off by {figures(comparison)}." if comparison else f" {failure.run['reason']}"
        cause = next((diagnosis["cause"] for diagnosis in causes(failure.layer)), "")
        text = f"{called(failure.layer)}, {', '.join(failure.names)}:{numbers}" + (f" Cause: {cause}." if cause else "")
        results.append(_result(rule, level, text, path, called(failure.layer)))
    return results


def _result(rule: str, level: str, text: str, path: str, layer: str) -> dict[str, Any]:
    place: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": _uri(path)}}}
    if layer:
        place["logicalLocations"] = [{"name": clean(layer), "kind": "module"}]
    return {"ruleId": rule, "level": level, "message": {"text": clean(text)}, "locations": [place]}


def _uri(path: str) -> str:
    """Return a path as a relative reference; an absolute one as a file's address."""
    pure = PurePath(path)
    if pure.is_absolute():
        return pure.as_uri()
    return re.sub(r"[^\w./~-]", lambda matched: "".join(f"%{byte:02X}" for byte in matched[0].encode("utf-8", "replace")), pure.as_posix())
