"""Initial states of ONNX files that we write: constants of the model, or inputs where that is asked for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Cell
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from tests import ROOT
from tests.helpers.onnx_graphs import in_onnxruntime
from tests.helpers.requirements import need, needed
from tests.helpers.stacks import BOTH, random_stack, random_states

CELLS = {"rnn": Cell("rnn"), "gru": Cell("gru", True), "lstm": Cell("lstm")}
LEARNED = {"rnn": {"initial_hidden"}, "gru": {"initial_hidden"}, "lstm": {"initial_hidden", "initial_cell"}}
X = np.random.default_rng(1).uniform(-1, 1, (6, 3, 4)).astype(np.float32)
"""(time, batch, in)"""


def form_of(kind: str, *, learned: bool = False) -> Sizes:
    return Sizes(kind, 4, 5, 2, 2, parts=BOTH | (LEARNED[kind] if learned else set()))


def stack_of(kind: str, *, learned: bool = False, name: str = "encoder") -> Recurrent:
    return random_stack(form_of(kind, learned=learned), 3, np.float32, CELLS[kind]).replace(name=name)


def write(path: Path, *stacks: Recurrent, **options: Any) -> rc.Summary:
    return rc.save(Checkpoint("", "canonical", {stack.name: stack for stack in stacks}), path, **options)


def inputs(path: Path) -> list[str]:
    return [value.name for value in onnx.load(path).graph.input]


def run(path: Path, feeds: dict[str, Array]) -> Array:
    return np.asarray(in_onnxruntime(path, **feeds)[0])


def state_inputs(kind: str) -> tuple[dict[str, Array], Any, Any]:
    hidden, cell = random_states(form_of(kind), 3, 9, np.float32)
    feeds = {"x": X, "initial_h": np.stack(hidden)} | ({"initial_c": np.stack(cell)} if kind == "lstm" else {})
    return feeds, hidden, cell if kind == "lstm" else None


@pytest.mark.parametrize("opset", [7, 17, 22])
@pytest.mark.parametrize("kind", CELLS)
def test_a_written_model_has_only_its_sequence_as_input(kind: str, opset: int, tmp_path: Path) -> None:
    need("onnxruntime", "")
    stack = stack_of(kind)
    summary = write(tmp_path / "m.onnx", stack, opset=opset)
    assert inputs(tmp_path / "m.onnx") == ["x"]
    assert not any("initial" in tensor.name for tensor in onnx.load(tmp_path / "m.onnx").graph.initializer)
    assert "inputs x (time, batch, 4); outputs y (time, batch, 10), h_n (4, batch, 5)" in summary.notes[0]
    assert "the initial states are zeros; make them inputs with --set states=input" in summary.notes[0]
    np.testing.assert_allclose(run(tmp_path / "m.onnx", {"x": X}), reference.run(stack, X).y, rtol=0, atol=2e-6)


@pytest.mark.parametrize("opset", [7, 17, 22])
@pytest.mark.parametrize("kind", CELLS)
def test_states_are_required_inputs_where_that_is_asked_for(kind: str, opset: int, tmp_path: Path) -> None:
    need("onnxruntime", "")
    stack = stack_of(kind)
    summary = write(tmp_path / "m.onnx", stack, opset=opset, states="input")
    feeds, hidden, cell = state_inputs(kind)
    assert inputs(tmp_path / "m.onnx") == list(feeds)
    assert not set(feeds) & {tensor.name for tensor in onnx.load(tmp_path / "m.onnx").graph.initializer}
    assert "initial_h (4, batch, 5)" in summary.notes[0]
    assert "give zeros where a sequence begins" in summary.notes[0]
    np.testing.assert_allclose(run(tmp_path / "m.onnx", feeds), reference.run(stack, X, hidden, cell).y, rtol=0, atol=2e-6)


@pytest.mark.parametrize("kind", CELLS)
def test_states_that_are_the_sources_inputs_stay_inputs(kind: str, tmp_path: Path) -> None:
    write(tmp_path / "a.onnx", stack_of(kind), states="input")
    rc.convert(tmp_path / "a.onnx", tmp_path / "b.onnx")
    letters = ("h", "c") if kind == "lstm" else ("h",)
    assert [name for name in inputs(tmp_path / "b.onnx") if "initial" in name] == [
        f"encoder_l{layer}/initial_{letter}" for layer in (0, 1) for letter in letters
    ]
    rc.convert(tmp_path / "a.onnx", tmp_path / "c.onnx", states="zeros")
    assert inputs(tmp_path / "c.onnx") == ["encoder_l0/x", "encoder_l1/x"]
    if needed("onnxruntime", "onnxruntime"):
        assert rc.verify(tmp_path / "a.onnx", tmp_path / "b.onnx").verdict == "equal"


def test_lengths_that_the_caller_passes_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a.onnx", stack_of("gru"), sequence_lens="true")
    warnings = rc.load(tmp_path / "a.onnx").warnings
    assert any("the lengths of its sequences, 'sequence_lens', are given at run time" in text for text in warnings), warnings


@pytest.mark.parametrize("kind", CELLS)
def test_a_learned_state_is_a_constant_and_comes_back(kind: str, tmp_path: Path) -> None:
    need("onnxruntime", "")
    stack = stack_of(kind, learned=True)
    summary = write(tmp_path / "m.onnx", stack)
    assert inputs(tmp_path / "m.onnx") == ["x"]
    assert "learned initial states are constants of the model" in summary.notes[0]
    np.testing.assert_allclose(run(tmp_path / "m.onnx", {"x": X}), reference.run(stack, X).y, rtol=0, atol=2e-6)
    layers = rc.load(tmp_path / "m.onnx").layers.values()
    read = [dict(d.arrays) for layer in layers for *_, d in layer.directions()]
    for arrays, (*_, direction) in zip(read, stack.directions(), strict=True):
        for key, source in direction.arrays.items():
            np.testing.assert_array_equal(np.asarray(arrays[key]), np.asarray(source))


@pytest.mark.parametrize("kind", CELLS)
def test_a_learned_state_of_one_direction_alone_is_kept(kind: str, tmp_path: Path) -> None:
    need("onnxruntime", "")
    stack = stack_of(kind, learned=True)
    count = 0

    def change(direction: Any) -> Any:
        nonlocal count
        count += 1
        gone = {key: None for key in direction.arrays if key[0].startswith("initial")}
        return direction if count == 3 else direction.with_arrays(gone)

    stack = each(stack, change)
    write(tmp_path / "m.onnx", stack)
    np.testing.assert_allclose(run(tmp_path / "m.onnx", {"x": X}), reference.run(stack, X).y, rtol=0, atol=2e-6)


def test_a_learned_state_is_never_lost_to_an_input(tmp_path: Path) -> None:
    need("onnxruntime", "")
    stack = stack_of("lstm", learned=True)
    with pytest.raises(rc.RefusedError, match="initial_state=call"):
        write(tmp_path / "m.onnx", stack, states="input")
    for options in ({"states": "input", "initial_state": "call"}, {"initial_state": "call"}):
        summary = write(tmp_path / "m.onnx", stack, force=True, **options)
        assert "give the learned initial states where a sequence begins" in summary.notes[0]
        details = {step.detail for step in summary.steps if step.rewrite == "initial_state"}
        assert details == {"initial_hidden left to the caller", "initial_cell left to the caller"}
        feeds, hidden, cell = state_inputs("lstm")
        np.testing.assert_allclose(run(tmp_path / "m.onnx", feeds), reference.run(stack, X, hidden, cell).y, rtol=0, atol=2e-6)


def test_one_layer_of_several_has_its_states_as_inputs(tmp_path: Path) -> None:
    stacks = stack_of("lstm", learned=True, name="a"), stack_of("gru", name="b")
    write(tmp_path / "m.onnx", *stacks, settings=["b:states=input"])
    assert inputs(tmp_path / "m.onnx") == ["a/x", "b/x", "b/initial_h"]


def goes_on(path: Path, stack: Recurrent, cuts: list[int]) -> None:
    """An LSTM of five units gives for a sequence in pieces, its states handed on, what it gives for the whole."""
    session = needed("onnxruntime", "onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    h = c = np.zeros((1, 3, 5), np.float32)
    pieces = []
    for x in np.split(X, cuts):
        y, h, c = session.run(["y", "h_n", "c_n"], {"x": x, "initial_h": h, "initial_c": c})
        pieces.append(y)
    np.testing.assert_allclose(np.concatenate(pieces), reference.run(stack, X).y, rtol=0, atol=2e-6)


def test_the_note_says_how_a_sequence_goes_on(tmp_path: Path) -> None:
    need("onnxruntime", "")
    stack = random_stack(Sizes("lstm", 4, 5, parts=BOTH), 3, np.float32, CELLS["lstm"]).replace(name="encoder")
    summary = write(tmp_path / "m.onnx", stack, states="input")
    assert summary.notes[0].endswith("give zeros where a sequence begins, and h_n for initial_h and c_n for initial_c where it goes on")
    goes_on(tmp_path / "m.onnx", stack, [2, 3])


def test_another_word_is_wrong_usage_and_another_format_has_no_such_option(tmp_path: Path) -> None:
    with pytest.raises(rc.UsageError, match="one of: input"):
        write(tmp_path / "m.onnx", stack_of("gru"), states="constant")
    with pytest.raises(rc.UsageError, match="decides nothing"):
        write(tmp_path / "m.pt", stack_of("gru"), states="input")


LOADED = """
import sys, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 2
onnxruntime.set_default_logger_severity(2)
onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
"""


@pytest.mark.parametrize("states", ["constant", "learned", "input"])
@pytest.mark.parametrize("kind", CELLS)
def test_onnxruntime_warns_of_nothing_in_a_written_model(kind: str, states: str, tmp_path: Path) -> None:
    need("onnxruntime", "")
    path = tmp_path / "m.onnx"
    write(path, stack_of(kind, learned=states == "learned"), **({"states": "input"} if states == "input" else {}))
    ran = subprocess.run([sys.executable, "-c", LOADED, str(path)], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")


@pytest.mark.parametrize("learned", [False, True])
def test_verify_proves_initial_states_in_onnxruntime(learned: bool, tmp_path: Path) -> None:
    need("onnxruntime", "")
    stack = stack_of("lstm", learned=learned)
    format = "onnx" if learned else "pytorch"
    path = tmp_path / ("m.onnx" if learned else "m.pt")
    write(path, stack, target_format=format)
    report = rc.verify(path, on=["onnxruntime-cpu"])
    assert report.equal
    for layer in report.document["layers"]:
        for entry in layer["runs"]:
            assert not entry["left_out"], entry["left_out"]


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("block", [1, 2])
def test_a_stream_in_pieces_gives_what_the_whole_gives(kind: str, block: int, tmp_path: Path) -> None:
    form = Sizes(kind, 4, 5, 2, 1, parts=BOTH)
    stack = random_stack(form, 3, np.float32, CELLS[kind]).replace(name="encoder")
    write(tmp_path / "stream.onnx", stack, states="stream")
    session = needed("onnxruntime", "onnxruntime").InferenceSession(str(tmp_path / "stream.onnx"))
    letters = "hc" if kind == "lstm" else "h"
    states = {f"initial_{letter}": np.zeros((2, 3, 5), np.float32) for letter in letters}
    full = session.run(["y"], {"x": X, **states})[0]
    pieces = []
    for piece in np.split(X, len(X) // block):
        y, *after = session.run(["y", *(f"{letter}_n" for letter in letters)], {"x": piece, **states})
        states = dict(zip(states, after, strict=True))
        pieces.append(y)
    np.testing.assert_allclose(np.concatenate(pieces), full, rtol=1e-5, atol=1e-6)


def test_a_stream_refuses_what_reads_from_the_end(tmp_path: Path) -> None:
    with pytest.raises(rc.RefusedError, match="a direction that reads from the end"):
        write(tmp_path / "stream.onnx", stack_of("gru"), states="stream")


def test_the_flag_is_the_setting(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from rnnconvert.cli.main import main

    source = ROOT / "examples" / "encoder.keras"
    words = ["convert", str(source), str(tmp_path / "stream.onnx"), "--layer", "summary", "--stateful"]
    assert CliRunner().invoke(main, words).exit_code == 0
    assert inputs(tmp_path / "stream.onnx") == ["x", "initial_h", "initial_c"]
    words[2] = str(tmp_path / "model.pt")
    assert CliRunner().invoke(main, words).exit_code == 2


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_documented_loop_in_javascript_is_valid(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "streaming.md").read_text("utf-8").split("## In JavaScript")[1]
    lines = [line for line in text.splitlines() if line.startswith("    ")]
    assert len(lines) > 5
    (tmp_path / "loop.mjs").write_text("\n".join(lines), "utf-8")
    subprocess.run(["node", "--check", str(tmp_path / "loop.mjs")], check=True, capture_output=True)


def test_a_stream_goes_on_with_peepholes(tmp_path: Path) -> None:
    need("onnxruntime", "")
    stack = random_stack(Sizes("lstm", 4, 5, parts=BOTH | {"peephole"}), 3, np.float32, CELLS["lstm"]).replace(name="encoder")
    write(tmp_path / "peepholes.onnx", stack, states="stream")
    goes_on(tmp_path / "peepholes.onnx", stack, [1, 4])


@pytest.mark.filterwarnings("ignore")  # the exporter warns of what it does with states
def test_a_state_from_the_shape_of_a_convolutions_output(tmp_path: Path) -> None:
    """The convolution refuses the shortest sequences: its output's shape needs a longer one."""
    need("onnxruntime", "")
    torch = needed("torch", "torch")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv1d(4, 4, 5)
            self.gru = torch.nn.GRU(4, 5)

        def forward(self, x: Any) -> Any:
            y = self.conv(x).permute(2, 0, 1)
            return self.gru(y, torch.zeros(1, y.shape[1], 5))[0]

    axes = {"x": {0: "batch", 2: "time"}}
    torch.onnx.export(Model(), (torch.zeros(3, 4, 9),), str(tmp_path / "m.onnx"), dynamo=False, dynamic_axes=axes, input_names=["x"])
    report = rc.verify(tmp_path / "m.onnx", on=["onnxruntime-cpu"])
    (layer,) = report.document["layers"]
    assert report.equal and all(entry["own_file"] for entry in layer["runs"] if entry["executor"].startswith("onnx")), layer["runs"]


