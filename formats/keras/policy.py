"""In which element types Keras layers hold their weights and compute: their policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rnnconvert.formats.keras.run_exact import MIXED


def policy_of(config: Mapping[str, Any]) -> str:
    """Return the policy that a layer's configuration states: "float32", "mixed_float16"."""
    stated = config.get("dtype")
    while isinstance(stated, Mapping):
        inner = stated.get("config")
        stated = inner.get("name") if isinstance(inner, Mapping) else str(stated.get("class_name"))
    return str(stated or "float32")


def in_half_precision(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the notes on layers that compute in a coarser type than their weights have, line by line."""
    policies = sorted({policy_of(config) for config in configs} & {*MIXED})
    return [f"layers compute in half precision there ({policy}), and in float32 here, the type of their weights" for policy in policies]
