"""Files that change while they are read, targets of every sort, killed processes, outputs that nobody can take."""

from __future__ import annotations

import contextlib
import copy
import fcntl
import mmap
import os
import pickle
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import pytest
from onnx import helper

import rnnconvert as rc
from rnnconvert.containers import sorted_table, temporary, wire
from rnnconvert.containers.crc32c import crc32c, masked
from rnnconvert.containers.reading import map_file, reading
from rnnconvert.core.errors import BudgetError, UnreadableError, UsageError
from rnnconvert.core.names import first_twice
from rnnconvert.running import parent, registry
from rnnconvert.running.kept import KeptProcesses, keeping
from rnnconvert.running.registry import Executor
from tests import ROOT
from tests.helpers.executor_modules import module_text
from tests.helpers.sources import stack, write

pytestmark = pytest.mark.reads_apart

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def command(*words: object, **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rnnconvert", *map(str, words)], **{"capture_output": True, **how}, text=True, check=False, env=ENVIRONMENT
    )


# Sources that change ----------------------------------------------------------------------------------

CHANGING = """
import os, sys, time
from rnnconvert.files import convert
from rnnconvert.cli.main import main
real = convert.fitted
def then_changed(*given):
    path = sys.argv[2]
    if sys.argv[1] == "cut":
        os.truncate(path, 4096)
    elif sys.argv[1] == "gone":
        os.unlink(path)
    else:
        time.sleep(0.02)
        with open(path, "r+b") as file:
            file.seek(-8, 2)
            file.write(b"12345678")
    return real(*given)
convert.fitted = then_changed
main(["convert", path := sys.argv[2], sys.argv[3]])
"""


