"""What a whole model computes, as operations on numbers that C code has for each step or once: which there are, what they give, their C.

A value is so many numbers, at each step of a time axis or once. An operation's code reads x0, x1, .. and gives y0, y1, ..: at one step
("each"), at one step with what it keeps from those before ("kept" in s), or over whole sequences ("whole", with their lengths n0 and m).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.core.limits import AXES, SIZE
from rnnconvert.formats.c_header.layer_code import number_in_c

Settings = Mapping[str, Any]
Shapes = dict[str, tuple[int, ...]]
_LARGEST = 1 << 28
"""Numbers that a value may have at a step."""


@dataclass(frozen=True)
class StepValues:
    """What an operation reads or gives.

    size      how many numbers
    time      the number of the time axis along which it has so many at each step; None where it has them once
    integral  whether they are whole numbers, which only inputs of the model are
    """

    size: int
    time: int | None = None
    integral: bool = False


@dataclass(frozen=True)
class TimeAxis:
    """A time axis of a model.

    length  its length, where that is stated
    of      the axis of which it has the windows; None for that of an input or of a stated length
    reach   how many steps a window reaches over, and `stride` by how many it moves
    pads    steps that are added before and after; None for as many as windows of the number of steps by the stride need
    """

    length: int | None = None
    of: int | None = None
    reach: int = 1
    stride: int = 1
    pads: tuple[int, int] | None = (0, 0)

    def windows(self, length: int) -> int:
        """Return how many windows an axis of a length has."""
        if self.pads is None:
            return -(-length // self.stride)
        free = length + sum(self.pads) - self.reach
        return free // self.stride + 1 if free >= 0 else 0


@dataclass(frozen=True)
class StepOperation:
    """One operation.

    kind      what it computes
    reads     the numbers of the values that it reads
    gives     those of the values that it gives
    settings  by the words of its kind
    name      what its arrays, or its recurrent layer, are called in C; "" for none
    """

    kind: str
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    settings: Settings
    name: str = ""


@dataclass
class StepProgram:
    """Operations in the order of running.

    values      what they read and give, the inputs of the model first
    axes        the time axes
    layers      the sizes of recurrent layers, by their names in C: input, output, and units of an LSTM's cell or 0
    same        for a time axis that is another one, that one
    """

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
        if first.stride != second.stride:
            return False
        first_free, second_free = ((axis.reach - sum(axis.pads)) if axis.pads is not None else None for axis in (first, second))
        return first_free == second_free

    def length(self, axis: int | None) -> int | None:
        """Return the length of a time axis, None for one that a run decides."""
        entry = self.axes[self.root(axis)]  # type: ignore[index]
        if entry.of is None:
            return entry.length
        before = self.length(entry.of)
        return None if before is None else entry.windows(before)

    def add(self, kind: str, reads: Sequence[int], name: str, settings: Settings) -> tuple[int, ...]:
        """Append an operation, and return the numbers of what it gives. Raises ValueError for one that is not possible."""
        definition = KINDS.get(kind)
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

    def arrays(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Return the shapes of the arrays of all operations but recurrent ones, by name and local name. Raises ValueError for two."""
        shapes: dict[str, dict[str, tuple[int, ...]]] = {}
        for operation in self.operations:
            if operation.kind == "recurrent" or not operation.name:
                continue
            mine = KINDS[operation.kind].arrays(operation.settings)
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
        """Return what a sum over a row is multiplied by."""
        return f" * {self.name}_{local}_scale[{row}]" if self.scaled(local) else ""

    def summed(self, local: str, row: str, width: str, vector: str, indent: str) -> Iterator[str]:
        """Yield what adds the product of a row of a matrix and a vector to `sum`, its scale outside of the loop."""
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
    form      returns "each", "kept" or "whole", by its settings
    arrays    returns the shapes of its arrays, by their local names
    keeps     yields the fields of what it keeps from step to step
    why       says why it has no code for one step
    """

    settings: Mapping[str, Callable[[Any], bool]]
    gives: Gives
    code: Code
    form: Callable[[Settings], str] = lambda settings: "each"
    arrays: Callable[[Settings], Shapes] = lambda settings: {}
    keeps: Code | None = None
    why: str = ""


# Checks of settings


def _count(value: Any) -> bool:
    return type(value) is int and 0 < value <= SIZE


def _index(value: Any) -> bool:
    return type(value) is int and 0 <= value <= SIZE


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _real(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _perhaps(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _among(*words: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in words


def _counts(value: Any) -> bool:
    return isinstance(value, list) and 0 <= len(value) <= AXES and all(map(_count, value))


def _pads(value: Any) -> bool:
    return value is None or (isinstance(value, list) and len(value) == 2 and all(map(_index, value)))


def _operands(value: Any) -> bool:
    """Return whether these are operands: shapes of what is read, or numbers."""
    return isinstance(value, list) and 0 < len(value) <= AXES and all(_counts(each) or _number_of(each) for each in value)


def _number_of(value: Any) -> bool:
    return type(value) in (int, float) and not math.isnan(value)


def _whether(condition: object, what: str) -> None:
    if not condition:
        raise ValueError(what)


def _single(read: Sequence[StepValues]) -> StepValues:
    _whether(len(read) == 1, "what an operation reads")
    return read[0]


# Numbers at one step


def _dense_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    _whether(not x.size % s["width"], "the width of a dense layer")
    return [StepValues(x.size // s["width"] * s["units"], x.time)]


def _dense(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    outer = read[0].size // s["width"]
    yield "int i, j;"
    indent = ""
    if outer > 1:
        yield f"int k; for (k = 0; k < {outer}; k++) {{"
        indent = "    "
    x, y = (f"x0 + k * {s['width']}", f"y0[k * {s['units']} + j]") if outer > 1 else ("x0", "y0[j]")
    x = f"({x})" if outer > 1 else x
    yield f"{indent}for (j = 0; j < {s['units']}; j++) {{"
    yield f"{indent}    {w.real} sum = {w.get('b', 'j') if s['bias'] else 0};"
    yield from w.summed("W", "j", str(s["width"]), x, f"{indent}    ")
    yield f"{indent}    {y} = sum;"
    yield f"{indent}}}"
    if outer > 1:
        yield "}"


def _embedding(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield "int i, j;"
    yield f"for (j = 0; j < {read[0].size}; j++) {{"
    yield f"    const int row = !(x0[j] > 0) ? 0 : x0[j] > {s['rows'] - 1} ? {s['rows'] - 1} : (int)x0[j];"
    value = w.get("table", f"(size_t)row * {s['width']} + i") + w.times_scale("table", "row")
    yield f"    for (i = 0; i < {s['width']}; i++) y0[j * {s['width']} + i] = {value};"
    yield "}"


FUNCTIONS: Mapping[str, str] = {
    "relu": "({x} < 0 ? 0 : {x})", "linear": "{x}", "sigmoid": "1 / (1 + exp{f}(-{x}))", "tanh": "tanh{f}({x})",
    "exponential": "exp{f}({x})", "exp": "exp{f}({x})",
    "selu": "({x} > 0 ? {1.0507009873554805} * {x} : {1.7580993408473766} * expm1{f}({x}))",
    "softplus": "(({x} > 0 ? {x} : 0) + log1p{f}(exp{f}(-fabs{f}({x}))))", "softsign": "{x} / (1 + fabs{f}({x}))", "abs": "fabs{f}({x})",
    "sqrt": "sqrt{f}({x})", "rsqrt": "1 / sqrt{f}({x})", "log": "log{f}({x})", "neg": "-{x}", "square": "{x} * {x}",
    "reciprocal": "1 / {x}", "hard_swish": "{x} * RNNCONVERT_CLAMP({x} / 6 + {0.5})", "hard_sigmoid": "RNNCONVERT_CLAMP({x} / 6 + {0.5})",
    "elu": "({x} > 0 ? {x} : {a} * expm1{f}({x}))", "celu": "({x} > 0 ? {x} : {a} * expm1{f}({x} / {a}))",
    "leaky_relu": "({x} > 0 ? {x} : {a} * {x})", "relu6": "({x} < 0 ? 0 : {x} > 6 ? 6 : {x})", "silu": "{x} / (1 + exp{f}(-{x}))",
    "gelu": "{0.5} * {x} * (1 + erf{f}({x} * {0.70710678118654752}))",
    "gelu_tanh": "{0.5} * {x} * (1 + tanh{f}({0.79788456080286536} * ({x} + {0.044715} * {x} * {x} * {x})))",
    "mish": "{x} * tanh{f}(({x} > 0 ? {x} : 0) + log1p{f}(exp{f}(-fabs{f}({x}))))", "erf": "erf{f}({x})", "sin": "sin{f}({x})",
    "cos": "cos{f}({x})", "tan": "tan{f}({x})", "asin": "asin{f}({x})", "acos": "acos{f}({x})", "atan": "atan{f}({x})",
    "sinh": "sinh{f}({x})", "cosh": "cosh{f}({x})", "asinh": "asinh{f}({x})", "acosh": "acosh{f}({x})", "atanh": "atanh{f}({x})",
    "floor": "floor{f}({x})", "ceil": "ceil{f}({x})", "round": "rint{f}({x})", "sign": "({x} > 0) - ({x} < 0)", "not": "{x} == 0",
    "truth": "{x} != 0", "towards_zero": "trunc{f}({x})",
}  # fmt: skip
"""Functions of one number x; a is their constant."""


def _function(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    text = FUNCTIONS[s["function"]]
    words = {"x": "x", "f": w.end, "a": w.number(1.0 if s["alpha"] is None else s["alpha"])}
    text = re.sub(r"\{([^{}]*)\}", lambda match: words.get(match[1]) or ("" if match[1] == "f" else w.number(float(match[1]))), text)
    yield "int i;"
    yield f"for (i = 0; i < {read[0].size}; i++) {{"
    yield f"    {w.real} x = ({w.real})x0[i];" if read[0].integral else f"    {w.real} x = x0[i];"
    yield f"    y0[i] = ({w.real})({text});"
    yield "}"


def _softmax(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield a softmax over groups of numbers that lie so far apart."""
    width, inner = s["width"], s["inner"]
    yield "int i, j;"
    yield f"for (j = 0; j < {read[0].size // width}; j++) {{"
    start = f"j / {inner} * {width * inner} + j % {inner}" if inner > 1 else f"j * {width}"
    step = f"i * {inner}" if inner > 1 else "i"
    yield f"    const {w.real} *x = x0 + ({start});"
    yield f"    {w.real} *y = y0 + ({start}), most = x[0], sum = 0;"
    yield f"    for (i = 1; i < {width}; i++) most = x[{step}] > most ? x[{step}] : most;"
    if s["log"]:
        yield f"    for (i = 0; i < {width}; i++) sum += {w.call('exp', f'x[{step}] - most')};"
        yield f"    sum = {w.call('log', 'sum')};"
        yield f"    for (i = 0; i < {width}; i++) y[{step}] = x[{step}] - most - sum;"
    else:
        yield f"    for (i = 0; i < {width}; i++) sum += y[{step}] = {w.call('exp', f'x[{step}] - most')};"
        yield f"    for (i = 0; i < {width}; i++) y[{step}] /= sum;"
    yield "}"


