"""The calls of the recurrent layers of a SavedModel: the function that runs the model, with the operators of each layer taken together.

A layer's operators are in a separate scope: see rnnconvert.formats.keras.saved_graph. Operators that do not look as Keras builds them are
left open, or count as a change.

Source: keras/src (3.15), layers/rnn/{rnn,bidirectional}.py and backend/tensorflow/rnn.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from rnnconvert.containers.graph_def import WHILES, GraphDef, GraphDefFunction
from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.core.arrays import Array
from rnnconvert.core.names import is_count
from rnnconvert.core.weights import Call, Recurrent, Unknown
from rnnconvert.formats.keras.model.layered_calls import dims_of, longest
from rnnconvert.formats.keras.saved_graph import JOINING, SavedGraph
from rnnconvert.formats.tensorflow1.lowering import GraphDefLowering
from rnnconvert.graphs.graph import UNFOLLOWED, CallSizes
from rnnconvert.recognition.flow import RecurrentCall
from rnnconvert.recognition.lowered import received_in

_RANDOM = re.compile(r"(Stateless|Stateful)?(Random|TruncatedNormal|Multinomial)", re.S)

_TRUTHS = ("Any", "All", "NotEqual", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "LogicalNot")
"""Operators that give what masks are: true or false."""
_REPEATED = "a loop or a branch of the model runs it"

Calls = Mapping[str, tuple[Call, ...]]


def received(saved: SavedGraph, paths: Mapping[str, str], layers: Mapping[str, Recurrent]) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each layer; Unknown where the graph does not show them.

    paths  of the layers' variables
    """
    scopes = {scope: name for name, path in paths.items() for scope in saved.scopes(path)}
    seen: list[Calls] = []
    for function in saved.parts:
        here = {scope: name for scope, name in scopes.items() if _runs(function, scope, layers[name])}
        if here and saved.is_repeated(function):
            seen.append(dict.fromkeys(here.values(), (Call(Unknown(_REPEATED, stated=True)),)))
        elif here:
            seen.append(_calls(function, here, layers, saved))
    return {name: _agreed(name, [calls_ for calls_ in seen if name in calls_]) for name in layers}


def _agreed(name: str, seen: Sequence[Calls]) -> tuple[Call, ...]:
    """Return the calls of a layer on which all functions that run it agree."""
    several = {calls_[name] for calls_ in seen}
    if len(several) == 1:
        return several.pop()
    why = "the functions of the SavedModel call it differently" if several else "the graph of the SavedModel does not show it"
    return (Call(Unknown(why)),)


def _runs(function: GraphDefFunction, scope: str, layer: Recurrent) -> bool:
    """Return whether a function has a layer's operators: not only the operators of the layer's loop, nor of a model called like it."""
    names = [name for name in function.nodes if name.startswith(f"{scope}/")]
    loops = sum(function.nodes[name].op in WHILES for name in names)
    outside = any("/while/" not in name[len(scope) :] for name in names)
    return outside and loops in (0, len(layer.layers[0].directions))


def _calls(function: GraphDefFunction, scopes: Mapping[str, str], layers: Mapping[str, Recurrent], saved: SavedGraph) -> Calls:
    most = longest([layers[name].layers[-1].output_size for name in scopes.values()])
    shapes = {
        argument: dims_of([None if size < 0 else size for size in shape], argument, most) for argument, shape in function.shapes.items()
    }
    owner = {name: scope for name in function.nodes if (scope := _scope_of(name, scopes))}
    read: dict[str, list[str]] = {}
    for source in (*(source for node in function.nodes.values() for source in node.read), *function.outputs):
        read.setdefault(_maker(source), []).append(source)
    nodes = {
        name: replace(node, op="a variable", inputs=()) if node.op == "ReadVariableOp" else node  # a number that no input decides
        for name, node in function.nodes.items()
        if name not in owner or node.op in ("Const", "ReadVariableOp")
    }
    lowering = GraphDefLowering(GraphDef(nodes), {argument: shapes.get(argument) for argument in function.inputs})
    homes = [
        (name, _SavedCall(function, scope, owner).call(layers[name], read, _is_random(saved, scope), lowering.value))
        for scope, name in scopes.items()
    ]
    return received_in(lambda: lowering.program(saved.path), homes)


def _scope_of(name: str, scopes: Mapping[str, str]) -> str:
    words = name.split("/")
    return next((scope for count in range(1, len(words)) if (scope := "/".join(words[:count])) in scopes), "")


def _maker(source: str) -> str:
    return source.partition(":")[0]


def _place(source: str) -> tuple[str, int]:
    name, _, number = source.rpartition(":")
    return (name, int(number)) if is_count(number) else (source, 0)


def _is_random(saved: SavedGraph, scope: str) -> bool:
    return any(_RANDOM.match(node.op) for function in saved.parts for node in function.nodes.values() if node.name.startswith(f"{scope}/"))


