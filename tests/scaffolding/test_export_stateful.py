"""Streams: what `export --stateful` writes gives for the pieces of a sequence what its source gives for all of it, in its own runtime."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.scaffolding.stateful.carried import streamed
from tests.helpers.drawn import NotComparedError, drawn, each
from tests.helpers.exported import FRAMEWORKS_WARN, RUNS
from tests.helpers.random_models import fill, random_stream
from tests.helpers.requirements import needed

pytestmark = FRAMEWORKS_WARN
ENDINGS = ["onnx", "xml", "tflite", "param", "json"]
FORMATS = {"json": "tfjs"}


def export(source: Path, target: Path, **options: Any) -> Any:
    return rc.export_model(source, target, format=FORMATS.get(target.suffix[1:]), stateful=True, force=True, **options)


def in_pieces(path: Path, inputs: Sequence[Any], cuts: Sequence[int], done: Any, axis: int = 1) -> list[Any]:
    """What a written stream gives for sequences that are cut: outputs with steps joined, others from the last piece."""
    run = RUNS[path.suffix[1:]](path)
    stated = [text.rpartition(" (")[2].rstrip(")").split(", ") for text in done.inputs[len(inputs) :]]
    states = [np.zeros((inputs[0].shape[1 - axis], int(axes[-1])), np.float32) for axes in stated]
    at_once = [any(note.startswith(f"{text.rpartition(' (')[0]} is handed over") for note in done.notes) for text in done.inputs]
    outputs: list[list[Any]] = []
    for place, stop in enumerate([*cuts, inputs[0].shape[axis]]):
        start = cuts[place - 1] if place else 0
        step = (slice(None),) * axis + (slice(start, stop),)
        every = run([*(x if at_once_here else x[step] for x, at_once_here in zip(inputs, at_once, strict=False)), *states])
        count = len(every) - len(states)
        outputs.append(every[:count])
        states = every[count:]
    so_far = [any(note.startswith(f"{text.rpartition(' (')[0]} is what") for note in done.notes) for text in done.outputs]
    joined = zip(zip(*outputs, strict=True), so_far, strict=False)
    return [values[-1] if last else np.concatenate(values, axis) for values, last in joined]


CUTS: tuple[list[int], ...] = ([3, 4, 8], [*range(1, 12)], [])


def agrees(target: Path, inputs: Sequence[Any], truth: Sequence[Any], done: Any, axis: int = 1) -> None:
    single = any(note.endswith("a piece has one step") for note in done.notes)  # as in a net with steps that are written out
    for cuts in ([cut for cut in every if cut < inputs[0].shape[axis]] for every in (CUTS[1:2] if single else CUTS)):
        for output, expected in zip(in_pieces(target, inputs, cuts, done, axis), truth, strict=True):
            np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


def keras_outputs(model: Any, inputs: Sequence[Any]) -> list[Any]:
    """What a Keras model gives for whole sequences."""
    k = needed("keras", "keras")
    truth = model(list(inputs) if len(inputs) > 1 else inputs[0], training=False)
    return [k.ops.convert_to_numpy(each) for each in (truth if isinstance(truth, (list, tuple)) else [truth])]


def kinds(k: Any) -> dict[str, list[Any]]:
    a = k.layers
    return {
        "lstm": [a.LSTM(5, return_sequences=True), a.LSTM(3, return_sequences=True, use_bias=False)],
        "gru": [a.GRU(5, return_sequences=True), a.Dense(4, activation="softmax"), a.GRU(3, return_sequences=True)],
        "first gru": [a.GRU(5, return_sequences=True, reset_after=False)],
        "rnn": [a.SimpleRNN(5, return_sequences=True), a.LayerNormalization(), a.SimpleRNN(3, return_sequences=True, activation="relu")],
        "last": [a.LSTM(4, return_sequences=True), a.GRU(3), a.Dense(2)],
        "around": [a.Dense(4), a.BatchNormalization(), a.LSTM(4, return_sequences=True), a.TimeDistributed(a.Dense(3, activation="relu"))],
        "window of one": [a.Conv1D(4, 1, activation="relu"), a.GRU(3, return_sequences=True), a.Reshape((-1, 3, 1)), a.Reshape((-1, 3))],
        "stateful": [a.LSTM(4, return_sequences=True, stateful=True), a.Dropout(0.5), a.PReLU(shared_axes=[1])],
    }


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_kind_of_layer_goes_on_from_its_states(tmp_path: Path, ending: str) -> None:
    k = needed("keras", "keras")
    every = kinds(k)

    def check(name: str) -> None:
        model = k.Sequential([k.Input((None, 3), batch_size=2 if name == "stateful" else None), *every[name]])
        fill(model, 3)
        model.save(tmp_path / "m.keras")
        target = tmp_path / f"m.{ending}"
        done = export(tmp_path / "m.keras", target)
        x = np.random.default_rng(4).normal(size=(2, 11, 3)).astype(np.float32)
        if name == "stateful":
            model.layers[0].reset_state()
        agrees(target, [x], keras_outputs(model, [x]), done)

    each(every, check)


@pytest.mark.parametrize("ending", ENDINGS)
def test_streams_drawn_by_a_seed(tmp_path: Path, ending: str) -> None:
    def check(seed: int) -> None:
        model = random_stream(seed)
        model.save(tmp_path / "m.keras")
        try:
            done = export(tmp_path / "m.keras", tmp_path / f"m.{ending}")
        except rc.RefusedError as error:
            assert ending in ("param", "xml"), error  # which lack some of the layers, whether they are streamed or not
            with pytest.raises(rc.RefusedError, match=re.escape(error.feature)):
                steps = ["steps=12"] if ending == "param" else []
                rc.export_model(tmp_path / "m.keras", tmp_path / f"m.{ending}", force=True, settings=steps)
            raise NotComparedError(str(error)) from None
        generator = np.random.default_rng(seed)
        shapes = [(2, *(length or 12 for length in tensor.shape[1:])) for tensor in model.inputs]
        inputs = [generator.normal(size=shape).astype(np.float32) for shape in shapes]
        if model.inputs[0].dtype == "int32":
            inputs[0] = generator.integers(0, 11, shapes[0]).astype(np.int32)
        agrees(tmp_path / f"m.{ending}", inputs, keras_outputs(model, inputs), done)

    each(drawn(range(200), 4 if ending == "json" else 15, f"streams for {ending}"), check)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_cell_is_written_as_a_stream_where_it_is_written_whole(tmp_path: Path, ending: str) -> None:
    """Whatever its functions: what a target lacks of a cell does not depend on whether its states go in and out."""
    k = needed("keras", "keras")
    functions = [
        "tanh", "sigmoid", "relu", "hard_sigmoid", "softsign", "linear", "elu", "selu", "softplus", "relu6", "silu", "hard_silu",
        "leaky_relu", "exponential", "gelu", "mish",
    ]  # fmt: skip
    cells = {
        "lstm": k.layers.LSTM, "gru": k.layers.GRU, "rnn": k.layers.SimpleRNN,
        "first gru": lambda *words, **more: k.layers.GRU(*words, reset_after=False, **more),
    }  # fmt: skip

    def refused(**options: Any) -> str:
        try:
            rc.export_model(tmp_path / "m.keras", tmp_path / f"m.{ending}", format=FORMATS.get(ending), force=True, **options)
        except rc.RefusedError as error:
            return error.feature
        return ""

    def check(case: tuple[str, str, bool]) -> None:
        cell, function, gate = case
        words = {"recurrent_activation" if gate and cell != "rnn" else "activation": function}
        model = k.Sequential([k.Input((12, 2)), cells[cell](3, return_sequences=True, **words), k.layers.Dense(2)])
        model.save(tmp_path / "m.keras")
        assert refused() == refused(stateful=True)

    each(drawn(itertools.product(cells, functions, (False, True)), 12, f"cells for {ending}"), check)


def between(k: Any) -> dict[str, Any]:
    """What may stand between an input and a cell whose steps are written out."""
    a = k.layers
    return {
        "concatenate": lambda x: a.Concatenate()([x, a.Dense(3)(x)]),
        "slice": lambda x: x[:, :, 1:3],
        "convolution": a.Conv1D(3, 1),
        "axes": lambda x: a.Reshape((-1, 2, 2))(x)[:, :, 0],
        "merged axes": lambda x: a.Reshape((-1, 4))(a.Reshape((-1, 2, 2))(x)),
        "mean": lambda x: x - k.ops.mean(x, axis=-1, keepdims=True),
        "norm": lambda x: a.Multiply()([a.LayerNormalization()(x), a.Dense(4, activation="sigmoid")(x)]),
        "a cell": a.LSTM(3, activation="relu", return_sequences=True),
    }


def test_whatever_stands_before_a_cell_that_is_written_out(tmp_path: Path) -> None:
    """The net knows how many steps there are behind it: one in a stream, as many as are stated in a sequence."""
    k = needed("keras", "keras")

    def check(name: str) -> None:
        x = k.Input((None, 4))
        model = k.Model(x, k.layers.GRU(3, reset_after=False, return_sequences=True)(between(k)[name](x)))
        fill(model, 3)
        model.save(tmp_path / "m.keras")
        data = np.random.default_rng(4).normal(size=(2, 6, 4)).astype(np.float32)
        truth = keras_outputs(model, [data])
        agrees(tmp_path / "m.param", [data], truth, export(tmp_path / "m.keras", tmp_path / "m.param"))
        rc.export_model(tmp_path / "m.keras", tmp_path / "n.param", force=True, settings=["steps=6"])
        np.testing.assert_allclose(RUNS["param"](tmp_path / "n.param")([data])[0], truth[0], rtol=1e-4, atol=1e-5)

    each(between(k), check)


@pytest.mark.parametrize("ending", ["pt", "onnx", "pt2"])
@pytest.mark.parametrize("target", ["onnx", "xml", "tflite", "param"])
def test_models_of_pytorch_and_onnx_as_streams(tmp_path: Path, ending: str, target: str) -> None:
    needed("torch", "torch")
    from tests.helpers import model_specs

    def check(seed: int) -> None:
        spec = model_specs.random_spec(seed)
        source = model_specs.save(spec, tmp_path / f"m.{ending}")
        x = np.random.default_rng(seed).normal(size=(2, 6, model_specs.INPUT)).astype(np.float32)
        if ("mean",) in spec.steps:
            with pytest.raises(rc.RefusedError, match="mean over the time"):
                export(source, tmp_path / f"out.{target}")
            return
        done = export(source, tmp_path / f"out.{target}")
        agrees(tmp_path / f"out.{target}", [x], [model_specs.expected(spec, x)], done)

    each(drawn(range(100), 3, f"streams of {ending} for {target}"), check)


def test_the_time_may_be_the_first_axis(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    torch.manual_seed(1)

    class Tagger(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = torch.nn.LSTM(3, 4, num_layers=2), torch.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return torch.tanh(self.head(self.rnn(x)[0]))

    model, x = Tagger().eval(), torch.randn(12, 2, 3)
    for ending in ("onnx", "tflite", "param"):
        target = tmp_path / f"m.{ending}"
        done = rc.export_model(model, target, example=x, stateful=True, verify=True)
        assert done.equal
        assert "the time is axis 0 of x: a piece has any number of steps from 1 on" in done.notes
        if ending != "param":
            agrees(target, [x.numpy()], [model(x).detach().numpy()], done, axis=0)


def test_what_reads_last_states_goes_on_too(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    torch.manual_seed(1)

    class Reader(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = torch.nn.LSTM(3, 4, batch_first=True), torch.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            y, (h, c) = self.rnn(x)
            return self.head(y), torch.tanh(self.head(h[-1])), c.reshape(-1, 2, 2)

    model, x = Reader().eval(), torch.randn(2, 11, 3)
    torch.jit.trace(model, x).save(str(tmp_path / "m.pt"))
    for ending in ("onnx", "tflite", "xml"):
        target = tmp_path / f"m.{ending}"
        done = export(tmp_path / "m.pt", target, axes=3)
        agrees(target, [x.numpy()], [y.detach().numpy() for y in model(x)], done)


def test_a_shape_that_exchanges_batch_and_time_is_refused(tmp_path: Path) -> None:
    torch = needed("torch", "torch")

    class Exchanged(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = torch.nn.GRU(3, 4, batch_first=True)

        def forward(self, x: Any) -> Any:
            y = self.rnn(x)[0]
            return y.reshape(y.size(1), y.size(0), 4)

    torch.jit.trace(Exchanged().eval(), torch.randn(2, 5, 3)).save(str(tmp_path / "m.pt"))
    with pytest.raises(rc.RefusedError, match="the time does not stay an axis of its own"):
        export(tmp_path / "m.pt", tmp_path / "m.onnx", axes=3)


def refusals(k: Any) -> dict[str, tuple[Any, str]]:
    a, rnn = k.layers, k.layers.LSTM(3, return_sequences=True, name="rnn")
    x = k.Input((None, 4))
    states = [k.Input((3,)), k.Input((3,))]
    return {
        "two directions": ([a.Bidirectional(a.GRU(3), name="both")], "both.*two directions"),
        "from the end": ([a.GRU(3, go_backwards=True, name="back")], "back.*from the end"),
        "masked": ([a.Masking(), rnn], "rnn.*mask"),
        "window": ([a.Conv1D(3, 2, padding="same", name="wide"), rnn], "wide.*convolution over the time"),
        "pool": ([rnn, a.MaxPooling1D(2, name="fewer")], "fewer.*pool over the time"),
        "mean": ([rnn, a.GlobalAveragePooling1D(name="mean")], "mean.*the mean over the time"),
        "norm": ([rnn, a.UnitNormalization(axis=1, name="norm")], "norm over the time"),
        "softmax": ([rnn, a.Softmax(axis=1, name="over")], "softmax over the time"),
        "flat": ([k.Input((5, 4)), rnn, a.Flatten(name="flat")], "flat.*another shape"),
        "turned": ([a.Permute((2, 1), name="turned"), a.Permute((2, 1)), a.Cropping1D(1, name="cut"), rnn], "cut.*steps that are"),
        "nothing kept": ([a.Dense(3)], "without recurrent layers"),
        "attention": (k.Model(x, a.Attention(name="looks")([rnn(x), rnn(x)])), "looks.*other steps"),
        "the end beside steps": (k.Model(x, a.Multiply(name="gate")([rnn(x), a.LSTM(3)(x)])), "gate.*the last step gives"),
        "states": (k.Model([x, *states], rnn(x, initial_state=states)), "rnn.*initial states"),
    }


def test_what_cannot_be_cut_is_refused_by_name(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    every = refusals(k)

    def check(name: str) -> None:
        model, text = every[name]
        if isinstance(model, list):
            start = [] if name == "flat" else [k.Input((None, 4))]
            model = k.Sequential([*start, *model])
        model.save(tmp_path / "m.keras")
        for ending in ("onnx", "param"):
            with pytest.raises(rc.RefusedError, match=text) as refused:
                export(tmp_path / "m.keras", tmp_path / f"m.{ending}")
            assert "--stateful" in str(refused.value)
            assert not (tmp_path / f"m.{ending}").exists()

    each(every, check)


def test_the_command_proves_a_stream_and_says_what_decides_nothing(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    model = k.Sequential([k.Input((None, 3)), k.layers.LSTM(4, return_sequences=True, name="memory"), k.layers.Dense(2)])
    fill(model, 1)
    model.save(tmp_path / "m.keras")

    def call(*words: object) -> Any:
        return CliRunner().invoke(main, ["export", str(tmp_path / "m.keras"), *map(str, words), "--stateful", "--force"])

    done = call(tmp_path / "m.tflite", "--verify")
    assert done.exit_code == 0 and "memory/initial_h <- memory/h_n" in done.output and "equal: 4 runs" in done.output
    rounded = call(tmp_path / "m.tflite", "--verify", "--dtype", "int8")
    assert rounded.exit_code == 0 and "rounded to int8" in rounded.output, rounded.output
    for name in ("m.h", "m.json"):
        refused = call(tmp_path / name)
        assert refused.exit_code == 2 and "--stateful decides nothing" in refused.stderr


def test_the_proof_sees_a_state_that_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an exchange of two states of one size, the file is not kept."""
    k = needed("keras", "keras")
    model = k.Sequential([k.Input((None, 3)), k.layers.LSTM(4, return_sequences=True)])
    fill(model, 1)
    model.save(tmp_path / "m.keras")

    def exchanged(description: Any, weights: Any) -> Any:
        stream = streamed(description, weights)
        outputs = stream.description.scope.outputs
        stream.description.scope.outputs = (outputs[0], outputs[2], outputs[1])
        return stream

    monkeypatch.setattr("rnnconvert.scaffolding.export.streamed", exchanged)
    with pytest.raises(rc.NotEqualError):
        export(tmp_path / "m.keras", tmp_path / "m.onnx", verify=True)
    assert not (tmp_path / "m.onnx").exists()


def test_a_refused_stream_names_the_format_that_goes_step_by_step(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    layers = [k.layers.Conv1D(3, 2, padding="causal"), k.layers.LSTM(3)]
    for number, (extra, is_named) in enumerate((([], True), ([k.layers.Bidirectional(k.layers.GRU(2, return_sequences=True))], False))):
        path = tmp_path / f"m{number}.keras"
        k.Sequential([k.Input((None, 4)), *extra, *layers]).save(path)
        with pytest.raises(rc.RefusedError) as refused:
            export(path, tmp_path / "m.onnx")
        assert ("computes it step by step" in str(refused.value)) == is_named
