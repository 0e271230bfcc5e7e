"""A separate graph that runs at every step of sequences, as a WHILE: cells that have no operator, and their attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rnnconvert.formats.tflite.export_writer import TfliteWriter
from rnnconvert.formats.tflite.operator_values import BOOL, OperatorValues, kind_of
from rnnconvert.graphs.program.operations import Body, Declared, Operation


def scan(w: TfliteWriter, node: Operation) -> None:
    """Add a loop over the steps of sequences.

    Raises RefusedError where an axis of what its steps give has a length that nothing tells before they run.
    """
    ((_, body),) = node.bodies
    states = len(node.inputs) - node.attributes["num_scan_inputs"]
    captured = w.captured(body)
    names = [*node.inputs, *captured]
    read = [w[name] for name in names]
    shape = w.size(node, read[states])
    count = w.picked(node, shape, 0, 0)
    declared = {value.name: value for value in body.declared}
    steps = [declared[name] for name in body.outputs[states:]]
    sizes = [_size(w, node, body, output, step) for output, step in zip(node.outputs[states:], steps, strict=True)]
    kinds = [kind_of(np.dtype(step.dtype)) for step in steps]
    lists = [
        w.values.list_of_steps(size, count, w.step_dims(node, step), kind, f"{node.name}/{number}")
        for number, (size, kind, step) in enumerate(zip(sizes, kinds, steps, strict=True))
    ]
    held = []  # what a step gives has to be handed on where it is disposed of otherwise
    for size, kind, step in zip(sizes, kinds, steps, strict=True) if w.values.disposes else ():
        behind = w.cut(node, size, {0: 1}, {})
        held.append(w.values.add("FILL", [behind, w.values.zero(kind)], f"{node.name}/held", kind, w.step_dims(node, step)))
    outside = [w.dims(node, name) for name in names]
    outside[:states] = [w.step_dims(node, declared[name]) for name in body.inputs[:states]]
    shapes = [
        (),
        (),
        *outside,
        *((None, *w.step_dims(node, step)) for step in steps),
        *(w.step_dims(node, step) for step in steps[: len(held)]),
    ]

    def step_in(values: OperatorValues, places: Sequence[int]) -> list[int]:
        number, limit, *others = places
        after = values.add("ADD", [number, values.integer(1)], f"{node.name}/next", shape=())
        with w.graph_in(node, values):
            for place, (name, held_name) in enumerate(zip((*body.inputs, *captured), names, strict=True)):
                entered = others[place]
                if states <= place < len(node.inputs):
                    dims = w.dims(node, name)
                    entered = values.add("GATHER", [entered, number], f"{held_name}/step", None, dims, axis=0, batch_dims=0)
                w.named(name, entered)
            w.write_nodes()
            outputs = [_copied(values, w[name], places) for name in body.outputs]
        filled = others[len(names) : len(names) + len(lists)]
        listed = [
            values.with_step(steps_so_far, number, output, f"{node.name}/listed")
            for steps_so_far, output in zip(filled, outputs[states:], strict=True)
        ]
        return [after, limit, *outputs[:states], *others[states : len(names)], *listed, *outputs[states : states + len(held)]]

    gives = _loop(w.values, node.name, [w.values.integer(0), count, *read, *lists, *held], shapes, step_in)[2:]
    for name, place in zip(node.outputs, gives[:states], strict=False):
        w.named(name, place)
    for name, place, kind, step in zip(node.outputs[states:], gives[len(names) :], kinds, steps, strict=False):
        w.named(name, w.values.stacked(place, w.step_dims(node, step), kind))


def _copied(values: OperatorValues, place: int, begin: Sequence[int]) -> int:
    """Return a step's result as a separate value: one that is another's is overwritten before it is read."""
    if place not in begin:
        return place
    return values.add("LOGICAL_OR" if values.kinds[place] == BOOL else "MAXIMUM", [place, place], "copy")


def _size(w: TfliteWriter, node: Operation, body: Body, output: str, step: Declared) -> int:
    """Add the lengths of the outputs of all steps: lengths of their open axes are lengths of the loop's inputs.

    output  the name of all steps' output
    step    one step's output

    Raises RefusedError for a length that nothing tells before the steps run.
    """
    states = len(node.inputs) - node.attributes["num_scan_inputs"]
    time = w.cut(node, w.size(node, w[node.inputs[states]]), {0: 0}, {0: 1})
    parts = [time]
    for length in w.lengths_of_steps(node, body, output, step):
        if isinstance(length, int):
            parts.append(w.values.integers(length))
        else:
            name, axis = length
            parts.append(w.cut(node, w.size(node, w[name]), {0: axis}, {0: axis + 1}))
    return w.add("CONCATENATION", parts, node, "lengths", axis=0)


def _loop(
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
