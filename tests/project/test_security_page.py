"""SECURITY.md names every command that runs a model, and no other: what the commands start is traced, and compared with its table."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from rnnconvert.running import registry
from tests import ROOT
from tests.helpers import every_command
from tests.helpers.commands import call
from tests.helpers.drawn import NotComparedError, drawn, each
from tests.helpers.every_command import CALLS, Values, called, commands
from tests.helpers.requirements import need

pytestmark = pytest.mark.own_processes

CHILD = "child.py"
"""What every process of an executor runs (rnnconvert.running.parent)."""

WHOLE_MODEL_CALLS: dict[str, Values] = {
    "check": CALLS["check"],
    "diagnose": {"a": ["exported.onnx"], "b": ["again.onnx"]},
    "verify": {"a": ["exported.onnx"], "b": ["again.onnx"]},
    "identify --convert": {**CALLS["identify"], "target": ["new.pt"]},
    "transplant": {"source": ["exported.onnx"], "target": ["again.onnx"], "output": ["filled.onnx"]},
    "transplant --verify": {"source": ["exported.onnx"], "target": ["again.onnx"], "output": ["filled.onnx"], "inputs": ["x.npy"]},
    "scaffold": {"source": ["decoder.keras"], "output": ["new.py"]},
    "scaffold --weights": CALLS["scaffold"],
}
"""Calls in which a command meets whole models, or an option of its own that writes."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the calls read, in which they run."""
    need("onnxruntime", registry.executors()[every_command.EXECUTOR].absent)
    every_command.prepare(tmp_path)
    (tmp_path / "again.onnx").write_bytes((tmp_path / "exported.onnx").read_bytes())
    np.save(tmp_path / "x.npy", np.ones((2, 7, 4), np.float32))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path / "executors.json"))
    return tmp_path


def table() -> list[tuple[str, str, str, str]]:
    """The rows of the table: command, what runs, where, limits."""
    text = (ROOT / "SECURITY.md").read_text("utf-8").partition("## Running models")[2]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in text.splitlines() if line.startswith("|")]
    first = rows.index(("command", "what runs", "where", "limits"))
    wanted = []
    for row in rows[first + 2 :]:
        if len(row) != 4:
            break
        wanted.append((row[0], row[1], row[2], row[3]))
    return wanted


def named() -> set[str]:
    """The commands in the table's first column, each with the flag that is named with it."""
    spans = [span for row in table() if "your process" not in row[2] for span in re.findall(r"`([^`]+)`", row[0])]
    words = [span.split() for span in spans]
    return {f"{first} {rest[-1]}" if rest and rest[-1].startswith("--") else first for first, *rest in words}


def variations() -> Iterator[tuple[str, list[str]]]:
    """Yield the calls of all commands, by what the page would call them: each by itself, and with each of its flags."""
    for words, command in commands().items():
        if words not in WHOLE_MODEL_CALLS:
            yield words, called(words)
        for flag in flags(command):
            yield f"{words} {flag}", called(words, more=[flag])
    for name, values in WHOLE_MODEL_CALLS.items():
        yield name, called(name.partition(" --")[0], values)


def flags(command: click.Command) -> list[str]:
    """The flags of a command, and the options that may be used as such."""
    ours = [p for p in command.params if isinstance(p, click.Option) and (p.is_flag or p.metavar == "[INPUTS.npz]")]
    return [option.opts[-1] for option in ours if option.name not in ("help", "debug", "verbose", "quiet", "as_json", "force")]


_started: list[str] = []


def _hear(event: str, arguments: Sequence[Any]) -> None:
    if event == "subprocess.Popen" and any(str(word).endswith(CHILD) for word in arguments[1]):
        _started.append(str(arguments[1]))


sys.addaudithook(_hear)


def starts(words: list[str]) -> bool:
    """Whether a call starts an executor, whatever comes of it. Raises NotComparedError where the framework is absent."""
    _started.clear()
    before = {file.name for file in Path().iterdir()}
    done = call(*words)
    for file in Path().iterdir():  # so that the next call may write it
        if file.name not in before and file.is_file():
            file.unlink()
    if done.exit_code == 5 and not _started:
        raise NotComparedError(done.output)
    return bool(_started)


def test_the_page_names_every_command_that_runs_a_model() -> None:
    page = named()

    def check(variation: tuple[str, list[str]]) -> None:
        name, words = variation
        command, _, flag = name.partition(" --")
        if starts(words):
            assert name in page or command in page or (command in ("scaffold", "convert") and f"{command} --weights" in page), name
        else:
            assert name not in page or flag in ("no-explain", "gradients"), f"{name} starts nothing"

    stated = {*page, *WHOLE_MODEL_CALLS}  # a row that the page lost is missed in every draw
    each(drawn(variations(), 16, "what runs", always=lambda case: case[0] in stated), check, lambda case: case[0])


def test_each_row_says_where_and_with_which_limits() -> None:
    for command, what, where, limits in table():
        assert what and where and limits, command
        assert "below" in limits or limits.startswith("none"), (command, limits)
        assert "process" in where, (command, where)
