"""A direction of a recurrent layer as a WHILE over its steps: the equations of its cell in basic operators, for any batch.

TFLite's own recurrent operators keep their states in variables of one batch from call to call, which resizing an input does not change,
and there are none for a GRU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, Deferred, Pieced
from rnnconvert.core.cells import Activation
from rnnconvert.core.equations import Equations
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.formats.tflite.export_tables import BOOL, INT, OperatorGraph
from rnnconvert.language import outline
from rnnconvert.language.packing import pack


class StepTensor:
    """A value in the graph of a step, with the operators that the equations of cells use."""

    def __init__(self, graph: OperatorGraph, place: int) -> None:
        self.graph, self.place = graph, place

    def apply(self, operator: str, *others: StepTensor | float) -> StepTensor:
        """Return what an operator gives of this value and others."""
        places = [other.place if isinstance(other, StepTensor) else self.graph.number(other) for other in others]
        return StepTensor(self.graph, self.graph.add(operator, [self.place, *places], operator.lower()))

    def __add__(self, other: StepTensor | float) -> StepTensor:
        return self.apply("ADD", other)

    def __sub__(self, other: StepTensor | float) -> StepTensor:
        return self.apply("SUB", other)

    def __rsub__(self, other: float) -> StepTensor:
        return StepTensor(self.graph, self.graph.number(other)).apply("SUB", self)

    def __mul__(self, other: StepTensor | float) -> StepTensor:
        return self.apply("MUL", other)

    def __truediv__(self, other: StepTensor | float) -> StepTensor:
        return self.apply("DIV", other)

    def __matmul__(self, matrix: StepMatrix) -> StepTensor:
        return StepTensor(self.graph, self.graph.add("FULLY_CONNECTED", [self.place, matrix.place, -1], "product", keep_num_dims=0))

    def __getitem__(self, part: Any) -> StepTensor:
        """Return a part of the last axis: those of states have two, peepholes one."""
        last = part[-1] if isinstance(part, tuple) else part
        return StepTensor(self.graph, _cut(self.graph, self.place, len(part) if isinstance(part, tuple) else 1, last))


class StepMatrix:
    """A stored matrix, (out, in), which acts from the right; parts of its columns there are rows here, and stored by themselves."""

    def __init__(self, graph: OperatorGraph, name: str, array: Array | Pieced) -> None:
        self.graph, self.name, self.array = graph, name, array

    @functools.cached_property
    def place(self) -> int:
        """The place of its numbers in the graph."""
        return self.graph.matrix(self.name, self.array)

    def __getitem__(self, part: tuple[slice, slice]) -> StepMatrix:
        rows, width = range(self.array.shape[0])[part[1]], self.array.shape[1]
        array = Deferred((len(rows), width), self.array.dtype, lambda: np.asarray(self.array)[part[1]])
        return StepMatrix(self.graph, f"{self.name}/{rows.start}", array)


def _cut(graph: OperatorGraph, place: int, axes: int, part: slice) -> int:
    """Add a part of the last of some axes."""
    begin, end = ([0] * (axes - 1) + [bound or 0] for bound in (part.start, part.stop))
    mask = (1 << (axes - 1)) - 1
    bounds = [graph.integers(*begin), graph.integers(*end), graph.integers(*[1] * axes)]
    ends = mask if part.stop is not None else mask | 1 << (axes - 1)
    return graph.add("STRIDED_SLICE", [place, *bounds], "part", begin_mask=mask, end_mask=ends, shrink_axis_mask=0)


def _elu(x: StepTensor, alpha: float) -> StepTensor:
    return x.apply("RELU") + (x.apply("MINIMUM", 0.0).apply("EXP") - 1.0) * alpha


_FUNCTIONS: Mapping[str, Callable[[StepTensor, Any, Any], StepTensor]] = {
    "sigmoid": lambda x, a, b: x.apply("LOGISTIC"),
    "tanh": lambda x, a, b: x.apply("TANH"),
    "relu": lambda x, a, b: x.apply("RELU"),
    "linear": lambda x, a, b: x,
    "affine": lambda x, a, b: x * a + b,
    "leaky_relu": lambda x, a, b: x.apply("RELU") + x.apply("MINIMUM", 0.0) * a,
    "scaled_tanh": lambda x, a, b: (x * b).apply("TANH") * a,
    "hard_sigmoid": lambda x, a, b: (x * a + b).apply("MAXIMUM", 0.0).apply("MINIMUM", 1.0),
    "elu": lambda x, a, b: _elu(x, a),
    "selu": lambda x, a, b: _elu(x, 1.6732632423543772) * 1.0507009873554805,
    "softsign": lambda x, a, b: x / (x.apply("ABS") + 1.0),
    "softplus": lambda x, a, b: x.apply("RELU") + (x.apply("ABS").apply("NEG").apply("EXP") + 1.0).apply("LOG"),
    "exponential": lambda x, a, b: x.apply("EXP"),
    "silu": lambda x, a, b: x * x.apply("LOGISTIC"),
}
"""The functions of gates; the equations are those of rnnconvert.core.reference."""


def _function(name: str, activation: Activation) -> Callable[[StepTensor], StepTensor]:
    function, a, b = _FUNCTIONS.get(activation.name), activation.alpha, activation.beta
    if function is None:
        raise RefusedError(f"its activation {activation.name}", "TFLite", "no operator of TFLite's is known for it", "", name)
    return lambda x: function(x, a, b)


def _same(x: StepTensor) -> StepTensor:
    return x


def _clip(low: float, high: float) -> Callable[[StepTensor], StepTensor]:
    return lambda x: x.apply("MAXIMUM", low).apply("MINIMUM", high)


class _OperatorCell(Equations):
    """The equations of a direction's cell, on values of a graph."""

    def __init__(self, name: str, direction: Direction) -> None:
        cell = direction.cell
        self.configure(cell, direction.hidden_size)
        self.candidate_function = _function(name, cell.activation)
        self.gate_function = _function(name, cell.gate_activation)
        self.output_function = _function(name, cell.output_activation)
        clips = {clip.kind: _clip(clip.low, clip.high) for clip in cell.clips}
        self.clip_gates, self.clip_cell, self.clip_state, self.clip_projection = (
            clips.get(kind, _same) for kind in ("gates", "cell", "state", "projection")
        )


