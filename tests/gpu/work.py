"""What a part's process is given, and what it hands back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rnnconvert.core.arrays import Array
from tests.gpu import records


@dataclass(frozen=True)
class Work:
    """part     its name
    device   "cuda"; or "cpu", where stand-ins run in the GPU's place
    folder   where files may be made
    cudnn    a folder of cuDNN's libraries; "" for those that are installed
    facts    what `machine` found
    """

    part: str
    device: str
    folder: Path
    cudnn: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stands_in(self) -> bool:
        return self.device == "cpu"


@dataclass
class Outcome:
    """What a case gives; arrays are kept by name."""

    verdict: str
    why: str = ""
    ratio: float | None = None
    largest: float | None = None
    arrays: dict[str, Array] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_ratio(cls, ratio: float, largest: float, where: str = "", **more: Any) -> Outcome:
        """Equal or different, as far as rounding explains."""
        passed = ratio <= 1
        why = "" if passed else f"{where} is off by {largest:.3g}, {ratio:.3g} times what rounding explains"
        return cls(records.EQUAL if passed else records.DIFFERENT, why, ratio, largest, **more)


@dataclass(frozen=True)
class Case:
    """A name that is the same on every machine, and what is to be done."""

    name: str
    run: Callable[[], Outcome]
