"""What a script asks of a value besides its numbers: its element type decides casts, and nothing is guessed of it."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.errors import RefusedError
from tests.helpers.exported import RUNS
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
_MODULE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x: torch.Tensor):
        y = self.lstm(x)[0] * 10
        z = y.to(torch.int64)
"""
RIGHT = {
    "to the type of another value": "return y.to(z.dtype)",
    "to another value, and by keyword": "return y.to(z) + y.type_as(z) + y.to(dtype=z.dtype)",
    "with the device in front": "return y.to(z.device, z.dtype)",
    "to its own type": "return y.to(x.dtype)",
    "a filled tensor": "return torch.full([2], 2.5, dtype=z.dtype) + z[:, 0, :2]",
    "zeros beside it": "return y + torch.zeros(4, dtype=x.dtype, device=x.device)",
    "a condition on the device": """
        if x.is_cuda or x.device != torch.device("cpu"):
            y = y * 3.0
        return y
    """,
}
REFUSED = {
    "a condition on the element type": """
        if x.dtype == torch.float32:
            y = y * 2.0
        return y
    """,
    "a condition on another element type": """
        if x.dtype != torch.float32:
            y = y * 2.0
        return y
    """,
}


def saved(folder: Path, body: str) -> Any:
    """Return a scripted model that is saved as well."""
    torch = needed("torch", "torch")
    path = folder / "typed_module.py"
    path.write_text(_MODULE + textwrap.indent(textwrap.dedent(body).strip(), " " * 8) + "\n")
    spec = importlib.util.spec_from_file_location("typed_module", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(5)
    model = torch.jit.script(module.Model().eval())
    model.save(str(folder / "model.pt"))
    return model


@pytest.mark.parametrize("name", RIGHT)
def test_a_type_that_a_value_has_is_the_one_that_is_written(name: str, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    model, x = saved(tmp_path, RIGHT[name]), torch.randn(2, 5, 3)
    rc.export_model(tmp_path / "model.pt", tmp_path / "model.onnx", axes=3)
    (output,) = RUNS["onnx"](tmp_path / "model.onnx")([x.numpy()])
    expected = model(x).detach().numpy()
    assert output.dtype == expected.dtype
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_a_condition_on_an_element_type_is_not_guessed(name: str, tmp_path: Path) -> None:
    saved(tmp_path, REFUSED[name])
    with pytest.raises(RefusedError):
        rc.export_model(tmp_path / "model.pt", tmp_path / "model.onnx", axes=3)
    assert not (tmp_path / "model.onnx").exists()
    assert list(rc.load(tmp_path / "model.pt").layers) == ["lstm"]
