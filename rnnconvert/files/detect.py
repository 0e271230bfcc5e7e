"""Which format a file is of: evidence from its content, and from its name only where content cannot say."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from rnnconvert.containers import unpacked
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.files.adapter import Adapter, adapter, adapters
from rnnconvert.files.finder import ArrayFiles
from rnnconvert.language import registry

# Files that people will try, and that are told apart by their first bytes: (offset, bytes, what to say).
_FOREIGN: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x80\x02", "a bare pickle, which is not read because reading one can run code"),
    (0, b"\x80\x03", "a bare pickle, which is not read because reading one can run code"),
    (0, b"\x80\x04", "a bare pickle, which is not read because reading one can run code"),
    (0, b"\x80\x05", "a bare pickle, which is not read because reading one can run code"),
    (0, b"GGUF", "a GGUF model"),
    (0, b"\x1f\x8b", "a gzip archive of an archive; unpack it first"),
    (0, b"BZh", "a bzip2 archive; unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard archive; unpack it first"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first"),
    (257, b"ustar", "a tar archive; unpack it first"),
    (0, b"\x93NUMPY", "a bare array of numpy's"),
    (
        0,
        b"PK\x03\x04",
        "a zip archive with no model that is known here, and no arrays named as those of a recurrent layer, in it",
    ),
)


def recognise(path: Path) -> dict[str, str]:
    """The formats that a file may be of, each with its evidence; the most specific first.

    Raises UnreadableError if the file is not there or may not be read.
    """
    head = _head(path)
    evidence = {name: one.recognise(path, head) for name, one in adapters().items()}
    found = {name: text for name, text in evidence.items() if text}
    if "keras" in found:  # it claims every HDF5 file, and these have looked for their own arrays in it
        looked = [name for name in found if isinstance(adapter(name), ArrayFiles)]
        return {name: found[name] for name in [*looked, *found]}
    return found


def _head(path: Path) -> bytes:
    # A TensorFlow checkpoint goes by the name that its files share.
    if path.is_dir() or (not path.exists() and Path(f"{path}.index").is_file()):
        return b""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe would wait for whoever writes to it
            raise UnreadableError(path, "it is no regular file")
        with path.open("rb") as file:
            return file.read(1 << 16)
    except OSError as error:
        raise UnreadableError(path, error.strerror or str(error)) from None


def packed(path: Path) -> Path | None:
    """The file inside a .gz or .xz, unpacked; None for any other file, and for what a format reads as it is."""
    if not unpacked.is_packed(_head(path)) or recognise(path):
        return None
    return unpacked.unpacked(path)


def source(path: Path, format: str | None = None) -> tuple[Adapter, str]:
    """The adapter that reads a file, and why: the format asked for, or the one that its content shows.

    Raises UnreadableError if no format fits, UsageError if there is no format of that name.
    """
    if format is not None:
        _head(path)
        return adapter(format), "as asked"
    found = recognise(path)
    if found:
        name, evidence = next(iter(found.items()))
        return adapter(name), evidence
    head = _head(path)
    if not head and path.is_file():
        raise UnreadableError(path, "the file is empty")
    heads = [*(one for system in registry.systems().values() for one in system.heads), *_FOREIGN]
    what = next((text for at, magic, text in heads if head[at:].startswith(magic)), None) or _text(path, head)
    raise UnreadableError(
        path,
        f"it looks like {what}" if what else f"it is of no known format (it begins with {head[:8]!r})",
        f"These can be read: {', '.join(adapters())}. If it is one of them, say which with --from. Arrays from anywhere else "
        "are read out of an .npz or a .safetensors, with --layout to say how they lie.",
    )


_PICKLE_0 = re.compile(rb"(?:\(dp?\d*\n|\(lp?\d*\n|\(d\.|\(l\.|c[A-Za-z_][\w.]*\n[A-Za-z_]\w*\n)")


def _text(path: Path, head: bytes) -> str | None:
    """What a file of text is that begins like this, or None."""
    if path.is_dir():
        inside = sorted(one.name for one in path.iterdir())[:5]
        return f"a folder of another kind ({', '.join(inside) or 'empty'})"
    if _PICKLE_0.match(head):
        return "a bare pickle of protocol 0, which is not read because reading one can run code"
    try:
        start = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            return None
        start = head[: error.start].decode("utf-8-sig", "replace")
    start = start.lstrip()
    if start[:1] in ("{", "["):
        return "JSON, whose numbers have no names that are known here"
    plain = bool(start) and all(letter.isprintable() or letter.isspace() for letter in start)
    return f"text of no known format ({start[:20]!r})" if plain else None


def target(path: Path, format: str | None = None) -> Adapter:
    """The adapter that writes a file: the format asked for, or the one that the file's name ends like.

    Raises UsageError if neither says it, or if the format does not write files of that name.
    """
    if format is not None:
        chosen = adapter(format)
        if not chosen.SUFFIXES:
            raise UsageError(f"{path}: {format} files are read, and not written")
        if not path.name.endswith(chosen.SUFFIXES):
            raise UsageError(f"{path}: {format} files end in {', '.join(chosen.SUFFIXES)}")
        return chosen
    endings: dict[str, list[Adapter]] = {}
    for one in adapters().values():
        for end in one.SUFFIXES:
            endings.setdefault(end, []).append(one)
    fitting = [end for end in _PREFERRED if path.name.endswith(end)]
    if fitting:
        return adapter(_PREFERRED[fitting[0]])
    for end in sorted(endings, key=len, reverse=True):
        if path.name.endswith(end):
            if len(endings[end]) > 1:
                names = ", ".join(one.NAME for one in endings[end])
                raise UsageError(f"{path}: files with this ending are written for {names}; say which with --to.")
            return endings[end][0]
    raise UsageError(
        f"{path}: the name does not say which format to write. Known endings: {', '.join(sorted(endings))}; "
        f"or say --to with one of {', '.join(adapters())}."
    )


_PREFERRED = {".safetensors": "pytorch", ".bin": "cudnn", ".msgpack": "flax", ".h5": "keras", ".hdf5": "keras"}
"""Endings that several formats share, and the one that is meant when nobody says."""
