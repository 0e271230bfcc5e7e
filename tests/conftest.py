"""Set-up that all tests share."""

from __future__ import annotations

import compileall
import contextlib
import ctypes
import gc
import os
import random
import resource
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rnnconvert.containers import apart
from rnnconvert.core.malformed import strictly
from rnnconvert.core.remedies import of_the_command_line
from rnnconvert.language import registry as layouts
from rnnconvert.running import parent, registry, scripts
from tests import slow
from tests.helpers import drawn, ready, requirements, ways_out, workers

# TensorFlow reads these when it is first imported; its start-up notes would drown a failure's output.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# Once in some thousand runs a TensorFlow with several threads gave a layer the output of the one before it.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
# TensorFlow writes this when it is imported; processes that are kept are those of one environment.
os.environ.setdefault("TF2_BEHAVIOR", "1")
# Tests let disks fail and bound what a process may write: none of these processes may write a compiled module, which would be cut
# off and break the next one. `pytest_configure` compiles all modules before.
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
# PyTorch's threads would spin while they wait, which costs more than these small layers do.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# glibc keeps what is freed in an arena of each of the frameworks' many threads: the workers of a run, which read these when they are
# started, held up to 2.2 GB of memory, and 1.9 GB with two arenas from which large arrays stay out.
os.environ.setdefault("MALLOC_ARENA_MAX", "2")
os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(1 << 20))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="try every case, where a run tries a part of them by chance")
    text = f"run every slow test, where a run of the whole suite draws one in {slow.SHARE}; so does the variable RNNCONVERT_SLOW"
    parser.addoption("--slow", action="store_true", default=bool(os.environ.get("RNNCONVERT_SLOW")), help=text)
    text = "type every way out that an error of any test names, on the file at hand, once for each kind; so does --long"
    parser.addoption("--ways-out", action="store_true", help=text)
    parser.addoption("--record-slow", action="store_true", help="write down which tests are slow, after a run of all of them")
    seed = os.environ.get("RNNCONVERT_SEED")
    text = "draw the cases by this number, to repeat a run (default: that of the variable RNNCONVERT_SEED, otherwise another one each time)"
    parser.addoption("--seed", type=int, default=int(seed) if seed else None, help=text)


_SEED, _SLOW = "rnnconvert_seed", "rnnconvert_slow"
_COMPILED = "JAX_COMPILATION_CACHE_DIR"
_FOLDER: pytest.StashKey[tempfile.TemporaryDirectory[str]] = pytest.StashKey()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Let every worker of pytest-xdist draw by the seed that is printed, and as many tests."""
    node.workerinput.update({_SEED: node.config.option.seed, _SLOW: node.config.option.slow})


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a misspelt requirement before any test runs, compile what the processes of a run import, and settle what is drawn."""
    try:
        requirements.required()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        for folder in ("rnnconvert", "formats", "cli", "tests", "fuzz"):
            compileall.compile_dir(Path(__file__).parent.parent / folder, quiet=2)
    config.addinivalue_line("markers", "own_processes: a test that starts its executors anew")
    config.addinivalue_line("markers", "reads_apart: a test that reads HDF5 files in a process of their own, as users do")
    config.addinivalue_line("markers", "every_run: a slow test that runs without being drawn")
    config.addinivalue_line("markers", "drawn(count): of a test's parameters that many are tried, drawn by the seed")
    from_controller = getattr(config, "workerinput", {})
    if config.option.seed is None:
        config.option.seed = from_controller.get(_SEED, random.randrange(1 << 30))
    # Who names tests wants them all.
    named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.option.keyword or config.option.markexpr
    config.option.slow = from_controller.get(_SLOW, bool(named or config.option.long or config.option.record_slow or config.option.slow))
    drawn.SEED, drawn.LONG = config.option.seed, config.option.long
    if config.option.ways_out or config.option.long:
        ways_out.install()
        ways_out.WATCH.on = True
    if not drawn.LONG and "XLA_FLAGS" not in os.environ:
        # The layers are small: JAX takes longer to compile them than to run them.
        os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    if not drawn.LONG and not {_COMPILED, "workerinput"} & {*os.environ, *vars(config)}:
        # What one process of a run has compiled, its executors and the other workers find there.
        compiled = tempfile.TemporaryDirectory(prefix="rnnconvert-jax-")
        config.stash[_FOLDER] = compiled
        os.environ.update({_COMPILED: compiled.name, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"})
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


FIRST = ("test_tree_files", "test_training_optax", "test_transplant_jax")
"""Modules that take much memory for a moment: they run while little else is held."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep of the parameters of a test that is marked `drawn` as many as it says, unless single ones are asked for, and of the slow
    tests of the whole suite a share; sort.
    """
    tests: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        for mark in item.iter_markers("drawn"):
            tests.setdefault((item.nodeid.partition("[")[0], *mark.args), []).append(item)
    left: set[pytest.Item] = set()
    for (name, count), every in tests.items():
        left |= {*every} - {*drawn.drawn(every, count, name)}
    if any("[" in word for word in config.args):
        left = set()
    seconds = slow.recorded()
    if not config.option.slow:
        left |= slow.left_out([item for item in items if item not in left and slow.function(item.nodeid) in seconds])
    if left:
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=sorted(left, key=lambda item: item.nodeid))
    takes: dict[Path, float] = defaultdict(float)
    for item in items:
        takes[item.path] += seconds.get(slow.function(item.nodeid), 0.0)
    # The longest modules first, so that no worker is left alone with one of them at the end.
    items.sort(key=lambda item: (item.path.stem not in FIRST, -takes[item.path]))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave what the modules have imported out of every collection of garbage: the frameworks are a million objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True)
