"""Small modules of torch, each with one knot that drawn models found: scripted, and written for every target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import random_torch
from tests.drawn import drawn, each
from tests.drawn_models import TARGETS, of_torch, outcome
from tests.exported import FRAMEWORKS_WARN
from tests.requirements import needed

pytestmark = FRAMEWORKS_WARN
_MODULES = '''
import torch
from torch import nn
from torch.nn import functional as F


class Again(nn.Module):
    """A layer that begins with what it ended with: an axis is added to that."""

    def __init__(self, kind) -> None:
        super().__init__()
        self.rnn = kind(4, 3, batch_first=True)

    def forward(self, x):
        h = self.rnn(x)[1]
        return self.rnn(x, h[-1].unsqueeze(0))[0]


class PairAgain(Again):
    def forward(self, x):
        h, c = self.rnn(x)[1]
        return self.rnn(x, (c[-1].unsqueeze(0), torch.tanh(h[-1]).unsqueeze(0)))[0]


class Apart(nn.Module):
    """A convolution with strides and with places apart."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.conv, self.rnn = nn.Conv1d(4, 4, 2, stride=2, dilation=3, padding=1, groups=groups), nn.LSTM(4, 3, batch_first=True)

    def forward(self, x):
        return self.rnn(self.conv(x.transpose(1, 2)).transpose(1, 2))[0]


class Gated(nn.Module):
    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis: int = axis
        self.rnn = nn.GRU(4, 6, batch_first=True)

    def forward(self, x):
        y = self.rnn(x)[0]
        return F.glu(y, dim=-1) if self.axis == -1 else F.glu(y.transpose(1, 2), dim=1)
'''
CASES: dict[str, tuple[str, set[str]]] = {
    "a GRU begins with a state without its axis": ("Again(nn.GRU)", set()),
    "an LSTM begins with states without their axis": ("PairAgain(nn.LSTM)", set()),
    "strides and places apart": ("Apart(1)", set()),
    "strides and places apart in groups": ("Apart(2)", set()),
    "strides and places apart by channel": ("Apart(4)", set()),
    "glu": ("Gated(-1)", set()),
    "glu over channels": ("Gated(1)", set()),
}
"""What makes a module, and the targets that refuse it by name."""


@pytest.mark.parametrize("target", ["ONNX", "OpenVINO", "TFLite", "Core ML", "ncnn", "C", "TensorFlow.js graph"])
def test_modules_give_what_torch_gives(tmp_path: Path, target: str) -> None:
    torch = needed("torch", "torch")
    loaded = random_torch.imported(tmp_path / "small_modules.py", _MODULES)
    random = np.random.default_rng(3)
    calls = [random.normal(size=(batch, time, 4)).astype(np.float32) for batch, time in ((3, 7), (1, 6), (2, 9))]

    def check(name: str) -> None:
        torch.manual_seed(0)
        constructor, refusing = CASES[name]
        module, path = eval(constructor, vars(loaded)).eval(), tmp_path / "source.pt"
        torch.jit.script(module).save(str(path))
        result = outcome(of_torch(module, path, calls, axes=3), TARGETS[target], tmp_path)
        assert result.status == ("refused" if target in refusing else "equal"), result

    each(drawn(CASES, 30, f"modules {target}"), check)
