"""TorchScript archives and exported programs of two layers with something between them: joined and equal, or refused."""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys
import time
import warnings
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rnnconvert as rc
from rnnconvert.core import reference
from tests.formats.pytorch.test_scaffold_programs import length_expressions
from tests.helpers import drawn

pytestmark = pytest.mark.filterwarnings("ignore")

W = 4
"""Units of the layers, of both directions together."""

HARMLESS = [
    "y", "y.contiguous()", "y.clone()", "y.detach()", "self.drop(y)", "self.ident(y)", "F.dropout(y, 0.5, self.training)",
    "F.dropout(y, 0.0, True)", "y.transpose(0, 1).transpose(1, 0)", "y.permute(1, 0, 2).permute(1, 0, 2)", "y.unsqueeze(0).squeeze(0)",
    "y.squeeze(1)", "y.unsqueeze(-1).squeeze(-1)", "y.reshape(y.shape[0], y.shape[1], -1)", "y.contiguous().view(y.size(0), -1, 4)",
    "y.reshape(-1, 4).reshape(y.shape[0], y.shape[1], 4)", "y.flatten(1).reshape(y.shape)", "torch.cat(torch.split(y, [1, 3], -1), -1)",
    "torch.cat(torch.chunk(y, 2, -1), -1)", "torch.stack(torch.unbind(y, 1), 1)", "torch.cat([y[:, :, :2], y[:, :, 2:]], 2)",
    "y.flip(1).flip(1)", "y.roll(1, 0).roll(-1, 0)", "y.double().float()", "y.to(torch.float32)", "y[:, 0:]", "y.expand(-1, -1, 4)",
    "y.repeat(1, 1, 1)", "y.swapaxes(0, 2).swapaxes(0, 2)", "y.narrow(2, 0, 4)", "torch.cat((y[:1], y[1:]), 0)",
]  # fmt: skip
"""What changes nothing of the values y of (time, batch, 4) or (batch, time, 4)."""

CHANGES = [
    "-y", "torch.relu(y)", "F.relu(y, inplace=True)", "y * 2", "y.clamp(-0.01, 0.01)", "F.normalize(y, dim=-1)",
    "torch.sort(y, dim=-1)[0]", "y.flip(0)", "y.flip(1)", "y.flip(2)", "torch.roll(y, 1, 0)", "torch.roll(y, 1, 1)", "y.roll(1, 2)",
    "y[1:]", "y[:, 1:]", "y[:, ::2]", "y.repeat(1, 2, 1)", "torch.cat([y, y], 0)", "y.repeat_interleave(2, 1)",
    "torch.cat([y[:, :, 2:], y[:, :, :2]], 2)", "torch.cat(torch.chunk(y, 2, 2)[::-1], 2)", "y.mul(4).int().float()", "y.int().float()",
    "y.half().float()", "y.to(torch.bfloat16).to(torch.float32)", "F.dropout(y, 0.5, True)", "y.transpose(0, 1)",
    "y.reshape(y.shape[1], y.shape[0], 4)", "y.reshape(3, 5, 4)", "torch.softmax(y, -1)", "y.cumsum(1)", "F.pad(y, (0, 0, 1, 0))",
    "y - y.mean()", "torch.where(y > 0, y, torch.zeros_like(y))", "F.layer_norm(y, [4])",
    "y.reshape(y.shape[0], y.shape[1], 2, 2).transpose(2, 3).reshape(y.shape)", "y[:, :, [1, 0, 3, 2]]", "y.masked_fill(y < 0, 0.0)",
    "y[:, -1:].expand(-1, 3, -1)", "y.transpose(1, 2)[:, :, :3].repeat(1, 1, 2)[:, :, :4]", "y[:, torch.arange(y.size(1)).flip(0)]",
]  # fmt: skip
"""What changes these values; where they stand by (batch, time) or (time, batch), one or the other is harmless."""

IN_PLACE = ["y[:, 0] = 0.0", "y[0].mul_(2.0)", "y.chunk(2, 2)[1].zero_()", "y.add_(0.5)"]

