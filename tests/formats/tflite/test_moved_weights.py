"""Weights that are moved to see what rounding explains: all that a file computes with, in whatever type it stores them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.formats.tflite import run
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore:::")


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_what_is_stored_in_half_precision_is_moved_too(dtype: str | None, tmp_path: Path) -> None:
    torch, interpreter = needed("torch", "torch"), needed("litert", "ai_edge_litert.interpreter").Interpreter
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(3, 6, bias=False), torch.nn.Tanh(), torch.nn.Linear(6, 2, bias=False)).eval()
    torch.jit.save(torch.jit.trace(net, torch.zeros(1, 3)), tmp_path / "m.pt")
    rc.export_model(tmp_path / "m.pt", tmp_path / "m.tflite", dtype=dtype)
    content, outputs = (tmp_path / "m.tflite").read_bytes(), []
    for model in (content, run._moved(content, lambda array: array), run._moved(content, lambda array: array * np.float32(1.001))):
        runner = interpreter(model_content=model)
        runner.allocate_tensors()
        runner.set_tensor(runner.get_input_details()[0]["index"], np.ones((1, 3), np.float32))
        runner.invoke()
        outputs.append(runner.get_tensor(runner.get_output_details()[0]["index"]))
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-6)
    assert np.all(outputs[2] != outputs[0]) and np.allclose(outputs[2], outputs[0], rtol=0.01)
