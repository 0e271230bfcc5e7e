"""Programs of torch, live and from files, whose numbers a run decides: what is changed in place, what is kept, what lengths give.

Torch judges: the written code gives the numbers of two calls, or refuses, or raises; it never gives other numbers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import rnnconvert as rc
from rnnconvert.formats.pytorch.described.layers import LAYERS
from rnnconvert.formats.pytorch.program.program import OperatorCall, OperatorProgram, Ref, SharedElements
from tests.helpers.drawn import drawn, each
from tests.helpers.requirements import needed
from tests.scaffolding.test_scaffold import module_at
from tests.scaffolding.test_scaffold_sources import spelled
from tests.scaffolding.test_scaffold_targets import TARGETS, as_graph, require

pytestmark = pytest.mark.filterwarnings("ignore:::")  # torch warns of traces, and of what it calls old
CLOSE = 2e-5
KINDS = ("live", "script", "trace", "program")
WRITTEN = ("pytorch", "onnx")
"""What modules are written for: code of PyTorch, and graphs."""
_MODULE = """import math
from typing import List
import torch


class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.{layer}(3, 4, batch_first=True)
        self.layer = torch.nn.Linear(4, 3)
        self.register_buffer("h", torch.zeros(1, 2, 4))
        self.register_buffer("n", torch.zeros(1))
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.count = 0

    def forward(self, x: torch.Tensor):
        y = self.layer(self.rnn(x)[0])
        {body}
