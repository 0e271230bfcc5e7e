"""What a writer's option must do: name what is so, or make it so. One that acts on nothing is an error that says why."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

import rnnconvert as rc
from tests.helpers.sources import checkpoint, stack
from tests.helpers.stacks import BOTH

CHECKPOINT = checkpoint(
    stack("gru", name="a", parts=BOTH), stack("lstm", name="b", input_size=4),
    stack("lstm", name="c", input_size=4, num_directions=2), stack("lstm", name="d", input_size=8, num_layers=2),
)  # fmt: skip

IDLE = [
    ("a", "mlx", ["layout=mlx.lstm"], "a is a gru: the layouts for it are mlx.gru"),
    ("a", "mlx", ["a:layout=lstm"], "a is a gru"),
    ("a", "mlx", ["layout=pytorch.gru"], "layout=pytorch.gru decides nothing"),
    ("a", "mlx", ["layout=nothing"], "mlx writes no layout 'nothing'. It writes mlx.rnn, mlx.lstm, mlx.gru"),
    ("a", "pytorch", ["directions=split"], "a has one direction"),
    ("ab", "pytorch", ["directions=split"], "a has one direction; b has one direction"),
    ("a", "pytorch", ["a:stack=split"], "a has one layer"),
    ("a", "pytorch", ["stack=join"], "nothing to join it with"),
    ("a", "pytorch", ["module=flat"], "module cannot be 'flat' here. Choose one of: stack, cell"),
    ("a", "mxnet", ["module=optimized"], "Choose one of: stack, cell, flat, gates"),
    ("a", "flax", ["module=optimized"], "module=optimized decides nothing"),
    ("aa", "pytorch", [], "'a' is named twice"),
    ("a", "pytorch", ["merge=concat"], "merge=concat decides nothing"),
]
USED = [
    ("a", "mlx", ["layout=mlx.gru"]),
    ("ab", "mlx", ["layout=mlx.lstm"]),
    ("ab", "mlx", ["a:layout=gru", "b:layout=mlx.lstm"]),
    ("a", "pytorch", ["module=stack"]),
    ("ab", "pytorch", ["b:module=cell"]),
    ("abc", "onnx", ["directions=split"]),
    ("ad", "pytorch", ["d:stack=split"]),
    ("ad", "pytorch", ["stack=split"]),
    ("bc", "cudnn", ["bias_mode=double"]),
]
ENDINGS = {"mlx": "npz", "pytorch": "pt", "mxnet": "params", "flax": "npz", "onnx": "onnx", "cudnn": "safetensors"}


@pytest.mark.parametrize(("layers", "target", "settings", "words"), IDLE)
def test_an_option_that_acts_on_nothing_is_an_error(layers: str, target: str, settings: list[str], words: str, tmp_path: Path) -> None:
    path = tmp_path / f"out.{ENDINGS[target]}"
    with pytest.raises(rc.UsageError) as caught:
        rc.save(CHECKPOINT, path, target, layers=list(layers), settings=settings)
    assert words in str(caught.value) and not path.exists()


@pytest.mark.parametrize(("layers", "target", "settings"), USED)
def test_an_option_that_names_what_is_so_or_makes_it_so_is_taken(layers: str, target: str, settings: list[str], tmp_path: Path) -> None:
    assert rc.save(CHECKPOINT, tmp_path / f"out.{ENDINGS[target]}", target, layers=list(layers), settings=settings).written


def test_a_layout_is_chosen_for_one_layer(tmp_path: Path) -> None:
    two = checkpoint(stack("lstm", name="a"), stack("lstm", name="b"))
    rc.save(two, tmp_path / "out.npz", "onednn", settings=["b:layout=lstm_ldgoi"])
    with zipfile.ZipFile(tmp_path / "out.npz") as archive:
        names = set(archive.namelist())
    assert {"a/weights_layer.npy", "b/weights_layer_ldgoi.npy"} <= names and "b/weights_layer.npy" not in names
    rc.save(two, tmp_path / "out.pt", settings=["b:module=cell"])
    evidence = rc.load(tmp_path / "out.pt").evidence
    assert any(line.startswith("a: ") and "torch.nn.LSTM" in line and "LSTMCell" not in line for line in evidence)
    assert any(line.startswith("b: ") and "torch.nn.LSTMCell" in line for line in evidence)


def test_a_readme_beside_arrays_is_named_and_a_second_member_is_damage(tmp_path: Path) -> None:
    rc.save(checkpoint(stack("gru", name="a")), path := tmp_path / "m.npz", "flax")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("README.txt", "hello")
        name = archive.namelist()[0]
    assert any("README.txt: it is not an array" in warning for warning in rc.load(path).warnings)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(name, b"")
    with pytest.raises(rc.UnreadableError, match=f"two things in it have the name '{name}'"):
        rc.load(path)


def test_directions_of_different_functions_are_refused_by_that_name(tmp_path: Path) -> None:
    layer = stack("rnn", name="a", num_directions=2)
    forward, backward = layer.layers[0].directions
    relu = backward.replace(cell=backward.cell.replace(activation=rc.Activation("relu")))
    unlike = layer.replace(layers=(rc.Layer((forward, relu)),))
    with pytest.raises(rc.RefusedError, match=r"directions that differ in the function \(tanh and relu\)"):
        rc.save(checkpoint(unlike), tmp_path / "m.pt")
