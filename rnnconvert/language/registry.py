"""The rooms of the frameworks and their layouts, found by looking: rnnconvert.formats needs no registration.

A framework's room is a module of rnnconvert.formats where data is all there is, else a folder with modules of fixed
names: layouts, files, run, whole, whole_run, optimizer. The first three may go on behind an underscore: layouts_flux.

Others are added by a user's own file (rnnconvert.language.layout_file), and by installed packages under the entry point
"rnnconvert.formats", which names a module: its layouts and its System are taken, and its adapters if it has any.
"""

from __future__ import annotations

import fnmatch
import functools
import importlib
import importlib.metadata
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rnnconvert.core.errors import UsageError
from rnnconvert.language.layout import Layout, System
from rnnconvert.language.surroundings import Surrounding

ENTRY_POINT = "rnnconvert.formats"

_ADDED: list[Any] = []


@functools.cache
def layouts() -> dict[str, Layout]:
    """Every layout, by name."""
    return {value.name: value for value in _data() if isinstance(value, Layout)}


@functools.cache
def systems() -> dict[str, System]:
    """What the layouts do not say of their frameworks, by the framework's name."""
    return {value.name: value for value in _data() if isinstance(value, System)}


@functools.cache
def surroundings(framework: str) -> list[Surrounding]:
    """The layers without recurrence of a framework."""
    return [value for value in _data() if isinstance(value, Surrounding) and value.framework == framework]


@functools.cache
def _data() -> list[Any]:
    """Everything that the layouts of rnnconvert.formats have names for, and what was added."""
    return [*_own(), *added()]


@functools.cache
def _own() -> list[Any]:
    return [value for module in rooms("layouts*") for value in vars(importlib.import_module(module)).values()]


@functools.cache
def native() -> frozenset[str]:
    """The frameworks that this project has a room for."""
    return frozenset(value.framework for value in _own() if isinstance(value, Layout))


@functools.cache
def rooms(part: str) -> tuple[str, ...]:
    """Full names of the modules that are this part of a framework's room, by a pattern of fixed names; none is imported."""
    formats = importlib.import_module("rnnconvert.formats")
    found = []
    for room in pkgutil.iter_modules(formats.__path__):
        if room.ispkg:
            inside = [str(Path(path) / room.name) for path in formats.__path__]
            names = [module.name for module in pkgutil.iter_modules(inside)]
            found += [f"rnnconvert.formats.{room.name}.{name}" for name in names if fnmatch.fnmatch(name, part)]
        elif part == "layouts*":
            found.append(f"rnnconvert.formats.{room.name}")
    return tuple(found)


@functools.cache
def _installed() -> list[Any]:
    """What installed packages add. Raises UsageError if one cannot be imported."""
    found: list[Any] = []
    for point in importlib.metadata.entry_points(group=ENTRY_POINT):
        try:
            module = point.load()
        except Exception as error:  # another package's code may raise anything
            raise UsageError(
                f"the package {point.value!r}, which adds formats, cannot be imported: {type(error).__name__}: {error}"
            ) from None
        found += [*vars(module).values(), *_members(module)]
    return found


def added() -> list[Any]:
    """What installed packages and the user's own files add: layouts, systems, adapters."""
    return [*_installed(), *_ADDED]


def add(values: Iterable[Layout | System]) -> None:
    """Add layouts of a user's own for as long as this process runs; one that is there already is replaced.

    Raises UsageError if a name is that of a framework that this project or a package has.
    """
    new = list(values)
    given = [value for value in _ADDED if isinstance(value, Layout | System)]
    names = {value.name.partition(".")[0] for value in new}
    taken = names & (set(frameworks()) - {value.name.partition(".")[0] for value in given})
    if taken:
        raise UsageError(f"there is a format {taken.pop()!r} already: choose another name for the layouts")
    replaced = {(type(value), value.name) for value in new}
    _ADDED[:] = [value for value in given if (type(value), value.name) not in replaced] + new
    for cached in (layouts, systems, surroundings, _data, frameworks):
        cached.cache_clear()


@functools.cache
def frameworks() -> dict[str, list[Layout]]:
    """The layouts of each framework, by its name, in the order of the names."""
    found: dict[str, list[Layout]] = {}
    for layout in layouts().values():
        found.setdefault(layout.framework, []).append(layout)
    return dict(sorted(found.items()))


def holding(fits: Callable[[Layout], bool]) -> str:
    """Return the formats that are written and have such a layout, for a sentence: "keras, onnx or tensorflow1"."""
    names = [name for name, own in frameworks().items() if any(one.writable and fits(one) for one in own)]
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "another format"


def title(name: str) -> str:
    """Return what people call a framework, or the name of one that says nothing of itself."""
    system = systems().get(name)
    return system.title if system is not None else name


def named(part: str) -> dict[str, Any]:
    """The modules that are a part of a framework's room and have a NAME, or ADAPTERS that have one, by it."""
    modules = [importlib.import_module(module) for module in rooms(part)]
    members = [one for module in modules for one in _members(module)]
    return {one.NAME: one for one in sorted(members, key=lambda one: str(one.NAME))}


def _members(module: object) -> Iterator[Any]:
    """The module itself if it has a NAME, or its ADAPTERS."""
    yield from (one for one in getattr(module, "ADAPTERS", (module,)) if hasattr(one, "NAME"))


def layout(framework: str, kind: str, reset_after: bool | None = None, variant: str = "") -> Layout:
    """The layout of a cell in a framework; `variant` picks one by the whole name's second half.

    Raises UsageError, naming what there is.
    """
    known = frameworks().get(framework)
    if known is None:
        raise UsageError(f"no format {framework!r}; there are {', '.join(frameworks())}")
    for found in known:
        if variant and found.name != f"{framework}.{variant}":
            continue
        if found.kind == kind and found.reset_after == reset_after and (variant or found.writable):
            return found
    cell = kind if reset_after is None else f"{kind} with reset_after={reset_after}"
    raise UsageError(f"{framework} has no layout for {cell}; it has {', '.join(one.name for one in known)}")
