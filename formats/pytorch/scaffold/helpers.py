"""What a written file defines for itself where torch.nn has no layer for it: text, as it stands there."""

from __future__ import annotations

TEXTS = {
    "pad_same": '''def pad_same(x, kernel, strides, value=0.0):
    """Pad (batch, channels, *space) so that every stride begins a window; of an odd number of places the last is at the end."""
    pads = []
    for size, window, step in zip(x.shape[:1:-1], kernel[::-1], strides[::-1]):
        total = max((-(-size // step) - 1) * step + window - size, 0)
        pads += [total // 2, total - total // 2]
    return F.pad(x, pads, value=value)
''',
    "masked": '''def masked(layer, x, mask, state=None, zero=False):
    """Run a recurrent layer over the steps that count, those where mask (batch, time) is true.

    A step that does not count changes no state, wherever it stands; its output is the one before it, or zero.
    """
    order = torch.argsort((~mask).int(), dim=1, stable=True)  # the steps that count, in front
    counts = mask.sum(1)
    front = torch.take_along_dim(x, order.unsqueeze(-1), 1)
    packed = pack_padded_sequence(front, counts.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
    outputs, finals = layer(packed, state)
    outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
    place = mask.cumsum(1) - 1  # the last step that counts, up to each
    outputs = torch.take_along_dim(outputs, place.clamp(min=0).unsqueeze(-1), 1)
    outputs = outputs.masked_fill(~(mask if zero else place >= 0).unsqueeze(-1), 0.0)
    empty = (counts == 0).unsqueeze(-1)
    several = isinstance(finals, tuple)
    ends = finals if several else (finals,)
    starts = [torch.zeros_like(end) for end in ends] if state is None else state if several else (state,)
    ends = tuple(torch.where(empty, start, end) for start, end in zip(starts, ends))
    return outputs, ends if several else ends[0]
''',
}
"""By their names: the functions of PyTorch's own layers under masks and padding."""

_LOOP = '''class {name}(nn.Module):
    """{title}

    Called as torch.nn.{like} with batch_first=True; where mask (batch, time) is false a step changes no state, and its output is the
    one before it, or zero.
    """

    batch_first = True
    rnnconvert_cell = {cell}

    def __init__(self, input_size, hidden_size, bias=True, bidirectional=False):
        super().__init__()
        self.hidden_size, self.bidirectional = hidden_size, bidirectional
        for end in ("", "_reverse")[: 1 + bidirectional]:
            setattr(self, "input_weight" + end, nn.Parameter(torch.zeros({gates} * hidden_size, input_size)))
            setattr(self, "recurrent_weight" + end, nn.Parameter(torch.zeros({gates} * hidden_size, hidden_size)))
            setattr(self, "bias" + end, nn.Parameter(torch.zeros({gates} * hidden_size)) if bias else None)
{extra_bias}
    def step(self, x, h{c}, end):
        """Return the next state, from the input's product x (batch, {gates} * hidden)."""
{step}

    def forward(self, x, state=None, mask=None, zero=False):
        outputs, finals = [], []
        for number, end in enumerate(("", "_reverse")[: 1 + self.bidirectional]):
            zeros = x.new_zeros(len(x), self.hidden_size)
{start}
            products = nn.functional.linear(x, getattr(self, "input_weight" + end), getattr(self, "bias" + end))
            steps, before = [None] * x.shape[1], zeros
            for t in reversed(range(x.shape[1])) if number else range(x.shape[1]):
                {new} = self.step(products[:, t], {old}, end)
                if mask is not None:
                    counts = mask[:, t, None]
                    before = torch.where(counts, new_h, zeros if zero else before)
                    {kept}
                else:
                    before = new_h
                {taken}
                steps[t] = before
            outputs.append(torch.stack(steps, 1))
            finals.append({final})
        {result}
'''


def loop(name: str, kind: str, cell: str, title: str, step: list[str], like: str, two_biases: bool) -> str:
    """Return the class of a cell that torch.nn lacks, as a loop over the steps."""
    lstm = kind == "lstm"
    extra = (
        '            setattr(self, "recurrent_bias" + end, nn.Parameter(torch.zeros({} * hidden_size)) if bias else None)\n'.format(
            {"rnn": 1, "gru": 3, "lstm": 4}[kind]
        )
        if two_biases
        else ""
    )
    return _LOOP.format(
        name=name, title=title, like=like, cell=cell, gates={"rnn": 1, "gru": 3, "lstm": 4}[kind], c=", c" if lstm else "",
        step="\n".join(f"        {line}" for line in step), extra_bias=extra,
        start="            h, c = (zeros, zeros) if state is None else (state[0][number], state[1][number])" if lstm
        else "            h = zeros if state is None else state[number]",
        new="new_h, new_c" if lstm else "new_h", old="h, c" if lstm else "h",
        kept="new_h, new_c = torch.where(counts, new_h, h), torch.where(counts, new_c, c)" if lstm else "new_h = torch.where(counts, new_h, h)",
        taken="h, c = new_h, new_c" if lstm else "h = new_h", final="(h, c)" if lstm else "h",
        result="return torch.cat(outputs, -1), tuple(torch.stack(states) for states in zip(*finals))" if lstm
        else "return torch.cat(outputs, -1), torch.stack(finals)",
    )  # fmt: skip
