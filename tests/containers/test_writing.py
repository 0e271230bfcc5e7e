"""Large arrays: written by several threads, with checksums of their parts, and the same bytes as one after the other."""

from __future__ import annotations

import errno
import io
import itertools
import os
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rnnconvert as rc
from fuzz import writes
from rnnconvert.containers import checksums, writing
from rnnconvert.containers.crc32c import by_numpy, crc32c
from rnnconvert.containers.files import counting, replacing
from rnnconvert.core import arrays as core_arrays
from rnnconvert.core import threads
from rnnconvert.core.arrays import FLOATS, Array, Stretch
from rnnconvert.files.finite import FiniteWatch
from rnnconvert.language import packing
from rnnconvert.rewrites import each
from tests.helpers.requirements import needed

RNG = np.random.default_rng(0)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays are large, and there are three processors."""
    monkeypatch.setattr(writing, "APART", 256)
    for module in (core_arrays, packing):
        monkeypatch.setattr(module, "PIECE_BYTES", 256)
    monkeypatch.setattr(writing, "SLICE", 100)
    monkeypatch.setattr(threads, "processors", lambda: 3)


@pytest.mark.parametrize("size", [0, 1, 1000, 20_000, 274_916, 274_917, 300_001, 2_000_003])
def test_checksums_of_parts_joined_are_those_of_the_whole(size: int) -> None:
    data = RNG.integers(0, 256, size, dtype=np.uint8).data if size else memoryview(b"")
    cuts = sorted({0, size, *RNG.integers(0, size + 1, 3).tolist()})
    crc, castagnoli = checksums.Crc32(), checksums.Crc32c()
    for start, end in itertools.pairwise(cuts):
        for check in (crc, castagnoli):
            check.append(check.part(data[start:end]), end - start)
    assert crc.value == zlib.crc32(data) and castagnoli.value == crc32c(data) == by_numpy(data)


def test_crc32_by_either_library_is_that_of_the_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check value of ITU-T V.42; ISA-L is an extra."""
    needed("isal", "isal")
    by_isal = checksums._crc32.__wrapped__()
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    by_zlib = checksums._crc32.__wrapped__()
    assert by_isal is not by_zlib is zlib.crc32
    assert by_isal(memoryview(b"123456789")) == by_zlib(memoryview(b"123456789")) == 0xCBF43926


def test_crc32c_is_that_of_the_standard() -> None:
    """RFC 3720, appendix B.4."""
    for data, wanted in ((bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E), (b"123456789", 0xE3069283)):
        assert crc32c(data) == by_numpy(data) == wanted
        assert crc32c(data[5:], crc32c(data[:5])) == by_numpy(data[5:], by_numpy(data[:5])) == wanted


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "<f8"])
def test_arrays_written_apart_are_the_same_bytes(apart: None, dtype: str, tmp_path: Path) -> None:
    full = RNG.normal(size=(60, 70)).astype(dtype)
    with replacing(tmp_path / "m") as file:
        for array in (full, full.T, full[::2, 3:]):
            check, seen = checksums.Crc32(), list[int]()
            file.seek(file.tell() + 5)
            start = file.tell()
            with counting(seen.append):
                writing.write_pieces(file, array, check)
            file.flush()
            wanted = np.ascontiguousarray(array).astype(np.dtype(dtype).newbyteorder("<")).tobytes()
            assert file.tell() == start + len(wanted)
            assert os.pread(file.fileno(), len(wanted), start) == wanted
            assert check.value == zlib.crc32(wanted)
            assert seen[-1] == len(wanted) and seen == sorted(seen)


def test_a_file_that_is_not_the_systems_is_written_in_order(apart: None) -> None:
    array = RNG.normal(size=(60, 70))
    file = io.BytesIO()
    writing.write_pieces(file, array.T)
    assert file.getvalue() == np.ascontiguousarray(array.T).tobytes()


