"""The graph next to MXNet's parameters: what its operators do to the elements on their way from one recurrent layer to the next.

Source: MXNet 1.9.1, src/operator/tensor/matrix_op.cc, init_op.cc and indexing_op.cc; src/operator/nn/concat.cc and dropout.cc;
src/operator/slice_channel.cc, swapaxis.cc, sequence_reverse.cc. A Custom operator is one of Python's and may compute anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.weights import Call, Recurrent, Unknown
from rnnconvert.formats.mxnet import symbol
from rnnconvert.graphs import SAME, Applied, Casts, ChangesError, Computes, Dialect, Graph, LayerCall, Measures, Moves, moves, received
from rnnconvert.graphs import calls as followed

_READ, _GIVE = "the steps that a layer reads", "a step that a layer gives"
"""Operators that stand for no operator of the file."""
_NODE = re.compile(r"(?P<cell>.*_)t(?P<step>\d{1,6})_(?P<part>i2h|h2h|out|state)", re.S)
"""The names of nodes of an unrolled cell. Source: gluon/rnn/rnn_cell.py and rnn/rnn_cell.py (1.9.1)."""

Nodes: TypeAlias = "Sequence[Mapping[str, Any]]"
Key: TypeAlias = "tuple[int, int]"
"""A node, and which of its outputs."""


def calls(path: Path, layers: Mapping[str, tuple[Recurrent, Sequence[str]]], arrays: Mapping[str, Array]) -> dict[str, tuple[Call, ...]]:
    """Return what each layer receives in a graph, by its name.

    layers  the layers, each with the names of its arrays
    arrays  the arrays of the file next to the graph

    Raises UnreadableError for a file that is not a graph.
    """
    with symbol.opened(path) as nodes:
        received_calls = followed(_SymbolFlow(nodes, layers, arrays).graph)
    unseen = Call(Unknown(f"{path.name} does not show it"))
    return {name: received_calls.get(name, (unseen,)) for name in layers}


@dataclass(eq=False)
class _Cell:
    """One use of an unrolled cell: what its steps read and give, and the values that its first step begins with."""

    reads: list[Key]
    gives: dict[int, Key]
    states: list[Key]
    last: Key | None = None


class _SymbolFlow:
    """A graph of MXNet's as one of the floor."""

    def __init__(self, nodes: Nodes, layers: Mapping[str, tuple[Recurrent, Sequence[str]]], arrays: Mapping[str, Array]) -> None:
        self.nodes, self.layers = nodes, layers
        self.graph = Graph(_DIALECT)
        self.owners = {array: name for name, (_, arrays) in layers.items() for array in arrays}
        counts = [1] * len(nodes)
        for node in nodes:
            for entry in node["inputs"]:
                counts[entry[0]] = max(counts[entry[0]], min(entry[1] + 1, 1 << 12))
        begun: list[tuple[LayerCall, Sequence[Key]]] = []
        for index, node in enumerate(nodes):
            begun += self._operator(index, node, counts[index])
        for name, cell in self._cells():
            begun.append((self._unrolled(name, cell), cell.states))
        for index, node in enumerate(nodes):
            self.graph.value((index, 0)).name = str(node["name"])
            if node["op"] == "null":
                if str(node["name"]) in arrays:
                    self.graph.constant((index, 0), arrays[str(node["name"])])
            else:
                stated, kind = symbol.attributes(node), str(node["op"])
                label = kind if kind != "Custom" else f"Custom {stated.get('op_type', '')}"
                self.graph.add(kind, self._inputs(node), [(index, place) for place in range(counts[index])], stated, label)
        for call, states in begun:
            call.received = replace(call.received, states=received.states(self.graph, states))

    @staticmethod
    def _inputs(node: Mapping[str, Any]) -> list[Key]:
        return [(entry[0], entry[1]) for entry in node["inputs"]]

    def _operator(self, index: int, node: Mapping[str, Any], count: int) -> Iterator[tuple[LayerCall, Sequence[Key]]]:
        """Note the call of an RNN operator; yield it with its states."""
        name = next((self.owners[array] for array in symbol.operator(node, self.nodes) if array in self.owners), None)
        if name is None:
            return
        (stack, _), inputs, stated = self.layers[name], self._inputs(node), symbol.attributes(node)
        call = self.graph.call(
            name,
            (inputs[0], "tbi"),
            {(index, 0): "tbu"},
            {(index, place): "the last states" for place in range(1, count)},
            hidden=stack.layers[-1].output_size,
            width=stack.input_size,
        )
        if stated.get("use_sequence_length", "False") in ("True", "1"):
            call.received = replace(call.received, lengths=str(self.nodes[inputs[-1][0]]["name"]))
        yield call, inputs[2 : 4 if stated.get("mode") == "lstm" else 3]

    def _cells(self) -> list[tuple[str, _Cell]]:
        """Return the uses of unrolled cells, each with its layer."""
        result: list[tuple[str, _Cell]] = []
        latest: dict[str, _Cell] = {}
        for index, node in enumerate(self.nodes):
            match = _NODE.fullmatch(str(node["name"]))
            if match is None:
                continue
            step, inputs = int(match["step"]), self._inputs(node)
            if match["part"] == "i2h":
                owner = next((self.owners[name] for name in self._arrays(node) if name in self.owners), None)
                if owner is not None and inputs:
                    if not step or match["cell"] not in latest:
                        latest[match["cell"]] = _Cell([], {}, [])
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

    def _begins(self, out: int, cell: _Cell) -> list[Key]:
        """Return what the first step of a cell reads besides its weights and its input."""
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

    def _unrolled(self, name: str, cell: _Cell) -> LayerCall:
        stack, _ = self.layers[name]
        number = len(self.graph.layers)
        sequence, states = (name, number, _READ), (name, number, _GIVE)
        self.graph.describe(sequence, [len(cell.reads), "sequences", stack.input_size])
        self.graph.add(_READ, cell.reads, [sequence], {}, None)
        for step, key in cell.gives.items():
            self.graph.add(_GIVE, [states], [key], {"step": step}, None, over=True)
        last = {} if cell.last is None else {cell.last: "the last cell state"}
        return self.graph.call(name, (sequence, "tbi"), {states: "tbu"}, last, hidden=stack.layers[-1].output_size, width=stack.input_size)


