"""A library that reads in a child: what it gives arrives as it was, and nothing that it does can hold or end this process."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from rnnconvert.containers import apart, hdf5
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import BFLOAT16
from rnnconvert.core.errors import UnreadableError

pytestmark = [pytest.mark.skipif(not apart.is_possible(), reason="processes are not copied on this system"), pytest.mark.reads_apart]
DATA = np.arange(4096, dtype=np.uint8)


def open_files() -> int:
    gc.collect()  # processes that other tests began have pipes until then
    return len(list(Path("/proc/self/fd").iterdir()))


def test_arrays_and_values_arrive_as_they_were() -> None:
    """Views of the file stay views; what the child made lies in shared memory."""
    view = DATA[64:128].view(np.float32).reshape(4, 4).T
    arrays = {
        "view": view, "part": view[1:, ::2], "made": np.arange(5.0), "none": np.zeros((0, 3)), "one": np.array(3, np.float32),
        "bf16": np.ones((2, 3), BFLOAT16), "swapped": np.arange(3, dtype=">i2"), "turned": DATA[:8][::-1],
    }  # fmt: skip
    metadata = {"a": {"": [1, 2.5, None, True, "é\udc80", complex(1, -2), float("inf")]}, "b": (1, (2,)), "n": {3: 4}}
    before = open_files()
    stored = apart.read_apart(lambda: Stored(arrays, metadata), DATA, "x")
    assert list(stored.arrays) == list(arrays)
    for name, array in arrays.items():
        got = stored.arrays[name]
        assert (got.shape, got.dtype) == (array.shape, array.dtype), name
        np.testing.assert_array_equal(got, array)
        assert np.shares_memory(got, DATA) == (name in ("view", "part")), name
    assert stored.metadata == {**metadata, "b": [1, [2]]}
    del stored, got
    assert open_files() == before


def loops() -> Stored:
    while True:
        pass


def allocates() -> Stored:
    return Stored({"x": np.ones(1 << 40)})


def ends(by: int) -> Callable[[], Stored]:
    def read() -> Stored:
        os.kill(os.getpid(), by)
        time.sleep(10)
        return Stored({})

    return read


@pytest.mark.parametrize("read, message", [
    (loops, "processor time"), (allocates, "memory"), (ends(signal.SIGSEGV), r"crashes .*SIGSEGV"), (ends(signal.SIGKILL), "too much"),
    (lambda: os._exit(3), "ended with 3"), (lambda: os._exit(0), "broke"), (lambda: 1 // 0, "ended with 70"),
])  # fmt: skip
def test_whatever_a_library_does_its_file_is_unreadable(read: Callable[[], Stored], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "SECONDS", 1)
    before = open_files()
    with pytest.raises(UnreadableError, match=message):
        apart.read_apart(read, DATA, "x")
    assert open_files() == before


def waits() -> Stored:
    time.sleep(100)
    return Stored({})


def test_a_child_that_only_waits_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "SECONDS", 1)
    monkeypatch.setattr(apart, "PATIENCE", 0.5)
    before = open_files()
    with pytest.raises(UnreadableError, match="no answer within 0 s"):
        apart.read_apart(waits, DATA, "x")
    assert open_files() == before


@pytest.mark.parametrize("lie", [
    {"offset": -4}, {"offset": 4090}, {"shape": [1 << 40]}, {"strides": [-4]}, {"shape": [4, 4]}, {"kind": "O"}, {"kind": "<U9999"},
    {"shape": ["x"]}, {"shape": [0, -1], "strides": [4, 4]}, {"shape": [0, 1 << 62], "strides": [4, 4]},
], ids=str)  # fmt: skip
def test_a_child_that_was_taken_over_can_point_nowhere_else(lie: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"offset": 0, "shape": [4], "strides": [4], "kind": "<f4", **lie}
    answer = {"arrays": [["x", "file", *place.values()]], "metadata": {"{}": []}}
    monkeypatch.setattr(apart, "_sent", lambda *_: answer)
    with pytest.raises(UnreadableError, match="broke"):
        apart.read_apart(lambda: Stored({}), DATA, "x")


def heap_file(path: Path, *changes: tuple[int, int]) -> bytes:
    """A file whose texts lie in a global heap of more than 4096 bytes, with changed lengths of some objects of it."""
    with h5py.File(path, "w") as file:
        file.attrs["long"] = np.array(["x" * 6000, "y", "z"], h5py.string_dtype())
    data = bytearray(path.read_bytes())
    start = data.find(b"GCOL")
    assert int.from_bytes(data[start + 8 : start + 16], "little") > 4096
    at, places = start + 16, []
    while number := int.from_bytes(data[at : at + 2], "little"):
        places.append(at)
        at += 16 + -(-int.from_bytes(data[at + 8 : at + 16], "little") // 8) * 8
        assert number == len(places)
    for which, length in changes:
        where = [*places, at][which]
        data[where + 8 : where + 16] = length.to_bytes(8, "little")
    path.write_bytes(data)
    return bytes(data)


@pytest.mark.parametrize("which", [0, 1, 2, 3])
@pytest.mark.parametrize("length", [0, 1 << 63, (1 << 64) - 5, (1 << 64) - 16])
def test_a_heap_that_the_library_never_leaves_is_damaged(which: int, length: int, tmp_path: Path) -> None:
    """In the beginning that is read first, and in the rest; object 3 is the free one, whose length includes its header."""
    path = tmp_path / "a.h5"
    heap_file(path, (which, length))
    start = time.process_time()
    metadata: Mapping[str, Any] = {}
    try:
        metadata = hdf5.read(path).metadata
    except UnreadableError:
        return
    # An object of no length is a text of none.
    assert metadata["unreadable"] or (length == 0 and which < 3), metadata
    assert time.process_time() - start < 5


def test_heaps_that_are_whole_are_read(tmp_path: Path) -> None:
    heap_file(tmp_path / "a.h5")
    assert hdf5.read(tmp_path / "a.h5").metadata["attributes"][""]["long"] == ["x" * 6000, "y", "z"]


INTERRUPTED_COPY = """
import os
import signal
import subprocess
import sys
from rnnconvert.containers.apart import copy_process
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets background jobs ignore it
os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGINT))
try:
    child = copy_process()
except KeyboardInterrupt:
    print("interrupted", flush=True)
else:
    if not child:
        os._exit(0)
    print("lost", flush=True)
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("no child is left")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not copied on this system")
def test_an_interrupt_while_a_process_is_copied_is_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_COPY], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("interrupted\nno child is left\n", "")
