"""RTNeural's JSON: a row of layers, each with its type, its shape and its weights; AIDA-X adds keys beside the row.

Source: RTNeural/model_loader.h, parseJson: each layer reads the one before; a type that it does not know is left out in silence.
AIDA-X: src/aidax-plugin.cpp, loadModelFromStream. Its `input_batch` and `output_batch` are outputs of the file's own model:
AidaDSP/Automated-GuitarAmpModelling dist_model_recnet.py and model_utils.py, save_model_json (the first 2048 samples of the test set,
and what PyTorch gave for them from states of zeros); aidadsp-lv2 rt-neural-generic.cpp, testModel, which runs them with the gains
left out; applyModel, which adds the input of a model with in_skip.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import numpy as np

from rnnconvert.containers import json_file
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.limits import LAYERS
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.reference import FUNCTIONS
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult, apart, unique
from rnnconvert.files.checkpoint import Checkpoint, Recorded
from rnnconvert.files.finder import ArrayFiles
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.graphs.row import in_a_row
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.layout import Sizes
from rnnconvert.language.packing import pack

KEYS = ("input_batch", "output_batch")

_DENSE = ("dense", "time-distributed-dense")
_FUNCTIONS = ("linear", "tanh", "relu", "sigmoid")


def recorded(
    path: Path, document: Mapping[str, Any], names: Sequence[str], arrays: Mapping[str, Array], layers: Mapping[str, Recurrent]
) -> tuple[tuple[Recorded, ...], str]:
    """Return the sample recorded in a file, and why it cannot be used: "" if it can, and for a file without one.

    names   the names of all layers of the row
    arrays  the arrays of the layers without recurrence, by full names
    layers  the recurrent layers
    """
    if not any(key in document for key in KEYS):
        return (), ""
    if missing := [key for key in KEYS if key not in document]:
        return (), f"the file has no {missing[0]}"
    try:
        x, y = (json_file.array(document[key], path, key).astype(np.float64) for key in KEYS)
    except UnreadableError as error:
        return (), error.problem
    width = document["in_shape"][-1]
    if x.ndim != 1 or x.shape != y.shape or not x.size or width != 1:
        return (), f"it has the shapes {x.shape} and {y.shape}, and the model reads {width} values a step"
    if names[:1] != [*layers][:1]:
        return (), "the model does not begin with its recurrent layer"
    dense, width = [], layers[names[0]].layers[-1].output_size
    for name, layer in list(zip(names, document["layers"], strict=True))[1:]:
        weights = _dense(name, layer, arrays, width)
        if weights is None:
            return (), f"{name!r} is not a dense layer with a function that is computed here"
        dense.append(weights)
        width = weights[1].size
    skip = document.get("in_skip") or 0
    if skip not in (0, 1) or width != 1:
        return (), f"the model gives {width} values a step, and adds {skip} of its input to them"

    def restore(sequence: Array, read: Array) -> Array:
        dtype = sequence.dtype
        for weight, bias, function in dense:
            sequence = FUNCTIONS[function](np, sequence @ weight.astype(dtype) + bias.astype(dtype), None, None)
        return sequence + read.astype(dtype) if skip else sequence

    return (Recorded(x[:, None, None], y[:, None, None], names[0], restore),), ""


_Dense = tuple[Array, Array, str]


def _dense(name: str, layer: Mapping[str, Any], arrays: Mapping[str, Array], width: int) -> _Dense | None:
    """Return the weight (in, out), the bias and the function's name of a dense layer that reads so many values; None for any other."""
    weight, bias = (arrays.get(f"{name}/weights/{place}") for place in range(2))
    function = layer.get("activation") or "linear"
    if layer["type"] not in _DENSE or function not in _FUNCTIONS or weight is None or bias is None:
        return None
    fits = weight.ndim == 2 and weight.shape[0] == width and bias.shape == weight.shape[1:]
    return (weight, bias, function) if fits else None


_AROUND = ("dense", "time-distributed-dense", "conv1d", "conv2d", "prelu", "batchnorm", "batchnorm2d", "activation")
"""The types of layers without recurrence that RTNeural knows."""
_STATED_KEYS = ("in_shape", "layers", "metadata", "samplerate", "in_skip", "in_gain", "out_gain", *KEYS)
"""The keys beside the row of layers that are known."""
_STATED = ("samplerate", "in_skip", "in_gain", "out_gain")
"""Those that say something of the whole model."""
_CHANGES = {
    "in_skip": "the first value of its input is added to what its last layer gives",
    "in_gain": "its input is scaled by so many decibels",
    "out_gain": "its output is scaled by so many decibels",
}
"""The effects of AIDA-X's keys if they are not 0."""
_UNITS = ("hidden_size", "output_size", "units")
"""Keys of a layer that state how many units it has."""


