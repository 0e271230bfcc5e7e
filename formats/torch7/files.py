"""Torch7's .t7 files: recurrent layers anywhere in the tree of objects, by their classes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import NotALayerError, UsageError
from rnnconvert.core.names import add, named
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.remedies import Setting
from rnnconvert.core.weights import Call, Layer, Recurrent, Unknown
from rnnconvert.files.adapter import Job, WriteResult, written_layouts
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.torch7 import torch7_file, torch7_write
from rnnconvert.formats.torch7.classes import (
    CLASSES,
    KEPT_STATES,
    OTHERS,
    SIZES,
    TWO_WAYS,
    ClassArrays,
    class_arrays,
    two_ways,
    unknown_fields,
)
from rnnconvert.formats.torch7.lowering import ROOTS, ModuleLowering, within
from rnnconvert.formats.torch7.step import CONSTANTS, HARMLESS, UnknownModuleError, differs
from rnnconvert.formats.torch7.torch7_file import LuaTable, Object
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import assemble, pack, unpack
from rnnconvert.language.places import shapes
from rnnconvert.recognition.lowered import recognise_in
from rnnconvert.recognition.stacked import ReadStacks, placed
from rnnconvert.rewrites import split_stack

NAME = "torch7"
SUFFIXES = registry.endings(NAME)

_NOT_WEIGHTS = frozenset({"gradInput", "gradWeight", "gradBias", "gradWeightO", "output", "_output", "sharedClones"})
"""Fields of modules that lead to copies and to what training leaves behind."""


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize what .t7 files begin with."""
    return FormatClaim(STATED, "an object as torch.save of Torch7 writes it") if torch7_file.looks_like(file.head) else None


