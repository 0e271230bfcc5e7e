"""Messages of Core ML as they are written: small ones as bytes, the numbers of an array piece by piece."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rnnconvert.containers.wire import field, varint
from rnnconvert.files.adapter import Job, Ports, variables, zeros
from rnnconvert.formats.coreml.export_to import recipe

FLOAT16, FLOAT32, DOUBLE, INT32 = 65552, 65568, 65600, 131104
"""The element types of a model's inputs and outputs: ArrayFeatureType.ArrayDataType."""


def number(place: int, value: int) -> bytes:
    """Return a field of a whole number, which is not negative."""
    return varint(place << 3) + varint(value)


def real(place: int, value: float) -> bytes:
    """Return a field of a float32 number."""
    return varint(place << 3 | 5) + struct.pack("<f", value)


def text(place: int, value: str) -> bytes:
    """Return a field of a text."""
    return field(place, value.encode())


def entry(place: int, key: str, value: bytes) -> bytes:
    """Return an entry of a map from texts to messages, or to texts."""
    return field(place, text(1, key) + field(2, value))


def feature(name: str, shape: Sequence[int], dtype: int, ranges: Iterable[tuple[int, int]] = (), optional: bool = False) -> bytes:
    """Return the description of an input or an output, an array; its shape may be left out."""
    sizes = b"".join(field(1, number(1, low) + number(2, high)) for low, high in ranges)
    array = field(1, b"".join(map(varint, shape))) if shape else b""
    array += number(2, dtype) + (field(31, sizes) if sizes else b"")
    return text(1, name) + field(3, field(5, array) + (number(1000, 1) if optional else b""))


def described(inputs: Iterable[bytes], outputs: Iterable[bytes], metadata: Mapping[str, str]) -> bytes:
    """Return the description of a model, with the given entries of metadata."""
    description = b"".join(field(1, each) for each in inputs) + b"".join(field(10, output) for output in outputs)
    return description + field(100, b"".join(field(100, text(1, key) + text(2, value)) for key, value in metadata.items()))


def prediction(path: Path, job: Job) -> list[str]:
    """Return the lines of Python that run a written model on zeros."""
    ends = [(part, "" if len(job.parts) == 1 else f"{part.stack.name}/") for part in job.parts]
    names = variables(f"{prefix}{end}" for _, prefix in ends for end in "xy")
    lines = [zeros(names[f"{prefix}x"], {"steps": 7, "1": 1}, part.stack.input_size) for part, prefix in ends]
    read, written = ({f"{prefix}{end}": names[f"{prefix}{end}"] for _, prefix in ends} for end in "xy")
    return recipe(path, Ports(read, written, lines))