def _sizes_stated_again(sizes: Sizes | None) -> dict[str, tuple[int, ...]]:
    """Return the sizes that other exporters of RTNeural's JSON write beside the weights, to be accepted if the weights agree."""
    return {} if sizes is None else {"input_size": (sizes.input_size,), **{key: (sizes.hidden_size,) for key in _UNITS}}


class RtneuralMetadata(TypedDict):
    """The metadata of a file: all of its JSON, and the names of its arrays."""

    document: dict[str, Any]
    names: list[str]


class RtNeural(ArrayFiles):
    """The adapter of RTNeural's JSON. A layer goes by its type, with a number from the second on."""

    ZERO_STATES: ClassVar[bool] = True

    def recognise(self, file: Opened) -> FormatClaim | None:
        """Recognize a row of layers with their types, and the shape of the input."""
        document = file.json
        if document is None:
            return None
        layers = document.get("layers")
        if not isinstance(layers, list) or "in_shape" not in document:
            return None
        typed = layers and all(isinstance(layer, dict) and isinstance(layer.get("type"), str) for layer in layers)
        reader = "AIDA-X" if {*_CHANGES, "samplerate"} & document.keys() else "RTNeural"
        return FormatClaim(STATED, f"JSON with in_shape and a row of layers by type, as {reader} reads it") if typed else None

    def stored(self, file: Opened) -> Stored:
        """Return the weights of all layers, and the document around them."""
        path, document = file.path, file.cached(json_file.read)
        layers = document.get("layers")
        if not isinstance(layers, list) or not all(isinstance(entry, dict) for entry in layers):
            raise UnreadableError(path, 'it is JSON without a list "layers" of objects')
        if len(layers) > LAYERS:
            raise UnreadableError(path, f"it has {len(layers)} layers, and at most {LAYERS} are read")
        arrays: dict[str, Array] = {}
        names: dict[str, None] = {}
        for number, layer in enumerate(layers):
            kind, weights = layer.get("type"), layer.get("weights", [])
            if not isinstance(kind, str) or not isinstance(weights, list):
                raise UnreadableError(path, f"layer {number} has no type, or weights that are not a list")
            name = unique(kind, names)
            names[name] = None
            for place, value in enumerate(weights):
                full = f"{name}/weights/{place}"
                arrays[full] = json_file.array(value, path, full)
        return Stored(arrays, RtneuralMetadata(document=document, names=list(names)))

    def read(self, path: Path, options: Options) -> Checkpoint:
        """Return every recurrent layer of a row; warnings name what AIDA-X does around it."""
        checkpoint = super().read(path, options)
        document = checkpoint.metadata_as(RtneuralMetadata)["document"]
        warnings = [
            f"{key} is {document[key]}: {what}, and a layer alone does not do that"
            for key, what in _CHANGES.items()
            if document.get(key) not in (None, 0)
        ]
        warnings += [f"the file states {key!r}, whose effect is unknown" for key in document if key not in _STATED_KEYS]
        names = checkpoint.metadata_as(RtneuralMetadata)["names"]
        row = [(name, str(layer["type"])) for name, layer in zip(names, document["layers"], strict=True)]
        received = in_a_row(row, checkpoint.layers)
        samples, unused = recorded(path, document, names, checkpoint.tensors, checkpoint.layers)
        warnings += [f"its sample of what the model gives is not used: {unused}"] if unused else []
        layers = {name: stack.replace(calls=received[name]) for name, stack in checkpoint.layers.items()}
        return checkpoint.replace(layers=layers, warnings=(*checkpoint.warnings, *warnings), recorded=samples)

    def find(self, path: Path, stored: Stored, options: Options) -> tuple[list[FoundLayer], list[LayerNote]]:
        """Return the recurrent layers of the row by their types, and those that are not read."""
        document, names = stored.metadata_as(RtneuralMetadata)["document"], stored.metadata_as(RtneuralMetadata)["names"]
        layouts = {layout.class_name: layout for layout in registry.layouts_of(self.NAME)}
        result: list[FoundLayer] = []
        doubts: list[LayerNote] = []
        below = _width(path, document.get("in_shape"), "in_shape")
        for name, layer in zip(names, document["layers"], strict=True):
            layout = layouts.get(layer["type"])
            width = _width(path, layer.get("shape"), f"the shape of {name!r}")
            if layout is None and layer["type"] not in _AROUND:
                recurrent = re.search("rnn|lstm|gru|bidirectional|recurrent", layer["type"].lower())
                what = "is a recurrent layer that" if recurrent else "has a type that"
                doubts.append(LayerNote(name, f"it {what} RTNeural does not know and leaves out", UNREAD))
            if layout is not None:
                full_names = [f"{name}/weights/{place}" for place in range(len(layer.get("weights", [])))]
                arrays = {full.removeprefix(f"{name}/"): full for full in full_names}
                shapes = {local: tuple(stored.arrays[full].shape) for local, full in arrays.items()}
                sizes = fit(layout, shapes)
                if sizes is None:
                    doubts.append(LayerNote(name, f"its weights are not those of a {layer['type']}: {misfit([layout], shapes)}", UNREAD))
                elif (sizes.input_size, sizes.hidden_size) != (below, width):
                    raise UnreadableError(
                        path,
                        f"the weights of {name!r} are for {sizes.input_size} inputs and {sizes.hidden_size} units, but by the shapes "
                        f"around them it has {below} and {width}",
                    )
                else:
                    result.append(FoundLayer(name, layout, sizes, arrays, layout.cell))
                stated = {key: value for key, value in layer.items() if key not in ("type", "shape", "weights")}
                # RTNeural computes tanh whatever this says: another function is what the model was trained with.
                options.facts(name, "its layer", stated, neutral={"activation": ("tanh", ""), **_sizes_stated_again(sizes)})
            below = width
        return result, doubts

    def packed(self, path: Path, job: Job) -> tuple[dict[str, Array | PiecewiseArray], WriteResult]:
        """Return the weights of the layers by full names, and these names."""
        arrays: dict[str, Array | PiecewiseArray] = {}
        names: dict[str, None] = {}
        complete = self._is_whole_file(job)
        for layout, stack in job.stacks():
            name = stack.name if complete else unique(layout.class_name, names)
            names[name] = None
            for local, packed in pack(layout, stack, job.dtype, job.watch).items():
                arrays[f"{name}/{local}"] = packed
        return arrays, WriteResult([*names])

    def _is_whole_file(self, job: Job) -> bool:
        """Return whether every layer of a source of this format is written again, so that its row can be kept."""
        source = job.source
        written = {stack.name for _, stack in job.stacks()}
        return (
            source.format == self.NAME and not source.unread and written == set(source.layers) and set(job.carried) == set(source.tensors)
        )

    def write(self, path: Path, job: Job) -> WriteResult:
        """Write the source's own row with its layers, or a row of the recurrent layers alone.

        Raises UsageError for several layers that may not read one another.
        """
        arrays, written = self.packed(path, job)
        names = [*written.notes]
        complete = self._is_whole_file(job)
        if len(job.parts) > 1 and not complete:
            raise UsageError(f"{path}: the layers of this format read one another, and {apart(job)}")
        document = _filled(job.source.metadata, arrays) if complete else _row(job, names, arrays)
        if not job.dry_run:
            json_file.write(path, document)
        return replace(written, notes=[], dropped=written.dropped if complete else [*job.carried])

    def about(self, checkpoint: Checkpoint) -> dict[str, object]:
        """Return the statements of AIDA-X: the sample rate, the name and everything else in its metadata, and its sample."""
        document = checkpoint.metadata_as(RtneuralMetadata)["document"]
        stated = document.get("metadata")
        facts = {key: document[key] for key in _STATED if key in document}
        if checkpoint.recorded:
            facts["sample"] = f"of {len(checkpoint.recorded[0].x)} steps, which verify runs, too"
        return {**facts, **(stated if isinstance(stated, dict) else {})}


