"""Files with a few bytes changed and often an end cut off: every reader ends in a model or in an error of ours."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import rnnconvert as rc
from rnnconvert.core.errors import UnreadableError


def damaged(content: bytes, count: int, letters: Sequence[int]) -> Iterator[bytes]:
    """Yield that many copies of a file's bytes, each with some replaced by these letters, and one in three cut."""
    rng = random.Random(1)
    for _ in range(count):
        copy = bytearray(content)
        for place in rng.sample(range(len(copy)), rng.choice((1, 2, 5))):
            copy[place] = rng.choice(letters)
        yield bytes(copy[: rng.choice((len(copy), len(copy), rng.randrange(len(copy))))])


def endings(path: Path, format: str | None = None, count: int = 150, letters: Sequence[int] = range(256)) -> set[str]:
    """How readings of a damaged file end: "read", "unreadable"; any other error is raised."""
    original, ends = path.read_bytes(), set()
    for content in damaged(original, count, letters):
        path.write_bytes(content)
        try:
            rc.load(path, format)
            ends.add("read")
        except UnreadableError:
            ends.add("unreadable")
    return ends


def unreadable(read: Callable[[Path], object], path: Path, most: int) -> bool:
    """Whether a damaged file is unreadable; whatever it is, reading it never takes more than that many bytes of memory."""
    tracemalloc.start()
    try:
        read(path)
        return False
    except UnreadableError:
        return True
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < most
