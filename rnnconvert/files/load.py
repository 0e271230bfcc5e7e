"""Reading: the format is found, the file is read, and what it leaves open is asked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rnnconvert.containers import shards
from rnnconvert.containers.reading import mapped_files, reading
from rnnconvert.containers.stored import Stored
from rnnconvert.core.errors import (
    RefusedError,
    RnnConvertError,
    UnreadableError,
    UnreadLayersError,
    UsageError,
    WithoutLayersError,
    for_user,
    unreadable,
)
from rnnconvert.core.names import first_twice
from rnnconvert.core.notes import UNDESCRIBED, UNREAD, LayerNote, each_text, layer_of
from rnnconvert.core.printable import called, listed, quoted
from rnnconvert.core.remedies import Flag
from rnnconvert.core.weights import Recurrent, Unconvertible
from rnnconvert.files import detect, enclosed
from rnnconvert.files.adapter import Adapter, adapter
from rnnconvert.files.checkpoint import Checkpoint, suspects
from rnnconvert.files.conservation import UNACCOUNTED
from rnnconvert.files.in_memory import Source, path_of
from rnnconvert.files.opened import Opened
from rnnconvert.files.options import Options
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.rewrites import each

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rnnconvert.files.finder import ArrayFiles
    from rnnconvert.files.option_types import ReadOptions


def load(source: Source, source_format: str | None = None, settings: Iterable[str] = (), **options: Unpack[ReadOptions]) -> Checkpoint:
    """Open a file and find its recurrent layers; the weights stay views of the file.

    source         a path, the bytes of a file, an open binary file, or a mapping of arrays by name
    source_format  read it as this format, instead of asking the file
    settings       options as the command line writes them, "KEY=VALUE" or "LAYER:KEY=VALUE"
    options        options by name, for all layers (rnnconvert.files.options.OPTIONS)

    Raises UnreadableError if it cannot be read (MissingFileError if it does not exist), RefusedError if its weights have no
    canonical form, MissingPackageError if a package is needed for it.

        >>> import rnnconvert as rc
        >>> checkpoint = rc.load("examples/encoder.keras")
        >>> list(checkpoint)
        ['encoder', 'summary']
        >>> checkpoint["summary"].describe()
        'LSTM, 1 layer, forward, 16 -> 5, one bias, float32'
    """
    chosen = Options(options, settings)
    checkpoint = load_with(source, source_format, chosen)
    chosen.ledger.check_used(checkpoint.path)
    return checkpoint


def _companions(path: Path, mapped: Iterable[Path]) -> tuple[str, ...]:
    """Return the other files that a file was read from, outside a folder: external data, parts, a graph."""
    own_path = path.resolve()
    others = {other.resolve() for other in mapped if other.resolve() != own_path and not other.resolve().is_relative_to(own_path)}
    return tuple(map(str, sorted(others, key=lambda other: (other.name, str(other)))))


def load_pair(
    sources: tuple[Source, Source],
    formats: tuple[str | None, str | None] = (None, None),
    settings: Iterable[str] = (),
    own_settings: tuple[Iterable[str], Iterable[str]] = ((), ()),
) -> tuple[Checkpoint, Checkpoint]:
    """Open two files: `load` for each, where a setting for both has to decide something in one of them.

    settings  options for both files
    own_settings  options for the first and for the second alone

    Raises what `load` raises.
    """
    common, words = list(settings), [list(side) for side in own_settings]
    sides = [Options(settings=(*common, *word)) for word in words]
    both = [load_with(path, sizes, side) for path, sizes, side in zip(sources, formats, sides, strict=True)]
    shared = set(Options(settings=common).ledger.unused())
    for side, other, checkpoint in zip(sides, reversed(sides), both, strict=True):
        side.ledger.check_used(checkpoint.path, but=shared - set(other.ledger.unused()))
    return both[0], both[1]


def load_with(source: Source, source_format: str | None, options: Options) -> Checkpoint:
    """Open a file as `load` does, with a ledger that the caller checks: `options.ledger.check_used`."""
    path = path_of(source, "load")
    with reading() as under_way:
        try:
            checkpoint = _read(path, isinstance(source, (str, os.PathLike)), source_format, options)
            under_way.check(path_too=True)
        except RnnConvertError:
            raise
        except OSError as error:  # of a file that went away, or a disk that fails, after it was opened
            raise unreadable(for_user(str(error.filename or path)), error) from None
        except RecursionError:
            raise UnreadableError(path, "it is nested too deeply") from None
        return checkpoint.replace(sources=under_way)


def model_path(path: Path) -> Path:
    """Return the file or folder of a whole model: the path itself, or a temporary copy of what lies packed or archived in it.

    Raises what `load` raises for a file that holds several models.
    """
    with reading():
        inside = enclosed.model(Opened(path), _holds_layers) if path.is_file() else None
    return path if inside is None else inside.file.path


def _read(path: Path, is_users: bool, source_format: str | None, options: Options) -> Checkpoint:
    inside = None if is_users else path
    path, stated_path = shards.whole_file(path), path
    file, outside = Opened(path), path
    packed = enclosed.model(file, _holds_layers)
    with mapped_files() as mapped:  # what was read to recognise the file is not read again
        if packed is None:
            reader, evidence, others = detect.source(file, source_format)
            checkpoint = _read_by(reader, file, options)
            if not (checkpoint.layers or checkpoint.unread):
                packed = enclosed.model(file, _holds_layers, empty=True)
        if packed is not None:
            path = packed.file.path
            reader, evidence, others = detect.source(packed.file, source_format)
            checkpoint = _read_by(reader, packed.file, options)
        if source_format is None and not (checkpoint.layers or checkpoint.unread):
            checkpoint = _by_added_layouts(checkpoint, path, options)
    checkpoint = checkpoint.replace(beside=_companions(path, mapped))
    if packed is not None:
        evidence = f"{evidence}, {packed.where}"
        checkpoint = checkpoint.replace(path=str(outside), unpacked=checkpoint.path)
    elif inside is not None:
        checkpoint = checkpoint.replace(path=for_user(str(inside)), unpacked=checkpoint.path)
    close = [] if outside == stated_path or packed is not None else [f"{stated_path.name} is one of several shards: {path.name} is read"]
    close += [f"it may also be {other} ({why}). If it is, use {Flag('from', other)}" for other, why in others]
    checkpoint = checkpoint.replace(warnings=(*checkpoint.warnings, *close))
    check_names(checkpoint, options)
    checkpoint = checkpoint.replace(
        layers={name: stack.replace(unconvertible=_left(options, name, stack.unconvertible)) for name, stack in checkpoint.layers.items()}
    )
    for name, stack in checkpoint.layers.items():
        unclipped = without_clips(stack, options)
        if unclipped is not stack:
            warning = LayerNote(name, "its clip is left out, as asked", unnamed="the module itself")
            checkpoint = checkpoint.replace(
                layers={**checkpoint.layers, name: unclipped},
                warnings=(*checkpoint.warnings, warning),
                clipped={**checkpoint.clipped, name: stack},
            )
    return checkpoint.replace(
        evidence=tuple(map(for_user, (f"{reader.NAME}: {evidence}", *checkpoint.evidence))),
        warnings=each_text(for_user, (*checkpoint.warnings, *options.ledger.notes)),
        unread=each_text(for_user, checkpoint.unread),
        questions=tuple(
            dict.fromkeys(replace(question, why=for_user(question.why)) for question in (*checkpoint.questions, *options.questions))
        ),
    )


def _read_by(reader: Adapter, file: Opened, options: Options) -> Checkpoint:
    """Return a file as an adapter reads it; one of arrays by name reads those of a file that only another format opens."""
    by_name = _by_name(reader)
    if by_name is not None and not by_name.kind(file):
        opened = detect.source(file).reader.read(file.path, Options())
        checkpoint = by_name.read_stored(Stored(dict(opened.tensors)), file.path, options)
        why = f"a layer of {opened.format}, which is read without {Flag('from', reader.NAME)}"
        others = [LayerNote(name, why, UNREAD) for name in opened.layers]
        return checkpoint.replace(warnings=(*checkpoint.warnings, *others), unread=(*checkpoint.unread, *others))
    return reader.read(file.path, options)


def _by_name(reader: Adapter) -> ArrayFiles | None:
    """Return the adapter of a framework that is known by its layouts alone; None for another one."""
    from rnnconvert.files.finder import ArrayFiles  # it imports the module of adapters

    return reader if isinstance(reader, ArrayFiles) and type(reader) is ArrayFiles else None


def _by_added_layouts(checkpoint: Checkpoint, path: Path, options: Options) -> Checkpoint:
    """Return a file without layers of its own format as read by the layouts that a user or a package adds, if these find layers."""
    added = dict.fromkeys(value.framework for value in registry.installed_layouts() if isinstance(value, Layout))
    from rnnconvert.files.finder import ArrayFiles

    for reader in map(adapter, added):
        if isinstance(reader, ArrayFiles):
            read = reader.read_stored(Stored(dict(checkpoint.tensors)), path, options)
            if read.layers or read.unread:
                return read.replace(warnings=(*checkpoint.warnings, *read.warnings))
    return checkpoint


def _holds_layers(file: Opened) -> bool:
    """Return whether a file has recurrent layers, those that are not read among them."""
    try:
        checkpoint = detect.source(file).reader.read(file.path, Options())
    except RefusedError:
        return True
    except UnreadableError:
        return False
    return bool(checkpoint.layers or checkpoint.unread)


def without_clips(stack: Recurrent, options: Options) -> Recurrent:
    """Return a stack, without its clips where the caller drops them."""
    if any(d.cell.clips for _, _, d in stack.directions()) and options.get("clip", stack.name) == "none":
        return each(stack, lambda d: d.replace(cell=d.cell.replace(clips=())))
    return stack


def _left(options: Options, layer: str, stated: Iterable[Unconvertible]) -> tuple[Unconvertible, ...]:
    """Return the computations of a layer beyond its cell, with the facts that nothing accounts for.

    If the caller states that these facts are harmless, they are left out.
    """
    every = dict.fromkeys((*stated, *options.ledger.unaccounted(layer)))
    left = [feature for feature in every if feature.option == UNACCOUNTED]
    harmless = bool(left) and options.get(UNACCOUNTED, layer) == "harmless"
    return tuple(feature for feature in every if not harmless or feature.option != UNACCOUNTED)


def check_names(checkpoint: Checkpoint, options: Options) -> None:
    """Raise UsageError for a setting of a layer that does not exist."""
    for named in sorted(options.settings.layers() - set(checkpoint.layers)):
        there = f"It has {listed(checkpoint.layers)}" if checkpoint.layers else "It has none"
        raise UsageError(f"{checkpoint.path}: no recurrent layer {named!r}. {there}")


def _drafted(checkpoint: Checkpoint, by_gates: bool = False) -> list[str]:
    """Return the draft of a layout for the arrays of a checkpoint outside of its layers, line by line.

    by_gates  only for layers each of whose arrays has the name of a gate in its own
    """
    from rnnconvert.files import draft  # few files need one

    return draft.lines(checkpoint.tensors, by_gates)


def _others(number: int) -> str:
    return f"only {number} other tensor{'' if number == 1 else 's'}" if number else "nor any other weights"


def _next_to(path: str) -> str:
    """Return a sentence about a file of weights that is named after this one, as a program that saves a model in two files names it."""
    endings = dict.fromkeys(end for card in registry.cards().values() for end in (*card.endings, *card.usual))
    named = next((file for end in endings if (file := Path(path + end)).is_file()), None)
    return f"{quoted(named.name)} is next to it, and may hold the weights: give the path of that file. " if named else ""


def _named_alike(checkpoint: Checkpoint) -> list[str]:
    """Return a line for each framework of arrays by name whose layers' names and shapes some arrays of a checkpoint have."""
    readers = [_by_name(adapter(card.name)) for card in registry.cards().values() if not card.part("files")]
    alike = {reader.NAME: classes for reader in readers if reader is not None and (classes := reader.classes(checkpoint.tensors))}
    return [
        f"its arrays have the names and shapes of {' and '.join(classes)}, which {Flag('from', name)} reads"
        for name, classes in alike.items()
    ]


