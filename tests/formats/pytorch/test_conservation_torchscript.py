"""TorchScript archives: the function of a plain RNN stands in the archive's code, and nowhere else in a trace."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rnnconvert.core import reference
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.load import load
from rnnconvert.formats.pytorch import torchscript_code

pytestmark = pytest.mark.filterwarnings(
    "ignore::torch.jit.TracerWarning",
    "ignore:LSTM with projections is not supported with oneDNN:UserWarning",
    "ignore:.*torch.jit.*:DeprecationWarning",
    "ignore:.*torch.jit.*:FutureWarning",
)
TOLERANCE = 3e-6


class Around(nn.Module):
    """A recurrent layer below a name, with a dense layer behind it."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.core = layer
        self.head = nn.Linear(width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.core(x)[0])
        return y


class Steps(nn.Module):
    """Two cells by hand, one of each function."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.RNNCell(3, 4, nonlinearity="relu")
        self.b = nn.RNNCell(4, 5, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, g = torch.zeros(2, 4), torch.zeros(2, 5)
        for t in range(x.shape[0]):
            h = self.a(x[t], h)
            g = self.b(h, g)
        return g


def close(stack: Recurrent, layer: nn.Module, batch_first: bool = False) -> bool:
    x = torch.randn(6, 2, stack.input_size)
    with torch.no_grad():
        wanted = layer(x.transpose(0, 1) if batch_first else x)[0].numpy()
    wanted = wanted.swapaxes(0, 1) if batch_first else wanted
    return bool(np.abs(reference.run(stack, x.numpy()).y - wanted).max() < TOLERANCE)


@pytest.mark.parametrize("form", ["trace", "script", "frozen"])
@pytest.mark.parametrize("function", ["relu", "tanh"])
@pytest.mark.parametrize("more", [{}, {"num_layers": 2, "bidirectional": True, "bias": False}, {"batch_first": True}])
def test_the_function_of_an_rnn_is_read_from_the_code(tmp_path: Path, form: str, function: str, more: Any) -> None:
    layer = nn.RNN(3, 4, nonlinearity=function, **more)
    model = Around(layer, 8 if "bidirectional" in more else 4).eval()
    program: Any = torch.jit.script(model) if form == "script" else torch.jit.trace(model, torch.randn(5, 2, 3))
    (torch.jit.freeze(program) if form == "frozen" else program).save(str(tmp_path / "m.pt"))
    checkpoint = load(tmp_path / "m.pt")
    assert list(checkpoint.layers) == ["rnn" if form == "frozen" else "core"]
    (stack,) = checkpoint.layers.values()
    assert stack.cell.activation.name == function
    assert not checkpoint.questions
    assert close(stack, layer, "batch_first" in more)


@pytest.mark.parametrize("scripted", [False, True])
def test_the_function_of_a_cell_is_read_from_the_code(tmp_path: Path, scripted: bool) -> None:
    model = Steps()
    program = torch.jit.script(model) if scripted else torch.jit.trace(model, torch.randn(3, 2, 3), check_trace=False)
    program.save(str(tmp_path / "m.pt"))
    checkpoint = load(tmp_path / "m.pt")
    assert {name: stack.cell.activation.name for name, stack in checkpoint.layers.items()} == {"a": "relu", "b": "tanh"}
    assert not checkpoint.questions


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_frozen_archive_is_read_by_its_calls(tmp_path: Path, kind: Any) -> None:
    layer = kind(3, 4, num_layers=2, bidirectional=True)
    frozen = torch.jit.freeze(torch.jit.script(Around(layer, 8).eval()))
    frozen.save(str(tmp_path / "m.pt"))
    (stack,) = load(tmp_path / "m.pt").layers.values()
    assert close(stack, layer)


def test_a_frozen_projection(tmp_path: Path) -> None:
    layer = nn.LSTM(3, 4, proj_size=2)
    torch.jit.freeze(torch.jit.script(Around(layer, 2).eval())).save(str(tmp_path / "m.pt"))
    (stack,) = load(tmp_path / "m.pt").layers.values()
    assert close(stack, layer)


def edited(path: Path, old: str, new: str) -> Path:
    """The archive with its code changed."""
    changed = path.with_name("changed.pt")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(changed, "w") as target:
        texts = {name: source.read(name) for name in source.namelist()}
        assert any(old.encode() in text for name, text in texts.items() if name.endswith(".py"))
        for name, text in texts.items():
            target.writestr(name, text.replace(old.encode(), new.encode()) if name.endswith(".py") else text)
    return changed


def traced(tmp_path: Path) -> Path:
    torch.jit.trace(Around(nn.RNN(3, 4, nonlinearity="relu"), 4).eval(), torch.randn(5, 2, 3)).save(str(tmp_path / "m.pt"))
    return tmp_path / "m.pt"


def test_code_that_cannot_be_attributed_is_asked_about(tmp_path: Path) -> None:
    path = edited(traced(tmp_path), "torch.rnn_relu(", "torch.rnn_of_tomorrow(")
    (question,) = load(path).questions
    assert question.option == "nonlinearity"
    assert "code does not show" in question.why


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("torch.rnn_relu(", "torch.lstm(", "runs as torch.lstm"),
        ("[weight_ih_l0, weight_hh_l0,", "[weight_hh_l0, weight_ih_l0,", "order of their own"),
        ("True, 1, 0., False, False, False)", "True, 2, 0., False, False, False)", "num_layers"),
        ("True, 1, 0., False, False, False)", "True, 1, 0., False, True, False)", "bidirectional"),
    ],
)
def test_code_that_contradicts_the_weights_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        load(edited(traced(tmp_path), old, new))


def test_weights_that_are_read_by_two_functions_are_refused(tmp_path: Path) -> None:
    path = traced(tmp_path)
    with zipfile.ZipFile(path) as archive:
        text = next(
            archive.read(name).decode() for name in archive.namelist() if name.endswith(".py") and b"torch.rnn_relu(" in archive.read(name)
        )
    line = next(part.strip() for part in text.splitlines() if "torch.rnn_relu(" in part)
    both = f"{line}\n    other, more = {line.partition(' = ')[2].replace('rnn_relu', 'rnn_tanh')}"
    with pytest.raises(RefusedError, match="relu and tanh"):
        load(edited(path, line, both))


def test_dropout_of_a_trace_in_training_mode_is_told(tmp_path: Path) -> None:
    model = Around(nn.LSTM(3, 4, num_layers=2, dropout=0.5), 4)
    torch.jit.trace(model, torch.randn(5, 2, 3), check_trace=False).save(str(tmp_path / "m.pt"))
    assert any("drops 0.5" in warning for warning in load(tmp_path / "m.pt").warnings)


@pytest.mark.parametrize("line", ["a = " + "(" * 5000, "a = [b, , c]", "a, b = x +", 'a = "', "a = f(", "return", "= =", "a = b.(c)"])
def test_lines_that_are_not_followed_are_skipped(line: str) -> None:
    text = f"class M(Module):\n  def forward(self: M,\n    x: Tensor) -> Tensor:\n    {line}\n    y = torch.relu(x)\n"
    assert torchscript_code.calls(text).get("M", []) == []
