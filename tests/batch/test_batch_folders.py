"""Folders of files: what is a model in them, where its target is, and what is said of all of them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from rnnconvert.batch.folders import ModelTree, is_tree
from rnnconvert.batch.manifest import items
from rnnconvert.containers import safetensors
from tests import ROOT
from tests.batch.test_batch import arrays, call

GOLDEN = ROOT / "tests" / "golden"


def targets(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out).as_posix()) for path in out.rglob("*.onnx"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with models in three places, and with files that are none."""
    root = tmp_path / "tree"
    for number, place in enumerate(("", "a/deep", "b")):
        (root / place).mkdir(parents=True, exist_ok=True)
        safetensors.write(root / place / "m.safetensors", arrays(number))
        (root / place / "notes.md").write_text("notes")
    (root / "b" / "config.json").write_text("{}")
    (root / ".git").mkdir()
    safetensors.write(root / ".git" / "hidden.safetensors", arrays(7))
    return root


def test_a_tree_is_mirrored_and_resumed(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, output = call(tree, "--to", "onnx", "--out", out, "--jobs", 1)
    assert code == 0 and targets(out) == ["a/deep/m.onnx", "b/m.onnx", "m.onnx"]
    assert "4 other files were passed over: a model has no such ending (.md, .json)" in output
    code, output = call(tree, "--to", "onnx", "--out", out, "--jobs", 1)
    assert code == 0 and "3 of them before" in output


def test_targets_in_the_tree_are_not_its_models(tree: Path) -> None:
    for _ in range(2):
        code, output = call(tree, "--to", "pytorch.safetensors", "--out", tree / "converted", "--jobs", 1)
        assert code == 0 and "3  converted" in output, output
    assert not (tree / "converted" / "converted").exists()


def test_a_pattern_is_mirrored_from_its_first_wildcard_on(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(tree / ".git")
    for pattern in (tree / "**" / "*.safetensors", "tree/**/*.safetensors", "./tree/**/*.safetensors"):
        assert call(pattern, "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1, "--force")[0] == 0
        assert targets(tmp_path / "out") == ["a/deep/m.onnx", "b/m.onnx", "m.onnx"]
        shutil.rmtree(tmp_path / "out")


def test_names_that_would_be_one_keep_their_endings_or_their_places(tree: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "encoder.keras", tree / "b" / "m.keras")
    assert call(tree, "--to", "onnx", "--out", tmp_path / "one", "--jobs", 1)[0] == 0
    assert targets(tmp_path / "one") == ["a/deep/m.onnx", "b/m.keras.onnx", "b/m.safetensors.onnx", "m.onnx"]
    files = [tree / place / "m.safetensors" for place in ("a/deep", "b")]
    assert call(*files, "--to", "onnx", "--out", tmp_path / "two", "--jobs", 1)[0] == 0
    assert targets(tmp_path / "two") == ["a/deep/m.onnx", "b/m.onnx"]


def test_all_that_cannot_be_kept_apart_are_listed_before_anything_is_written(tree: Path, tmp_path: Path) -> None:
    lines = [{"source": str(tree / place / "m.safetensors"), "target": "same.onnx"} for place in ("", "a/deep", "b")]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, lines)))
    code, output = call(tmp_path / "list.jsonl", "--to", "onnx", "--out", tmp_path / "out")
    assert code == 2 and "and so for 1 more" in output and not (tmp_path / "out").exists()
    written = [json.loads(line) for line in output.splitlines() if line.strip().startswith("{")]
    assert [Path(line["source"]).parent.name for line in written] == ["deep", "b"]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, [lines[0], *written])))
    assert call(tmp_path / "list.jsonl", "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)[0] == 0


def test_one_thing_that_is_true_of_many_files_is_said_once(tmp_path: Path) -> None:
    root = tmp_path / "plain"
    root.mkdir()
    plain = {"weight_ih_l0": (4, 3), "weight_hh_l0": (4, 4), "bias_ih_l0": (4,), "bias_hh_l0": (4,)}
    for number in range(50):
        safetensors.write(root / f"r{number:02}.safetensors", {name: np.ones(shape, np.float32) for name, shape in plain.items()})
    for number in range(2):
        (root / f"cut{number}.keras").write_bytes((ROOT / "examples" / "encoder.keras").read_bytes()[:900])
    reports = [word for ending in ("json", "html", "md", "xml") for word in ("--report", tmp_path / f"r.{ending}")]
    code, output = call(root, "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1, *reports)
    assert code == 3 and output.count("--set nonlinearity") == 1 and output.count("cannot be listed") == 1
    assert "r00.safetensors: " in output and "r03.safetensors and 46 more" in output
    assert "50  refused   next: rnnconvert inspect" in output and "--targets" in output
    assert "2  unreadable   next: rnnconvert inspect" in output
    table = (tmp_path / "r.md").read_text()
    assert "| refused | 50 |" in table and table.count("nonlinearity of") == 50
    again = [word for ending in ("html", "md", "xml") for word in ("-o", tmp_path / f"again.{ending}")]
    assert call(tmp_path / "r.json", *again, command="report") == (0, "".join(f"wrote {path}\n" for path in again[1::2]))
    for ending in ("html", "md"):
        assert (tmp_path / f"again.{ending}").read_text() == (tmp_path / f"r.{ending}").read_text()
    code, output = call(tmp_path / "r.json", command="report")
    assert code == 0 and output.split() == ["50", "refused", "2", "unreadable"]


@pytest.mark.parametrize("change", [{"rnnconvert_batch": 9}, {"files": 3}, {"files": [{"source": "a"}]}, {"files": [3]}])
def test_a_document_of_a_batch_that_was_changed_is_unreadable(change: dict[str, object], tmp_path: Path) -> None:
    document = {"rnnconvert_batch": 1, "files": [], **change}
    (tmp_path / "r.json").write_text(json.dumps(document))
    code, output = call(tmp_path / "r.json", command="report")
    assert code == 3 and "r.json" in output


def test_what_is_a_model_in_a_folder(tmp_path: Path) -> None:
    """Folders of formats are one model each, parts of a model are none, and a damaged file is one whose error is told."""
    root = tmp_path / "all"
    root.mkdir()
    shutil.copytree(GOLDEN / "checkpoint_functions", root / "tf")
    shutil.copytree(GOLDEN / "fluid" / "lstm", root / "fluid")
    shutil.copytree(GOLDEN / "coreml" / "half.mlpackage", root / "half.mlpackage")
    (root / "cut.pt").write_bytes(b"PK\x03\x04 cut")
    (root / "picture.png").write_bytes(b"\x89PNG")
    (root / "package.json").write_text('{"name": "x"}')
    (root / "around").symlink_to(root)
    models = {str(path.relative_to(root).as_posix()) for path in ModelTree(root, tmp_path / "out").models}
    assert {"fluid", "half.mlpackage", "cut.pt", "tf/lstm.index"} <= models
    assert not any(name.endswith((".data-00000-of-00001", ".json", ".png")) or name.startswith("around") for name in models)
    assert is_tree(root) and not is_tree(root / "half.mlpackage") and not is_tree(root / "cut.pt")


def test_shards_are_one_model(tmp_path: Path) -> None:
    every = arrays(3)
    names = sorted(every)
    for number, part in enumerate((names[:3], names[3:]), 1):
        safetensors.write(tmp_path / f"model-{number:05}-of-00002.safetensors", {name: every[name] for name in part})
    index = {"metadata": {}, "weight_map": {name: f"model-{1 if name in names[:3] else 2:05}-of-00002.safetensors" for name in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert [path.name for path in ModelTree(tmp_path, tmp_path / "out").models] == ["model.safetensors.index.json"]


def test_a_folder_without_a_model_and_one_that_cannot_be_listed(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.md").write_text("x")
    code, output = call(tmp_path / "empty", "--to", "onnx", "--out", tmp_path / "out")
    assert code == 3 and "holds no model, but 1 other file (.md)" in output
    closed = tmp_path / "tree" / "closed"
    closed.mkdir(parents=True)
    safetensors.write(tmp_path / "tree" / "m.safetensors", arrays(1))
    closed.chmod(0)
    try:
        if os.access(closed, os.R_OK):
            pytest.skip("this user may read every folder")
        code, output = call(tmp_path / "tree", "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)
    finally:
        closed.chmod(0o755)
    assert code == 3 and "closed" in output and "1  converted" in output


def test_the_places_of_targets_are_those_of_patterns_behind_urls() -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    try:
        for name in ("/m/a/x.pt", "/m/b/x.pt"):
            store.pipe(name, b"x")
        listed = items(["memory://m/*/x.pt"], "memory://out", "onnx", ".onnx").items
        assert [item.target for item in listed] == ["memory://out/a/x.onnx", "memory://out/b/x.onnx"]
    finally:
        store.store.clear()
        store.pseudo_dirs[:] = [""]


def test_what_was_left_out_of_the_files_is_counted(tree: Path, tmp_path: Path) -> None:
    safetensors.write(tree / "a" / "whole.safetensors", {**arrays(3), "head.weight": np.zeros((2, 4), np.float32)})
    for _ in range(2):  # the journal keeps it
        _, output = call(tree, "--to", "onnx", "--out", tmp_path / "out", "--jobs", 1)
        assert "1  of these hold other layers, too, which were left out" in output, output
