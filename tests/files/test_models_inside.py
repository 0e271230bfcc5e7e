"""Models inside other files: pickles of Keras's own making, joblib's, archives with one model."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import shutil
import sys
import tarfile
import types
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import wire
from rnnconvert.containers.numpy_values import JOBLIB_ARRAY
from rnnconvert.core.errors import UnreadableError
from tests.helpers.frameworks import KERAS_WARNS, by_keras_2, judge
from tests.helpers.requirements import needed

pytestmark = KERAS_WARNS

PATHS = {"a pickle": "model.pkl", "a pickle in a dictionary": "both.pkl", "torch.save": "saved.pt"}

KERAS_2 = """
import os, pickle, sys
import numpy as np
import tf_keras as k
k.utils.set_random_seed(3)
folder = sys.argv[1]
model = k.Sequential([k.layers.LSTM(3, activation="relu", input_shape=(4, 2)), k.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(np.ones((2, 4, 2)), np.ones((2, 1)), verbose=0)
with open(f"{folder}/model.pkl", "wb") as file:
    pickle.dump(model, file)
model.save(f"{folder}/saved")
os.mkdir(f"{folder}/alone")
for name in ("alone.h5", "alone.weights.h5", "alone"):
    model.save_weights(f"{folder}/alone/{name}")
with open(f"{folder}/alone/model.json", "w") as file:
    file.write(model.to_json())
habit = k.Sequential([
    k.layers.LSTM(3, return_sequences=True, input_shape=(4, 5)),
    k.layers.Bidirectional(k.layers.GRU(2, return_sequences=True, input_shape=(4, 7)), input_shape=(4, 6)),
    k.layers.GRU(2, input_shape=(4, 7)),
])
x = np.ones((2, 4, 5), np.float32)
for ending in (".h5", ".keras"):
    habit.save(f"{folder}/habit{ending}")
    again = k.models.load_model(f"{folder}/habit{ending}")
    assert np.array_equal(habit.predict(x, verbose=0), again.predict(x, verbose=0))
np.savez(f"{folder}/arrays.npz", **{str(i): one for i, one in enumerate(model.get_weights())})
"""


@pytest.fixture(scope="module")
def keras_3(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Files in which Keras 3 itself, or torch, pickled a model."""
    keras = needed("keras", "keras")
    torch = needed("torch", "torch")
    folder = tmp_path_factory.mktemp("keras_3")
    model = keras.Sequential([keras.Input((4, 2)), keras.layers.GRU(3, activation="relu"), keras.layers.Dense(1)])
    (folder / PATHS["a pickle"]).write_bytes(pickle.dumps(model))
    (folder / PATHS["a pickle in a dictionary"]).write_bytes(pickle.dumps({"scale": np.ones(2), "model": [model]}))
    torch.save(model, folder / PATHS["torch.save"])
    return folder, model


@pytest.mark.parametrize("kind", PATHS)
def test_a_pickled_model_of_keras_3(keras_3: tuple[Path, Any], kind: str) -> None:
    folder, model = keras_3
    checkpoint = rc.load(folder / PATHS[kind])
    (stack,) = checkpoint.layers.values()
    assert (checkpoint.format, stack.cell.kind, stack.cell.activation.name) == ("keras", "gru", "relu")
    kernel = np.asarray(model.layers[0].get_weights()[0])
    np.testing.assert_array_equal(stack[0, 0].gates["n"].input, kernel[:, 6:].T)
    assert checkpoint.path == str(folder / PATHS[kind])
    assert "in the pickle" in checkpoint.evidence[0]
    assert ("at 'model'" in checkpoint.evidence[0]) == (kind == "a pickle in a dictionary")


def test_the_model_in_a_pickle_is_run_as_proof(keras_3: tuple[Path, Any], tmp_path: Path) -> None:
    judge("keras")
    rc.convert(keras_3[0] / "model.pkl", tmp_path / "m.onnx")
    assert rc.verify(keras_3[0] / "model.pkl", tmp_path / "m.onnx").verdict == "recurrent layers equal"  # a dense layer stays behind


@pytest.fixture(scope="module")
def keras_2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that Keras 2 pickled, its SavedModel, and its arrays."""
    folder = tmp_path_factory.mktemp("keras_2")
    by_keras_2(KERAS_2, folder)
    return folder


@pytest.mark.parametrize("name", ["alone.h5", "alone.weights.h5", "alone", "alone.index", ""])
def test_weights_of_keras_2_alone_are_read_with_the_architecture_beside_them(keras_2: Path, name: str) -> None:
    checkpoint = rc.load(keras_2 / "alone" / name)
    (stack,) = checkpoint.layers.values()
    assert stack.cell.activation.name == "relu" and not checkpoint.questions
    assert checkpoint.warnings[0].startswith("the configuration is read from model.json next to it")
    assert str(keras_2 / "alone" / "model.json") in checkpoint.beside or not name


def test_weights_of_another_keras_than_the_architecture_beside_them(keras_2: Path, tmp_path: Path) -> None:
    text = (keras_2 / "alone" / "model.json").read_text()
    version = json.loads(text)["keras_version"]
    for name, (old, new) in (
        ("alone.h5", (version, "2.4.0")), ("alone.index", (version, "3.4.0")),
        ("alone.h5", ('"backend": "tensorflow"', '"backend": "theano"')),
        ("alone.h5", ('"name": "dense"', '"name": "dense_7"')), ("alone.weights.h5", ('"units": 1', '"units": 2')),
    ):  # fmt: skip
        assert old in text
        place = tmp_path / f"{len([*tmp_path.iterdir()])}"
        shutil.copytree(keras_2 / "alone", place)
        (place / "model.json").write_text(text.replace(old, new))
        assert {question.option for question in rc.load(place / name).questions} >= {"activation"}, (old, new)


def _as_made_by(name: str, *args: Any, **state: Any) -> Any:
    """An object that pickles as a call, or with a state, of something in a module that is absent here."""
    module, _, function = name.rpartition(".")
    for at in range(1, module.count(".") + 2):
        above = ".".join(module.split(".")[:at])
        sys.modules.setdefault(above, types.ModuleType(above))
    stand_in = type(function, (), {"__module__": module})
    if not hasattr(sys.modules[module], function):
        setattr(sys.modules[module], function, stand_in)
    called = getattr(sys.modules[module], function)

    class Reduced:
        def __reduce__(self) -> Any:
            return (called, args, state) if state else (called, args)

    return Reduced()


@pytest.fixture
def absent_modules() -> Iterator[None]:
    before = dict(sys.modules)
    yield
    sys.modules.clear()
    sys.modules.update(before)


PICKLER: Any = pickle._Pickler  # its types are those of the one in C, whose steps cannot be changed


class Joblibs(PICKLER):
    """Pickles as joblib does: an array's bytes follow the object that stands for it (joblib/numpy_pickle.py, write_array)."""

    def __init__(self, file: io.BytesIO, aligned: bool) -> None:
        super().__init__(file, protocol=4)
        self.file, self.aligned = file, aligned

    def save(self, value: Any, save_persistent_id: bool = True) -> None:
        if type(value) is not np.ndarray:
            super().save(value, save_persistent_id)
            return
        more = {"numpy_array_alignment_bytes": 16} if self.aligned else {}
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        super().save(
            _as_made_by(JOBLIB_ARRAY, shape=value.shape, order=order, dtype=value.dtype, allow_mmap=not value.dtype.hasobject, **more)
        )
        self.framer.commit_frame(force=True)
        if value.dtype.hasobject:
            pickle.dump(value, self.file, protocol=2)
            return
        if self.aligned:
            length = 16 - (self.file.tell() + 1) % 16
            self.file.write(bytes([length]) + b"\xff" * length)
        self.file.write(value.tobytes("F" if order == "F" else "C"))


def joblibs(value: Any, aligned: bool = True) -> bytes:
    file = io.BytesIO()
    Joblibs(file, aligned).dump(value)
    return file.getvalue()


def tarred(folder: Path) -> bytes:
    """A folder as Keras 2.7 and scikeras put a SavedModel into a pickle."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, str(path.relative_to(folder)), recursive=False)
    return file.getvalue()


def check_relu(path: Path, folder: Path) -> rc.Checkpoint:
    checkpoint = rc.load(path)
    (stack,) = checkpoint.layers.values()
    assert (stack.cell.kind, stack.cell.activation.name) == ("lstm", "relu")
    np.testing.assert_array_equal(stack[0, 0].gates["i"].input, np.load(folder / "arrays.npz")["0"][:, :3].T)
    return checkpoint


@pytest.mark.usefixtures("absent_modules")
def test_pickled_models_of_keras_2(keras_2: Path, tmp_path: Path) -> None:
    """As Keras 2.15, Keras 2.7, an object of the author's own and scikeras with joblib pickle them."""
    packed = np.frombuffer(tarred(keras_2 / "saved"), np.uint8)
    call = _as_made_by("keras.saving.pickle_utils.deserialize_model_from_bytecode", packed)
    unpack = _as_made_by("scikeras._saving_utils.unpack_keras_model", packed, np.ones(3))
    (tmp_path / "2.7.pkl").write_bytes(pickle.dumps(call))
    (tmp_path / "own.pkl").write_bytes(pickle.dumps(_as_made_by("__main__.Forecast", model=call, steps=3)))
    (tmp_path / "scikeras.joblib").write_bytes(joblibs({"model_": unpack, "names": np.array(["a", None], object)}))
    (tmp_path / "old.joblib").write_bytes(joblibs(unpack, aligned=False))
    check_relu(keras_2 / "model.pkl", keras_2)
    for path in sorted(tmp_path.iterdir()):
        checkpoint = check_relu(path, keras_2)
        assert "saved_model.pb" in checkpoint.evidence[0] and "in the pickle" in checkpoint.evidence[0], path.name
        assert "rnnconvert-" not in str(checkpoint) + "".join(checkpoint.evidence)


@pytest.mark.usefixtures("absent_modules")
def test_a_pickle_without_the_weights_says_so(keras_2: Path, tmp_path: Path) -> None:
    """Keras 2 left the variables out of some pickles: their archives hold the graph and an empty folder."""
    shutil.copytree(keras_2 / "saved", tmp_path / "saved")
    for path in (tmp_path / "saved" / "variables").iterdir():
        path.unlink()
    packed = np.frombuffer(tarred(tmp_path / "saved"), np.uint8)
    call = _as_made_by("keras.saving.pickle_utils.deserialize_model_from_bytecode", packed)
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(call))
    with pytest.raises(UnreadableError, match=r"was made without the weights: save the\smodel again"):
        rc.load(tmp_path / "m.pkl")


@pytest.mark.usefixtures("absent_modules")
@pytest.mark.parametrize("aligned", [False, True])
def test_arrays_in_a_file_of_joblibs(tmp_path: Path, aligned: bool) -> None:
    rng = np.random.default_rng(0)
    shapes = {"weight_ih_l0": (16, 3), "weight_hh_l0": (16, 4), "bias_ih_l0": (16,), "bias_hh_l0": (16,)}
    arrays = {f"rnn.{name}": rng.normal(size=shape).astype("f") for name, shape in shapes.items()}
    arrays["rnn.weight_hh_l0"] = np.asfortranarray(arrays["rnn.weight_hh_l0"])
    content = joblibs({**arrays, "labels": np.array(["up", "down"])}, aligned)
    (tmp_path / "m.joblib").write_bytes(content)
    read = rc.load(tmp_path / "m.joblib").arrays
    assert read.keys() == arrays.keys()
    assert all(np.array_equal(read[name], arrays[name]) for name in arrays)
    (tmp_path / "cut.joblib").write_bytes(content[:400])
    with pytest.raises(UnreadableError, match="its pickle is"):
        rc.load(tmp_path / "cut.joblib")


def zipped(path: Path, files: Mapping[str, Path | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content if isinstance(content, bytes) else content.read_bytes())
    return path


def test_archives_with_one_model(keras_3: tuple[Path, Any], keras_2: Path, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    zipped(tmp_path / "one.zip", {"project/model.pkl": keras_3[0] / "model.pkl", "project/train.py": b"import keras"})
    assert list(rc.load(tmp_path / "one.zip").layers) == ["gru"]
    folder = {f"saved/{path.relative_to(keras_2 / 'saved')}": path for path in (keras_2 / "saved").rglob("*") if path.is_file()}
    check_relu(zipped(tmp_path / "saved.zip", folder), keras_2)
    (tmp_path / "saved.tar.gz").write_bytes(gzip.compress(tarred(keras_2 / "saved")))
    check_relu(tmp_path / "saved.tar.gz", keras_2)
    torch.save({f"lstm_actor.{k}": v for k, v in torch.nn.LSTM(3, 4).state_dict().items()}, tmp_path / "policy.pth")
    torch.save({}, tmp_path / "none.pth")
    members: dict[str, Path | bytes] = {
        "data": b"{}",
        "pytorch_variables.pth": tmp_path / "none.pth",
        "policy.pth": tmp_path / "policy.pth",
    }
    checkpoint = rc.load(zipped(tmp_path / "ppo.zip", members))
    assert list(checkpoint.layers) == ["lstm_actor"] and "'policy.pth' in the archive" in checkpoint.evidence[0]
    with pytest.raises(UnreadableError, match=r"2 models with recurrent layers: from .a\.pth. in .*b/c\.pth"):
        rc.load(zipped(tmp_path / "two.zip", {"a.pth": tmp_path / "policy.pth", "b/c.pth": tmp_path / "policy.pth"}))
    with pytest.raises(UnreadableError, match="none of them has a recurrent layer"):
        rc.load(zipped(tmp_path / "none.zip", {"a.pth": tmp_path / "none.pth", "b.pth": tmp_path / "none.pth"}))
    with pytest.raises(UnreadableError, match="leads out of it"):
        rc.load(zipped(tmp_path / "out.zip", {"../policy.pth": tmp_path / "policy.pth"}))


def test_the_configuration_in_the_graph_of_objects(keras_2: Path, tmp_path: Path) -> None:
    """TensorFlow 2.0 to 2.4 wrote into saved_model.pb what later versions write into keras_metadata.pb."""
    needed("keras", "tensorflow")
    from tensorflow.core.protobuf import saved_model_pb2

    shutil.copytree(keras_2 / "saved", tmp_path / "saved")
    check_relu(tmp_path / "saved" / "variables" / "variables.index", keras_2)
    metadata, graph = tmp_path / "saved" / "keras_metadata.pb", tmp_path / "saved" / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(graph.read_bytes())
    for _, node in wire.fields(memoryview(metadata.read_bytes()), metadata):
        parts = dict(wire.values(node, metadata))
        user_object = model.meta_graphs[0].object_graph_def.nodes[parts.get(2, 0)].user_object
        assert user_object.identifier == bytes(parts[4]).decode()
        user_object.metadata = bytes(parts[5]).decode()
    metadata.unlink()
    graph.write_bytes(model.SerializeToString())
    for path in (tmp_path / "saved", graph, tmp_path / "saved" / "variables" / "variables.index"):
        checkpoint = check_relu(path, keras_2)
        assert not checkpoint.questions


@pytest.mark.parametrize("ending", [".h5", ".keras"])
def test_the_shape_that_a_later_layer_states_is_ignored_as_keras_does(keras_2: Path, tmp_path: Path, ending: str) -> None:
    checkpoint = rc.load(keras_2 / f"habit{ending}")
    assert [stack.input_size for stack in checkpoint.layers.values()] == [5, 3, 4]
    assert any("Keras ignores it: it takes one shape" in warning and "gru_1" in warning for warning in checkpoint.warnings)
    assert not any(warning.startswith("lstm") for warning in checkpoint.warnings)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "zlib": zlib.compress,
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
}
"""What joblib.dump(..., compress=3), or with a name, makes of a pickle. Source: joblib/compressor.py of 1.5."""


@pytest.mark.parametrize("packer", PACKERS)
def test_pickles_that_joblib_compressed(packer: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    arrays = {"Wxh": draw.normal(size=(5, 3)), "Whh": draw.normal(size=(5, 5)), "bh": draw.normal(size=(5, 1))}
    data = PACKERS[packer](pickle.dumps(arrays))
    path = tmp_path / "model.joblib"
    path.write_bytes(data)
    (layer,) = rc.load(path).layers.values()
    np.testing.assert_array_equal(np.asarray(layer.first.arrays["recurrent", "n"]), arrays["Whh"])
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(UnreadableError, match="cannot be unpacked"):
        rc.load(path)
    if packer in ("bz2", "xz", "lzma"):  # Deflate cannot grow that much
        path.write_bytes(PACKERS[packer](bytes(1 << 24)))
        with pytest.raises(UnreadableError, match="unpack to more than"):
            rc.load(path)
    path.write_bytes(b"x^2 + 1 = 0, a text that begins as zlib's files do")
    with pytest.raises(UnreadableError, match="text of no known format"):
        rc.load(path)
