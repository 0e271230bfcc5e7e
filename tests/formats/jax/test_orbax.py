"""Orbax's own folders, of the trees that Flax, nnx and Haiku have: read, and compared with what the libraries compute."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.errors import MissingPackageError, UnreadableError
from rnnconvert.core.reference import run
from rnnconvert.formats.jax import orbax_folder
from tests.helpers.requirements import needed

jax = needed("jax", "jax")
linen = needed("flax", "flax.linen")
nnx = needed("flax", "flax.nnx")
haiku = needed("haiku", "haiku")
orbax = needed("flax", "orbax.checkpoint")

X = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)


def save(path: Path, tree: Any, **how: Any) -> Path:
    keeper = orbax.PyTreeCheckpointer(**how)
    keeper.save(path, tree)
    return path


def of_linen() -> tuple[Any, np.ndarray]:
    layer = linen.RNN(linen.GRUCell(4), time_major=True)
    tree = layer.init(jax.random.key(1), X)
    tree = jax.tree.map(lambda array: array + 0.1, tree)  # biases begin as zeros
    return tree, np.asarray(layer.apply(tree, X))


def of_nnx() -> tuple[Any, np.ndarray]:
    layer = nnx.RNN(nnx.OptimizedLSTMCell(3, 4, rngs=nnx.Rngs(0)), time_major=True)
    state = jax.tree.map(lambda array: array + 0.1 if array.dtype == np.float32 else array, nnx.state(layer, nnx.Param))
    nnx.update(layer, state)
    return state, np.asarray(layer(X))


def of_haiku() -> tuple[Any, np.ndarray]:
    def forward(x: Any) -> Any:
        core = haiku.GRU(4)
        return haiku.dynamic_unroll(core, x, core.initial_state(2))[0]

    transformed = haiku.without_apply_rng(haiku.transform(forward))
    tree = jax.tree.map(lambda array: array + 0.1, transformed.init(jax.random.key(1), X))
    return tree, np.asarray(transformed.apply(tree, X))


MAKERS = {"flax": of_linen, "nnx": of_nnx, "haiku": of_haiku}


@pytest.mark.parametrize("together", [True, False], ids=["one store", "a folder each"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_tree_that_orbax_wrote_computes_what_its_library_does(name: str, together: bool, tmp_path: Path) -> None:
    tree, expected = MAKERS[name]()
    checkpoint = rc.load(save(tmp_path / "tree", tree, use_ocdbt=together))
    assert checkpoint.format == name
    (stack,) = checkpoint.layers.values()
    np.testing.assert_allclose(run(stack, X.astype(np.float64)).y, expected, atol=1e-6)
    rc.save(checkpoint, tmp_path / "gru.npz", name)


@pytest.mark.parametrize("name", MAKERS)
def test_a_conversion_of_a_folder_is_proved(name: str, tmp_path: Path) -> None:
    tree, _ = MAKERS[name]()
    folder, written = save(tmp_path / "tree", tree), tmp_path / "layer.onnx"
    rc.save(rc.load(folder), written)
    (ran,) = (line for line in str(rc.verify(folder, written)).splitlines() if f"A on {name}-cpu" in line)
    assert " equal " in ran, ran


def test_a_step_of_a_manager_is_read(tmp_path: Path) -> None:
    tree, expected = of_linen()
    with orbax.CheckpointManager(tmp_path / "run") as manager:
        manager.save(3, args=orbax.args.StandardSave(tree))
    for path in (tmp_path / "run", tmp_path / "run" / "3"):
        (stack,) = rc.load(path).layers.values()
        np.testing.assert_allclose(run(stack, X.astype(np.float64)).y, expected, atol=1e-6)


def test_optimiser_and_step_beside_the_weights_are_no_layers(tmp_path: Path) -> None:
    tree, _ = of_linen()
    state = {"params": tree["params"], "opt_state": {"mu": tree["params"]}, "step": 7}
    checkpoint = rc.load(save(tmp_path / "state", state))
    assert list(checkpoint.layers) == ["params/cell"]


def damaged(folder: Path, how: str) -> str:
    described = json.loads((folder / "_METADATA").read_text())
    if how == "no json":
        (folder / "_METADATA").write_text("{")
    if how == "a list":
        (folder / "_METADATA").write_text("[]")
    if how == "no tree":
        (folder / "_METADATA").write_text("{}")
    if how == "odd entry":
        described["tree_metadata"]["x"] = {"key_metadata": 3}
        (folder / "_METADATA").write_text(json.dumps(described))
    if how == "absent array":
        entry = {"key_metadata": [{"key": "gone"}], "value_metadata": {"value_type": "jax.Array"}}
        described["tree_metadata"]["('gone',)"] = entry
        (folder / "_METADATA").write_text(json.dumps(described))
    if how == "cut store":
        for file in (folder / "d").iterdir():
            file.write_bytes(file.read_bytes()[:20])
    return how


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("no json", "not JSON"), ("a list", "not a JSON object"), ("no tree", "tree_metadata"), ("odd entry", "its entry for x"),
        ("absent array", "'gone' cannot be read"), ("cut store", "cannot be read"),
    ],
)  # fmt: skip
def test_a_damaged_folder_is_refused(how: str, message: str, tmp_path: Path) -> None:
    path = save(tmp_path / "tree", of_linen()[0])
    damaged(path, how)
    with pytest.raises(UnreadableError, match=message):
        rc.load(path)


def test_an_array_that_claims_more_than_the_folder_can_hold_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "tree", of_linen()[0], use_ocdbt=False)
    about = next(path.rglob(".zarray"))
    document = json.loads(about.read_text())
    document["shape"] = [1 << 30, *document["shape"][1:]]
    about.write_text(json.dumps(document))
    with pytest.raises(UnreadableError, match="claims"):
        rc.load(path)


def test_without_tensorstore_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "tree", of_linen()[0])
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    with pytest.raises(MissingPackageError, match="tensorstore"):
        rc.load(path)


def test_a_folder_of_several_steps_is_no_checkpoint(tmp_path: Path) -> None:
    tree, _ = of_linen()
    for step in ("1", "2"):
        save(tmp_path / "run" / step, tree)
    with pytest.raises(UnreadableError):
        rc.load(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "1")
    assert rc.load(tmp_path / "run").format == "flax"


def described(folder: Path, *keys: str, name: str = "x") -> None:
    """Add a value to what a folder says of itself."""
    about = json.loads((folder / "_METADATA").read_text())
    entry = {"key_metadata": [{"key": key} for key in keys], "value_metadata": {"value_type": "np.ndarray"}}
    about["tree_metadata"][name] = entry
    (folder / "_METADATA").write_text(json.dumps(about))


@pytest.mark.parametrize("key", ["../other/a", "%2e%2e/other/a"])
def test_no_array_outside_the_folder_is_read(key: str, tmp_path: Path) -> None:
    save(tmp_path / "other", {"a": np.ones(3)}, use_ocdbt=False)
    path = save(tmp_path / "tree", {"b": np.ones(3)}, use_ocdbt=False)
    described(path, key)
    with pytest.raises(UnreadableError, match=r"would lie outside the folder|cannot be read"):
        orbax_folder.read(path)


@pytest.mark.parametrize("kind", ["pipe", "link", "loop", "zeros"])
@pytest.mark.parametrize("together", [True, False])
def test_no_file_of_the_folder_is_waited_for_or_read_elsewhere(kind: str, together: bool, tmp_path: Path) -> None:
    path = save(tmp_path / "tree", {"b": np.ones(3)}, use_ocdbt=together)
    save(tmp_path / "other", {"b": np.zeros(3)}, use_ocdbt=together)
    (file,) = path.rglob(".zarray") if not together else [path / "manifest.ocdbt"]
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "link":
        file.symlink_to(tmp_path / "other" / file.relative_to(path))
    elif kind == "loop":
        file.symlink_to(file.name)
    else:
        file.touch()
        os.truncate(file, 3 << 30)
    with pytest.raises(UnreadableError, match=r"not a regular file|a link out of the folder|bytes, but a description|cannot be read"):
        orbax_folder.read(path)


def test_a_folder_of_links_is_read_as_hubs_keep_it(tmp_path: Path) -> None:
    path = save(tmp_path / "blobs", {"b": np.ones(3)}, use_ocdbt=False)
    for file in [file for file in path.rglob("*") if file.is_file()]:
        link = tmp_path / "snapshot" / file.relative_to(path)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    assert orbax_folder.read(tmp_path / "snapshot").arrays["b"].tolist() == [1] * 3


def test_a_name_is_never_taken_for_an_address(tmp_path: Path) -> None:
    path = save(tmp_path / "a%20tree", {"in%20side": np.ones(3), "in side": np.zeros(3)}, use_ocdbt=False)
    arrays = orbax_folder.read(path).arrays
    assert {name: array.tolist() for name, array in arrays.items()} == {"in%20side": [1] * 3, "in side": [0] * 3}


@pytest.mark.parametrize(("keys", "message"), [((), "its entry for x"), (("b",), "two of its values have the path 'b'")])
def test_values_without_a_path_of_their_own_are_refused(keys: tuple[str, ...], message: str, tmp_path: Path) -> None:
    path = save(tmp_path / "tree", {"b": np.ones(3)})
    described(path, *keys)
    with pytest.raises(UnreadableError, match=message):
        orbax_folder.read(path)
