"""The while loops of TensorFlow 1: Enter, Merge, LoopCond, Switch, NextIteration and Exit, with the name of a frame."""

from __future__ import annotations

from collections.abc import Mapping

from rnnconvert.containers.graph_def import GraphDef
from rnnconvert.containers.graph_def_node import GraphDefNode


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
        merges = [node for node in inside.values() if node.op == "Merge"]
        ends = [node for node in inside.values() if node.op == "LoopCond"]
        if len(ends) != 1 or not ends[0].inputs or any(node.op == "Enter" and node.text("frame_name") != frame for node in inside.values()):
            return None
        for merge in merges:
            before = [inside.get(_name(source)) for source in merge.inputs[:2]]
            if [source_node.op if source_node is not None and source_node.inputs else "" for source_node in before] != [
                "Enter",
                "NextIteration",
            ]:
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


def _name(source: str) -> str:
    return source.partition(":")[0]
