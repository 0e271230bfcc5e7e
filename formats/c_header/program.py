"""The operations of a whole model, on numbers that C code has for each step or once.

A value is so many numbers, at each step of a time axis or once. An operation's code reads x0, x1, .. and gives y0, y1, ..: at one step
("each"), at one step with what it keeps from earlier ones ("kept" in s), or over whole sequences ("whole", with their lengths n0 and m).
A loop is a run of operations that compute one step together: it begins with what gives its states ("state", in s), and ends with what
leaves them there for the step after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rnnconvert.formats.c_header.layer_code import number_in_c

Settings = Mapping[str, Any]
Shapes = dict[str, tuple[int, ...]]
_LARGEST = 1 << 28
"""Numbers that a value may have at a step."""


@dataclass(frozen=True)
class StepValues:
    """The numbers that an operation reads or gives.

    size      how many numbers
    time      the number of the time axis along which it has so many at each step; None if it has them once
    integral  whether they are whole numbers, which only inputs of the model are
    """

    size: int
    time: int | None = None
    integral: bool = False


@dataclass(frozen=True)
class TimeAxis:
    """A time axis of a model.

    length  its length, if stated
    of      the axis of which it has the windows; None for the axis of an input or of a stated length
    reach   how many steps a window reaches over, and `stride` by how many it moves
    pads    steps that are added before and after, left out where that is below zero; None for as many as windows of the number of steps
            by the stride need
    by      how many times each window is there
    """

    length: int | None = None
    of: int | None = None
    reach: int = 1
    stride: int = 1
    pads: tuple[int, int] | None = (0, 0)
    by: int = 1

    def windows(self, length: int) -> int:
        """Return how many windows an axis of a length has."""
        if self.pads is None:
            return -(-length // self.stride)
        free = length + sum(self.pads) - self.reach
        return (free // self.stride + 1) * self.by if free >= 0 else 0

    @property
    def longer(self) -> int | None:
        """By how many steps it is longer than the axis of which it has the windows; None if that differs from length to length."""
        plain = self.of is not None and self.pads is not None and self.stride == self.by == 1
        return sum(self.pads) - self.reach + 1 if plain and self.pads is not None else None


class Across(NamedTuple):
    """The windows over an axis of what a step has.

    length    of the axis
    kernel    how many places a window has, so far apart as `dilation`
    stride    by how many places windows move
    before    how many places are added in front of the axis, and `after` behind it
    """

    length: int
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0

    @property
    def windows(self) -> int:
        """How many windows there are. Raises ValueError for none."""
        free = self.length + self.before + self.after - self.dilation * (self.kernel - 1) - 1
        if free < 0:
            raise ValueError("a window longer than its axis")
        return free // self.stride + 1

    def place(self, window: str, tap: str) -> str:
        """Return the place of the axis that a window reads, counted from its first one, by their names in C."""
        return f"{window} * {self.stride} + {tap} * {self.dilation} - {self.before}"

    def outside(self, place: str) -> list[str]:
        """Return the statement that leaves out a place that was added; none where there are none."""
        return [f"if ({place} < 0 || {place} >= {self.length}) continue;"] if self.before or self.after else []


@dataclass(frozen=True)
class StepOperation:
    """One operation.

    kind      what it computes
    reads     the numbers of the values that it reads
    gives     the numbers of the values that it gives
    settings  by the words of its kind
    name      the name of its arrays, or its recurrent layer, in C; "" for none
    """

    kind: str
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    settings: Settings
    name: str = ""


@dataclass
class StepProgram:
    """Operations in the order of running.

    kinds       those that there are
    values      what they read and give, the inputs of the model first
    axes        the time axes
    layers      the sizes of recurrent layers, by their names in C: input, output, and units of an LSTM's cell or 0
    same        for a time axis that is another one, that one
    """

    kinds: Mapping[str, OperationKind]
    values: list[StepValues] = field(default_factory=list)
    axes: list[TimeAxis] = field(default_factory=list)
    operations: list[StepOperation] = field(default_factory=list)
    layers: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    same: dict[int, int] = field(default_factory=dict)

    def root(self, axis: int | None) -> int | None:
        """Return the time axis that one is."""
        while axis in self.same:
            axis = self.same[axis]
        return axis

    def joined(self, axes: Sequence[int | None]) -> int | None:
        """Let time axes be one, and return it. Raises ValueError for axes that may have several lengths."""
        roots = list(dict.fromkeys(root for axis in axes if (root := self.root(axis)) is not None))
        for other in roots[1:]:
            first, second = self.axes[roots[0]], self.axes[other]
            lengths = self.length(roots[0]), self.length(other)
            if None not in lengths and lengths[0] != lengths[1]:
                raise ValueError(f"sequences of {lengths[0]} and {lengths[1]} steps meet")
            if None in lengths and (first.of is not None or second.of is not None) and not self._alike(first, second):
                raise ValueError("sequences meet that may have several lengths")
            keep, drop = (other, roots[0]) if lengths[0] is None else (roots[0], other)
            self.same[drop] = keep
            roots[0] = keep
        return roots[0] if roots else None

    def _alike(self, first: TimeAxis, second: TimeAxis) -> bool:
        """Return whether two axes have windows of one axis, as many of one as of the other at every length."""
        if first.of is None or second.of is None or self.root(first.of) != self.root(second.of):
            return False
        if (first.stride, first.by) != (second.stride, second.by):
            return False
        first_free, second_free = ((axis.reach - sum(axis.pads)) if axis.pads is not None else None for axis in (first, second))
        return first_free == second_free

    def windowed(self, axis: TimeAxis) -> int:
        """Return the number of an axis of windows: the one that it is of, where it has one window for each step of that."""
        assert axis.of is not None
        of = self.axes[self.root(axis.of) or 0]
        if axis.longer is not None and of.of is not None and of.longer is not None and of.longer >= 0:  # first longer, then shorter
            axis = TimeAxis(None, of.of, pads=(of.longer + axis.longer, 0))
        if axis.longer == 0 and axis.of is not None:
            return axis.of
        self.axes.append(axis)
        return len(self.axes) - 1

    def length(self, axis: int | None) -> int | None:
        """Return the length of a time axis, None for one that a run decides."""
        root = self.root(axis)
        if root is None:
            raise ValueError("the length of what has no steps")
        entry = self.axes[root]
        if entry.of is None:
            return entry.length
        before = self.length(entry.of)
        return None if before is None else entry.windows(before)

    def add(self, kind: str, reads: Sequence[int], name: str, settings: Settings) -> tuple[int, ...]:
        """Append an operation, and return the numbers of what it gives. Raises ValueError for one that is not possible."""
        definition = self.kinds.get(kind)
        if definition is None:
            raise ValueError(f"an operation {kind!r}")
        if set(settings) != set(definition.settings):
            raise ValueError(f"settings {', '.join(sorted(settings))} of {kind!r}")
        for word, check in definition.settings.items():
            if not check(settings[word]):
                raise ValueError(f"{word} {settings[word]!r} of {kind!r}")
        if not all(type(read) is int and 0 <= read < len(self.values) for read in reads):
            raise ValueError(f"what {kind!r} reads")
        if name and any(each.name == name and each.kind != kind for each in self.operations):
            raise ValueError(f"two operations of the name {name!r}")
        read = [self.values[number] for number in reads]
        if any(value.integral for value in read) and kind not in ("embedding", "function"):
            raise ValueError(f"whole numbers, which {kind!r} reads")
        results = definition.gives(self, settings, read, name)
        if any(not 0 < value.size <= _LARGEST for value in results):
            raise ValueError(f"the size of what {kind!r} gives")
        first = len(self.values)
        self.values += results
        gives = tuple(range(first, first + len(results)))
        self.operations.append(StepOperation(kind, tuple(reads), gives, dict(settings), name))
        return gives

    def memory(self) -> dict[int, int]:
        """Return for each operation that keeps something, by its place, the place of the one whose memory that is: itself, or another.

        Raises ValueError for one that leaves a state which no operation gave.
        """
        makers = {number: place for place, operation in enumerate(self.operations) for number in operation.gives}
        places: dict[int, int] = {}
        for place, operation in enumerate(self.operations):
            kind = self.kinds[operation.kind]
            if kind.leaves is not None:
                maker = self.operations[makers[state]] if (state := operation.reads[kind.leaves]) in makers else operation
                if maker is operation or self.kinds[maker.kind].keeps is None or self.kinds[maker.kind].form(maker.settings) != "state":
                    raise ValueError("a state that no loop has")
                places[place] = makers[state]
            elif kind.keeps is not None and kind.form(operation.settings) not in ("whole", "each"):
                places[place] = place
        return places

    def loops(self, memory: Mapping[int, int]) -> list[range]:
        """Return the places of the operations of each loop.

        memory  that of the program

        Raises ValueError for a loop with an operation that is not one of a step.
        """
        spans: list[range] = []
        for place, begin in memory.items():
            if self.kinds[self.operations[place].kind].leaves is not None:
                while spans and begin < spans[-1].stop:
                    begin = min(begin, spans.pop().start)
                spans.append(range(begin, place + 1))
        for span in spans:
            self._check_step([self.operations[place] for place in span])
        return spans

    def _check_step(self, operations: Sequence[StepOperation]) -> None:
        time = self.root(self.values[operations[0].gives[0]].time)
        finals: set[int] = set()
        for operation in operations:
            kind = self.kinds[operation.kind]
            times = {self.root(self.values[number].time) for number in (*operation.reads, *operation.gives)} - {None}
            if kind.form(operation.settings) not in ("each", "state") or times - {time} or finals & {*operation.reads}:
                raise ValueError(f"{operation.kind!r} in a step of a loop")
            finals |= {*operation.gives} if kind.leaves is not None else set()

    def arrays(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Return the shapes of the arrays of all operations but recurrent ones, by name and local name. Raises ValueError for two."""
        shapes: dict[str, dict[str, tuple[int, ...]]] = {}
        for operation in self.operations:
            if operation.kind in ("recurrent", "cell") or not operation.name:
                continue
            mine = self.kinds[operation.kind].arrays(operation.settings)
            if shapes.setdefault(operation.name, mine) != mine:
                raise ValueError(f"two shapes of the arrays of {operation.name!r}")
        return shapes


