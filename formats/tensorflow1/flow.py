"""TensorFlow 1's graphs: what recurrent layers receive.

A layer of dynamic_rnn is a while loop: it reads what is scattered into a TensorArray, the time first, and gives what is gathered. With
each loop as one operation, the graph is written in the common operations, in which what lies between layers is followed.

Source (1.15.5): python/ops/rnn.py, _dynamic_rnn_loop and bidirectional_dynamic_rnn; python/ops/tensor_array_ops.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rnnconvert.containers.graph_def import GraphDef, output
from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.core.weights import Call, Recurrent, Unknown
from rnnconvert.formats.tensorflow1.frames import Frames
from rnnconvert.formats.tensorflow1.lowering import GraphDefLowering
from rnnconvert.formats.tensorflow1.operations import PASSING
from rnnconvert.graphs.graph import CallSizes
from rnnconvert.graphs.program.lowering import Rule
from rnnconvert.recognition.flow import RecurrentCall
from rnnconvert.recognition.lowered import received_in

_TRAINING = re.compile(r"(^|/)gradients(_\d+)?/")
_FOLLOWED = 16
_SCATTERED = {"TensorArrayScatterV3": 2, "TensorListFromTensor": 0}
"""Operations that make a list of a sequence, and which of their inputs it is."""
_GATHERED = {"TensorArrayGatherV3", "TensorListStack"}
"""Operations that make a sequence of a list."""
_UNSEEN = Unknown("its graph does not show it as the loop of dynamic_rnn")


def calls(
    path: Path, stated: GraphDef, layers: Mapping[str, tuple[Recurrent, Sequence[frozenset[str]]]]
) -> tuple[dict[str, tuple[Call, ...]], dict[str, bool]]:
    """Return the calls of each layer, by its name, and for layers that show it whether they are called with (batch, time, values).

    layers  the layers, each with the variables or constants of each direction
    """
    flow = _LayerLoops(stated, layers)
    received = received_in(lambda: flow.lowering().program(path), [*flow.homes.items()])
    return {name: received.get(name, (Call(_UNSEEN),)) for name in layers}, flow.batch_first


class _LayerLoops:
    """The loops of a graph that are layers.

    homes        what the layers read and give, by their names
    batch_first  those that show it, by name: whether they are called with (batch, time, values)
    """

    def __init__(self, stated: GraphDef, layers: Mapping[str, tuple[Recurrent, Sequence[frozenset[str]]]]) -> None:
        self.stated, self.frames = stated, Frames(stated)
        self.batch_first: dict[str, bool] = {}
        self.homes: dict[str, RecurrentCall] = {}
        self._directions: dict[str, list[str]] = {}  # the sequence of each direction, by the value that is both of them
        self._nodes = [node for node in stated.nodes.values() if not _TRAINING.search(node.name)]
        self._entered: dict[str, list[GraphDefNode]] = {}
        for node in self._nodes:
            if node.op == "Enter" and not _TRAINING.search(node.text("frame_name")):
                self._entered.setdefault(node.text("frame_name"), []).append(node)
        for name, (stack, directions) in layers.items():
            loops = [self._loops(arrays) for arrays in directions]
            if all(len(frames) == 1 for frames in loops):
                self._layer(name, stack, [frame for (frame,) in loops])

    def lowering(self) -> GraphDefLowering:
        """Return the graph with each loop as one operation, to be written in the common ones."""
        nodes = {node.name: node for node in self._nodes if not self.frames.holds(node.name)}
        for frame, enters in self._entered.items():
            before = tuple(node.inputs[0] for node in enters if node.inputs)
            for end in self.frames.exits(frame):
                nodes[end.name] = GraphDefNode(end.path, end.name, "a loop", before, {})
        lowering = GraphDefLowering(GraphDef(nodes, self.stated.functions))
        for both, sequences in self._directions.items():
            separate = [f"{both} {number}" for number in range(len(sequences))]
            Rule(lowering.main, [both], separate, "").unstack(0)
            for number, sequence in enumerate(sequences):
                # That of the second direction stays in the order in which it was computed.
                Rule(lowering.main, [separate[number]], [sequence], "").flip([0] if number else [])
        return lowering

    def _producer(self, source: str) -> GraphDefNode | None:
        return self.stated.nodes.get(source.partition(":")[0])

    def _origin(self, node: GraphDefNode) -> str:
        """Return the variable or constant that a value is."""
        for _ in range(_FOLLOWED):
            before = self._producer(node.inputs[0]) if node.inputs else None
            if before is None or node.op not in (*PASSING, "Enter"):
                break
            node = before
        return node.name

    def _loops(self, arrays: frozenset[str]) -> list[str]:
        """Return the loops that arrays enter."""
        return [frame for frame, enters in self._entered.items() if any(self._origin(node) in arrays for node in enters)]

    def _layer(self, name: str, stack: Recurrent, loops: Sequence[str]) -> None:
        """Note the call of a layer, a loop a direction; nothing where each is not a loop that reads and gives one sequence."""
        reads = [self._scattered(self._entered[loop]) for loop in loops]
        gives = [self._gathered(loop) for loop in loops]
        if any(len(read) != 1 for read in reads) or any(len(give) > 1 for give in gives):
            return
        exchanged = {self._exchanged(self._producer(read[0])) for read in reads}
        for source in (source for give in gives for source in give):
            reading = [node for node in self.stated.readers.get(source, ()) if not _TRAINING.search(node.name)]
            exchanged |= {self._exchanged(node) for node in reading} or exchanged
        if len(exchanged) == 1 and None not in exchanged:
            self.batch_first[name] = exchanged == {True}
        outputs = {give[0]: "tbu" for give in gives if give}
        if len(loops) > 1:
            both = f"{name}/the directions of a layer"
            self._directions[both], outputs = [give[0] if give else f"{both}, which nothing reads" for give in gives], {both: "dtbh"}
        entered = [node for loop in loops for node in self._entered[loop]]
        begins = [output(node.inputs[0]) for node in entered if not node.number("is_constant", 0) and self._is_state(node)]
        self.homes[name] = RecurrentCall(
            (reads[0][0], "tbi"),
            outputs,
            CallSizes(stack.layers[-1].directions[0].output_size, directions=len(loops), width=stack.input_size),
            {output(end.name): "the final states" for loop in loops for end in self.frames.exits(loop)},
            begins,
            [output(value) for loop in loops for value in self._lengths(loop)],
        )

    def _exchanged(self, node: GraphDefNode | None) -> bool | None:
        """Return whether an operation exchanges time and batch, as dynamic_rnn does without time_major; None for another order of axes."""
        if node is None or node.op != "Transpose":
            return False
        order = self._producer(node.inputs[1])
        if order is not None and order.op == "ConcatV2":  # [1, 0] and the axes behind, counted by the rank
            order = self._producer(order.inputs[0])
        axes = order.tensor if order is not None else None
        return True if axes is not None and [*axes.reshape(-1)[:2]] == [1, 0] else None

    def _scattered(self, enters: Sequence[GraphDefNode]) -> list[str]:
        """Return the sequences that a loop reads."""
        before = [self._producer(node.inputs[0]) for node in enters if node.inputs]
        scattered = [node.read[_SCATTERED[node.op]] for node in before if node is not None and node.op in _SCATTERED]
        return [*dict.fromkeys(map(output, scattered))]

    def _gathered(self, frame: str) -> list[str]:
        """Return the sequences that a loop gives."""
        waiting = [output(end.name) for end in self.frames.exits(frame)]
        gathered: dict[str, None] = {}
        for source in waiting:
            for node in self.stated.readers.get(source, ()):
                if node.op in _GATHERED and not _TRAINING.search(node.name):
                    gathered[output(node.name)] = None
                elif node.op == "Identity":  # a While's outputs pass one each
                    waiting.append(output(node.name))
        return [*gathered]

    def _is_state(self, enter: GraphDefNode) -> bool:
        before = self._producer(enter.inputs[0]) if enter.inputs else None
        return before is not None and not before.op.startswith("TensorArray") and enter.number("T", 1) in (1, 2, 14, 19)

    def _lengths(self, frame: str) -> list[str]:
        """Return the values with which the steps of a loop are compared: _copy_some_through of rnn.py."""
        lengths = []
        for node in self.frames.inside(frame).values():
            enter = self._producer(node.read[1]) if node.op == "GreaterEqual" and len(node.read) == 2 else None
            if enter is not None and enter.op == "Enter" and enter.inputs:
                lengths.append(enter.inputs[0])
        return lengths
