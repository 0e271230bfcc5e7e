"""Which tests are slow, as one run of all of them recorded it: a run of the whole suite draws a share of these.

The others, nine in ten, take a fifth of the time. `--slow` runs all, as CI does, and `--record-slow` writes the record anew.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import drawn

SHARE = 10
"""One in so many is drawn."""
SECONDS = 0.5
"""A test is slow whose cases take so long on average."""
RECORD = Path(__file__).with_name("slow.json")


def function(nodeid: str) -> str:
    """Return a test's name without that of its case."""
    return nodeid.partition("[")[0]


def recorded() -> dict[str, float]:
    """Return the seconds that a case of each slow test takes on average."""
    seconds: dict[str, float] = json.loads(RECORD.read_text())
    return seconds


def left_out(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Return which slow tests are not drawn; those of every run are not left out."""
    drawable = [item for item in items if item.get_closest_marker("every_run") is None]
    return {*drawable} - {*drawn.drawn(drawable, -(-len(drawable) // SHARE), "slow")}


def record(reports: Iterable[Any]) -> None:
    """Write down the slow tests of a run, with the set-up that only they need."""
    seconds: dict[str, float] = defaultdict(float)
    cases: Counter[str] = Counter()
    for report in reports:
        if isinstance(report, pytest.TestReport):
            seconds[function(report.nodeid)] += report.duration
            cases[function(report.nodeid)] += report.when == "call"
    means = {name: round(seconds[name] / count, 1) for name, count in sorted(cases.items()) if count and seconds[name] / count >= SECONDS}
    RECORD.write_text(json.dumps(means, indent=0) + "\n")
