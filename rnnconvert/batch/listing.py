"""The states of many files behind URLs by listing their folders: a request tells of a thousand files, not of one."""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from rnnconvert.containers.asking import Store, protocols, state_of

_WORTH = 8
"""How many files of a folder are asked about before it is listed."""
_WORTH_WHOLE = 100
"""The same if a folder can only be listed as a whole, no matter what else is in it."""


def states(urls: Iterable[str]) -> dict[str, str]:
    """Return the `state` of files behind URLs, as far as listings tell them: `stores.state` is to ask for the others."""
    folders: dict[str, dict[str, str]] = {}
    for url in urls:
        if "::" not in url and not url.startswith(("http://", "https://")):  # archives are here, and the web lists nothing
            folders.setdefault(url.rpartition("/")[0], {})[url.rpartition("/")[2]] = url
    states_by_name: dict[str, str] = {}
    for folder, names in folders.items():
        if len(names) < _WORTH:
            continue
        # Not every key may list, and what a listing leaves out is asked for by itself.
        with contextlib.suppress(Exception):
            for name, about in _listed(folder, sorted(names)):
                if name in names:
                    states_by_name[names[name]] = state_of(about)
    return states_by_name


def _listed(folder: str, names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names in a folder with what the store tells about each."""
    store = Store(f"{folder}/")
    path = store.path.rstrip("/")
    if "s3" in protocols(store.files):
        yield from _paged(store, path, names)
    elif len(names) >= _WORTH_WHOLE:
        store.files.invalidate_cache(path)
        for about in store.ask(lambda files, _: files.ls(path, detail=True)):
            yield about["name"].rpartition("/")[2], about
        store.files.invalidate_cache(path)


def _paged(store: Store, folder: str, names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield objects by pages of a thousand, each of which begins at a name: so there are never more pages than names."""
    bucket, prefix, _ = store.files.split_path(folder)
    prefix = f"{prefix}/" if prefix else ""
    at = 0
    while at < len(names):
        before = prefix + names[at][:-1]  # what begins like a name comes before it
        ask = {"Bucket": bucket, "Prefix": prefix, "Delimiter": "/", "StartAfter": before}
        page = store.ask(lambda files, _, ask=ask: files.call_s3("list_objects_v2", **ask))  # type: ignore[misc]
        objects = page.get("Contents", [])
        for entry in objects:
            yield entry["Key"][len(prefix) :], {"size": entry["Size"], "ETag": entry["ETag"]}
        if not page.get("IsTruncated") or not objects:
            return
        at = max(at + 1, bisect.bisect_right(names, objects[-1]["Key"][len(prefix) :]))
