"""OpenVINO models: the recurrent operations of any graph of a .xml with its .bin, one recurrent layer each.

What is written holds recurrent layers alone. A stack is a chain of operations from the parameter `x` (batch, time, in) to the result `y`
(batch, time, out); `NAME/h_n` and `NAME/c_n` are the last states of its layers, (batch, directions, hidden). With several stacks each
name is preceded by the stack's.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from rnnconvert.containers.files import lowered
from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.weights import INPUT, Call, Recurrent
from rnnconvert.core.weights import Layer as Pair
from rnnconvert.files.adapter import Job, Ports, WriteResult, unique, variables, written_layouts, zeros
from rnnconvert.files.checkpoint import Checkpoint, Contents
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.openvino import lowering
from rnnconvert.formats.openvino import net as nets
from rnnconvert.formats.openvino.export_to import recipe
from rnnconvert.formats.openvino.operation import KINDS, NAME, OperationLayer
from rnnconvert.formats.openvino.xml_graph import Out, XmlGraph, companions
from rnnconvert.graphs.program.places import sources
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.recognition.computed import RecognisedLayers
from rnnconvert.recognition.flow import PlacedCall, ReadProgram, RecurrentCall
from rnnconvert.recognition.lowered import received_in, recognise_in
from rnnconvert.rewrites import split_stack

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
    contents = Contents()
    layers, others, unread = contents.layers, contents.others, contents.unread
    placed: dict[str, OperationLayer] = {}
    looked, recognised_loops = RecognisedLayers(), set[str]()
    for net in graphs:
        homes: dict[str, RecurrentCall] = {}
        used = _computing(net, looked) if net.where else set[str]()
        if net.around is not None and net.around.name in recognised_loops:
            continue  # its steps are a layer of the graph around it
        lowered = functools.cache(partial(lowering.program, net))
        for layer in net.layers.values():
            name = unique(net.where + (layer.name or f"layer {layer.id}"), layers)
            if layer.type in _ODD:
                unread.append(LayerNote(name, f"an operation {layer.type}, whose gate of attention no other system here has", UNREAD))
            if layer.type not in KINDS:
                continue
            reader = OperationLayer(path, net, layer, name, options, lowered)
            why = reader.unreadable()
            if why:
                unread.append(LayerNote(name, str(why), UNREAD))
                continue
            layers[name] = reader.read()
            homes[name] = reader.call(layers[name])
            placed |= {} if net.where else {name: reader}
            contents.arrays |= {f"{name}/{local}": array for local, array in reader.arrays.items()}
            used |= reader.used
            contents.warnings += reader.warnings
            contents.evidence.append(f"{name}: an operation {layer.type}")
        if net.where:
            calls = received_in(lowered, homes.items())
        else:
            looked, calls = recognise_in(lowered, _LATER, homes.items())
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
        contents.warnings += computed.warnings
        contents.evidence.append(computed.evidence)
    if looked.layers or not (layers or unread):
        unread += looked.refusals()
    info = root.first("rt_info")
    runtime = next((entry.attributes.get("value", "") for entry in info.every("info")), "") if info is not None else ""
    metadata = {"name": root.attributes.get("name", ""), "version": root.attributes["version"], "runtime": runtime}
    contents.batch_first = dict.fromkeys(layers, True)
    program = _program(graphs[0], looked, {name: (reader, layers[name]) for name, reader in placed.items()})
    companion_files = (str(weights_file),) if weights_file else ()
    return contents.checkpoint(path, NAME, options, metadata=metadata, read=program, beside=companion_files)


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


_MERGES = {"sum": "ReduceSum", "mul": "ReduceProd", "ave": "ReduceMean"}


def write(path: Path, job: Job) -> WriteResult:
    """Write a model of the layers, each reading the one before, with its numbers next to it."""
    graph = _OpenvinoStack(job)
    notes, inputs, outputs, count = [], [], [], 0
    for part in job.parts:
        prefix = "" if len(job.parts) == 1 else f"{part.stack.name}/"
        x = graph.add(
            "Parameter",
            f"{prefix}x",
            [],
            [(-1, -1, part.stack.input_size)],
            {"shape": f"?,?,{part.stack.input_size}", "element_type": "f32"},
        )
        below, ends = x, []
        for single in split_stack(part.stack):
            below, states = graph.layer(part.layout, single, below)
            ends += states
        inputs.append((f"{prefix}x", part.stack.input_size))
        outputs.append((f"{prefix}y", count))
        count += 1 + len(ends)
        graph.result(f"{prefix}y", below, (-1, -1, part.stack.layers[-1].output_size))
        for name, state, shape in ends:
            graph.result(name, state, shape)
        notes.append(f"{part.stack.name or 'the layer'}: input {prefix}x (batch, time, {part.stack.input_size}), output {prefix}y")
    (weights_file,) = companions(path)
    notes.append(f"its numbers are in {weights_file.name}, which belongs next to it")
    names = variables(name for name, _ in [*inputs, *outputs])
    read, written = ({name: names[name] for name, _ in side} for side in (inputs, outputs))
    lines = [zeros(names[name], {"batch": 2, "time": 7}, width) for name, width in inputs]
    if not job.dry_run:
        graph.write(path)
    return WriteResult(
        notes, recipe(path, Ports(read, written, lines)), [*job.carried]
    )  # a graph of its own has no place for other tensors


class _OpenvinoStack(XmlGraph):
    """A graph of recurrent layers alone."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job

    def layer(self, layout: Layout, single: Recurrent, below: Out) -> tuple[Out, list[tuple[str, Out, tuple[int, ...]]]]:
        """Add a layer that reads a value; return its outputs, and its last states by names."""
        (pair,) = single.layers
        name, count, units = single.name or single.cell.kind, len(pair.directions), single.hidden_size
        stateless = single.replace(
            layers=(
                Pair(
                    tuple(
                        direction.with_arrays({key: None for key in direction.arrays if key[0].startswith("initial")})
                        for direction in pair.directions
                    ),
                    pair.merge,
                ),
            )
        )
        packed = pack(layout, stateless, self.job.dtype, self.job.watch)
        shape = self.add("ShapeOf", f"{name}/shape", [below], [(3,)], {"output_type": "i64"}, ["i64"])
        axis = self.integers(f"{name}/axis", 0)
        batch = self._row(f"{name}/batch", shape, np.array([0]), axis)
        steps = self._row(f"{name}/steps", shape, np.array([1]), axis)
        lengths = self.add("Broadcast", f"{name}/lengths", [steps, batch], [(-1,)], {"mode": "numpy"}, ["i64"])
        size = self.add(
            "Concat", f"{name}/state shape", [batch, self.constant(f"{name}/state", np.array([count, units]))], [(3,)], {"axis": 0}, ["i64"]
        )
        letters = [("h", "initial_hidden"), ("c", "initial_cell")][: 2 if single.cell.kind == "lstm" else 1]
        states = [self._state(f"{name}/initial_{letter}", single, part, size) for letter, part in letters]
        output = self.sequence(name, single, packed, below, states, lengths)
        final: tuple[int, ...] = (-1, count, units)
        ends = [(f"{name}/{letter}_n", (output[0], output[1] + place), final) for place, letter in enumerate("hc"[: len(states)], 1)]
        return self._joined(name, output, pair, units), ends

    def _row(self, name: str, value: Out, index: Array, axis: Out) -> Out:
        place = self.constant(f"{name}/index", index.astype(np.int64))
        return self.add("Gather", name, [value, place, axis], [(1,)], {"batch_dims": 0}, ["i64"])

    def _state(self, name: str, single: Recurrent, part: str, size: Out) -> Out:
        """Add an initial state, spread over the batch: zeros, or the learned one."""
        (pair,) = single.layers
        rows = [direction.get(part) for direction in pair.directions]
        dtype = (self.job.dtype or single.dtype).newbyteorder("<")
        learned = [np.zeros(single.hidden_size) if row is None else row for row in rows]
        stacked = np.stack(learned)[None].astype(dtype)
        value = self.constant(f"{name}/value", stacked if stacked.any() else np.zeros((), dtype))
        return self.add("Broadcast", name, [value, size], [(-1, len(rows), single.hidden_size)], {"mode": "bidirectional"})

    def _joined(self, name: str, sequence: Out, pair: Pair, units: int) -> Out:
        """Join the directions of (batch, directions, time, units) into (batch, time, out)."""
        count = len(pair.directions)
        if count == 2 and pair.merge in _MERGES:
            return self.add(
                _MERGES[pair.merge],
                f"{name}/joined",
                [sequence, self.integers(f"{name}/joined/axis", 1)],
                [(-1, -1, units)],
                {"keep_dims": "false"},
            )
        order = self.integers(f"{name}/order", 0, 2, 1, 3)
        turned = self.add("Transpose", f"{name}/time first", [sequence, order], [(-1, -1, count, units)], {})
        shape = self.integers(f"{name}/y shape", 0, 0, count * units)
        return self.add("Reshape", f"{name}/y", [turned, shape], [(-1, -1, count * units)], {"special_zero": "true"})
