"""cuDNN's flat weight buffer, in a file of raw numbers or in a .safetensors, with a description.

The buffer does not describe itself. Its description is JSON: for a raw file `weights.bin` in `weights.bin.json`, in a .safetensors under
the metadata key "rnnconvert.cudnn", a list with one entry for each buffer.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers import json_text, safetensors
from rnnconvert.containers.checksums import Crc32
from rnnconvert.containers.companions import companion
from rnnconvert.containers.data_files import replacing_both
from rnnconvert.containers.files import lowered, map_file, view, write_pieces
from rnnconvert.containers.reading import read_small
from rnnconvert.containers.stored import FileMetadata
from rnnconvert.core.arrays import FLOATS, Array, is_float
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.malformed import malformed
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.remedies import Flag, Setting
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import STATED, Opened, Seen
from rnnconvert.files.options import Options
from rnnconvert.formats.cudnn.description import describe, stack_of
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import Packed, pack

NAME = "cudnn"
SUFFIXES = registry.endings(NAME)
KEY = "rnnconvert.cudnn"

_CHECKSUMS: dict[str, Callable[[Array], str]] = {
    "crc32": lambda data: f"{Crc32().part(data.data):08x}",
    "sha256": lambda data: hashlib.sha256(data.data).hexdigest(),
}
"""What a description may state of its buffer; the first is written."""


def recognise(file: Opened) -> Seen | None:
    """Recognize a description next to the file, or in its metadata."""
    if "described" in file.kinds:
        return Seen(STATED, f"a description next to it, {_description_of(file.path).name}")
    if lowered(file.path).suffix == ".safetensors" and f'"{KEY}"'.encode() in file.head:
        return Seen(STATED, "cuDNN buffers described in its metadata")
    return None


def _description_of(path: Path) -> Path:
    return path.parent / f"{path.name}.json"


def layouts(options: Options) -> list[Layout]:
    """Return every layout of the buffer, with the biases that are asked for: both, as is cuDNN's own default."""
    modes = {"double": "both", "single_inp": "input", "single_rec": "recurrent", "none": "none"}
    asked = modes[options.get("bias_mode") or "double"]
    return [
        replace(layout, holds=replace(layout.holds, biases=(asked,) if asked in layout.holds.biases else ()))
        for layout in registry.layouts_of(NAME)
    ]


