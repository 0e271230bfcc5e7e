"""Patterns of files in rnnconvert.toml: each file that fits is a claim, and none is passed over silently."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rnnconvert.cli.main import main
from rnnconvert.core.errors import UnreadableError
from rnnconvert.verification import config_file
from tests.helpers.requirements import needed
from tests.helpers.sources import stack, write


def claims(folder: Path, text: str) -> list[tuple[str, str]]:
    path = folder / "rnnconvert.toml"
    path.write_text(text, encoding="utf-8")
    entries = config_file.read(path)
    return [(os.path.relpath(entry.a, folder), "" if entry.b is None else os.path.relpath(entry.b, folder)) for entry in entries]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = ("a/encoder.keras", "a/decoder.keras", "a/deep/er/x.keras", "a/.hidden.keras", "a/[odd].keras", "b/encoder.onnx",
             "b/decoder.onnx", "one.onnx", "v1-x.pt", "v2-x.pt", "star*.pt")  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


MATCHES = [
    ('a = "a/*coder.keras"\nb = "b/*coder.onnx"', [("a/decoder.keras", "b/decoder.onnx"), ("a/encoder.keras", "b/encoder.onnx")]),
    ('a = "a/*coder.keras"', [("a/decoder.keras", ""), ("a/encoder.keras", "")]),
    ('a = "a/*coder.keras"\nb = "one.onnx"', [("a/decoder.keras", "one.onnx"), ("a/encoder.keras", "one.onnx")]),
    ('a = "a/**/x.keras"\nb = "b/**/x.onnx"', [("a/deep/er/x.keras", "b/deep/er/x.onnx")]),
    ('a = "v?-*.pt"\nb = "out?/*.onnx"', [("v1-x.pt", "out1/x.onnx"), ("v2-x.pt", "out2/x.onnx")]),
    ('a = "a/[odd].k*"', [("a/[odd].keras", "")]),
    ('a = "a/.h*"', [("a/.hidden.keras", "")]),
    ('a = "star*.pt"', [("star*.pt", "")]),
    ('a = "one.onnx"\nb = "star*.pt"', [("one.onnx", "star*.pt")]),
    ('a = "absent.onnx"', [("absent.onnx", "")]),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "expected"), MATCHES, ids=[row[0].replace("\n", " ") for row in MATCHES])
def test_a_pattern_is_a_claim_for_each_file(entry: str, expected: list[tuple[str, str]], folder: Path) -> None:
    assert claims(folder, f"[[equal]]\n{entry}\n") == expected


WRONG = [
    ('a = "a/*.pt"', "number 1: no file fits 'a/*.pt'"),
    ('a = "one.onnx"\nb = "b/*.onnx"', "nothing in 'one.onnx' says what it stands for"),
    ('a = "v?-*.pt"\nb = "b/*-?.onnx"', "has * ? and 'v?-*.pt' has ? *"),
    ('a = "a/*.keras"\nb = "*/*.onnx"', "has * * and"),
]


@pytest.mark.parametrize(("entry", "message"), WRONG, ids=[row[0].replace("\n", " ") for row in WRONG])
def test_a_pattern_that_fits_nothing_is_an_error(entry: str, message: str, folder: Path) -> None:
    with pytest.raises(UnreadableError) as caught:
        claims(folder, f"[[equal]]\n{entry}\n")
    assert message in str(caught.value)


def check(*words: object) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, words)])


def test_check_runs_every_pair_and_only_those_asked_for(tmp_path: Path) -> None:
    needed("torch", "torch")
    needed("onnxruntime", "onnxruntime")
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    for seed, name in enumerate(("encoder", "decoder")):
        write(tmp_path / "in" / f"{name}.pt", stack(seed=seed))
        write(tmp_path / "out" / f"{name}.onnx", stack(seed=seed))
    config = tmp_path / "rnnconvert.toml"
    config.write_text('[[equal]]\na = "in/*.pt"\nb = "out/*.onnx"\non = ["onnxruntime-cpu"]\n', encoding="utf-8")
    result = check("--config", config, "--json", "--no-explain")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["reports"]) == 2
    single = check("--config", config, "--json", "--no-explain", tmp_path / "out" / "encoder.onnx")
    assert len(json.loads(single.stdout)["reports"]) == 1
    shutil.copy(tmp_path / "in" / "encoder.pt", tmp_path / "in" / "new.pt")  # its counterpart was forgotten
    result = check("--config", config, "--json", "--no-explain")
    document = json.loads(result.stdout)
    assert result.exit_code == 3 and len(document["reports"]) == 2
    (missing,) = document["errors"]
    assert missing["b"].endswith("out/new.onnx") and missing["error"]["kind"] == "unreadable"
