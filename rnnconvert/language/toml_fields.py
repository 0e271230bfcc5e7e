"""The fields of a TOML table, checked one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


class WrongLayoutError(Exception):
    """A mistake in a description."""


def texts_of(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise WrongLayoutError(f"{where} is {value!r}, expected a list of texts")
    return tuple(value)


def list_of(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise WrongLayoutError(f"{where} is {value!r}, expected a list")
    return value


def fields_of(kind: Any, table: Mapping[str, Any], where: str, without: set[str]) -> dict[str, Any]:
    """Return a table's fields of a data class, each of the type of its default. Raises _WrongError for others."""
    expected = {field_.name: field_ for field_ in dataclasses.fields(kind) if field_.name not in without}
    only_keys(table, set(expected), where)
    for key, value in table.items():
        default = expected[key].default
        wanted = list if isinstance(default, tuple) else type(default)
        if isinstance(default, str | bool | tuple) and not isinstance(value, wanted):
            raise WrongLayoutError(f"{where}: {key} is {value!r}, expected {'a list' if wanted is list else wanted.__name__}")
    return dict(table)


def only_keys(table: Mapping[str, Any], allowed: set[str], where: str) -> None:
    if not isinstance(table, dict):
        raise WrongLayoutError(f"{where} is {table!r}, expected a table")
    odd = sorted(set(table) - allowed)
    if odd:
        raise WrongLayoutError(f"{where}: unknown field {odd[0]!r}, expected some of {', '.join(sorted(allowed))}")
