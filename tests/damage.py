"""Files with a few bytes changed and often an end cut off: every reader ends in a model or in an error of ours."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import rnnconvert as rc
from rnnconvert.core.errors import UnreadableError


def damaged(whole: bytes, count: int, letters: Sequence[int]) -> Iterator[bytes]:
    """Yield that many copies of a file's bytes, each with some replaced by these letters, and one in three cut."""
    rng = random.Random(1)
    for _ in range(count):
        one = bytearray(whole)
        for place in rng.sample(range(len(one)), rng.choice((1, 2, 5))):
            one[place] = rng.choice(letters)
        yield bytes(one[: rng.choice((len(one), len(one), rng.randrange(len(one))))])


def endings(path: Path, format: str | None = None, count: int = 150, letters: Sequence[int] = range(256)) -> set[str]:
    """How readings of a damaged file end: "read", "unreadable"; any other error is raised."""
    whole, found = path.read_bytes(), set()
    for content in damaged(whole, count, letters):
        path.write_bytes(content)
        try:
            rc.load(path, format)
            found.add("read")
        except UnreadableError:
            found.add("unreadable")
    return found
