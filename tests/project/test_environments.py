"""An environment is made whole or not at all, from an interpreter that really runs."""

from __future__ import annotations

import pathlib
import sys
import threading
import time

import pytest

from tests import environments
from tests.environments import CannotMakeError
from tests.helpers.requirements import VARIABLE


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Where environments are made in these tests; making one writes a file."""
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setitem(environments.MAKERS, "mxnet", lambda place: (place / "made").touch())
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "mxnet"


def shim(folder: pathlib.Path, name: str) -> pathlib.Path:
    """A program of that name that fails, as a version manager's do for a version that is not chosen."""
    file = folder / name
    file.write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def test_an_environment_is_made_once(folder: pathlib.Path) -> None:
    environments.make("mxnet")
    (folder / "made").unlink()
    environments.make("mxnet")
    assert not (folder / "made").exists()
    assert environments.missing("mxnet") == ""


def test_a_half_made_environment_is_made_anew(folder: pathlib.Path) -> None:
    folder.mkdir()
    (folder / "rest").touch()
    assert environments.missing("mxnet") != ""
    environments.make("mxnet")
    assert not (folder / "rest").exists()


def test_an_environment_of_other_pins_is_made_anew(folder: pathlib.Path) -> None:
    environments.make("mxnet")
    (folder / "made-from.txt").write_text("mxnet==1.5.0\n", encoding="utf-8")
    assert environments.missing("mxnet") == "not made; make it with: python -m tests.environments mxnet"


def test_a_required_environment_is_made(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "mxnet")
    assert environments.missing("mxnet") == ""
    assert (folder / "made").exists()


def test_a_required_environment_that_cannot_be_made_says_why(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(place: pathlib.Path) -> None:
        raise CannotMakeError("no network")

    monkeypatch.setitem(environments.MAKERS, "mxnet", fail)
    monkeypatch.setenv(VARIABLE, "mxnet")
    assert environments.missing("mxnet") == "no network"


@pytest.mark.skipif(sys.platform == "win32", reason="the shim is a shell script")
def test_without_an_old_python_nothing_is_made(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(shim(tmp_path, "python3.11")))
    with pytest.raises(CannotMakeError, match=r"needs Python 3\.8 to 3\.11, and none that runs is on PATH"):
        environments.MAKERS["mxnet"](tmp_path / "mxnet")
    assert not (tmp_path / "mxnet").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="the shim is a shell script")
def test_an_interpreter_behind_a_shim_is_found(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for place in (first, second):
        place.mkdir()
        shim(place, "python3.9")
    monkeypatch.setenv("PATH", f"{first}:{second}")
    monkeypatch.setenv("HOME", str(tmp_path))
    interpreters = [path for path in environments._pythons(environments.MXNET_PYTHONS) if path != sys.executable]
    assert [str(first / "python3.9"), str(second / "python3.9")] == interpreters


def test_two_that_need_an_environment_at_once_make_it_once(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = []

    def slowly(place: pathlib.Path) -> None:
        places.append(place)
        time.sleep(0.2)

    monkeypatch.setitem(environments.MAKERS, "mxnet", slowly)
    both = [threading.Thread(target=environments.make, args=("mxnet",)) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert places == [folder]
