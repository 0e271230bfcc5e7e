"""A user's own inputs of whole models: taken by name or in order, wherever models are run, and never left out without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core.errors import UsageError
from rnnconvert.running.inputs import read_inputs
from tests.helpers.requirements import needed

keras: Any = needed("keras", "keras")
torch: Any = needed("torch", "torch")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

FAR = np.random.default_rng(0).normal(scale=100, size=(2, 9, 3)).astype(np.float32)


def clipped(folder: Path, limit: float | None) -> Path:
    """A model with two inputs, of which one is cut at a limit that no drawn number comes near."""
    features, codes = keras.Input((None, 3), name="features"), keras.Input((None,), dtype="int32", name="codes")
    low = keras.layers.ReLU(max_value=limit, negative_slope=1.0 if limit is None else 0.0, name="cut")(features)
    low = low if limit is None else keras.layers.Subtract()([low, keras.layers.ReLU()(keras.layers.Rescaling(-1.0)(features))])
    y = keras.layers.Concatenate()([keras.layers.Rescaling(0.01)(low), keras.layers.Embedding(9, 2, name="table")(codes)])
    keras.utils.set_random_seed(3)
    y = keras.layers.Dense(2, name="head")(keras.layers.GRU(4, return_sequences=True, name="gru")(y))
    model = keras.Model([features, codes], y)
    weights = np.random.default_rng(5)
    model.set_weights([weights.normal(scale=0.5, size=array.shape) for array in model.get_weights()])
    path = folder / f"clip_{limit}.keras"
    model.save(path)
    return path


def call(*words: object) -> Any:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_models_that_differ_on_the_users_inputs_alone(tmp_path: Path) -> None:
    a, b = clipped(tmp_path, None), clipped(tmp_path, 50.0)
    assert rc.verify(a, b, explain=False).equal
    codes = np.random.default_rng(1).integers(0, 9, (2, 9))
    samples: dict[str, dict[str, Any]] = {
        "by name": {"codes": codes, "features": FAR},  # not in the model's order
        "in order": {"first": FAR, "second": codes},
    }
    for label, arrays in samples.items():
        np.savez(tmp_path / f"{label}.npz", **arrays)
        report = rc.verify(a, b, inputs=str(tmp_path / f"{label}.npz"), explain=False)
        assert report.verdict == "not equal" and report.document["whole"]["status"] == "not equal", label
    assert rc.verify(a, a, inputs=str(tmp_path / "by name.npz"), explain=False).equal


def test_an_input_of_layers_is_one_of_models_that_take_it(tmp_path: Path) -> None:
    paths = []
    for limit in (50.0, 60.0):
        model = keras.Sequential([keras.Input((None, 3)), keras.layers.ReLU(max_value=limit), keras.layers.LSTM(4, name="lstm")])
        weights = np.random.default_rng(5)
        model.set_weights([weights.normal(scale=0.02, size=array.shape) for array in model.get_weights()])
        paths.append(tmp_path / f"{limit}.keras")
        model.save(paths[-1])
    np.savez(tmp_path / "x.npz", x=FAR)
    first, second = paths
    assert rc.verify(first, second, explain=False).equal
    assert rc.verify(first, second, inputs=str(tmp_path / "x.npz"), explain=False).verdict == "not equal"


def test_inputs_that_a_model_does_not_take(tmp_path: Path) -> None:
    a = clipped(tmp_path, None)
    codes = np.zeros((2, 9), np.int32)
    wrong: list[tuple[str, str, dict[str, Any]]] = [
        ("verify", "axis 2 of its input features is 3, got 4", {"codes": codes, "features": np.zeros((2, 9, 4), np.float32)}),
        ("verify", "it takes 2 inputs ('features', 'codes'), got 1", {"other": codes}),
        ("verify", "codes holds whole numbers (int32), got float64 with fractions", {"codes": codes + np.float32(0.5), "features": FAR}),
        ("verify", "codes holds int32, which does not hold 8589934592", {"codes": codes.astype(np.int64) + 2**33, "features": FAR}),
        ("verify", "has no input 'more': it takes 'features', 'codes'. Leave it out", {"codes": codes, "features": FAR, "more": FAR}),
        ("export", "takes 'features', 'codes'. Call them as it does", {"codes": codes, "feats": FAR}),
    ]
    for number, (command, words, arrays) in enumerate(wrong):
        path = tmp_path / f"{number}.npz"
        np.savez(path, **arrays)
        result = call(*(("verify", a, a, "--inputs") if command == "verify" else ("export", a, tmp_path / "new.onnx", "--verify")), path)
        assert result.exit_code == 2 and words in result.stderr, result.output
    assert not (tmp_path / "new.onnx").exists()
    result = call("verify", a, a, "--inputs", tmp_path / "0.npz", "--layer", "gru")
    assert result.exit_code == 2 and "layers of them were chosen" in result.stderr
    (tmp_path / "broken.npz").write_bytes(b"PK")
    for line in (("verify", a, a, "--inputs"), ("scaffold", a, "-o", tmp_path / "m.py", "--verify")):
        result = call(*line, tmp_path / "broken.npz")
        assert result.exit_code == 3 and "broken.npz" in result.stderr and not (tmp_path / "m.py").exists(), result.output


def test_weights_alone_take_no_inputs_of_a_model(tmp_path: Path) -> None:
    module = torch.nn.GRU(3, 4)
    torch.save(module.state_dict(), tmp_path / "a.pt")
    np.savez(tmp_path / "in.npz", features=FAR)
    with pytest.raises(UsageError, match=r"A did not run whole.*Inputs of the layers are x"):
        rc.verify(tmp_path / "a.pt", tmp_path / "a.pt", inputs=str(tmp_path / "in.npz"))


def test_what_is_written_is_proved_on_the_users_inputs_too(tmp_path: Path) -> None:
    a = clipped(tmp_path, 50.0)
    np.savez(tmp_path / "val.npz", codes=np.random.default_rng(1).integers(0, 9, (2, 9)), features=FAR)
    result = call("export", "--verify", tmp_path / "val.npz", a, tmp_path / "a.onnx")
    assert result.exit_code == 0 and "and on yours" in result.stderr, result.output
    result = call("export", "--verify", a, tmp_path / "b.onnx")
    assert result.exit_code == 0 and "and on yours" not in result.stderr, result.output
    result = call("scaffold", a, "-o", tmp_path / "a.py", "--verify", tmp_path / "val.npz")
    assert result.exit_code == 0 and "and on yours" in result.stderr, result.output


def test_a_filled_module_is_compared_on_a_file_of_inputs(tmp_path: Path) -> None:
    class Body(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = torch.nn.GRU(3, 4, batch_first=True)
            self.head = torch.nn.Linear(4, 2)

        def forward(self, x: Any, scale: Any) -> Any:
            return self.head(self.gru(x)[0]) * scale

    source, target = Body().eval(), Body().eval()
    report = rc.load_into(target, source)
    np.savez(tmp_path / "in.npz", scale=np.full((1, 1, 1), 3, np.float32), x=FAR)
    assert report.verify(tmp_path / "in.npz").equal
    with torch.no_grad():
        target.head.bias.add_(1)
    assert not report.verify(str(tmp_path / "in.npz"))
    assert not report.verify({"scale": np.full((1, 1, 1), 3, np.float32), "x": FAR})


def test_files_that_hold_no_inputs(tmp_path: Path) -> None:
    """Objects, text, complex numbers, nothing at all: which array, and what it holds."""
    x = np.zeros((2, 6, 3), np.float32)
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "objects.npz", a=x, b=np.array([{}], object))
    np.savez(tmp_path / "complex.npz", a=x, b=x.astype(complex))
    np.savez(tmp_path / "words.npz", a=np.array(["x"]))
    np.savez(tmp_path / "empty.npz", a=x[:0])
    content = (tmp_path / "complex.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    for name, words in {
        "text": "it is not a .npy or .npz file",
        "objects": "its array 'b' holds objects of Python, which are not read",
        "complex": "its array 'b' holds complex128",
        "words": "its array 'a' holds <U1",
        "empty": "its array 'a' holds no number: its shape is (0, 6, 3)",
        "cut": "is damaged",
    }.items():
        with pytest.raises((rc.UnreadableError, rc.UsageError)) as error:
            read_inputs(tmp_path / f"{name}.npz")
        assert words in str(error.value) and "allow_pickle" not in str(error.value), str(error.value)
