"""The modules in the rooms of the frameworks, found by looking; importing this module takes hardly any time."""

from __future__ import annotations

import fnmatch
import functools
import importlib
import os


@functools.cache
def rooms(part: str) -> tuple[str, ...]:
    """Return the full names of the modules that are this part of a framework's room, by a pattern of fixed names."""
    result = []
    for room, modules in _listed().items():
        result += [f"rnnconvert.formats.{room}.{name}" for name in modules if fnmatch.fnmatchcase(name, part)]
        if not modules and part == "layouts*":
            result.append(f"rnnconvert.formats.{room}")
    return tuple(result)


@functools.cache
def _listed() -> dict[str, tuple[str, ...]]:
    """Return the names of the modules in each room; a room of one file has none."""
    names_by_room: dict[str, tuple[str, ...]] = {}
    for path in importlib.import_module("rnnconvert.formats").__path__:
        for room in os.scandir(path):
            if room.is_dir():
                with os.scandir(room) as files:  # half the time of a Path's listing, at each start
                    names = {file.name.removesuffix(".py") for file in files if file.name.endswith(".py")}
                if "__init__" in names:
                    names_by_room[room.name] = tuple(sorted(names - {"__init__"}))
            elif room.name.endswith(".py") and room.name != "__init__.py":
                names_by_room[room.name.removesuffix(".py")] = ()
    return dict(sorted(names_by_room.items()))
