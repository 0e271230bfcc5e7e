"""Modules of torch drawn by a seed as files of Python: graphs around recurrent layers, with states in and out, and several outputs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers import random_torch

WIDTH = 6


class Graph:
    """A module being drawn: sequences (batch, time, width) and vectors (batch, width), by the names of their variables.

    first  whether the inputs have the batch in front
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.constructors: list[str] = []
        self.lines: list[str] = []
        self.sequences: list[tuple[str, int]] = []
        self.vectors: list[tuple[str, int]] = []
        self.inputs: list[tuple[str, str]] = []
        self.ends: list[str] = []
        self.shared: list[tuple[str, int, int]] = []
        self.first = self.choose(True, True, False)
        self._number = 0

    def choose(self, *choices: Any) -> Any:
        """Return one of several."""
        return self.random.choice(choices)

    def flip(self, chance: float) -> bool:
        """Return whether something happens."""
        return self.random.random() < chance

    def name(self, word: str) -> str:
        """Return a new name."""
        self._number += 1
        return f"{word}{self._number}"

    def part(self, constructor: str) -> str:
        """Add a submodule."""
        name = self.name(self.choose("layer", "block", "enc"))
        self.constructors.append(f"self.{name} = {constructor}")
        return f"self.{name}"

    def let(self, expression: str, width: int, word: str = "x") -> str:
        """Give a value a name, as a sequence, or as a vector "v"."""
        name = self.name(word)
        self.lines.append(f"{name} = {expression}")
        (self.vectors if word == "v" else self.sequences).append((name, width))
        return name

    def any(self) -> tuple[str, int]:
        """Return a sequence: more often one of the last."""
        return self.choose(*self.sequences[-4:])

    def like(self, width: int) -> str:
        """Return a sequence of a width."""
        name, has = self.any()
        return name if has == width else f"{self.part(f'nn.Linear({has}, {width})')}({name})"

    def vector(self, width: int) -> str:
        """Return an expression of a vector of a width."""
        fitting = [name for name, has in self.vectors if has == width]
        if fitting and self.flip(0.6):
            return str(self.choose(*fitting))
        if self.vectors and self.flip(0.7):
            name, has = self.choose(*self.vectors)
            return f"torch.tanh({self.part(f'nn.Linear({has}, {width})')}({name}))"
        name, has = self.any()
        return f"{self.part(f'nn.Linear({has}, {width})')}({name}.mean(1))"

    def states(self, directions: int, width: int) -> str:
        """Return an expression of an initial state: an input, zeros, or of vectors."""
        kind = self.random.randrange(4)
        if kind == 0:
            name = self.name("h")
            self.inputs.append((name, f"({directions}, batch, {width})"))
            return name
        if kind == 1:
            return f"torch.zeros({directions}, {self.sequences[0][0]}.size(0), {width})"
        if kind == 2:
            return f"torch.stack([{', '.join(self.vector(width) for _ in range(directions))}])"
        return f"{self.vector(width)}.unsqueeze(0).repeat({directions}, 1, 1)"

    # Layers

    def recurrent(self, width: int) -> tuple[str, str, int, int, int, bool]:
        """Return a layer: its part and kind, its sizes inside and outside, its directions in all layers, and whether the batch is first."""
        kind, size = self.choose("LSTM", "LSTM", "GRU", "RNN"), self.choose(2, 3, 4, 5)
        both, first, layers = self.flip(0.35), self.flip(0.6), self.choose(1, 1, 1, 2, 3)
        words = [f"{width}, {size}", f"num_layers={layers}", f"bidirectional={both}", f"batch_first={first}"]
        words += ["bias=False"] if self.flip(0.15) else []
        words += [f"nonlinearity='{self.choose('tanh', 'relu')}'"] if kind == "RNN" else []
        words += ["dropout=0.2"] if layers > 1 and self.flip(0.4) else []
        gives = size
        if kind == "LSTM" and size > 2 and self.flip(0.05):
            gives = size - 1
            words += [f"proj_size={gives}"]
        return self.part(f"nn.{kind}({', '.join(words)})"), kind, size, gives, layers * (1 + both), first

    def layer(self) -> None:
        """A recurrent layer, whose states are read or not."""
        x, width = self.any()
        part, kind, size, gives, ways, first = self.recurrent(width)
        both = "bidirectional=True" in self.constructors[-1]
        more = ""
        if self.flip(0.4):
            h = self.states(ways, gives)
            more = f", ({h}, {self.states(ways, size)})" if kind == "LSTM" else f", {h}"
        y, h, c = self.name("x"), self.name("h"), self.name("c")
        read = x if first else f"{x}.transpose(0, 1)"
        self.lines.append(f"{y}, {f'({h}, {c})' if kind == 'LSTM' else h} = {part}({read}{more})")
        if not first:
            self.lines.append(f"{y} = {y}.{self.choose('transpose(0, 1)', 'permute(1, 0, 2)')}")
        self.sequences.append((y, gives * (1 + both)))
        for state, has in ((h, gives), *([(c, size)] if kind == "LSTM" else [])):
            ending = self.random.randrange(8)
            if ending == 0:
                self.let(f"{state}[-1]", has, "v")
            elif ending == 1 and ways > 1:
                self.let(f"torch.cat([{state}[-2], {state}[-1]], dim=1)", 2 * has, "v")
            elif ending == 2:
                self.let(f"{state}.transpose(0, 1).reshape({x}.size(0), {ways * has})", ways * has, "v")
            elif ending == 3:
                self.ends.append(state)
            elif ending == 4:
                self.let(f"{state}.mean(0)", has, "v")
            elif ending == 5:
                self.let(f"{state}.permute(1, 0, 2).flatten(1)", ways * has, "v")

    def residual(self) -> None:
        x, width = self.any()
        for _ in range(self.choose(1, 1, 2)):
            kind, first = self.choose("LSTM", "GRU", "RNN"), self.flip(0.6)
            part = self.part(f"nn.{kind}({width}, {width}, batch_first={first})")
            y = f"{part}({x})[0]" if first else f"{part}({x}.transpose(0, 1))[0].transpose(0, 1)"
            x = self.let(self.choose(f"{x} + {y}", f"{y} + {x}", f"{x} + 0.5 * {y}", f"{x} * torch.sigmoid({y})"), width)

    def turned(self) -> None:
        x, width = self.any()
        kind = self.choose("LSTM", "GRU", "RNN")
        part = self.part(f"nn.{kind}({width}, 3, batch_first=True)")
        self.let(f"torch.flip({part}({x}.flip(1))[0], [1])", 3)

    def again(self) -> None:
        """A layer that was called before, or one that is called again later."""
        x, width = self.any()
        fitting = [each for each in self.shared if each[1] == width]
        if fitting:
            part, _, gives = self.choose(*fitting)
        else:
            gives = self.choose(3, 4)
            part = self.part(f"nn.{self.choose('LSTM', 'GRU')}({width}, {gives}, batch_first=True)")
            self.shared.append((part, width, gives))
        self.let(f"{part}({x})[0]", gives)

    def block(self) -> None:
        """A module with a recurrent layer in it, called once or twice."""
        x, width = self.any()
        part = self.part(f"Inner({width}, {self.choose(3, 4)}, nn.{self.choose('LSTM', 'GRU', 'RNN')})")
        y, v = self.name("x"), self.name("v")
        self.lines.append(f"{y}, {v} = {part}({x})")
        if self.flip(0.4):
            self.lines.append(f"{y}, {v} = {part}({y})")
        self.sequences.append((y, width))
        self.vectors.append((v, width))

    def linear(self) -> None:
        (x, width), size = self.any(), self.choose(3, 4, 6, 8)
        function = self.choose("torch.relu({})", "torch.sigmoid({})", "F.gelu({})", "F.leaky_relu({}, 0.2)", "{}", "F.silu({})")
        self.let(function.format(f"{self.part(f'nn.Linear({width}, {size})')}({x})"), size)

    def norm(self) -> None:
        x, width = self.any()
        if self.flip(0.7):
            self.let(f"{self.part(f'nn.LayerNorm({width})')}({x})", width)
        else:
            self.let(f"{self.part(f'nn.BatchNorm1d({width})')}({x}.transpose(1, 2)).transpose(1, 2)", width)

    def gate(self) -> None:
        (x, width), kind = self.any(), self.random.randrange(4)
        if kind == 0:
            self.let(f"{x} * torch.sigmoid({self.like(width)})", width)
        elif kind == 1:
            self.let(f"{x} * torch.sigmoid({self.vector(width)}).unsqueeze(1)", width)
        elif width % 2 == 0:
            a, b = self.name("a"), self.name("b")
            if kind == 2:
                self.lines.append(f"{a}, {b} = {self.choose(f'{x}.chunk(2, dim=-1)', f'torch.split({x}, {width // 2}, dim=2)')}")
                self.let(f"torch.tanh({a}) * torch.sigmoid({b})", width // 2)
            else:
                self.let(f"F.glu({x}, dim=-1)", width // 2)

    def joined(self) -> None:
        (x, width), (y, other) = self.any(), self.any()
        kind = self.random.randrange(6)
        if kind == 0:
            self.let(f"torch.cat([{x}, {y}], dim=-1)", width + other)
        elif kind == 1:
            self.let(f"torch.stack([{x}, {self.like(width)}], dim=0).mean(0)", width)
        elif kind == 2:
            self.let(f"torch.cat([{x}, {y}.flip(1)], dim=2)", width + other)
        elif kind == 3:
            self.let(f"torch.stack([{x}, {self.like(width)}], dim=-1).flatten(2)", 2 * width)
        elif kind == 4:
            v = self.vector(4)
            self.let(f"torch.cat([{x}, {v}.unsqueeze(1).expand(-1, {x}.size(1), -1)], dim=-1)", width + 4)
        else:
            self.let(f"torch.maximum({x}, {self.like(width)})", width)

    def attention(self) -> None:
        x, width = self.any()
        kind = self.random.randrange(3)
        if kind == 0:
            q, k = (self.part(f"nn.Linear({width}, {width})") for _ in range(2))
            self.let(f"F.scaled_dot_product_attention({q}({x}), {k}({x}), {x})", width)
        elif kind == 1:
            score = self.part(f"nn.Linear({width}, 1)")
            self.let(f"(torch.softmax({score}({x}), dim=1) * {x}).sum(1)", width, "v")
        else:
            a = self.name("a")
            v = self.vector(width)
            self.lines.append(f"{a} = torch.softmax(torch.bmm({x}, {v}.unsqueeze(2)), dim=1)")
            self.let(f"torch.bmm({a}.transpose(1, 2), {x}).squeeze(1)", width, "v")

    def conv(self) -> None:
        (x, width), kernel, dilation = self.any(), self.choose(1, 2, 3), self.choose(1, 1, 2)
        reach = dilation * (kernel - 1)
        kind, groups = self.random.randrange(4), self.choose(1, width)
        filters = self.choose(1, 2) * groups if groups > 1 else self.choose(3, 5)
        if kind == 0:  # causal
            part = self.part(f"nn.Conv1d({width}, {filters}, {kernel}, dilation={dilation}, groups={groups})")
            self.let(f"{part}(F.pad({x}.transpose(1, 2), ({reach}, 0))).transpose(1, 2)", filters)
            return
        if kind == 1:
            part = self.part(f"nn.Conv1d({width}, {filters}, 3, dilation={dilation}, padding={dilation}, groups={groups})")
            self.let(f"F.relu({part}({x}.transpose(1, 2)).transpose(1, 2))", filters)
            return
        if kind == 2:
            part = self.part(f"nn.Conv1d({width}, {filters}, {kernel}, stride={self.choose(1, 2)}, padding={self.choose(0, reach)}, "
                             f"dilation={dilation}, groups={groups})")  # fmt: skip
        else:
            part, filters = self.part(f"nn.{self.choose('Max', 'Avg')}Pool1d({kernel}, stride={self.choose(1, 2)})"), width
        y = self.name("y")
        self.lines.append(f"{y} = {part}({x}.transpose(1, 2)).transpose(1, 2)")
        self.short(y, filters)

    def short(self, y: str, width: int) -> None:
        """Let a sequence of another time end: in a vector, or as an output."""
        kind = self.choose("LSTM", "GRU")
        part = self.part(f"nn.{kind}({width}, 3, batch_first=True)")
        ending = self.random.randrange(4)
        if ending == 0:
            self.let(f"{part}({y})[0][:, -1]", 3, "v")
        elif ending == 1:
            self.let(f"{part}({y})[1]{'[0]' if kind == 'LSTM' else ''}.squeeze(0)", 3, "v")
        elif ending == 2:
            self.let(f"{part}({y})[0].max(1)[0]", 3, "v")
        else:
            self.ends.append(f"{part}({y})[0]")

    def cut(self) -> None:
        x, width = self.any()
        self.short(self.choose(f"{x}[:, 1:]", f"{x}[:, ::2]", f"{x}[:, :-1]", f"torch.cat([{x}, {x}], dim=1)"), width)

    def step(self) -> None:
        x, width = self.any()
        self.let(self.choose(f"{x}[:, -1]", f"{x}[:, -1, :]", f"{x}[:, 0]", f"{x}.select(1, -1)", f"{x}.mean(1)"), width, "v")

    def decoder(self) -> None:
        v, kind = self.vector(4), self.choose("LSTM", "GRU")
        part, y = self.part(f"nn.{kind}(4, 3, batch_first=True)"), self.name("y")
        state = f"{self.vector(3)}.unsqueeze(0)"
        more = self.choose("", f", ({state}, {state})" if kind == "LSTM" else f", {state}")
        self.lines.append(f"{y} = {part}({v}.unsqueeze(1).repeat(1, {self.choose(1, 3, 5)}, 1){more})[0]")
        self.ends.append(f"{self.part('nn.Linear(3, 2)')}({y})")


_KNOTS = ("layer",) * 6 + ("residual",) * 3 + ("turned", "again", "again", "block", "linear", "norm", "gate", "gate", "joined", "joined",
          "joined", "attention", "conv", "conv", "conv", "cut", "step", "decoder")  # fmt: skip
_INNER = """class Inner(nn.Module):
    def __init__(self, width: int, size: int, kind):
        super().__init__()
        self.rnn = kind(width, size, batch_first=True)
        self.back = nn.Linear(size, width)

    def forward(self, x):
        y = self.back(self.rnn(x)[0])
        return x + y, y[:, -1]
"""


def text(seed: int) -> tuple[str, list[tuple[str, str]]]:
    """Return the file of a random module, and the names and shapes of its inputs."""
    g = Graph(seed)
    shape = "(batch, time, 6)" if g.first else "(time, batch, 6)"
    for _ in range(g.choose(1, 1, 1, 2)):
        if g.flip(0.2):
            name = g.name("tokens")
            g.inputs.append((name, "(batch, time)"))
            g.let(f"{g.part('nn.Embedding(11, 6)')}({name})", WIDTH)
        else:
            name = g.name("x")
            g.inputs.append((name, shape))
            g.let(name if g.first else f"{name}.transpose(0, 1)", WIDTH)
    if len(g.sequences) > 1:
        read = [f"{g.part('nn.Linear(6, 4)')}({name})" for name, _ in g.sequences]  # a script states no sizes: weights do
        g.let(f"torch.cat([{', '.join(read)}], dim=-1)", 4 * len(read))
        del g.sequences[:-1]
    for _ in range(g.choose(1, 2, 3, 4, 5, 6)):
        getattr(g, g.choose(*_KNOTS))()
    if not any(kind in line for line in g.constructors for kind in ("LSTM", "GRU", "RNN")):
        g.layer()
    if g.flip(0.7) or not (g.ends or g.vectors):
        x, width = g.sequences[-1]
        y = f"{g.part(f'nn.Linear({width}, 2)')}({x})"
        g.ends.append(y if g.first else f"{y}.transpose(0, 1)")
    g.ends += [f"{g.part(f'nn.Linear({has}, 2)')}({name})" if g.flip(0.5) else name
               for name, has in g.random.sample(g.vectors, min(2, len(g.vectors)))]  # fmt: skip
    statements = [f"        {line}" for line in g.constructors]
    body = [_INNER, "", "class Drawn(nn.Module):", "    def __init__(self) -> None:", "        super().__init__()", *statements,
            "", f"    def forward(self, {', '.join(name for name, _ in g.inputs)}):", *(f"        {line}" for line in g.lines),
            f"        return {', '.join(g.ends)}"]  # fmt: skip
    return "\n".join(["import torch", "import torch.nn.functional as F", "from torch import nn", "", "", *body, ""]), g.inputs


def module(seed: int, folder: Path) -> tuple[Any, list[tuple[str, str]]]:
    """Return a random module, and the names and shapes of its inputs."""
    source, inputs = text(seed)
    return random_torch.drawn_module(folder / f"graph_{seed}.py", source, seed), inputs


def call(inputs: list[tuple[str, str]], random: Any, batch: int, time: int) -> list[Any]:
    """Return inputs of one size."""
    sizes = [tuple({"batch": batch, "time": time}.get(word) or int(word) for word in shape[1:-1].split(", ")) for _, shape in inputs]
    return [random.integers(0, 11, size) if name.startswith("tokens") else random.normal(size=size).astype(np.float32)
            for (name, _), size in zip(inputs, sizes, strict=True)]  # fmt: skip
