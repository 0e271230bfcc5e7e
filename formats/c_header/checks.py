"""Checks of what operations state of themselves, which may come from a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rnnconvert.core.limits import AXES, SIZE
from rnnconvert.formats.c_header.program import Across, StepValues


def count(value: Any) -> bool:
    """Return whether a value is a length."""
    return type(value) is int and 0 < value <= SIZE


def index(value: Any) -> bool:
    """Return whether a value is a place."""
    return type(value) is int and 0 <= value <= SIZE


def offset(value: Any) -> bool:
    """Return whether a value is a place that may be in front of an axis."""
    return type(value) is int and abs(value) <= SIZE


def ends(value: Any) -> bool:
    """Return whether a value is how many places are added at both ends, or left out where that is below zero."""
    return isinstance(value, list) and len(value) == 2 and all(map(offset, value))


def truth(value: Any) -> bool:
    """Return whether a value is a truth."""
    return isinstance(value, bool)


def real(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return type(value) in (int, float) and math.isfinite(value)


def perhaps(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a check that takes None, too."""
    return lambda value: value is None or check(value)


def among(*words: str) -> Callable[[Any], bool]:
    """Return a check of whether a value is among words."""
    return lambda value: isinstance(value, str) and value in words


def counts(value: Any) -> bool:
    """Return whether a value is the lengths of axes."""
    return isinstance(value, list) and 0 <= len(value) <= AXES and all(map(count, value))


def pads(value: Any) -> bool:
    """Return whether a value is the steps that are added before and after, or None."""
    return value is None or (isinstance(value, list) and len(value) == 2 and all(map(index, value)))


def across(value: Any) -> bool:
    """Return whether a value is the windows over an axis: its length, their kernel, stride and dilation, and what is added at both ends."""
    return isinstance(value, list) and len(value) == len(Across._fields) and all(map(count, value[:4])) and all(map(index, value[4:]))


def several_across(value: Any) -> bool:
    """Return whether a value is the windows over each of some axes."""
    return isinstance(value, list) and len(value) <= AXES and all(map(across, value))


def operands(value: Any) -> bool:
    """Return whether these are operands: shapes of what is read, or numbers."""
    return isinstance(value, list) and 0 < len(value) <= AXES and all(counts(each) or number(each) for each in value)


def number(value: Any) -> bool:
    """Return whether a value is a number, which may be infinite."""
    return type(value) in (int, float) and not math.isnan(value)


def whether(condition: object, what: str) -> None:
    """Raise ValueError, with what is wrong, where a condition does not hold."""
    if not condition:
        raise ValueError(what)


def single(read: Sequence[StepValues]) -> StepValues:
    """Return the only value that an operation reads. Raises ValueError for another number of them."""
    whether(len(read) == 1, "what an operation reads")
    return read[0]


def time(x: StepValues, what: str) -> int:
    """Return the time axis of a value. Raises ValueError for one without steps."""
    if x.time is None:
        raise ValueError(what)
    return x.time
