"""Disks that are truly full: a file system of a megabyte, mounted where the machine permits it, and the kernel's own limit elsewhere."""

from __future__ import annotations

import contextlib
import gzip
import json
import lzma
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.containers import safetensors, writing
from rnnconvert.core.errors import OutputError, UsageError
from rnnconvert.running.registry import built_in
from rnnconvert.verification.cache import Cache
from tests import ROOT
from tests.batch.test_batch import arrays, call
from tests.helpers.requirements import need

SIZE = 1 << 20
TARGETS = {
    "m.onnx": "onnx", "m.safetensors": "pytorch", "m.pt": "pytorch", "m.npz": "chainer", "m.h5": "keras", "m.weights.h5": "keras",
    "m.keras": "keras", "m.params": "mxnet", "m.t7": "torch7", "m.bin": "cudnn", "m.h": "c_header",
}  # fmt: skip


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that is a file system of a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("this machine mounts nothing for us")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, free: int = 0) -> Path:
    """Fill a disk, but for some bytes."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    os.truncate(path, path.stat().st_size - free)
    return path


@pytest.mark.parametrize("name", TARGETS)
def test_convert_leaves_the_old_file_and_nothing_else(name: str, disk: Path, tmp_path: Path) -> None:
    small, large = (tmp_path / f"{hidden}.safetensors" for hidden in (4, 300))
    safetensors.write(small, arrays(1, 4))
    safetensors.write(large, arrays(1, 300))
    words = ["convert", str(small), str(disk / name), "--to", TARGETS[name], "--force"]
    assert CliRunner().invoke(main, words).exit_code == 0
    old = {file: file.read_bytes() for file in disk.iterdir()}
    words[1] = str(large)
    for free in (0, 4096, 400_000):
        filler = fill(disk, free)
        done = CliRunner().invoke(main, words)
        filler.unlink()
        assert done.exit_code == 74 and "No space left" in done.output and str(disk / name) in done.output, done.output
        assert {file: file.read_bytes() for file in disk.iterdir()} == old


def test_too_little_room_is_known_before_a_large_array_is_written(disk: Path) -> None:
    with (disk / "m").open("wb") as file, pytest.raises(OSError, match="No space left"):
        writing.reserve(file.fileno(), 0, 2 * SIZE)


def test_a_batch_goes_on_when_there_is_room_again(disk: Path, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    for number, hidden in enumerate((4, 300, 4, 300)):
        safetensors.write(tmp_path / "m" / f"m{number}.safetensors", arrays(number, hidden))
    words = (tmp_path / "m" / "*.safetensors", "--to", "onnx", "--out", disk, "--json", "--jobs")
    for jobs in (1, 2):
        code, output = call(*words, jobs, "--journal", tmp_path / f"j{jobs}")
        document = json.loads(output[output.index("{") :])
        assert code == 74 and "No space left" in output, output
        written = {Path(entry["target"]).name for entry in document["files"] if not entry["code"]}
        # Of two at a time a small file may find no room while a large one is written.
        assert written == {"m0.onnx", "m2.onnx"} or (jobs == 2 and written <= {"m0.onnx", "m2.onnx"})
        assert {file.name for file in disk.iterdir()} == written
        for file in disk.iterdir():
            file.unlink()
    subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
    code, output = call(*words, 1, "--journal", tmp_path / "j1")
    assert code == 0 and {file.name for file in disk.iterdir()} == {f"m{n}.onnx" for n in range(4)}


@pytest.mark.parametrize(("free", "jobs"), [(0, 1), (8192, 1), (8192, 2)])
def test_a_full_disk_of_the_journal_is_named_and_resumed(free: int, jobs: int, disk: Path, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    for number in range(24):
        safetensors.write(tmp_path / "m" / f"m{number}.safetensors", arrays(number))
    words: tuple[object, ...] = (tmp_path / "m" / "*.safetensors", "--to", "onnx", "--out", tmp_path / "out", "--json")
    words += ("--jobs", jobs, "--journal", disk / "j")
    filler = fill(disk, free)
    code, output = call(*words)
    assert code == 74 and f"{disk / 'j'}: the journal cannot be written: No space left on device. Free" in output, output
    filler.unlink()
    lines = max(0, (disk / "j").read_bytes().count(b"\n") - 1)
    assert lines == 0 if not free else lines > 3
    code, output = call(*words)
    assert code == 0 and json.loads(output)["resumed"] == lines
    assert len(list((tmp_path / "out").glob("*.onnx"))) == 24


def test_what_the_kernel_refuses_is_named_and_resumed(tmp_path: Path) -> None:
    """Files of at most 4,000 bytes: the third model is larger, and so is the journal after some lines."""
    (tmp_path / "m").mkdir()
    for number in range(12):
        safetensors.write(tmp_path / "m" / f"m{number:02}.safetensors", arrays(number, 30 if number == 2 else 4))
    words = [str(tmp_path / "m" / "*.safetensors"), "--to", "onnx", "--out", str(tmp_path / "out"), "--jobs", "1"]
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000)); from rnnconvert.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", limited, "batch", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 74 and "m02.onnx: cannot write: File too large" in done.stderr, done.stderr
    assert "the journal cannot be written: File too large. Free the disk, and run it again" in done.stderr
    lines = (tmp_path / "out" / "rnnconvert-batch.jsonl").read_text().splitlines()[1:]
    assert 3 < len(lines) < 12
    code, output = call(*words, "--json")
    assert code == 0 and json.loads(output)["resumed"] == len(lines) - 1
    assert len(list((tmp_path / "out").iterdir())) == 13


def packed(folder: Path) -> dict[str, Path]:
    """One model, as what commands keep in the temporary folder before they read it."""
    safetensors.write(folder / "m.safetensors", arrays(1, 300))
    for name in ("m.pt", "m.keras"):
        assert CliRunner().invoke(main, ["convert", str(folder / "m.safetensors"), str(folder / name)]).exit_code == 0
    for suffix, module in ((".gz", gzip), (".xz", lzma)):
        (folder / f"m.pt{suffix}").write_bytes(module.compress((folder / "m.pt").read_bytes()))
    with zipfile.ZipFile(folder / "m.keras") as stored, zipfile.ZipFile(folder / "small.keras", "w", zipfile.ZIP_DEFLATED) as small:
        for name in stored.namelist():
            small.writestr(name, stored.read(name))
    return {file.name: file for file in folder.iterdir() if file.is_file()}


@pytest.fixture
def full(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder that has room for names, and not for a model."""
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    fill(disk, 200_000)
    return disk


