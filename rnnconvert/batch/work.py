"""One file of a batch: converted, and described for the journal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rnnconvert.batch import stores, uploads
from rnnconvert.batch.journal import JournalEntry
from rnnconvert.batch.manifest import Item
from rnnconvert.containers.asking import is_url
from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.errors import RnnConvertError, UnreadableError, UnusedSettingError, WithoutLayersError
from rnnconvert.files.settings import Settings
from rnnconvert.verification.convert import convert


def file_state(names: Sequence[str], states: Mapping[str, str] | None = None) -> str:
    """Return the states of files in one text, as they are or as listings have them."""
    if states is not None:
        return ", ".join(states.get(name, "") for name in names)
    return ", ".join(stores.state(name, fresh=True) for name in names)


def work(item: Item, options: dict[str, Any]) -> JournalEntry:
    """Convert one file; the entry reports anything that goes wrong."""
    start = time.monotonic()
    entry = JournalEntry("", item.source, item.target, 0)
    if item.wrong:
        return replace(entry, code=2, message=item.wrong)
    try:
        entry = _as_asked(item, entry, options)
    except WithoutLayersError as error:
        entry = _without_layers(item, entry, error)
    except RnnConvertError as error:
        entry = replace(entry, code=error.exit_code, message=stores.named_as_asked(str(error), item.source))
    except MemoryError:
        entry = replace(entry, code=3, message="out of memory")
    except OSError as error:
        code = 3 if error.filename == item.source else 2
        entry = replace(entry, code=code, message=f"{error.filename or item.target}: {error.strerror or error}")
    except Exception as error:  # a fault of ours, too, stops no other file
        entry = replace(entry, code=70, message=f"a fault of rnnconvert: {type(error).__name__}: {error}")
    return replace(entry, seconds=round(time.monotonic() - start, 3))


def _without_layers(item: Item, entry: JournalEntry, error: RnnConvertError) -> JournalEntry:
    """Return the outcome of a file that has no recurrent layer: nothing is to be done, unless layers of it are asked for."""
    message = stores.named_as_asked(str(error), item.source)
    if item.layers:
        return replace(entry, code=error.exit_code, message=message)
    state = stores.state(item.source)
    return replace(entry, message=message, state=state, without_layers=True)


def _as_asked(item: Item, entry: JournalEntry, options: dict[str, Any]) -> JournalEntry:
    """Convert one file, without the settings for all files that it does not ask for."""
    unasked: list[str] = []
    while True:
        try:
            return replace(_converted(item, entry, options), unasked=unasked)
        except UnusedSettingError as error:
            text = next((text for text in item.common if text not in unasked and error.place in Settings(settings=[text]).values), None)
            if text is None:
                raise
            unasked.append(text)
            item = replace(item, settings=tuple(setting for setting in item.settings if setting != text))


def _converted(item: Item, entry: JournalEntry, options: dict[str, Any]) -> JournalEntry:
    before = stores.state(item.source, fresh=True)
    with stores.fetched(item.source, item.settings, before) as local, _target(item.target) as target:
        source_hash = "" if is_url(item.source) else stores.digest(local)
        summary = convert(
            local,
            target,
            source_format=item.read_as or None,
            target_format=item.to or None,
            layers=item.layers,
            dtype=item.dtype or None,
            settings=item.settings,
            force=True,
            **options,
        )
        here = [*map(Path, summary.files)]
        files = item.with_files(here)
        target_hash = stores.digest(*here)
        sent = None
        if is_url(item.target):  # the target comes last: what it needs is there before it
            sent = {url: uploads.put(file, url) for file, url in reversed([*zip(here, files, strict=True)])}
        written = file_state(files, sent)
        states_of_files: dict[str, str] = {}
        if not is_url(item.source) and summary.checkpoint is not None:
            states_of_files = {name: stores.state(name) for name in summary.checkpoint.beside}
    if stores.state(item.source, fresh=True) != before:
        raise UnreadableError(item.source, "it changed while it was read", "Run the same command again.")
    return replace(
        entry,
        state=before,
        written=written,
        source_hash=source_hash,
        target_hash=target_hash,
        files=list(files),
        beside=states_of_files,
        left=summary.left_out,
    )


@contextlib.contextmanager
def _target(name: str) -> Iterator[Path]:
    """Yield the file on this disk that a target is written to first."""
    if not is_url(name):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path
        return
    with new_folder() as folder:
        yield folder / name.rpartition("/")[2]
