"""How work grows with what a file holds: `python -m fuzz.doubling` doubles it, for every reader and writer.

Two measures look for what is quadratic. The lines that Python runs are counted: they are the same on any machine, however busy.
Processor time sees work inside one call, too (`list.index`, `in` of a list), and is compared over a factor of eight, the best of several.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import rnnconvert as rc
import rnnconvert.formats
from fuzz.execution import put
from fuzz.growth import grown
from fuzz.seeds import Seed
from rnnconvert.core.errors import RnnConvertError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import adapter
from rnnconvert.files.options import Options
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import BOTH, PLAIN, random_stack

MOST_LINES, MOST_TIME = 1.25, 1.45
"""What an exponent may be: that of lines, where sorting counts, and that of time, where larger arrays leave the processor's caches."""

TRIES = 3
"""So often is measured again what seems too much."""

LEAST = 500
"""Fewer lines more than for half as many are nothing."""

Work = Callable[[], object]
Prepare = Callable[[Path, int], Work]
"""Makes what is there n times, in an empty folder; returns what is to be measured."""


@dataclass(frozen=True)
class Case:
    """Something that a reader or a writer meets n times.

    name     of the format, the file and what is doubled
    prepare  makes it
    first    the smallest n
    last     the largest
    """

    name: str
    prepare: Prepare
    first: int
    last: int


@dataclass(frozen=True)
class Growth:
    """How work grew.

    n      the largest
    time   seconds of processor time for it
    lines  the exponent of lines
    times  the exponent of time
    end    how the work ended: "" or the error's kind
    """

    n: int
    time: float
    lines: float
    times: float
    end: str

    @property
    def quadratic(self) -> bool:
        """Whether work grows faster than what is there."""
        return self.lines > MOST_LINES or self.times > MOST_TIME

    def __str__(self) -> str:
        return f"n={self.n} {self.time:.2f} s, lines {self.lines:.2f}, time {self.times:.2f} {self.end}"


# What grows ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Small:
    """The smallest file of a format: its layer, the ending of its name, and what its reader makes of it."""

    format: str
    ending: str
    stack: Recurrent
    read: rc.Checkpoint


Layers = Callable[[Small, int], rc.Checkpoint]


def _named(stack: Recurrent, names: Sequence[str]) -> rc.Checkpoint:
    return rc.Checkpoint("memory", "memory", {name: stack.replace(name=name) for name in names})


def _layers(small: Small, n: int) -> rc.Checkpoint:
    return _named(small.stack, [f"rnn{number}" for number in range(n)])


def _depth(small: Small, n: int) -> rc.Checkpoint:
    return _named(small.stack.replace(layers=small.stack.layers * n), ["rnn"])


def _alike(small: Small, n: int) -> rc.Checkpoint:
    """Return layers whose names are one where only letters count."""
    return _named(small.stack, [f"a{number:020b}".replace("0", "-").replace("1", " ") for number in range(n)])


def _others(small: Small, n: int) -> rc.Checkpoint:
    places = all(name.isdecimal() for name in small.read.arrays)  # of arrays without names
    names = [str(len(small.read.arrays) + number) if places else f"dense_{number}/kernel" for number in range(n)]
    arrays = {name: np.ones((2, 2), np.float32) for name in names}
    return small.read.replace(tensors={**small.read.tensors, **arrays})


def _long(small: Small, n: int) -> rc.Checkpoint:
    return _named(small.stack, ["r" * n])


def _slashes(small: Small, n: int) -> rc.Checkpoint:
    return _named(small.stack, ["/".join("r" * n)])


def _dots(small: Small, n: int) -> rc.Checkpoint:
    return _named(small.stack, [".".join("r" * n)])


def _dotted(small: Small, n: int) -> rc.Checkpoint:
    return small.read.replace(tensors={**small.read.tensors, ".".join("r" * n): np.ones((2, 2), np.float32)})


