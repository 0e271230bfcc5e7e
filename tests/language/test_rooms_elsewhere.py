"""A room that another distribution brings: its wheel is built, installed in a folder of its own, and converted with."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.weights import Recurrent
from rnnconvert.language.layout import Sizes
from tests import ROOT
from tests.helpers.stacks import PLAIN, random_stack

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "rnnconvert-acme"
version = "1.0"

[tool.setuptools]
packages = ["rnnconvert.formats.acme"]
"""

ROOM = '''
"""Acme's LSTM: one matrix a gate's side, the output gate first."""

from rnnconvert.language.layout import Holds, Layout, System, Tensor

SYSTEM = System("acme", "Acme", "acme 1.0", "none", ("one layer",), (".npz",), separator=".")
ARRAYS = (Tensor("W", "input"), Tensor("U", "recurrent"), Tensor("b", "input_bias"))
LSTM = Layout("acme.lstm", "lstm", "o g f i", ARRAYS, "acme/lstm.py", "acme.LSTM", holds=Holds(("input",), layers=False, directions=1))
'''

COMMANDS = """
from rnnconvert.core.room_command import RoomCommand

COMMANDS = (RoomCommand("acme-shrink", "Shrink a model of Acme", "Shrink MODEL.", ("rnnconvert acme-shrink a.npz b.npz",), "Acme's.",
                        "rnnconvert.formats.acme.shrink.shrink", "MODEL", "SMALL"),)
"""

SHRINK = """
class Shrunk:
    def lines(self):
        return ["half of it"]

def shrink(source, target, force, dry_run):
    open(target, "wb").close()
    return Shrunk()
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel is installed in."""
    folder = tmp_path_factory.mktemp("acme")
    room = folder / "rnnconvert" / "formats" / "acme"
    room.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (room / "__init__.py").write_text('FILES = {"acme": {"kinds": "npz", "endings": ".npz"}}\n', encoding="utf-8")
    (room / "layouts.py").write_text(ROOM, encoding="utf-8")
    (room / "commands.py").write_text(COMMANDS, encoding="utf-8")
    (room / "shrink.py").write_text(SHRINK, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    for words in (
        ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", "."],
        ["install", "--no-deps", "--no-index", "--find-links", "dist", "--target", "installed", "rnnconvert-acme"],
    ):
        done = subprocess.run([*pip, *words], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next((folder / "dist").iterdir())) as wheel:
        assert "rnnconvert/formats/acme/layouts.py" in wheel.namelist()
    return folder / "installed"


def written(path: Path) -> Recurrent:
    """Write a small LSTM for MLX, and return it."""
    stack = random_stack(Sizes("lstm", 3, 4, parts=PLAIN | {"input_bias"}), 1, np.float32).replace(name="rnn")
    rc.save(rc.Checkpoint("memory", "memory", {"rnn": stack}), path, "mlx")
    return stack


def rnnconvert(*words: object, elsewhere: Path | None) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, (ROOT, *([elsewhere] if elsewhere else []))))
    code = [sys.executable, "-m", "rnnconvert", *map(str, words)]
    return subprocess.run(code, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False)


def test_a_room_from_another_distribution_converts_both_ways(elsewhere: Path, tmp_path: Path) -> None:
    stack = written(tmp_path / "a.safetensors")
    done = rnnconvert("convert", tmp_path / "a.safetensors", tmp_path / "b.npz", "--to", "acme", elsewhere=elsewhere)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "b.npz") as arrays:
        matrix = arrays["W"]
    np.testing.assert_array_equal(matrix, np.concatenate([stack[0, 0].arrays["input", gate] for gate in "ogfi"]))
    words = ("convert", tmp_path / "b.npz", tmp_path / "c.safetensors", "--from", "acme", "--to", "mlx")
    done = rnnconvert(*words, elsewhere=elsewhere)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "c.safetensors").read_bytes() == (tmp_path / "a.safetensors").read_bytes()


def test_a_room_from_another_distribution_offers_a_command(elsewhere: Path, tmp_path: Path) -> None:
    assert "acme-shrink  Shrink a model of Acme" in rnnconvert("--help", elsewhere=elsewhere).stdout
    done = rnnconvert("acme-shrink", "a.npz", tmp_path / "b.npz", elsewhere=elsewhere)
    assert done.returncode == 0 and "half of it" in done.stderr, done.stderr
    assert (tmp_path / "b.npz").exists()


def test_without_the_distribution_its_format_is_unknown(tmp_path: Path) -> None:
    written(tmp_path / "a.safetensors")
    done = rnnconvert("convert", tmp_path / "a.safetensors", tmp_path / "b.npz", "--to", "acme", elsewhere=None)
    assert done.returncode == 2
    assert "acme" in done.stderr


def test_two_rooms_of_one_format_are_refused(tmp_path: Path) -> None:
    room = tmp_path / "rnnconvert" / "formats" / "other"
    room.mkdir(parents=True)
    (room / "__init__.py").write_text('FILES = {"mlx": {"kinds": "npz", "endings": ".npz"}}\n', encoding="utf-8")
    done = rnnconvert("formats", elsewhere=tmp_path)
    assert done.returncode == 2
    assert "'mlx'" in done.stderr and "rnnconvert.formats.other" in done.stderr


def test_the_rooms_of_another_rnnconvert_stay_out(tmp_path: Path) -> None:
    room = tmp_path / "rnnconvert" / "formats" / "other"
    room.mkdir(parents=True)
    (tmp_path / "rnnconvert" / "__init__.py").touch()
    (room / "__init__.py").write_text('FILES = {"other": {"kinds": "npz", "endings": ".npz"}}\n', encoding="utf-8")
    done = rnnconvert("formats", elsewhere=tmp_path)
    assert done.returncode == 0 and "other" not in [line.split()[0] for line in done.stdout.splitlines() if line]
