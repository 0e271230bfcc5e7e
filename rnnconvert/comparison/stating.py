"""What one of two files says about a layer and the other does not, beyond its weights and its cell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rnnconvert.core.verdict import Kind, Limit
from rnnconvert.files.checkpoint import Checkpoint


def unshared(a: Checkpoint, own: Sequence[str], b: Checkpoint, names: Sequence[str]) -> Iterator[Limit]:
    """Yield what only one of two files states about a layer: a mask, a precision, states that the model passes.

    Files of one format say the same things of equal layers. Another format may have no word for what it does, too: there it
    is a remark, unless it is the precision.

    own, names  the layer's names in A and in B: several where its pieces are stored apart
    """
    ours, theirs = _stated(a, own), _stated(b, names)
    layer = "+".join(own)
    for label, texts, others in (("A", ours, theirs), ("B", theirs, ours)):
        for text in texts:
            if _unnamed(text) not in map(_unnamed, others):
                kind = _kind(text)
                if a.format != b.format and kind not in ("precision", "chosen"):
                    kind = "caller"
                yield Limit(kind, layer, f"only {label} states this: {text}")


def _stated(checkpoint: Checkpoint, names: Sequence[str]) -> list[str]:
    """Return what the reader of a file says about a layer; each room puts the layer's name before it."""
    starts = [f"{name}: " for name in names if name]
    found = [text.removeprefix(start) for text in checkpoint.warnings for start in starts if text.startswith(start)]
    return list(dict.fromkeys(found))


def _unnamed(text: str) -> str:
    """Return a statement without the names of values, which are each file's own."""
    return re.sub(r"'(?:[^'\\\\]|\\\\.)*'", "''", text)


def _kind(text: str) -> Kind:
    words = text.casefold()
    if "as asked" in words:
        return "chosen"
    if "computes in" in words:
        return "precision"
    return "mask" if "mask" in words else "stated"
