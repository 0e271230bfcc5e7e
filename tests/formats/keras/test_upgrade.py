"""Old whole models as Keras 3 files: what tf_keras and the old Kerases computed is what Keras computes with the new file."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import keras
import numpy as np
import pytest

from rnnconvert.containers import hdf5
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import AbsentExecutorError, RefusedError, UnreadableError, UsageError
from rnnconvert.formats.keras import keras_zip
from rnnconvert.formats.keras.config import Era
from rnnconvert.formats.keras.model.entries import NORMED
from rnnconvert.formats.keras.model.tree import tree
from rnnconvert.formats.keras.upgrade import proof as upgrade_proof
from rnnconvert.formats.keras.upgrade.assign import assign_by_names
from rnnconvert.formats.keras.upgrade.config import Translator
from rnnconvert.formats.keras.upgrade.files import compiled, upgrade
from rnnconvert.formats.keras.upgrade.notes import Notes
from rnnconvert.formats.keras.upgrade.tables import COMMON, LAYERS
from rnnconvert.running import scripts
from rnnconvert.scaffolding.export import export_model
from tests import ROOT
from tests.helpers import corpus, frameworks
from tests.helpers.commands import call
from tests.helpers.requirements import need, needed
from tests.helpers.sources import legacy_h5, sequential, uniform

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning", "ignore:.*optimizer.*:UserWarning", "ignore:.*mask.*:UserWarning"
)
GOLDEN = ROOT / "tests" / "golden" / "upgrade"


NAMES = sorted(path.stem for path in GOLDEN.glob("*.h5"))


def outputs(path: Path, inputs: list[Array]) -> list[Array]:
    """What Keras gives, in safe mode and without custom objects."""
    model = keras.saving.load_model(path, safe_mode=True)
    result = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    return [np.asarray(array) for array in (result if isinstance(result, (list, tuple)) else [result])]


def golden(name: str) -> tuple[list[Array], list[Array]]:
    with np.load(GOLDEN / f"{name}.npz") as file:
        return [file[key] for key in file if key[0] == "x"], [file[key] for key in file if key[0] == "y"]


def close(actual: list[Array], expected: list[Array]) -> None:
    assert len(actual) == len(expected)
    for ours, truth in zip(actual, expected, strict=True):
        assert ours.shape == truth.shape
        np.testing.assert_allclose(ours, truth, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", NAMES)
def test_keras_computes_what_tf_keras_computed(name: str, tmp_path: Path) -> None:
    new = tmp_path / "new.keras"
    upgrade(GOLDEN / f"{name}.h5", new)
    inputs, expected = golden(name)
    close(outputs(new, inputs), expected)


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_is_where_keras_itself_would_write_it(name: str, tmp_path: Path) -> None:
    new, again = tmp_path / "new.keras", tmp_path / "again.keras"
    upgrade(GOLDEN / f"{name}.h5", new)
    keras.saving.load_model(new, compile=False).save(again)
    ours, its = keras_zip.read(new), keras_zip.read(again)
    weights = {path: array for path, array in its.arrays.items() if "seed_generator" not in path}
    assert set(ours.arrays) == set(weights)
    for path, array in weights.items():
        np.testing.assert_array_equal(array, ours.arrays[path])
    for path, values in ours.metadata["attributes"].items():
        if "cell" not in path and "layer/" not in path:
            assert its.metadata["attributes"][path]["name"] == values["name"]


def test_the_example_is_a_file_of_tf_keras() -> None:
    assert (GOLDEN.parents[2] / "examples" / "old_tagger.h5").read_bytes() == (GOLDEN / "tagger.h5").read_bytes()


def test_the_goldens_have_most_of_the_layers() -> None:
    seen = set()
    for name in NAMES:
        with h5py.File(GOLDEN / f"{name}.h5") as file:
            text = str(file.attrs["model_config"])
        seen |= {kind for kind in LAYERS if f'"class_name": "{kind}"' in text}
    missing = set(LAYERS) - seen
    of_old_kerases = {"TimeDistributedDense", "Convolution1D", "Convolution2D", "AtrousConvolution1D", "AtrousConvolution2D",
                      "BatchNormalizationV1", "BatchNormalizationV2", "Conv3D", "Rescaling"}  # fmt: skip
    with_three_axes = {kind for kind in LAYERS if "3D" in kind or kind.startswith("Global")}
    proved = {"AlphaDropout", "DepthwiseConv1D", "GroupNormalization", NORMED}  # two by tf_keras itself, below; the last is refused
    assert missing <= of_old_kerases | with_three_axes | proved, sorted(missing - of_old_kerases - with_three_axes)


PROBES = [
    probe for probe in corpus.KERAS
    if probe.path.startswith("dl4j") and probe.layers[0] in ("bidirectional_1", "lstm", "lstm_1")
]  # fmt: skip


@pytest.mark.parametrize("probe", PROBES, ids=str)
def test_real_files_of_keras_1_and_2(probe: corpus.Probe, tmp_path: Path) -> None:
    need("corpus", corpus.absent())
    new = tmp_path / "new.keras"
    upgrade(probe.file, new)
    with np.load(probe.file.parent / probe.x.partition(":")[0]) as reference:
        close(outputs(new, [reference["x"]]), [reference["out"]])


@pytest.mark.parametrize("kind", ["tf", "th"])
def test_what_keras_1_itself_predicted(kind: str, tmp_path: Path) -> None:
    need("corpus", corpus.absent())
    folder, new = corpus.FOLDER / "dl4j-keras-imports", tmp_path / "new.keras"
    upgrade(folder / f"simple_lstm_{kind}_keras_1_model.h5", new)
    with h5py.File(folder / f"simple_lstm_{kind}_keras_1_inputs_and_outputs.h5") as file:
        x, y = file["inputs/lstm_input_1"][()], file["predictions/dense_1"][()]
    (predicted,) = outputs(new, [x])
    np.testing.assert_allclose(predicted, y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("crema-beats/model.h5", RefusedError, "layer 'lambda_2'.*Lambda.*Python code"),
        ("textgenrnn-default/textgenrnn_weights.hdf5", UsageError, "weights without a model"),
    ],
)
def test_real_files_that_are_refused(path: str, error: type[Exception], message: str, tmp_path: Path) -> None:
    need("corpus", corpus.absent())
    with pytest.raises(error, match=message):
        upgrade(corpus.FOLDER / path, tmp_path / "new.keras")
    assert list(tmp_path.iterdir()) == []


# Models of Keras 1, for which there is no Keras any more, as files by hand; the numbers by numpy.


def layer(class_name: str, name: str, *reads: str, **config: Any) -> dict[str, Any]:
    calls = [[[read, 0, 0] for read in reads]] if reads else []
    return {"class_name": class_name, "name": name, "config": {"name": name, **config}, "inbound_nodes": calls}


def old_file(path: Path, config: Any, weights: Mapping[str, Mapping[str, Array]], version: str = "1.2.2", **root: Any) -> Path:
    attributes: dict[str, dict[str, Any]] = {
        "": {"model_config": json.dumps(config), **root, **({"keras_version": version} if version else {})},
        "model_weights": {"layer_names": list(weights)},
    }
    arrays: dict[str, Any] = {}
    for name, matrices in weights.items():
        attributes[f"model_weights/{name}"] = {"weight_names": list(matrices)}
        arrays |= {f"model_weights/{name}/{key}": array for key, array in matrices.items()}
    hdf5.write(path, arrays, attributes)
    return path


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def test_layers_of_keras_1(tmp_path: Path) -> None:
    """Dense, BatchNormalization with running_std (a variance), Dropout, TimeDistributedDense, the old hard_sigmoid."""
    w, b, v = numbers(3, 4), numbers(4, seed=1), numbers(4, 2, seed=2)
    gamma, beta, mean, variance = numbers(4, seed=3), numbers(4, seed=4), numbers(4, seed=5), np.abs(numbers(4, seed=6))
    config = {"class_name": "Sequential", "config": [
        layer("TimeDistributedDense", "d", output_dim=4, activation="hard_sigmoid", bias=True, init="normal",
              batch_input_shape=[None, 5, 3], input_dtype="float32", W_regularizer={"name": "WeightRegularizer", "l1": 0.1, "l2": 0.0},
              W_constraint=None, b_regularizer=None, input_dim=3),
        layer("BatchNormalization", "n", mode=0, axis=-1, epsilon=0.01, momentum=0.9, beta_init="zero"),
        layer("Dropout", "p", p=0.5),
        layer("Activation", "a", activation="hard_sigmoid"),
        layer("Dense", "e", output_dim=2, activation="linear", bias=False),
    ]}  # fmt: skip
    weights = {
        "d": {"d_W:0": w, "d_b:0": b},
        "n": {"n_gamma:0": gamma, "n_beta:0": beta, "n_running_mean:0": mean, "n_running_std:0": variance},
        "e": {"e_W:0": v},
    }
    done = upgrade(old_file(tmp_path / "old.h5", config, weights), tmp_path / "new.keras")
    x = numbers(2, 5, 3, seed=7)
    y = np.clip(0.2 * (x @ w + b) + 0.5, 0, 1)
    y = gamma * (y - mean) / np.sqrt(variance + 0.01) + beta
    y = np.clip(0.2 * y + 0.5, 0, 1) @ v
    close(outputs(tmp_path / "new.keras", [x]), [y])
    assert "Rescaling(0.2, 0.5)" in str(done) and "multiplied by 1.2" in str(done)


def test_the_merges_of_keras_1(tmp_path: Path) -> None:
    inputs = [layer("InputLayer", name, batch_input_shape=[None, 3], input_dtype="float32", sparse=False) for name in "ab"]
    modes = ("sum", "mul", "ave", "max", "concat")
    merges = [layer("Merge", mode, "a", "b", mode=mode, concat_axis=-1, dot_axes=-1, output_shape=None, output_mask=None,
                    arguments={}, mode_type="raw", output_shape_type="raw", output_mask_type="raw") for mode in modes]  # fmt: skip
    config = {"class_name": "Model", "config": {
        "name": "m", "layers": [*inputs, *merges], "input_layers": [["a", 0, 0], ["b", 0, 0]],
        "output_layers": [[mode, 0, 0] for mode in modes]}}  # fmt: skip
    upgrade(old_file(tmp_path / "old.h5", config, {}), tmp_path / "new.keras")
    a, b = numbers(2, 3), numbers(2, 3, seed=1)
    close(outputs(tmp_path / "new.keras", [a, b]), [a + b, a * b, (a + b) / 2, np.maximum(a, b), np.concatenate([a, b], -1)])


def convolution(x: Array, kernel: Array) -> Array:
    """The sum of products, without padding: x (batch, rows, columns, in), kernel (rows, columns, in, out)."""
    rows, columns = (x.shape[axis + 1] - kernel.shape[axis] + 1 for axis in (0, 1))
    return np.stack([np.stack([
        np.tensordot(x[:, i : i + kernel.shape[0], j : j + kernel.shape[1]], kernel, 3) for j in range(columns)], 1)
        for i in range(rows)], 1)  # fmt: skip


@pytest.mark.parametrize("backend", ["tensorflow", "theano"])
def test_convolutions_of_keras_1_by_both_orders_and_backends(backend: str, tmp_path: Path) -> None:
    """Theano computed the true convolution, its kernel reversed; its axes were (filters, in, rows, columns)."""
    colon = ":0" if backend == "tensorflow" else ""
    kernel, bias = numbers(2, 3, 2, 4), numbers(4, seed=1)
    stored = kernel[::-1, ::-1] if backend == "theano" else kernel
    config: dict[str, Any] = {"class_name": "Sequential", "config": [
        layer("Convolution2D", "c", nb_filter=4, nb_row=2, nb_col=3, border_mode="valid", subsample=[1, 1], dim_ordering="tf",
              batch_input_shape=[None, 5, 6, 2], init="glorot_uniform", activation="linear", bias=True)]}  # fmt: skip
    path = old_file(tmp_path / "old.h5", config, {"c": {f"c_W{colon}": stored, f"c_b{colon}": bias}})
    upgrade(path, tmp_path / "new.keras")
    x = numbers(2, 5, 6, 2, seed=2)
    close(outputs(tmp_path / "new.keras", [x]), [(convolution(x, kernel) + bias).astype("float32")])
    config["config"][0]["config"] |= {"dim_ordering": "th", "batch_input_shape": [None, 2, 5, 6]}
    turned = np.ascontiguousarray(stored.transpose(3, 2, 0, 1))
    path = old_file(tmp_path / "th.h5", config, {"c": {f"c_W{colon}": turned, f"c_b{colon}": bias}})
    upgrade(path, tmp_path / "th.keras")
    new = keras_zip.read(tmp_path / "th.keras")
    np.testing.assert_array_equal(new.arrays["layers/conv2d/vars/0"], kernel)
    assert new.metadata["config"]["config"]["layers"][1]["config"]["data_format"] == "channels_first"


def test_convolution_1d_of_keras_1(tmp_path: Path) -> None:
    kernel = numbers(3, 2, 4)
    config = {"class_name": "Sequential", "config": [
        layer("Convolution1D", "c", nb_filter=4, filter_length=3, border_mode="valid", subsample_length=1, input_dim=2,
              batch_input_shape=[None, 6, 2], activation="linear", bias=False)]}  # fmt: skip
    x = numbers(2, 6, 2, seed=2)
    expected = convolution(x[:, :, None], kernel[:, None]).reshape(2, 4, 4)
    for number, stored in enumerate((kernel[:, None], kernel.transpose(2, 1, 0)[..., None])):  # 1.2, 1.1
        path = old_file(tmp_path / f"{number}.h5", config, {"c": {"c_W:0": np.ascontiguousarray(stored)}})
        upgrade(path, tmp_path / f"{number}.keras")
        close(outputs(tmp_path / f"{number}.keras", [x]), [expected])


# What is not known is refused by its name, and nothing is written.


def changed(name: str, path: Path, change: Callable[[Any], object]) -> Path:
    """A golden file with another configuration."""
    shutil.copy(GOLDEN / f"{name}.h5", path)
    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        change(config["config"])
        file.attrs["model_config"] = json.dumps(config)
    return path


def in_layer(number: int, **config: Any) -> Callable[[Any], None]:
    return lambda model: model["layers"][number]["config"].update(config)


REFUSED: dict[str, tuple[str, Callable[[Any], object], str]] = {
    "an unknown key": ("plain_lstm", in_layer(1, novelty=3), "'novelty'.*it is 3"),
    "an unknown class": ("plain_lstm", lambda model: model["layers"][3].update(class_name="Sparkle"), "Sparkle"),
    "a class of a user's own": ("plain_lstm", lambda model: model["layers"][3].update(class_name="mine>Dense"), "not one of Keras's own"),
    "code": ("plain_lstm", lambda model: model["layers"][3].update(class_name="Lambda"), "Python code"),
    "time_major": ("plain_lstm", in_layer(1, time_major=True), "time_major = true"),
    "an unknown function": ("plain_lstm", in_layer(3, activation="sparkle"), "activation = \"sparkle\""),
    "leaky_relu by name": ("plain_lstm", in_layer(1, activation="leaky_relu"), "leaky_relu"),
    "hard_sigmoid as a candidate": ("plain_lstm", in_layer(1, activation="hard_sigmoid"), "hard_sigmoid as a candidate"),
    "hard_sigmoid without weights": ("activations", lambda model: model["layers"][1].update(class_name="LeakyReLU"), "max_value"),
    "another number of units": ("plain_lstm", in_layer(3, use_bias=False), "2 weights.*asks for 1"),
    "a ragged input": ("plain_lstm", in_layer(0, ragged=True), "ragged = true"),
    "renorm": ("images", in_layer(3, renorm=True), "renorm = true"),
    "mode of Keras 1": ("images", in_layer(3, mode=1), "mode = 1"),
    "groups of a transposed convolution": ("images", in_layer(8, groups=3), "groups = 3"),
    "a dict in place of a number": ("tagger", in_layer(2, rate={"class_name": "__lambda__", "config": {}}), "rate"),
    "a call with training": ("shared", lambda model: next(
        item for item in model["layers"] if item["name"] == "encoder")["inbound_nodes"][0][0][3].update(training=True), "training = True"),
    "stateful without a batch": ("plain_lstm", in_layer(1, stateful=True), "stateful layer without a fixed batch"),
    "a layer that nothing reads": ("shared", lambda model: model["layers"].append(layer("Dropout", "idle", "a", rate=0.5)), "idle"),
    "another dtype": ("plain_lstm", in_layer(1, dtype="float9"), "float9"),
    "a mask joined along time": ("masked", lambda model: [item["config"].update(axis=1) for item in model["layers"]
                                                          if item["class_name"] == "Concatenate"], "joins masked values along axis 1"),
    "units that the weights contradict": ("plain_lstm", in_layer(1, units=5), "'units': it is 5, but the arrays show"),
    "units of a Dense": ("plain_lstm", in_layer(3, units=77), r"units = 77.*its weights show"),
    "a word for a flag": ("plain_lstm", in_layer(1, go_backwards="yes"), "go_backwards = .*true or false"),
    "another shape than the kernel's": ("plain_lstm", in_layer(2, reset_after=True), "reset_after"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_known_is_refused_by_name(case: str, tmp_path: Path) -> None:
    name, change, message = REFUSED[case]
    path = changed(name, tmp_path / "old.h5", change)
    with pytest.raises(RefusedError, match=message):
        upgrade(path, tmp_path / "new.keras")
    assert [file.name for file in tmp_path.iterdir()] == ["old.h5"]


def test_what_concerns_training_alone_is_left_out_with_a_note(tmp_path: Path) -> None:
    odd = {"class_name": "Mine", "config": {"l": 3}}
    path = changed("compiled", tmp_path / "old.h5", in_layer(1, kernel_regularizer=odd, kernel_initializer=odd))
    done = upgrade(path, tmp_path / "new.keras")
    assert len([text for text in done.left if "Mine" in text and "training only" in text]) == 2
    assert any("optimizer's state" in text for text in done.left)


def test_a_compiled_model_is_compiled(tmp_path: Path) -> None:
    upgrade(GOLDEN / "compiled.h5", tmp_path / "new.keras")
    model = keras.saving.load_model(tmp_path / "new.keras")
    assert type(model.optimizer).__name__ == "Adam" and float(model.optimizer.learning_rate) == pytest.approx(0.01)
    assert model.layers[0].kernel_regularizer.l2 == pytest.approx(0.01)
    before = model.evaluate(np.ones((3, 4)), np.eye(2)[[0, 1, 0]], verbose=0)
    model.fit(np.ones((3, 4)), np.eye(2)[[0, 1, 0]], verbose=0)
    assert np.isfinite(before).all()


def test_masks_are_joined_as_before(tmp_path: Path) -> None:
    """Keras 3 by itself drops the mask of a sum in which one part has none; tf_keras kept it."""
    mask = {"class_name": "Masking", "name": "m", "config": {"name": "m", "mask_value": 0.0}, "inbound_nodes": [[["x", 0, 0, {}]]]}
    config = {"class_name": "Functional", "config": {"name": "f", "trainable": True, "layers": [
        layer("InputLayer", "x", batch_input_shape=[None, 4, 2], dtype="float32"), mask,
        layer("Add", "s", "m", "x"), layer("SimpleRNN", "r", "s", units=3, activation="tanh", use_bias=False, return_sequences=False)],
        "input_layers": [["x", 0, 0]], "output_layers": [["r", 0, 0]]}}  # fmt: skip
    w, u = numbers(2, 3), numbers(3, 3, seed=1)
    path = old_file(tmp_path / "o.h5", config, {"r": {"r/kernel:0": w, "r/recurrent_kernel:0": u}}, "2.21.0", backend="tensorflow")
    upgrade(path, tmp_path / "n.keras")
    x = numbers(2, 4, 2, seed=2)
    x[0, 1:3] = 0
    state = np.zeros((2, 3))
    for step in range(4):
        new = np.tanh(2 * x[:, step] @ w + state @ u)
        state = np.where((x[:, step] != 0).any(-1, keepdims=True), new, state)
    close(outputs(tmp_path / "n.keras", [x]), [state.astype("float32")])


def test_outputs_at_masked_steps_of_old_bidirectional_layers(tmp_path: Path) -> None:
    """Before tf.keras they repeated the last output; they are zero now: said, and refused where it changes numbers."""
    model = changed("tagger", tmp_path / "old.h5", lambda _: None)
    with h5py.File(model, "r+") as file:
        file.attrs["keras_version"] = "2.3.1"
    assert "at masked steps its outputs are zero" in str(upgrade(model, tmp_path / "new.keras"))
    with h5py.File(model, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        config["config"]["layers"].append({"class_name": "Flatten", "config": {"name": "f", "data_format": "channels_last"}})
        file.attrs["model_config"] = json.dumps(config)
    with pytest.raises(RefusedError, match=r"at masked steps.*'f' sees them"):
        upgrade(model, tmp_path / "other.keras")


def test_names_that_keras_3_does_not_permit(tmp_path: Path) -> None:
    config = {"class_name": "Model", "config": {"name": "m", "layers": [
        layer("InputLayer", "mel/mag", batch_input_shape=[None, 3], dtype="float32", sparse=False),
        layer("Dense", "mel_mag", "mel/mag", units=2, activation="linear", use_bias=True)],
        "input_layers": [["mel/mag", 0, 0]], "output_layers": [["mel_mag", 0, 0]]}}  # fmt: skip
    w, b = numbers(3, 2), numbers(2)
    path = old_file(tmp_path / "o.h5", config, {"mel_mag": {"mel_mag/kernel:0": w, "mel_mag/bias:0": b}}, "2.0.5")
    done = upgrade(path, tmp_path / "n.keras")
    x = numbers(2, 3, seed=3)
    close(outputs(tmp_path / "n.keras", [x]), [x @ w + b])
    assert "its name was 'mel/mag'" in str(done)


def test_weights_with_their_configuration_beside(tmp_path: Path) -> None:
    old, weights, text = GOLDEN / "shared.h5", tmp_path / "weights.h5", tmp_path / "model.json"
    stored = hdf5.read(old)
    inside = {name.removeprefix("model_weights/"): array for name, array in stored.arrays.items() if name.startswith("model_weights/")}
    attributes = {name.removeprefix("model_weights").lstrip("/"): values for name, values in stored.metadata["attributes"].items()
                  if name.startswith("model_weights")}  # fmt: skip
    hdf5.write(weights, inside, attributes)
    refused = call("upgrade", weights, tmp_path / "new.keras")
    assert refused.exit_code == 2 and f"rnnconvert convert {weights} {tmp_path / 'weights_keras3.weights.h5'}" in refused.stderr
    text.write_text(json.dumps({**json.loads(stored.metadata["attributes"][""]["model_config"]), "keras_version": "2.21.0"}))
    alone = upgrade(weights, tmp_path / "alone.keras")
    assert len(alone.notes) == 1 and "note: the configuration is read from model.json" in str(alone)
    assert call("upgrade", weights, tmp_path / "new.keras", "--config", weights).exit_code == 3
    needless = call("upgrade", old, tmp_path / "new.keras", "--config", text)
    assert needless.exit_code == 0 and "states the same model as" in needless.output + needless.stderr
    (tmp_path / "string.json").write_text(json.dumps(text.read_text()))
    (tmp_path / "model.yaml").write_text(text.read_text())  # JSON is YAML
    inputs, expected = golden("shared")
    for config in (text, old, tmp_path / "string.json", tmp_path / "model.yaml"):
        done = call("upgrade", weights, tmp_path / "new.keras", "--config", config, "--force")
        assert done.exit_code == 0, done.output
    close(outputs(tmp_path / "new.keras", inputs), expected)
    close(outputs(tmp_path / "alone.keras", inputs), expected)


@pytest.mark.parametrize("written_by", ["2.13", "3"])
def test_a_weights_file_of_groups_with_its_configuration_beside(written_by: str, tmp_path: Path) -> None:
    """What save_weights wrote into .weights.h5, and to_json beside it: what a .keras file of both gives."""
    archived, parts = GOLDEN.parent / "keras_2_13" / "doubled.keras", tmp_path / "parts"
    with zipfile.ZipFile(archived) as archive:
        archive.extractall(parts)
    weights = parts / "model.weights.h5"
    if written_by == "3":
        hdf5.write(weights, dict(keras_zip.read(archived).arrays), {})
    assert call("upgrade", weights, tmp_path / "a.keras", "--config", parts / "config.json").exit_code == 0
    assert call("upgrade", archived, tmp_path / "b.keras").exit_code == 0
    ours, theirs = (keras_zip.read(tmp_path / name).arrays for name in ("a.keras", "b.keras"))
    assert list(ours) == list(theirs)
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_weights_of_cudnn_in_a_plain_layer(tmp_path: Path) -> None:
    """As where weights from a GPU are loaded into a model for inference: Keras turned them, too."""

    def plain(model: Any, gates: str = "sigmoid") -> None:
        both, last = model["layers"][1]["config"]["layer"], model["layers"][2]
        for entry in (both, last):
            entry["class_name"] = "LSTM"
            entry["config"] |= {"activation": "tanh", "recurrent_activation": gates}

    inputs, expected = golden("cudnn_lstm")
    upgrade(changed("cudnn_lstm", tmp_path / "old.h5", plain), tmp_path / "new.keras")
    close(outputs(tmp_path / "new.keras", inputs), expected)
    path = changed("cudnn_lstm", tmp_path / "hard.h5", lambda model: plain(model, "hard_sigmoid"))
    with pytest.raises(RefusedError, match="trained with tanh and sigmoid"):
        upgrade(path, tmp_path / "other.keras")


# Bad input, and the command.


def test_a_file_of_keras_3_is_not_upgraded(tmp_path: Path) -> None:
    with h5py.File(changed("plain_lstm", tmp_path / "old.h5", lambda _: None), "r+") as file:
        file.attrs["keras_version"] = "3.4.1"
    done = call("upgrade", tmp_path / "old.h5", tmp_path / "new.keras")
    assert done.exit_code == 2 and "Keras 3.4.1" in done.stderr


@pytest.mark.parametrize(
    ("text", "code"),
    [("{", 3), ("[]", 3), ('{"class_name": "Sequential", "config": {"layers": 3}}', 3),
     ('{"class_name": "Sequential", "config": {"name": "s", "layers": [{"class_name": "Dense"}]}}', 3),
     ('{"class_name": "Model", "config": {"name": "s", "layers": []}}', 4),
     ('{"class_name":"Sequential","config":{"name":"s","layers":[' * 60 + "]}}" * 60, 3)],
)  # fmt: skip
def test_a_damaged_configuration(text: str, code: int, tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "plain_lstm.h5", tmp_path / "old.h5")
    with h5py.File(tmp_path / "old.h5", "r+") as file:
        file.attrs["model_config"] = text
    (tmp_path / "new.keras").write_text("before")
    done = call("upgrade", tmp_path / "old.h5", tmp_path / "new.keras", "--force")
    assert done.exit_code == code, done.output
    assert (tmp_path / "new.keras").read_text() == "before"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["new.keras", "old.h5"]


def test_truncated_files_leave_everything_as_it_was(tmp_path: Path) -> None:
    data = (GOLDEN / "tagger.h5").read_bytes()
    for length in range(0, len(data), 3001):
        (tmp_path / "old.h5").write_bytes(data[:length])
        done = call("upgrade", tmp_path / "old.h5", tmp_path / "new.keras")
        assert done.exit_code == 3, (length, done.output)
    assert [file.name for file in tmp_path.iterdir()] == ["old.h5"]


def test_the_command(tmp_path: Path) -> None:
    old, new = GOLDEN / "gru_hard.h5", tmp_path / "new.keras"
    dry = call("upgrade", old, new, "--dry-run")
    assert dry.exit_code == 0 and "would write" in dry.stderr and not new.exists()
    done = call("upgrade", old, new, "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == 0 and document["written"] == "Keras 2.21.0 on tensorflow" and document["proof"] == ""
    assert "multiplied by 1.2" in document["changes"]["gru"][0]
    assert call("upgrade", old, new).exit_code == 2
    lines = dry.stderr.splitlines()
    assert len(lines) > 4 and lines[0].startswith("would write") and lines[2].startswith("  gru: its weights"), dry.stderr
    first = new.read_bytes()
    assert call("upgrade", old, new, "--force", "--quiet").stderr == "" and new.read_bytes() == first
    assert call("upgrade", old, tmp_path / "new.h5").exit_code == 2
    assert call("upgrade", old, tmp_path / "nowhere" / "new.keras").exit_code == 2
    assert call("upgrade", tmp_path / "none.h5", new, "--force").exit_code == 3
    assert call("upgrade", tmp_path, tmp_path / "other.keras").exit_code == 2


def test_without_tf_keras_nothing_is_proved_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "executors", dict)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = call("upgrade", GOLDEN / "gru_hard.h5", tmp_path / "new.keras", "--verify")
    assert done.exit_code == 5 and "tf_keras" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_layer_of_a_gpu_alone_is_no_fault_of_the_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = json.dumps({"failed": "NotFoundError: Exception encountered when calling layer 'a' (type CuDNNLSTM)."})
    ran = subprocess.CompletedProcess([], 0, answer, "")
    monkeypatch.setattr(scripts, "python_of", lambda framework, absent: sys.executable)
    monkeypatch.setattr(scripts, "subprocess", SimpleNamespace(run=lambda *words, **more: ran, TimeoutExpired=subprocess.TimeoutExpired))
    with pytest.raises(AbsentExecutorError, match="run on an NVIDIA GPU alone"):
        upgrade_proof._run("tf_keras", tmp_path / "old.h5", tmp_path)


def test_wrapped_cells_and_starts_are_no_layers_of_their_own(tmp_path: Path) -> None:
    assert upgrade(ROOT / "examples" / "old_tagger.h5", tmp_path / "new.keras").layers == 6


def test_weighted_metrics_are_kept_as_others_are() -> None:
    wrapped = {"class_name": "MeanMetricWrapper", "config": {"name": "weighted_acc", "fn": "sparse_categorical_accuracy"}}
    training = {"loss": "mse", "optimizer_config": "sgd", "metrics": None, "weighted_metrics": [[wrapped]]}
    settings = compiled(training, notes := Notes())
    assert settings is not None and settings["weighted_metrics"] == [["sparse_categorical_accuracy"]] and not notes.left
    assert compiled({**training, "weighted_metrics": ["mine"]}, notes) is not None
    assert notes.left == ['the weighted metrics ["mine"]']


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", ["cells", "masked_merges"])
def test_the_proof_by_tf_keras_itself(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keras_2 = frameworks.tf_keras()
    monkeypatch.setattr(scripts, "executors", lambda: {"tf_keras": keras_2})
    done = call("upgrade", GOLDEN / f"{name}.h5", tmp_path / "new.keras", "--verify")
    assert done.exit_code == 0 and "proved: tf_keras on the old file and Keras on the new one agree" in done.stderr, done.output


GROUPS = """
import sys
import numpy as np, tf_keras as k
L, x = k.layers, k.Input((6, 4))
y = L.GroupNormalization(2, epsilon=0.01)(L.DepthwiseConv1D(3, depth_multiplier=2, activation="tanh")(x))
model = k.Model(x, L.LSTM(3)(y))
model.set_weights([np.random.default_rng(1).uniform(0.1, 0.7, weight.shape) for weight in model.get_weights()])
model.save(sys.argv[1])
"""


def test_groups_and_depths_are_proved_by_tf_keras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keras_2 = frameworks.tf_keras()
    monkeypatch.setattr(scripts, "executors", lambda: {"tf_keras": keras_2})
    frameworks.by_keras_2(GROUPS, tmp_path / "old.h5")
    assert "agree in the output" in upgrade(tmp_path / "old.h5", tmp_path / "new.keras", verify=True).proof


def test_the_proof_keeps_only_what_is_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of tf_keras, Keras runs what the golden tests above have shown to be equal to it."""
    really, good, path = upgrade_proof._run, tmp_path / "good.keras", tmp_path / "old.h5"
    upgrade(GOLDEN / "plain_lstm.h5", good)
    shutil.copy(GOLDEN / "plain_lstm.h5", path)
    (runs := tmp_path / "runs").mkdir()

    def ran(framework: str, model: Path, folder: Path) -> None:
        if framework == "keras":
            really(framework, model, folder)
            return
        assert model == path
        if not (runs / "keras.npz").exists():
            really("keras", good, runs)
        shutil.copy(runs / "keras.npz", folder / "tf_keras.npz")

    monkeypatch.setattr(upgrade_proof, "python_of", lambda framework, absent: sys.executable)
    monkeypatch.setattr(upgrade_proof, "_run", ran)
    for number, wrong in enumerate((False, True)):
        if wrong:
            with h5py.File(path, "r+") as file:
                file["model_weights/dense/dense/bias:0"][0] += 0.01
        done = call("upgrade", path, target := tmp_path / f"new_{number}.keras", "--verify")
        assert done.exit_code == (1 if wrong else 0), done.output
        assert target.exists() is not wrong
        assert ("not equal" if wrong else "proved:") in done.stderr
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith(".")]


