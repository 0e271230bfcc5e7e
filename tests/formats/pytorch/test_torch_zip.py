"""PyTorch files, compared with what PyTorch itself wrote and reads; and files that lie."""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import pickle
import struct
import subprocess
import sys
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rnnconvert.containers import stored_zip, zips
from rnnconvert.core.arrays import Deferred
from rnnconvert.core.errors import RnnConvertError, UnreadableError, UsageError
from rnnconvert.formats.pytorch.archives import legacy as torch_legacy
from rnnconvert.formats.pytorch.archives import walk, zip_reader, zip_writer
from tests import ROOT
from tests.helpers import corpus
from tests.helpers.drawn import LONG
from tests.helpers.requirements import need


class Tagger(torch.nn.Module):
    """A model as users have them: an LSTM, a buffer, one that is not saved, a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.ReLU())
        self.lstm = torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True, dropout=0.25)
        self.head = torch.nn.Linear(8, 2)
        self.alias = self.head
        self.threshold = 0.5
        self.spare = torch.zeros(3)
        self.register_buffer("mean", torch.arange(5.0))
        self.register_buffer("scratch", torch.ones(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.encoder(x - self.mean))[0])


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def assert_equal(arrays: dict[str, np.ndarray[Any, Any]], tensors: dict[str, torch.Tensor]) -> None:
    assert list(arrays) == list(tensors)
    for name, tensor in tensors.items():
        expected = to_numpy(tensor)
        assert arrays[name].dtype == expected.dtype and arrays[name].shape == expected.shape, name
        assert np.array_equal(arrays[name], expected), name


@pytest.fixture
def model() -> Tagger:
    torch.manual_seed(0)
    return Tagger()


@pytest.mark.parametrize("legacy", [False, True])
def test_state_dict(tmp_path: Path, model: Tagger, legacy: bool) -> None:
    path = tmp_path / "model.pt"
    torch.save(model.state_dict(), path, _use_new_zipfile_serialization=not legacy)
    stored = (torch_legacy if legacy else zip_reader).read(path)
    assert_equal(stored.arrays, model.state_dict())
    assert torch_legacy.is_torch_legacy(path) == legacy
    assert stored.metadata["unreadable"] == {}
    assert not any(array.flags.writeable or array.flags.owndata for array in stored.arrays.values())


@pytest.mark.filterwarnings("ignore")  # torch.save warns of the source code that it puts beside a module
@pytest.mark.parametrize("legacy", [False, True])
def test_whole_module_has_the_names_of_its_state_dict(tmp_path: Path, model: Tagger, legacy: bool) -> None:
    path = tmp_path / "model.pt"
    torch.save(model, path, _use_new_zipfile_serialization=not legacy)
    stored = (torch_legacy if legacy else zip_reader).read(path)
    assert_equal(stored.arrays, model.state_dict())
    assert stored.metadata["classes"]["lstm"] == "torch.nn.modules.rnn.LSTM"
    values = stored.metadata["values"]
    settings_of_lstm = dict(
        mode="LSTM", input_size=3, hidden_size=4, num_layers=2, bias=True, batch_first=True, dropout=0.25, bidirectional=True, proj_size=0
    )
    assert {name: values[f"lstm.{name}"] for name in settings_of_lstm} == settings_of_lstm
    assert values["threshold"] == 0.5


def test_torchscript(tmp_path: Path, model: Tagger) -> None:
    path = tmp_path / "script.pt"
    with _quiet():
        scripted = torch.jit.script(model.eval())
        scripted.save(str(path))
    stored = zip_reader.read(path)
    state = scripted.state_dict()
    # A script's objects do not tell parameters and buffers from other tensors.
    assert set(stored.arrays) - set(state) <= {"spare", "scratch"}
    assert_equal({name: stored.arrays[name] for name in state}, state)
    assert not any("_flat_weights" in name for name in stored.arrays)
    assert stored.metadata["torchscript"] is True
    assert stored.metadata["classes"]["lstm"] == "torch.nn.modules.rnn.LSTM"
    values = stored.metadata["values"]
    assert values["lstm.hidden_size"] == 4 and values["lstm.bidirectional"] is True
    assert values["lstm.mode"] == "LSTM" and values["lstm.dropout"] == 0.25


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """TorchScript warns that it is old."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_frozen_torchscript_keeps_its_weights_as_constants(tmp_path: Path) -> None:
    path = tmp_path / "frozen.pt"
    linear = torch.nn.Linear(3, 2).eval()
    with _quiet():
        torch.jit.freeze(torch.jit.script(linear)).save(str(path))
    arrays = zip_reader.read(path).arrays
    assert all(name.startswith("CONSTANTS.c") for name in arrays)
    assert any(np.array_equal(array, to_numpy(linear.weight)) for array in arrays.values())


