# mypy: allow-untyped-defs
"""Modules of torch around two LSTMs a and b, or a cell; TorchScript compiles them, and takes an argument for a tensor only
where it states no type.
"""

from typing import Any

import torch
from torch import nn


class Two(nn.Module):
    """Two layers of a class of torch.nn; what calls them is said by its subclasses."""

    def __init__(self, kind: str = "LSTM", batch_first: bool = True) -> None:
        super().__init__()
        self.a = getattr(nn, kind)(3, 4, batch_first=batch_first)
        self.b = getattr(nn, kind)(4, 4, batch_first=batch_first)


class Straight(Two):
    """The second layer reads what the first gives."""

    def forward(self, x):
        return self.b(self.a(x)[0])[0]


class Negated(Two):
    """Operators that compute stand between."""

    def forward(self, x):
        return self.b(-torch.relu(self.a(x)[0]))[0]


class Flipped(Two):
    """The second layer reads from the end."""

    def forward(self, x):
        return self.b(self.a(x)[0].flip(1))[0]


class Shortened(Two):
    """The first step is left out."""

    def forward(self, x):
        return self.b(self.a(x)[0][:, 1:])[0]


class Halved(Two):
    """What the first layer gives is rounded."""

    def forward(self, x):
        return self.b(self.a(x)[0].half().float())[0]


class Dropped(Two):
    """A dropout that is on."""

    def forward(self, x):
        return self.b(torch.dropout(self.a(x)[0], 0.5, True))[0]


class Again(Two):
    """The second layer is called twice."""

    def forward(self, x):
        return self.b(self.b(self.a(x)[0])[0])[0]


class Handed(Two):
    """The second layer starts where the first ended."""

    def forward(self, x):
        y, states = self.a(x)
        return self.b(y, states)[0]


class Packed(Two):
    """The first layer alone reads sequences of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("lengths", torch.tensor([3, 2, 2, 1, 1]))

    def forward(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, self.lengths, batch_first=True)
        return self.b(nn.utils.rnn.pad_packed_sequence(self.a(packed)[0], batch_first=True)[0])[0]


class Loop(nn.Module):
    """A cell in a loop over the steps, in some order, whose states are kept, or multiplied by a factor."""

    def __init__(self, factor: Any, order: Any) -> None:
        super().__init__()
        self.a, self.factor, self.order = nn.LSTMCell(3, 4), factor, order

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], 4)
        outputs = []
        for step in self.order:
            h, c = self.a(x[:, step], (h if self.factor == 1 else h * self.factor, c))
            outputs.append(h)
        return torch.stack(outputs, 1)


class Learned(nn.Module):
    """A layer whose initial states are parameters of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.LSTM(3, 4, batch_first=True)
        self.h, self.c = (nn.Parameter(torch.ones(1, 2, 4)) for _ in range(2))

    def forward(self, x):
        return self.a(x, (self.h, self.c))[0]
