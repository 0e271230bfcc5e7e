"""Whole Keras models as files of PyTorch: written, filled, run beside Keras, and refused by name."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.errors import ExecutorError
from rnnconvert.running import parent
from rnnconvert.scaffolding.names import class_name, comment, identifier
from rnnconvert.scaffolding.scaffold import targets
from tests import ROOT
from tests.helpers import ready
from tests.helpers.drawn import drawn
from tests.helpers.random_models import fill, random_model
from tests.helpers.requirements import needed

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning"),
    pytest.mark.filterwarnings("ignore:The structure of `inputs`:UserWarning"),
]
CLOSE = 2e-5
SHAPES = ((3, 7), (1, 9))
"""A batch's size and length: frameworks compile and step anew for each, so that a run draws what a model is tried on."""


def module_at(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("written", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs_for(model: Any, batch: int, time: int) -> list[np.ndarray[Any, Any]]:
    """Inputs of one size: tokens from 0 to 10 for two axes, numbers otherwise, with steps of zeros in them."""
    generator, inputs = np.random.default_rng(time), []
    for tensor in model.inputs:
        shape = [size or (time if axis else batch) for axis, size in enumerate(tensor.shape)]
        x = generator.integers(1, 11, shape) if len(shape) == 2 else generator.standard_normal(shape)
        x[0, -2:], x[-1, 1], x[-1, 0] = 0, 0, 0
        inputs.append(x.astype(str(tensor.dtype)))
    return inputs


def off(model: Any, path: Path, written: Path) -> float:
    """How far the written module, filled as its file does it, is off from Keras, both run here, in parts of numbers above 1."""
    torch, filled = needed("torch", "torch"), module_at(written).load(str(path))
    most = 0.0
    for batch, time in drawn(SHAPES, 1, written.parent.name):
        inputs = inputs_for(model, batch, time)
        expected = model(inputs if len(inputs) > 1 else inputs[0], training=False)
        with torch.no_grad():
            outputs = filled(*(torch.from_numpy(x) for x in inputs))
        several = [list(value) if isinstance(value, (list, tuple)) else [value] for value in (outputs, expected)]
        for got, wanted in zip(*several, strict=True):
            assert tuple(got.shape) == tuple(wanted.shape)
            truth = np.asarray(wanted)
            most = max(most, float((np.abs(got.numpy() - truth) / max(1.0, np.abs(truth).max())).max()))
    return most


def written(tmp_path: Path, model: Any, size: float = 0.5, **options: Any) -> tuple[Path, Path]:
    fill(model, 3, size)
    model.save(tmp_path / "model.keras")
    rc.scaffold(tmp_path / "model.keras", "pytorch", tmp_path / "model.py", **options)
    return tmp_path / "model.keras", tmp_path / "model.py"


@pytest.mark.parametrize("seed", drawn(range(200), 10, "scaffolded models"))
def test_random_models_are_equal_or_refused_by_name(tmp_path: Path, seed: int) -> None:
    model, path, target = random_model(seed), tmp_path / "model.keras", tmp_path / "model.py"
    model.save(path)
    try:
        rc.scaffold(path, "pytorch", target)
    except rc.RefusedError as error:
        assert "of tensors with masks" in str(error)
        assert not target.exists()
        return
    assert off(model, path, target) < CLOSE


def image_model(keras: Any) -> Any:
    """Space of two axes before time: strides, dilation, transposed convolutions, pooling, cropping, norms over channels."""
    x = start = keras.Input((12, 10, 3))
    layers = keras.layers
    for layer in (
        layers.ZeroPadding2D(((1, 2), (0, 1))), layers.Conv2D(4, (3, 2), strides=2, padding="same", activation="relu"),
        layers.BatchNormalization(), layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2), layers.UpSampling2D((2, 1)),
        layers.Conv2DTranspose(5, 3, strides=2, padding="same"), layers.MaxPooling2D((2, 3), padding="same"),
        layers.PReLU(shared_axes=[1, 2]),
        layers.AveragePooling2D(3, strides=2, padding="same"), layers.Cropping2D(((1, 0), (0, 1))), layers.GroupNormalization(5),
        layers.Conv2D(6, 2, groups=1, dilation_rate=2, padding="same"), layers.ReLU(max_value=1.5, negative_slope=0.1, threshold=0.2),
        layers.Permute((2, 1, 3)), layers.Reshape((-1, 6)), layers.RMSNormalization(), layers.UnitNormalization(),
        layers.Rescaling(0.3, 1.25),
        layers.LSTM(4), layers.LeakyReLU(0.3),
    ):  # fmt: skip
        x = layer(x)
    return keras.Model(start, x)


def test_layers_over_space_and_norms(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    model = image_model(keras)
    path, target = written(tmp_path, model)
    assert off(model, path, target) < CLOSE


def test_hdf5_of_keras_3(tmp_path: Path) -> None:
    keras, model = needed("keras", "keras"), random_model(3)
    assert keras.__version__.startswith("3")
    model.save(tmp_path / "model.h5")
    rc.scaffold(tmp_path / "model.h5", "pytorch", tmp_path / "model.py")
    assert off(model, tmp_path / "model.h5", tmp_path / "model.py") < CLOSE


def test_operations_that_make_a_mask_in_hdf5_of_keras_3(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    layers = keras.layers
    start = keras.Input((None,), dtype="int32")
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(layers.Embedding(11, 4, mask_zero=True)(start))
    model = keras.Model(start, layers.Dense(2)(layers.Bidirectional(layers.GRU(2))(x)))
    fill(model, 3)
    model.save(tmp_path / "model.h5")
    rc.scaffold(tmp_path / "model.h5", "pytorch", tmp_path / "model.py")
    assert off(model, tmp_path / "model.h5", tmp_path / "model.py") < CLOSE


def weights_alone(folder: Path) -> tuple[Any, Path, Path]:
    """Return a model, the file of its weights, and what to_json wrote of it."""
    keras = needed("keras", "keras")
    layers = keras.layers
    halves = layers.Bidirectional(layers.LSTM(4, activation="relu", return_sequences=True))
    model = keras.Sequential([keras.Input((None, 5)), halves, layers.GRU(3), layers.Dense(2)])
    fill(model, 3, size=0.2)
    folder.mkdir()
    model.save_weights(folder / "model.weights.h5")
    (folder / "model.json").write_text(model.to_json())
    return model, folder / "model.weights.h5", folder / "model.json"


def test_weights_alone_with_the_file_of_their_model(tmp_path: Path) -> None:
    model, weights, config = weights_alone(tmp_path / "all")
    apart = tmp_path / "model.weights.h5"
    weights.rename(apart)
    done = rc.scaffold(apart, "pytorch", tmp_path / "model.py", config=config, verify=True)
    assert done.equal
    filled = module_at(tmp_path / "model.py").load(apart, config)
    x = np.random.default_rng(0).standard_normal((2, 7, 5)).astype(np.float32)
    assert np.abs(filled(needed("torch", "torch").tensor(x)).detach().numpy() - model(x).numpy()).max() < CLOSE


def test_the_only_file_beside_weights_that_states_their_model_is_read(tmp_path: Path) -> None:
    _, weights, _ = weights_alone(tmp_path / "all")
    done = rc.scaffold(weights, "pytorch", verify=True, output=tmp_path / "model.py")
    assert done.equal
    assert "the configuration is read from model.json next to it" in "".join(done.notes)


def test_a_file_of_keras_2_with_weights_alone(tmp_path: Path) -> None:
    import h5py

    with h5py.File("examples/old_tagger.h5") as old, h5py.File(tmp_path / "alone.h5", "w") as alone:
        (tmp_path / "model.json").write_text(old.attrs["model_config"])
        for name in old["model_weights"]:
            old.copy(f"model_weights/{name}", alone)
        alone.attrs.update(old["model_weights"].attrs)
    both = tmp_path / "alone.h5", tmp_path / "model.json"
    done = rc.scaffold(both[0], "pytorch", tmp_path / "model.py", config=both[1], verify=True)
    assert done.equal


def test_weights_alone_without_their_model_are_refused(tmp_path: Path) -> None:
    _, weights, config = weights_alone(tmp_path / "all")
    config.unlink()
    with pytest.raises(rc.UsageError, match=r"holds weights without a model.*--config"):
        rc.scaffold(weights, "pytorch", tmp_path / "model.py")
    with pytest.raises(rc.UnreadableError, match="no configuration of a Keras model"):
        rc.scaffold("examples/old_tagger.h5", "pytorch", tmp_path / "model.py", config=weights)
    assert not (tmp_path / "model.py").exists()


@pytest.mark.parametrize("kind", ["Dropout", "Dense"])
def test_a_class_of_the_users_own_is_refused_whatever_it_is_called(tmp_path: Path, kind: str) -> None:
    keras = needed("keras", "keras")
    registered = keras.saving.register_keras_serializable("mine", kind)
    layer = registered(type(kind, (getattr(keras.layers, kind),), {"call": lambda self, x, **_: x * 2}))
    start = keras.Input((6, 3))
    model = keras.Model(start, keras.layers.LSTM(2)(layer(3 if kind == "Dense" else 0.5)(start)))
    with pytest.raises(rc.RefusedError, match="of your own"):
        written(tmp_path, model)
    assert not (tmp_path / "model.py").exists()


def test_a_model_that_is_called_twice_is_one_module(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    layers = keras.layers
    inner = keras.Sequential([keras.Input((None,)), layers.Embedding(11, 4, mask_zero=True), layers.LSTM(3)], name="encoder")
    first, second = keras.Input((None,), name="first"), keras.Input((None,), name="second")
    model = keras.Model([first, second], layers.Dot(1, normalize=True)([inner(first), inner(second)]))
    path, target = written(tmp_path, model)
    assert off(model, path, target) < CLOSE
    assert target.read_text().count("self.encoder = Encoder()") == 1


def test_functions_that_are_no_calls_keep_to_their_operands(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    layers = keras.layers
    x = start = keras.Input((6, 3))
    for settings in ({}, {"reset_after": False}, {"recurrent_activation": "linear"}):
        x = layers.GRU(3, activation="linear", return_sequences=True, **settings)(x)
    x = layers.LSTM(3, activation=None, recurrent_activation="linear", return_sequences=True)(
        layers.SimpleRNN(3, activation=None, return_sequences=True)(x)
    )
    x = layers.ReLU(max_value=1, negative_slope=0.5, threshold=0.25)(layers.Add()([x, start]))
    model = keras.Model(start, layers.Rescaling(1 / 3, 0.1)(layers.Subtract()([x, start])))
    # Nothing bounds states without a function: with larger weights float32's own rounding grows from step to step.
    path, target = written(tmp_path, model, size=0.2)
    assert off(model, path, target) < CLOSE


def stateful_model(keras: Any) -> Any:
    """Layers that keep their states: in one direction, in two unlike ones under a mask, in a model in the model."""
    layers, start = keras.layers, keras.Input(batch_shape=(2, 4, 3))
    x = layers.GRU(5, stateful=True, return_sequences=True)(layers.Masking()(start))
    back = layers.GRU(3, stateful=True, go_backwards=True, return_sequences=True)
    x = layers.Bidirectional(layers.LSTM(3, stateful=True, return_sequences=True), backward_layer=back)(x)
    inner = keras.Input(batch_shape=(2, 4, 6))
    x = keras.Model(inner, layers.Bidirectional(layers.LSTM(2, stateful=True), merge_mode="ave")(inner))(x)
    image = keras.Input(batch_shape=(2, 3, 4, 2))
    y = layers.Flatten()(layers.ConvLSTM1D(2, 2, stateful=True)(image))
    return keras.Model([start, image], layers.Dense(2)(layers.Concatenate()([x, y])))


@pytest.mark.parametrize("target", ["pytorch", "flax"])
def test_stateful_layers_go_on_where_they_stopped(tmp_path: Path, target: str) -> None:
    from tests.scaffolding.test_scaffold_targets import called, require

    require(target)
    model = stateful_model(needed("keras", "keras"))
    fill(model, 3)
    model.save(tmp_path / "model.keras")
    weights = tmp_path / ("model.pt" if target == "pytorch" else "model.msgpack")
    assert rc.scaffold(tmp_path / "model.keras", target, tmp_path / "model.py", weights=weights, verify=True).equal
    filled = module_at(tmp_path / "model.py").load(str(tmp_path / "model.keras"))
    generator = np.random.default_rng(0)
    calls = [[generator.standard_normal(shape).astype(np.float32) for shape in ((2, 4, 3), (2, 3, 4, 2))] for _ in range(3)]
    outputs = [called(filled, target, inputs)[0] for inputs in calls]
    filled.reset_states()
    np.testing.assert_array_equal(called(filled, target, calls[0])[0], outputs[0])
    for got, inputs in zip(outputs, calls, strict=True):
        np.testing.assert_allclose(got, called(model, "keras", inputs)[0], atol=CLOSE)


def test_a_module_that_forgets_its_states_is_found_out_by_a_second_call(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    start = keras.Input(batch_shape=(2, 4, 3))
    model = keras.Model(start, keras.layers.GRU(5, stateful=True)(start))
    path, target = written(tmp_path, model)
    module = module_at(target)
    forgetting = type("Forgetting", (module.Model,), {"forward": lambda self, x: (self.reset_states(), module.Model.forward(self, x))[1]})
    before, x = np.random.default_rng(0).standard_normal((2, 2, 4, 3)).astype(np.float32)
    for kind, equal in ((module.Model, True), (forgetting, False)):
        report = rc.load_into(kind().eval(), str(path), module.LAYERS)
        assert report.verify(x).equal
        assert report.verify(x, before=[before]).equal == equal


def test_weights_in_a_file_of_torch_need_no_rnnconvert(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    model = random_model(3)
    fill(model, 3)
    model.save(tmp_path / "model.keras")
    done = rc.scaffold(tmp_path / "model.keras", "pytorch", tmp_path / "model.py", weights=tmp_path / "model.pt", verify=True)
    assert done.equal and len(done.proof) == 4
    code = (
        "import sys; sys.modules['rnnconvert'] = None; import torch, written; from inspect import isclass;"
        "kinds = [k for k in vars(written).values() if isclass(k) and k.__module__ == 'written']; model = kinds[-1]();"
        "model.load_state_dict(torch.load('model.pt')); print('filled')"
    )
    (tmp_path / "model.py").rename(tmp_path / "written.py")
    ran = ready.run([sys.executable, "-c", code], "torch", cwd=tmp_path, check=True)
    assert ran.stdout.strip() == "filled"
    module = module_at(tmp_path / "written.py")
    tensors = torch.load(tmp_path / "model.pt")
    for name, tensor in module.load(str(tmp_path / "model.keras")).state_dict().items():
        assert torch.equal(tensor, tensors[name]), name


def test_a_wrong_module_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed("torch", "torch")
    from rnnconvert.formats.pytorch.scaffold.functions import FUNCTIONS

    keras = needed("keras", "keras")
    start = keras.Input((6, 3))
    model = keras.Model(start, keras.layers.Dense(2, activation="tanh")(keras.layers.LSTM(4)(start)))
    monkeypatch.setitem(FUNCTIONS, "tanh", "torch.sigmoid({x})")
    with pytest.raises(rc.NotEqualError, match="output"):
        written(tmp_path, model, verify=True)
    assert not (tmp_path / "model.py").exists()


def test_a_written_model_runs_within_limits_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed("torch", "torch"), needed("onnxruntime", "onnxruntime")
    file = ROOT / "examples" / "exported.onnx"
    code, weights, report = tmp_path / "model.py", tmp_path / "weights.pt", tmp_path / "report.txt"
    room = targets()["pytorch"]
    write = room.write

    def scaffolded(lines: str, **options: Any) -> rc.Scaffolded:
        def with_lines(description: Any, source: str) -> tuple[str, tuple[str, ...]]:
            text, missing = write(description, source)
            return f"{text}\n\n{lines}\n", missing

        monkeypatch.setattr(room, "write", with_lines)
        return rc.scaffold(file, "pytorch", code, force=True, **options)

    recording = f"import os, resource\nopen({str(report)!r}, 'w').write(f'{{os.getpid()}} {{resource.getrlimit(resource.RLIMIT_CORE)[0]}}')"
    scaffolded(recording, verify=True, weights=weights)
    process, core = map(int, report.read_text().split())
    assert process != os.getpid() and core == 0
    files = code.read_bytes(), weights.read_bytes()
    with pytest.raises(ExecutorError, match="the model written for PyTorch failed: its process ended with -9"):  # as where memory ends
        scaffolded("import os\nos.kill(os.getpid(), 9)", verify=True, weights=weights)
    monkeypatch.setattr(parent, "_patience", lambda request: 5.0 if "job" in request else 600.0)
    with pytest.raises(ExecutorError, match="the model written for PyTorch failed: it did not answer within 5 s"):
        scaffolded("while True:\n    pass", weights=weights)
    assert (code.read_bytes(), weights.read_bytes()) == files
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None)
    with pytest.raises(rc.MissingPackageError, match="pip install torch"):
        scaffolded("", weights=weights)


def test_what_is_not_known_is_refused_by_its_place(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    start = keras.Input((6, 3))
    inner = keras.Sequential([keras.Input((6, 3)), keras.layers.Lambda(lambda x: x * 2)], name="part")
    model = keras.Model(start, keras.layers.LSTM(2)(inner(start)))
    with pytest.raises(rc.RefusedError, match="Lambda"):
        written(tmp_path, model)
    assert not (tmp_path / "model.py").exists()


def test_files_that_exist_are_kept_and_endings_are_checked(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    start = keras.Input((6, 3))
    model = keras.Model(start, keras.layers.LSTM(4)(start))
    path, target = written(tmp_path, model)
    target.write_text("mine")
    with pytest.raises(rc.UsageError, match="exists"):
        rc.scaffold(path, "pytorch", target)
    assert target.read_text() == "mine"
    with pytest.raises(rc.UsageError, match=r"ends in \.py"):
        rc.scaffold(path, "pytorch", tmp_path / "model.txt")
    with pytest.raises(rc.UsageError, match=r"\.pt"):
        rc.scaffold(path, "pytorch", tmp_path / "b.py", weights=tmp_path / "b.h5")
    with pytest.raises(rc.UsageError, match="pytorch"):
        rc.scaffold(path, "torhc", tmp_path / "b.py")
    rc.save(rc.load(path), tmp_path / "layers.safetensors", "pytorch")
    with pytest.raises(rc.UsageError, match="files that state their layers"):
        rc.scaffold(tmp_path / "layers.safetensors", "pytorch", tmp_path / "b.py")
    assert not (tmp_path / "b.py").exists()


ODD = [
    '"""\nimport os; os.system("touch owned")\n"""',
    "class",
    "self",
    "double",
    "état 漢",
    "a'b\"c\\",
    "x",
    "nn",
    "__init__",
    "load_state_dict",
    "1st",
    " ",
]


def renamed(path: Path, names: dict[str, str]) -> None:
    """Change the names of a model's layers in its file."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    text = members["config.json"].decode()
    for old, new in names.items():
        text = text.replace(json.dumps(old), json.dumps(new))
    members["config.json"] = text.encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)


def test_no_name_of_a_file_becomes_code(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    x = start = keras.Input((6, 3), name="start")
    for number in range(len(ODD)):
        x = keras.layers.Dense(3, name=f"layer_{number}_")(x)
    model = keras.Model(start, keras.layers.LSTM(2, name="lstm")(x), name="whole")
    path, target = written(tmp_path, model)
    target.unlink()
    renamed(path, {**{f"layer_{number}_": name for number, name in enumerate(ODD)}, "whole": ODD[0], "start": "start; import os"})
    rc.scaffold(path, "pytorch", target)
    assert off(model, path, target) < CLOSE
    assert not list(tmp_path.glob("**/owned")) and not Path("owned").exists()


@pytest.mark.parametrize("name", [*ODD, "", "LSTM1", "a" * 500, "None", "é", "\x00", "for", "\u2028"])
def test_names_are_identifiers(name: str) -> None:
    assert identifier(name).isidentifier() and identifier(name).isascii()
    assert class_name(name).isidentifier()
    text = comment(name)
    assert text.isascii() and text.isprintable() and '"' not in text and "\\" not in text


def test_what_is_written_passes_ruff(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    layers = keras.layers
    start = keras.Input((None,), name="tokens")
    x = layers.Embedding(11, 4, mask_zero=True)(start)
    x = layers.Bidirectional(layers.GRU(3, reset_after=False, return_sequences=True))(x)
    x = layers.LSTM(3, return_sequences=True)(layers.Conv1D(4, 3, strides=2, padding="same", activation="relu")(x))
    _, target = written(tmp_path, keras.Model(start, layers.SimpleRNN(3, activation="sigmoid")(x)))
    ran = subprocess.run([sys.executable, "-m", "ruff", "check", "--isolated", str(target)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + target.read_text()


def test_the_command_writes_and_refuses(tmp_path: Path) -> None:
    model = random_model(3)
    fill(model, 3)
    model.save(tmp_path / "model.keras")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "rnnconvert", "scaffold", *words], cwd=tmp_path, capture_output=True, text=True)

    printed = run("model.keras")
    assert printed.returncode == 0 and "class Model(nn.Module):" in printed.stdout
    done = run("model.keras", "--to", "pytorch", "-o", "model.py")
    assert done.returncode == 0 and (tmp_path / "model.py").read_text() == printed.stdout
    again = run("model.keras", "-o", "model.py")
    assert again.returncode == 2 and "--force" in again.stderr
    (tmp_path / "cut.keras").write_bytes((tmp_path / "model.keras").read_bytes()[:900])
    assert run("cut.keras", "-o", "b.py").returncode == 3
    assert not (tmp_path / "b.py").exists()
