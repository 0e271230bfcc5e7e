"""The node for a layer that was found, and the graph with it in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rnnconvert.core.arrays import Array, Pieced
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.formats.onnx.fuse_expression import UnmatchedError
from rnnconvert.formats.onnx.fuse_found import Found, Read
from rnnconvert.formats.onnx.graph import attributes
from rnnconvert.language import registry
from rnnconvert.language.packing import pack

Made = tuple[list[onnx.NodeProto], dict[str, "Array | Pieced"]]


class _Nodes:
    """Nodes under construction, for an operator set."""

    def __init__(self, prefix: str, opset: int) -> None:
        self.prefix, self.opset = prefix, opset
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[str, Array | Pieced] = {}

    def constant(self, local: str, array: Array | Pieced) -> str:
        self.arrays[f"{self.prefix}/{local}"] = array
        return f"{self.prefix}/{local}"

    def add(self, operator: str, inputs: Sequence[str], local: str = "", output: str = "", **extra: Any) -> str:
        name = output or f"{self.prefix}/{local}"
        self.nodes.append(helper.make_node(operator, inputs, [name], f"{self.prefix}/{local or operator}", **extra))
        return name

    def axes(self, operator: str, value: str, axes: Sequence[int], local: str = "", output: str = "") -> str:
        """Add Squeeze or Unsqueeze, whose axes are an attribute before operator set 13."""
        if self.opset < 13:
            return self.add(operator, [value], local, output, axes=list(axes))
        name = self.constant("axes_" + "_".join(map(str, axes)), np.array(axes, np.int64))
        return self.add(operator, [value, name], local, output)

    def cut(self, value: str, bounds: tuple[int, int, int, int], local: str) -> str:
        """Add a Slice: first, end, axis, step."""
        if self.opset < 10:
            return self.add("Slice", [value], local, starts=[bounds[0]], ends=[bounds[1]], axes=[bounds[2]])
        given = [self.constant(f"{local}_{n}", np.array([one], np.int64)) for n, one in enumerate(bounds)]
        return self.add("Slice", [value, *given], local)


def made(found: Found, prefix: str, opset: int, states: Mapping[str, str]) -> Made:
    """Return the nodes that give everything that is used of a layer, and their numbers.

    prefix  what their names begin with
    states  initial states to give; those that are not here are zero
    """
    own = _Nodes(prefix, opset)
    x = [_sequence(own, read, number) for number, read in enumerate(found.reads)]
    given = x[0] if len(x) == 1 else own.add("Concat", x, "x", axis=2)
    single = Recurrent(found.label, (Layer((found.direction,)),))
    cell = found.direction.cell
    packed = pack(registry.layout("onnx", cell.kind, cell.reset_after), single)
    values: dict[str, str] = {name: own.constant(name, array) for name, array in packed.items()}
    for letter, name in states.items():
        values[f"initial_{letter}"] = own.axes("Unsqueeze", name, [0], f"initial_{letter}") if found.rank == 2 else name
    slots = ["W", "R", "B", "", "initial_h", "initial_c", "P"][: 7 if cell.kind == "lstm" else 5]
    inputs = [given, *(values.get(slot, "") for slot in slots)]
    while not inputs[-1]:
        inputs.pop()
    outputs = [f"{prefix}/Y", f"{prefix}/Y_h", *([f"{prefix}/Y_c"] if cell.kind == "lstm" else [])]
    own.nodes.append(helper.make_node(found.operator, inputs, outputs, prefix, **attributes(single)))
    _give(own, found, outputs)
    return own.nodes, own.arrays


def _sequence(own: _Nodes, read: Read, number: int) -> str:
    """Return a sequence (time, batch, features) of what the steps read."""
    if read.steps:
        parts = [own.axes("Unsqueeze", step, [0], f"x{number}_{n}") for n, step in enumerate(read.steps)]
        return parts[0] if len(parts) == 1 else own.add("Concat", parts, f"x{number}", axis=0)
    value = read.value
    if read.axis == 1:
        value = own.add("Transpose", [value], f"x{number}", perm=[1, 0, 2])
    if read.window is not None:
        value = own.cut(value, (*read.window, 0, 1), f"x{number}_window")
    return value


def _give(own: _Nodes, found: Found, outputs: Sequence[str]) -> None:
    """Add what turns the operator's outputs into the values that are used."""
    states = ""
    for use in found.uses:
        if use.kind == "sequence" and use.rank == 3 and use.axis == 0 and not found.processing:
            own.add("Identity", [outputs[0]], f"sequence_{len(own.nodes)}", use.value)
            continue
        if use.kind in ("sequence", "step") and not states:
            states = own.axes("Squeeze", outputs[0], [1], "states")
            if found.processing:
                states = own.cut(states, (-1, np.iinfo(np.int64).min + 1, 0, -1), "states_in_processing_order")
        if use.kind == "sequence":
            where = states
            if use.rank == 3:
                where = own.axes("Unsqueeze", where, [1], f"states_{len(own.nodes)}")
            order = [0, 1, 2] if use.rank == 2 else [0, 1, 2, 3]
            if use.axis:
                order.insert(use.axis, order.pop(0))
                own.add("Transpose", [where], f"sequence_{len(own.nodes)}", use.value, perm=order)
            else:
                own.add("Identity", [where], f"sequence_{len(own.nodes)}", use.value)
        elif use.kind == "step":
            index = own.constant(f"step_{use.step}", np.array(use.step, np.int64))
            value = own.add("Gather", [states, index], f"state_{use.step}", "" if use.rank == 3 else use.value, axis=0)
            if use.rank == 3:
                own.axes("Unsqueeze", value, [0], f"out_{use.step}", use.value)
        else:
            last = outputs[1 if use.kind == "hidden" else 2]
            if use.rank == 3:
                own.add("Identity", [last], f"last_{use.kind}_{len(own.nodes)}", use.value)
            else:
                own.axes("Squeeze", last, [0], f"last_{use.kind}_{len(own.nodes)}", use.value)


