"""Loops over the steps of sequences in TorchScript: written as one Scan that gives what torch gives, or refused with the reason."""

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
from tests.helpers.frameworks import executor
from tests.helpers.requirements import needed

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning"),  # where coremltools' sigmoid is 0
]
TARGETS = {"onnx": "onnx", "xml": "openvino", "tflite": "tflite", "json": "tfjs", "mlpackage": "coreml", "h": "c_header"}
"""The formats that have loops, by the endings of their files."""
NOT_BY_STEPS = {
    "a tensor that grows in front of what it begins with": "joined along the batch or the time",
    "a tensor that grows by two steps each, from no axes": "a sequence of any length as so many numbers",
    "attention": "a step of a loop reads all steps of a sequence",
    "every other step": "of kind 'slice between'",
    "every third from the end": "of kind 'slice between'",
    "a counter": "of kind 'gather'",
    "a list that is not empty": "along the batch or the time",
    "a list that goes on": "along the batch or the time",
    "a list filled by two loops": "along the batch or the time",
    "without a sequence": "several open axes",
    "a tensor that is filled": "several open lengths",
    "a tensor that is filled, all steps but one": "several open lengths",
}
"""Loops that C code cannot compute step by step, and why its refusal says so."""
_MODULE = """
from typing import List

import torch
from torch import nn


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.x, self.h = nn.Linear(5, 18), nn.Linear(6, 18)

    def forward(self, x: torch.Tensor, h: torch.Tensor):
        xr, xz, xn = self.x(x).chunk(3, -1)
        hr, hz, hn = self.h(h).chunk(3, -1)
        z = torch.sigmoid(xz + hz)
        return (1 - z) * torch.tanh(xn + torch.sigmoid(xr + hr) * hn) + z * h


class LayerNormLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight_ih, self.weight_hh = nn.Parameter(torch.randn(24, 5) / 3), nn.Parameter(torch.randn(24, 6) / 3)
        self.ln_ih, self.ln_hh, self.ln_c = nn.LayerNorm(24), nn.LayerNorm(24), nn.LayerNorm(6)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor):
        gates = self.ln_ih(torch.mm(x, self.weight_ih.t())) + self.ln_hh(torch.mm(h, self.weight_hh.t()))
        i, f, g, o = gates.chunk(4, 1)
        c = self.ln_c(torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g))
        return torch.sigmoid(o) * torch.tanh(c), c


class MultiplicativeLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.wx, self.wh = nn.Linear(5, 24, bias=False), nn.Linear(6, 24)
        self.wmx, self.wmh = nn.Linear(5, 6, bias=False), nn.Linear(6, 6, bias=False)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor):
        i, f, o, u = (self.wx(x) + self.wh(self.wmx(x) * self.wmh(h))).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.norm, self.multiplicative = Gru(), LayerNormLstm(), MultiplicativeLstm()
        self.lstm, self.rnn, self.context = nn.LSTMCell(5, 6), nn.RNNCell(6, 6), nn.GRUCell(10, 6)
        self.gru = nn.GRU(5, 6, batch_first=True)
        self.query, self.fc, self.first = nn.Linear(6, 5), nn.Linear(6, 2), nn.Parameter(torch.randn(6))

    def forward(self, x: torch.Tensor):
        batch, time = x.size(0), x.size(1)
        h, c, outs = torch.zeros(batch, 6), torch.zeros(batch, 6), torch.jit.annotate(List[torch.Tensor], [])
"""

