"""ONNX: two layers with any operators between them are joined and right, or refused with what lies between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Directly, Through
from tests.helpers import drawn
from tests.helpers.onnx_graphs import in_onnxruntime

HIDDEN, STEPS, BATCH = 4, 5, 2


class Model:
    """A graph in the making: its nodes, its constants, and the name of the value that the next node reads."""

    def __init__(self, rng: np.random.Generator, names: Callable[[str], str] = str) -> None:
        self.rng, self.names = rng, names
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.functions: list[onnx.FunctionProto] = []
        self.value = "x"

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def integers(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def add(self, kind: str, *more: str, **attributes: Any) -> str:
        """Add a node that reads the present value, and more; it gives the next one."""
        inputs = [*self.value.split(), *more] if kind != "Concat" else self.value.split()
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        self.value = output
        return output

    def lstm(self, name: str, width: int, directions: int = 1, **inputs: str) -> None:
        """Add an LSTM; the next value is its whole output, (time, directions, batch, units)."""
        weights = [
            self.constant((self.rng.normal(size=(directions, 4 * HIDDEN, columns)) * 0.7).astype(np.float32)) for columns in (width, HIDDEN)
        ]
        optional = ["", inputs.get("lengths", ""), inputs.get("h", ""), inputs.get("c", "")]
        way = "bidirectional" if directions == 2 else "forward"
        output = f"v{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(
                "LSTM", [self.value, *weights, *optional], [output, f"{output}h", f"{output}c"], self.names(name), hidden_size=HIDDEN,
                direction=way,
            )
        )  # fmt: skip
        self.value = output

    def save(self, path: Path, inputs: dict[str, list[Any]] | None = None) -> Path:
        shapes = inputs or {"x": ["time", "batch", 3]}
        floats = [
            helper.make_tensor_value_info(name, TensorProto.INT32 if name == "n" else TensorProto.FLOAT, shape)
            for name, shape in shapes.items()
        ]
        end = helper.make_tensor_value_info(self.value, TensorProto.FLOAT, None)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.mine", 1)]
        graph = helper.make_graph(self.nodes, "drawn", floats, [end], self.constants)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=self.functions)
        onnx.save(model, path)
        return path


def squeezed(model: Model) -> None:
    model.add("Squeeze", model.integers(1))


def side_by_side(model: Model, directions: int) -> None:
    """What torch.onnx writes behind a layer: directions next to one another."""
    if directions == 1:
        return squeezed(model)
    model.add("Transpose", perm=[0, 2, 1, 3])
    model.add("Reshape", model.integers(0, 0, -1))


SIDES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "swapped": [("Gather", {"read": [np.array([1, 0])], "axis": 1}), ("Transpose", {"perm": [0, 2, 1, 3]})],
    "one twice": [("Gather", {"read": [np.array([0, 0])], "axis": 1}), ("Transpose", {"perm": [0, 2, 1, 3]})],
    "units interleaved": [("Transpose", {"perm": [0, 2, 3, 1]})],
    "not transposed": [],
    "time and batch": [("Transpose", {"perm": [2, 0, 1, 3]})],
}
"""What two directions go through in place of what puts them side by side."""


def gathered(axis: int) -> Callable[[Model, int, bool], None]:
    def add(model: Model, width: int, fixed: bool) -> None:
        length = {0: STEPS, 1: BATCH, 2: width}[axis]
        model.add("Gather", model.integers(*model.rng.permutation(length)), axis=axis)

    return add


def split(order: slice) -> Callable[[Model, int, bool], None]:
    def add(model: Model, width: int, fixed: bool) -> None:
        before = model.value
        parts = [f"s{len(model.nodes)}_{number}" for number in range(2)]
        model.nodes.append(helper.make_node("Split", [before], parts, axis=2))
        model.value = " ".join(parts[order])
        model.add("Concat", axis=2)

    return add


def own_function(kind: str) -> Callable[[Model, int, bool], None]:
    """A function of the model's own, called like an operator that does nothing."""

    def add(model: Model, width: int, fixed: bool) -> None:
        if not any(function.name == kind for function in model.functions):
            node = helper.make_node("Neg", ["p"], ["q"])
            model.functions.append(helper.make_function("com.mine", kind, ["p"], ["q"], [node], [helper.make_opsetid("", 17)]))
        model.add(kind, domain="com.mine")

    return add


