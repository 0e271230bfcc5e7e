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