RIGHT = {
    "stacked": """
        for t in range(time):
            h = self.cell(x[:, t], h)
            outs.append(h)
        return self.fc(torch.stack(outs, dim=1))
    """,
    "joined": """
        for t in range(time):
            h = self.cell(x[:, t, :], h)
            outs.append(h.unsqueeze(1))
        return self.fc(torch.cat(outs, 1)), h
    """,
    "a tensor that grows from nothing": """
        grown = torch.zeros(batch, 0, 6)
        for t in range(time):
            h = self.cell(x[:, t], h)
            grown = torch.cat([grown, h.unsqueeze(1)], 1)
        return self.fc(grown), h
    """,
    "a tensor that grows in front of what it begins with": """
        grown = torch.ones(batch, 2, 6)
        for t in range(time):
            h = self.cell(x[:, t], h)
            grown = torch.cat((h.unsqueeze(1), grown), dim=1)
        return self.fc(grown)
    """,
    "a tensor that grows by two steps each, from no axes": """
        grown = torch.empty(0)
        for t in range(time):
            h = self.cell(x[:, t], h)
            grown = torch.cat([grown, torch.stack([h, -h])])
        return self.fc(grown)
    """,
    "last alone": """
        for t in range(time):
            h = self.cell(x[:, t], h)
        return self.fc(h)
    """,
    "layer norm": """
        for t in range(time):
            h, c = self.norm(x[:, t], h, c)
            outs += [h]
        return self.fc(torch.stack(outs)), c
    """,
    "multiplicative": """
        for t in range(time):
            h, c = self.multiplicative(x[:, t], h, c)
            outs += [h]
        return self.fc(torch.stack(outs))
    """,
    "time in front": """
        for step in x.permute(1, 0, 2):
            h, c = self.lstm(step, (h, c))
            outs.append(h)
        return self.fc(torch.stack(outs))
    """,
    "steps that keep their axis": """
        for step in x.split(1, dim=1):
            h = self.cell(step.squeeze(1), h)
            outs.append(step * 2 + h.unsqueeze(1).sum(2, True))
        return self.fc(h.unsqueeze(1) + torch.cat(outs, 1)[:, :, :1]), torch.cat(x.split(1, -2), -2) * 1.5
    """,
    "two cells": """
        for t in range(time):
            h, c = self.lstm(x[:, t], (h, c))
            g = self.rnn(h, c)
            outs.append(g)
        return self.fc(torch.stack(outs, 1))
    """,
    "states as a tuple": """
        s = (h, c)
        for t in range(time):
            s = self.lstm(x[:, t], s)
        return s[0], s[1]
    """,
    "a learned state": """
        h = self.first.expand(batch, 6)
        for t in range(time):
            h = self.cell(x[:, t], h) + h * self.first
        return h
    """,
    "a state of one row": """
        h = torch.zeros(1, 6)
        for t in range(time):
            h = self.cell(x[:, t], h)
        return h
    """,
    "attention": """
        for t in range(time):
            w = torch.softmax(torch.bmm(x, self.query(h).unsqueeze(2)).squeeze(2), 1)
            h = self.context(torch.cat([x[:, t], torch.bmm(w.unsqueeze(1), x).squeeze(1)], 1), h)
            outs.append(h)
        return torch.stack(outs, 1)
    """,
    "from the end": """
        for t in range(time - 1, -1, -1):
            h = self.cell(x[:, t], h)
            outs.insert(0, h)
        return torch.stack(outs, 1)
    """,
    "from the end, in that order": """
        for t in range(time - 1, -1, -1):
            h = self.cell(x[:, t], h)
            outs.append(h)
        return torch.stack(outs, 1)
    """,
    "the step before": """
        p = torch.zeros(batch, 5)
        for t in range(time):
            h = self.cell(x[:, t] - p, h)
            p = x[:, t]
            outs.append(h)
        return torch.stack(outs, 1)
    """,
    "states that are those of other ones": """
        g, m, n = h, torch.zeros(batch, dtype=torch.bool), torch.ones(batch, dtype=torch.bool)
        for t in range(time):
            c, g, h = g, h, self.cell(x[:, t], c)
            m, n = n, ~m
        return h, c, g, m, n
    """,
    "exchanged states": """
        for t in range(time):
            h, c = c + 1.0, self.cell(x[:, t], h)
            outs.append(h)
        return torch.stack(outs, 1), c
    """,
    "in place on a new value": """
        for t in range(time):
            h = torch.relu_(self.cell(x[:, t], h))
            outs.append(h)
        return torch.stack(outs, 1)
    """,
    "two loops": """
        for t in range(time):
            h = self.cell(x[:, t], h)
            outs.append(h)
        h = torch.zeros(batch, 6)
        for step in outs:
            h = self.rnn(step, h)
        return h
    """,
    "all steps but one": """
        for t in range(time - 1):
            h = self.cell(x[:, t], h)
        return h
    """,
    "every other step": """
        for t in range(0, time, 2):
            h = self.cell(x[:, t], h)
        return h
    """,
    "from the second step": """
        for t in range(1, time):
            h = self.cell(x[:, t] - x[:, t - 1], h)
        return h
    """,
    "computed steps": """
        for t in range(time):
            h = self.cell(x[:, time - 1 - t], h)
        return h
    """,
    "a counter": """
        n = 0
        for t in range(time):
            h = self.cell(x[:, n], h)
            n += 1
        return h
    """,
    "the number of the step": """
        for t in range(time):
            h = self.cell(x[:, t], h) * (1.0 / (t + 1))
        return h
    """,
    "a list that is not empty": """
        outs.append(h)
        for t in range(time):
            h = self.cell(x[:, t], h)
            outs.append(h)
        return torch.stack(outs)
    """,
    "a list that goes on": """
        for t in range(time):
            h = self.cell(x[:, t], h)
            outs.append(h)
        outs.append(h)
        return torch.stack(outs)
    """,
    "an element changed later": """
        for t in range(time):
            h = self.cell(x[:, t], h)
            outs.append(h)
            h.mul_(0.9)
        return torch.stack(outs)
    """,
    "every third from the end": """
        for t in range(time - 1, -1, -3):
            h = self.cell(x[:, t], h)
            outs.append(h)
        return torch.stack(outs, 1)
    """,
    "a slice of one step": """
        for t in range(time):
            h = self.cell(x[:, t : t + 1].squeeze(1), h)
            outs.append(h)
        return torch.stack(outs, 1), outs[-1], outs[0]
    """,
    "a list that is turned around": """
        steps = x.unbind(1)[::-1]
        for t in range(len(steps)):
            h = self.cell(steps[t], h)
            outs.append(h)
        later = outs[::-1]
        outs.reverse()
        return torch.stack(outs, 1), torch.stack(later, 0)
    """,
    "both directions in one loop": """
        back = torch.jit.annotate(List[torch.Tensor], [])
        for t in range(time):
            h = self.cell(x[:, t], h)
            c = self.cell(x[:, time - 1 - t], c)
            outs.append(h)
            back.insert(0, c)
        return torch.cat([torch.stack(outs, 1), torch.stack(back, 1)], 2)
    """,
    "a list filled by two loops": """
        for t in range(time):
            h = self.cell(x[:, t], h)
            outs.append(h)
        for t in range(time):
            c = self.rnn(h, c)
            outs.append(c)
        return torch.stack(outs, 1)
    """,
    "without a sequence": """
        for t in range(time):
            h = self.rnn(h + 1.0, h)
            outs.append(h)
        return torch.stack(outs, 1)
    """,
    "a condition on the step": """
        for t in range(time):
            if t % 2 == 0:
                h = self.cell(x[:, t], h)
            else:
                h, c = self.lstm(-x[:, t], (h, c))
            outs.append(h if t > 2 else c)
        return torch.stack(outs, 1)
    """,
    "a layer in the loop": """
        s = torch.zeros(1, batch, 6)
        for t in range(time):
            y, s = self.gru(x[:, t].unsqueeze(1), s)
            outs.append(y)
        return torch.cat(outs, 1)
    """,
    "in place on a value of the step": """
        for t in range(time):
            h = h * 0.9
            h.add_(self.first)
            h += self.cell(x[:, t], h)
            outs.append(h)
        return torch.stack(outs, 1), h
    """,
    "whole numbers as a state": """
        n = torch.zeros(batch, dtype=torch.long)
        for t in range(time):
            n = n + (x[:, t].sum(1) > 0).long()
            h = self.cell(x[:, t], h) / (t + 1)
        return h, n
    """,
    "a tensor that is filled": """
        out, other = torch.zeros(batch, time, 6), torch.zeros(time, batch, 6)
        for t in range(time):
            h = self.cell(x[:, t], h)
            out[:, t] = h
            other[t, :, :] = h.mean(1, keepdim=True).expand(batch, 6)
        out[:, 0] = h
        return out * 2.0, other
    """,
    "a tensor that is filled, all steps but one": """
        out = torch.zeros(time, batch, 2)
        for t in range(1, time):
            h = self.cell(x[:, t], h)
            out[t] = self.fc(h)
        return out
    """,
}
REFUSED = {
    "a tensor that is filled at times": """
        out = torch.zeros(batch, time, 6)
        for t in range(time):
            h = self.cell(x[:, t], h)
            if t % 2 == 0:
                out[:, t] = h
        return out
    """,
    "a tensor that is filled twice": """
        out = torch.zeros(batch, time, 6)
        for t in range(time):
            h = self.cell(x[:, t], h)
            out[:, t] = h
            out[:, t] = h * 2.0
        return out
    """,
    "a tensor that is filled and looked at before": """
        out = torch.zeros(batch, time, 6)
        first = out[:, 0]
        for t in range(time):
            h = self.cell(x[:, t], h)
            out[:, t] = h
        return first
    """,
    "a tensor that is filled and read": """
        out = torch.zeros(batch, time, 6)
        for t in range(time):
            h = self.cell(x[:, t], h) + out[:, 0]
            out[:, t] = h
        return out
    """,
    "a branch on a length that changes a value in place": """
        y = self.fc(h)
        if time > 3:
            y.mul_(2.0)
        return y
    """,
    "a branch that changes a value in place, without a loop": """
        y = self.fc(h)
        if bool(x.sum() > 0):
            y.add_(1.0)
        return y
    """,
    "a part of a value changed in place": """
        for t in range(time):
            h = self.cell(x[:, t], h)
            y = h * 1.0
            y[:, :3].zero_()
            outs.append(y)
        return torch.stack(outs, 1)
    """,
    "a branch that changes a state in place": """
        for t in range(time):
            h = self.cell(x[:, t], h)
            if t % 2 == 0:
                h.mul_(0.5)
            outs.append(h)
        return torch.stack(outs, 1)
    """,
    "a number that changes": """
        n = 1.0
        for t in range(time):
            h = self.cell(x[:, t], h) * n
            n = n * 0.9
        return h
    """,
    "a list that is read": """
        for t in range(time):
            if len(outs) > 0:
                h = outs[-1] * 0.5
            h = self.cell(x[:, t], h)
            outs.append(h)
        return torch.stack(outs)
    """,
    "a list filled at times": """
        for t in range(time):
            h = self.cell(x[:, t], h)
            if t % 2 == 0:
                outs.append(h)
        return torch.stack(outs)
    """,
    "a list filled twice": """
        for t in range(time):
            h = self.cell(x[:, t], h)
            outs.append(h)
            outs.append(-h)
        return torch.stack(outs)
    """,
    "a list filled in its middle": """
        for t in range(time):
            h = self.cell(x[:, t], h)
            outs.insert(1, h)
        return torch.stack(outs)
    """,
    "a state changed in place": """
        for t in range(time):
            n = self.cell(x[:, t], h)
            h.copy_(n)
            outs.append(n)
        return torch.stack(outs)
    """,
    "the sequence changed in place": """
        x = x * 1.0
        for t in range(time):
            y = x[:, t]
            y.mul_(2.0)
            h = self.cell(y, h)
        return h + x.sum()
    """,
    "until something": """
        for t in range(time):
            h = self.cell(x[:, t], h)
            if bool(h.sum() > 3):
                break
        return h
    """,
    "while": """
        t = 0
        while t < time:
            h = self.cell(x[:, t], h)
            t += 1
        return h
    """,
    "a loop in a loop": """
        for t in range(time):
            for u in range(time):
                h = self.cell(x[:, u], h)
        return h
    """,
    "a tensor that grows, and is read": """
        grown = torch.zeros(batch, 1, 6)
        for t in range(time):
            h = self.cell(x[:, t], grown.mean(1))
            grown = torch.cat([grown, h.unsqueeze(1)], 1)
        return grown
    """,
    "a state that grows": """
        for t in range(time):
            h = torch.cat([h, self.cell(x[:, t], h[:, :6])], 1)
        return h
    """,
}


