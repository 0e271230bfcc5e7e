"""Whole models in ncnn's layers give what their source gives, sequence by sequence, or are refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, Activation, Cell, Clip
from rnnconvert.core.errors import RefusedError, UsageError
from rnnconvert.core.remedies import TargetSetting
from rnnconvert.formats.ncnn.export_net import NetLayers
from rnnconvert.language.layout import Sizes
from tests.helpers.drawn import each
from tests.helpers.exported import FRAMEWORKS_WARN, RUNS
from tests.helpers.random_models import fill
from tests.helpers.requirements import needed
from tests.helpers.sources import checkpoint
from tests.helpers.stacks import random_stack

pytestmark = FRAMEWORKS_WARN


def agrees(model: Any, inputs: list[Any], path: Path) -> None:
    """Check all outputs of a written model against Keras's."""
    truth = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    truth = list(truth) if isinstance(truth, (list, tuple)) else [truth]
    for output, expected in zip(RUNS["param"](path)(inputs), truth, strict=True):
        expected = needed("keras", "keras").ops.convert_to_numpy(expected)
        assert output.shape == expected.shape
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


def layers(k: Any) -> dict[str, list[Any]]:
    a = k.layers
    return {
        "lstm": [a.LSTM(5, return_sequences=True), a.LSTM(3)],
        "gru": [a.GRU(5, return_sequences=True), a.GRU(3, use_bias=False)],
        "rnn": [a.SimpleRNN(5, return_sequences=True), a.SimpleRNN(3, return_sequences=True)],
        "backwards": [a.LSTM(4, go_backwards=True, return_sequences=True), a.GRU(3, go_backwards=True)],
        "both": [a.Bidirectional(a.LSTM(3, return_sequences=True)), a.Bidirectional(a.GRU(3))],
        "sum": [a.Bidirectional(a.GRU(3, return_sequences=True), merge_mode="sum"), a.Bidirectional(a.LSTM(2), merge_mode="ave")],
        "product": [a.Bidirectional(a.SimpleRNN(3), merge_mode="mul")],
        "causal": [a.Conv1D(6, 3, padding="causal", dilation_rate=2, activation="relu")],
        "same": [a.Conv1D(6, 4, padding="same", use_bias=False), a.Conv1D(6, 3, padding="same", strides=2)],
        "groups": [a.Dense(4), a.Conv1D(8, 3, groups=2), a.SeparableConv1D(5, 2)],
        "same pools": [a.MaxPooling1D(2, padding="same"), a.MaxPooling1D(3, strides=1, padding="same")],
        "pools": [a.MaxPooling1D(2), a.AveragePooling1D(3, strides=1), a.GlobalMaxPooling1D()],
        "norms": [a.LayerNormalization(), a.BatchNormalization(), a.GlobalAveragePooling1D(), a.LayerNormalization(scale=False)],
        "repeated": [a.LSTM(3), a.RepeatVector(4), a.Flatten(), a.Reshape((3, 4)), a.Permute((2, 1))],
        "cropped": [a.Cropping1D((1, 2)), a.PReLU(shared_axes=[1]), a.Rescaling(0.5, 0.25)],
        **{name: [a.Dense(4, activation=name)] for name in (
            "relu", "sigmoid", "tanh", "elu", "selu", "softplus", "softsign", "silu", "gelu", "hard_sigmoid", "softmax", "leaky_relu",
            "relu6", "exponential",
        )},
    }  # fmt: skip


def as_net(k: Any, stacked: Sequence[Any], folder: Path) -> Any:
    """A Keras model of some layers, whose net is written as m.param."""
    model = k.Sequential([k.Input((None, 3)), *stacked])
    fill(model, 3)
    model.save(folder / "m.keras")
    rc.export_model(folder / "m.keras", folder / "m.param", force=True)
    return model