def replaced(graph: onnx.GraphProto, new: Sequence[onnx.NodeProto], values: Iterable[str]) -> None:
    """Put nodes into a graph in place of those that gave the same values, and remove what nobody needs any more."""
    gone = set(values)
    kept = [node for node in graph.node if not gone & set(node.output)]
    nodes = _needed([*kept, *new], {one.name for one in graph.output})
    ordered = _ordered(nodes)
    del graph.node[:]
    graph.node.extend(ordered)
    used = {name for node in graph.node for name in reads(node)} | {one.name for one in graph.output}
    stored = {one.name for one in graph.initializer}
    given = {one.name for one in graph.input} - stored  # a number that is stored and an input goes as a whole
    for field in (graph.input, graph.initializer, graph.value_info):
        left = [one for one in field if one.name in used or one.name in given]
        del field[:]
        field.extend(left)


def reads(node: onnx.NodeProto) -> set[str]:
    """Return the values that a node reads, those that graphs inside it take from around them among them."""
    found = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in (attribute.g,) if attribute.HasField("g") else attribute.graphs:
            found |= free(graph)
    return found


def bodies(nodes: Iterable[onnx.NodeProto]) -> list[onnx.GraphProto]:
    """Return the graphs in some nodes."""
    return [one.g for node in nodes for one in node.attribute if one.HasField("g")]


def free(graph: onnx.GraphProto) -> set[str]:
    """Return the values that a graph in a node takes from around it."""
    own = {one.name for one in (*graph.input, *graph.initializer)}
    own |= {name for node in graph.node for name in node.output}
    found = {name for node in graph.node for name in reads(node)} | {one.name for one in graph.output}
    return found - own


def _needed(nodes: Sequence[onnx.NodeProto], outputs: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes that the outputs depend on, in the same order."""
    places = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    waiting, found = list(outputs), set()
    while waiting:
        index = places.get(waiting.pop())
        if index is not None and index not in found:
            found.add(index)
            waiting += reads(nodes[index])
    return [node for index, node in enumerate(nodes) if index in found]


def _ordered(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return nodes in an order in which they can run, as near to the given one as that allows."""
    places = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    done: set[int] = set()
    open_: set[int] = set()
    found: list[onnx.NodeProto] = []
    for start in range(len(nodes)):
        waiting = [(start, False)]
        while waiting:
            index, ready = waiting.pop()
            if index in done:
                continue
            if ready:
                done.add(index)
                found.append(nodes[index])
                continue
            if index in open_:
                raise UnmatchedError("what it reads depends on what it gives")
            open_.add(index)
            waiting.append((index, True))
            waiting += [(places[name], False) for name in sorted(reads(nodes[index]))
                        if name in places and places[name] not in done]  # fmt: skip
    return found
