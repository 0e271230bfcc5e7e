"""Stores that fail: a server that breaks off, errs or is slow is asked again; what stays wrong is named, and nothing is half-written."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rnnconvert as rc
from rnnconvert.batch import stores
from rnnconvert.batch.journal import Journal
from rnnconvert.batch.manifest import Item
from rnnconvert.batch.run import run
from rnnconvert.batch.workers import Workers
from rnnconvert.containers import safetensors
from rnnconvert.core.errors import UnreadableError, UsageError
from tests.faulty_store import FAULTS, Server, serving
from tests.requirements import needed
from tests.test_batch import arrays, call

needed("aiohttp", "aiohttp")
fsspec = needed("aiohttp", "fsspec")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server with one model as a .safetensors and as a .pt."""
    monkeypatch.setattr(stores, "_PAUSES", (0.01, 0.01, 0.01))
    safetensors.write(tmp_path / "model.safetensors", arrays(3, 40))
    rc.convert(tmp_path / "model.safetensors", tmp_path / "model.pt")
    fsspec.filesystem("http").clear_instance_cache()
    with serving() as found:
        for name in ("model.safetensors", "model.pt"):
            found.files[name] = (tmp_path / name).read_bytes()
        yield found


@pytest.mark.parametrize("name", ["model.safetensors", "model.pt"])
@pytest.mark.parametrize("fault", FAULTS)
def test_what_passes_is_borne(name: str, fault: str, server: Server, tmp_path: Path) -> None:
    server.faults = [fault, "", fault, fault]
    with stores.fetched(server.url(name)) as local:
        assert local.read_bytes() == server.files[name]
    assert fault in server.met


@pytest.mark.parametrize("fault", ["500", "cut", "short"])
def test_what_stays_wrong_is_named_and_resumed(fault: str, server: Server, tmp_path: Path) -> None:
    words = (server.url("model.pt"), tmp_path / "model.safetensors", "--to", "onnx", "--out", tmp_path / "out")
    words += ("--jobs", 1, "--journal", tmp_path / "j", "--json")
    listed = tmp_path / "list.jsonl"
    lines = [{"source": server.url("model.pt"), "target": "far.onnx"}, {"source": str(words[1]), "target": "near.onnx"}]
    listed.write_text("\n".join(map(json.dumps, lines)))
    server.always = fault
    code, said = call(listed, *words[2:])
    document = json.loads(said[said.index("{\n") :] if not said.startswith("{") else said)
    assert code == 3 and document["counts"] == {"0": 1, "3": 1}
    (wrong,) = [one for one in document["files"] if one["code"]]
    assert wrong["source"] == server.url("model.pt") and "the store says" in wrong["message"]
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["near.onnx"]
    server.always = ""
    code, said = call(listed, *words[2:])
    assert code == 0 and json.loads(said)["resumed"] == 1
    assert (tmp_path / "out" / "far.onnx").exists()


@pytest.mark.parametrize("status", ["403", "404", "410"])
def test_a_no_is_not_asked_for_again(status: str, server: Server) -> None:
    server.always = status
    with pytest.raises(UnreadableError, match="the store says"), stores.fetched(server.url("model.safetensors")):
        pass
    assert server.met == [status]


def test_an_address_may_have_a_query(server: Server, tmp_path: Path) -> None:
    code, _ = call(server.url("model.pt?download=true"), "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)
    assert code == 0 and [one.name for one in (tmp_path / "out").glob("*.onnx")] == ["model.onnx"]


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
    monkeypatch.setattr(stores, "_PAUSES", (0.01, 0.01, 0.01))
    store = fsspec.filesystem("memory")
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.mark.parametrize(("times", "whole"), [(1, True), (3, True), (9, False)])
def test_a_target_is_there_whole_or_not_at_all(
    times: int, whole: bool, memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"x" * 1000)
    memory.pipe_file("/out/old.onnx", b"old")
    breaking = Breaking(memory, times)
    monkeypatch.setattr(stores, "system", lambda url: (breaking, url.partition("://")[2]))
    with contextlib.nullcontext() if whole else pytest.raises(UsageError, match="cannot write there"):
        stores.put(tmp_path / "a", "memory:///out/old.onnx")
    assert memory.cat_file("/out/old.onnx") == (b"x" * 1000 if whole else b"old")
    assert memory.ls("/out", detail=False) == ["/out/old.onnx"]


def test_a_source_that_changes_while_it_is_read_is_not_taken(server: Server, tmp_path: Path, monkeypatch: Any) -> None:
    item = Item(server.url("model.pt"), str(tmp_path / "out.onnx"), "onnx")
    other = server.files["model.pt"]
    copied = stores._copied

    def changing(*given: Any) -> None:
        copied(*given)
        server.files["model.pt"] = other + b"\0" * 7

    monkeypatch.setattr(stores, "_copied", changing)
    with Journal(tmp_path / "j") as journal:
        done = run([item], journal, Workers(), {})
        assert done.code == 3 and "changed while it was read" in done.entries[0].message
    monkeypatch.setattr(stores, "_copied", copied)
    with Journal(tmp_path / "j") as journal:
        assert run([item], journal, Workers(), {}).code == 0
