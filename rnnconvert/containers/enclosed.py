"""Files inside other files: the members of a zip or tar archive, and whole files that a pickle holds as bytes.

They are copied into a temporary folder, within bounds, for as long as the process runs; no name in an archive is used as a path
before it is checked, and nothing in a pickle is called.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rnnconvert.containers import pickled_arrays, pickles
from rnnconvert.containers.files import map_file
from rnnconvert.containers.numpy_values import content, numpy_value
from rnnconvert.containers.pickle_values import Foreign
from rnnconvert.containers.reading import charging, open_regular
from rnnconvert.containers.temporary import lasting_folder, room_for
from rnnconvert.containers.zips import Archive
from rnnconvert.core.errors import RnnConvertError, UnreadableError, for_user, show_as
from rnnconvert.core.limits import ENCLOSED_FILES, INFLATION, PICKLE_STEPS, UNPACKED_BYTES

if TYPE_CHECKING:
    import tarfile

_SHORTEST = 64
_STEP = 1 << 20
_HEADS = ((0, b"PK\x03\x04"), (0, b"\x89HDF\r\n\x1a\n"), (257, b"ustar"), (0, b"\x1f\x8b"))
"""How the bytes of a pickle begin that are a file of their own: where, and with what."""
_STATE = "data.pkl"


class EnclosedFile(NamedTuple):
    """A file, or a folder of them, that was inside another.

    path   the temporary copy
    place  its name in an archive, or its path in a pickle
    """

    path: Path
    place: str


def members(path: Path, wanted: Callable[[str], bool]) -> list[EnclosedFile]:
    """Return the members of a zip or tar archive whose names are wanted, each in its folder; none of any other or damaged file.

    Raises UnreadableError if a name leads outside, or if it holds more than is plausible.
    """
    import tarfile

    with open_regular(path) as file:
        try:
            if zipfile.is_zipfile(file):
                file.seek(0)
                with zipfile.ZipFile(file) as archive:
                    infos = [info for info in archive.infolist() if not info.is_dir()]
                    entries = [(info.filename, info.file_size, lambda entry_info=info: archive.open(entry_info)) for info in infos]
                    return _unpacked(path, entries, wanted)
            file.seek(257)
            if file.read(5) == b"ustar":
                file.seek(0)
                with tarfile.open(fileobj=file, mode="r:") as tar:
                    files = [member for member in _listed(tar) if member.isreg()]
                    return _unpacked(
                        path, [(member.name, member.size, lambda file_info=member: tar.extractfile(file_info)) for member in files], wanted
                    )
        except RnnConvertError:
            raise
        except (OSError, NotImplementedError, zlib.error, zipfile.BadZipFile, tarfile.TarError, *pickles.RECOVERABLE):
            return []
    return []


def _listed(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for number, member in enumerate(tar):
        if number > PICKLE_STEPS // 1000:
            break
        yield member


def _unpacked(path: Path, entries: Any, wanted: Callable[[str], bool]) -> list[EnclosedFile]:
    chosen = [(name.replace("\\", "/"), size, opener) for name, size, opener in entries]
    chosen = [entry for entry in chosen if wanted(entry[0])]
    if not chosen:
        return []
    if len(chosen) > ENCLOSED_FILES:
        raise UnreadableError(
            path,
            f"it is an archive of {len(chosen)} files that may be models: {', '.join(entry[0] for entry in chosen[:3])} ...",
            "Unpack it, and give the path of one.",
        )
    held = path.stat().st_size
    limit = min(UNPACKED_BYTES, held * INFLATION)
    if sum(size for _, size, _ in chosen) > limit:
        raise UnreadableError(path, f"its {held} bytes unpack to more than {limit}", "If you trust the file, unpack it yourself.")
    folder = lasting_folder()
    show_as(folder, for_user(str(path)))
    result = []
    with room_for(path):
        for name, size, opener in chosen:
            parts = PurePosixPath(name).parts
            if not parts or ".." in parts or parts[0].endswith(":") or name.startswith("/"):
                raise UnreadableError(path, f"it has a member that leads out of it, {name!r}")
            target = folder.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with opener() as source, target.open("xb") as out:
                _copy(path, source, out, size)
            result.append(EnclosedFile(target, name))
    return result


def _copy(path: Path, source: IO[bytes], target: IO[bytes], size: int) -> None:
    left = size
    while piece := source.read(_STEP):
        left -= len(piece)
        if left < 0:
            raise UnreadableError(path, "a member of it is longer than it claims")
        target.write(piece)


def in_pickle(path: Path) -> list[EnclosedFile]:
    """Return the files that a pickle holds as bytes; a pickle may be a file, or state in a zip archive.

    A damaged pickle has none: its reader reports the damage.
    """
    unpacked: list[EnclosedFile] = []
    try:
        described = _described(path)
    except UnreadableError:
        return unpacked
    for place, data in _byte_values(described, path):
        if len(unpacked) == ENCLOSED_FILES:
            break
        folder = lasting_folder()
        target = folder / "bytes"
        with room_for(path), target.open("wb") as out:
            out.write(data)
        show_as(target, for_user(str(path)))
        unpacked.append(EnclosedFile(target, place))
    return unpacked


def texts_in_pickle(path: Path) -> list[EnclosedFile]:
    """Return the texts in a pickle that may be JSON objects, each in a file; none where it holds matrices, which such a text would
    not stand for.
    """
    try:
        described = _described(path)
        held = pickled_arrays.read(path).arrays if described is not None else {}
    except UnreadableError:
        return []
    if any(array.ndim > 1 for array in held.values()):
        return []
    unpacked: list[EnclosedFile] = []
    for place, value in _values(described, path):
        if isinstance(value, str) and len(value) >= _SHORTEST and value.lstrip()[:1] == "{" and len(unpacked) < ENCLOSED_FILES:
            target = lasting_folder() / "text.json"
            with room_for(path):
                target.write_text(value, "utf-8", "replace")
            show_as(target, for_user(str(path)))
            unpacked.append(EnclosedFile(target, place))
    return unpacked


def _described(path: Path) -> Any:
    """Read the pickle that a file is, or that a zip archive holds. Return its content, or None if there is no pickle."""
    with open_regular(path) as file:
        head = file.read(300)
    if head.startswith(b"PK"):
        archive = Archive(path)
        state = next((name for name in archive if name.rpartition("/")[2] == _STATE), None)
        return None if state is None else pickles.load(archive.read(state), path, pickles.Meanings(persistent=_nothing))[0]
    return pickled_arrays.value(path) if pickled_arrays.looks_like(head) else None


def _nothing(identity: Any) -> None:
    """Stand for what lies outside the pickle."""


def _byte_values(root: Any, path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the bytes in a value that begin as a file does, each once, with its path."""
    for place, value in _values(root, path):
        if isinstance(value, str) or len(value) < _SHORTEST:
            continue
        if any(value[at:].startswith(head) for at, head in _HEADS):
            yield place, bytes(value)


def _values(root: Any, path: Path) -> Iterator[tuple[str, bytes | bytearray | str]]:
    """Yield the bytes and the texts in a value, each once, with its path."""
    budget = charging(map_file(path).size)
    seen: set[int] = set()
    left: list[tuple[str, Any]] = [("", root)]
    while left:
        place, value = left.pop()
        if id(value) in seen or not isinstance(value, str | bytes | bytearray | dict | list | tuple | Foreign):
            continue
        seen.add(id(value))
        budget.work(10, path)
        if isinstance(value, Foreign):
            array = numpy_value(value)
            if array is not None and array.dtype == np.uint8 and array.ndim == 1:
                value = array.tobytes()
            elif array is None:
                value = content(value) or value
        if isinstance(value, str | bytes | bytearray):
            yield place, value
        else:
            left += reversed([(_joined(place, key), inner) for key, inner in _parts(value)])


def _joined(place: str, key: str) -> str:
    return f"{place}/{key}"[:200].strip("/") if key else place


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((key if isinstance(key, str) else "", inner) for key, inner in value.items())
    elif isinstance(value, Foreign):
        for inner in (*value.args, value.state, *value.items, value.entries):
            yield "", inner
    else:
        yield from (("", inner) for inner in value)