CALLS = {
    "plain": "self.b(y)[0]", "a twice": "self.b(self.a(y[:, :, :3])[0])[0]", "b twice": "self.b(self.b(y)[0].repeat(1, 1, 2)[:, :, :4])[0]",
    "states handed on": "self.b(y, self.a(x)[1])[0]", "zeros": "self.b(y, ZEROS)[0]", "ones": "self.b(y, ONES)[0]",
    "residual": "self.b(y + y)[0]", "ignored": "self.b(x[:, :, :1].expand(-1, -1, 4))[0]",
}  # fmt: skip

FORMS = ("script", "trace", "frozen", "frozen trace", "export")

SOURCE = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.{kind}(3, {width}, {a})
        self.b = nn.{kind_b}(4, {width_b}, {b})
        self.drop = nn.Dropout(0.5)
        self.ident = nn.Identity()

    def forward(self, x):
        y = self.a(x)[0]
{body}
        return {last}
"""


@dataclass(frozen=True)
class Case:
    """A model with a way to save it.

    harmless  whether it must be joined
    """

    name: str
    source: str
    form: str
    first: bool
    last: bool
    harmless: bool


def case(seed: int) -> Case:
    """Draw a model of two layers."""
    draw = random.Random(f"between torch {seed}")
    kinds = draw.choices(["LSTM", "GRU", "RNN"], k=2)
    if draw.random() < 0.6:
        kinds[1] = kinds[0]
    firsts = [draw.random() < 0.5] * 2
    fits = draw.random() < 0.8
    if not fits:
        firsts[1] = not firsts[0]
    both = [draw.random() < 0.3 for _ in kinds]
    several = draw.choice([1, 1, 2])
    options = [f"batch_first={first}, bidirectional={two}" for first, two in zip(firsts, both, strict=True)]
    options[0] += f", num_layers={several}"
    pool = HARMLESS if draw.random() < 0.5 else [*HARMLESS, *CHANGES]
    picked = [draw.choice(pool) for _ in range(draw.randint(1, 3))]
    body, harmless = [], True
    turned = not fits and draw.random() < 0.6
    where = draw.randrange(len(picked) + 1)
    for number, operators in enumerate(picked):
        if turned and number == where:
            body.append("y = y.transpose(0, 1)")
        body.append(f"y = {operators}")
        harmless = harmless and operators in HARMLESS
    if turned and where == len(picked):
        body.append("y = y.permute(1, 0, 2)")
    if draw.random() < 0.1:
        body.append(draw.choice(IN_PLACE))
        harmless = False
    how = draw.choice(sorted(CALLS)) if draw.random() < 0.3 else "plain"
    last = CALLS[how]
    shape = f"{1 + both[1]}, y.shape[{int(not firsts[1])}], {W // (1 + both[1])}"
    for word in ("zeros", "ones"):
        state = f"torch.{word}({shape})"
        last = last.replace(word.upper(), f"({state}, {state})" if kinds[1] == "LSTM" else state)
    source = SOURCE.format(
        kind=kinds[0], kind_b=kinds[1], width=W // (1 + both[0]), width_b=W // (1 + both[1]), a=options[0], b=options[1],
        body="\n".join(f"        {line}" for line in body), last=last,
    )  # fmt: skip
    form = draw.choice([*FORMS, "trace", "frozen trace"])
    harmless = harmless and how in ("plain", "zeros") and (fits or turned)
    return Case(f"{seed} {form} {'/'.join(kinds)} {firsts} {how}: {'; '.join(body)}", source, form, firsts[0], firsts[1], harmless)


_NUMBERS = itertools.count()


def module(source: str, folder: Path) -> nn.Module:
    """Return the model of a source, which torch.jit.script wants to read in a file."""
    name = f"between_torch_{next(_NUMBERS)}"
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = imported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(imported)
    torch.manual_seed(3)
    model: nn.Module = imported.Model().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.9, 0.9)
    return model


def saved(model: nn.Module, x: torch.Tensor, form: str, path: Path) -> Path:
    """Save a model as an archive or an exported program."""
    with torch.no_grad():
        if form == "export":
            torch.export.save(torch.export.export(model, (x,), strict=False), path.with_suffix(".pt2"))
            return path.with_suffix(".pt2")
        program: Any = torch.jit.trace(model, (x,), check_trace=False) if "trace" in form else torch.jit.script(model)
        (torch.jit.freeze(program) if "frozen" in form else program).save(str(path))
    return path


def judged(case: Case, folder: Path) -> str:
    """Return whether a model was joined or refused; raise AssertionError for a wrong one."""
    model = module(case.source, folder)
    x = torch.randn(3, 5, 3, generator=torch.Generator().manual_seed(1))
    if not case.first:
        x = x.transpose(0, 1).contiguous()
    try:
        with torch.no_grad():
            expected = model(x.clone()).numpy()
        path = saved(model, x, case.form, folder / "model.pt")
    except Exception as error:
        assert not case.harmless, error
        return "not saved"
    layers = rc.load(path).layers
    assert all(layer.calls for layer in layers.values())
    if len(layers) < 2:  # freezing left out what the forward does not call
        return "one layer"
    try:
        joined = rc.join_stack(list(layers.values()))
    except ValueError as refusal:
        assert not case.harmless, f"refused: {refusal}"
        return "refused"
    values = x.numpy()
    y = reference.run(joined, values.swapaxes(0, 1) if case.first else values).y
    y = y.swapaxes(0, 1) if case.last else y
    assert y.shape == expected.shape, f"joined, and gives {y.shape} for {expected.shape}"
    assert np.abs(y - expected).max() < 1e-5, f"joined, and off by {np.abs(y - expected).max()}"
    return "joined"


def test_drawn_models_are_joined_and_equal_or_refused(tmp_path: Path) -> None:
    draw = random.Random(f"{drawn.SEED} between torch")
    cases = [case(draw.randrange(1 << 40)) for _ in range(2000 if drawn.LONG else 20)]
    results: list[str] = []

    def check(entry: Case) -> None:
        results.append(judged(entry, tmp_path))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn.each(cases, check, lambda entry: entry.name)
    assert {"joined", "refused"} <= set(results)


# Specimens --------------------------------------------------------------------------------------------


def of(folder: Path, code: str, form: str = "export", x: torch.Tensor | None = None, **layers: str) -> tuple[nn.Module, Path]:
    """Return a model of layers, and the file that it was saved as.

    code  the lines of its forward(self, x), and of its __init__ before a line of dashes
    """
    before, _, after = code.rpartition("---\n")
    lines = [f"        self.{name} = nn.{kind}" for name, kind in layers.items()]
    lines += [f"        {line}" for line in before.splitlines()]
    source = "import math\nimport torch\nfrom typing import List\nimport torch.nn.functional as F\nfrom torch import nn\n\n"
    source += "class Model(nn.Module):\n"
    source += "    def __init__(self):\n        super().__init__()\n" + "\n".join(lines) + "\n\n    def forward(self, x):\n"
    source += "\n".join(f"        {line}" for line in after.splitlines()) + "\n"
    model = module(source, folder)
    return model, saved(model, torch.randn(2, 6, 3) if x is None else x, form, folder / "model.pt")


_FORMS = random.Random(f"{drawn.SEED} forms")


def some(*forms: str) -> list[str]:
    """Return one of the forms, by the seed; all of them with --long."""
    return list(forms) if drawn.LONG else [_FORMS.choice(forms)]


LSTMS = {"a": "LSTM(3, 4, batch_first=True)", "b": "LSTM(4, 4, batch_first=True)"}


@pytest.mark.parametrize("form", ["script", "export"])
def test_operators_between_two_layers_are_named(form: str, tmp_path: Path) -> None:
    _, path = of(tmp_path, "return self.b(-torch.relu(self.a(x)[0]))[0]", form, **LSTMS)
    with pytest.raises(rc.RefusedError, match="directly: relu, neg comes before it"):
        rc.convert(path, tmp_path / "out.safetensors", target_format="pytorch", stack="join", verify=True)
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("return self.b(self.a(self.a(x)[0][:, :, :3])[0])[0]", "'a' is called 2 times"),
        ("y, states = self.a(x)\nreturn self.b(y, states)[0]", "initial states of 'b' are given"),
        ("return self.b(x[:, :, :1].expand(-1, -1, 4))[0] + self.a(x)[0]", "reads what no recurrent layer gives"),
        ("return self.b(self.a(x)[0].transpose(0, 1))[0]", "transpose: time and batch are exchanged"),
        ("return self.b(F.dropout(self.a(x)[0], 0.5, True))[0]", "Dropout that is on"),
        ("y = self.a(x)[0]\nz = y[:, 1]\nz.zero_()\nreturn self.b(y)[0]", "changed in place"),
    ],
)
def test_what_is_no_stack_is_refused(code: str, words: str, tmp_path: Path) -> None:
    for form in some("script", "trace", "export"):
        _, path = of(tmp_path, code, form, **LSTMS)
        with pytest.raises(rc.RefusedError, match=words):
            rc.convert(path, tmp_path / "out.safetensors", target_format="pytorch", stack="join")


@pytest.mark.parametrize(
    "line",
    [
        "y = y.roll(y.size(1) // 50, 1)",
        "y = y[:, :y.size(1) - 5 * (y.size(1) // 50)]",
        "y = y[:, y.size(1) // 300:]",
        "y = y.roll(y.size(1) % 1000 - y.size(1), 1)",
        "if y.size(1) > 60:\n    y = y.flip(1)",
    ],
)
def test_numbers_that_longer_sequences_change_are_no_nothing(line: str, tmp_path: Path) -> None:
    _, path = of(tmp_path, f"y = self.a(x)[0]\n{line}\nreturn self.b(y)[0]", "script", **LSTMS)
    with pytest.raises(rc.RefusedError, match="'b' does not read 'a' directly"):
        rc.convert(path, tmp_path / "out.safetensors", target_format="pytorch", stack="join")


_OF_LENGTHS = (
    "y.roll({}, 1)",
    "y[:, ({}) :]",
    "y[:, : t - ({})]",
    "y * (1 + ({}))",
    "y + ({})",
    "y if ({}) < 1 else -y",
    "y[:, : max(t - ({}), 1)]",
)
"""What changes nothing where a number is 0, and does elsewhere."""


def test_arithmetic_on_lengths_between_layers_is_nothing_at_all_of_them_or_refused(tmp_path: Path) -> None:
    draw, results = random.Random(f"{drawn.SEED} lengths"), Counter[str]()
    lengths = (*range(1, 61), 130, 400)
    xs = [torch.randn(1, length, 3, generator=torch.Generator().manual_seed(length)) for length in lengths]

    def check(line: str) -> None:
        model, path = of(tmp_path, f"y = self.a(x)[0]\nt = y.size(1)\ny = {line}\nreturn self.b(y)[0]", "script", xs[20], **LSTMS)
        try:
            rc.convert(path, tmp_path / "out.safetensors", target_format="pytorch", stack="join", force=True)
        except rc.RefusedError:
            results["refused"] += 1
            return
        (stack,) = rc.load(tmp_path / "out.safetensors").layers.values()
        for x in xs:
            with torch.no_grad():
                expected = model(x).numpy()
            y = reference.run(stack, x.numpy().swapaxes(0, 1)).y.swapaxes(0, 1)
            assert y.shape == expected.shape and np.abs(y - expected).max() < 1e-5, (x.shape, y.shape, expected.shape)
        results["joined"] += 1

    numbers = [f"({expression}) // {draw.choice([1, 50, 130, 500])}" for expression in length_expressions(200, False)]
    lines = [draw.choice(_OF_LENGTHS).format(draw.choice(numbers)) for _ in range(400 if drawn.LONG else 20)]
    always = ("y[:, : t]", "y * 1", "y.roll(t // 50, 1)", "y[:, : max(t - t // 130, 1)]", "y + 0")
    drawn.each([*always, *lines], check)
    assert results["joined"] and results["refused"], results


@pytest.mark.parametrize("line", ["y = y[:, :y.size(1)]", "y = y.reshape(y.size(0), y.size(1), -1)"])
def test_numbers_that_are_lengths_change_nothing(line: str, tmp_path: Path) -> None:
    _, path = of(tmp_path, f"y = self.a(x)[0]\n{line}\nreturn self.b(y)[0]", "script", **LSTMS)
    assert rc.join_stack(list(rc.load(path).layers.values())).num_layers == 2


def test_layers_without_gradients_are_followed(tmp_path: Path) -> None:
    code = "with torch.no_grad():\n    y = self.a(x)[0]\nreturn self.b(y)[0]"
    for form in some("script", "export"):
        _, path = of(tmp_path, code, form, **LSTMS)
        assert rc.join_stack(list(rc.load(path).layers.values())).num_layers == 2


def test_a_layer_that_the_model_does_not_call_is_not_joined(tmp_path: Path) -> None:
    _, path = of(tmp_path, "return self.a(x)[0]", "script", **LSTMS)
    with pytest.raises(rc.RefusedError, match="no call of it that can be followed"):
        rc.convert(path, tmp_path / "out.safetensors", target_format="pytorch", stack="join")


def test_dropout_of_a_model_in_training_is_on(tmp_path: Path) -> None:
    model, _ = of(tmp_path, "return self.b(self.d(self.a(x)[0]))[0]", "script", **LSTMS, d="Dropout(0.5)")
    torch.jit.script(model.train()).save(str(tmp_path / "train.pt"))
    with pytest.raises(rc.RefusedError, match="Dropout that is on"):
        rc.convert(tmp_path / "train.pt", tmp_path / "out.safetensors", target_format="pytorch", stack="join")


def test_a_roll_there_and_back_shows_nothing_at_one_step(tmp_path: Path) -> None:
    code = "y = self.a(x)[0]\ny = y.roll(1, 1).roll(-1, 1)\ny = torch.stack(torch.unbind(y, 0), 0)\nreturn self.b(y)[0]"
    _, path = of(tmp_path, code, "trace", **LSTMS)
    assert rc.join_stack(list(rc.load(path).layers.values())).num_layers == 2


def test_what_only_a_run_decides_is_named(tmp_path: Path) -> None:
    code = "y = self.a(x)[0]\nif bool(y.sum() > 0):\n    y = -y\nreturn self.b(y)[0]"
    _, path = of(tmp_path, code, "script", **LSTMS)
    with pytest.raises(rc.RefusedError, match="neg, if comes before it"):
        rc.convert(path, tmp_path / "out.safetensors", target_format="pytorch", stack="join")
    code = "y = self.a(x)[0]\nfor step in range(x.size(0)):\n    y = self.b(y)[0]\nreturn y"
    _, path = of(tmp_path, code, "script", **LSTMS)
    with pytest.raises(rc.RefusedError, match="a loop"):
        rc.convert(path, tmp_path / "out.safetensors", target_format="pytorch", stack="join")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("y = y.reshape(5, 3, 4)", "reshape: its values stand in another shape"),
        ("y = y.split(50, 1)[0]", "split, which cuts what is longer than 50"),
        ("s = y.split(4, 1)\ny = torch.cat([s[0], s[1]], 1)", "split"),
        ("l = [y, -y]\nl.reverse()\ny = l[0]", "neg"),
        ("l = [y, -y]\ndel l[0]\ny = l[0]", "neg, an item of a list"),
        ("d = {'a': y}\nd.update({'a': -y})\ny = d['a']", "neg, update"),
        ("d = {'a': y}\nif bool(x.sum() > 0):\n    d['a'] = -y\ny = d['a']", "neg, _set_item"),
    ],
)
def test_what_a_list_or_a_dictionary_becomes_is_followed_or_named(code: str, words: str, tmp_path: Path) -> None:
    _, path = of(tmp_path, f"y = self.a(x)[0]\n{code}\nreturn self.b(y)[0]", "script", **LSTMS)
    with pytest.raises(rc.RefusedError, match=f"directly: .*{words}"):
        rc.convert(path, tmp_path / "out.safetensors", target_format="pytorch", stack="join")


STEPS = """
h = c = x.new_zeros(x.shape[0], 4)
o: List[torch.Tensor] = []
for t in range(6):
    {}
    o.append(h)
