"""Files of Keras 2, proved by tf_keras, which computes what they say, and by Keras 3, which computes another function of some."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.errors import ExecutorError
from rnnconvert.running import scripts
from rnnconvert.running.child import missing
from rnnconvert.running.registry import Executor
from tests.formats.keras.test_keras_keys import X, changed, check_agreed, odd
from tests.helpers import frameworks
from tests.helpers.drawn import drawn, each
from tests.helpers.frameworks import by_keras_2, judge
from tests.helpers.requirements import need
from tests.helpers.workers import running

MAKE = """
import sys
import numpy as np
import tf_keras as k

k.utils.set_random_seed(1)
more = {"return_sequences": True, "bias_initializer": "random_uniform"}
model = k.Sequential([
    k.layers.Input((None, 4)),
    k.layers.Bidirectional(k.layers.LSTM(5, recurrent_activation="hard_sigmoid", **more), name="both"),
    k.layers.GRU(3, reset_after=False, name="before", **more),
    k.layers.GRU(4, name="after", **more),
    k.layers.SimpleRNN(3, go_backwards=True, name="plain", **more),
])
for name in sys.argv[2:]:
    model.save(f"{sys.argv[1]}/{name}")
x = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)
np.savez(f"{sys.argv[1]}/kept.npz", x=x, y=model.predict(x, verbose=0))
"""


TRAINED = """
import sys
import numpy as np
import tf_keras as k

for number, optimizer in enumerate((k.optimizers.Adam(), k.optimizers.RMSprop(momentum=0.5), k.optimizers.SGD(momentum=0.9))):
    k.utils.set_random_seed(number)
    model = k.Sequential([
        k.layers.Input((2, 4)), k.layers.Bidirectional(k.layers.LSTM(3, return_sequences=True), name="both"), k.layers.GRU(3, name="gru"),
        k.layers.Dense(1),
    ])
    model.compile(optimizer, "mse", run_eagerly=True)  # making a graph of it takes ten times as long
    model.train_on_batch(np.ones((2, 2, 4)), np.ones((2, 1)))
    model.save(f"{sys.argv[1]}/{number}.h5")
    model.save(f"{sys.argv[1]}/{number}.keras")
    model.save_weights(f"{sys.argv[1]}/{number}.weights.h5")
    np.savez(f"{sys.argv[1]}/{number}.npz", *model.get_weights())
"""


COMPILED = """
import sys
import numpy as np
import tf_keras as k

def own_loss(truth, found):
    return k.backend.mean(k.backend.square(truth - found))

k.utils.set_random_seed(2)
both = k.layers.Bidirectional
model = k.Sequential([
    k.layers.Input((None,)), k.layers.Embedding(9, 4, mask_zero=True), both(k.layers.GRU(3, return_sequences=True), name="first"),
    both(k.layers.LSTM(2), name="second"), k.layers.Dense(3, activation="softmax", name="head"),
])
model.compile("adam", own_loss, run_eagerly=True)
tokens = np.array([[3, 1, 4, 1, 5], [2, 6, 0, 0, 0]])
model.train_on_batch(tokens, np.eye(3)[:2])
model.save(sys.argv[1])
np.save(sys.argv[2], model.predict(tokens, verbose=0))
"""

EXPORT = """
import sys
import numpy as np, tensorflow as tf, tf_keras as k
layers, every = k.layers, {"return_sequences": True}
models = {
    "numbers": [layers.LSTM(4, name="lstm", **every), layers.LSTM(4, activation="relu", name="lstm_1", **every),
                layers.LSTM(3, activation="softsign", recurrent_activation="relu", name="lstm_1_1", **every)],
    "turned": [layers.SimpleRNN(4, activation="relu", name="rnn", **every), layers.LSTM(4, go_backwards=True, name="rnn_1", **every)],
    "ways": [layers.Bidirectional(layers.GRU(4, activation="relu", **every)),
             layers.Bidirectional(layers.LSTM(3, **every), merge_mode="sum")],
    "before": [layers.GRU(4, reset_after=False, recurrent_activation="softsign", **every), layers.GRU(3, **every)],
}
x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("f")
for name, made in models.items():
    model = k.Sequential([layers.InputLayer((5, 3)), *made])
    model.set_weights([np.random.default_rng(1).uniform(-0.7, 0.7, one.shape).astype("f") for one in model.get_weights()])
    model.export(f"{sys.argv[1]}/{name}")
    np.savez(f"{sys.argv[1]}/{name}.npz", x=x, y=model.predict(x, verbose=0))
