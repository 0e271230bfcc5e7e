"""Whole models that coremltools makes of PyTorch's, as ONNX: onnxruntime gives the numbers of the module."""

from __future__ import annotations

import importlib
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from tests import ROOT
from tests.helpers.coreml_tools import tools
from tests.helpers.drawn import drawn, each
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore:::")
GOLDEN = ROOT / "tests" / "golden" / "coreml"
KINDS = ("float32", "float16", "network")
"""A program in single precision, one in half, and a neural network."""
MODELS = ("LSTM last", "LSTM both", "GRU last", "GRU both", "RNN steps", "LSTM embedded", "GRU embedded", "LSTM convolved", "none")


def module(name: str) -> Any:
    """A module of (1, time, 5), or of (1, time) places."""
    torch = needed("torch", "torch")
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


def converted(name: str, kind: str, path: Path, is_open: bool) -> Any:
    """Write a module with coremltools; return it."""
    torch, ct = needed("torch", "torch"), tools()
    logging.getLogger("coremltools").setLevel(logging.ERROR)
    torch.manual_seed(len(name))
    model = module(name).eval()
    for tensor in model.parameters():
        torch.nn.init.uniform_(tensor, -0.6, 0.6)
    model.batch.running_mean.uniform_(-1, 1)
    model.batch.running_var.uniform_(0.5, 2)
    x = torch.randint(0, 20, (1, 8)) if "embedded" in name else torch.rand(1, 8, 5)
    shape = ct.Shape((1, ct.RangeDim(2, 50, 8), *x.shape[2:])) if is_open else x.shape
    types = importlib.import_module("coremltools").TensorType("x", shape=shape, dtype=np.int32 if "embedded" in name else np.float32)
    options = {} if kind == "network" else {"compute_precision": getattr(ct.precision, kind.upper())}
    how = "neuralnetwork" if kind == "network" else "mlprogram"
    shutil.rmtree(path, ignore_errors=True)
    ct.convert(torch.jit.trace(model, x), inputs=[types], convert_to=how, skip_model_load=True, **options).save(str(path))
    return model


def test_models_give_the_numbers_of_their_modules(tmp_path: Path) -> None:
    torch, runtime = needed("torch", "torch"), needed("onnxruntime", "onnxruntime")

    def check(case: tuple[str, str, bool]) -> None:
        name, kind, is_open = case
        path, target = tmp_path / f"m{'.mlmodel' if kind == 'network' else '.mlpackage'}", tmp_path / "m.onnx"
        model = converted(name, kind, path, is_open)
        if kind == "network" and name.startswith("GRU"):
            with pytest.raises(rc.RefusedError, match=r"loop"):
                rc.export_model(path, target, force=True)
            return
        done = rc.export_model(path, target, force=True)
        assert any("half precision" in note for note in done.notes) == (kind == "float16")
        session = runtime.InferenceSession(str(target))
        (feature,) = session.get_inputs()
        for time in (8, 3, 13) if is_open else (8,):
            x = torch.randint(0, 20, (1, time)) if "embedded" in name else torch.rand(1, time, 5)
            (y,) = session.run(None, {feature.name: x.numpy().astype(np.int32 if feature.type == "tensor(int32)" else np.float32)})
            with torch.no_grad():
                np.testing.assert_allclose(y, model(x).numpy(), rtol=0, atol=1e-2 if kind == "float16" else 1e-5)

    cases = [(name, kind, is_open) for name in MODELS for kind in KINDS for is_open in (False, True)]
    each(drawn(cases, 12, "models of coremltools"), check, str)


def test_an_operation_without_a_rule_is_refused_by_its_name(tmp_path: Path) -> None:
    ct = tools()
    mb = importlib.import_module("coremltools.converters.mil").Builder

    @mb.program(input_specs=[mb.TensorSpec(shape=(2, 3))], opset_version=ct.target.iOS15)
    def program(x: Any) -> Any:
        return mb.add(x=mb.reduce_log_sum_exp(x=x, axes=[1], keep_dims=True, name="odd"), y=np.float32(1))

    path = tmp_path / "m.mlpackage"
    ct.convert(program, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS15, skip_model_load=True,
               compute_precision=ct.precision.FLOAT32).save(str(path))  # fmt: skip
    result = CliRunner().invoke(main, ["export", str(path), str(tmp_path / "m.onnx")])
    assert result.exit_code == 4 and "reduce_log_sum_exp" in result.output, result.output


@pytest.mark.parametrize("name", ["torch.mlpackage", "torch.mlmodel"])
def test_a_model_is_written_as_code_too(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The golden file's numbers are PyTorch's."""
    torch = needed("torch", "torch")
    code = tmp_path / f"scaffolded_{name.partition('.')[2]}.py"
    result = CliRunner().invoke(main, ["scaffold", str(GOLDEN / name), "--to", "pytorch", "-o", str(code)])
    assert result.exit_code == 0, result.output
    monkeypatch.syspath_prepend(str(tmp_path))
    model = importlib.import_module(code.stem).load(str(GOLDEN / name))
    with np.load(GOLDEN / "numbers.npz") as numbers, torch.no_grad():
        np.testing.assert_allclose(model(torch.from_numpy(numbers["torch/x"])).numpy(), numbers["torch/y"], rtol=0, atol=1e-6)
