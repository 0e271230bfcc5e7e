"""Whether all numbers that pass are finite."""

from __future__ import annotations

import threading

import numpy as np

from rnnconvert.core.arrays import FLOATS, Array
from rnnconvert.files.summary import Progress


class FiniteWatch:
    """Sees every piece that is written: counts, and notices what is not finite.

    Several threads may call it; it calls `progress` only in the one that made it.
    """

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.total, self.done, self.finite = total, 0, True
        self._progress, self._announced = progress, 0
        self._lock, self._thread = threading.Lock(), threading.get_ident()

    def __call__(self, piece: Array) -> None:
        finite = not self.finite or not piece.size or _finite(piece)
        with self._lock:
            self.finite = self.finite and finite
            self.done += piece.nbytes
        if threading.get_ident() == self._thread:
            self.report_progress()

    def report_progress(self) -> None:
        """Call `progress`, unless it knows already."""
        if self._progress is not None and self._announced != self.done:
            self._announced = self.done
            self._progress(self.done, self.total)


def _finite(piece: Array) -> bool:
    """Return whether every value is finite."""
    exponent = _EXPONENTS.get(piece.dtype)
    if exponent is None:  # a sum of numbers that are not all finite is not finite; one of large numbers may not be, either
        with np.errstate(all="ignore"):
            return bool(np.isfinite(np.einsum("i->", piece)) or np.isfinite(piece).all())
    return bool((piece.view(np.uint16) & exponent).max() < exponent)


# The bits that are all set in what is not finite: numpy's own look at two bytes is ten to thirty times slower than this.
_EXPONENTS = {FLOATS["float16"]: np.uint16(0x7C00), FLOATS["bfloat16"]: np.uint16(0x7F80)}
