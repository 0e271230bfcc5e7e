"""The node for a layer that was found, and the graph with it in place."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.files.adapter import unique
from rnnconvert.formats.onnx.graph import attributes
from rnnconvert.formats.onnx.proto.nodes import ProtoNodes
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.graphs.program.masked_steps import CountedSteps, steps
from rnnconvert.language import registry
from rnnconvert.language.packing import pack
from rnnconvert.recognition.recognised import Mask, ReadSequence, RecognisedLayer

NodesAndArrays = tuple[list[onnx.NodeProto], dict[str, "Array | PiecewiseArray"]]


class _FusedNodes(ProtoNodes):
    """Nodes under construction, for an operator set."""

    def __init__(self, prefix: str, opset: int, dtype: np.dtype) -> None:
        super().__init__()
        self.prefix, self.opset, self.dtype = prefix, opset, dtype.newbyteorder("=")

    def name(self, wanted: str) -> str:
        return f"{self.prefix}/{wanted}"

    def shared(self, wanted: str, array: Array) -> str:
        return super().shared(self.name(wanted), array)

    def add(self, operator: str, inputs: Sequence[str], wanted: str = "", output: str = "", **attributes: Any) -> str:
        name = output or self.name(wanted)
        self.node(operator, inputs, [name], self.name(wanted or operator), **attributes)
        return name

    def axes(self, operator: str, value: str, axes: Sequence[int], local: str = "", output: str = "") -> str:
        """Add Squeeze or Unsqueeze, whose axes are an attribute before operator set 13."""
        if self.opset < 13:
            return self.add(operator, [value], local, output, axes=list(axes))
        return self.add(operator, [value, self.integers(*axes)], local, output)

    def cut(self, value: str, bounds: tuple[int, int, int, int], local: str) -> str:
        """Add a Slice: first, end, axis, step."""
        if self.opset < 10:
            return self.add("Slice", [value], local, starts=[bounds[0]], ends=[bounds[1]], axes=[bounds[2]])
        limits = [self.constant(f"{local}_{n}", np.array([bound], np.int64)) for n, bound in enumerate(bounds)]
        return self.add("Slice", [value, *limits], local)

    def zero(self) -> str:
        """Return the number zero, of the layer's type."""
        return self.shared("zero", np.zeros((), self.dtype))


def as_nodes(layer: RecognisedLayer, prefix: str, opset: int, states: Mapping[str, str]) -> NodesAndArrays:
    """Return the nodes that give everything that is used of a layer, and their numbers.

    prefix  what their names begin with
    states  initial states to give; those that are not here are zero
    """
    nodes = _FusedNodes(prefix, opset, layer.direction.dtype)
    x = [_sequence(nodes, read, number) for number, read in enumerate(layer.reads)]
    sequence = x[0] if len(x) == 1 else nodes.add("Concat", x, "x", axis=2)
    counting = None if layer.mask is None else _counting(nodes, layer.mask, sequence)
    if counting is not None:
        batch_first = nodes.add("Transpose", [sequence], "x_by_sequence", perm=[1, 0, 2])
        sequence = nodes.add("Transpose", [counting.front(nodes, "x", batch_first)], "x_in_front", perm=[1, 0, 2])
    single = Recurrent(layer.label, (Layer((layer.direction,)),))
    cell = layer.direction.cell
    packed = pack(registry.layout("onnx", cell.kind, cell.reset_after), single)
    values: dict[str, str] = {name: nodes.constant(name, array) for name, array in packed.items()}
    for letter, name in states.items():
        values[f"initial_{letter}"] = nodes.axes("Unsqueeze", name, [0], f"initial_{letter}") if layer.rank == 2 else name
    slots = ["W", "R", "B", "", "initial_h", "initial_c", "P"][: 7 if cell.kind == "lstm" else 5]
    values[""] = "" if counting is None else counting.lengths(nodes, "lengths")
    inputs = [sequence, *(values.get(slot, "") for slot in slots)]
    while not inputs[-1]:
        inputs.pop()
    outputs = [f"{prefix}/Y", f"{prefix}/Y_h", *([f"{prefix}/Y_c"] if cell.kind == "lstm" else [])]
    nodes.node(layer.operator, inputs, outputs, prefix, **attributes(single))
    if counting is None:
        _give(nodes, layer, outputs)
    else:
        _give_masked(nodes, layer, counting, outputs, states)
    return nodes.nodes, nodes.arrays


