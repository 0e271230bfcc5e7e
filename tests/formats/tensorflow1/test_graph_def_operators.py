"""Operations of TensorFlow that move elements: parts along an axis, in order and not, and an axis that is stated last."""

from __future__ import annotations

from pathlib import Path

import pytest

from rnnconvert.containers import wire
from rnnconvert.containers.graph_def import GraphDef
from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.core.weights import Directly, Reads, Through
from rnnconvert.formats.tensorflow1.lowering import GraphDefLowering
from rnnconvert.graphs.graph import CallSizes
from rnnconvert.recognition.flow import RecurrentCall
from rnnconvert.recognition.lowered import received_in


def integer(number: int) -> memoryview:
    """An AttrValue of a number."""
    return memoryview(wire.varint(3 << 3) + wire.varint(number))


def constant(name: str, number: int) -> GraphDefNode:
    """A stored number."""
    tensor = wire.varint(1 << 3) + wire.varint(3) + wire.field(2, b"") + wire.varint(7 << 3) + wire.varint(number % (1 << 64))
    return GraphDefNode(Path("g.pb"), name, "Const", (), {"value": memoryview(wire.field(8, tensor))})


def reads(parts: tuple[int, ...], axis: int) -> Reads:
    """What a layer b reads of a layer a, when its four units are split into two and joined from some of the parts."""
    joined = tuple(f"p:{part}" for part in parts)
    nodes = [
        constant("way", 2),
        constant("axis", axis),
        GraphDefNode(Path("g.pb"), "p", "Split", ("way", "a"), {"num_split": integer(2)}),
        GraphDefNode(Path("g.pb"), "c", "ConcatV2", (*joined, "axis"), {}),
    ]
    lowering = GraphDefLowering(GraphDef({node.name: node for node in nodes}), {"x": ["time", "batch", 3]})
    homes = [
        ("a", RecurrentCall(("x", "tbi"), {"a:0": "tbu"}, CallSizes(4, width=3), {})),
        ("b", RecurrentCall(("c:0", "tbi"), {"b:0": "tbu"}, CallSizes(4, width=2 * len(parts)), {})),
    ]
    (call,) = received_in(lambda: lowering.program(Path("g.pb")), homes)["b"]
    return call.sequence


@pytest.mark.parametrize("axis", [2, -1])
def test_parts_in_order_are_nothing_between(axis: int) -> None:
    assert reads((0, 1), axis) == Directly(("a",))


@pytest.mark.parametrize(("parts", "axis"), [((1, 0), 2), ((0, 0), -1), ((0, 1), 1), ((0, 1), 0), ((1,), 2)])
def test_parts_that_are_swapped_repeated_dropped_or_side_by_side_elsewhere_are_a_change(parts: tuple[int, ...], axis: int) -> None:
    assert isinstance(reads(parts, axis), Through)


def test_a_part_that_nothing_reads_keeps_its_place() -> None:
    assert isinstance(reads((1, 1), 2), Through)
    assert isinstance(reads((1,), 2), Through)