def test_each_layer(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    every = layers(k)

    def check(name: str) -> None:
        model = as_net(k, every[name], tmp_path)
        for time in (9, 6):
            agrees(model, [np.random.default_rng(4).normal(size=(2, time, 3)).astype(np.float32)], tmp_path / "m.param")

    each(every, check)


def test_a_sequence_of_one_step(tmp_path: Path) -> None:
    """Of which ncnn's InnerProduct makes a vector."""
    k = needed("keras", "keras")
    a = k.layers
    parts = [a.Embedding(9, 5), a.Dense(4), a.Bidirectional(a.LSTM(3, return_sequences=True)), a.Dense(4, activation="softmax")]
    model = k.Sequential([k.Input((None,), dtype="int32"), *parts])
    fill(model, 3)
    model.save(tmp_path / "m.keras")
    rc.export_model(tmp_path / "m.keras", tmp_path / "m.param")
    agrees(model, [np.array([[4], [0]], np.int32)], tmp_path / "m.param")


def test_states_go_in_and_out(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    x, h, c = k.Input((None, 3), name="x"), k.Input((4,), name="h"), k.Input((4,), name="c")
    y, *states = k.layers.LSTM(4, return_sequences=True, return_state=True)(x, initial_state=[h, c])
    model = k.Model([x, h, c], [k.layers.Dense(2)(y), *states, k.layers.GRU(4)(y, initial_state=states[0])])
    fill(model, 1)
    model.save(tmp_path / "m.keras")
    assert rc.export_model(tmp_path / "m.keras", tmp_path / "m.param", verify=True).equal
    random = np.random.default_rng(2)
    agrees(model, [random.normal(size=shape).astype(np.float32) for shape in ((3, 6, 3), (3, 4), (3, 4))], tmp_path / "m.param")


def test_a_module_with_operators_between_its_layers(tmp_path: Path) -> None:
    torch = needed("torch", "torch")

    class Between(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
            self.head = torch.nn.Linear(8, 4)
            self.scale = torch.nn.Parameter(torch.randn(4))

        def forward(self, x: Any) -> Any:
            y, (h, _) = self.first(x)
            y = self.head(y) * self.scale
            joined = torch.cat([y, 1 / (y.abs() + 1)], -1)
            return joined, h, y[:, -1], y.mean(1), (2 - y).max(dim=1)[0], y.transpose(1, 2)

    torch.manual_seed(0)
    module, x = Between().eval(), torch.randn(2, 5, 3)
    rc.export_model(module, tmp_path / "m.param", example=torch.randn(2, 5, 3))
    outputs = RUNS["param"](tmp_path / "m.param")([x.numpy()])
    for output, truth, batch in zip(outputs, module(x), (0, 1, 0, 0, 0, 0), strict=True):
        np.testing.assert_allclose(np.moveaxis(output, 0, batch), truth.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_file_is_proved_and_read_again(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a = k.layers
    parts = [
        a.Embedding(9, 5),
        a.Conv1D(6, 2, groups=1),
        a.GRU(4, return_sequences=True, name="first"),
        a.LSTM(3, name="second"),
        a.Dense(2),
    ]
    k.Sequential([k.Input((None,), dtype="int32"), *parts]).save(tmp_path / "m.keras")
    source, out = tmp_path / "m.keras", tmp_path / "m.param"
    assert rc.export_model(source, out, verify=True).equal
    checkpoint = rc.load(out)
    assert [stack.cell.kind for stack in checkpoint.layers.values()] == ["gru", "lstm"] and not checkpoint.unread
    ours, theirs = (stack.layers[0].directions[0] for stack in (checkpoint.layers["first"], rc.load(source).layers["first"]))
    for gate in "rzn":
        np.testing.assert_array_equal(np.asarray(ours.arrays["recurrent", gate]), np.asarray(theirs.arrays["recurrent", gate]))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    result = CliRunner().invoke(main, ["export", str(source), str(out)])
    assert result.exit_code == 2 and "--force" in result.output
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    out.unlink()
    result = CliRunner().invoke(main, ["export", str(source), str(out)])
    assert result.exit_code == 2 and "m.bin" in result.output and not out.exists(), "the numbers alone are not replaced, either"


REFUSALS = {
    "a mask": lambda k: [k.layers.Masking(), k.layers.LSTM(3)],
    "leaves its padding out": lambda k: [k.layers.AveragePooling1D(3, strides=2, padding="same")],
    "stateful": lambda k: [k.layers.LSTM(3, stateful=True)],
    "several axes": lambda k: [k.layers.Reshape((1, 6, 3)), k.layers.Dense(2)],
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_ncnn_lacks_is_refused_by_name(tmp_path: Path, name: str) -> None:
    k = needed("keras", "keras")
    k.Sequential([k.Input(batch_shape=(2, 6, 3)), *REFUSALS[name](k)]).save(tmp_path / "m.keras")
    result = CliRunner().invoke(main, ["export", str(tmp_path / "m.keras"), str(tmp_path / "m.param")])
    assert result.exit_code == 4 and not (tmp_path / "m.param").exists() and not (tmp_path / "m.bin").exists(), result.output


# Cells and loops that are written out

CELLS: dict[str, tuple[Cell, frozenset[str]]] = {
    "reset before": (Cell("gru", False), frozenset()),
    "peepholes": (Cell("lstm"), frozenset({"peephole"})),
    "coupled gates": (Cell("lstm", coupled="f"), frozenset({"peephole"})),
    "a clip of gates": (Cell("gru", True, clips=(Clip("gates", -0.2, 0.2),)), frozenset()),
    "functions": (Cell("lstm", activation=Activation("softsign"), gate_activation=HARD_SIGMOID_KERAS_2), frozenset()),
    "relu": (Cell("rnn", activation=Activation("relu")), frozenset()),
    "elu": (Cell("gru", False, activation=Activation("elu", 0.7)), frozenset()),
}


@pytest.mark.parametrize("ways", [1, 2])
def test_a_cell_without_a_layer_is_written_out(tmp_path: Path, ways: int) -> None:
    onnxruntime = needed("onnxruntime", "onnxruntime")
    random = np.random.default_rng(4)

    def check(name: str) -> None:
        cell, parts = CELLS[name]
        sizes = Sizes(cell.kind, 3, 5, 1, ways, parts=parts | {"input", "recurrent", "input_bias", "recurrent_bias"})
        source, path = tmp_path / "m.onnx", tmp_path / "m.param"
        stack = random_stack(sizes, 7, np.float32, cell).replace(name="rnn")
        rc.save(checkpoint(stack), source, "onnx", force=True)
        session = onnxruntime.InferenceSession(str(source))
        sizes_of_numbers = set[int]()
        for time, batch in ((6, 2), (1, 3), (4, 1)):
            done = rc.export_model(source, path, force=True, verify=True, settings=[f"steps={time}"])
            assert done.equal and f"written out: {time} step" in done.layers[0]
            x = random.normal(size=(time, batch, 3)).astype(np.float32)
            truths = session.run(None, {"x": x})
            for output, truth in zip(RUNS["param"](path)([x.swapaxes(0, 1)]), truths, strict=True):
                np.testing.assert_allclose(output, truth.swapaxes(0, 1), rtol=1e-4, atol=1e-5)
            sizes_of_numbers.add(path.with_suffix(".bin").stat().st_size)
        assert len(sizes_of_numbers) == 1, "the numbers stand in the file once, however many steps there are"

    each(CELLS, check)


def test_sequences_of_other_lengths_give_no_numbers(tmp_path: Path) -> None:
    """ncnn's own layers would read beyond a shorter one, and leave out the end of a longer one."""
    k = needed("keras", "keras")
    a = k.layers
    model = k.Sequential([k.Input((None, 3)), a.GRU(4, reset_after=False, return_sequences=True), a.Dense(2, activation="relu")])
    fill(model, 1)
    model.save(tmp_path / "m.keras")
    rc.export_model(tmp_path / "m.keras", tmp_path / "m.param", settings=["steps=5"])
    agrees(model, [np.ones((1, 5, 3), np.float32)], tmp_path / "m.param")
    for time in (1, 2, 4, 6, 10, 11, 40):
        assert np.isnan(RUNS["param"](tmp_path / "m.param")([np.ones((1, time, 3), np.float32)])[0]).all(), time


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_loop_is_written_out(tmp_path: Path) -> None:
    torch = needed("torch", "torch")

    class Norm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x, self.h, self.norm = torch.nn.Linear(4, 6), torch.nn.Linear(6, 6), torch.nn.LayerNorm(6)
            self.scale = torch.nn.Parameter(torch.tensor([0.5, 1.5, 1.0, 2.0, -1.0, 0.25]))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            h, states = torch.zeros(x.size(0), 6), torch.jit.annotate(list[torch.Tensor], [])
            for step in range(x.size(1)):
                h = torch.tanh(self.norm(self.x(x[:, step]) + self.h(h)) * self.scale)
                states.append(h)
            return torch.stack(states, 1), h

    torch.manual_seed(0)
    module = Norm().eval()
    torch.jit.script(module).save(tmp_path / "m.pt")
    with pytest.raises(RefusedError, match="steps=N"):
        rc.export_model(tmp_path / "m.pt", tmp_path / "m.param")
    sizes = []
    for time in (7, 1):
        rc.export_model(tmp_path / "m.pt", tmp_path / "m.param", settings=[f"steps={time}"], force=True, verify=True)
        sizes.append((tmp_path / "m.bin").stat().st_size)
        x = torch.randn(2, time, 4)
        for output, truth in zip(RUNS["param"](tmp_path / "m.param")([x.numpy()]), module(x), strict=True):
            np.testing.assert_allclose(output, truth.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert sizes[0] == sizes[1]


def test_a_stream_of_such_a_cell_comes_step_by_step(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    a = k.layers
    model = k.Sequential([k.Input((None, 3)), a.GRU(4, reset_after=False, return_sequences=True), a.LSTM(5, return_sequences=True)])
    fill(model, 1)
    model.save(tmp_path / "m.keras")
    source, path = tmp_path / "m.keras", tmp_path / "m.param"
    single = rc.export_model(source, path, stateful=True, verify=True)
    assert single.equal and single.inputs[0].endswith("(1, 3)") and any(note.endswith("a piece has one step") for note in single.notes)
    blocks = rc.export_model(source, path, stateful=True, verify=True, force=True, settings=["steps=4"])
    assert blocks.equal and blocks.inputs[0].endswith("(4, 3)")
    x = np.random.default_rng(3).normal(size=(2, 12, 3)).astype(np.float32)
    states, pieces = [np.zeros((2, width), np.float32) for width in (4, 5, 5)], []
    for start in range(0, 12, 4):
        piece, *states = RUNS["param"](path)([x[:, start : start + 4], *states])
        pieces.append(piece)
    truth = k.ops.convert_to_numpy(model(x))
    np.testing.assert_allclose(np.concatenate(pieces, 1), truth, rtol=1e-4, atol=1e-5)


def test_how_many_steps_are_written_out_is_stated(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    source, path = tmp_path / "m.keras", tmp_path / "m.param"
    k.Sequential([k.Input((None, 3)), k.layers.GRU(3, reset_after=False)]).save(source)
    result = CliRunner().invoke(main, ["export", str(source), str(path)])
    assert result.exit_code == 4 and "--set steps=N" in result.output and "--stateful" in result.output
    assert TargetSetting("steps", "N").keywords == 'settings=["steps=N"]'  # as a caller from Python is told
    for steps in ("0", "-1", "many", "4097"):
        with pytest.raises(UsageError, match=r"a number of steps|an integer"):
            rc.export_model(source, path, settings=[f"steps={steps}"])
    k.Sequential([k.Input((None, 3)), k.layers.LSTM(3)]).save(tmp_path / "lstm.keras")
    with pytest.raises(UsageError, match="decides nothing"):
        rc.export_model(tmp_path / "lstm.keras", path, settings=["steps=4"])
    strided = [k.layers.Conv1D(4, 2, strides=2), k.layers.AveragePooling1D(3, 1, "same"), k.layers.GRU(3, reset_after=False)]
    k.Sequential([k.Input((None, 3)), *strided]).save(tmp_path / "strided.keras")
    done = rc.export_model(tmp_path / "strided.keras", tmp_path / "strided.param", settings=["steps=9"], verify=True)
    assert done.layers[0].endswith("written out: 4 steps)")
    k.Sequential([k.Input((9, 3)), k.layers.Conv1D(4, 2, strides=2), k.layers.GRU(3, reset_after=False)]).save(tmp_path / "closed.keras")
    assert rc.export_model(tmp_path / "closed.keras", path, verify=True).layers[0].endswith("(GRU 4 -> 3, written out: 4 steps)")


@pytest.mark.parametrize("inner", ["a sequence's length", "a shorter one", "a mean beside its steps"])
def test_how_many_steps_there_are_is_known_behind_a_model_in_the_model_and_behind_sums(tmp_path: Path, inner: str) -> None:
    """A model in the model may give other lengths than it reads; an axis of one spreads over the others'."""
    k = needed("keras", "keras")
    a = k.layers
    x = k.Input((None, 3))
    if inner == "a mean beside its steps":
        y = a.LSTM(3, return_sequences=True)(x)
        y = a.Add()([k.ops.mean(y, axis=1, keepdims=True), y])
    else:
        same = inner == "a sequence's length"
        layers = [a.Conv1D(4, 3, padding="same" if same else "valid"), a.GRU(3, reset_after=False, return_sequences=True)]
        y = k.Sequential([k.Input((None, 3)), *layers[: 1 + same]])(x)
    model = k.Model(x, a.GRU(4, reset_after=False, return_sequences=True)(y))
    fill(model, 1)
    model.save(tmp_path / "m.keras")
    rc.export_model(tmp_path / "m.keras", tmp_path / "m.param", settings=["steps=6"])
    agrees(model, [np.random.default_rng(1).normal(size=(2, 6, 3)).astype(np.float32)], tmp_path / "m.param")


def test_thousands_of_steps_are_written_in_seconds() -> None:
    """A new name, and a layer that is needed, cost the same however many there are before: 4,096 steps once took a minute."""
    net, begun = NetLayers(), process_time()
    for _ in range(40_000):
        (last,) = net.add("ReLU", [], "rnn/step/add")
    assert last == "rnn/step/add_40000" and net.name("rnn/step/add_7") == "rnn/step/add_7_2"
    assert len(net.finished([layer.name for layer in net.layers])) == 40_000
    assert process_time() - begun < 30


def test_numbers_that_its_file_cannot_state_are_refused(tmp_path: Path) -> None:
    """It reads inf as 0, and numbers beyond float32 not at all. Bounds that bound nothing are left out."""
    k = needed("keras", "keras")
    x = k.Input((None, 3))
    y = k.layers.LSTM(3, return_sequences=True)(x)
    for number in (np.inf, -np.inf, 1e39):
        k.Model(x, k.ops.minimum(y, float(number))).save(tmp_path / "m.keras")
        with pytest.raises(RefusedError, match="states numbers of float32"):
            rc.export_model(tmp_path / "m.keras", tmp_path / "m.param")
    model = k.Model(x, k.ops.clip(y, -np.inf, 0.1))
    fill(model, 1)
    model.save(tmp_path / "m.keras")
    rc.export_model(tmp_path / "m.keras", tmp_path / "m.param")
    agrees(model, [np.random.default_rng(1).normal(size=(2, 6, 3)).astype(np.float32)], tmp_path / "m.param")