@pytest.mark.parametrize("planted", ["steps", "states"])
def test_the_proof_shows_steps_masked_at_the_beginning_and_states_that_last(planted: str, tmp_path: Path) -> None:
    """Keras runs both: a model, and one that counts the first two steps though they are masked, or begins each call anew."""
    keras = needed("keras", "keras")
    layers, ops, random = keras.layers, keras.ops, np.random.default_rng(0)
    start = keras.Input(batch_shape=(4, 7, 3))
    mask = ops.any(ops.not_equal(start, 0), axis=-1)
    otherwise = ops.concatenate([ops.ones_like(mask[:, :2]), mask[:, 2:]], axis=1) if planted == "steps" else mask
    stated = keras.Model(start, layers.GRU(2, stateful=planted == "states")(layers.Masking()(start), mask=mask))
    wrong = keras.Model(start, layers.GRU(2)(layers.Masking()(start), mask=otherwise))
    weights = [random.uniform(0.3, 0.8, weight.shape) for weight in wrong.get_weights()]
    last: list[Any] = []
    for model in (stated, wrong):
        model.set_weights(weights)
        model.save(path := tmp_path / f"{len(last)}.keras")
        (folder := tmp_path / str(len(last))).mkdir()
        upgrade_proof._run("keras", path, folder)
        with np.load(folder / "keras.npz") as outputs:
            last.append(outputs["y0"][-4:])
    assert np.abs(last[0] - last[1]).max() > 1e-3


