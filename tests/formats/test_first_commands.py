"""The first command that people type at a file of another program: what it answers is true, and the way out that it names works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import rnnconvert as rc
from rnnconvert.cli.main import main
from tests.helpers.requirements import needed

H, X = 4, 3


def typed(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*map(str, words)])
    return done.exit_code, done.output


def state_dict(folder: Path) -> Path:
    torch = needed("torch", "torch")
    torch.save(torch.nn.LSTM(X, H).state_dict(), folder / "a.pt")
    return folder / "a.pt"


@pytest.mark.parametrize("ending", ["npz", "npy"])
def test_arrays_of_objects_are_called_so_and_the_way_out_reads_them(ending: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    arrays = {"kernel": draw.normal(size=(X, 4 * H)), "recurrent_kernel": draw.normal(size=(H, 4 * H)), "bias": draw.normal(size=4 * H)}
    path = tmp_path / f"objects.{ending}"
    objects = np.array([*arrays.values()], object)
    if ending == "npz":
        np.savez(path, weights=objects)
    else:
        np.save(path, objects)
    code, text = typed("convert", path, tmp_path / "a.onnx")
    assert (code, "pickled Python objects" in text, "numpy.load(FILE, allow_pickle=True)" in text) == (3, True, True)
    values = np.load(path, allow_pickle=True)  # a file of our own
    if ending == "npz":
        with values as archive:
            values = archive["weights"]
    np.savez(tmp_path / "arrays.npz", **dict(zip(arrays, values, strict=True)))
    assert typed("convert", tmp_path / "arrays.npz", tmp_path / "a.onnx", "--assume-defaults")[0] == 0


@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_weights_without_the_axis_of_directions_are_those_with_it(kind: str, ways: int, tmp_path: Path) -> None:
    """PyTorch 0.4 wrote W and R of two axes, the rows of the second direction behind those of the first."""
    draw = np.random.default_rng(1)
    wide = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind] * H
    arrays_by_name = {key: draw.normal(size=(ways, *shape)) for key, shape in {"W": (wide, X), "R": (wide, H), "B": (2 * wide,)}.items()}
    layers: list[Any] = []
    for name, arrays in (("new", arrays_by_name), ("old", {key: np.concatenate(array) for key, array in arrays_by_name.items()})):
        constants = [numpy_helper.from_array(array.astype(np.float32), key) for key, array in arrays.items()]
        node = helper.make_node(
            kind, ["x", "W", "R", "B"], ["y"], name="layer", hidden_size=H, direction=("forward", "bidirectional")[ways - 1]
        )
        values = [helper.make_tensor_value_info(value, TensorProto.FLOAT, None) for value in "xy"]
        model = helper.make_model(helper.make_graph([node], "g", values[:1], values[1:], constants))
        onnx.save(model, tmp_path / f"{name}.onnx")
        layers += rc.load(tmp_path / f"{name}.onnx").layers.values()
    for (_, _, new), (_, _, old) in zip(layers[0].directions(), layers[1].directions(), strict=True):
        for key, array in new.arrays.items():
            assert np.array_equal(array, old.arrays[key])


def test_a_graph_of_tensorflow_as_text_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "graph.pbtxt").write_text('node {\n  name: "x"\n  op: "Placeholder"\n}\nversions {\n  producer: 38\n}\n')
    code, text = typed("convert", tmp_path / "graph.pbtxt", tmp_path / "a.pt")
    assert (code, "a graph of TensorFlow as text" in " ".join(text.split())) == (3, True)


def test_a_type_set_as_an_option_names_the_flag_that_works(tmp_path: Path) -> None:
    source = state_dict(tmp_path)
    code, text = typed("convert", source, tmp_path / "a.onnx", "--set", "dtype=float16")
    assert code == 2
    flag = re.search(r"--dtype \S+", text)
    assert flag is not None
    assert typed("convert", source, tmp_path / "a.onnx", *flag[0].rstrip(".").split())[0] == 0


def test_a_checkpoint_of_pytorch_names_the_way_to_one_of_tensorflow(tmp_path: Path) -> None:
    source = state_dict(tmp_path)
    code, text = typed("convert", source, tmp_path / "b.ckpt")
    assert (code, "--to tensorflow1" in text, ".ckpt.index" in text) == (0, True, True)
    code, text = typed("convert", source, tmp_path / "c.ckpt", "--to", "tensorflow1")
    named = re.search(r"such as (\S+)", text)
    assert (code, named is not None and named[1]) == (2, "c.ckpt.index")
    assert typed("convert", source, tmp_path / "c.ckpt.index", "--to", "tensorflow1")[0] == 0
    (layer,) = rc.load(tmp_path / "c.ckpt", forget_bias="0", activation="tanh").layers.values()
    assert (layer.input_size, layer.first.hidden_size) == (X, H)


def test_the_states_of_a_file_are_made_inputs_by_the_settings_that_its_note_names(tmp_path: Path) -> None:
    source = state_dict(tmp_path)
    _, text = typed("convert", source, tmp_path / "a.onnx")
    settings = re.findall(r"--set (states=\w+)", text)
    assert settings == ["states=input", "states=stream"]
    for setting in settings:
        assert typed("convert", source, tmp_path / "a.onnx", "--force", "--set", setting)[0] == 0
        assert {value.name for value in onnx.load(tmp_path / "a.onnx").graph.input} == {"x", "initial_h", "initial_c"}


def test_a_file_without_any_weights_is_called_so(tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(value, TensorProto.FLOAT, [1]) for value in "xy"]
    onnx.save(
        helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])), tmp_path / "a.onnx"
    )
    code, text = typed("convert", tmp_path / "a.onnx", tmp_path / "a.pt")
    assert (code, "nor any other weights" in text) == (3, True)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("wrapped", [False, True])
def test_dropout_inside_a_recurrent_layer_is_named_where_no_layer_keeps_it(wrapped: bool, tmp_path: Path) -> None:
    """Keras's acts on the inputs and the states; PyTorch's, between the layers of a stack, would be another."""
    keras, torch = needed("keras", "keras"), needed("torch", "torch")
    layer = keras.layers.GRU(H, dropout=0.3, recurrent_dropout=0.2, return_sequences=True, name="gru")
    model = keras.Sequential([keras.layers.Input((5, X)), keras.layers.Bidirectional(layer, name="both") if wrapped else layer])
    model.save(tmp_path / "a.keras")
    code, text = typed("scaffold", tmp_path / "a.keras", "--to", "pytorch", "--output", tmp_path / "a.py")
    assert (code, "dropout=0.3 and recurrent_dropout=0.2" in text) == (0, True)
    target = torch.nn.ModuleDict({"gru": torch.nn.GRU(X, H, batch_first=True, bidirectional=wrapped)})
    text = str(rc.load_into(target, tmp_path / "a.keras"))
    assert "the source drops 0.3 of its inputs in training" in text
    assert "dropout=0.3" not in text
