"""Every key of a recurrent layer's configuration: a wrong type, a key of another class, a value that the arrays contradict."""

from __future__ import annotations

import functools
import itertools
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.formats.keras.keys import KEYS, TYPES, known_keys, problem
from rnnconvert.formats.keras.model.entries import Entry
from rnnconvert.running import registry
from tests.helpers.drawn import drawn, each
from tests.helpers.requirements import need

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

WRONG: dict[str, list[Any]] = {
    "flag": [],  # Keras asks each for its truth: below
    "boolean": ["yes", 2, {"a": 1}],
    "size": [0, -4, "4", 4.5, True, {"a": 1}],
    "count": [-1, "1", 0.5, {"a": 1}],
    "steps": [],
    "rate": ["0", {"a": 1}],
    "word": [3, {"a": 1}, ["x"]],
    "object": [3, True, ["tanh"]],
    "layer": ["LSTM", 3, [{}]],
    "cells": ["LSTMCell", 3],
    "list": [{"a": 1}, "x", 3],
    "shape": [3, "x", [None, "3"], [None, -1]],
    "merge": ["cat", 3, {"a": 1}],
    "seed": ["x", 0.5],
    "implementation": [],  # Keras overlooks every other value: below
    "consume_less": ["tpu", 1],
    "use_cudnn": ["yes", 2, {"a": 1}],
    "config": ["x", 3],
}
LAYERS = ("LSTM", "GRU", "SimpleRNN", "Bidirectional", "RNN", "StackedRNNCells", "TimeDistributed")
CONTRADICTIONS = {
    "units": 5, "output_dim": 5, "use_bias": False, "reset_after": False, "input_dim": 4, "batch_input_shape": [None, 5, 4],
    "batch_shape": [None, 5, 4], "input_shape": [5, 4],
}  # fmt: skip
SHAPES = ("batch_input_shape", "batch_shape", "input_shape", "input_dim")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Return the file of a layer, as Keras saves it."""
    need("keras", registry.built_in()["keras-tensorflow"].absent)
    import keras

    folder, layers = tmp_path_factory.mktemp("keys"), keras.layers
    makers: dict[str, Callable[[], Any]] = {
        **{kind: functools.partial(getattr(layers, kind), 4, name="it") for kind in ("LSTM", "GRU", "SimpleRNN")},
        "Bidirectional": lambda: layers.Bidirectional(layers.LSTM(4), name="it"),
        "RNN": lambda: layers.RNN(layers.LSTMCell(4), name="it"),
        "StackedRNNCells": lambda: layers.RNN([layers.LSTMCell(4), layers.GRUCell(4)], name="it"),
        "TimeDistributed": lambda: layers.TimeDistributed(layers.LSTM(4), name="it"),
    }

    def saved_layer(kind: str, suffix: str) -> Path:
        path = folder / f"{kind}{suffix}"
        if not path.exists():
            shape = (2, 5, 3) if kind == "TimeDistributed" else (5, 3)
            keras.Sequential([keras.Input(shape), makers[kind]()]).save(path)
        return path

    return saved_layer


def changed(source: Path, target: Path, change: Callable[[dict[str, Any]], None], first: bool = False) -> Path:
    """Return a copy of a file with another configuration of its recurrent layer.

    first  whether the model begins with the layer, without an InputLayer
    """

    def replace(config: dict[str, Any]) -> str:
        layers = config["config"]["layers"]
        change(layers[1])
        if first:
            del layers[0]
        return json.dumps(config)

    if source.suffix == ".h5":
        shutil.copy(source, target)
        with h5py.File(target, "r+") as file:
            config = replace(json.loads(file.attrs["model_config"]))
            del file.attrs["model_config"]
            file.attrs["model_config"] = config
        return target
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "config.json":
                data = replace(json.loads(data)).encode()
            new.writestr(name, data)
    return target


def inside(layer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a layer with every layer and cell inside it."""
    yield layer
    for key in ("layer", "backward_layer", "cell", "cells"):
        value = layer["config"].get(key)
        for inner in value if isinstance(value, list) else [value] if value else []:
            yield from inside(inner)


