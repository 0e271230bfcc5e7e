"""cuDNN's flat weight buffer, in a file of raw numbers or in a .safetensors, with a description.

The buffer does not describe itself. Its description is JSON: for a raw file `weights.bin` in `weights.bin.json`, in a .safetensors under
the metadata key "rnnconvert.cudnn", a list with one entry for each buffer.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers import archives, json_text, npy, safetensors
from rnnconvert.containers.checksums import Crc32
from rnnconvert.containers.companions import companion
from rnnconvert.containers.data_files import replacing_both
from rnnconvert.containers.files import lowered, view, write_pieces
from rnnconvert.containers.reading import read_small
from rnnconvert.containers.stored import FileMetadata, Stored
from rnnconvert.core.arrays import FLOATS, Array, is_float
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.malformed import malformed
from rnnconvert.core.names import add, is_count
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.remedies import Flag, Setting
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.files.raw import begins_otherwise, map_bare
from rnnconvert.formats.cudnn.description import describe, form_of, layout_of, stack_of
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import Packed, pack
from rnnconvert.language.places import shapes

NAME = "cudnn"
SUFFIXES = registry.endings(NAME)
KEY = "rnnconvert.cudnn"

_CHECKSUMS: dict[str, Callable[[Array], str]] = {
    "crc32": lambda data: f"{Crc32().part(data.data):08x}",
    "sha256": lambda data: hashlib.sha256(data.data).hexdigest(),
}
"""The possible statements of a description about its buffer; the first is written."""


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize a description next to the file, or in its metadata."""
    if "described" in file.kinds:
        return FormatClaim(STATED, f"a description next to it, {_description_of(file.path).name}")
    if lowered(file.path).suffix == ".safetensors" and f'"{KEY}"'.encode() in file.head:
        return FormatClaim(STATED, "cuDNN buffers described in its metadata")
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
    file = Opened(path)
    described = _description_of(path).is_file()
    if lowered(path).suffix == ".safetensors" or (not described and begins_otherwise(file.head) and (file.archive or "npy" in file.kinds)):
        return _read_archive(file, options)
    data = map_bare(path)
    if described:
        entries = _parse(_description_of(path), read_small(companion(path, _description_of(path).name)))
        if len(entries) != 1:
            raise UnreadableError(_description_of(path), f"it describes {len(entries)} buffers, but a raw file holds one")
        description, evidence = entries[0], f"described by {_description_of(path).name}"
        if "dtype" not in description:
            why = "its description does not state it"
            description["dtype"] = options.ask("dtype", str(description.get("name", path.stem)), assumed="float32", why=why)
    else:
        asked = options.ask("dtype", assumed="float32", why="a raw buffer does not describe itself")
        sizes = _from_options(path, data.size / FLOATS[asked].itemsize, options)
        description, evidence = {**sizes, "dtype": asked}, "described by the options"
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


def _from_options(path: Path, length: float, options: Options) -> dict[str, Any]:
    """Return the options' statements about a buffer of so many numbers. The width of the input follows from the rest of its length.

    Raises UsageError if they do not state enough.
    """
    described = {key: _value(text) for key in ("cell", "hidden_size", "input_size") if (text := options.get(key)) is not None}
    missing = [key for key in ("cell", "hidden_size") if key not in described]
    if missing:
        wanted = ", ".join(str(Setting(key, "...")) for key in missing)
        raise UsageError(
            f"{path}: a raw buffer does not describe itself, and the file {_description_of(path).name} is missing. "
            f"Give {wanted}, and num_layers, bidirectional, bias_mode, projection_size, input_mode or dtype where they are not "
            "1, false, double, 0, linear and float32. input_size is then what its length leaves."
        )
    absent = {key: default for key, (default, _) in _ABSENT.items()}
    if described["cell"] == "lstm":
        absent["projection_size"] = "0"
    why = "a raw buffer does not describe itself"
    if "input_size" not in described and options.peek("input_mode") != "skip":
        solved = _solved(path, described, length, options)
        described["input_size"] = solved.pop("input_size")
        absent |= {key: _word(value) for key, value in solved.items()}
        why += f", and with these its length leaves input_size={described['input_size']}"
    for key, assumed in absent.items():
        described[key] = _value(options.ask(key, assumed=assumed, why=why))
    return described


def _value(text: str) -> Any:
    """Return an option's value as a description has it: a number, true or false, or a word."""
    return int(text) if is_count(text) else {"true": True, "false": False}.get(text, text)


_LAYERS_TRIED = 4
"""How many layers are tried where nothing says how many there are."""


