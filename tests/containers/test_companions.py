"""Files that belong to a file lie in its folder: neither a name that it states nor a link leads out."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.containers import safetensors
from rnnconvert.containers.companions import companion
from rnnconvert.core.errors import UnreadableError
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from rnnconvert.language.packing import pack
from tests.helpers.stacks import BOTH, random_stack


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../b.bin", "a/../../b.bin", "..\\b.bin", "C:\\b.bin", "a\0b", "C:b"])
def test_a_name_that_leads_out_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="not a file in the same folder"):
        companion(tmp_path / "model.xml", name)


def test_a_name_below_the_folder_is_taken(tmp_path: Path) -> None:
    assert companion(tmp_path / "model.xml", "a/b.bin") == tmp_path / "a" / "b.bin"
    assert companion(tmp_path, "b.bin") == tmp_path / "b.bin"


TARGETS = {
    "onnx": ("model.onnx", ["--set", "external_data=true"]), "openvino": ("model.xml", []), "ncnn": ("model.param", []),
    "tfjs": ("model.json", ["--to", "tfjs"]), "cudnn": ("model.bin", []), "tensorflow1": ("model.index", ["--to", "tensorflow1"]),
}  # fmt: skip
"""Formats of several files that are written."""


@pytest.fixture(params=TARGETS)
def several(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The main file of several, in a folder of its own."""
    name, options = TARGETS[request.param]
    folder = tmp_path / "model"
    folder.mkdir()
    source = tmp_path / "source.safetensors"
    stack = random_stack(Sizes("lstm", 16, 32, 1, 1, 0, BOTH), 1, np.float32)
    safetensors.write(source, {name: np.asarray(array) for name, array in pack(registry.layouts()["pytorch.lstm"], stack).items()})
    done = CliRunner().invoke(main, ["convert", str(source), str(folder / name), "--assume-defaults", *options])
    assert done.exit_code == 0, done.output
    assert len(list(folder.iterdir())) > 1
    return folder / name


def test_a_link_out_of_the_folder_is_refused(several: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for file in several.parent.iterdir():
        if file != several:
            shutil.move(file, outside / file.name)
            file.symlink_to(outside / file.name)
    with pytest.raises(UnreadableError, match=r"a link to .*outside the folder") as refused:
        rc.load(several)
    assert "cp -L" in str(refused.value)


def test_a_link_within_the_folder_is_followed(several: Path) -> None:
    (several.parent / "numbers").mkdir()
    for file in [file for file in several.parent.iterdir() if file.is_file() and file != several]:
        shutil.move(file, several.parent / "numbers" / file.name)
        file.symlink_to(several.parent / "numbers" / file.name)
    assert rc.load(several).layers


def test_a_link_out_of_a_folder_that_is_the_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "fc.w_0").symlink_to(tmp_path / "outside")
    with pytest.raises(UnreadableError, match="outside the folder"):
        companion(tmp_path / "model", "fc.w_0")


def test_a_cache_that_holds_all_files_elsewhere_is_followed(several: Path, tmp_path: Path) -> None:
    blobs = tmp_path / "blobs"
    for number, file in enumerate(sorted(several.parent.iterdir())):
        (blobs / str(number)).mkdir(parents=True)
        shutil.move(file, blobs / str(number) / "blob")
        file.symlink_to(blobs / str(number) / "blob")
    assert rc.load(several).layers
