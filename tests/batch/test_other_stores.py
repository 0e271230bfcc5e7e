"""Azure, Google and ssh as emulators of this machine imitate them: read by ranges, written whole or not at all, killed and resumed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.batch import stores, uploads
from rnnconvert.containers import asking, safetensors
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.running.child import missing
from tests.batch.test_batch import arrays
from tests.helpers import store_emulators
from tests.helpers.requirements import need
from tests.helpers.store_emulators import Emulator

pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # aiohttp, of Azure's package

FILES = 24
KINDS = {
    "azure": (store_emulators.azure, ["adlfs"]), "google": (store_emulators.google, ["gcsfs", "gcp_storage_emulator"]),
    "ssh": (store_emulators.ssh, ["paramiko", "asyncssh"]),
}  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def emulator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    serving, packages = KINDS[request.param]
    need(request.param, missing(packages))
    if request.param == "azure" and not store_emulators.azurite():
        need(request.param, "Azurite is not installed: npm install azurite, and name its azurite-blob with AZURITE")
    with serving(tmp_path_factory.mktemp(request.param)) as served, pytest.MonkeyPatch.context() as patch:
        for key, value in served.environment.items():
            patch.setenv(key, value)
        yield served


@pytest.fixture
def store(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    monkeypatch.setattr(asking, "_PAUSES", (0.01, 0.01, 0.01))
    store_emulators.hurry(monkeypatch)
    emulator.proxy.begin()
    return emulator


def batch(*words: object, around: dict[str, str] | None = None) -> tuple[int, dict[str, Any], str]:
    """What the command itself says, in a process of its own: its code, its document, and all of its words."""
    started = [sys.executable, "-m", "rnnconvert", "batch", *map(str, words), "--json"]
    environment = {**os.environ, **(around or {})}
    done = subprocess.run(started, capture_output=True, text=True, check=False, env=environment, timeout=300)
    return done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else {}, done.stdout + done.stderr


def test_only_header_and_recurrent_arrays_travel(store: Emulator, tmp_path: Path) -> None:
    around = {"embedding.weight": np.ones((4000, 500), np.float32), "head.weight": np.ones((700, 400), np.float32)}
    safetensors.write(tmp_path / "big.safetensors", {**around, **arrays(3)})
    store.write("big.safetensors", (tmp_path / "big.safetensors").read_bytes())
    store.proxy.begin()
    with stores.fetched(f"{store.url}/big.safetensors") as local:
        there, here = (rc.load(path).layers["rnn"].first for path in (local, tmp_path / "big.safetensors"))
        assert all(np.array_equal(np.asarray(there.arrays[key]), np.asarray(here.arrays[key])) for key in here.arrays)
        assert local.stat().st_size == (tmp_path / "big.safetensors").stat().st_size > 9_000_000
    assert 60_000 < store.proxy.sent < 200_000


def test_the_command_resumes_and_does_what_changed(store: Emulator, tmp_path: Path) -> None:
    for number in range(6):
        safetensors.write(tmp_path / "m", arrays(number))
        store.write(f"in/m{number}.safetensors", (tmp_path / "m").read_bytes())
    words: tuple[object, ...] = (f"{store.url}/in/*.safetensors", "--to", "onnx", "--out", f"{store.url}/out", "--jobs", 2)
    words += ("--journal", tmp_path / "j")
    code, document, output = batch(*words)
    assert code == 0 and document["resumed"] == 0 and output.count("\n}") == 1 and output.endswith("}\n"), output
    assert store.names("out") == [f"m{number}.onnx" for number in range(6)]
    assert batch(*words)[1]["resumed"] == 6
    safetensors.write(tmp_path / "m", arrays(9, 8))
    store.write("in/m3.safetensors", (tmp_path / "m").read_bytes())
    store.remove("out/m5.onnx")
    assert batch(*words)[1]["resumed"] == 4
    assert store.names("out") == [f"m{number}.onnx" for number in range(6)]
    (tmp_path / "m3.onnx").write_bytes(store.read("out/m3.onnx") or b"")
    assert rc.load(tmp_path / "m3.onnx").layers


def test_a_killed_command_leaves_whole_files_and_is_resumed(store: Emulator, tmp_path: Path) -> None:
    for number in range(FILES):
        safetensors.write(tmp_path / f"k{number}.safetensors", arrays(number, 200))
    words = [str(tmp_path / "k*.safetensors"), "--to", "onnx", "--out", f"{store.url}/killed", "--jobs", "2"]
    words += ["--journal", str(tmp_path / "j")]
    running = subprocess.Popen(
        [sys.executable, "-m", "rnnconvert", "batch", *words], start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until = time.monotonic() + 60
    while len(store.names("killed")) < 4 and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    complete = [name for name in store.names("killed") if not name.endswith(".part")]
    assert 0 < len(complete) < FILES
    for name in complete:
        (tmp_path / name).write_bytes(store.read(f"killed/{name}") or b"")
        assert rc.load(tmp_path / name).layers
    code, document, output = batch(*words)
    assert code == 0 and document["resumed"] <= len(complete), output
    assert store.names("killed") == sorted(f"k{number}.onnx" for number in range(FILES))


def test_what_is_not_there_is_named(store: Emulator, tmp_path: Path) -> None:
    safetensors.write(tmp_path / "m.safetensors", arrays(1))
    code, _, output = batch(f"{store.url}/none.pt", "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)
    assert code == 3 and "none.pt: the store says: FileNotFoundError" in output and "Traceback" not in output, output
    code, _, output = batch(f"{store.url}/none/*.pt", "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)
    assert code == 3 and "No such file or directory" in output, output
    if store.takes_requests:
        away = store.url.replace("bucket", "typo")
        words = (tmp_path / "m.safetensors", "--to", "onnx", "--out", f"{away}/out", "--journal", tmp_path / "j")
        code, _, output = batch(*words, "--jobs", 1)
        assert code == 74 and "cannot write there: FileNotFoundError" in output and "Traceback" not in output, output


def test_a_wrong_key_is_named_and_not_tried_again(store: Emulator, tmp_path: Path) -> None:
    safetensors.write(tmp_path / "m.safetensors", arrays(1))
    away = store.url.replace(":word@", ":wrong@")
    if store.takes_requests:
        store.proxy.always = {method: "403" for method in ("GET", "HEAD", "PUT", "POST")}
    with pytest.raises(UnreadableError, match=r"Forbidden|Authentication|Permission"):
        stores.state(f"{away}/m.pt", fresh=True)
    assert store.proxy.delivered["403"] <= 3 if store.takes_requests else store.proxy.connections == 1  # gcsfs makes three of one
    with pytest.raises(UsageError, match=r"cannot write there: .*(?:Forbidden|Authentication|Permission)"):
        uploads.put(tmp_path / "m.safetensors", f"{away}/out/m.pt")
    assert store.proxy.delivered["403"] <= 4 if store.takes_requests else store.proxy.connections == 2


def test_a_target_is_the_old_one_or_the_new_one(store: Emulator, tmp_path: Path) -> None:
    """Whatever fails once; large enough for Google's upload in parts."""
    content = np.random.default_rng(0).bytes(6 << 20)
    (tmp_path / "a").write_bytes(content)
    seen: set[bytes | None] = set()
    store.proxy.after_each = lambda: seen.add(store.read("watched/a"))
    cases = [(m, f) for m in ("PUT", "POST", "HEAD", "GET") for f in ("cut", "503", "after")] if store.takes_requests else []
    try:
        for method, fault in cases:
            store.write("watched/a", b"old")
            store.proxy.begin()
            seen.clear()
            store.proxy.faults = {method: [fault]}
            with contextlib.suppress(UsageError):
                uploads.put(tmp_path / "a", f"{store.url}/watched/a")
                assert store.read("watched/a") == content, (method, fault)
            assert seen <= {b"old", content}, (method, fault, [len(state or b"") for state in seen])
    finally:
        store.proxy.after_each = lambda: None
    for cut in () if store.takes_requests else (3_000, 5_000, 200_000):
        store.write("watched/a", b"old")
        store.proxy.cut()
        store.proxy.begin()
        store.proxy.cuts = [cut]
        uploads.put(tmp_path / "a", f"{store.url}/watched/a")
        assert store.read("watched/a") == content and store.names("watched") == ["a"], cut


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
def test_what_passes_is_borne_by_readers(ending: str, store: Emulator, tmp_path: Path) -> None:
    safetensors.write(tmp_path / "m.safetensors", arrays(3, 200))
    rc.convert(tmp_path / "m.safetensors", tmp_path / "m.pt")
    content = (tmp_path / f"m.{ending}").read_bytes()
    store.write(f"m.{ending}", content)
    for fault in ("503", "cut", "slow", "after") if store.takes_requests else (4_000, 20_000, 100_000, 400_000):
        store.proxy.begin()
        if store.takes_requests:
            store.proxy.faults = {"HEAD": [fault], "GET": [fault]}
        else:
            store.proxy.cut()
            store.proxy.cuts = [fault]
        with stores.fetched(f"{store.url}/m.{ending}") as local:
            assert local.read_bytes() == content
        assert store.proxy.delivered[fault] if store.takes_requests else store.proxy.broken, fault


def test_a_server_that_does_not_answer_is_named(store: Emulator, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Clients of Azure and Google try again by themselves for half a minute and more: only with --long."""
    if store.takes_requests and not pytestconfig.getoption("--long"):
        return
    safetensors.write(tmp_path / "m.safetensors", arrays(1))
    for words, expected in (
        ((f"{store.dead}/m.pt", "--to", "onnx", "--out", tmp_path / "out"), 3),
        ((tmp_path / "m.safetensors", "--to", "onnx", "--out", f"{store.dead}/out", "--journal", tmp_path / "j"), 2),
    ):
        begun = time.monotonic()
        code, _, output = batch(*words, "--jobs", 1, around=store.nowhere)
        assert code == expected and "onnect" in output and "Traceback" not in output, output
        assert time.monotonic() - begun < 200
