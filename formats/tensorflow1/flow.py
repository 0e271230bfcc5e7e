"""TensorFlow 1's graphs: what recurrent layers receive.

A layer of dynamic_rnn is a loop: it reads what is scattered into a list, the time first, and gives what is gathered.

Source (1.15.5): python/ops/rnn.py, _dynamic_rnn_loop and bidirectional_dynamic_rnn; python/ops/tensor_array_ops.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rnnconvert.core.weights import Call, Recurrent, Unknown
from rnnconvert.formats.tensorflow1.graph import CellGraph, is_backward, stored_name
from rnnconvert.graphs.graph import CallSizes
from rnnconvert.graphs.program.kinds import MEASURING
from rnnconvert.graphs.program.lowering import Block, Rule
from rnnconvert.graphs.program.operations import Operation, Program
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.recognition.flow import RecurrentCall
from rnnconvert.recognition.lowered import received_in
from rnnconvert.recognition.masks import same_numbers

_READING = ("TensorArrayReadV3", "TensorListGetItem")
"""Operations that read an element of a list."""
_GATHERED = ("TensorArrayGatherV3", "TensorListStack")
"""Operations that make a sequence of a list."""
_UNSEEN = Unknown("its graph does not show it as the loop of dynamic_rnn")


def calls(
    graph: CellGraph, layers: Mapping[str, tuple[Recurrent, Sequence[frozenset[str]]]]
) -> tuple[dict[str, tuple[Call, ...]], dict[str, bool]]:
    """Return the calls of each layer, by its name, and for layers that show it whether they are called with (batch, time, values).

    layers  the layers, each with the variables or constants of each direction
    """
    if not graph.scopes:
        return dict.fromkeys(layers, (Call(_UNSEEN),)), {}
    flow = _LayerLoops(graph, layers)
    received = received_in(flow.program, [*flow.homes.items()])
    return {name: received.get(name, (Call(_UNSEEN),)) for name in layers}, flow.batch_first


class _LayerLoop:
    """A loop that is a direction of a layer.

    reads    the sequences that it reads
    gives    the sequences that it gives
    states   what it begins with, and what it leaves
    lengths  the values with which its steps are compared: _copy_some_through of rnn.py
    """

    def __init__(self, inner: Scope, node: Operation) -> None:
        count = len(node.inputs) - 2
        self.node, self.inner = node, inner
        floats = {value.name for value in inner.body.declared if value.dtype is not None and value.dtype.kind in "fV"}
        self.begins = [first for state, first in zip(inner.body.inputs[2:], node.inputs[2:], strict=False) if state in floats]
        self.finals = [name for name in node.outputs[:count] if name]
        self.gives = [name for name in node.outputs[count:] if name]
        elements = [self._outside(step.inputs[0]) for step in inner.nodes if step.operator in _READING and step.kind == "Gather"]
        self.reads = [*dict.fromkeys(filter(None, elements))]
        compared = [self._outside(step.inputs[1]) for step in inner.nodes if step.kind == "GreaterOrEqual"]
        self.lengths = [*filter(None, compared)]

    def _outside(self, value: str) -> str:
        """Return the name of a value of the graph around the loop; "" for one of the step."""
        where, name = self.inner.resolve(same_numbers(self.inner, value))
        if where is self.inner:
            return ""
        producer = where.producer(name)
        while producer is not None and producer[0].kind == "Identity" and producer[0].operator not in _GATHERED:
            name = producer[0].inputs[0]
            producer = where.producer(name)
        return name


class _LayerLoops:
    """The loops of a graph that are layers.

    homes        what the layers read and give, by their names
    batch_first  those that show it, by name: whether they are called with (batch, time, values)
    """

    def __init__(self, graph: CellGraph, layers: Mapping[str, tuple[Recurrent, Sequence[frozenset[str]]]]) -> None:
        self.main = graph.scopes[0]
        self.batch_first: dict[str, bool] = {}
        self.homes: dict[str, RecurrentCall] = {}
        self._directions: dict[str, list[str]] = {}  # the sequence of each direction, by the value that is both of them
        bodies = {scope.body: scope for scope in graph.scopes}
        self._loops = {node: bodies[body] for node in self.main.nodes if node.kind == "Loop" for _, body in node.bodies}
        self._read = {node: {stored_name(self.main, value) for value in node.reads} for node in self._loops}
        for name, (stack, directions) in layers.items():
            loops = [[node for node, read in self._read.items() if arrays & read] for arrays in directions]
            if len(loops) == 2 and loops[0] == loops[1] and len(loops[0]) == 2:  # one cell for both
                loops = [[node] for node in sorted(loops[0], key=is_backward)]
            if all(len(several) == 1 for several in loops):
                self._layer(name, stack, [_LayerLoop(self._loops[node], node) for (node,) in loops])

    def program(self) -> Program:
        """Return the graph, in which the directions of a layer are parts of one value."""
        block = Block("the directions of layers/", {})
        for both, sequences in self._directions.items():
            separate = [f"{both} {number}" for number in range(len(sequences))]
            Rule(block, [both], separate, "").unstack(0)
            for number, sequence in enumerate(sequences):
                # That of the second direction stays in the order in which it was computed.
                Rule(block, [separate[number]], [sequence], "").flip([0] if number else [])
        program = self.main.program
        body = replace(program.main, nodes=[*block.nodes, *program.main.nodes], stored={**program.main.stored, **block.stored})
        return replace(program, main=body)

    def _layer(self, name: str, stack: Recurrent, loops: Sequence[_LayerLoop]) -> None:
        """Note the call of a layer, a loop a direction; nothing where each is not a loop that reads and gives one sequence."""
        if any(len(loop.reads) != 1 for loop in loops):
            return
        gives = [[value for listed in loop.gives for value in self._gathered(listed)] for loop in loops]
        if any(len(give) > 1 for give in gives):
            return
        exchanged = {self._exchanged(self._producer(loop.reads[0])) for loop in loops}
        for value in (value for give in gives for value in give):
            exchanged |= {self._exchanged(node) for node in self._readers(value)}
        if len(exchanged) == 1 and None not in exchanged:
            self.batch_first[name] = exchanged == {True}
        outputs = {give[0]: "tbu" for give in gives if give}
        if len(loops) > 1:
            both = f"{name}/the directions of a layer"
            self._directions[both], outputs = [give[0] if give else f"{both}, which nothing reads" for give in gives], {both: "dtbh"}
        self.homes[name] = RecurrentCall(
            (loops[0].reads[0], "tbi"),
            outputs,
            CallSizes(stack.layers[-1].directions[0].output_size, directions=len(loops), width=stack.input_size),
            {value: "the final states" for loop in loops for value in loop.finals},
            [value for loop in loops for value in loop.begins],
            [value for loop in loops for value in loop.lengths],
        )

    def _producer(self, value: str) -> Operation | None:
        producer = self.main.producer(same_numbers(self.main, value))
        return None if producer is None else producer[0]

    def _gathered(self, listed: str) -> list[str]:
        """Return the sequences that are made of a list."""
        same, gathered = {listed}, list[str]()
        for node in self.main.nodes:  # each stands behind those that it reads
            if node.kind == "Identity" and not same.isdisjoint(node.inputs):
                same.update(node.outputs)
                gathered += node.outputs if node.operator in _GATHERED else ()
        return gathered

    def _readers(self, value: str) -> Iterator[Operation]:
        """Yield the operations that compute with a value."""
        same = {value}
        for node in self.main.nodes:  # each stands behind those that it reads
            if not same.isdisjoint(node.inputs):
                if node.kind == "Identity":
                    same.update(node.outputs)
                elif node.kind not in MEASURING:
                    yield node

    @staticmethod
    def _exchanged(node: Operation | None) -> bool | None:
        """Return whether an operation exchanges time and batch, as dynamic_rnn does without time_major; None for another order of axes."""
        if node is None or node.operator != "Transpose":
            return False
        return True if [*node.attributes.get("perm", ())][:2] == [1, 0] else None
