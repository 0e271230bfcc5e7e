"""Weights of Keras alone, and the architecture of their model in a file beside them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core.errors import RnnConvertError, UnreadableError, UsageError
from rnnconvert.formats.keras import architecture
from rnnconvert.formats.keras.upgrade import files as upgrade
from tests import ROOT
from tests.helpers.frameworks import KERAS_WARNS
from tests.helpers.requirements import needed

pytestmark = KERAS_WARNS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a model with other functions than the usual ones, and its architecture in every kind of file."""
    keras = needed("keras", "keras")
    root = tmp_path_factory.mktemp("architecture")
    inner = keras.layers.LSTM(3, activation="relu", recurrent_activation="hard_sigmoid", return_sequences=True)
    model = keras.Sequential(
        [keras.Input((4, 2)), keras.layers.Bidirectional(inner, merge_mode="sum", name="both"), keras.layers.GRU(2, name="up")]
    )
    (root / "weights").mkdir()
    model.save_weights(root / "weights" / "alone.weights.h5")
    (root / "model.json").write_text(model.to_json())
    (root / "text.json").write_text(json.dumps(model.to_json()))
    held = {"scaler": np.arange(3.0), "model": model.to_json()}
    (root / "pickled.pkl").write_bytes(pickle.dumps(held))
    model.save(root / "whole.keras")
    model.save(root / "whole.h5")
    return root


KINDS = ("model.json", "text.json", "pickled.pkl", "whole.keras", "whole.h5", "model.yaml")


@pytest.mark.parametrize("kind", KINDS)
def test_the_architecture_states_what_weights_alone_do_not(folder: Path, kind: str) -> None:
    if kind.endswith(".yaml"):
        import yaml

        document = json.loads((folder / "model.json").read_text())
        text = yaml.safe_dump(document).replace("batch_shape:", "batch_shape: !!python/tuple", 1)
        (folder / kind).write_text(text)
    weights = folder / "weights" / "alone.weights.h5"
    assert rc.load(weights).questions
    checkpoint = rc.load(weights, config=str(folder / kind))
    assert not checkpoint.questions
    cell = checkpoint.layers["both"].cell
    assert (cell.activation.name, cell.gate_activation.name) == ("relu", "hard_sigmoid")
    assert checkpoint.layers["both"].layers[0].merge == "sum" and checkpoint.layers["up"].cell.activation.name == "tanh"
    model = rc.load(folder / "whole.keras")
    for name, stack in checkpoint.layers.items():
        assert stack.describe() == model.layers[name].describe()
        gate = "i" if name == "both" else "n"
        np.testing.assert_array_equal(stack[0, 0].gates[gate].input, model.layers[name][0, 0].gates[gate].input)


def test_commands_take_the_architecture(folder: Path, tmp_path: Path) -> None:
    weights = str(folder / "weights" / "alone.weights.h5")
    option = ["--config", str(folder / "model.json")]
    for words in (["inspect", weights], ["convert", weights, str(tmp_path / "m.weights.h5")], ["diff", weights, str(folder / "whole.h5")]):
        done = CliRunner().invoke(main, [*words, *option])
        assert done.exit_code == 0, done.output
        assert "assumed" not in done.output


def _put(place: Path, folder: Path, **files: object) -> Path:
    """Write weights into a folder of their own, with files beside them; `__` in a name stands for its dot."""
    place.mkdir()
    (place / "net.h5").write_bytes((folder / "weights" / "alone.weights.h5").read_bytes())
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (place / name.replace("__", ".")).write_text(text)
    return place / "net.h5"


def _functions(path: Path) -> tuple[str, ...]:
    return tuple(stack.cell.activation.name for stack in rc.load(path).layers.values())


