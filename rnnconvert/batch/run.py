"""Convert many files in several processes: whatever becomes of one, the others go on, and what is done is not done again."""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import importlib
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rnnconvert.batch import stores
from rnnconvert.batch.journal import Entry, Journal, key_of
from rnnconvert.batch.manifest import Item
from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.errors import MissingPackageError, RnnConvertError, UnreadableError, UsageError
from rnnconvert.verification.convert import convert

WORST_FIRST = (70, 1, 3, 2, 4, 5, 0)
"""Exit codes, the worst news first."""
_DEATHS = 2
"""How often a worker may die at a file before the file is given up."""
_AHEAD = 4
"""How many files wait for each worker: a journal of millions is not held by the pool."""

Seen = Callable[[Entry, int, int], None]


@dataclass(frozen=True)
class Done:
    """What became of a batch.

    entries  of every file, in the order of the manifest
    resumed  how many were done before
    seconds  how long it took
    """

    entries: tuple[Entry, ...]
    resumed: int
    seconds: float

    @property
    def code(self) -> int:
        """The exit code: that of the worst."""
        return min((entry.code for entry in self.entries), key=WORST_FIRST.index, default=0)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it."""
        files = [
            {key: value for key, value in vars(entry).items() if key not in ("key", "state", "written")}
            for entry in self.entries
        ]
        counts = {str(code): count for code, count in sorted(Counter(entry.code for entry in self.entries).items())}
        return {
            "exit_code": self.code,
            "counts": counts,
            "resumed": self.resumed,
            "seconds": self.seconds,
            "files": files,
        }


@dataclass(frozen=True)
class Workers:
    """Who works.

    jobs  how many files at a time; 1 for this process alone, unless a cluster works
    on    a cluster, "dask://HOST:PORT"; "" for processes of this machine
    """

    jobs: int = 1
    on: str = ""

    def pool(self, jobs: int) -> contextlib.AbstractContextManager[concurrent.futures.Executor]:
        """Return what runs functions. Raises MissingPackageError, UsageError for a cluster that cannot be reached."""
        if not self.on:
            return concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))
        return _cluster(self.on)


@contextlib.contextmanager
def _cluster(address: str) -> Iterator[concurrent.futures.Executor]:
    kind, _, place = address.partition("://")
    if kind != "dask" or not place:
        raise UsageError(f"--on {address}: expected dask://HOST:PORT, the address of a Dask scheduler")
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise MissingPackageError("distributed", "work on a Dask cluster") from None
    try:
        client = distributed.Client(f"tcp://{place}", timeout=20)
    except (OSError, ValueError) as error:
        raise UsageError(f"--on {address}: no scheduler answers there: {error}") from None
    with client, client.get_executor(pure=False) as executor:
        yield executor


def run(
    items: Sequence[Item], journal: Journal, workers: Workers, options: dict[str, Any],
    seen: Seen = lambda entry, done, total: None,
) -> Done:  # fmt: skip
    """Convert items, and return what became of each.

    workers  who converts
    options  `verify` and `strict`, as `convert` takes them
    seen     is called with each entry, how many are done, and how many there are
    """
    start = time.monotonic()
    keys = [key_of(item, options) for item in items]
    left = [item for item, key in zip(items, keys, strict=True) if not _is_done(journal.entries.get(key), item)]
    resumed = len(items) - len(left)
    for number, (item, entry) in enumerate(_worked(left, workers, options), 1):
        made = replace(entry, key=key_of(item, options))
        journal.add(made)
        seen(made, resumed + number, len(items))
    return Done(tuple(journal.entries[key] for key in keys), resumed, time.monotonic() - start)


def _is_done(entry: Entry | None, item: Item) -> bool:
    """Return whether a journal has this file as written, and neither it nor its source has changed."""
    if entry is None or entry.code != 0:
        return False
    with contextlib.suppress(RnnConvertError):
        if stores.state(item.target) != entry.written and (
            stores.is_url(item.target) or stores.digest(Path(item.target)) != entry.target_hash
        ):
            return False
        if stores.state(item.source) == entry.state:
            return True
        return bool(entry.source_hash) and stores.digest(Path(item.source)) == entry.source_hash
    return False


def _worked(items: Sequence[Item], workers: Workers, options: dict[str, Any]) -> Iterator[tuple[Item, Entry]]:
    if workers.jobs == 1 and not workers.on:
        for item in items:
            # In a context of its own: what the files before it were charged with is not charged to it.
            yield item, contextvars.Context().run(work, item, options)
        return
    waiting = list(reversed(items))
    deaths: Counter[Item] = Counter()
    alone: list[Item] = []
    while waiting or alone:
        # A file at which a worker died is tried with no other beside it: it may be the one that kills.
        now, count = ([alone.pop()], 1) if alone else (waiting, workers.jobs)
        for item, entry in _pooled(now, workers, count, options):
            if entry is not None:
                yield item, entry
                continue
            deaths[item] += 1
            if count == 1 and deaths[item] >= _DEATHS:
                yield (
                    item,
                    Entry(
                        "", item.source, item.target, 70, "a worker died at this file, twice: out of memory, or killed"
                    ),
                )
            else:
                alone.append(item)


def _pooled(
    waiting: list[Item], workers: Workers, jobs: int, options: dict[str, Any]
) -> Iterator[tuple[Item, Entry | None]]:
    """Yield what became of items, taken from a list's end; None for each that was under way when a worker died."""
    with workers.pool(jobs) as pool:
        running: dict[concurrent.futures.Future[Entry], Item] = {}
        broken = False
        while running or (waiting and not broken):
            while waiting and not broken and len(running) < jobs * _AHEAD:
                try:
                    future = pool.submit(work, waiting[-1], options)
                except BrokenProcessPool:
                    broken = True
                    break
                running[future] = waiting.pop()
            finished, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in finished:
                item = running.pop(future)
                try:
                    yield item, future.result()
                except BrokenProcessPool:
                    broken = True
                    yield item, None
                except Exception as error:  # a cluster gave the file up
                    if not workers.on:
                        raise
                    yield (
                        item,
                        Entry(
                            "",
                            item.source,
                            item.target,
                            70,
                            f"the cluster gave it up: {type(error).__name__}: {error}"[:300],
                        ),
                    )


