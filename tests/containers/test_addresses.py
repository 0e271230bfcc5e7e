"""URLs wherever a file is read: fetched once, again when it has changed, and named in errors as the user names them."""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.containers import addresses, asking
from rnnconvert.core.errors import for_user
from tests import ROOT
from tests.helpers.faulty_store import Server
from tests.helpers.requirements import needed
from tests.helpers.serving import running

needed("aiohttp", "aiohttp")
fsspec = needed("aiohttp", "fsspec")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server with the examples."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(asking, "_PAUSES", (0.0, 0.0))
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    fsspec.filesystem("http").clear_instance_cache()
    instance = Server()
    with running(instance):
        for path in ("encoder.keras", "exported.onnx", "old_tagger.h5", "unknown/weights.npz", "unknown/sample.npz"):
            instance.files[path] = (ROOT / "examples" / path).read_bytes()
        loop = ROOT / "tests" / "golden" / "fuse" / "jax_equinox_gru.onnx"
        instance.files["loop.onnx"] = loop.read_bytes()
        yield instance


@pytest.mark.parametrize(
    "words",
    [
        "inspect URL/encoder.keras",
        "convert URL/encoder.keras out.onnx --layer encoder",
        "view URL/encoder.keras -o view.html",
        "diff URL/encoder.keras examples/encoder.keras",
        "diff examples/encoder.keras URL/encoder.keras",
        "diagnose URL/encoder.keras examples/encoder.keras --layer encoder",
        "identify URL/unknown/weights.npz --io URL/unknown/sample.npz",
        "transplant URL/encoder.keras --into examples/encoder.keras -o filled.keras",
        "transplant examples/encoder.keras --into URL/encoder.keras -o filled.keras",
        "map URL/encoder.keras examples/encoder.keras",
        "upgrade URL/old_tagger.h5 new.keras",
        "fuse URL/loop.onnx -o fused.onnx",
        "batch URL/encoder.keras --to onnx --out out --jobs 1",
    ],
)
def test_every_command_that_reads_a_file_reads_a_url(words: str, server: Server) -> None:
    done = CliRunner().invoke(main, words.replace("URL/", server.url("")).split())
    assert done.exit_code == 0, done.output
    assert "cache" not in done.output, done.output


def test_it_is_fetched_once_and_again_when_it_has_changed(server: Server) -> None:
    url = server.url("encoder.keras")
    first = rc.load(url).layers["encoder"]
    sent = server.sent
    assert rc.load(url).layers["encoder"].describe() == first.describe()
    assert server.sent == sent
    rc.save(rc.load("examples/encoder.keras"), "other.onnx")
    server.files["encoder.keras"] = Path("other.onnx").read_bytes()
    assert rc.load(url).format == "onnx" and server.sent > sent


@pytest.mark.parametrize("fault", ["cut", "short", "503"])
def test_a_copy_that_was_cut_is_fetched_again_and_never_kept(fault: str, server: Server) -> None:
    url = server.url("encoder.keras")
    server.always = fault
    with pytest.raises(rc.UnreadableError, match=r"encoder\.keras: the store says"):
        rc.load(url)
    server.always = ""
    server.faults = [fault]
    kernel = rc.load(url).layers["encoder"][0, 0].gates["r"].recurrent
    np.testing.assert_array_equal(kernel, rc.load("examples/encoder.keras").layers["encoder"][0, 0].gates["r"].recurrent)