def test_the_only_architecture_beside_weights_that_fits_is_taken(folder: Path, tmp_path: Path) -> None:
    document = json.loads((folder / "model.json").read_text())
    for number, name in enumerate(("model.json", "config.json", "net.json", "some.json")):
        path = _put(tmp_path / str(number), folder, **{name: document})
        checkpoint = rc.load(path)
        assert checkpoint.warnings[0].startswith(f"the configuration is read from {name} next to it; name another with ")
        assert _functions(path) == ("relu", "tanh") and not checkpoint.questions
        assert checkpoint.beside == (str((path.parent / name).resolve()),)
        for words in (
            ["inspect", path], ["view", path, "-o", path.with_name("v.html")],
            ["convert", path, path.with_name("m.weights.h5")], ["diff", path, folder / "whole.h5"],
        ):  # fmt: skip
            done = CliRunner().invoke(main, [str(word) for word in words])
            assert done.exit_code == 0, done.output
        with pytest.raises(UsageError, match="belongs to the source"):
            rc.convert(path, path.with_name(name), target_format="rtneural", force=True)
        with pytest.raises(UsageError, match=rf"contradicts its configuration in {name}"):
            rc.load(path, activation="tanh")
        assert rc.load(path, settings=["activation=tanh!"]).layers["both"].cell.activation.name == "tanh"
    text = _put(tmp_path / "text", folder, weights__json=json.dumps(document))  # as json.dump(model.to_json()) writes it
    assert _functions(text) == ("relu", "tanh")
    same = _put(tmp_path / "same", folder, a__json=document, model__json=document)
    assert _functions(same) == ("relu", "tanh")