def work(item: Item, options: dict[str, Any]) -> Entry:
    """Convert one file; whatever goes wrong is what the entry says."""
    start = time.monotonic()
    entry = Entry("", item.source, item.target, 0)
    if item.wrong:
        return replace(entry, code=2, message=item.wrong)
    try:
        entry = _converted(item, entry, options)
    except RnnConvertError as error:
        entry = replace(entry, code=error.exit_code, message=str(error))
    except MemoryError:
        entry = replace(entry, code=3, message="out of memory")
    except OSError as error:
        entry = replace(entry, code=2, message=f"{error.filename or item.target}: {error.strerror or error}")
    except Exception as error:
        entry = replace(entry, code=70, message=f"a fault of rnnconvert: {type(error).__name__}: {error}")
    return replace(entry, seconds=round(time.monotonic() - start, 3))


def _converted(item: Item, entry: Entry, options: dict[str, Any]) -> Entry:
    before = stores.state(item.source)
    with stores.fetched(item.source, item.settings) as local, _target(item.target) as target:
        source_hash = "" if stores.is_url(item.source) else stores.digest(local)
        convert(
            local, target, source_format=item.read_as or None, target_format=item.to or None, layers=item.layers,
            dtype=item.dtype or None, settings=item.settings, force=True, **options,
        )  # fmt: skip
        target_hash = stores.digest(target)
        if stores.is_url(item.target):
            stores.put(target, item.target)
    if stores.state(item.source) != before:
        raise UnreadableError(item.source, "it changed while it was read", "Run the same command again.")
    return replace(
        entry, state=before, written=stores.state(item.target), source_hash=source_hash, target_hash=target_hash
    )  # fmt: skip


@contextlib.contextmanager
def _target(name: str) -> Iterator[Path]:
    """Yield the file on this disk that a target is written to first."""
    if not stores.is_url(name):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path
        return
    with new_folder() as folder:
        yield folder / name.rpartition("/")[2]
