"""Stores that fail: a server that breaks off, errs or is slow is asked again; what stays wrong is named, and nothing is half-written."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import rnnconvert as rc
from rnnconvert.batch import stores, uploads
from rnnconvert.batch.journal import Journal
from rnnconvert.batch.manifest import Item
from rnnconvert.batch.run import run
from rnnconvert.batch.workers import Workers
from rnnconvert.containers import asking, safetensors
from rnnconvert.core.errors import UnreadableError, UsageError
from tests.batch.test_batch import arrays, call
from tests.helpers.faulty_store import FAULTS, Server, serving
from tests.helpers.requirements import needed

needed("aiohttp", "aiohttp")
fsspec = needed("aiohttp", "fsspec")
MemoryFileSystem: Any = needed("aiohttp", "fsspec.implementations.memory").MemoryFileSystem


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server with one model as a .safetensors and as a .pt."""
    monkeypatch.setattr(asking, "_PAUSES", (0.01, 0.01, 0.01))
    safetensors.write(tmp_path / "model.safetensors", arrays(3, 40))
    rc.convert(tmp_path / "model.safetensors", tmp_path / "model.pt")
    fsspec.filesystem("http").clear_instance_cache()
    with serving() as served:
        for name in ("model.safetensors", "model.pt"):
            served.files[name] = (tmp_path / name).read_bytes()
        yield served


@pytest.mark.parametrize("name", ["model.safetensors", "model.pt"])
@pytest.mark.parametrize("fault", FAULTS)
def test_what_passes_is_borne(name: str, fault: str, server: Server, tmp_path: Path) -> None:
    server.faults = [fault, "", fault, fault]
    with stores.fetched(server.url(name)) as local:
        assert local.read_bytes() == server.files[name]
    assert fault in server.delivered


@pytest.mark.parametrize("fault", ["500", "cut", "short"])
def test_what_stays_wrong_is_named_and_resumed(fault: str, server: Server, tmp_path: Path) -> None:
    words: tuple[object, ...] = (server.url("model.pt"), tmp_path / "model.safetensors", "--to", "onnx", "--out", tmp_path / "out")
    words += ("--jobs", 1, "--journal", tmp_path / "j", "--json")
    listed = tmp_path / "list.jsonl"
    lines = [{"source": server.url("model.pt"), "target": "far.onnx"}, {"source": str(words[1]), "target": "near.onnx"}]
    listed.write_text("\n".join(map(json.dumps, lines)))
    server.always = fault
    code, output = call(listed, *words[2:])
    document = json.loads(output[output.index("{\n") :] if not output.startswith("{") else output)
    assert code == 3 and document["counts"] == {"0": 1, "3": 1}
    (wrong,) = [entry for entry in document["files"] if entry["code"]]
    assert wrong["source"] == server.url("model.pt") and "the store says" in wrong["message"]
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["near.onnx"]
    server.always = ""
    code, output = call(listed, *words[2:])
    assert code == 0 and json.loads(output)["resumed"] == 1
    assert (tmp_path / "out" / "far.onnx").exists()


@pytest.mark.parametrize("status", ["403", "404", "410"])
def test_a_no_is_not_asked_for_again(status: str, server: Server) -> None:
    server.always = status
    with pytest.raises(UnreadableError, match="the store says"), stores.fetched(server.url("model.safetensors")):
        pass
    assert server.delivered == [status]