@pytest.mark.parametrize("length", [2, 3])
def test_the_architecture_of_keras_1_beside_weights_is_taken_where_its_dense_layer_fits(length: int, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    arrays = {f"{part}_{gate}": random.normal(size=shape) for gate in "icfo" for part, shape in (("W", (3, 4)), ("U", (4, 4)), ("b", (4,)))}
    held = {"encoder": arrays, "head": {"W": random.normal(size=(4, 2)), "b": random.normal(size=2)}}
    with h5py.File(tmp_path / "model.h5", "w") as file:
        file.attrs["layer_names"] = [name.encode() for name in held]
        for layer, members in held.items():
            names = {f"{layer}_{word}:0": array.astype(np.float32) for word, array in members.items()}
            group = file.create_group(layer)
            group.attrs["weight_names"] = [name.encode() for name in names]
            for name, array in names.items():
                group[name] = array
    encoder = {
        "name": "encoder",
        "output_dim": 4,
        "activation": "relu",
        "inner_activation": "hard_sigmoid",
        "batch_input_shape": [None, 5, 3],
    }
    layers = [{"class_name": "LSTM", "config": encoder}, {"class_name": "Dense", "config": {"name": "head", "output_dim": length}}]
    (tmp_path / "model.json").write_text(json.dumps({"class_name": "Sequential", "keras_version": "1.2.2", "config": layers}))
    checkpoint = rc.load(tmp_path / "model.h5")
    assert bool(checkpoint.questions) == (length == 3)
    assert checkpoint.beside == (() if length == 3 else (str((tmp_path / "model.json").resolve()),))


def _edited(folder: Path, **changes: object) -> dict[str, Any]:
    """Return the architecture with changes of the configuration of its last layer, and of the document: `at_` before their names."""
    document: dict[str, Any] = json.loads((folder / "model.json").read_text())
    for key, value in changes.items():
        if key.startswith("at_"):
            document[key.removeprefix("at_")] = value
        else:
            document["config"]["layers"][-1]["config"][key] = value
    return document


def _twice(folder: Path) -> dict[str, Any]:
    """Return an architecture in which the layer called `up` is there again, in a model inside."""
    document: dict[str, Any] = _edited(folder)
    inner = json.loads(json.dumps(document))
    inner["config"]["name"] = "inner"
    document["config"]["layers"].append(inner)
    return document


def _with_another(folder: Path) -> dict[str, Any]:
    document = _edited(folder)
    again = json.loads(json.dumps(document["config"]["layers"][-1]))
    again["config"]["name"] = "more"
    document["config"]["layers"].append(again)
    return document


def test_an_architecture_that_does_not_fit_is_not_taken(folder: Path, tmp_path: Path) -> None:
    missing = _edited(folder)
    missing["config"]["layers"].pop()
    changed = {
        "other_units": (_edited(folder, units=3), ""),
        "missing": (missing, ""),
        "more": (_with_another(folder), ""),
        "twice": (_twice(folder), ""),
        "unknown": (_edited(folder, surprise=3.0), None),
        "name": (_edited(folder, name="down"), "model.json, next to it, calls the layer 'down' that is 'up' here"),
        "large": (json.dumps(_edited(folder)) + " " * (1 << 24), "model.json, next to it, is too large"),
        "key_twice": (json.dumps(_edited(folder)).replace('"units": 2', '"units": 2, "units": 2'), ""),
        "cut": (json.dumps(_edited(folder))[:-5], ""),
        "deep": (json.dumps(_edited(folder))[:-1] + ', "x": ' + "[" * 100_000 + "]" * 100_000 + "}", ""),
    }
    for name, (document, hint) in changed.items():
        path = _put(tmp_path / name, folder, model__json=document)
        if hint is None:  # a key that nobody knows is the layer's, whoever states it
            with pytest.raises(rc.RefusedError, match="surprise"):
                rc.convert(path, path.with_name("o.onnx"))
            continue
        assert _functions(path) == ("tanh", "tanh"), name
        (why,) = {question.why.partition("layer")[2] for question in rc.load(path).questions if question.option == "activation"}
        assert hint in why and bool(hint) == ("next to" in why), (name, why)
        with pytest.raises(rc.RefusedError, match=hint or "activation"):
            rc.convert(path, path.with_name("net.onnx"))


def test_two_architectures_beside_weights_are_both_named(folder: Path, tmp_path: Path) -> None:
    documents: dict[str, object] = {"model__json": _edited(folder), "other__json": _edited(folder, activation="relu")}
    path = _put(tmp_path / "two", folder, **documents)
    assert _functions(path) == ("tanh", "tanh")
    with pytest.raises(rc.RefusedError, match=r"model\.json and other\.json, next to it, state different settings"):
        rc.convert(path, tmp_path / "o.onnx")
    assert rc.load(path, config=str(path.with_name("other.json"))).layers["up"].cell.activation.name == "relu"
    versions: dict[str, object] = {f"v{n}__json": _edited(folder, at_keras_version=f"3.{n}.0") for n in (1, 2)}
    assert rc.load(_put(tmp_path / "versions", folder, **versions)).questions  # hard_sigmoid is another function by version
    wrong: dict[str, object] = {"model__json": _edited(folder), "v2__json": _edited(folder, units=5)}
    assert _functions(_put(tmp_path / "wrong", folder, **wrong)) == ("relu", "tanh")


def test_a_second_architecture_counts_in_capitals_and_among_large_files(folder: Path, tmp_path: Path) -> None:
    """The files are read up to one bound together; one past it may state other settings."""
    other = _edited(folder, activation="relu")
    capitals = _put(tmp_path / "capitals", folder, model__json=_edited(folder), other__JSON=other)
    large = _put(tmp_path / "large", folder, model__json=_edited(folder))
    for number in range(6):
        text = json.dumps(_edited(folder))
        (large.parent / f"z{number}.json").write_text(text + " " * (3 << 20))
    (large.parent / "zz.json").write_text(json.dumps(other))
    for path, name in ((capitals, "other.JSON"), (large, "z5.json")):
        (why,) = {question.why for question in rc.load(path).questions if question.option == "activation"}
        assert f"{name}, next to it, state different settings" in why or f" and {name}" in why, why


def test_no_link_leads_to_an_architecture_elsewhere(folder: Path, tmp_path: Path) -> None:
    path = _put(tmp_path / "linked", folder)
    path.with_name("model.json").symlink_to(folder / "model.json")
    checkpoint = rc.load(path)
    assert checkpoint.questions and not checkpoint.beside
    (tmp_path / "linked" / "held").mkdir()
    (tmp_path / "linked" / "held" / "it.json").write_bytes((folder / "model.json").read_bytes())
    path.with_name("model.json").unlink()
    path.with_name("model.json").symlink_to(tmp_path / "linked" / "held" / "it.json")
    assert _functions(path) == ("relu", "tanh")
    assert rc.load(path.read_bytes()).questions  # bytes have nothing beside them


def test_a_batch_notices_that_the_architecture_changed(folder: Path, tmp_path: Path) -> None:
    path = _put(tmp_path / "one", folder, model__json=_edited(folder))
    named = _put(tmp_path / "named", folder)
    (tmp_path / "given.json").write_text(json.dumps(_edited(folder)))
    for words, changed in (
        ([str(path)], path.with_name("model.json")),
        ([str(named), "--config", str(tmp_path / "given.json")], tmp_path / "given.json"),
    ):
        target = tmp_path / f"out{len(words)}"
        batch = ["batch", *words, "--to", "keras", "--out", str(target), "--jobs", "1"]
        assert "before" not in CliRunner().invoke(main, batch).output
        assert "1 of them before" in CliRunner().invoke(main, batch).output
        changed.write_text(json.dumps(_edited(folder, activation="relu")))
        done = CliRunner().invoke(main, batch)
        assert done.exit_code == 0 and "before" not in done.output, done.output
        (written,) = target.glob("*.keras")
        assert rc.load(written).layers["up"].cell.activation.name == "relu"


def test_an_architecture_alone_is_no_model(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="architecture of a Keras model, without weights"):
        rc.load(folder / "model.json")
    with pytest.raises(UnreadableError, match=r"pickled.pkl: it is the architecture of a Keras model.* --config .*pickled.pkl"):
        rc.load(folder / "pickled.pkl")
    for text in ("class_name: Sequential\nconfig: []\n", "backend: theano\r\nclass_name: Model\r\nconfig: {}\r\n"):
        (tmp_path / "model.yml").write_text(text)
        with pytest.raises(UnreadableError, match="architecture of a Keras model, without weights"):
            rc.load(tmp_path / "model.yml")
    (tmp_path / "both.pkl").write_bytes(pickle.dumps({"model": (folder / "model.json").read_text(), "w": np.eye(3)}))
    with pytest.raises(UnreadableError, match="a pickle without arrays named as those"):  # the matrix may be a weight
        rc.load(tmp_path / "both.pkl")
    with pytest.raises(UnreadableError, match="no configuration of a Keras model"):
        rc.load(folder / "weights" / "alone.weights.h5", config=str(folder / "weights" / "alone.weights.h5"))
    assert "which is not needed" in str(rc.load(folder / "whole.keras", config=str(folder / "model.json")).warnings)
    (tmp_path / "bomb.yaml").write_text("a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60)))
    with pytest.raises(RnnConvertError, match=r"aliases|package pyyaml"):
        rc.load(folder / "weights" / "alone.weights.h5", config=str(tmp_path / "bomb.yaml"))


def test_each_direction_of_weights_alone_may_have_a_function_of_its_own(folder: Path) -> None:
    weights = folder / "weights" / "alone.weights.h5"
    layer = rc.load(weights, settings=["both:activation=tanh,relu", "both:recurrent_activation=sigmoid"]).layers["both"]
    assert [layer[0, number].cell.activation.name for number in (0, 1)] == ["tanh", "relu"]
    assert [layer[0, number].cell.output_activation.name for number in (0, 1)] == ["tanh", "relu"]


def test_the_graph_of_an_export_states_how_last_outputs_are_joined(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    for mode in ("concat", "ave"):
        inner = keras.layers.GRU(3, activation="relu", recurrent_activation="hard_sigmoid")
        model = keras.Sequential([keras.Input((4, 2)), keras.layers.Bidirectional(inner, merge_mode=mode)])
        model.export(tmp_path / mode, verbose=False)
        checkpoint = rc.load(tmp_path / mode)
        (stack,) = checkpoint.layers.values()
        assert (stack.layers[0].merge, stack.cell.activation.name, checkpoint.questions) == (mode, "relu", ())


def test_a_model_that_is_stated_twice_is_one_model_or_an_error(tmp_path: Path) -> None:
    """A script may name the model beside every file: what it repeats is a note, and another model is named as one."""
    keras = needed("keras", "keras")
    model = keras.Sequential([keras.Input((None, 3)), keras.layers.LSTM(4, return_sequences=True), keras.layers.Dense(2)])
    same, other = tmp_path / "same.json", tmp_path / "other.json"
    same.write_text(model.to_json())
    other.write_text(model.to_json().replace('"sigmoid"', '"relu"'))
    for ending in (".keras", ".h5"):
        path = tmp_path / f"model{ending}"
        model.save(path)
        note = f"{path.name} states the same model as {same}, which is not needed"
        assert note in map(str, rc.load(path, config=str(same)).warnings)
        assert note in rc.export_model(path, tmp_path / "a.onnx", config=same, force=True).notes
        why = r"states its model, and .*other\.json states another: the layer 'lstm\w*' is not the same"
        with pytest.raises(UsageError, match=why):
            rc.load(path, config=str(other))
        with pytest.raises(UsageError, match=why):
            rc.export_model(path, tmp_path / "b.onnx", config=other)
    golden = ROOT / "tests" / "golden" / "upgrade" / "cells.h5"
    document, version = architecture.read(golden)
    same.write_text(json.dumps({**document, "keras_version": version}))
    assert "which is not needed" in str(upgrade.upgrade(golden, tmp_path / "new.keras", config=same))
    other.write_text(model.to_json())
    with pytest.raises(UsageError, match="states another"):
        upgrade.upgrade(golden, tmp_path / "new.keras", config=other, force=True)
