"""A net as a program of the common operations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.ncnn.operators import AXES, DOMAIN, Blobs, LayerRule, Lengths
from rnnconvert.formats.ncnn.param import CHECKSUM, ParamLayer
from rnnconvert.graphs.graph import CallSizes
from rnnconvert.graphs.program.lowering import OPSET, Block
from rnnconvert.graphs.program.operations import Body, Declared, Program
from rnnconvert.recognition.flow import FINAL_WORDS, RecurrentCall

RECURRENT = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn"}
_RANKS = (1, 2, 3)
_MOST_TRIED = 1 << 16
"""The most layers that are written to find out how many axes the inputs have, those of all trials together."""
_MOST_UNKNOWN = 8
_READ = {"Embed": 1, "Convolution1D": 2, "Pooling1D": 2, "ConvolutionDepthWise1D": 2, "Convolution": 3, "Pooling": 3,
         "ConvolutionDepthWise": 3}  # fmt: skip
"""How many axes an input has that a layer reads at once."""


@dataclass
class NcnnNet:
    """The layers of a net, and their numbers.

    rows    in the order of the file
    arrays  the numbers of each row
    layers  the recurrent layers that are read, by name, each with the place of its row
    size    how many bytes the files have
    """

    path: Path
    rows: Sequence[ParamLayer]
    arrays: Sequence[Mapping[str, Array]]
    layers: Mapping[str, tuple[int, Recurrent]]
    size: int
    _lacking: int = field(default=0, init=False)
    _reading: dict[str, list[tuple[int, int]]] = field(default_factory=dict, init=False)

    def calls(self) -> dict[str, RecurrentCall]:
        """Return the calls of the recurrent layers by their names."""
        return {name: _call(self.rows[place], stack) for name, (place, stack) in self.layers.items()}

    def program(self) -> Program:
        """Return the net in the common operations. Raises ValueError for a blob that two layers give.

        How many axes an input has that does not state it is tried: with one number of them alone most layers are as they ask.
        """
        tops = [top for row in self.rows for top in row.tops]
        if len({*tops}) < len(tops):
            raise ValueError("two layers give one blob")
        before = set[str]()
        for place, row in enumerate(self.rows):
            if not before.issuperset(row.bottoms):
                raise ValueError("a layer reads what none before it gives")
            before.update(row.tops)
            for index, bottom in enumerate(row.bottoms):
                self._reading.setdefault(bottom, []).append((place, index))
        inputs = [row for row in self.rows if row.type == "Input" and row.tops]
        stated = {row.tops[0]: lengths for row in inputs if (lengths := self._stated(row)) is not None}
        unknown = [row.tops[0] for row in inputs if row.tops[0] not in stated]
        best, fewest, several = self._written(stated), self._lacking, False
        trials = itertools.product(_RANKS, repeat=len(unknown)) if 0 < len(unknown) < _MOST_UNKNOWN else ()
        for ranks in trials if len(self.rows) * len(_RANKS) ** len(unknown) < _MOST_TRIED else ():
            tried = self._written({**stated, **{blob: [None] * rank for blob, rank in zip(unknown, ranks, strict=True)}})
            if self._lacking < fewest:
                best, fewest, several = tried, self._lacking, False
            elif self._lacking == fewest:
                several = True
        return self._written(stated) if several else best

    def _stated(self, row: ParamLayer) -> Lengths | None:
        """Return the axes of an input, from its own line or from what reads it; None where neither shows how many there are."""
        sizes = [row.integer(key, self.path) for key in (2, 11, 1, 0)]  # from the front
        rank = next((rank for rank, size in ((4, sizes[1]), (3, sizes[0]), (2, sizes[2]), (1, sizes[3])) if size), 0)
        if rank:
            letters = dict(zip("cdhw", sizes, strict=True))
            return [letters[axis] if letters[axis] > 0 else None for axis in AXES[rank]]
        places = {place: stack for place, stack in self.layers.values()}
        for place, reader, index in self._readers(row.tops[0]):
            if place in places:
                stack = places[place]
                first = stack.first
                return [stack.num_directions, (first.output_size, first.hidden_size)[index > 1]] if index else [None, first.input_size]
            if reader.type in _READ:
                return [None] * _READ[reader.type]
        return None

    def _readers(self, blob: str) -> Iterator[tuple[int, ParamLayer, int]]:
        """Yield the layers that read a blob, or a copy of it: the place of each, the layer, and at which place it reads the blob."""
        waiting = [blob]
        while waiting:
            for place, index in self._reading.get(waiting.pop(), ()):
                row = self.rows[place]
                yield place, row, index
                waiting += row.tops if row.type == "Split" else ()

    def _written(self, inputs: Mapping[str, Lengths]) -> Program:
        """Return the net as a program, with these lengths of its inputs; count the layers that have no equivalent."""
        block, self._lacking = Block(" ", {}), 0
        names = [row.tops[0] for row in self.rows if row.type == "Input" and row.tops]
        integers = {name for name in names if any(row.type == "Embed" for _, row, _ in self._readers(name))}
        blobs = Blobs({name: list(lengths) for name, lengths in inputs.items()}, integers={*integers}, batch=next(iter(names), ""))
        layers = {place: (name, stack) for name, (place, stack) in self.layers.items()}
        for place, row in enumerate(self.rows):
            if row.type == "Input":
                continue
            if place in layers:
                self._lacking += not _recurrent(row, layers[place][1], blobs, block)
            else:
                self._lacking += not LayerRule(row, self.arrays[place], blobs, block).write()
        declared = [
            Declared(
                name, np.dtype(np.int32 if name in integers else np.float32), ["batch", *lengths] if (lengths := inputs.get(name)) else None
            )
            for name in names
        ]
        return Program(self.path, Body(block.nodes, names, outputs(self.rows), block.stored, declared), {"": OPSET}, size=self.size)


def outputs(rows: Sequence[ParamLayer]) -> list[str]:
    """Return the blobs that a net gives: those that no layer reads, behind all others those of recurrent layers.

    Of these some may be what their layers give besides; in files that `export` wrote an output is what a Noop gives.
    """
    read = {blob for row in rows for blob in row.bottoms}
    unread = [(row, blob) for row in rows if row.type != "Input" for blob in row.tops if blob not in read]
    if rows and CHECKSUM in rows[0].parameters and any(row.type == "Noop" for row, _ in unread):
        return [blob for row, blob in unread if row.type == "Noop"]
    return [blob for _, blob in sorted(unread, key=lambda pair: pair[0].type in RECURRENT)]


def _call(row: ParamLayer, stack: Recurrent) -> RecurrentCall:
    """Return the call of a layer; the program has its states with the directions in front."""
    sizes = CallSizes(stack.first.output_size, directions=stack.num_directions, dtype=np.dtype(np.float32), width=stack.input_size)
    (x, *states), (_, *finals) = _sides(row)
    return RecurrentCall((x, "bti"), dict.fromkeys(row.tops[:1], "btu"), sizes, dict(zip(finals, FINAL_WORDS, strict=False)), states)


def _sides(row: ParamLayer) -> tuple[list[str], list[str]]:
    """Return what a recurrent layer reads and gives: its states with the directions in front of the batch, under names that no blob has."""
    reads = [*row.bottoms[:1], *(f"{blob} read by {'/'.join(row.tops)}" for blob in row.bottoms[1:])]
    return reads or [""], [*row.tops[:1], *(f"{blob} as given" for blob in row.tops[1:])]


def _recurrent(row: ParamLayer, stack: Recurrent, blobs: Blobs, block: Block) -> bool:
    """Write a recurrent layer; return whether what it reads has the axes that it asks for."""
    reads, gives = _sides(row)
    block.operator = None  # the file has no such layers
    for blob, turned in zip(row.bottoms[1:], reads[1:], strict=True):
        block.add("Transpose", [blob], [turned], perm=[1, 0, 2])
    block.operator = row.type
    block.add(row.type, reads, gives, row.name, DOMAIN)
    block.operator = None
    for turned, blob in zip(gives[1:], row.tops[1:], strict=True):
        block.add("Transpose", [turned], [blob], perm=[1, 0, 2])
    lengths = blobs.lengths.get(row.bottoms[0] if row.bottoms else "")
    if lengths is None or len(lengths) != 2 or lengths[1] not in (stack.input_size, None):
        return False
    ways, units = stack.num_directions, (stack.first.output_size, stack.hidden_size)
    blobs.lengths |= {top: [lengths[0], ways * units[0]] for top in row.tops[:1]}
    blobs.lengths |= {top: [ways, width] for top, width in zip(row.tops[1:], units, strict=False)}
    return True
