"""The layouts, found by looking: a module of rnnconvert.formats needs no registration."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable
from typing import Any

from rnnconvert.errors import UsageError
from rnnconvert.layout import Layout
from rnnconvert.plain import Plain


@functools.cache
def layouts() -> dict[str, Layout]:
    """Every layout, by name."""
    return {value.name: value for value in _data() if isinstance(value, Layout)}


@functools.cache
def plain_layouts(framework: str) -> list[Plain]:
    """The layers without recurrence of a framework."""
    return [value for value in _data() if isinstance(value, Plain) and value.framework == framework]


@functools.cache
def _data() -> list[object]:
    """Everything that the modules of rnnconvert.formats have names for."""
    package = importlib.import_module("rnnconvert.formats")
    modules = pkgutil.iter_modules(package.__path__, "rnnconvert.formats.")
    return [value for module in modules for value in vars(importlib.import_module(module.name)).values()]


@functools.cache
def frameworks() -> dict[str, list[Layout]]:
    """The layouts of each framework, by its name."""
    found: dict[str, list[Layout]] = {}
    for layout in layouts().values():
        found.setdefault(layout.framework, []).append(layout)
    return found


def named(path: Iterable[str], prefix: str) -> dict[str, Any]:
    """The modules of a package that have a NAME, or ADAPTERS that have one, by it: nothing is registered.

    path    the package's __path__
    prefix  its name and a dot
    """
    modules = [importlib.import_module(module.name) for module in pkgutil.iter_modules(path, prefix)]
    members = [one for module in modules for one in getattr(module, "ADAPTERS", (module,)) if hasattr(one, "NAME")]
    return {one.NAME: one for one in sorted(members, key=lambda one: str(one.NAME))}


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
