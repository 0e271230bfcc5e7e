"""A direction of a recurrent layer as a WHILE over its steps: the equations of its cell in basic operators, for any batch.

TFLite's own recurrent operators keep their states in variables of one batch from call to call, which resizing an input does not change,
and there are none for a GRU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.weights import Direction
from rnnconvert.formats.tflite.operator_values import BOOL, INT, OperatorValues
from rnnconvert.scaffolding.graph.step_values import StepEquations, StepMatrix, StepValue

_OPERATORS: Mapping[str, str] = {"Max": "MAXIMUM", "Min": "MINIMUM", "Sigmoid": "LOGISTIC"}
"""The operators that are not called as the common operations are."""


class StepTensor(StepValue):
    """A value in the graph of a step."""

    def __init__(self, graph: OperatorValues, place: int) -> None:
        self.graph, self.place = graph, place

    def apply(self, operator: str, *others: StepTensor | float) -> StepTensor:
        name = _OPERATORS.get(operator, operator.upper())
        places = [other.place if isinstance(other, StepTensor) else self.graph.number(other) for other in others]
        return StepTensor(self.graph, self.graph.add(name, [self.place, *places], name.lower()))

    def number(self, value: float) -> StepTensor:
        return StepTensor(self.graph, self.graph.number(value))

    def __matmul__(self, matrix: StepMatrix[int]) -> StepTensor:
        return StepTensor(self.graph, self.graph.add("FULLY_CONNECTED", [self.place, matrix.held, -1], "product", keep_num_dims=0))

    def __getitem__(self, part: Any) -> StepTensor:
        """Return a part of the last axis: states have two axes, peepholes one."""
        last = part[-1] if isinstance(part, tuple) else part
        return StepTensor(self.graph, _cut(self.graph, self.place, len(part) if isinstance(part, tuple) else 1, last))


def _cut(graph: OperatorValues, place: int, axes: int, part: slice) -> int:
    """Add a part of the last of some axes."""
    begin, end = ([0] * (axes - 1) + [bound or 0] for bound in (part.start, part.stop))
    mask = (1 << (axes - 1)) - 1
    bounds = [graph.integers(*begin), graph.integers(*end), graph.integers(*[1] * axes)]
    ends = mask if part.stop is not None else mask | 1 << (axes - 1)
    return graph.add("STRIDED_SLICE", [place, *bounds], "part", begin_mask=mask, end_mask=ends, shrink_axis_mask=0)


def steps(graph: OperatorValues, name: str, direction: Direction, x: int, states: Sequence[int], lengths: int) -> list[int]:
    """Add a WHILE over the steps of x (time, batch, in): the outputs (time, batch, units), and the last states (batch, units).

    states   the initial ones (batch, units); of a direction without any zeros
    lengths  how many steps of each sequence count, (batch,); -1 where all do
    """
    cell, kind = StepEquations(name, graph.title, direction), direction.cell.kind
    widths = [direction.output_size, direction.hidden_size][: 2 if kind == "lstm" else 1]
    shape = graph.add("SHAPE", [x], f"{name}/shape", INT, out_type=INT)
    sizes = [_cut(graph, shape, 1, slice(place, place + 1)) for place in range(2)]
    first = []
    for place, width in enumerate(widths):
        size = graph.add("CONCATENATION", [sizes[1], graph.integers(width)], f"{name}/state shape", axis=0)
        initial = states[place] if states else graph.number(0.0)
        operator = "BROADCAST_TO" if states else "FILL"
        first.append(graph.add(operator, [initial, size] if states else [size, initial], f"{name}/state", 0, (None, width)))
    bounds = [graph.integers(0), graph.integers(1), graph.integers(1)]
    count = graph.add("STRIDED_SLICE", [shape, *bounds], f"{name}/count", shape=(), begin_mask=0, end_mask=0, shrink_axis_mask=1)
    size = graph.add("CONCATENATION", [*sizes, graph.integers(widths[0])], f"{name}/outputs/shape", axis=0)
    every = graph.list_of_steps(size, count, (None, widths[0]), 0, f"{name}/outputs")
    counted = [lengths] if lengths >= 0 else []
    shapes: list[Sequence[int | None]] = [(), (), (None, None, direction.input_size), (None, None, widths[0])]
    held = first[:1] if counted and graph.disposes else []
    shapes += [(None, width) for width in widths] + [(None,)] * len(counted) + [(None, widths[0])] * len(held)
    begin = [graph.integer(0), count, x, every, *first, *counted, *held]

    def step(body: OperatorValues, places: Sequence[int]) -> list[int]:
        number, limit, sequence, outputs, *others = places
        lengths_of = others[len(widths) : len(widths) + len(counted)]
        after = body.add("ADD", [number, body.integer(1)], f"{name}/next", shape=())
        read = StepTensor(body, body.add("GATHER", [sequence, number], f"{name}/x", axis=0, batch_dims=0))

        def row(stored: str, numbers: Array | PiecewiseArray) -> StepTensor:
            return StepTensor(body, body.constant(stored, numbers))

        before = [StepTensor(body, place) for place in others[: len(widths)]]
        new = [state.place for state in cell.after_step(cell.from_input(read, body.matrix, row), before, body.matrix, row)]
        ends = new
        if counted:
            wide = body.add(
                "EXPAND_DIMS", [body.add("GREATER", [*lengths_of, number], f"{name}/counts", BOOL), body.integer(1)], f"{name}/wide"
            )
            ends = [
                # Where a file does not state the axes, LiteRT drops those of one element.
                body.add("SELECT_V2", [wide, state, old.place], f"{name}/kept", 0, (None, width))
                for state, old, width in zip(new, before, widths, strict=True)
            ]
        listed = body.with_step(outputs, number, after, new[0], f"{name}/listed")
        return [after, limit, sequence, listed, *ends, *lengths_of, *new[: len(held)]]

    gives = loop(graph, name, begin, shapes, step)
    return [graph.stacked(gives[3], (None, widths[0]), 0), *gives[4 : 4 + len(widths)]]


def loop(
    graph: OperatorValues,
    name: str,
    begin: Sequence[int],
    shapes: Sequence[Sequence[int | None]],
    step: Callable[[OperatorValues, Sequence[int]], Sequence[int]],
) -> list[int]:
    """Add a WHILE over steps that are counted; return the values that it ends with.

    begin   the values that it begins with: 0 and the number of steps, and the values that a step hands on to the next
    shapes  the axes of these
    step    adds the operators of a step to its graph: from the places of these values there to the places of the next ones
    """

    def inner(word: str) -> tuple[OperatorValues, list[int]]:
        part = graph.inner(f"{name}/{word}")
        places = [
            part.value(f"{name}/{word}/{n}", graph.kinds[outer], dims) for n, (outer, dims) in enumerate(zip(begin, shapes, strict=True))
        ]
        part.inputs = {str(n): place for n, place in enumerate(places)}
        return part, places

    going, places = inner("going")
    going.outputs = {"0": going.add("LESS", places[:2], f"{name}/less", BOOL, ())}
    body, places = inner("step")
    body.outputs = {str(n): place for n, place in enumerate(step(body, places))}
    gives = [graph.value(f"{name}/{n}" if n else name, graph.kinds[outer], shapes[n]) for n, outer in enumerate(begin)]
    graph.several("WHILE", begin, gives, cond=going.place, body=body.place)
    return gives