def test_lightning_checkpoint(tmp_path: Path, model: Tagger) -> None:
    path = tmp_path / "last.ckpt"
    score = torch.tensor(0.5)
    checkpoint = {
        "epoch": 3,
        "pytorch-lightning_version": "2.1.0",
        "state_dict": OrderedDict((f"model.{name}", value) for name, value in model.state_dict().items()),
        "hyper_parameters": argparse.Namespace(hidden=4, sizes=[1, 2], rate=np.float64(0.1), device=score.device),
        "callbacks": {"best": score, "array": np.arange(3.0), "type": torch.float16},
        "history": [{"loss": 1.0}, {"loss": 0.5}],
    }
    torch.save(checkpoint, path)
    stored = zip_reader.read(path)
    expected = {f"state_dict.model.{name}": value for name, value in model.state_dict().items()}
    expected |= {"callbacks.best": score, "callbacks.array": torch.arange(3.0, dtype=torch.float64)}
    assert_equal(stored.arrays, expected)
    values = stored.metadata["values"]
    assert values["epoch"] == 3 and values["pytorch-lightning_version"] == "2.1.0"
    assert values["hyper_parameters.hidden"] == 4 and values["hyper_parameters.sizes"] == [1, 2]
    assert values["hyper_parameters.rate"] == 0.1 and values["hyper_parameters.device"] == "cpu"
    assert values["callbacks.type"] == "torch.float16" and values["history.1.loss"] == 0.5
    assert stored.metadata["classes"]["hyper_parameters"] == "argparse.Namespace"


def test_views_of_one_storage_as_flatten_parameters_leaves_them(tmp_path: Path) -> None:
    path = tmp_path / "shared.pt"
    flat = torch.arange(100.0)
    tensors = {
        "weight_ih_l0": flat[:48].view(16, 3),
        "weight_hh_l0": flat[48:80].view(8, 4),
        "column": flat[3:90:7],
        "turned": flat[:48].view(16, 3).t(),
        "one": flat[99],
        "repeated": flat[:3].expand(4, 3),
        "odd": torch.as_strided(flat, (1, 2), (10**9, 3), 5),
    }
    torch.save(tensors, path)
    with zipfile.ZipFile(path) as archive:
        assert sum("/data/" in name for name in archive.namelist()) <= 2
    assert_equal(zip_reader.read(path).arrays, tensors)


@pytest.mark.parametrize("legacy", [False, True])
def test_element_types(tmp_path: Path, legacy: bool) -> None:
    path = tmp_path / "types.pt"
    names = ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"]
    names += ["bool", "complex64", "complex128"]
    tensors = {name: torch.tensor([0, 1, 2, 100]).to(getattr(torch, name)) for name in names}
    if not legacy:
        newer = ("uint16", "uint32", "uint64")
        tensors |= {name: torch.tensor([0, 7]).to(getattr(torch, name)) for name in newer}
    torch.save(tensors, path, _use_new_zipfile_serialization=not legacy)
    assert_equal((torch_legacy if legacy else zip_reader).read(path).arrays, tensors)


@pytest.mark.filterwarnings("ignore")  # quantised tensors are deprecated
@pytest.mark.parametrize("legacy", [False, True])
def test_what_is_no_array_of_numbers_is_named_with_the_reason(tmp_path: Path, legacy: bool) -> None:
    path = tmp_path / "other.pt"
    tensors = {
        "quantised": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        "sparse": torch.eye(3).to_sparse(),
        "conjugate": torch.ones(2, dtype=torch.complex64).conj(),
        "good": torch.ones(2),
    }
    if not legacy:
        tensors["short"] = torch.ones(2).to(torch.float8_e5m2)
    torch.save(tensors, path, _use_new_zipfile_serialization=not legacy)
    stored = (torch_legacy if legacy else zip_reader).read(path)
    assert "good" in stored.arrays
    reasons = stored.metadata["unreadable"]
    assert np.allclose(stored.arrays["quantised"], 1) and "sparse" in reasons["sparse"]
    assert "conj" in reasons["conjugate"]
    assert legacy or "float8" in reasons["short"]


