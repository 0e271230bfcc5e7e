"""The rooms of the frameworks and their layouts, found by looking: rnnconvert.formats needs no registration.

A framework's room is a module of rnnconvert.formats where data is all there is, else a folder with modules of fixed
names: layouts, files, run, whole, whole_run, optimizer. The first three may go on behind an underscore: layouts_flux.

A room is entered when a file or a user asks for it. What has to be known before is its card: which formats there are, which
kinds of file each may be in and which endings it writes. It is the literal FILES in the folder's `__init__.py`, or what the
SYSTEM of a single file says, and is read from the source, without an import.

Others are added by a user's own file (rnnconvert.language.layout_file), and by installed packages under the entry point
"rnnconvert.formats", which names a module: its layouts and its System are taken, and its adapters if it has any.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import itertools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rnnconvert.core.arguments import unknown
from rnnconvert.core.binding import bound
from rnnconvert.core.errors import UsageError
from rnnconvert.core.syntax import tree_of
from rnnconvert.language.layout import Layout, System
from rnnconvert.language.rooms import rooms
from rnnconvert.language.surroundings import Surrounding

ENTRY_POINT = "rnnconvert.formats"

_ADDED: list[Any] = []


@dataclass(frozen=True)
class Card:
    """The facts about a format that are known before its room is entered.

    name     the format's name
    room     its room: the full name of a module
    kinds    the kinds of file (rnnconvert.files.opened) in which its weights may be; "zip:NAME" for a zip archive with such an
             entry
    endings  the endings of its files, the one written by default first
    usual    endings that it shares with others, and that mean this format by default
    named    endings of files that are examined whatever their kind
    unwritten  endings that are only read
    begins   the bytes that identify its files, and where
    """

    name: str
    room: str
    kinds: tuple[str, ...]
    endings: tuple[str, ...] = ()
    usual: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    begins: tuple[tuple[int, bytes], ...] = ()
    unwritten: tuple[str, ...] = ()

    @property
    def written(self) -> tuple[str, ...]:
        """The endings of the files that it writes."""
        return tuple(end for end in self.endings if end not in self.unwritten)

    def part(self, part: str) -> str:
        """Return the full name of the module that is this part of the room for this format, or "" if there is none."""
        modules = rooms(f"{part}*")
        wanted = (f"{self.room}.{part}_{self.name}", f"{self.room}.{part}", self.room if part == "layouts" else "")
        return next((candidate for candidate in wanted if candidate in modules), "")


@functools.cache
def cards() -> dict[str, Card]:
    """Return the card of every format that has a room, in the order of the names; no room is entered.

    Raises UsageError if two rooms have one format: another distribution's is one of ours, or of a third.
    """
    result: list[Card] = []
    for path in importlib.import_module("rnnconvert.formats").__path__:
        for place in sorted(Path(path).iterdir()):
            if (place / "__init__.py").is_file():
                result += _described(place.name, place / "__init__.py")
            elif place.suffix == ".py" and place.stem != "__init__":
                result.append(_of_data(place))
    result.sort(key=lambda card: card.name)
    for card, following in itertools.pairwise(result):
        if card.name == following.name:
            raise UsageError(f"two packages bring the format {card.name!r}: {card.room} and {following.room}. Uninstall one")
    return {card.name: card for card in result}


def _described(room: str, file: Path) -> list[Card]:
    """Return the cards of a folder: the literal FILES."""
    literal = _assigned(file, "FILES")
    formats = ast.literal_eval(literal) if literal is not None else {room: {"kinds": " ".join(ARCHIVES)}}
    cards = []
    for name, words in formats.items():
        listed: dict[str, Any] = {key: tuple(value.split()) if isinstance(value, str) else value for key, value in words.items()}
        cards.append(Card(name, f"rnnconvert.formats.{room}", **listed))
    return cards


def _of_data(file: Path) -> Card:
    """Return the card of a single file: archives of arrays, with the name and the endings that its SYSTEM says."""
    called: Any = _assigned(file, "SYSTEM")
    positional = [*called.args] if isinstance(called, ast.Call) else []
    keywords = {argument.arg: argument.value for argument in getattr(called, "keywords", [])}
    fields = {**dict(zip(System.__dataclass_fields__, positional, strict=False)), **keywords}
    name = ast.literal_eval(fields["name"]) if "name" in fields else file.stem
    endings = ast.literal_eval(fields["suffixes"]) if "suffixes" in fields else ()
    return Card(name, f"rnnconvert.formats.{file.stem}", ARCHIVES, endings)


def _assigned(file: Path, name: str) -> ast.expr | None:
    """Return the expression that a module assigns to a name, as a tree; nothing of the module is run."""
    for node in tree_of(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
            return node.value
    return None


ARCHIVES = ("npz", "hdf5", "safetensors", "msgpack", "pickle")
"""The kinds of file that hold nothing but arrays by name."""


@functools.cache
def layouts() -> dict[str, Layout]:
    """Return every layout, by name."""
    return {value.name: value for value in _data() if isinstance(value, Layout)}


@functools.cache
def systems() -> dict[str, System]:
    """Return the systems, which state what the layouts do not, by the framework's name."""
    return {value.name: value for value in _data() if isinstance(value, System)}


