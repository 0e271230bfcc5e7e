"""Convert many files in several processes: one that fails stops no other, and what is done is not done again."""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rnnconvert.batch import stores, uploads
from rnnconvert.batch.journal import Journal, JournalEntry, key_of
from rnnconvert.batch.manifest import Item
from rnnconvert.batch.outcomes import KIND, VERSION
from rnnconvert.batch.work import file_state, work
from rnnconvert.batch.workers import INTERVAL, Pool, Workers
from rnnconvert.containers.asking import is_url
from rnnconvert.containers.temporary import sweep
from rnnconvert.core import remedies
from rnnconvert.core.errors import RnnConvertError, UnreadableError, UsageError
from rnnconvert.core.remedies import Flag
from rnnconvert.running.kept import keeping

WORST_FIRST = (70, 1, 74, 3, 2, 4, 7, 5, 0)
"""Exit codes, the most serious first."""
_DEATHS = 2
"""How often a worker may die at a file that it works at alone before the file is given up."""
_DIED = "a worker died at this file, twice while it was converted alone: out of memory, or killed"
_AHEAD = 4
"""How many tasks wait for each worker: a manifest of millions is not held by the pool."""
_TASK = 0.5
"""How many seconds a task should take: so small files are handed out many at a time."""
_MOST_IN_TASK = 256

Seen = Callable[[JournalEntry, int, int], None]


