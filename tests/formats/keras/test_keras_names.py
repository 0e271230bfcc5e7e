"""Names in Keras files that say less than they seem to: users' classes, nested models, the order of layers."""

from __future__ import annotations

import itertools
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest

from rnnconvert import from_keras
from rnnconvert.containers.stored import Stored
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.files.load import load
from rnnconvert.formats.keras import groups, run_model
from rnnconvert.formats.keras.upgrade.files import upgrade
from rnnconvert.scaffolding.export import export_model
from rnnconvert.scaffolding.scaffold import scaffold
from tests import ROOT
from tests.helpers.drawn import each
from tests.helpers.frameworks import KERAS_WARNS

layers = keras.layers

pytestmark = KERAS_WARNS

SUFFIXES = [".keras", ".h5"]


def users_class(base: Any, package: str = "") -> Any:
    """A class of a user's own with the name of one of Keras's."""
    cls = type(base.__name__, (base,), {"__module__": "users_module"})
    return keras.saving.register_keras_serializable(package)(cls) if package else cls


USERS: dict[str, Callable[[], Any]] = {
    "layer": lambda: users_class(layers.LSTM, "users")(4),
    "cell": lambda: layers.RNN(users_class(layers.GRUCell, "users")(4)),
    "wrapped": lambda: layers.Bidirectional(users_class(layers.LSTM, "users")(4)),
}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", USERS)
def test_a_users_class_with_the_name_of_keras_s_own_is_not_converted(name: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{suffix}"
    keras.Sequential([layers.Input((None, 3)), USERS[name]()]).save(path)
    checkpoint = load(path)
    assert not checkpoint.layers
    assert "is not one of Keras's own" in checkpoint.warnings[0]


def test_an_unregistered_class_with_the_name_of_keras_s_own_is_not_converted(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    layer = users_class(layers.LSTM)(4)
    keras.Sequential([layers.Input((None, 3)), layer]).save(path)
    assert not load(path).layers
    with pytest.raises(UsageError, match="not a recurrent layer of Keras's own"):
        from_keras(layer)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_layers_of_one_name_in_nested_models_have_each_its_own_configuration(suffix: str, tmp_path: Path) -> None:
    def model(function: str) -> Any:
        layer = layers.LSTM(3, return_sequences=True, activation=function, name="lstm")
        return keras.Sequential([layers.Input((None, 3)), layer], name=f"through_{function}")

    source = keras.Input((None, 3))
    path = tmp_path / f"model{suffix}"
    keras.Model(source, model("relu")(model("tanh")(source))).save(path)
    assert [stack.cell.activation.name for stack in load(path).layers.values()] == ["tanh", "relu"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_layers_come_in_the_models_order(suffix: str, tmp_path: Path) -> None:
    classes = (layers.LSTM, layers.GRU, layers.SimpleRNN, layers.LSTM)
    row = [kind(3, return_sequences=True, name=name) for kind, name in zip(classes, "abcd", strict=True)]
    path = tmp_path / f"model{suffix}"
    keras.Sequential([layers.Input((None, 3)), *row]).save(path)
    assert list(load(path).layers) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
def test_names_that_keras_put_together_on_windows(suffix: str, tmp_path: Path) -> None:
    """Keras 2.13 to 2.15 joined the parts of a group's name by the system's own separator."""
    x = keras.Input((5, 3))
    model = keras.Model(x, layers.Bidirectional(layers.LSTM(2))(layers.GRU(3, return_sequences=True, name="gru")(x)))
    path, windows = tmp_path / f"model{suffix}", tmp_path / f"windows{suffix}"
    model.save(path) if suffix == ".keras" else model.save_weights(path)
    weights = path
    if suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            archive.extractall(tmp_path / "parts")
        weights = tmp_path / "parts" / "model.weights.h5"
    with h5py.File(weights) as old, h5py.File(tmp_path / "renamed.h5", "w") as new:
        names: list[str] = []
        old.visititems(lambda name, node: names.append(name) if name.endswith("/vars") else None)
        for name in names:
            group = new.require_group(name.removesuffix("/vars").replace("/", "\\")).require_group("vars")
            group.attrs.update(old[name].attrs)
            for variable, array in old[name].items():
                group.create_dataset(variable, data=array[()])
    if suffix == ".keras":
        with zipfile.ZipFile(windows, "w") as archive:
            archive.write(tmp_path / "renamed.h5", "model.weights.h5")
            for member in ("config.json", "metadata.json"):
                archive.write(tmp_path / "parts" / member, member)
    else:
        (tmp_path / "renamed.h5").rename(windows)
    before, after = load(path), load(windows)
    assert list(after.layers) == list(before.layers) and len(after.layers) == 2 and not after.unread
    for name, stack in after.layers.items():
        for (*_, renamed), (*_, direction) in zip(stack.directions(), before.layers[name].directions(), strict=True):
            assert all(np.array_equal(np.asarray(renamed.arrays[key]), np.asarray(direction.arrays[key])) for key in direction.arrays)
    if suffix == ".keras":  # what proves a conversion runs it, too: Keras does so on Windows alone
        sequences = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
        np.testing.assert_array_equal(run_model.load(str(windows))(sequences), model(sequences))


def test_layers_that_keras_2_13_counted_twice(tmp_path: Path) -> None:
    """It counts a layer with weights twice: its second LSTM is `lstm_2`, and another model's third."""
    golden = ROOT / "tests" / "golden" / "keras_2_13" / "doubled.keras"
    functions = {"a": "relu", "b": "tanh", "c": "sigmoid", "d": "sigmoid", "e": "tanh"}
    checkpoint = load(golden)
    assert {name: stack.cell.activation.name for name, stack in checkpoint.layers.items()} == functions
    upgrade(golden, tmp_path / "new.keras")
    with np.load(golden.with_suffix(".npz")) as answers:
        y = keras.saving.load_model(tmp_path / "new.keras")(answers["x0"])
        np.testing.assert_allclose(np.asarray(y), answers["y0"], rtol=0, atol=1e-6)
    with zipfile.ZipFile(golden) as archive:
        archive.extract("model.weights.h5", tmp_path)
    alone = load(tmp_path / "model.weights.h5")
    assert sorted(alone.layers) == ["bidirectional", "bidirectional_1", "lstm", "lstm_1", "lstm_2"]
    for name, letter in {"lstm_1": "b", "lstm_2": "d", "bidirectional_1": "e"}.items():
        pairs = zip(alone.layers[name].directions(), checkpoint.layers[letter].directions(), strict=True)
        assert all(
            np.array_equal(np.asarray(first.arrays[key]), np.asarray(second.arrays[key]))
            for (*_, first), (*_, second) in pairs
            for key in second.arrays
        )


def listed(weighted: tuple[bool, ...], minor: int) -> list[str]:
    """Return the groups that saving_lib of Keras 2.`minor` makes for layers of one class, those with weights listed twice."""
    names, count = [], 0
    for has_weights in weighted:
        names.append(f"lstm_{count}" if count else "lstm")
        count += 2 if has_weights and minor < 14 else 1
    return names


@pytest.mark.parametrize("minor", [12, 13, 14])
@pytest.mark.parametrize("stated", [False, True])
def test_groups_of_layers_that_keras_2_listed_twice(minor: int, stated: bool) -> None:
    """However many layers of a class there are, with weights or without, each has the number that Keras 3 gives it."""

    def check(weighted: tuple[bool, ...]) -> None:
        top, vars_of = "inner/_layer_checkpoint_dependencies", "cell/vars"
        groups_of_layers = [f"{top}/{name}/{vars_of}" for name in listed(weighted, minor)]
        outer = "_layer_checkpoint_dependencies"
        arrays = {f"{outer}/{path}/0": np.array(n) for n, path in enumerate(groups_of_layers) if weighted[n]}
        empty = [f"{outer}/{path}" for n, path in enumerate(groups_of_layers) if not weighted[n]]
        stored = groups.modern("x.keras", Stored(arrays, {"empty": empty}), f"2.{minor}.1" if stated else "")
        expected = {f"layers/inner/layers/lstm{f'_{n}' if n else ''}/{vars_of}/0": n for n, has in enumerate(weighted) if has}
        assert {name: int(array) for name, array in stored.arrays.items()} == expected

    each([case for count in range(1, 6) for case in itertools.product([True, False], repeat=count)], check)


def test_a_number_of_a_users_class_is_no_number_of_a_layer() -> None:
    arrays = {f"_layer_checkpoint_dependencies/{name}/vars/0": np.zeros(1) for name in ("encoder_2", "encoder_2_2", "decoder_01")}
    assert [name.split("/")[1] for name in groups.modern("x.keras", Stored(arrays)).arrays] == ["encoder_2", "encoder_2_1", "decoder_01"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("_layer_checkpoint_dependencies/lstm/vars/0", "layers/lstm/vars/0"),
        ("layers\\lstm/vars/0", "layers/lstm/vars/0"),
        ("_layer_checkpoint_dependencies\\lstm\\cell/vars/0", "_layer_checkpoint_dependencies/lstm/cell/vars/0"),
    ],
)
def test_groups_that_would_have_one_name_are_refused(first: str, second: str) -> None:
    for order in ((first, second), (second, first)):
        with pytest.raises(UnreadableError) as caught:
            groups.modern("x.weights.h5", Stored({name: np.zeros(2) for name in order}))
        assert all(repr(name) in str(caught.value) for name in order)


def rewritten(source: Path, target: Path, version: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """Write a .keras file as another version would, with each layer's entry in the configuration changed."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            if member == "metadata.json":
                content = json.dumps({"keras_version": version, "date_saved": "2024-01-16@01:18:30"}).encode()
            if member == "config.json":
                config = json.loads(content)
                for layer in config["config"]["layers"]:
                    change(layer)
                content = json.dumps(config).encode()
            new.writestr(member, content)
    return target


def test_keras_3_runs_what_keras_2_15_wrote(tmp_path: Path) -> None:
    """Keras 2 states a first layer's input shape in that layer, too, and an axis as a list, which Keras 3 refuses in a .keras file."""
    model = keras.Sequential([layers.Input((9, 2)), layers.GRU(4, return_sequences=True), layers.BatchNormalization(), layers.Dense(1)])
    model.save(tmp_path / "today.keras")

    def spell_as_keras_2(layer: dict[str, Any]) -> None:
        if layer["class_name"] == "GRU":
            layer["config"] |= {"batch_input_shape": [None, 9, 2], "time_major": False}
        if layer["class_name"] == "BatchNormalization":
            layer["config"]["axis"] = [2]

    old = rewritten(tmp_path / "today.keras", tmp_path / "old.keras", "2.15.0", spell_as_keras_2)
    x = np.random.default_rng(0).normal(size=(2, 9, 2)).astype(np.float32)
    np.testing.assert_array_equal(run_model.load(str(old))(x), model(x))


def test_what_keras_3_cannot_load_of_keras_2_is_no_failure(tmp_path: Path) -> None:
    keras.Sequential([layers.Input((9, 2)), layers.GRU(4, name="gru")]).save(tmp_path / "today.keras")
    for version, error in (("2.15.0", NotImplementedError), ("3.15.0", ValueError)):
        file = rewritten(
            tmp_path / "today.keras", tmp_path / f"{version}.keras", version, lambda layer: layer["config"].update(of_another_time=True)
        )
        with pytest.raises(error, match="of_another_time"):
            run_model.load(str(file))


@pytest.mark.parametrize(("preview", "kind"), [("UnifiedLSTM", layers.LSTM), ("UnifiedGRU", layers.GRU)])
def test_classes_of_previews_of_tensorflow_2(preview: str, kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "preview.h5"
    keras.Sequential([layers.Input((None, 3)), kind(3, activation="relu", return_sequences=True, name="first"), kind(2)]).save(path)
    before = load(path)
    with h5py.File(path, "r+") as file:
        file.attrs["model_config"] = str(file.attrs["model_config"]).replace(f'"{kind.__name__}"', f'"{preview}"')
    after = load(path)
    assert list(after.layers) == list(before.layers) and not after.unread
    assert [stack.cell for stack in after.layers.values()] == [stack.cell for stack in before.layers.values()]


def test_hdf5_that_is_named_keras(tmp_path: Path) -> None:
    """Keras up to 2.12 wrote HDF5 to a file of this ending, which Keras 3 takes for an archive."""
    model = keras.Sequential([layers.Input((9, 2)), layers.LSTM(4, return_sequences=True)])
    model.save(tmp_path / "model.h5")
    old = (tmp_path / "model.h5").rename(tmp_path / "model.keras")
    x = np.random.default_rng(0).normal(size=(2, 9, 2)).astype(np.float32)
    np.testing.assert_array_equal(run_model.load(str(old))(x), model(x))


def test_models_in_an_archive_are_whole_models_too(tmp_path: Path) -> None:
    old = ROOT / "tests" / "golden" / "keras_2_13" / "doubled.keras"
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.write(old, "models/old.keras")
    for path, name in ((old, "plain"), (tmp_path / "packed.zip", "packed")):
        upgrade(path, tmp_path / f"{name}.keras")
        export_model(path, tmp_path / f"{name}.onnx")
        scaffold(path, "pytorch", output=tmp_path / f"{name}.py", verify=True)
    assert load(tmp_path / "packed.keras").layers.keys() == load(tmp_path / "plain.keras").layers.keys()
    assert (tmp_path / "packed.onnx").stat().st_size == (tmp_path / "plain.onnx").stat().st_size