"""


@pytest.fixture(scope="module")
def keras_2() -> Executor:
    return frameworks.tf_keras()


@pytest.fixture(scope="module")
def folder(keras_2: Executor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that Keras 2 wrote, in both of its kinds of file."""
    path = tmp_path_factory.mktemp("keras2")
    by_keras_2(MAKE, path, "model.h5", "model.keras")
    return path


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras
def test_a_whole_model_of_keras_2_proves_what_was_filled_from_it(
    keras_2: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with a loss of its author's own, masks and two directions: tf_keras agrees with the file that Keras 3 runs."""
    need("torch", missing(["torch"]))
    import torch

    monkeypatch.setattr(scripts, "executors", lambda: {"tf_keras": keras_2})
    file, outputs = tmp_path / "compiled.h5", tmp_path / "kept.npy"
    by_keras_2(COMPILED, file, outputs)

    class Mine(torch.nn.Module):
        forgotten = False

        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(9, 4)
            self.first = torch.nn.GRU(4, 3, bidirectional=True, batch_first=True)
            self.second = torch.nn.LSTM(6, 2, bidirectional=True, batch_first=True)
            self.head = torch.nn.Linear(4, 3)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            steps = torch.nn.utils.rnn.pack_padded_sequence(
                self.embedding(tokens), (tokens != 0).sum(1), batch_first=True, enforce_sorted=False
            )
            _, (h, _) = self.second(self.first(steps)[0])
            scores = self.head(torch.cat([h[0], h[1]], 1))
            return scores if self.forgotten else scores.softmax(-1)

    mine, tokens = Mine(), np.array([[3, 1, 4, 1, 5], [2, 6, 0, 0, 0]])
    report = rc.load_into(mine, file)
    assert np.abs(mine(torch.from_numpy(tokens)).detach().numpy() - np.load(outputs)).max() < 1e-6
    comparison = report.verify(tokens)
    assert comparison and [entry.output for entry in comparison.comparisons] == ["first", "second", "output"], str(comparison)
    assert "tf_keras on the old file and Keras on the new one agree" in comparison.notes[0]
    mine.forgotten = True
    assert [entry.passed for entry in report.verify(tokens).comparisons] == [True, True, False]


def test_the_moments_of_an_optimizer_are_no_layers(keras_2: Executor, tmp_path: Path) -> None:
    """Files of models that were compiled and trained keep moments under the names of the weights that they belong to."""
    by_keras_2(TRAINED, tmp_path)
    for path in sorted(entry for entry in tmp_path.iterdir() if entry.suffix != ".npz"):
        checkpoint = rc.load(path)
        assert not checkpoint.unread and len(checkpoint.layers) == 2, path.name
        arrays = [*np.load(tmp_path / f"{path.name[0]}.npz").values()]
        gate = next(entry for entry in checkpoint.layers.values() if entry.num_directions == 2)[0, 1]
        assert np.array_equal(np.asarray(gate.arrays["input", "i"]), arrays[3][:, :3].T), path.name
        assert rc.convert(path, tmp_path / "out.pt", force=True, assume_defaults=True).written
        assert not [warning for warning in checkpoint.warnings if "optimizer" in warning], checkpoint.warnings


def test_an_export_states_its_functions_under_the_names_of_its_variables(keras_2: Executor, tmp_path: Path) -> None:
    """Keras 3 puts a number behind the names of scopes, Keras 2 does not: `lstm` was given what its neighbour `lstm_1` computes."""
    by_keras_2(EXPORT, tmp_path)
    for path in sorted(tmp_path.glob("*.npz")):
        checkpoint = rc.load(path.with_suffix(""))
        assert checkpoint.layers and not checkpoint.questions, (path.stem, checkpoint.questions)
        with np.load(path) as arrays:
            y, expected = arrays["x"].swapaxes(0, 1).astype(float), arrays["y"]
        for stack in checkpoint.layers.values():
            y = reference.run(stack, y).y
        np.testing.assert_allclose(y.swapaxes(0, 1), expected, atol=1e-5, err_msg=path.stem)


OWN_CLASSES = """
import sys
import numpy as np
import tf_keras as k
L, folder = k.layers, sys.argv[1]
INNER = {
    "bidirectional": lambda: L.Bidirectional(L.LSTM(4, activation="relu", return_sequences=True), merge_mode="sum"),
    "gru": lambda: L.GRU(4, recurrent_activation="hard_sigmoid", reset_after=False, return_sequences=True),
    "cell": lambda: L.RNN(L.SimpleRNNCell(4, activation="softsign"), return_sequences=True),
}
@k.utils.register_keras_serializable("my")
class Enc(L.Layer):
    def __init__(self, kind, **more):
        super().__init__(**more)
        self.kind, self.inner = kind, INNER[kind]()
    def call(self, x):
        return self.inner(x) * 2.0
    def get_config(self):
        return {**super().get_config(), "kind": self.kind}
@k.utils.register_keras_serializable("my")
class Wrap(L.Wrapper):
    def build(self, shape):
        self.layer.build(shape)
        super().build(shape)
    def call(self, x):
        return self.layer(x) * 2.0
x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("f")
for kind, inner in INNER.items():
    for name, layer in (("enc", Enc(kind)), ("wrap", Wrap(inner()))):
        model = k.Sequential([k.Input((5, 3)), layer, L.Dense(2)])
        model.set_weights([np.random.default_rng(1).uniform(-0.7, 0.7, one.shape).astype("f") for one in model.get_weights()])
        model.save(f"{folder}/{name}_{kind}", save_format="tf")
        if name == "wrap":
            model.save(f"{folder}/{name}_{kind}.h5")
            model.save(f"{folder}/{name}_{kind}.keras")
        within = layer.inner if name == "enc" else layer.layer
        np.savez(f"{folder}/{name}_{kind}.npz", x=x, y=within(x))
"""


def test_a_layer_that_a_class_of_the_users_own_is_around_is_read_with_a_note(keras_2: Executor, tmp_path: Path) -> None:
    """The file states the layer inside whole; what the class around it does, nothing states."""
    by_keras_2(OWN_CLASSES, tmp_path)
    files = [path for path in tmp_path.iterdir() if path.suffix != ".npz"]
    assert len(files) == 12

    def check(path: Path) -> None:
        checkpoint = rc.load(path)
        assert not checkpoint.questions and not checkpoint.unread
        (stack,) = checkpoint.layers.values()
        class_name = "my>Enc" if path.name.startswith("enc") else "my>Wrap"
        assert f"the class '{class_name}' around it is not one of Keras's own" in " ".join(map(str, checkpoint.warnings))
        with np.load(path.with_suffix(".npz")) as arrays:
            y = reference.run(stack, arrays["x"].swapaxes(0, 1).astype(float)).y
            np.testing.assert_allclose(y.swapaxes(0, 1), arrays["y"], atol=1e-5)

    each(files, check)


@pytest.fixture
def added(keras_2: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor is listed, as `rnnconvert executors add tf_keras --python ...` does."""
    entry = {"name": "tf_keras", "module": keras_2.module, "variant": "tf_keras", "python": keras_2.python}
    (tmp_path / "executors.json").write_text(json.dumps([entry]))
    monkeypatch.setenv("RNNCONVERT_EXECUTORS", str(tmp_path / "executors.json"))


@pytest.mark.drawn(1)
@pytest.mark.parametrize("ending", [".h5", ".keras"])
def test_a_file_of_keras_2_is_proved_by_the_version_that_wrote_it(ending: str, folder: Path, added: None) -> None:
    judge("keras")
    report = rc.verify(folder / f"model{ending}", on=["tf_keras", "keras-tensorflow"])
    assert report.equal, str(report)
    own_file = {(layer["name"], run["executor"]): run["own_file"] for layer in report.document["layers"] for run in layer["runs"]}
    assert all(own_file[name, "tf_keras"] for name in ("both", "before", "after", "plain"))
    # Keras 3 computes another hard_sigmoid of the same file, but reads the rest of it in spite of dead keys.
    assert not own_file["both", "keras-tensorflow"] and own_file["before", "keras-tensorflow"] and own_file["after", "keras-tensorflow"]


def test_what_keras_3_computes_otherwise_is_left_to_keras_2(folder: Path, added: None, tmp_path: Path) -> None:
    judge("keras")
    target = tmp_path / "both.onnx"
    rc.convert(folder / "model.h5", target, layers=["both"])
    report = rc.verify(folder / "model.h5", target, layers=["both"])
    assert report.equal, str(report)
    runs = {run["executor"]: run for run in report.document["layers"][0]["runs"] if run["model"] == "A"}
    assert runs["tf_keras"]["own_file"] and not any("no framework ran A's own file" in warning for warning in report.document["warnings"])


def test_a_wrong_file_is_caught(folder: Path, keras_2: Executor, tmp_path: Path) -> None:
    wrong = tmp_path / "model.h5"
    wrong.write_bytes((folder / "model.h5").read_bytes())
    with h5py.File(wrong, "r+") as file:
        kernels: list[Any] = []
        file["model_weights/after"].visititems(lambda name, item: kernels.append(item) if name.endswith("recurrent_kernel:0") else None)
        (kernel,) = kernels
        z, r, n = np.split(kernel[()], 3, axis=1)
        kernel[...] = np.concatenate([r, z, n], axis=1)
    x = np.random.default_rng(1).normal(size=(6, 2, 10)).astype(np.float32)[:, :, :3]
    asked: dict[str, Any] = {"layers": ["after"], "how": {}, "x": x, "hidden": None, "cell": None, "lengths": None, "cotangents": None}
    with running(keras_2) as process:
        right, other = (process.ask(file=str(path), **asked) for path in (folder / "model.h5", wrong))
    assert np.abs(right["y"] - other["y"]).max() > 1e-3


def test_each_layer_of_a_chain_begins_with_its_own_states(folder: Path, keras_2: Executor) -> None:
    """What a chain takes at once is what its layers take one by one; a cell state alone counts, too."""
    rng = np.random.default_rng(2)
    widths = {"both": [5, 5], "before": [3], "after": [4], "plain": [3]}
    hidden = {name: [rng.normal(size=(2, width)).astype(np.float32) for width in units] for name, units in widths.items()}
    cell = [rng.normal(size=(2, 5)).astype(np.float32) for _ in range(2)]
    asked: dict[str, Any] = {"file": str(folder / "model.h5"), "how": {}, "lengths": None, "cotangents": None}
    y = x = rng.normal(size=(6, 2, 4)).astype(np.float32)
    with running(keras_2) as process:
        states = {"hidden": [state for some in hidden.values() for state in some], "cell": cell}
        chain = process.ask(layers=list(widths), x=x, **states, **asked)
        for name in widths:
            answer = process.ask(layers=[name], x=y, hidden=hidden[name], cell=cell if name == "both" else None, **asked)
            y = answer["y"]
        zeros = [np.zeros_like(state) for state in cell]
        ends = [process.ask(layers=["both"], x=x, hidden=first, cell=cell, **asked)["y"] for first in (None, zeros)]
        default = process.ask(layers=["both"], x=x, hidden=None, cell=None, **asked)["y"]
    np.testing.assert_array_equal(chain["y"], y)
    assert [state.shape[1] for state in chain["hidden"]] == [5, 5, 3, 4, 3] and len(chain["cell"]) == 2
    np.testing.assert_array_equal(*ends)
    assert np.abs(default - ends[0]).max() > 1e-3


@pytest.mark.parametrize(
    ("layers", "more", "message"),
    [
        (["none"], {}, "no recurrent layers 'none'"),
        (["both"], {"how": {"nonlinearity": "relu"}}, "cannot be chosen"),
        (["both"], {"cotangents": {"y": np.zeros(1)}}, "gradients"),
    ],
)
def test_what_it_does_not_do_is_refused(layers: list[str], more: dict[str, Any], message: str, folder: Path, keras_2: Executor) -> None:
    asked = {"how": {}, "x": np.zeros((2, 1, 4), np.float32), "hidden": None, "cell": None, "lengths": None, **more}
    with running(keras_2) as process, pytest.raises(ExecutorError, match=message) as error:
        process.ask(file=str(folder / "model.h5"), layers=layers, **asked)
    assert error.value.refused


def test_a_transplant_is_verified_by_outputs_that_keras_2_kept(folder: Path) -> None:
    judge("pytorch")
    import torch

    class Mine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.after = torch.nn.GRU(3, 4, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.after(x)[0]

    mine = Mine()
    report = rc.load_into(mine, folder / "model.h5", strict=False)
    stack = rc.load(folder / "model.h5").layers["after"]
    x = np.random.default_rng(2).normal(size=(2, 6, 3)).astype(np.float32)

    expected = reference.run(stack, x.swapaxes(0, 1)).y.swapaxes(0, 1).astype(np.float32)
    assert report.verify(x, expected=expected)
    assert not report.verify(x, expected=expected * np.float32(1.01))


ODD_FILES = """
import sys
import numpy as np
import tf_keras as k

for path in sys.argv[2:]:
    try:
        given = k.models.load_model(path)(np.load(sys.argv[1]))
        np.save(f"{path}.npy", given[0] if isinstance(given, (list, tuple)) else given)
    except Exception as error:
        print(path, error)
"""


@pytest.mark.parametrize("first", [False, True])
def test_odd_values_are_read_as_keras_2_takes_them(first: bool, folder: Path, keras_2: Executor, tmp_path: Path) -> None:
    """Whatever the value of a key, the numbers are those that Keras 2 computes with the file, or both refuse it.

    first  whether the model begins with the layer, without an InputLayer, as Keras wrote it before 2.4
    """
    make = (
        "import sys, tf_keras as k; k.Sequential([k.layers.Input((5, 3)), k.layers.LSTM(4, name='it', "
        "recurrent_activation='hard_sigmoid', bias_initializer='random_uniform')]).save(sys.argv[1])"
    )
    by_keras_2(make, tmp_path / "base.h5")
    layers: list[dict[str, Any]] = []
    changed(tmp_path / "base.h5", tmp_path / "plain.h5", layers.append)
    stated = [{"batch_input_shape": [None, 5, 3]}, {"input_shape": [5, 3]}, {"input_dim": 3}] if first else [{}]
    cases = [(shape, *case) for shape in stated for case in odd(layers[0])]
    files = []
    for number, (shape, key, value) in enumerate(drawn(cases, 6, f"first={first}")):

        def put(layer: dict[str, Any], shape: Any = shape, key: str = key, value: Any = value) -> None:
            layer["config"].update(shape)
            layer["config"][key] = value

        files.append((changed(tmp_path / "base.h5", tmp_path / f"{number}.h5", put, first), key, value))
    np.save(tmp_path / "x.npy", X)
    by_keras_2(ODD_FILES, tmp_path / "x.npy", *(path for path, *_ in files))

    def check(case: tuple[Path, str, Any]) -> None:
        inputs = case[0].with_name(f"{case[0].name}.npy")
        check_agreed(*case, np.load(inputs) if inputs.exists() else None)

    each(files, check, lambda case: f"{case[1]}={case[2]!r}")