def read(path: Path, options: Options) -> Checkpoint:
    """Return buffers with their description, or one buffer whose sizes the options give."""
    if lowered(path).suffix == ".safetensors":
        return _read_safetensors(path, options)
    data = map_file(path)
    if _description_of(path).is_file():
        entries = _parse(_description_of(path), read_small(companion(path, _description_of(path).name)))
        if len(entries) != 1:
            raise UnreadableError(_description_of(path), f"it describes {len(entries)} buffers, but a raw file holds one")
        description, evidence = entries[0], f"described by {_description_of(path).name}"
        if "dtype" not in description:
            why = "its description does not state it"
            description["dtype"] = options.ask("dtype", str(description.get("name", path.stem)), assumed="float32", why=why)
    else:
        description, evidence = _from_options(path, options), "described by the options"
    described = _description_of(path).is_file()
    dtype = FLOATS.get(str(description.get("dtype", "float32")))
    if dtype is None:
        raise UnreadableError(path, f"dtype is {description.get('dtype')!r}, expected one of {', '.join(FLOATS)}")
    if data.size % dtype.itemsize:
        raise UnreadableError(path, f"{data.size} bytes are not a multiple of the size of {dtype}")
    name = str(description.get("name", path.stem))
    for word, checksum in _CHECKSUMS.items():
        if description.get(word, "") not in ("", checksum(data)):
            raise UnreadableError(
                path,
                f"{_description_of(path).name} describes another buffer: the {word} that it states is not that of these bytes",
                f"Writing the two files may have been interrupted. Write them again, or remove the entry {word} if you changed the buffer.",
            )
    buffer = view(data, 0, (data.size // dtype.itemsize,), dtype.newbyteorder("<"), path, name)
    return Checkpoint(
        str(path), NAME, {name: _stack(path, name, description, buffer, options, described)}, {}, (evidence,), options.questions
    )


_ABSENT: dict[str, tuple[str, Callable[[str], Any]]] = {
    "num_layers": ("1", int),
    "bidirectional": ("false", lambda text: text == "true"),
    "bias_mode": ("double", str),
    "input_mode": ("linear", str),
}
"""The default of a size that nothing states, and the type of its option."""


def _asked(name: str, description: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """Return the sizes that a description leaves out, by asking for them."""
    absent = dict(_ABSENT)
    if description.get("cell") == "lstm":
        absent["projection_size"] = ("0", int)
    why = "its description does not state it"
    return {
        key: value(options.ask(key, name, assumed=default, why=why)) for key, (default, value) in absent.items() if key not in description
    }


def _stack(path: Path, name: str, description: Mapping[str, Any], buffer: Array, options: Options, described: bool = True) -> Recurrent:
    for key, actual in (("elements", buffer.size), ("dtype", str(buffer.dtype.newbyteorder("=")))):
        if description.get(key, actual) != actual:
            raise UnreadableError(path, f"the description of {name!r} states {key} {description[key]!r}, but the buffer has {actual}")
    stated = {**description, **_asked(name, description, options)} if described else description
    facts = options.facts(name, "its description", stated, harmless=("name", "tensor", "dtype", "elements", "format", *_CHECKSUMS))
    try:
        with malformed(lambda what: UnreadableError(path, what), stack_of.__module__):
            return stack_of(name, facts, buffer)
    except UsageError as error:
        raise UnreadableError(path, str(error)) from None


def _from_options(path: Path, options: Options) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key in ("cell", "hidden_size", "input_size"):
        value = options.get(key)
        if value is not None:
            result[key] = int(value) if value.isdecimal() else value
    result["input_mode"] = options.peek("input_mode") or "linear"
    missing = [key for key in ("cell", "hidden_size", "input_size") if key not in result]
    if missing and not (missing == ["input_size"] and result["input_mode"] == "skip"):
        wanted = ", ".join(str(Setting(key, "...")) for key in missing)
        raise UsageError(
            f"{path}: a raw buffer does not describe itself, and the file {_description_of(path).name} is missing. "
            f"Give {wanted}, and num_layers, bidirectional, bias_mode, "
            "projection_size, input_mode or dtype where they are not 1, false, double, 0, linear and float32."
        )
    absent = {"num_layers": "1", "bidirectional": "false", "bias_mode": "double", "input_mode": "linear", "dtype": "float32"}
    if result["cell"] == "lstm":
        absent["projection_size"] = "0"
    for key, assumed in absent.items():
        value = options.ask(key, assumed=assumed, why="a raw buffer does not describe itself")
        if value.isdecimal():
            result[key] = int(value)
        elif value in ("true", "false"):
            result[key] = value == "true"
        else:
            result[key] = value
    return result


def _parse(path: Path, text: bytes | str) -> list[dict[str, Any]]:
    with malformed(lambda _: UnreadableError(path, 'the description is not a JSON object with a list "layers" of buffers')):
        document = json_text.loads(text, path)
        entries = document["layers"]
        unknown = sorted(set(document) - {"layers", "format"})
        if unknown or document.get("format", NAME) != NAME:
            odd = f"{unknown[0]!r}" if unknown else f"the format {document['format']!r}"
            raise UnreadableError(path, f"the description has the unknown entry {odd}", "Remove it if you added it.")
        if not entries or not all(isinstance(entry, dict) for entry in entries):
            raise TypeError
    return list(entries)


def _read_safetensors(path: Path, options: Options) -> Checkpoint:
    stored = safetensors.read(path)
    text = stored.metadata_as(FileMetadata).get("__metadata__", {}).get(KEY)
    if text is None:
        raise UnreadableError(path, f"its metadata has no {KEY!r}, which describes cuDNN's buffers")
    layers = {}
    for entry in _parse(path, text):
        name = str(entry.get("name"))
        tensor = str(entry.get("tensor", name))
        if name in layers:
            raise UnreadableError(path, f"the description names two layers {name!r}")
        if tensor not in stored.arrays:
            raise UnreadableError(path, f"the description names a buffer {tensor!r}, which is not in the file")
        layers[name] = _stack(path, name, entry, stored.arrays[tensor], options)
    used = {str(entry.get("tensor", entry.get("name"))) for entry in _parse(path, text)}
    others = {n: a for n, a in stored.arrays.items() if n not in used}
    doubts = tuple(
        LayerNote(n, f"a vector that the description does not name. If it is a buffer, describe it under {KEY!r}", UNREAD)
        for n, a in others.items()
        if a.ndim == 1 and is_float(a)
    )
    about = (f"cuDNN buffers described under {KEY!r}",)
    return Checkpoint(str(path), NAME, layers, others, about, options.questions, doubts)


def companions(path: Path) -> tuple[Path, ...]:
    """Return the description beside a raw file; a .safetensors holds its own."""
    return () if lowered(path).suffix == ".safetensors" else (_description_of(path),)


def write(path: Path, job: Job) -> WriteResult:
    """Write a raw file and its description, or one .safetensors."""
    entries: list[dict[str, Any]] = []
    buffers: dict[str, Packed] = {}
    for part in job.parts:
        packed = pack(part.layout, part.stack, job.dtype, job.watch)["params"]
        entry = describe(part.stack)
        entry["dtype"] = str(packed.dtype)
        entry["elements"] = math.prod(packed.shape)
        buffers[part.stack.name] = packed
        entries.append(entry)
    description = {"format": NAME, "layers": entries}
    if lowered(path).suffix == ".safetensors":
        if not job.dry_run:
            safetensors.write(path, buffers, {KEY: json.dumps(description)})
        note = f"{len(buffers)} buffer{'s' if len(buffers) > 1 else ''}, described in the metadata under {KEY!r}"
        return WriteResult([note], dropped=[*job.carried])
    if len(buffers) != 1:
        raise UsageError(
            f"a raw file holds one buffer, but there are {len(buffers)} layers ({', '.join(buffers)}). "
            f"Choose one with {Flag('layer', 'NAME')}, or write a .safetensors with {Flag('to', 'cudnn')}."
        )
    result = WriteResult([f"described by {_description_of(path).name}"], dropped=[*job.carried])
    if job.dry_run:
        return result
    with replacing_both(path, _description_of(path)) as (numbers, file):
        (packed,) = buffers.values()
        if packed.dtype.byteorder == ">" or np.dtype("=f4").byteorder == ">":
            raise UsageError("raw buffers are little-endian, but this machine is not")
        check = Crc32()
        write_pieces(numbers, packed, check)
        # Two files cannot be replaced in one step: the description tells its own buffer from the one before.
        entries[0]["crc32"] = f"{check.value:08x}"
        file.write(json.dumps(description, indent=2).encode() + b"\n")
    return result