def refusal(path: Path, tmp_path: Path) -> str:
    """Return what a conversion says against a file, "" if nothing."""
    try:
        rc.convert(path, tmp_path / "out.onnx", force=True)
    except (rc.UnreadableError, rc.RefusedError) as error:
        return str(error)
    return ""


def test_every_type_has_wrong_values() -> None:
    assert {key.kind.rstrip("?") for key in KEYS.values()} <= WRONG.keys() <= TYPES.keys()


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
@pytest.mark.parametrize("kind", LAYERS)
def test_no_key_is_read_silently(kind: str, suffix: str, base: Callable[[str, str], Path], tmp_path: Path) -> None:
    source, silent = base(kind, suffix), []
    parts: list[dict[str, Any]] = []
    assert not refusal(changed(source, tmp_path / f"plain{suffix}", lambda tree: parts.extend(inside(tree))), tmp_path)
    for number, layer in enumerate(parts):
        class_name = layer["class_name"]
        keys = known_keys(Entry("it", class_name, {}))
        count = 9 if kind in LAYERS[:3] else 1
        values = [(key, value) for key in KEYS if key not in SHAPES for value in WRONG[KEYS[key].kind.rstrip("?")][:count]]
        # What another class has is unknown here, whatever its type.
        values += [(key, {"a": 1}) for key in KEYS if key not in keys] + [("novelty", {"a": 1})]
        for key, value in drawn(values, 3, f"{kind} {suffix} {number}"):

            def put(tree: dict[str, Any], number: int = number, key: str = key, value: Any = value) -> None:
                list(inside(tree))[number]["config"][key] = value

            message = refusal(changed(source, tmp_path / f"odd{suffix}", put), tmp_path)
            if (key not in message and key not in ("layer", "cell", "cells", "backward_layer", "name")) or not message:
                silent.append((class_name, key, value, message))
    assert not silent


ODD: tuple[Any, ...] = (None, False, True, 0, 2, -1, 0.5, 4.0, float("nan"), "", "4", "false", [], [True], [None, 5, 4], {"a": 1})
"""Values of which each key takes some."""
TRIED = ("flag", "boolean", "rate", "seed", "implementation", "size", "steps", "shape")
FUNCTIONS = ("activation", "recurrent_activation")