class Spelling:
    """How an operation's code spells numbers.

    real      the type of numbers
    storage   how its arrays are stored: float32, float64, float16 or int8
    name      what its arrays are called
    """

    def __init__(self, real: str, storage: str, name: str) -> None:
        self.real, self.storage, self.name = real, storage, name
        self.end = "f" if real == "float" else ""

    def number(self, value: float) -> str:
        """Return a number."""
        return number_in_c(float(value), self.real)

    def scaled(self, local: str) -> bool:
        """Return whether an array is stored in integers with scales."""
        return self.storage == "int8" and local in MATRICES

    def get(self, local: str, place: str) -> str:
        """Return a number of an array; of integers without its scale."""
        value = f"{self.name}_{local}[{place}]"
        half = self.storage == "float16" or (self.storage == "int8+float16" and local not in MATRICES)
        return f"rnnconvert_half({value})" if half else value

    def times_scale(self, local: str, row: str) -> str:
        """Return the factor of a sum over a row."""
        return f" * {self.name}_{local}_scale[{row}]" if self.scaled(local) else ""

    def summed(self, local: str, row: str, width: str, vector: str, indent: str) -> Iterator[str]:
        """Yield the code that adds the product of a row of a matrix and a vector to `sum`, its scale outside of the loop."""
        if not self.scaled(local):
            yield f"{indent}for (i = 0; i < {width}; i++) sum += {self.get(local, f'{row} * {width} + i')} * {vector}[i];"
            return
        yield f"{indent}{{"
        yield f"{indent}    {self.real} part = 0;"
        yield f"{indent}    for (i = 0; i < {width}; i++) part += {self.get(local, f'{row} * {width} + i')} * {vector}[i];"
        yield f"{indent}    sum += part{self.times_scale(local, row)};"
        yield f"{indent}}}"

    def call(self, function: str, *arguments: str) -> str:
        """Return the call of a function of <math.h>."""
        return f"{function}{self.end}({', '.join(arguments)})"


MATRICES = ("W", "table")
"""The arrays that int8 has scales for: one for each of their rows."""

Gives = Callable[[StepProgram, Settings, Sequence[StepValues], str], list[StepValues]]
Code = Callable[[Spelling, Settings, Sequence[StepValues]], Iterator[str]]


@dataclass(frozen=True)
class OperationKind:
    """A kind of operations.

    settings  what each setting may be
    gives     returns what it gives. Raises ValueError where it is not possible
    code      yields its C
    form      returns "each", "kept", "state" or "whole", by its settings
    arrays    returns the shapes of its arrays, by their local names
    keeps     yields the fields of what it keeps from step to step
    why       says why it has no code for one step
    leaves    which of what it reads is the state of a loop that it leaves for the next step, in the memory of what gave that
    """

    settings: Mapping[str, Callable[[Any], bool]]
    gives: Gives
    code: Code
    form: Callable[[Settings], str] = lambda settings: "each"
    arrays: Callable[[Settings], Shapes] = lambda settings: {}
    keeps: Code | None = None
    why: str = ""
    leaves: int | None = None
