"""Arrays deeper than a layer's own, in files of arrays by name: adapters of a weight, modules inside a layer."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import archives
from rnnconvert.containers.stored import Stored
from rnnconvert.core.errors import RnnConvertError
from rnnconvert.files.adapter import adapters
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.finder import ArrayFiles
from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import random_stack

OTHERS = {"arraymancer", "persistent_rnn"}
"""Without an LSTM, and with vectors whose sizes only a caller knows."""
FORMATS = sorted(
    name for name, room in adapters().items() if isinstance(room, ArrayFiles) and ".npz" in room.SUFFIXES and name not in OTHERS
)


def arrays_of(path: Path) -> Stored:
    return archives.reader(path, path.read_bytes()[:4096])(path)


@pytest.mark.parametrize("name", ["", "lstm", "net/lstm"])
@pytest.mark.parametrize("framework", FORMATS)
def test_what_stands_under_an_array_is_named(framework: str, name: str, tmp_path: Path) -> None:
    sizes = Sizes("lstm", 3, 4, parts=frozenset({"input", "recurrent", "input_bias"}))
    stack = random_stack(sizes, 1, np.float32).replace(name=name)
    plain = tmp_path / "plain.npz"
    rc.save(Checkpoint("(made)", "canonical", {name: stack}), plain, framework)
    before = rc.load(plain, framework)
    arrays = dict(arrays_of(plain).arrays)
    largest = max(arrays, key=lambda full: arrays[full].size)
    mark = next((separator for separator in "/." if separator in largest), "/")
    extra = f"{largest}{mark}lora{mark}a"
    archives.write(tmp_path / "more.npz", {**arrays, extra: np.ones((2, 3), np.float32)})
    try:
        read = rc.load(tmp_path / "more.npz", framework)
    except RnnConvertError as error:
        assert extra in str(error)
        return
    assert before.layers
    assert any(extra in message for message in read.unread) or any(layer.unconvertible for layer in read.layers.values()), read


@pytest.mark.parametrize("extra", ["cell/norm/vars/0", "cell/vars/0.lora", "cell/inner/deep/0", "cell/seed_generator/vars/0"])
def test_a_module_inside_a_keras_cell_is_refused(extra: str, tmp_path: Path) -> None:
    sizes = Sizes("lstm", 3, 4, parts=frozenset({"input", "recurrent", "input_bias"}))
    stack = random_stack(sizes, 1, np.float32).replace(name="lstm")
    rc.save(Checkpoint("(made)", "canonical", {"lstm": stack}), tmp_path / "a.weights.h5", "keras")
    with h5py.File(tmp_path / "a.weights.h5", "r+") as file:
        groups: list[str] = []
        file.visit(groups.append)
        cell = next(group for group in groups if group.endswith("cell"))
        file[f"{cell}/{extra.removeprefix('cell/')}"] = np.ones(4, np.float32)
    (read,) = rc.load(tmp_path / "a.weights.h5").layers.values()
    assert bool(read.unconvertible) == ("seed_generator" not in extra)
