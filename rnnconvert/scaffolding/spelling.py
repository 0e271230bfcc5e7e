"""Numbers, axes and slices as they are written in Python."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node

_WORD = re.compile(r"[a-z][a-z_]{0,19}")


def number(value: float) -> str:
    """Return a number as Python writes it: short if that is exact."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return f'float("{value}")'
    return f"{value:g}" if float(f"{value:g}") == value else repr(value)


def last(axis: int, rank: int) -> int:
    """Return an axis, -1 for the last one."""
    return -1 if axis == rank - 1 else axis


def sizes(values: Sequence[int]) -> str:
    """Return sizes as layers take them: one number where they are alike."""
    return str(values[0]) if len(set(values)) == 1 else str(tuple(values))


def letters(node: Node[kinds.Dot]) -> str:
    """Return the equation of a dot node, as einsum takes it."""
    rows = []
    for value, axis, free in zip(node.inputs, node.kind.axes, "ij", strict=True):
        rows.append("".join("b" if n == 0 else "k" if n == axis else free for n in range(len(value.shape))))
    return f"{rows[0]},{rows[1]}->b" + "".join(letter for row in rows for letter in row if letter in "ij")


def spans(pairs: Sequence[tuple[int, int]]) -> str:
    """Return slices of axes without some places at both ends of each."""
    return ", ".join(f"{low or ''}:{-high if high else ''}" for low, high in pairs)


def place(node: Node[kinds.Select | kinds.Slice]) -> str:
    """Return the subscript of a select or a slice node."""
    if isinstance(node.kind, kinds.Select):
        inside = str(node.kind.index)
    else:
        by = "" if node.kind.step == 1 else f":{node.kind.step}"
        inside = f"{'' if node.kind.start is None else node.kind.start}:{'' if node.kind.end is None else node.kind.end}{by}"
    return f"[{':, ' * node.kind.axis}{inside}]"


def axes(shape: Sequence[int | None], named: Sequence[str] = ()) -> str:
    """Return the axes of a tensor, as a comment.

    named  words for the open ones, where the source has them; "" for one without
    """
    open_axes = ("batch", "time") if len(shape) > 1 else ("batch",)
    default = [open_axes[n] if n < len(open_axes) and not any(named) else "n" for n in range(len(shape))]
    fitting = [word if _WORD.fullmatch(word) else "" for word in (*named, *[""] * (len(shape) - len(named)))]
    words = [str(size) if size is not None else fitting[n] or default[n] for n, size in enumerate(shape)]
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"
