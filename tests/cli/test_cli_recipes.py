"""The Python that convert prints is run as it stands, and its layers compute what the source does."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core.arrays import Array
from rnnconvert.files.adapter import variables
from tests import ROOT, environments
from tests.helpers import ready
from tests.helpers.judging import batch_first, close
from tests.helpers.requirements import need, needed
from tests.helpers.sources import keras_lstm_h5, onnx_arrays, onnx_node, stack, write

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def recipe(*words: object) -> str:
    """What a conversion prints below its heading, as somebody would copy it from the terminal."""
    result = CliRunner().invoke(main, ["convert", *map(str, words)])
    assert result.exit_code == 0, result.output
    _, heading, rest = result.stderr.partition("# to load it in Python:\n")
    assert heading, result.stderr
    return rest


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def ran(text: str, folder: Path) -> dict[str, Any]:
    names: dict[str, Any] = {}
    with inside(folder):
        exec(text, names)
    return names


def torch_layer(module: Any, x: Array) -> Array:
    import torch

    with torch.no_grad():
        return np.asarray(module(torch.from_numpy(x))[0])


def sequences(layer: rc.Recurrent) -> Array:
    """Sequences for a layer, (batch, time, values)."""
    return np.random.default_rng(3).normal(size=(2, 6, layer.input_size)).astype(layer.dtype)


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_a_keras_model_in_torch(ending: str, tmp_path: Path) -> None:
    needed("torch", "torch")
    source = ROOT / "examples" / "encoder.keras"
    with inside(tmp_path):
        text = recipe(source, f"both{ending}")
    assert text.count("batch_first=True") == 2
    variables = ran(text, tmp_path)
    for name, layer in rc.load(source).layers.items():
        x = sequences(layer)
        assert close(torch_layer(variables[name], x), batch_first(layer, x))


def test_one_layer_is_the_whole_file(tmp_path: Path) -> None:
    needed("torch", "torch")
    source = keras_lstm_h5(tmp_path / "model.h5", recurrent_activation="sigmoid")
    with inside(tmp_path):
        text = recipe(source, "one.pt")
    module = ran(text, tmp_path)["lstm"]
    (layer,) = rc.load(source).layers.values()
    x = sequences(layer)
    assert module.batch_first and close(torch_layer(module, x), batch_first(layer, x))


@pytest.mark.parametrize("layout", [0, 1])
def test_an_onnx_node_says_which_axis_comes_first(layout: int, tmp_path: Path) -> None:
    needed("torch", "torch")
    source = onnx_node(tmp_path / "a.onnx", "LSTM", onnx_arrays("LSTM"), batch_first=bool(layout))
    with inside(tmp_path):
        module = ran(recipe(source, "one.pt"), tmp_path)["rnn"]
    assert module.batch_first == bool(layout)
    (layer,) = rc.load(source).layers.values()
    x = sequences(layer)
    outputs = torch_layer(module, x if layout else x.swapaxes(0, 1))
    assert close(outputs if layout else outputs.swapaxes(0, 1), batch_first(layer, x))


def test_a_file_without_names_taken_apart(tmp_path: Path) -> None:
    needed("torch", "torch")
    deep = stack(num_layers=2, name="")
    source = write(tmp_path / "deep.pt", deep)
    with inside(tmp_path):
        text = recipe(source, "apart.safetensors", "--set", "stack=split")
    variables = ran(text, tmp_path)
    x = sequences(deep).swapaxes(0, 1)
    between = torch_layer(variables["layer_0"], x)
    assert close(torch_layer(variables["layer_1"], between).swapaxes(0, 1), batch_first(deep, x.swapaxes(0, 1)))


def test_two_directions_of_a_file_without_names() -> None:
    both = stack(num_directions=2, name="")
    assert [layer.name for layer in rc.split_directions(both)] == ["forward", "backward"]
    assert [layer.name for layer in rc.split_directions(both.replace(name="encoder"))] == ["encoder_forward", "encoder_backward"]


def test_numbers_of_another_size_stay(tmp_path: Path) -> None:
    needed("torch", "torch")
    layer = stack(dtype=np.float64)
    source = write(tmp_path / "wide.pt", layer)
    with inside(tmp_path):
        text = recipe(source, "again.safetensors")
    assert "dtype=torch.float64" in text
    x = sequences(layer)
    outputs = torch_layer(ran(text, tmp_path)["layer"], x.swapaxes(0, 1)).swapaxes(0, 1)
    assert np.abs(outputs - batch_first(layer, x)).max() < 1e-12


NAMES = {
    "encoder": "encoder", "model.encoder/lstm": "model_encoder_lstm", "0": "layer_0", "class": "layer_class", "": "layer",
    "a b": "a_b", "a.b": "a_b_2", "x'); import os #": "x_import_os", "日本": "日本",
}  # fmt: skip


def test_names_of_layers_become_names_of_python() -> None:
    assert variables(NAMES) == NAMES


def test_a_name_cannot_get_out_of_its_quotes(tmp_path: Path) -> None:
    needed("torch", "torch")
    name = "x'); raise SystemExit('taken over') #\n\"\"\""
    source = write(tmp_path / "a.safetensors", stack(name=name), stack(name="b"))
    with inside(tmp_path):
        text = recipe(source, 'it\'s "b".safetensors')
    assert "x_raise_SystemExit_taken_over" in ran(text, tmp_path)


@pytest.mark.parametrize("ending", [".keras", ".h5"])
def test_a_torch_file_in_keras(ending: str, tmp_path: Path) -> None:
    needed("keras", "keras")
    layer = stack(num_layers=2, name="")
    source = write(tmp_path / "a.pt", layer)
    with inside(tmp_path):
        text = recipe(source, f"out{ending}")
    variables = ran(text, tmp_path)
    x = sequences(layer)
    assert close(np.asarray(variables["model"](x)), batch_first(layer, x))


CALLS: list[tuple[tuple[str, ...], Callable[[Any], Any]]] = [
    ((), lambda values: values["y"]),
    (("--set", "sequence_lens=true", "--set", "states=input"), lambda values: values["y"]),
]


@pytest.mark.parametrize(("words", "output"), CALLS, ids=["plain", "with lengths and states"])
def test_a_torch_file_in_onnxruntime(words: tuple[str, ...], output: Callable[[Any], Any], tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    layer = stack("gru", num_directions=2)
    source = write(tmp_path / "a.pt", layer)
    with inside(tmp_path):
        text = recipe(source, "out.onnx", *words)
    variables = ran(text, tmp_path)
    x = np.zeros((2, 7, layer.input_size), np.float32)
    assert close(output(variables).swapaxes(0, 1), batch_first(layer, x))


def test_several_layers_in_onnxruntime(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    layers = {name: stack(kind, seed, name=name) for seed, (name, kind) in enumerate((("0", "lstm"), ("class", "gru")))}
    source = write(tmp_path / "a.safetensors", *layers.values())
    with inside(tmp_path):
        variables = ran(recipe(source, "out.onnx"), tmp_path)
    for name, variable in (("0", "layer_0_y"), ("class", "class_y")):
        layer = layers[name]
        x = np.zeros((2, 7, layer.input_size), np.float32)
        assert close(variables[variable].swapaxes(0, 1), batch_first(layer, x))


def test_a_proved_file_is_loaded_from_its_own_place(tmp_path: Path) -> None:
    needed("torch", "torch")
    source = write(tmp_path / "a.safetensors", stack())
    result = CliRunner().invoke(main, ["convert", str(source), str(tmp_path / "b.pt"), "--verify"])
    assert f"torch.load({str(tmp_path / 'b.pt')!r}" in result.stderr, result.output


RECIPES = [
    ("paddle", "paddle", "encoder.pdparams", "encoder"),
    ("chainer", "chainer", "encoder.npz", "encoder"),
    ("chainer", "chainer", "summary.h5", "summary"),
    ("mxnet", "mxnet", "encoder.params", "encoder"),
    ("flax", "flax", "summary.msgpack", "summary"),
    ("equinox", "equinox", "summary.eqx", "summary"),
]


@pytest.mark.parametrize(("framework", "format", "name", "layer"), RECIPES, ids=[row[2] for row in RECIPES])
def test_a_recipe_runs_in_its_framework(framework: str, format: str, name: str, layer: str, tmp_path: Path) -> None:
    python = sys.executable
    if framework in environments.MAKERS:
        need(framework, environments.missing(framework))
        python = str(environments.place(framework) / "bin" / "python")
    else:
        needed(framework, framework)
    text = recipe(ROOT / "examples" / "encoder.keras", tmp_path / name, "--to", format, "--layer", layer)
    done = ready.run([python, "-c", text], cwd=tmp_path, ready=framework)
    assert done.returncode == 0, done.stderr


def test_a_vector_and_several_layers_have_no_recipe_that_would_fail(tmp_path: Path) -> None:
    source = ROOT / "examples" / "encoder.keras"
    assert rc.convert(source, tmp_path / "v.params", layers="encoder", module="flat").recipe == ()
    assert rc.convert(source, tmp_path / "both.pdparams").recipe == ()


@pytest.mark.parametrize(
    ("ending", "package", "result"), [("tflite", "litert", "rnn_y"), ("xml", "openvino", "rnn_y"), ("param", "ncnn", "out1")]
)
def test_a_recipe_for_a_runtime_runs_as_it_stands(ending: str, package: str, result: str, tmp_path: Path) -> None:
    """It states its inputs, zeros, and gives what the reference gives for them, also with several layers in the file."""
    needed(package, {"litert": "ai_edge_litert"}.get(package, package))
    layers = [stack(name="first"), stack(name="rnn", seed=5)]
    source = write(tmp_path / "two.safetensors", *layers)
    with inside(tmp_path):
        text = recipe(source, f"two.{ending}")
    y = np.asarray(ran(text, tmp_path)[result]).squeeze()
    expected = batch_first(layers[1], np.zeros((2, 7, layers[1].input_size), layers[1].dtype))
    assert np.abs(y - (expected if y.ndim == 3 else expected[0])).max() < 1e-6
    assert np.abs(expected).max() > 1e-3


@pytest.mark.parametrize(
    ("ending", "package", "model"),
    [
        *((ending, package, model) for ending, package in ((".onnx", "onnxruntime"), (".tflite", "litert"), (".xml", "openvino"))
          for model in ("encoder.keras", "decoder.keras", "exported.onnx")),
        (".ncnn.param", "ncnn", "encoder.keras"),
    ],
)  # fmt: skip
def test_what_export_prints_runs_the_whole_model(model: str, ending: str, package: str, tmp_path: Path) -> None:
    needed(package, {"litert": "ai_edge_litert"}.get(package, package))
    with inside(tmp_path):
        result = CliRunner().invoke(main, ["export", str(ROOT / "examples" / model), f"whole{ending}"])
    assert result.exit_code == 0, result.output
    text = result.stderr.partition("# to run it in Python:\n")[2]
    assert "import numpy as np\n" in text
    values = ran(text, tmp_path)
    done = rc.export_model(ROOT / "examples" / model, tmp_path / f"again{ending}")
    for port in (*done.inputs, *done.outputs):
        name, _, axes = port.rstrip(")").partition(" (")
        shape, words = values[variables([name])[name]].shape, axes.split(", ")
        stated = {"batch": 2, "time": 7, **{word: int(word) for word in words if word.isdecimal()}}
        assert [stated.get(word, size) for size, word in zip(shape, words, strict=True)] == list(shape), port


def test_on_windows_commands_have_the_quotes_of_its_shells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rnnconvert.core import printable

    monkeypatch.setattr(printable, "ON_WINDOWS", True)
    with inside(tmp_path):
        result = CliRunner().invoke(main, ["convert", str(ROOT / "examples" / "encoder.keras"), "my model.onnx"])
    assert 'encoder.keras "my model.onnx" --force' in result.stderr and "'my model.onnx' --force" not in result.stderr
