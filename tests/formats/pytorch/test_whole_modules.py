"""Small modules of torch, each with one knot that drawn models found: scripted, and written for every target."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from tests.helpers import random_torch
from tests.helpers.drawn import drawn, each
from tests.helpers.drawn_models import TARGETS, of_torch, outcome
from tests.helpers.exported import FRAMEWORKS_WARN
from tests.helpers.onnx_graphs import in_onnxruntime
from tests.helpers.requirements import needed

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


_LANGUAGE = '''
import torch
from torch import nn
from typing import List, Tuple


class Words(nn.Module):
    """A language model that takes its states, and gives the next ones."""

    def __init__(self, kind) -> None:
        super().__init__()
        self.embedding, self.rnn, self.head = nn.Embedding(11, 5), kind(5, 4, 2), nn.Linear(4, 11)


class OfPair(Words):
    def forward(self, x, hidden: Tuple[torch.Tensor, torch.Tensor]):
        y, hidden = self.rnn(self.embedding(x), hidden)
        return self.head(y), hidden


class Nested(Words):
    def forward(self, all_of_it: Tuple[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]):
        x, hidden = all_of_it
        y, (h, c) = self.rnn(self.embedding(x), hidden)
        return self.head(y), h, c


class Apart(Words):
    def forward(self, x, h, c):
        y, (h, c) = self.rnn(self.embedding(x), (h, c))
        return self.head(y), h, c


class Single(Words):
    def forward(self, x, h):
        y, h = self.rnn(self.embedding(x), h)
        return self.head(y), h
'''


@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize(
    ("module", "nested"), [("OfPair(nn.LSTM)", 1), ("Nested(nn.LSTM)", 2), ("Apart(nn.LSTM)", 0), ("Single(nn.GRU)", 0)]
)
def test_states_that_a_model_takes_are_inputs_of_its_batch(tmp_path: Path, how: str, module: str, nested: int) -> None:
    torch = needed("torch", "torch")
    (tmp_path / "words.py").write_text(_LANGUAGE)  # TorchScript reads a module's source
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        patch.delitem(sys.modules, "words", raising=False)
        words = importlib.import_module("words")
        torch.manual_seed(2)
        model = eval(module, vars(words)).eval()
        arguments = [torch.randint(0, 11, (6, 3)), *torch.randn(1 + ("LSTM" in module), 2, 3, 4)]
        called = {0: tuple(arguments), 1: (arguments[0], tuple(arguments[1:])), 2: ((arguments[0], tuple(arguments[1:])),)}[nested]
        (torch.jit.script(model) if how == "script" else torch.jit.trace(model, called)).save(str(tmp_path / "m.pt"))
        truth = model(*called)
    done = rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx", verify=True, axes=[2] + [3] * (len(arguments) - 1))
    assert all("(2, batch, 4)" in text for text in done.inputs[1:]) and len(done.inputs) == len(arguments), done.inputs
    outputs = in_onnxruntime(tmp_path / "m.onnx", *(array.numpy() for array in arguments))
    expected = [truth[0], *(truth[1] if isinstance(truth[1], tuple) else truth[1:])]
    for output, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
    report = rc.verify(tmp_path / "m.pt", tmp_path / "m.onnx")
    assert report.conclusion, report.verdict
