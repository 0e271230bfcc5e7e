"""The old name of rnnconvert.formats.keras.module."""

from __future__ import annotations

import warnings

from rnnconvert.formats.keras.module import *  # noqa: F403 - every name that was here

warnings.warn(
    "rnnconvert.modules.keras is now rnnconvert.formats.keras.module; the old name goes with the next release",
    DeprecationWarning,
    stacklevel=2,
)
