"""Frozen graphs as whole models: their outputs, and code of them that is filled from their file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
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


def write_frozen(path: Path, model: Any, specification: Any) -> None:
    """Write a function as a frozen graph."""
    tensorflow, constants = needed("tensorflow", "tensorflow"), "tensorflow.python.framework.convert_to_constants"
    freeze = needed("tensorflow", constants).convert_variables_to_constants_v2
    frozen = freeze(tensorflow.function(model).get_concrete_function(specification))
    path.write_bytes(frozen.graph.as_graph_def().SerializeToString())


def test_a_sum_along_no_axes_and_a_norm_of_little(tmp_path: Path) -> None:
    """ONNX sums along all axes where none are stated; TFLite's norm is at least 1e-6, and not its square."""
    tensorflow: Any = needed("tensorflow", "tensorflow")
    specification = tensorflow.TensorSpec([None, 3, 4], tensorflow.float32, name="x")
    write_frozen(tmp_path / "sum.pb", lambda x: tensorflow.reduce_sum(x * 2.0, []) + 1.0, specification)
    norm = tensorflow.function(lambda x: tensorflow.nn.l2_normalize(x * 1e-5, -1)).get_concrete_function(specification)
    converter = tensorflow.lite.TFLiteConverter.from_concrete_functions([norm], norm)
    (tmp_path / "norm.tflite").write_bytes(converter.convert())
    for name in ("sum.pb", "norm.tflite"):
        done = call("export", tmp_path / name, tmp_path / f"{name}.onnx", "--verify")
        assert done.exit_code == 0 and "\nequal: " in done.output, done.output


def test_code_of_convolutions_is_filled_in_the_order_of_their_operations(tmp_path: Path) -> None:
    tensorflow: Any = needed("tensorflow", "tensorflow")
    needed("torch", "torch")
    kernels = [np.random.default_rng(seed).normal(size=shape).astype(np.float32) for seed, shape in enumerate([(2, 4, 5), (3, 5, 2)])]

    def model(x: Any) -> Any:
        return tensorflow.nn.conv1d(tensorflow.nn.relu(tensorflow.nn.conv1d(x, kernels[0], 2, "SAME")), kernels[1], 1, "VALID")

    specification = tensorflow.TensorSpec([None, 12, 4], tensorflow.float32, name="x")
    write_frozen(tmp_path / "frozen.pb", model, specification)
    done = call("scaffold", tmp_path / "frozen.pb", "--to", "pytorch", "--output", tmp_path / "whole.py", "--verify")
    assert done.exit_code == 0 and "\nequal: " in done.output, done.output