@functools.cache
def surroundings(framework: str) -> list[Surrounding]:
    """Return the layers without recurrence of a framework; no other room is entered."""
    card = cards().get(framework)
    values = _data() if card is None else vars(importlib.import_module(card.part("layouts"))).values()
    return [value for value in values if isinstance(value, Surrounding) and value.framework == framework]


@functools.cache
def _data() -> list[Any]:
    """Return everything that the layouts of rnnconvert.formats have names for, and what was added."""
    return [*_built_in(), *installed_layouts()]


@functools.cache
def _built_in() -> list[Any]:
    return [value for module in rooms("layouts*") for value in vars(importlib.import_module(module)).values()]


@functools.cache
def _installed() -> list[Any]:
    """Return the values that installed packages add; if one cannot be imported, warn that its formats are missing."""
    result: list[Any] = []
    if not any(map(_may_add, sys.path)):
        return result
    import importlib.metadata  # it takes as long to import as a small file takes to convert

    for point in importlib.metadata.entry_points(group=ENTRY_POINT):
        try:
            module = point.load()
        except Exception as error:  # another package's code may raise anything
            warnings.warn(
                f"the package {point.value!r}, which adds formats, cannot be imported, and its formats are missing: "
                f"{type(error).__name__}: {error}",
                UserWarning,
                stacklevel=2,
            )
            continue
        result += [*vars(module).values(), *_members(module)]
    return result


