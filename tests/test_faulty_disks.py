"""Disks that fail and processes that are killed at every call of a write (fuzz.writes): the old file, or the new one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import rnnconvert as rc
from fuzz import writes
from rnnconvert.running.registry import built_in
from tests.drawn import drawn
from tests.requirements import need

pytestmark = pytest.mark.reads_apart


def chosen(few: int, turn: str) -> list[str]:
    """Some targets, those of several files among them; with --long all."""
    every = writes.targets()
    several = writes.several(every)
    return [*drawn(several, few, f"{turn} several"), *drawn([name for name in every if name not in several], few, turn)]


def test_every_kind_of_file_is_attacked_whole(tmp_path: Path) -> None:
    assert {writes.targets()[name].format for name in writes.several(writes.targets())} >= {"onnx", "tfjs", "openvino", "ncnn", "cudnn"}
    for name in chosen(7, "whole"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        writes.write(name, folder, 1)
        assert writes.numbers(name, folder) == writes._recurrent(1), name
        assert writes.calls(name, folder) >= 5, name
        assert writes.numbers(name, folder) == writes._recurrent(2), name


@pytest.mark.parametrize("fault", ["ENOSPC", "EACCES"])
def test_a_disk_that_fails_leaves_the_old_file(fault: str, tmp_path: Path) -> None:
    """Where only the removal of what is not needed any more fails, the write is done."""
    for name in chosen(2, fault):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        writes.write(name, folder, 1)
        ends = [writes.fail_at(name, folder, number, writes.FAULTS[fault]) for number in range(writes.calls(name, folder))]
        assert set(ends) == {"refused", "done"} and ends.count("done") <= 4, (name, ends)


def test_calls_that_are_interrupted_or_short_are_made_again(tmp_path: Path) -> None:
    for name in chosen(7, "interrupted"):
        plain, other = tmp_path / f"{name} a", tmp_path / f"{name} b"
        plain.mkdir()
        other.mkdir()
        writes.write(name, plain, 1)
        turn = [0]

        def hook(call: str, turn: list[int] = turn) -> None:
            turn[0] += 1
            if call == "write" and turn[0] % 2:
                raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))

        with writes.hooked(hook, short=True):
            writes.write(name, other, 1)
        assert turn[0] > 10
        assert writes.contents(plain) == writes.contents(other), name


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not copied on this system")
def test_a_process_killed_at_any_call_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    """Two files of fixed names are of one write, or refused; and the next write removes what was left."""
    for name in chosen(2, "killed"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        writes.write(name, folder, 1)
        ends = [writes.kill_at(name, folder, number) for number in range(writes.calls(name, folder))]
        assert {"old", "new"} <= set(ends) and ends.count("refused") <= 4, (name, ends)
        assert ("refused" in ends) == writes.is_noticed(name), (name, ends)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not copied on this system")
def test_of_two_writers_one_wins_whole(tmp_path: Path) -> None:
    for name in chosen(2, "two writers"):
        assert writes.two_writers(name, tmp_path / name, 10) in ("old", "new", "refused"), name


def test_a_file_reaches_the_disk_where_that_is_asked(tmp_path: Path) -> None:
    from rnnconvert.containers.files import reaching_the_disk

    writes.targets()  # found by writing them, which is not counted
    seen: list[str] = []
    with reaching_the_disk(), writes.hooked(seen.append):
        writes.write("cudnn .bin", tmp_path, 1)
    assert seen.count("fsync") == 4 and seen.index("fsync") < seen.index("replace")
    seen.clear()
    with writes.hooked(seen.append):
        writes.write("cudnn .bin", tmp_path, 1)
    assert "fsync" not in seen


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_code_and_its_weights_are_replaced_together_or_not_at_all(tmp_path: Path) -> None:
    """A rename that fails, whichever it is, leaves both files of the write before."""
    need("keras", built_in()["keras-tensorflow"].absent)
    need("torch", built_in()["torch-cpu"].absent)
    import keras

    for name, function in (("relu", "relu"), ("tanh", "tanh")):
        model = keras.Sequential([keras.Input((None, 3)), keras.layers.LSTM(4, name="l"), keras.layers.Dense(2, function, name="d")])
        model.save(tmp_path / f"{name}.keras")
    folder = tmp_path / "out"

    def scaffolded(source: str) -> None:
        rc.scaffold(tmp_path / f"{source}.keras", "pytorch", folder / "m.py", weights=folder / "m.pt", force=True)

    def failing(number: int) -> Callable[[str], None]:
        done = 0

        def hook(call: str) -> None:
            nonlocal done
            done += call == "replace"
            if call == "replace" and done == number + 1:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        return hook

    folder.mkdir()
    scaffolded("relu")
    old = writes.contents(folder)
    seen: list[str] = []
    with writes.hooked(seen.append):
        scaffolded("tanh")
    new = writes.contents(folder)
    assert sorted(old) == sorted(new) == ["m.pt", "m.py"] and all(old[name] != new[name] for name in old)
    scaffolded("relu")
    old = writes.contents(folder)
    for number in range(seen.count("replace")):
        with pytest.raises(rc.RnnConvertError), writes.hooked(failing(number)):
            scaffolded("tanh")
        assert writes.contents(folder) == old, number
