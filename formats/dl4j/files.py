"""Deeplearning4j's models (ModelSerializer): a zip archive of a configuration and one vector of all parameters.

Source: deeplearning4j-nn, org/deeplearning4j/util/ModelSerializer.java, writeModel. The vector holds the parameters of one
layer after the other; what a layer's share means is in rnnconvert.formats.dl4j.layouts.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from rnnconvert.containers.zips import Archive
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Activation
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.core.limits import DESCRIPTION_BYTES
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.remedies import Flag
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.files.adapter import Job, WriteResult, unique, written_layouts
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.dl4j import nd4j
from rnnconvert.formats.dl4j.config import HARMLESS, NEUTRAL, USED, ConfiguredLayer, network
from rnnconvert.formats.dl4j.lowering import NetworkLowering
from rnnconvert.formats.dl4j.write import TITLE, GraphVertex, recurrent, save
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from rnnconvert.language.packing import assemble, pack, unpack
from rnnconvert.recognition.lowered import read_program, recognise_in
from rnnconvert.rewrites import split_stack

NAME = "dl4j"
SUFFIXES = registry.endings(NAME)

_CONFIGURATION, _COEFFICIENTS = "configuration.json", "coefficients.bin"


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize a zip archive with a configuration and coefficients."""
    if not {_CONFIGURATION, _COEFFICIENTS} <= {*(file.entries or ())}:
        return None
    return FormatClaim(STATED, f"a zip archive with {_CONFIGURATION} and {_COEFFICIENTS}")


layouts = written_layouts(NAME)


def write(path: Path, job: Job) -> WriteResult:
    """Write a ComputationGraph with an input for each stack.

    Raises RefusedError for functions that Deeplearning4j lacks, and for other numbers than float32.
    """
    inputs = ["input"] if len(job.parts) == 1 else [f"input_{number}" for number in range(len(job.parts))]
    names, vertices, notes = {*inputs}, list[GraphVertex](), []
    for start, part in zip(inputs, job.parts, strict=True):
        below = start
        dtype = np.dtype(job.dtype or part.stack.dtype)
        if dtype != np.float32:
            remedy = f"Convert with {Flag('dtype', 'float32')}."
            raise RefusedError(f"numbers of type {dtype}", TITLE, "its networks are written in float32", remedy, part.stack.name)
        for single in split_stack(part.stack):
            name = unique(single.name or single.cell.kind, names)
            names.add(name)
            (share,) = pack(part.layout, single, dtype, job.watch).values()
            vertices.append(recurrent(name, below, part.layout.name.partition(".")[2], single, share))
            below = name
        notes.append(f"{part.stack.name or 'the layer'}: the input {start} (batch, {part.stack.input_size}, time), the output {below}")
    notes.append("load it with ModelSerializer.restoreComputationGraph, of Deeplearning4j 1.0.0-beta4 or later; nobody has run it here")
    if not job.dry_run:
        save(path, inputs, vertices)
    return WriteResult(notes, dropped=[*job.carried])


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent layer of a network.

    Raises UnreadableError for a damaged file, for layers of unknown types, and if the vector's length is not what its layers need.
    """
    archive = Archive(path)
    if archive.size(_CONFIGURATION) > DESCRIPTION_BYTES if _CONFIGURATION in archive else False:
        raise UnreadableError(path, f"its {_CONFIGURATION} has {archive.size(_CONFIGURATION)} bytes")
    configured = network(archive.read(_CONFIGURATION), path)
    vector = nd4j.read(archive.read(_COEFFICIENTS), path, _COEFFICIENTS).reshape(-1)
    if vector.dtype.kind != "f":
        raise UnreadableError(path, f"its {_COEFFICIENTS} holds elements of type {vector.dtype}")
    needed = sum(part.size for part in configured.parts)
    if needed != vector.size:
        sizes = ", ".join(f"{part.name} {part.size}" for part in configured.parts)
        raise UnreadableError(path, f"its {_COEFFICIENTS} holds {vector.size} parameters, but its layers have {needed} ({sizes})")
    vector = vector.astype(vector.dtype.newbyteorder("="))
    layers: dict[str, Recurrent] = {}
    others: dict[str, Array] = {}
    evidence, warnings = [], []
    at = 0
    for part in configured.parts:
        share = vector[at : at + part.size]
        name = part.name
        if part.layout:
            layers[name] = _layer(name, _decided(name, part, options), share)
            warnings += [LayerNote(name, str(text)) for text in part.around]
            options.facts(name, _CONFIGURATION, part.stated, harmless=HARMLESS, neutral=NEUTRAL).take(*USED)
            if part.masked:
                warnings.append(LayerNote(name, "a MaskZeroLayer skips steps by their values, which is not kept"))
            evidence.append(f"{name}: {_CONFIGURATION} states {part.layout}, parameters {at} to {at + part.size - 1}")
        ends = np.cumsum([0, *(math.prod(shape) for _, shape in part.arrays)])
        others |= {
            f"{name}/{key}": share[start:end].reshape(shape, order="F")
            for (key, shape), start, end in zip(part.arrays, ends, ends[1:], strict=False)
        }
        at += part.size
    lowering = NetworkLowering(configured, layers, others)
    calls = lowering.calls()
    looked, received = recognise_in(lambda: lowering.program(path, path.stat().st_size), re.compile(r"$^"), calls.items())
    layers = {name: layer.replace(calls=received[name]) for name, layer in layers.items()}
    return Checkpoint(
        str(path), NAME, layers, others, tuple(evidence), options.questions, tuple(warnings), read=read_program(looked, calls)
    )


def _decided(name: str, part: ConfiguredLayer, options: Options) -> ConfiguredLayer:
    """Return the part with the functions that its configuration leaves out, by asking for them."""
    functions = {"candidate": ("activation", "activation"), "gate": ("recurrent_activation", "gateActivation")}
    for role, (option, key) in functions.items():
        if (role == "gate" and part.layout == "rnn") or any(part.stated.get(f"{key}{end}") for end in ("Fn", "Function")):
            continue
        default: Activation = getattr(part, role)
        why = f"{_CONFIGURATION} does not state its {key}Fn"
        answer = options.ask(option, name, assumed=str(default), why=why, choices=("sigmoid", "tanh", "relu", "linear"))
        part = replace(part, **{role: Activation(answer)}) if answer != str(default) else part  # type: ignore[arg-type]
    return part


def _layer(name: str, part: ConfiguredLayer, share: Array) -> Recurrent:
    """Return a recurrent layer in canonical form."""
    layout = registry.layout_named(f"{NAME}.{part.layout}")
    peepholes = {"peephole"} if part.layout == "graves_lstm" else set[str]()
    part_names = frozenset({"input", "recurrent", "input_bias", *peepholes})
    sizes = Sizes(layout.kind, part.inputs, part.units, num_directions=part.directions, parts=part_names)
    cell = layout.cell.replace(activation=part.candidate, gate_activation=part.gate)
    if layout.kind == "lstm":
        cell = cell.replace(output_activation=part.candidate)
    stack = assemble(name, cell, unpack(layout, sizes, {"params": np.asarray(share)}), part.directions)
    return stack.replace(layers=(Layer(stack.layers[0].directions, part.merge),)) if part.directions == 2 else stack