@pytest.mark.parametrize(
    "name",
    [
        "pytorch .pt",
        "onnx .onnx",
        "onnx external",
        "keras .keras",
        "keras .h5",
        "mlx .npz",
        "cudnn .bin",
        "tensorflow1 .index",
        "mlx .safetensors",
    ],
)
def test_files_written_apart_are_those_written_in_order(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.setattr(writing, "APART", 1 << 30)
    writes.write(name, tmp_path / "a", 1)
    request.getfixturevalue("apart")
    begun: list[int] = []
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        begun.append(1)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    writes.write(name, tmp_path / "b", 1)
    assert begun and writes.contents(tmp_path / "a") == writes.contents(tmp_path / "b")


@pytest.mark.parametrize("name", ["onnx .onnx", "keras .keras", "cudnn .bin"])
@pytest.mark.parametrize("where", ["asks", "helps"])
def test_a_disk_that_is_full_for_one_thread_leaves_the_old_file(
    apart: None, name: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes.write(name, tmp_path, 1)
    before, asking, real = writes.contents(tmp_path), threading.get_ident(), os.pwrite
    failed = threading.Event()
    others = {*threading.enumerate()}

    def full(handle: int, data: Any, at: int) -> int:
        if (threading.get_ident() == asking) == (where == "asks"):
            failed.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        failed.wait(0.1)
        return real(handle, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(rc.UsageError, match="cannot write: No space left"):
        writes.write(name, tmp_path, 2)
    assert writes.contents(tmp_path) == before and not writes.left(tmp_path)
    assert {*threading.enumerate()} <= others


def test_room_is_asked_for_where_the_file_can_have_it(tmp_path: Path) -> None:
    reading, writing_end = os.pipe()
    writing.reserve(writing_end, 0, 1 << 20)
    os.close(reading)
    os.close(writing_end)
    with (tmp_path / "m").open("wb") as file:
        file.write(b"before")
        file.flush()
        writing.reserve(file.fileno(), 6, 1 << 20)
    with (tmp_path / "m").open("rb") as file:
        assert file.read(6) == b"before" and not any(file.read())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", ">f4"])
def test_what_is_not_finite_is_noticed_wherever_it_stands(dtype: str) -> None:
    kind = FLOATS.get(dtype, np.dtype(dtype))
    largest = np.full(100, ml_dtypes.finfo(kind.newbyteorder("=")).max, kind)
    for values in (largest, -largest, np.zeros(100, kind), np.zeros(0, kind)):
        watch = FiniteWatch(values.nbytes, None)
        watch(values)
        assert watch.finite and watch.done == values.nbytes
    for value, place in itertools.product((np.nan, np.inf, -np.inf), (0, 57, 99)):
        for values in (largest.copy(), np.zeros(100, kind)):
            values[place] = value
            watch = FiniteWatch(values.nbytes, None)
            watch(values)
            assert not watch.finite, (value, place)
    opposites = np.zeros(100, kind)
    opposites[3], opposites[70] = np.inf, -np.inf
    watch = FiniteWatch(0, None)
    watch(opposites)
    assert not watch.finite


def test_an_interrupt_waits_for_the_threads_that_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "processors", lambda: 2)
    monkeypatch.setattr(writing, "APART", 0)
    main_thread, entered, ended = threading.get_ident(), threading.Event(), threading.Event()

    def make(room: Any) -> Array:
        if threading.get_ident() == main_thread:
            entered.wait(5)
            raise KeyboardInterrupt
        entered.set()
        threading.Event().wait(0.2)
        ended.set()
        return np.ones(4, np.float32)

    class Endless:
        shape, dtype = (1 << 30,), np.dtype(np.float32)

        def pieces(self) -> Iterator[Array]:
            raise AssertionError

        def runs(self) -> Iterator[Stretch]:
            while True:
                yield Stretch(4, make)

    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "m") as file:
        writing.write_pieces(file, Endless())
    assert ended.is_set() and list(tmp_path.iterdir()) == []


def test_weights_that_are_not_finite_are_seen_by_every_thread(apart: None, tmp_path: Path) -> None:
    (stack,) = writes.checkpoint(1).layers.values()
    arrays = {key: np.array(array) for key, array in stack.first.arrays.items()}
    arrays["recurrent", "o"][-1, -1] = np.nan
    bad = each(stack, lambda direction: direction.with_arrays(arrays))
    done: list[tuple[int, int]] = []
    summary = rc.save(
        rc.Checkpoint("memory", "memory", {"rnn": bad}), tmp_path / "m.keras", progress=lambda part, all_: done.append((part, all_))
    )
    assert "NaN" in summary.warnings[0] and done[-1][0] == done[-1][1] and done == sorted(done)


def test_two_layers_of_one_model_can_be_exchanged() -> None:
    torch = needed("torch", "torch")

    module = torch.nn.ModuleDict({"a": torch.nn.Linear(4, 4), "b": torch.nn.Linear(4, 4)})
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    rc.load_into(module, module.state_dict(), mapping={"a": "b", "b": "a"})
    for side, other in (("a", "b"), ("b", "a")):
        assert torch.equal(module[side].weight, before[f"{other}.weight"]) and torch.equal(module[side].bias, before[f"{other}.bias"])


@pytest.mark.parametrize("memory", ["system", "own"])
def test_a_file_that_changes_while_it_fills_a_module_leaves_the_old_numbers(
    memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = needed("torch", "torch")

    from rnnconvert.models import backup

    monkeypatch.setattr(backup, "_BLOCK", 1000)
    if memory == "own":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    torch.save(torch.nn.GRU(20, 30, bidirectional=True).state_dict(), tmp_path / "m.pt")
    module = torch.nn.GRU(20, 30, bidirectional=True)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    copies = torch.Tensor.copy_

    def changing(tensor: Any, other: Any) -> Any:
        os.utime(tmp_path / "m.pt", ns=(1, 1))
        return copies(tensor, other)

    monkeypatch.setattr(torch.Tensor, "copy_", changing)
    with pytest.raises(rc.UnreadableError, match="changed while it was read"):
        rc.load_into(module, tmp_path / "m.pt")
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    monkeypatch.undo()
    rc.load_into(module, tmp_path / "m.pt")
    wanted = torch.load(tmp_path / "m.pt")
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in module.state_dict().items())


def test_what_lies_in_a_file_as_it_is_needed_is_not_copied(tmp_path: Path) -> None:
    torch = needed("torch", "torch")

    from rnnconvert.language.packing import pack
    from rnnconvert.language.registry import layout_named

    torch.save(torch.nn.LSTM(5, 7, 2, bidirectional=True).state_dict(), tmp_path / "m.pt")
    (stack,) = rc.load(tmp_path / "m.pt").layers.values()
    for name, packed in pack(layout_named("pytorch.lstm"), stack).items():
        there = packed.in_file()
        assert there is not None and not there.flags.writeable and np.array_equal(there, np.asarray(packed)), name
    layout = layout_named("onnx.lstm")  # another order of gates
    assert all(packed.in_file() is None for packed in pack(layout, stack.replace(layers=stack.layers[:1])).values())
    assert all(packed.in_file() is None for packed in pack(layout_named("pytorch.lstm"), stack, np.dtype(np.float16)).values())