@dataclass(frozen=True)
class BatchResult:
    """The outcome of a batch.

    entries  an entry for every file, in the order of the manifest
    resumed  how many were done before
    seconds  how long it took
    """

    entries: tuple[JournalEntry, ...]
    resumed: int
    seconds: float

    @property
    def idle(self) -> list[str]:
        """Settings for all files that none of those converted asked for."""
        converted = [entry.unasked for entry in self.entries if not entry.code and not entry.without_layers]
        return [text for text in (converted[0] if converted else ()) if all(text in unasked for unasked in converted)]

    @property
    def code(self) -> int:
        """The exit code: that of the worst, an idle setting among them; 3 where no file has a recurrent layer."""
        if self.entries and all(entry.without_layers for entry in self.entries):
            return UnreadableError.exit_code
        codes = [*(entry.code for entry in self.entries), *(UsageError.exit_code for _ in self.idle)]
        return min(codes, key=WORST_FIRST.index, default=0)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it."""
        files = [
            {key: value for key, value in vars(entry).items() if key not in ("key", "state", "written", "beside")} for entry in self.entries
        ]
        counts = {
            str(code): count for code, count in sorted(Counter(entry.code for entry in self.entries if not entry.without_layers).items())
        }
        return {
            KIND: VERSION,
            "exit_code": self.code,
            "counts": counts,
            "without_layers": sum(entry.without_layers for entry in self.entries),
            "idle_settings": self.idle,
            "resumed": self.resumed,
            "seconds": self.seconds,
            "files": files,
        }


def run(
    items: Sequence[Item], journal: Journal, workers: Workers, options: dict[str, Any], seen: Seen = lambda entry, done, total: None
) -> BatchResult:
    """Convert items, and return what became of each.

    workers  who converts
    options  `verify`, `strict` and `assume_defaults`, as `convert` takes them
    seen     is called with each entry, how many are done, and how many there are
    """
    start = time.monotonic()
    keys = [key_of(item, options) for item in items]
    left = _left(items, [journal.entries.get(key) for key in keys])
    resumed = len(items) - len(left)
    done = resumed
    for outcomes in _worked(left, workers, options):
        entries = [
            replace(entry, key=key_of(item, options), source=item.source, target=item.target, message=item.as_named(entry.message))
            for item, entry in outcomes
        ]
        journal.add(*entries)
        for entry in entries:
            done += 1
            seen(entry, done, len(items))
    # Workers that were killed leave unfinished files, and those that replaced them may have had nothing to write there.
    for folder in {Path(item.target).parent for item in left if not is_url(item.target)}:
        sweep(folder)
    uploads.sweep(item.target for item in left)
    return BatchResult(tuple(journal.entries[key] for key in keys), resumed, time.monotonic() - start)


def _left(items: Sequence[Item], entries: Sequence[JournalEntry | None]) -> list[Item]:
    """Return the items that are to be converted."""
    written = [item for item, entry in zip(items, entries, strict=True) if entry is not None and entry.code == 0]
    urls = {name for item in written for name in (item.source, item.target) if is_url(name)}
    states = stores.states(urls)
    return [item for item, entry in zip(items, entries, strict=True) if not _is_done(entry, item, states)]


def _is_done(entry: JournalEntry | None, item: Item, states: Mapping[str, str]) -> bool:
    """Return whether a journal has this file as written, and neither it nor its source has changed.

    states  the states of files in listings; a file that seems to have changed is asked for again
    """
    if entry is None or entry.code != 0:
        return False
    with contextlib.suppress(RnnConvertError):
        files = entry.files or [item.target]
        if (
            not entry.without_layers
            and not _are_as_they_were(files, entry.written, states)
            and (is_url(item.target) or stores.digest(*map(Path, files)) != entry.target_hash)
        ):
            return False
        if any(stores.state(name) != state for name, state in entry.beside.items()):
            return False
        if _are_as_they_were((item.source,), entry.state, states):
            return True
        return bool(entry.source_hash) and stores.digest(Path(item.source)) == entry.source_hash
    return False


def _are_as_they_were(names: Sequence[str], before: str, states: Mapping[str, str]) -> bool:
    return file_state(names, states) == before or file_state(names) == before


Outcome = tuple[Item, JournalEntry | None]
"""The outcome of an item; None if a worker died while it was under way, so that nobody knows."""
_Running = dict["concurrent.futures.Future[list[JournalEntry]]", list[Item]]
"""The items of each task that is under way."""


def _worked(items: Sequence[Item], workers: Workers, options: dict[str, Any]) -> Iterator[list[tuple[Item, JournalEntry]]]:
    """Yield the outcomes of items, in groups as they are finished."""
    if workers.jobs == 1 and not workers.on:
        with keeping():
            for item in items:
                yield [(item, entry) for entry in work_several([item], options)]
        return
    waiting = list(reversed(items))
    deaths: Counter[Item] = Counter()
    alone: list[Item] = []
    while waiting or alone:
        # A file at which a worker died is tried with no other beside it: it may be the one that kills.
        single = bool(alone)
        for outcomes in _pooled(alone if single else waiting, workers, single, options):
            finished = [(item, entry) for item, entry in outcomes if entry is not None]
            for item in [item for item, entry in outcomes if entry is None]:
                deaths[item] += single  # of several files nobody knows at which the worker died
                if deaths[item] >= _DEATHS:
                    finished.append((item, JournalEntry("", item.source, item.target, 70, _DIED)))
                else:
                    alone.append(item)
            if finished:
                yield finished


def _pooled(waiting: list[Item], workers: Workers, single: bool, options: dict[str, Any]) -> Iterator[list[Outcome]]:
    """Yield the outcomes of items, taken from a list's end; when a worker dies, of the items under way, and no more.

    single  one at a time

    Raises UsageError for a cluster that is gone.
    """
    with workers.pool(1 if single else workers.jobs) as pool:
        running: _Running = {}
        pace = _Pace()
        broken = False
        while running or (waiting and not broken):
            if waiting and not broken:
                broken = not _handed_out(waiting, running, pool, workers, None if single else pace, options)
            finished, _ = concurrent.futures.wait(running, INTERVAL, concurrent.futures.FIRST_COMPLETED)
            outcomes: list[Outcome] = []
            if not finished and (error := _absence(pool)):
                raise _gone(workers, error)  # a task that was handed out while a cluster went away may never end
            for future in finished:
                group = running.pop(future)
                try:
                    entries = future.result()
                except (BrokenProcessPool, concurrent.futures.CancelledError):  # a cluster whose scheduler is gone cancels all
                    broken = True
                    outcomes += [(item, None) for item in group]
                except Exception as error:  # each cluster has errors of its own
                    if not workers.on:
                        raise
                    absent = _absence(pool) is not None
                    broken |= absent
                    outcomes += ((item, None) for item in group) if absent else _given_up(group, single, error)
                else:
                    pace.took(entries)
                    outcomes += zip(group, entries, strict=True)
            yield outcomes


def _handed_out(waiting: list[Item], running: _Running, pool: Pool, workers: Workers, pace: _Pace | None, options: dict[str, Any]) -> bool:
    """Hand items out, taken from a list's end, until enough are under way; return whether the workers still take any.

    pace  how many make a task; None for one item at a time

    Raises UsageError for a cluster that is gone.
    """
    try:
        most = 1 if pace is None else pool.width() * _AHEAD
        while waiting and len(running) < most:
            size = 1 if pace is None else pace.group(len(waiting), most)
            group = waiting[: -size - 1 : -1]
            running[pool.executor.submit(work_several, [item.absolute for item in group], options)] = group
            del waiting[-size:]
    except BrokenProcessPool:
        return False
    except Exception as error:  # each cluster has errors of its own
        if not workers.on:
            raise
        if not running:
            raise _gone(workers, error) from None
        return False
    return True


def _absence(pool: Pool) -> Exception | None:
    """Return the error of a cluster that is gone; None where those who work are still there."""
    try:
        pool.ask()
    except Exception as error:  # the errors of Dask, Ray and Spark share no class
        return error
    return None


def _gone(workers: Workers, error: Exception) -> UsageError:
    return UsageError(f"{Flag('on', workers.on)}: the cluster answers no more: {type(error).__name__}: {error}"[:300])


def _given_up(group: Sequence[Item], single: bool, error: Exception) -> Iterator[Outcome]:
    """Yield the outcomes of items that a cluster gave up, as it does when workers died at them several times."""
    message = f"the cluster gave it up: {type(error).__name__}: {error}"[:300]
    for item in group:
        yield item, JournalEntry("", item.source, item.target, 70, message) if single or len(group) == 1 else None


class _Pace:
    """How long files take, and so how many of them make up a task that is worth its way to a worker and back."""

    def __init__(self) -> None:
        self._mean = 0.0

    def took(self, entries: Sequence[JournalEntry]) -> None:
        """Take into account how long some files took."""
        mean = sum(entry.seconds for entry in entries) / len(entries)
        self._mean = max(1e-3, mean if not self._mean else 0.8 * self._mean + 0.2 * mean)

    def group(self, waiting: int, tasks: int) -> int:
        """Return how many files the next task has: at the end few, so that no worker is left alone with many."""
        if not self._mean:
            return 1
        return max(1, min(int(_TASK / self._mean), waiting // (2 * tasks), _MOST_IN_TASK))


def work_several(items: Sequence[Item], options: dict[str, Any]) -> list[JournalEntry]:
    """Convert some files, one after another, each as if it were alone."""
    return [contextvars.Context().run(_work_for_the_command_line, item, options) for item in items]


def _work_for_the_command_line(item: Item, options: dict[str, Any]) -> JournalEntry:
    with remedies.of_the_command_line():
        return work(item, options)
