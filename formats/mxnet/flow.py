"""The graph next to MXNet's parameters: what its operators do to the elements on their way from one recurrent layer to the next.

Source: MXNet 1.9.1, src/operator/tensor/matrix_op.cc, init_op.cc and indexing_op.cc; src/operator/nn/concat.cc and dropout.cc;
src/operator/slice_channel.cc, swapaxis.cc, sequence_reverse.cc. A Custom operator is one of Python's and may compute anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Call, Recurrent, Unknown
from rnnconvert.formats.mxnet import symbol
from rnnconvert.formats.mxnet.operators import DIALECT, GIVE, READ
from rnnconvert.graphs.between import calls as followed
from rnnconvert.graphs.graph import CallSizes, Graph

_NODE = re.compile(r"(?P<cell>.*_)t(?P<step>\d{1,6})_(?P<part>i2h|h2h|out|state)", re.S)
"""The names of nodes of an unrolled cell. Source: gluon/rnn/rnn_cell.py and rnn/rnn_cell.py (1.9.1)."""

Nodes: TypeAlias = "Sequence[Mapping[str, Any]]"
Key: TypeAlias = "tuple[int, int]"
"""A node, and which of its outputs."""


def calls(path: Path, layers: Mapping[str, tuple[Recurrent, Sequence[str]]], arrays: Mapping[str, Array]) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each layer in a graph, by its name.

    layers  the layers, each with the names of its arrays
    arrays  the arrays of the file next to the graph

    Raises UnreadableError for a file that is not a graph.
    """
    with symbol.opened(path) as nodes:
        received_calls = followed(_SymbolFlow(nodes, layers, arrays).graph)
    unseen = Call(Unknown(f"{path.name} does not show it"))
    return {name: received_calls.get(name, (unseen,)) for name in layers}


@dataclass(eq=False)
class _CellUse:
    """One use of an unrolled cell: what its steps read and give, and the values that its first step begins with."""

    reads: list[Key]
    gives: dict[int, Key]
    states: list[Key]
    last: Key | None = None


class _SymbolFlow:
    """A graph of MXNet's as one of the floor."""

    def __init__(self, nodes: Nodes, layers: Mapping[str, tuple[Recurrent, Sequence[str]]], arrays: Mapping[str, Array]) -> None:
        self.nodes, self.layers = nodes, layers
        self.graph = Graph(DIALECT)
        self.owners = {array: name for name, (_, arrays) in layers.items() for array in arrays}
        counts = [1] * len(nodes)
        for node in nodes:
            for entry in node["inputs"]:
                counts[entry[0]] = max(counts[entry[0]], min(entry[1] + 1, 1 << 12))
        for index, node in enumerate(nodes):
            self._operator(index, node, counts[index])
        for name, cell in self._cells():
            self._unrolled(name, cell)
        for index, node in enumerate(nodes):
            self.graph.value((index, 0)).name = str(node["name"])
            if node["op"] == "null":
                if str(node["name"]) in arrays:
                    self.graph.constant((index, 0), arrays[str(node["name"])])
            else:
                stated, kind = symbol.attributes(node), str(node["op"])
                label = kind if kind != "Custom" else f"Custom {stated.get('op_type', '')}"
                self.graph.add(kind, self._inputs(node), [(index, place) for place in range(counts[index])], stated, label)

    @staticmethod
    def _inputs(node: Mapping[str, Any]) -> list[Key]:
        return [(entry[0], entry[1]) for entry in node["inputs"]]

    def _operator(self, index: int, node: Mapping[str, Any], count: int) -> None:
        """Note the call of an RNN operator."""
        name = next((self.owners[array] for array in symbol.operator(node, self.nodes) if array in self.owners), None)
        if name is None:
            return
        (stack, _), inputs, stated = self.layers[name], self._inputs(node), symbol.attributes(node)
        ragged = stated.get("use_sequence_length", "False") in ("True", "1")
        self.graph.call(
            name,
            (inputs[0], "tbi"),
            {(index, 0): "tbu"},
            {(index, place): "the last states" for place in range(1, count)},
            sizes=CallSizes(stack.layers[-1].output_size, width=stack.input_size),
            initial=inputs[2 : 4 if stated.get("mode") == "lstm" else 3],
            lengths=inputs[-1:] if ragged else (),
        )

    def _cells(self) -> list[tuple[str, _CellUse]]:
        """Return the uses of unrolled cells, each with its layer."""
        result: list[tuple[str, _CellUse]] = []
        latest: dict[str, _CellUse] = {}
        for index, node in enumerate(self.nodes):
            match = _NODE.fullmatch(str(node["name"]))
            if match is None:
                continue
            step, inputs = int(match["step"]), self._inputs(node)
            if match["part"] == "i2h":
                owner = next((self.owners[name] for name in self._arrays(node) if name in self.owners), None)
                if owner is not None and inputs:
                    if not step or match["cell"] not in latest:
                        latest[match["cell"]] = _CellUse([], {}, [])
                        result.append((owner, latest[match["cell"]]))
                    latest[match["cell"]].reads.append(inputs[0])
            elif (cell := latest.get(match["cell"])) is not None:
                if match["part"] == "h2h" and not step:
                    cell.states += inputs[:1]
                elif match["part"] == "out":
                    cell.gives[step] = (index, 0)
                    if not step:
                        cell.states += self._begins(index, cell)
                elif match["part"] == "state":
                    cell.last = (index, 0)
        return result

    def _arrays(self, node: Mapping[str, Any]) -> list[str]:
        return [str(self.nodes[entry[0]]["name"]) for entry in node["inputs"] if self.nodes[entry[0]]["op"] == "null"]

    def _begins(self, out: int, cell: _CellUse) -> list[Key]:
        """Return the further inputs of the first step of a cell, in addition to its weights and its input."""
        keys: dict[Key, None] = {}
        waiting, seen = [(out, 0)], {*cell.reads, *cell.states}
        while waiting:
            key = waiting.pop()
            node = self.nodes[key[0]]
            if key in seen or str(node["name"]) in self.owners:
                continue
            seen.add(key)
            if node["op"] in symbol.STEP and node["inputs"]:
                waiting += self._inputs(node)
            else:
                keys[key] = None
        return [*keys]

    def _unrolled(self, name: str, cell: _CellUse) -> None:
        stack, _ = self.layers[name]
        number = len(self.graph.layers)
        sequence, states = (name, number, READ), (name, number, GIVE)
        self.graph.describe(sequence, [len(cell.reads), "sequences", stack.input_size])
        self.graph.add(READ, cell.reads, [sequence], {}, None)
        for step, key in cell.gives.items():
            self.graph.add(GIVE, [states], [key], {"step": step}, None, over=True)
        last = {} if cell.last is None else {cell.last: "the last cell state"}
        sizes = CallSizes(stack.layers[-1].output_size, width=stack.input_size)
        self.graph.call(name, (sequence, "tbi"), {states: "tbu"}, last, sizes=sizes, initial=cell.states)