@pytest.mark.filterwarnings("ignore")  # quantised tensors are deprecated
def test_a_layer_packed_in_half_precision_is_read(tmp_path: Path) -> None:
    path = tmp_path / "half.pt"
    lstm = torch.nn.LSTM(3, 4)
    half = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(lstm), {torch.nn.LSTM}, dtype=torch.float16)
    torch.save(half.state_dict(), path)
    stored = zip_reader.read(path)
    assert {name.removeprefix("0."): array.shape for name, array in stored.arrays.items()} == {
        name: tuple(tensor.shape) for name, tensor in lstm.state_dict().items()
    }
    for name, tensor in lstm.state_dict().items():
        expected = tensor.half().float() if name.startswith("weight") else tensor
        assert np.array_equal(stored.arrays[f"0.{name}"], expected.numpy())


class Packing(torch.nn.Module):
    """A module that keeps packed weights where no layer of torch's does."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.quantize_per_tensor(torch.ones(2, 3), 0.5, 0, torch.qint8)
        self.kept_packed = torch.ops.quantized.linear_prepack(weight, None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.ops.quantized.linear_dynamic(x, self.kept_packed)
        return y


@pytest.mark.filterwarnings("ignore")  # quantised tensors are deprecated
def test_weights_that_are_packed_elsewhere_are_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "packed.pt"
    torch.jit.script(Packing()).save(str(path))
    stored = zip_reader.read(path)
    assert stored.arrays == {}
    assert all("not supported" in reason for reason in stored.metadata["unreadable"].values())
    assert stored.metadata["unreadable"]


def test_a_tensor_alone_and_one_with_attributes(tmp_path: Path) -> None:
    path = tmp_path / "tensor.pt"
    tensor = torch.nn.Parameter(torch.ones(2, 3))
    torch.save(tensor, path)
    assert_equal(zip_reader.read(path).arrays, {"": tensor})
    tensor.note = "an attribute"  # saved by _rebuild_parameter_with_state
    torch.save({"w": tensor}, path)
    assert_equal(zip_reader.read(path).arrays, {"w": tensor})


def test_cycles_and_shared_parts(tmp_path: Path) -> None:
    path = tmp_path / "cycle.pt"
    part: dict[str, Any] = {"w": torch.ones(1)}
    part["self"] = part
    torch.save({"a": part, "b": part}, path)
    assert list(zip_reader.read(path).arrays) == ["a.w", "b.w"]


# ---- writing

ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "turned": np.arange(12, dtype=np.float32).reshape(3, 4).T,
    "bfloat16": np.arange(5).astype(ml_dtypes.bfloat16),
    "scalar": np.array(3.0),
    "none": np.zeros((0, 3), np.float16),
    "uint16": np.arange(4, dtype=np.uint16),
    "complex": np.ones(3, np.complex64),
    "bool": np.array([True, False]),
    "big endian": np.arange(4, dtype=">i4"),
    "é": np.arange(3, dtype=np.int64)[::2],
}


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("zip64_from", [stored_zip.ZIP64_FROM, 1])
def test_what_is_written_is_a_state_dict_for_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool, zip64_from: int) -> None:
    monkeypatch.setattr(stored_zip, "ZIP64_FROM", zip64_from)
    path = tmp_path / "written.pt"
    zip_writer.write(path, ARRAYS)
    loaded = torch.load(path, weights_only=True, mmap=mapped)
    assert type(loaded) is OrderedDict
    native = {name: array.astype(array.dtype.newbyteorder("=")) for name, array in ARRAYS.items()}
    assert_equal(native, loaded)
    assert all(tensor.is_contiguous() for tensor in loaded.values())
    assert_equal(zip_reader.read(path).arrays, loaded)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def test_records_are_aligned_and_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.pt", tmp_path / "b.pt"
    zip_writer.write(first, ARRAYS)
    zip_writer.write(second, ARRAYS)
    assert first.read_bytes() == second.read_bytes()
    for array in zip_reader.read(first).arrays.values():
        assert array.size == 0 or array.ctypes.data % 64 == 0


def test_deferred_arrays_and_the_module_that_loads_them(tmp_path: Path, model: Tagger) -> None:
    path = tmp_path / "written.pt"
    deferred = {
        name: Deferred(tuple(tensor.shape), np.dtype(np.float32), functools.partial(np.multiply, to_numpy(tensor), 2))
        for name, tensor in model.state_dict().items()
    }
    zip_writer.write(path, deferred)
    model.load_state_dict(torch.load(path, weights_only=True))
    assert_equal(zip_reader.read(path).arrays, model.state_dict())


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.pt"
    path.write_bytes(b"kept")
    for arrays in ({"w": np.array(["text"])}, {"\ud800": np.ones(1)}):
        with pytest.raises(UsageError):
            zip_writer.write(path, arrays)

    class Short:
        shape, dtype = (4,), np.dtype(np.float32)

        def pieces(self) -> Iterator[np.ndarray[Any, Any]]:
            yield np.ones(3, np.float32)

    with pytest.raises(ValueError, match="wrote 12"):
        zip_writer.write(path, {"w": Short()})
    assert path.read_bytes() == b"kept" and list(tmp_path.iterdir()) == [path]


# ---- files that are not PyTorch's, or that lie


def make(path: Path, pickled: bytes, *entries: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("m/data.pkl", pickled)
        for name, data in entries:
            archive.writestr(f"m/{name}", data)
    return path


def tensor(offset: int = 0, shape: Any = (4,), strides: Any = (1,), count: int = 4, kind: str = "FloatStorage", key: str = "0") -> bytes:
    """The pickle of {"w": a tensor}, as it says about itself."""
    body = zip_writer._global("torch._utils", "_rebuild_tensor_v2") + b"(("
    body += b"X\x07\x00\x00\x00storage" + zip_writer._global("torch", kind)
    body += zip_writer._text(key) + b"X\x03\x00\x00\x00cpu" + pickled(count) + b"tQ"
    body += pickled(offset) + pickled(shape) + pickled(strides) + b"\x89}tR"
    return b"\x80\x02}" + zip_writer._text("w") + body + b"s."


def pickled(value: Any) -> bytes:
    return pickle.dumps(value, 2)[2:-1]


FLOATS = np.arange(4, dtype=np.float32).tobytes()


def test_hand_made_tensor(tmp_path: Path) -> None:
    path = make(tmp_path / "m.pt", tensor(1, (2, 1), (2, 10**12)), ("data/0", FLOATS))
    assert zip_reader.read(path).arrays["w"].tolist() == [[1], [3]]


LIES = {
    "offset": tensor(offset=1),
    "offset below zero": tensor(offset=-1),
    "length": tensor(shape=(5,)),
    "length below zero": tensor(shape=(-1,)),
    "two lengths below zero": tensor(shape=(-2, -2), strides=(2, 1)),
    "stride": tensor(shape=(2, 2), strides=(3, 1)),
    "stride below zero": tensor(offset=3, strides=(-1,)),
    "stride that wraps round": tensor(shape=(3,), strides=(2**63,)),
    "lengths that wrap round": tensor(shape=(2**32, 2**32), strides=(2**32, 2**32)),
    "offset that wraps round": tensor(offset=2**64 - 4),
    "absurd": tensor(shape=(2**70,), count=2**70),
    "digits": tensor(shape=(1 << 40_000,)),
    "count of many digits": tensor(count=1 << 40_000),
    "empty but huge": tensor(shape=(0, 2**62), strides=(1, 1)),
    "more strides": tensor(strides=(1, 1)),
    "too many axes": tensor(shape=(1,) * 70, strides=(1,) * 70),
    "no number": tensor(shape=("4",)),
    "a flag": tensor(shape=(True,)),
    "no shape": tensor(shape=None),
    "count": tensor(count=5, shape=(5,)),
    "count below zero": tensor(count=-4),
    "type": tensor(kind="DoubleStorage"),
    "key": tensor(key="1"),
    "key outside": tensor(key="../../etc/passwd"),
    "a storage that is a number": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x00))\x89}tR.",
    "a storage of no kind": b"\x80\x02X\x07\x00\x00\x00storageK\x01\x86Q.",
}


@pytest.mark.parametrize("name", LIES)
def test_tensors_that_do_not_lie_within_their_storage(tmp_path: Path, name: str) -> None:
    path = make(tmp_path / "m.pt", LIES[name], ("data/0", FLOATS))
    with pytest.raises(UnreadableError):
        zip_reader.read(path)


def test_repeats_beyond_the_file_are_not_arrays(tmp_path: Path) -> None:
    for shape in ((2**20, 2**20), (1 << 40_000, 1)):
        path = make(tmp_path / "m.pt", tensor(shape=shape, strides=(0, 0)), ("data/0", FLOATS))
        stored = zip_reader.read(path)
        assert stored.arrays == {} and "repeats" in stored.metadata["unreadable"]["w"]


def test_big_endian_files(tmp_path: Path) -> None:
    big = np.arange(4, dtype=">f4").tobytes()
    path = make(tmp_path / "m.pt", tensor(), ("data/0", big), ("byteorder", b"big"))
    array = zip_reader.read(path).arrays["w"]
    assert array.dtype == np.float32 and array.tolist() == [0, 1, 2, 3]
    halves = np.arange(4).astype(ml_dtypes.bfloat16).view(np.uint16).astype(">u2").tobytes()
    path = make(tmp_path / "m.pt", tensor(kind="BFloat16Storage"), ("data/0", halves), ("byteorder", b"big"))
    array = zip_reader.read(path).arrays["w"]
    assert array.dtype == ml_dtypes.bfloat16 and array.tolist() == [0, 1, 2, 3]
    path = make(tmp_path / "m.pt", tensor(), ("data/0", big), ("byteorder", b"middle"))
    with pytest.raises(UnreadableError, match="byte order"):
        zip_reader.read(path)


def test_compressed_entries_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "m.pt", tensor(), ("data/0", FLOATS * 50), compression=zipfile.ZIP_DEFLATED)
    assert zip_reader.read(path).arrays["w"].tolist() == [0, 1, 2, 3]
    path = make(tmp_path / "m.pt", tensor(), ("data/0", bytes(1 << 20)), compression=zipfile.ZIP_DEFLATED)
    monkeypatch.setattr(zips, "UNPACKED_BYTES", 1 << 19)
    with pytest.raises(UnreadableError, match="claims to unpack to"):
        zip_reader.read(path)


@pytest.mark.parametrize("claim", [10**6, 2 << 30, 3])
def test_zip_bombs(tmp_path: Path, claim: int) -> None:
    path = make(tmp_path / "m.pt", tensor(), ("data/0", bytes(100_000)), compression=zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    entry = data.index(b"m/data/0", data.index(b"PK\x01\x02"))
    data[entry - 22 : entry - 18] = struct.pack("<I", claim)  # the size in the central directory
    path.write_bytes(data)
    with pytest.raises(UnreadableError):
        zip_reader.read(path)


def test_other_zip_archives(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "text")
    with pytest.raises(UnreadableError, match="has none"):
        zip_reader.read(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", b"N.")
        archive.writestr("b/data.pkl", b"N.")
    with pytest.raises(UnreadableError, match="2 of them"):
        zip_reader.read(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_of_one_name(tmp_path: Path) -> None:
    path = make(tmp_path / "m.pt", tensor(), ("data/0", FLOATS), ("data/0", bytes(16)))
    with pytest.raises(UnreadableError, match="two things in it have the name"):
        zip_reader.read(path)


def test_two_tensors_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save({"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}}, path)
    with pytest.raises(UnreadableError, match=r"both called 'a\.b'"):
        zip_reader.read(path)


def test_truncated_absent_empty_and_other_files(tmp_path: Path, model: Tagger) -> None:
    path = tmp_path / "m.pt"
    for legacy in (False, True):
        torch.save(model.state_dict(), path, _use_new_zipfile_serialization=not legacy)
        content = path.read_bytes()
        for length in (0, 1, 4, 40, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:length])
            with pytest.raises(UnreadableError):
                (torch_legacy if legacy else zip_reader).read(path)
    for other in (tmp_path, tmp_path / "absent"):
        for container in (zip_reader, torch_legacy):
            with pytest.raises(UnreadableError):
                container.read(other)
        assert not torch_legacy.is_torch_legacy(other)


def test_attack_in_a_checkpoint_is_named_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    attack = b"cposix\nsystem\n(S'touch " + bytes(marker) + b"'\ntR."
    with pytest.raises(UnreadableError, match=r"posix\.system"):
        zip_reader.read(make(tmp_path / "m.pt", attack))
    old = io.BytesIO()
    torch.save({}, old, _use_new_zipfile_serialization=False)
    (tmp_path / "old.pt").write_bytes(old.getvalue().replace(pickle.dumps({}, 2)[2:], attack, 1))
    with pytest.raises(UnreadableError):
        torch_legacy.read(tmp_path / "old.pt")
    assert not marker.exists()


def test_a_pickle_that_doubles_itself_is_not_walked_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "OBJECTS", 10_000)
    laughs: Any = {"w": 1}
    for _ in range(60):
        laughs = [laughs, laughs]
    with pytest.raises(UnreadableError, match="nested"):
        zip_reader.read(make(tmp_path / "m.pt", pickle.dumps(laughs, 2)))


def test_a_name_that_is_too_long_is_named_as_such(tmp_path: Path) -> None:
    torch.save({"x" * 10_000_000 + ".weight": torch.zeros(2)}, tmp_path / "a.pt")
    with pytest.raises(UnreadableError, match=r"'x{60}'\.\.\. in it has 10,000,007 characters, at most 4,096 are read"):
        zip_reader.read(tmp_path / "a.pt")


def test_deep_nesting(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="nested"):
        zip_reader.read(make(tmp_path / "m.pt", b"N" + b"\x85" * 5000 + b"."))


def test_reading_and_writing_import_no_torch(tmp_path: Path) -> None:
    zip_writer.write(tmp_path / "m.pt", {"w": np.ones(2)})
    code = (
        "import sys; from rnnconvert.formats.pytorch.archives import zip_reader, legacy; "
        f"zip_reader.read({str(tmp_path / 'm.pt')!r}); assert 'torch' not in sys.modules"
    )
    root = ROOT
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def seeds() -> list[tuple[bool, bytes]]:
    torch.manual_seed(0)
    archives = []
    for legacy in (False, True):
        buffer = io.BytesIO()
        torch.save(
            {"sd": torch.nn.GRU(2, 3).state_dict(), "args": argparse.Namespace(n=1)}, buffer, _use_new_zipfile_serialization=not legacy
        )
        archives.append((legacy, buffer.getvalue()))
    return archives


SEEDS = seeds()


@settings(max_examples=600 if LONG else 200, deadline=None, derandomize=True, database=None)
@given(
    which=st.sampled_from(range(len(SEEDS))),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6),
    cut=st.integers(0, 20_000),
)
def test_changed_bytes_raise_our_errors_only(
    tmp_path_factory: pytest.TempPathFactory, which: int, edits: list[tuple[int, int]], cut: int
) -> None:
    legacy, seed = SEEDS[which]
    data = bytearray(seed)
    for place, value in edits:
        data[place % len(data)] = value
    path = tmp_path_factory.getbasetemp() / "changed.pt"
    path.write_bytes(bytes(data[:cut] if cut % 3 == 0 else data))
    try:
        stored = (torch_legacy if legacy else zip_reader).read(path)
        assert all(len(array.tobytes()) == array.nbytes for array in stored.arrays.values())
    except RnnConvertError:
        pass


REAL = [
    "cad-predictor/lstm.ckpt",
    "allennlp-fixtures/simple_tagger_best.th",
    "ergo-tcr/lstm_model.pt",
    "pytorch-quantized-lstm/TestSerialization.test_lstm.input.pt",
    "pytorch-quantized-lstm/TestSerialization.test_lstm.expected.pt",
]


@pytest.mark.parametrize("name", REAL)
def test_real_checkpoints_are_what_torch_reads(name: str) -> None:
    need("corpus", corpus.absent())
    path = corpus.FOLDER / name
    container = torch_legacy if torch_legacy.is_torch_legacy(path) else zip_reader
    expected = dict(flat("", torch.load(path, weights_only=True, map_location="cpu")))
    assert_equal(container.read(path).arrays, expected)


def flat(prefix: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield prefix, value
    elif isinstance(value, dict | list | tuple):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flat(f"{prefix}.{key}" if prefix else str(key), child)