@pytest.mark.parametrize("name", ["m.pt.gz", "m.pt.xz", "small.keras", "-", "stdout", "file:m.pt", "batch"])
def test_a_full_temporary_folder_is_named(name: str, full: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    models = packed(tmp_path / "in")
    target = tmp_path / "out.onnx"
    target.write_bytes(b"old")
    there = {file: file.read_bytes() for file in (*models.values(), target)}
    model = str(models["m.pt"])
    words = {
        "-": ["convert", "-", str(target), "--force"],
        "stdout": ["convert", model, "-", "--to", "onnx"],
        "file:m.pt": ["batch", f"file://{model}", "--to", "onnx", "--out", str(tmp_path / "out"), "--jobs", "1"],
        "batch": ["batch", model, "--to", "onnx", "--out", "memory://out", "--journal", str(tmp_path / "j"), "--jobs", "1"],
    }.get(name) or ["convert", str(models.get(name)), str(target), "--force"]  # fmt: skip
    done = CliRunner().invoke(main, words, input=models["m.pt"].read_bytes() if name == "-" else None)
    assert done.exit_code == 74 and "Traceback" not in done.output, done.output
    assert f"temporary folder {full}" in done.output and "Set TMPDIR to a larger disk" in done.output, done.output
    assert {file: file.read_bytes() for file in there} == there
    left = [file.name for file in full.iterdir() if file.name != "filler"]
    assert not left or name in ("m.pt.gz", "m.pt.xz")  # what the process itself removes when it ends


def test_bytes_that_do_not_fit_into_the_temporary_folder_are_refused(full: Path, tmp_path: Path) -> None:
    safetensors.write(tmp_path / "m.safetensors", arrays(1, 300))
    with pytest.raises(UsageError, match=f"in memory\\).* temporary folder {full}: No space left on device. Set TMPDIR"):
        rc.load((tmp_path / "m.safetensors").read_bytes())


def test_a_process_leaves_nothing_in_a_full_temporary_folder(disk: Path, tmp_path: Path) -> None:
    models = packed(tmp_path)
    fill(disk, 200_000)
    words = [sys.executable, "-m", "rnnconvert", "inspect", str(models["m.pt.gz"])]
    done = subprocess.run(words, env={**os.environ, "TMPDIR": str(disk)}, capture_output=True, text=True, check=False)
    assert done.returncode == 74 and f"temporary folder {disk}: No space left" in done.stderr, done.stderr
    assert [file.name for file in disk.iterdir()] == ["filler"]


UPGRADED = ROOT / "examples" / "old_tagger.h5"
UNROLLED = ROOT / "tests" / "golden" / "fuse" / "dynamo_gru_cell.onnx"
WRITING: dict[str, tuple[list[str], list[str]]] = {
    "upgrade": ([str(UPGRADED), "DISK/new.keras"], ["new.keras"]),
    "export": (["new.keras", "DISK/new.onnx"], ["new.onnx"]),
    "scaffold": (["new.keras", "-o", "DISK/m.py", "--weights", "DISK/m.pt"], ["m.py", "m.pt"]),
    "fuse": ([str(UNROLLED), "-o", "DISK/fast.onnx"], ["fast.onnx"]),
    "transplant": (["4.safetensors", "--into", "5.safetensors", "-o", "DISK/o.safetensors"], ["o.safetensors"]),
    "map": (["4.safetensors", "5.safetensors", "-o", "DISK/map.yaml"], ["map.yaml"]),
}
"""What a command that writes a file is called with, and the files that it writes."""


@pytest.mark.parametrize("command", WRITING)
def test_a_disk_that_is_full_or_read_only_keeps_what_each_command_would_replace(
    command: str, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (4, 5):
        safetensors.write(tmp_path / f"{seed}.safetensors", arrays(seed))
    if "new.keras" in WRITING[command][0]:
        rc.upgrade(UPGRADED, "new.keras")
    words, targets = WRITING[command]
    call_of = [command, *[word.replace("DISK", str(disk)) for word in words], "--force"]
    old = "layers: {}\n"  # which may be a mapping, too
    for target in targets:
        (disk / target).write_text(old)
    for free in (0, 4096):
        filler = fill(disk, free)
        done = CliRunner().invoke(main, call_of)
        filler.unlink()
        if done.exit_code == 0 and free:  # it fits
            continue
        assert done.exit_code == 74 and "No space left" in done.output and str(disk) in done.output, done.output
        assert {file.name: file.read_text() for file in disk.iterdir()} == dict.fromkeys(targets, old)
    for target in targets:
        (disk / target).write_text(old)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    done = CliRunner().invoke(main, call_of)
    assert done.exit_code == 74 and "Read-only file system" in done.output, done.output
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    assert {file.name: file.read_text() for file in disk.iterdir()} == dict.fromkeys(targets, old)
    assert CliRunner().invoke(main, call_of).exit_code == 0
    assert all((disk / target).read_bytes() != old.encode() for target in targets)


FILLED: dict[str, list[str]] = {
    "fuse": [str(UNROLLED), "-o", "out.onnx"],
    "export": ["packed.keras.gz", "out.onnx"],
    "upgrade": ["old.h5.gz", "out.keras"],
    "view": ["packed.safetensors.gz", "-o", "out.html"],
    "transplant": ["packed.safetensors.gz", "--into", "packed.safetensors", "-o", "out.safetensors"],
    "scaffold": ["packed.keras.gz", "-o", "out.py", "--weights", "out.pt"],
}
"""What each command is called with so that it writes into the temporary folder, and the files that it would replace."""


@pytest.mark.parametrize("command", FILLED)
def test_a_full_temporary_folder_is_named_by_all(command: str, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    safetensors.write(tmp_path / "packed.safetensors", arrays(4, 300))
    rc.upgrade(UPGRADED, "packed.keras")
    for name, source in (("packed.safetensors", "packed.safetensors"), ("packed.keras", "packed.keras"), ("old.h5", UPGRADED)):
        Path(f"{name}.gz").write_bytes(gzip.compress(Path(source).read_bytes()))
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    fill(disk, 4096)
    targets = [Path(word) for word in FILLED[command] if word.startswith("out.")]
    for target in targets:
        target.write_text("old")
    done = CliRunner().invoke(main, [command, *FILLED[command], "--force"])
    assert done.exit_code == 74 and "Traceback" not in done.output, done.output
    assert f"temporary folder {disk}: No space left on device. Set TMPDIR to a larger disk" in done.output, done.output
    assert all(target.read_text() == "old" for target in targets)


EXECUTED: dict[str, tuple[str, str, list[str]]] = {
    "a header": ("gcc", "c-cc", ["verify", "s.h", "s.safetensors", "--on", "c-cc"]),
    "a written header": ("gcc", "c-cc", ["convert", "s.safetensors", "out.h", "--verify", "--force"]),
    "a file": ("keras", "keras-tensorflow", ["verify", "s.keras", "s.safetensors"]),
    "a written model": ("keras", "keras-tensorflow", ["scaffold", "whole.keras", "-o", "out.py", "--verify", "--force"]),
    "an exported model": ("keras", "keras-tensorflow", ["export", "whole.keras", "out.onnx", "--verify", "--force"]),
}
"""Commands whose executors write into the temporary folder, and what these need; the proof of `upgrade` writes next to its target."""


@pytest.mark.parametrize("case", EXECUTED)
def test_a_temporary_folder_that_is_full_to_an_executor_is_named(
    case: str, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much room is left, the command ends well or names the folder: a disk is never a verdict on a model."""
    package, executor, words = EXECUTED[case]
    need(package, built_in()[executor].absent)
    monkeypatch.chdir(tmp_path)
    safetensors.write(tmp_path / "s.safetensors", arrays(1, 8))
    for name in ("s.h", "s.keras"):
        rc.convert("s.safetensors", name)
    rc.upgrade(UPGRADED, "whole.keras")
    target = Path(next((word for word in words if word.startswith("out.")), "none"))
    refused = 0
    for free in (0, 4096, 16_384, 32_768, 65_536) if package == "gcc" else (16_384,):
        filler = fill(disk, free)
        if target.name != "none":
            target.write_text("old")
        environment = {**os.environ, "TMPDIR": str(disk)}
        done = subprocess.run([sys.executable, "-m", "rnnconvert", *words], env=environment, capture_output=True, text=True, check=False)
        filler.unlink()
        assert done.returncode in (0, 74), (free, done.stdout, done.stderr)
        if done.returncode:
            refused += 1
            words_of = (f"temporary folder {disk}", "No space left on device", "Set TMPDIR to a larger disk")
            assert all(text in done.stderr for text in words_of), done.stderr
            assert target.name == "none" or target.read_text() == "old"
    assert refused and not [*disk.iterdir()]


def test_a_folder_of_proofs_that_cannot_be_made_is_a_target_that_cannot_be_written(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(OutputError, match="Read-only"):
        Cache(disk / "proofs")
    with pytest.raises(UsageError, match="Choose another path"):
        Cache(__file__)
