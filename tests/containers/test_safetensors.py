"""safetensors files, against the library in both directions; sharded checkpoints; files that lie."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rnnconvert.containers import safetensors as container
from rnnconvert.core.arrays import Deferred
from rnnconvert.core.errors import RnnConvertError, UnreadableError, UsageError
from tests import ROOT
from tests.helpers import corpus
from tests.helpers.drawn import LONG
from tests.helpers.requirements import need

ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "turned": np.arange(12, dtype=np.float32).reshape(3, 4).T,
    "bool": np.array([True, False, True]),
    "half": np.arange(5, dtype=np.float16),
    "bfloat16": np.arange(5).astype(ml_dtypes.bfloat16).reshape(5, 1),
    "double": np.array(3.0),
    "none": np.zeros((0, 3), np.float64),
    "big endian": np.arange(4, dtype=">i8"),
    "é": np.arange(3, dtype=np.int16)[::2],
    **{f"u{size}": np.arange(3, dtype=f"u{size}") for size in (1, 2, 4, 8)},
    **{f"i{size}": np.arange(3, dtype=f"i{size}") for size in (1, 4)},
}
NATIVE = {name: array.astype(array.dtype.newbyteorder("=")) for name, array in ARRAYS.items()}


def assert_equal(arrays: dict[str, np.ndarray[Any, Any]], expected: dict[str, np.ndarray[Any, Any]]) -> None:
    assert set(arrays) == set(expected)
    for name, array in expected.items():
        assert arrays[name].dtype == array.dtype and arrays[name].shape == array.shape, name
        assert np.array_equal(arrays[name], array), name


def test_the_library_reads_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    container.write(path, ARRAYS, {"format": "np", "note": "é"})
    assert_equal(safetensors.numpy.load_file(path), NATIVE)
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "np", "note": "é"}
        assert torch.equal(file.get_tensor("bfloat16"), torch.arange(5).bfloat16().reshape(5, 1))
    assert_equal(container.read(path).arrays, NATIVE)
    assert container.read(path).metadata["__metadata__"] == {"format": "np", "note": "é"}


def test_what_the_library_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    contiguous = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in NATIVE.items()}
    safetensors.numpy.save_file(contiguous, path, {"format": "np"})
    stored = container.read(path)
    assert_equal(stored.arrays, NATIVE)
    assert stored.metadata["__metadata__"] == {"format": "np"} and stored.metadata["unreadable"] == {}
    assert not any(array.flags.writeable for array in stored.arrays.values())


def test_small_floats_are_left_out_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    safetensors.torch.save_file({"w": torch.ones(2).to(torch.float8_e4m3fn), "b": torch.ones(2)}, path)
    stored = container.read(path)
    assert list(stored.arrays) == ["b"] and "F8_E4M3" in stored.metadata["unreadable"]["w"]


def test_layout_of_a_written_file(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    container.write(first, ARRAYS)
    container.write(second, ARRAYS)
    assert first.read_bytes() == second.read_bytes()
    assert int.from_bytes(first.read_bytes()[:8], "little") % 8 == 0
    arrays = container.read(first).arrays
    assert all(array.ctypes.data % array.dtype.itemsize == 0 for array in arrays.values())


def test_deferred_arrays_and_no_arrays(tmp_path: Path) -> None:
    path = tmp_path / "m"
    container.write(path, {"w": Deferred((3,), np.dtype(np.float32), lambda: np.full(3, 2, np.float32))})
    assert container.read(path).arrays["w"].tolist() == [2, 2, 2]
    container.write(path, {})
    assert container.read(path).arrays == safetensors.numpy.load_file(path) == {}


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_bytes(b"kept")
    for arrays in ({"w": np.array(["text"])}, {"__metadata__": np.ones(1)}, {"\ud800": np.ones(1)}):
        with pytest.raises(UsageError):
            container.write(path, arrays)
    assert path.read_bytes() == b"kept" and list(tmp_path.iterdir()) == [path]


def make(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def entry(begin: Any = 0, end: Any = 4, shape: Any = (1,), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


W = json.dumps(entry()).encode()
LIES: dict[str, Any] = {
    "offset beyond the file": {"w": entry(0, 400, [100])},
    "terabytes": {"w": entry(0, 1 << 42, [1 << 40])},
    "lengths that wrap round": {"w": entry(0, 4, [1 << 33, 1 << 31])},
    "too many lengths": {"w": entry(0, 4, [1] * 100)},
    "length below zero": {"w": entry(0, 4, [-1])},
    "offset below zero": {"w": entry(-4, 0)},
    "end before begin": {"w": entry(4, 0)},
    "offset that is no integer": {"w": entry(0.0, 4)},
    "length that is a flag": {"w": entry(0, 4, [True])},
    "offset of many digits": {"w": entry(0, 10**100)},
    "no type": {"w": entry(dtype=4)},
    "unknown type beyond the file": {"w": entry(0, 400, dtype="F4")},
    "three offsets": {"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 4]}},
    "no entry": {"w": 5},
    "overlap": {"w": entry(), "v": entry()},
    "hole before": {"w": entry(2, 4, dtype="F16")},
    "hole after": {"w": entry(0, 2, dtype="F16")},
    "metadata of numbers": {"__metadata__": {"n": 1}, "w": entry()},
    "metadata that is a list": {"__metadata__": [], "w": entry()},
    "one name twice": b'{"w":' + W + b',"w":' + W + b"}",
    "a list": b"[]",
    "no JSON": b"{{",
    "no text": b'{"\xff": 1}',
    "half a letter": b'{"\\ud800":' + W + b"}",
    "deep": b'{"w":' + b"[" * 100_000,
    "digits": b'{"w":' + b"9" * 10_000 + b"}",
}


@pytest.mark.parametrize("name", LIES)
def test_headers_that_lie(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnreadableError):
        container.read(make(tmp_path / "m", LIES[name], bytes(4)))


@pytest.mark.parametrize("length", [0, 1, 10**4, 10**8 + 1, 2**40, 2**64 - 1])
def test_header_lengths_that_lie(tmp_path: Path, length: int) -> None:
    path = make(tmp_path / "m", {"w": entry()}, bytes(4), length)
    with pytest.raises(UnreadableError):
        container.read(path)


def test_truncated_absent_and_empty(tmp_path: Path) -> None:
    path = tmp_path / "m"
    container.write(path, NATIVE)
    content = path.read_bytes()
    for length in (0, 4, 8, 9, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(UnreadableError):
            container.read(path)
    path.write_bytes(content + b"x")
    with pytest.raises(UnreadableError, match="its tensors end"):
        container.read(path)
    with pytest.raises(UnreadableError):
        container.read(tmp_path / "absent")


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A folder with two shards and their index."""
    container.write(tmp_path / "model-1.safetensors", {"a": np.ones(2)}, {"format": "pt"})
    container.write(tmp_path / "model-2.safetensors", {"b": np.full(3, 2.0)})
    index(tmp_path, {"a": "model-1.safetensors", "b": "model-2.safetensors"})
    return tmp_path


