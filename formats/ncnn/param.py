"""ncnn's two files: the text of the layers with their blobs and parameters, and the numbers in the order of the layers.

Source: docs/developer-guide/param-and-model-file-structure.md; src/paramdict.cpp, src/modelbin.cpp. An array in the .bin begins with a
tag of four bytes, unless its layer reads it without one: 0 for float32, one for float16, one for int8, and any other one for a
table of 256 numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rnnconvert.containers.reading import charging, read_small
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import NET_LAYERS
from rnnconvert.files.raw import map_bare

MAGIC = "7767517"
LISTS = -23300
"""A parameter that is a list has its number subtracted from this one."""
HALF, INT8, FULL = 0x01306B47, 0x000D4B38, 0x0002C056
CHECKSUM, BITS = 19, 31
"""A parameter of the first input, which no version of ncnn asks for (0, 1, 2 and 11 are its lengths; before 2021 there were 20): the
checksum of the numbers, as far as a signed number of 32 bits holds it."""
_INTEGER = re.compile(r"[+-]?\d{1,18}")

Parameters = dict[int, str]


@dataclass(frozen=True)
class ParamLayer:
    """A layer: its type, its name, the blobs that it reads and gives, and its parameters by their numbers, as texts."""

    type: str
    name: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    parameters: Parameters

    def integer(self, key: int, path: Path, default: int = 0) -> int:
        """Return a parameter that is a whole number. Raises UnreadableError for anything else."""
        text = self.parameters.get(key, str(default))
        if not _INTEGER.fullmatch(text):
            raise UnreadableError(path, f"parameter {key} of layer {self.name!r} is {text!r}, which is not a whole number")
        return int(text)


def read(path: Path) -> list[ParamLayer]:
    """Return the layers of a .param file. Raises UnreadableError."""
    content = read_small(path)
    reading = charging(len(content))
    reading.work(len(content) // 8, path)
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise UnreadableError(path, "it is not text, as a .param file is") from None
    if not lines or lines[0].strip() != MAGIC:
        raise UnreadableError(path, f"its first line is not ncnn's number {MAGIC}")
    counts = lines[1].split() if len(lines) > 1 else []
    if len(counts) != 2 or not all(_INTEGER.fullmatch(count) for count in counts) or not 0 <= int(counts[0]) <= NET_LAYERS:
        raise UnreadableError(path, "its second line does not count layers and blobs")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(counts[0]):
        raise UnreadableError(path, f"it has {len(rows)} layers, but its second line counts {counts[0]}")
    return [_layer(path, row) for row in rows]


def _layer(path: Path, row: list[str]) -> ParamLayer:
    if len(row) < 4 or not all(re.fullmatch(r"\d{1,6}", digits) for digits in row[2:4]):
        raise UnreadableError(path, f"the line {' '.join(row)[:60]!r} is not that of a layer")
    ins, outs = int(row[2]), int(row[3])
    blobs, rest = row[4 : 4 + ins + outs], row[4 + ins + outs :]
    if len(blobs) != ins + outs:
        raise UnreadableError(path, f"layer {row[1]!r} has {len(blobs)} blobs, but counts {ins + outs}")
    parameters: Parameters = {}
    for word in rest:
        key, equals, value = word.partition("=")
        if not equals or not _INTEGER.fullmatch(key) or int(key) in parameters:
            raise UnreadableError(path, f"{word!r} of layer {row[1]!r} is not a parameter, or appears twice")
        parameters[int(key)] = value
    return ParamLayer(row[0], row[1], tuple(blobs[:ins]), tuple(blobs[ins:]), parameters)


class Numbers:
    """The .bin file, read from its beginning on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = map_bare(path, empty=True)
        self.at = 0
        self.reading = charging(self.data.size)

    def _bytes(self, count: int, what: str) -> Array:
        if count < 0 or self.at + count > self.data.size:
            raise UnreadableError(self.path, f"it ends at {self.data.size}, within {what}, which takes {count} bytes from {self.at} on")
        content = self.data[self.at : self.at + count]
        self.at += count
        return content

    def raw(self, count: int, what: str) -> Array:
        """Return so many float32 numbers."""
        return self._bytes(4 * count, what).view("<f4")

    def tagged(self, count: int, what: str) -> Array:
        """Return so many numbers by the tag before them: of float32 or float16, or the integers of int8."""
        tag = int(self._bytes(4, what).view("<u4")[0])
        if tag == HALF:
            return self._bytes(2 * count + 2 * (count % 2), what).view("<f2")[:count]
        if tag == INT8:
            return self._bytes(count + -count % 4, what).view("i1")[:count]
        if tag in (0, FULL):
            return self.raw(count, what)
        if not sum(tag.to_bytes(4, "little")):
            return self.raw(count, what)
        table = self.raw(256, what)
        places = self._bytes(count + -count % 4, what)[:count]
        self.reading.memory(4 * count, self.path)
        return table[places]
