"""Checkpoints in several files: an index that leaves something out, and a shard alone, are no model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import set_external_data

import rnnconvert as rc
from rnnconvert.containers import safetensors
from rnnconvert.core.errors import UnreadableError
from tests.helpers.drawn import each

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"
RANDOM = np.random.default_rng(8)
ARRAYS = {
    name: RANDOM.normal(size=shape).astype(np.float32)
    for name, shape in {
        "rnn.weight_ih_l0": (12, 2), "rnn.weight_hh_l0": (12, 3), "rnn.bias_ih_l0": (12,), "rnn.bias_hh_l0": (12,),
    }.items()
}  # fmt: skip
PLACES = dict(zip(ARRAYS, (SHARDS[0], SHARDS[0], SHARDS[1], SHARDS[1]), strict=True))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for shard in SHARDS:
        safetensors.write(tmp_path / shard, {name: ARRAYS[name] for name, place in PLACES.items() if place == shard})
    total = sum(array.nbytes for array in ARRAYS.values())
    index = {"metadata": {"total_size": total}, "weight_map": PLACES}
    (tmp_path / INDEX).write_text(json.dumps(index))
    return tmp_path


def test_a_shard_alone_is_read_with_its_index(folder: Path) -> None:
    indexed = rc.load(folder / INDEX)
    assert rc.load(folder).layers.keys() == indexed.layers.keys() == {"rnn"}
    for shard in SHARDS:
        loaded = rc.load(folder / shard)
        assert loaded.layers["rnn"].first.arrays.keys() == indexed.layers["rnn"].first.arrays.keys()
        assert any(shard in text and INDEX in text for text in loaded.warnings)


def test_a_shard_without_its_index_is_refused_by_name(folder: Path) -> None:
    (folder / INDEX).unlink()
    with pytest.raises(UnreadableError, match=r"shard 1 of 2.*index 'model\.safetensors\.index\.json' is not next to it"):
        rc.load(folder / SHARDS[0])
    for name in ("pytorch_model-00001-of-00002.bin", "tf_model-00001-of-00002.h5"):
        (folder / name).write_bytes((folder / SHARDS[0]).read_bytes())
        with pytest.raises(UnreadableError, match="shard 1 of 2"):
            rc.load(folder / name)
        stem, _, ending = name.partition("-00001-of-00002")
        (folder / f"{stem}{ending}.index.json").write_text("{}")
        with pytest.raises(UnreadableError, match=rf"its index is '{stem}\{ending}\.index\.json'"):
            rc.load(folder / name)
    safetensors.write(folder / "model-00001-of-00001.safetensors", ARRAYS)
    assert rc.load(folder / "model-00001-of-00001.safetensors").layers


def without(index: dict[str, Any], *names: str) -> None:
    for name in names:
        del index["weight_map"][name]


LACKING: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a shard": (lambda index: without(index, "rnn.bias_ih_l0", "rnn.bias_hh_l0"), "names no tensor of 'model-00002-of-00002"),
    "a tensor": (lambda index: without(index, "rnn.bias_hh_l0"), "leaves out tensors of .*'rnn.bias_hh_l0'"),
    "bytes": (lambda index: index["metadata"].update(total_size=10**6), "states 1000000 bytes of tensors"),
}  # fmt: skip


def test_an_index_that_leaves_something_out_is_refused(folder: Path) -> None:
    def check(name: str) -> None:
        index = json.loads(json.dumps({"metadata": {"total_size": 0}, "weight_map": PLACES}))
        change, reason = LACKING[name]
        change(index)
        (folder / INDEX).write_text(json.dumps(index))
        for path in (folder, folder / INDEX, folder / SHARDS[0]):
            with pytest.raises(UnreadableError, match=reason):
                rc.load(path)

    each(LACKING, check)


def external(path: Path, stated: str = "", more: bytes = b"") -> None:
    """Write an ONNX model whose W lies in a file beside it."""
    rc.save(rc.load(ARRAYS), path, "onnx", force=True)
    model = onnx.load(path)
    tensor = max(model.graph.initializer, key=lambda initializer: int(np.prod(initializer.dims)))
    data = tensor.raw_data
    (path.parent / "w.data").write_bytes(data + more)
    set_external_data(tensor, "w.data", 0, len(data), stated or None)
    tensor.ClearField("raw_data")
    path.write_bytes(model.SerializeToString())


def test_a_stated_checksum_of_external_data_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    external(path)
    right = hashlib.sha1((tmp_path / "w.data").read_bytes()).hexdigest()
    for stated in (right, right.upper()):
        external(path, stated)
        assert rc.load(path).layers and not rc.load(path).warnings
    external(path, "0" * 40)
    with pytest.raises(UnreadableError, match=rf"w\.data: its SHA-1 is {right}, but .* states '0{{40}}'") as error:
        rc.load(path)
    assert error.value.exit_code == 3


def test_external_data_that_is_longer_than_the_model_states_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    external(path, more=bytes(100))  # up to the next page
    assert not rc.load(path).warnings
    external(path, more=bytes(1 << 20))
    assert any("'w.data' has" in text and "may be another's" in text for text in rc.load(path).warnings)
