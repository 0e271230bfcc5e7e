"""The classes of cells that torch.nn lacks, as a written file has them: a loop over the steps."""

from __future__ import annotations

from rnnconvert.core.cells import Activation, Cell
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.pytorch.scaffold.functions import FUNCTIONS
from rnnconvert.scaffolding.steps import GATES, Language, settings, steps


def _call(function: Activation, x: str) -> str:
    """Return a function's value."""
    if function.name == "linear":
        return x if x.isidentifier() else f"({x})"
    if function.name == "hard_sigmoid" and function.alpha != 1 / 6:
        return f"({function.alpha!r} * ({x}) + {function.beta!r}).clamp(0, 1)"
    if function.name not in FUNCTIONS:
        raise RefusedError(f"the activation {function}", "PyTorch", "no line of PyTorch is known for it")
    return FUNCTIONS[function.name].format(x=x, alpha="" if function.alpha is None else f"{function.alpha:.9g}", axis=-1)


def _product(x: str, weight: str, bias: str) -> str:
    return f"nn.functional.linear({x}, {weight}{f', {bias}' if bias else ''})"


LANGUAGE = Language(
    _call,
    _product,
    lambda x, count: f"{x if x.isidentifier() or (x.endswith(')') and '+' not in x) else f'({x})'}.chunk({count}, dim=-1)",
    lambda weight, count: f"{weight}.chunk({count})",
    lambda x, low, high: f"torch.clamp({x}, {low!r}, {high!r})",
)
_PLAIN = '''class {name}(nn.Module):
    """{title}

    Called as torch.nn.{like} is with batch_first=True.
    """

    batch_first = True

    def __init__(self, input_size, hidden_size, bias=True):
        super().__init__()
        self.hidden_size = hidden_size
        self.rnnconvert_cell = {cell}
        self.input_weight = nn.Parameter(torch.zeros({gates} * hidden_size, input_size))
        self.recurrent_weight = nn.Parameter(torch.zeros({gates} * hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros({gates} * hidden_size)) if bias else None
{extra}
    def forward(self, x, state=None):
        {start}
        outputs = []
        for x_t in nn.functional.linear(x, self.input_weight, self.bias).unbind(1):
{step}
            outputs.append(h)
        return torch.stack(outputs, 1), {finals}
'''
_WHOLE_LOOP = '''class {name}(nn.Module):
    """{title}

    Called as torch.nn.{like} is with batch_first=True. Where mask (batch, time) is false, a step changes no state, and
    its output is the one before it, or zero.
    """

    batch_first = True

    def __init__(self, input_size, hidden_size, bias=True, bidirectional=False):
        super().__init__()
        self.hidden_size, self.bidirectional = hidden_size, bidirectional
        self.rnnconvert_cell = {cell}
        for end in ("", "_reverse")[: 1 + bidirectional]:
            shapes = {{"input_weight": ({gates} * hidden_size, input_size), "recurrent_weight": ({gates} * hidden_size, hidden_size)}}
            if bias:
                shapes |= {biases}
            for name, shape in shapes.items():
                self.register_parameter(name + end, nn.Parameter(torch.zeros(shape)))

    def forward(self, x, state=None, mask=None, zero=False):
        zeros = x.new_zeros(len(x), self.hidden_size)
        outputs, finals = [], []
        for number, end in enumerate(("", "_reverse")[: 1 + self.bidirectional]):
            weights = {{name: getattr(self, name + end, None) for name in ("input_weight", "recurrent_weight", {names})}}
            {start}
            output, steps = zeros, [None] * x.shape[1]
            products = nn.functional.linear(x, weights["input_weight"], weights["bias"])
            for t in reversed(range(x.shape[1])) if number else range(x.shape[1]):
                x_t, before = products[:, t], {states}
{step}
                if mask is None:
                    output = h
                else:
                    counts = mask[:, t, None]
                    output = torch.where(counts, h, zeros if zero else output)
                    {kept}
                steps[t] = output
            outputs.append(torch.stack(steps, 1))
            finals.append({states})
        return torch.cat(outputs, -1), {finals}
'''


def loop(name: str, cell: Cell, wishes: set[str]) -> str:
    """Return the class of a cell that torch.nn lacks.

    name    the class's
    cell    what it computes
    wishes  "both ways" for one that is called in two directions, "masked" for one that skips steps

    Raises RefusedError for a function that PyTorch lacks.
    """
    lstm, every_end = cell.kind == "lstm", bool(wishes)
    reset_after = cell.kind == "gru" and bool(cell.reset_after)
    weight = 'weights["{}"]' if every_end else "self.{}"
    title, lines = steps(cell, LANGUAGE, weight.format("recurrent_weight"), weight.format("recurrent_bias"), "torch.nn.GRU")
    gates = GATES[cell.kind]
    state_of = "state[{}][number]" if every_end else "state[{}][0]"
    start = (
        f"h, c = (zeros, zeros) if state is None else ({state_of.format(0)}, {state_of.format(1)})"
        if lstm
        else ("h = zeros if state is None else state[number]" if every_end else "h = zeros if state is None else state[0]")
    )
    extra = f"        self.recurrent_bias = nn.Parameter(torch.zeros({gates} * hidden_size)) if bias else None\n" if reset_after else ""
    biases = {"bias": f"({gates} * hidden_size,)", **({"recurrent_bias": f"({gates} * hidden_size,)"} if reset_after else {})}
    if not every_end:
        start = f"zeros = x.new_zeros(len(x), self.hidden_size)\n        {start}"
    finals = "(h.unsqueeze(0), c.unsqueeze(0))" if lstm else "h.unsqueeze(0)"
    if every_end:
        finals = "tuple(torch.stack(states) for states in zip(*finals, strict=True))" if lstm else "torch.stack(finals)"
    return (_WHOLE_LOOP if every_end else _PLAIN).format(
        name=name,
        title=title,
        like=cell.kind.upper(),
        gates=gates,
        extra=extra,
        start=start,
        finals=finals,
        states="(h, c)" if lstm else "h",
        cell=settings(cell, 8),
        step="\n".join(f"{' ' * (16 if every_end else 12)}{line}" for line in lines),
        biases="{" + ", ".join(f'"{key}": {value}' for key, value in biases.items()) + "}",
        names=", ".join(f'"{key}"' for key in biases),
        kept="h, c = (torch.where(counts, new, old) for new, old in zip((h, c), before, strict=True))"
        if lstm
        else "h = torch.where(counts, h, before)",
    )
