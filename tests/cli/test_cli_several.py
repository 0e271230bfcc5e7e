"""Commands that take several files, a folder as the target, and python -m rnnconvert."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import rnnconvert as rc
from tests.helpers.commands import call
from tests.helpers.sources import stack, write


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [write(tmp_path / name, stack()) for name in ("encoder.v2.safetensors", "decoder.onnx")]


def test_several_files_go_into_a_folder(files: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "new" / "out"
    result = call("convert", *files, "--to", "keras", "--out-dir", folder, "--json")
    assert result.exit_code == 0, result.output
    assert [Path(entry["target"]).name for entry in json.loads(result.stdout)] == ["encoder.v2.keras", "decoder.keras"]
    for source, target in zip(files, ("encoder.v2.keras", "decoder.keras"), strict=True):
        (mine,), (its,) = (rc.load(path).layers.values() for path in (source, folder / target))
        assert mine.parameters and its.input_size == mine.input_size


def test_what_cannot_be_converted_leaves_the_others(files: list[Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.pt"
    broken.write_bytes(b"no model")
    result = call("convert", files[0], broken, files[1], "--to", "keras", "--out-dir", tmp_path / "out", "--json")
    assert result.exit_code == 3
    first, second, third = json.loads(result.stdout)
    assert second["error"]["exit_code"] == 3 and second["error"]["kind"] == "unreadable"
    assert "broken.pt" in second["error"]["message"] and "error" not in {**first, **third}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["decoder.keras", "encoder.v2.keras"]


def test_a_folder_is_a_target(files: list[Path], tmp_path: Path) -> None:
    result = call("convert", files[1], f"{tmp_path}/", "--to", "pytorch")
    assert result.exit_code == 0, result.output
    assert rc.load(tmp_path / "decoder.pt").layers


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("{a}", "{b}", "x.onnx"), "--out-dir FOLDER"),
        (("{a}",), "TARGET is missing"),
        (("{a}", "--out-dir", "{new}"), "--out-dir needs --to"),
        (("{a}", "{a}", "--to", "keras", "--out-dir", "{new}"), "would both be written"),
        (("{a}", "--to", "brainjs", "--out-dir", "{new}"), "only read"),
        (("{a}", "{b}", "--to", "keras", "--out-dir", "{new}", "--verify"), "one file at a time"),
        (("{a}", "{b}", "--to", "keras", "--out-dir", "{a}"), "cannot make this folder"),
        (("{a}", "{b}", "--to", "keras", "--out-dir", "{here}", "--force"), "Choose another folder"),
    ],
)
def test_what_does_not_go_is_wrong_usage(words: tuple[str, ...], message: str, files: list[Path], tmp_path: Path) -> None:
    new = tmp_path / "new"
    before = files[0].read_bytes()
    result = call("convert", *(word.format(a=files[0], b=files[1], new=new, here=tmp_path) for word in words))
    assert result.exit_code == 2 and message in result.output, result.output
    assert not new.exists() and files[0].read_bytes() == before


def test_several_files_are_shown(files: list[Path], tmp_path: Path) -> None:
    result = call("inspect", *files)
    assert result.exit_code == 0 and all(str(path) in result.output for path in files)
    result = call("inspect", *files, tmp_path / "absent.pt", "--json")
    assert result.exit_code == 3 and [("error" in entry) for entry in json.loads(result.stdout)] == [False, False, True]


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "rnnconvert", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("rnnconvert, version")
