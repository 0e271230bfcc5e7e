"""TensorFlow.js layers models: model.json with a configuration as Keras has it, and groups of weights next to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from rnnconvert.containers import graph_def_json, json_file
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.cells import ACTIVATION_DEFAULTS, HARD_SIGMOID_KERAS_2, Activation
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.limits import DOCUMENT_NESTING
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.remedies import Flag
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.files import weight_groups
from rnnconvert.files.adapter import Job, WriteResult, apart, outputs_turned, unique, written_layouts
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.keras.model.entries import MODELS, Entry, entry
from rnnconvert.formats.keras.model.layered import Layered
from rnnconvert.formats.keras.model.layered_calls import received
from rnnconvert.formats.tfjs.config import EVERY_STEP, described
from rnnconvert.formats.tfjs.written import write_model
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.packing import pack, unpack
from rnnconvert.rewrites import split_stack

NAME = "tfjs"
SUFFIXES = registry.endings(NAME)

_CLASSES = {"LSTM": "lstm", "GRU": "gru", "SimpleRNN": "rnn"}
_RECURRENT = ("RNN", "ConvLSTM2D", "ConvRNN2D", "StackedRNNCells")
_WAYS = ("forward", "backward")
# What no output at a full sequence depends on, or what starts from zeros in every call that a conversion means.
_HARMLESS = frozenset((
    "name", "trainable", "dtype", "batch_input_shape", "batch_size", "units", "return_sequences", "return_state", "stateful", "unroll",
    "implementation", "dropout", "recurrent_dropout", "unit_forget_bias", "kernel_initializer", "recurrent_initializer",
    "bias_initializer", "kernel_regularizer", "recurrent_regularizer", "bias_regularizer", "activity_regularizer", "kernel_constraint",
    "recurrent_constraint", "bias_constraint", "input_dim", "input_length", "time_major", "input_shape",
    "zero_output_for_mask", "seed",  # of Keras 3, which TensorFlow.js does not look at
))  # fmt: skip
_COMPUTED = ("units", "activation", "recurrent_activation", "use_bias", "reset_after", "return_sequences", "unit_forget_bias")
"""The settings in the configuration of a layer that decide its numbers."""


class TfjsMetadata(TypedDict, total=False):
    """The metadata in a model's JSON."""

    document: dict[str, Any]


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize a topology beside a manifest of weights, in a file or in the folder that is downloaded with it."""
    if file.path.is_dir():
        inside = _topology(file.path)
        return recognise(Opened(inside)) if inside.is_file() else None
    document = file.json
    if document is None or not isinstance(document.get("weightsManifest"), list) or graph_def_json.is_graph(document.get("modelTopology")):
        return None
    return FormatClaim(STATED, "JSON with a weightsManifest, as TensorFlow.js saves models")


def _topology(path: Path) -> Path:
    """Return the file of a model's topology: its folder has it under the name that TensorFlow.js gives it."""
    return path / "model.json" if path.is_dir() else path


layouts = written_layouts(NAME)