def written(folder: Path, forward: str) -> Any:
    """Return a model with this forward, with drawn weights."""
    torch = needed("torch", "torch")
    path = folder / "written_module.py"
    path.write_text(_MODULE + textwrap.indent(textwrap.dedent(forward), " " * 8))
    spec = importlib.util.spec_from_file_location("written_module", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(3)
    return module.Model().eval()


def scripted(folder: Path, forward: str) -> Any:
    """Return a scripted model with this forward, which is saved as well."""
    model = needed("torch", "torch").jit.script(written(folder, forward))
    model.save(str(folder / "model.pt"))
    return model


@pytest.mark.parametrize("ending", TARGETS)
@pytest.mark.parametrize("name", RIGHT)
def test_a_loop_gives_what_torch_gives_for_any_length(name: str, ending: str, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    model = scripted(tmp_path, RIGHT[name])
    if ending == "h" and name in NOT_BY_STEPS:
        with pytest.raises(RefusedError, match=NOT_BY_STEPS[name]) as caught:
            rc.export_model(tmp_path / "model.pt", tmp_path / "model.h")
        assert str(caught.value).count("cannot hold") == 1, caught.value
        assert not (tmp_path / "model.h").exists()
        return
    rc.export_model(tmp_path / "model.pt", tmp_path / f"model.{ending}", format=TARGETS[ending])
    run = RUNS[ending](tmp_path / f"model.{ending}")
    for batch, time in ((3, 7), (1, 1), (2, 12)):
        if time == 1 and ("second step" in name or "all steps but" in name):
            continue  # no step is left, and the runtimes stop
        if time == 1 and ending == "mlpackage" and name == "a tensor that is filled":
            continue  # what is behind the first step is empty, and coremltools has no numbers for that
        x = torch.randn(batch, time, 5)
        expected = model(x)
        expected = [expected] if isinstance(expected, torch.Tensor) else expected
        for output, truth in zip(run([x.numpy()]), expected, strict=True):
            largest = max(
                1.0, float(truth.detach().double().abs().max())
            )  # some states grow from step to step, and their rounding with them
            np.testing.assert_allclose(output, truth.detach().numpy(), rtol=1e-5, atol=2e-6 * largest)


@pytest.mark.parametrize("name", REFUSED)
def test_a_loop_of_another_kind_is_refused(name: str, tmp_path: Path) -> None:
    scripted(tmp_path, REFUSED[name])
    with pytest.raises(RefusedError):
        rc.export_model(tmp_path / "model.pt", tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


@pytest.mark.parametrize("target", ["onnx", "xml", "tflite"])
def test_steps_that_are_written_out_stop_the_runtime_for_fewer(target: str, tmp_path: Path) -> None:
    """The source raises an exception; OpenVINO's runtime gives zeros for places that are not there."""
    torch = needed("torch", "torch")
    model, x = written(tmp_path, RIGHT["stacked"]), torch.randn(3, 7, 5)
    torch.jit.trace(model, x).save(str(tmp_path / "model.pt"))
    rc.export_model(tmp_path / "model.pt", tmp_path / f"model.{target}", axes=3)
    run = RUNS[target](tmp_path / f"model.{target}")
    np.testing.assert_allclose(run([x.numpy()])[0], model(x).detach().numpy(), rtol=1e-5, atol=2e-6)
    with pytest.raises(Exception, match=r"."):
        run([x[:, :5].numpy()])


def test_a_loop_without_a_step_stops_openvino(tmp_path: Path) -> None:
    """It would give the sequence of the call before it."""
    torch = needed("torch", "torch")
    scripted(tmp_path, RIGHT["a tensor that is filled, all steps but one"])
    rc.export_model(tmp_path / "model.pt", tmp_path / "model.xml")
    run = RUNS["xml"](tmp_path / "model.xml")
    assert run([torch.randn(3, 7, 5).numpy()])[0].shape == (7, 3, 2)
    with pytest.raises(RuntimeError):
        run([torch.randn(3, 1, 5).numpy()])


@pytest.mark.parametrize("saved", ["trace", "program"])
@pytest.mark.parametrize("name", ["layer norm", "multiplicative", "states as a tuple", "a tensor that is filled"])
def test_the_weights_of_steps_that_are_written_out_are_stored_once(name: str, saved: str, tmp_path: Path) -> None:
    torch, sizes = needed("torch", "torch"), []
    for time in (2, 9):
        model, x, path = written(tmp_path, RIGHT[name]), torch.randn(3, time, 5), tmp_path / f"model.{'pt' if saved == 'trace' else 'pt2'}"
        if saved == "trace":
            torch.jit.trace(model, x).save(str(path))
        else:
            torch.export.save(torch.export.export(model, (x,)), path)
        axes = 3 if saved == "trace" else None
        exported = rc.export_model(path, tmp_path / "model.onnx", axes=axes, verify=True, force=True)
        assert exported.proof and all(exported.proof)
        sizes.append(exported.size)
    assert sizes[1] - sizes[0] < 400  # indices of the steps, and no weights: these have 1,000 bytes and more


@pytest.mark.parametrize(
    "settings", [{"padding": "same"}, {"strides": 2, "return_sequences": True}, {"go_backwards": True, "use_bias": False}]
)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_an_lstm_of_convolutions_gives_what_keras_gives(rank: int, settings: dict[str, Any], tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    x = keras.Input((None, *(7, 6, 5)[:rank], 2))
    layer = getattr(keras.layers, f"ConvLSTM{rank}D")(3, 3, recurrent_activation="hard_sigmoid", return_state=True, **settings)
    model = keras.Model(x, layer(x))
    model.save(tmp_path / "model.keras")
    for ending, target in TARGETS.items():
        if target == "c_header":
            with pytest.raises(RefusedError, match="a layer of kind 'conv_lstm'"):
                rc.export_model(tmp_path / "model.keras", tmp_path / "model.h")
            continue
        path = tmp_path / f"model.{ending}"
        if rank == 3 and target in ("tflite", "tfjs", "coreml"):
            with pytest.raises(RefusedError, match=r"a convolution over 3 axes|a value of 6 axes"):
                rc.export_model(tmp_path / "model.keras", path, format=target)
            continue
        if target == "tfjs":
            executor("tfjs-cpu")
        exported = rc.export_model(tmp_path / "model.keras", path, format=target, verify=target != "coreml")
        assert all(exported.proof)
        sequences = np.random.default_rng(rank).normal(size=(2, 3, *x.shape[2:])).astype(np.float32)
        for output, truth in zip(RUNS[ending](path)([sequences]), model(sequences), strict=True):
            np.testing.assert_allclose(output, np.asarray(truth), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", RIGHT)
def test_a_loop_is_written_as_code(name: str, tmp_path: Path) -> None:
    scripted(tmp_path, RIGHT[name])
    done = rc.scaffold(tmp_path / "model.pt", "pytorch", tmp_path / "model.py", axes=3, verify=True)
    assert all(done.proof) and "for " in done.text


@pytest.mark.parametrize("name", ["layer norm", "both directions in one loop"])
def test_a_loop_is_written_as_code_of_flax(name: str, tmp_path: Path) -> None:
    needed("flax", "flax.nnx")
    scripted(tmp_path, RIGHT[name])
    done = rc.scaffold(tmp_path / "model.pt", "flax", tmp_path / "model.py", axes=3, verify=True)
    assert all(done.proof) and "for " in done.text


def test_keras_has_no_loop_over_steps(tmp_path: Path) -> None:
    scripted(tmp_path, RIGHT["layer norm"])
    with pytest.raises(RefusedError, match="a functional model of Keras does not compute lengths"):
        rc.scaffold(tmp_path / "model.pt", "keras", tmp_path / "model.py", axes=3)
