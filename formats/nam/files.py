"""Neural Amp Modeler's .nam files: JSON with an architecture, its sizes, and one list of all weights.

Source: NeuralAmpModelerCore, NAM/get_dsp.cpp and NAM/lstm.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict

import numpy as np

from rnnconvert.containers import json_file
from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.remedies import Flag
from rnnconvert.core.weights import Call, Direction, Input, Key, Recurrent
from rnnconvert.files.adapter import Job, WriteResult, written_layouts
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from rnnconvert.language.packing import assemble, pack, unpack
from rnnconvert.rewrites import each

NAME = "nam"
SUFFIXES = registry.endings(NAME)

_LAYER = "lstm"
_VERSION = "0.5.4"
_READABLE_VERSION = re.compile(r"0\.[567]\.\d+")
_SIZES = ("input_size", "hidden_size", "num_layers")
_CHANNELS = ("in_channels", "out_channels")
"""The channels of what a model reads and gives: 1 where a config does not say it, and as many as its LSTM and its head have."""
_PARTS = frozenset({"input", "recurrent", "input_bias", "initial_hidden", "initial_cell"})
_MOST, _MOST_LAYERS = 1 << 20, 256
_KEYS = ("version", "metadata", "architecture", "config", "weights", "sample_rate")


class NamMetadata(TypedDict, total=False):
    """The metadata of a file: all of its JSON except the weights."""

    document: dict[str, Any]


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize an architecture, its configuration and its weights."""
    document = file.json
    if document is None or not isinstance(document.get("config"), dict) or "weights" not in document:
        return None
    architecture = document.get("architecture")
    if not isinstance(architecture, str):
        return None
    return FormatClaim(STATED, f"JSON with the architecture {architecture!r}, its config and its weights")


layouts = written_layouts(NAME)


def about(checkpoint: Checkpoint) -> dict[str, object]:
    """Return the version, the sample rate and what the maker of a model says of it."""
    document = checkpoint.metadata_as(NamMetadata)["document"]
    metadata = document.get("metadata")
    return {
        **{key: document.get(key, "") for key in ("version", "architecture", "sample_rate")},
        **(metadata if isinstance(metadata, dict) else {}),
    }


def read(path: Path, options: Options) -> Checkpoint:
    """Return the LSTM of a file, and its head among the other tensors.

    Raises UnreadableError for a damaged file, and if the list is not as long as the sizes say.
    """
    document = Opened(path).cached(json_file.read)
    config, architecture = document.get("config"), document.get("architecture")
    if not isinstance(config, dict) or not isinstance(architecture, str):
        raise UnreadableError(path, "it is JSON without an architecture and its config")
    weights = json_file.array(document.get("weights"), path, "weights")
    if weights.ndim != 1:
        raise UnreadableError(path, f"its weights have the shape {weights.shape}, and are not one list")
    evidence = (f"its architecture is {architecture}",)
    metadata = {"document": document}
    if architecture != "LSTM":
        unread = (LayerNote(architecture, "an architecture whose layers are unknown", UNREAD),) if architecture not in _OTHERS else ()
        return Checkpoint(str(path), NAME, {}, {"weights": weights}, evidence, warnings=unread, metadata=metadata, unread=unread)
    sizes = _sizes(path, config, options)
    layout = registry.layout_named("nam.lstm")
    length = _length(sizes)
    outputs = _channels(path, config, "out_channels", 1)
    if weights.size != length + outputs * (sizes.hidden_size + 1):
        raise UnreadableError(
            path,
            f"it has {weights.size} weights, but an LSTM of {sizes.num_layers} layers with {sizes.hidden_size} units, "
            f"{sizes.input_size} inputs and a head of {outputs} has {length + outputs * (sizes.hidden_size + 1)}",
        )
    stack = assemble(_LAYER, layout.cell, unpack(layout, sizes, {"weights": weights[:length]}), 1)
    stack = stack.replace(calls=(Call(Input()),))  # its only one reads the samples
    head = {"head.weight": weights[length:-outputs].reshape(outputs, -1), "head.bias": weights[-outputs:]}
    version = document.get("version")
    odd = [] if _READABLE_VERSION.fullmatch(str(version)) else [f"its version is {version!r}; what is known here are those of 0.5 to 0.7"]
    odd += [f"the file states {key!r}, whose effect is unknown" for key in document if key not in _KEYS]
    return Checkpoint(str(path), NAME, {_LAYER: stack}, head, evidence, options.questions, tuple(odd), metadata, {"weights": weights})


