"""Two arrays of a file whose names are read as one name: the file is refused with both, and neither array replaces the other."""

from __future__ import annotations

import itertools
from pathlib import Path

import h5py
import numpy as np
import pytest

from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.names import renamed
from rnnconvert.files.load import load
from tests.drawn import each

RENAMINGS = {
    "stripped": (lambda name: name.strip("/._"), ("a", "a/", ".a", "_a_")),
    "folded": (str.lower, ("a", "A")),
    "joined": (lambda name: name.replace("\\", "/"), ("a/b", "a\\b")),
    "without an end": (lambda name: name.removesuffix(":0"), ("a", "a:0")),
}


@pytest.mark.parametrize("renaming", RENAMINGS)
def test_renaming_keeps_every_array_or_refuses(renaming: str) -> None:
    new_name, names = RENAMINGS[renaming]
    for first, second in itertools.permutations(names, 2):
        with pytest.raises(UnreadableError) as caught:
            renamed({first: 1, "between": 2, second: 3}, new_name, "x.npz")
        assert repr(first) in str(caught.value) and repr(second) in str(caught.value)
    assert renamed({names[0]: 1, "between": 2}, new_name, "x.npz") == {new_name(names[0]): 1, "between": 2}


def write(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    np.savez(path, **arrays)
    return path


def keras_layer(scope: str, end: str = "") -> dict[str, np.ndarray]:
    shapes = {"kernel": (3, 8), "recurrent_kernel": (2, 8), "bias": (8,)}
    draw = np.random.default_rng(len(scope))
    return {f"{scope}{local}{end}": draw.normal(size=shape).astype(np.float32) for local, shape in shapes.items()}


def test_scopes_of_variables_that_are_read_as_one_layer(tmp_path: Path) -> None:
    def check(scopes: tuple[str, str]) -> None:
        path = write(tmp_path / "variables.npz", keras_layer(scopes[0]) | keras_layer(scopes[1]))
        with pytest.raises(UnreadableError, match="are both read as 'a/") as caught:
            load(path)
        assert all(f"'{scope}kernel'" in str(caught.value) for scope in scopes)

    each(itertools.permutations(("a/", "a.", "a_", "/a/"), 2), check, str)


def mxnet_layer(start: str) -> dict[str, np.ndarray]:
    shapes = {"i2h_weight": (8, 3), "h2h_weight": (8, 2), "i2h_bias": (8,), "h2h_bias": (8,)}
    return {f"{start}lstm0_l0_{local}": np.full(shape, len(start), np.float32) for local, shape in shapes.items()}


def test_arrays_of_mxnet_with_and_without_a_prefix(tmp_path: Path) -> None:
    path = write(tmp_path / "both.npz", mxnet_layer("arg:") | mxnet_layer(""))
    with pytest.raises(UnreadableError, match="are both read as 'lstm0_l0_i2h_weight'"):
        load(path, "mxnet")


def test_names_of_hdf5_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        for name in (b"\xff", b"\\xff"):
            group = h5py.h5g.create(file.id, name)
            h5py.Group(group).create_dataset("kernel", data=np.zeros((3, 8), np.float32))
    with pytest.raises(UnreadableError, match="two names in it are both read as"):
        load(path)
