"""One module a framework: where its files keep the recurrent layers, and which cells they are.

A module here is an adapter. It has

    NAME       the format's name
    SUFFIXES   the endings of its files, the one written by default first, as on its card (rnnconvert.language.registry)
    recognise(file)        what it sees in a file that may be its own, or None
    layouts(options)       the layouts that it can write, the preferred one of each cell first
    read(path, options)    the file as a Checkpoint
    write(path, job)       stacks in the form of these layouts, into a file
    about(checkpoint)      optional: what a file states about itself, such as versions, producer and epoch, in words
    companions(path)       optional: the other files that it writes, next to one of that name
    runnable(checkpoint, folder)  where its files are code: write what a file says again into a folder, for an executor, and return that
                           path, or None for a file without code; raise NotImplementedError for code that it did not write
    ZERO_STATES            optional; if true, what it writes begins with zeros, and its caller cannot pass states
    silent(path)           optional: whether a file of that name states no functions of its layers

or several such objects under the name ADAPTERS (rnnconvert.files.finder has a class to make them of), and
imports no framework unless a file cannot be read without it.
"""

from __future__ import annotations

import functools
import importlib
import keyword
import re
import unicodedata
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rnnconvert.containers.files import lowered
from rnnconvert.containers.stored import FileMetadata
from rnnconvert.core.arguments import unknown
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import RefusedError, UsageError
from rnnconvert.core.remedies import Flag, Setting, Together
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout, System
from rnnconvert.rewrites import split_stack
from rnnconvert.rewrites.fit_to_layout import Fitted


@dataclass(frozen=True)
class Job:
    """The task of a writer.

    parts    the recurrent layers, in the form of the framework's layouts
    dtype    element type to write, or None for each layer's own
    options  the caller's decisions
    source   the checkpoint they come from
    carried  tensors outside recurrent layers that may be written unchanged, from a file of the same framework
    watch    is called with every piece of weights that is written
    dry_run  whether to find out what would be done, and write nothing
    """

    parts: Sequence[Fitted]
    dtype: np.dtype[Any] | None
    options: Options
    source: Checkpoint
    carried: Mapping[str, Array]
    watch: Callable[[Array], None]
    dry_run: bool = False

    def stacks(self) -> list[tuple[Layout, Recurrent]]:
        """Return the stacks that are written one by one: each stack, or its layers if the layout holds one at a time."""
        return [
            (part.layout, stack) for part in self.parts for stack in ([part.stack] if part.layout.holds.layers else split_stack(part.stack))
        ]

    def batch_first(self, name: str) -> bool:
        """Return whether a layer was called with (batch, time, values), as far as its source states it."""
        stated = self.source.batch_first
        pieces = [stated.get(layer, False) for layer in self.source.layers]  # it may be a piece of one, or several joined
        return stated.get(name, bool(pieces) and all(pieces))

    def carry(self, arrays: dict[str, Array | PiecewiseArray], name: Callable[[str], str] = str) -> list[str]:
        """Add the other tensors to those that are written, under what `name` makes of their names.

        Returns the names of those that have no place, since a layer's array bears their name.
        """
        dropped = [full for full in self.carried if name(full) in arrays]
        for full, array in self.carried.items():
            arrays.setdefault(name(full), array)
        return dropped


@dataclass(frozen=True)
class WriteResult:
    """The result of a writer.

    notes    notes for the user on the file, in words: how to load it, what is left out
    recipe   lines of Python that load it, if any
    dropped  names of carried tensors that it has no place for
    companions  files of numbers next to it whose names their content decides
    """

    notes: Sequence[str]
    recipe: Sequence[str] = ()
    dropped: Collection[str] = ()
    companions: Sequence[Path] = ()


def put(arrays: dict[str, Array | PiecewiseArray], name: str, array: Array | PiecewiseArray) -> None:
    """Add an array of a layer to those that are written. Raises UsageError if another layer has that name."""
    if name in arrays:
        raise UsageError(f"two layers would both be written as {name!r}. Give one of them {Setting('prefix', '...', layer='LAYER')}")
    arrays[name] = array


