"""TFLite models: the recurrent operators of any graph, one recurrent layer each."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Container
from pathlib import Path
from typing import TypedDict

from rnnconvert.containers.files import lowered
from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult, unique
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import STATED, Opened, Seen
from rnnconvert.files.options import Options
from rnnconvert.formats.tflite import flatbuffer_write
from rnnconvert.formats.tflite import graph as graphs
from rnnconvert.formats.tflite import loops as tflite_loops
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.flow import FusedOperator, Looped, calls
from rnnconvert.formats.tflite.graph import Operator, Subgraph
from rnnconvert.formats.tflite.layer import OperatorLayer
from rnnconvert.formats.tflite.write import build
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout

NAME = "tflite"
SUFFIXES = registry.endings(NAME)
ZERO_STATES = True


class TfliteMetadata(TypedDict, total=False):
    """What a model says of itself."""

    description: str


def recognise(file: Opened) -> Seen | None:
    """Recognize the identifier behind the place of the first table."""
    if file.head[4:8] == s.IDENTIFIER:
        return Seen(STATED, "a FlatBuffer that says that it is a TFLite model")
    return Seen(STATED, "a TFLite model, by its ending") if lowered(file.path).suffix == ".tflite" else None


def layouts(options: Options) -> list[Layout]:
    """Return the layouts of its operators; the one without an input gate goes first, for cells that derive this gate."""
    return sorted(registry.layouts_of(NAME), key=lambda layout: not layout.coupled)


def about(checkpoint: Checkpoint) -> dict[str, object]:
    """Return what the file says of itself."""
    return {"description": checkpoint.metadata_as(TfliteMetadata).get("description", "")}


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent operator of every graph.

    Raises UnreadableError for a damaged file.
    """
    model = graphs.read(path)
    layers: dict[str, Recurrent] = {}
    arrays: dict[str, Array] = {}
    others: dict[str, Array] = {}
    evidence: list[str] = []
    warnings: list[str] = []
    unread: list[LayerNote] = []
    batch_first: dict[str, bool] = {}
    labels: set[str] = set()
    looked = tflite_loops.read(path, model) if model.graphs else tflite_loops.Loops()
    recognised = looked.nodes_by_name
    bodies = {
        body
        for main_graph in model.graphs[:1]
        for operator in main_graph.operators
        if operator.code == s.WHILE and _label(main_graph, operator, "") in recognised
        for body in tflite_loops.bodies(operator)
    }
    for number, graph in enumerate(model.graphs):
        where = graph.name or f"graph {number}" if number else ""
        calls_of: dict[str, FusedOperator | Looped] = {}
        used: set[int] = set()
        for operator in graph.operators:
            loop = operator.code in (s.WHILE, s.STABLEHLO_WHILE)
            if loop and not number and _label(graph, operator, where) in recognised:
                used |= set(operator.inputs)
            elif loop:
                reasons = looked.reasons
                why = _rounded(model, operator) or reasons.get(_label(graph, operator, where), "") or reasons.get("", "")
                unread.append(
                    LayerNote(
                        _label(graph, operator, where),
                        f"a loop (WHILE), as converters make it of recurrent layers without an operator of "
                        f"their own; it is not read{': ' + why if why else ''}",
                        UNREAD,
                    )
                )
            if operator.code not in s.NAMES:
                continue
            reader = OperatorLayer(path, graph, operator, unique(_label(graph, operator, where), labels))
            labels.add(reader.name)
            why = reader.unreadable()
            if why:
                unread.append(LayerNote(reader.name, str(why), UNREAD))
                continue
            layers[reader.name] = reader.read()
            calls_of[reader.name] = reader.fused(layers[reader.name])
            batch_first[reader.name] = not reader.option("time_major", "?")
            arrays |= {f"{reader.name}/{local}": array for local, array in reader.arrays.items()}
            used |= set(operator.inputs)
            evidence.append(f"{reader.name}: an operator {s.NAMES[operator.code]}")
            warnings += reader.warnings()
        if not number:
            for name, computed in looked.layers.items():
                layer = computed.renamed(unique(name, layers))
                layers[layer.stack.name] = layer.stack
                labels.add(layer.stack.name)
                calls_of[layer.stack.name] = tflite_loops.looped(layer)
                warnings += layer.warnings
                evidence.append(layer.evidence)
                used |= tflite_loops.tensors(computed)
        used |= {
            dequantise.input(0) for dequantise in graph.operators if dequantise.code == s.DEQUANTIZE and used & set(dequantise.outputs)
        }
        for name, received in calls(graph, calls_of).items():
            layers[name] = layers[name].replace(calls=received)
        for place, tensor in enumerate(graph.tensors):
            if (
                number not in bodies
                and place not in used
                and tensor.stored is not None
                and not tensor.odd
                and not looked.reads(tensor, not graph.consumers(place))
                and is_float(tensor.stored)
            ):
                others[unique(tensor.name or f"tensor {place}", others)] = tensor.stored
        if number not in bodies:
            _list_integers(path, graph, used, others)
    if looked.layers or not (layers or unread):
        unread += looked.refusals()
    if not layers and not unread and (steps := _integers(model)):
        unread += steps
    return Checkpoint(
        str(path),
        NAME,
        layers,
        others,
        tuple(evidence),
        options.questions,
        (*warnings, *unread),
        {"description": model.description},
        {**arrays, **others},
        unread=tuple(unread),
        batch_first=batch_first,
    )


