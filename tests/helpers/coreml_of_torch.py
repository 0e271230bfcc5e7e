"""Modules of PyTorch as coremltools writes them, with inputs and what the modules give: in a process that imports both.

Coremltools converts nothing of PyTorch where it was imported without it, as other tests do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests import ROOT

MODELS = ("LSTM last", "LSTM both", "GRU last", "GRU both", "RNN steps", "LSTM embedded", "GRU embedded", "LSTM convolved", "none")
KINDS = ("float32", "float16", "network")
"""A program in single precision, one in half, and a neural network."""
Case = tuple[str, str, bool]
"""A model, a kind, and whether the time is open."""


def write_all(cases: Sequence[Case], folder: Path) -> list[Path]:
    """Write models, each beside its numbers (.npz): x and y at several lengths."""
    words = [sys.executable, "-W", "ignore", "-m", "tests.helpers.coreml_of_torch", json.dumps(cases), str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return [folder / f"{number}{'.mlmodel' if kind == 'network' else '.mlpackage'}" for number, (_, kind, _) in enumerate(cases)]


def module(name: str) -> Any:
    """A module of (1, time, 5), or of (1, time) places."""
    import torch

    kind, _, form = name.partition(" ")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            both = form in ("both", "embedded")
            self.first = torch.nn.Embedding(20, 5) if form == "embedded" else torch.nn.Linear(5, 5)
            self.conv, self.batch = torch.nn.Conv1d(5, 5, 3, padding=1, groups=5), torch.nn.BatchNorm1d(5)
            self.layer = getattr(torch.nn, kind)(5, 4, batch_first=True, bidirectional=both) if kind != "none" else None
            width = 8 if both else 4 if self.layer is not None else 5
            self.norm, self.last = torch.nn.LayerNorm(width), torch.nn.Linear(width, 3)

        def forward(self, x: Any) -> Any:
            f = torch.nn.functional
            y = self.first(x)
            if form == "convolved":
                y = f.avg_pool1d(self.batch(f.relu(self.conv(y.transpose(1, 2)))), 2).transpose(1, 2)
            if self.layer is None:
                y = f.gelu(y) + f.silu(y) + f.elu(y) + f.leaky_relu(y) + f.softplus(y) + f.hardtanh(y) + f.softsign(y) + torch.exp(y)
                return torch.softmax(self.last(self.norm(y)), 1)
            y, states = self.layer(y)
            state = states[0] if isinstance(states, tuple) else states
            if form == "last":
                return self.last(state[-1])
            y = torch.cat([state[-2], state[-1]], 1) if form == "embedded" else y
            return torch.sigmoid(self.last(self.norm(y))) * torch.amax(y, -1, True)

    return Model()


def write(case: Case, path: Path) -> None:
    """Write a module and its numbers."""
    import coremltools as ct
    import torch

    name, kind, is_open = case
    torch.manual_seed(len(name))
    model, embeds = module(name).eval(), "embedded" in name
    for tensor in model.parameters():
        torch.nn.init.uniform_(tensor, -0.6, 0.6)
    model.batch.running_mean.uniform_(-1, 1)
    model.batch.running_var.uniform_(0.5, 2)
    inputs = [torch.randint(0, 20, (1, time)) if embeds else torch.rand(1, time, 5) for time in ((8, 3, 13) if is_open else (8,))]
    shape = ct.Shape((1, ct.RangeDim(2, 50, 8), *inputs[0].shape[2:])) if is_open else inputs[0].shape
    feature = ct.TensorType("x", shape=shape, dtype=np.int32 if embeds else np.float32)
    options = {} if kind == "network" else {"compute_precision": getattr(ct.precision, kind.upper())}
    how = "neuralnetwork" if kind == "network" else "mlprogram"
    traced = torch.jit.trace(model, inputs[0])
    ct.convert(traced, inputs=[feature], convert_to=how, skip_model_load=True, **options).save(str(path))
    with torch.no_grad():
        numbers = {f"{letter}{n}": value.numpy() for n, x in enumerate(inputs) for letter, value in (("x", x), ("y", model(x)))}
    np.savez(path.with_suffix(".npz"), **numbers)


if __name__ == "__main__":
    for number, case in enumerate(json.loads(sys.argv[1])):
        write(case, Path(sys.argv[2]) / f"{number}{'.mlmodel' if case[1] == 'network' else '.mlpackage'}")
