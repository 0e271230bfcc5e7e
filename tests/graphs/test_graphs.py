"""The graph floor: where each element comes from decides what a layer reads."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rnnconvert.core.weights import INPUT, Call, Directly, Input, Reads, Through, Unknown
from rnnconvert.graphs import moves, trace
from rnnconvert.graphs.between import calls, origin
from rnnconvert.graphs.graph import CallSizes, Graph
from rnnconvert.graphs.operators import SAME, Applied, Casts, ChangesError, Computes, Dialect, Measures, Moves


def _off(applied: Applied) -> Any:
    if applied.attributes.get("on"):
        raise ChangesError("Dropout that is on")
    return applied.input(0)


DIALECT: Dialect = {
    "Same": SAME,
    "Dropout": Moves(_off),
    "Transpose": Moves(lambda applied: applied.input(0).transpose(applied.attributes["order"])),
    "Reshape": Moves(lambda applied: moves.reshape(applied.input(0), applied.integers(1))),
    "Take": Moves(lambda applied: moves.take(applied.input(0), applied.input(1), applied.attributes["axis"])),
    "Concat": Moves(lambda applied: moves.concatenate(applied.arrays, applied.attributes["axis"]), None),
    "Split": Moves(lambda applied: moves.split(applied.input(0), applied.attributes["axis"], 2)),
    "Flip": Moves(lambda applied: moves.reverse(applied.input(0), [applied.attributes["axis"]])),
    "Pad": Moves(lambda applied: np.pad(applied.input(0), [(0, 1), (0, 0), (0, 0)])),
    "Shape": Measures(lambda applied: np.array(applied.input(0).shape)),
    "Cast": Casts(lambda applied: np.dtype(applied.attributes["to"])),
    "Relu": Computes(),
    "Add": Computes(lambda applied: applied.input(0) + applied.input(1)),
}


def two(build: Callable[[Graph], None], dims: Any = ("time", "batch", 3), dtype: Any = np.float32) -> Reads:
    """What layer b reads: a has two directions of two units, and gives y (time, directions, batch, units) and h."""
    graph = Graph(DIALECT)
    graph.describe("x", dims)
    graph.call("a", ("x", "tbi"), {"y": "tdbh"}, {"h": "the final state"}, sizes=CallSizes(2, directions=2, dtype=np.dtype(dtype)))
    graph.add("Transpose", ["y"], ["t"], {"order": (0, 2, 1, 3)})
    graph.constant("shape", np.array([0, 0, -1]))
    graph.add("Shape", ["x"], ["lengths"])
    graph.constant("first", np.array([0, 1]))
    graph.add("Take", ["lengths", "first"], ["two"], {"axis": 0})
    graph.constant("rest", np.array([-1]))
    graph.add("Concat", ["two", "rest"], ["shaped"], {"axis": 0})
    graph.add("Reshape", ["t", "shaped"], ["s"])
    build(graph)
    graph.call("b", ("m", "tbi"), {"z": "tdbh"}, sizes=CallSizes(4, width=4))
    return calls(graph)["b"][0].sequence


def chain(*kinds: tuple[str, dict[str, Any]], start: str = "s") -> Callable[[Graph], None]:
    def build(graph: Graph) -> None:
        for number, (kind, attributes) in enumerate(kinds):
            below, above = f"{number}" if number else start, "m" if number == len(kinds) - 1 else f"{number + 1}"
            graph.add(kind, [below], [above], attributes)

    return build


@pytest.mark.parametrize(
    "kinds",
    [
        [("Same", {})],
        [("Dropout", {})],
        [("Transpose", {"order": (1, 0, 2)}), ("Transpose", {"order": (1, 0, 2)})],
        [("Flip", {"axis": 2}), ("Same", {}), ("Flip", {"axis": 2})],
        [("Cast", {"to": "f8"}), ("Cast", {"to": "f4"})],
    ],
)
def test_what_arrives_in_place_is_read_directly(kinds: list[tuple[str, dict[str, Any]]]) -> None:
    assert two(chain(*kinds)) == Directly(("a",))


@pytest.mark.parametrize(
    ("kinds", "change"),
    [
        ([("Transpose", {"order": (1, 0, 2)})], "Transpose: time and batch are exchanged"),
        ([("Flip", {"axis": 0})], "Flip: the steps are reversed"),
        ([("Flip", {"axis": 1})], "Flip: the sequences of the batch are reversed"),
        ([("Flip", {"axis": 2})], "Flip: the units are reversed"),
        ([("Relu", {})], "Relu"),
        ([("Dropout", {"on": True})], "Dropout that is on"),
        ([("Cast", {"to": "f2"}), ("Cast", {"to": "f4"})], "Cast to float16"),
        ([("Cast", {"to": "i4"}), ("Cast", {"to": "f4"})], "Cast to int32"),
        ([("Cast", {"to": ml_dtypes.bfloat16}), ("Cast", {"to": "f4"})], "Cast to bfloat16"),
        ([("Relu", {}), ("Flip", {"axis": 0})], "Relu"),
        ([("Unheard", {})], "Unheard"),
        ([("Pad", {})], "Pad"),
    ],
)
def test_what_changes_is_named(kinds: list[tuple[str, dict[str, Any]]], change: str) -> None:
    reads = two(chain(*kinds))
    assert isinstance(reads, Through) and reads.layers == ("a",)
    assert all(word in " ".join(reads.changes) for word in change.replace(":", "").split()), reads


def test_a_layer_of_half_precision_keeps_its_numbers_in_half_precision() -> None:
    there = chain(("Cast", {"to": "f4"}), ("Cast", {"to": "f2"}))
    assert two(there, dtype=np.float16) == Directly(("a",))


def test_directions_side_by_side_in_another_order() -> None:
    def swapped(graph: Graph) -> None:
        graph.add("Split", ["s"], ["left", "right"], {"axis": 2})
        graph.add("Concat", ["right", "left"], ["m"], {"axis": 2})

    reads = two(swapped)
    assert isinstance(reads, Through) and "the halves of the units, are exchanged" in reads.changes[0]

    def twice(graph: Graph) -> None:
        graph.add("Split", ["s"], ["left", "right"], {"axis": 2})
        graph.add("Concat", ["left", "left"], ["m"], {"axis": 2})

    reads = two(twice)
    assert isinstance(reads, Through) and "left out and some of the values stand there more than once" in reads.changes[0]


def test_lengths_that_the_file_fixes_are_tried() -> None:
    for shape in ([5, 3, -1], [3, 5, -1]):

        def reshaped(graph: Graph, shape: list[int] = shape) -> None:
            graph.constant("fixed", np.array(shape))
            graph.add("Reshape", ["t", "fixed"], ["m"])

        # A batch of 3 sequences of 5 steps fits as well as one of 5 of 3: the first lengths that are tried show it as nothing.
        assert all(isinstance(two(reshaped, dims), Through) for dims in (None, ("time", "batch", 3)))

    def fixed(graph: Graph) -> None:
        graph.constant("fixed", np.array([6, 2, -1]))
        graph.add("Reshape", ["t", "fixed"], ["m"])

    assert two(fixed, (6, 2, 3)) == Directly(("a",))
    assert two(fixed, ("time", 2, 3)) == Directly(("a",))
    assert all(isinstance(two(fixed, dims), Through) for dims in (None, ("time", "batch", 3)))  # of two steps, it mixes both

    def mixed(graph: Graph) -> None:
        graph.constant("fixed", np.array([6, 2, -1]))
        graph.add("Reshape", ["y", "fixed"], ["m"])

    assert isinstance(two(mixed, (6, 2, 3)), Through)


def test_states_sums_and_constants_are_no_sequences() -> None:
    reads = two(chain(("Same", {}), start="h"))
    assert isinstance(reads, Through) and reads.changes == ("the final state of 'a'", "Same")

    def residual(graph: Graph) -> None:
        graph.add("Relu", ["s"], ["r"])
        graph.add("Add", ["s", "r"], ["m"])

    reads = two(residual)
    assert isinstance(reads, Through) and set(reads.changes) == {"Relu", "Add"}
    assert two(chain(("Relu", {}), start="x")) == Input()

    def stored(graph: Graph) -> None:
        graph.constant("m", np.zeros((5, 3, 4)))

    assert two(stored) == Input()


def test_a_layer_alone_between_input_and_output_leaves_what_it_reads_to_the_caller() -> None:
    graph = Graph(DIALECT)
    for name in "ab":
        graph.add("Transpose", [f"x{name}"], [f"t{name}"], {"order": (1, 0, 2)})
        graph.call(name, (f"t{name}", "tbi"), {f"y{name}": "tbu"}, sizes=CallSizes(4))
    assert isinstance(calls(graph)["b"][0].sequence, Unknown)
    graph.add("Add", ["ya", "yb"], ["sum"])
    assert calls(graph)["b"][0].sequence == Input()


def test_every_call_of_a_layer_is_listed() -> None:
    graph = Graph(DIALECT)
    graph.describe("x", ("time", "batch", 4))
    for number, name in enumerate("aba"):
        graph.call(name, (f"{number}" if number else "x", "tbi"), {f"{number + 1}": "tbu"}, sizes=CallSizes(4))
    received = calls(graph)
    assert [call.sequence for call in received["a"]] == [Input(), Directly(("b",))]
    assert received["b"] == (Call(Directly(("a",))),)


def test_layers_side_by_side_are_named_in_their_order() -> None:
    graph = Graph(DIALECT)
    graph.describe("x", ("time", "batch", 4))
    graph.call("left", ("x", "tbi"), {"l": "tbu"}, sizes=CallSizes(2))
    graph.add("Flip", ["x"], ["turned"], {"axis": 0})
    graph.call("right", ("turned", "tbi"), {"r": "tbu"}, sizes=CallSizes(2))
    for order in itertools.permutations("lr"):
        joined = "".join(order)
        graph.add("Concat", order, [joined], {"axis": 2})
        graph.call(joined, (joined, "tbi"), {joined.upper(): "tbu"}, sizes=CallSizes(4))
    received = calls(graph)
    assert received["lr"][0].sequence == Directly(("left", "right"))
    assert received["rl"][0].sequence == Directly(("right", "left"))


def test_a_graph_that_goes_in_circles_ends() -> None:
    graph = Graph(DIALECT)
    graph.add("Add", ["m", "n"], ["n"])
    graph.add("Add", ["n", "m"], ["m"])
    graph.call("b", ("m", "tbi"), {"z": "tbu"}, sizes=CallSizes(4))
    assert calls(graph)["b"][0].sequence == Input()


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be followed within the budget is not read directly."""
    assert two(chain(("Same", {}))) == Directly(("a",))
    monkeypatch.setattr(trace, "PUSHED_ELEMENTS", 10)
    assert isinstance(two(chain(("Same", {}))), Through)
    monkeypatch.undo()
    monkeypatch.setattr(trace, "PUSHED_OPERATORS", 3)
    assert isinstance(two(chain(("Same", {}))), Through)


