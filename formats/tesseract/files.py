"""Tesseract's networks: the LSTM of a .traineddata, or a .lstm alone, layer in layer.

Source: tesseract, src/ccutil/tessdatamanager.cpp for the components; src/lstm/network.cpp, plumbing.cpp and the DeSerialize of each kind.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from rnnconvert.containers.files import lowered, map_file, view
from rnnconvert.containers.reading import charging
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.files.adapter import unique
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.finder import ArrayFiles
from rnnconvert.files.opened import Opened
from rnnconvert.files.options import Options
from rnnconvert.language import registry

_COMPONENT, _MOST, _DEEPEST = 17, 64, 32
_PLUMBING = ("Series", "Parallel", "Replicated", "ParBidiLSTM", "DepParUDLSTM", "Par2dLSTM", "RTLReversed", "TTBReversed", "XYTranspose")
_DENSE = ("Logistic", "LinLogistic", "LinTanh", "Tanh", "Relu", "Linear", "Softmax", "SoftmaxNoCTC")
_FIXED = {"Input": 20, "Convolve": 8, "Maxpool": 8, "Reconfig": 8}
"""Kinds without weights, and how many bytes they have of their own."""
_GATES = ("CI", "GI", "GF1", "GO", "GFS")
_OWN_RATES, _INT8, _DOUBLES = 64, 1, 128


class TesseractMetadata(TypedDict):
    """The metadata of a file: notes of layers that are not read, and whether its weights are integers."""

    unread: list[LayerNote]
    integers: bool


class _NetworkWalk:
    """A network on its way to arrays by names."""

    def __init__(self, data: Array, path: Path) -> None:
        self.data, self.path, self.at = data, path, 0
        self.arrays: dict[str, Array] = {}
        self.names: set[str] = set()
        self.unread: list[LayerNote] = []
        self.integers = False

    def take(self, size: int) -> bytes:
        """Return the bytes that follow. Raises UnreadableError."""
        if not 0 <= size <= self.data.size - self.at:
            raise UnreadableError(self.path, f"its network ends at byte {self.data.size}, within a layer")
        self.at += size
        return self.data[self.at - size : self.at].tobytes()

    def numbers(self, form: str) -> Any:
        """Return numbers of a form; one by itself."""
        values = struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))
        return values[0] if len(values) == 1 else values

    def text(self) -> str:
        """Return a text behind its length."""
        return self.take(self.numbers("I")).decode("latin1")

    def layer(self, above: str, depth: int) -> None:
        """Read a layer, and those in it."""
        charging(0).work(10, self.path)
        if depth > _DEEPEST:
            raise UnreadableError(self.path, f"its layers are nested more than {_DEEPEST} deep")
        kind = self.text() if self.numbers("b") == 0 else "of a number"
        _, _, flags, width, _, _ = self.numbers("bbIiii")
        name = f"{above}/{self.text() or kind}".strip("/")
        name = name if kind not in ("RTLReversed", "TTBReversed", "XYTranspose") else f"{name}({kind})"
        name = unique(name, self.names)
        self.names.add(name)
        if kind in _PLUMBING:
            for _ in range(self.numbers("I")):
                self.layer(name, depth + 1)
            if flags & _OWN_RATES:
                self.take(4 * self.numbers("I"))
        elif kind in _FIXED:
            self.take(_FIXED[kind])
        elif kind in _DENSE:
            self.arrays[f"{name}/weights"] = self.matrix()
        elif kind in ("LSTM", "SummLSTM"):
            self.lstm(name, width)
        else:
            raise UnreadableError(self.path, f"it has a layer {name!r} of the kind {kind!r}, which is not read")

    def lstm(self, name: str, width: int) -> None:
        """Read the gates of an LSTM: the last one is there in two dimensions only."""
        inputs, matrices = self.numbers("i"), [self.matrix()]
        units = matrices[0].shape[0]
        both = inputs == width + 2 * units
        matrices += [self.matrix() for _ in range(3 + both)]
        if not both and (inputs != width + units or {matrix.shape for matrix in matrices} != {(units, inputs + 1)}):
            raise UnreadableError(self.path, f"the gates of {name!r} do not fit together: {[matrix.shape for matrix in matrices]}")
        if both:
            self.unread.append(LayerNote(name, "an LSTM over two dimensions, which no other system here computes", UNREAD))
        parts = {"input": slice(0, width), "recurrent": slice(width, inputs), "bias": inputs}
        for gate, matrix in zip(_GATES, matrices, strict=False):
            self.arrays |= {f"{name}/{gate}/{part}": matrix[:, columns] for part, columns in parts.items() if not both}

    def matrix(self) -> Array:
        """Read a matrix: numbers of 64 bits, or of 8 with a scale for each row."""
        mode = self.numbers("B")
        if not mode & _DOUBLES:
            raise UnreadableError(self.path, "its weights are in the form of the first files of Tesseract 4, which is not read")
        dtype: np.dtype[Any] = np.dtype("i1" if mode & _INT8 else "<f8")
        rows, columns = self.numbers("ii")
        self.take(dtype.itemsize)  # what an empty place of the array holds
        matrix = view(self.data, self.at, (rows, columns), dtype, self.path, "a matrix of weights")
        self.at += matrix.nbytes
        if not mode & _INT8:
            return matrix
        self.integers = True
        scales = np.frombuffer(self.take(8 * self.numbers("I")), "<f8")[:rows]
        if scales.size != rows:
            raise UnreadableError(self.path, f"a matrix of {rows} rows has {scales.size} scales")
        charging(matrix.size).memory(12 * matrix.size, self.path)
        with np.errstate(all="ignore"):
            return np.asarray(matrix * scales[:, None], np.float32)


class Tesseract(ArrayFiles):
    """The adapter of Tesseract: see rnnconvert.files.adapter."""

    STATED_KIND = True

    def kind(self, file: Opened) -> str:
        """Return the kind of this file, in words; "" if it does not belong to Tesseract."""
        end = lowered(file.path).suffix
        return f"a file of Tesseract, by its ending {end}" if end in self.SUFFIXES else ""

    def stored(self, file: Opened) -> Stored:
        """Return the weights of the network, by names. Raises UnreadableError for a file without one."""
        data = map_file(file.path)
        if lowered(file.path).suffix == ".traineddata":
            count = struct.unpack("<i", data[:4].tobytes().ljust(4, b"\0"))[0]
            if not _COMPONENT < count <= _MOST or data.size < 4 + 8 * count:
                raise UnreadableError(file.path, "it has no network: files before Tesseract 4 have none")
            places = struct.unpack(f"<{count}q", data[4 : 4 + 8 * count].tobytes())
            begin = places[_COMPONENT]
            end = min((place for place in (*places, data.size) if place > begin), default=0)
            if not 0 < begin < end <= data.size:
                raise UnreadableError(file.path, "it has no network, or one outside the file")
            data = data[begin:end]
        walk = _NetworkWalk(data, file.path)
        walk.layer("", 0)
        return Stored(walk.arrays, TesseractMetadata(unread=walk.unread, integers=walk.integers))

    def read(self, path: Path, options: Options) -> Checkpoint:
        """Return every LSTM; warnings name what its integers lose."""
        checkpoint = super().read(path, options)
        unread = checkpoint.metadata_as(TesseractMetadata)["unread"]
        warning = ("its weights are stored as int8, and are read as the float32 numbers that these stand for",)
        warnings = (*checkpoint.warnings, *unread, *(warning if checkpoint.metadata_as(TesseractMetadata)["integers"] else ()))
        return checkpoint.replace(warnings=warnings, unread=(*checkpoint.unread, *unread))


ADAPTERS = (Tesseract("tesseract", registry.endings("tesseract"), "/"),)
