"""One recurrent operator of a TFLite model as a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.cells import Activation, Clip
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.formats.tflite import graph as graphs
from rnnconvert.formats.tflite import loops as tflite_loops
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.graph import Operator, Subgraph, SubgraphTensor
from rnnconvert.formats.tflite.operators import both
from rnnconvert.graphs.graph import CallSizes
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.packing import unpack
from rnnconvert.recognition.flow import RecurrentCall

NAME = "tflite"


class OperatorLayer:
    """One operator on its way to the canonical form."""

    def __init__(self, path: Path, graph: Subgraph, operator: Operator, name: str) -> None:
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

    def _source(self, tensor: int) -> SubgraphTensor:
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
        """Return warnings about numbers that were not stored as they are read."""
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
        """Return the layer's operator, with its inputs and outputs in the graph."""
        reads, gives = self.operator.input(0), [*self.operator.outputs]
        if stack.first.reverse and (before := self.graph.producer(reads)) is not None:
            reads = before.input(0)
            if stack.output_order == "time":
                gives = [after.outputs[0] for after in self.graph.consumers(gives[0])]
        step = self.operator.code in (s.LSTM, s.RNN)
        return FusedOperator(self.operator, stack, reads, gives, bool(self.option("time_major", "?")), step)


# A recurrent operator as a call of a layer: what it reads and gives in its graph, where values go by the numbers of tensors.


@dataclass(frozen=True)
class FusedOperator:
    """A recurrent operator.

    reads      the tensor that it reads: the one before REVERSE_V2 if that belongs to the layer
    gives      the tensors that it gives: the ones behind REVERSE_V2 if that belongs to the layer
    time_major whether the time comes first
    step       whether it computes one step at a call
    """

    operator: Operator
    stack: Recurrent
    reads: int
    gives: Sequence[int]
    time_major: bool
    step: bool

    @property
    def call(self) -> RecurrentCall:
        """The layer's call; kernels compute in float32, however its weights are stored."""
        (pair,) = self.stack.layers
        order = "b" if self.step else "tb" if self.time_major else "bt"
        outputs = {both(str(self.gives[0])): f"d{order}h"} if len(self.gives) == 2 else dict.fromkeys(map(str, self.gives), f"{order}u")
        sizes = CallSizes(pair.directions[0].output_size, directions=len(pair.directions), width=self.stack.input_size)
        return RecurrentCall((str(self.reads), f"{order}i"), outputs, sizes, {})
