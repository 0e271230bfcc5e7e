"""Judges that cannot live beside the others: each gets a folder of its own, made once.

    python -m tests.environments mxnet cudnn tensorflow1

makes them under .environments/. A test run makes one only where RNNCONVERT_REQUIRE names it, since
hundreds of megabytes are downloaded; otherwise the tests that need it skip, and say this command.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator

from tests.helpers.requirements import required

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".environments"
PINS = ROOT / "tests" / "pins"
MXNET_PYTHONS = ((3, 11), (3, 10), (3, 9), (3, 8))
TENSORFLOW_1_PYTHONS = ((3, 7),)
PYTHON_311 = ((3, 11),)
CUDNN_LIBRARIES = ("libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_adv.so.9", "libcudnn.so.9")
"""What the RNN calls of cuDNN need, in the order in which they are loaded."""


class CannotMakeError(Exception):
    """An environment cannot be made here; the message says why."""


def place(name: str) -> pathlib.Path:
    """Where an environment is, made or not."""
    return FOLDER / name


def missing(name: str) -> str:
    """Why an environment cannot be used, or "" if it can; a required one is made first."""
    if not _ready(name) and name in required():
        try:
            make(name)
        except CannotMakeError as error:
            return str(error)
    return "" if _ready(name) else f"not made; make it with: python -m tests.environments {name}"


def make(name: str) -> pathlib.Path:
    """Make an environment, unless it is there and its pins are those of tests/pins.

    Raises CannotMakeError.
    """
    folder = place(name)
    with _alone(name):
        _make(name, folder)
    return folder


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """Keep other processes from making the same environment; one that waited finds it made."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go when the file is closed, whatever becomes of this process
        yield


def _make(name: str, folder: pathlib.Path) -> None:
    if not _ready(name):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        MAKERS[name](folder)
        # Written last: a folder without it was left half-made.
        _marker(name).write_bytes(_pins(name).read_bytes())


def _pins(name: str) -> pathlib.Path:
    return PINS / f"{name}.txt"


def _marker(name: str) -> pathlib.Path:
    return place(name) / "made-from.txt"


def _ready(name: str) -> bool:
    return _marker(name).is_file() and _marker(name).read_bytes() == _pins(name).read_bytes()


def _run(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        tail = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise CannotMakeError(f"{' '.join(map(str, command))} failed: {' '.join(tail)}")


def _version(python: str) -> tuple[int, ...]:
    """Version of an interpreter that can make an environment; () if it is a shim, or lacks pip."""
    code = "import sys, ensurepip, venv; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    except OSError:
        return ()
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else ()


def _pythons(wanted: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Interpreters of these versions: this one, those on PATH, and those that pyenv has."""
    yield sys.executable
    for major, minor in wanted:
        for folder in os.get_exec_path():
            python = shutil.which(f"python{major}.{minor}", path=folder)
            if python:
                yield python
        versions = (pathlib.Path.home() / ".pyenv" / "versions").glob(f"{major}.{minor}.*")
        yield from (str(version / "bin" / "python") for version in sorted(versions))


def _venv(folder: pathlib.Path, name: str, wanted: tuple[tuple[int, int], ...], what: str, built: str = "", alone: bool = True) -> None:
    """A virtual environment with the packages of tests/pins, under the first interpreter of these versions.

    built  the packages that have no wheels
    alone  whether those are built with the newest tools, instead of the environment's own
    """
    python = next((path for path in _pythons(wanted) if _version(path) in wanted), None)
    if python is None:
        raise CannotMakeError(f"{what}, and none that runs is on PATH")
    _run(python, "-m", "venv", folder)
    install = (folder / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check", "--no-deps")
    if not alone:  # what builds a package has to be there before its metadata is asked for
        pins = _pins(name).read_text(encoding="utf-8").splitlines()
        _run(*install, *[line for line in pins if line.startswith(("setuptools==", "wheel=="))])
    _run(
        *install, "--only-binary", ":all:", *(["--no-binary", built] if built else []),
        *([] if alone else ["--no-build-isolation"]), "--requirement", _pins(name),
    )  # fmt: skip


def _make_mxnet(folder: pathlib.Path) -> None:
    _venv(folder, "mxnet", MXNET_PYTHONS, "MXNet 1.9.1 needs Python 3.8 to 3.11")


def _make_tensorflow1(folder: pathlib.Path) -> None:
    _venv(folder, "tensorflow1", TENSORFLOW_1_PYTHONS, "TensorFlow 1.15 needs Python 3.7", "gast,termcolor,wrapt")


def _make_tensorflow218(folder: pathlib.Path) -> None:
    _venv(folder, "tensorflow218", PYTHON_311, "TensorFlow 2.18 is pinned for Python 3.11")


def _make_paddle(folder: pathlib.Path) -> None:
    _venv(folder, "paddle", PYTHON_311, "Paddle is pinned for Python 3.11")


def _make_chainer(folder: pathlib.Path) -> None:
    # Its setup.py needs the pkg_resources that a new environment's own setuptools still has.
    _venv(folder, "chainer", PYTHON_311, "Chainer is pinned for Python 3.11", "chainer", alone=False)


def _make_tf_keras(folder: pathlib.Path) -> None:
    # Beside the packages of this Python: TensorFlow is among them, and a second one would be half a gigabyte.
    _run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    _run(python, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--requirement", _pins("tf_keras"))
    (packages,) = folder.glob("lib/python*/site-packages")
    folders = [entry for entry in sys.path if entry.endswith("site-packages")]
    (packages / "beside.pth").write_text("\n".join(folders) + "\n", encoding="utf-8")


def _make_cudnn(folder: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as wheels:
        _run(
            sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps",
            "--only-binary", ":all:", "--platform", "manylinux_2_27_x86_64", "--dest", wheels,
            "--requirement", _pins("cudnn"),
        )  # fmt: skip
        (wheel,) = pathlib.Path(wheels).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for library in CUDNN_LIBRARIES:
                with archive.open(f"nvidia/cudnn/lib/{library}") as source, (folder / library).open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)


def _make_tfjs(folder: pathlib.Path) -> None:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise CannotMakeError("TensorFlow.js needs node and npm, which are not on PATH")
    pins = _pins("tfjs").read_text(encoding="utf-8").split()
    tries = ("--fetch-retries", "1", "--fetch-timeout", "60000")
    _run(npm, "install", *tries, "--prefix", folder, "--no-audit", "--no-fund", "--ignore-scripts", "--save-exact", *pins)


MAKERS: dict[str, Callable[[pathlib.Path], None]] = {
    "mxnet": _make_mxnet,
    "cudnn": _make_cudnn,
    "tensorflow1": _make_tensorflow1,
    "tensorflow218": _make_tensorflow218,
    "paddle": _make_paddle,
    "chainer": _make_chainer,
    "tf_keras": _make_tf_keras,
    "tfjs": _make_tfjs,
}


if __name__ == "__main__":
    for word in sys.argv[1:]:
        print(make(word))
