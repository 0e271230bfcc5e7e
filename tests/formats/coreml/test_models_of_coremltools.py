"""Whole models that coremltools makes of PyTorch's, as ONNX: onnxruntime gives the numbers of the module."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from tests import ROOT
from tests.helpers.coreml_of_torch import KINDS, MODELS, Case, write_all
from tests.helpers.coreml_tools import tools
from tests.helpers.drawn import drawn, each
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore:::")
GOLDEN = ROOT / "tests" / "golden" / "coreml"


def test_models_give_the_numbers_of_their_modules(tmp_path: Path) -> None:
    runtime = needed("onnxruntime", "onnxruntime")
    cases: list[Case] = drawn([(name, kind, is_open) for name in MODELS for kind in KINDS for is_open in (False, True)], 12, "coremltools")
    paths = dict(zip(cases, write_all(cases, tmp_path), strict=True))

    def check(case: Case) -> None:
        path, target, kind = paths[case], tmp_path / "m.onnx", case[1]
        if kind == "network" and case[0].startswith("GRU"):
            # Where the batch is open, the first state's shape, which comes before the loop, is already that of a run.
            with pytest.raises(rc.RefusedError, match="a shape that a run decides" if case[2] else "the operator loop"):
                rc.export_model(path, target, force=True)
            return
        done = rc.export_model(path, target, force=True)
        assert any("half precision" in note for note in done.notes) == (kind == "float16")
        session = runtime.InferenceSession(str(target))
        (feature,) = session.get_inputs()
        with np.load(path.with_suffix(".npz")) as numbers:
            for n in range(len(numbers.files) // 2):
                x = numbers[f"x{n}"].astype(np.int32 if feature.type == "tensor(int32)" else np.float32)
                (y,) = session.run(None, {feature.name: x})
                # Weights in half precision are off by up to 2^-11 of their size, and outputs, which are below 1, by no more.
                np.testing.assert_allclose(y, numbers[f"y{n}"], rtol=0, atol=2.0**-11 if kind == "float16" else 1e-5)

    each(cases, check, str)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("sequences", [True, False])
def test_a_loop_over_lists_is_a_layer(sequences: bool, half: bool, tmp_path: Path) -> None:
    """As coremltools writes Keras's layers of TensorFlow: a list of the steps, and one of the outputs, or of the last alone."""
    ct, runtime = tools(), needed("onnxruntime", "onnxruntime")
    mb = importlib.import_module("coremltools.converters.mil").Builder
    random = np.random.default_rng(1)
    w, u, b = (random.normal(size=shape).astype(np.float32) for shape in ((4, 3), (4, 4), (4,)))
    x = random.normal(size=(5, 2, 3)).astype(np.float32)

    @mb.program(input_specs=[mb.TensorSpec(shape=x.shape)], opset_version=ct.target.iOS15)
    def program(x: Any) -> Any:
        steps = mb.make_list(init_length=5, elem_shape=(2, 3), dynamic_length=False)
        steps = mb.list_scatter(ls=steps, indices=np.arange(5, dtype=np.int32), value=x)

        def body(i: Any, outputs: Any, h: Any) -> Any:
            total = mb.add(x=mb.linear(x=mb.list_read(ls=steps, index=i), weight=w, bias=b), y=mb.linear(x=h, weight=u))
            h = mb.tanh(x=total)
            return mb.add(x=i, y=1), mb.list_write(ls=outputs, index=i if sequences else 0, value=h), h

        outputs = mb.make_list(init_length=5 if sequences else 1, elem_shape=(2, 4), dynamic_length=False)
        first = (0, outputs, np.zeros((2, 4), np.float32))
        _, outputs, _ = mb.while_loop(_cond=lambda i, *_: mb.less(x=i, y=5), _body=body, loop_vars=first)
        return mb.list_gather(ls=outputs, indices=np.arange(5 if sequences else 1, dtype=np.int32))

    path = tmp_path / "m.mlpackage"
    precision = ct.precision.FLOAT16 if half else ct.precision.FLOAT32
    ct.convert(program, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS15, skip_model_load=True,
               compute_precision=precision).save(str(path))  # fmt: skip
    (layer,) = rc.load(path).layers.values()
    assert (layer.cell.kind, layer.input_size, layer.hidden_size, layer.dtype.itemsize) == ("rnn", 3, 4, 2 if half else 4)
    rc.export_model(path, tmp_path / "m.onnx")
    (y,) = runtime.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": x})
    h, expected = np.zeros((2, 4)), []
    for step in x:
        h = np.tanh(step @ w.T + b + h @ u.T)
        expected.append(h)
    np.testing.assert_allclose(y, expected if sequences else expected[-1:], rtol=0, atol=2.0**-8 if half else 1e-6)


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
