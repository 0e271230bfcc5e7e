"""A process that is killed while it writes leaves the old file or the new one, never one's description with the other's numbers."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.cells import RELU, TANH, Cell
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from tests import ROOT
from tests.helpers import ready
from tests.helpers.stacks import random_stack

# Every call by which a file gets or loses its name ends the process, as SIGKILL would, once it was made N times before.
CHILD = """
import os, pathlib, sys
stop = int(sys.argv[1])
done = 0
def counted(real):
    def call(*arguments, **more):
        global done
        if done == stop:
            os._exit(99)
        done += 1
        return real(*arguments, **more)
    return call
for name in ("replace", "rename", "unlink", "link", "chmod"):
    setattr(os, name, counted(getattr(os, name)))
from rnnconvert.cli.main import main
main(sys.argv[2:])
"""


def killed(stop: int, *arguments: object) -> int:
    """The exit code of a command that is stopped before its call number `stop` of those that name files."""
    command = [sys.executable, "-c", CHILD, stop, *arguments]
    done = ready.run(command, ready.OURS, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode in (0, 99), done.stderr
    return done.returncode


def computed(path: Path) -> tuple[bytes, str]:
    """The numbers of a layer and its function: what two files say apart from one another."""
    (layer,) = rc.load(path).layers.values()
    return np.asarray(layer.first.get("recurrent", "n")).tobytes(), f"{layer.cell.activation} {layer.first.reverse}"


TURNED = ("out.param",)
"""Files whose cell has one function alone: they differ in their direction."""
SILENT = ("out.safetensors", "out.ckpt.index")


COMMANDS = {
    "onnx": ("out.onnx", ["--set", "external_data=true"]),
    "onnx-verify": ("out.onnx", ["--set", "external_data=true", "--verify", "--on", "onnxruntime-cpu"]),
    "cudnn": ("out.bin", []), "safetensors": ("out.safetensors", ["--to", "pytorch"]), "keras": ("out.keras", []),
    "tensorflow1": ("out.ckpt.index", ["--to", "tensorflow1"]), "openvino": ("out.xml", []), "ncnn": ("out.param", []),
    "tfjs": ("out.json", ["--to", "tfjs"]),
}  # fmt: skip
"""Targets and options, by words for them: each format of several files has one (tests/files/test_targets.py)."""


@pytest.mark.drawn(3)
@pytest.mark.parametrize(("name", "options"), COMMANDS.values(), ids=COMMANDS)
def test_a_kill_leaves_the_old_file_or_the_new_one(name: str, options: list[str], tmp_path: Path) -> None:
    for word, function in (("old", TANH), ("new", TANH if name in TURNED else RELU)):
        stack = random_stack(Sizes("rnn", 30, 24), len(word), np.float32, Cell("rnn", activation=function))
        if word == "new":
            stack = each(
                stack, lambda d: d.replace(reverse=name in TURNED).with_arrays({key: -np.asarray(a) for key, a in d.arrays.items()})
            )
        rc.save(rc.Checkpoint("made", "canonical", {"a": stack.replace(name="a")}), tmp_path / f"{word}.onnx")
    versions = {word: computed(tmp_path / f"{word}.onnx") for word in ("old", "new")}
    assert versions["old"][0] != versions["new"][0] and versions["old"][1] != versions["new"][1]
    if name in SILENT:  # the function is not in these files: their reader asks for it
        versions = {word: (weights, "tanh False") for word, (weights, _) in versions.items()}
    before = tmp_path / "before"
    before.mkdir()
    assert killed(10_000, "convert", tmp_path / "old.onnx", before / name, *options) == 0
    stops = 0
    while True:
        target = tmp_path / str(stops) / name
        shutil.copytree(before, target.parent)
        ended = killed(stops, "convert", tmp_path / "new.onnx", target, "--force", *options)
        try:
            assert computed(target) in versions.values()
        except rc.UnreadableError:
            # Two files that have fixed names cannot be replaced in one step: they are never read as one another's.
            assert name in ("out.bin", "out.ckpt.index", "out.xml", "out.param")
        if ended == 0:
            break
        stops += 1
    assert stops >= 2
    assert computed(target) == versions["new"]


def test_what_a_kill_left_does_not_stop_the_same_command(tmp_path: Path) -> None:
    """Numbers under a name of their own are ours; a file that stands where a fixed name has to be is refused by that name."""
    stack = random_stack(Sizes("rnn", 30, 24), 1, np.float32, Cell("rnn", activation=TANH)).replace(name="a")
    rc.save(rc.Checkpoint("made", "canonical", {"a": stack}), tmp_path / "source.onnx")
    options = ["--set", "external_data=true"]
    for stop in range(100):
        target = tmp_path / str(stop) / "out.onnx"
        target.parent.mkdir()
        ended = killed(stop, "convert", tmp_path / "source.onnx", target, *options)
        if not target.exists():
            assert killed(10_000, "convert", tmp_path / "source.onnx", target, *options) == 0
        assert computed(target)[0] == np.asarray(stack.first.get("recurrent", "n")).tobytes()
        if ended == 0:
            return
    pytest.fail("the command makes no end of its calls")
