"""What is found, case by case, and the lines of JSON in which a part's process hands it over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

EQUAL, DIFFERENT, REFUSED, FAILED, SKIPPED, UNRUN, MEASURED, ANSWERED, OPEN = (
    "equal", "different", "refused", "failed", "skipped", "not run", "measured", "answered", "open",
)  # fmt: skip
BAD = (DIFFERENT, FAILED)
"""The verdicts that make the whole run fail; what did not run for want of time is named, and proves nothing."""


class Refusal(Exception):
    """A library says that it does not do this."""


class Absence(Exception):
    """Something is missing here: the case is skipped, and the message names it."""


@dataclass
class Record:
    """One case of one part.

    why      what went wrong, or what is missing
    ratio    the largest error in units of what is allowed: it passes up to 1
    largest  the largest error
    drift    the same ratio to what was kept before; None where nothing was
    facts    numbers and words for the report: seconds, answers, versions
    """

    part: str
    case: str
    verdict: str
    why: str = ""
    ratio: float | None = None
    largest: float | None = None
    drift: float | None = None
    seconds: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)


class Journal:
    """A part's results as lines of a file: {"start": case} when a case begins, and its record when it is over.

    A process that is killed leaves the lines before, and the last start names what it was doing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, line: Mapping[str, Any]) -> None:
        """Add one line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def start(self, case: str) -> None:
        """Note that a case begins."""
        self.write({"start": case})

    def add(self, record: Record) -> None:
        """Note that a case is over."""
        self.write(asdict(record))

    def lines(self) -> list[dict[str, Any]]:
        """Every whole line so far."""
        entries = []
        if self.path.is_file():
            for text in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    entries.append(json.loads(text))
                except ValueError:  # the process was killed while it wrote this line
                    continue
        return entries

    def records(self) -> list[Record]:
        """Every case that is over."""
        return [Record(**line) for line in self.lines() if "verdict" in line]

    def begun(self) -> str:
        """The case that is running; "" between two cases."""
        over = {record.case for record in self.records()}
        started = [line["start"] for line in self.lines() if "start" in line]
        return started[-1] if started and started[-1] not in over else ""