GROWING: dict[str, tuple[Layers, int, int]] = {
    "layers": (_layers, 8, 4096), "layers of one stack": (_depth, 8, 4096), "names alike": (_alike, 8, 4096),
    "other tensors": (_others, 32, 1 << 14), "a long name": (_long, 1 << 10, 1 << 21), "a name of many parts": (_slashes, 1 << 9, 1 << 17),
    "a tensor's name of many dots": (_dotted, 1 << 9, 1 << 15), "a name of many dots": (_dots, 1 << 9, 1 << 17),
}  # fmt: skip
"""What a checkpoint may have n times, by words for it: how it is made, the smallest n and the largest."""


def written() -> Iterator[tuple[str, str]]:
    """Yield the formats that are written, with each of their endings."""
    for card in registry.cards().values():
        yield from ((card.name, ending) for ending in card.written)


def small(format: str, ending: str, folder: Path) -> Small | None:
    """Return the smallest file of that ending; None for an ending that its writer refuses."""
    kinds = dict.fromkeys(layout.kind for layout in adapter(format).layouts(Options()))
    for kind, parts in itertools.product(kinds, (BOTH, PLAIN | {"input_bias"})):
        stack = random_stack(Sizes(kind, 1, 1, parts=parts), 1, np.float32)
        path = folder / f"{kind}{len(parts)}{ending}"
        try:
            rc.save(_named(stack, ["rnn"]), path, format)
            return Small(format, ending, stack, rc.load(path, format))
        except RnnConvertError:
            continue
    return None


def writers(folder: Path, formats: Iterable[tuple[str, str]]) -> Iterator[Case]:
    """Yield what the writers of some formats and endings are asked for, and what their readers then meet."""
    for format, ending in formats:
        inside = folder / f"{format}{ending}"
        inside.mkdir()
        seed = small(format, ending, inside)
        if seed is None:
            continue
        for word, (make, first, last) in GROWING.items():
            for verb, how in (("writing", _writing), ("reading", _READING), ("inspecting", _INSPECTING)):
                yield Case(f"{format} {ending}: {word}: {verb}", how(seed, make), first, last)


def _writing(small: Small, make: Layers) -> Prepare:
    def prepare(folder: Path, n: int) -> Work:
        checkpoint = make(small, n)
        return lambda: rc.save(checkpoint, folder / f"m{small.ending}", small.format, force=True)

    return prepare


def _using(use: Callable[[Path, str], Any]) -> Callable[[Small, Layers], Prepare]:
    """Return what writes layers into a file, to be used then.

    use  takes the file and its format
    """

    def prepared(small: Small, layers: Layers) -> Prepare:
        def prepare(folder: Path, n: int) -> Work:
            path = folder / f"m{small.ending}"
            rc.save(layers(small, n), path, small.format)
            return lambda: use(path, small.format)

        return prepare

    return prepared


_READING = _using(rc.load)
_INSPECTING = _using(lambda path, _: str(rc.inspect(path)))


def readers(seeds: Sequence[Seed], places: int, seed: int) -> Iterator[Case]:
    """Yield files of every kind with something in them n times.

    places  how many places of each are tried
    seed    draws them
    """
    for number, start in enumerate(seeds):
        for place in range(places):
            drawn = random.Random(f"{seed} {number} {place}").randrange(1 << 30)
            yield Case(f"{start.kind} {start.entry} ({start.format}): place {drawn}", _grown(start, drawn), 1 << 6, 1 << 17)


def _grown(seed: Seed, place: int) -> Prepare:
    def prepare(folder: Path, n: int) -> Work:
        path = put(folder / "case", grown(seed.files, place, n), seed.entry)
        return lambda: rc.load(path, seed.format)

    return prepare


# Measuring ----------------------------------------------------------------------------------------------


def measure(case: Case, seconds: float) -> Growth | None:
    """Double what a case has n times, and return how its work grew.

    seconds  what the largest n takes, about; 0 for the count alone

    Returns None for what cannot be made: a name that this format refuses, more than it holds.
    """
    try:
        lines, n, end = _lines(case)
        if not seconds:
            return Growth(n, 0, lines, 0, end)
        return _timed(case, seconds, lines)
    except _RefusedError:
        return None


