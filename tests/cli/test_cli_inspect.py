"""What inspect says of a file besides its recurrent layers, and what convert says of what it leaves out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.containers import tensor_bundle
from rnnconvert.files.load import load
from rnnconvert.models.others import others
from tests.helpers.requirements import needed
from tests.helpers.sources import keras_lstm_h5, legacy_h5, onnx_arrays, onnx_node, sequential, stack, uniform, write

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def call(*words: object) -> str:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


def document(path: Path) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(call("inspect", path, "--json"))
    return tree


def left_out(path: Path, *words: object) -> str:
    """What convert says is left out."""
    output = call("convert", path, path.with_name("out.msgpack"), "--force", *words)
    match = re.search(r"^left out: (.*)$", output, re.M)
    return match[1] if match else ""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """What a training script keeps: the weights, the optimizer, where it stands."""
    torch = needed("torch", "torch")
    torch.manual_seed(0)
    parts = {"embed": torch.nn.Embedding(4096, 64), "lstm": torch.nn.LSTM(64, 8), "norm": torch.nn.BatchNorm1d(8)}
    model = torch.nn.ModuleDict({**parts, "head": torch.nn.Linear(8, 3)})
    optimizer = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    contents = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 12, "best_loss": 0.25, "args": {"lr": 0.1}}
    torch.save(contents, tmp_path / "checkpoint.pt")
    return tmp_path / "checkpoint.pt"


def test_a_checkpoint_of_torch(checkpoint: Path) -> None:
    output = call("inspect", checkpoint)
    assert re.search(r"^  \d\.\d MB; holds a dictionary with tensors in it; epoch 12; best_loss 0.25$", output, re.M)
    # Names and shapes do not settle what a matrix without a bias is: every reading is named, none is claimed.
    assert "    embed (4,096 x 64, dense, embedding, layer norm or rms norm by its names and shapes)\n" in output
    assert "    head (3 x 8, dense by its names and shapes)\n" in output
    assert "    27 tensors (the optimizer's state)\n" in output  # 9 parameters, each with three
    assert "    1 tensor (how many batches a normalization has seen)\n" in output
    tree = document(checkpoint)
    assert tree["about"] == {"holds": "a dictionary with tensors in it", "epoch": "12", "best_loss": "0.25"}
    assert tree["bytes"] == checkpoint.stat().st_size
    names = {name for layer in tree["other_layers"] for name in layer["tensors"]}
    assert names == set(tree["other_tensors"])  # each has its place


def test_what_is_left_out_has_names_and_points_to_the_command_that_moves_it(checkpoint: Path) -> None:
    names = left_out(checkpoint)
    assert names.startswith("embed (4,096 x 64, dense, embedding")
    assert names.endswith("27 tensors (the optimizer's state), 1 tensor (how many batches a normalization has seen)")
    output = call("convert", checkpoint, checkpoint.with_name("out.npz"), "--to", "haiku")
    assert f"rnnconvert transplant {checkpoint} --into MODEL -o FILLED" in output
    out = checkpoint.with_name("out.npz")
    result = json.loads(call("convert", checkpoint, out, "--to", "haiku", "--force", "--json"))
    assert result["left_out"] == len(result["left"]) == sum(len(layer["tensors"]) for layer in result["left_out_layers"])


def test_nothing_is_pointed_to_where_nothing_would_be_moved(tmp_path: Path) -> None:
    assert left_out(write(tmp_path / "alone.safetensors")) == ""
    output = call("convert", write(tmp_path / "alone.pt"), tmp_path / "out.onnx")
    assert "left out" not in output and "transplant" not in output
    # Of a format whose files only give recurrent layers, nothing else is moved.
    source = write(tmp_path / "mine.npz", stack(name="a"), stack(name="b"), target_format="mlx")
    with np.load(source) as stored:
        arrays: dict[str, Any] = {**stored, "head.weight": np.ones((4, 2), np.float32)}
        np.savez(tmp_path / "more.npz", **arrays)
    output = call("convert", tmp_path / "more.npz", tmp_path / "out.onnx", "--from", "mlx", "--force")
    assert "left out: head.weight (4 x 2)" in output and "transplant" not in output


def test_torchscript_states_its_classes(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    parts = [torch.nn.Embedding(7, 3), torch.nn.LayerNorm(3), torch.nn.GRU(3, 4)]
    torch.jit.save(torch.jit.script(torch.nn.Sequential(*parts)), tmp_path / "script.pt")
    output = call("inspect", tmp_path / "script.pt")
    assert "holds TorchScript of torch.nn.modules.container.Sequential" in output
    assert "    0 (Embedding, 7 x 3)\n    1 (LayerNorm, 3)\n" in output


def test_a_class_of_somebodys_own_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = needed("torch", "torch")
    (tmp_path / "a_module_of_mine.py").write_text(
        "import torch\n\n\nclass Attention(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.query = torch.nn.Parameter(torch.ones(4, 6))\n        self.key = torch.nn.Parameter(torch.ones(4, 5))\n\n"
        "    def forward(self, x):\n        return x @ self.query\n\n\n"
        "class Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.rnn = torch.nn.GRU(3, 4)\n        self.attend = Attention()\n\n"
        "    def forward(self, x):\n        return self.attend(self.rnn(x)[0])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__("a_module_of_mine")
    torch.jit.save(torch.jit.script(module.Model()), tmp_path / "script.pt")
    (layer,) = others(load(tmp_path / "script.pt"))
    assert str(layer) == "attend (a_module_of_mine.Attention, 4 x 6)" and layer.tensors == ("attend.query", "attend.key")


@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_an_exported_program_states_its_version(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    program = torch.export.export(torch.nn.GRU(3, 4), (torch.zeros(5, 2, 3),))
    torch.export.save(program, tmp_path / "program.pt2")
    about = document(tmp_path / "program.pt2")["about"]
    assert about["holds"] == "an exported program" and about["framework"] == f"torch {torch.__version__}"


def test_keras_states_versions_and_classes(tmp_path: Path) -> None:
    path = keras_lstm_h5(tmp_path / "old.h5")
    assert document(path)["about"] == {"framework": "Keras 2.2.4", "backend": "tensorflow"}
    layers: list[tuple[str, dict[str, Any]]] = [
        ("LSTM", {"name": "lstm", "units": 4}),
        ("Dense", {"name": "scores", "units": 2}),
        ("Attention", {"name": "attend"}),
    ]
    arrays = {
        "lstm": [("lstm/kernel:0", uniform(1, 3, 16)), ("lstm/recurrent_kernel:0", uniform(2, 4, 16)), ("lstm/bias:0", uniform(3, 16))],
        "scores": [("scores/kernel:0", uniform(4, 4, 2)), ("scores/bias:0", uniform(5, 2))],
        "attend": [("attend/W:0", uniform(6, 4, 4)), ("attend/u:0", uniform(7, 4))],
    }
    path = legacy_h5(tmp_path / "more.h5", arrays, sequential(*layers))
    assert left_out(path, "--set", "recurrent_activation=sigmoid!") == "scores (Dense, 4 x 2), attend (Attention, 4 x 4)"
    # Without a configuration, a class is what the names and shapes fit.
    bare = legacy_h5(tmp_path / "bare.h5", arrays, None)
    assert "    scores (4 x 2, dense by its names and shapes)\n" in call("inspect", bare)


def test_onnx_states_its_producer_and_its_operators(tmp_path: Path) -> None:
    path = onnx_node(tmp_path / "a.onnx", "LSTM", onnx_arrays("LSTM"), opset=14)
    model = onnx.load(path)
    model.producer_name, model.producer_version, model.model_version = "mytool", "1.2", 7
    model.metadata_props.add(key="epoch", value="12")
    model.metadata_props.add(key="notes", value="x" * 200)
    weight = onnx.numpy_helper.from_array(np.ones((4, 5), np.float32), "fc.weight")
    model.graph.initializer.append(weight)
    model.graph.node.append(onnx.helper.make_node("MatMul", ["Y", "fc.weight"], ["scores"], "/fc/MatMul"))
    model.graph.output.append(onnx.helper.make_tensor_value_info("scores", 1, None))
    onnx.save(model, path)
    output = call("inspect", path)
    assert "; producer mytool 1.2; opset 14; IR version" in output and "; model version 7; epoch 12; notes xxx" in output
    assert "x" * 100 not in output and "x" * 100 in call("inspect", path, "-v")
    assert re.search(r"^    \S+ \(MatMul, 4 x 5\)$", output, re.M)
    assert document(path)["about"]["notes"] == "x" * 200


def test_what_stands_in_a_safetensors_file_is_shown(tmp_path: Path) -> None:
    source = load(write(tmp_path / "a.safetensors"))
    arrays = {name: np.asarray(array) for name, array in source.arrays.items()}
    save_file(arrays, tmp_path / "b.safetensors", {"format": "pt", "epoch": "3"})
    assert re.search(r"^  \d+ bytes; .*epoch 3", call("inspect", tmp_path / "b.safetensors"), re.M)


def test_many_layers_are_counted_and_listed_with_verbose(tmp_path: Path) -> None:
    source = load(write(tmp_path / "a.safetensors"))
    arrays = {name: np.asarray(array) for name, array in source.arrays.items()}
    arrays |= {f"blocks.{number}.weight": np.ones((2, 3), np.float32) for number in range(40)}
    path = tmp_path / "b.safetensors"
    save_file(arrays, path)
    output = call("inspect", path)
    assert "    and 28 more (-v lists them)\n" in output and output.count("    blocks.") == 12
    assert call("inspect", path, "-v").count("\n    blocks.") == 40
    assert "32 more (rnnconvert inspect -v lists them)" in left_out(path)


def test_a_folder_and_its_files_are_measured(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write(folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    assert document(folder)["bytes"] == sum(path.stat().st_size for path in folder.iterdir())
    write(tmp_path / "check.index", stack(), target_format="tensorflow1")
    together = sum(path.stat().st_size for path in tmp_path.iterdir() if path.name.startswith("check."))
    assert document(tmp_path / "check")["bytes"] == together


def test_layers_of_two_kinds_are_both_named() -> None:
    first, second = stack(kind="gru"), stack(input_size=4)
    both = first.replace(layers=(*first.layers, *second.layers))
    assert both.describe().startswith("GRU (reset after) and LSTM, 2 layers")


def test_what_tensorflow_1_keeps_beside_a_weight_is_one_line(tmp_path: Path) -> None:
    rc.save(rc.Checkpoint("(in memory)", "canonical", {"enc": stack("lstm", name="enc")}), tmp_path / "m.ckpt.index", "tensorflow1")
    arrays = dict(tensor_bundle.read(tmp_path / "m.ckpt.index").arrays)
    arrays |= {"proj/w": uniform(0, 8, 3), "proj/w/of_another_shape": uniform(1, 3)}
    slots = {f"{name}/{slot}": array for name, array in arrays.items() for slot in ("Adam", "ExponentialMovingAverage")}
    tensor_bundle.write(tmp_path / "m.ckpt.index", {**arrays, **slots})
    checkpoint = load(tmp_path / "m.ckpt")
    assert len(checkpoint.layers) == 1
    assert [str(other) for other in others(checkpoint)] == [
        "proj/w (8 x 3)", "proj/w/of_another_shape (3)", f"{len(slots)} tensors (state of training, not weights)"
    ]  # fmt: skip


def test_a_reason_that_many_targets_share_is_told_once(tmp_path: Path) -> None:
    path = write(tmp_path / "two.safetensors", stack(num_layers=2, num_directions=2))
    output = call("inspect", path, "--targets")
    assert output.count("Split them, and flip what the backward one reads: --set stack=split --set directions=split") == 1
    assert "nnx            refused   flax.nnx.LSTMCell cannot hold it either: as for flax\n" in output
