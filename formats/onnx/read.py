"""The recurrent layers of ONNX models: nodes RNN, GRU and LSTM of any graph, and layers that other operators compute.

Of one that is neither a checkpoint says what it is, where, and the way out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rnnconvert.core.arrays import Array
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.remedies import Flag
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import unique
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.options import Options
from rnnconvert.formats.onnx import quantised
from rnnconvert.formats.onnx.hoisted import hoist
from rnnconvert.formats.onnx.node import KINDS, NAME, NodePlace, ReadModel, RecurrentNode
from rnnconvert.formats.onnx.proto.file import OnnxFile
from rnnconvert.formats.onnx.proto.program import program as as_program
from rnnconvert.graphs.program.operations import Body, Operation, Program, bodies
from rnnconvert.graphs.program.scopes import Scope, label_of
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.graphs.program.walk import walk
from rnnconvert.recognition import flow, turned
from rnnconvert.recognition.computed import RecognisedLayers, recognise_layers
from rnnconvert.recognition.suspects import LAYERS, carried, gates, looks_recurrent, unrolled


def read_model(file: OnnxFile, path: Path, options: Options) -> Checkpoint:
    """Return every recurrent node of a model whose weights are constant, wherever in the model it is."""
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
    unread += _neither(scopes, recurrent, looked)
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


_BEFORE_QUANTISED = "Read the model as it was before it was quantized."


def _from_source() -> str:
    return (
        "Read the file of the framework that the model was exported from, or hand its weights as .npz or .safetensors with "
        f"{Flag('layout')}."
    )


def _neither(scopes: Sequence[Scope], read: Iterable[Operation], looked: RecognisedLayers) -> list[LayerNote]:
    """Return a sentence for each recurrent computation of a model apart from the layers that were read.

    read    the nodes of ONNX's own operators RNN, GRU and LSTM, which have a reader
    looked  what was found of layers in other operators of the main graph
    """
    recognised = looked.nodes
    explained = {*read, *recognised}
    inside = {body for scope in scopes for body in bodies(node for node in scope.nodes if node in recognised)}
    messages: list[str] = []
    for scope in scopes:
        if scope.body in inside:
            continue
        for node in scope.nodes:
            if node in explained or scope.calls(node):
                continue
            where = f"the node {node.label!r} of {scope.path}"
            if any(word in node.kind for word in LAYERS):
                domain = f" of the domain {node.domain!r}" if node.domain else ""
                way = _BEFORE_QUANTISED if "Quant" in node.kind or "Q" in node.kind[:1] else _from_source()
                messages.append(f"{where} is a {node.kind}{domain}, which cannot be read. {way}")
            elif node.kind in ("Loop", "Scan"):
                convolves = carried(node)
                if convolves is not None:
                    what = "a ConvLSTM or another convolutional recurrent cell" if convolves else "a recurrent cell"
                    why = looked.reasons.get(node.label, "") if scope is looked.scope else ""
                    messages.append(
                        f"{where} is a {node.kind} that computes {what} step by step, which cannot be read"
                        f"{': ' + why if why else ''}. {_from_source()}"
                    )
        messages += _written_out(scope, looked)
    return [LayerNote("", message, UNREAD) for message in messages]


def _written_out(scope: Scope, looked: RecognisedLayers) -> list[str]:
    """Return cells that products and functions compute: unrolled ones, and single steps of an LSTM or a GRU."""
    messages = []
    recognised = looked.nodes
    nodes = [node for node in scope.nodes if node not in recognised]
    repeated = unrolled(scope, nodes)
    why = ""
    if scope is looked.scope:
        loops = {node.label for node in scope.nodes if node.kind in ("Loop", "Scan")}
        why = next((f": {reason}" for label, reason in looked.reasons.items() if label not in loops), "")
    if repeated:
        weight, times = repeated
        messages.append(
            f"{scope.path} multiplies by {weight!r} {times} times, each time a function of the previous product: a "
            f"recurrent layer that is written out step by step, which cannot be read{why}. {_from_source()}"
        )
    else:
        split = gates(scope, nodes)
        if split:
            messages.append(
                f"{scope.path} computes {split} like the cell of an LSTM or a GRU, from products and functions of its own, "
                f"which cannot be read{why}. {_from_source()}"
            )
    return messages
