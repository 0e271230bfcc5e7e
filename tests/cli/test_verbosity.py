"""`-q` and `-v` are the same in every command: what they say of themselves, and what they do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rnnconvert.cli.main import main
from rnnconvert.cli.verbosity import QUIET, VERBOSE
from rnnconvert.running import registry
from tests import ROOT
from tests.helpers.requirements import need

EXAMPLE = "examples/encoder.keras"
CALLS = {
    "inspect": [EXAMPLE],
    "convert": [EXAMPLE, "out.onnx", "--force"],
    "batch": [EXAMPLE, "--to", "onnx", "--out", "batch", "--jobs", "1", "--force"],
    "demo": ["demo", "--force"],
    "view": [EXAMPLE, "-o", "view.html", "--force"],
    "identify": ["examples/unknown/weights.npz", "--io", "examples/unknown/sample.npz"],
    "transplant": ["same.pt", "--into", "same.pt", "-o", "filled.pt", "--force"],
    "map": ["same.pt", "same.pt"],
    "upgrade": ["examples/old_tagger.h5", "new.keras", "--force"],
    "export": [EXAMPLE, "whole.onnx", "--force"],
    "scaffold": ["examples/old_tagger.h5", "-o", "model.py", "--force"],
    "fuse": [str(ROOT / "tests" / "golden" / "fuse" / "jax_equinox_gru.onnx"), "-o", "again.onnx", "--force"],
    "verify": [EXAMPLE, "same.onnx", "--layer", "encoder", "--on", "onnxruntime-cpu"],
    "diff": [EXAMPLE, "same.onnx", "--layer", "encoder"],
    "diagnose": [EXAMPLE, "same.onnx", "--layer", "encoder"],
    "check": ["--config", "rnnconvert.toml"],
    "run": ["same.onnx", "--on", "onnxruntime-cpu", "--save", "results.safetensors"],
    "report": ["report.json"],
    "formats": ["keras"],
    "executors": [],
    "layout": ["keras", "--cell", "lstm"],
}
"""A call of each command that works."""
VERDICTS = {"verify", "diff", "diagnose", "check", "report", "identify"}
"""Commands whose result is a verdict: with `-q` a line."""


def commands() -> Iterator[tuple[str, click.Command]]:
    ctx = click.Context(main)
    for name in main.list_commands(ctx):
        command = main.get_command(ctx, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {below}", subcommand) for below, subcommand in command.commands.items())


def test_every_command_has_both_and_says_the_same_of_them() -> None:
    for name, command in commands():
        helps = {
            word: [option.help for option in command.params if isinstance(option, click.Option) and word in option.opts]
            for word in ("-q", "-v")
        }
        assert helps == {"-q": [QUIET], "-v": [VERBOSE]}, name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    need("onnxruntime", registry.executors()["onnxruntime-cpu"].absent)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    for words in (
        ["convert", EXAMPLE, "same.pt", "--layer", "encoder"],
        ["convert", EXAMPLE, "same.onnx", "--layer", "encoder"],
        ["verify", EXAMPLE, "same.onnx", "--layer", "encoder", "--on", "onnxruntime-cpu", "--report", "report.json"],
    ):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
    (tmp_path / "rnnconvert.toml").write_text(
        f'[[equal]]\na = "{EXAMPLE}"\nb = "same.onnx"\nlayers = ["encoder"]\non = ["onnxruntime-cpu"]\n'
    )
    return tmp_path


def test_each_command_prints_no_more_with_q_and_the_time_with_v(folder: Path) -> None:
    assert set(CALLS) == set(main.list_commands(click.Context(main)))
    for name, words in CALLS.items():
        plain, quiet, verbose = (CliRunner().invoke(main, [name, *words, *more]) for more in ([], ["-q"], ["-v"]))
        codes = [result.exit_code for result in (plain, quiet, verbose)]
        assert len(set(codes)) == 1 and codes[0] in (0, 1), (name, codes, plain.output, quiet.output)
        assert set(quiet.stdout.splitlines()) <= set(plain.stdout.splitlines()) or name in VERDICTS, name
        if name in VERDICTS:
            assert len(quiet.output.splitlines()) == 1, (name, quiet.output)
        else:
            assert quiet.stderr == "", (name, quiet.stderr)
        assert "took" not in plain.output + quiet.output
        assert verbose.stderr.splitlines()[-1].startswith("took "), (name, verbose.stderr)
