"""TFLite models: the recurrent operators of any graph, one recurrent layer each."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Container
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from rnnconvert.containers.files import lowered
from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.cells import Activation, Clip
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.files.adapter import Job, WriteResult, unique
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import STATED, Opened, Seen
from rnnconvert.files.options import Options
from rnnconvert.formats.tflite import flatbuffer_write
from rnnconvert.formats.tflite import graph as graphs
from rnnconvert.formats.tflite import loops as tflite_loops
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.flow import FusedOperator, Looped, calls
from rnnconvert.formats.tflite.graph import Graph, Operator, Tensor
from rnnconvert.formats.tflite.write import build
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import unpack

NAME = "tflite"
SUFFIXES = registry.endings(NAME)


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
            reader = _Layer(path, graph, operator, unique(_label(graph, operator, where), labels))
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


def _list_integers(path: Path, graph: Graph, used: Container[int], others: dict[str, Array]) -> None:
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


def _label(graph: Graph, operator: Operator, where: str) -> str:
    """Return what a layer goes by: its output's name, since operators have none."""
    name = graph.tensors[operator.outputs[0]].name if operator.outputs and operator.outputs[0] >= 0 else ""
    name = name.removesuffix(":0") or s.NAMES.get(operator.code, "operator").lower()
    return f"{where}/{name}" if where else name