def test_a_graph_with_a_loop(tmp_path: Path) -> None:
    config = {"class_name": "Model", "config": {"name": "m", "input_layers": [["a", 0, 0]], "output_layers": [["b", 0, 0]], "layers": [
        layer("InputLayer", "a", batch_input_shape=[None, 3]), layer("Dropout", "b", "c", rate=0.1),
        layer("Dropout", "c", "b", rate=0.1)]}}  # fmt: skip
    with pytest.raises(UnreadableError, match="reads its own output"):
        upgrade(old_file(tmp_path / "old.h5", config, {}, "2.2.0"), tmp_path / "new.keras")


def test_a_keras_file_of_keras_2(tmp_path: Path) -> None:
    """The layout of tf_keras's .keras files: numbered variables in a tree by class and order."""
    path = GOLDEN / "zip_of_keras_2.keras"
    inputs, expected = golden("zip_of_keras_2")
    upgrade(path, tmp_path / "new.keras")
    close(outputs(tmp_path / "new.keras", inputs), expected)
    with zipfile.ZipFile(tmp_path / "new.keras") as archive:
        assert sorted(archive.namelist()) == ["config.json", "metadata.json", "model.weights.h5"]


def test_an_array_of_no_layer_is_refused(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "plain_lstm.h5", tmp_path / "old.h5")
    with h5py.File(tmp_path / "old.h5", "r+") as file:
        file["model_weights/dense/dense/spare:0"] = np.ones(3)
    with pytest.raises(RefusedError, match=r"spare:0.*belong to no layer"):
        upgrade(tmp_path / "old.h5", tmp_path / "new.keras")


