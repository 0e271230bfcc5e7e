"""Functions of each direction, where files do not say them: `--set activation=relu,tanh`, forward and backward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.cells import Activation, Cell
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.files.options import Options
from rnnconvert.language.layout import Sizes
from rnnconvert.language.registry import layout
from tests.helpers.onnx_graphs import in_onnxruntime
from tests.helpers.stacks import BOTH, random_stack
from tests.language.test_layout_file import forgotten as forgotten

X = np.random.default_rng(1).uniform(-1, 1, (6, 2, 3)).astype(np.float32)

DESCRIBED = """
[[layout]]
name = "{name}.rnn"
kind = "rnn"
gates = "n"
source = "the trainer"
spelling = ["fwd_", "bwd_"]
tensors = [
    {{ name = "{{direction}}W", parts = "input", axes = "(gate hidden) in" }},
    {{ name = "{{direction}}U", parts = "recurrent", axes = "(gate hidden) in" }},
    {{ name = "{{direction}}b", parts = "input_bias", axes = "(gate hidden)" }},
]
[layout.holds]
biases = ["input"]
activations = ["tanh", "relu", "sigmoid"]
layers = false
"""


def both(directions: int = 2) -> Recurrent:
    parts = frozenset({"input", "recurrent", "input_bias"})
    return random_stack(Sizes("rnn", 3, 4, 1, directions, parts=parts), 1, np.float32, Cell("rnn")).replace(name="enc")


def through(stack: Recurrent, *functions: str) -> Recurrent:
    (layer,) = stack.layers
    ways = zip(layer.directions, functions, strict=True)
    directions = tuple(d.replace(cell=d.cell.replace(activation=Activation(function))) for d, function in ways)
    return stack.replace(layers=(Layer(directions, layer.merge),))


def saved(stack: Recurrent, path: Path, format: str) -> Path:
    rc.save(rc.Checkpoint("(made)", "canonical", {"enc": stack}), path, format)
    return path


def onnx_y(path: Path) -> Any:
    return in_onnxruntime(path, X)[0]


@pytest.mark.parametrize("functions", ["relu,tanh", "tanh,relu", "sigmoid, relu", "relu"])
@pytest.mark.parametrize("layered", [True, False])
def test_each_direction_has_the_function_that_is_said(functions: str, layered: bool, tmp_path: Path) -> None:
    stack = both()
    path = saved(stack, tmp_path / "m.npz", "lux")
    (name,) = rc.load(path, activation="tanh", merge_mode="concat").layers
    setting = f"{name}:activation={functions}" if layered else f"activation={functions}"
    first, _, second = functions.partition(",")
    expected = reference.run(through(stack, first, second.strip() or first), X).y
    layer = rc.load(path, settings=[setting, "merge_mode=concat"]).layers[name]
    np.testing.assert_allclose(reference.run(layer, X).y, expected, rtol=0, atol=1e-6)
    summary = rc.convert(path, tmp_path / "m.onnx", settings=[setting, "merge_mode=concat"])
    assert not [question for question in summary.questions if question.option == "activation"]
    np.testing.assert_allclose(onnx_y(tmp_path / "m.onnx"), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("functions", ["relu,tanh", "sigmoid,relu"])
def test_a_described_layout_has_them_too(functions: str, tmp_path: Path) -> None:
    stack = both()
    (layer,) = stack.layers
    arrays: dict[str, Any] = {
        f"{word}_{name}": np.concatenate([np.asarray(d.arrays[part, "n"])])
        for word, d in zip(("fwd", "bwd"), layer.directions, strict=True)
        for name, part in (("W", "input"), ("U", "recurrent"), ("b", "input_bias"))
    }
    np.savez(tmp_path / "m.npz", **arrays)
    (tmp_path / "trainer.toml").write_text(DESCRIBED.format(name="trainer"))
    rc.add_layouts(tmp_path / "trainer.toml")
    layers = rc.load(tmp_path / "m.npz", settings=[f"activation={functions}"]).layers
    (read,) = layers.values()
    expected = reference.run(through(stack, *functions.split(",")), X).y
    np.testing.assert_allclose(reference.run(read, X).y, expected, rtol=0, atol=1e-6)


REFUSED = [
    ("onednn", "m.npz", 2, "is read with one function for both directions"),
    ("pytorch", "m.pt", 2, "is read with one function for both directions"),
    ("mxnet", "m.params", 2, "is read with one function for both directions"),
    ("lux", "m.npz", 1, "has one direction"),
]


@pytest.mark.parametrize(("format", "name", "directions", "words"), REFUSED)
def test_a_layer_that_cannot_have_them_is_wrong_usage(format: str, name: str, directions: int, words: str, tmp_path: Path) -> None:
    stack = both(directions)
    if format in ("pytorch", "mxnet"):
        stack = random_stack(Sizes("rnn", 3, 4, 1, 2, parts=BOTH), 1, np.float32, Cell("rnn")).replace(name="enc")
    path = saved(stack, tmp_path / name, format)
    option = "activation" if format in ("lux", "onednn") else "nonlinearity"
    with pytest.raises(rc.UsageError, match=words) as caught:
        rc.load(path, format, settings=[f"{option}=relu,tanh"])
    assert caught.value.exit_code == 2 and f"--set {option}=relu" in str(caught.value)


@pytest.mark.parametrize("functions", ["relu,", ",", "relu,tanh,relu", ""])
def test_what_is_no_pair_of_functions_is_wrong_usage(functions: str) -> None:
    with pytest.raises(rc.UsageError, match="one function, or two"):
        Options({"activation": functions})


def test_constants_in_parentheses_are_one_functions_own() -> None:
    options = Options({"recurrent_activation": "hard_sigmoid(0.2, 0.5),sigmoid"})
    assert options.direction(0, 2).get("recurrent_activation") == "hard_sigmoid(0.2, 0.5)"
    assert options.direction(1, 2).get("recurrent_activation") == "sigmoid"
    with pytest.raises(rc.UsageError, match="one of: tanh, relu"):
        Options({"nonlinearity": "tanh,sigmoid"})
    assert layout("onednn", "rnn").holds.own_functions is False
