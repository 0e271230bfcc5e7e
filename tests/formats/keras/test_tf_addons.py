"""The cells of TensorFlow Addons that are known: what it wrote of drawn models, and what it made of their inputs."""

from __future__ import annotations

import importlib.util
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.errors import RefusedError
from tests.helpers.drawn import drawn, each
from tests.helpers.exported import RUNS
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
GOLDEN = Path(__file__).parents[2] / "golden" / "tf_addons"
COUNT = 36


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every sixth is of one form: plain, of two directions, stacked, masked, with states, and behind an embedding."""
    folder = tmp_path_factory.mktemp("models")
    with tarfile.open(GOLDEN / "models.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    paths = {path.stem: path for path in folder.iterdir() if path.suffix != ".npz"}
    return [paths[str(number)] for number in range(COUNT)]


def _arrays(path: Path) -> tuple[list[Any], list[Any]]:
    """The inputs of a model and its outputs in TensorFlow."""
    with np.load(path.with_suffix(".npz")) as arrays:
        inputs, outputs = ([arrays[name] for name in sorted(arrays) if name[0] == letter] for letter in "xy")
    return inputs, outputs


def _check(path: Path, target: Path) -> None:
    """A model gives in the target's runtime what TensorFlow gave; C code, which has no batch, each sequence for itself."""
    rc.export_model(path, target, force=True)
    inputs, truths = _arrays(path)
    run = RUNS[target.suffix[1:]](target)
    batches = [[x[n : n + 1] for x in inputs] for n in range(len(inputs[0]))] if target.suffix == ".h" else [inputs]
    for number, output in enumerate(zip(*map(run, batches), strict=True)):
        np.testing.assert_allclose(np.concatenate(output), truths[number], rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("ending", ["onnx", "xml", "tflite", "h"])
def test_an_lstm_with_norms_gives_what_tensorflow_gave(ending: str, models: list[Path], tmp_path: Path) -> None:
    cases = [*range(COUNT)]
    each(cases if ending == "onnx" else drawn(cases, 12, "norms"), lambda n: _check(models[n], tmp_path / f"model.{ending}"))


def test_no_command_takes_norms_for_nothing(models: list[Path], tmp_path: Path) -> None:
    for path in (models[0], models[6]):
        assert not rc.load(path).layers
        with pytest.raises(RefusedError, match=r"(?s)layer norms stand in its cell.*export"):
            rc.convert(path, tmp_path / "model.onnx")
        with pytest.raises(RefusedError, match="Keras 3 has no such cell"):
            rc.upgrade(path, tmp_path / "model.keras")
        with pytest.raises(rc.UsageError, match=r"Keras 3 cannot hold the layer norms in an LSTM.*Leave out"):
            rc.export_model(path, tmp_path / "model.onnx", verify=True)
        assert not [*tmp_path.iterdir()]


def test_an_lstm_with_peepholes(tmp_path: Path) -> None:
    (x,), (truth,) = _arrays(GOLDEN / "peephole.h5")
    rc.convert(GOLDEN / "peephole.h5", tmp_path / "model.onnx")
    output = RUNS["onnx"](tmp_path / "model.onnx")([x.transpose(1, 0, 2)])[0]
    np.testing.assert_allclose(output.transpose(1, 0, 2), truth, rtol=1e-5, atol=2e-6)


def test_an_lstm_with_norms_as_a_module(models: list[Path], tmp_path: Path) -> None:
    torch = needed("torch", "torch")

    def check(number: int) -> None:
        rc.scaffold(models[number], "pytorch", tmp_path / "model.py", force=True)
        spec = importlib.util.spec_from_file_location("written", tmp_path / "model.py")
        assert spec is not None and spec.loader is not None
        written = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(written)
        inputs, truths = _arrays(models[number])
        with torch.no_grad():
            outputs = written.load(models[number])(*map(torch.from_numpy, inputs))
        for output, truth in zip(outputs if isinstance(outputs, tuple) else [outputs], truths, strict=True):
            np.testing.assert_allclose(output.numpy(), truth, rtol=1e-5, atol=5e-6)

    each(drawn(range(COUNT), 12, "norms as a module"), check)
