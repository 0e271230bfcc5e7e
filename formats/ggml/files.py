"""whisper.cpp's files of the Silero VAD: sizes, then every array behind its name. Source: models/convert-silero-vad-to-ggml.py."""

from __future__ import annotations

import struct
from typing import Any, TypedDict

import numpy as np

from rnnconvert.containers.files import map_file, view
from rnnconvert.containers.reading import charging
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.names import add
from rnnconvert.files.finder import ArrayFiles
from rnnconvert.files.opened import Opened

_BEGIN = b"lmgg\x0a\0\0\0silero-16k"
_MOST_DIMENSIONS, _MOST_LAYERS, _LONGEST = 4, 64, 256
_NUMBERS: dict[int, np.dtype[Any]] = {0: np.dtype("<f4"), 1: np.dtype("<f2")}


class GgmlMetadata(TypedDict):
    """The metadata of a file: the sizes of its network."""

    version: tuple[int, ...]


class Ggml(ArrayFiles):
    """The adapter of ggml: see rnnconvert.files.adapter."""

    STATED_KIND = True

    def kind(self, file: Opened) -> str:
        """Return the kind of this file, in words; "" if it is not one of ggml."""
        return "a file of ggml, by its first bytes" if file.head.startswith(_BEGIN[:4]) else ""

    def stored(self, file: Opened) -> Stored:
        """Return every array by name. Raises UnreadableError for another network than Silero's."""
        if not file.head.startswith(_BEGIN):
            raise UnreadableError(file.path, "it is a file of ggml, but not Silero's VAD, the only one with an LSTM")
        data, at = map_file(file.path), len(_BEGIN)

        def integers(count: int) -> tuple[int, ...]:
            nonlocal at
            values = view(data, at, (count,), np.dtype("<i4"), file.path, "a header")
            at += values.nbytes
            return tuple(int(value) for value in values)

        layers = integers(6)[-1]  # the version, the window, the context, and how many layers its encoder has
        if not 0 <= layers <= _MOST_LAYERS:
            raise UnreadableError(file.path, f"its encoder has {layers} layers")
        integers(3 * layers + 4)
        arrays: dict[str, Array] = {}
        while at < data.size:
            charging(0).work(10, file.path)
            dimensions, length, number = integers(3)
            if not (0 <= dimensions <= _MOST_DIMENSIONS and 0 < length <= _LONGEST and number in _NUMBERS):
                raise UnreadableError(file.path, f"at byte {at} is an array of {dimensions} dimensions and numbers of the kind {number}")
            shape = integers(dimensions)[::-1]
            name = view(data, at, (length,), np.dtype("u1"), file.path, "a name").tobytes().decode("utf-8", "replace")
            add(arrays, name, view(data, at + length, shape, _NUMBERS[number], file.path, name), file.path)
            at += length + arrays[name].nbytes
        return Stored(arrays, GgmlMetadata(version=struct.unpack_from("<3i", file.head, len(_BEGIN))))


ADAPTERS = (Ggml("ggml", (), "."),)
