"""Conditions in written-out steps, which random inputs never meet: the fused model gives what the model gave, or it is refused."""

from __future__ import annotations

import contextlib
import io
import itertools
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.errors import RefusedError
from rnnconvert.recognition import steps as fuse_steps
from tests import ROOT
from tests.helpers import drawn
from tests.helpers.requirements import needed

SIZE, UNITS = 2, 4
COMPARED: dict[str, Callable[[Any, float], Any]] = {
    "==": lambda x, v: x == v, "!=": lambda x, v: ~(x != v), "<": lambda x, v: x < -abs(v) * 1e3, ">": lambda x, v: x > abs(v) * 1e3,
    "isnan": lambda x, v: x.isnan(), "isinf": lambda x, v: x.isinf(), "abs": lambda x, v: x.abs() > abs(v) * 1e3,
}  # fmt: skip
OF: dict[str, Callable[[Any], Any]] = {
    "all": lambda truth: truth.all(-1, keepdim=True), "any": lambda truth: truth.any(-1, keepdim=True),
    "first": lambda truth: truth[:, :1], "whole batch": lambda truth: truth.all(),
}  # fmt: skip
BECOMES: dict[str, Callable[[Any, Any], Any]] = {
    "zero": lambda new, old: new * 0, "half": lambda new, old: new * 0.5, "constant": lambda new, old: new * 0 + 0.5,
    "state": lambda new, old: old,
}  # fmt: skip
PLACES = ("hidden", "cell", "both", "output", "input")
FORMS = ("where", "product", "clamp", "true", "")
VALUES = (-1.0, 0.0, -7.0, -999.0, 0.125)


