"""Let coverage steer the changes: atheris gives bytes, and they become the decisions of the same mutators."""

from __future__ import annotations

import random
import sys
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuzz import seeds
from fuzz.execution import Limits, bound, changed, execute, put


class Decisions(random.Random):
    """A source of decisions that takes them from bytes, and, when these are used up, from a generator seeded by them."""

    def __init__(self, data: bytes) -> None:
        self._rest = memoryview(data)
        self._after = random.Random(zlib.crc32(data))
        super().__init__(0)

    def getrandbits(self, bits: int) -> int:
        size = (bits + 7) // 8
        if len(self._rest) < size:
            return self._after.getrandbits(bits)
        decision, self._rest = self._rest[:size], self._rest[size:]
        return int.from_bytes(decision, "little") & (1 << bits) - 1

    def random(self) -> float:
        return self.getrandbits(24) / (1 << 24)


def guided(seconds: float, kinds: Sequence[str], limits: Limits, cases: Path | None) -> None:
    """Run atheris until the time is over; it ends the process. It stops at the first finding, which it keeps."""
    import atheris

    with atheris.instrument_imports(include=["rnnconvert"]):
        import rnnconvert.files.convert  # noqa: F401

    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    for name in ("seeds", "case", "out"):
        (folder / name).mkdir()
    every_seed = seeds.build(folder / "seeds", kinds=kinds)
    bound(4 * limits.memory)

    def once(data: bytes) -> None:
        rng: Any = Decisions(data)
        chosen = rng.choice(every_seed)
        path = put(folder / "case", changed(chosen, rng), chosen.entry)
        _, finding = execute(path, rng, chosen.format, folder / "out", limits)
        if finding is not None:
            raise AssertionError(f"{chosen.kind}: {finding.what} at {finding.where}\n{finding.trace}")

    where = [f"-artifact_prefix={cases}/"] if cases is not None else []
    atheris.Setup([sys.argv[0], f"-max_total_time={int(seconds)}", "-max_len=256", "-rss_limit_mb=8192", *where], once)
    atheris.Fuzz()
