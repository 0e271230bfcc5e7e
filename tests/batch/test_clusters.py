"""Real clusters: worker processes that are killed in the middle; nothing is lost, and nothing is there twice."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rnnconvert.batch import manifest, workers
from rnnconvert.batch.journal import Journal
from rnnconvert.batch.run import run
from rnnconvert.batch.workers import Pool, Workers
from rnnconvert.containers import safetensors
from rnnconvert.core.errors import MissingPackageError, UsageError
from rnnconvert.running.child import missing
from tests import ROOT
from tests.batch.test_batch import arrays
from tests.helpers.requirements import need

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
    start = [script, "start", "--head", "--num-cpus", "3", "--port", port, "--ray-client-server-port", str(int(port) + 1)]
    subprocess.run([*start, "--include-dashboard=false", "--disable-usage-stats"], check=True, capture_output=True, env=environment)
    # A client that comes before the node's agent listens is refused after half a minute.
    log, until = Path("/tmp/ray/session_latest/logs/runtime_env_agent.log"), time.monotonic() + 30
    while not (log.exists() and "Listening" in log.read_text()) and time.monotonic() < until:
        time.sleep(0.1)
    try:
        yield (
            f"ray://127.0.0.1:{int(port) + 1}",
            lambda: [p.pid for p in psutil.process_iter(["name"]) if (p.info["name"] or "").startswith("ray::_called")],
        )
    finally:
        subprocess.run([script, "stop", "--force"], capture_output=True, check=False)


@contextlib.contextmanager
def spark() -> Iterator[tuple[str, Any]]:
    """A master of Spark with two workers of one core each; the processes of Python are the children of their daemons."""
    import psutil
    import pyspark

    home = Path(pyspark.__file__).parent
    port = 20000 + os.getpid() % 20000
    environment = {
        **os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    start = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy"]
    mine: list[subprocess.Popen[bytes]] = []
    address = f"spark://127.0.0.1:{port}"

    def started(kind: str, *words: str) -> None:
        mine.append(
            subprocess.Popen(
                [start[0], f"{start[1]}.{kind}", "--webui-port", "0", *words],
                env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )
        )  # fmt: skip

    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as work:
        for name in ("SPARK_HOME", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYTHONPATH"):
            patch.setenv(name, environment[name])
        started("master.Master", "--host", "127.0.0.1", "--port", str(port))
        try:
            until = time.monotonic() + 60
            while not answers() and time.monotonic() < until:
                time.sleep(0.2)
            for number in range(2):
                started("worker.Worker", "-c", "1", "-m", "1g", "-d", f"{work}/{number}", address)

            def workers() -> list[int]:
                daemons: dict[int, int] = {}
                for process in (child for top in mine for child in psutil.Process(top.pid).children(recursive=True)):
                    with contextlib.suppress(psutil.NoSuchProcess):  # a zombie, too
                        if "pyspark.daemon" in process.cmdline():
                            daemons[process.pid] = process.ppid()
                return [pid for pid, parent in daemons.items() if parent in daemons]

            yield address, workers
        finally:
            for process in reversed(mine):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                process.wait(30)


@pytest.mark.parametrize("cluster", [dask, ray, spark], ids=["dask", "ray", "spark"])
def test_a_killed_worker_of_a_cluster_loses_nothing(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers are in another folder than the command, whose paths are relative."""
    name = {"dask": "distributed", "spark": "pyspark"}.get(cluster.__name__, cluster.__name__)
    need(cluster.__name__, missing([name]))
    (tmp_path / "models").mkdir()
    for number in range(FILES):
        safetensors.write(tmp_path / "models" / f"m{number}.safetensors", arrays(number, 64))
    killed: list[int] = []
    with cluster() as (address, workers), Journal(tmp_path / "j") as journal:
        monkeypatch.chdir(tmp_path)
        items = manifest.items(["models/*.safetensors"], "out", "onnx", ".onnx").items

        def seen(entry: Any, done: int, total: int) -> None:
            pids = workers()
            if len(killed) < 2 and done >= (3, 15)[len(killed)] and pids:
                os.kill(pids[0], signal.SIGKILL)
                killed.append(pids[0])

        done = run(items, journal, Workers(2, address), {}, seen)
    assert len(killed) == 2 and done.code == 0, [entry.message for entry in done.entries if entry.code]
    lines = [json.loads(line) for line in (tmp_path / "j").read_text().splitlines()[1:]]
    assert len({row["key"] for row in lines}) == len(lines) == FILES
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(f"m{n}.onnx" for n in range(FILES))


