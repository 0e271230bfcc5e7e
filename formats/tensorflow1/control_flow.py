"""Conditions of a graph whose truth is known, of which only the branch that is taken stays; and the loops of frames.

What dropout is applied to that drops nothing stays alone, too. A loop of TensorFlow 1 is Enter, Merge, LoopCond, Switch, NextIteration
and Exit, with the name of a frame.

Source: tensorflow/core/common_runtime/executor.cc: what reads a value of a branch that is not taken is not run, but for a Merge,
which hands on the value that there is; python/ops/cond_v2.py for If.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from rnnconvert.containers.graph_def import GraphDef
from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.containers.tensor_bundle import TYPES
from rnnconvert.files.adapter import unique
from rnnconvert.formats.tensorflow1.dropouts import Dropouts
from rnnconvert.formats.tensorflow1.operations import PASSING

BRANCHES = ("If", "StatelessIf")
"""Conditions with functions."""


class Conditions:
    """The truths of a graph, and the numbers that decide its dropout.

    placeholders  those that a caller states of inputs, by their names
    asked         the inputs that have a part in each condition, by the name of its operation
    draws         the input that decides what dropout draws, and its value for nothing dropped, likewise
    """

    def __init__(self, graph: GraphDef, placeholders: Mapping[str, bool | float] = MappingProxyType({})) -> None:
        self._graph, self._placeholders = graph, placeholders
        self._dropouts = Dropouts(graph.nodes, placeholders)
        self.draws = self._dropouts.draws
        self.asked: dict[str, list[str]] = {}
        self._truths: dict[str, tuple[bool | None, list[str]]] = {}
        self._decisions = {node.name: truth for node in graph.nodes.values() if (truth := self._decision(node)) is not None}

    @property
    def decided_by(self) -> set[str]:
        """The inputs of the caller's that decide something."""
        asked = {name for names in self.asked.values() for name in names} | {name for name, _ in self.draws.values()}
        return asked & self._placeholders.keys()

    def decided(self) -> GraphDef:
        """Return the graph without what it never computes, with what a caller states as constants for all that reads it."""
        nodes = self._branches()
        # A condition may decide a probability, too.
        nothing = (self._dropouts if nodes is self._graph.nodes else Dropouts(nodes, self._placeholders)).nothing
        if not nothing:
            return self._graph if nodes is self._graph.nodes else GraphDef(nodes, self._graph.functions)
        written = {name: replace(node, op="Identity", inputs=(nothing[name],)) if name in nothing else node for name, node in nodes.items()}
        return GraphDef(_needed(written, nodes), self._graph.functions)

    def _branches(self) -> dict[str, GraphDefNode]:
        """Return the operations of the branches that are taken, with what a caller states as constants."""
        nodes, decisions, stated = self._graph.nodes, self._decisions, self.decided_by
        if not decisions and not stated:
            return nodes
        switches = {name for name in decisions if nodes[name].op == "Switch"}
        dead = self._dead({f"{name}:{int(not decisions[name])}" for name in switches})
        written, places = {}, {}  # places: which of its values a Merge hands on, its second output
        for node in nodes.values():
            if f"^{node.name}" in dead:
                continue
            alive = [source for source in node.inputs if _key(source) not in dead]
            if node.op == "Merge" and len(live := [n for n, source in enumerate(node.read) if source in alive]) == 1 < len(node.read):
                name = unique(f"{node.name}/place", nodes)
                places[f"{node.name}:1"] = replace(node, name=name, op="Const", inputs=(), stored=np.array(live[0], np.int32))
            sources = tuple(_name(source) if source[:1] != "^" and _name(source) in switches else source for source in alive)
            written[node.name] = replace(node, inputs=sources)
            if node.name in stated:
                dtype = TYPES.get(int(node.number("dtype", 1)), TYPES[1])
                written[node.name] = replace(node, op="Const", inputs=(), stored=np.array(self._placeholders[node.name], dtype))
            elif node.name in switches:
                written[node.name] = replace(node, op="Identity", inputs=sources[:1])
            elif f"{node.name}:1" in places:
                written[node.name] = replace(node, op="Identity", inputs=sources)
            elif node.name in decisions:
                called = node.attributes.get("then_branch" if decisions[node.name] else "else_branch", memoryview(b""))
                function = {**node.attributes, "f": called}
                written[node.name] = replace(node, op="PartitionedCall", inputs=sources[1:], attributes=function)
        for reader in [*written.values()] if places else ():
            for place in [places[source] for source in reader.inputs if source in places]:
                reader = replace(reader, inputs=tuple(place.name if places.get(source) is place else source for source in reader.inputs))
                written |= {place.name: place, reader.name: reader}
        return _needed(written, nodes)

    def _decision(self, node: GraphDefNode) -> bool | None:
        """Return the truth of a condition; None where it is not known, and for other operations."""
        place = {"Switch": 1, **dict.fromkeys(BRANCHES, 0)}.get(node.op)
        if place is None or len(node.read) <= place:
            return None
        self.asked[node.name] = []
        return self._truth(node.read[place], self.asked[node.name], 0)

    def _truth(self, source: str, asked: list[str], depth: int) -> bool | None:
        """Return the truth of a value, None where it is not known, and add the inputs that have a part in it."""
        name = _name(source)
        if name not in self._truths:
            self._truths[name] = None, []  # of a value that reads itself nothing is known
            inputs: list[str] = []
            truth = self._computed(name, inputs, depth + 1) if depth < _DEEP else None
            self._truths[name] = truth, [*dict.fromkeys(inputs)][:_MOST]
        truth, inputs = self._truths[name]
        asked += inputs
        return truth

    def _computed(self, name: str, asked: list[str], depth: int) -> bool | None:
        node = self._graph.nodes.get(name)
        if node is None:
            return None
        if node.op == "Const":
            array = node.tensor
            return bool(array) if array is not None and not array.shape and array.dtype == bool else None
        if node.shape("shape"):
            return None  # of several truths, or of a list of one, If asks whether there are any
        if name in self._placeholders or node.op in ("Placeholder", "PlaceholderV2"):
            asked.append(name)
            truth = self._placeholders.get(name)
            return truth if isinstance(truth, bool) else None
        if node.op in (*PASSING, "Enter", "Switch") and node.read:
            if node.op == "PlaceholderWithDefault":
                asked.append(name)
            return self._truth(node.read[0], asked, depth)
        truths = [self._truth(each, asked, depth) for each in node.read[:2]] if node.op.startswith("Logical") else []
        if node.op == "LogicalNot" and len(truths) == 1:
            return None if truths[0] is None else not truths[0]
        if node.op in ("LogicalAnd", "LogicalOr") and len(truths) == 2:
            decisive = node.op == "LogicalOr"
            return decisive if decisive in truths else None if None in truths else not decisive
        return None

    def _dead(self, values: set[str]) -> set[str]:
        """Return the values that are never computed, and the operations, since they read some that are not."""
        readers: dict[str, list[GraphDefNode]] = {}
        read: dict[str, set[str]] = {}
        for node in self._graph.nodes.values():
            for source in node.inputs:
                readers.setdefault(_key(source), []).append(node)
                read.setdefault(_name(source), set()).add(_key(source))
        waiting = [*values]
        while waiting:
            for node in readers.get(waiting.pop(), ()):
                if f"^{node.name}" in values or (node.op == "Merge" and not all(_key(source) in values for source in node.read)):
                    continue
                new = {f"^{node.name}", *read.get(node.name, ())} - values
                values |= new
                waiting += new
        return values