def _grouped_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    _whether(not x.size % (s["width"] * s.get("inner", 1)), "the width of a group of numbers")
    return [StepValues(x.size, x.time)]


def _affine(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    place = f"(i / {s['inner']}) % {s['width']}" if read[0].size > s["width"] else "i"
    yield "int i;"
    yield f"for (i = 0; i < {read[0].size}; i++) y0[i] = x0[i] * {w.get('scale', place)} + {w.get('shift', place)};"


def _affine_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    _whether(not x.size % (s["width"] * s["inner"]), "the channels of a norm")
    return [StepValues(x.size, x.time)]


def _slopes(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    place = f"(i / {s['inner']}) % {s['width']}" if read[0].size > s["width"] else "i"
    yield "int i;"
    yield f"for (i = 0; i < {read[0].size}; i++) y0[i] = x0[i] > 0 ? x0[i] : x0[i] * {w.get('slope', place)};"


def _norm(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    width, outer = s["width"], read[0].size // s["width"]
    yield "int i, j;"
    yield f"for (j = 0; j < {outer}; j++) {{"
    yield f"    const {w.real} *x = x0 + j * {width};"
    yield f"    {w.real} *y = y0 + j * {width}, sum = 0{', mean = 0' if s['centred'] else ''}, by;"
    centred = "x[i]"
    if s["centred"]:
        yield f"    for (i = 0; i < {width}; i++) mean += x[i];"
        yield f"    mean /= {width};"
        centred = "(x[i] - mean)"
    yield f"    for (i = 0; i < {width}; i++) sum += {centred} * {centred};"
    if s["unit"]:
        yield f"    by = {w.call('sqrt', 'sum')};"
        yield f"    by = 1 / (by > {w.number(s['epsilon'])} ? by : {w.number(s['epsilon'])});"
    else:
        inner = f"sum / {width} + {w.number(s['epsilon'])}"
        yield f"    by = 1 / {w.call('sqrt', inner)};"
    text = f"{centred} * by" + (f" * {w.get('scale', 'i')}" if s["scale"] else "") + (f" + {w.get('shift', 'i')}" if s["shift"] else "")
    yield f"    for (i = 0; i < {width}; i++) y[i] = {text};"
    yield "}"


COMBINED: Mapping[str, str] = {
    "add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "{0} * {1}", "divide": "{0} / {1}", "power": "pow{f}({0}, {1})",
    "maximum": "({0} > {1} ? {0} : {1})", "minimum": "({0} < {1} ? {0} : {1})", "equal": "{0} == {1}", "not_equal": "{0} != {1}",
    "greater": "{0} > {1}", "greater_equal": "{0} >= {1}", "less": "{0} < {1}", "less_equal": "{0} <= {1}",
    "and": "{0} != 0 && {1} != 0", "or": "{0} != 0 || {1} != 0", "xor": "({0} != 0) != ({1} != 0)",
    "where": "({0} != 0 ? {1} : {2})",
}  # fmt: skip
"""Operations on numbers at the same place of several values."""


def _combined_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    shapes = [operand for operand in s["operands"] if isinstance(operand, list)]
    _whether(len(shapes) == len(read) and shapes, "how many values are combined")
    _whether(len(s["operands"]) == (3 if s["operation"] == "where" else 2), "how many operands are combined")
    shape = _spread(shapes)
    for operand, value in zip(shapes, read, strict=True):
        _whether(math.prod(operand) == value.size, "the shape of what is combined")
    return [StepValues(math.prod(shape), program.joined([value.time for value in read]))]


def _spread(shapes: Sequence[Sequence[int]]) -> list[int]:
    """Return the shape of values that spread over one another. Raises ValueError where they do not."""
    rank = max(map(len, shapes))
    wide = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    result = [max(lengths) for lengths in zip(*wide, strict=True)]
    _whether(all(length in (1, most) for shape in wide for length, most in zip(shape, result, strict=True)), "shapes that do not fit")
    return result


def _place(lengths: Sequence[int], shape: Sequence[int]) -> str:
    """Return the place in a value of the number at place i of a shape that it spreads over."""
    lengths = [1] * (len(shape) - len(lengths)) + list(lengths)
    if lengths == list(shape):
        return "i"
    terms, stride, inner = [], 1, 1
    for length, most in zip(reversed(lengths), reversed(shape), strict=True):
        if length > 1:
            place = f"i / {inner}" if inner > 1 else "i"
            place = place if inner * most == math.prod(shape) else f"{place} % {most}"
            terms.append(f"({place})" + (f" * {stride}" if stride > 1 else ""))
        stride, inner = stride * length, inner * most
    return " + ".join(terms) or "0"


def _combined(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    shape = _spread([operand for operand in s["operands"] if isinstance(operand, list)])
    words, number = [], 0
    for operand in s["operands"]:
        if isinstance(operand, list):
            words.append(f"x{number}[{_place(operand, shape)}]")
            number += 1
        else:
            words.append(w.number(operand))
    yield "int i;"
    text = COMBINED[s["operation"]].replace("{f}", w.end).format(*words)
    yield f"for (i = 0; i < {math.prod(shape)}; i++) y0[i] = ({w.real})({text});"


def _joined_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    _whether(read and all(not value.size % s["outer"] for value in read), "what is joined")
    return [StepValues(sum(value.size for value in read), program.joined([value.time for value in read]))]


def _joined(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    outer, width = s["outer"], sum(value.size for value in read) // s["outer"]
    yield "int i;"
    place = 0
    for number, value in enumerate(read):
        inner = value.size // outer
        where = f"i / {inner} * {width} + {place} + i % {inner}" if outer > 1 else f"{place} + i" if place else "i"
        yield f"for (i = 0; i < {value.size}; i++) y0[{where}] = x{number}[i];"
        place += inner


def _strided_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    last = s["start"] + (s["count"] - 1) * (-s["step"] if s["back"] else s["step"])
    _whether(not x.size % (s["length"] * s["inner"]) and s["start"] < s["length"] and 0 <= last < s["length"], "what is taken of an axis")
    return [StepValues(x.size // s["length"] * s["count"], x.time)]


def _strided(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield a slice of one axis."""
    count, inner, length = s["count"], s["inner"], s["length"]
    outer = read[0].size // (length * inner)
    yield "int i;"
    row = f"({s['start']} {'-' if s['back'] else '+'} i / {inner} % {count} * {s['step']})"
    where = f"{row} * {inner} + i % {inner}" + (f" + i / {count * inner} * {length * inner}" if outer > 1 else "")
    yield f"for (i = 0; i < {outer * count * inner}; i++) y0[i] = x0[{where}];"


def _turned_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    _whether(math.prod(s["shape"]) == x.size and sorted(s["order"]) == list(range(len(s["shape"]))), "axes in another order")
    return [StepValues(x.size, x.time)]


def _turned(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    strides = [math.prod(s["shape"][axis + 1 :]) for axis in range(len(s["shape"]))]
    lengths = [s["shape"][axis] for axis in s["order"]]
    terms = []
    for place, axis in enumerate(s["order"]):
        inner = math.prod(lengths[place + 1 :])
        terms.append(f"i / {inner} % {lengths[place]} * {strides[axis]}")
    yield "int i;"
    yield f"for (i = 0; i < {read[0].size}; i++) y0[i] = x0[{' + '.join(terms) or '0'}];"


def _repeated_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    _whether(not x.size % s["inner"], "what is repeated")
    return [StepValues(x.size * s["count"], x.time)]


def _repeated(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield groups of numbers, each several times."""
    inner, count = s["inner"], s["count"]
    yield "int i;"
    yield f"for (i = 0; i < {read[0].size * count}; i++) y0[i] = x0[i / {inner * count} * {inner} + i % {inner}];"


_FOLDED = {"mean": "+=", "sum": "+=", "max": "", "min": "", "any": "", "all": ""}


def _folded_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    _whether(not x.size % (s["length"] * s["inner"]), "an axis that is reduced")
    return [StepValues(x.size // s["length"], x.time)]


def _folded(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield a reduction of one axis of a step."""
    length, inner, operation = s["length"], s["inner"], s["operation"]
    yield "int i, j;"
    yield f"for (j = 0; j < {read[0].size // length}; j++) {{"
    start = f"j / {inner} * {length * inner} + j % {inner}" if inner > 1 else f"j * {length}"
    step = f"i * {inner}" if inner > 1 else "i"
    yield f"    {w.real} sum = x0[{start}];"
    value = f"x0[{start} + {step}]"
    yield f"    for (i = 1; i < {length}; i++) {_more(operation, 'sum', value)}"
    yield f"    y0[j] = {'sum / ' + str(length) if operation == 'mean' else 'sum'};"
    yield "}"


def _more(operation: str, name: str, value: str) -> str:
    """Return the statement that adds a number to a reduction."""
    if operation in ("mean", "sum"):
        return f"{name} += {value};"
    return f"if ({value} {'>' if operation in ('max', 'any') else '<'} {name}) {name} = {value};"


def _stored_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    _whether(not read and name, "stored numbers")
    return [StepValues(s["size"])]


def _stored(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield "int i;"
    yield f"for (i = 0; i < {s['size']}; i++) y0[i] = {w.get('numbers', 'i')};"


def _full_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    return [StepValues(s["size"], x.time)]


def _full(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield "int i;"
    yield "(void)x0;"
    yield f"for (i = 0; i < {s['size']}; i++) y0[i] = {w.number(s['number'])};"


# Steps that keep something from those before


def _recurrent_form(s: Settings) -> str:
    return "reversed" if s["backwards"] else "kept"


def _recurrent_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    _whether(name in program.layers, "a recurrent layer without arrays")
    width, out, cell = program.layers[name]
    _whether(s["cell"] == bool(cell), f"the states of {name!r}")
    states = [out, cell] if cell else [out]
    expected = [width] + [1] * s["masked"] + states * s["begun"]
    _whether([value.size for value in read] == expected, f"what the recurrent layer {name!r} reads")
    x, *others = read
    _whether(x.time is not None and not x.integral, f"the recurrent layer {name!r} reads no sequence of numbers")
    _whether(all(value.time is None for value in others[s["masked"] :]), f"the initial states of {name!r} have steps")
    if s["masked"]:
        program.joined([x.time, others[0].time])
    ends = [StepValues(size) for size in states] if s["ends"] else []
    return [StepValues(out, x.time if s["sequences"] else None), *ends]


def _recurrent_keeps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield f"{w.name}_state layer;"
    if s["begun"]:
        yield "int begun;"
    if s["masked"]:
        yield f"{w.real} y[{w.name.upper()}_OUTPUT];"


def _recurrent(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    first = 1 + s["masked"]
    if s["begun"]:
        yield "if (!s->begun) {"
        for number, word in zip(range(first, len(read)), "hc", strict=False):
            yield f"    memcpy(s->layer.{word}, x{number}, sizeof s->layer.{word});"
        yield "    s->begun = 1;"
        yield "}"
    if not s["masked"]:
        yield f"{w.name}_step(x0, &s->layer, y0);"
    else:
        yield f"if (x1[0] != 0) {w.name}_step(x0, &s->layer, s->y);"
        if s["zero"]:
            yield "else memset(s->y, 0, sizeof s->y);"
        yield "memcpy(y0, s->y, sizeof s->y);"
    if s["ends"]:
        for number, word in enumerate("hc"[: 2 if _ends_in_cell(s) else 1]):
            yield f"memcpy(y{number + 1}, s->layer.{word}, sizeof s->layer.{word});"


def _ends_in_cell(s: Settings) -> bool:
    return bool(s["cell"])


def _conv_form(s: Settings) -> str:
    reach = (s["kernel"] - 1) * s["dilation"] + 1
    return "kept" if s["stride"] == 1 and s["pads"] == [reach - 1, 0] else "whole"


def _windowed(program: StepProgram, x: StepValues, s: Settings, reach: int) -> int:
    """Return the time axis of windows."""
    _whether(x.time is not None, "windows of no sequence")
    pads = None if s["pads"] is None else (s["pads"][0], s["pads"][1])
    if s["stride"] == 1 and (pads is None or sum(pads) == reach - 1):
        return x.time  # type: ignore[return-value]
    program.axes.append(TimeAxis(None, x.time, reach, s["stride"], pads))
    return len(program.axes) - 1


def _conv_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    _whether(x.size == s["channels"] and not s["channels"] % s["groups"] and not s["filters"] % s["groups"], "what a convolution reads")
    return [StepValues(s["filters"], _windowed(program, x, s, (s["kernel"] - 1) * s["dilation"] + 1))]


def _conv_arrays(s: Settings) -> Shapes:
    shapes: Shapes = {"W": (s["filters"], s["kernel"] * s["channels"] // s["groups"])}
    return {**shapes, "b": (s["filters"],)} if s["bias"] else shapes


def _conv_keeps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield f"{w.real} seen[{((s['kernel'] - 1) * s['dilation'] + 1) * s['channels']}];"


def _conv(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    channels, width, kernel = s["channels"], s["channels"] // s["groups"], s["kernel"]
    reach, per = (kernel - 1) * s["dilation"] + 1, s["filters"] // s["groups"]
    group = f" + j / {per} * {width}" if s["groups"] > 1 else ""
    over_sequences = _conv_form(s) == "whole"
    if over_sequences:
        yield from _padded(s, reach)
        yield "for (t = 0; t < m; t++) {"
        yield f"    {w.real} *y = y0 + t * {s['filters']};"
    else:
        yield f"{w.real} *y = y0;"
        if reach > 1:
            yield f"memmove(s->seen, s->seen + {channels}, sizeof s->seen - {channels} * sizeof s->seen[0]);"
        yield f"memcpy(s->seen + {(reach - 1) * channels}, x0, {channels} * sizeof s->seen[0]);"
    yield "    int i, j, k;"
    yield f"    for (j = 0; j < {s['filters']}; j++) {{"
    yield f"        {w.real} sum = 0;"
    yield f"        for (k = 0; k < {kernel}; k++) {{"
    if over_sequences:
        yield f"            const size_t p = t * {s['stride']} + (size_t)k * {s['dilation']};"
        yield f"            const {w.real} *x;"
        yield "            if (p < before || p - before >= n0) continue;"
        yield f"            x = x0 + (p - before) * {channels}{group};"
    else:
        yield f"            const {w.real} *x = s->seen + k * {s['dilation'] * channels}{group};"
    place = f"(j * {kernel} + k) * {width} + i"
    yield f"            for (i = 0; i < {width}; i++) sum += {w.get('W', place)} * x[i];"
    yield "        }"
    text = f"sum{w.times_scale('W', 'j')}" + (f" + {w.get('b', 'j')}" if s["bias"] else "")
    yield f"        y[j] = {text};"
    yield "    }"
    if over_sequences:
        yield "}"


def _padded(s: Settings, reach: int) -> Iterator[str]:
    """Yield the declaration of how many steps windows begin before the first."""
    yield "size_t t;"
    if s["pads"] is None:
        yield f"const size_t over = (m - 1) * {s['stride']} + {reach}, before = over > n0 ? (over - n0) / 2 : 0;"
    else:
        yield f"const size_t before = {s['pads'][0]};"


def _pool_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    return [StepValues(x.size, _windowed(program, x, s, s["kernel"]))]


def _pool(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    size, kernel = read[0].size, s["kernel"]
    yield from _padded(s, kernel)
    yield "for (t = 0; t < m; t++) {"
    yield "    int i;"
    yield f"    for (i = 0; i < {size}; i++) {{"
    yield "        size_t p, count = 0;"
    yield f"        {w.real} sum = {'-INFINITY' if s['operation'] == 'max' else '0'};"
    yield f"        for (p = t * {s['stride']}; p < t * {s['stride']} + {kernel}; p++) {{"
    yield "            if (p < before || p - before >= n0) continue;"
    yield f"            {_more('max' if s['operation'] == 'max' else 'sum', 'sum', f'x0[(p - before) * {size} + i]')}"
    yield "            count++;"
    yield "        }"
    result = "sum" if s["operation"] == "max" else f"sum / {kernel}" if s["counted"] else f"sum / ({w.real})count"
    yield f"        y0[t * {size} + i] = count ? {result} : sum;"
    yield "    }"
    yield "}"


def _over_time_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x, *mask = read
    _whether(x.time is not None and len(mask) == s.get("masked", 0) and all(value.size == 1 for value in mask), "what is reduced over time")
    program.joined([x.time, *(value.time for value in mask)])
    return [StepValues(x.size)]


def _over_time_keeps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield f"{w.real} sum[{read[0].size}];"
    yield f"{w.real} count;"


def _over_time(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield a reduction of all steps so far."""
    size, operation = read[0].size, s["operation"]
    yield "int i;"
    yield f"for (i = 0; i < {size}; i++) {{"
    indent = "    "
    if s["masked"]:
        yield "    if (x1[0] != 0) {"
        indent = "        "
    value = "x0[i]"
    yield f"{indent}if (s->count == 0) s->sum[i] = {value};"
    yield f"{indent}else {_more(operation, 's->sum[i]', value)}"
    if s["masked"]:
        yield "    }"
    yield "}"
    yield "s->count += 1;" if not s["masked"] else "s->count += x1[0] != 0;"
    yield f"for (i = 0; i < {size}; i++) y0[i] = s->sum[i]{' / s->count' if operation == 'mean' else ''};"


def _step_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    _whether(x.time is not None, "a step of no sequence")
    return [StepValues(x.size)]


def _last(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield "int i;"
    yield f"for (i = 0; i < {read[0].size}; i++) y0[i] = x0[i];"


def _first(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield the first step: later ones leave it."""
    size = read[0].size
    yield "int i;"
    yield f"if (!s->begun) for (i = 0; i < {size}; i++) s->first[i] = x0[i];"
    yield "s->begun = 1;"
    yield f"for (i = 0; i < {size}; i++) y0[i] = s->first[i];"


def _first_keeps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield f"{w.real} first[{read[0].size}];"
    yield "int begun;"


def _until_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    _whether(len(read) == 2 and read[0].size == 1 and read[0].time is None and read[1].time is not None, "what counts steps")
    return [StepValues(1, read[1].time)]


def _until_keeps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    yield f"{w.real} count;"


def _until(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield whether a step is among the first so many."""
    yield "(void)x1;"
    yield f"y0[0] = s->count < ({w.real})x0[0];"
    yield "s->count += 1;"


# Whole sequences


def _flip(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    size = read[0].size
    yield "size_t t;"
    yield "int i;"
    yield f"for (t = 0; t < n0; t++) for (i = 0; i < {size}; i++) y0[(n0 - 1 - t) * {size} + i] = x0[t * {size} + i];"


def _same_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    _whether(x.time is not None, "a sequence")
    return [StepValues(x.size, x.time)]


def _flat_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    length = None if x.time is None else program.length(x.time)
    _whether(length and not x.size % s["inner"], "a sequence of any length as so many numbers")
    return [StepValues(x.size * length)]  # type: ignore[operator]


def _flat(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield the steps as an axis in front of the inner ones."""
    size, inner = read[0].size, s["inner"]
    yield "size_t t;"
    yield "int i;"
    where = f"((size_t)i / {inner} * n0 + t) * {inner} + (size_t)i % {inner}"
    yield f"for (t = 0; t < n0; t++) for (i = 0; i < {size}; i++) y0[{where}] = x0[t * {size} + i];"


def _steps_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    _whether(x.time is None and not x.size % (s["length"] * s["inner"]), "numbers as steps")
    program.axes.append(TimeAxis(s["length"]))
    return [StepValues(x.size // s["length"], len(program.axes) - 1)]


def _as_steps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    """Yield an axis in front of the inner ones as steps."""
    size, inner = read[0].size // s["length"], s["inner"]
    yield "size_t t;"
    yield "int i;"
    where = f"((size_t)i / {inner} * m + t) * {inner} + (size_t)i % {inner}"
    yield f"for (t = 0; t < m; t++) for (i = 0; i < {size}; i++) y0[t * {size} + i] = x0[{where}];"


def _again_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    _whether(x.time is None, "what is repeated has steps")
    program.axes.append(TimeAxis(s["length"]))
    return [StepValues(x.size, len(program.axes) - 1)]


def _again(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    size = read[0].size
    yield "size_t t;"
    yield "int i;"
    yield f"for (t = 0; t < m; t++) for (i = 0; i < {size}; i++) y0[t * {size} + i] = x0[i];"


def _some_steps_gives(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    length = None if x.time is None else program.length(x.time)
    last = s["start"] + (s["count"] - 1) * s["step"]
    _whether(length and last < length, "some steps of a sequence of any length")
    program.axes.append(TimeAxis(s["count"]))
    return [StepValues(x.size, len(program.axes) - 1)]


def _some_steps(w: Spelling, s: Settings, read: Sequence[StepValues]) -> Iterator[str]:
    size = read[0].size
    yield "size_t t;"
    yield "int i;"
    where = f"({s['start']} + t * {s['step']}) * {size} + i"
    yield "(void)n0;"
    yield f"for (t = 0; t < m; t++) for (i = 0; i < {size}; i++) y0[t * {size} + i] = x0[{where}];"


_OVER_SEQUENCES: Callable[[Settings], str] = lambda settings: "whole"  # noqa: E731
_WITH_MEMORY: Callable[[Settings], str] = lambda settings: "kept"  # noqa: E731


def _alike(program: StepProgram, s: Settings, read: Sequence[StepValues], name: str) -> list[StepValues]:
    x = _single(read)
    return [StepValues(x.size, x.time)]


def _with_bias(s: Settings, shapes: Shapes) -> Shapes:
    return {**shapes, "b": (s["units"],)} if s["bias"] else shapes


def _norm_arrays(s: Settings) -> Shapes:
    return {word: (s["width"],) for word in ("scale", "shift") if s[word]}


KINDS: Mapping[str, OperationKind] = {
    "dense": OperationKind(
        {"width": _count, "units": _count, "bias": _truth},
        _dense_gives,
        _dense,
        arrays=lambda s: _with_bias(s, {"W": (s["units"], s["width"])}),
    ),
    "embedding": OperationKind(
        {"rows": _count, "width": _count},
        lambda program, s, read, name: [StepValues(_single(read).size * s["width"], read[0].time)],
        _embedding,
        arrays=lambda s: {"table": (s["rows"], s["width"])},
    ),
    "function": OperationKind({"function": _among(*FUNCTIONS), "alpha": _perhaps(_real)}, _alike, _function),
    "softmax": OperationKind({"width": _count, "inner": _count, "log": _truth}, _grouped_gives, _softmax),
    "affine": OperationKind(
        {"width": _count, "inner": _count},
        _affine_gives,
        _affine,
        arrays=lambda s: {"scale": (s["width"],), "shift": (s["width"],)},
    ),
    "slopes": OperationKind({"width": _count, "inner": _count}, _affine_gives, _slopes, arrays=lambda s: {"slope": (s["width"],)}),
    "norm": OperationKind(
        {"width": _count, "epsilon": _real, "centred": _truth, "unit": _truth, "scale": _truth, "shift": _truth},
        _grouped_gives,
        _norm,
        arrays=_norm_arrays,
    ),
    "combined": OperationKind({"operation": _among(*COMBINED), "operands": _operands}, _combined_gives, _combined),
    "joined": OperationKind({"outer": _count}, _joined_gives, _joined),
    "taken": OperationKind(
        {"length": _count, "inner": _count, "start": _index, "step": _count, "count": _count, "back": _truth}, _strided_gives, _strided
    ),
    "turned": OperationKind(
        {"shape": _counts, "order": lambda value: isinstance(value, list) and len(value) <= AXES and all(map(_index, value))},
        _turned_gives,
        _turned,
    ),
    "repeated": OperationKind({"inner": _count, "count": _count}, _repeated_gives, _repeated),
    "folded": OperationKind({"length": _count, "inner": _count, "operation": _among(*_FOLDED)}, _folded_gives, _folded),
    "stored": OperationKind({"size": _count}, _stored_gives, _stored, arrays=lambda s: {"numbers": (s["size"],)}),
    "full": OperationKind({"size": _count, "number": _real}, _full_gives, _full),
    "recurrent": OperationKind(
        {"backwards": _truth, "turned": _truth, "sequences": _truth, "zero": _truth, "masked": _truth, "begun": _truth, "ends": _truth,
         "cell": _truth},
        _recurrent_gives, _recurrent, _recurrent_form, keeps=_recurrent_keeps, why="reads its sequence from the end",
    ),
    "conv": OperationKind(
        {"channels": _count, "filters": _count, "kernel": _count, "stride": _count, "dilation": _count, "groups": _count, "bias": _truth,
         "pads": _pads},
        _conv_gives, _conv, _conv_form, _conv_arrays, _conv_keeps, "is a convolution that looks ahead, or skips steps",
    ),
    "pool": OperationKind(
        {"operation": _among("max", "average"), "kernel": _count, "stride": _count, "pads": _pads, "counted": _truth},
        _pool_gives, _pool, _OVER_SEQUENCES, why="pools over windows of steps",
    ),
    "over time": OperationKind(
        {"operation": _among(*_FOLDED), "masked": _truth}, _over_time_gives, _over_time, _WITH_MEMORY, keeps=_over_time_keeps
    ),
    "last": OperationKind({}, _step_gives, _last, _WITH_MEMORY),
    "first": OperationKind({}, _step_gives, _first, _WITH_MEMORY, keeps=_first_keeps),
    "until": OperationKind({}, _until_gives, _until, _WITH_MEMORY, keeps=_until_keeps),
    "flip": OperationKind({}, _same_gives, _flip, _OVER_SEQUENCES, why="turns the sequence round"),
    "flat": OperationKind({"inner": _count}, _flat_gives, _flat, _OVER_SEQUENCES, why="joins the numbers of all steps"),
    "as steps": OperationKind({"length": _count, "inner": _count}, _steps_gives, _as_steps, _OVER_SEQUENCES, why="makes steps of numbers"),
    "again": OperationKind({"length": _count}, _again_gives, _again, _OVER_SEQUENCES, why="repeats what comes of a whole sequence"),
    "some steps": OperationKind(
        {"start": _index, "step": _count, "count": _count}, _some_steps_gives, _some_steps, _OVER_SEQUENCES, why="takes some of the steps"
    ),
}  # fmt: skip
"""The kinds of operations."""
