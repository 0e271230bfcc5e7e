"""A model of ncnn under construction: its layers, the blobs between them, its numbers, and how it is run beside its source.

A blob has no axis for the batch: it is a tensor of one sequence. Its axes are (channels, height, width), of which those in front may be
absent; a sequence (time, features) is one of height and width.
Source: ncnn docs/developer-guide/operators.md; src/paramdict.cpp (a number with a point is a real one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from rnnconvert.containers.data_files import replacing_both
from rnnconvert.containers.files import ChecksumWriter
from rnnconvert.core.arrays import Array, PiecewiseArray, nbytes
from rnnconvert.formats.ncnn import param
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.runners import FileModel, ModelApart, ModelOutputs
from rnnconvert.running.models import NamedArrays
from rnnconvert.scaffolding.export_target import ExportedGraph

Settings = Mapping[int, int | float | Sequence[int]]
"""Parameters of a layer by their numbers."""
OPEN = -1
"""The length of an open axis of an input: ncnn asks for none, and the executor reads it so."""
_LISTS = -23300
"""A parameter that is a list has its number subtracted from this one."""


@dataclass
class NetLayer:
    """A layer: its type, its name, the blobs that it reads and gives, its parameters by their numbers, and its numbers.

    numbers  in the order of the .bin; with a tag in front where the layer reads one
    """

    type: str
    name: str
    bottoms: list[str]
    tops: list[str]
    settings: Settings = field(default_factory=dict)
    numbers: Sequence[tuple[bool, Array | PiecewiseArray]] = ()

    def __str__(self) -> str:
        words = [self.type, self.name, str(len(self.bottoms)), str(len(self.tops)), *self.bottoms, *self.tops]
        for key, value in self.settings.items():
            if isinstance(value, int):
                words.append(f"{key}={value}")
            elif isinstance(value, float):
                words.append(f"{key}={value!r}" if "." in repr(value) or "e" in repr(value) else f"{key}={value}.0")
            else:
                words.append(f"{_LISTS - key}={','.join(map(str, (len(value), *value)))}")
        return " ".join(words)


class NetLayers:
    """The layers of a model, in the order of running."""

    def __init__(self) -> None:
        self.layers: list[NetLayer] = []
        self._names: dict[str, int] = {}

    def name(self, wanted: str) -> str:
        """Return a name that no layer and no blob has, as ncnn reads it: without spaces, of at most 255 bytes."""
        plain = "".join(letter if letter.isprintable() and not letter.isspace() else "_" for letter in wanted) or "_"
        plain = plain.encode()[:200].decode("utf-8", "ignore")
        name, number = plain, self._names.get(plain, 1)
        while name in self._names:
            number += 1
            name = f"{plain}_{number}"
        self._names |= {plain: number, name: number if name == plain else 1}
        return name

    def add(
        self,
        kind: str,
        bottoms: Sequence[str],
        wanted: str,
        settings: Settings | None = None,
        numbers: Sequence[tuple[bool, Array | PiecewiseArray]] = (),
        tops: int = 1,
    ) -> list[str]:
        """Add a layer; return the blobs that it gives, of which the first has its name."""
        name = self.name(wanted)
        gives = [name, *(self.name(f"{wanted}/{number}") for number in range(1, tops))]
        self.layers.append(NetLayer(kind, name, list(bottoms), gives, settings or {}, numbers))
        return gives

    def input(self, blob: str, lengths: Mapping[int, int]) -> None:
        """Add an input, whose name `name` gave."""
        self.layers.append(NetLayer("Input", blob, [], [blob], lengths))

    def finished(self, outputs: Sequence[str]) -> list[NetLayer]:
        """Return the layers that the outputs need. A blob that several layers read is split for them: ncnn frees it once it is read."""
        needed, layers = set(outputs), list[NetLayer]()
        for layer in reversed(self.layers):
            if needed.intersection(layer.tops) or layer.type == "Input":
                needed.update(layer.bottoms)
                layers.append(layer)
        layers.reverse()
        for layer in layers:
            if needed.isdisjoint(layer.tops[1:]):  # the last states of a recurrent layer
                del layer.tops[1:]
        readers: dict[str, list[tuple[NetLayer, int]]] = {}
        for layer in layers:
            for place, bottom in enumerate(layer.bottoms):
                readers.setdefault(bottom, []).append((layer, place))
        result = []
        for layer in layers:
            result.append(layer)
            for top in layer.tops:
                if len(readers.get(top, ())) > 1:
                    copies = [self.name(f"{top}/copy") for _ in readers[top]]
                    result.append(NetLayer("Split", self.name(f"{top}/split"), [top], copies))
                    for (reader, place), copy in zip(readers[top], copies, strict=True):
                        reader.bottoms[place] = copy
        return result


@dataclass(frozen=True)
class NetPort:
    """An input or output of a model.

    name   the blob
    axes   its axes in the source, in words
    batch  which of these is the batch
    dtype  the element type that its source has
    """

    name: str
    axes: tuple[int | str, ...]
    batch: int
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(map(str, (axis for number, axis in enumerate(self.axes) if number != self.batch)))})"


def net_export(
    layers: Sequence[NetLayer],
    ports: tuple[Sequence[NetPort], Sequence[NetPort]],
    recurrent: Sequence[str],
    notes: Sequence[str],
    steps: int | None = None,
) -> ExportedGraph:
    """Return a model of ncnn, before it is written.

    ports  its inputs, and its outputs
    """
    inputs, outputs = ([*map(str, side)] for side in ports)
    size = sum(nbytes(array) for layer in layers for _, array in layer.numbers)
    read = {bottom for layer in layers for bottom in layer.bottoms}
    unread = [top for layer in layers for top in layer.tops if top not in read]
    return ExportedGraph(
        inputs,
        outputs,
        len(layers),
        recurrent,
        notes,
        size,
        partial(_write, layers),
        opened=lambda written: BySequence(written, ports, unread),
        steps=steps,
    )


def _write(layers: Sequence[NetLayer], path: Path) -> None:
    """Write both files; large numbers stream into the .bin, whose checksum the .param states."""
    rows = [*map(str, layers)]
    with replacing_both(path, path.with_suffix(".bin")) as (file, numbers):
        summed = ChecksumWriter(numbers)
        for tagged, array in (pair for layer in layers for pair in layer.numbers):
            if tagged:
                summed.write(bytes(4))
            summed.pieces(array)
        rows[0] += f" {param.CHECKSUM}={summed.value & (1 << param.BITS) - 1}"
        blobs = sum(len(layer.tops) for layer in layers)
        file.write("\n".join([param.MAGIC, f"{len(rows)} {blobs}", *rows, ""]).encode())


class BySequence(ModelApart):
    """A net on batches: it runs on one sequence after the other."""

    def __init__(self, written: FileModel, ports: tuple[Sequence[NetPort], Sequence[NetPort]], unread: Sequence[str]) -> None:
        """Wrap it.

        ports   its inputs, and its outputs
        unread  every blob that it gives, in order: last states that nothing reads, too
        """
        self._written, self._ports, self._unread, self.notes = written, ports, unread, written.notes
        self.coarse = written.coarse
        self.fixed = [[length if isinstance(length, int) else None for length in port.axes] for port in ports[0]]

    @property
    def model(self) -> Model:
        return self._written.model

    def ran(
        self, inputs: NamedArrays, units: Sequence[Unit], before: Sequence[NamedArrays] = (), shakes: int = 0
    ) -> tuple[ModelOutputs, list[ModelOutputs]]:
        """Run each sequence from zeros on: nothing is kept from the calls before."""
        reads, gives = self._ports
        arrays = [array for _, array in inputs]
        count = arrays[0].shape[reads[0].batch]
        calls = [
            [(port.name, np.take(array, number, port.batch)) for port, array in zip(reads, arrays, strict=True)] for number in range(count)
        ]
        plain, moved = self._written.apart(calls, shakes)

        def joined(runs: Sequence[tuple[Array, ...]]) -> ModelOutputs:
            blobs = dict(zip(self._unread, zip(*runs, strict=True), strict=True))
            return ModelOutputs(tuple(np.stack(blobs[port.name], port.batch) for port in gives), {})

        return joined(plain), [joined(runs) for runs in moved]