class _Layer:
    """One operator on its way to the canonical form."""

    def __init__(self, path: Path, graph: Graph, operator: Operator, name: str) -> None:
        self.path, self.graph, self.operator, self.name = path, graph, operator, name
        self.kind = "rnn" if operator.code in (s.RNN, s.SEQUENCE_RNN, s.BOTH_RNN) else "lstm"
        self.both = operator.code in (s.BOTH_RNN, s.BOTH_LSTM)
        self.stored = {
            local: self._source(operator.input(place))
            for place, local in s.WEIGHTS[operator.code].items()
            if self._there(operator.input(place))
        }
        self.arrays: dict[str, Array] = {}

    def option(self, name: str, code: str) -> Any:
        """Return one of the operator's options; what it does not have is 0."""
        place = s.OPTIONS[self.operator.code][1].get(name)
        # An operator for both directions of a file that does not say it reads the time first.
        default = name == "time_major" and self.operator.code == s.BOTH_LSTM
        return default if place is None or self.operator.options is None else self.operator.options.number(place, code, default)

    def _there(self, tensor: int) -> bool:
        return tensor >= 0

    def _source(self, tensor: int) -> Tensor:
        """Return a tensor, or the constant that it is unpacked from: float16 weights pass through DEQUANTIZE."""
        producer = self.graph.producer(tensor)
        if producer is not None and producer.code == s.DEQUANTIZE and producer.input(0) >= 0:
            return self.graph.tensors[producer.input(0)]
        return self.graph.tensors[tensor]

    def unreadable(self) -> str:
        """Return why this operator cannot be read as a layer, or ""."""
        operator = self.operator
        if not operator.outputs or operator.input(0) < 0:
            return "it has no input or no output"
        if len(operator.inputs) > s.COUNTS[operator.code] or (self.kind == "lstm" and self.option("kernel_type", "b")):
            return f"it is an operator {s.NAMES[operator.code]} of a form whose inputs are unknown here"
        for place, what in s.OTHERS[operator.code].items():
            if operator.input(place) >= 0 and not self._zeros(operator.input(place), what):
                return f"it has {what} ({self.graph.tensors[operator.input(place)].name!r}), which no other system here computes"
        fields = s.OPTIONS[operator.code][1].values()
        if operator.options is not None and (odd := sorted(set(operator.options.fields()) - set(fields))):
            return f"it has an option that is unknown here (field {odd[0]} of its options)"
        if self.option("diagonal_recurrent_tensors", "?"):
            return "its recurrent matrices are diagonal, which no other system here computes"
        for local, tensor in self.stored.items():
            if tensor.stored is None:
                return f"its {local} ({tensor.name!r}) is computed by the graph, so the file lacks it"
            if tensor.odd:
                return f"its {local} ({tensor.name!r}) cannot be read: {tensor.odd}"
            if tensor.stored.dtype.kind in "iu" and not tensor.scales.size:
                return f"its {local} ({tensor.name!r}) are integers without a scale, so what they stand for is unknown"
        if any(not self.graph.tensors[operator.input(place)].variable for place in s.STATES[operator.code] if operator.input(place) >= 0):
            return "its state is not a variable of the graph, as TFLite demands"
        if self.both and not self.option("merge_outputs", "?") and len(operator.outputs) != 2:
            return "its directions are two outputs, of which it has one"
        return ""

    def _zeros(self, tensor: int, what: str) -> bool:
        """Return whether a bias of a projection is zero, so that it changes nothing."""
        stored = self._source(tensor).stored
        return "bias" in what and stored is not None and not stored.any()

    def read(self) -> Recurrent:
        """Return the layer. Raises UnreadableError if its weights do not fit together."""
        self.arrays = {local: graphs.numbers(self.path, tensor) for local, tensor in self.stored.items()}
        shapes = {local: tuple(array.shape) for local, array in self.arrays.items()}
        candidates = [layout for layout in registry.layouts_of(NAME) if layout.kind == self.kind]
        fitting = [(layout, sizes) for layout in candidates if (sizes := fit(layout, shapes)) is not None]
        if len(fitting) != 1 or fitting[0][1].num_directions != 1 + self.both:
            raise UnreadableError(self.path, f"the weights of {self.name!r} do not fit together: {misfit(candidates, shapes)}")
        layout, sizes = fitting[0]
        odd = next((local for local, array in self.arrays.items() if not is_float(array)), "")
        if odd:
            raise UnreadableError(self.path, f"{odd} of {self.name!r} is of type {self.arrays[odd].dtype}")
        number = self.option("fused_activation_function", "b")
        function = Activation(s.FUNCTIONS.get(number, f"function {number}"))
        cell = layout.cell.replace(activation=function, clips=self._clips())
        if self.kind == "lstm":
            cell = cell.replace(output_activation=function)
        parts = unpack(layout, sizes, self.arrays)
        reverse, order = self._reversed()
        layer_directions = tuple(Direction(cell, parts[0, way], reverse=way == 1 or reverse) for way in range(sizes.num_directions))
        merge: Any = "none" if self.both and not self.option("merge_outputs", "?") else "concat"
        return Recurrent(self.name, (Layer(layer_directions, merge),), output_order=order)

    def _clips(self) -> tuple[Clip, ...]:
        """Return the clips, which a bound of 0 leaves out."""
        clips = []
        for option, kind in (("cell_clip", "cell"), ("proj_clip", "projection")):
            bound = float(self.option(option, "f")) if self.kind == "lstm" else 0.0
            if not bound >= 0 or bound == float("inf"):
                raise UnreadableError(self.path, f"{self.name!r} has a {option} of {bound:g}, which is not a bound")
            clip_kind: Any = kind
            if kind == "cell" and self._steps() <= bound:
                continue
            if bound and (kind == "cell" or any("projection" in local for local in self.stored)):
                clips.append(Clip(clip_kind, -float(str(np.float32(bound))), float(str(np.float32(bound)))))
        return tuple(clips)

    def _steps(self) -> float:
        """Return how many steps from zeros the file states, which is as far as a cell state between tanh and sigmoids may get."""
        dims = self.graph.tensors[self.operator.input(0)].dims
        time = dims[0 if self.option("time_major", "?") else 1] if len(dims) == 3 else None
        bounded = self.operator.code == s.SEQUENCE_LSTM and self.option("fused_activation_function", "b") == s.TANH
        return time if bounded and time else float("inf")

    def warnings(self) -> list[LayerNote]:
        """Say what was not stored as it is read."""
        sentences = []
        types = sorted({str(tensor.stored.dtype) for tensor in self.stored.values() if tensor.stored is not None} - {"float32"})
        if types:
            sentences.append(tflite_loops.quantised(self.name, types, "its input, its states and its gates"))
        bound = float(self.option("cell_clip", "f")) if self.kind == "lstm" else 0.0
        if bound and self._steps() <= bound:
            sentences.append(
                LayerNote(
                    self.name,
                    f"the clip of its cell state at {bound:g} is left out: {self._steps()} steps from zeros, as the file states "
                    f"them, do not get beyond {self._steps()}",
                )
            )
        if self.operator.code in (s.LSTM, s.RNN):
            sentences.append(LayerNote(self.name, "it computes one step at a call; the graph around it decides what it reads"))
        return sentences

    def _reversed(self) -> tuple[bool, Any]:
        """Return whether the layer reads from the end, and the order of its outputs: REVERSE_V2 stands before and behind."""
        turns, before = 0, self.graph.producer(self.operator.input(0))
        while before is not None and self._turns(before) and turns < len(self.graph.operators):
            turns, before = turns + 1, self.graph.producer(before.input(0))
        if self.both or not turns % 2:
            return False, "time"
        after = self.graph.consumers(self.operator.outputs[0])
        return True, "time" if after and all(map(self._turns, after)) else "processing"

    def _turns(self, operator: Operator) -> bool:
        """Return whether an operator turns the time around, and nothing else."""
        if operator.code != s.REVERSE or operator.input(1) < 0:
            return False
        axes = self.graph.tensors[operator.input(1)].stored
        time = 0 if self.option("time_major", "?") else 1
        return axes is not None and axes.dtype.kind == "i" and [int(axis) % 3 for axis in axes.reshape(-1)[:2]] == [time]

    def fused(self, stack: Recurrent) -> FusedOperator:
        """Return what the layer reads and gives in its graph."""
        reads, gives = self.operator.input(0), [*self.operator.outputs]
        if stack.first.reverse and (before := self.graph.producer(reads)) is not None:
            reads = before.input(0)
            if stack.output_order == "time":
                gives = [after.outputs[0] for after in self.graph.consumers(gives[0])]
        step = self.operator.code in (s.LSTM, s.RNN)
        return FusedOperator(self.operator, stack, reads, gives, bool(self.option("time_major", "?")), step)