def select(checkpoint: Checkpoint, names: Sequence[str] | str) -> Checkpoint:
    """Return the checkpoint with only the layers named, in the order named; all of them if none is named.

    Raises UsageError for a layer that does not exist, UnreadableError if there is no recurrent layer at all, RefusedError for
    all of them where some were not read.
    """
    names = [names] if isinstance(names, str) else names
    names = ["" if name == called("") and "" in checkpoint.layers else name for name in names]
    if checkpoint.unread and not names:
        error = UnreadLayersError(checkpoint.path, checkpoint.unread, list(checkpoint.layers))
        if any(note.kind == UNDESCRIBED for note in checkpoint.unread):
            error.also(*_drafted(checkpoint))
        raise error
    named = suspects(checkpoint)
    if not checkpoint.layers and named:
        raise UnreadableError(
            checkpoint.path,
            f"no recurrent layer in it could be read, though {quoted(named[0])} is named as an array of one",
            "List what the file holds with: rnnconvert inspect -v. Read the model as it was first saved, or describe its "
            f"arrays with {Flag('layout')}",
            details=[*checkpoint.warnings[:5], *_named_alike(checkpoint), *_drafted(checkpoint)],
        )
    if not checkpoint.layers:
        failure = UnreadableError if checkpoint.warnings else WithoutLayersError
        raise failure(
            checkpoint.path,
            f"it has no recurrent layer, {_others(len(checkpoint.tensors))}",
            f"{_next_to(checkpoint.path)}If you expect one, list what the file holds with: rnnconvert inspect -v. Arrays of a cell of your "
            f"own: put them into an .npz, .safetensors or pickle, and describe them with {Flag('layout')}",
            details=[*checkpoint.warnings[:5], *_drafted(checkpoint, by_gates=True)],
        )
    twice = first_twice(names)
    if twice is not None:
        raise UsageError(f"the layer {twice!r} is named twice. Name it once")
    unknown = [name for name in names if name not in checkpoint.layers]
    if unknown:
        raise UsageError(f"{checkpoint.path} has no recurrent layer {unknown[0]!r}. It has {listed(checkpoint.layers)}")
    if not names:
        return checkpoint
    left = [name for name in checkpoint.layers if name not in names]
    return checkpoint.replace(
        layers={name: checkpoint.layers[name] for name in names},
        warnings=tuple(note for note in checkpoint.warnings if layer_of(note) not in left),
        questions=tuple(question for question in checkpoint.questions if question.layer not in left),
    )