@pytest.mark.parametrize("how", ["cut", "written", "gone"])
@pytest.mark.parametrize("target", ["out.safetensors", "out.keras"])
def test_a_source_that_changes_is_not_converted(how: str, target: str, tmp_path: Path) -> None:
    """One that is removed as a whole is still there for the process that has it open."""
    source = write(tmp_path / "in.safetensors", stack(hidden_size=64))
    before = {"in.safetensors"} - ({"in.safetensors"} if how == "gone" else set())
    words = [sys.executable, "-c", CHANGING, how, str(source), str(tmp_path / target)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    left = {file.name for file in tmp_path.iterdir()}
    if how == "gone":
        assert (done.returncode, left) == (0, {target}), done.stderr
        return
    assert done.returncode == 3, (done.returncode, done.stderr)
    assert "changed while it was read" in done.stderr and "Traceback" not in done.stderr
    assert left == before


FAILING = """
import ctypes, mmap, os, sys, numpy as np
from rnnconvert.containers import reading
from rnnconvert.cli.main import main

system = ctypes.CDLL(None, use_errno=True)
system.mmap.restype = ctypes.c_void_p
system.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
add, empty = reading.Reading.add, os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)

def failing(self, path, identity, mapped=None):
    add(self, path, identity, mapped)
    if mapped is not None and str(path).endswith(sys.argv[2]):
        page = np.frombuffer(mapped, np.uint8).ctypes.data + int(sys.argv[3]) * mmap.PAGESIZE
        assert system.mmap(page, mmap.PAGESIZE, 1, 0x12, empty, 0) == page  # of a file that has no such page

reading.Reading.add = failing
if __name__ == "__main__":
    main(sys.argv[4:])
"""
"""A page of a mapped file that the system cannot read, as of a failing disk: the file's size and times stay."""


@pytest.mark.skipif(sys.platform != "linux", reason="rnnconvert handles unreadable pages on Linux alone (docs/reliability.md)")
@pytest.mark.parametrize("name", ["bad.safetensors", "bad.onnx", "bad.npz", "bad.tflite"])
def test_zeros_in_the_place_of_what_a_disk_cannot_read_are_no_weights(name: str, tmp_path: Path) -> None:
    source = tmp_path / name
    good = write(tmp_path / "good.safetensors", stack(hidden_size=64))
    rc.convert(good, source, target_format="haiku" if name.endswith("npz") else None)
    pages = source.stat().st_size // mmap.PAGESIZE
    commands = {
        "convert": ["convert", str(source), str(tmp_path / "o.safetensors"), "--to", "mlx"],
        "diff": ["diff", str(good), str(source)],
        **{jobs: ["batch", str(source), str(good), "--to", "mlx", "--out", str(tmp_path / jobs), "--jobs", jobs] for jobs in "12"},
    }
    (tmp_path / "failing.py").write_text(FAILING)
    for place in (pages // 2, pages - 1):
        for command, words in commands.items():
            if command != "convert" and place > pages // 2:
                continue
            script = [sys.executable, str(tmp_path / "failing.py"), str(tmp_path / "empty"), name, str(place), *words]
            done = subprocess.run(script, capture_output=True, text=True, check=False, env=ENVIRONMENT)
            assert done.returncode == 3 and name in done.stdout + done.stderr, (command, place, done.stdout, done.stderr)
            assert "Traceback" not in done.stderr and not (tmp_path / "o.safetensors").exists()
    for jobs in "12":
        assert [*(tmp_path / jobs).glob("good*")] and not [*(tmp_path / jobs).glob("bad*")]


def test_a_checkpoint_whose_file_changed_is_not_saved(tmp_path: Path) -> None:
    source = write(tmp_path / "in.safetensors")
    checkpoint = rc.load(source)
    rc.save(checkpoint, tmp_path / "good.npz", "haiku")
    os.utime(source, ns=(0, 0))
    with pytest.raises(UnreadableError, match="changed while it was read"):
        rc.save(checkpoint, tmp_path / "out.npz", "haiku")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["good.npz", "in.safetensors"]


def test_a_checkpoint_can_be_copied(tmp_path: Path) -> None:
    checkpoint = rc.load(write(tmp_path / "in.safetensors"))
    for again in (copy.deepcopy(checkpoint), pickle.loads(pickle.dumps(checkpoint))):
        rc.save(again, tmp_path / "out.npz", "haiku", force=True)


def test_a_file_may_be_replaced_by_its_own_conversion(tmp_path: Path) -> None:
    source = write(tmp_path / "a.safetensors")
    checkpoint = rc.load(source)
    rc.convert(source, source, dtype="float16", force=True)
    rc.save(checkpoint, tmp_path / "b.safetensors")
    assert {layer.dtype for layer in rc.load(tmp_path / "b.safetensors").layers.values()} == {np.dtype(np.float32)}
    assert command("convert", source, source, "--force", "-q").returncode == 0


def test_files_of_two_writes_are_not_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"1")
    with reading():
        map_file(path)
        other = tmp_path / "y"
        other.write_bytes(b"2")
        other.replace(path)
        with pytest.raises(UnreadableError, match="changed"):
            map_file(path)


# Small files that cost much -----------------------------------------------------------------------------


def rnn(nodes: list[onnx.NodeProto], path: Path) -> Path:
    initializers = [
        helper.make_tensor(name, 1, shape, np.ones(shape).ravel())
        for name, shape in (("w", (1, 9, 2)), ("R", (1, 9, 3)), ("long", (1, 6000)))
    ]
    inputs = [helper.make_tensor_value_info("X", 1, [None, None, 2])]
    gru = helper.make_node("GRU", ["X", "W", "R"], ["Y"], hidden_size=3)
    graph = helper.make_graph([*nodes, gru], "g", inputs, [helper.make_tensor_value_info("Y", 1, None)], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return path


def test_parts_that_nobody_counts_are_not_made(tmp_path: Path) -> None:
    """Once 3.8 GB, of a file of 321 bytes."""
    path = rnn([helper.make_node("Split", ["w"], ["W", "rest"], axis=1, num_outputs=250_000_000)], tmp_path / "a.onnx")
    start = time.process_time()
    assert not rc.load(path).layers
    assert time.process_time() - start < 5


def test_a_node_is_folded_once_whatever_takes_its_outputs(tmp_path: Path) -> None:
    """Once quadratic: over a minute for a file of 438 KB."""
    names = [f"part{number}" for number in range(6000)]
    nodes = [
        helper.make_node("Split", ["long"], names, axis=1, num_outputs=6000), helper.make_node("Concat", names, ["all"], axis=1),
        helper.make_node("Split", ["w"], ["W"], axis=1, num_outputs=1),
    ]  # fmt: skip
    start = time.process_time()
    assert rc.load(rnn(nodes, tmp_path / "a.onnx")).layers
    assert time.process_time() - start < 5


def test_msgpack_is_read_in_time_of_its_size(tmp_path: Path) -> None:
    """Once 67 microseconds a byte, for each format that looked."""
    inner = b"\xde\xff\xff" + b"".join(b"\xcd" + number.to_bytes(2, "big") + b"\x90" for number in range(65535))
    for body in (b"\xdd" + (1 << 19).to_bytes(4, "big") + b"\x90" * (1 << 19), inner, b"\xdc\x80\x00" + b"\xd4\x02\x00" * 32768):
        path = tmp_path / "a.msgpack"
        path.write_bytes(b"\x81\xa1a" + body)
        start = time.process_time()
        with contextlib.suppress(rc.RnnConvertError):
            assert not rc.load(path).layers
        assert time.process_time() - start < 10e-6 * path.stat().st_size + 1


def test_the_budget_of_a_reading_is_that_of_its_files() -> None:
    with reading() as budget:
        budget.allow(1000)
        budget.work(2_000_000, "x")
        with reading() as same, pytest.raises(BudgetError, match="more work"):
            same.work(2001, "x")
        with pytest.raises(BudgetError, match="64 MiB of memory, for a file of 1000 bytes"):
            budget.memory((64 << 20) + 64_001, "x")
    assert issubclass(BudgetError, UnreadableError) and BudgetError.exit_code == 3


def table(*blocks: bytes, handles: int) -> bytes:
    """A table whose index leads to its first block again and again; the checksums are right."""
    out = bytearray()

    def add(content: bytes) -> bytes:
        handle = wire.varint(len(out)) + wire.varint(len(content))
        out.extend(content + b"\0" + struct.pack("<I", masked(crc32c(content + b"\0"))))
        return handle

    (first,) = map(add, blocks)
    empty = struct.pack("<2I", 0, 1)
    index = b"".join(b"\0\x08" + bytes([len(first)]) + b"%08d" % number + first for number in range(handles))
    footer = add(empty) + add(index + empty)
    return bytes(out) + footer.ljust(40, b"\0") + sorted_table.MAGIC


def test_a_table_is_no_larger_than_its_bytes() -> None:
    """Each key the one before it and a letter, or one block for all handles: small files that would take hours or gigabytes."""
    growing = b"".join(wire.varint(number) + b"\x01\x00a" for number in range(40_000)) + struct.pack("<2I", 0, 1)
    hollow = bytes(400_000) + struct.pack("<I", 100_000)
    for content, handles, message in ((growing, 1, "memory"), (hollow, 20_000, "more work")):
        data = table(content, handles=handles)
        with pytest.raises(BudgetError, match=message):
            sorted_table.read(memoryview(data), "a.index")


def test_names_that_stand_twice_are_found_at_once() -> None:
    assert first_twice(f"{number % 299_999}" for number in range(300_000)) == "0"
    assert first_twice(["a", "b"]) is None


@pytest.mark.parametrize("name", ["x.onnx", "x.safetensors", "model.safetensors.index.json", "x.bin.json", "external"])
def test_a_pipe_is_waited_for_by_nobody(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "external":
        source = write(tmp_path / "x.onnx", stack(hidden_size=16), settings=["external_data=true"])
        (path,) = tmp_path.glob("*.data")
        path.unlink()
    elif name == "x.bin.json":
        source = write(tmp_path / "x.bin")
        path.unlink()
    else:
        source = path
    os.mkfifo(path)
    done = command("convert", source, tmp_path / "out.npz", "--to", "haiku", timeout=30)
    assert done.returncode in (2, 3), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["5", "[1]", '"x"', "null", '{"weight_map": 1}', '{"weight_map": {"a": "' + "x" * 400 + '"}}'])
def test_an_index_that_is_none_is_unreadable(text: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(text)
    with pytest.raises(UnreadableError):
        rc.load(path)


# Outputs that cannot be written -------------------------------------------------------------------------

full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")


@full
@pytest.mark.parametrize("words", [["--help"], ["inspect", "{}", "--json"], ["inspect", "{}"]], ids=str)
def test_a_full_output_ends_with_its_own_code(words: list[str], tmp_path: Path) -> None:
    source = str(write(tmp_path / "a.safetensors"))
    words = [word.format(source) for word in words]
    for stream in ("stdout", "stderr"):
        with open("/dev/full", "w") as nowhere:  # noqa: PTH123
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: nowhere, "capture_output": False}
            done = command(*words, **pipes)
        assert done.returncode == (74 if stream == "stdout" else 0), (words, done.stderr)
        assert "Traceback" not in (done.stderr or "")


@full
def test_an_error_that_cannot_be_printed_keeps_its_code(tmp_path: Path) -> None:
    with open("/dev/full", "w") as nowhere:  # noqa: PTH123
        done = command("inspect", tmp_path / "none", stdout=nowhere, stderr=nowhere, capture_output=False)
    assert done.returncode == 3


def test_a_fault_of_ours_is_never_not_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from rnnconvert.cli.main import main

    def fails(*_: object, **__: object) -> None:
        raise KeyError("x")

    command = main.get_command(click.Context(main), "formats")
    assert command is not None
    monkeypatch.setattr(command, "callback", fails)
    result = CliRunner().invoke(main, ["formats"])
    assert result.exit_code == 70 and "fault of rnnconvert (KeyError: 'x')" in result.output
    assert "Traceback" in CliRunner().invoke(main, ["--debug", "formats"]).output


STARTING = """
from rnnconvert.cli import starting
print(1, flush=True)
from rnnconvert.cli.main import main
main(["formats"])
"""


@pytest.mark.parametrize("after", [0.0, 0.05, 0.2])
def test_ctrl_c_while_it_starts_is_an_interrupt(after: float) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", STARTING],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT,
    )  # fmt: skip
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(after)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode in (-signal.SIGINT, 130, 0), (child.returncode, err)
    assert b"Traceback" not in err


INTERRUPTED_IMPORT = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets background jobs ignore it
from rnnconvert.cli import starting
from rnnconvert.cli.main import main
import click
sys.path.insert(0, sys.argv[1])

def loads(**_):
    import interrupts_itself
    import time
    time.sleep(30)

main.get_command(click.Context(main), "formats").callback = loads
main(["formats"])
"""


def test_ctrl_c_within_an_import_waits_for_its_end(tmp_path: Path) -> None:
    body = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(0.2)\nprint('whole', flush=True)\n"
    (tmp_path / "interrupts_itself.py").write_text(body)
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT, tmp_path], capture_output=True, env=ENVIRONMENT, timeout=25)
    assert (done.returncode, done.stdout) == (130, b"whole\n"), done.stderr
    assert b"Traceback" not in done.stderr


# Targets ------------------------------------------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_target_keeps_its_permissions(tmp_path: Path) -> None:
    for name in ("a.npz", "a.onnx", "a.keras"):
        path, fresh = tmp_path / name, tmp_path / f"fresh-{name}"
        path.write_bytes(b"")
        path.chmod(0o600)
        options = {"target_format": "haiku"} if name == "a.npz" else {}
        write(path, force=True, **options)
        write(fresh, **options)
        assert mode(path) == 0o600
        umask = os.umask(0)
        os.umask(umask)
        assert mode(fresh) == 0o666 & ~umask


def test_numbers_beside_a_private_file_are_private(tmp_path: Path) -> None:
    path = write(tmp_path / "a.onnx")
    path.chmod(0o640)
    write(path, stack(hidden_size=16), force=True, settings=["external_data=true"])
    assert {mode(file) for file in tmp_path.iterdir()} == {0o640}


def test_another_name_of_a_file_keeps_the_old_content(tmp_path: Path) -> None:
    """As with mv: the name is given to the new file."""
    path = write(tmp_path / "a.safetensors")
    os.link(path, tmp_path / "b.safetensors")
    before = path.read_bytes()
    write(path, stack(hidden_size=9), force=True)
    assert (tmp_path / "b.safetensors").read_bytes() == before != path.read_bytes()


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    """As with cp: what the link points to is written, in its own folder."""
    (tmp_path / "far").mkdir()
    path = write(tmp_path / "far" / "a.safetensors")
    link = tmp_path / "link.safetensors"
    link.symlink_to(path)
    write(link, stack(hidden_size=9), force=True)
    assert link.is_symlink() and {layer.hidden_size for layer in rc.load(path).layers.values()} == {9}
    assert [file.name for file in path.parent.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_file_is_not_replaced(force: bool, tmp_path: Path) -> None:
    (tmp_path / "none.npz").symlink_to(tmp_path / "nothing")
    (tmp_path / "round.npz").symlink_to(tmp_path / "round.npz")
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "folder.npz").mkdir()
    before = sorted(file.name for file in tmp_path.iterdir())
    for name in ("none.npz", "round.npz", "pipe.npz", "folder.npz"):
        with pytest.raises(UsageError):
            write(tmp_path / name, force=force, target_format="haiku")
    assert sorted(file.name for file in tmp_path.iterdir()) == before


def test_several_files_do_not_go_through_a_link(tmp_path: Path) -> None:
    path = write(tmp_path / "a.onnx")
    (tmp_path / "b.onnx").symlink_to(path)
    with pytest.raises(UsageError, match="several files are written"):
        write(tmp_path / "b.onnx", stack(hidden_size=16), force=True, settings=["external_data=true"])


# What killed processes leave ----------------------------------------------------------------------------

SLOW = """
import sys, time
from pathlib import Path
from rnnconvert.containers import temporary
from rnnconvert.containers.files import replacing
path = Path(sys.argv[1])
with replacing(path) as file, temporary.new_folder(path) as folder:
    (folder / "x").write_text("x")
    file.write(b"half")
    file.flush()
    print("here", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("moment", ["made", "locked"])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_being_made_is_not_taken_for_what_a_killed_run_left(
    kind: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process looks into the folder between the two steps, and has removed it before the second, or only locked it."""
    opened = os.open
    removers: list[threading.Thread] = []

    def interrupted(path: Any, flags: int, mode: int = 0o777, **others: Any) -> int:
        handle = opened(path, flags, mode, **others)
        if not removers and flags & os.O_CREAT:
            locked = threading.Event()

            def remove() -> None:
                other = opened(path, os.O_RDWR)
                fcntl.flock(other, fcntl.LOCK_EX)
                locked.set()
                time.sleep(0.2 if moment == "locked" else 0)
                shutil.rmtree(str(path).removesuffix(".lock"), ignore_errors=True)
                Path(path).unlink()
                os.close(other)

            removers.append(threading.Thread(target=remove))
            removers[0].start()
            locked.wait()
            if moment == "made":
                removers[0].join()
        return handle

    monkeypatch.setattr(os, "open", interrupted)
    if kind == "file":
        handle, path = temporary.new_file(tmp_path / "a.pt", 0o600)
        removers[0].join()
        assert path.is_file()
        os.close(handle)
        return
    with temporary.new_folder(tmp_path / "a.pt") as folder:
        monkeypatch.undo()
        removers[0].join()
        (folder / "x").write_text("x")
        temporary.sweep(tmp_path)
        assert (folder / "x").is_file()
    assert not list(tmp_path.iterdir())


def test_the_next_run_removes_what_a_killed_one_left_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.safetensors"
    children = [subprocess.Popen([sys.executable, "-c", SLOW, str(target)], stdout=subprocess.PIPE, env=ENVIRONMENT) for _ in range(3)]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    others = [".a.safetensors.backup.part", ".x.rnnconvert-1-0123456.part", "x.rnnconvert-1-01234567.part"]
    for name in others:
        (tmp_path / name).write_text("mine")
    assert len(list(tmp_path.iterdir())) == 3 * 3 + len(others)
    for child, kill in zip(children, (signal.SIGKILL, signal.SIGBUS, None), strict=True):
        if kill is not None:
            child.send_signal(kill)
            child.wait()
    temporary._swept.clear()
    write(target)
    alive = children[2]
    left = sorted(file.name for file in tmp_path.iterdir() if file.name not in others)
    assert len(left) == 4 and all(f"rnnconvert-{alive.pid}-" in name for name in left[:-1]), left
    alive.kill()
    alive.wait()
    temporary._swept.clear()
    write(target, force=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([*others, target.name])
    for child in children:
        assert child.stdout is not None
        child.stdout.close()


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_can_be_caught_leaves_nothing(by: signal.Signals, tmp_path: Path) -> None:
    source = write(tmp_path / "a.safetensors")
    code = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore it, and so would this process
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from rnnconvert.files.finite import FiniteWatch
from rnnconvert.cli.main import main
def wait(self, piece):
    print("here", flush=True)
    time.sleep(60)
FiniteWatch.__call__ = wait
main(["convert", sys.argv[1], sys.argv[2]])
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(source), str(tmp_path / "out.onnx")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT,
    )  # fmt: skip
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(by)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130 and b"interrupted" in err, err
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]


# Executors ----------------------------------------------------------------------------------------------

HANGS = """\
    if request["file"] == "limits":
        try:
            socket.create_connection(("127.0.0.1", PORT), 1).close()
            reached = True
        except OSError:
            reached = False
        which = (resource.RLIMIT_CORE, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE)
        return {"limits": [resource.getrlimit(one)[0] for one in which], "reached": reached}
    time.sleep(60)
"""


def hanging(port: str, imports: str = "") -> str:
    """Return the module of an executor that answers what its limits are, and nothing else."""
    return module_text(HANGS.replace("PORT", port), f"import resource, socket, time\n{imports}")


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Executor]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        module = tmp_path / "own.py"
        module.write_text(hanging(str(server.getsockname()[1])))
        yield Executor("own", str(module), "own")


@pytest.mark.own_processes
def test_an_executor_that_hangs_is_ended(executor: Executor) -> None:
    with parent.started(executor) as process:
        process.timeout = 1
        start = time.monotonic()
        for _ in range(2):
            with pytest.raises(rc.ExecutorError, match=r"did not answer within 1 s\. Give it more with "):
                process.ask(file="x", layers=[])
        assert time.monotonic() - start < 10


@pytest.mark.own_processes
def test_the_environment_says_how_long_an_executor_may_take(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(parent.TIMEOUT, "0.5")
    with parent.started(executor) as process, pytest.raises(rc.ExecutorError, match=r"within 0\.5 s\. .* RNNCONVERT_TIMEOUT=SECONDS"):
        process.ask(file="x", layers=[])
    for wrong in ("soon", "-1", "inf", "nan"):
        monkeypatch.setenv(parent.TIMEOUT, wrong)
        with parent.started(executor) as process, pytest.raises(rc.UsageError, match=f"RNNCONVERT_TIMEOUT is '{wrong}'"):
            process.ask(file="x", layers=[])


@pytest.mark.own_processes
def test_processes_are_kept_until_they_end_are_spent_or_too_many(executor: Executor) -> None:
    quiet, other = registry.built_in()["torch-cpu"], registry.built_in()["onnxruntime-cpu"]

    def used(executor: Executor) -> int:
        with parent.running(executor) as process:
            return process.worker.process.pid

    with keeping():
        assert len({used(quiet) for _ in range(3)}) == 1
        assert used(executor) != used(executor)  # what a user wrote may keep anything
        with pytest.raises(KeyboardInterrupt), parent.running(quiet) as process:
            raise KeyboardInterrupt
        assert process.ended and used(quiet) != process.worker.process.pid
        last = used(quiet)
        os.kill(last, signal.SIGKILL)
        os.waitid(os.P_PID, last, os.WEXITED | os.WNOWAIT)
        assert used(quiet) != last
    with pytest.raises(ProcessLookupError):
        os.kill(last, 0)
    keeper = KeptProcesses(most=1, most_uses=2)
    pids = []
    for each in (quiet, quiet, quiet, other, quiet):
        with keeper.running(each) as process:
            pids.append(process.worker.process.pid)
    keeper.end()
    assert pids[0] == pids[1] and len(set(pids)) == 4 and process.ended


@pytest.mark.own_processes
def test_an_executor_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "own.py"
    module.write_text(hanging("9", "import atexit\natexit.register(time.sleep, 60)"))
    monkeypatch.setattr(parent, "FAREWELL", 0.2)
    start = time.monotonic()
    with parent.started(Executor("own", str(module), "own")) as process:
        assert process.ask(file="limits", layers=[])["reached"] is False
    assert time.monotonic() - start < 20


def test_a_request_may_take_as_long_as_its_size_suggests(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 30)
    assert parent._patience({"file": "none"}) == 600
    assert parent._patience({"file": str(tmp_path / "large"), "x": np.zeros(1 << 20)}) > 600 + 1000


@pytest.mark.own_processes
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other limits")
def test_executors_on_the_cpu_are_bounded_and_have_no_network(executor: Executor) -> None:
    """The network is left where the system lets a process leave it; here it may not."""
    with parent.started(executor) as process:
        answer = process.ask(file="limits", layers=[])
    core, data, largest = answer["limits"]
    assert core == 0 and 0 < data <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") and 0 < largest <= 64 << 30
    flags = 0x50000000 if os.getuid() else 0x40000000
    leave = "import ctypes; raise SystemExit(ctypes.CDLL(None).unshare(FLAGS) != 0)".replace("FLAGS", str(flags))
    apart = subprocess.run([sys.executable, "-c", leave], check=False)
    assert answer["reached"] == (apart.returncode != 0)