_OTHERS = ("Linear", "ConvNet", "WaveNet")
"""The architectures without a recurrent layer."""


def _sizes(path: Path, config: dict[str, Any], options: Options) -> Sizes:
    facts = options.facts(_LAYER, "its config", config)
    numbers = []
    for key in _SIZES:
        value, most = config.get(key), _MOST_LAYERS if key == "num_layers" else _MOST
        facts.take(key)
        if type(value) is not int or not 0 < value <= most:
            raise UnreadableError(path, f"its config states {key} {value!r}, which is not an integer from 1 to {most}")
        numbers.append(value)
    for key in _CHANNELS:
        facts.take(key)
    if _channels(path, config, "in_channels", numbers[0]) != numbers[0]:
        raise UnreadableError(path, f"its config states {config['in_channels']} in_channels, and an LSTM of input_size {numbers[0]}")
    return Sizes("lstm", numbers[0], numbers[1], numbers[2], parts=_PARTS)


def _channels(path: Path, config: dict[str, Any], key: str, default: int) -> int:
    """Return how many channels a config states. Raises UnreadableError for another value."""
    value = config.get(key, default)
    if type(value) is not int or not 0 < value <= _MOST:
        raise UnreadableError(path, f"its config states {key} {value!r}, which is not an integer from 1 to {_MOST}")
    return value


def _length(sizes: Sizes) -> int:
    """Return how many numbers the layers have: four gates, and two states."""
    units, above = sizes.hidden_size, sizes.num_layers - 1
    columns = sizes.input_size + above * units + sizes.num_layers * (units + 1)
    return 4 * units * columns + 2 * units * sizes.num_layers


def write(path: Path, job: Job) -> WriteResult:
    """Write one LSTM, with the metadata and the head of a source of this format.

    Raises UsageError for several layers.
    """
    if len(job.parts) != 1:
        names = [part.stack.name for part in job.parts]
        choice = Flag("layer", names[0])
        raise UsageError(f"{path}: a .nam holds one LSTM, but there are {len(names)} layers ({', '.join(names)}). Choose one: {choice}")
    (part,) = job.parts
    stack = part.stack
    head = [job.carried.get(name) for name in ("head.weight", "head.bias")]
    head_parts = [np.asarray(array).reshape(-1) for array in head if array is not None]
    read = job.source.metadata_as(NamMetadata).get("document") if len(head_parts) == 2 else None
    notes, headless = [], read is None
    if read is None:
        head_parts = [np.zeros(stack.hidden_size + 1, np.float32)]
        notes.append(
            f"its head is zeros, since a recurrent layer has none: the model is silent until the last {stack.hidden_size + 1} "
            "numbers of its weights are those of a dense layer, its weights and then its bias"
        )
        read = {}
    outputs = head_parts[-1].size if not headless else 1
    document = document_of(stack, np.concatenate(head_parts), outputs, read, job)
    if not job.dry_run:
        json_file.write(path, document)
    return WriteResult(notes, dropped=[*job.carried] if headless else [])


def document_of(
    stack: Recurrent, head: Array, outputs: int, read: Mapping[str, Any] = MappingProxyType({}), job: Job | None = None
) -> dict[str, Any]:
    """Return the JSON of an LSTM in this format's form, with the further statements of a file that was read.

    head     the numbers of the head: its weights, row by row, and its biases
    outputs  how many values it gives at each step
    job      the writer's task, with its element type; None for float32
    """
    layout = registry.layout_named("nam.lstm")
    with_states = each(stack, _with_states)
    dtype, watch = (np.dtype(np.float32), None) if job is None else (job.dtype, job.watch)
    packed = np.asarray(pack(layout, with_states, dtype, watch)["weights"])
    sizes = dict(zip(_SIZES, (stack.input_size, stack.hidden_size, stack.num_layers), strict=True))
    channels = {key: count for key, count in zip(_CHANNELS, (stack.input_size, outputs), strict=True) if count > 1}
    start = read or {"version": _VERSION, "architecture": "LSTM"}
    return {**start, "config": {**read.get("config", {}), **sizes, **channels}, "weights": np.concatenate([packed, head])}


def _with_states(direction: Direction) -> Direction:
    """Add the initial states that every layer here has: zeros where there were none."""
    zeros: dict[Key, Source | None] = {
        (part, ""): np.zeros(direction.hidden_size, direction.dtype)
        for part in ("initial_hidden", "initial_cell")
        if (part, "") not in direction.arrays
    }
    return direction.with_arrays(zeros)
