"""Weights of Keras alone, and the architecture of their model in a file beside them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core.errors import RnnConvertError, UnreadableError, UsageError
from tests.requirements import needed

pytestmark = [  # Keras and TensorFlow warn about their own future while they save
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a model with other functions than the usual ones, and its architecture in every kind of file."""
    keras = needed("keras", "keras")
    made = tmp_path_factory.mktemp("architecture")
    inner = keras.layers.LSTM(3, activation="relu", recurrent_activation="hard_sigmoid", return_sequences=True)
    model = keras.Sequential(
        [
            keras.Input((4, 2)),
            keras.layers.Bidirectional(inner, merge_mode="sum", name="both"),
            keras.layers.GRU(2, name="up"),
        ]
    )
    (made / "weights").mkdir()
    model.save_weights(made / "weights" / "alone.weights.h5")
    (made / "model.json").write_text(model.to_json())
    (made / "text.json").write_text(json.dumps(model.to_json()))
    held = {"scaler": np.arange(3.0), "model": model.to_json()}
    (made / "pickled.pkl").write_bytes(pickle.dumps(held))
    model.save(made / "whole.keras")
    model.save(made / "whole.h5")
    return made


KINDS = ("model.json", "text.json", "pickled.pkl", "whole.keras", "whole.h5", "model.yaml")


@pytest.mark.parametrize("kind", KINDS)
def test_the_architecture_states_what_weights_alone_do_not(folder: Path, kind: str) -> None:
    if kind.endswith(".yaml"):
        yaml: Any = needed("yaml", "yaml")
        document = json.loads((folder / "model.json").read_text())
        text = yaml.safe_dump(document).replace("batch_shape:", "batch_shape: !!python/tuple", 1)
        (folder / kind).write_text(text)
    weights = folder / "weights" / "alone.weights.h5"
    assert rc.load(weights).questions
    found = rc.load(weights, config=str(folder / kind))
    assert not found.questions
    cell = found.layers["both"].cell
    assert (cell.activation.name, cell.gate_activation.name) == ("relu", "hard_sigmoid")
    assert found.layers["both"].layers[0].merge == "sum" and found.layers["up"].cell.activation.name == "tanh"
    whole = rc.load(folder / "whole.keras")
    for name, stack in found.layers.items():
        assert stack.describe() == whole.layers[name].describe()
        gate = "i" if name == "both" else "n"
        np.testing.assert_array_equal(stack[0, 0].gates[gate].input, whole.layers[name][0, 0].gates[gate].input)


def test_commands_take_the_architecture(folder: Path, tmp_path: Path) -> None:
    weights = str(folder / "weights" / "alone.weights.h5")
    given = ["--config", str(folder / "model.json")]
    for words in (
        ["inspect", weights],
        ["convert", weights, str(tmp_path / "m.weights.h5")],
        ["diff", weights, str(folder / "whole.h5")],
    ):
        done = CliRunner().invoke(main, [*words, *given])
        assert done.exit_code == 0, done.output
        assert "assumed" not in done.output


def test_an_architecture_beside_weights_is_named_and_not_used(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "net.h5").write_bytes((folder / "weights" / "alone.weights.h5").read_bytes())
    for name in ("model.json", "config.json", "net.json"):
        (tmp_path / name).write_bytes((folder / "model.json").read_bytes())
        found = rc.load(tmp_path / "net.h5")
        assert any((name in one and "--config" in one) or "config=" in one for one in found.warnings), name
        assert found.layers["both"].cell.activation.name == "tanh"
        with pytest.raises(rc.RefusedError, match=f"{name}, next to it, states a model with these layers"):
            rc.convert(tmp_path / "net.h5", tmp_path / "net.onnx")
        (tmp_path / name).unlink()
    other = json.loads((folder / "model.json").read_text())
    other["config"]["layers"].pop()
    (tmp_path / "model.json").write_text(json.dumps(other))
    assert not rc.load(tmp_path / "net.h5").warnings
    with pytest.raises(UnreadableError, match="its model has no layer 'up'"):
        rc.load(tmp_path / "net.h5", config=str(tmp_path / "model.json"))


def test_an_architecture_alone_is_no_model(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="architecture of a Keras model, without weights"):
        rc.load(folder / "model.json")
    with pytest.raises(
        UnreadableError, match=r"pickled.pkl: it is the architecture of a Keras model.* --config .*pickled.pkl"
    ):
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
    with pytest.raises(UsageError, match="config"):
        rc.load(folder / "whole.keras", config=str(folder / "model.json"))
    (tmp_path / "bomb.yaml").write_text(
        "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    )
    with pytest.raises(RnnConvertError, match=r"aliases|package pyyaml"):
        rc.load(folder / "weights" / "alone.weights.h5", config=str(tmp_path / "bomb.yaml"))


def test_each_direction_of_weights_alone_may_have_a_function_of_its_own(folder: Path) -> None:
    weights = folder / "weights" / "alone.weights.h5"
    found = rc.load(weights, settings=["both:activation=tanh,relu", "both:recurrent_activation=sigmoid"]).layers["both"]
    assert [found[0, number].cell.activation.name for number in (0, 1)] == ["tanh", "relu"]
    assert [found[0, number].cell.output_activation.name for number in (0, 1)] == ["tanh", "relu"]


def test_the_graph_of_an_export_states_how_last_outputs_are_joined(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    for mode in ("concat", "ave"):
        inner = keras.layers.GRU(3, activation="relu", recurrent_activation="hard_sigmoid")
        model = keras.Sequential([keras.Input((4, 2)), keras.layers.Bidirectional(inner, merge_mode=mode)])
        model.export(tmp_path / mode, verbose=False)
        found = rc.load(tmp_path / mode)
        (stack,) = found.layers.values()
        assert (stack.layers[0].merge, stack.cell.activation.name, found.questions) == (mode, "relu", ())
