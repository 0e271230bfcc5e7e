"""LSTMs whose products are convolutions as PyTorch, which has none: a class with a loop over the steps."""

from __future__ import annotations

import functools
from dataclasses import replace

from rnnconvert.core.cells import Cell
from rnnconvert.formats.pytorch.scaffold.loops import LANGUAGE
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.spelling import sizes
from rnnconvert.scaffolding.steps import class_of, steps
from rnnconvert.scaffolding.windows import same
from rnnconvert.scaffolding.writer import Module

_CLASS = '''class {name}(nn.Module):
    """{title}

    Its products are convolutions: it reads (batch, time, channels, *space), and gives its outputs, and its last states h and c.
    """

    def __init__(self, channels, filters, kernel, stride=1, padding=0, dilation=1, bias=True):
        super().__init__()
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.around = [n for size in reversed(kernel) for n in ((size - 1) // 2, size // 2)]  # of the states, which keep their size
        self.rnnconvert_cell = {{"kind": "conv_lstm"}}
        self.input_weight = nn.Parameter(torch.zeros(4 * filters, channels, *kernel))
        self.recurrent_weight = nn.Parameter(torch.zeros(4 * filters, filters, *kernel))
        self.bias = nn.Parameter(torch.zeros(4 * filters)) if bias else None

    def forward(self, x, state=None):
        steps = F.conv{rank}d(x.flatten(0, 1), self.input_weight, self.bias, self.stride, self.padding, self.dilation)
        steps = steps.unflatten(0, x.shape[:2])
        zeros = torch.zeros_like(steps[:, 0].chunk(4, dim=1)[0])
        h, c = (zeros, zeros) if state is None else state
        outputs = []
        for x_t in steps.unbind(1):
{step}
            outputs.append(h)
        return torch.stack(outputs, 1), (h, c)
'''


def _loop(rank: int, name: str, cell: Cell, wishes: set[str]) -> str:
    """Return the class of an LSTM whose products are convolutions over some axes of space."""
    language = replace(
        LANGUAGE,
        product=lambda h, weight, _: f"F.conv{rank}d(F.pad({h}, self.around), {weight})",
        split=lambda x, count: f"({x}).chunk({count}, dim=1)",
    )
    title, lines = steps(cell, language, "self.recurrent_weight", "", "")
    return _CLASS.format(name=name, title=title, rank=rank, step="\n".join(f"{' ' * 12}{line}" for line in lines))


def conv_lstm(m: Module, node: Node[kinds.ConvLSTM]) -> str:
    """Write the lines of an LSTM whose products are convolutions."""
    rank, strides, reach = node.kind.rank, node.kind.strides, node.kind.reach
    words = [f"{node.kind.channels}, {node.kind.filters}, {tuple(node.kind.kernel)}"]
    words += [f"{key}={sizes(values)}" for key, values in (("stride", strides), ("dilation", node.kind.dilation)) if max(values) > 1]
    x = f"{m(node.x)}.movedim(-1, 2){'.flip(1)' if node.kind.backwards else ''}"
    pads = node.kind.pads or tuple(map(same, reach, strides, (n or 0 for n in node.x.shape[2:-1])))
    if all(low == high for low, high in pads):
        words += [f"padding={sizes([low for low, _ in pads])}"] if any(map(any, pads)) else []
    else:
        x = f"F.pad({x}, ({', '.join(str(n) for pair in pads[::-1] for n in pair)}))"
    words += [] if node.kind.bias else ["bias=False"]
    word = class_of(m.file, node.kind.cell, functools.partial(_loop, rank), kind=f"ConvLSTM{rank}d")
    part = m.part(node.layer, f"{word}({', '.join(words)})")
    states = [f"{m(value)}.movedim(-1, 1)" for value in node.named.get("states", ())]
    if node.kind.stateful and states:
        raise m.refused(node, "initial states of a stateful layer", "it keeps those of the last call")
    keeps = m.state(node.layer) if node.kind.stateful else ""
    state = keeps or (f"({', '.join(states)})" if states else "")
    out, *finals = node.outputs
    wants = not node.kind.sequences or any(m.used(value) for value in finals)
    m.release(node)
    name = m.new(out) if node.kind.sequences else "_"
    m.line(f"{name}, {keeps or ('(h, c)' if wants else '_')} = {part}({', '.join(filter(None, (x, state)))})")
    if keeps and wants:
        m.line(f"h, c = {keeps}")
    m.line(f"{name} = {name}.movedim(2, -1)" if node.kind.sequences else f"{m.new(out)} = h.movedim(1, -1)", out.shape)
    for word, value in zip("hc", finals, strict=False):
        if m.used(value):
            m.line(f"{m.new(value, f'{m.stem(node)}_{word}')} = {word}.movedim(1, -1)", value.shape)
    return ""