def test_where_states_come_from() -> None:
    graph = Graph(DIALECT)
    graph.call("a", ("x", "tbi"), {"y": "tbu"}, {"h": "the final state"}, sizes=CallSizes(4))
    graph.constant("zero", np.zeros(()))
    graph.add("Shape", ["x"], ["lengths"])
    graph.add("Reshape", ["zero", "lengths"], ["zeros"])
    graph.add("Same", ["h0"], ["copy"])
    graph.add("Relu", ["h0"], ["made"])
    graph.add("Relu", ["h"], ["handed"])
    words = {key: origin(graph, graph.value(key)) for key in ("zeros", "copy", "made", "h", "handed")}
    assert words == {
        "zeros": "", "copy": INPUT, "made": "computed by Relu", "h": "the final state of 'a'", "handed": "the final state of 'a'",
    }  # fmt: skip


@pytest.mark.parametrize(
    "move",
    [
        lambda array: moves.cut(array, [0], [50]),
        lambda array: moves.cut(array, [-50], [None]),
        lambda array: moves.cut(array, [-1], [-50], [-1]),
    ],
)
def test_what_does_nothing_to_short_sequences_alone_is_a_change(move: Callable[[Any], Any]) -> None:
    with pytest.raises(ChangesError):
        move(np.arange(15).reshape(3, 5))


@pytest.mark.parametrize(
    "move",
    [
        lambda array: moves.cut(array, [0, 0], [3, (1 << 31) - 1]),
        lambda array: moves.cut(array, [0], [None]),
        lambda array: moves.cut(moves.cut(array, [-1], [-4], [-1]), [-1], [-(1 << 31)], [-1]),
    ],
)
def test_what_does_nothing_to_any_sequence_is_none(move: Callable[[Any], Any]) -> None:
    array = np.arange(15).reshape(3, 5)
    assert np.array_equal(move(array), array)
