"""Inputs that a caller fixes: conditions on them are decided, and what is written computes what the source does with that value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.cli.values import fixed
from rnnconvert.core.errors import NotEqualError, RefusedError, UsageError
from rnnconvert.scaffolding.inputs import drawn
from rnnconvert.scaffolding.sources import DescribedSource, described_source
from tests.helpers.requirements import needed

onnxruntime: Any = needed("onnxruntime", "onnxruntime")
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
RATES = (16000, 8000)
X = np.random.default_rng(3).normal(size=(7, 2, 4)).astype(np.float32)


def of_two_rates(path: Path) -> Path:
    """An ONNX file with an LSTM for each of two sampling rates, of which an input without axes chooses one."""
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    weights = np.random.default_rng(0)

    def branch(word: str) -> Any:
        shapes = {"W": (1, 20, 4), "R": (1, 20, 5), "B": (1, 40)}
        stored = [numpy_helper.from_array(weights.normal(size=s).astype(np.float32) * 0.4, f"{word}_{k}") for k, s in shapes.items()]
        nodes = [
            helper.make_node("LSTM", ["x", f"{word}_W", f"{word}_R", f"{word}_B"], [f"{word}_y"], hidden_size=5, name=f"{word}_lstm"),
            helper.make_node("Squeeze", [f"{word}_y", f"{word}_axes"], [f"{word}_out"]),
        ]
        stored.append(numpy_helper.from_array(np.array([1]), f"{word}_axes"))
        return helper.make_graph(nodes, word, [], [helper.make_tensor_value_info(f"{word}_out", 1, [None, None, 5])], stored)

    nodes = [
        helper.make_node("Equal", ["rate", "wide"], ["is_wide"]),
        helper.make_node("If", ["is_wide"], ["y"], then_branch=branch("wide"), else_branch=branch("narrow"), name="choice"),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, ["time", "batch", 4]), helper.make_tensor_value_info("rate", 7, [])]
    outputs = [helper.make_tensor_value_info("y", 1, ["time", "batch", 5])]
    graph = helper.make_graph(nodes, "rates", inputs, outputs, [numpy_helper.from_array(np.array(16000), "wide")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8), path)
    return path


def run(path: Path, **feeds: Any) -> Any:
    return onnxruntime.InferenceSession(str(path)).run(None, {name: np.asarray(value) for name, value in feeds.items()})[0]


def test_a_condition_on_an_input_of_onnx(tmp_path: Path) -> None:
    source, target = of_two_rates(tmp_path / "rates.onnx"), tmp_path / "one.onnx"
    with pytest.raises(RefusedError, match=r"Its input rate decides it: fix that with --fix rate=16000"):
        rc.export_model(source, target)
    outputs = []
    for rate in RATES:
        done = rc.export_model(source, target, fix={"rate": rate}, verify=True, force=True)
        assert done.equal and len(done.inputs) == 1 and f"its input rate is fixed at {rate}" in done.notes
        assert np.abs(run(target, x=X) - run(source, x=X, rate=rate)).max() < 1e-6
        outputs.append(run(target, x=X))
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-3


@pytest.mark.parametrize("to", ["pytorch", "keras"])
def test_code_with_a_fixed_input(tmp_path: Path, to: str) -> None:
    needed(*(2 * ["torch" if to == "pytorch" else "keras"]))
    source = of_two_rates(tmp_path / "rates.onnx")
    assert rc.scaffold(source, to, tmp_path / "model.py", fix={"rate": 8000}, verify=True).equal


def test_a_proof_hands_the_source_the_fixed_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = of_two_rates(tmp_path / "rates.onnx")

    def described(*words: Any, **options: Any) -> DescribedSource:
        model = described_source(*words, **options)

        def at_another_rate() -> Any:
            opened = model.open()
            opened._fixed = {"rate": np.asarray(8000)}
            return opened

        return replace(model, open=at_another_rate)

    monkeypatch.setattr("rnnconvert.scaffolding.export.described_source", described)
    with pytest.raises(NotEqualError):
        rc.export_model(source, tmp_path / "one.onnx", fix={"rate": 16000}, verify=True)
    assert not (tmp_path / "one.onnx").exists()


@pytest.mark.parametrize(
    ("fix", "text"),
    [
        ({"speed": 3}, "'speed' cannot be fixed. Those that can be: 'x', 'rate'"),
        ({"rate": 16000.5}, "the input rate holds int64, which has no 16000.5"),
        ({"rate": "fast"}, "rate is fixed at a number, true or false, or a list of these"),
        ({"rate": [1, 2]}, "the input rate has no axes, and a value of the axes 2"),
        ({"rate": 16000, "x": np.zeros((7, 2, 4))}, "states every input of"),
    ],
)
def test_values_that_an_input_cannot_have(tmp_path: Path, fix: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        rc.export_model(of_two_rates(tmp_path / "rates.onnx"), tmp_path / "one.onnx", fix=fix)


def test_the_option(tmp_path: Path) -> None:
    assert fixed(["rate=16000", "wet=true", "a=b=1,2.5"]) == {"rate": 16000, "wet": True, "a=b": [1, 2.5]}
    source = of_two_rates(tmp_path / "rates.onnx")
    words = ["export", str(source), str(tmp_path / "one.onnx"), "--fix"]
    for text in ("rate", "rate=fast", "=3", 'rate="3"'):
        assert CliRunner().invoke(main, [*words, text]).exit_code == 2
    done = CliRunner().invoke(main, [*words, "rate=8000", "--verify"])
    assert done.exit_code == 0 and "its input rate is fixed at 8000" in done.output


def scripted(path: Path) -> Path:
    torch: Any = needed("torch", "torch")

    class OfNumbers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow = (torch.nn.GRU(4, 5, batch_first=True) for _ in range(2))

        def forward(self, x: torch.Tensor, rate: int, gain: float, back: bool) -> torch.Tensor:
            y = self.wide(x)[0] if rate == 16000 else self.narrow(x)[0]
            if back:
                y = torch.flip(y, [1])
            return y * gain

    torch.manual_seed(0)
    torch.jit.script(OfNumbers().eval()).save(str(path))
    return path


@pytest.mark.parametrize("fix", [{}, {"gain": 0.5}, {"rate": 16000, "back": True}, {"rate": 8000, "gain": 2.0, "back": False}])
def test_numbers_as_inputs_of_a_script(tmp_path: Path, fix: dict[str, Any]) -> None:
    torch: Any = needed("torch", "torch")
    source, target = scripted(tmp_path / "numbers.pt"), tmp_path / "numbers.onnx"
    assert rc.export_model(source, target, fix=fix, verify=True).equal
    x, model = X.swapaxes(0, 1), torch.jit.load(str(source))
    for rate, gain, back in ((16000, 0.5, True), (8000, 2.0, False), (3, 1.5, True)):
        values = {"rate": rate, "gain": gain, "back": back} | fix
        left = {key: np.asarray(value, np.float32 if key == "gain" else None) for key, value in values.items() if key not in fix}
        expected = model(torch.from_numpy(x.copy()), values["rate"], values["gain"], values["back"]).detach().numpy()
        assert np.abs(run(target, x=x, **left) - expected).max() < 1e-6


def test_drawn_numbers_reach_every_branch(tmp_path: Path) -> None:
    description = described_source(scripted(tmp_path / "numbers.pt")).description
    calls = [next(drawn(description, seed, (), [(2, 3)], True)) for seed in range(4)]
    assert {(int(rate) == 16000, bool(back)) for _, rate, _, back in calls} == {(a, b) for a in (True, False) for b in (True, False)}


@pytest.mark.parametrize("ending", ["tflite", "xml"])
def test_numbers_stay_without_axes(tmp_path: Path, ending: str) -> None:
    needed(*(("openvino", "openvino") if ending == "xml" else ("litert", "ai_edge_litert")))
    assert rc.export_model(scripted(tmp_path / "numbers.pt"), tmp_path / f"numbers.{ending}", fix={"rate": 8000}, verify=True).equal


def test_a_fixed_number_is_of_the_type_that_the_code_states(tmp_path: Path) -> None:
    torch: Any = needed("torch", "torch")

    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor, f: float) -> torch.Tensor:
            return (x * 1000).to(torch.int32) * f / 3

    torch.jit.script(Scaled()).save(str(tmp_path / "scaled.pt"))
    rc.export_model(tmp_path / "scaled.pt", tmp_path / "scaled.onnx", fix={"f": 5000000}, axes=3)
    x = X.swapaxes(0, 1)
    written, truth = run(tmp_path / "scaled.onnx", x=x), Scaled()(torch.from_numpy(x.copy()), 5000000.0).numpy()
    assert written.dtype == np.float32
    np.testing.assert_allclose(written, truth, rtol=1e-6)


def test_inputs_that_are_given_may_hold_the_fixed_value_alone(tmp_path: Path) -> None:
    source, given_inputs = of_two_rates(tmp_path / "rates.onnx"), tmp_path / "inputs.npz"
    np.savez(given_inputs, x=X, rate=np.asarray(8000))
    assert rc.export_model(source, tmp_path / "one.onnx", fix={"rate": 8000}, verify=given_inputs).equal
    with pytest.raises(UsageError, match="have another 'rate' than the one that it is fixed at, 8000"):
        np.savez(given_inputs, x=X, rate=np.asarray(16000))
        rc.export_model(source, tmp_path / "other.onnx", fix={"rate": 8000}, verify=given_inputs)


def test_a_script_takes_no_other_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'x' cannot be fixed\. Those that can be: 'rate', 'gain', 'back'"):
        rc.export_model(scripted(tmp_path / "numbers.pt"), tmp_path / "numbers.onnx", fix={"x": 1.0})


def test_a_source_for_one_sequence_is_compared_on_one(tmp_path: Path) -> None:
    """An LSTM whose stored state is for one sequence, under an input whose batch is open: no runtime takes more."""
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    draw = np.random.default_rng(5)
    shapes = {"W": (1, 20, 4), "R": (1, 20, 5), "B": (1, 40), "h": (1, 1, 5), "c": (1, 1, 5)}
    stored = [numpy_helper.from_array(draw.normal(size=shape).astype(np.float32), name) for name, shape in shapes.items()]
    node = helper.make_node("LSTM", ["x", "W", "R", "B", "", "h", "c"], ["y"], hidden_size=5)
    inputs = [helper.make_tensor_value_info("x", 1, ["time", "batch", 4])]
    outputs = [helper.make_tensor_value_info("y", 1, ["time", 1, "batch", 5])]
    model = helper.make_model(
        helper.make_graph([node], "g", inputs, outputs, stored), opset_imports=[helper.make_opsetid("", 15)], ir_version=8
    )
    onnx.save(model, tmp_path / "one.onnx")
    done = rc.export_model(tmp_path / "one.onnx", tmp_path / "again.onnx", verify=True)
    assert done.equal and any("so one was compared" in note for proof in done.proof for note in proof.notes)
