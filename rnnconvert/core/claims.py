"""The words for what a result shows, in one place: each is chosen by the evidence for it. Only a Verdict says "equal"."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

ROUNDED = "so that its outputs are not exactly those of this layer"
"""What a reader says of weights that stand for integers: the kernel of their own runtime rounds more than the weights."""
DYNAMIC = "its source rounds what it multiplies by matrices of integers to 8 bits as it runs, and this does not"
"""Note on a model that is written in floats for one that dynamic quantization made."""


def proved(errors: Collection[float], what: str = "", where: str = "") -> str:
    """Return the sentence that claims a proof: outputs were compared, and agree.

    errors  how far each of them is off
    what    what they prove, in words; where: the inputs or the program, in words

    Raises ValueError without a number: what was not compared is not proved.
    """
    if not errors or not all(math.isfinite(error) for error in errors):
        raise ValueError("nothing was compared that would prove it")
    claim = f"proved{f' {where}' if where else ''}"
    return f"{claim}{f': {what}' if what else ''}, off by {max(errors):.2g} at most"


def exactness(exact: Iterable[bool]) -> str:
    """Return how what was written keeps the source's numbers, by whether each step rounded nothing."""
    return "bit-exact" if all(exact) else "exact up to rounding"


def filled(target: str, source: str, weights: Collection[object]) -> str:
    """Return the statement that a target was filled from a source, or that nothing was filled, by the weights or layers that were."""
    return f"{'filled' if weights else 'nothing filled in'} {target} from {source}"
