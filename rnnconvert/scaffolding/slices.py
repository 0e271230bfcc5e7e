"""The bounds of slices, among lengths that a run may decide."""

from __future__ import annotations

from rnnconvert.graphs.sizes import Dim, Size, open_size, reaches

FAR = (1 << 31) - 1
"""From here on a bound is the end of its axis, however long that is."""


def is_last(start: Dim, length: Dim) -> bool:
    return start == -1 or start == length - 1 or (isinstance(start, int) and start >= FAR)


def is_before(end: int, length: Dim) -> bool:
    return end <= -FAR or (isinstance(length, int) and end < -length)


def bound(bound: Dim, length: Dim) -> Dim:
    """Return a bound counted from the front."""
    if isinstance(bound, Size):
        return bound
    if isinstance(length, int):
        return min(max(bound + length, 0) if bound < 0 else bound, length)
    return length if bound >= FAR else 0 if bound <= -FAR else length + bound if bound < 0 else bound


def step_count(length: Dim, first: Dim, last: Dim, step: int) -> Dim:
    """Return how many steps of an axis a slice has, where a run decides the length of one of them."""
    count = (last - first + (step - 1)) // step
    inside = reaches(first, 0) and reaches(last - first, 0) and reaches(length - last, 0)
    # The axis may end before, or a bound be counted from its end: then only the result itself shows how long it is.
    return count if inside else open_size(f"min({length!r}, {last!r}) from {first!r} by {step}")
