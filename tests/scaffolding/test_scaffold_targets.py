"""Models as files of Keras and Flax, and live torch modules as files of all three: written, filled, run beside their source."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from tests import ROOT
from tests.helpers import ready
from tests.helpers.drawn import drawn
from tests.helpers.random_models import fill, random_model
from tests.helpers.requirements import needed
from tests.scaffolding.test_scaffold import CLOSE, SHAPES, inputs_for, module_at

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning"),
    pytest.mark.filterwarnings("ignore:The structure of `inputs`:UserWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes? self:UserWarning"),
]
TARGETS = ("pytorch", "keras", "flax")


def called(model: Any, target: str, inputs: list[Any]) -> list[Any]:
    """What a written model gives, as arrays."""
    if target == "pytorch":
        torch = needed("torch", "torch")
        with torch.no_grad():
            outputs = model(*(torch.from_numpy(x) for x in inputs))
    elif target == "keras":
        outputs = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    else:  # compiled once: step by step, every operation would be compiled by itself
        flax, numpy = needed("flax", "flax.nnx"), needed("jax", "jax").numpy
        outputs = flax.jit(type(model).__call__)(model, *(numpy.asarray(x) for x in inputs))
    listed = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return [np.asarray(value.detach() if hasattr(value, "detach") else value) for value in listed]


def as_graph(source: Any, path: Path, example: Sequence[Any] | None, axes: int | None = None) -> Any:
    """Return a module as onnxruntime runs what export wrote of it; inputs that it refuses are a ValueError."""
    torch, runtime = needed("torch", "torch"), needed("onnxruntime", "onnxruntime")
    rc.export_model(source, path, example=example, axes=axes, force=True)
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(path, options)

    def run(x: Any) -> Any:
        try:
            outputs = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        except Exception as error:  # onnxruntime has no public class that all of its errors are
            raise ValueError(str(error)) from None
        tensors = tuple(torch.as_tensor(output) for output in outputs)
        return tensors if len(tensors) > 1 else tensors[0]

    return run


def check_equal(model: Any, path: Path, written: Path, target: str) -> None:
    """Compare the written model, filled as its file does it, with Keras."""
    filled = module_at(written).load(str(path))
    for batch, time in drawn(SHAPES, 1, f"{written.parent.name} {target}"):
        inputs = inputs_for(model, batch, time)
        expected = called(model, "keras", inputs)
        for got, wanted in zip(called(filled, target, inputs), expected, strict=True):
            assert got.shape == wanted.shape
            assert np.abs(got - wanted).max() <= CLOSE * max(1.0, np.abs(wanted).max())


def require(target: str) -> None:
    needed("keras", "keras")
    if target == "flax":
        needed("flax", "jax")
    if target == "pytorch":
        needed("torch", "torch")


@pytest.mark.parametrize("target", ["keras", "flax"])
@pytest.mark.parametrize("seed", drawn(range(200), 3, "models scaffolded for Keras and Flax"))
def test_random_models_are_equal_or_refused_by_name(tmp_path: Path, seed: int, target: str) -> None:
    require(target)
    model, path, written = random_model(seed), tmp_path / "model.keras", tmp_path / "model.py"
    model.save(path)
    try:
        rc.scaffold(path, target, written)
    except rc.RefusedError as error:
        assert "with masks and of several shapes" in str(error)
        assert not written.exists()
        return
    check_equal(model, path, written, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shared", [[1], [2], [1, 2], []])
def test_slopes_of_each_step_and_of_each_channel(tmp_path: Path, target: str, shared: list[int]) -> None:
    """PReLUs of Keras, whose slopes are an array of the axes that do not share them."""
    require(target)
    layers = needed("keras", "keras").layers
    x = layers.Input((6, 4))
    model = needed("keras", "keras").Model(x, layers.Dense(3)(layers.PReLU(shared_axes=shared)(x)))
    fill(model, 5)
    path, written = tmp_path / "model.keras", tmp_path / "model.py"
    model.save(path)
    if target == "flax" and shared != [1, 2]:
        with pytest.raises(rc.RefusedError, match="several slopes"):
            rc.scaffold(path, target, written)
        return
    assert rc.scaffold(path, target, written, verify=True).equal


def masked_model() -> Any:
    """Attention, and products and extremes, of sequences with masks and without."""
    layers = needed("keras", "keras").layers
    keras = needed("keras", "keras")
    start, plain = keras.Input((None,), dtype="int32", name="tokens"), keras.Input((None, 4), name="plain")
    x = layers.Embedding(11, 4, mask_zero=True)(start)
    y = layers.Masking()(plain)
    many = [layers.Multiply()([x, y]), layers.Maximum()([x, y, plain]), layers.Minimum()([plain, x]), layers.Multiply()([x, plain])]
    seen = layers.Attention()([x, y], use_causal_mask=True)
    seen = layers.AdditiveAttention(use_scale=False)([seen, y, plain])
    ends = [layers.GRU(3)(value) for value in many]
    return keras.Model([start, plain], [layers.Concatenate()(ends), layers.LSTM(3)(seen)])


@pytest.mark.parametrize("target", TARGETS)
def test_attention_and_merges_of_masked_tensors(tmp_path: Path, target: str) -> None:
    require(target)
    model = masked_model()
    fill(model, 3)
    model.save(tmp_path / "model.keras")
    rc.scaffold(tmp_path / "model.keras", target, tmp_path / "model.py")
    check_equal(model, tmp_path / "model.keras", tmp_path / "model.py", target)


def test_a_line_of_layers_is_sequential(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((8, 4)), layers.Conv1D(5, 3, activation="relu"), layers.LSTM(3), layers.Dense(2, activation="softmax", name="dense")]
    )
    fill(model, 3)
    model.save(tmp_path / "model.keras")
    done = rc.scaffold(tmp_path / "model.keras", "keras", tmp_path / "model.py")
    assert "return keras.Sequential(" in done.text
    assert 'layers.Dense(2, activation="softmax", name="dense")' in done.text
    check_equal(model, tmp_path / "model.keras", tmp_path / "model.py", "keras")


@pytest.mark.parametrize(
    ("target", "name"), [("keras", "w.weights.h5"), ("keras", "w.keras"), ("flax", "w.msgpack"), ("flax", "w.safetensors")]
)
def test_weights_in_the_frameworks_own_file(tmp_path: Path, target: str, name: str) -> None:
    require(target)
    keras = needed("keras", "keras")
    start = keras.Input((6, 3))
    model = keras.Model(start, keras.layers.Dense(2, name="dense")(keras.layers.Bidirectional(keras.layers.GRU(4))(start)))
    fill(model, 3)
    model.save(tmp_path / "model.keras")
    done = rc.scaffold(tmp_path / "model.keras", target, tmp_path / "model.py", weights=tmp_path / name)
    assert done.weights
    module = module_at(tmp_path / "model.py")
    x = np.random.default_rng(0).standard_normal((2, 6, 3)).astype(np.float32)
    if name.endswith(".keras"):
        filled = keras.models.load_model(tmp_path / name)
    elif target == "keras":
        filled = module.build_model()
        filled.load_weights(tmp_path / name)
    elif name.endswith(".msgpack"):
        from flax import nnx
        from flax.serialization import msgpack_restore

        filled = module.Model(nnx.Rngs(1))
        state = nnx.state(filled)
        nnx.replace_by_pure_dict(state, msgpack_restore((tmp_path / name).read_bytes()))
        nnx.update(filled, state)
    else:
        from safetensors.numpy import load_file

        arrays = load_file(tmp_path / name)
        assert arrays["dense/kernel"].shape == (8, 2)
        return
    np.testing.assert_allclose(called(filled, target, [x])[0], called(model, "keras", [x])[0], atol=CLOSE)


def tagger(torch: Any) -> Any:
    """A module of modules: one of them called twice, a stack of layers read by its last states, time in front."""
    nn = torch.nn

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True)

        def forward(self, x: Any) -> Any:
            outputs, (h, _) = self.lstm(x)
            return outputs, torch.cat([h[-2], h[-1]], 1)

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.encoder = nn.Embedding(11, 4), Encoder()
            self.conv, self.norm, self.gru = nn.Conv1d(10, 6, 3, padding=1), nn.BatchNorm1d(6), nn.GRU(6, 3)
            self.head = nn.Sequential(nn.Linear(10, 3), nn.ReLU(), nn.Dropout(0.1), nn.Linear(3, 2))

        def forward(self, first: Any, second: Any) -> Any:
            outputs, end = self.encoder(self.embedding(first))
            _, other = self.encoder(self.embedding(second))
            space = torch.relu(self.norm(self.conv(outputs.transpose(1, 2))))
            steps, _ = self.gru(space.permute(2, 0, 1))
            return self.head(end) * 2 - self.head(other), steps[-1], 1 - steps.mean(0)

    torch.manual_seed(0)
    return Tagger().eval()


@pytest.mark.parametrize("target", TARGETS)
def test_a_live_module(tmp_path: Path, target: str) -> None:
    require(target)
    torch = needed("torch", "torch")
    module = tagger(torch)
    example = (torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.long))
    done = rc.scaffold(module, target, tmp_path / "model.py", example=example, verify=True)
    assert done.equal and len(done.proof) == 4
    torch.save(module.state_dict(), tmp_path / "module.pt")
    filled = module_at(tmp_path / "model.py").load(str(tmp_path / "module.pt"))
    inputs = [np.random.default_rng(n).integers(0, 11, (4, 5)) for n in range(2)]
    for got, wanted in zip(called(filled, target, inputs), called(module, "pytorch", inputs), strict=True):
        np.testing.assert_allclose(got, wanted, atol=CLOSE)


def test_modules_that_are_not_known_are_refused_by_name() -> None:
    torch = needed("torch", "torch")

    class Odd(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cumprod(x, 1)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.odd = Odd()

        def forward(self, x: Any) -> Any:
            return self.odd(x)

    with pytest.raises(rc.RefusedError, match=r"odd.*cumprod"):
        rc.scaffold(Model(), "keras", example=(torch.zeros(2, 3),))
    with pytest.raises(rc.UsageError, match="example="):
        rc.scaffold(Model(), "keras")
    with pytest.raises(rc.UsageError, match="example= decides nothing"):
        rc.scaffold("examples/old_tagger.h5", "keras", example=(torch.zeros(2, 3),))


@pytest.mark.parametrize("target", ["keras", "flax"])
def test_what_is_written_passes_ruff_and_imports_its_framework_alone(tmp_path: Path, target: str) -> None:
    require(target)
    rc.scaffold("examples/old_tagger.h5", target, tmp_path / "written.py")
    ran = subprocess.run([sys.executable, "-m", "ruff", "check", "--isolated", str(tmp_path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    code = "import sys; sys.modules['rnnconvert'] = None; import written; written.main()"
    framework = "tensorflow keras" if target == "keras" else "jax flax.nnx"
    printed = ready.run([sys.executable, "-c", code], framework, cwd=tmp_path, check=True)
    assert printed.stdout.strip() == "(2, 7, 5)"


def test_a_layer_for_each_step_is_time_distributed(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    layers, start = keras.layers, keras.Input((6, 5, 3))
    x = layers.TimeDistributed(layers.Conv1D(4, 2, activation="relu"))(start)
    model = keras.Model(start, layers.GRU(3)(layers.TimeDistributed(layers.Flatten())(x)))
    fill(model, 3)
    model.save(tmp_path / "model.keras")
    assert "TimeDistributed(layers.Flatten()" in rc.scaffold(tmp_path / "model.keras", "keras", tmp_path / "model.py").text
    check_equal(model, tmp_path / "model.keras", tmp_path / "model.py", "keras")


@pytest.mark.parametrize(
    ("target", "ending"),
    [("pytorch", ".pt"), ("keras", ".weights.h5"), ("keras", ".keras"), ("flax", ".msgpack"), ("flax", ".safetensors")],
)
def test_the_written_load_takes_its_weights_and_no_others_of_their_name(target: str, ending: str, tmp_path: Path) -> None:
    """It named the source's layers, which the weights that were written with it do not have."""
    for folder, model in (("a", "decoder"), ("b", "encoder")):
        (tmp_path / folder).mkdir()
        source = ROOT / "examples" / f"{model}.keras"
        done = rc.scaffold(source, target, tmp_path / folder / "m.py", weights=tmp_path / folder / f"m{ending}")
        assert done.text == (tmp_path / folder / "m.py").read_text()

    def runs(code: str, weights: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, str(tmp_path / code / "m.py"), str(tmp_path / weights / f"m{ending}")]
        return subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "KERAS_BACKEND": "torch"})

    assert runs("a", "a").returncode == 0, runs("a", "a").stderr
    other = runs("a", "b")
    assert other.returncode and "was not written with this code" in other.stderr, other.stderr
