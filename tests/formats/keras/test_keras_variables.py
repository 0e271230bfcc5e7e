"""Archives of Keras's variables by their names, as people save them: read as the model's weights alone."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import safetensors
from rnnconvert.core.arrays import Array
from rnnconvert.files.load import load
from tests.helpers.requirements import needed

keras = needed("keras", "keras")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Keras on torch asks numpy so
LAYERS: dict[str, Callable[[], Any]] = {
    "two directions": lambda: keras.layers.Bidirectional(keras.layers.GRU(4, return_sequences=True, reset_after=False)),
    "reset after": lambda: keras.layers.GRU(5, return_sequences=True),
    "plain": lambda: keras.layers.SimpleRNN(3, return_sequences=True),
    "no bias": lambda: keras.layers.LSTM(2, use_bias=False),
}


def weights(model: Any, named: str) -> dict[str, Array]:
    """The model's variables under their paths, with an index as TensorFlow writes it, or as a person spells them."""
    paths = {variable.path: array for variable, array in zip(model.weights, model.get_weights(), strict=True)}
    if named == "indexed":
        return {f"{path}:0": array for path, array in paths.items()}
    if named == "underscored":
        return {path.replace("/", "_"): array for path, array in paths.items()}
    return paths


def save(path: Path, arrays: dict[str, Any]) -> None:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".pkl":
        path.write_bytes(pickle.dumps(arrays))
    elif path.suffix == ".json":
        path.write_text(json.dumps({"units": 4, **{name: array.tolist() for name, array in arrays.items()}}))
    else:
        safetensors.write(path, arrays)


def described(stack: Any) -> dict[str, Any]:
    return {f"{way.reverse}/{name}": array for way in stack.layers[0].directions for name, array in way.arrays.items()}


@pytest.mark.parametrize("ending", ["npz", "safetensors", "pkl", "json"])
@pytest.mark.parametrize("named", ["paths", "indexed", "underscored"])
def test_variables_by_name_are_the_models_layers(named: str, ending: str, tmp_path: Path) -> None:
    separate = named == "underscored"  # words joined by "_" do not show which two layers are the directions of one
    kinds = [kind for kind in LAYERS if not (separate and kind == "two directions")]
    model = keras.Sequential([keras.layers.Input((None, 3)), *(LAYERS[kind]() for kind in kinds), keras.layers.Dense(1)])
    values = np.random.default_rng(0)
    model.set_weights([values.normal(size=array.shape) for array in model.get_weights()])
    model.save(tmp_path / "model.keras")
    save(tmp_path / f"weights.{ending}", weights(model, named))
    truth, checkpoint = load(tmp_path / "model.keras"), load(tmp_path / f"weights.{ending}")
    assert checkpoint.format == "keras" and {question.option for question in checkpoint.questions} >= {"activation"}
    assert len(checkpoint.layers) == len(truth.layers)
    for right, read in zip(truth.layers.values(), checkpoint.layers.values(), strict=True):
        assert (right.cell.kind, right.cell.reset_after) == (read.cell.kind, read.cell.reset_after)
        ours, theirs = described(right), described(read)
        assert ours.keys() == theirs.keys()
        for key, array in ours.items():
            np.testing.assert_array_equal(array, theirs[key])
    with pytest.raises(rc.RefusedError, match="activation"):
        rc.convert(tmp_path / f"weights.{ending}", tmp_path / "out.onnx")


ORDERS = {"lstm": "Keras's gate order i f c o of an LSTM is assumed for {}", "gru": "Keras's gate order z r h of a GRU is assumed for {}"}


@pytest.mark.parametrize("ending", ["npz", "safetensors", "pkl", "json"])
def test_the_gate_order_that_names_alone_say_is_named_before_anybody_decides(ending: str, tmp_path: Path) -> None:
    """haste's LSTM stacks i g f o under the names of Keras: what decides the functions shows the gate order first."""
    model = keras.Sequential([keras.layers.Input((None, 3)), *(LAYERS[kind]() for kind in LAYERS)])
    path, bare = tmp_path / f"weights.{ending}", tmp_path / f"bare.{ending}"
    save(path, weights(model, "paths"))
    kinds = {name: layer.cell.kind for name, layer in load(path).layers.items()}
    lines = {ORDERS[kind].format(", ".join(name for name in kinds if kinds[name] == kind)) for kind in ORDERS}
    values = np.random.default_rng(0)
    shapes = {"kernel": (3, 16), "recurrent_kernel": (4, 16), "bias": (16,)}
    save(bare, {name: values.normal(size=shape).astype(np.float32) for name, shape in shapes.items()})
    for source, expected in ((path, lines), (bare, {ORDERS["lstm"].format("recurrent")})):
        with pytest.raises(rc.RefusedError) as raised:
            rc.convert(source, tmp_path / "out.onnx")
        summary = rc.convert(source, tmp_path / f"{source.name}.onnx", activation="tanh")
        for texts in (raised.value.details, summary.warnings):
            assert {text.partition(", by the names of the arrays alone; ")[0] for text in texts if "gate order" in text} == expected
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    for stated in ("model.keras", "model.weights.h5"):
        assert not any("gate order" in text for text in load(tmp_path / stated).warnings)


def test_variables_without_a_scope_are_one_layer_beside_others(tmp_path: Path) -> None:
    layer = keras.layers.LSTM(4)
    layer.build((None, None, 3))
    names = ("kernel", "recurrent_kernel", "bias")
    arrays = dict(zip(names, layer.get_weights(), strict=True))
    np.savez(tmp_path / "a.npz", **arrays, dense_kernel=np.ones((4, 1)), dense_bias=np.ones(1))
    (stack,) = load(tmp_path / "a.npz").layers.values()
    np.testing.assert_array_equal(stack.first.get("input", "f"), arrays["kernel"][:, 4:8].T)
    np.testing.assert_array_equal(stack.first.get("recurrent", "o"), arrays["recurrent_kernel"][:, 12:].T)
    assert stack.input_size == 3
