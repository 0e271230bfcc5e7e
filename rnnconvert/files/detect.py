"""The format of a file: evidence from its content, and from its name only where content cannot decide."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import NamedTuple

from rnnconvert.containers import archives, npy
from rnnconvert.containers.files import lowered
from rnnconvert.containers.stored import FileMetadata
from rnnconvert.core.arguments import nearest
from rnnconvert.core.arrays import is_float
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.printable import either
from rnnconvert.core.remedies import Command, Flag
from rnnconvert.files.adapter import Adapter, adapter, names
from rnnconvert.files.opened import FormatClaim, Opened
from rnnconvert.files.raw import PACKED
from rnnconvert.language import registry

_PICKLE = "a pickle without arrays named as those of a recurrent layer (it was read as data; no code in it ran)"

# Files that people will try, and that are told apart by their first bytes: (offset, bytes, what to say).
_FOREIGN: tuple[tuple[int, bytes, str], ...] = (
    *((0, bytes((0x80, protocol)), _PICKLE) for protocol in (2, 3, 4, 5)),
    *((0, first + b"q\0", _PICKLE) for first in (b"}", b"]")),
    *((0, b"MATLAB " + release, "a file of MATLAB's. Export the network there, or save its arrays apart") for release in (b"5.0", b"7.3")),
    *(
        (0, magic, "a model of Kaldi's, whose cells are spread over its components. nnet3-am-copy writes it as text, with their matrices")
        for magic in (b"\0B<Nnet3>", b"\0B<TransitionModel>", b"\0B<Nnet>", b"<Nnet3>", b"<TransitionModel>", b"<Nnet>")
    ),
    (0, b"\n\x07Stacked", "a network of CLSTM's (ocropus). Save its arrays apart there"),
    *PACKED,
    (0, b"\x93NUMPY", "a bare array of numpy's"),
    (0, b"PK\x03\x04", "a zip archive without a known model, and without arrays named as those of a recurrent layer"),
)


class DetectedSource(NamedTuple):
    """The reader of a file: the adapter, why, and what else the file may be, each with its evidence."""

    reader: Adapter
    evidence: str
    others: tuple[tuple[str, str], ...] = ()


def seen(file: Opened) -> dict[str, FormatClaim]:
    """Return the formats that a file may have, each with what it sees, the surest first; only rooms of its kinds are
    entered, and once in a reading.
    """
    return file.examined(_seen)


def _seen(file: Opened) -> dict[str, FormatClaim]:
    formats = {}
    for name in names():
        card = registry.cards().get(name)
        if card is None or file.may_be(card):
            evidence = adapter(name).recognise(file)
            if evidence is not None:
                formats[name] = evidence
    return dict(sorted(formats.items(), key=lambda entry: (-entry[1].score, -entry[1].covered)))


def source(file: Opened, format: str | None = None) -> DetectedSource:
    """Return the adapter that reads a file, and why: the format asked for, or the one that its content shows.

    Raises UnreadableError if no format fits, UsageError for an unknown format.
    """
    path, head = file.path, file.head
    if format is not None:
        return DetectedSource(adapter(format), "as asked")
    matches = seen(file)
    if matches:
        (name, best), *rest = matches.items()
        others = tuple((other, what.evidence) for other, what in rest if what.score == best.score)
        return DetectedSource(adapter(name), best.evidence, others)
    if not head and path.is_file():
        raise UnreadableError(path, "the file is empty", "Save or fetch it again.")
    if file.damage is not None:
        raise file.damage
    if head.startswith(_FOREIGN[-1][1]) and file.entries is None:
        raise UnreadableError(path, "it is a zip archive that cannot be listed", "It is cut off or damaged; fetch it again.")
    heads = [*(magic for system in registry.systems().values() for magic in system.heads), *_FOREIGN]
    what = next((text for at, magic, text in heads if head[at:].startswith(magic)), None) or _document(file) or _text(path, head)
    _check_parts(path, what)
    _check_folder(path)
    _check_outside(path, what)
    raise UnreadableError(
        path,
        f"it looks like {what}" if what else f"it is of no known format (it begins with {head[:8]!r})",
        f"{'' if what else _by_name(file)}`rnnconvert formats` lists what can be read. {_of_arrays(file)}",
        details=[*_objects(file), *_draft(file)],
    )


def _of_arrays(file: Opened) -> str:
    """Return the advice on how arrays of any origin can be read, in a sentence."""
    if _floats(file):
        bare = [card.name for card in registry.cards().values() if "described" in card.kinds] if _is_vector(file) else []
        by_sizes = (
            f"{' or '.join(str(Flag('from', name)) for name in bare)} reads a flat buffer by the sizes that you state. " if bare else ""
        )
        return (
            f"{by_sizes}If you have an input and its output, `{Command('identify', file.path, io='sample.npz')}` finds out what "
            f"these arrays are. If you know it, describe them with {Flag('layout')}."
        )
    return f"Arrays of another origin: put them into an .npz, .safetensors or pickle, and describe them with {Flag('layout')}."


def _floats(file: Opened) -> bool:
    """Return whether floating-point numbers can be read from a file by their names, or from a row of numpy's."""
    try:
        arrays = file.cached(npy.read_row if "npy" in file.kinds else archives.reader(file.path, file.head)).arrays
    except UnreadableError:
        return False
    return any(map(is_float, arrays.values()))


