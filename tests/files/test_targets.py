"""Every file that a conversion writes is known before the first byte: none is a file of the source, none is replaced unasked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.containers import safetensors
from rnnconvert.files.adapter import adapters
from rnnconvert.files.options import Options
from rnnconvert.files.targets import files_of
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from rnnconvert.language.packing import pack
from tests.containers.test_killed_writes import COMMANDS
from tests.helpers.stacks import BOTH, random_stack

TARGETS = {"m.xml": "openvino", "m.param": "ncnn", "m.index": "tensorflow1", "m.bin": "cudnn"}
"""A name of a target, by the format that writes companions next to it."""


def weights(path: Path, seed: int = 0) -> Path:
    """A file of one LSTM of PyTorch's, under any name."""
    layer = random_stack(Sizes("lstm", 3, 4, 1, 1, 0, BOTH), seed, np.float32)
    arrays = {name: np.asarray(array) for name, array in pack(registry.layouts()["pytorch.lstm"], layer).items()}
    safetensors.write(path, arrays)
    return path


def companion(target: Path, format: str) -> Path:
    (other,) = files_of(adapters()[format], target)[1:]
    return other


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_what_a_writer_leaves_in_a_folder_is_what_it_states(tmp_path: Path) -> None:
    source = weights(tmp_path / "source.safetensors")
    several = set()
    for format, writer in adapters().items():
        if not writer.layouts(Options()) or registry.cards()[format].written == ():
            continue
        folder = tmp_path / format
        folder.mkdir()
        target = folder / f"m{registry.cards()[format].written[0]}"
        try:
            done = rc.convert(source, target, target_format=format)
        except (rc.RefusedError, rc.UsageError):  # it has no LSTM, or not this one
            continue
        assert {str(path) for path in folder.iterdir()} == {*done.files}, format
        several |= {format} if len(done.files) > 1 else set()
    assert several and several <= {*COMMANDS}, "the tests of kills have no command for one of these"


@pytest.mark.parametrize(("name", "format"), TARGETS.items())
def test_what_is_written_is_what_is_stated(tmp_path: Path, name: str, format: str) -> None:
    source, target = weights(tmp_path / "source.safetensors"), tmp_path / name
    planned = rc.convert(source, target, target_format=format, dry_run=True)
    assert contents(tmp_path).keys() == {source.name}
    done = rc.convert(source, target, target_format=format)
    assert planned.files == done.files == (str(target), str(companion(target, format)))
    assert contents(tmp_path).keys() == {source.name, *(Path(file).name for file in done.files)}
    assert all(file in str(planned) for file in planned.files)


@pytest.mark.parametrize(("name", "format"), [*TARGETS.items()][:-1])  # what ends in .json is not read as arrays
@pytest.mark.parametrize("wish", [{}, {"force": True}, {"verify": True}, {"verify": True, "force": True}, {"dry_run": True}], ids=str)
def test_a_companion_never_replaces_the_source(tmp_path: Path, name: str, format: str, wish: dict[str, Any]) -> None:
    target = tmp_path / name
    source = weights(companion(target, format))
    before = contents(tmp_path)
    with pytest.raises(rc.UsageError, match="belongs to the source"):
        rc.convert(source, target, target_format=format, **wish)
    assert contents(tmp_path) == before


def test_a_source_under_another_name_is_not_replaced(tmp_path: Path) -> None:
    """A hard link and a symbolic link are the same file."""
    source = weights(tmp_path / "model.safetensors")
    (tmp_path / "hard.bin").hardlink_to(source)
    (tmp_path / "soft.bin").symlink_to(source)
    before = contents(tmp_path)
    for name in ("hard.xml", "soft.xml"):
        with pytest.raises(rc.UsageError, match="belongs to the source"):
            rc.convert(source, tmp_path / name, force=True)
    assert contents(tmp_path) == before