def test_an_address_may_have_a_query(server: Server, tmp_path: Path) -> None:
    code, _ = call(server.url("model.pt?download=true"), "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)
    assert code == 0 and [path.name for path in (tmp_path / "out").glob("*.onnx")] == ["model.onnx"]


class Breaking:
    """A store in memory to which only a part of each file comes through, that many times."""

    def __init__(self, store: Any, times: int) -> None:
        self.store, self.times, self.protocol = store, times, store.protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def put_file(self, local: str, path: str) -> None:
        if not self.times:
            self.store.put_file(local, path)
            return
        self.times -= 1
        self.store.pipe_file(path, Path(local).read_bytes()[:100])
        if self.times % 2:
            raise ConnectionResetError("cut off")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(asking, "_PAUSES", (0.01, 0.01, 0.01))
    store = fsspec.filesystem("memory")
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.mark.parametrize(("times", "succeeds"), [(1, True), (3, True), (9, False)])
def test_a_target_is_there_whole_or_not_at_all(
    times: int, succeeds: bool, memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"x" * 1000)
    memory.pipe_file("/out/old.onnx", b"old")
    breaking = Breaking(memory, times)
    monkeypatch.setattr(asking, "system", lambda url: (breaking, url.partition("://")[2]))
    with contextlib.nullcontext() if succeeds else pytest.raises(UsageError, match="cannot write there"):
        uploads.put(tmp_path / "a", "memory:///out/old.onnx")
    assert memory.cat_file("/out/old.onnx") == (b"x" * 1000 if succeeds else b"old")
    assert memory.ls("/out", detail=False) == ["/out/old.onnx"]


def test_a_source_that_changes_while_it_is_read_is_not_taken(server: Server, tmp_path: Path, monkeypatch: Any) -> None:
    item = Item(server.url("model.pt"), str(tmp_path / "out.onnx"), "onnx")
    other = server.files["model.pt"]
    copied = stores._copied

    def changing(*arguments: Any) -> None:
        copied(*arguments)
        server.files["model.pt"] = other + b"\0" * 7

    monkeypatch.setattr(stores, "_copied", changing)
    with Journal(tmp_path / "j") as journal:
        done = run([item], journal, Workers(), {})
        assert done.code == 3 and "changed while it was read" in done.entries[0].message
    monkeypatch.setattr(stores, "_copied", copied)
    with Journal(tmp_path / "j") as journal:
        assert run([item], journal, Workers(), {}).code == 0


class Session(MemoryFileSystem):
    """A store that is reached when it is made, as those of ssh are, and that knows no ranges and renames over nothing."""

    protocol = "session"
    refuse = 0
    sessions: ClassVar[list[Session]] = []

    def __init__(self, host: str, **options: Any) -> None:
        super().__init__(**options)
        if type(self).refuse:
            type(self).refuse -= 1
            raise ConnectionRefusedError(f"nobody answers at {host}")
        self.is_lost = False
        self.sessions.append(self)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        rest = path.removeprefix("session://").partition("/")[2] if "://" in path else path
        return str(MemoryFileSystem._strip_protocol(rest))

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        return {"host": path.removeprefix("session://").partition("/")[0]}

    def info(self, path: str, **named: Any) -> Any:
        if self.is_lost:
            raise OSError("Socket is closed")
        return super().info(path, **named)

    def cat_file(self, path: str, **named: Any) -> Any:
        raise AssertionError("it would send all of the file")

    def mv(self, path1: str, path2: str, **named: Any) -> None:
        if self.is_lost or self.exists(path2):
            raise OSError("Failure")
        super().mv(path1, path2, **named)


@pytest.fixture
def session(memory: Any) -> Iterator[str]:
    fsspec.register_implementation("session", Session, clobber=True)
    yield "session://user:word@host:22"
    Session.clear_instance_cache()
    Session.sessions.clear()
    Session.refuse = 0


def test_a_lost_connection_is_made_again(session: str, memory: Any, tmp_path: Path) -> None:
    """One that broke off served no file after it, whatever was asked."""
    safetensors.write(tmp_path / "m.safetensors", arrays(3, 40))
    for step in range(3):
        url = f"{session}/out/m{step}.safetensors"
        for opened in Session.sessions:
            opened.is_lost = True
        Session.refuse = step
        uploads.put(tmp_path / "m.safetensors", url)
        Session.sessions[-1].is_lost = True
        with stores.fetched(url, (), stores.state(url, fresh=True)) as local:
            assert local.read_bytes() == (tmp_path / "m.safetensors").read_bytes()
    assert memory.ls("/out", detail=False) == [f"/out/m{step}.safetensors" for step in range(3)]


def test_a_store_that_cannot_be_reached_is_named(session: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"new")
    Session.refuse = 100
    with pytest.raises(UnreadableError, match="ConnectionRefusedError: nobody answers"):
        stores.state(f"{session}/a")
    with pytest.raises(UnreadableError, match="ConnectionRefusedError: nobody answers"):
        stores.matching(f"{session}/*.pt")
    with pytest.raises(UsageError, match="cannot write there: ConnectionRefusedError"):
        uploads.put(tmp_path / "a", f"{session}/a")
    left = Session.refuse
    Session.refuse = 0
    assert left == 100 - 3 * 4


class AuthenticationFailed(Exception):
    """As paramiko has it: of no kind that Python knows."""


@pytest.mark.parametrize("error", [AuthenticationFailed("no"), OSError("Forbidden: https://storage/b/o\nno"), PermissionError("no")])
def test_a_wrong_key_is_not_tried_again(error: Exception, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def no(*_: Any, **__: Any) -> None:
        tries.append(1)
        raise error

    monkeypatch.setattr(Session, "info", no)
    with pytest.raises(UnreadableError, match="the store says"):
        stores.state(f"{session}/a")
    assert tries == [1]


def test_files_of_a_pattern_are_on_its_host(session: str, memory: Any) -> None:
    for name in ("m1.pt", "m2.pt", "m3.h5", "m4.pt/inner"):
        memory.pipe_file(f"/in/{name}", b"x")
    assert stores.matching(f"{session}/in/*.pt") == [f"{session}/in/m1.pt", f"{session}/in/m2.pt"]
    assert stores.matching(f"{session}/*/m1.pt") == [f"{session}/in/m1.pt"]


def test_a_store_that_renames_over_nothing_has_one_file(session: str, memory: Any, tmp_path: Path) -> None:
    memory.pipe_file("/out/a.onnx", b"old")
    (tmp_path / "a").write_bytes(b"new one")
    assert uploads.put(tmp_path / "a", f"{session}/out/a.onnx").startswith("7 ")
    assert memory.cat_file("/out/a.onnx") == b"new one" and memory.ls("/out", detail=False) == ["/out/a.onnx"]


def test_what_a_killed_process_left_is_removed_at_the_end(session: str, memory: Any, tmp_path: Path) -> None:
    others = ["/out/m0.onnx.notes.part", "/out/other.onnx.0123abcd.part", "/out/m0.onnx.0123abcd.part.onnx"]
    for path in [*others, "/out/m0.onnx.0123abcd.part"]:
        memory.pipe_file(path, b"half")
    safetensors.write(tmp_path / "m0.safetensors", arrays(0))
    code, output = call(tmp_path / "m0.safetensors", "--to", "onnx", "--out", f"{session}/out", "--journal", tmp_path / "j", "--jobs", 1)
    assert code == 0, output
    assert sorted(memory.ls("/out", detail=False)) == sorted([*others, "/out/m0.onnx"])


def test_what_is_wrong_with_a_source_is_said_of_its_url(session: str, memory: Any, tmp_path: Path) -> None:
    for name in ("bad1.safetensors", "bad2.pt"):
        memory.pipe_file(f"/in/{name}", b"no model at all")
    code, output = call(f"{session}/in/bad*", "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)
    masked = session.replace(":word@", ":***@")
    assert code == 3 and output.count(f"{masked}/in/bad") == 3 and ".folder" not in output and "word@" not in output, output


def test_errors_do_not_show_the_passwords_of_urls() -> None:
    error = UnreadableError("sftp://me:secret@host:22/a.pt", "the store says: no sftp://me:secret@host:22/b.pt")
    assert str(error) == "sftp://me:***@host:22/a.pt: the store says: no sftp://me:***@host:22/b.pt."
    assert str(UsageError("az://a/b@c:d: no")) == "az://a/b@c:d: no"


def test_what_is_no_archive_is_not_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it was asked again"))
    (tmp_path / "words.zip").write_text("nothing but words")
    with pytest.raises(UnreadableError, match="not a zip file"), stores.fetched(f"zip://model.pt::file://{tmp_path / 'words.zip'}"):
        pass