def loading(name: str, path: Path, call: str) -> list[str]:
    """Return the lines of Python that load a file of one layer, which a call makes; none where its framework states none."""
    system = registry.systems().get(name)
    recipes = system.recipes if system is not None else {}
    lines = next((recipes[end] for end in recipes if lowered(path).name.endswith(end)), ())
    return [line.replace("{call}", call).replace("{path}", repr(str(path))) for line in lines]


@dataclass(frozen=True)
class Ports:
    """The inputs and outputs of a file, as the lines that run it name them.

    inputs   a name of Python's for each input, by its name in the file
    outputs  likewise
    lines    lines that make the inputs
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    lines: Sequence[str]


def zeros(name: str, axes: Mapping[str, int], width: int) -> str:
    """Return the line of Python that makes an input of zeros, so that a recipe runs as it is pasted.

    axes   the lengths of the axes before the last one, by their words
    width  the length of the last one, values a step
    """
    lengths = ", ".join(map(str, [*axes.values(), width]))
    return f"{name} = np.zeros(({lengths}), np.float32)  # ({', '.join([*axes, str(width)])})"


def variables(names: Iterable[str]) -> dict[str, str]:
    """Return a name of Python's for each name of a layer. Names that Python takes for one (NFKC) get numbers."""
    return _identifiers(names, lambda name: "".join(_spelled(unicodedata.normalize("NFKC", name))), set())


def c_names(names: Iterable[str]) -> dict[str, str]:
    """Return a name of C's for each name of a layer: ASCII, so short that compilers tell it apart (C99, 5.2.4.1) with something
    behind it, and unlike every other in capitals, too.
    """
    return _identifiers(names, lambda name: re.sub(r"[^A-Za-z0-9_]", "_", name)[:_LONGEST_IN_C], _InCapitals())


_LONGEST_IN_C = 40


class _InCapitals(set[str]):
    """Names that are the same where they are in capitals."""

    def add(self, name: str) -> None:
        super().add(name.upper())

    def __contains__(self, name: object) -> bool:
        return super().__contains__(str(name).upper())


def _spelled(name: str) -> Iterator[str]:
    for letter in name:
        yield letter if f"_{letter}".isidentifier() else "_"


def _identifiers(names: Iterable[str], spelled: Callable[[str], str], used: set[str]) -> dict[str, str]:
    identifiers: dict[str, str] = {}
    for name in names:
        plain = re.sub("_+", "_", spelled(name)).strip("_") or "layer"
        if not plain.isidentifier() or keyword.iskeyword(plain):
            plain = f"layer_{plain}"
        identifiers[name] = free = unique(plain, used)
        used.add(free)
    return identifiers


def apart(job: Job) -> str:
    """Return the end of a sentence on the layers of a job that a file would have read one another."""
    names = [part.stack.name for part in job.parts]
    split = any(job.options.peek(option, name) == "split" for option in ("stack", "directions") for name in job.source.layers)
    alike = len({part.layout.name for part in job.parts}) == 1
    joined = "" if split or not alike else f", or join those that do with {Setting('stack', 'join')}"
    return f"{', '.join(names)} may not. Choose one, as with {Flag('layer', names[0])}{joined}"


def outputs_turned(stack: Recurrent, format: str, after: str, otherwise: str = "") -> list[str]:
    """Return the note on a layer that reads from the end, for a format in which the outputs of one keep the order of processing.

    after      the note: what has to follow the layer
    otherwise  another way out of a stack of such layers

    Raises RefusedError if another layer would read them in that order.
    """
    if not any(len(layer.directions) == 1 and layer.directions[0].reverse for layer in stack.layers):
        return []
    names = [single.name for single in split_stack(stack)]
    if len(names) > 1:
        raise RefusedError(
            "layers above or below one that reads from the end",
            format,
            "it gives the outputs of such a layer in processing order, and the next layer would read that",
            f"Write each layer on its own: {Together(Setting('stack', 'split'), Flag('layer', names[0]))}{otherwise}.",
            stack.name,
        )
    return [] if stack.output_order == "processing" else [after]


def unique(name: str, used: Container[str]) -> str:
    """Return a name that is not taken: this one, or with a number after it.

    Numbers are given one after the other, so that the first free one is found by halving: thousands of layers may bear one name.
    """
    if name not in used:
        return name
    last, free = 1, 2
    while f"{name}_{free}" in used:
        last, free = free, 2 * free
    while free - last > 1:
        middle = (last + free) // 2
        if f"{name}_{middle}" in used:
            last = middle
        else:
            free = middle
    return f"{name}_{free}"


