"""Many files at once: resumed, whatever happens to one of them, a worker, the journal or the store."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.batch import manifest, stores, uploads
from rnnconvert.batch.journal import Journal, JournalEntry
from rnnconvert.batch.run import BatchResult, run, work_several
from rnnconvert.batch.workers import Workers
from rnnconvert.cli.main import main
from rnnconvert.containers import asking, safetensors
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from rnnconvert.language.packing import pack
from rnnconvert.running.child import missing
from tests.helpers.requirements import need
from tests.helpers.stacks import BOTH, random_stack

fsspec = pytest.importorskip("fsspec")


def arrays(seed: int, hidden: int = 4) -> dict[str, Any]:
    stack = random_stack(Sizes("lstm", 3, hidden, 1, 1, 0, BOTH), seed, np.float32)
    return {f"rnn.{name}": np.asarray(array) for name, array in pack(registry.layouts()["pytorch.lstm"], stack).items()}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    for number in range(6):
        safetensors.write(folder / f"m{number}.safetensors", arrays(number))
    (folder / "bad.safetensors").write_bytes(b"no model at all")
    return folder


@pytest.fixture
def memory() -> Iterator[Any]:
    """A store in memory, emptied afterwards."""
    store = fsspec.filesystem("memory")
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


def call(*words: object, command: str = "batch") -> tuple[int, str]:
    done = CliRunner().invoke(main, [command, *map(str, words)])
    return done.exit_code, done.output


def test_one_bad_file_never_stops_the_others(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    reports = [word for ending in ("json", "html", "xml") for word in ("--report", tmp_path / f"r.{ending}")]
    code, output = call(models / "*.safetensors", "--to", "onnx", "--out", out, "--jobs", 1, *reports)
    assert code == 3 and "6  converted" in output and "1  unreadable" in output
    assert sorted(path.name for path in out.glob("*.onnx")) == [f"m{number}.onnx" for number in range(6)]
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["exit_code"] == 3 and report["counts"] == {"0": 6, "3": 1}
    assert [entry["source"] for entry in report["files"] if entry["code"]] == [str(models / "bad.safetensors")]
    (suite,) = ElementTree.parse(tmp_path / "r.xml").getroot()
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures")) == ("7", "1", "0")
    page = (tmp_path / "r.html").read_text()
    assert page.index("bad.safetensors") < page.index("m0.safetensors") and "6 of 7" in page
    assert all(rc.load(path).layers for path in out.glob("*.onnx"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_file_without_a_recurrent_layer_is_counted_and_not_a_failure(
    jobs: int, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    safetensors.write(models / "cnn.safetensors", {"conv.weight": np.zeros((2, 3, 3), np.float32)})
    monkeypatch.chdir(models.parent)
    words = ["models/m0.safetensors", "models/cnn.safetensors", "--to", "onnx", "--out", "out", "--jobs", jobs]
    for _ in range(2):  # the second one does nothing
        code, output = call(*words, "--report", "r.json")
        assert code == 0 and "1  converted" in output and "1  no recurrent layer" in output and "error" not in output
        document = json.loads(Path("r.json").read_text())
        assert document["counts"] == {"0": 1} and document["without_layers"] == 1
        Path("r.json").unlink()
    assert "2 of them before" in output
    code, output = call("models/cnn.safetensors", "--to", "onnx", "--out", "other", "--jobs", jobs)
    assert code == 3 and "1  no recurrent layer" in output


@pytest.mark.parametrize("jobs", [1, 2])
def test_errors_name_the_file_once_and_flags(jobs: int, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(models / "own.npz", a=np.zeros((3, 4), np.float32))
    monkeypatch.chdir(models.parent)
    code, output = call("models/own.npz", "models/bad.safetensors", "--to", "onnx", "--out", "out", "--jobs", jobs)
    errors = [line for line in output.splitlines() if line.startswith("error")]
    assert code == 3 and len(errors) == 2
    assert not any(str(models) in line or ": models/" in line[7:] for line in errors), errors
    for word in ("source_format=", "add_layouts", "settings=", "force=True"):
        assert word not in output
    assert "--layout" in output


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_setting_for_all_is_for_the_files_that_ask_for_it(jobs: int, models: Path, tmp_path: Path) -> None:
    (models / "bad.safetensors").unlink()
    rnn = {"weight_ih_l0": np.ones((5, 3), np.float32), "weight_hh_l0": np.ones((5, 5), np.float32)}
    safetensors.write(models / "rnn.safetensors", rnn)
    words = [models / "*.safetensors", "--to", "onnx", "--jobs", jobs, "--report", tmp_path / "r.json"]
    code, output = call(*words, "--out", tmp_path / "a")
    assert code == 4 and "6  converted" in output and "1  refused" in output
    assert "\n  nonlinearity of (the module itself)" in output and "\\n" not in output
    for _ in range(2):
        code, output = call(*words, "--out", tmp_path / "a", "--set", "nonlinearity=relu")
        assert code == 0 and "7  converted" in output and "error" not in output, output
    assert "7 of them before" in output and rc.load(tmp_path / "a" / "rnn.onnx").layers["rnn"].cell.activation.name == "relu"
    code, output = call(*words, "--out", tmp_path / "b", "--set", "nonlinearity=relu", "--set", "cell_clip=3")
    assert code == 2 and "7  converted" in output and output.count("error") == 1
    assert "error: --set cell_clip=3 decides nothing in any file" in output
    assert json.loads((tmp_path / "r.json").read_text())["idle_settings"] == ["cell_clip=3"]


def test_a_setting_of_one_line_must_decide_something_there(models: Path, tmp_path: Path) -> None:
    line = {"source": str(models / "m0.safetensors"), "set": ["nonlinearity=relu"]}
    (tmp_path / "list.jsonl").write_text(json.dumps(line))
    code, output = call(tmp_path / "list.jsonl", "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)
    assert code == 2 and "decides nothing in" in output and "1  wrong line" in output


def test_a_source_that_may_not_be_read_is_unreadable(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked, opened = models / "m0.safetensors", os.open

    def refuse(file: Any, *words: Any, **more: Any) -> Any:
        if str(file) == str(locked):
            raise PermissionError(13, "Permission denied", str(locked))
        return opened(file, *words, **more)

    monkeypatch.setattr(os, "open", refuse)
    code, output = call(locked, "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)
    assert code == 3 and f"error: {locked}: Permission denied" in output and "1  unreadable" in output


def test_it_resumes_and_does_nothing_twice(models: Path, tmp_path: Path) -> None:
    words = (models / "*.safetensors", "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1, "--json")
    call(*words)
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").glob("*.onnx")}
    document = json.loads(call(*words)[1])
    assert document["resumed"] == 6 and document["exit_code"] == 3
    assert times == {file: file.stat().st_mtime_ns for file in times}
    # Another source, a target that is gone, one that is not what was written: these alone are converted again.
    safetensors.write(models / "m0.safetensors", arrays(70))
    (tmp_path / "out" / "m1.onnx").unlink()
    (tmp_path / "out" / "m2.onnx").write_bytes(b"something else")
    os.utime(models / "m3.safetensors")  # the same content
    assert json.loads(call(*words)[1])["resumed"] == 3
    changed = {file.name for file, before in times.items() if file.stat().st_mtime_ns != before}
    assert changed == {"m0.onnx", "m1.onnx", "m2.onnx"}


def test_what_is_there_before_is_replaced_only_where_that_is_asked(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "m1.onnx").write_bytes(b"mine")
    words = (models / "m*.safetensors", "--to", "onnx", "--out", out, "--jobs", 1)
    code, output = call(*words)
    assert code == 2 and "m1.onnx already exists" in output and (out / "m1.onnx").read_bytes() == b"mine"
    assert call(*words, "--force")[0] == 0
    assert "rnn" in rc.load(out / "m1.onnx").layers
    (out / "m1.onnx").write_bytes(b"changed")  # by then the journal has it
    assert call(*words)[0] == 0 and rc.load(out / "m1.onnx").layers


def test_a_journal_cut_anywhere_is_resumed(models: Path, tmp_path: Path) -> None:
    words = (models / "m*.safetensors", "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1, "--json")
    call(*words)
    journal = tmp_path / "out" / "rnnconvert-batch.jsonl"
    content = journal.read_bytes()
    for cut in (0, 5, len(content) // 2, content.rindex(b"\n", 0, -1) + 1, len(content) - 1):
        journal.write_bytes(content[:cut])
        document = json.loads(call(*words)[1])
        assert document["exit_code"] == 0 and document["resumed"] == max(0, content[:cut].count(b"\n") - 1)
        with Journal(journal) as resumed:
            assert len(resumed.entries) == 6


def test_another_file_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / "j.jsonl").write_text('{"source": "a.pt"}\n')
    with pytest.raises(UnreadableError, match="not a journal"):
        Journal(tmp_path / "j.jsonl")
    assert (tmp_path / "j.jsonl").read_text() == '{"source": "a.pt"}\n'


def test_a_journal_has_one_run(tmp_path: Path) -> None:
    with Journal(tmp_path / "j"), pytest.raises(UsageError, match="another run"):
        Journal(tmp_path / "j")


def test_wrong_lines_of_a_manifest_are_named(models: Path, tmp_path: Path) -> None:
    lines = [
        {"source": str(models / "m0.safetensors"), "target": "first.onnx", "layers": ["rnn"]},
        {"source": str(models / "m1.safetensors"), "targt": "x"},
        {"source": 5},
        {"source": str(models / "m2.safetensors"), "set": "a=b"},
    ]
    path = tmp_path / "m.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\nnot json\n\n")
    code, output = call(path, "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)
    assert code == 2 and (tmp_path / "out" / "first.onnx").exists()
    assert "line 2 of" in output and "'targt'" in output and "line 3" in output and "line 4" in output and "line 5" in output


def test_a_setting_that_no_option_has_is_one_error(models: Path, tmp_path: Path) -> None:
    code, output = call(models / "*.safetensors", "--to", "onnx", "--out", tmp_path / "out", "--set", "nonlinearty=tanh")
    assert code == 2 and output.count("Did you mean 'nonlinearity'?") == 1 and not (tmp_path / "out").exists()


def test_no_source_is_written_over(models: Path, tmp_path: Path) -> None:
    source = models / "m1.safetensors"
    before = source.read_bytes()
    code, output = call(source, "--to", "pytorch.safetensors", "--out", models, "--jobs", 1)
    assert code == 2 and "written over the source" in output and source.read_bytes() == before
    (tmp_path / "linked").symlink_to(models)
    code, output = call(models / "m*.safetensors", "--to", "pytorch.safetensors", "--out", tmp_path / "linked", "--jobs", 1)
    assert code == 2 and "written over the source" in output and source.read_bytes() == before


def test_one_target_has_one_item(models: Path, tmp_path: Path) -> None:
    source, listed = models / "m1.safetensors", tmp_path / "list.jsonl"
    lines = [{"source": str(source)}, {"source": str(source), "dtype": "float16"}]
    listed.write_text("\n".join(map(json.dumps, lines)))
    code, output = call(listed, "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)
    assert code == 2 and "twice, with different settings" in output
    lines = [{"source": str(source), "target": "x.onnx"}, {"source": str(models / "m2.safetensors"), "target": "../out/x.onnx"}]
    listed.write_text("\n".join(map(json.dumps, lines)))
    code, output = call(listed, "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)
    assert code == 2 and "would both be written" in output
    code, output = call(source, models / "m1*", "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)
    assert code == 0 and "1  converted" in output


@pytest.mark.parametrize("line", ["[" * 100_000, '{"source": "a\\u0000"}', '{"source": "a.pt", "target": "b\\u0000"}'])
def test_a_line_that_is_no_item_is_a_wrong_line(line: str, tmp_path: Path) -> None:
    listed = tmp_path / "list.jsonl"
    listed.write_text(line)
    code, output = call(listed, "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)
    assert code == 2 and "line 1 of" in output


def test_an_empty_manifest_is_named(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("# nothing\n")
    code, output = call(tmp_path / "list.txt", "--to", "onnx", "--out", tmp_path / "out")
    assert code == 2 and "names no source" in output


def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    for number in range(30):
        safetensors.write(folder / f"m{number}.safetensors", arrays(number, 64))
    items = manifest.items([str(folder / "*.safetensors")], str(tmp_path / "out"), "onnx", ".onnx").items
    killed: list[int] = []

    def seen(entry: Any, done: int, total: int) -> None:
        children = multiprocessing.active_children()
        if done in (3, 12) and children and children[0].pid is not None:
            os.kill(children[0].pid, signal.SIGKILL)
            killed.append(children[0].pid)

    with Journal(tmp_path / "j") as journal:
        done = run(items, journal, Workers(2), {}, seen)
    assert killed and done.code == 0 and len(done.entries) == 30
    lines = [json.loads(line) for line in (tmp_path / "j").read_text().splitlines()[1:]]
    assert len({row["key"] for row in lines}) == len(lines) == 30
    assert len(list((tmp_path / "out").glob("*"))) == 30  # and no part of a file


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    folder, out = tmp_path / "models", tmp_path / "out"
    folder.mkdir()
    for number in range(400):
        safetensors.write(folder / f"m{number}.safetensors", arrays(number, 64))
    words = ["batch", str(folder / "*.safetensors"), "--to", "onnx", "--out", str(out), "--jobs", "2"]
    parent = subprocess.Popen([sys.executable, "-m", "rnnconvert", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while not any(out.glob("*.onnx")) and parent.poll() is None:
        time.sleep(0.01)
    parent.kill()
    # The pipe is at its end when nobody has it open.
    parent.communicate(timeout=30)
    assert parent.returncode == -signal.SIGKILL
    assert 0 < len(list(out.glob("*.onnx"))) < 400


def deadly(items: Sequence[manifest.Item], options: dict[str, Any]) -> list[JournalEntry]:
    """Convert files; one of them kills its worker."""
    if any(item.source.endswith("m2.safetensors") for item in items):
        os.kill(os.getpid(), signal.SIGKILL)
    return work_several(items, options)


def test_a_file_that_kills_its_worker_is_named(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = manifest.items([str(models / "m*.safetensors")], str(tmp_path / "out"), "onnx", ".onnx").items
    with Journal(tmp_path / "j") as journal:
        with monkeypatch.context() as patch:
            patch.setattr("rnnconvert.batch.run.work_several", deadly)
            done = run(items, journal, Workers(2), {})
        assert done.code == 70 and "a worker died at this file" in done.entries[2].message
        assert [entry.code for entry in done.entries] == [0, 0, 70, 0, 0, 0]
        assert run(items, journal, Workers(), {}).resumed == 5


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_batch_ends_with_what_killed_workers_left_removed(jobs: int, models: Path, tmp_path: Path) -> None:
    """A worker that dies last has nobody after it in its folder; what a living process writes stays."""
    items = manifest.items([str(models / "m*.safetensors")], str(tmp_path / "out"), "onnx", ".onnx").items
    dead, living = (tmp_path / "out" / f".m1.onnx.rnnconvert-7-0000000{n}.part" for n in (1, 2))

    def seen(entry: Any, done: int, total: int) -> None:
        if done == total:
            dead.touch()

    (tmp_path / "out").mkdir()
    with Journal(tmp_path / "j") as journal, living.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert run(items, journal, Workers(jobs), {}, seen).code == 0
    assert not dead.exists() and living.exists()


def test_urls_are_read_and_written(models: Path, tmp_path: Path, memory: Any) -> None:
    for number in range(3):
        memory.pipe_file(f"/in/m{number}.safetensors", (models / f"m{number}.safetensors").read_bytes())
    memory.pipe_file("/in/bad.safetensors", b"\x10")
    words = ("memory://in/*.safetensors", "--to", "onnx", "--out", "memory://out", "--jobs", 1, "--journal", tmp_path / "j", "--json")
    document = json.loads(call(*words)[1])
    assert document["counts"] == {"0": 3, "3": 1}, [entry["message"] for entry in document["files"]]
    assert sorted(memory.ls("/out", detail=False)) == [f"/out/m{number}.onnx" for number in range(3)]
    rc.convert(models / "m1.safetensors", tmp_path / "own.onnx")
    assert memory.cat_file("/out/m1.onnx") == (tmp_path / "own.onnx").read_bytes()
    assert json.loads(call(*words)[1])["resumed"] == 3


def test_a_zip_is_read_and_not_written(models: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(models / "m0.safetensors", "deep/m0.safetensors")
    source = f"zip://deep/m0.safetensors::{tmp_path / 'all.zip'}"
    assert call(source, "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)[0] == 0
    assert (tmp_path / "out" / "m0.onnx").exists()


class Counting:
    """A store that counts what it sends, and fails when told to."""

    def __init__(self, store: Any, failing: int = 0) -> None:
        self.store, self.sent, self.failing = store, 0, failing
        self.protocol = "memory"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        if self.failing:
            self.failing -= 1
            raise ConnectionResetError("cut off")
        self.sent += end - start
        return bytes(self.store.cat_file(path, start, end))


def test_only_the_recurrent_arrays_of_a_large_file_travel(tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    around = {"embedding.weight": np.ones((1000, 500), np.float32), "head.weight": np.ones((700, 4), np.float32)}
    safetensors.write(tmp_path / "big.safetensors", {**around, **arrays(3)})
    memory.pipe_file("/big.safetensors", (tmp_path / "big.safetensors").read_bytes())
    counting = Counting(memory)
    monkeypatch.setattr(asking, "system", lambda url: (counting, url.partition("://")[2]))
    with stores.fetched("memory:///big.safetensors") as local:
        assert local.stat().st_size == (tmp_path / "big.safetensors").stat().st_size
        layer = rc.load(local).layers["rnn"]
        local_layer = rc.load(tmp_path / "big.safetensors").layers["rnn"]
        for key, array in local_layer.first.arrays.items():
            assert np.array_equal(np.asarray(layer.first.arrays[key]), np.asarray(array))
    assert counting.sent < 70_000 < (tmp_path / "big.safetensors").stat().st_size
    monkeypatch.setattr(asking, "_PAUSES", (0.0, 0.0, 0.0))
    counting.failing = 3
    with stores.fetched("memory:///big.safetensors"):
        pass
    counting.failing = 4
    with pytest.raises(UnreadableError, match="cut off"), stores.fetched("memory:///big.safetensors"):
        pass


def test_a_store_that_says_no_keeps_what_was_there(tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe_file("/out/a.onnx", b"old")
    (tmp_path / "a").write_bytes(b"new")

    def no(*_: Any, **__: Any) -> None:
        raise PermissionError("403")

    monkeypatch.setattr(type(memory), "put_file", no)
    with pytest.raises(UsageError, match="403"):
        uploads.put(tmp_path / "a", "memory://out/a.onnx")
    assert memory.cat_file("/out/a.onnx") == b"old" and memory.ls("/out", detail=False) == ["/out/a.onnx"]


def test_a_folder_that_cannot_be_made_is_named_and_resumed(models: Path, tmp_path: Path) -> None:
    items = manifest.items([str(models / "m0.safetensors")], str(tmp_path / "out"), "onnx", ".onnx").items
    (tmp_path / "out").write_text("a file where the folder should be")
    with Journal(tmp_path / "j") as journal:
        assert run(items, journal, Workers(), {}).code == 2
    (tmp_path / "out").unlink()
    with Journal(tmp_path / "j") as journal:
        done: BatchResult = run(items, journal, Workers(), {})
    assert done.code == 0 and done.resumed == 0


def test_interrupted_it_goes_on(models: Path, tmp_path: Path) -> None:
    items = manifest.items([str(models / "m*.safetensors")], str(tmp_path / "out"), "onnx", ".onnx").items

    def stop(entry: Any, done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with Journal(tmp_path / "j") as journal, pytest.raises(KeyboardInterrupt):
        run(items, journal, Workers(), {}, stop)
    with Journal(tmp_path / "j") as journal:
        assert run(items, journal, Workers(), {}).resumed == 2


@pytest.mark.own_processes
def test_workers_end_the_executors_that_they_kept(models: Path, tmp_path: Path) -> None:
    """Left to Python's end, they were ended where its modules are gone already, which said so on stderr."""
    need("onnxruntime", missing(["onnxruntime"]))
    words = ["batch", str(models / "m*.safetensors"), "--to", "onnx", "--out", str(tmp_path / "out"), "--jobs", "2", "--verify", "-q"]
    done = subprocess.run([sys.executable, "-m", "rnnconvert", *words], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
