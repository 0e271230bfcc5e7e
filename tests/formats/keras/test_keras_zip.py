"""`.keras` files against Keras itself, and against zips that want to harm."""

from __future__ import annotations

import functools
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rnnconvert as rc
from fuzz import doubling
from rnnconvert.containers import hdf5
from rnnconvert.core.arrays import BFLOAT16, Deferred
from rnnconvert.core.errors import RnnConvertError, UnreadableError, UsageError
from rnnconvert.formats.keras import keras_zip
from tests.helpers.drawn import LONG

# Keras's own call of numpy, on TensorFlow variables
pytestmark = [pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"), pytest.mark.reads_apart]


def build(dtype: str = "float32") -> keras.Model:
    keras.utils.set_random_seed(7)
    # the default initializer of the recurrent matrix does not run in bfloat16
    options = {"dtype": dtype, "recurrent_initializer": "glorot_uniform"}
    forward = keras.layers.LSTM(4, return_sequences=True, **options)
    return keras.Sequential(
        [keras.layers.Input((5, 3)), keras.layers.Bidirectional(forward, dtype=dtype), keras.layers.GRU(2, name="second", **options)]
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.keras"


def test_reads_what_keras_saved(path: Path) -> None:
    model = build()
    model.save(path)
    stored = keras_zip.read(path)
    assert list(stored.arrays) == [
        "layers/bidirectional/backward_layer/cell/vars/0",
        "layers/bidirectional/backward_layer/cell/vars/1",
        "layers/bidirectional/backward_layer/cell/vars/2",
        "layers/bidirectional/forward_layer/cell/vars/0",
        "layers/bidirectional/forward_layer/cell/vars/1",
        "layers/bidirectional/forward_layer/cell/vars/2",
        "layers/gru/cell/vars/0",
        "layers/gru/cell/vars/1",
        "layers/gru/cell/vars/2",
    ]
    for index, weight in enumerate(model.layers[1].get_weights()):
        array = stored.arrays[f"layers/gru/cell/vars/{index}"]
        np.testing.assert_array_equal(array, weight)
        assert not array.flags.owndata and not array.flags.writeable
    assert stored.metadata["config"]["class_name"] == "Sequential"
    assert stored.metadata["metadata"]["keras_version"] == keras.__version__
    assert stored.metadata["unreadable"] == {}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_keras_loads_what_was_written(path: Path, dtype: str) -> None:
    model = build(dtype)
    model.save(path)
    stored = keras_zip.read(path)
    if dtype == "bfloat16":
        assert {array.dtype for array in stored.arrays.values()} == {BFLOAT16}
    copy = path.with_name("copy.keras")
    arrays = {name: Deferred(array.shape, array.dtype, functools.partial(np.asarray, array)) for name, array in stored.arrays.items()}
    metadata = stored.metadata
    keras_zip.write(copy, metadata["config"], metadata["metadata"], arrays, metadata["attributes"])
    x = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(keras.models.load_model(copy)(x)), keras.ops.convert_to_numpy(model(x)))
    with zipfile.ZipFile(copy) as archive:
        assert archive.namelist() == ["metadata.json", "config.json", "model.weights.h5"]
        assert archive.testzip() is None
    again = keras_zip.read(copy)
    assert again.metadata == metadata
    large = [array for array in again.arrays.values() if array.nbytes >= 256]
    assert all(array.ctypes.data % 64 == 0 for array in large)


def test_the_same_model_gives_the_same_bytes(path: Path) -> None:
    arrays = {"layers/gru/cell/vars/0": np.ones((3, 4), np.float32)}
    keras_zip.write(path, {"a": 1}, {}, arrays)
    first = path.read_bytes()
    keras_zip.write(path, {"a": 1}, {}, arrays)
    assert path.read_bytes() == first


def test_weights_file_of_keras(tmp_path: Path) -> None:
    model = build()
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    stored = hdf5.read(path)
    copy = tmp_path / "copy.weights.h5"
    hdf5.write(copy, stored.arrays, stored.metadata["attributes"])
    other = build()
    other.set_weights([weight * 0 for weight in model.get_weights()])
    other.load_weights(copy)
    for array, expected in zip(other.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_legacy_file_of_keras(tmp_path: Path) -> None:
    model = build()
    path = tmp_path / "model.h5"
    model.save(path)
    stored = hdf5.read(path)
    kernels = [name for name in stored.arrays if name.startswith("model_weights/")]
    for name, weight in zip(kernels, model.weights, strict=True):
        np.testing.assert_array_equal(stored.arrays[name], keras.ops.convert_to_numpy(weight))
    copy = tmp_path / "copy.h5"
    hdf5.write(copy, stored.arrays, stored.metadata["attributes"])
    x = np.ones((1, 5, 3), np.float32)
    loaded = keras.models.load_model(copy)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(loaded(x)), keras.ops.convert_to_numpy(model(x)))


def members(path: Path) -> dict[str, bytes]:
    keras_zip.write(path, {"class_name": "X"}, {"v": 1}, {"vars/0": np.arange(600, dtype=np.float32)})
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(path: Path, contents: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def test_deflated_weights(path: Path) -> None:
    pack(path, members(path), zipfile.ZIP_DEFLATED)
    np.testing.assert_array_equal(keras_zip.read(path).arrays["vars/0"], np.arange(600, dtype=np.float32))


def test_an_archive_behind_other_bytes(path: Path) -> None:
    members(path)
    path.write_bytes(b"#!/bin/sh\n" + path.read_bytes())
    np.testing.assert_array_equal(keras_zip.read(path).arrays["vars/0"], np.arange(600, dtype=np.float32))


@pytest.mark.parametrize("missing", ["config.json", "metadata.json", "model.weights.h5"])
def test_missing_members(path: Path, missing: str) -> None:
    contents = members(path)
    del contents[missing]
    pack(path, contents)
    with pytest.raises(UnreadableError, match=missing):
        keras_zip.read(path)


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "C:/evil", "a\\..\\..\\evil"])
def test_names_that_lead_out(path: Path, name: str) -> None:
    pack(path, members(path) | {name: b""})
    with pytest.raises(UnreadableError, match="leads out"):
        keras_zip.read(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name(path: Path) -> None:
    members(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("config.json", b"{}")
    with pytest.raises(UnreadableError, match="two things in it have the name"):
        keras_zip.read(path)


@pytest.mark.parametrize("member", ["config.json", "model.weights.h5"])
def test_bombs(path: Path, member: str) -> None:
    pack(path, members(path) | {member: bytes(1 << 24)}, zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    # the directory claims a terabyte for it
    at = data.rindex(member.encode()) - 46
    data[at + 24 : at + 28] = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(UnreadableError):
        keras_zip.read(path)


@pytest.mark.parametrize("config", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"a": 1e999999', b"1" * 10_000])
def test_texts_that_are_no_configuration(path: Path, config: bytes) -> None:
    pack(path, members(path) | {"config.json": config})
    with pytest.raises(UnreadableError):
        keras_zip.read(path)


@pytest.mark.parametrize("weights", [b"", b"\x89HDF\r\n\x1a\n", b"PK\x03\x04" * 100])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_weights_that_are_no_hdf5(path: Path, weights: bytes, compression: int) -> None:
    pack(path, members(path) | {"model.weights.h5": weights}, compression)
    with pytest.raises(UnreadableError):
        keras_zip.read(path)


def test_links_inside_stay_inside(path: Path, tmp_path: Path) -> None:
    inner = io.BytesIO()
    with h5py.File(inner, "w") as file:
        file["link"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "data")
    pack(path, members(path) | {"model.weights.h5": inner.getvalue()})
    stored = keras_zip.read(path)
    assert stored.arrays == {} and list(stored.metadata["unreadable"]) == ["link"]


@pytest.mark.parametrize(
    "write",
    [
        lambda path: keras_zip.write(path, {"a": object()}, {}, {}),
        lambda path: keras_zip.write(path, {}, {}, {"a": np.ones(1), "a/b": np.ones(1)}),
    ],
)
def test_what_cannot_be_written_leaves_nothing(path: Path, write: Callable[[Path], None]) -> None:
    path.write_bytes(b"before")
    with pytest.raises(UsageError):
        write(path)
    assert path.read_bytes() == b"before"
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@settings(derandomize=True, deadline=None, max_examples=300 if LONG else 100)
@given(data=st.data())
def test_damaged_zips_raise_our_errors_only(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Everything but the inner HDF5 file is damaged: that one has its own test, in a process of its own."""
    folder = tmp_path_factory.getbasetemp()
    path = folder / "damaged.keras"
    contents = members(path)
    content = bytearray(path.read_bytes())
    start = content.index(b"\x89HDF")
    outside = st.one_of(st.integers(0, start - 1), st.integers(start + len(contents["model.weights.h5"]), len(content) - 1))
    for at, value in data.draw(st.lists(st.tuples(outside, st.integers(0, 255)), min_size=1, max_size=6)):
        content[at] = value
    content = content[: data.draw(st.sampled_from([len(content), len(content), len(content) - 1, len(content) // 2]))]
    path.write_bytes(content)
    try:
        stored = keras_zip.read(path)
    except RnnConvertError:
        return
    json.dumps(stored.metadata["config"])


def test_layers_of_a_whole_model_are_looked_up_in_proportion(tmp_path: Path) -> None:
    """3,200 dense layers took minutes: each looked through all."""

    def prepare(folder: Path, n: int) -> doubling.Work:
        layers = [{"module": "keras.layers", "class_name": "Dense", "config": {"name": f"d{i}", "units": 2}} for i in range(n)]
        config = {"module": "keras", "class_name": "Sequential", "config": {"name": "s", "layers": layers}}
        arrays = {f"layers/dense{f'_{i}' if i else ''}/vars/{v}": np.ones((2, 2)[v:], np.float32) for i in range(n) for v in (0, 1)}
        keras_zip.write(folder / "m.keras", config, {"keras_version": "3.5.0"}, arrays, {})
        return lambda: str(rc.inspect(folder / "m.keras"))

    growth = doubling.measure(doubling.Case("layers", prepare, 16, 256), 0)
    assert growth is not None and not growth.quadratic, growth