def index(folder: Path, names: Any) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 40}, "weight_map": names}))
    return path


def test_shards_are_read_as_one(sharded: Path) -> None:
    for path in (sharded, sharded / "model.safetensors.index.json"):
        stored = container.read(path)
        assert_equal(stored.arrays, {"a": np.ones(2), "b": np.full(3, 2.0)})
        assert stored.metadata["index"] == {"metadata": {"total_size": 40}}
        assert stored.metadata["__metadata__"] == {"format": "pt"}


def test_folders(sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").unlink()
    with pytest.raises(UnreadableError, match="2 files"):
        container.read(sharded)
    (sharded / "model-1.safetensors").unlink()
    assert list(container.read(sharded).arrays) == ["b"]
    (sharded / "model-2.safetensors").unlink()
    with pytest.raises(UnreadableError, match="without a safetensors"):
        container.read(sharded)


@pytest.mark.parametrize(
    "names",
    [
        {"a": "../model-1.safetensors"},
        {"a": "/etc/passwd"},
        {"a": "folder\\model-1.safetensors"},
        {"a": "C:model-1.safetensors"},
        {"a": ".."},
        {"a": ""},
        {"a": "model\0"},
        {"a": 5},
        {"a": "absent.safetensors"},
        {"b": "model-1.safetensors"},
        {},
        [],
        None,
    ],
)
def test_indexes_that_lie(sharded: Path, names: Any) -> None:
    index(sharded, names)
    with pytest.raises(UnreadableError):
        container.read(sharded)


def test_no_framework_is_imported(tmp_path: Path) -> None:
    code = "import sys; import rnnconvert.containers.safetensors; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def seed() -> bytes:
    arrays = {name: np.ascontiguousarray(NATIVE[name]) for name in ("turned", "half", "bool")}
    return safetensors.numpy.save(arrays, {"format": "np"})


SEED = seed()


@settings(max_examples=500 if LONG else 200, deadline=None, derandomize=True, database=None)
@given(
    edits=st.lists(st.tuples(st.integers(0, len(SEED) - 1), st.integers(0, 255)), min_size=1, max_size=5), cut=st.integers(0, 3 * len(SEED))
)
def test_changed_bytes_raise_our_errors_only(tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(SEED)
    for place, value in edits:
        data[place] = value
    path = tmp_path_factory.getbasetemp() / "changed.safetensors"
    path.write_bytes(bytes(data[:cut]))
    try:
        stored = container.read(path)
        assert all(array.tobytes() is not None for array in stored.arrays.values())
    except RnnConvertError:
        pass


REAL = corpus.FOLDER / "silero-vad-v6" / "silero_vad_16k.safetensors"


def test_a_real_file_is_what_the_library_reads() -> None:
    need("corpus", corpus.absent())
    assert_equal(container.read(REAL).arrays, safetensors.numpy.load_file(REAL))