layouts = written_layouts(NAME)


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent layer of a file; `unread` names what is not read.

    Raises UnreadableError for a damaged file, or one that holds objects that cannot be skipped.
    """
    root = torch7_file.read(path)
    everything = list(torch7_file.walk(root, _NOT_WEIGHTS, path))
    layers: dict[str, Recurrent] = {}
    modules: dict[int, str] = {}
    unread: list[LayerNote] = []
    warnings: list[str] = []
    evidence = []
    used: set[int] = set()
    objects = [(place, entry) for place, entry in everything if isinstance(entry, Object)]
    for place, module in sorted(objects, key=lambda pair: pair[1].name not in TWO_WAYS):
        if id(module) in used or module.name not in CLASSES | OTHERS | TWO_WAYS:
            continue
        for _ in torch7_file.walk(module, _NOT_WEIGHTS, path, used):
            pass  # what is inside is none of its own
        try:
            if module.name in OTHERS:
                raise NotALayerError("a class whose equations are unknown")
            add(layers, place, _two(place, module, options) if module.name in TWO_WAYS else _single(place, module, options), path)
            modules[id(module)] = place
            evidence.append(f"{place or 'the file itself'}: {module.name}")
            options.facts(place, f"the {module.name}", _unknown(module, path))
            if any(module.fields.get(name) in values for name, values in KEPT_STATES.items()):
                note = f"{module.name} keeps its state from call to call. Pass it yourself, or start each from zeros"
                warnings.append(LayerNote(place, note, unnamed="the file itself"))
        except NotALayerError as error:
            unread.append(LayerNote(place, f"{module.name}, not read: {error}", UNREAD, "the file itself"))
        if module.fields.get("maskzero") is True:
            note = f"{module.name} sets its state to zero at steps of zeros (maskzero), which is not kept"
            warnings.append(LayerNote(place, note, unnamed="the file itself"))
    turned = next((f"{place} ({entry.name})" for place, entry in objects if "Reverse" in entry.name and id(entry) not in used), "")
    if turned and layers:
        warnings.append(f"{turned} reverses the order of a sequence: a layer between two such modules reads from the end")
    program, received = _program(path, everything, {key: layers[place] for key, place in modules.items()})
    unseen = (Call(Unknown("no nn.Sequential shows what it reads")),)
    layers = {place: layer.replace(calls=received.get(place, unseen)) for place, layer in layers.items()}
    order = [place for place, _ in everything if place in layers]
    arrays = ((place, entry) for place, entry in everything if isinstance(entry, np.ndarray) and entry.size)
    tensors = named(((place, array) for place, array in arrays if _apart(place, layers)), path)
    return Checkpoint(
        str(path),
        NAME,
        {place: layers[place] for place in order},
        tensors,
        tuple(evidence),
        options.questions,
        (*unread, *warnings),
        read=program,
        unread=tuple(unread),
    )


def _program(
    path: Path, everything: Sequence[tuple[str, Any]], layers: Mapping[int, Recurrent]
) -> tuple[ReadModules | None, dict[str, tuple[Call, ...]]]:
    """Return the outermost modules with their layers, and what these receive; no modules where there are none, or they do not fit together.

    everything  what the file holds, nearer values first
    """
    inside, roots, around = set[int](), list[Object](), ""
    for _, entry in everything:
        if not isinstance(entry, Object) or id(entry) in inside or entry.name.startswith("torch.") or entry.name.endswith("Criterion"):
            continue
        root, unread = entry.name in ROOTS or (id(entry) in layers and not around), entry.name in CLASSES | OTHERS | TWO_WAYS
        if root:
            roots.append(entry)
        elif entry.name.startswith("nn"):
            around = around or entry.name
        if root or unread:
            for _ in torch7_file.walk(entry, _NOT_WEIGHTS, path, inside):
                pass  # what is inside is no model of its own
    holding = [root for root in roots if any(id(module) in layers for module in within(root))] or roots[:1]
    names = {f"input_{number}" if len(holding) > 1 else "input": root for number, root in enumerate(holding, 1)}
    lowering = ModuleLowering(names, layers, {id(entry): place for place, entry in everything})
    looked, received = recognise_in(lambda: lowering.program(path, path.stat().st_size), re.compile(r"$^"), lowering.stacks)
    if looked.scope is None or not names:
        return None, received
    places, singles = placed(looked.scopes[0], lowering.calls)
    places = {name: replace(call, continues=singles[name].name in lowering.anew) for name, call in places.items()}
    if around:
        lowering.refused[around] = "what it computes is not known"
    containers = any(root.name in ROOTS for root in roots)
    read = ReadModules(looked.scopes, places, looked.layers, {}, singles, len(roots), containers, tuple(lowering.notes), lowering.refused)
    return read, received


@dataclass(frozen=True)
class ReadModules(ReadStacks):
    """The modules of a file as a program.

    models   how many outermost modules there are
    containers  whether one of them holds others
    notes    what a user should know
    refused  why the model is not described, by the classes of its modules
    """

    models: int = 1
    containers: bool = False
    notes: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


def _apart(place: str, layers: dict[str, Recurrent]) -> bool:
    """Return whether a tensor does not belong to a layer."""
    return not any(not name or place.startswith(f"{name}/") for name in layers)


def _unknown(module: Object, path: Path) -> dict[str, object]:
    """Return the unknown fields of a layer, and of the modules inside it by their places."""
    stated: dict[str, object] = {}
    for place, inner in torch7_file.walk(module, _NOT_WEIGHTS, path):
        if isinstance(inner, Object) and not inner.name.startswith("torch."):
            left = unknown_fields(inner)
            if inner.name in ("nn.SeqBRNN", "nn.SeqReverseSequence") and left.get("dim") == 1:
                del left["dim"]  # the steps
            if inner is not module and inner.name not in CLASSES:
                left = {name: value for name, value in left.items() if name not in CONSTANTS | HARMLESS}
            stated |= {f"{name} of {place} ({inner.name})" if place else name: value for name, value in left.items()}
    return stated


def _single(place: str, source: Object, options: Options) -> Recurrent:
    asked = (options.get("layout", place) or "").removeprefix(f"{NAME}.")
    stack = _assembled(place, source, class_arrays(source, asked))
    module = source.fields.get("recurrentModule")
    if isinstance(module, Object) and module.name != "nn.gModule":
        try:
            apart = differs(stack, module)
        except UnknownModuleError as error:
            raise NotALayerError(str(error)) from None
        if apart:
            raise NotALayerError(apart)
    return stack


def _assembled(place: str, module: Object, what: ClassArrays) -> Recurrent:
    layout = registry.layout_named(f"{NAME}.{what.layout}")
    local = {name: tuple(array.shape) for name, array in what.arrays.items()}
    sizes = what.sizes or fit(layout, local)
    types = {str(array.dtype) for array in what.arrays.values()}
    if len(types) > 1 or not types <= {"float16", "float32", "float64"}:
        raise NotALayerError(f"its tensors are of the types {', '.join(sorted(types))}")
    if sizes is None:
        raise NotALayerError(f"its tensors do not fit together: {misfit([layout], local)}")
    if what.sizes is not None and shapes(layout, sizes) != local:
        raise NotALayerError(f"a vector of {local['weight'][0]} numbers, but its sizes need {shapes(layout, sizes)['weight'][0]}")
    for name, ours in SIZES.items():
        size = module.fields.get(name)
        if isinstance(size, int | float) and size != getattr(sizes, ours):
            raise NotALayerError(f"its {name} is {size}, but its tensors are for {getattr(sizes, ours)}")
    cell = layout.cell.replace(activation=what.activation) if layout.kind == "rnn" else layout.cell
    return assemble(place, cell, unpack(layout, sizes, what.arrays), sizes.num_directions)


def _two(place: str, module: Object, options: Options) -> Recurrent:
    forward, backward, merge = two_ways(module)
    ways = [_single(place, way, options) for way in (forward, backward)]
    if any(way.num_layers > 1 or way.num_directions > 1 for way in ways):
        raise NotALayerError("it has whole stacks in it")
    if ways[0].input_size != ways[1].input_size or ways[0].cell.kind != ways[1].cell.kind:
        raise NotALayerError(f"its directions are {ways[0].describe()}; and {ways[1].describe()}")
    how: Any = merge
    return Recurrent(place, (Layer((ways[0].first, ways[1].first.replace(reverse=True)), how),))


def write(path: Path, job: Job) -> WriteResult:
    """Write a file of one module, or of a table of modules by name; for nn and the package rnn, or for cudnn.torch."""
    modules: dict[str, Object] = {}
    notes = []
    for part in job.parts:
        stacks = [part.stack] if part.layout.holds.layers else split_stack(part.stack)
        for stack in stacks:
            arrays = pack(part.layout, stack, job.dtype, job.watch)
            name = job.options.get("prefix", part.stack.name)
            name = stack.name if name is None or len(stacks) > 1 else name
            if name in modules:
                raise UsageError(
                    f"two layers would both be written as {name!r}. Give one of them {Setting('prefix', '...', layer='LAYER')}"
                )
            modules[name] = _module(part.layout, stack, dict(arrays), str(job.dtype or stack.dtype))
            notes.append(f"{name or 'the file itself'} is an {modules[name].name}; {_needs(modules[name].name)}")
    others: dict[str, Array | PiecewiseArray] = {}
    dropped = job.carry(others)
    bare = len(modules) == 1 and job.source.format != NAME
    root = next(iter(modules.values())) if bare else LuaTable({**modules, **others})
    if not job.dry_run:
        torch7_write.write(path, root)
    return WriteResult(notes, dropped=dropped)


def _needs(name: str) -> str:
    where = {"cudnn": "cudnn.torch, and :cuda()", "nn.VanillaRNN": "torch-rnn's VanillaRNN.lua"}
    package = where.get(name.partition(".")[0]) or where.get(name) or "the package rnn of Element-Research"
    return f"torch.load needs {package}; its gradients are empty tensors"


def _module(layout: Layout, stack: Recurrent, arrays: dict[str, Any], dtype: str) -> Object:
    """Return an object with the fields that its class's __init makes; the gradients are left empty."""
    sizes = {"input": stack.input_size, "hidden": stack.hidden_size, "output": stack.first.output_size}
    empty = np.dtype("f8" if dtype == "float64" else "f4")
    tensor = "torch.DoubleTensor" if dtype == "float64" else "torch.FloatTensor"
    fields = LuaTable({"_type": tensor, "train": False, **arrays})

    def add(names: str) -> None:
        for name in names.split():
            fields.setdefault(name, np.zeros(0, empty))

    if layout.name.startswith(f"{NAME}.cudnn_"):
        return _cudnn(stack, fields, add)
    add("output gradWeight gradBias buffer1 buffer2 h0 grad_h0 grad_x")
    fields["gradInput"] = LuaTable({1: fields["grad_h0"], 2: fields["grad_x"]})
    if layout.kind == "rnn":
        fields |= {"input_dim": sizes["input"], "hidden_dim": sizes["hidden"], "remember_states": False}
        return Object("nn.VanillaRNN", fields)
    add("gates buffer3 grad_a_buffer")
    fields |= {"_remember": "neither", "batchfirst": False, "maskzero": False}
    if layout.kind == "gru":
        fields |= {"inputSize": sizes["input"], "outputSize": sizes["hidden"], "seqLength": 1, "miniBatch": 1}
        return Object("nn.SeqGRU", fields)
    add("cell c0 grad_c0")
    fields["gradInput"] = LuaTable({1: fields["grad_c0"], 2: fields["grad_h0"], 3: fields["grad_x"]})
    fields |= {"inputsize": sizes["input"], "hiddensize": sizes["hidden"], "outputsize": sizes["output"]}
    if "weightO" in fields:
        add("gradWeightO")
    return Object("nn.SeqLSTMP" if "weightO" in fields else "nn.SeqLSTM", fields)