"""


def stated(body: str, folder: Path, layer: str = "GRU") -> Any:
    """Return a module that computes what a text says of x and y, what a recurrent and a dense layer give."""
    torch = needed("torch", "torch")
    path = folder / f"m{len(list(folder.iterdir()))}.py"
    path.write_text(_MODULE.format(body=body.replace("; ", "\n        "), layer=layer))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    return module.M().eval()


def in_kind(kind: str, module: Any, folder: Path, x: Any) -> tuple[Any, Any]:
    """Return a module as a source, and what torch runs of it. Raises what torch raises for one that it cannot write."""
    torch = needed("torch", "torch")
    if kind == "live":
        return module, module
    path = folder / ("m.pt2" if kind == "program" else "m.pt")
    if kind == "program":
        auto = torch.export.Dim.AUTO
        torch.export.save(torch.export.export(module, (x,), dynamic_shapes=({0: auto, 1: auto},)), path)
        return path, torch.export.load(path).module()
    (torch.jit.script(module) if kind == "script" else torch.jit.trace(module, x, check_trace=False)).save(str(path))
    return path, torch.jit.load(str(path))


def outcome(kind: str, body: str, folder: Path, xs: Sequence[Any], layer: str = "GRU", target: str = "pytorch") -> str:
    """Return what becomes of a module: "refused", "equal", or "raises" where what was written refuses some of the inputs.

    xs  inputs, the first of them the example; what is written takes this one, or none that torch takes
    """
    torch = needed("torch", "torch")
    module = stated(body, folder, layer)
    try:
        source, truth = in_kind(kind, module, folder, xs[0])
    except Exception:  # torch raises what it likes where it cannot script or export a module
        return "not written by torch"
    written = folder / "written.py"
    example = xs[:1] if kind == "live" else None
    try:
        if target == "onnx":
            filled = as_graph(source, folder / "written.onnx", example)
        else:
            rc.scaffold(source, "pytorch", written, example=example, force=True)
            filled = module_at(written).load(source if kind == "live" else str(source))
    except rc.RefusedError:
        return "refused"
    outcomes = Counter[str]()
    with torch.no_grad():
        for x in [*xs[:1], *xs]:  # the example twice: the second call shows what the first one leaves
            try:
                wanted = truth(x)
            except Exception:  # what torch refuses the written code refuses, too
                with pytest.raises((ValueError, RuntimeError, IndexError)):
                    filled(x)
                continue
            try:
                got = filled(x)
            except ValueError as error:
                # A scripted module does not say how many axes its input has: one without a batch may be taken.
                assert "xpected" in str(error) and (x is not xs[0] or kind == "script"), error
                outcomes["raises"] += 1
                continue
            pairs = list(zip(got, wanted, strict=True)) if isinstance(wanted, tuple) else [(got, wanted)]
            for number, (ours, theirs) in enumerate(pairs):
                assert ours.shape == theirs.shape, (tuple(x.shape), number, ours.shape, theirs.shape)
                off = (ours - theirs).abs().max().item() if theirs.numel() else 0.0
                size = max(theirs.abs().max().item(), 1) if theirs.numel() else 1
                assert off < CLOSE * size, (tuple(x.shape), number, off)
    return "raises" if outcomes["raises"] else "equal"


IN_PLACE = [
    *(f"y.{name}_()" for name in ("relu", "sigmoid", "tanh", "abs", "neg", "exp", "zero", "square", "floor", "cos")),
    *(f"y.{name}_(2.0)" for name in ("add", "sub", "mul", "div", "fill", "clamp_min", "clamp_max")),
    *("y.clamp_(-0.1, 0.1)", "y[:, :, 0] = 5.0", "y[..., 1] += 1", "y[:, 1:].mul_(2)", "y.view(-1).add_(1)", "y.transpose(1, 2).add_(1)"),
    *("y.detach().add_(1)", "y.copy_(y * 2)", "y.masked_fill_(y > 0, 0.0)", "y.add_(1).mul_(2)", "y.chunk(3, -1)[0].add_(1)"),
    *("y[:, 0].zero_()", "y.unsqueeze(0).add_(1)", "y.squeeze().add_(1)", "torch.relu_(y)", "torch.add(y, 1, out=y)", "y.addcmul_(y, y)"),
    *("y.select(1, 0).add_(y[:, 1])", "z = y + 1; z.mul_(2); y.add_(z)", "z = y; z.mul_(2)", "y.index_fill_(1, torch.tensor([0]), 2.0)"),
]
"""What changes y, which is given afterwards."""
_ALWAYS = ("y.mul_(2.0)", "y[:, :, 0] = 5.0")


@pytest.mark.parametrize("target", WRITTEN)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_changed_in_place_is_given_as_it_is_then(tmp_path: Path, kind: str, target: str) -> None:
    torch = needed("torch", "torch")
    outcomes = Counter[str]()

    def check(change: str) -> None:
        outcomes[outcome(kind, f"z0 = y * 1; {change}; return (y, z0)", tmp_path, [torch.randn(2, 7, 3)], target=target)] += 1

    each(drawn(IN_PLACE, 4 if kind in ("live", "program") else 12, f"in place {kind}", lambda change: change in _ALWAYS), check)
    assert outcomes["equal"] and outcomes["refused"], outcomes


@pytest.mark.parametrize("kind", ("trace", "program"))  # torch scripts no pool that leaves an axis
def test_what_a_layer_gives_is_changed_in_place_and_its_weights_are_not(tmp_path: Path, kind: str) -> None:
    torch = needed("torch", "torch")
    nn = torch.nn

    class Pooled(nn.Module):  # a network that reads text, in small
        def __init__(self) -> None:
            super().__init__()
            self.seen = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(True), nn.MaxPool2d(2), nn.ELU(1.0, True), nn.GroupNorm(2, 4), nn.Tanh())
            self.pool = nn.AdaptiveAvgPool2d((None, 1))
            self.rnn = nn.LSTM(4, 5, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.rnn(self.pool(self.seen(x).permute(0, 3, 1, 2)).squeeze(3))[0]

    torch.manual_seed(0)
    module, x = Pooled().eval(), torch.randn(2, 1, 9, 14)
    if kind == "program":
        torch.export.save(torch.export.export(module, (x,)), tmp_path / "m.pt2")
        path = tmp_path / "m.pt2"
    else:
        path = in_kind(kind, module, tmp_path, x)[0]
    filled = as_graph(path, tmp_path / "m.onnx", None, axes=None if kind == "program" else 4)
    with torch.no_grad():
        assert (filled(x) - module(x)).abs().max().item() < CLOSE


def test_a_network_that_short_inputs_do_not_fit_is_proved_on_longer_ones(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    needed("onnxruntime", "onnxruntime")
    nn = torch.nn

    class Read(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(4), nn.Conv2d(2, 3, 3), nn.MaxPool2d(4))
            self.rnn = nn.GRU(3, 4, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.rnn(self.seen(x).mean(2).permute(0, 2, 1))[0]

    path = in_kind("trace", Read().eval(), tmp_path, torch.randn(2, 1, 40, 60))[0]
    done = rc.export_model(path, tmp_path / "m.onnx", verify=True)
    assert done.equal and (tmp_path / "m.onnx").is_file()


def test_every_layer_of_a_program_gives_elements_of_its_own() -> None:
    read = Ref("x", SharedElements())
    shared = [kind for kind in LAYERS if OperatorProgram().output(OperatorCall(kind, [read], {}, kind)).storage is read.storage]
    assert not shared


LEFT_CHANGED = {
    "self.h.copy_(y[:, -1:, :].transpose(0, 1).repeat(1, 1, 2)[..., :4]); return y": "h",
    "z = self.rnn(x, self.h)[1]; self.h.copy_(z); return y": "h",
    "self.n.add_(1); return y": "n",
    "self.n.add_(1); return y * self.n": "n",
    "self.n += 1; return y + self.n": "n",
    "self.h[:, 0] = 1.0; return y": "h",
    "self.h.view(-1).fill_(1.0); return y + self.h.mean()": "h",
    "self.h.mul_(0.9).add_(0.1); return y + self.h.mean()": "h",
    "z = self.h; z.add_(1); return y + z.mean()": "h",
    "torch.add(self.n, 1, out=self.n); return y": "n",
    "with torch.no_grad(): self.weight.mul_(0.5); return y + self.weight.mean()": "weight",
}
"""What leaves an array of the module changed, and which."""


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_call_leaves_changed_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    torch = needed("torch", "torch")
    x, outcomes = torch.randn(2, 7, 3), Counter[str]()

    def check(body: str) -> None:
        module = stated(body, tmp_path)
        try:
            source, _ = in_kind(kind, module, tmp_path, x)
        except Exception:  # torch raises what it likes
            outcomes["not written by torch"] += 1
            return
        outcomes["refused"] += 1
        with pytest.raises(rc.RefusedError, match=f"a call leaves '{LEFT_CHANGED[body]}' changed|the attribute {LEFT_CHANGED[body]}"):
            rc.scaffold(source, "pytorch", tmp_path / "w.py", example=(x,) if kind == "live" else None)

    each(drawn(LEFT_CHANGED, 4 if kind in ("live", "program") else 11, f"kept {kind}"), check)
    assert outcomes["refused"], outcomes
    for body in ("self.count += 1; return y * self.count", "self.count = self.count + 1; return y if self.count % 2 else -y"):
        # What torch wrote into a trace or a .pt2 holds the count of its example: that file is the source.
        assert outcome(kind, body, tmp_path, [x, x]) != "equal" or kind in ("trace", "program")


LENGTHS = {
    "return y.sum(1) / y.shape[1]": "equal",
    "return y * y.shape[1]": "equal",
    "return y - y.shape[0]": "equal",
    "return y[:, -1]": "equal",
    "return y[:, : y.shape[1] - 1]": "equal",
    "return y.reshape(-1, 3)": "equal",
    "return y.mean(1)": "equal",
    "return y.flip(1)": "equal",
    "return y + torch.zeros(y.shape[1], 3)": "equal",
    "return y.transpose(0, 1).reshape(y.shape[1], -1)": "equal",
    **dict.fromkeys(
        (
            "return y * 2 if y.shape[1] > 20 else y",
            "return y * 2 if y.shape[1] == 12 else y",
            "return y * 2 if y.shape[1] == 1 else y",
            "return y * 2 if y.shape[0] == 1 else y",
            "return -y if y.shape[1] % 2 else y",
            "return y * 2 if y.shape[0] * y.shape[1] > 30 else y",
            "return y if y.shape[0] < y.shape[1] else -y",
            "return y[:, y.shape[1] // 2]",
            "return y * y.shape[1] ** -0.5",
            "return y * math.sqrt(y.shape[1])",
            "return y + math.log(y.shape[1])",
            "return y / float(y.shape[1])",
            "return y * (1.0 / y.shape[1])",
            "return y[:, : min(5, y.shape[1])]",
            "return y[:, -min(5, y.shape[1]) :]",
            "return y[:, :: max(1, y.shape[1] // 3)]",
            "return y.roll(y.shape[1] // 5, 1)",
            "z = y[:, 0] * 0\n        for t in range(y.shape[1]): z = z * 0.5 + y[:, t]; return z",
            "return y.squeeze()",
            "return y.squeeze(0)",
            "return y.sum(1) / (y.shape[1] - y.shape[1] // 10)",
            "return y * torch.tensor(y.shape[1])",
            "return y * torch.arange(y.shape[1]).unsqueeze(-1)",
            "return torch.cat([y[:, -3:], y], 1)",
            "return y[:, 3]",
            "return y * (y.numel() // 3)",
        ),
        "",
    ),
}
"""What modules compute of lengths; "equal" where the written code takes every length, "" where it may refuse some."""


@pytest.mark.parametrize("target", WRITTEN)
@pytest.mark.parametrize("kind", KINDS)
def test_lengths_other_than_the_examples_give_no_other_numbers(tmp_path: Path, kind: str, target: str) -> None:
    torch = needed("torch", "torch")
    xs = [
        torch.randn(*shape, 3, generator=torch.Generator().manual_seed(1)) for shape in ((2, 7), (2, 12), (2, 30), (1, 1), (1, 5), (9, 3))
    ]

    def check(body: str) -> None:
        became = outcome(kind, body, tmp_path, xs, ("GRU", "LSTM")[len(body) % 2], target)
        assert kind != "live" or became == LENGTHS[body] or not LENGTHS[body], became

    always = ("return y.sum(1) / y.shape[1]", "return y * 2 if y.shape[1] > 20 else y")
    each(drawn(LENGTHS, 4 if kind in ("live", "program") else 12, f"lengths {kind}", lambda body: body in always), check)


_USES = ("y[:, : {}]", "y[:, {} :]", "y[:, {}]", "y * ({})", "y + torch.zeros({}, 1, 3).sum(0)", "y.sum(1) * ({} + 1)")
"""What a module does with a number that it computes from its input's length."""