def _is_vector(file: Opened) -> bool:
    """Return whether a file is one vector of numpy's."""
    try:
        arrays = list(file.cached(npy.read_row).arrays.values()) if "npy" in file.kinds else []
    except UnreadableError:
        return False
    return len(arrays) == 1 and arrays[0].ndim == 1


def _by_name(file: Opened) -> str:
    """Return a sentence about the formats that a file's name suggests, and that such bytes may be, as any may be a raw buffer."""
    name = lowered(file.path).name
    fitting = [
        card.name
        for card in registry.cards().values()
        if name.endswith((*card.endings, *card.usual)) and ("described" in card.kinds or file.may_be(card))
    ]
    if not 0 < len(fitting) <= _GUESSES:
        return ""
    read = Command("inspect", file.path, **{"from": fitting[0]})
    return f"By its name it would be {' or '.join(fitting)}: `{read}` reads it as that. "


_GUESSES = 2
"""How many formats a message may suggest; more would hide it."""


def _objects(file: Opened) -> list[str]:
    """Return which arrays of an archive, or of a file of numpy's, are pickled objects, and what makes arrays of them."""
    reader = npy.read_row if "npy" in file.kinds else archives.reader(file.path, file.head) if file.archive else None
    try:
        stored = file.cached(reader) if reader is not None else None
    except UnreadableError:
        return []
    reasons = stored.metadata_as(FileMetadata).get("unreadable", {}) if stored is not None else {}
    pickled = [name for name, reason in reasons.items() if reason == npy.PICKLED]
    if not pickled:
        return []
    return [
        f"{pickled[0]!r}{f' and {len(pickled) - 1} more' if pickled[1:] else ''}: {npy.PICKLED}. Where you trust the file, "
        "numpy.load(FILE, allow_pickle=True) gives them; save their arrays by name with numpy.savez"
    ]


def _draft(file: Opened) -> list[str]:
    """Return the draft of a layout for the arrays of an archive, line by line."""
    from rnnconvert.files import draft  # few files need one

    try:
        return draft.lines(file.cached(archives.reader(file.path, file.head)).arrays) if file.archive else []
    except UnreadableError:
        return []


def _check_parts(path: Path, what: str | None) -> None:
    """Raise UnreadableError for a part of a checkpoint alone, and for a folder of several; `what` says what else it is."""
    from rnnconvert.containers.tensor_bundle import SUFFIX, index_beside

    index = index_beside(path)
    if index is not None and not index.is_file() and (what is None or ".data-" in path.name) and not path.is_dir():
        raise UnreadableError(
            path,
            f"it looks like a part of a checkpoint, but {index.name} is not next to it",
            "Put all files of the checkpoint into one folder.",
        )
    inside = sorted(part_path.name for part_path in path.glob(f"*{SUFFIX}")) if path.is_dir() else []
    if len(inside) > 1:
        listed = ", ".join(inside[:5]) + (" and more" if len(inside) > 5 else "")
        raise UnreadableError(path, f"it holds {len(inside)} checkpoints: {listed}", "Give the path of one of them.")


def _check_folder(path: Path) -> None:
    """Raise UnreadableError for a folder without anything in it, and for one of model files."""
    if not path.is_dir():
        return
    inside = sorted(entry.name for entry in path.iterdir())
    if not inside:
        raise UnreadableError(path, "the folder is empty")
    endings = tuple(end for card in registry.cards().values() for end in (*card.endings, *card.usual) if end != ".json")
    models = [name for name in inside if name.lower().endswith(endings)]
    if models:
        listed = ", ".join(models[:3]) + (" and more" if len(models) > 3 else "")
        raise UnreadableError(
            path, f"the folder itself is not a model, but holds {listed}", "Give the path of one of them; `rnnconvert batch` converts many."
        )


def _check_outside(path: Path, what: str | None) -> None:
    """Raise UnreadableError for a file in a folder that is a model as a whole; plain text may stand in any; `what` says what else it is."""
    if what is not None and what.startswith(_PLAIN):
        return
    for folder in list(path.absolute().parents)[:_LEVELS]:
        for name in seen(Opened(folder)):
            raise UnreadableError(path, f"it is a part of a model of {registry.title(name)}, which is a folder", f"Give its path: {folder}")


