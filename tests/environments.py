"""Judges that cannot live beside the others: each gets a folder of its own, made once.

    python -m tests.environments mxnet cudnn

makes them under .environments/. A test run makes one only where RNNCONVERT_REQUIRE names it, since
hundreds of megabytes are downloaded; otherwise the tests that need it skip, and say this command.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator

from tests.requirements import required

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".environments"
PINS = ROOT / "tests" / "pins"
MXNET_PYTHONS = ((3, 11), (3, 10), (3, 9), (3, 8))
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
    if not _ready(name):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        MAKERS[name](folder)
        # Written last: a folder without it was left half-made.
        _marker(name).write_bytes(_pins(name).read_bytes())
    return folder


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


def _pythons(versions: tuple[tuple[int, int], ...]) -> Iterator[str]:
    yield sys.executable
    for major, minor in versions:
        for folder in os.get_exec_path():
            found = shutil.which(f"python{major}.{minor}", path=folder)
            if found:
                yield found


def _make_venv(name: str, folder: pathlib.Path, versions: tuple[tuple[int, int], ...], *options: str) -> None:
    """A virtual environment with exactly the packages pinned, under one of these Pythons."""
    python = next((found for found in _pythons(versions) if _version(found) in versions), None)
    if python is None:
        words = " or ".join(f"{major}.{minor}" for major, minor in versions)
        raise CannotMakeError(f"{name} needs Python {words}, and none that runs is on PATH")
    _run(python, "-m", "venv", folder)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check", "--no-deps")
    _run(*pip, *(options or ("--only-binary", ":all:")), "--requirement", _pins(name))


def _make_mxnet(folder: pathlib.Path) -> None:
    _make_venv("mxnet", folder, MXNET_PYTHONS)


def _make_paddle(folder: pathlib.Path) -> None:
    _make_venv("paddle", folder, PYTHON_311)


def _make_chainer(folder: pathlib.Path) -> None:
    # Chainer has no wheel, and its setup.py needs the pkg_resources that the venv's own setuptools still has.
    _make_venv("chainer", folder, PYTHON_311, "--no-build-isolation")


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
                with (
                    archive.open(f"nvidia/cudnn/lib/{library}") as source,
                    (folder / library).open("wb") as target,
                ):
                    shutil.copyfileobj(source, target, 1 << 20)


MAKERS: dict[str, Callable[[pathlib.Path], None]] = {
    "mxnet": _make_mxnet,
    "cudnn": _make_cudnn,
    "paddle": _make_paddle,
    "chainer": _make_chainer,
}


if __name__ == "__main__":
    for word in sys.argv[1:]:
        print(make(word))
