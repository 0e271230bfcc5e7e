"""Real clusters: worker processes that are killed in the middle; nothing is lost, and nothing is there twice."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rnnconvert.batch import manifest
from rnnconvert.batch.journal import Journal
from rnnconvert.batch.run import run
from rnnconvert.batch.workers import Workers
from rnnconvert.containers import safetensors
from rnnconvert.core.errors import MissingPackageError, UsageError
from rnnconvert.running.child import missing
from tests.requirements import need
from tests.test_batch import arrays

FILES = 40


@contextlib.contextmanager
def dask() -> Iterator[tuple[str, Any]]:
    """A scheduler with three worker processes, and what tells their process ids."""
    from distributed import LocalCluster

    quiet = {"silence_logs": 50, "dashboard_address": None}
    with LocalCluster(n_workers=3, threads_per_worker=1, processes=True, host="127.0.0.1", **quiet) as cluster:
        yield (
            cluster.scheduler_address.replace("tcp://", "dask://"),
            lambda: [nanny.process.pid for nanny in cluster.workers.values() if nanny.process and nanny.process.pid],
        )


@contextlib.contextmanager
def ray() -> Iterator[tuple[str, Any]]:
    """A node of Ray with three workers."""
    import psutil

    script = str(Path(sys.executable).with_name("ray"))
    port = str(20000 + os.getpid() % 20000)
    environment = {**os.environ, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    start = [
        script,
        "start",
        "--head",
        "--num-cpus",
        "3",
        "--port",
        port,
        "--ray-client-server-port",
        str(int(port) + 1),
    ]
    subprocess.run(
        [*start, "--include-dashboard=false", "--disable-usage-stats"], check=True, capture_output=True, env=environment
    )
    try:
        yield (
            f"ray://127.0.0.1:{int(port) + 1}",
            lambda: [p.pid for p in psutil.process_iter(["name"]) if (p.info["name"] or "").startswith("ray::_called")],
        )
    finally:
        subprocess.run([script, "stop", "--force"], capture_output=True, check=False)


@pytest.mark.parametrize("cluster", [dask, ray], ids=["dask", "ray"])
def test_a_killed_worker_of_a_cluster_loses_nothing(cluster: Any, tmp_path: Path) -> None:
    name = {"dask": "distributed"}.get(cluster.__name__, cluster.__name__)
    need(cluster.__name__, missing([name]))
    (tmp_path / "models").mkdir()
    for number in range(FILES):
        safetensors.write(tmp_path / "models" / f"m{number}.safetensors", arrays(number, 64))
    items = manifest.items([str(tmp_path / "models" / "*.safetensors")], str(tmp_path / "out"), "onnx", ".onnx")
    killed: list[int] = []
    with cluster() as (address, workers), Journal(tmp_path / "j") as journal:

        def seen(entry: Any, done: int, total: int) -> None:
            found = workers()
            if len(killed) < 2 and done >= (3, 15)[len(killed)] and found:
                os.kill(found[0], signal.SIGKILL)
                killed.append(found[0])

        done = run(items, journal, Workers(2, address), {}, seen)
    assert len(killed) == 2 and done.code == 0, [entry.message for entry in done.entries if entry.code]
    lines = [json.loads(line) for line in (tmp_path / "j").read_text().splitlines()[1:]]
    assert len({one["key"] for one in lines}) == len(lines) == FILES
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == sorted(f"m{n}.onnx" for n in range(FILES))


@pytest.mark.parametrize("address", ["spark://host:1", "dask://", "host:8786"])
def test_an_address_that_is_none_is_named(address: str) -> None:
    with pytest.raises(UsageError, match="expected the address"), Workers(1, address).pool(1):
        pass


def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    need("dask", missing(["distributed"]))
    from rnnconvert.batch import workers

    monkeypatch.setattr(workers, "_PATIENCE", 0.3)
    with pytest.raises(UsageError, match="no scheduler answers"), Workers(1, "dask://127.0.0.1:9").pool(1):
        pass


def test_an_absent_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match="pip install ray"), Workers(1, "ray://host:1").pool(1):
        pass