def test_the_numbers_of_a_source_are_not_replaced_by_the_target_itself(tmp_path: Path) -> None:
    rc.convert(weights(tmp_path / "s.safetensors"), tmp_path / "m.xml")
    before = contents(tmp_path)
    with pytest.raises(rc.UsageError, match="belongs to the source"):
        rc.convert(tmp_path / "m.xml", tmp_path / "m.bin", target_format="cudnn", force=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("verified", [False, True])
def test_a_companion_of_another_model_is_replaced_only_with_force(tmp_path: Path, verified: bool) -> None:
    rc.convert(weights(tmp_path / "a.safetensors"), tmp_path / "m.xml")
    other, before = weights(tmp_path / "b.safetensors", 1), contents(tmp_path)
    with pytest.raises(rc.UsageError, match=r"m\.bin already exists, and .*m\.param would replace it"):
        rc.convert(other, tmp_path / "m.param", verify=verified)
    assert {**before, "b.safetensors": other.read_bytes()} == contents(tmp_path)


def batch(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["batch", *map(str, words)])
    return result.exit_code, result.output


def manifest(path: Path, *lines: dict[str, str]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_lines_of_a_manifest_do_not_share_a_companion(tmp_path: Path) -> None:
    for name in "ab":
        weights(tmp_path / f"{name}.safetensors")
    lines = manifest(
        tmp_path / "m.jsonl",
        {"source": str(tmp_path / "a.safetensors"), "target": "m.xml"},
        {"source": str(tmp_path / "b.safetensors"), "target": "m.param", "to": "ncnn"},
    )
    code, text = batch(lines, "--to", "openvino", "--out", tmp_path / "out", "--force")
    assert code == 2 and "m.bin" in text and not (tmp_path / "out").exists()
    lines = manifest(tmp_path / "m.jsonl", *({"source": str(tmp_path / "a.safetensors"), "target": f"m{end}", "to": to}
                                             for end, to in ((".xml", "openvino"), (".param", "ncnn"))))  # fmt: skip
    assert batch(lines, "--to", "openvino", "--out", tmp_path / "out")[0] == 2


def test_a_batch_does_not_write_over_its_sources(tmp_path: Path) -> None:
    source = weights(tmp_path / "m.bin")
    lines, before = manifest(tmp_path / "m.jsonl", {"source": str(source), "target": "m.xml"}), source.read_bytes()
    code, text = batch(lines, "--to", "openvino", "--out", tmp_path, "--force")
    assert code == 2 and "over the source" in text and source.read_bytes() == before


def test_two_batches_into_one_folder_keep_their_companions(tmp_path: Path) -> None:
    weights(tmp_path / "m.safetensors")
    assert batch(tmp_path / "m.safetensors", "--to", "openvino", "--out", tmp_path / "out")[0] == 0
    before = contents(tmp_path / "out")
    for journal in ("rnnconvert-batch.jsonl", "second.jsonl"):
        code, text = batch(tmp_path / "m.safetensors", "--to", "ncnn", "--out", tmp_path / "out", "--journal", tmp_path / "out" / journal)
        assert code == 2 and "m.bin" in text, text
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_batch_writes_a_damaged_companion_again(tmp_path: Path, damage: str) -> None:
    words = (weights(tmp_path / "m.safetensors"), "--to", "openvino", "--out", tmp_path / "out", "--json")
    assert batch(*words)[0] == 0
    numbers = tmp_path / "out" / "m.bin"
    before = numbers.read_bytes()
    if damage == "gone":
        numbers.unlink()
    else:
        numbers.write_bytes(before[:-8])
    assert json.loads(batch(*words)[1])["resumed"] == 0 and numbers.read_bytes() == before
    assert json.loads(batch(*words)[1])["resumed"] == 1


def test_a_batch_notices_that_the_numbers_of_its_source_changed(tmp_path: Path) -> None:
    rc.convert(weights(tmp_path / "a.safetensors"), tmp_path / "m.xml")
    words = (tmp_path / "m.xml", "--to", "onnx", "--out", tmp_path / "out", "--json")
    assert batch(*words)[0] == 0
    text = (tmp_path / "m.xml").stat()
    rc.convert(weights(tmp_path / "b.safetensors", 1), tmp_path / "n.xml")
    (tmp_path / "n.bin").replace(tmp_path / "m.bin")
    assert (tmp_path / "m.xml").stat() == text
    assert json.loads(batch(*words)[1])["resumed"] == 0


def test_a_package_is_a_target_of_a_batch(tmp_path: Path) -> None:
    """A Core ML package is a folder."""
    words = (weights(tmp_path / "m.safetensors"), "--to", "coreml", "--out", tmp_path / "out", "--json")
    assert [json.loads(batch(*words)[1])["resumed"] for _ in range(2)] == [0, 1]


def test_a_folder_is_a_source_of_a_batch(tmp_path: Path) -> None:
    rc.convert(weights(tmp_path / "m.safetensors"), tmp_path / "m.mlpackage")
    words = (tmp_path / "m.mlpackage", "--to", "onnx", "--out", tmp_path / "out", "--json")
    assert [json.loads(batch(*words)[1])["resumed"] for _ in range(2)] == [0, 1]
