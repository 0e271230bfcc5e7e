"""TensorFlow 1's graphs: what operations do to the elements on their way from one recurrent layer to the next.

A layer of dynamic_rnn is a while loop: it reads what is scattered into a TensorArray, the time first, and gives what is gathered.

Source (1.15.5): tensorflow/core/ops/array_ops.cc and the kernels; python/ops/rnn.py, _dynamic_rnn_loop and bidirectional_dynamic_rnn;
python/ops/tensor_array_ops.py. An operation that a library of the user's registers has a name of its own: TensorFlow refuses one twice.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from rnnconvert.containers.graph_def import GraphDef as Stated
from rnnconvert.containers.graph_def import output
from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Call, Recurrent, Unknown
from rnnconvert.formats.tensorflow1.frames import Frames
from rnnconvert.graphs import Applied, Graph, LayerCall, Moves, received
from rnnconvert.graphs import calls as followed
from rnnconvert.graphs.graph import CallSizes
from rnnconvert.graphs.graph_def import DIALECT, NODE, PASSING

_TRAINING = re.compile(r"(^|/)gradients(_\d+)?/")
_WAYS = "the directions of a layer"
"""An operation that stands for none of the file."""
_FOLLOWED = 16
_SCATTERED = {"TensorArrayScatterV3": 2, "TensorListFromTensor": 0}
"""Operations that make a list of a sequence, and which of their inputs it is."""
_GATHERED = {"TensorArrayGatherV3", "TensorListStack"}
"""Operations that make a sequence of a list."""
_UNSEEN = Unknown("its graph does not show it as the loop of dynamic_rnn")


def calls(
    stated: Stated, layers: Mapping[str, tuple[Recurrent, Sequence[frozenset[str]]]]
) -> tuple[dict[str, tuple[Call, ...]], dict[str, bool]]:
    """Return what each layer receives, by its name, and of those that show it whether they are called with (batch, time, values).

    layers  the layers, each with the variables or constants of each direction
    """
    flow = _GraphDefFlow(stated, layers)
    received_calls = followed(flow.graph)
    return {name: received_calls.get(name, (Call(_UNSEEN),)) for name in layers}, flow.batch_first


class _GraphDefFlow:
    """A graph of TensorFlow's as one of the floor: values go by their names with the number of the output."""

    def __init__(self, stated: Stated, layers: Mapping[str, tuple[Recurrent, Sequence[frozenset[str]]]]) -> None:
        self.stated, self.frames, self.graph = stated, Frames(stated), Graph({**DIALECT, _WAYS: Moves(_ways)})
        self.batch_first: dict[str, bool] = {}
        nodes = [node for node in stated.nodes.values() if not _TRAINING.search(node.name)]
        entered: dict[str, list[GraphDefNode]] = {}
        for node in nodes:
            if node.op == "Enter" and not _TRAINING.search(node.text("frame_name")):
                entered.setdefault(node.text("frame_name"), []).append(node)
        layer_calls = [
            (call, loops)
            for name, (stack, ways) in layers.items()
            for call, loops in self._layer(name, stack, [self._loops(entered, arrays) for arrays in ways], entered)
        ]
        for frame, enters in entered.items():  # those of no layer
            for end in self.frames.exits(frame):
                self.graph.add("a loop", [output(node.inputs[0]) for node in enters], [output(end.name)])
        for node in nodes:
            if not self.frames.holds(node.name):
                self._add(node)
        for call, loops in layer_calls:
            enters = [node for loop in loops for node in entered[loop]]
            begin = [node.inputs[0] for node in enters if not node.number("is_constant", 0) and self._is_state(node)]
            lengths = [received.source(self.graph, output(value)) for loop in loops for value in self._lengths(loop)]
            words = " and ".join(dict.fromkeys(filter(None, lengths)))
            call.received = replace(call.received, states=received.states(self.graph, map(output, begin)), lengths=words)

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

    def _loops(self, entered: Mapping[str, Sequence[GraphDefNode]], arrays: frozenset[str]) -> list[str]:
        """Return the loops that arrays enter."""
        return [frame for frame, enters in entered.items() if any(self._origin(node) in arrays for node in enters)]

    def _layer(
        self, name: str, stack: Recurrent, ways: Sequence[Sequence[str]], entered: Mapping[str, Sequence[GraphDefNode]]
    ) -> list[tuple[LayerCall, list[str]]]:
        """Note the call of a layer; nothing where each direction is not one loop that reads and gives one sequence."""
        if any(len(loops) != 1 for loops in ways):
            return []
        loops = [way[0] for way in ways]
        reads = [self._scattered(entered[loop]) for loop in loops]
        gives = [self._gathered(loop) for loop in loops]
        if any(len(read) != 1 for read in reads) or any(len(give) > 1 for give in gives):
            return []
        exchanged = {self._exchanged(self._producer(read[0])) for read in reads}
        for source in (source for give in gives for source in give):
            reading = [node for node in self.stated.readers.get(source, ()) if not _TRAINING.search(node.name)]
            exchanged |= {self._exchanged(node) for node in reading} or exchanged
        if len(exchanged) == 1 and None not in exchanged:
            self.batch_first[name] = exchanged == {True}
        both: Hashable = (name, _WAYS)
        outputs = [give[0] if give else None for give in gives]
        self.graph.add(_WAYS, [both], outputs, {}, None, over=True)
        ends = [output(end.name) for loop in loops for end in self.frames.exits(loop)]
        call = self.graph.call(
            name,
            (reads[0][0], "tbi"),
            {both: "dtbh"},
            dict.fromkeys(ends, "the final states"),
            sizes=CallSizes(stack.layers[-1].directions[0].output_size, directions=len(ways), width=stack.input_size),
        )
        return [(call, loops)]

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
        """Return what the steps of a loop are compared with: _copy_some_through of rnn.py."""
        lengths = []
        for node in self.frames.inside(frame).values():
            enter = self._producer(node.read[1]) if node.op == "GreaterEqual" and len(node.read) == 2 else None
            if enter is not None and enter.op == "Enter" and enter.inputs:
                lengths.append(enter.inputs[0])
        return lengths

    def _add(self, node: GraphDefNode) -> None:
        first = output(node.name)
        if node.op in ("Placeholder", "PlaceholderV2"):
            shape = node.shape("shape")
            if shape is not None:
                axes = [length if length >= 0 else f"{node.name} {axis}" for axis, length in enumerate(shape)]
                self.graph.describe(first, axes or None)
            return
        if node.op == "Const":
            self.graph.constant(first, lambda: node.tensor)
            return
        outputs = [first]
        while f"{node.name}:{len(outputs)}" in self.stated.readers:
            outputs.append(f"{node.name}:{len(outputs)}")
        if node.op in ("Split", "SplitV", "Unpack"):
            count = int(node.number("num_split" if node.op != "Unpack" else "num", len(outputs)))
            outputs = [f"{node.name}:{place}" for place in range(min(max(count, 1), 1 << 12))]
        self.graph.add(node.op, [output(source) for source in node.read], outputs, {NODE: node}, node.op)


def _ways(applied: Applied) -> list[Array]:
    """Return what each loop of a layer gives: that of the second direction stays in the order in which it was computed."""
    both = applied.input(0)
    return [both[0], *(way[::-1] for way in both[1:])]