class Adapter(Protocol):
    """A framework's files: see the module."""

    NAME: str
    SUFFIXES: tuple[str, ...]

    def recognise(self, file: Opened) -> FormatClaim | None:
        """Return how sure it is that a file is of this format, and the evidence; None where nothing speaks for it."""
        ...

    def layouts(self, options: Options) -> list[Layout]:
        """Return the layouts that may be written, the preferred one of each cell first."""
        ...

    def read(self, path: Path, options: Options) -> Checkpoint:
        """Return the file in canonical form.

        Raises UnreadableError for a damaged file, RefusedError for cells that have no canonical form,
        MissingPackageError where a package is needed that is not installed.
        """
        ...

    def write(self, path: Path, job: Job) -> WriteResult:
        """Write a file, and return what was written.

        Raises UsageError or RefusedError for what cannot be written, for a dry run too.
        """
        ...


def written_layouts(name: str) -> Callable[[Options], list[Layout]]:
    """Return the `layouts` of a room that writes all writable layouts of its data under all options."""
    return lambda options: [layout for layout in registry.layouts_of(name) if layout.writable]


def about(checkpoint: Checkpoint) -> dict[str, str]:
    """Return a file's statements about itself: the framework and its version, producer, epoch ..., by words for it."""
    # A layer in memory has no format, and nothing is stated about it.
    room = getattr(adapter(checkpoint.format), "about", None) if checkpoint.format in names() else None
    stated: dict[str, object] = {} if room is None else room(checkpoint)
    texts = checkpoint.metadata_as(FileMetadata).get("__metadata__", {})  # where a .safetensors holds what anybody likes
    return {key: str(value) for key, value in {**stated, **texts}.items() if isinstance(value, (str, int, float)) and value != ""}


def names() -> list[str]:
    """Return the names of all formats: those that were added to this project first. No room is entered."""
    return [*sorted(_added()), *registry.cards()]


def adapters() -> dict[str, Adapter]:
    """Return every adapter by its name, in the order of `names`. All rooms are entered."""
    return {name: adapter(name) for name in names()}


def adapter(name: str) -> Adapter:
    """Return the adapter of that name; no other room is entered.

    Raises UsageError, listing the formats.
    """
    if name in registry.cards():
        return _single_adapter(name)
    try:
        return _added()[name]
    except KeyError:
        raise unknown("format", name, names(), registry.called()) from None


@functools.cache
def _single_adapter(name: str) -> Adapter:
    """Return a framework's adapter; one with only layouts gets rnnconvert.files.finder."""
    card = registry.cards()[name]
    module = card.part("files")
    if not module:
        return _bare(name, card.endings)
    return registry.members(importlib.import_module(module))[name]  # type: ignore[no-any-return]


def _bare(name: str, endings: tuple[str, ...]) -> Adapter:
    from rnnconvert.files.finder import ArrayFiles  # it imports this module

    card = registry.cards().get(name)
    room = list(vars(importlib.import_module(card.part("layouts"))).values()) if card else registry.installed_layouts()
    written = next((entry.separator for entry in room if isinstance(entry, System) and entry.name == name), "/")
    cuts = next((entry.cuts for entry in room if isinstance(entry, System) and entry.name == name), ())
    array_files: Any = ArrayFiles(name, endings if card else endings or ArrayFiles.SUFFIXES, written + "/.".replace(written, ""), cuts=cuts)
    return array_files  # type: ignore[no-any-return]


def _added() -> dict[str, Adapter]:
    """Return the adapters of installed packages and of the user's own layouts."""
    added = registry.installed_layouts()
    if not added:
        return {}
    endings = {entry.name: entry.suffixes for entry in added if isinstance(entry, System)}
    frameworks = {entry.framework for entry in added if isinstance(entry, Layout)}
    own_adapters = {str(entry.NAME): entry for entry in added if hasattr(entry, "recognise")}
    return {**{name: _bare(name, endings.get(name, ())) for name in frameworks}, **own_adapters}
