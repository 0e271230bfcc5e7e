"""Functions and norms that a source spells out, as the one call that a person would write: recognized by their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rnnconvert as rc
from tests.helpers.drawn import each
from tests.helpers.requirements import needed
from tests.scaffolding.test_scaffold_targets import TARGETS, require

pytestmark = [pytest.mark.filterwarnings("ignore:::")]  # exporters warn of themselves
SPELLED = {
    "gelu": "0.5 * x * (1 + torch.erf(x / 2**0.5))",
    "gelu in another order": "(torch.erf(x * 0.7071067811865475) + 1) * (x * 0.5)",
    "gelu_tanh": "0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))",
    "silu": "x * torch.sigmoid(x)",
    "silu of a quotient": "x / (1 + torch.exp(-x))",
    "mish": "x * torch.tanh(F.softplus(x))",
    "hard_swish": "x * torch.clamp(x + 3, 0, 6) / 6",
    "hard_sigmoid": "torch.clamp(x / 6 + 0.5, 0, 1)",
    "softsign": "x / (1 + torch.abs(x))",
}
WRITTEN = {
    "pytorch": {"gelu": "F.gelu(", "gelu_tanh": 'approximate="tanh"', "silu": "F.silu(", "mish": "F.mish(", "hard_swish": "F.hardswish(",
                "hard_sigmoid": "F.hardsigmoid(", "softsign": "F.softsign("},
    "keras": {"gelu": "gelu", "gelu_tanh": "gelu", "silu": "silu", "mish": "mish", "hard_swish": "hard_s", "hard_sigmoid": "hard_sigmoid",
              "softsign": "softsign"},
    "flax": {"gelu": "nnx.gelu(", "gelu_tanh": "nnx.gelu(", "silu": "nnx.silu(", "mish": "mish", "hard_swish": "hard_", "hard_sigmoid":
             "hard_sigmoid", "softsign": "soft_sign"},
}  # fmt: skip
NOT = {
    "sigmoid of 1.702 x": "x * torch.sigmoid(1.702 * x)",
    "a rough constant": "0.5 * x * (1 + torch.erf(x / 1.41))",
    "an overflow": "torch.log(1 + torch.exp(x))",
    "two tensors": "x * torch.sigmoid(self.linear(x))",
}


def module(expression: str, width: int = 6) -> Any:
    """Return a module that computes an expression of x (batch, width), between two dense layers."""
    torch = needed("torch", "torch")
    names = {"torch": torch, "F": torch.nn.functional}

    class Spelled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.head = torch.nn.Linear(width, width), torch.nn.Linear(width, 2)

        def forward(self, x: Any) -> Any:
            return self.head(eval(expression, names, {"x": 4 * self.linear(x), "self": self}))

    torch.manual_seed(0)
    return Spelled().eval()


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_spelled_out_is_one_call(tmp_path: Path, target: str) -> None:
    require(target)
    torch = needed("torch", "torch")

    def check(word: str) -> None:
        done = rc.scaffold(module(SPELLED[word]), target, tmp_path / f"{word}.py", example=torch.zeros(3, 6), verify=True)
        assert done.equal and WRITTEN[target][word.partition(" ")[0]] in done.text
        assert not any(word in done.text for word in ("erf", "exp(", "clip(", "clamp(", "abs"))

    each(SPELLED if target == "pytorch" else list(SPELLED)[::2], check)


def test_what_is_almost_a_function_stays_as_it_is(tmp_path: Path) -> None:
    torch = needed("torch", "torch")

    def check(word: str) -> None:
        done = rc.scaffold(module(NOT[word]), "pytorch", tmp_path / f"{word}.py", example=torch.zeros(3, 6), verify=True)
        assert done.equal and not any(word in done.text for word in ("F.gelu", "F.silu", "F.softplus"))

    each(NOT, check)


def test_a_bound_far_away_stays(tmp_path: Path) -> None:
    """The points on which functions are compared reached to 10,000, and a bound of half precision beyond them was lost."""
    torch = needed("torch", "torch")
    clipped = module("torch.clamp(x * torch.sigmoid(x), max=65504.0)")
    done = rc.scaffold(clipped, "pytorch", tmp_path / "a.py", example=torch.zeros(3, 6), verify=True)
    assert done.equal and "F.silu(" in done.text and "clamp(max=65504)" in done.text


@pytest.mark.parametrize("bound", ["x.clamp(-1e4, 1e4)", "y.clamp(-30, 30)"])
def test_bounds_of_a_norm_that_few_inputs_reach_stay(tmp_path: Path, bound: str) -> None:
    torch = needed("torch", "torch")
    before, after = (bound, "y") if bound.startswith("x") else ("x", bound)
    norm = "(x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True, correction=0) + 1e-5)"
    width = 1200
    clipped = module(f"(lambda x: (lambda y: {after})({norm}))({before})", width)
    done = rc.scaffold(clipped, "pytorch", tmp_path / "a.py", example=torch.zeros(3, width), verify=True)
    assert done.equal and "clamp(" in done.text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("norm", ["layer", "rms", "layer in another way"])
def test_norms_that_are_spelled_out(tmp_path: Path, target: str, norm: str) -> None:
    require(target)
    torch = needed("torch", "torch")
    expression = {
        "layer": "(x - x.mean(-1, keepdim=True)) / torch.sqrt(((x - x.mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True) + 1e-3)",
        "rms": "x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-3)",
        "layer in another way": "(lambda d: d * ((d * d).mean(-1, keepdim=True) + 1e-3) ** -0.5)(x - x.mean(-1, keepdim=True))",
    }[norm]
    done = rc.scaffold(module(expression), target, tmp_path / "m.py", example=torch.zeros(3, 6), verify=True)
    assert done.equal and "mean(" not in done.text
    assert any(word in done.text for word in ("Norm(", "LayerNormalization(", "rms_normalization("))


def test_what_exporters_spell_out(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    needed("onnxruntime", "onnxruntime")
    nn = torch.nn

    def check(kind: str) -> None:
        parts = {"GELU": nn.GELU(), "tanh": nn.GELU(approximate="tanh"), "SiLU": nn.SiLU(), "Mish": nn.Mish(), "norm": nn.LayerNorm(6)}
        module = nn.Sequential(nn.Linear(6, 6), parts[kind], nn.Linear(6, 2)).eval()
        path = tmp_path / f"{kind}.onnx"
        torch.onnx.export(
            module, (torch.zeros(2, 6),), str(path), dynamo=False, opset_version=14, input_names=["x"], dynamic_axes={"x": {0: "b"}}
        )
        done = rc.scaffold(path, "pytorch", tmp_path / f"{kind}.py", verify=True)
        calls = {"GELU": "F.gelu(", "tanh": 'approximate="tanh"', "SiLU": "F.silu(", "Mish": "F.mish(", "norm": "nn.LayerNorm("}
        assert done.equal and calls[kind] in done.text

    each(("GELU", "tanh", "SiLU", "Mish", "norm"), check)