def drawn_state(draw: np.random.Generator, directions: int, size: int) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """Nodes that make `state` (directions, batch, size) of stored numbers, for any batch, as exporters and people write it."""
    nodes: list[onnx.NodeProto] = []
    stored: dict[str, Array] = {"axis0": np.array([0]), "axis1": np.array([1])}

    def add(operator: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(onnx.helper.make_node(operator, list(inputs), [f"v{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    def store(value: Any, dtype: Any = np.int64) -> str:
        stored[f"s{len(stored)}"] = np.asarray(value, dtype)
        return f"s{len(stored) - 1}"

    def shape(*axes: int | str) -> str:
        return add("Concat", *(axis if isinstance(axis, str) else store([axis]) for axis in axes), axis=0)

    batch = add("Slice", add("Shape", "x"), store([1]), store([2]), "axis0")
    extra = int(draw.integers(0, 3))  # layers of which this one is cut out
    rows = directions + extra
    numbers = draw.uniform(-1, 1, (1 if draw.random() < 0.2 else rows, 1, size)).astype(np.float32)
    if draw.random() < 0.4:
        numbers = np.full_like(numbers, draw.choice([0.0, 0.0, 0.25]))
    match draw.integers(0, 5):
        case 0:
            value = add("Expand", store(numbers, np.float32), shape(rows, batch, size))
        case 1 if len(numbers) == rows:
            value = add("Tile", store(numbers, np.float32), shape(1, batch, 1))
        case 2 if len(numbers) == rows:
            plain = store(numbers[:, 0], np.float32)
            value = add("Expand", add("Unsqueeze", plain, "axis1"), shape(rows, batch, 1))
        case 3 if not np.ptp(numbers):
            level = onnx.helper.make_tensor("", onnx.TensorProto.FLOAT, [1], numbers.reshape(-1)[:1])
            value = add("ConstantOfShape", shape(rows, batch, size), value=level)
        case 4 if not np.ptp(numbers):
            flat = add("Expand", store(numbers.reshape(-1)[0], np.float32), shape(batch, rows * size))
            value = add("Transpose", add("Reshape", flat, shape(batch, rows, size)), perm=[1, 0, 2])
        case _:
            turned = add("Expand", store(numbers.transpose(1, 0, 2), np.float32), shape(batch, rows, size))
            value = add("Transpose", turned, perm=[1, 0, 2])
    if extra or draw.random() < 0.3:
        first = int(draw.integers(0, extra + 1))
        if draw.random() < 0.5:
            value = add("Slice", value, store([first]), store([first + directions]), "axis0")
        else:
            value = add("Gather", value, store(np.arange(first, first + directions)), axis=0)
    if draw.random() < 0.3:
        value = add("Cast", add("Cast", value, to=onnx.TensorProto.FLOAT16), to=onnx.TensorProto.FLOAT)
    if draw.random() < 0.3:
        value = add("Squeeze", add("Unsqueeze", value, "axis1"), "axis1")
    add("Identity", value)
    nodes[-1].output[0] = "state"
    return nodes, stored


@pytest.mark.parametrize("seed", range(20))
def test_stored_states_that_a_graph_spreads_over_its_batch(seed: int, tmp_path: Path) -> None:
    """What comes of the exporters of PyTorch and Keras, and of people: ONNX Runtime computes the same, or it is refused."""
    onnxruntime = needed("onnxruntime", "onnxruntime")
    draw = np.random.default_rng(seed)
    directions, size = int(draw.integers(1, 3)), 5
    nodes, stored = drawn_state(draw, directions, size)
    weights = {"W": (directions, 3 * size, 4), "R": (directions, 3 * size, size), "B": (directions, 6 * size)}
    stored |= {name: draw.uniform(-1, 1, shape).astype(np.float32) for name, shape in weights.items()}
    way = "bidirectional" if directions == 2 else "forward"
    layer = onnx.helper.make_node(
        "GRU", ["x", "W", "R", "B", "", "state"], ["y"], "layer", hidden_size=size, direction=way, linear_before_reset=1
    )
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [*nodes, layer], "g", [value("x", onnx.TensorProto.FLOAT, ["t", "b", 4])], [value("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    (stack,) = rc.load(tmp_path / "m.onnx").layers.values()
    assert not stack.unconvertible, stack.unconvertible
    for batch in (1, 3):
        x = draw.uniform(-1, 1, (6, batch, 4)).astype(np.float32)
        y = np.moveaxis(session.run(["y"], {"x": x})[0], 1, 2).reshape(6, batch, -1)
        np.testing.assert_allclose(y, reference.run(stack, x).y, rtol=0, atol=2e-6)


def backward(kind: str) -> Recurrent:
    """A layer that reads from the end, and gives its outputs in that order."""
    stack = random_stack(Sizes(kind, 4, 5, parts=BOTH), 3, np.float32, CELLS[kind])
    return each(stack, lambda direction: direction.replace(reverse=True)).replace(name="encoder", output_order="processing")


@pytest.mark.parametrize("kind", CELLS)
def test_sequences_with_the_batch_first_are_the_same_ones(kind: str, tmp_path: Path) -> None:
    for stack in (stack_of(kind), stack_of(kind, learned=True), backward(kind)):
        write(tmp_path / "time.onnx", stack, force=True)
        summary = write(tmp_path / "batch.onnx", stack, force=True, batch_first=True)
        assert any("inputs x (batch, time, 4); outputs y (batch, time, " in note for note in summary.notes), summary
        ours, theirs = (run(tmp_path / f"{name}.onnx", {"x": x}) for name, x in (("time", X), ("batch", X.swapaxes(0, 1))))
        assert np.array_equal(theirs.swapaxes(0, 1), ours)
        layers = [rc.load(tmp_path / f"{name}.onnx").layers for name in ("time", "batch")]
        assert [[str(layer) for layer in side.values()] for side in layers] == [[str(layer) for layer in layers[0].values()]] * 2
