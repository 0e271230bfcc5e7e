"""Who converts: processes of this machine, or a cluster behind an address; both as Python's own executors."""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import functools
import importlib
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rnnconvert.containers.asking import log_nothing
from rnnconvert.containers.reading import zeros_for_cut_files
from rnnconvert.core.errors import MissingPackageError, UsageError
from rnnconvert.core.remedies import Flag
from rnnconvert.running import parent
from rnnconvert.running.kept import KeptProcesses

_PATIENCE = 20
"""How many seconds a cluster has to answer."""
INTERVAL = 5.0
"""After how many seconds a cluster is asked again how many workers it has, and whether it is still there."""
_RETRIES = 3
"""How often Ray tries a file again at which a worker died; Dask and Spark have their own settings, 3 as well."""
_THREADS = 256
"""How many of Spark's jobs are awaited at a time."""


@dataclass
class Pool:
    """A runner of functions.

    executor  takes them
    ask       returns how many it can run at a time now; raises the cluster's own error if it is gone
    """

    executor: concurrent.futures.Executor
    ask: Callable[[], int]
    _width: int = 1
    _until: float = 0.0

    def width(self) -> int:
        """Return how many functions run at a time, at least one; it is asked anew after some seconds only."""
        if time.monotonic() > self._until:
            self._width, self._until = max(1, self.ask()), time.monotonic() + INTERVAL
        return self._width


@dataclass(frozen=True)
class Workers:
    """Who works.

    jobs  how many files at a time; 1 for this process alone, unless a cluster works
    on    a cluster, "dask://HOST:PORT", "ray://HOST:PORT" or "spark://HOST:PORT"; "" for processes of this machine
    """

    jobs: int = 1
    on: str = ""

    @contextlib.contextmanager
    def pool(self, jobs: int) -> Iterator[Pool]:
        """Yield a runner of functions. Raises MissingPackageError, UsageError for a cluster that cannot be reached."""
        if not self.on:
            with concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _begin) as executor:
                yield Pool(executor, lambda: jobs)
            return
        kind, _, place = self.on.partition("://")
        if kind not in _CLUSTERS or not place:
            raise UsageError(f"{Flag('on', self.on)}: expected the address of a scheduler, dask://, ray:// or spark://HOST:PORT")
        with _CLUSTERS[kind](place) as pool:
            yield pool


def _begin() -> None:
    """Prepare a process of this machine, which ends when the one that started it does, however that ends."""
    zeros_for_cut_files()
    log_nothing()
    parent.keeper = keeper = KeptProcesses()
    atexit.register(keeper.end)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    starter = multiprocessing.parent_process()
    if starter is not None:
        starter.join()
        # Nobody waits for what is under way, and a pipe that this process holds open keeps the caller of a killed parent waiting.
        os._exit(1)


@contextlib.contextmanager
def _dask(place: str) -> Iterator[Pool]:
    distributed = _package("distributed", "Dask")
    try:
        client = distributed.Client(f"tcp://{place}", timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise _unreachable(f"dask://{place}", error) from None

    def width() -> int:
        if client.status not in ("running", "connecting"):
            raise ConnectionError("the scheduler is gone")
        return sum(client.nthreads().values())

    # The executor's own end would wait for tasks that a scheduler that is gone never ends; the client's cancels them.
    with client:
        yield Pool(client.get_executor(pure=False), width)


class _OfRay(concurrent.futures.Executor):
    """Ray's tasks as futures of Python."""

    def __init__(self, ray: Any) -> None:
        self._start = ray.remote(max_retries=_RETRIES)(_called)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = self._start.remote(function, arguments, named).future()
        return future


def _called(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return function(*arguments, **named)


@contextlib.contextmanager
def _ray(place: str) -> Iterator[Pool]:
    ray = _package("ray", "Ray")
    try:
        ray.init("auto" if place == "auto" else f"ray://{place}", log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as error:  # ConnectionError is an OSError
        raise _unreachable(f"ray://{place}", error) from None
    try:
        yield Pool(_OfRay(ray), lambda: int(ray.cluster_resources().get("CPU", 1)))
    finally:
        ray.shutdown()


class _OfSpark(concurrent.futures.ThreadPoolExecutor):
    """Spark's jobs as futures of Python: one of a single task for each call, awaited by a thread."""

    def __init__(self, context: Any) -> None:
        super().__init__(_THREADS)
        self._context = context

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> concurrent.futures.Future[Any]:
        return super().submit(self._job, functools.partial(_called, function, arguments, named))

    def _job(self, call: Callable[[], Any]) -> Any:
        return self._context.parallelize([0], 1).map(functools.partial(_ignoring, call)).first()


def _ignoring(call: Callable[[], Any], _: int) -> Any:
    return call()


@contextlib.contextmanager
def _spark(place: str) -> Iterator[Pool]:
    _package("pyspark", "Spark")
    builder: Any = importlib.import_module("pyspark.sql").SparkSession.builder
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
    try:
        host, _, port = place.partition(",")[0].rpartition(":")
        socket.create_connection((host, int(port)), _PATIENCE).close()  # Spark itself would take minutes
        session = builder.master(f"spark://{place}").appName("rnnconvert").config(map=settings).getOrCreate()
    except (OSError, ValueError, RuntimeError) as error:
        raise _unreachable(f"spark://{place}", error) from None
    context = session.sparkContext
    executor = _OfSpark(context)
    try:
        yield Pool(executor, lambda: int(context.defaultParallelism))
    finally:
        context.cancelAllJobs()
        executor.shutdown(cancel_futures=True)
        session.stop()


_CLUSTERS: dict[str, Callable[[str], contextlib.AbstractContextManager[Pool]]] = {"dask": _dask, "ray": _ray, "spark": _spark}


def _package(name: str, cluster: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingPackageError(name, f"work on a {cluster} cluster") from None


def _unreachable(address: str, error: Exception) -> UsageError:
    return UsageError(f"{Flag('on', address)}: no scheduler answers there: {error}")
