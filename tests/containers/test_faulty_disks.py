"""Disks that fail and processes that are killed at every call of a write (fuzz.writes): the old file, or the new one."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rnnconvert as rc
from fuzz import writes
from rnnconvert.containers import data_files, placing, temporary
from rnnconvert.containers import files as containers_files
from rnnconvert.core.errors import UsageError
from rnnconvert.running.registry import built_in
from tests.helpers.drawn import drawn
from tests.helpers.requirements import need

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


# Signals and interrupts ---------------------------------------------------------------------------------


class Interrupter:
    """Does something before one line of the files that write, counted from the first."""

    FILES = tuple(module.__file__ for module in (placing, containers_files, data_files, temporary))

    def __init__(self, number: int, what: Callable[[], None]) -> None:
        self.number, self.what, self.count = number, what, 0

    def __enter__(self) -> Interrupter:
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename in self.FILES else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.count += 1
            if self.count == self.number + 1:
                self.what()
        return self._line


def interrupt() -> None:
    raise KeyboardInterrupt


WAYS = {"exception": interrupt, "signal": lambda: signal.raise_signal(signal.SIGTERM)}


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_at_any_line_leaves_the_old_model_or_the_new(way: str, tmp_path: Path) -> None:
    """Every format of several files; what the command says it has changed is true."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for name in writes.several(writes.targets()):
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            writes.write(name, folder, 1)
            writes.write(name, folder, 1)
            with Interrupter(-1, lambda: None) as counted:
                writes.write(name, folder, 2)
            old_ends, new_ends = writes._recurrent(1), writes._recurrent(2)
            stopped = 0
            for number in range(counted.count):
                writes.write(name, folder, 1)
                handlers = [signal.getsignal(caught) for caught in (signal.SIGINT, signal.SIGTERM)]
                with placing.changes() as written:
                    try:
                        with Interrupter(number, WAYS[way]):
                            writes.write(name, folder, 2)
                    except KeyboardInterrupt:
                        stopped += 1
                    changed = written.paths()
                present = writes.numbers(name, folder)
                assert present in (old_ends, new_ends), (name, number)
                main = str(folder / writes.targets()[name].file)
                assert (present == new_ends) == (main in changed) == bool(changed), (name, number, changed)
                if way == "signal":
                    assert [signal.getsignal(caught) for caught in (signal.SIGINT, signal.SIGTERM)] == handlers, (name, number)
            assert stopped > counted.count / 2, (name, stopped, counted.count)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("links", [True, False])
def test_moves_that_are_interrupted_are_all_done_or_none(links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a verified model, over others, on a disk without links, too."""
    if not links:
        monkeypatch.setattr(os, "link", interrupt_link)
    names = ("a.data", "b.data", "m")

    def prepared() -> list[tuple[Path, Path]]:
        for name in names:
            (tmp_path / name).write_text("old")
            (tmp_path / f"new {name}").write_text("new")
        (tmp_path / "obsolete").write_text("old")
        return [(tmp_path / f"new {name}", tmp_path / name) for name in names]

    def move(moves: list[tuple[Path, Path]]) -> None:
        containers_files.move_together(moves, [tmp_path / "obsolete"])

    moves = prepared()
    with Interrupter(-1, lambda: None) as counted:
        move(moves)
    assert not (tmp_path / "obsolete").exists()
    for number in range(counted.count):
        moves = prepared()
        with contextlib.suppress(KeyboardInterrupt), Interrupter(number, interrupt):
            move(moves)
        there = {name: (tmp_path / name).read_text() if (tmp_path / name).exists() else "" for name in names}
        assert len(set(there.values())) == 1 and "" not in there.values(), (number, there)
        assert there["m"] == "new" or (tmp_path / "obsolete").exists(), number


def interrupt_link(*_: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def test_a_rename_that_fails_puts_back_what_was_there_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", interrupt_link)
    for name in ("a", "b", "new a"):
        (tmp_path / name).write_text(name)
    (tmp_path / "c").mkdir()
    with pytest.raises(UsageError):
        placed = [(tmp_path / "new a", tmp_path / "a"), (tmp_path / "b", tmp_path / "c")]
        containers_files.move_together(placed)
    with pytest.raises(OSError, match="irectory"):
        placing.rename_together(placed)
    assert (tmp_path / "a").read_text() == "a"


STOPPED = """
import os, pathlib, signal, sys
real = os.replace
def replace(source, target):
    real(source, target)
    if str(target).endswith(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGTERM)
os.replace = replace
pathlib.Path.replace = lambda self, target: replace(self, target)
from rnnconvert.cli.main import main
main(sys.argv[2:])
"""


@pytest.mark.parametrize("name", ["tfjs .json", "cudnn .bin"])
def test_a_command_that_is_stopped_after_a_rename_says_what_it_has_written(name: str, tmp_path: Path) -> None:
    """Both files are new, and the message does not say that none is."""
    writes.write("onnx .onnx", tmp_path, 2)
    (source,) = tmp_path.iterdir()
    folder = tmp_path / "out"
    folder.mkdir()
    writes.write(name, folder, 1)
    file, format, _ = writes.targets()[name]
    for end in sorted(writes.contents(folder)):
        writes.write(name, folder, 1)
        words = [end, "convert", str(source), str(folder / file), "--to", format, "--force"]
        done = subprocess.run([sys.executable, "-c", STOPPED, *words], capture_output=True, text=True, check=False)
        if done.returncode == 0:  # the numbers of the new model have another name
            assert end.endswith(".data")
            continue
        assert done.returncode == 130 and f"{folder / file} " in done.stderr and "written before, whole" in done.stderr, done.stderr
        assert writes.numbers(name, folder) == writes._recurrent(2)


def test_a_file_that_waits_for_its_proof_is_not_said_to_be_written(tmp_path: Path) -> None:
    target = tmp_path / "model.bin"
    with placing.changes() as written:
        with temporary.new_folder(target) as folder:
            with containers_files.replacing(Path(folder) / target.name) as file:
                file.write(b"numbers")
            assert (Path(folder) / target.name).read_bytes() == b"numbers" and written.paths() == []
        with containers_files.replacing(target) as file:
            file.write(b"numbers")
        assert written.paths() == [str(target)]
