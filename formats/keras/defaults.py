"""Defaults of Keras 3's layers for settings that a configuration does not state, and the numbers that stand in their code.

Sources: keras 3.15 keras/src/layers/{activations,normalization}, the constructors; ops/nn.py, normalize; layers/merging/dot.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnnconvert.formats.keras.layouts import BATCH_NORM, GROUP_NORM, LAYER_NORM, RMS_NORM

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
DOT_LENGTH = 1e-7
"""The least length that a Dot which normalizes divides by."""
