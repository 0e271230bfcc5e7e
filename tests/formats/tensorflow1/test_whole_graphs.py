"""Frozen graphs as whole models: their outputs, and code of them that is filled from their file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ROOT
from tests.helpers import corpus
from tests.helpers.commands import call
from tests.helpers.requirements import need, needed

GOLDEN = ROOT / "tests" / "golden"
KERAS_21 = sorted((GOLDEN / "frozen_keras21").glob("*.pb"))


@pytest.mark.parametrize("path", KERAS_21, ids=lambda path: path.stem)
def test_counts_that_a_list_was_read_by_are_no_outputs(path: Path, tmp_path: Path) -> None:
    needed("tensorflow", "tensorflow")
    done = call("export", path, tmp_path / "whole.onnx", "--verify")
    assert done.exit_code == 0 and "\nequal: " in done.output, done.output
    outputs = next(line for line in done.output.splitlines() if line.startswith("outputs: "))
    assert outputs.count("(") == 1, outputs


@pytest.mark.parametrize("name", ["GRU_S", "Basic_LSTM_S"])
def test_code_of_cells_is_filled_by_the_names_of_their_operations(name: str, tmp_path: Path) -> None:
    need("corpus", corpus.absent())
    needed("tensorflow", "tensorflow")
    needed("torch", "torch")
    source = corpus.FOLDER / "kws-arm-small" / f"{name}.pb"
    done = call("scaffold", source, "--to", "pytorch", "--output", tmp_path / "whole.py", "--verify")
    assert done.exit_code == 0 and "\nequal: " in done.output, done.output
