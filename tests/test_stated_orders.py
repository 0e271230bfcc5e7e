"""Weights alone in a stated order: what their file says of a layer besides its weights holds in the whole model, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.weights import Merge
from tests import corpus
from tests.commands import call
from tests.exported import RUNS
from tests.requirements import need, needed
from tests.sources import checkpoint, stack


@pytest.mark.parametrize("merge", ["concat", "sum", "mul", "ave"])
def test_two_directions_are_joined_as_the_file_says(merge: Merge, tmp_path: Path) -> None:
    both = stack("lstm", num_directions=2, name="encoder")
    both = both.replace(layers=(replace(both.layers[0], merge=merge),))
    rc.save(checkpoint(both), tmp_path / "a.zip", "dl4j")
    rc.export_model(tmp_path / "a.zip", tmp_path / "a.onnx", chain="encoder")
    x = np.random.default_rng(1).normal(size=(7, 3, both.input_size)).astype(np.float32)
    (y,) = RUNS["onnx"](tmp_path / "a.onnx")([x.transpose(1, 0, 2)])
    np.testing.assert_allclose(y.transpose(1, 0, 2), reference.run(both, x).y, rtol=1e-4, atol=1e-6)


def test_a_layer_that_reads_from_the_end_gives_its_steps_in_the_order_of_time(tmp_path: Path) -> None:
    layer = stack("gru", name="back")
    way = layer.first.replace(reverse=True)
    layer = layer.replace(layers=(replace(layer.layers[0], directions=(way,)),))
    rc.save(checkpoint(layer), tmp_path / "a.xml", "openvino")
    rc.export_model(tmp_path / "a.xml", tmp_path / "a.onnx", chain="back")
    x = np.random.default_rng(1).normal(size=(7, 3, layer.input_size)).astype(np.float32)
    (y,) = RUNS["onnx"](tmp_path / "a.onnx")([x.transpose(1, 0, 2)])
    np.testing.assert_allclose(y.transpose(1, 0, 2), reference.run(layer, x).y, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_projection_in_a_chain_is_refused(layers: int, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    model = torch.nn.ModuleDict({"lstm": torch.nn.LSTM(5, 4, layers, proj_size=3)})
    torch.save(model.state_dict(), tmp_path / "a.pt")
    with pytest.raises(rc.RefusedError, match="projection"):
        rc.export_model(tmp_path / "a.pt", tmp_path / "a.onnx", chain="lstm")


def test_no_whole_model_is_offered_without_the_arrays_of_no_known_layer(tmp_path: Path) -> None:
    """The output layer of this network is not read: an order of its recurrent layers is not its model."""
    need("corpus", corpus.absent())
    source = corpus.FOLDER / "dl4j-regression" / "060_ModelSerializer_Regression_CG_LSTM_1.zip"
    result = call("convert", source, tmp_path / "a.onnx")
    assert result.exit_code == 0 and "left out: 2 (25)" in result.stderr and "the whole model" not in result.stderr
    result = call("export", source, tmp_path / "b.onnx", "--chain", "0 1")
    assert result.exit_code == 0 and "recurrent_activation=sigmoid" in result.stderr and "depends on them: '2'" in result.stderr