def _counting(nodes: _FusedNodes, mask: Mask, x: str) -> CountedSteps:
    """Add which steps of each sequence count."""
    if nodes.opset < 13:
        raise UnmatchedError(f"its mask {mask.value!r} needs operators of set 13 or later")
    if mask.rank == 1:
        size = nodes.add("Shape", [x], "size")
        steps_ = nodes.add("Squeeze", [nodes.add("Slice", [size, nodes.integers(0), nodes.integers(1)], "steps")], "count")
        bounds = [nodes.constant(word, np.array(n, np.int64)) for word, n in (("from", 0), ("by", 1))]
        number = nodes.add("Range", [bounds[0], steps_, bounds[1]], "number")
        lengths = nodes.add("Cast", [mask.value], "given_lengths", to=onnx.TensorProto.INT64)
        truths = nodes.add("Less", [number, nodes.axes("Unsqueeze", lengths, [1], "each_length")], "counts")
        return steps(nodes, truths, "mask")
    truths = mask.value
    if mask.negated:
        truths = nodes.add("Not", [truths], "mask_counts")
    if mask.rank == 3:
        truths = nodes.axes("Squeeze", truths, [2], "mask_narrow")
    if mask.axis == 0:
        truths = nodes.add("Transpose", [truths], "mask_by_sequence", perm=[1, 0])
    return steps(nodes, truths, "mask")


def _give_masked(
    nodes: _FusedNodes, layer: RecognisedLayer, counting: CountedSteps, outputs: Sequence[str], states: Mapping[str, str]
) -> None:
    """Add what turns the operator's outputs into the values that are used, with what stands for steps that do not count."""
    every = nodes.add("Transpose", [nodes.axes("Squeeze", outputs[0], [1], "states")], "states_by_sequence", perm=[1, 0, 2])
    for number, use in enumerate(layer.uses):
        name = f"use_{number}"
        if use.kind == "sequence":
            first = states.get("h", "") if use.fill == "state" else ""
            first = nodes.axes("Unsqueeze", first, [1], f"{name}_first") if first else ""
            value = counting.spread(nodes, name, every, False, use.fill == "zero", first)
            order = [0, 1, 2] if use.axis else [1, 0, 2]
            nodes.add("Transpose", [value], f"{name}_in_time", use.value, perm=order)
            continue
        last = nodes.axes("Squeeze", outputs[1 if use.kind == "hidden" else 2], [0], f"{name}_last")
        first = states.get("h" if use.kind == "hidden" else "c", "") if use.fill == "state" else ""
        nodes.add("Identity", [counting.ended(nodes, name, last, first or nodes.zero())], f"{name}_given", use.value)


def _sequence(nodes: _FusedNodes, read: ReadSequence, number: int) -> str:
    """Return a sequence (time, batch, features) of what the steps read."""
    if read.steps:
        parts = [nodes.axes("Unsqueeze", step, [0], f"x{number}_{n}") for n, step in enumerate(read.steps)]
        return parts[0] if len(parts) == 1 else nodes.add("Concat", parts, f"x{number}", axis=0)
    value = read.value
    if read.axis == 1:
        value = nodes.add("Transpose", [value], f"x{number}", perm=[1, 0, 2])
    if read.window is not None:
        value = nodes.cut(value, (*read.window, 0, 1), f"x{number}_window")
    return value


def _give(nodes: _FusedNodes, layer: RecognisedLayer, outputs: Sequence[str]) -> None:
    """Add what turns the operator's outputs into the values that are used."""
    states = ""
    for use in layer.uses:
        if use.kind == "sequence" and use.rank == 3 and use.axis == 0 and not layer.processing:
            nodes.add("Identity", [outputs[0]], f"sequence_{len(nodes.nodes)}", use.value)
            continue
        if use.kind in ("sequence", "step") and not states:
            states = nodes.axes("Squeeze", outputs[0], [1], "states")
            if layer.processing:
                states = nodes.cut(states, (-1, np.iinfo(np.int64).min + 1, 0, -1), "states_in_processing_order")
        if use.kind == "sequence":
            where = states
            if use.rank == 3:
                where = nodes.axes("Unsqueeze", where, [1], f"states_{len(nodes.nodes)}")
            order = [0, 1, 2] if use.rank == 2 else [0, 1, 2, 3]
            if use.axis:
                order.insert(use.axis, order.pop(0))
                nodes.add("Transpose", [where], f"sequence_{len(nodes.nodes)}", use.value, perm=order)
            else:
                nodes.add("Identity", [where], f"sequence_{len(nodes.nodes)}", use.value)
        elif use.kind == "step":
            index = nodes.constant(f"step_{use.step}", np.array(use.step, np.int64))
            value = nodes.add("Gather", [states, index], f"state_{use.step}", "" if use.rank == 3 else use.value, axis=0)
            if use.rank == 3:
                nodes.axes("Unsqueeze", value, [0], f"out_{use.step}", use.value)
        else:
            last = outputs[1 if use.kind == "hidden" else 2]
            if use.rank == 3:
                nodes.add("Identity", [last], f"last_{use.kind}_{len(nodes.nodes)}", use.value)
            else:
                nodes.axes("Squeeze", last, [0], f"last_{use.kind}_{len(nodes.nodes)}", use.value)


