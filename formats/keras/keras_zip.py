"""Keras 3 `.keras` files: a zip of two JSON texts and an HDF5 file, which is read in place."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from rnnconvert.containers import hdf5, json_text
from rnnconvert.containers.checksums import Crc32
from rnnconvert.containers.files import map_file, replacing, write_pieces
from rnnconvert.containers.hdf5_write import lay_out
from rnnconvert.containers.reading import charging
from rnnconvert.containers.stored import Stored
from rnnconvert.containers.stored_zip import StoredZip
from rnnconvert.containers.temporary import room_for
from rnnconvert.containers.window import Window
from rnnconvert.core.arrays import Array, PiecewiseArray, nbytes
from rnnconvert.core.errors import RnnConvertError, UnreadableError, UsageError, unwritable
from rnnconvert.core.names import named
from rnnconvert.formats.keras.metadata import KerasMetadata

METADATA = "metadata.json"
CONFIG = "config.json"
WEIGHTS = "model.weights.h5"

MEMBERS = 100_000
JSON_BYTES = 256 << 20
_LOCAL_HEADER = 30
_BLOCK = 8 << 20


def read(path: str | os.PathLike[str]) -> Stored:
    """Return the arrays as `hdf5.read` does; metadata also has "config" and "metadata", parsed.

    Raises UnreadableError if the zip is damaged or hostile, or lacks one of the three members.
    """
    from rnnconvert.formats.keras import groups  # what writes does not read

    data = map_file(path)
    try:
        with zipfile.ZipFile(Window(data)) as archive:
            members = _members(path, archive)
            texts = {name: _json(path, archive, members[name]) for name in (CONFIG, METADATA)}
            inner = _inner(path, data, archive, members[WEIGHTS])
        stored = groups.modern(path, hdf5.read(path, inner), str(texts[METADATA].get("keras_version", "")))
    except RnnConvertError:
        raise
    except Exception as error:  # zipfile, zlib and json raise errors of every type on a damaged file
        problem = str(error).rstrip(".") or type(error).__name__
        raise UnreadableError(path, f"not a valid .keras file: {problem}") from None
    return Stored(stored.arrays, {**stored.metadata, **KerasMetadata(config=texts[CONFIG], metadata=texts[METADATA])})


def _members(path: object, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name. Raises UnreadableError for names that are doubled, missing or lead outside."""
    infos = archive.infolist()
    if len(infos) > MEMBERS:
        raise UnreadableError(path, f"the zip has {len(infos)} members, more than {MEMBERS}")
    members = named(((info.filename, info) for info in infos), path)
    for info in infos:
        parts = info.filename.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or parts[0].endswith(":"):
            raise UnreadableError(path, f"the zip has a member that leads out of it, {info.filename!r}")
    for name in (CONFIG, METADATA, WEIGHTS):
        if name not in members:
            raise UnreadableError(path, f"the zip has no member {name!r}, so it is not a .keras file")
        _check_expansion(path, members[name])
    return members


def _check_expansion(path: object, info: zipfile.ZipInfo) -> None:
    if info.flag_bits & 1:
        raise UnreadableError(path, f"{info.filename!r} is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UnreadableError(path, f"{info.filename!r} is compressed in a way that Keras does not use")
    expansion = hdf5.EXPANSION if info.compress_type == zipfile.ZIP_DEFLATED else 1
    if info.file_size > expansion * info.compress_size:
        raise UnreadableError(path, f"{info.filename!r} claims {info.file_size} bytes, from {info.compress_size} stored ones")


def _json(path: object, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> dict[str, Any]:
    if info.file_size > JSON_BYTES:
        raise UnreadableError(path, f"{info.filename!r} has {info.file_size} bytes, more than {JSON_BYTES}")
    charging(info.compress_size).memory(info.file_size, path)
    try:
        parsed = json_text.loads(archive.read(info), path)
    except UnreadableError:
        raise
    except ValueError as error:
        raise UnreadableError(path, f"{info.filename!r} is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise UnreadableError(path, f"{info.filename!r} holds a {type(parsed).__name__}, not an object")
    return parsed


def _inner(path: object, data: Array, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    """Return the bytes of the HDF5 member: a part of the mapped file, or of a temporary one if it is deflated."""
    with archive.open(info) as member:  # zipfile compares both headers here
        if info.compress_type == zipfile.ZIP_DEFLATED:
            with room_for(path), tempfile.TemporaryFile() as unpacked:
                shutil.copyfileobj(member, unpacked, _BLOCK)
                unpacked.flush()
                return _map_open(path, unpacked)
    header = data[info.header_offset : info.header_offset + _LOCAL_HEADER].tobytes()
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    start = info.header_offset + _LOCAL_HEADER + name_length + extra_length
    if start + info.file_size > data.size:
        raise UnreadableError(path, f"{info.filename!r} reaches beyond the end of the file")
    return data[start : start + info.file_size]


def _map_open(path: object, file: IO[bytes]) -> Array:
    if os.fstat(file.fileno()).st_size == 0:
        raise UnreadableError(path, f"{WEIGHTS!r} is empty")
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def write(
    path: str | os.PathLike[str],
    config: Mapping[str, Any],
    metadata: Mapping[str, Any],
    arrays: Mapping[str, Array | PiecewiseArray],
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write a `.keras` file: the two texts and the arrays at their HDF5 paths, streamed.

    Raises UsageError if the texts are not JSON or the names cannot be written.
    """
    try:
        texts = {METADATA: json.dumps(metadata).encode(), CONFIG: json.dumps(config).encode()}
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: the configuration cannot be written as JSON: {error}") from None
    with replacing(path) as file, _scratch(path) as frame:
        places = lay_out(path, frame, arrays, attributes or {})
        archive = StoredZip(file)
        for name, text in texts.items():
            archive.add(name, text)
        numbers = [(offset, arrays[name]) for offset, name in places]
        archive.add_filled(WEIGHTS, frame.seek(0, os.SEEK_END), lambda out, check: _merge(out, check, frame, numbers))
        archive.finish()


def _merge(target: IO[bytes], check: Crc32, frame: IO[bytes], places: list[tuple[int, Array | PiecewiseArray]]) -> None:
    """Write the frame's bytes with the arrays' numbers in their places, in one pass."""

    def copy(size: int) -> None:
        while data := frame.read(min(size, _BLOCK)):
            target.write(data)
            check.append(check.part(memoryview(data)), len(data))
            size -= len(data)

    end, at = frame.seek(0, os.SEEK_END), frame.seek(0)
    for offset, array in places:
        copy(offset - at)
        write_pieces(target, array, check)
        at = frame.seek(offset + nbytes(array))
    copy(end - at)


@contextlib.contextmanager
def _scratch(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a temporary file next to the target: what the HDF5 library writes there is mostly holes."""
    try:
        with tempfile.TemporaryFile(dir=Path(path).parent) as file:
            yield file
    except OSError as error:
        raise unwritable(path, error) from None