@pytest.mark.parametrize("changes", [1, 9])
def test_a_file_that_is_replaced_while_it_is_fetched_is_never_a_mixture(
    changes: int, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes in several requests; after the first the store has another file of the same size."""
    monkeypatch.setattr(addresses, "_CHUNK", 1 << 14)
    copied, letters = shutil.copyfileobj, iter(b"BCDEFGHIJ"[:changes])

    def between(source: Any, target: Any, length: int) -> None:
        target.write(source.read(length))
        server.files["a.bin"] = bytes([next(letters, server.files["a.bin"][0])]) * 100_000
        copied(source, target, length)

    monkeypatch.setattr(shutil, "copyfileobj", between)
    server.files["a.bin"] = b"A" * 100_000
    if changes == 1:
        assert addresses.local(server.url("a.bin")).read_bytes() == b"B" * 100_000
    else:
        with pytest.raises(rc.UnreadableError, match="it changed while it was fetched"):
            addresses.local(server.url("a.bin"))


def test_threads_that_fetch_one_file_have_all_of_it(server: Server) -> None:
    server.files["a.bin"] = content = bytes(range(256)) * (1 << 14)
    with ThreadPoolExecutor(4) as pool:
        equal = list(pool.map(lambda _: addresses.local(server.url("a.bin")).read_bytes() == content, range(4)))
    assert equal == [True] * 4


def test_a_copy_that_is_cut_is_not_taken_for_the_file(server: Server) -> None:
    url = server.url("encoder.keras")
    copy = addresses.local(url)
    assert (copy.stat().st_mode & 0o777, copy.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    for size in (0, 1000):
        os.truncate(copy, size)
        assert addresses.local(url).read_bytes() == server.files["encoder.keras"]
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


def test_a_cache_that_cannot_be_written_and_a_long_name_are_no_hindrance(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "n" * 250 + ".keras"
    server.files[name] = server.files["encoder.keras"]
    assert rc.load(server.url(name)).layers
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert rc.load(server.url("encoder.keras")).layers


def test_errors_name_the_url(server: Server) -> None:
    server.files["bad.onnx"] = b"<!DOCTYPE html><html></html>"
    for name in ("bad.onnx", "absent.onnx"):
        done = CliRunner().invoke(main, ["inspect", server.url(name)])
        assert done.exit_code == 3 and f"error: {server.url(name)}: " in done.output, done.output
        assert "cache" not in done.output


def test_without_fsspec_the_error_says_how_to_install_it(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    import_module = importlib.import_module

    def absent(name: str, *more: Any) -> Any:
        if name == "fsspec":
            raise ImportError(name)
        return import_module(name, *more)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(rc.MissingPackageError, match="fsspec is not installed"):
        rc.load(server.url("encoder.keras"))


def test_a_host_that_cannot_be_reached_is_not_called_a_missing_file(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_PAUSES", ())
    for url in ("http://127.0.0.1:9/encoder.keras", "http://absent.invalid/encoder.keras"):
        with pytest.raises(rc.UnreadableError, match=r"the store says: Client\w*Error: Cannot connect to host"):
            rc.load(url)
    with pytest.raises(rc.UnreadableError, match="the store says: FileNotFoundError"):
        rc.load(server.url("absent.keras"))


def test_a_hubs_files_are_kept_by_their_blobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hugging Face's file system, of which this is the part that is asked, tells no tag and no time, but the blob of a file."""
    content = {"org/model/encoder.keras": (ROOT / "examples" / "encoder.keras").read_bytes()}
    opened: list[str] = []

    class Hub(fsspec.AbstractFileSystem):
        protocol = "hf"

        def info(self, path: str, **options: Any) -> dict[str, Any]:
            path = self._strip_protocol(path)
            if path not in content:
                raise FileNotFoundError(path)
            blob = hashlib.sha1(content[path]).hexdigest()
            return {"name": path, "type": "file", "size": len(content[path]), "blob_id": blob, "last_commit": None}

        def _open(self, path: str, *arguments: Any, **options: Any) -> io.BytesIO:
            opened.append(path)
            return io.BytesIO(content[path])

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "hf", Hub)
    url = "hf://org/model/encoder.keras"
    assert rc.load(url).layers["encoder"] is not None and list(rc.load(url).layers) == ["encoder", "summary"]
    assert len(opened) == 1
    content["org/model/encoder.keras"] = (ROOT / "examples" / "decoder.keras").read_bytes()
    assert list(rc.load(url).layers) == ["decoder"] and len(opened) == 2
    with pytest.raises(rc.UnreadableError, match=r"hf://org/model/absent\.onnx: the store says: FileNotFoundError"):
        rc.load("hf://org/model/absent.onnx")


def test_the_model_of_weights_may_be_behind_a_url(server: Server) -> None:
    with zipfile.ZipFile(ROOT / "examples" / "encoder.keras") as archive:
        server.files["alone.weights.h5"] = archive.read("model.weights.h5")
        server.files["model.json"] = archive.read("config.json")
    words = ["convert", server.url("alone.weights.h5"), "out.onnx", "--config", server.url("model.json"), "--strict"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    words[-2] = server.url("absent.json")
    done = CliRunner().invoke(main, [*words, "--force"])
    assert done.exit_code == 3 and f"error: {server.url('absent.json')}: " in done.output, done.output


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("https://a.b/x.pt?token=s3cret: not found", "https://a.b/x.pt?token=***: not found"),
        ("'https://a.b/x.pt?sig=a,b;c/d%3D&exp=7' and more", "'https://a.b/x.pt?sig=***&exp=***' and more"),
        ("https://me:word@a.b/x.pt", "https://me:***@a.b/x.pt"),
        ("what is x? a=b", "what is x? a=b"),
        ("s3://bucket/gru?.pt", "s3://bucket/gru?.pt"),
    ],
)
def test_keys_in_urls_are_not_printed(text: str, printed: str) -> None:
    assert for_user(text) == printed
