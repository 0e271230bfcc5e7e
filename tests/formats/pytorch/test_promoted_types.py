"""Tensors of two element types, as PyTorch makes them one."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from tests.helpers.exported import RUNS
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
TYPES = ("bool", "int32", "int64", "float32")


@pytest.mark.parametrize(
    "operation", ["x * y", "x + y", "y / (x * x + 1)", "x * 3 + y", "x * 0.5 + y", "x.cumsum(1) - y.sum(1, keepdim=True)"]
)
def test_two_types_become_torchs_one(operation: str, tmp_path: Path) -> None:
    torch: Any = needed("torch", "torch")
    x = torch.tensor([[0.0, 1.5, -2.5], [3.0, 0.0, 4.0]])
    for left, right in itertools.product(TYPES, repeat=2):
        text = f"""
import torch
class Two(torch.nn.Module):
    def forward(self, z: torch.Tensor) -> torch.Tensor:
        x, y = z.to(torch.{left}), (z - 1).to(torch.{right})
        return ({operation}).to(torch.float32)
"""
        path = tmp_path / f"{left}_{right}.py"
        path.write_text(text)
        module = _loaded(path)
        torch.jit.script(module).save(str(tmp_path / "two.pt"))
        rc.export_model(tmp_path / "two.pt", tmp_path / "two.onnx", axes=2, force=True)
        (written,) = RUNS["onnx"](tmp_path / "two.onnx")([x.numpy()])
        np.testing.assert_allclose(written, module(x).numpy(), rtol=1e-6, err_msg=f"{left} and {right}")


def test_a_length_beside_an_input_of_a_trace_decides_nothing_of_its_type(tmp_path: Path) -> None:
    torch: Any = needed("torch", "torch")
    x = torch.tensor([[0.0, 1.5, -2.5], [3.0, 0.5, 4.0]])
    traced = torch.jit.trace(lambda z: z * ((z.size(1) - 8) % 3) + z.size(0), x)
    traced.save(str(tmp_path / "trace.pt"))
    rc.export_model(tmp_path / "trace.pt", tmp_path / "trace.onnx", axes=2)
    for inputs in (x, x[:1], x[:, :2]):
        (written,) = RUNS["onnx"](tmp_path / "trace.onnx")([inputs.numpy()])
        np.testing.assert_allclose(written, traced(inputs).numpy(), rtol=1e-6)


def _loaded(path: Path) -> Any:
    import importlib.util

    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Two().eval()
