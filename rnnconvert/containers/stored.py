"""What a container holds once it is open: arrays by name, and what else the file says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rnnconvert.core.arrays import Array


@dataclass(frozen=True)
class Stored:
    """The contents of a file.

    arrays    every array by the name it has in the file, in the file's order; views of the mapped
              file wherever that is possible
    metadata  what else the file says, in the file's own words (a model's configuration, versions)
    """

    arrays: dict[str, Array]
    metadata: dict[str, Any] = field(default_factory=dict)