def length_expressions(count: int, written: bool) -> list[str]:
    """Return whole numbers computed from the length t and from small numbers, drawn.

    written  whether torch can write quotients that round: TorchScript has no `round` that gives a whole number
    """
    generator = random.Random(43)

    def drawn_expression(depth: int) -> str:
        if depth == 0 or generator.random() < 0.15:
            return generator.choice(["t", "t", "t", str(generator.randint(1, 60))])
        left, right = drawn_expression(depth - 1), drawn_expression(depth - 1)
        number = generator.choice([2, 3, 5, 7, 50])
        words = [f"({left}) // {number}", f"({left}) % {number}", f"{left} + {right}", f"{left} - ({right})", f"min({left}, {right})"]
        words += [f"max({left}, {right})", f"{generator.randint(2, 3)} * ({left})", f"math.ceil(({left}) / {number})"]
        return generator.choice([*words, f"round(({left}) / {number})"] if written else words)

    expressions = [drawn_expression(generator.randint(1, 3)) for _ in range(count)]
    return [expression for expression in expressions if "t" in expression.replace("round", "").replace("math", "")]


@pytest.mark.parametrize("target", WRITTEN)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "trace"])  # at some of these torch's tracer ends the process
def test_arithmetic_on_lengths_follows_them_or_is_refused(tmp_path: Path, kind: str, target: str) -> None:
    torch = needed("torch", "torch")
    lengths = (7, *range(1, 61), 130)
    xs = [torch.randn(2, length, 3, generator=torch.Generator().manual_seed(length)) for length in lengths]
    outcomes = Counter[str]()

    def check(case: tuple[str, str]) -> None:
        expression, use = case
        body = f"t = y.shape[1]; return {use.format(expression)}"
        outcomes[outcome(kind, body, tmp_path, xs, ("GRU", "LSTM")[len(body) % 2], target)] += 1

    cases = [(expression, use) for expression in length_expressions(40, kind == "live") for use in _USES]
    always = [("t", "y[:, {} :]"), ("t - 51", "y[:, {} :]"), ("2 - t", "y[:, {}]"), ("t + 3", "y[:, : {}]")]
    each([*always, *drawn(cases, 8 if kind in ("live", "program") else 40, f"arithmetic {kind}")], check)
    assert kind == "program" or outcomes["equal"], outcomes  # where a program fixes its length, the code raises at others


