"""docs/reliability.md names every command and every format that writes more than one file, as their calls find it by what they write."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from fuzz import writes
from rnnconvert.language import registry
from tests import ROOT
from tests.helpers.commands import call
from tests.helpers.every_command import CALLS, Values, called, commands, is_path

ENDINGS = (".json", ".npz", ".pt", ".toml")
"""Of reports, of arrays, of models: each parameter takes one of these, or names a folder."""
MORE: dict[str, Values] = {
    "convert": {"paths": ["a.safetensors", "b.safetensors"], "out_dir": ["out"], "target_format": ["onnx"]},
    "report": {"document": ["report.json"], "outputs": ["report.md", "report.html"]},
}
"""Calls with several values of one parameter."""


def table(first: str) -> str:
    """The first column of a table of the page, by the head of that column."""
    text = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    _, _, rest = text.partition(f"| {first} | files |")
    return "\n".join(line.split("|")[1] for line in rest.partition("\n\n")[0].splitlines()[2:])


def written(folder: Path, words: list[str]) -> set[str]:
    """The files that a call writes, which are removed again."""
    before = {path for path in folder.rglob("*")}
    call(*words)
    new = {path for path in folder.rglob("*") if path not in before}
    files = {str(path.relative_to(folder)) for path in new if path.is_file()}
    for path in new:
        if path.parent not in new:
            (shutil.rmtree if path.is_dir() else Path.unlink)(path)
    return files


def fullest(folder: Path, words: str) -> Values:
    """The values of a call of a command with every parameter by which it writes a file."""
    values: dict[str, list[str]] = {name: [*texts] for name, texts in CALLS[words].items()}
    flags = ["--verify"] if any(option.name == "verify" and not is_path(option) for option in commands()[words].params) else []
    for parameter in commands()[words].params:
        name = parameter.name or ""
        if is_path(parameter) and name not in values:
            for end in ENDINGS:
                path = f"{name}{end}"
                if any(path in file for file in written(folder, called(words, {**values, name: [path]}, flags))):
                    values[name] = [path]
                    break
    return values


def test_the_page_names_every_command_that_writes_several_files(folder: Path) -> None:
    several = {name for name, values in MORE.items() if len(written(folder, called(name, values))) > 1}
    for words in CALLS:
        if words not in several:
            for flag in (["--verify"], []):
                done = written(folder, called(words, fullest(folder, words), flag))
                several |= {words} if len(done) > 1 else set()
    assert set(re.findall(r"`(\w+)[^`]*`", table("command"))) == several


def test_the_page_names_every_format_of_several_files() -> None:
    stated = table("format").lower()
    several = {writes.targets()[name].format for name in writes.several(writes.targets())}
    assert len(several) > 4
    for name in several:
        title = registry.title(name).lower()
        assert title.split()[0] in stated, title