def by_shape(model: Model, width: int, fixed: bool) -> None:
    """Reshape to a shape that is computed from the value's own, as exporters do for open lengths."""
    value = model.value
    model.add("Shape")
    model.add("Gather", model.integers(0, 1), axis=0)
    model.value += f" {model.integers(-1)}"
    shape = model.add("Concat", axis=0)
    model.value = value
    model.add("Reshape", shape)


def chain(*steps: tuple[str, dict[str, Any]]) -> Callable[[Model, int, bool], None]:
    def add(model: Model, width: int, fixed: bool) -> None:
        for kind, attributes in steps:
            constants = [model.constant(np.asarray(value)) for value in attributes.get("read", ())]
            model.add(kind, *constants, **{key: value for key, value in attributes.items() if key != "read"})

    return add


def i64(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


TRANSPOSED = ("Transpose", {"perm": [1, 0, 2]})
NOTHING: dict[str, Callable[[Model, int, bool], None]] = {
    "nothing": chain(),
    "Identity": chain(("Identity", {})),
    "Dropout": chain(("Dropout", {})),
    "Transpose twice": chain(TRANSPOSED, TRANSPOSED),
    "Unsqueeze, Squeeze": chain(("Unsqueeze", {"read": [i64(2)]}), ("Squeeze", {"read": [i64(2)]})),
    "Split, Concat": split(slice(None)),
    "Reshape to its shape": by_shape,
    "Reshape to 0, 0, -1": chain(("Reshape", {"read": [i64(0, 0, -1)]})),
    "Cast to double and back": chain(("Cast", {"to": TensorProto.DOUBLE}), ("Cast", {"to": TensorProto.FLOAT})),
    "Slice of all": chain(("Slice", {"read": [i64(0), i64(1 << 40), i64(0)]})),
    "turned twice": chain(*[("Slice", {"read": [i64(-1), i64(-(1 << 40)), i64(0), i64(-1)]})] * 2),
    "Expand to its shape": chain(("Expand", {"read": [i64(1, 1, 1)]})),
}
CHANGES: dict[str, Callable[[Model, int, bool], None]] = {
    "Transpose": chain(TRANSPOSED),
    "Relu": chain(("Relu", {})),
    "Neg": chain(("Neg", {})),
    "Cast to int": chain(("Cast", {"to": TensorProto.INT32}), ("Cast", {"to": TensorProto.FLOAT})),
    "Cast to half": chain(("Cast", {"to": TensorProto.FLOAT16}), ("Cast", {"to": TensorProto.FLOAT})),
    "Gather of units": gathered(2),
    "Split, Concat swapped": split(slice(None, None, -1)),
    "Slice from the end": chain(("Slice", {"read": [i64(-1), i64(-(1 << 40)), i64(0), i64(-1)]})),
    "Slice of units from the end": chain(("Slice", {"read": [i64(-1), i64(-(1 << 40)), i64(2), i64(-1)]})),
    "Identity of our own": own_function("Identity"),
    "Dropout of our own": own_function("Dropout"),
    "Add": chain(("Add", {"read": [np.float32(0.5)]})),
    "Pad": chain(("Pad", {"read": [i64(1, 0, 0, 0, 0, 0)]})),
    "CumSum": chain(("CumSum", {"read": [np.int64(0)]})),
}
FIXED: dict[str, Callable[[Model, int, bool], None]] = {
    "Gather of steps": gathered(0),
    "Gather of sequences": gathered(1),
    "Reshape that mixes": lambda model, width, fixed: chain(
        ("Reshape", {"read": [i64(BATCH, STEPS, width)]}), ("Transpose", {"perm": [1, 0, 2]})
    )(model, width, fixed),
    "Reshape to the same": lambda model, width, fixed: chain(("Reshape", {"read": [i64(STEPS, BATCH, width)]}))(model, width, fixed),
}
"""What is between two layers: what changes nothing, what does, and what needs fixed lengths."""
ODD = (str, "{}/it's".format, '{}\\n"q"'.format, "{}::.,;".format, "{} é 中\n".format)


def outputs(path: Path, target: Path, **inputs: Array) -> tuple[Array, Array]:
    """Run the whole source, and the joined layer."""
    (joined,) = rc.load(target).layers.values()
    return in_onnxruntime(path, **inputs)[0], reference.run(joined, inputs["x"]).y


def judged(seed: int, folder: Path) -> str:
    """Draw a model, join its layers, and return what came: "equal", or the refusal."""
    rng = np.random.default_rng(seed)
    model = Model(rng, ODD[rng.integers(len(ODD))])
    directions, fixed = int(rng.integers(1, 3)), bool(rng.integers(2))
    width = HIDDEN * directions
    every = {**NOTHING, **CHANGES, **(FIXED if fixed else {})}
    kinds = [*rng.choice([*(every if rng.integers(2) else NOTHING)], int(rng.integers(1, 4)))]
    model.lstm("a", 3, directions)
    sides = str(rng.choice([*SIDES])) if directions == 2 and not rng.integers(4) else ""
    if sides:
        chain(*SIDES[sides], ("Reshape", {"read": [np.array([0, 0, -1])]}))(model, width, fixed)
        kinds = [sides]
    else:
        side_by_side(model, directions)
        for kind in kinds:
            every[kind](model, width, fixed)
    model.lstm("b", width, directions)
    side_by_side(model, directions)
    inputs: dict[str, list[Any]] = {"x": [STEPS, BATCH, 3] if fixed else ["time", "batch", 3]}
    path = model.save(folder / f"{seed}.onnx", inputs)
    x = rng.normal(size=(STEPS, BATCH, 3)).astype(np.float32)
    target = folder / f"{seed}.pt"
    try:
        rc.convert(path, target, stack="join")
    except rc.RefusedError as error:
        assert not set(kinds) <= {*NOTHING, "Reshape to the same"}, (kinds, str(error))
        assert "something between them" in str(error) and "does not read" in str(error), str(error)
        return str(error)
    expected, joined = outputs(path, target, x=x)
    assert expected.shape == joined.shape, kinds
    assert np.abs(expected - joined).max() < 1e-6, (kinds, directions, fixed)
    return "equal"


def test_what_is_joined_computes_what_the_whole_model_does(tmp_path: Path) -> None:
    drawn.each(drawn.drawn(range(2000), 20, "between onnx"), lambda seed: judged(seed, tmp_path))


@pytest.mark.parametrize("kind", [*NOTHING, "Reshape to the same"])
def test_what_changes_nothing_is_joined(kind: str, tmp_path: Path) -> None:
    model = Model(np.random.default_rng(1))
    model.lstm("a", 3)
    squeezed(model)
    {**NOTHING, **FIXED}[kind](model, HIDDEN, True)
    model.lstm("b", HIDDEN)
    squeezed(model)
    path = model.save(tmp_path / "a.onnx", {"x": [STEPS, BATCH, 3] if kind in FIXED else ["t", "b", 3]})
    rc.convert(path, tmp_path / "a.pt", stack="join")
    expected, joined = outputs(path, tmp_path / "a.pt", x=model.rng.normal(size=(STEPS, BATCH, 3)).astype(np.float32))
    assert np.abs(expected - joined).max() < 1e-6


@pytest.mark.parametrize(
    ("below", "above", "what"),
    [
        ({}, {"h": "v0h", "c": "v0c"}, "the initial states of 'b' are given: they are the final state of 'a'"),
        ({}, {"h": "h"}, "the initial states of 'a' and 'b' are not the same: none for 'a', an input of the model for 'b'"),
        ({}, {"lengths": "n"}, "the lengths of the sequences of 'a' and 'b' are not the same: none for 'a', 'n' for 'b'"),
        ({"h": "h", "c": "c"}, {"h": "h", "c": "c"}, ""),
        ({"lengths": "n"}, {"lengths": "n"}, ""),
    ],
)
def test_what_layers_receive_besides_their_sequences(below: dict[str, Any], above: dict[str, Any], what: str, tmp_path: Path) -> None:
    model = Model(np.random.default_rng(1))
    model.lstm("a", 3, **below)
    squeezed(model)
    model.lstm("b", HIDDEN, **above)
    squeezed(model)
    shapes: dict[str, list[Any]] = {"x": ["t", "b", 3], "h": [1, "b", HIDDEN], "c": [1, "b", HIDDEN], "n": ["b"]}
    path = model.save(tmp_path / "a.onnx", shapes)
    if what:
        with pytest.raises(rc.RefusedError, match=what):
            rc.convert(path, tmp_path / "a.pt", stack="join")
        return
    rc.convert(path, tmp_path / "a.pt", stack="join")
    zeros = np.zeros((1, BATCH, HIDDEN), np.float32)
    inputs = {"x": np.ones((STEPS, BATCH, 3), np.float32), "h": zeros, "c": zeros, "n": np.full(BATCH, STEPS, np.int32)}
    expected, joined = outputs(path, tmp_path / "a.pt", **inputs)
    assert np.abs(expected - joined).max() < 1e-6


def by_least(model: Model, width: int, fixed: bool) -> None:
    """Cut sequences to the least of their length and 50."""
    value = model.value
    model.add("Shape")
    model.add("Gather", model.integers(0), axis=0)
    length = model.add("Min", model.integers(50))
    model.value = value
    model.add("Slice", model.integers(0), length, model.integers(0))


LONGER: dict[str, Callable[[Model, int, bool], None]] = {
    "longer than 50": chain(("Slice", {"read": [i64(0), i64(50), i64(0)]})),
    "longer than 40": chain(("Slice", {"read": [i64(-40), i64(1 << 40), i64(0)]})),
    "longer than 30": chain(*[("Slice", {"read": [i64(-1), i64(-30), i64(0), i64(-1)]})] * 2),
    "a length is more than 50": by_least,
}


@pytest.mark.parametrize("words", LONGER)
def test_what_changes_longer_sequences_alone_is_a_change(words: str, tmp_path: Path) -> None:
    model = Model(np.random.default_rng(1))
    model.lstm("a", 3)
    squeezed(model)
    LONGER[words](model, HIDDEN, False)
    model.lstm("b", HIDDEN)
    squeezed(model)
    with pytest.raises(rc.RefusedError, match=f"'b' does not read 'a' directly: .*{words}"):
        rc.convert(model.save(tmp_path / "a.onnx"), tmp_path / "a.pt", stack="join")


_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Min", "Max")
_NARROWED = ("INT8", "UINT8", "INT16", "INT32", "FLOAT16", "FLOAT", "DOUBLE")
_LENGTHS = (1, 2, 3, 4, 5, 7, 11, 49, 50, 51, 127, 128, 255, 256, 257, 320)


def computed_from_length(model: Model) -> tuple[str, str]:
    """Compute a number from the length of the present value by operators drawn; return the number and the length."""
    model.add("Shape")
    length = model.add("Gather", model.integers(0), axis=0)
    for _ in range(int(model.rng.integers(1, 4))):
        if model.rng.random() < 0.3:
            model.add("Cast", to=getattr(TensorProto, str(model.rng.choice(_NARROWED))))
            model.add("Cast", to=TensorProto.INT64)
        else:
            number = length if model.rng.random() < 0.3 else model.integers(int(model.rng.integers(2, 301)))
            model.add(str(model.rng.choice(_ARITHMETIC)), number)
    return model.value, length


def places_by_length(seed: int, folder: Path) -> str:
    """Cut or reorder a sequence by a drawn number; return "joined" where the source does nothing at any length, or why not."""
    model = Model(np.random.default_rng(seed))
    model.lstm("a", 3)
    squeezed(model)
    sequence = model.value
    number, length = computed_from_length(model)
    use = int(model.rng.integers(3))
    if use == 0:
        model.value = sequence
        model.add("Slice", number, model.integers(1 << 40), model.integers(0))
    elif use == 1:
        model.value = sequence
        model.add("Slice", model.integers(0), number, model.integers(0))
    else:
        model.value = number
        zero, step = (model.constant(np.array(constant, np.int64)) for constant in (0, 1))
        model.value = length
        scalar = model.add("Squeeze", model.integers(0))
        model.value = zero
        model.add("Range", scalar, step)
        shift = model.add("Add", number) if seed % 2 else model.add("Div", number)
        model.value = sequence
        model.add("Gather", shift, axis=0)
    model.lstm("b", HIDDEN)
    squeezed(model)
    path, target = model.save(folder / f"{seed}.onnx", {"x": ["time", BATCH, 3]}), folder / f"{seed}.pt"
    try:
        rc.convert(path, target, stack="join")
    except rc.RefusedError as error:
        return str(error)
    for count in _LENGTHS:
        expected, joined = outputs(path, target, x=np.random.default_rng(count).normal(size=(count, BATCH, 3)).astype(np.float32))
        assert expected.shape == joined.shape, count
        assert np.abs(expected - joined).max() < 1e-5, count
    return "joined"


def test_what_is_computed_from_lengths_is_followed_at_every_length(tmp_path: Path) -> None:
    drawn.each(drawn.drawn(range(1000), 25, "lengths"), lambda seed: places_by_length(seed, tmp_path))


def by_number(*steps: tuple[str, Any]) -> Callable[[Model], None]:
    """Begin a slice at a number computed from the length."""

    def add(model: Model) -> None:
        sequence = model.value
        model.add("Shape")
        model.add("Gather", model.integers(0), axis=0)
        for kind, argument in steps:
            if kind == "Cast":
                model.add(kind, to=argument)
            else:
                model.add(kind, *([] if argument is None else [model.value if argument == "itself" else model.integers(argument)]))
        start, model.value = model.value, sequence
        model.add("Slice", start, model.integers(1 << 40), model.integers(0))

    return add


_INT8, _INT64 = ("Cast", TensorProto.INT8), ("Cast", TensorProto.INT64)
UNEQUAL = {
    "a quotient": by_number(("Div", 50)),
    "a cast": by_number(("Mul", 256), ("Cast", TensorProto.UINT8), _INT64),
    "a narrow number": by_number(_INT8, _INT64, ("Div", 300)),
    "a choice": by_number(("Max", 50), ("Sub", 50)),
}
ALWAYS = {
    "nothing": by_number(("Sub", "itself")),
    "a product there and back": by_number(("Mul", 6), ("Div", 3), ("Sub", "itself")),
    "a cast that holds every length": by_number(("Cast", TensorProto.INT32), _INT64, ("Sub", "itself")),
    "what no length is": by_number(("Min", 0)),
}


@pytest.mark.parametrize("kind", [*UNEQUAL, *ALWAYS])
def test_a_number_computed_from_a_length_is_used_where_it_is_the_same_at_every_length(kind: str, tmp_path: Path) -> None:
    model = Model(np.random.default_rng(1))
    model.lstm("a", 3)
    squeezed(model)
    {**UNEQUAL, **ALWAYS}[kind](model)
    model.lstm("b", HIDDEN)
    squeezed(model)
    path = model.save(tmp_path / "a.onnx")
    if kind in ALWAYS:
        assert rc.join_stack(list(rc.load(path).layers.values())).num_layers == 2
        return
    with pytest.raises(rc.RefusedError, match="'b' does not read 'a' directly"):
        rc.convert(path, tmp_path / "a.pt", stack="join")


@pytest.mark.parametrize("names", [2, 14, 28])
def test_time_and_batch_differ_whatever_other_axes_have_names(names: int, tmp_path: Path) -> None:
    model = Model(np.random.default_rng(1))
    model.lstm("a", 3)
    squeezed(model)
    value = model.value
    model.add("Shape")
    shape = model.add("Gather", model.integers(1, 0, 2), axis=0)
    model.value = value
    model.add("Reshape", shape)
    model.lstm("b", HIDDEN)
    squeezed(model)
    others: dict[str, list[Any]] = {f"other{number}": [f"axis{number:02}"] for number in range(1, names)}
    path = model.save(tmp_path / "a.onnx", {"x": ["axis00", f"axis{names:02}", 3], **others})
    with pytest.raises(rc.RefusedError, match="Reshape: its values stand in another shape"):
        rc.convert(path, tmp_path / "a.pt", stack="join")


def test_layers_that_read_one_input_do_not_read_one_another(tmp_path: Path) -> None:
    model = Model(np.random.default_rng(1))
    for name in "ab":
        model.value = "x"
        model.lstm(name, HIDDEN)
        squeezed(model)
    path = model.save(tmp_path / "a.onnx", {"x": ["time", "batch", HIDDEN]})
    with pytest.raises(rc.RefusedError, match="'b' does not read 'a': it reads what no recurrent layer gives"):
        rc.convert(path, tmp_path / "a.pt", stack="join")


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (("Identity", {}), [1 << 20, 1 << 10, 3]),
        (("Expand", {"read": [i64(1 << 30, 1 << 20, 1, 1, 1)]}), ["time", "batch", 3]),
        (("Pad", {"read": [i64(1 << 34, 0, 0, 0, 0, 0)]}), ["time", "batch", 3]),
    ],
)
def test_shapes_too_large_to_follow_are_not_made(kind: Any, shape: list[Any], tmp_path: Path) -> None:
    model = Model(np.random.default_rng(1))
    model.lstm("a", 3)
    squeezed(model)
    chain(kind)(model, HIDDEN, False)
    model.lstm("b", HIDDEN)
    squeezed(model)
    reads = rc.load(model.save(tmp_path / "a.onnx", {"x": shape})).layers["b"].reads
    assert isinstance(reads, Through if kind[0] != "Identity" else Directly)