def splice(graph: onnx.GraphProto, new: Sequence[onnx.NodeProto], values: Iterable[str]) -> None:
    """Put nodes into a graph in place of those that gave the same values, and remove what nobody needs any more."""
    gone = set(values)
    remaining = [node for node in graph.node if not gone & set(node.output)]
    nodes = _needed([*remaining, *new], {output.name for output in graph.output})
    ordered = _ordered(nodes)
    del graph.node[:]
    graph.node.extend(ordered)
    used = {name for node in graph.node for name in reads(node)} | {output.name for output in graph.output}
    stored = {tensor.name for tensor in graph.initializer}
    inputs = {value.name for value in graph.input} - stored  # a number that is stored and an input goes as a whole
    for field in (graph.input, graph.initializer, graph.value_info):
        left = [entry for entry in field if entry.name in used or entry.name in inputs]
        del field[:]
        field.extend(left)


def reads(node: onnx.NodeProto) -> set[str]:
    """Return the values that a node reads, those that graphs inside it take from around them among them."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in (attribute.g,) if attribute.HasField("g") else attribute.graphs:
            names |= free(graph)
    return names


def bodies(nodes: Iterable[onnx.NodeProto]) -> list[onnx.GraphProto]:
    """Return the graphs in some nodes."""
    return [attribute.g for node in nodes for attribute in node.attribute if attribute.HasField("g")]


def names_in(graph: onnx.GraphProto) -> set[str]:
    """Return every name of a value in a graph and in those inside it."""
    names = {value.name for value in (*graph.input, *graph.initializer, *graph.output)}
    for node in graph.node:
        names.update(node.input, node.output)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                names |= names_in(inner)
    return names


class NameTree:
    """Names of values, in which a name stands for what lies below it, too: "a" is among them where "a/b" is."""

    def __init__(self, names: Iterable[str]) -> None:
        self._sorted = sorted(set(names))

    def __contains__(self, name: object) -> bool:
        return self._first(f"{name}/").startswith(f"{name}/") or self._first(str(name)) == name

    def _first(self, name: str) -> str:
        at = bisect.bisect_left(self._sorted, name)
        return self._sorted[at] if at < len(self._sorted) else ""

    def free(self, name: str) -> str:
        """Add a name that is not among them: this one, or with a number after it."""
        name = unique(name, self)
        bisect.insort(self._sorted, name)
        return name


def free(graph: onnx.GraphProto) -> set[str]:
    """Return the values that a graph in a node takes from around it."""
    defined = {value.name for value in (*graph.input, *graph.initializer)}
    defined |= {name for node in graph.node for name in node.output}
    used = {name for node in graph.node for name in reads(node)} | {output.name for output in graph.output}
    return used - defined


def _needed(nodes: Sequence[onnx.NodeProto], outputs: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes that the outputs depend on, in the same order."""
    places = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    waiting, selected = list(outputs), set()
    while waiting:
        index = places.get(waiting.pop())
        if index is not None and index not in selected:
            selected.add(index)
            waiting += reads(nodes[index])
    return [node for index, node in enumerate(nodes) if index in selected]


def _ordered(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return nodes in an order in which they can run, as near to the given one as that allows."""
    places = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    done: set[int] = set()
    open_: set[int] = set()
    ordered: list[onnx.NodeProto] = []
    for start in range(len(nodes)):
        waiting = [(start, False)]
        while waiting:
            index, ready = waiting.pop()
            if index in done:
                continue
            if ready:
                done.add(index)
                ordered.append(nodes[index])
                continue
            if index in open_:
                raise UnmatchedError("what it reads depends on what it gives")
            open_.add(index)
            waiting.append((index, True))
            waiting += [(places[name], False) for name in sorted(reads(nodes[index])) if name in places and places[name] not in done]
    return ordered
