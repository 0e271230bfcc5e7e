"""What a failed download leaves in the place of a model is named, whatever the file's name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.errors import UnreadableError
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language import registry
from tests.formats.onnx.test_onnx_states import CELLS, form_of
from tests.helpers.stacks import random_stack

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 12345\n"
LEFT = {
    "a Git LFS pointer to a file of 12,345 bytes": POINTER,
    "a web page": b"\n<!DOCTYPE html>\n<html><head><title>404</title></head></html>",
    "'Entry not found'": b"Entry not found",
    "Repository not found": b'{"error": "Repository not found"}',
    "AccessDenied": b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code></Error>',
}
ENDINGS = sorted({ending for card in registry.cards().values() for ending in (*card.endings, *card.written)})


@pytest.mark.parametrize("words", LEFT)
def test_it_is_named_under_every_ending(words: str, tmp_path: Path) -> None:
    assert len(ENDINGS) > 20
    for ending in ENDINGS:
        path = tmp_path / f"model{ending}"
        path.write_bytes(LEFT[words])
        with pytest.raises(UnreadableError) as raised:
            rc.load(path)
        assert words in str(raised.value), ending
        assert ("git lfs pull" in raised.value.remedy) == (LEFT[words] == POINTER)
        path.unlink()


def test_it_is_named_in_the_place_of_a_second_file(tmp_path: Path) -> None:
    stack = random_stack(form_of("gru"), 3, np.float32, CELLS["gru"])
    rc.save(Checkpoint("", "canonical", {"layer": stack}), tmp_path / "model.xml")
    (tmp_path / "model.bin").write_bytes(POINTER)
    with pytest.raises(UnreadableError, match=r"model\.bin: it is a Git LFS pointer"):
        rc.load(tmp_path / "model.xml")
