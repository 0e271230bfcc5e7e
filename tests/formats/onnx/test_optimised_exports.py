"""What torch.onnx.export writes and onnxruntime's optimiser makes of it is read as what PyTorch computes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import run
from tests.helpers.drawn import looped
from tests.helpers.requirements import needed

KINDS = [("RNN", {"nonlinearity": "tanh"}), ("RNN", {"nonlinearity": "relu"}), ("GRU", {}), ("LSTM", {})]
CONFIGURATIONS = [
    (kind, {**more, "num_layers": layers, "bidirectional": both, "bias": bias})
    for (kind, more), layers, both, bias in itertools.product(KINDS, (1, 2, 3), (False, True), (False, True))
] + [
    ("GRU", {"num_layers": layers, "bidirectional": both, "batch_first": True})
    for layers, both in itertools.product((1, 2, 3), (False, True))
] + [
    ("LSTM", {"num_layers": layers, "bidirectional": both, "batch_first": True})
    for layers, both in itertools.product((1, 2, 3), (False, True))
]  # fmt: skip
"""60 ways to make a recurrent module of torch.nn."""

LEVELS = ["as exported", "basic", "extended", "layout", "all"]
OPSETS = [9, 17]


def optimised(onnxruntime: Any, path: Path, level: str) -> Path:
    """Return a model as onnxruntime writes it after its graph optimisations of a level."""
    if level == "as exported":
        return path
    name = {"basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED", "layout": "ORT_ENABLE_LAYOUT"}.get(level)
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = getattr(levels, name or "ORT_ENABLE_ALL", levels.ORT_ENABLE_ALL)
    options.log_severity_level = 3
    options.optimized_model_filepath = str(path.with_suffix(f".{level}.onnx"))
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return Path(options.optimized_model_filepath)


def outputs(path: Path, x: Array) -> Array:
    """Return what the recurrent layers of a file give one after the other, as they are read, (time, batch, out)."""
    layers = list(rc.load(path).layers.values())
    assert len(layers) >= 1, "no layer was read"
    for layer in layers:
        x = run(layer, x).y
    return x


@pytest.mark.filterwarnings("ignore")  # the tracer's
@looped(6, configuration=CONFIGURATIONS, opset=OPSETS)
def test_an_export_is_read_after_every_optimisation(configuration: tuple[str, dict[str, Any]], opset: int, tmp_path: Path) -> None:
    torch, onnxruntime = needed("torch", "torch"), needed("onnxruntime", "onnxruntime")
    kind, options = configuration
    torch.manual_seed(len(str(configuration)))
    module = getattr(torch.nn, kind)(3, 4, **options).eval()
    first = options.get("batch_first", False)
    x = np.random.default_rng(1).uniform(-1, 1, (5, 2, 3)).astype(np.float32)
    inputs = torch.from_numpy(x.swapaxes(0, 1).copy() if first else x)
    with torch.no_grad():
        expected = module(inputs)[0].numpy()
    path = tmp_path / "model.onnx"
    torch.onnx.export(module, (inputs,), path, opset_version=opset, dynamo=False)
    for level in LEVELS:
        result = outputs(optimised(onnxruntime, path, level), x)
        np.testing.assert_allclose(result, expected.swapaxes(0, 1) if first else expected, rtol=0, atol=2e-6, err_msg=level)
