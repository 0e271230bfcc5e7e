"""What Keras's layers compute with where their configuration states nothing, and the element types that it states: their policy.

Sources: keras 3.15 keras/src/layers/{activations,normalization}, the constructors; ops/nn.py, normalize; layers/merging/dot.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rnnconvert.formats.keras.layouts import BATCH_NORM, GROUP_NORM, LAYER_NORM, RMS_NORM
from rnnconvert.formats.keras.run_exact import MIXED

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "BatchNormalization": {"axis": -1, "momentum": 0.99, **BATCH_NORM.defaults},
    "LayerNormalization": {"axis": -1, **LAYER_NORM.defaults},
    "RMSNormalization": {"axis": -1, **RMS_NORM.defaults},
    "GroupNormalization": {"axis": -1, "groups": 32, **GROUP_NORM.defaults},
    "UnitNormalization": {"axis": -1},
    "Normalization": {"axis": -1},
    "LeakyReLU": {"negative_slope": 0.3},
    "ELU": {"alpha": 1.0},
    "Softmax": {"axis": -1},
    "Concatenate": {"axis": -1},
    "Dot": {"axes": -1},
    "Rescaling": {"scale": 1.0, "offset": 0.0},
}
"""Settings by their classes."""
UNIT_LENGTH = 1e-12
"""The least length that a UnitNormalization divides by."""


def policy_of(config: Mapping[str, Any], default: str = "float32") -> str:
    """Return the policy that a layer's configuration states: "float32", "mixed_float16"."""
    stated = config.get("dtype")
    while isinstance(stated, Mapping):
        inner = stated.get("config")
        stated = inner.get("name") if isinstance(inner, Mapping) else str(stated.get("class_name"))
    return str(stated or default)


def in_half_precision(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the notes on layers that compute in a coarser type than their weights have, line by line."""
    policies = sorted({policy_of(config) for config in configs} & {*MIXED})
    return [f"layers compute in half precision there ({policy}), and in float32 here, the type of their weights" for policy in policies]