FOLLOWED = (
    "return y[:, y.shape[1] // 2]",
    "return y[:, : y.shape[1] // 2]",
    "return y[:, : round(y.shape[1] / 3)]",
    "return y[:, : math.ceil(y.shape[1] / 2)]",
    "return y * math.floor(y.shape[1] / 3)",
    "return y[:, : min(5, y.shape[1])]",
    "return y[:, : max(1, y.shape[1] // 3)]",
    "return y * (y.shape[1] % 3)",
    "z = y[:, : y.shape[1] + 3]; return z * z.shape[1]",
    "z = y[:, : y.shape[1] // 2]; return z * z.shape[1]",
    "return y[:, y.shape[1] - 5 :]",
)
"""What modules compute of lengths that the written code computes, too."""
_COUNTED_BACK = FOLLOWED[-1]
"""Of a sequence of fewer steps Python counts that bound from the end: the written code takes none of these."""


@pytest.mark.parametrize("target", ["pytorch", "flax", "onnx"])
def test_whole_numbers_that_modules_compute_from_lengths_are_computed(tmp_path: Path, target: str) -> None:
    if target != "onnx":
        require(target)
    torch = needed("torch", "torch")
    xs = [torch.randn(2, length, 3) for length in (7, *range(1, 20), 60, 130)]

    def check(body: str) -> None:
        if target != "flax":
            expected = "raises" if body == _COUNTED_BACK else "equal"
            assert outcome("live", body, tmp_path, xs, target=target) == expected
        if target == "onnx":
            return
        done = rc.scaffold(stated(body, tmp_path), target, tmp_path / "w.py", example=xs[:1], verify=True, force=True)
        assert done.equal and "alone, because" not in str(done), done

    each(drawn(FOLLOWED, 3, f"followed {target}", lambda body: body == _COUNTED_BACK), check)