def about(checkpoint: Checkpoint) -> dict[str, object]:
    """Return the model's statements about itself."""
    document = checkpoint.metadata_as(TfjsMetadata)["document"]
    return {key: document.get(key, "") for key in ("format", "generatedBy", "convertedBy")}


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent layer of a layers model.

    Raises UnreadableError for a damaged file, and for a graph model.
    """
    named, path = path, _topology(path)
    document = Opened(path).cached(json_file.read)
    arrays, narrow, files = weight_groups.read(path, document.get("weightsManifest"))
    topology = document.get("modelTopology")
    layers: dict[str, Recurrent] = {}
    unread: list[LayerNote] = []
    warnings: list[str] = []
    used: set[str] = set()
    if graph_def_json.is_graph(topology):
        raise UnreadableError(path, "it is a graph model, which has no layers", f"Read its graph: {Flag('from', 'tensorflow1')}.")
    if not isinstance(topology, dict):
        topology = {}
        warnings.append("the model has no topology: without layers, no recurrent one is found")
    model = topology.get("model_config", topology)
    configs: dict[str, Entry] = {}
    for kind, config in _layers(path, model, 0):
        name = unique(str(config.get("name", kind)), layers)
        inner, settings = kind, config
        if kind == "Bidirectional":
            wrapped = config.get("layer")
            if not isinstance(wrapped, dict) or not isinstance(wrapped.get("config"), dict):
                raise UnreadableError(path, f"the Bidirectional {name!r} wraps no layer")
            inner, settings = entry(wrapped).class_name, wrapped["config"]
        if inner in _RECURRENT or (kind == "Bidirectional" and inner not in _CLASSES):
            unread.append(LayerNote(name, f"a layer {inner}, whose cells are not read", UNREAD))
        if inner not in _CLASSES:
            continue
        if inner == "GRU" and settings.get("reset_after"):
            unread.append(LayerNote(name, "a GRU with reset_after, which TensorFlow.js itself does not load", UNREAD))
            continue
        layers[name], consumed = _layer(path, name, inner, (config, settings), arrays, options)
        used |= consumed
        configs[name] = Entry(name, kind, config)
        if consumed & set(narrow):
            kinds = " and ".join(sorted({narrow[full] for full in consumed if full in narrow}))
            warnings.append(LayerNote(name, f"its weights are stored as {kinds}, and are read as the float numbers that these stand for"))
    others = {name: array for name, array in arrays.items() if name not in used and array.dtype.kind == "f"}
    if layers:
        calls = received(Layered(entry(model), path, 2), layers, configs)
        layers = {name: stack.replace(calls=calls[name]) for name, stack in layers.items()}
    evidence = tuple(f"{name}: a layer of the model's configuration" for name in layers)
    return Checkpoint(
        str(named),
        NAME,
        layers,
        others,
        evidence,
        options.questions,
        (*warnings, *unread),
        {"document": document},
        arrays,
        unread=tuple(unread),
        batch_first=dict.fromkeys(layers, True),
        beside=tuple(map(str, files)),
    )


def _layers(path: Path, model: Any, depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the class and the configuration of every layer, including layers of models in models."""
    if depth > DOCUMENT_NESTING:
        raise UnreadableError(path, f"its models are nested more than {DOCUMENT_NESTING} deep")
    config = model.get("config") if isinstance(model, dict) else None
    listed = config.get("layers") if isinstance(config, dict) else config
    for element in listed if isinstance(listed, list) else []:
        if (
            not isinstance(element, dict)
            or not isinstance(element.get("config"), dict | list)
            or not isinstance(element.get("class_name"), str)
        ):
            raise UnreadableError(path, "a layer of its configuration has no class_name and config")
        if entry(element).class_name in MODELS:
            yield from _layers(path, element, depth + 1)
        elif isinstance(element["config"], dict):
            yield entry(element).class_name, element["config"]


def _layer(
    path: Path, name: str, kind: str, configs: tuple[dict[str, Any], dict[str, Any]], arrays: dict[str, Array], options: Options
) -> tuple[Recurrent, set[str]]:
    """Return a layer, and the names of its arrays.

    configs  the layer's own configuration and that of the layer inside, which are the same where nothing wraps it
    """
    outer, config = configs
    ways = _WAYS if outer is not config else _WAYS[:1]
    tensors: dict[str, Array] = {}
    names: set[str] = set()
    local_names = {full: full.removeprefix(f"{name}/") for full in arrays if full.startswith(f"{name}/")}
    # A layer of a model in a model may have that model's name before its own.
    local_names = local_names or {full: full.partition(f"/{name}/")[2] for full in arrays if f"/{name}/" in full}
    # Keras 3 leaves out the wrapper's name, and both layers inside have one that says from where they read.
    inside = tuple(f"{way}_{str(config.get('name')).removeprefix('forward_')}/" for way in ways) if len(ways) == 2 else ()
    local_names = local_names or {full: full for full in arrays if full.startswith(inside)}
    for full, rest in local_names.items():
        scopes = rest.split("/")
        begun = [way for way in ways if scopes[0].startswith(f"{way}_")] if len(ways) == 2 else []
        local = "/".join((*begun, scopes[-1]))
        if local in tensors:
            raise UnreadableError(path, f"the layer {name!r} has two weights that are both {local!r}")
        tensors[local] = arrays[full]
        names.add(full)
    layout = registry.layout(NAME, _CLASSES[kind], False if kind == "GRU" else None)
    shapes = {local: tuple(array.shape) for local, array in tensors.items()}
    sizes = fit(layout, shapes)
    if sizes is None or sizes.num_directions != len(ways):
        raise UnreadableError(path, f"the weights of {name!r} do not fit together: {misfit([layout], shapes)}")
    facts = options.facts(
        name, "its configuration", config, harmless=_HARMLESS, neutral={"reset_after": (False,), "go_backwards": (False,)}
    )
    facts.take("activation", "recurrent_activation", "use_bias", "go_backwards")
    if outer is not config:
        alike = {"backward_layer"} if _alike(config, outer.get("backward_layer")) else set()
        options.facts(name, "its wrapper", outer, harmless=_HARMLESS | alike | {"merge_mode", "layer"})
    if config.get("units", sizes.hidden_size) != sizes.hidden_size:
        raise UnreadableError(path, f"{name!r} states {config.get('units')} units, but its weights are for {sizes.hidden_size}")
    stored = tensors
    if len({array.dtype for array in tensors.values()}) > 1:
        stored = {local: np.asarray(array, np.float32) for local, array in tensors.items()}
    function = _function(path, name, config.get("activation", "tanh"))
    cell = layout.cell.replace(activation=function)
    if kind != "SimpleRNN":
        cell = cell.replace(gate_activation=_function(path, name, config.get("recurrent_activation", "hard_sigmoid")))
    if kind == "LSTM":
        cell = cell.replace(output_activation=function)
    parts = unpack(layout, sizes, stored)
    backwards = bool(config.get("go_backwards")) and len(ways) == 1
    directions = tuple(Direction(cell, parts[0, way], reverse=way == 1 or backwards) for way in range(len(ways)))
    merge: Any = outer.get("merge_mode", "concat") if len(ways) == 2 else "concat"
    merge = "none" if merge is None else merge
    if merge not in ("concat", "sum", "mul", "ave", "none"):
        raise UnreadableError(path, f"{name!r} has the merge_mode {merge!r}")
    return Recurrent(name, (Layer(directions, merge),), output_order="processing" if backwards else "time"), names


