"""ONNX models: the RNN, GRU and LSTM nodes of any graph, one recurrent layer each, and layers that other operators compute."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from rnnconvert.containers.files import lowered
from rnnconvert.core.arrays import Array
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult, unique, variables, written_layouts
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import KIND, STATED, Opened, Seen
from rnnconvert.files.options import Options
from rnnconvert.formats.onnx import quantised
from rnnconvert.formats.onnx import unread as onnx_unread
from rnnconvert.formats.onnx.graph import build
from rnnconvert.formats.onnx.hoisted import hoist
from rnnconvert.formats.onnx.node import KINDS, NAME, NodePlace, ReadModel, RecurrentNode
from rnnconvert.formats.onnx.proto import file as onnx_file
from rnnconvert.formats.onnx.proto import write as onnx_write
from rnnconvert.formats.onnx.proto.program import program as as_program
from rnnconvert.graphs.program.operations import Body, Operation, Program, bodies
from rnnconvert.graphs.program.scopes import label_of
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.graphs.program.walk import walk
from rnnconvert.language import registry
from rnnconvert.recognition import flow, turned
from rnnconvert.recognition.computed import recognise_layers
from rnnconvert.recognition.suspects import looks_recurrent

SUFFIXES = registry.endings(NAME)


# ModelProto.ir_version is field 1, a varint, and is written first; what may follow are the fields 2 to 8.
_SECOND = bytes((2 << 3 | 2, 3 << 3 | 2, 4 << 3 | 2, 5 << 3, 6 << 3 | 2, 7 << 3 | 2, 8 << 3 | 2))


def recognise(file: Opened) -> Seen | None:
    """Recognize a protobuf message that begins like a model, also by its name, since protobuf has no magic number."""
    suffix, head = lowered(file.path).suffix, file.head
    if suffix in SUFFIXES[1:]:
        return Seen(STATED, f"a text model, by its ending {suffix}")
    if len(head) > 2 and head[0] == 8 and 1 <= head[1] < 32 and head[2] in _SECOND and not _is_message(head[2:]):
        return Seen(KIND, "a protobuf message that begins as an ONNX model does")
    other = head[:4] == b"PK\x03\x04" or head[8:9] == b"{"
    return Seen(KIND, "an ONNX model, by its ending") if suffix == ".onnx" and not other else None


def _is_message(head: bytes) -> bool:
    """Return whether the second field is a message instead of a producer's name, as in other protobuf files."""
    length = head[1] if head[0] == _SECOND[0] and len(head) > 1 else 0
    return length > 127 or not head[2 : 2 + length].decode("utf-8", "replace").isprintable()


