"""The old name of rnnconvert.formats.pytorch.module."""

from __future__ import annotations

import warnings

from rnnconvert.formats.pytorch.module import *  # noqa: F403 - every name that was here
from rnnconvert.formats.pytorch.module import ForeignRecurrent as OwnRecurrent  # noqa: F401 - its old name

warnings.warn(
    "rnnconvert.modules.torch is now rnnconvert.formats.pytorch.module; the old name goes with the next release",
    DeprecationWarning,
    stacklevel=2,
)