def test_a_residual_is_a_change(tmp_path: Path) -> None:
    model = Model(np.random.default_rng(1))
    model.lstm("a", 3)
    squeezed(model)
    first = model.value
    model.lstm("b", HIDDEN)
    squeezed(model)
    model.add("Add", first)
    model.lstm("c", HIDDEN)
    squeezed(model)
    path = model.save(tmp_path / "a.onnx")
    rc.convert(path, tmp_path / "ab.pt", stack="join", layers=["a", "b"])
    with pytest.raises(rc.RefusedError, match="'c' does not read 'b' directly: Add comes before it in the model"):
        rc.convert(path, tmp_path / "bc.pt", stack="join", layers=["b", "c"])


def test_layers_inside_a_branch_are_followed_to_what_is_outside(tmp_path: Path) -> None:
    """What a layer in the branch of an If reads of the graph around it, and what the If gives, is not a layer's output alone."""
    model = Model(np.random.default_rng(1))
    model.lstm("a", 3)
    squeezed(model)
    model.nodes.append(helper.make_node("Identity", [model.value], [outer := "outer"]))
    model.value = outer
    inner = Model(np.random.default_rng(2))
    inner.value = outer
    inner.lstm("b", HIDDEN)
    squeezed(inner)
    names = {name: f"i_{name}" for node in inner.nodes for name in node.output}
    for node in inner.nodes:
        node.input[:] = [names.get(name, f"i_{name}" if name.startswith("c") else name) for name in node.input]
        node.output[:] = [names[name] for name in node.output]
    for tensor in inner.constants:
        tensor.name = f"i_{tensor.name}"
    end = helper.make_tensor_value_info(f"i_{inner.value}", TensorProto.FLOAT, None)
    then = helper.make_graph(inner.nodes, "then", [], [end], inner.constants)
    same = helper.make_node("Identity", [outer], ["i_same"])
    other = helper.make_graph([same], "other", [], [helper.make_tensor_value_info("i_same", TensorProto.FLOAT, None)])
    condition = model.constant(np.array(True))
    model.nodes.append(helper.make_node("If", [condition], ["y"], then_branch=then, else_branch=other))
    model.value = "y"
    model.lstm("c", HIDDEN)
    squeezed(model)
    path = model.save(tmp_path / "a.onnx")
    layers = rc.load(path).layers
    inside = next(name for name in layers if name.endswith("b"))
    for name, below in ((inside, {"a"}), ("c", {"a", inside})):
        reads = layers[name].reads
        assert isinstance(reads, Through) and set(reads.layers) == below and "If" in reads.changes