def _cudnn(stack: Recurrent, fields: LuaTable, add: Any) -> Object:
    add("output gradInput gradWeight reserve hiddenOutput cellOutput gradHiddenInput gradCellInput")
    both_ways = stack.num_directions == 2
    relu = stack.cell.kind == "rnn" and stack.cell.activation.name == "relu"
    mode = {"lstm": "CUDNN_LSTM", "gru": "CUDNN_GRU"}.get(stack.cell.kind, f"CUDNN_RNN_{'RELU' if relu else 'TANH'}")
    fields |= {
        "datatype": "CUDNN_DATA_FLOAT",
        "inputSize": stack.input_size,
        "hiddenSize": stack.hidden_size,
        "seqLength": 1,
        "miniBatch": 1,
        "numLayers": stack.num_layers,
        "numDirections": 2 if both_ways else 1,
        "mode": mode,
        "dropout": 0,
        "bidirectional": "CUDNN_BIDIRECTIONAL" if both_ways else "CUDNN_UNIDIRECTIONAL",
        "seed": 0x01234567,
        "inputMode": "CUDNN_SKIP_INPUT" if stack.first.skip_input else "CUDNN_LINEAR_INPUT",
        "batchFirst": False,
        "rememberStates": False,
    }
    names = {"CUDNN_LSTM": "LSTM", "CUDNN_GRU": "GRU", "CUDNN_RNN_RELU": "RNNReLU", "CUDNN_RNN_TANH": "RNNTanh"}
    # Of the plain RNNs there is no bidirectional class; cudnn.RNN reads its mode and direction from its fields.
    if both_ways and stack.cell.kind != "rnn":
        name = f"B{names[mode]}"
    elif both_ways:
        name = "RNN"
    else:
        name = names[mode]
    return Object(f"cudnn.{name}", fields)