def _alike(forward: dict[str, Any], backward: Any) -> bool:
    """Return whether the layer that reads from the end is stated to compute what the other one does: TensorFlow.js makes it from that."""
    stated = backward.get("config") if isinstance(backward, dict) else None
    return isinstance(stated, dict) and all(stated.get(key) == forward.get(key) for key in _COMPUTED)


def _function(path: Path, name: str, function: Any) -> Activation:
    """Return a function by its name, or by its class where it is a layer's configuration."""
    called = function.get("class_name") if isinstance(function, dict) else function
    if not isinstance(called, str):
        raise UnreadableError(path, f"{name!r} has the activation {function!r}, which is not the name of one")
    plain = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in called).lstrip("_")
    if plain == "hard_sigmoid":
        return HARD_SIGMOID_KERAS_2
    return Activation(plain if plain in ACTIVATION_DEFAULTS and plain not in ("gelu", "exponential") else called)


def write(path: Path, job: Job) -> WriteResult:
    """Write one stack as a Sequential model, its weights in one group next to it.

    Raises UsageError for several stacks.
    """
    if len(job.parts) > 1:
        models = "Whole models, with what stands between and behind these layers, are written by rnnconvert export"
        raise UsageError(f"{path}: the layers of a model read one another, and {apart(job)}. {models}")
    ((part),) = job.parts
    turned = outputs_turned(part.stack, NAME, f"after {part.stack.name} comes tf.reverse(y, 1)")
    layers: list[dict[str, Any]] = []
    names: set[str] = set()
    weights: dict[str, Array | PiecewiseArray] = {}
    for single in split_stack(part.stack):
        name = unique(single.name or single.cell.kind, names)
        names.add(name)
        written = described(single, name, EVERY_STEP, single.layers[0].merge)
        written["config"] |= {} if layers else {"batch_input_shape": [None, None, single.input_size], "dtype": "float32"}
        layers.append(written)
        for local, packed in pack(part.layout, single, job.dtype, job.watch).items():
            way, _, end = local.rpartition("/")
            weights[f"{name}/{way}_{name}/{end}" if way else f"{name}/{end}"] = packed
    model = {"class_name": "Sequential", "config": {"name": "recurrent", "layers": layers}}
    data_files = [] if job.dry_run else [write_model(path, model, weights)]
    where = f"its numbers are in {path.name}.DIGEST.data, which belongs next to it; load it in JavaScript with tf.loadLayersModel"
    return WriteResult([where, *turned], dropped=[*job.carried], companions=data_files)