_LEVELS = 4
"""How many folders above a file may be the model that it is a part of."""
_PICKLE_0 = re.compile(rb"(?:\(dp?\d*\n|\(lp?\d*\n|\(d\.|\(l\.|c[A-Za-z_][\w.]*\n[A-Za-z_]\w*\n)")


def _document(file: Opened) -> str | None:
    """Return whose document a file of JSON is, among those that name themselves and hold no arrays as JSON; None for any other file."""
    document = file.json or {}
    if {"architecture", "trainable_params", "image_data_format"} <= document.keys():
        return "JSON that frugally-deep made of a model of another framework: convert that model"
    layers = document.get("layers")
    kinds = [layer.get("type") for layer in layers if isinstance(layer, dict)] if isinstance(layers, list) else []
    if any(kind in kinds for kind in ("lstm", "blstm")) and isinstance(document.get("weights"), dict):
        return "a network of CURRENNT's, whose LSTMs have peepholes"
    return None


def _text(path: Path, head: bytes) -> str | None:
    """Return the kind of a file of text that begins like this, in words, or None."""
    if path.is_dir():
        inside = sorted(entry.name for entry in path.iterdir())[:5]
        return f"a folder of another kind ({', '.join(inside)}); `rnnconvert batch` converts all models below one"
    if _PICKLE_0.match(head):
        return _PICKLE
    try:
        start = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            return None
        start = head[: error.start].decode("utf-8-sig", "replace")
    start = start.lstrip()
    if start[:1] in ("{", "["):
        return "JSON without arrays named as those of a recurrent layer"
    plain = bool(start) and all(letter.isprintable() or letter.isspace() for letter in start)
    return f"{_PLAIN} ({start[:20]!r})" if plain else None


_PLAIN = "text of no known format"


class _Endings(NamedTuple):
    """The endings of files: those that are only read, those that one format has although others write them too, and the
    formats that write each, the longest ending first.
    """

    unwritten: list[tuple[str, registry.Card]]
    default: list[tuple[str, registry.Card]]
    written: dict[str, list[str]]


@functools.lru_cache(maxsize=4)
def _endings(added: tuple[tuple[str, tuple[str, ...]], ...]) -> _Endings:
    """Return the endings of formats that were added, and of this project's own."""
    cards = registry.cards()
    written: dict[str, list[str]] = {}
    for format, endings in (*added, *((card.name, card.written) for card in cards.values())):
        for end in endings:
            written.setdefault(end, []).append(format)
    return _Endings(
        [(end, card) for card in cards.values() for end in card.unwritten],
        [(end, card) for card in cards.values() for end in card.usual],
        {end: written[end] for end in sorted(written, key=len, reverse=True)},
    )


def target(path: Path, format: str | None = None) -> Adapter:
    """Return the adapter that writes a file: the format asked for, or the one that the file's name ends like.

    Raises UsageError if neither decides it, or if the format does not write files of that name.
    """
    name = lowered(path).name
    cards = registry.cards()
    table = _endings(tuple((candidate, adapter(candidate).SUFFIXES) for candidate in names() if candidate not in cards))
    unwritten = [(end, card) for end, card in table.unwritten if name.endswith(end) and format in (None, card.name)]
    if unwritten:
        end, card = unwritten[0]
        instead = "another ending: `rnnconvert formats` lists them"
        if card.written:
            instead = f"a name that ends in {either(card.written)}, with {either(str(Flag('to', other.name)) for _, other in unwritten)}"
        raise UsageError(f"{path}: {end} files are only read. Choose {instead}")
    if format is not None:
        chosen = adapter(format)
        room_card = registry.cards().get(format)
        written = chosen.SUFFIXES if room_card is None else room_card.written
        if not written:
            raise UsageError(f"{path}: {format} files are only read, not written")
        if not name.endswith(written):
            raise UsageError(
                f"{path}: {format} cannot be written to a file of this name. Choose a name that ends in one of {', '.join(written)}, such "
                f"as {path.name}{written[0]}"
            )
        return chosen
    for end, card in table.default:
        if name.endswith(end):
            claimant = next((other for other in cards.values() if name in other.named and name.endswith(other.written)), card)
            return adapter(claimant.name)
    for end, formats in table.written.items():
        if name.endswith(end):
            if len(formats) > 1:
                raise UsageError(f"{path}: files with this ending are written for {', '.join(formats)}. Choose one with {Flag('to')}.")
            return adapter(formats[0])
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Name a file in it.")
    hint = nearest(path.suffix, table.written, "ending")
    raise UsageError(f"{path}: cannot infer the format from the file name. Name it with {Flag('to')}. {hint}")
