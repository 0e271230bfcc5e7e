"""A fault that explains the outputs found, in words."""

from __future__ import annotations

from dataclasses import dataclass

from rnnconvert.diagnosis.comparing import Way
from rnnconvert.judging.measure import Deviation


@dataclass(frozen=True)
class Explanation:
    """Faults that explain all answers, and how far their outputs are from those found."""

    faults: Way
    off: Deviation

    @property
    def name(self) -> str:
        """The faults by name."""
        return " and ".join(fault.name for fault in self.faults)

    @property
    def sentence(self) -> str:
        """The completion of "equal if"."""
        return " and ".join(fault.sentence for fault in self.faults)