def test_a_length_that_is_not_followed_is_checked_and_a_note_says_why(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    example = torch.zeros(2, 7, 3)
    done = rc.scaffold(stated("return y * y.shape[1] ** 0.5", tmp_path), "pytorch", tmp_path / "w.py", example=example)
    assert any("at the example's lengths alone, because of the operator pow" in note for note in done.notes)
    assert any("x.shape[1] == 7" in note for note in done.notes)
    with pytest.raises(rc.RefusedError, match="length that a run decides"):
        rc.scaffold(stated("return y[:, : y.shape[1] // 2]", tmp_path), "keras", tmp_path / "k.py", example=example)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_module_takes_as_many_inputs_as_its_example_has(tmp_path: Path, count: int) -> None:
    torch = needed("torch", "torch")

    class Several(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 4)
            self.register_buffer("scale", torch.tensor(2.0))

        def forward(self, *xs: Any) -> Any:
            return self.layer(torch.cat(xs, 1)) * self.scale.item()

    module, x = Several(), torch.randn(2, 7, 3)
    done = rc.scaffold(module, "pytorch", tmp_path / "w.py", example=[x] * count, verify=True)
    assert done.equal
    inputs = [torch.randn(2, 12, 3) for _ in range(count)]
    assert torch.allclose(module_at(tmp_path / "w.py").load(module)(*inputs), module(*inputs), atol=CLOSE)


def test_the_dimensions_of_a_program_that_are_derived_are_checked(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    dim = torch.export.Dim("t", max=500)

    class Halving(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 4)

        def forward(self, x: Any, z: Any) -> Any:
            return self.layer(x).reshape(x.shape[0], z.shape[1], 8) + z

    module = Halving()
    sizes = ({0: torch.export.Dim.AUTO, 1: 2 * dim}, {0: torch.export.Dim.AUTO, 1: dim})
    file, written = tmp_path / "m.pt2", tmp_path / "w.py"
    torch.export.save(torch.export.export(module, (torch.zeros(2, 8, 3), torch.zeros(2, 4, 8)), dynamic_shapes=sizes), file)
    assert rc.scaffold(file, "pytorch", written, verify=True).equal
    filled = module_at(written).load(str(file))
    for half in (1, 2, 5, 40):
        inputs = torch.randn(2, 2 * half, 3), torch.randn(2, half, 8)
        assert torch.allclose(filled(*inputs), module(*inputs), atol=CLOSE)
    with pytest.raises(ValueError, match=r"x.shape\[1\] % 2 == 0"):
        filled(torch.randn(2, 7, 3), torch.randn(2, 3, 8))


AXES_MATTER = (
    "return self.dense(x) * x.size(1)",
    "return self.dense(x).sum(1) / x.size(1)",
    "y = self.rnn(x)[0]; return y * (y.size(1) ** 0.5)",
    "y = self.rnn(x.unsqueeze(0))[0]; return y[0] * x.size(0)",
)
"""What is another model for another number of axes, which TorchScript does not state."""
_BY_AXES = (*AXES_MATTER, "return self.dense(x).relu()", "y = self.rnn(x)[0]; return y * y.size(1)", "y = self.rnn(x)[0]; return y[:, -1]")


def a_module(body: str, folder: Path) -> Any:
    """A module of a dense layer and a GRU, with the lines of its forward."""
    path = folder / f"axes{len(list(folder.iterdir()))}.py"
    lines = ["import torch", "class M(torch.nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += ["        self.dense = torch.nn.Linear(3, 3)", "        self.rnn = torch.nn.GRU(3, 3, batch_first=True)"]
    lines += ["    def forward(self, x: torch.Tensor):", *(f"        {line}" for line in body.split("; "))]
    path.write_text("\n".join(lines))
    return module_at(path).M().eval()


def test_the_axes_of_a_scripts_inputs_are_not_guessed(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    refused = Counter[str]()

    def check(body: str) -> None:
        module = a_module(body, tmp_path)
        file, written = tmp_path / "m.pt", tmp_path / "w.py"
        torch.jit.script(module).save(file)
        for axes in (None, 1, 2, 3):
            try:
                rc.scaffold(file, "pytorch", written, axes=axes, force=True)
            except rc.RefusedError as error:
                assert axes is not None or "how many axes" in str(error), error
                refused[body] += axes is None
                continue
            filled = module_at(written).load(str(file))
            for shape in ((3,), (5, 3), (2, 7, 3), (2, 4, 5, 3)):
                x, wanted = torch.randn(shape), None
                with torch.no_grad(), contextlib.suppress(ValueError, RuntimeError, IndexError):
                    wanted = module(x)
                try:
                    with torch.no_grad():
                        got = filled(x)
                except (ValueError, RuntimeError, IndexError):
                    assert axes != len(shape) or wanted is None, (axes, shape)
                    continue
                assert wanted is not None and got.shape == wanted.shape and torch.allclose(got, wanted, atol=CLOSE), (axes, shape)

    each(_BY_AXES, check, str)
    assert set(+refused) == set(AXES_MATTER)
    with pytest.raises(rc.UsageError, match=r"axes.* decides nothing"):
        rc.scaffold(stated("return y", tmp_path), "pytorch", example=torch.zeros(2, 7, 3), axes=3)
    with pytest.raises(rc.UsageError, match="1 or more, got -1"):
        rc.scaffold(tmp_path / "m.pt", "pytorch", axes=-1)
    with pytest.raises(rc.UsageError, match="states 2 entries for 1 input whose"):
        rc.scaffold(tmp_path / "m.pt", "pytorch", axes=[3, 2])


@pytest.mark.parametrize("body", ["return self.dense(x.mean(1))", "y = self.dense(x).sum(dim=1); return y.relu()"])
def test_a_script_without_stated_axes_is_read_with_a_batch_that_it_keeps(body: str, tmp_path: Path) -> None:
    """Of two axes such a mean leaves no batch, which every operator would take."""
    torch = needed("torch", "torch")
    module, file, written = a_module(body, tmp_path), tmp_path / "m.pt", tmp_path / "w.py"
    torch.jit.script(module).save(file)
    rc.scaffold(file, "pytorch", written)
    filled, x = module_at(written).load(str(file)), torch.randn(2, 7, 3)
    with torch.no_grad():
        assert torch.allclose(filled(x), module(x), atol=CLOSE)


def test_code_of_a_script_takes_every_number_of_axes_that_its_check_names(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    module, file, written = a_module("return torch.cat([x, self.dense(x)], -1)[:, 1:]", tmp_path), tmp_path / "m.pt", tmp_path / "w.py"
    torch.jit.script(module).save(file)
    rc.scaffold(file, "pytorch", written)
    filled = module_at(written).load(str(file))
    assert "len(x.shape) == 2 or len(x.shape) == 3" in written.read_text()
    with torch.no_grad():
        for shape in ((5, 3), (2, 7, 3), (2, 4, 5, 3)):
            x = torch.randn(shape)
            assert torch.allclose(filled(x), module(x), atol=CLOSE)
        with pytest.raises(ValueError, match="expected"):
            filled(torch.randn(3))


def test_an_axis_of_unknown_length_that_is_taken_away_is_refused_with_a_way_out(tmp_path: Path) -> None:
    """By the reading that went furthest: with three axes, the permute names more than there are."""
    torch = needed("torch", "torch")
    path = tmp_path / "squeezed.py"
    lines = ["import torch", "class M(torch.nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += ["        self.rnn = torch.nn.LSTM(3, 4, batch_first=True)", "    def forward(self, x):"]
    path.write_text("\n".join([*lines, "        return self.rnn(x.squeeze(2).permute(0, 2, 1))[0]"]))
    x, file, program = torch.randn(2, 3, 1, 5), tmp_path / "squeezed.pt", tmp_path / "squeezed.pt2"
    module = module_at(path).M().eval()
    torch.jit.trace(module, x, check_trace=False).save(file)
    with pytest.raises(rc.RefusedError, match=r"squeeze of an open axis.*\.pt2"):
        rc.scaffold(file, "pytorch", tmp_path / "w.py")
    torch.export.save(torch.export.export(module, (x,)), program)
    filled = as_graph(program, tmp_path / "w.onnx", None)
    with torch.no_grad():
        assert torch.allclose(filled(x), module(x), atol=CLOSE)


@pytest.mark.parametrize("most", [6, 20])
def test_proofs_keep_to_the_lengths_that_a_module_takes(tmp_path: Path, most: int) -> None:
    torch = needed("torch", "torch")
    module = stated(f"return y * 2 if y.shape[1] > {most} else y", tmp_path)
    for steps, condition in ((5, f"x.shape[1] <= {most}"), (30, f"x.shape[1] >= {most + 1}")):
        done = rc.scaffold(module, "pytorch", tmp_path / "w.py", example=torch.zeros(1, steps, 3), verify=True, force=True)
        assert done.equal and any(condition in note for note in done.notes), done.notes


@pytest.mark.parametrize("target", TARGETS)
def test_what_nothing_reads_is_left_out_with_a_note(tmp_path: Path, target: str) -> None:
    require(target)
    torch = needed("torch", "torch")
    module = spelled(lambda m, x: m.head(m.layer(x)), layer=torch.nn.Linear(6, 4), head=torch.nn.Linear(4, 2), extra=torch.nn.Linear(4, 2))
    done = rc.scaffold(module, target, tmp_path / "w.py", example=torch.zeros(2, 6), verify=True)
    assert done.equal and any("nothing reads it: 'extra'" in note for note in done.notes)
    module_at(tmp_path / "w.py").load(module)


@pytest.mark.parametrize("name", ["x", "m", "g", "y"])
def test_an_input_and_a_layer_of_one_name_have_two_in_keras(name: str, tmp_path: Path) -> None:
    needed("keras", "keras")
    torch = needed("torch", "torch")

    class Inner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            setattr(self, name, torch.nn.Conv1d(4, 4, 3, padding=1, padding_mode="reflect"))

        def forward(self, x: Any) -> Any:
            return getattr(self, name)(x)

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.ModuleList([Inner(), Inner()])

        def forward(self, x: Any) -> Any:
            for inner in self.inner:
                x = inner(x)
            return x

    assert rc.scaffold(Outer(), "keras", tmp_path / "w.py", example=torch.zeros(2, 4, 7), verify=True).equal


def test_a_state_in_an_attribute_is_refused_and_what_is_only_kept_is_not(tmp_path: Path) -> None:
    torch = needed("torch", "torch")

    class Streaming(torch.nn.Module):
        def __init__(self, reads: bool) -> None:
            super().__init__()
            self.rnn = torch.nn.LSTM(3, 4, batch_first=True)
            self.reads = reads
            self.state: Any = None
            self.attention: dict[str, Any] = {}

        def forward(self, x: Any) -> Any:
            y, state = self.rnn(x, self.state)
            self.attention["y"] = y
            if self.reads:
                self.state = tuple(part.detach() for part in state)
            return y

    example = (torch.zeros(2, 7, 3),)
    with pytest.raises(rc.RefusedError, match=r"a call leaves .*'state'"):
        rc.scaffold(Streaming(True).eval(), "pytorch", tmp_path / "a.py", example=example)
    assert rc.scaffold(Streaming(False).eval(), "pytorch", tmp_path / "b.py", example=example).output
