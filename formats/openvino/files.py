"""OpenVINO models: the recurrent operations of any graph of a .xml with its .bin, one recurrent layer each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from rnnconvert.containers.files import lowered
from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.weights import INPUT, Call, Recurrent
from rnnconvert.files.adapter import Job, WriteResult, unique, written_layouts
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.openvino import lowering, xml_graph
from rnnconvert.formats.openvino import net as nets
from rnnconvert.formats.openvino import write as writing
from rnnconvert.formats.openvino.operation import KINDS, NAME, OperationLayer
from rnnconvert.graphs.program.places import sources
from rnnconvert.language import registry
from rnnconvert.recognition.computed import RecognisedLayers
from rnnconvert.recognition.flow import PlacedCall, ReadProgram, RecurrentCall
from rnnconvert.recognition.lowered import received_in, recognise_in

SUFFIXES = registry.endings(NAME)
ZERO_STATES = True

_LATER = re.compile(r"(/(MatMul|Add|BiasAdd)(_\d+)?)+$")
"""What converters add to the name of a layer's scope."""
_ODD = {"AUGRUCell", "AUGRUSequence"}


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize XML that begins with a net."""
    if lowered(file.path).suffix != ".xml":
        return None
    return (
        FormatClaim(STATED, "XML with a <net>, as OpenVINO's IR has it")
        if b"<net" in file.head[:4096]
        else FormatClaim(1, "XML, by its ending")
    )


layouts = written_layouts(NAME)


def about(checkpoint: Checkpoint) -> dict[str, object]:
    """Return the model's name, and what wrote it."""
    return {**dict.fromkeys(("name", "version", "runtime"), ""), **checkpoint.metadata}


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent operation whose weights are constant.

    Raises UnreadableError for a damaged file.
    """
    graphs, root, weights_file = nets.read(path)
    layers: dict[str, Recurrent] = {}
    placed: dict[str, OperationLayer] = {}
    looked, recognised_loops = RecognisedLayers(), set[str]()
    arrays: dict[str, Array] = {}
    others: dict[str, Array] = {}
    evidence, warnings, unread = [], [], []
    for net in graphs:
        homes: dict[str, RecurrentCall] = {}
        used = _computing(net, looked) if net.where else set[str]()
        if net.around is not None and net.around.name in recognised_loops:
            continue  # its steps are a layer of the graph around it
        for layer in net.layers.values():
            name = unique(net.where + (layer.name or f"layer {layer.id}"), layers)
            if layer.type in _ODD:
                unread.append(LayerNote(name, f"an operation {layer.type}, whose gate of attention no other system here has", UNREAD))
            if layer.type not in KINDS:
                continue
            reader = OperationLayer(path, net, layer, name, options)
            why = reader.unreadable()
            if why:
                unread.append(LayerNote(name, str(why), UNREAD))
                continue
            layers[name] = reader.read()
            homes[name] = reader.call(layers[name])
            placed |= {} if net.where else {name: reader}
            arrays |= {f"{name}/{local}": array for local, array in reader.arrays.items()}
            used |= reader.used
            warnings += reader.warnings
            evidence.append(f"{name}: an operation {layer.type}")
        if net.where:
            calls = received_in(partial(lowering.program, net), [*homes.items()])
        else:
            looked, calls = recognise_in(partial(lowering.program, net), _LATER, homes)
            recognised_loops = {node.name for node in looked.nodes if node.kind == "Loop"}
            used |= _computing(net, looked)
        for name, received in calls.items():
            layers[name] = layers[name].replace(calls=tuple(_around(call) if net.where else call for call in received))
        for layer in net.layers.values():
            if layer.type == "Const" and layer.id not in used:
                array = net.constant((layer.id, 0))
                if array is not None and is_float(array) and array.ndim:
                    others[unique(net.where + (layer.name or f"constant {layer.id}"), others)] = array
    for name, computed in looked.layers.items():
        layers[name] = computed.stack
        warnings += computed.warnings
        evidence.append(computed.evidence)
    if looked.layers or not (layers or unread):
        unread += looked.refusals()
    info = root.first("rt_info")
    runtime = next((entry.attributes.get("value", "") for entry in info.every("info")), "") if info is not None else ""
    metadata = {"name": root.attributes.get("name", ""), "version": root.attributes["version"], "runtime": runtime}
    return Checkpoint(
        str(path),
        NAME,
        layers,
        others,
        tuple(evidence),
        options.questions,
        (*warnings, *unread),
        metadata,
        {**arrays, **others},
        read=_program(graphs[0], looked, {name: (reader, layers[name]) for name, reader in placed.items()}),
        unread=tuple(unread),
        batch_first=dict.fromkeys(layers, True),
        beside=(str(weights_file),) if weights_file else (),
    )


def _around(call: Call) -> Call:
    """Return a call in a graph that an operation runs: what that graph is given is what the operation hands on."""
    return replace(call, states="what the loop around it hands on") if call.states == INPUT else call


def _computing(net: nets.Net, looked: RecognisedLayers) -> set[str]:
    """Return the ids of the constants that layers are made of which other operations compute."""
    main = looked.scope
    if main is None:
        return set()
    stored = {tensor for node in looked.nodes for value in node.reads for tensor in sources(main, value)}
    return {layer.id for layer in net.layers.values() if main.body.stored.get(nets.value_name(net, (layer.id, 0))) in stored}


def _program(net: nets.Net, looked: RecognisedLayers, placed: Mapping[str, tuple[OperationLayer, Recurrent]]) -> ReadProgram | None:
    """Return the main graph with its layers; None for one that is not as its operations ask."""
    if not looked.scopes:
        return None
    main = looked.scopes[0]
    calls = {}
    for name, (reader, stack) in placed.items():
        call = reader.call(stack, merged=False)
        node, _ = main.producer(next(iter(call.outputs), "")) or (None, 0)
        if node is not None:
            weights = [value for value in [*node.inputs][min(reader.weights.values()) :] if value]
            calls[name] = PlacedCall(main, node, call, weights)
    inputs = {nets.value_name(net, (layer.id, 0)): layer.name for layer in net.layers.values() if layer.type == "Parameter"}
    return ReadProgram(looked.scopes, calls, looked.layers, inputs)


companions = xml_graph.companions


def write(path: Path, job: Job) -> WriteResult:
    """Write a model of the layers, each reading the one before, with its numbers next to it."""
    return writing.write(path, job)