def _may_add(place: str) -> bool:
    """Return whether a package in a folder of sys.path may add formats; an archive on it always may."""
    if Path(place).is_file():
        return True
    try:
        packages = [entry for entry in Path(place).iterdir() if entry.name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return False
    for package in packages:
        with contextlib.suppress(OSError):
            if ENTRY_POINT.encode() in (package / "entry_points.txt").read_bytes():
                return True
    return False


def installed_layouts() -> list[Any]:
    """Return the values that installed packages and the user's own files add: layouts, systems, adapters."""
    return [*_installed(), *_ADDED]


def add(values: Iterable[Layout | System]) -> None:
    """Add layouts of a user's own for as long as this process runs; one that is there already is replaced.

    Raises UsageError if a name is that of a framework that this project or a package has.
    """
    new = list(values)
    earlier = [value for value in _ADDED if isinstance(value, Layout | System)]
    names = {value.name.partition(".")[0] for value in new}
    clashing = names & (set(frameworks()) - {value.name.partition(".")[0] for value in earlier})
    if clashing:
        raise UsageError(f"the format {clashing.pop()!r} already exists. Choose another name for the layouts")
    replaced = {(type(value), value.name) for value in new}
    _ADDED[:] = [value for value in earlier if (type(value), value.name) not in replaced] + new
    _collect_again()


@contextlib.contextmanager
def added_for_now(values: Iterable[Layout | System]) -> Iterator[None]:
    """Add layouts as `add` does, and remove them at the end."""
    before = list(_ADDED)
    add(values)
    try:
        yield
    finally:
        _ADDED[:] = before
        _collect_again()


def forget() -> None:
    """Remove what `add` has added, and look for installed packages anew when they are next asked for."""
    _ADDED.clear()
    _installed.cache_clear()
    _collect_again()


def _collect_again() -> None:
    for cached in (layouts, systems, surroundings, _data, frameworks):
        cached.cache_clear()


def endings(format: str) -> tuple[str, ...]:
    """Return the endings of the files that a format writes, as its card says."""
    return cards()[format].endings


def layouts_of(framework: str) -> list[Layout]:
    """Return the layouts of one framework, and enter no other room. Raises KeyError if there is none of that name."""
    return _layouts_in(framework) if framework in cards() else frameworks()[framework]


@functools.cache
def _layouts_in(framework: str) -> list[Layout]:
    module = importlib.import_module(cards()[framework].part("layouts"))
    return [var for var in vars(module).values() if isinstance(var, Layout)]


def layout_named(name: str) -> Layout:
    """Return the layout of that whole name, "framework.cell". Raises KeyError if there is none."""
    for candidate in layouts_of(name.partition(".")[0]):
        if candidate.name == name:
            return candidate
    raise KeyError(name)


@functools.cache
def frameworks() -> dict[str, list[Layout]]:
    """Return the layouts of each framework, by its name, in the order of the names."""
    by_framework: dict[str, list[Layout]] = {}
    for layout in layouts().values():
        by_framework.setdefault(layout.framework, []).append(layout)
    return dict(sorted(by_framework.items()))


_reaches: ContextVar[Callable[[str], bool]] = ContextVar("reaches", default=lambda name: True)


@contextlib.contextmanager
def proposing(reaches: Callable[[str], bool]) -> Iterator[None]:
    """Limit the formats that `holding` names to those that take the layer at hand, so that no refusal proposes another one.

    reaches  returns whether the layer can be written in a format
    """
    with bound(_reaches, reaches):
        yield


def holding(fits: Callable[[Layout], bool]) -> str:
    """Return the formats that are written and have such a layout, for a sentence: "keras, onnx or tensorflow1"."""
    having = [name for name, several in frameworks().items() if any(candidate.writable and fits(candidate) for candidate in several)]
    names = list(filter(_reaches.get(), having))
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "another format"


def title(name: str) -> str:
    """Return the title of a framework, as its documentation spells it; an unregistered name is returned unchanged."""
    system = systems().get(name)
    return system.title if system is not None else name


def named(part: str) -> dict[str, Any]:
    """Return the modules that are a part of a framework's room and have a NAME, or ADAPTERS that have one, by this name."""
    result = {name: member for module in rooms(part) for name, member in members(importlib.import_module(module)).items()}
    return dict(sorted(result.items()))


def members(module: object) -> dict[str, Any]:
    """Return the module itself if it has a NAME, or its ADAPTERS, by the names."""
    return {str(member.NAME): member for member in _members(module)}


def _members(module: object) -> Iterator[Any]:
    """Yield the module itself if it has a NAME, or its ADAPTERS."""
    yield from (member for member in getattr(module, "ADAPTERS", (module,)) if hasattr(member, "NAME"))


def called() -> dict[str, list[str]]:
    """Return other names that people use for formats."""
    return {name: system.called.split() for name, system in systems().items()}


def layout(framework: str, kind: str, reset_after: bool | None = None, variant: str = "") -> Layout:
    """Return the layout of a cell in a framework; `variant` picks one by its whole name, or by what follows the framework's.

    Raises UsageError, listing the choices.
    """
    if framework not in cards() and framework not in frameworks():
        raise unknown("format", framework, frameworks(), called())
    listed = layouts_of(framework)
    for candidate in listed:
        if variant and candidate.name not in (variant, f"{framework}.{variant}"):
            continue
        if candidate.kind == kind and candidate.reset_after == reset_after and (variant or candidate.writable):
            return candidate
    cell = kind if reset_after is None else f"{kind} with reset_after={reset_after}"
    what = f"no layout {variant!r} for {cell}" if variant else f"no layout for {cell}"
    raise UsageError(f"{framework} has {what}. It has {', '.join(entry.name for entry in listed)}")
