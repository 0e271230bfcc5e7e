"""Nothing is copied before it is written: canonical arrays are views of the mapped file."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from rnnconvert.core.weights import Recurrent
from rnnconvert.files import convert as api
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.load import load
from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import random_stack

FILES = ["a.pt", "a.safetensors", "a.bin", "a.onnx", "a.weights.h5", "a.h5", "a.keras"]


def source(tmp_path: Path, name: str) -> Recurrent:
    """A layer read from a file that we wrote, large enough that no container holds it by value."""
    stack = random_stack(Sizes("lstm", 40, 50), 0, np.float32)
    api.save(Checkpoint("(in memory)", "canonical", {"a": stack}), tmp_path / name)
    return next(iter(load(tmp_path / name).layers.values()))


def lies_in_a_map(array: object) -> bool:
    """Whether the memory of an array, or of what it is a view of, is a memory map."""
    while getattr(array, "base", None) is not None:
        array = array.base  # type: ignore[attr-defined]
    return isinstance(array.obj if isinstance(array, memoryview) else array, mmap.mmap)


@pytest.mark.parametrize("name", FILES)
def test_matrices_are_views_of_the_file(name: str, tmp_path: Path) -> None:
    for (part, gate), array in source(tmp_path, name).first.arrays.items():
        if part in ("input", "recurrent"):
            assert isinstance(array, np.ndarray)
            assert not array.flags.writeable, f"{part} {gate}"
            assert lies_in_a_map(array), f"{part} {gate} has memory of its own"


def test_the_test_sees_a_copy(tmp_path: Path) -> None:
    array = np.asarray(source(tmp_path, "a.pt").first.arrays["input", "i"]).copy()
    assert not lies_in_a_map(array)