def odd(layer: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return keys of a layer's own configuration, and those of its input, with every odd value."""
    stated = {key for key in layer["config"] if key in KEYS and KEYS[key].kind.rstrip("?") in TRIED}
    values = list(itertools.product(sorted({*stated, "input_dim", "input_shape", "implementation"}), ODD))
    return values + [(key, None) for key in FUNCTIONS if key in layer["config"]]


def stating(key: str, value: object, layer: dict[str, Any]) -> None:
    """Change a layer's configuration to state a value."""
    layer["config"][key] = value


X = np.linspace(-1, 1, 30, dtype=np.float32).reshape(2, 5, 3)


def check_agreed(path: Path, key: str, value: object, theirs: Any) -> None:
    """Check that a file is read as its framework computes it, with a note of what is odd, or refused as there.

    theirs  what the framework gives for X, None where it refuses the file
    """
    try:
        checkpoint = rc.load(path)
        ((name, layer),) = checkpoint.layers.items()
        ours = None if layer.unconvertible else layer
    except (rc.UnreadableError, rc.RefusedError):
        ours = None
    if theirs is None:
        assert ours is None or KEYS[key].effect != "used", f"the framework refuses {key}={value!r}"
        return
    assert ours is not None, f"the framework takes {key}={value!r}"
    x = X.swapaxes(0, 1) if checkpoint.batch_first[name] else X
    last = np.concatenate(reference.run(ours, x).hidden[-len(ours.layers[-1].directions) :], -1)
    theirs = np.asarray(theirs)
    if theirs.ndim == 3:  # it returns every step, because that is what the value says
        theirs = theirs[:, -1] if checkpoint.batch_first[name] else theirs[-1]
    np.testing.assert_allclose(last, theirs, rtol=0, atol=1e-6, err_msg=f"{key}={value!r}")
    wrong = value is not None and problem(KEYS[key].kind.rstrip("?"), value)
    assert not wrong or any(f"{key!r}: it is" in text and "which Keras" in text for text in checkpoint.warnings)


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
@pytest.mark.parametrize("kind", [*LAYERS[:4], "RNN"])
def test_odd_values_are_read_as_keras_takes_them(kind: str, suffix: str, base: Callable[[str, str], Path], tmp_path: Path) -> None:
    """Whatever the value of a key, the numbers are those that Keras computes with the file, or both refuse it."""
    import keras

    source = base(kind, suffix)
    layers: list[dict[str, Any]] = []
    changed(source, tmp_path / f"plain{suffix}", layers.append)

    def check(case: tuple[str, Any]) -> None:
        key, value = case
        path = changed(source, tmp_path / f"odd{suffix}", partial(stating, key, value))
        try:
            outputs = keras.saving.load_model(path)(X)
        except Exception:  # of any class: TypeError, ValueError, those of the backend
            outputs = None
        check_agreed(path, key, value, outputs[0] if isinstance(outputs, list | tuple) else outputs)

    each(drawn(odd(layers[0]), 3, f"{kind} {suffix}", always=lambda case: case == ("recurrent_activation", None)), check)


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
@pytest.mark.parametrize("kind", LAYERS)
def test_what_the_arrays_contradict_is_named(kind: str, suffix: str, base: Callable[[str, str], Path], tmp_path: Path) -> None:
    assert {name for name, key in KEYS.items() if key.reading} == CONTRADICTIONS.keys()
    source, silent = base(kind, suffix), []
    parts: list[dict[str, Any]] = []
    changed(source, tmp_path / f"plain{suffix}", lambda tree: parts.extend(inside(tree)))
    for number, layer in enumerate(parts):
        for key in CONTRADICTIONS.keys() & known_keys(Entry("it", layer["class_name"], {})):
            if layer["class_name"] in ("TimeDistributed", "StackedRNNCells") or (
                key not in layer["config"] and "Cell" in layer["class_name"]
            ):
                continue

            def put(tree: dict[str, Any], number: int = number, key: str = key) -> None:
                list(inside(tree))[number]["config"][key] = CONTRADICTIONS[key]

            message = refusal(changed(source, tmp_path / f"odd{suffix}", put, first=key in SHAPES), tmp_path)
            if "contradicts its arrays" not in message or f"{key!r}: it is" not in message:
                silent.append((layer["class_name"], key, message))
    assert not silent


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_a_backward_layer_reads_backward(suffix: str, base: Callable[[str, str], Path], tmp_path: Path) -> None:
    def put(tree: dict[str, Any]) -> None:
        tree["config"]["backward_layer"]["config"]["go_backwards"] = False

    with pytest.raises(rc.UnreadableError, match="backward_layer of 'it' has go_backwards = false"):
        rc.load(changed(base("Bidirectional", suffix), tmp_path / f"odd{suffix}", put))


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_stacked_cells_keep_the_models_order(suffix: str, tmp_path: Path) -> None:
    """HDF5 sorts the places of Keras 3 as words: gru_cell, lstm_cell, lstm_cell_1, lstm_cell_10, lstm_cell_2."""
    need("keras", registry.built_in()["keras-tensorflow"].absent)
    import keras

    cells = [*(keras.layers.LSTMCell(4) for _ in range(12)), keras.layers.GRUCell(4)]
    model = keras.Sequential([keras.Input((5, 4)), keras.layers.RNN(cells, name="it")])
    model.save(path := tmp_path / f"model{suffix}")
    (stack,) = rc.load(path).layers.values()
    for cell, (_, _, direction) in zip(cells, stack.directions(), strict=True):
        is_gru = isinstance(cell, keras.layers.GRUCell)
        assert direction.cell.kind == ("gru" if is_gru else "lstm")
        matrix = np.asarray(direction.arrays["input", "z" if is_gru else "i"])
        np.testing.assert_array_equal(np.sort(matrix.ravel()), np.sort(np.asarray(cell.kernel)[:, :4].ravel()))
