"""Files that every version of Keras wrote: each layer by its own name gives what that Keras made of it."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import numpy as np
import pytest

from rnnconvert.core.names import natural
from rnnconvert.core.reference import run
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.load import load
from rnnconvert.formats.keras.upgrade.files import upgrade
from tests import ROOT
from tests.helpers.frameworks import KERAS_WARNS

pytestmark = KERAS_WARNS

GOLDEN = ROOT / "tests" / "golden" / "keras_versions"
UNWRITTEN = {("3.0", "whole.h5"), ("3.1", "whole.h5"), ("3.2", "whole.h5")}
"""What a version could not write: these end with an error over two datasets of one name, for a wrapper's layer has two kernels."""
VERSIONS = sorted((file.name.removesuffix(".tar.xz") for file in GOLDEN.glob("*.tar.xz")), key=natural)


def test_every_minor_version_is_there() -> None:
    assert [*(f"2.{minor}" for minor in range(6, 16)), *(f"3.{minor}" for minor in range(16))] == VERSIONS


def of_range(text: str) -> list[str]:
    """Return the versions from one to another of the same major version."""
    first, _, last = text.partition(" to ")
    major, _, minor = first.partition(".")
    return [f"{major}.{number}" for number in range(int(minor), int((last or first).partition(".")[2]) + 1)]


def test_the_table_of_the_documentation_says_what_each_version_wrote() -> None:
    text = (ROOT / "docs" / "reads.md").read_text(encoding="utf-8")
    rows = [row.strip("| ").split(" | ") for row in text.splitlines() if re.match(r"\| [23]\.\d+ ", row)]
    assert [version for row in rows for version in of_range(row[0])] == VERSIONS
    for versions, *cells in rows:
        for version in of_range(versions):
            with tarfile.open(GOLDEN / f"{version}.tar.xz") as packed:
                files = {file.name: packed.extractfile(file).read(4) for file in packed if file.name.startswith(("whole", "plain"))}  # type: ignore[union-attr]
            for ending, cell in zip((".h5", ".keras", ".weights.h5"), cells, strict=True):
                heads = {head for name, head in files.items() if re.fullmatch(rf"[a-z_]+{re.escape(ending)}", name)}
                assert heads == {head for word, head in (("HDF5", b"\x89HDF"), ("zip", b"PK\3\4")) if word in cell}, (version, ending)
            assert ("whole.h5" in files) == ("fail to write" not in cells[0]), version


@pytest.fixture
def folder(version: str, tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN / f"{version}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


def inputs(width: int) -> np.ndarray:
    return np.sin(np.arange(2 * 4 * width)).reshape(2, 4, width).astype(np.float32)


def expected_outputs(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "answers.npz") as answers:
        return {name: answers[name] for name in answers.files}


def layer_outputs(stack: Recurrent, expected: np.ndarray) -> np.ndarray:
    """Return what a layer makes of the golden's input; as the golden has them, of every step or of the last that each direction makes."""
    outputs = run(stack, inputs(stack.input_size).swapaxes(0, 1).astype(np.float64))
    return outputs.y.swapaxes(0, 1) if expected.ndim == 3 else np.concatenate(outputs.hidden, axis=-1)


def gives(stack: Recurrent, expected: np.ndarray) -> bool:
    y = layer_outputs(stack, expected)
    return y.shape == expected.shape and np.allclose(y, expected, rtol=0, atol=2e-6)


def same_arrays(first: Recurrent, second: Recurrent) -> bool:
    pairs = [(mine, theirs) for (*_, mine), (*_, theirs) in zip(first.directions(), second.directions(), strict=False)]
    return (first.cell.kind, first.num_directions) == (second.cell.kind, second.num_directions) and all(
        mine.arrays.keys() == theirs.arrays.keys()
        and all(np.array_equal(np.asarray(mine.arrays[key]), np.asarray(theirs.arrays[key])) for key in mine.arrays)
        for mine, theirs in pairs
    )


def check_named(checkpoint: Checkpoint, answers: dict[str, np.ndarray]) -> None:
    """Compare every layer of a file with what Keras made of the layer of that name."""
    assert sorted(checkpoint.layers) == sorted(answers) and not checkpoint.unread
    for name, expected in answers.items():
        np.testing.assert_allclose(layer_outputs(checkpoint.layers[name], expected), expected, rtol=0, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("version", VERSIONS)
def test_layers_of_every_version(version: str, folder: Path) -> None:
    answers = expected_outputs(folder)
    for model in ("whole", "plain"):
        of_model = {name.partition("/")[2]: y for name, y in answers.items() if name.startswith(f"{model}/")}
        assert (folder / f"{model}.h5").exists() == ((version, f"{model}.h5") not in UNWRITTEN)
        if (version, f"{model}.h5") not in UNWRITTEN:
            check_named(load(folder / f"{model}.h5"), of_model)
        for file in folder.glob(f"{model}*.keras"):
            check_named(load(file), of_model)
        named = load(folder / f"{model}.keras")
        weights = load(folder / f"{model}.weights.h5")
        places = [[name for name, stack in named.layers.items() if same_arrays(stack, layer)] for layer in weights.layers.values()]
        assert sorted(places) == sorted([name] for name in named.layers) and not weights.unread
        if model == "plain" and not set(weights.layers) & set(named.layers):
            for kind in ("simple_rnn", "gru", "lstm"):
                in_order = [name for name in named.layers if name.startswith(kind)]
                assert [places[[*weights.layers].index(f"{kind}{end}")] for end in ("", "_1", "_2")] == [[name] for name in in_order]


@pytest.mark.parametrize("version", VERSIONS)
def test_weights_of_a_class_of_every_version(version: str, folder: Path) -> None:
    answers = {name: y for name, y in expected_outputs(folder).items() if name.startswith("own/")}
    checkpoint = load(folder / "own.weights.h5")
    outputs = {name: [place for place, y in answers.items() if gives(stack, y)] for name, stack in checkpoint.layers.items()}
    assert sorted(outputs.values()) == sorted([place] for place in answers) and not checkpoint.unread


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
@pytest.mark.parametrize("version", [version for version in VERSIONS if version < "3"])
def test_whole_models_of_every_version_of_keras_2(version: str, suffix: str, folder: Path) -> None:
    import keras

    for model in ("whole", "plain"):
        upgrade(folder / f"{model}{suffix}", folder / f"new_{model}.keras")
        y = keras.saving.load_model(folder / f"new_{model}.keras", compile=False)(inputs(3))
        np.testing.assert_allclose(np.asarray(y), expected_outputs(folder)[model], rtol=0, atol=2e-6)
