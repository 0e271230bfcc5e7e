"""OpenVINO models: the recurrent operations of any graph of a .xml with its .bin, one recurrent layer each."""

from __future__ import annotations

from pathlib import Path

from rnnconvert.containers.files import lowered
from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult, unique, written_layouts
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import STATED, Opened, Seen
from rnnconvert.files.options import Options
from rnnconvert.formats.openvino import net as nets
from rnnconvert.formats.openvino import write as writing
from rnnconvert.formats.openvino import xml_graph
from rnnconvert.formats.openvino.graph import GraphOperation, calls
from rnnconvert.formats.openvino.operation import KINDS, NAME, OperationLayer
from rnnconvert.language import registry

SUFFIXES = registry.endings(NAME)
ZERO_STATES = True

_ODD = {"AUGRUCell", "AUGRUSequence"}


def recognise(file: Opened) -> Seen | None:
    """Recognize XML that begins with a net."""
    if lowered(file.path).suffix != ".xml":
        return None
    return Seen(STATED, "XML with a <net>, as OpenVINO's IR has it") if b"<net" in file.head[:4096] else Seen(1, "XML, by its ending")


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
    arrays: dict[str, Array] = {}
    others: dict[str, Array] = {}
    evidence, warnings, unread = [], [], []
    for net in graphs:
        operations: dict[str, GraphOperation] = {}
        used: set[str] = set()
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
            operations[layer.id] = reader.operation(layers[name])
            arrays |= {f"{name}/{local}": array for local, array in reader.arrays.items()}
            used |= reader.used
            warnings += reader.warnings
            evidence.append(f"{name}: an operation {layer.type}")
        for name, received in calls(net, operations).items():
            layers[name] = layers[name].replace(calls=received)
        for layer in net.layers.values():
            if layer.type == "Const" and layer.id not in used:
                array = net.constant((layer.id, 0))
                if array is not None and is_float(array) and array.ndim:
                    others[unique(net.where + (layer.name or f"constant {layer.id}"), others)] = array
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
        unread=tuple(unread),
        batch_first=dict.fromkeys(layers, True),
        beside=(str(weights_file),) if weights_file else (),
    )


companions = xml_graph.companions


def write(path: Path, job: Job) -> WriteResult:
    """Write a model of the layers, each reading the one before, with its numbers next to it."""
    return writing.write(path, job)