_LISTED = 1 << 26
"""The most bytes of a matrix of integers that is listed as the numbers that they stand for."""


def _list_integers(path: Path, graph: Subgraph, used: Container[int], others: dict[str, Array]) -> None:
    """Add the integers of a graph that have a scale to the other tensors, as the numbers that they stand for.

    used  the tensors of recurrent layers
    """
    for place, tensor in enumerate(graph.tensors):
        stored = tensor.stored
        if place in used or stored is None or tensor.odd or not tensor.scales.size or not 0 < stored.nbytes <= _LISTED:
            continue
        if stored.ndim and not is_float(stored):
            with contextlib.suppress(UnreadableError):  # scales that are not as many as they should be are no layer's
                others[unique(tensor.name or f"tensor {place}", others)] = graphs.numbers(path, tensor)


def _rounded(model: graphs.TfliteFile, loop: Operator) -> str:
    """Say that the steps of a loop compute in integers, where one of their products gives integers."""
    for graph in (model.graphs[place] for place in tflite_loops.bodies(loop) if 0 < place < len(model.graphs)):
        for operator in graph.operators:
            if operator.label in _PRODUCTS and any(graph.tensors[place].scales.size for place in operator.outputs if place >= 0):
                return (
                    f"its steps compute in integers ({operator.label}). Convert the model to TFLite without full integer "
                    "quantization, or read it as it was before"
                )
    return ""


_PRODUCTS = ("FULLY_CONNECTED", "BATCH_MATMUL")
_CELL = re.compile(r"(lstm|gru|rnn)[^;]*/", re.IGNORECASE)


def _integers(model: graphs.TfliteFile) -> list[LayerNote]:
    """Name steps of a layer that compute in integers: products under the name of a layer that read one product's result again."""
    for graph in model.graphs[:1]:
        seen: dict[int, str] = {}
        for operator in graph.operators:
            weights = operator.input(1)
            if operator.label not in _PRODUCTS or weights < 0 or not graph.tensors[weights].scales.size:
                continue
            name = _label(graph, operator, "")
            if weights in seen and _CELL.search(name):
                stored = graph.tensors[weights].name
                return [
                    LayerNote(
                        name,
                        f"a product with the integers {stored!r}, as {seen[weights]!r} is, so that these may be the steps of a recurrent "
                        f"layer; operators that compute in integers ({operator.label}) are not read. Convert the model to TFLite without "
                        "quantization, or read it as it was before",
                    )
                ]
            seen[weights] = name
    return []


def write(path: Path, job: Job) -> WriteResult:
    """Write a graph of the layers, each reading the one before."""
    root, notes, recipe = build(path, job)
    flatbuffer_write.write(path, s.IDENTIFIER, root, job.dry_run)
    return WriteResult(notes, recipe, [*job.carried])  # a graph of its own has no place for other tensors


def _label(graph: Subgraph, operator: Operator, where: str) -> str:
    """Return what a layer goes by: its output's name, since operators have none."""
    name = graph.tensors[operator.outputs[0]].name if operator.outputs and operator.outputs[0] >= 0 else ""
    name = name.removesuffix(":0") or s.NAMES.get(operator.code, "operator").lower()
    return f"{where}/{name}" if where else name