def _lines(case: Case) -> tuple[float, int, str]:
    """Return the exponent of the lines that are run, without those that are the same for each n; the largest n and its end.

    What begins at some n, as numbers of two digits do, looks quadratic there. What is quadratic does so at every larger n.
    """
    n = case.first
    counts = [_counted(case, n << power) for power in range(3)]
    while True:
        (few, _), (some, _), (many, end) = counts[-3:]
        exponent = math.log2(max(many - some, 1) / max(some - few, 1)) if many - some > LEAST else 0.0
        if exponent <= MOST_LINES or len(counts) == 3 + TRIES:
            return exponent, n << len(counts) - 1, end
        counts.append(_counted(case, n << len(counts)))


def _timed(case: Case, target: float, lines: float) -> Growth:
    n = case.first * 8
    while (measurement := _time(case, n))[0] < target and n < case.last:
        n *= 2
    seconds, end = measurement
    least, exponent = math.inf, 0.0
    for number in range(TRIES):
        least = min(least, *(_time(case, n // 8)[0] for _ in range(3)))
        exponent = math.log(max(seconds, 1e-4) / max(least, 1e-4), 8)
        if exponent <= MOST_TIME or number == TRIES - 1:
            break
        seconds = min(seconds, _time(case, n)[0])
    return Growth(n, seconds, lines, exponent, end)


class _RefusedError(Exception):
    """What was to be measured cannot be made."""


def _prepared(case: Case, n: int, use: Callable[[Work], tuple[float, str]]) -> tuple[float, str]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            work = case.prepare(Path(folder), n)
        except RnnConvertError:
            raise _RefusedError from None
        return use(work)


def _ended(work: Work) -> str:
    try:
        work()
    except RnnConvertError as error:
        return error.kind
    return ""


def _time(case: Case, n: int) -> tuple[float, str]:
    def timed(work: Work) -> tuple[float, str]:
        gc.collect()
        gc.disable()
        try:
            start = time.process_time()
            end = _ended(work)
            return time.process_time() - start, end
        finally:
            gc.enable()

    return _prepared(case, n, timed)


def _counted(case: Case, n: int) -> tuple[float, str]:
    def counted(work: Work) -> tuple[float, str]:
        lines = itertools.count()

        def trace(frame: FrameType, *_: object) -> Any:
            if frame.f_code.co_filename.startswith(_OURS):
                next(lines)
                return trace
            return None

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            end = _ended(work)
        finally:
            sys.settrace(before)
        return float(next(lines)), end

    return _prepared(case, n, counted)


_OURS = tuple(str(Path(folder).resolve()) for package in (rc, rnnconvert.formats) for folder in package.__path__)


def main(words: Sequence[str] | None = None) -> int:
    from fuzz import seeds
    from rnnconvert.containers import apart

    parser = argparse.ArgumentParser(prog="python -m fuzz.doubling", description=__doc__)
    parser.add_argument("--target", type=float, default=0.5, help="seconds that the largest n takes; 0 counts lines alone")
    parser.add_argument("--places", type=int, default=2, help="how many places of each file are grown")
    parser.add_argument("--seed", type=int, default=0, help="draws the places")
    parser.add_argument("--only", nargs="*", default=(), help="parts of the names of cases")
    parser.add_argument("--figures", help="a file for what was measured")
    arguments = parser.parse_args(words)
    apart.is_possible = lambda: False  # HDF5 is read in this process, whose time is measured
    measured: list[tuple[str, Growth]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("seeds", "small"):
            (folder / part).mkdir()
        files = seeds.build(folder / "seeds", corpus=False) if arguments.places else []
        for case in itertools.chain(writers(folder / "small", written()), readers(files, arguments.places, arguments.seed)):
            if not all(word in case.name for word in arguments.only):
                continue
            growth = measure(case, arguments.target)
            if growth is not None:
                measured.append((case.name, growth))
                print(f"{'QUADRATIC ' if growth.quadratic else ''}{case.name}: {growth}", flush=True)
    if arguments.figures:
        Path(arguments.figures).write_text(json.dumps({name: asdict(growth) for name, growth in measured}), encoding="utf-8")
    return int(any(growth.quadratic for _, growth in measured))


if __name__ == "__main__":
    sys.exit(main())