def kept_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verification and runs of whole models find their executors running, and scripts of ours what they import imported."""
    if "own_processes" not in request.keywords:
        monkeypatch.setattr(parent, "keeper", None if drawn.LONG else workers.KEEPER)
        monkeypatch.setattr(scripts, "subprocess", ready.Instead(_imported))


def _imported(command: Sequence[str]) -> str:
    """Return what a script imports: that of the proof of fused layers, or of an upgrade."""
    return "onnxruntime" if "fuse" in Path(command[3]).parts else f"tensorflow {command[4]}"


@pytest.fixture(autouse=True)
def read_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """HDF5 files are read in this process, as where no process can be copied: a copy of one with all frameworks costs more."""
    if "reads_apart" not in request.keywords and not drawn.LONG:
        monkeypatch.setattr(apart, "is_possible", lambda: False)


ROOM = 256 << 20
"""So many bytes more than after the last time are held when it is cleared away."""
MOST = 1000 << 20
"""Below so many bytes nothing is cleared away."""
STATUS = Path("/proc/self/statm")
_level = 0


@pytest.fixture(autouse=True)
def freed_memory() -> Iterator[None]:
    """What JAX has compiled and keeps for the next time ends when this process grows large."""
    global _level
    yield
    if held() > max(MOST, _level + ROOM):
        free()
        _level = held()


_FAILED: pytest.StashKey[bool] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def emptied_folder(request: pytest.FixtureRequest) -> Iterator[None]:
    """The files of a test that passed go with it: together they are more than a small disk holds.

    The folders stay, since executors that are kept may have been started in one.
    """
    folder: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if folder is not None and not request.node.stash.get(_FAILED, False):
        for place, _, files in os.walk(folder):
            for name in files:
                with contextlib.suppress(OSError):
                    Path(place, name).unlink()


@pytest.fixture(autouse=True)
def ways_out_typed() -> Iterator[None]:
    """With --ways-out, every way out that an error of this test names is typed, on the file at hand, when the error is raised."""
    ways_out.forget()
    yield
    assert not ways_out.WATCH.faults, "\n".join(ways_out.WATCH.faults)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the calls of tests/helpers/every_command.py read, in which the test runs."""
    from tests.helpers import every_command

    requirements.need("onnxruntime", registry.executors()[every_command.EXECUTOR].absent)
    every_command.prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "executors.json"))
    return tmp_path


@pytest.fixture(autouse=True)
def forgotten_layouts() -> Iterator[None]:
    """The layouts that a test or a page adds are gone after it: files of other tests may fit them."""
    yield
    if layouts._ADDED:
        layouts.forget()


@pytest.fixture(scope="module", autouse=True)
def forgotten_layers() -> Iterator[None]:
    """Keras and PyTorch's compiler begin every module anew, with their first names."""
    yield
    if "keras" in sys.modules:
        sys.modules["keras"].backend.clear_session(free_memory=False)
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()


def held() -> int:
    """The bytes of memory that this process holds now; 0 where the system does not say."""
    try:
        return int(STATUS.read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def free() -> None:
    """Have JAX forget what it compiled, and give memory back to the system."""
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()
    if sys.platform == "linux":  # the allocator keeps freed memory, and the next test's arrays come on top
        ctypes.CDLL(None).malloc_trim(0)


PEAKS: list[float] = []
"""The peaks of the workers of pytest-xdist."""


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput.update(peak=peak(), typed=ways_out.WATCH.typed)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    PEAKS.append(output.get("peak", 0.0))
    ways_out.WATCH.typed += output.get("typed", 0)


def pytest_unconfigure() -> None:
    workers.KEEPER.end()
    ready.end()


def pytest_report_header(config: pytest.Config) -> list[str]:
    if drawn.LONG:
        return ["every case: --long"]
    share = [] if config.option.slow else [f"one in {slow.SHARE} of the tests that take over {slow.SECONDS} s is drawn: --slow runs all"]
    return [f"cases drawn by chance: --seed {drawn.SEED} repeats them, --long tries all", *share]


def peak() -> float:
    """The most memory that this process has held, in GB."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1e9 if sys.platform == "darwin" else 1e6)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.option.record_slow:
        slow.record(report for reports in terminalreporter.stats.values() for report in reports)
    if ways_out.WATCH.on:
        terminalreporter.write_line(f"{ways_out.WATCH.typed} ways out of errors typed")
    terminalreporter.write_line(f"--seed {drawn.SEED}; at most {max(PEAKS, default=peak()):.1f} GB of memory in a process")


@pytest.fixture(autouse=True)
def _strict() -> Iterator[None]:
    """No fault of ours passes for damage of a file."""
    with strictly():
        yield


_IN_PYTHON = ("test_python", "test_transplant", "test_training", "test_docs")
"""The modules whose texts are those that Python users read."""


@pytest.fixture(autouse=True)
def _words(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let messages speak as they were composed, in the words of the command line; Python's own words have their tests."""
    if request.module.__name__.rpartition(".")[2].startswith(_IN_PYTHON):
        yield
        return
    with of_the_command_line():
        yield