return torch.stack(o, 1)
"""


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("h, c = self.a(x[:, t], (h, c))", ""),
        ("h, c = self.a(x[:, 5 - t], (h, c))", "from the last step to the first"),
        ("h, c = self.a(x[:, t], (h * 0.5, c))", "the hidden state goes through mul"),
        ("g, c = self.a(x[:, t], (h, c)); h = 0.9 * g + 0.1 * h", "the hidden state goes through mul, add"),
        ("h, c = self.a(x[:, t], (h, c)); c = torch.tanh(c)", "the cell state goes through tanh"),
    ],
)
def test_a_loop_round_a_cell_is_the_layer_or_is_refused(step: str, words: str, tmp_path: Path) -> None:
    for form in some("script", "trace", "frozen", "export"):
        _, path = of(tmp_path, STEPS.format(step), form, a="LSTMCell(3, 4)")
        (layer,) = rc.load(path).layers.values()
        assert words in " ".join(obstacle.reason for obstacle in layer.unconvertible) and bool(layer.unconvertible) == bool(words)


ROUND = """
y = self.a(x)[0]
h = c = x.new_zeros(x.shape[0], 4)
o: List[torch.Tensor] = []
s = y.unbind(1)
for {}:
    h, c = self.b({}, (h, c))
    o.append(h)