class _SavedCall:
    """The operators of one call of a layer."""

    def __init__(self, function: GraphDefFunction, scope: str, owner: Mapping[str, str]) -> None:
        self._function, self._scope, self._owner = function, scope, owner

    def call(self, stack: Recurrent, read: Mapping[str, Sequence[str]], random: bool, value: Callable[[str], str]) -> RecurrentCall:
        """Return the call of the layer, with its inputs and outputs.

        read    the outputs that are read of each operation
        random  whether one of its operators draws random numbers
        value   gives the name that a value has in the program
        """
        nodes = [node for node in self._function.nodes.values() if self._owner.get(node.name) == self._scope]
        outer = dict.fromkeys(source for node in nodes for source in node.read if self._is_from_outside(source))
        sequence = self._sequence(nodes, list(outer))
        last = stack.layers[-1]
        outputs: dict[str, str] = {}
        states: dict[str, str] = {}
        for node in nodes:
            for source in sorted(set(read.get(node.name, ())), key=_place):
                if not self._is_read_outside(source):
                    continue
                if self._is_whole(node, last.merge if len(last.directions) > 1 else ""):
                    outputs[value(source)] = "btu"
                else:
                    states[value(source)] = "the last output, or a state or a part,"
        others = [source for source in outer if source != sequence]
        words = " and ".join(repr(source.partition(":")[0]) for source in others)
        masked = bool(others) and all(self._is_truth(source) for source in others)
        return RecurrentCall(
            (value(sequence) if sequence else f"{self._scope} reads nothing", "bti"),
            outputs,
            CallSizes(
                last.directions[0].output_size, directions=len(last.directions) if last.merge == "concat" else 1, width=stack.input_size
            ),
            states,
            besides=Call(
                UNFOLLOWED,
                "" if masked else words,
                f"that of {words}" if masked else "",
                random="its operators draw random numbers" if random else "",
            ),
        )

    def _is_from_outside(self, source: str) -> bool:
        node = self._function.nodes.get(_maker(source))
        if node is None:
            return source not in self._function.resources
        return node.op != "Const" and self._owner.get(node.name) != self._scope

    def _is_truth(self, source: str) -> bool:
        node = self._function.nodes.get(_maker(source))
        return node is not None and node.op in _TRUTHS

    def _is_read_outside(self, source: str) -> bool:
        return source in self._function.outputs or any(
            source in node.read and self._owner.get(node.name) != self._scope for node in self._function.nodes.values()
        )

    def _sequence(self, nodes: Sequence[GraphDefNode], outer: Sequence[str]) -> str:
        """Return the value that is read as a sequence: the one whose first two axes are exchanged."""
        turned = {node.read[0] for node in nodes if node.op == "Transpose" and node.read[0] in outer}
        if len(turned) == 1:
            return turned.pop()
        if len(outer) == 1:
            return outer[0]
        return ""

    def _is_whole(self, node: GraphDefNode, merge: str) -> bool:
        """Return whether a value is the layer's outputs at all steps, one after the other."""
        if not merge:
            return self._is_stacked(node)
        leaves = list(self._leaves(node))
        if len(leaves) != 2 or node.name.rpartition("/")[0] != self._scope:
            return False
        forward, backward = leaves
        axis = self._constant(node.read[-1]) if node.op == "ConcatV2" else None
        if (merge == "concat") != (axis is not None and axis.reshape(-1)[0] in (2, -1)):
            return False
        before = self._function.nodes.get(_maker(backward.read[0])) if backward.op == "ReverseV2" else None
        turned = self._constant(backward.read[1]) if before is not None else None
        return (
            before is not None
            and turned is not None
            and turned.reshape(-1).tolist() == [1]
            and self._is_stacked(forward)
            and self._is_stacked(before)
        )

    def _leaves(self, node: GraphDefNode, depth: int = 0) -> Iterator[GraphDefNode]:
        """Yield the nodes from which the outputs of two directions are joined."""
        if node.op not in JOINING or depth > 3:
            yield node
            return
        for source in node.read[:2]:
            inner = self._function.nodes.get(_maker(source))
            if inner is not None and inner.op != "Const":
                yield from self._leaves(inner, depth + 1)

    def _is_stacked(self, node: GraphDefNode) -> bool:
        """Return whether a node exchanges time and batch of what a loop gave at each step."""
        turn = self._constant(node.read[1]) if node.op == "Transpose" and len(node.read) == 2 else None
        if turn is None or turn.reshape(-1).tolist() != [1, 0, 2]:
            return False
        listed = self._function.nodes.get(_maker(node.read[0]))
        loop = self._function.nodes.get(_maker(listed.read[0])) if listed is not None and listed.read else None
        return (
            listed is not None
            and listed.op == "TensorListStack"
            and loop is not None
            and loop.op in WHILES
            and self._owner.get(loop.name) == self._scope
        )

    def _constant(self, source: str) -> Array | None:
        node = self._function.nodes.get(_maker(source))
        return node.tensor if node is not None and node.op == "Const" else None
