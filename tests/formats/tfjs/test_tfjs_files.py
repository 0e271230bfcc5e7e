"""TensorFlow.js: it loads and runs what is written, under Node.js, and a real model gives its outputs."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, RELU, Activation, Cell
from rnnconvert.core.errors import RefusedError, UnreadableError, UsageError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.tfjs.run import absent
from rnnconvert.language.layout import Sizes
from rnnconvert.verification.running import identical
from tests import environments
from tests.helpers import corpus, frameworks
from tests.helpers.damage import endings
from tests.helpers.drawn import drawn, each
from tests.helpers.requirements import need
from tests.helpers.stacks import BOTH, PLAIN, backwards, random_stack

INPUT = PLAIN | {"input_bias"}
X = np.random.default_rng(1).uniform(-1, 1, (6, 2, 3)).astype(np.float32)
RNN, GRU, LSTM = Cell("rnn"), Cell("gru", False), Cell("lstm")


def file_of(path: Path, *stacks: Recurrent, **options: Any) -> Path:
    rc.save(Checkpoint("memory", "", {stack.name or "rnn": stack.replace(name=stack.name or "rnn") for stack in stacks}), path, "tfjs",
            **options)  # fmt: skip
    return path


def of(cell: Cell, layers: int = 1, ways: int = 1, parts: frozenset[str] = INPUT, merge: Any = "concat") -> Recurrent:
    stack = random_stack(Sizes(cell.kind, 3, 5, layers, ways, parts=parts), 5, np.float32, cell).replace(name="rnn")
    return stack.replace(layers=tuple(dataclasses.replace(layer, merge=merge) for layer in stack.layers))


def ran(path: Path, x: Array = X) -> list[Array]:
    """What TensorFlow.js gives, each output (time, batch, out)."""
    need("tfjs", environments.missing("tfjs"))
    modules = environments.place("tfjs") / "node_modules"
    words = ["node", str(Path(__file__).with_name("tfjs_run.js")), str(modules), str(path)]
    text = json.dumps(x.swapaxes(0, 1).tolist())
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=120)
    assert not done.returncode, done.stderr
    return [np.array(array) if np.ndim(array) < 3 else np.array(array).swapaxes(0, 1) for array in json.loads(done.stdout)]


_HARD = {"gate_activation": HARD_SIGMOID_KERAS_2}
_SOFT = Activation("softsign")
CASES = [
    *(of(cell, layers, ways) for cell, layers, ways in itertools.product((RNN, GRU, LSTM), (1, 2), (1, 2))),
    *(backwards(of(cell), "processing") for cell in (RNN, GRU, LSTM)), *(of(LSTM, 1, 2, merge=merge) for merge in ("sum", "mul", "ave")),
    of(LSTM.replace(**_HARD)), of(GRU.replace(**_HARD, activation=RELU), 1, 2), of(RNN.replace(activation=_SOFT), parts=PLAIN),
    of(LSTM.replace(activation=Activation("elu"), output_activation=Activation("elu"))),
]  # fmt: skip


def test_tensorflow_js_runs_what_is_written(tmp_path: Path) -> None:
    def check(stack: Recurrent) -> None:
        path = file_of(tmp_path / "model.json", stack, force=True)
        y = np.concatenate(ran(path), axis=-1)
        expected = reference.run(stack, X).y
        assert y.shape == expected.shape and np.abs(y - expected).max() < 2e-6 and np.abs(expected).max() > 0.005
        read = rc.load(path)
        assert not read.warnings and not read.questions and set(read.batch_first.values()) == {True}
        layers = tuple(layer for encoder in read.layers.values() for layer in encoder.layers)
        again = stack.replace(layers=layers, output_order=list(read.layers.values())[-1].output_order)
        assert np.array_equal(reference.run(again, X).y, expected)
        assert [layer.directions[0].cell for layer in layers] == [layer.directions[0].cell for layer in stack.layers]
        assert [layer.merge for layer in layers] == [layer.merge for layer in stack.layers]

    each(drawn(CASES, 3, "tfjs"), check, str)


def test_a_wrong_gate_would_be_seen(tmp_path: Path) -> None:
    stack = of(LSTM)
    first = stack.first
    swapped = first.with_arrays({("input", "f"): first.arrays["input", "g"], ("input", "g"): first.arrays["input", "f"]})
    wrong = stack.replace(layers=(type(stack.layers[0])((swapped,)),))
    assert np.abs(ran(file_of(tmp_path / "model.json", stack))[0] - reference.run(wrong, X).y).max() > 0.01


@pytest.fixture
def installed() -> None:
    frameworks.let_node_find_tfjs()


@pytest.mark.own_processes
@pytest.mark.usefixtures("installed")
def test_its_executor_runs_layers_with_states(tmp_path: Path) -> None:
    def check(stack: Recurrent) -> None:
        source = tmp_path / "stack.onnx"
        rc.save(Checkpoint("memory", "", {"rnn": stack}), source, "onnx", force=True)
        report = rc.verify(source, file_of(tmp_path / "model.json", stack, force=True), on=["tfjs-cpu"], explain=False)
        by_tfjs = [run["status"] for layer in report.document["layers"] for run in layer["runs"] if run["executor"] == "tfjs-cpu"]
        assert report.exit_code == 0 and set(by_tfjs) == {"ran"}, str(report)

    in_onnx = [stack for stack in CASES if stack.output_order == "time" and len(stack.layers) == 1 and stack.layers[0].merge == "concat"]
    each(drawn(in_onnx, 2, "tfjs executor"), check, str)


def _layers_model(path: Path, model: keras.Model) -> None:
    """Write a Sequential model of Keras as tensorflowjs_converter does."""
    layers = [{"class_name": type(layer).__name__, "config": layer.get_config()} for layer in model.layers]
    for layer in layers:
        layer["config"] = {key: value for key, value in layer["config"].items() if not isinstance(value, dict)}
        layer["config"].pop("zero_output_for_mask", None)  # which Keras 2 has in Bidirectional alone
    layers[0]["config"]["batch_input_shape"] = [None, None]
    named = [(f"{layer.name}/{weight.name}", np.asarray(weight)) for layer in model.layers for weight in layer.weights]
    (path.parent / "group1-shard1of1.bin").write_bytes(b"".join(array.tobytes() for _, array in named))
    specs = [{"name": name, "shape": list(array.shape), "dtype": "float32"} for name, array in named]
    topology = {"model_config": {"class_name": "Sequential", "config": {"name": "model", "layers": layers}}}
    groups = [{"paths": ["group1-shard1of1.bin"], "weights": specs}]
    path.write_text(json.dumps({"format": "layers-model", "modelTopology": topology, "weightsManifest": groups}))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.own_processes
@pytest.mark.usefixtures("installed")
def test_its_executor_runs_models_whole(tmp_path: Path) -> None:
    """Beside Keras, with a mask; another head is another model."""
    of_keras = keras.layers
    model = keras.Sequential(
        [
            keras.Input((None,)),
            of_keras.Embedding(11, 4, mask_zero=True),
            of_keras.LSTM(5, return_sequences=True),
            of_keras.GRU(3, reset_after=False),
            of_keras.Dense(2, activation="softmax"),
        ]
    )
    model.save(tmp_path / "model.keras")
    _layers_model(tmp_path / "model.json", model)
    executors = ["tfjs-cpu", "keras-tensorflow"]
    report = rc.verify(tmp_path / "model.keras", tmp_path / "model.json", on=executors, explain=False)
    assert (report.exit_code, report.document["scope"]) == (0, "whole"), str(report)
    model.layers[-1].set_weights([-array for array in model.layers[-1].get_weights()])
    _layers_model(tmp_path / "model.json", model)
    report = rc.verify(tmp_path / "model.keras", tmp_path / "model.json", on=executors, explain=False)
    assert report.exit_code == 1 and "the whole models give something else" in " ".join(str(report).split()), str(report)


def test_its_executor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NODE_PATH", "")
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/node")
    assert "npm install @tensorflow/tfjs" in absent({})
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "Node.js" in absent({})


def test_a_real_model_gives_its_outputs() -> None:
    need("corpus", corpus.absent())
    path = corpus.FOLDER / "tfjs-lstm-textgen" / "model.json"
    checkpoint = rc.load(path)
    (stack,) = checkpoint.layers.values()
    assert stack.cell.gate_activation == HARD_SIGMOID_KERAS_2 and not checkpoint.warnings
    with np.load(path.with_name("model.ref.npz")) as stored:
        y = reference.run(stack, stored["x"].swapaxes(0, 1)).y[-1]
        assert np.abs(y - stored["lstm_2__y"]).max() < 1e-6
        scores = np.exp(y @ checkpoint.tensors["dense_3/kernel"] + checkpoint.tensors["dense_3/bias"])
        assert np.abs(scores / scores.sum(axis=1, keepdims=True) - stored["out"]).max() < 1e-6
        assert np.abs(ran(path, stored["x"].swapaxes(0, 1))[0] - stored["out"]).max() < 1e-6


@pytest.mark.parametrize(
    ("cell", "why"),
    [(Cell("gru", True), "reset"), (LSTM.replace(output_activation=RELU), "relu")],
)  # fmt: skip
def test_what_tensorflow_js_does_not_compute_is_refused(cell: Cell, why: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=why):
        file_of(tmp_path / "model.json", of(cell, parts=BOTH if cell.reset_after else INPUT))
    assert not list(tmp_path.iterdir())


def test_a_layer_that_reads_from_the_end_gives_its_last_step_first(tmp_path: Path) -> None:
    recurrent = backwards(of(RNN))
    summary = rc.save(Checkpoint("memory", "", {"rnn": recurrent}), tmp_path / "model.json", "tfjs")
    assert "after rnn comes tf.reverse(y, 1)" in str(summary)
    (y,) = ran(tmp_path / "model.json")
    assert np.abs(y[::-1] - reference.run(recurrent, X).y).max() < 1e-5
    with pytest.raises(RefusedError, match="processing order, and the next layer would read that"):
        rc.save(Checkpoint("memory", "", {"rnn": backwards(of(RNN, layers=2))}), tmp_path / "model.json", "tfjs", force=True)


def test_layers_that_may_not_read_one_another_are_not_chained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="stack=join"):
        file_of(tmp_path / "model.json", of(LSTM), of(LSTM).replace(name="other"))


# Groups and configurations that others write ----------------------------------------------------------------


def edited(path: Path, change: Any) -> Path:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("kind", ["uint8", "uint16", "float16"])
def test_quantized_groups_are_read_as_tensorflow_js_reads_them(kind: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "model.json", of(LSTM))
    document = json.loads(path.read_text())
    data = np.fromfile(tmp_path / document["weightsManifest"][0]["paths"][0], "<f4")
    weights, stored, at = document["weightsManifest"][0]["weights"], [], 0
    for entry in weights:
        count = int(np.prod(entry["shape"]))
        numbers, at = data[at : at + count], at + count
        if kind == "float16":
            entry["quantization"] = {"dtype": kind, "original_dtype": "float32"}
            stored.append(numbers.astype(np.float16).tobytes())
            continue
        scale = float(np.ptp(numbers)) / np.iinfo(kind).max
        entry["quantization"] = {"dtype": kind, "scale": scale, "min": float(numbers.min())}
        stored.append(np.round((numbers - numbers.min()) / scale).astype(kind).tobytes())
    content = b"".join(stored)
    document["weightsManifest"][0]["paths"] = ["a.bin", "b.bin"]
    (tmp_path / "a.bin").write_bytes(content[:37])
    (tmp_path / "b.bin").write_bytes(content[37:])
    path.write_text(json.dumps(document))
    checkpoint = rc.load(path)
    assert any(f"stored as {kind}" in entry for entry in checkpoint.warnings)
    assert np.abs(ran(path)[0] - reference.run(checkpoint.layers["rnn"], X).y).max() < 2e-6


def test_names_as_the_converter_writes_them(tmp_path: Path) -> None:
    """Newer versions of Keras name a cell between the layer and its weights."""
    path = file_of(tmp_path / "model.json", of(GRU, 1, 2))

    def rename(document: Any) -> None:
        for entry in document["weightsManifest"][0]["weights"]:
            start, _, end = entry["name"].rpartition("/")
            entry["name"] = f"{start}/gru_cell_1/{end}"

    before = rc.load(path).layers["rnn"]
    after = rc.load(edited(path, rename)).layers["rnn"]
    assert np.array_equal(reference.run(after, X).y, reference.run(before, X).y)


def _config(document: Any) -> Any:
    return document["modelTopology"]["model_config"]["config"]["layers"][0]["config"]


FACTS: list[tuple[str, Any]] = [
    ("activation", "relu"), ("activation", "mish"), ("recurrent_activation", "hard_sigmoid"),
    ("recurrent_activation", None), ("go_backwards", True),
    ("reset_after", True), ("units", 6), ("mystery", 1), ("activation", 5), ("use_bias", "mystery"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), FACTS)
def test_no_fact_is_dropped_in_silence(key: str, value: Any, tmp_path: Path) -> None:
    path = file_of(tmp_path / "model.json", of(GRU))
    (before,) = rc.load(path).layers.values()

    def change(document: Any) -> None:
        if value is None:
            del _config(document)[key]
        elif key == "use_bias":
            del document["weightsManifest"][0]["weights"][-1]
        else:
            _config(document)[key] = value

    edited(path, change)
    try:
        checkpoint = rc.load(path)
    except UnreadableError:
        return
    if not checkpoint.unread:
        (after,) = checkpoint.layers.values()
        same = after.first.cell == before.first.cell and after.first.reverse == before.first.reverse
        assert not same or after.unconvertible or checkpoint.questions


@pytest.mark.parametrize(
    "paths", [["../model.bin"], ["/etc/passwd"], ["a/../../model.bin"], ["C:\\x"], ["missing.bin"], [5], "model.bin", []]
)
def test_weights_lie_with_their_model(paths: Any, tmp_path: Path) -> None:
    path = file_of(tmp_path / "model.json", of(GRU))

    def change(document: Any) -> None:
        document["weightsManifest"][0]["paths"] = paths

    with pytest.raises(UnreadableError):
        rc.load(edited(path, change))


def test_the_folder_of_a_model_is_read_as_its_topology(tmp_path: Path) -> None:
    """What a browser downloads, and what the converter writes, is a folder."""
    folder = tmp_path / "web"
    folder.mkdir()
    file_of(folder / "model.json", of(Cell("lstm")))
    ours, theirs = rc.load(folder), rc.load(folder / "model.json")
    assert (ours.format, ours.path, list(ours.layers)) == ("tfjs", str(folder), list(theirs.layers))
    assert all(identical(ours.layers[name], theirs.layers[name]) for name in ours.layers)
    (folder / "model.json").write_text("{}")
    with pytest.raises(UnreadableError, match="a folder of another kind"):
        rc.load(folder)


def test_a_graph_model_has_no_layers(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(json.dumps({"modelTopology": {"node": []}, "weightsManifest": []}))
    with pytest.raises(UnreadableError, match=r"a graph model, which has no layers"):
        rc.load(tmp_path / "model.json", "tfjs")


def test_keras_3_leaves_out_the_name_of_a_bidirectional_layer(tmp_path: Path) -> None:
    source = of(LSTM, ways=2)
    path = file_of(tmp_path / "model.json", source)
    document = json.loads(path.read_text())
    for weight in document["weightsManifest"][0]["weights"]:
        weight["name"] = weight["name"].replace("rnn/", "", 1)
    (layer,) = [entry for entry in document["modelTopology"]["model_config"]["config"]["layers"] if entry["class_name"] == "Bidirectional"]
    layer["config"]["layer"]["config"] |= {"name": "forward_rnn", "zero_output_for_mask": True, "seed": None}
    backward: dict[str, Any] = {
        "class_name": "LSTM",
        "config": {**layer["config"]["layer"]["config"], "name": "backward_rnn", "go_backwards": True},
    }
    layer["config"]["backward_layer"] = backward
    path.write_text(json.dumps(document))
    assert identical(rc.load(path).layers["rnn"], rc.load(file_of(tmp_path / "again.json", source)).layers["rnn"])
    rc.convert(path, tmp_path / "a.onnx")
    backward["config"]["activation"] = "relu"
    path.write_text(json.dumps(document))
    (read,) = rc.load(path).layers["rnn"].layers  # as Keras means it: TensorFlow.js makes this layer from the other one
    assert [direction.cell.activation.name for direction in read.directions] == ["tanh", "relu"]


def test_two_layers_are_refused_with_the_command_for_whole_models(tmp_path: Path) -> None:
    two = Checkpoint("memory", "", {name: of(LSTM).replace(name=name) for name in ("a", "b")})
    with pytest.raises(UsageError, match="rnnconvert export"):
        rc.save(two, tmp_path / "model.json", "tfjs")


def test_a_damaged_file_ends_in_an_error_of_ours(tmp_path: Path) -> None:
    path = file_of(tmp_path / "model.json", of(GRU, 2, 2))
    ends = endings(path, "tfjs", letters=b'0123456789{}[]"/:,-eant\x00\xff')
    assert ends == {"read", "unreadable"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtype": []},
        {"dtype": {}},
        {"quantization": {"dtype": "uint8", "scale": 10**400, "min": 0}},
        {"quantization": {"dtype": [], "scale": 1, "min": 0}},
        {"shape": [1] * 100},
        {"shape": [0] * 100},
        {"shape": [10**30, 0]},
        {"shape": [True, 16]},
    ],
    ids=lambda wrong: str(wrong)[:40],
)
def test_an_entry_that_is_no_weight_is_unreadable(wrong: dict[str, Any], tmp_path: Path) -> None:
    path = file_of(tmp_path / "model.json", of(LSTM))
    document = json.loads(path.read_text())
    document["weightsManifest"][0]["weights"][0].update(wrong)
    path.write_text(json.dumps(document))
    with pytest.raises(UnreadableError):
        rc.load(path)