def _solved(path: Path, described: Mapping[str, Any], length: float, options: Options) -> dict[str, Any]:
    """Return the width of the input that the length of a buffer leaves, and the layers and directions if only one number of them fits.

    Raises UsageError if no width is left, and where layers and directions are unstated and several fit.
    """
    keys = ("num_layers", "bidirectional", "bias_mode", "projection_size")
    stated = {**described, **{key: _value(text) for key in keys if (text := options.get(key)) is not None}}
    tried = {"num_layers": range(1, 1 + _LAYERS_TRIED), "bidirectional": (False, True)}
    open_keys = [key for key in tried if key not in stated]
    fitting = []
    for values in itertools.product(*(tried[key] for key in open_keys)):
        choice = dict(zip(open_keys, values, strict=True))
        sizes = form_of({**stated, **choice, "input_size": 1})
        layout = layout_of(str(stated["cell"]))
        (least,) = shapes(layout, sizes)["params"]
        width, rest = divmod(length - least, sizes.num_directions * len(layout.order) * sizes.hidden_size)
        if not rest and width >= 0:
            fitting.append({"input_size": 1 + int(width), **choice})
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        sizes_in_words = ", ".join(f"{key}={_word(value)}" for key, value in stated.items())
        raise UsageError(f"{path}: {length:g} numbers are those of no input_size with {sizes_in_words}")
    listed = "; ".join(", ".join(f"{key}={_word(value)}" for key, value in choice.items()) for choice in fitting)
    wanted = " and ".join(str(Setting(key, "...")) for key in open_keys)
    raise UsageError(f"{path}: its {length:g} numbers fit several sizes: {listed}. Give {Setting('input_size', '...')}, or {wanted}.")


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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


def _read_archive(file: Opened, options: Options) -> Checkpoint:
    """Return the buffers that the metadata of an archive describes, or its only array by the options' sizes."""
    path = file.path
    stored = npy.read_row(path) if "npy" in file.kinds else file.cached(archives.reader(path, file.head))
    text = stored.metadata_as(FileMetadata).get("__metadata__", {}).get(KEY)
    if text is None:
        return _only_array(path, stored, options)
    layers: dict[str, Recurrent] = {}
    for entry in _parse(path, text):
        name = str(entry.get("name"))
        tensor = str(entry.get("tensor", name))
        if tensor not in stored.arrays:
            raise UnreadableError(path, f"the description names a buffer {tensor!r}, which is not in the file")
        add(layers, name, _stack(path, name, entry, stored.arrays[tensor], options), path)
    used = {str(entry.get("tensor", entry.get("name"))) for entry in _parse(path, text)}
    others = {n: a for n, a in stored.arrays.items() if n not in used}
    doubts = tuple(
        LayerNote(n, f"a vector that the description does not name. If it is a buffer, describe it under {KEY!r}", UNREAD)
        for n, a in others.items()
        if a.ndim == 1 and is_float(a)
    )
    about = (f"cuDNN buffers described under {KEY!r}",)
    return Checkpoint(str(path), NAME, layers, others, about, options.questions, doubts)


def _only_array(path: Path, stored: Stored, options: Options) -> Checkpoint:
    left_out = stored.metadata_as(FileMetadata).get("unreadable", {})
    vectors = {name: array for name, array in stored.arrays.items() if is_float(array) and max(array.shape, default=0) == array.size > 0}
    if len(vectors) != 1 or len(stored.arrays) + len(left_out) != 1:
        listed = ", ".join(f"{name!r} {array.shape}" for name, array in itertools.islice(stored.arrays.items(), 4))
        raise UnreadableError(
            path,
            f"a buffer is one vector of floating-point numbers, but it has {len(stored.arrays) + len(left_out)} arrays: "
            f"{listed or 'none that can be read'}. Nothing under {KEY!r} in its metadata describes several",
            "Save the buffer alone, as one .npy.",
        )
    ((stored_name, array),) = vectors.items()
    buffer = array.reshape(-1)
    dtype = options.stated("dtype", "", str(buffer.dtype.newbyteorder("=")), f"its array {stored_name!r}")
    description = {**_from_options(path, buffer.size, options), "dtype": dtype}
    name = path.stem
    stack = _stack(path, name, description, buffer, options, described=False)
    return Checkpoint(str(path), NAME, {name: stack}, {}, ("its only array, described by the options",), options.questions)


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
            f"Choose one, as with {Flag('layer', next(iter(buffers)))}, or write a file that ends in .safetensors."
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