# What operators do ----------------------------------------------------------------------------------------------


def _numbers(applied: Applied, key: str) -> list[int | None]:
    """Return an attribute that is a number or several: "(1, None, -1)"."""
    words = re.findall(r"-?\d{1,18}|None", str(applied.attributes.get(key, "")))
    return [None if word == "None" else int(word) for word in words]


def _all(applied: Applied, key: str) -> list[int]:
    return [number for number in _numbers(applied, key) if number is not None]


def _number(applied: Applied, key: str, default: int) -> int:
    return next(iter(_all(applied, key)), default)


def _is(applied: Applied, key: str) -> bool:
    return str(applied.attributes.get(key, "False")) in ("True", "true", "1")


def _dropout(applied: Applied) -> Array:
    if applied.attributes.get("mode", "training") != "training":
        raise ChangesError("Dropout that is on")
    return applied.input(0)


def _split(applied: Applied) -> list[Array]:
    axis = _number(applied, "axis", 1)
    parts = moves.split(applied.input(0), axis, _number(applied, "num_outputs", 1))
    return [moves.squeeze(part, [axis]) for part in parts] if _is(applied, "squeeze_axis") else parts


def _reshape(applied: Applied) -> Array:
    """Return an array in another shape: 0 stands for the array's own length, -1 for what is left, -2 for all axes that are left,
    -3 for two axes as one, -4 for one axis as the two that follow.
    """
    if _is(applied, "reverse") or "shape" not in applied.attributes:
        raise ChangesError("Reshape from the end")
    array, lengths, place = applied.input(0), list[int](), 0
    words = iter(_all(applied, "shape"))
    for word in words:
        if word == -2:
            lengths += array.shape[place:]
            place = array.ndim
        elif word == -3:
            lengths.append(array.shape[place] * array.shape[place + 1])
            place += 2
        elif word == -4:
            first_length, two = next(words, 0), next(words, 0)
            total = array.shape[place]
            lengths += [total // two if first_length == -1 else first_length, total // first_length if two == -1 else two]
            place += 1
        else:
            lengths.append(array.shape[place] if word == 0 else word)
            place += 1
    return moves.reshape(array, lengths)


def _swap(applied: Applied) -> Array:
    return np.swapaxes(applied.input(0), _number(applied, "dim1", 0), _number(applied, "dim2", 0))


def _slice(applied: Applied) -> Array:
    begin, steps = _numbers(applied, "begin"), _numbers(applied, "step")
    return moves.cut(applied.input(0), begin, _numbers(applied, "end"), [step or 1 for step in steps])


def _slice_axis(applied: Applied) -> Array:
    (begin,), (end,) = _numbers(applied, "begin"), _numbers(applied, "end")
    return moves.cut(applied.input(0), [begin], [end], [], [_number(applied, "axis", 0)])


def _take(applied: Applied) -> Array:
    array, places, axis = applied.input(0), applied.input(1).astype(np.int64), _number(applied, "axis", 0)
    length = array.shape[moves.axis_of(axis, array.ndim)]
    mode = applied.attributes.get("mode", "clip")
    places = places % length if mode == "wrap" else np.clip(places, 0, length - 1)
    return moves.take(array, places, axis)


def _sequence_reverse(applied: Applied) -> Array:
    array = applied.input(0)
    if not _is(applied, "use_sequence_length"):
        return moves.reverse(array, [0])
    return moves.reverse_sequences(array, applied.input(1).astype(np.int64), 0, 1)


def _dtype(applied: Applied) -> np.dtype[Any]:
    name = str(applied.attributes.get("dtype", ""))
    if name == "bfloat16":
        return BFLOAT16
    if not re.fullmatch(r"(float|u?int)(8|16|32|64)", name):
        raise ChangesError(f"Cast to {name!r}")
    return np.dtype(name)


def _axes(applied: Applied) -> list[int]:
    return _all(applied, "axis")


_SPLIT, _CONCAT = Moves(_split), Moves(lambda applied: moves.concatenate(applied.arrays, _number(applied, "dim", 1)), None)
_TRANSPOSE, _SWAP = Moves(lambda applied: moves.transpose(applied.input(0), _all(applied, "axes"))), Moves(_swap)
_FLATTEN, _FLIP = (
    Moves(lambda applied: moves.flatten(applied.input(0), 1)),
    Moves(lambda applied: moves.reverse(applied.input(0), _axes(applied))),
)
_RESHAPE, _CAST, _TAKE = Moves(_reshape), Casts(_dtype), Moves(_take)
_DIALECT: Dialect = {
    # elemwise_unary_op_basic.cc: the same numbers, of which the last two stop gradients
    "_copy": SAME,
    "identity": SAME,
    "BlockGrad": SAME,
    "stop_gradient": SAME,
    "Dropout": Moves(_dropout),
    "SliceChannel": _SPLIT,
    "split": _SPLIT,
    "Reshape": _RESHAPE,
    "reshape": _RESHAPE,
    "Flatten": _FLATTEN,
    "flatten": _FLATTEN,
    "expand_dims": Moves(lambda applied: moves.unsqueeze(applied.input(0), _axes(applied))),
    "squeeze": Moves(lambda applied: moves.squeeze(applied.input(0), _axes(applied))),
    "Concat": _CONCAT,
    "concat": _CONCAT,
    "stack": Moves(lambda applied: moves.stack(applied.arrays, _number(applied, "axis", 0)), None),
    "SwapAxis": _SWAP,
    "swapaxes": _SWAP,
    "transpose": _TRANSPOSE,
    "Cast": _CAST,
    "cast": _CAST,
    "slice": Moves(_slice),
    "slice_axis": Moves(_slice_axis),
    "reverse": _FLIP,
    "flip": _FLIP,
    "take": _TAKE,
    "SequenceReverse": Moves(_sequence_reverse),
    "tile": Moves(lambda applied: moves.tile(applied.input(0), _all(applied, "reps"))),
    "_zeros": Computes(),
    "_ones": Computes(),
    "zeros_like": Measures(lambda applied: np.zeros(applied.input(0).shape)),
    _READ: Moves(lambda applied: moves.stack(applied.arrays, 0), None),
    _GIVE: Moves(lambda applied: applied.input(0)[applied.attributes["step"]]),
}
