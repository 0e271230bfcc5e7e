"""Every command of the program, as click lists them, with a call of each that ends well; what holds for all is tried on these.

A command that has no call here fails `tests/cli/test_every_command.py`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core import reference
from tests import ROOT
from tests.helpers import sources
from tests.helpers.executor_modules import module_text

EXECUTOR = "onnxruntime-cpu"


def commands() -> dict[str, click.Command]:
    """All commands by the words that call them, those of groups included."""

    def below(command: click.Command, words: str) -> Iterator[tuple[str, click.Command]]:
        if not isinstance(command, click.Group) or (words and command.invoke_without_command):
            yield words, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from below(inner, f"{words} {name}".strip())

    return dict(below(main, ""))


def is_path(parameter: click.Parameter) -> bool:
    """Whether a parameter names a file or a folder."""
    return isinstance(parameter.type, click.Path)


def prepare(folder: Path) -> None:
    """Write the files that the calls name."""
    prepare_models(folder)
    rc.verify(folder / "m.onnx", on=[EXECUTOR], cases=["states"], explain=False).write(str(folder / "report.json"))


def prepare_models(folder: Path) -> None:
    """Write the files that the calls name, but for those that executors give."""
    stack = sources.stack()
    for name in ("a.safetensors", "b.safetensors", "m.onnx"):
        sources.write(folder / name, stack)
    for name in ("exported.onnx", "decoder.keras", "old_tagger.h5"):
        shutil.copy(ROOT / "examples" / name, folder)
    shutil.copy(ROOT / "tests" / "golden" / "fuse" / "dynamo_gru_cell.onnx", folder / "steps.onnx")
    x = np.random.default_rng(2).normal(size=(7, 3, 3)).astype(np.float32)
    np.savez(folder / "sample.npz", x=x, y=reference.run(stack, x.astype(np.float64)).y.astype(np.float32))
    packed = rc.pack(stack, "pytorch")
    assert isinstance(packed, dict)
    np.savez(folder / "weights.npz", *map(np.asarray, packed.values()))
    (folder / "rnnconvert.toml").write_text(f'[[equal]]\na = "a.safetensors"\nb = "m.onnx"\non = ["{EXECUTOR}"]\n')
    (folder / "own.py").write_text(module_text("    raise NotImplementedError"))


Values = Mapping[str, Sequence[str]]

CALLS: dict[str, Values] = {
    "batch": {"sources": ["a.safetensors"], "target_format": ["onnx"], "folder": ["out"], "jobs": ["1"]},
    "check": {},
    "convert": {"paths": ["a.safetensors", "new.keras"]},
    "demo": {"folder": ["new.demo"]},
    "diagnose": {"a": ["a.safetensors"], "b": ["b.safetensors"]},
    "diff": {"a": ["a.safetensors"], "b": ["b.safetensors"]},
    "executors": {},
    "executors add": {"name": ["own"], "python": [sys.executable], "module": ["own.py"]},
    "executors remove": {"name": ["own"]},
    "export": {"source": ["decoder.keras"], "target": ["new.onnx"]},
    "formats": {},
    "fuse": {"source": ["steps.onnx"], "target": ["fast.onnx"]},
    "identify": {"weights": ["weights.npz"], "sample": ["sample.npz"]},
    "inspect": {"paths": ["a.safetensors"]},
    "layout": {"format": ["keras"], "cell": ["lstm"]},
    "map": {"source": ["a.safetensors"], "target": ["b.safetensors"], "output": ["map.yaml"]},
    "report": {"document": ["report.json"], "outputs": ["report.md"]},
    "run": {"model": ["m.onnx"], "on": [EXECUTOR], "cases": ["states"], "save": ["results.safetensors"]},
    "scaffold": {"source": ["decoder.keras"], "output": ["new.py"], "weights": ["new.pt"]},
    "transplant": {"source": ["a.safetensors"], "target": ["b.safetensors"], "output": ["filled.safetensors"]},
    "upgrade": {"source": ["old_tagger.h5"], "target": ["upgraded.keras"]},
    "verify": {"a": ["a.safetensors"], "b": ["m.onnx"], "on": [EXECUTOR], "cases": ["states"]},
    "view": {"path": ["a.safetensors"], "output": ["page.html"]},
}
"""For each command the values of its parameters, by the parameters' names: files of `prepare`, and new ones."""

INSTEAD: dict[tuple[str, str], tuple[str, ...]] = {("batch", "journal"): (), ("diagnose", "sample"): ("b",)}
"""What a parameter excludes: it is left out of the call."""


class Place(NamedTuple):
    """A parameter of a command: the words of the command, and the parameter."""

    words: str
    parameter: click.Parameter

    def __str__(self) -> str:
        return f"{self.words} {self.parameter.opts[-1]}"


def places() -> list[Place]:
    """Every parameter of every command that names a file or a folder."""
    return [Place(words, parameter) for words, command in commands().items() for parameter in command.params if is_path(parameter)]


def called(words: str, values: Values | None = None, more: Sequence[str] = ()) -> list[str]:
    """Return the words of a call.

    values  of its parameters, by the parameters' names; by default, those of CALLS
    more    words that follow those of the options
    """
    values = CALLS[words] if values is None else values
    options: list[str] = []
    arguments: list[str] = []
    for parameter in commands()[words].params:
        for value in values.get(parameter.name or "", ()):
            if isinstance(parameter, click.Argument):
                arguments.append(value)
            else:
                options += [parameter.opts[-1], value]
    assert {*values} <= {parameter.name for parameter in commands()[words].params}, words
    return [*words.split(), *options, *more, *arguments]


def with_path(place: Place, path: str) -> list[str]:
    """Return the words of a call in which a parameter has this path."""
    name = place.parameter.name or ""
    values = {key: value for key, value in CALLS[place.words].items() if key not in INSTEAD.get((place.words, name), ())}
    before = list(values.get(name, ()))
    values[name] = [path, *before[1:]] if isinstance(place.parameter, click.Argument) else [path]
    return called(place.words, values)
