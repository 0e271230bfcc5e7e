"""The published shape of a report, and whether a document has it.

The shape is `schema.json`, in the words of JSON Schema 2020-12. The check needs no package: it covers the part of that language that the
file uses, except that an unknown field is ignored, so that a report of a later version can still be read.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).with_name("schema.json")
NAME = "rnnconvert-report-1"

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


@functools.cache
def schema() -> dict[str, Any]:
    """Return the shape, as a document."""
    loaded: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return loaded


def problems(value: Any, rule: dict[str, Any] | None = None, where: str = "the report") -> Iterator[str]:
    """Yield the reasons why a document is not a report, place by place."""
    rule = _resolved(schema() if rule is None else rule)
    types = rule.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_is(value, name) for name in types):
        yield f"{where} is {_quoted(value)} and should be of type {' or '.join(types)}"
        return
    choices = [rule["const"]] if "const" in rule else rule.get("enum")
    if choices is not None and not (isinstance(value, str) and value in choices):
        yield f"{where} is {_quoted(value)} and should be {' or '.join(map(_quoted, choices))}"
    if "anyOf" in rule:
        yield from _of_none(value, [[*problems(value, option, where)] for option in rule["anyOf"]], where)
    if isinstance(value, dict):
        yield from (f"{where} has no {name!r}" for name in rule.get("required", ()) if name not in value)
        named, others = rule.get("properties", {}), rule.get("additionalProperties")
        for key, item in value.items():
            if key in named or isinstance(others, dict):
                yield from problems(item, named.get(key, others), f"{where}.{key}")
    if isinstance(value, list) and "items" in rule:
        for index, item in enumerate(value):
            yield from problems(item, rule["items"], f"{where}[{index}]")


def ordered(value: Any, rule: dict[str, Any] | None = None) -> Any:
    """Return a document with its fields in the order of the schema; names that are data, such as layers, keep their order."""
    rule = _resolved(schema() if rule is None else rule)
    for option in rule.get("anyOf", ()):
        if _is(value, _resolved(option).get("type", "")):
            return ordered(value, option)
    if isinstance(value, list):
        return [ordered(item, rule.get("items", {})) for item in value]
    if isinstance(value, dict):
        named, others = rule.get("properties", {}), rule.get("additionalProperties")
        rest = others if isinstance(others, dict) else {}
        keys = [key for key in named if key in value] + [key for key in value if key not in named]
        return {key: ordered(value[key], named.get(key, rest)) for key in keys}
    return value


def _of_none(value: Any, faults: list[list[str]], where: str) -> Iterator[str]:
    """Yield the reasons why a value is not any of several things: the faults inside it, or all that it could have been."""
    if not all(faults):
        return
    here = f"{where} is {_quoted(value)} and should be "
    inside = next((texts for texts in faults if not texts[0].startswith(here)), None)
    yield from inside or [here + " or ".join(texts[0].removeprefix(here) for texts in faults)]


def _resolved(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule with its reference resolved."""
    while "$ref" in rule:
        rule = schema()["$defs"][rule["$ref"].rpartition("/")[2]]
    return rule


def _is(value: Any, name: str) -> bool:
    """Return whether a value is of a type; unlike in Python, True is not a number."""
    return isinstance(value, _TYPES.get(name, ())) and (isinstance(value, bool) <= (name == "boolean"))


def _quoted(value: Any) -> str:
    text = json.dumps(value, default=str) if not isinstance(value, (dict, list)) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
