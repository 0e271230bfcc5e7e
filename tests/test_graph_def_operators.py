"""Elements pushed through the operations of a graph_def: parts along an axis, in order and not, and an axis that is stated last."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.core.weights import Directly, Reads, Through
from rnnconvert.graphs import Graph, calls
from rnnconvert.graphs.graph import CallSizes
from rnnconvert.graphs.graph_def import DIALECT, NODE


def reads(parts: tuple[int, ...], axis: int, outputs: tuple[str | None, ...] = ("p:0", "p:1")) -> Reads:
    """What a layer b reads of a layer a, when its four units are split into two and joined from some of the parts."""
    graph = Graph(DIALECT)
    graph.describe("x", ["time", "batch", 3])
    graph.call("a", ("x", "tbi"), {"a:0": "tbu"}, sizes=CallSizes(4, width=3))
    for name, number in (("way", 2), ("axis", axis)):
        graph.constant(name, np.array(number))
    two = memoryview(b"\x18\x02")  # AttrValue.i = 2
    graph.add("Split", ["way", "a:0"], list(outputs), {NODE: GraphDefNode(Path("g.pb"), "p", "Split", (), {"num_split": two})})
    joined = [f"p:{part}" for part in parts]
    graph.add("ConcatV2", [*joined, "axis"], ["c:0"], {NODE: GraphDefNode(Path("g.pb"), "c", "ConcatV2", (), {})})
    graph.call("b", ("c:0", "tbi"), {"b:0": "tbu"}, sizes=CallSizes(4, width=2 * len(parts)))
    (call,) = calls(graph)["b"]
    return call.sequence


@pytest.mark.parametrize("axis", [2, -1])
def test_parts_in_order_are_nothing_between(axis: int) -> None:
    assert reads((0, 1), axis) == Directly(("a",))


@pytest.mark.parametrize(("parts", "axis"), [((1, 0), 2), ((0, 0), -1), ((0, 1), 1), ((0, 1), 0), ((1,), 2)])
def test_parts_that_are_swapped_repeated_dropped_or_side_by_side_elsewhere_are_a_change(parts: tuple[int, ...], axis: int) -> None:
    assert isinstance(reads(parts, axis), Through)


def test_a_part_that_nothing_reads_keeps_its_place() -> None:
    assert isinstance(reads((1, 1), 2, (None, "p:1")), Through)
    assert isinstance(reads((1,), 2, (None, "p:1")), Through)
