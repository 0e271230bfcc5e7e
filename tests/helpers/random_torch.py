"""Random modules of torch as files of Python, so that they can be scripted, traced and exported: layers of models with recurrent ones."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any


class Draw:
    """A module being drawn: lines of its constructor and of forward, and the shape of x there, (batch, time, width) or (batch, width)."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.constructors: list[str] = []
        self.lines: list[str] = []
        self.width = 0
        self.sequence = True
        self.embeds = False
        self.shortened = False
        self._number = 0

    def part(self, constructor: str) -> str:
        """Add a submodule."""
        self._number += 1
        name = f"{self.random.choice(['layer', 'block', 'enc'])}{self._number}"
        self.constructors.append(f"self.{name} = {constructor}")
        return f"self.{name}"

    def choose(self, *choices: Any) -> Any:
        """Return one of several."""
        return self.random.choice(choices)

    # Layers over sequences

    def recurrent(self) -> None:
        kind, size = self.choose("LSTM", "GRU", "RNN"), self.choose(3, 4, 5)
        both, first, layers = self.choose(True, False), self.choose(True, False), self.choose(1, 1, 2)
        words = [f"{self.width}, {size}", f"num_layers={layers}", f"bidirectional={both}", f"batch_first={first}"]
        words += [f"bias={self.choose(True, True, False)}"]
        words += [f"nonlinearity='{self.choose('tanh', 'relu')}'"] if kind == "RNN" else []
        part = self.part(f"nn.{kind}({', '.join(words)})")
        x = "x" if first else "x.transpose(0, 1)"
        ends = self.choose("steps", "steps", "last state", "both states", "last step", "given state")
        state = "_" if ends not in ("last state", "both states") else "(h, c)" if kind == "LSTM" else "h"
        more = ""
        if ends == "given state":
            zeros = f"x.mean(1)[:, :1].expand(-1, {size}).unsqueeze(0).expand({layers * (1 + both)}, -1, -1)"
            self.lines.append(f"s = {zeros}.contiguous()")
            more = ", (s, s)" if kind == "LSTM" else ", s"
        self.lines.append(
            f"x, {state} = {part}({x}{more})" if ends in ("steps", "last step", "given state") else f"_, {state} = {part}({x})"
        )
        self.width = size * (1 + both)
        if ends in ("steps", "given state"):
            self.lines += [] if first else ["x = x.transpose(0, 1)"]
            return
        self.sequence = False
        if ends == "last step":
            self.lines.append("x = x[:, -1]" if first else "x = x[-1]")
        elif ends == "last state":
            self.lines.append(f"x = {self.choose('c', 'h') if kind == 'LSTM' else 'h'}[-1]")
            self.width = size
        elif both:
            self.lines.append("x = torch.cat([h[-2], h[-1]], dim=-1)")
        else:
            self.lines.append("x = h[-1]")

    def conv(self) -> None:
        filters, kernel = self.choose(4, 6), self.choose(1, 3, 5)
        dilation, stride = self.choose(1, 1, 2), self.choose(1, 1, 2)
        padding, groups = self.choose(dilation * (kernel - 1) // 2, dilation * (kernel // 2) + 1), self.choose(1, 2)
        groups = groups if self.width % 2 == 0 else 1
        part = self.part(
            f"nn.Conv1d({self.width}, {filters}, {kernel}, stride={stride}, padding={padding}, dilation={dilation}, groups={groups}, "
            f"bias={self.choose(True, False)})"
        )
        self.width, self.shortened = filters, True
        self.lines.append(f"x = {self.choose('F.relu', 'torch.tanh')}({part}(x.transpose(1, 2))).transpose(1, 2)")

    def pool(self) -> None:
        kernel = self.choose(2, 3)
        padding = self.choose(0, 1)
        kind = self.choose("Max", "Avg")
        ceil = kind == "Max" and padding == 0 and self.choose(True, False)
        counted = f", count_include_pad={self.choose(True, False)}" if kind == "Avg" else ""
        part = self.part(f"nn.{kind}Pool1d({kernel}, stride={self.choose(1, 2)}, padding={padding}, ceil_mode={ceil}{counted})")
        self.shortened = True
        self.lines.append(f"x = {part}(x.transpose(1, 2)).transpose(1, 2)")

    def linear(self) -> None:
        size = self.choose(3, 4, 6, 8)
        part = self.part(f"nn.Linear({self.width}, {size}, bias={self.choose(True, True, False)})")
        self.width = size
        function = self.choose(
            "torch.relu({})", "torch.sigmoid({})", "F.gelu({})", "F.leaky_relu({}, 0.2)", "F.elu({})", "{}",
                               "torch.softmax({}, dim=-1)", "F.hardsigmoid({})", "F.silu({})", "F.softplus({})",
            "torch.clamp({}, -0.5, 1.5)",
        )  # fmt: skip
        self.lines.append(f"x = {function.format(f'{part}(x)')}")

    def norm(self) -> None:
        kind = self.choose("layer", "batch", "group") if self.sequence else self.choose("layer", "batch")
        eps = self.choose("1e-5", "1e-3", "0.02")
        if kind == "layer":
            self.lines.append(f"x = {self.part(f'nn.LayerNorm({self.width}, eps={eps})')}(x)")
            return
        groups = 2 if self.width % 2 == 0 else 1
        constructor = f"nn.BatchNorm1d({self.width}, eps={eps})" if kind == "batch" else f"nn.GroupNorm({groups}, {self.width}, eps={eps})"
        x = f"{self.part(constructor)}({{}})"
        self.lines.append("x = " + (x.format("x.transpose(1, 2)") + ".transpose(1, 2)" if self.sequence else x.format("x")))

    def gate(self) -> None:
        if self.width % 2:
            return
        self.width //= 2
        self.lines += ["a, b = x.chunk(2, dim=-1)", f"x = a * torch.sigmoid({self.choose('b', 'b * 0.5 + 0.25')})"]

    def residual(self) -> None:
        self.lines.append(f"x = x + {self.part(f'nn.Linear({self.width}, {self.width})')}(torch.tanh(x))")

    def scale(self) -> None:
        self.constructors.append(f"self.scale{self._number} = nn.Parameter(torch.ones({self.width}))")
        self.lines.append(f"x = x * self.scale{self._number} {self.choose('+', '-')} {self.choose('0.5', '1.25')}")
        self._number += 1

    def attention(self) -> None:
        q, k = (self.part(f"nn.Linear({self.width}, {self.width})") for _ in range(2))
        self.lines += [f"a = torch.matmul({q}(x), {k}(x).transpose(1, 2)) / {float(self.width) ** 0.5!r}",
                       "x = torch.matmul(torch.softmax(a, dim=-1), x)"]  # fmt: skip

    def heads(self) -> None:
        if self.width % 2:
            return
        half = self.width // 2
        self.lines += [f"y = x.view(x.shape[0], x.shape[1], 2, {half}).transpose(1, 2)",
                       "a = torch.softmax(torch.matmul(y, y.transpose(2, 3)), dim=-1)",
                       f"x = torch.matmul(a, y).transpose(1, 2).reshape(x.shape[0], x.shape[1], {self.width})"]  # fmt: skip

    def both_ways(self) -> None:
        self.width *= 2
        self.lines.append("x = torch.cat([x, x.flip(1)], dim=-1)")

    def pad(self) -> None:
        self.lines.append(f"x = F.pad(x, (0, 0, {self.choose(0, 2)}, {self.choose(1, 2)}))")

    def joined(self) -> None:
        self.lines.append(self.choose("x = x.mean(1)", "x = x.max(1)[0]", "x = x[:, -1]", "x = x[:, 0, :]", "x = x.sum(dim=1)"))
        self.sequence = False

    def spread(self) -> None:
        self.lines.append("x = x - x.mean(-1, keepdim=True)")

    def prelu(self) -> None:
        self.lines.append(f"x = {self.part('nn.PReLU()')}(x)")


_SEQUENCES = ("recurrent", "recurrent", "recurrent", "conv", "pool", "linear", "norm", "gate", "residual", "scale", "attention", "heads",
              "both_ways", "pad", "spread", "prelu", "joined")  # fmt: skip
_VECTORS = ("linear", "linear", "norm", "gate", "residual", "scale", "spread", "prelu")


def text(seed: int) -> tuple[str, bool]:
    """Return the file of a random module, and whether it reads tokens from 0 to 10; else (batch, time, 6)."""
    draw = Draw(seed)
    draw.embeds = draw.choose(True, False)
    if draw.embeds:
        draw.width = draw.choose(4, 6)
        draw.lines.append(f"x = {draw.part(f'nn.Embedding(11, {draw.width})')}(x)")
    else:
        draw.width = 6
    for _ in range(draw.choose(3, 4, 5, 6)):
        getattr(draw, draw.choose(*(_SEQUENCES if draw.sequence else _VECTORS)))()
    if not any("LSTM" in line or "GRU" in line or "RNN" in line for line in draw.constructors) and draw.sequence:
        draw.recurrent()
    draw.linear()
    statements = [f"        {line}" for line in draw.constructors]
    body = ["class Drawn(nn.Module):", "    def __init__(self) -> None:", "        super().__init__()", *statements,
            "", "    def forward(self, x):", *(f"        {line}" for line in draw.lines), "        return x"]  # fmt: skip
    return "\n".join(["import torch", "import torch.nn.functional as F", "from torch import nn", "", "", *body, ""]), draw.embeds


def imported(path: Path, source: str) -> Any:
    """Return what a file of Python with a text defines: torch scripts classes of files alone."""
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def drawn_module(path: Path, source: str, seed: int) -> Any:
    """Return the module Drawn of a text in evaluation, whose weights and statistics are random."""
    import torch

    loaded = imported(path, source)
    torch.manual_seed(seed)
    drawn = loaded.Drawn().eval()
    with torch.no_grad():
        for name, tensor in (*drawn.named_parameters(), *drawn.named_buffers()):
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 1.5)
            elif tensor.is_floating_point():
                tensor.uniform_(-0.6, 0.6)
    return drawn


def module(seed: int, folder: Path) -> tuple[Any, bool]:
    """Return a random module, and whether it reads tokens."""
    source, embeds = text(seed)
    return drawn_module(folder / f"drawn_{seed}.py", source, seed), embeds


def inputs(embeds: bool, batch: int, time: int) -> Any:
    """Return inputs of one size."""
    import torch

    generator = torch.Generator().manual_seed(batch + 31 * time)
    if embeds:
        return torch.randint(0, 11, (batch, time), generator=generator)
    return torch.randn(batch, time, 6, generator=generator)