def steps(graph: OperatorGraph, name: str, direction: Direction, x: int, states: Sequence[int], lengths: int) -> list[int]:
    """Add a WHILE over the steps of x (time, batch, in): the outputs (time, batch, units), and the last states (batch, units).

    states   the initial ones (batch, units); of a direction without any zeros
    lengths  how many steps of each sequence count, (batch,); -1 where all do
    """
    cell, kind = _OperatorCell(name, direction), direction.cell.kind
    widths = [direction.output_size, direction.hidden_size][: 2 if kind == "lstm" else 1]
    shape = graph.add("SHAPE", [x], f"{name}/shape", INT, out_type=INT)
    sizes = [_cut(graph, shape, 1, slice(place, place + 1)) for place in range(2)]
    first = []
    for place, width in enumerate(widths):
        size = graph.add("CONCATENATION", [sizes[1], graph.integers(width)], f"{name}/state shape", axis=0)
        initial = states[place] if states else graph.number(0.0)
        operator = "BROADCAST_TO" if states else "FILL"
        first.append(graph.add(operator, [initial, size] if states else [size, initial], f"{name}/state", 0, (None, width)))
    size = graph.add("CONCATENATION", [*sizes, graph.integers(widths[0])], f"{name}/output shape", axis=0)
    every = graph.add("FILL", [size, graph.number(0.0)], f"{name}/outputs", 0, (None, None, widths[0]))
    bounds = [graph.integers(0), graph.integers(1), graph.integers(1)]
    count = graph.add("STRIDED_SLICE", [shape, *bounds], f"{name}/count", shape=(), begin_mask=0, end_mask=0, shrink_axis_mask=1)
    counted = [lengths] if lengths >= 0 else []
    shapes: list[tuple[int | None, ...]] = [(), (), (None, None, direction.input_size), (None, None, widths[0])]
    shapes += [(None, width) for width in widths] + [(None,)] * len(counted)
    loop = [graph.integer(0), count, x, every, *first, *counted]

    def inner(word: str) -> tuple[OperatorGraph, list[int]]:
        part = OperatorGraph(graph.model, f"{name}/{word}")
        places = [
            part.value(f"{name}/{word}/{n}", graph.kinds[outer], dims) for n, (outer, dims) in enumerate(zip(loop, shapes, strict=True))
        ]
        part.inputs = {str(n): place for n, place in enumerate(places)}
        return part, places

    going, places = inner("going")
    going.outputs = {"0": going.add("LESS", places[:2], f"{name}/less", BOOL, ())}
    body, places = inner("step")
    number, limit, sequence, outputs, *others = places
    after = body.add("ADD", [number, body.integer(1)], f"{name}/next", shape=())
    read = StepTensor(body, body.add("GATHER", [sequence, number], f"{name}/x", axis=0, batch_dims=0))
    weights = pack(outline.layout(direction, outline.TORCH), Recurrent("", (Layer((direction,)),)))
    matrices = {
        key: StepMatrix(body, f"{name}/{key}", weights[key]) for key in weights if key.startswith("weight_") and key != "weight_peephole"
    }
    rows = {key: StepTensor(body, body.constant(f"{name}/{key}", weights[key])) for key in weights if key not in matrices}
    inputs = read @ matrices["weight_ih"]
    for key in ("bias_ih",) if cell.reset_after else ("bias_ih", "bias_hh"):
        inputs = inputs + rows[key] if key in rows else inputs
    added = outline.constants(direction.cell, direction.hidden_size)
    if added is not None:
        inputs = inputs + StepTensor(body, body.constant(f"{name}/constants", added.astype(np.float32)))
    before = [StepTensor(body, place) for place in others[: len(widths)]]
    results = cell.step(
        inputs, before[0], before[-1], matrices["weight_hh"], rows.get("bias_hh"), rows.get("weight_peephole"), matrices.get("weight_hr")
    )
    new = [state.place for state in results][: len(widths)]
    ends = new
    if counted:
        wide = body.add("EXPAND_DIMS", [body.add("GREATER", [others[-1], number], f"{name}/counts", BOOL), body.integer(1)], f"{name}/wide")
        ends = [
            # Where a file does not state the axes, LiteRT drops those of one element.
            body.add("SELECT_V2", [wide, state, old.place], f"{name}/kept", 0, (None, width))
            for state, old, width in zip(new, before, widths, strict=True)
        ]
    minus, zero = body.integer(-1), body.integer(0)

    def packed(*parts: int) -> int:
        return body.add("PACK", parts, f"{name}/bounds", INT, (3,), count=3, axis=0)

    head = body.add("SLICE", [outputs, body.integers(0, 0, 0), packed(number, minus, minus)], f"{name}/before", shape=shapes[3])
    element = body.add("EXPAND_DIMS", [new[0], zero], f"{name}/output", shape=(1, None, widths[0]))
    tail = body.add("SLICE", [outputs, packed(after, zero, zero), body.integers(-1, -1, -1)], f"{name}/behind", shape=shapes[3])
    listed = body.add("CONCATENATION", [head, element, tail], f"{name}/listed", shape=shapes[3], axis=0)
    last = [after, limit, sequence, listed, *ends, *others[len(widths) :]]
    body.outputs = {str(n): place for n, place in enumerate(last)}
    gives = [graph.value(f"{name}/{n}" if n else name, graph.kinds[outer], shapes[n]) for n, outer in enumerate(loop)]
    graph.several("WHILE", loop, gives, cond=going.place, body=body.place)
    return gives[3 : 4 + len(widths)]