def test_a_missing_array_is_refused(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "plain_lstm.h5", tmp_path / "old.h5")
    with h5py.File(tmp_path / "old.h5", "r+") as file:
        del file["model_weights/dense/dense/bias:0"]
    with pytest.raises((RefusedError, UnreadableError), match="bias"):
        upgrade(tmp_path / "old.h5", tmp_path / "new.keras")


def every_layer(layers: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for entry in layers:
        config = entry["config"]
        if entry["class_name"] in LAYERS:
            yield entry["class_name"], config
        inside = config if isinstance(config, list) else config.get("layers") or config.get("cells") or []
        yield from every_layer([*inside, *(config[key] for key in ("layer", "cell") if key in config)])


def test_every_key_of_every_layer_counts() -> None:
    """Something strange under any key is refused, told, or seen in the new file, unless the key changes no number."""
    seen: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        with h5py.File(GOLDEN / f"{name}.h5") as file:
            seen |= dict(every_layer([json.loads(file.attrs["model_config"])]))
    assert len(seen) > 60
    silent = []
    for kind, config in seen.items():
        translator, rule = Translator(Era("2.21.0"), "float32", Notes()), LAYERS[kind]
        plain = translator.translate("it", rule, config).config
        harmless = {word[:-1] for word in f"{COMMON} {rule.keys}".split() if word[-1] == "!"}
        for key in {*config, "novelty"} - harmless - {"trainable"}:
            notes = translator.notes = Notes()
            try:
                translated = translator.translate("it", rule, {**config, key: {"strange": 7}}).config
            except RefusedError as error:
                assert key in str(error)
                continue
            if translated == plain and not any("strange" in text for text in notes.left):
                silent.append((kind, key))
    # A cell's own functions are read by the cell: see the refusals above.
    assert {key for _, key in silent} <= {"activation", "recurrent_activation", "unit_forget_bias"}, silent


def test_stacked_cells_in_a_keras_file_of_keras_2(tmp_path: Path) -> None:
    """tf_keras keeps them at cell/cells, numbered by class."""
    names = ("lstm_cell", "gru_cell", "lstm_cell_1")
    cells = [{"class_name": "GRUCell" if name == "gru_cell" else "LSTMCell", "config": {"name": name, "units": 4}} for name in names]
    stack = {"class_name": "StackedRNNCells", "config": {"name": "stack", "cells": cells}}
    config = {
        "class_name": "Sequential",
        "config": {"name": "model", "layers": [layer("RNN", "rnn", cell=stack, batch_input_shape=[None, 5, 4])]},
    }
    arrays = {}
    for number, name in enumerate(names):
        gates = 3 if name == "gru_cell" else 4
        for place, shape in enumerate([(4, 4 * gates), (4, 4 * gates), (4 * gates,)]):
            arrays[f"layers/rnn/cell/cells/{name}/vars/{place}"] = numbers(*shape, seed=10 * number + place)
    keras_zip.write(tmp_path / "old.keras", config, {"keras_version": "2.15.0", "date_saved": ""}, arrays, {})
    upgrade(tmp_path / "old.keras", tmp_path / "new.keras")
    assert keras_zip.read(tmp_path / "new.keras").arrays.keys() == arrays.keys()
    model = keras.saving.load_model(tmp_path / "new.keras")
    for name, cell in zip(names, model.layers[0].cell.cells, strict=True):
        np.testing.assert_array_equal(np.asarray(cell.kernel), arrays[f"layers/rnn/cell/cells/{name}/vars/0"])


@pytest.mark.parametrize("how", ["a later layer's shape", "an array of its author's own"])
def test_what_keras_2_does_not_read_of_its_own_files_is_no_obstacle(how: str, tmp_path: Path) -> None:
    def lstm(name: str, inputs: int) -> list[tuple[str, Array]]:
        shapes = {"kernel": (inputs, 16), "recurrent_kernel": (4, 16), "bias": (16,)}
        return [(f"{name}/{local}:0", uniform(place, *shape)) for place, (local, shape) in enumerate(shapes.items())]

    shape = {"batch_input_shape": [None, 7, 3]}
    later = shape if how.startswith("a later") else {}
    config = sequential(
        ("LSTM", {"name": "a", "units": 4, "return_sequences": True, **shape}), ("LSTM", {"name": "b", "units": 4, **later})
    )
    path = legacy_h5(tmp_path / "old.h5", {"a": lstm("a", 3), "b": lstm("b", 4)}, config)
    if not later:
        with h5py.File(path, "a") as file:
            file["info/input_size"] = 3
    done = upgrade(path, tmp_path / "new.keras")
    assert any("info/input_size: an author's own" in text for text in done.left) == (not later)
    export_model(path, tmp_path / "new.onnx", verify=True)
    first = sequential(("LSTM", {"name": "a", "units": 4, "batch_input_shape": [None, 7, 5]}))
    with pytest.raises(RefusedError, match="contradicts its weights"):
        upgrade(legacy_h5(tmp_path / "wrong.h5", {"a": lstm("a", 3)}, first), tmp_path / "wrong.keras")


def test_the_layer_of_a_time_distributed_has_its_wrappers_name_in_a_saved_model() -> None:
    """Keras 2 builds it under that name: "time_distributed/kernel" is the kernel of "dense_1"."""
    dense = {"class_name": "Dense", "config": {"name": "dense_1", "units": 2, "use_bias": True}}
    layers = [
        {"class_name": "InputLayer", "config": {"name": "x", "batch_input_shape": [None, 5, 3]}},
        {"class_name": "TimeDistributed", "config": {"name": "time_distributed", "layer": dense}},
        {"class_name": "Dense", "config": {"name": "dense", "units": 4, "use_bias": True}},
    ]
    top = tree({"class_name": "Sequential", "config": {"name": "sequential", "layers": layers}})
    arrays = {f"{name}/{word}": numbers(*shape) for name, rows, units in (("time_distributed", 3, 2), ("dense", 2, 4))
              for word, shape in (("kernel", (rows, units)), ("bias", (units,)))}  # fmt: skip
    assert assign_by_names(top, arrays) == set(arrays)
    (inner,) = (layer for layer in top.walk() if layer.name == "dense_1")
    assert inner.arrays["kernel"] is arrays["time_distributed/kernel"] and inner.arrays["bias"] is arrays["time_distributed/bias"]