return torch.stack(o, 1)
"""


@pytest.mark.parametrize(
    ("over", "step", "joins"),
    [
        ("t in s", "t", True),
        ("t in range(len(s))", "s[t]", True),
        ("t in range(y.size(1))", "y[:, t]", True),
        ("t in range(x.shape[1])", "y[:, t]", True),
        ("t in y.transpose(0, 1).unbind()", "t", True),
        ("t in s", "-t", False),
        ("t in s[1:]", "t", False),
        ("t in range(len(s))", "s[len(s) - 1 - t]", False),
        ("t in range(len(s) - 1)", "s[t]", False),
        ("t in range(y.size(1) // 2)", "y[:, t]", False),
        ("t in range(y.size(2))", "y[:, t]", False),
        ("t in range(min(y.size(1), 3))", "y[:, t]", False),
    ],
)
def test_a_loop_over_all_that_a_layer_gives_reads_it(over: str, step: str, joins: bool, tmp_path: Path) -> None:
    x = torch.randn(2, 6, 3)
    model, path = of(tmp_path, ROUND.format(over, step), "script", x, a="LSTM(3, 4, batch_first=True)", b="LSTMCell(4, 4)")
    out = tmp_path / "out.safetensors"
    if not joins:
        with pytest.raises(rc.RefusedError, match=r"directly|not known"):
            rc.convert(path, out, target_format="pytorch", stack="join")
        return
    rc.convert(path, out, target_format="pytorch", stack="join")
    (stack,) = rc.load(out).layers.values()
    outputs = reference.run(stack, x.numpy().swapaxes(0, 1)).y.swapaxes(0, 1)
    assert np.abs(outputs - model(x).detach().numpy()).max() < 1e-5


def test_a_halved_state_is_refused_unless_taken_over(tmp_path: Path) -> None:
    _, path = of(tmp_path, STEPS.format("h, c = self.a(x[:, 5 - t], (h * 0.5, c))"), a="LSTMCell(3, 4)")
    out = tmp_path / "out.safetensors"
    with pytest.raises(rc.RefusedError, match="the model's loop round the cell"):
        rc.convert(path, out, target_format="pytorch", verify=True)
    assert rc.convert(path, out, target_format="pytorch", unaccounted="harmless").written


def test_cells_of_all_kinds_that_run_one_above_another(tmp_path: Path) -> None:
    lines = "h = x.new_zeros(x.shape[0], 4)\ng = x.new_zeros(x.shape[0], 4)\no: List[torch.Tensor] = []\n"
    lines += "for t in range(6):\n    h = self.a(x[:, t], h)\n    g = self.b(h, g)\n    o.append(g)\nreturn torch.stack(o, 1)"
    for form, kind in itertools.product(some("trace", "export"), ("GRUCell", "RNNCell")):
        x = torch.randn(2, 6, 3)
        model, path = of(tmp_path, lines, form, x, a=f"{kind}(3, 4)", b=f"{kind}(4, 4)")
        joined = rc.join_stack(list(rc.load(path).layers.values()))
        with torch.no_grad():
            expected = model(x).numpy()
        assert np.abs(reference.run(joined, x.numpy().swapaxes(0, 1)).y.swapaxes(0, 1) - expected).max() < 1e-5


@pytest.mark.parametrize("form", FORMS[:2])
def test_parameters_that_a_layer_begins_with_are_its_learned_states(form: str, tmp_path: Path) -> None:
    code = "self.h = nn.Parameter(torch.randn(2, 1, 4))\nself.c = nn.Parameter(torch.randn(2, 1, 4))\n---\n"
    code += "return self.a(x, (self.h.expand(-1, x.size(0), -1).contiguous(), self.c.repeat(1, x.size(0), 1)))[0]"
    x = torch.randn(2, 6, 3)
    model, path = of(tmp_path, code, form, x, a="LSTM(3, 4, num_layers=2, batch_first=True)")
    (stack,) = rc.load(path).layers.values()
    with torch.no_grad():
        expected = model(x).numpy()
    assert np.abs(reference.run(stack, x.numpy().swapaxes(0, 1)).y.swapaxes(0, 1) - expected).max() < 1e-5
    with pytest.raises(rc.RefusedError, match="learned initial state"):
        rc.convert(path, tmp_path / "out.safetensors", target_format="pytorch", module="stack")


def test_states_of_a_parameter_for_each_sequence(tmp_path: Path) -> None:
    code = "self.register_buffer('h', torch.{}(1, 2, 4))\n---\nreturn self.a(x, self.h)[0]"
    _, path = of(tmp_path, code.format("ones"), a="GRU(3, 4, batch_first=True)")
    assert "learned initial state" in rc.load(path).layers["a"].describe()
    _, path = of(tmp_path, code.format("randn"), a="GRU(3, 4, batch_first=True)")
    assert any("gives its initial state (parameters of the model)" in warning for warning in rc.load(path).warnings)


def test_states_that_a_model_keeps_are_not_learned(tmp_path: Path) -> None:
    code = "self.register_buffer('h', torch.ones(1, 2, 4))\n---\ny, h = self.a(x, self.h)\nself.h.copy_(h)\nreturn y"
    for form in ("script", "trace"):
        _, path = of(tmp_path, code, form, a="GRU(3, 4, batch_first=True)")
        checkpoint = rc.load(path)
        assert "learned" not in checkpoint.layers["a"].describe()
        assert any("gives its initial state" in warning for warning in checkpoint.warnings)


def test_packed_sequences_share_their_lengths(tmp_path: Path) -> None:
    source = SOURCE.format(kind="LSTM", kind_b="LSTM", width=4, width_b=4, a="batch_first=True", b="batch_first=True", body="", last="y")
    pack = "        p = nn.utils.rnn.pack_padded_sequence(x, n, batch_first=True)\n"
    both = "        return nn.utils.rnn.pad_packed_sequence(self.b(self.a(p)[0])[0], batch_first=True)[0]\n"
    alone = "        return self.b(nn.utils.rnn.pad_packed_sequence(self.a(p)[0], batch_first=True)[0])[0]\n"
    head = source[: source.index("    def forward")] + "    def forward(self, x, n: torch.Tensor):\n"
    for form, last in itertools.product(some("script", "trace"), (both, alone)):
        model: Any = module(head + pack + last, tmp_path)
        arguments = (torch.randn(2, 6, 3), torch.tensor([6, 4]))
        program: Any = torch.jit.script(model) if form == "script" else torch.jit.trace(model, arguments, check_trace=False)
        program.save(str(tmp_path / "m.pt"))
        layers = list(rc.load(tmp_path / "m.pt").layers.values())
        if last is both:
            assert rc.join_stack(layers).num_layers == 2
        else:
            with pytest.raises(ValueError, match="lengths of the sequences of 'a' and 'b' are not the same"):
                rc.join_stack(layers)


# Damaged and hostile files ------------------------------------------------------------------------------


def rewritten(path: Path, line: str) -> Path:
    """An archive of two layers whose forward begins with another line."""
    changed = path.with_name("changed.pt")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            text = source.read(name)
            if name.endswith(".py") and b"    a = self.a\n" in text:
                text = text.replace(b"    a = self.a\n", f"    a = self.a\n{line}\n".encode(), 1)
            target.writestr(name, text)
    return changed


@pytest.mark.parametrize(
    "line",
    [
        "    z = " + "(" * 5000,
        "    z = x" + ".a" * 5000,
        "    z = x +",
        "    z = (self).forward(x, )",
        "    for i in range(1000000000):\n      z = torch.neg(x)",
        "    for i in range(1000000000):\n      pass",
        "\n".join("    " + "  " * depth + "if self.training:" for depth in range(200)) + "\n" + "  " * 300 + "pass",
        "    return",
        "    while torch.gt(torch.sum(x), 0):\n      x = torch.neg(x)\n      return x",
        "    z = torch.unbind(x)[1 << 40]",
        "    t = (x, x)\n" + "    t = (t, t)\n" * 60 + "    z = torch.strange(t)",
        "    t = [x]\n    s = [t]\n    u = torch.append(t, s)\n    z = torch.strange(t)",
    ],
)
def test_code_that_is_not_followed_is_not_joined(line: str, tmp_path: Path) -> None:
    _, path = of(tmp_path, "return self.b(self.a(x)[0])[0]", "trace", **LSTMS)
    layers = rc.load(rewritten(path, line)).layers
    with pytest.raises(ValueError, match="is not known"):
        rc.join_stack(list(layers.values()))


def test_tensors_that_share_elements_many_times(tmp_path: Path) -> None:
    _, path = of(tmp_path, "return self.b(self.a(x)[0])[0]", "trace", **LSTMS)
    lines = ["    y0 = torch.relu(x)"]
    for number in range(4000):
        lines.append(f"    y{number + 1} = torch.strange(y{number}, y{number // 2}, y{number // 3})")
        lines.append(f"    z = torch.neg_(y{number})")
    begin = time.monotonic()
    layers = rc.load(rewritten(path, "\n".join(lines))).layers
    assert time.monotonic() - begin < 20 and all(layer.calls for layer in layers.values())


def test_many_choices_one_behind_the_other(tmp_path: Path) -> None:
    _, path = of(tmp_path, "return self.b(self.a(x)[0])[0]", "trace", **LSTMS)
    lines = ["    y0 = x"]
    for number in range(300):
        lines.append(f"    if torch.gt(torch.sum(x), {number}):\n      y = torch.squeeze(y{number}, 0)\n    else:\n      y = y{number}")
        lines.append(f"    y{number + 1} = y")
    changed = rewritten(path, "\n".join([*lines, "    x = y300"]))
    assert all(layer.calls for layer in rc.load(changed).layers.values())


def test_a_program_of_another_form_is_not_joined(tmp_path: Path) -> None:
    _, path = of(tmp_path, "return self.b(self.a(x)[0])[0]", **LSTMS)
    with zipfile.ZipFile(path) as source:
        entries = {name: source.read(name) for name in source.namelist()}
    (graph,) = (name for name in entries if name.endswith("models/model.json"))
    for old, new in {b'"tensor_values"': b'"other_values"', b'"target": "torch.ops.aten.lstm.input"': b'"target": 3'}.items():
        assert old in entries[graph]
        with zipfile.ZipFile(tmp_path / "changed.pt2", "w") as target:
            for name, text in entries.items():
                target.writestr(name, text.replace(old, new) if name == graph else text)
        try:
            layers = rc.load(tmp_path / "changed.pt2").layers
        except rc.UnreadableError:
            continue
        with pytest.raises(ValueError, match="is not known"):
            rc.join_stack(list(layers.values()))