layouts = written_layouts(NAME)


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent node whose weights are constant, wherever in the model it is."""
    return read_model(Opened(path).cached(onnx_file.read), path, options)


def read_model(file: onnx_file.OnnxFile, path: Path, options: Options) -> Checkpoint:
    """Read a model that is open already."""
    layers: dict[str, Recurrent] = {}
    homes: dict[str, NodePlace] = {}
    warnings: list[str] = []
    evidence: list[str] = []
    used: set[tuple[Body, str]] = set()
    inside: set[Body] = set()
    unread: list[LayerNote] = []
    recurrent: list[Operation] = []
    hoist(file.model.graph)
    program = as_program(file)
    scopes = list(walk(program))
    for scope in scopes:
        for node in scope.nodes:
            if node.kind not in KINDS or (node.domain and not quantised.is_one(node)):
                continue
            reader = RecurrentNode(path, scope, node, unique(label_of(scope, node), layers), options)
            recurrent.append(node)
            stack = reader.read()
            warnings += reader.warnings
            unread += reader.unread
            if stack is not None:
                layers[stack.name] = stack
                homes[stack.name] = reader.home(stack)
                evidence.append(f"{stack.name}: a node {node.kind} of {scope.path}")
                used |= reader.used
    warnings += _turned(program, homes, layers)
    looked = recognise_layers(program, scopes[0], layers, looks_recurrent(scopes[0]))
    for name, layer in looked.layers.items():
        layers[name] = layer.stack
        warnings += layer.warnings
        evidence.append(layer.evidence)
        used |= {scopes[0].key(value) for node in layer.nodes for value in node.reads}
        inside |= set(bodies(layer.nodes))
    others: dict[str, Array] = {}
    owners: dict[str, tuple[Body, str]] = {}
    for scope in scopes:
        for name, tensor in scope.weights() if scope.body not in inside else ():
            key, label = scope.key(name), scope.label(name)
            if key in used:
                continue
            if owners.get(label, key) != key:  # graphs may bear one name
                label = unique(label, others)
            owners[label], others[label] = key, tensor.read()
    unread += onnx_unread.unread(scopes, recurrent, looked)
    warnings += [
        f"{location!r} has {size} bytes, and the model's tensors end at {end}: if no other model shares it, it may be another's"
        for location, (size, end) in file.spare().items()
    ]
    calls = {
        name: flow.PlacedCall(
            home.scope,
            home.node,
            flow.common_call(home.scope, home.node, layers[name]),
            [value for value in home.node.inputs[8:] if value],  # scales of integers
        )
        for name, home in homes.items()
    }
    received = flow.received(scopes, [(name, placed.scope, placed.call) for name, placed in calls.items()], looked)
    layers = {name: stack.replace(calls=received[name]) for name, stack in layers.items()}
    return Checkpoint(
        str(path),
        NAME,
        layers,
        others,
        tuple(evidence),
        options.questions,
        (*warnings, *unread),
        read=ReadModel(scopes, calls, looked.layers, file=file, homes=homes),
        unread=tuple(unread),
        batch_first={
            name: home.scope.attributes(home.node)["layout"] == 1
            for name, home in homes.items()
            if "layout" in home.scope.attributes(home.node)
        },
        turned=_outputs_turned(program, homes, layers),
    )


def _turned(program: Program, homes: Mapping[str, NodePlace], layers: Mapping[str, Recurrent]) -> list[str]:
    """Say which operators read a sequence that other nodes have turned around: as operators they read forward."""
    shapes = Shapes(program)
    warnings: list[str] = []
    for name, home in homes.items():
        directions = layers[name].layers[0].directions
        axis = int(home.scope.attributes(home.node).get("layout") == 1)
        if len(directions) == 1 and turned.sequence_before_reversal(home.scope, shapes, home.node.inputs[0], axis):
            text = f"nodes turn {home.node.inputs[0]!r}, its input, around before it, as for a layer of Keras with go_backwards. "
            warnings.append(LayerNote(name, text + "It is read as its operator is, without that: turn its input around yourself"))
    return warnings


def _outputs_turned(program: Program, homes: Mapping[str, NodePlace], layers: Mapping[str, Recurrent]) -> frozenset[str]:
    """Return the layers that read from the end, and whose outputs nothing reads but nodes that turn them around."""
    shapes = Shapes(program)

    def is_turned(home: NodePlace) -> bool:
        outputs, scope = home.node.outputs[0], home.scope
        axis = int(scope.attributes(home.node).get("layout") == 1)
        readers = [node for node in scope.nodes if outputs in node.reads]
        if not readers or outputs in scope.body.outputs:
            return False
        # Each has to take away the axis of the directions, which comes after that of the steps.
        single = all(node.kind == "Squeeze" or (node.kind, scope.attributes(node).get("axis")) == ("Gather", axis + 1) for node in readers)
        return single and all(turned.is_turned(scope, shapes, node.outputs[0], axis) for node in readers)

    directions = {name: [*layers[name].directions()] for name in homes}
    return frozenset(name for name, parts in directions.items() if len(parts) == 1 and parts[0][2].reverse and is_turned(homes[name]))


def about(checkpoint: Checkpoint) -> dict[str, object]:
    """Return a model's statements about itself: its producer, its operator sets, its versions and its own metadata."""
    model = checkpoint.read_as(ReadModel).file.model
    producer = f"{model.producer_name} {model.producer_version}".strip()
    sets = [f"{opset.version}" + ("" if not opset.domain else f" of {opset.domain}") for opset in model.opset_import]
    properties = {prop.key: prop.value for prop in model.metadata_props}
    return {
        "producer": producer,
        "opset": ", ".join(sets),
        "IR version": model.ir_version,
        "graph": model.graph.name,
        "domain": model.domain,
        "model version": model.model_version or "",
        **properties,
    }


_IN_NUMPY = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.INT32: "int32",
}


def _recipe(path: Path, graph: onnx.GraphProto) -> list[str]:
    """Return Python that runs a model on zeros: 7 steps of 2 sequences; nothing for element types that numpy lacks."""
    if any(value.type.tensor_type.elem_type not in _IN_NUMPY for value in graph.input):
        return []
    lines = ["import numpy as np", "import onnxruntime", f"session = onnxruntime.InferenceSession({str(path)!r})"]
    names = variables(value.name for value in graph.input)
    for model_input in graph.input:
        axes = [axis.dim_param.rpartition("/")[2] or str(axis.dim_value) for axis in model_input.type.tensor_type.shape.dim]
        sizes = ", ".join({"time": "7", "batch": "2"}.get(axis, axis) for axis in axes)
        kind = _IN_NUMPY[model_input.type.tensor_type.elem_type]
        expression = f"np.full(({sizes},), 7, np.{kind})" if kind == "int32" else f"np.zeros(({sizes}), np.{kind})"
        lines.append(f"{names[model_input.name]} = {expression}  # ({', '.join(axes)})")
    feeds = ", ".join(f"{value.name!r}: {names[value.name]}" for value in graph.input)
    results = ", ".join(variables(output.name for output in graph.output).values())
    return [*lines, f"{results} = session.run(None, {{{feeds}}})"]


def write(path: Path, job: Job) -> WriteResult:
    """Write a model with one set of inputs and outputs for each recurrent layer, which any ONNX runtime runs."""
    model, arrays, notes = build(job)
    external = job.options.get("external_data")
    location = ""
    if not job.dry_run:
        location = onnx_write.write(path, model, arrays, None if external is None else external == "true")
    companions = [path.with_name(location)] if location else []
    # A graph of its own has no place for other tensors.
    return WriteResult(notes, _recipe(path, model.graph), [*job.carried], companions)