def _width(path: Path, shape: object, what: str) -> int:
    """Return the last length of a shape. Raises UnreadableError."""
    if isinstance(shape, list) and shape and type(shape[-1]) is int and shape[-1] > 0:
        return shape[-1]
    raise UnreadableError(path, f"{what} is not a list that ends in a width")


def _filled(metadata: Mapping[str, Any], arrays: Mapping[str, Array | PiecewiseArray]) -> dict[str, Any]:
    """Return the document that was read with other weights in its recurrent layers."""
    document, names = metadata["document"], metadata["names"]
    layers = []
    for name, layer in zip(names, document["layers"], strict=True):
        weights = [arrays.get(f"{name}/weights/{place}", value) for place, value in enumerate(layer.get("weights", []))]
        layers.append({**layer, "weights": weights} if "weights" in layer else layer)
    return {**document, "layers": layers}


def _row(job: Job, names: list[str], arrays: Mapping[str, Array | PiecewiseArray]) -> dict[str, Any]:
    """Return a document of recurrent layers that read one another."""
    layers = []
    stacks = job.stacks()
    weights: dict[str, list[Array | PiecewiseArray]] = {}
    for full, array in arrays.items():
        weights.setdefault(full.partition("/")[0], []).append(array)
    for name, (layout, stack) in zip(names, stacks, strict=True):
        shape = [None, None, stack.hidden_size]
        layers.append({"type": layout.class_name, "activation": "tanh", "shape": shape, "weights": weights[name]})
    return {"in_shape": [None, None, stacks[0][1].input_size], "layers": layers}


ADAPTERS = (RtNeural("rtneural", registry.endings("rtneural")),)
