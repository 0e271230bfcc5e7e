"""Open lengths that a source does not state, although its layers ask for certain ones: found by reading it again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from rnnconvert.core.errors import UsageError
from rnnconvert.core.remedies import Flag
from rnnconvert.graphs.sizes import Dim
from rnnconvert.reports.words import amount

_TRIES = 200
"""The most readings of one program."""
Needs = Mapping[str, "Dim | str"]
"""Lengths of open axes by their symbols, and element types of inputs."""
T = TypeVar("T")


StatedAxes = Sequence[int | Sequence[int | None]]
"""For each input how many axes it has, or their lengths, with None for an open one; a single entry is for all inputs."""


def stated_axes(axes: StatedAxes) -> tuple[int | tuple[int | None, ...], ...]:
    """Return a caller's axes in one form. Raises UsageError for less than no axes, and for lengths below one."""
    entries = tuple(entry if isinstance(entry, int) else tuple(entry) for entry in axes)
    if any(entry < 0 if isinstance(entry, int) else any(length is not None and length < 1 for length in entry) for entry in entries):
        text = ", ".join(str(entry) if isinstance(entry, int) else "x".join(map(str, entry)) for entry in entries)
        raise UsageError(f"{Flag('axes')} is how many axes each input has, 0 for a number, or their lengths, 1 or more, got {text}")
    return entries


def stated_ranks(axes: StatedAxes, unknown: Sequence[str], every: Sequence[str] = ()) -> dict[str, tuple[int | None, ...]]:
    """Return the lengths of inputs that do not state how many axes they have, by their names: None for a length that nobody stated.

    axes     as the caller states them; none where nobody did
    unknown  the names of these inputs
    every    the names of inputs that may have stated lengths although their axes are known

    Raises UsageError for another count of entries.
    """
    names = unknown or (every if any(not isinstance(entry, int) for entry in axes) else ())
    if axes and not names:
        raise UsageError(f"{Flag('axes')} decides nothing: the file states the axes of its inputs. Leave it out")
    if axes and len(axes) not in (1, len(names)):
        what = "whose axes the file does not state" if unknown else "that may have them"
        raise UsageError(f"{Flag('axes')} states {len(axes)} entries for {amount(len(names), 'input')} {what}: {', '.join(names)}")
    entries = [axes[number % len(axes)] for number in range(len(names if axes else ()))]
    return {name: (None,) * entry if isinstance(entry, int) else tuple(entry) for name, entry in zip(names, entries, strict=False)}


class _Lengths(Flag):
    """The axes of all inputs, as a command and as a call in Python takes them."""

    def __init__(self, shapes: Sequence[Sequence[int | None]]) -> None:
        self._shapes = [tuple(shape) for shape in shapes]
        words = ["x".join("?" if dim is None else str(dim) for dim in shape) + "x" * (len(shape) == 1) for shape in shapes]
        super().__init__("axes", ",".join(words))

    @property
    def keywords(self) -> str:
        """Return the keyword with a list."""
        return f"axes={self._shapes}"


def open_lengths(shapes: Iterable[Sequence[int | None]]) -> str:
    """Return the way out where open lengths of a model's inputs decide something: to state them; "" where none is open."""
    listed = [*shapes]
    if not any(None in shape for shape in listed):
        return ""
    return f"State the open lengths of its inputs: {_Lengths(listed)}, with numbers for those that are open"


def of_axes(lengths: Mapping[str, Sequence[int | None]]) -> dict[str, Dim | str]:
    """Return the lengths that a caller states of inputs by the symbols of their axes, as a first reading needs them."""
    return {f"{name}, axis {axis}": length for name, each in lengths.items() for axis, length in enumerate(each) if length is not None}


class NeedError(Exception):
    """An open length has to be a certain one, or an input of a certain element type: reading begins anew with that."""

    def __init__(self, symbol: str, value: Dim | str) -> None:
        super().__init__(symbol, value)
        self.symbol, self.value = symbol, value


class ReadingBudget:
    """The readings of one program: bounded, no matter what it asks for."""

    def __init__(self) -> None:
        self._left = _TRIES

    def read(self, read: Callable[[Needs], T], stated: Needs | None = None) -> T | None:
        """Return the result of a reading once it has the lengths that it asks for; None if it asks for two lengths of one axis.

        stated  lengths that the caller stated
        """
        needs: dict[str, Dim | str] = dict(stated or {})
        while self._left:
            self._left -= 1
            try:
                return read(needs)
            except NeedError as need:
                if need.symbol in needs:
                    return None
                needs[need.symbol] = need.value
        return None
