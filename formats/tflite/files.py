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
from rnnconvert.core.weights import Call
from rnnconvert.files.adapter import Job, WriteResult, unique
from rnnconvert.files.checkpoint import Checkpoint, Contents
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.tflite import flatbuffer
from rnnconvert.formats.tflite import graph as graphs
from rnnconvert.formats.tflite import loops as tflite_loops
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.graph import Operator, Subgraph
from rnnconvert.formats.tflite.layer import OperatorLayer
from rnnconvert.formats.tflite.write import build
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.recognition.flow import PlacedCall, ReadProgram, RecurrentCall

NAME = "tflite"
SUFFIXES = registry.endings(NAME)
ZERO_STATES = True


class TfliteMetadata(TypedDict, total=False):
    """A model's statements about itself."""

    description: str


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize the identifier behind the place of the first table."""
    if file.head[4:8] == s.IDENTIFIER:
        return FormatClaim(STATED, "a FlatBuffer that says that it is a TFLite model")
    return FormatClaim(STATED, "a TFLite model, by its ending") if lowered(file.path).suffix == ".tflite" else None


def layouts(options: Options) -> list[Layout]:
    """Return the layouts of its operators; the one without an input gate goes first, for cells that derive this gate."""
    return sorted(registry.layouts_of(NAME), key=lambda layout: not layout.coupled)


def about(checkpoint: Checkpoint) -> dict[str, object]:
    """Return the file's statements about itself."""
    return {"description": checkpoint.metadata_as(TfliteMetadata).get("description", "")}


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent operator of every graph, and the layers that others compute.

    Raises UnreadableError for a damaged file.
    """
    model = graphs.read(path)
    reader = _Reader(path, model)
    for number in range(len(model.graphs)):
        reader.read_operators(number)
    reader.read_computed()
    for number in range(len(model.graphs)):
        reader.note_loops(number)
        if number not in reader.bodies:
            reader.list_others(number)
    if reader.computed.layers or not (reader.layers or reader.unread):
        reader.unread += reader.computed.refusals()
    if not reader.layers and not reader.unread:
        reader.unread += _integers(model)
    return reader.checkpoint(path, NAME, options, metadata={"description": model.description}, read=reader.program())


class _Reader(Contents):
    """A model on its way to a checkpoint.

    computed  the layers that other operators of the main graph compute
    bodies    the graphs that are the loops of these, by their numbers
    """

    def __init__(self, path: Path, model: graphs.TfliteFile) -> None:
        super().__init__()
        self.path, self.model = path, model
        self.computed = tflite_loops.Loops()
        self.bodies: set[int] = set()
        self._names: set[str] = set()
        self._homes: dict[int, dict[str, RecurrentCall]] = {}
        self._used: dict[int, set[int]] = {}

    def read_operators(self, number: int) -> None:
        """Read the recurrent operators of a graph."""
        graph, homes, used = self.model.graphs[number], self._homes.setdefault(number, {}), self._used.setdefault(number, set())
        for operator in graph.operators:
            if operator.code not in s.NAMES:
                continue
            reader = OperatorLayer(self.path, graph, operator, unique(self._label(number, operator), self._names))
            self._names.add(reader.name)
            if why := reader.unreadable():
                self.unread.append(LayerNote(reader.name, str(why), UNREAD))
                continue
            self.layers[reader.name] = reader.read()
            homes[reader.name] = reader.fused(self.layers[reader.name]).call
            self.batch_first[reader.name] = not reader.option("time_major", "?")
            self.arrays |= {f"{reader.name}/{local}": array for local, array in reader.arrays.items()}
            used |= set(operator.inputs)
            self.evidence.append(f"{reader.name}: an operator {s.NAMES[operator.code]}")
            self.warnings += reader.warnings()

    def read_computed(self) -> None:
        """Read the layers that other operators of the main graph compute, and what all layers receive."""
        received = dict[str, tuple[Call, ...]]()
        for number in self._homes:
            if not number:
                self.computed = tflite_loops.read(self.path, self.model, self._homes[number])
                received |= self.computed.calls
            elif self._homes[number]:
                received |= tflite_loops.received_in(self.path, self.model, number, self._homes[number])
        self.layers = {name: layer.replace(calls=received[name]) for name, layer in self.layers.items()}
        for name, layer in self.computed.layers.items():
            self.layers[name] = layer.stack
            self.warnings += layer.warnings
            self.evidence.append(layer.evidence)
            self._used[0] |= tflite_loops.tensors(layer)
        for main_graph in self.model.graphs[:1]:
            for operator in main_graph.operators:
                if operator.code == s.WHILE and self._label(0, operator) in self.computed.nodes_by_name:
                    self._used[0] |= set(operator.inputs)
                    self.bodies |= tflite_loops.bodies(operator)

    def program(self) -> ReadProgram | None:
        """Return the main graph in the common operations; None where it is not as its operators ask."""
        if self.computed.scope is None:
            return None
        main, calls = self.computed.scope, dict[str, PlacedCall]()
        for name, call in self._homes.get(0, {}).items():
            producer = main.producer(next(iter(call.outputs)))
            if producer is not None:
                calls[name] = PlacedCall(main, producer[0], call, producer[0].inputs[1:], continues=True)
        graph = self.model.graphs[0]
        inputs = {str(place): _SERVED.sub("", graph.tensors[place].name) or str(place) for place in graph.inputs if place >= 0}
        return ReadProgram(self.computed.scopes, calls, self.computed.layers, inputs)

    def note_loops(self, number: int) -> None:
        """Name the loops of a graph that are not read as layers, with the reason."""
        for operator in self.model.graphs[number].operators:
            label, reasons = self._label(number, operator), self.computed.reasons
            if operator.code not in (s.WHILE, s.STABLEHLO_WHILE) or (not number and label in self.computed.nodes_by_name):
                continue
            why = _rounded(self.model, operator) or reasons.get(label, "") or reasons.get("", "")
            text = "a loop (WHILE), as converters make it of recurrent layers without an operator of their own; it is not read"
            self.unread.append(LayerNote(label, f"{text}{': ' + why if why else ''}", UNREAD))

    def list_others(self, number: int) -> None:
        """List the stored tensors of a graph that no layer reads."""
        graph, used = self.model.graphs[number], self._used[number]
        used |= {unpacked.input(0) for unpacked in graph.operators if unpacked.code == s.DEQUANTIZE and used & set(unpacked.outputs)}
        for place, tensor in enumerate(graph.tensors):
            if place in used or tensor.stored is None or tensor.odd or not is_float(tensor.stored):
                continue
            if not self.computed.reads(tensor, not graph.consumers(place)):
                self.others[unique(tensor.name or f"tensor {place}", self.others)] = tensor.stored
        _list_integers(self.path, graph, used, self.others)

    def _label(self, number: int, operator: Operator) -> str:
        """Return the name of a layer: its output's, since operators have none."""
        graph = self.model.graphs[number]
        name = _name(graph, operator)
        return f"{graph.name or f'graph {number}'}/{name}" if number else name


_SERVED = re.compile(r"^serving_default_|:0$")
"""Prefixes and suffixes that converters put around the names of inputs."""
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
            name = _name(graph, operator)
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
    flatbuffer.write(path, s.IDENTIFIER, root, job.dry_run)
    return WriteResult(notes, recipe, [*job.carried])  # a graph of its own has no place for other tensors


def _name(graph: Subgraph, operator: Operator) -> str:
    """Return the name of what an operator gives."""
    name = graph.tensors[operator.outputs[0]].name if operator.outputs and operator.outputs[0] >= 0 else ""
    return name.removesuffix(":0") or s.NAMES.get(operator.code, "operator").lower()
