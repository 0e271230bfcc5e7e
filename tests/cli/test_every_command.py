"""What holds for every command and every option: nothing waits, every name is a name, and output that is lost is said.

The commands and options are those that click lists (tests/helpers/every_command.py).
"""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from tests.helpers.commands import call
from tests.helpers.drawn import drawn, each
from tests.helpers.every_command import CALLS, Place, called, commands, is_path, places, with_path

pytestmark = pytest.mark.usefixtures("folder")


def test_every_command_has_a_call_that_ends_well() -> None:
    assert {*CALLS} == {*commands()}
    each(CALLS, lambda words: _ended(called(words), 0), str)  # in their order: what `executors add` adds is removed


def _ended(words: list[str], *codes: int) -> None:
    done = call(*words)
    assert done.exit_code in codes, (done.exit_code, done.output)


def test_what_is_described_as_a_file_is_a_path() -> None:
    """So the tests below see it."""
    described = ("FILE", "FOLDER", "PATH", "PAGE", "MODEL.", ".np", ".toml", ".json")
    for words, command in commands().items():
        for parameter in command.params:
            if any(word in (parameter.metavar or "") for word in described):
                assert is_path(parameter), f"{words} {parameter.opts}"


class WaitedError(BaseException):
    """A call did not end."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Interrupt what the block waits for."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise WaitedError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except WaitedError:
        pytest.fail(f"it did not end within {seconds} s", pytrace=False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def endings(place: Place) -> str:
    """Return the ending that the values of a parameter have in its call, or in what the help says of it."""
    value = next(iter(CALLS[place.words].get(place.parameter.name or "", ())), place.parameter.metavar or "")
    return Path(value.strip("[]")).suffix or ".npz"


UNOPENED = {"check files": (0,)}
"""Of these a name is all that counts: rnnconvert.toml names the files that are opened."""


@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_no_option_waits_for_what_is_no_file(kind: str, folder: Path) -> None:
    """Neither to read from it, nor to write to it."""

    def check(place: Place) -> None:
        path = folder / f"special{endings(place)}"
        path.unlink(missing_ok=True)
        if kind == "device":
            path.symlink_to("/dev/zero")
        elif kind == "socket":
            os.mknod(path, 0o600 | 0o140000)
        else:
            os.mkfifo(path)
        with at_most(30):
            _ended(with_path(place, str(path)), 2, 3, *UNOPENED.get(str(place), ()))
        assert os.path.lexists(path) and not path.is_file(), "it was replaced"

    each(drawn(places(), 24, f"waiting {kind}"), check, str)


def test_every_file_is_opened_by_one_function(folder: Path) -> None:
    """One that waits for no pipe: the files that calls read, and those beside them."""
    waiting: set[str] = set()

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and listening and isinstance(arguments[0], (str, bytes, os.PathLike)):
            name, flags = os.fsdecode(arguments[0]), int(str(arguments[2]))
            path = folder / name
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if path.parent == folder and not writes and not flags & os.O_NONBLOCK and path.is_file():
                waiting.add(path.name)

    listening = False
    sys.addaudithook(hear)
    written = {file.name for file in folder.iterdir()}
    listening = True
    try:
        for words in CALLS:
            call(*called(words))
    finally:
        listening = False
    assert waiting & written == {"own.py"}, waiting  # which Python imports, once it was opened so


@pytest.mark.parametrize("place", ["name", "folder"])
def test_a_name_that_is_not_utf8_is_a_name_to_every_option(place: str, folder: Path) -> None:
    """Of what is read it is found, and of what is written it is made; no call ends as a fault of ours."""
    strange = folder / "s\udcff"
    strange.mkdir()

    def check(place_of: Place) -> None:
        values = {name: [*texts] for name, texts in CALLS[place_of.words].items()}
        name = place_of.parameter.name or ""
        before = values.get(name, [f"x{endings(place_of)}"])
        path = strange / before[0] if place == "folder" else folder / f"n\udcff{Path(before[0]).name}"
        if (folder / before[0]).is_file():
            shutil.copy(folder / before[0], path)
        done = call(*with_path(place_of, str(path)))
        assert done.exit_code in ((0,) if name in values else (0, 2, 3, 4)), (done.exit_code, done.output)
        assert "Traceback" not in done.output
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        (folder / "executors.json").unlink(missing_ok=True)
        _clean(folder)

    each(drawn([each_place for each_place in places() if each_place.parameter.name != "python"], 24, f"names {place}"), check, str)


def _clean(folder: Path) -> None:
    """Remove what a call wrote, so that the next one may write it."""
    for values in CALLS.values():
        for name in itertools.chain.from_iterable(values.values()):
            if name.startswith(NEW):
                shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink(missing_ok=True)


NEW = ("new.", "fast.", "map.", "report.md", "results.", "filled.", "upgraded.", "page.")


def test_batch_converts_what_has_a_name_that_is_not_utf8(folder: Path) -> None:
    (folder / "in").mkdir()
    for name in ("a.safetensors", "z\udcff.safetensors"):
        shutil.copy(folder / "a.safetensors", folder / "in" / name)
    for number, words in enumerate((["in/*.safetensors"], ["in"], ["in/z\udcff.safetensors"])):
        done = call("batch", *words, "--to", "onnx", "--out", f"out{number}", "--json", "--report", f"r{number}.json")
        assert done.exit_code == 0, done.output
        assert (folder / f"out{number}" / "z\udcff.onnx").exists()


@pytest.mark.own_processes
def test_nothing_is_left_in_the_home_and_in_the_temporary_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a command nor by the frameworks that it runs."""
    places_of = {"HOME": folder / "home", "TMPDIR": folder / "temporary"}
    for variable, path in places_of.items():
        path.mkdir()
        monkeypatch.setenv(variable, str(path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)

    def check(words: str) -> None:
        run = [sys.executable, "-m", "rnnconvert", *called(words)]
        assert subprocess.run(run, capture_output=True, timeout=120, check=False).returncode == 0
        _clean(folder)
        assert not [file for path in places_of.values() for file in path.rglob("*") if file.is_file()]

    chosen = [words for words in CALLS if words != "executors remove"]
    each(drawn(chosen, 3, "left", always=lambda words: words in ("fuse", "verify")), check, str)


@pytest.mark.parametrize("stream", ["closed", "full"])
def test_output_that_is_lost_is_said(stream: str, folder: Path) -> None:
    """Whatever prints on stdout ends with 74 where nothing can be printed; what prints nothing ends well."""

    def ready(words: str) -> None:
        _clean(folder)
        if words == "executors remove":
            call(*called("executors add"))

    def check(words: str) -> None:
        ready(words)
        printed = call(*called(words)).stdout
        ready(words)
        line = shlex.join([sys.executable, "-m", "rnnconvert", *called(words)])
        shell = ["sh", "-c", f"exec {line} {'>&-' if stream == 'closed' else '>/dev/full'}"]
        run = subprocess.run(shell, stderr=subprocess.PIPE, text=True, timeout=120)
        _clean(folder)
        assert run.returncode == (74 if printed else 0), run.stderr
        assert not printed or "stdout" in run.stderr or "cannot write the output" in run.stderr, run.stderr
        assert "Traceback" not in run.stderr

    each(drawn(CALLS, 4, f"lost {stream}"), check, str)
