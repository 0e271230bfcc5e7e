"""HDF5 files against h5py itself, and against files that want to harm."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest

from rnnconvert.containers import hdf5
from rnnconvert.core.arrays import BFLOAT16, Deferred
from rnnconvert.core.errors import UnreadableError, UsageError

pytestmark = pytest.mark.reads_apart


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weights.h5"


DTYPES = [np.float16, np.float32, np.float64, np.int8, np.uint16, np.int64, np.bool_, ">f4", ">i2"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (2, 3, 4)])
def test_reads_what_h5py_wrote(path: Path, dtype: object, shape: tuple[int, ...]) -> None:
    expected = numbers(*shape, dtype=dtype)
    with h5py.File(path, "w") as file:
        file["layers/cell/vars/0"] = expected
    array = hdf5.read(path).arrays["layers/cell/vars/0"]
    assert array.shape == shape
    assert array.dtype == expected.dtype.newbyteorder("=")
    np.testing.assert_array_equal(array, expected)


def test_contiguous_data_are_views_of_the_map(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["plain"] = numbers(64, 64)
        file.create_dataset("packed", data=numbers(64, 64), compression="gzip", shuffle=True)
    arrays = hdf5.read(path).arrays
    assert not arrays["plain"].flags.owndata and not arrays["plain"].flags.writeable
    np.testing.assert_array_equal(arrays["plain"], numbers(64, 64))
    np.testing.assert_array_equal(arrays["packed"], numbers(64, 64))


def test_a_file_behind_a_user_block(path: Path) -> None:
    with h5py.File(path, "w", userblock_size=1024) as file:
        file["plain"] = numbers(5, 7)
    np.testing.assert_array_equal(hdf5.read(path).arrays["plain"], numbers(5, 7))


def test_order_of_keras_attributes(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for layer in ("a", "b"):
            for weight in ("bias:0", "kernel:0", "recurrent_kernel:0"):
                file[f"model_weights/{layer}/{layer}/cell/{weight}"] = numbers(2)
            names = [f"{layer}/cell/{weight}".encode() for weight in ("kernel:0", "recurrent_kernel:0", "bias:0")]
            file[f"model_weights/{layer}"].attrs["weight_names"] = names
        file["model_weights"].attrs["layer_names"] = [b"b", b"a"]
        file.attrs["model_config"] = b'{"class_name": "Sequential"}'
        file.attrs["size"] = np.int64(3)
    stored = hdf5.read(path)
    assert list(stored.arrays) == [
        f"model_weights/{layer}/{layer}/cell/{weight}" for layer in ("b", "a") for weight in ("kernel:0", "recurrent_kernel:0", "bias:0")
    ]
    attributes = stored.metadata["attributes"]
    assert attributes[""] == {"model_config": '{"class_name": "Sequential"}', "size": 3}
    assert attributes["model_weights"] == {"layer_names": ["b", "a"]}


def test_order_without_attributes_is_natural_or_that_of_creation(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for name in ("lstm_10", "lstm_2", "lstm"):
            file[f"natural/{name}/vars/0"] = numbers(1)
        created = file.create_group("created", track_order=True)
        for name in ("z", "a"):
            created[name] = numbers(1)
    assert list(hdf5.read(path).arrays) == [
        "created/z",
        "created/a",
        "natural/lstm/vars/0",
        "natural/lstm_2/vars/0",
        "natural/lstm_10/vars/0",
    ]


def test_lists_that_keras_had_to_split_come_back_whole(path: Path) -> None:
    names = [f"layer_{index:04}_{'x' * 100}" for index in range(2000)]
    hdf5.write(path, {"w": numbers(2)}, {"model_weights": {"layer_names": names, "short": ["a", "b"]}})
    with h5py.File(path) as file:
        keys = set(file["model_weights"].attrs)
        assert {"layer_names0", "layer_names1", "short"} <= keys and "layer_names" not in keys
        assert all(file["model_weights"].attrs[key].nbytes <= 64512 for key in keys)
    attributes = hdf5.read(path).metadata["attributes"]["model_weights"]
    assert attributes == {"layer_names": names, "short": ["a", "b"]}


def test_bfloat16_as_keras_stores_it(path: Path) -> None:
    expected = numbers(3, 4, dtype=BFLOAT16)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("vars/0", data=expected)
        dataset.attrs["dtype"] = "bfloat16"
    array = hdf5.read(path).arrays["vars/0"]
    assert array.dtype == BFLOAT16 and not array.flags.owndata
    np.testing.assert_array_equal(array, expected)

    hdf5.write(path, {"vars/0": expected})
    with h5py.File(path) as file:
        assert file["vars/0"].attrs["dtype"] == "bfloat16"
        np.testing.assert_array_equal(np.array(file["vars/0"], dtype=ml_dtypes.bfloat16), expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.bool_])
def test_h5py_reads_what_was_written(path: Path, dtype: Any) -> None:
    arrays: dict[str, Any] = {
        "layers/gru/cell/vars/0": numbers(3, 4, dtype=dtype),
        "layers/gru/cell/vars/1": numbers(4, 300, dtype=dtype).T,
        "scalar": numbers(dtype=dtype),
        "empty": numbers(0, 3, dtype=dtype),
        "deferred": Deferred((2, 3), np.dtype(dtype), lambda: numbers(2, 3, dtype=dtype)),
    }
    attributes: dict[str, dict[str, Any]] = {
        "": {"keras_version": "2.3.1", "n": 3, "none": []},
        "layers/gru": {"name": "gru", "weight_names": ["k", "r"]},
        "scalar": {"unit": "m"},
        "empty_group": {},
    }
    hdf5.write(path, arrays, attributes)
    with h5py.File(path) as file:
        for name, array in arrays.items():
            np.testing.assert_array_equal(file[name][()], np.asarray(array))
            assert file[name].dtype == dtype
        assert file.attrs["keras_version"] == "2.3.1" and file.attrs["n"] == 3
        assert list(file["layers/gru"].attrs["weight_names"]) == [b"k", b"r"]
        assert "empty_group" in file
    stored = hdf5.read(path)
    assert set(stored.arrays) == set(arrays)
    assert stored.metadata["attributes"]["layers/gru"] == attributes["layers/gru"]
    assert stored.metadata["attributes"][""] == attributes[""]


@pytest.mark.parametrize(
    ("arrays", "attributes"),
    [({"a": numbers(1), "a/b": numbers(1)}, {}), ({"a": numbers(1)}, {"": {"bad": object()}}), ({"a": np.array(["text"])}, {})],
)
def test_what_cannot_be_written_leaves_nothing(path: Path, arrays: dict[str, Any], attributes: dict[str, Any]) -> None:
    path.write_bytes(b"before")
    with pytest.raises(UsageError):
        hdf5.write(path, arrays, attributes)
    assert path.read_bytes() == b"before"
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_links_to_other_places_are_listed_and_not_followed(path: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["data"] = numbers(4)
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    with h5py.File(path, "w") as file:
        file["good"] = numbers(3)
        file["external"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "data")
        file["soft"] = h5py.SoftLink("/good")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file.create_dataset("outside", (4,), "f4", external=[(str(tmp_path / "secret.bin"), 0, 16)])
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "data", (4,))
        file.create_virtual_dataset("virtual", layout)
        file["loop/self"] = file["loop"] if "loop" in file else file.create_group("loop")
        file["loop/root"] = file["/"]
        file["again"] = file["good"]
    stored = hdf5.read(path)
    assert set(stored.arrays) == {"good", "again"}
    assert set(stored.metadata["unreadable"]) == {"external", "soft", "dangling", "outside", "virtual", "loop/self", "loop/root"}


def test_elements_that_are_no_numbers_are_listed(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["good"] = numbers(3)
        file["text"] = "hello"
        file["fixed"] = np.array([b"ab", b"cd"])
        file["compound"] = np.zeros(2, [("a", "f4"), ("b", "i4")])
        file["ragged"] = np.array([numbers(1), numbers(2)], dtype=h5py.vlen_dtype("f4"))
        file["nothing"] = h5py.Empty("f4")
        file["opaque"] = np.zeros(3, "V2")
        file.attrs["compound"] = np.zeros(2, [("a", "f4"), ("b", "i4")])
    stored = hdf5.read(path)
    assert list(stored.arrays) == ["good"]
    expected = {"text", "fixed", "compound", "ragged", "nothing", "opaque", "@compound"}
    assert set(stored.metadata["unreadable"]) == expected


def write_bomb(file: h5py.File) -> None:
    file.create_dataset("bomb", (1 << 40,), "f4", chunks=(1 << 20,), compression="gzip")


def write_unallocated(file: h5py.File) -> None:
    file.create_dataset("bomb", (1 << 30,), "f4")


def write_large_chunk(file: h5py.File) -> None:
    file.create_dataset("bomb", (1,), "f4", chunks=(1 << 29,), maxshape=(None,))


def write_many_small_claims(file: h5py.File) -> None:
    for index in range(300):
        file.create_dataset(f"bomb_{index}", (1 << 18,), "f4")


def write_deep(file: h5py.File) -> None:
    file["/".join("a" * 100)] = numbers(1)


@pytest.mark.parametrize("prepare", [write_bomb, write_unallocated, write_large_chunk, write_many_small_claims, write_deep])
def test_claims_that_no_bytes_account_for(path: Path, prepare: Callable[[h5py.File], None]) -> None:
    with h5py.File(path, "w") as file:
        prepare(file)
    with pytest.raises(UnreadableError):
        hdf5.read(path)


def test_too_many_objects(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdf5, "OBJECTS", 10)
    with h5py.File(path, "w") as file:
        for index in range(11):
            file[str(index)] = numbers(1)
    with pytest.raises(UnreadableError, match="more than 10"):
        hdf5.read(path)


def test_truncated_and_foreign_files(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["a/b"] = numbers(100, 100)
        file.attrs["text"] = "x" * 1000
    content = path.read_bytes()
    for length in (1, 8, 100, 1000, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(UnreadableError):
            hdf5.read(path)
    path.write_bytes(bytes(10_000))
    with pytest.raises(UnreadableError):
        hdf5.read(path)
    with pytest.raises(UnreadableError):
        hdf5.read(path.with_name("absent"))


MUTATE = textwrap.dedent(
    """
    import random, resource, sys
    import numpy as np
    from rnnconvert.containers import hdf5
    from rnnconvert.core.errors import RnnConvertError

    # a damaged length of a string makes the library allocate up to 4 GiB for it
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    whole = open(sys.argv[1], "rb").read()
    refused = 0
    for seed in range(300):
        chance = random.Random(seed)
        data = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 5, 20))):
            at = chance.randrange(len(data))
            data[at] = chance.choice((0, 255, chance.randrange(256), data[at] ^ 1 << chance.randrange(8)))
        try:
            for array in hdf5.read("mutated", np.frombuffer(bytes(data), np.uint8)).arrays.values():
                array.tobytes()
        except RnnConvertError:
            refused += 1
    print(refused)
    """
)


def test_damaged_files_raise_our_errors_only(path: Path) -> None:
    """In a process of its own, since the HDF5 library itself is not safe against damaged files."""
    with h5py.File(path, "w") as file:
        group = file.create_group("layers/lstm/cell/vars")
        group.attrs["name"] = "lstm"
        for index in range(3):
            group[str(index)] = numbers(2, 3)
        file.attrs["weight_names"] = [b"a", b"b"]
        file.create_dataset("packed", data=numbers(8, 8), chunks=(4, 4), compression="gzip")
    command = [sys.executable, "-c", MUTATE, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert 2 < int(result.stdout) < 298