_DEEP = 100
"""How many operations stand between a condition and what decides it."""
_MOST = 64
"""How many inputs are named that have a part in a condition."""


def _name(source: str) -> str:
    return source.lstrip("^").partition(":")[0]


def _key(source: str) -> str:
    """Return how a value is spelled with its number, or an operation that is waited for with "^"."""
    return source if source[:1] == "^" or ":" in source else f"{source}:0"


class Frames:
    """The loops of a graph, by the names of their frames."""

    def __init__(self, graph: GraphDef) -> None:
        readers: dict[str, list[GraphDefNode]] = {}
        for node in graph.nodes.values():
            for source in node.inputs:
                readers.setdefault(_name(source.lstrip("^")), []).append(node)
        self._inside: dict[str, dict[str, GraphDefNode]] = {}
        self._frame: dict[str, str] = {}
        self._exits: dict[str, list[GraphDefNode]] = {}
        for node in graph.nodes.values():
            if node.op != "Enter":
                continue
            frame = node.text("frame_name")
            inside = self._inside.setdefault(frame, {})
            waiting = [node]
            while waiting:
                visited = waiting.pop()
                if visited.name in inside or visited.op == "Exit":
                    continue
                inside[visited.name] = visited
                self._frame.setdefault(visited.name, frame)
                waiting += readers.get(visited.name, ())
        for node in graph.nodes.values():
            if node.op == "Exit":
                self._exits.setdefault(self.of(node), []).append(node)

    def holds(self, name: str) -> bool:
        """Return whether an operation is one of a loop's."""
        return name in self._frame

    def of(self, end: GraphDefNode) -> str:
        """Return the loop that an Exit leaves, or ""."""
        return self._frame.get(_name(end.inputs[0]), "") if end.inputs else ""

    def inside(self, frame: str) -> Mapping[str, GraphDefNode]:
        """Return the operations of a loop."""
        return self._inside.get(frame, {})

    def exits(self, frame: str) -> list[GraphDefNode]:
        """Return the nodes by which values leave a loop."""
        return self._exits.get(frame, [])

    def enters(self, frame: str) -> list[GraphDefNode]:
        """Return the nodes by which values enter a loop."""
        return [node for node in self.inside(frame).values() if node.op == "Enter" and node.text("frame_name") == frame]

    def parts(self, frame: str) -> tuple[list[GraphDefNode], dict[str, str], str] | None:
        """Return the merges of a loop, the switch behind each of them, and what decides whether it goes on.

        None for a loop that has another one inside, or other parts than TensorFlow gives it.
        """
        inside = self.inside(frame)
        merges = []
        for node in inside.values():
            before = [source.op for name in map(_name, node.inputs[:2]) if (source := inside.get(name)) is not None and source.inputs]
            if node.op == "Merge" and before == ["Enter", "NextIteration"]:
                merges.append(node)
            elif node.op == "Merge" and {"Enter", "NextIteration"} & {*before}:
                return None  # any other is the end of a condition
        ends = [node for node in inside.values() if node.op == "LoopCond"]
        if len(ends) != 1 or not ends[0].inputs or any(node.op == "Enter" and node.text("frame_name") != frame for node in inside.values()):
            return None
        begun = {_name(merge.inputs[0]) for merge in merges}
        if any((enter.name in begun) == bool(enter.number("is_constant", 0)) for enter in self.enters(frame)):
            return None  # a state that is given again at each step, or a value that only the first step has
        switches = {
            _name(node.inputs[0]): node.name
            for node in inside.values()
            if node.op == "Switch" and len(node.inputs) > 1 and _name(node.inputs[1]) == ends[0].name
        }
        return merges, switches, ends[0].inputs[0]


def _needed(written: Mapping[str, GraphDefNode], before: Mapping[str, GraphDefNode]) -> dict[str, GraphDefNode]:
    """Return what the outputs of the operations before need: what only the other branch or a mask has read is not an output."""
    read = {_name(source) for node in before.values() for source in node.inputs}
    waiting, reached = [name for name in written if name not in read], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [source for source in map(_name, written[name].inputs) if source in written]
    return {name: node for name, node in written.items() if name in reached}