def test_a_scheduler_that_goes_away_is_named_and_the_rest_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was under way is neither done nor failed, and no half target is left."""
    need("dask", missing(["distributed"]))
    import dask.config
    from distributed import LocalCluster

    for number in range(FILES):
        safetensors.write(tmp_path / f"m{number}.safetensors", arrays(number, 64))
    items = manifest.items([str(tmp_path / "*.safetensors")], str(tmp_path / "out"), "onnx", ".onnx").items
    monkeypatch.setattr(workers, "_PATIENCE", 1)
    quiet = {"silence_logs": 50, "dashboard_address": None, "host": "127.0.0.1", "protocol": "tcp"}
    soon = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with soon, LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **quiet) as cluster, Journal(tmp_path / "j") as journal:
        gone = cluster.scheduler_address.replace("tcp://", "dask://")
        with pytest.raises(UsageError, match=r"no scheduler answers|answers no more"):
            run(items, journal, Workers(1, gone), {}, lambda entry, done, total: cluster.close() if done == 3 else None)
    with Journal(tmp_path / "j") as journal:
        assert 3 <= len(journal.entries) < FILES and not any(entry.code for entry in journal.entries.values())
        done = run(items, journal, Workers(1), {})
    assert done.code == 0 and done.resumed >= 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(f"m{n}.onnx" for n in range(FILES))


class _Leaving(concurrent.futures.Executor):
    """A cluster that does the first tasks; of the others it ends none, or each with an error of its own."""

    def __init__(self, tasks: int, fails: bool) -> None:
        self.left, self.fails = tasks, fails

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        if self.left:
            future.set_result(function(*arguments, **named))
            self.left -= 1
        elif self.fails:
            future.set_exception(ValueError("not enough values to unpack"))
        return future

    def width(self) -> int:
        if not self.left:
            raise ConnectionError("gone")
        return 2


@pytest.mark.parametrize("fails", [False, True])
def test_a_cluster_that_goes_away_neither_keeps_the_batch_waiting_nor_fails_its_files(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        safetensors.write(tmp_path / f"m{number}.safetensors", arrays(number, 8))
    items = manifest.items([str(tmp_path / "*.safetensors")], str(tmp_path / "out"), "onnx", ".onnx").items
    clusters = [_Leaving(3, fails)]

    def connect(place: str) -> contextlib.nullcontext[Pool]:
        if not clusters:
            raise UsageError(f"dask://{place}: no scheduler answers there")
        cluster = clusters.pop()
        return contextlib.nullcontext(Pool(cluster, cluster.width))

    monkeypatch.setitem(workers._CLUSTERS, "dask", connect)
    monkeypatch.setattr("rnnconvert.batch.run.INTERVAL", 0.1)
    with Journal(tmp_path / "j") as journal:
        with pytest.raises(UsageError, match="no scheduler answers" if fails else "answers no more: ConnectionError: gone"):
            run(items, journal, Workers(2, "dask://host:1"), {})
        assert len(journal.entries) == 3 and not any(entry.code for entry in journal.entries.values())
        assert run(items, journal, Workers(), {}).resumed == 3


@pytest.mark.parametrize("address", ["slurm://host:1", "dask://", "host:8786"])
def test_an_address_that_is_none_is_named(address: str) -> None:
    with pytest.raises(UsageError, match="expected the address"), Workers(1, address).pool(1):
        pass


@pytest.mark.parametrize(("kind", "package"), [("dask", "distributed"), ("spark", "pyspark")])
def test_a_cluster_that_does_not_answer_is_named(kind: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need(kind, missing([package]))
    monkeypatch.setattr(workers, "_PATIENCE", 0.3)
    with pytest.raises(UsageError, match="no scheduler answers"), Workers(1, f"{kind}://127.0.0.1:9").pool(1):
        pass


def test_an_absent_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match="pip install ray"), Workers(1, "ray://host:1").pool(1):
        pass
