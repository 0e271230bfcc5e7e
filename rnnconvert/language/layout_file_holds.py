"""The section of a layout file on what a layer can compute."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rnnconvert.core.arrays import FLOATS
from rnnconvert.core.cells import ACTIVATION_DEFAULTS, GATES, Activation, Clip
from rnnconvert.language.layout import Holds
from rnnconvert.language.toml_fields import WrongLayoutError, fields_of, list_of

_CHOICES: dict[str, tuple[str, ...]] = {
    "biases": ("none", "input", "recurrent", "both"),
    "coupled": ("i", "f"),
    "merges": ("concat", "sum", "mul", "ave", "none"),
    "joins": ("layer", "end"),
    "reverse_order": ("time", "processing"),
    "dtypes": tuple(FLOATS),
    "output_activation": ("same", "any"),
}
"""The values that the words of `holds` may have."""


_CLIPS = ("gates", "cell", "state", "projection")


def holds(table: Mapping[str, Any], kind: str, where: str) -> Holds:
    if not isinstance(table, dict):
        raise WrongLayoutError(f"{where}: holds is {table!r}, expected a table")
    fields = fields_of(Holds, table, f"{where}, holds", set())
    for key in ("activations", "gate_activations"):
        if key in fields:
            fields[key] = tuple(_activation(entry, f"{where}, {key}") for entry in list_of(fields[key], f"{where}, {key}"))
            if not fields[key]:
                raise WrongLayoutError(f"{where}: {key} are empty, expected the functions that the cell has")
    if "clips" in fields:
        fields["clips"] = [_clip(entry, f"{where}, clips") for entry in list_of(fields["clips"], f"{where}, clips")]
    constants = fields.get("constants", {})
    if not isinstance(constants, dict) or not all(map(_finite, constants.values())) or set(constants) - {*GATES[kind]}:
        listed = ", ".join(GATES[kind])
        raise WrongLayoutError(f"{where}: constants are {constants!r}, expected a number for a gate ({listed}): {{ f = 1.0 }}")
    for key, choices in {**_CHOICES, "chosen": ("f",) if kind == "lstm" else ()}.items():
        parts = fields.get(key, [])
        for word in [parts] if isinstance(parts, str) else parts:
            if word not in choices:
                raise WrongLayoutError(f"{where}: {key} has {word!r}, expected some of {', '.join(choices)}")
    for key in ("biases", "dtypes", "joins"):
        if fields.get(key) == []:
            raise WrongLayoutError(f"{where}: {key} are empty, expected some of {', '.join(_CHOICES[key])}")
    directions = fields.get("directions", 2)
    if type(directions) is not int or directions not in (1, 2):
        raise WrongLayoutError(f"{where}: directions are {directions!r}, expected 1 or 2")
    changed: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    return Holds(**{"own_functions": True, **changed})


def _activation(entry: object, where: str) -> str | Activation:
    if (
        isinstance(entry, dict)
        and entry.keys() <= {"name", "alpha", "beta"}
        and entry.get("name") in list(ACTIVATION_DEFAULTS)
        and all(_finite(entry[key]) for key in entry.keys() - {"name"})
    ):
        return Activation(**entry)
    if entry == "any" or entry in list(ACTIVATION_DEFAULTS):
        return str(entry)
    raise WrongLayoutError(f"{where}: unknown function {entry!r}, expected one of {', '.join(ACTIVATION_DEFAULTS)}, or any")


def _clip(entry: object, where: str) -> str | Clip:
    """Return the kind of a clip whose bounds are arguments, or a clip with its bounds."""
    if entry in _CLIPS:
        return str(entry)
    if (
        isinstance(entry, dict)
        and entry.keys() == {"kind", "low", "high"}
        and entry["kind"] in list(_CLIPS)
        and _finite(entry["low"])
        and _finite(entry["high"])
        and entry["low"] <= entry["high"]
    ):
        return Clip(entry["kind"], float(entry["low"]), float(entry["high"]))
    raise WrongLayoutError(
        f"{where} has {entry!r}, expected some of {', '.join(_CLIPS)}, or a clip with fixed bounds: "
        '{ kind = "cell", low = -3.0, high = 3.0 }'
    )


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