@dataclass(frozen=True)
class Planted:
    """Written-out steps of a cell with a condition in some of them."""

    kind: str
    steps: int
    at: tuple[int, ...]
    form: str = "where"
    compared: str = "=="
    of: str = "all"
    value: float = -7.0
    place: str = "both"
    becomes: str = "zero"
    backward: bool = False
    dynamo: bool = False

    @property
    def plain(self) -> bool:
        return self.form in ("", "true")

    def changed(self, x: Any, new: Any, old: Any) -> Any:
        torch = needed("torch", "torch")
        if self.form == "clamp":
            return new.clamp(-0.9999, 0.9999)
        if self.form == "true":
            return torch.where(torch.ones(1, dtype=torch.bool), new, old)
        truth = OF[self.of](COMPARED[self.compared](x, self.value))
        if self.form == "product":
            return new * (~truth).to(new.dtype)
        return torch.where(truth, BECOMES[self.becomes](new, old), new)

    def module(self) -> Any:
        torch = needed("torch", "torch")
        plant = self

        class Steps(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.cell = getattr(torch.nn, plant.kind)(SIZE, UNITS)

            def forward(self, x: Any) -> Any:
                h = c = x.new_zeros(x.shape[0], UNITS)
                outputs = []
                order = range(plant.steps)
                for number, t in enumerate(reversed(order) if plant.backward else order):
                    change = plant.form and number in plant.at
                    xt = x[:, t]
                    if change and plant.place == "input":
                        xt = plant.changed(xt, xt, xt)
                    step_outputs = self.cell(xt, (h, c) if plant.kind == "LSTMCell" else h)
                    new, cell = step_outputs if plant.kind == "LSTMCell" else (step_outputs, c)
                    if change and plant.place in ("hidden", "both"):
                        new = plant.changed(x[:, t], new, h)
                    if change and plant.kind == "LSTMCell" and plant.place in ("cell", "both"):
                        cell = plant.changed(x[:, t], cell, c)
                    h, c = new, cell
                    outputs.append(plant.changed(x[:, t], h, h * 0.5) if change and plant.place == "output" else h)
                if plant.backward:
                    outputs.reverse()
                return torch.stack(outputs, 1)

        torch.manual_seed(0)
        return Steps().eval()

    def export(self, path: Path) -> None:
        torch = needed("torch", "torch")
        extra = {"external_data": False} if self.dynamo else {}
        quiet = contextlib.ExitStack()
        with quiet:
            quiet.enter_context(contextlib.redirect_stdout(io.StringIO()))
            quiet.enter_context(contextlib.redirect_stderr(io.StringIO()))
            quiet.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # of the exporters, about themselves
            torch.onnx.export(self.module(), (torch.randn(3, self.steps, SIZE),), str(path), dynamo=self.dynamo, input_names=["x"], **extra)

    def inputs(self) -> Iterator[Any]:
        """Yield inputs, most of which meet the condition at some step: for every sequence, one, and one feature."""
        rng = np.random.default_rng(1)
        numbers = [self.value, np.nan, np.inf, 2e3 * abs(self.value) + 2, -2e3 * abs(self.value) - 2, 40.0, -40.0]
        yield rng.normal(size=(3, self.steps, SIZE)).astype(np.float32)
        for number, step in itertools.product(numbers, range(self.steps)):
            x = rng.normal(size=(3, self.steps, SIZE)).astype(np.float32)
            x[0, step], x[1, step, 0] = number, number
            yield x
            x = x.copy()
            x[:, step] = number
            yield x


def draw(count: int, seed: int) -> list[Planted]:
    choose = random.Random(seed)
    plants = []
    for _ in range(count):
        steps = choose.choice((2, 3, 5))
        at = choose.choice(((0,), (1,), (steps - 1,), (0, 1), tuple(range(steps)), (steps // 2,)))
        plants.append(Planted(
            choose.choice(("LSTMCell", "GRUCell", "RNNCell")), steps, at, choose.choice(FORMS), choose.choice([*COMPARED]),
            choose.choice([*OF]), choose.choice(VALUES), choose.choice(PLACES), choose.choice([*BECOMES]),
            choose.random() < 0.25, choose.random() < (0.3 if drawn.LONG else 0.05),
        ))  # fmt: skip
    return plants


SPECIMENS = [
    *(Planted(kind, 3, (0,), value=-7.0, place="hidden") for kind in ("LSTMCell", "GRUCell", "RNNCell")),
    Planted("GRUCell", 3, (0,), "product", place="hidden"),
    Planted("GRUCell", 2, (0,), "clamp", place="hidden"),
    Planted("RNNCell", 6, (0,), compared="isnan", of="first", place="hidden"),
    Planted("LSTMCell", 2, (0,), compared=">", value=10.0, of="first", place="hidden"),
    Planted("LSTMCell", 2, (0, 1), value=-1.0, becomes="state"),
    Planted("LSTMCell", 5, (2,), value=-1.0, place="cell"),  # the cell state alone, in a step behind the first two
]


def session(path: Path) -> Callable[[Any], Any]:
    onnxruntime = needed("onnxruntime", "onnxruntime")
    opened = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda x: opened.run(None, {opened.get_inputs()[0].name: x})[0]


def agrees(first: Any, second: Any) -> bool:
    return bool(np.allclose(first, second, rtol=1e-4, atol=1e-5))


def check(plant: Planted, folder: Path) -> None:
    path, target = folder / "model.onnx", folder / "fused.onnx"
    plant.export(path)
    model = session(path)
    same_as_stated(plant, path, model)
    try:
        done = rc.fuse(path, target, force=True)
    except RefusedError:
        assert not plant.plain or plant.steps < 3, "refused, although nothing depends on a condition"
        return
    if plant.plain:
        assert f"{plant.steps} written-out steps" in done.layers[0].was
    fused = session(target)
    for x in plant.inputs():
        truth, outputs = model(x), fused(x)
        finite = np.isfinite(truth)  # onnxruntime's own RNN, GRU and LSTM make numbers of what is none
        assert agrees(truth[finite], outputs[finite]), f"fused, and off by {np.abs(truth - outputs)[finite].max()}"


def same_as_stated(plant: Planted, path: Path, model: Callable[[Any], Any]) -> None:
    """Check that a layer that is read from zeros, and named no mask, is the model's."""
    layers = rc.load(path).layers
    assert layers or not plant.plain or plant.steps < 3
    if not plant.plain and (plant.place in ("output", "input") or plant.at == (plant.steps - 1,)):
        return  # what lies before or behind the layer
    for stack in layers.values():
        assert not stack.unconvertible and stack.layers[0].directions[0].reverse == plant.backward
        for x in plant.inputs():
            if np.isfinite(x).all():
                assert agrees(model(x), reference.run(stack, x.swapaxes(0, 1)).y.swapaxes(0, 1)), "read as another layer"


@pytest.mark.parametrize("plant", SPECIMENS, ids=str)
def test_a_condition_that_only_some_steps_have_is_kept(plant: Planted, tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    check(plant, tmp_path)


def test_conditions_of_any_kind_are_kept_or_refused(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    cases = draw(1000 if drawn.LONG else 6, drawn.SEED)
    drawn.each(cases, lambda plant: check(plant, tmp_path))


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_inputs_that_meet_a_condition_show_what_the_formula_left_out(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the comparison of the first step, the proof alone tells."""
    needed("onnxruntime", "onnxruntime")

    def trusting(scope: Any, shapes: Any, cell: Any, step: Any, origins: Any, ends: Any) -> Any:
        return {origin._replace(step=origin.step - 1): size for origin, size in origins.items()}

    monkeypatch.setattr(fuse_steps, "first_step", trusting)
    for compared in ("==", "isnan", ">"):
        path = tmp_path / "model.onnx"
        Planted(kind, 3, (0,), compared=compared, place="hidden").export(path)
        assert not rc.load(path).layers
        done = rc.fuse(path, tmp_path / "fused.onnx", force=True)
        # onnxruntime's own operators make zeros of what is no number, as this condition does
        assert compared == "isnan" or all("3 written-out" not in layer.was for layer in done.layers)


def test_what_decides_is_named_with_its_number(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    Planted("GRUCell", 3, (0,), value=-7.0, place="hidden").export(tmp_path / "model.onnx")
    assert "by Equal with -7" in " ".join(rc.load(tmp_path / "model.onnx").warnings)
    ((_, reason),) = rc.fuse(tmp_path / "model.onnx", tmp_path / "fused.onnx").left
    assert "Where" in reason and "by Equal with -7" in reason
    Planted("GRUCell", 3, (0,), "clamp", place="hidden").export(tmp_path / "model.onnx")
    assert "Clip -0.9999 0.9999" in " ".join(rc.load(tmp_path / "model.onnx").warnings)


def test_a_mask_that_a_loop_obeys_is_named_with_what_makes_it(tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    path = ROOT / "tests" / "golden" / "fuse" / "keras_masked.onnx"
    assert "which steps of its input count, by Equal with 0" in " ".join(rc.load(path).warnings)
    (layer,) = rc.fuse(path, tmp_path / "fused.onnx").layers
    assert "at the steps that" in layer.cell


@pytest.mark.parametrize("product", ["Gemm", "FusedMatMul"])
def test_an_input_matrix_before_a_chain_of_steps_is_not_left_out(product: str, tmp_path: Path) -> None:
    """What onnxruntime's basic optimisation writes of a plain RNN: one product for all steps, between two nodes Reshape."""
    import onnx

    steps, units, rng = 4, 3, np.random.default_rng(1)
    arrays = {
        "w": rng.normal(size=(2, units)).astype(np.float32),
        "r": rng.normal(size=(units, units)).astype(np.float32),
        "flat": np.array([-1, 2]),
        "deep": np.array([steps, 1, units]),
        "first": np.array([0]),
        "h0": rng.normal(size=(1, units)).astype(np.float32),
        **{f"n{step}": np.array([step]) for step in range(steps + 1)},
    }
    domain = "com.microsoft" if product == "FusedMatMul" else ""
    nodes = [
        onnx.helper.make_node("Reshape", ["x", "flat"], ["rows"]),
        onnx.helper.make_node(product, ["rows", "w"], ["products"], "the product", domain=domain),
        onnx.helper.make_node("Reshape", ["products", "deep"], ["sequence"]),
    ]
    state = "h0"
    for step in range(steps):
        nodes += [
            onnx.helper.make_node("Slice", ["sequence", f"n{step}", f"n{step + 1}", "first"], [f"s{step}"]),
            onnx.helper.make_node("Squeeze", [f"s{step}", "first"], [f"x{step}"]),
            onnx.helper.make_node("MatMul", [state, "r"], [f"m{step}"]),
            onnx.helper.make_node("Add", [f"m{step}", f"x{step}"], [f"a{step}"]),
            onnx.helper.make_node("Tanh", [f"a{step}"], [f"h{step + 1}"]),
        ]
        state = f"h{step + 1}"
    stored = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [steps, 1, 2])
    y = onnx.helper.make_tensor_value_info(state, onnx.TensorProto.FLOAT, [1, units])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "a.onnx"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y], stored), opset_imports=opsets), path)
    with pytest.raises(rc.RefusedError, match="without an input matrix of its own, and the product 'the product'"):
        rc.convert(path, tmp_path / "a.pt")
    assert not (tmp_path / "a.pt").exists()
