"""URLs wherever a file is read: fetched once, again when it has changed, and named in errors as the user names them."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.containers import asking
from tests.faulty_store import Server
from tests.requirements import needed
from tests.serving import running

needed("aiohttp", "aiohttp")
fsspec = needed("aiohttp", "fsspec")
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server with the examples."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(asking, "_PAUSES", (0.0, 0.0))
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    fsspec.filesystem("http").clear_instance_cache()
    made = Server()
    with running(made):
        for path in ("encoder.keras", "exported.onnx", "old_tagger.h5", "unknown/weights.npz", "unknown/sample.npz"):
            made.files[path] = (ROOT / "examples" / path).read_bytes()
        loop = ROOT / "tests" / "golden" / "fuse" / "jax_equinox_gru.onnx"
        made.files["loop.onnx"] = loop.read_bytes()
        yield made


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
    np.testing.assert_array_equal(
        kernel, rc.load("examples/encoder.keras").layers["encoder"][0, 0].gates["r"].recurrent
    )


def test_errors_name_the_url(server: Server) -> None:
    server.files["bad.onnx"] = b"<!DOCTYPE html><html></html>"
    for name in ("bad.onnx", "absent.onnx"):
        done = CliRunner().invoke(main, ["inspect", server.url(name)])
        assert done.exit_code == 3 and f"error: {server.url(name)}: " in done.output, done.output
        assert "cache" not in done.output


def test_without_fsspec_the_error_says_how_to_install_it(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = importlib.import_module

    def absent(name: str, *more: Any) -> Any:
        if name == "fsspec":
            raise ImportError(name)
        return whole(name, *more)

    monkeypatch.setattr(asking.importlib, "import_module", absent)
    with pytest.raises(rc.MissingPackageError, match="fsspec is not installed"):
        rc.load(server.url("encoder.keras"))
