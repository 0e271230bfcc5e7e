"""ncnn's layers in the common operations, one rule each.

A blob has the axes (channels, depth, height, width), of which some in front may be absent, and no axis for a batch: a net computes one
sequence. Each of its layers does so for itself, so that here every blob has the batch in front: an axis of 1 for numbers of the file alone.

A parameter that a rule leaves unread is refused by its number. Types are known by their names alone: a layer that a user registers under
a name of ncnn's is not told from ncnn's own.

Source: ncnn, src/layer/*.cpp, load_param and forward of each type; src/layer/fused_activation.h.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.formats.ncnn.param import LISTS, ParamLayer
from rnnconvert.formats.ncnn.stored import ANOTHER_LAYERS
from rnnconvert.graphs.program.lowering import END, Block, CheckedRule, Rule

DOMAIN = "ncnn"
_ABSENT = -233
"""In the place of a length or a place that is not stated; in the place of pads, as many as give a window to each stride."""
_SAME = {-233: "SAME_UPPER", -234: "SAME_LOWER"}
_HARMLESS = frozenset((LISTS - 30, 31))
"""Parameters of every layer that change nothing: shapes that its author saw, and which kinds of kernels it may take."""
_TYPES: Mapping[int, np.dtype[Any]] = {1: np.dtype("f4"), 2: np.dtype("f2"), 4: BFLOAT16}
"""Cast's element types."""
_ORDERS = {2: ("wh", "hw"), 3: ("whc", "hwc", "wch", "cwh", "hcw", "chw")}
"""Permute's numbers, by the number of axes: which axis becomes the width, which the height, which the channels."""
AXES = {1: "w", 2: "hw", 3: "chw", 4: "cdhw"}
_KEYS = (("w", 0), ("h", 1), ("d", 11), ("c", 2))
"""The parameters that state something of each axis."""
_REAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")
"""A number with a point or an exponent: ncnn reads the bits of any other one as those of a whole number."""
_LARGEST = float(np.finfo(np.float32).max)
_INTEGER = re.compile(r"[+-]?\d{1,10}")

Lengths = list[int | None]


@dataclass
class Blobs:
    """What is known of the blobs of a net.

    lengths   of their axes, None for one that is open; a blob whose axes nothing shows is missing
    alone     those that are the same for every sequence: their batch is 1
    integers  those that hold whole numbers
    batch     an input of the net, whose first axis is the batch
    """

    lengths: dict[str, Lengths] = field(default_factory=dict)
    alone: set[str] = field(default_factory=set)
    integers: set[str] = field(default_factory=set)
    batch: str = ""


def _count(lengths: Lengths) -> int | None:
    """Return how many numbers a blob has; None where a length is open."""
    return None if None in lengths else math.prod(length or 0 for length in lengths)


class LayerRule(CheckedRule):
    """One layer, and the graph that it is written into."""

    def __init__(self, row: ParamLayer, arrays: Mapping[str, Array], blobs: Blobs, block: Block) -> None:
        super().__init__(block, row.bottoms, row.tops, row.name)
        self.row, self.arrays, self.blobs = row, arrays, blobs
        self._read: set[int] = set()

    by_rule = Rule.by_rule  # a number beyond the end of a table of ncnn's is a setting that is not known, and no stumble of ours

    def unread(self) -> Mapping[int, object]:
        return {key: value for key, value in self.row.parameters.items() if key not in self._read | _HARMLESS}

    def write(self) -> bool:
        """Write the layer; one of another domain where it has no equivalent. Return whether it has one."""
        self.block.operator, tops = self.row.type, self.row.tops
        if self.write_checked(_RULES.get(self.row.type), self.row.type, self.row.bottoms, DOMAIN, "the parameter "):
            self.blobs.alone.update(tops if self.blobs.alone.issuperset(self.row.bottoms) else ())
            return True
        for top in tops:
            self.blobs.lengths.pop(top, None)
            self.blobs.integers.discard(top)
        return False

    # Parameters

    def integer(self, key: int, default: int = 0) -> int:
        """Return a parameter that is a whole number."""
        self._read.add(key)
        text = self.row.parameters.get(key, str(default))
        if not _INTEGER.fullmatch(text):
            raise ValueError(f"{key}={text}")
        return int(text)

    def flag(self, key: int, default: int = 0) -> bool:
        """Return a parameter that is a truth, which some of ncnn's kernels compare with 1, and others with 0."""
        number = self.integer(key, default)
        if number not in (0, 1):
            raise ValueError(f"{key}={number}")
        return bool(number)

    def real(self, key: int, default: float = 0.0) -> float:
        """Return a parameter that is a real number, as ncnn holds it."""
        self._read.add(key)
        text = self.row.parameters.get(key)
        if text is not None and not _REAL.fullmatch(text):
            raise ValueError(f"{key}={text}")
        return _as_held(default if text is None else text)

    def listed(self, key: int) -> list[float]:
        """Return a parameter that is a list: "2,0,1" is one of two numbers."""
        self._read.add(LISTS - key)
        text = self.row.parameters.get(LISTS - key, "0")
        count, *numbers = text.split(",")
        if not count.isdecimal() or int(count) != len(numbers):
            raise ValueError(f"{LISTS - key}={text}")
        return [_as_held(number) if _REAL.fullmatch(number) else int(number) for number in numbers]

    def places(self, key: int) -> list[int]:
        """Return a parameter that is a list of whole numbers."""
        numbers = self.listed(key)
        if any(not isinstance(number, int) for number in numbers):
            raise ValueError("a real number as a place")
        return [int(number) for number in numbers]

    # Blobs

    def rank(self, place: int = 0) -> int:
        """Return how many axes a blob has that it reads."""
        return len(self.lengths(place))

    def lengths(self, place: int = 0) -> Lengths:
        """Return the lengths of the axes of a blob that it reads. Raises ValueError where they are not known."""
        lengths = self.blobs.lengths.get(self.inputs[place])
        if lengths is None:
            raise ValueError(f"{self.inputs[place]} is not known")
        return lengths

    def x(self, place: int = 0, integers: bool = False) -> str:
        """Return a blob that it reads. Raises ValueError for one of whole numbers, unless the layer moves any."""
        if self.inputs[place] in self.blobs.integers and not integers:
            raise ValueError("whole numbers")
        return self.inputs[place]

    def batched(self, place: int) -> str:
        """Return a blob that it reads, once for every sequence of the batch."""
        name = self.x(place)
        if name not in self.blobs.alone or self.blobs.alone.issuperset(self.row.bottoms):
            return name
        count = self.block.add("Gather", [self.block.add("Shape", [self.blobs.batch]), self.whole_numbers([0])], axis=0)
        shape = self.block.add("Concat", [count, self.whole_numbers([1] * self.rank(place))], axis=0)
        return self.block.add("Expand", [name, shape])

    def axis(self, index: int) -> int:
        """Return an axis of its first blob, counted from the front, that a parameter states."""
        axis = self.integer(index)
        return self.counted(axis, self.rank())

    @staticmethod
    def counted(axis: int, rank: int) -> int:
        """Return an axis counted from the front. Raises IndexError for one that there is not."""
        return range(rank)[axis]

    def give(self, lengths: Sequence[int | None], place: int = 0) -> bool:
        """Note the axes of a blob that it gives."""
        if not 1 <= len(lengths) <= 4 or any(length is not None and length < 1 for length in lengths):
            raise ValueError(f"a blob of {lengths}")
        self.blobs.lengths[self.outputs[place]] = list(lengths)
        return True

    def gives(self, lengths: Sequence[int | None], kind: str, inputs: Sequence[str], **attributes: Any) -> bool:
        """Write one common operation that gives a blob of these lengths."""
        return self.give(lengths) and self.add(kind, inputs, **attributes)

    def alike(self, kind: str, *more: str, **attributes: Any) -> bool:
        """Write one common operation of a blob, and other values, that gives as many numbers as the blob has."""
        return len(self.inputs) == 1 and self.gives(self.lengths(), kind, [self.x(), *more], **attributes)

    def stored(self, name: str, shape: Sequence[int] = ()) -> str:
        """Return an array of the layer as a value."""
        array = self.arrays.get(name)
        if array is None:
            raise ValueError(f"it has no {name}")
        # Layers may share a name; blobs do not.
        value = self.block.constant(np.asarray(array, np.float32), f" {self.outputs[0]}/{name}", f"{self.label}/{name}")
        return self.block.add("Reshape", [value, self.whole_numbers(shape)]) if shape else value

    def length(self, name: str, place: int, axis: int) -> str:
        """Return the length of an axis of a blob that it reads as a value of one number."""
        stated = self.lengths(place)[axis]
        if stated is not None:
            return self.whole_numbers([stated])
        return self.block.add("Gather", [self.block.add("Shape", [name]), self.whole_numbers([axis + 1])], axis=0)

    def ends(self, kind: str, inputs: Sequence[str], **attributes: Any) -> bool:
        """Write one common operation, and the function of its result that the parameters 9 and 10 state."""
        function, numbers = self.integer(9), self.listed(10)
        if not function:
            return self.add(kind, inputs, **attributes)
        value = self.block.add(kind, inputs, name=self.label, **attributes)
        self.block.operator = f"{self.row.type} with the activation {function}"
        return self._activated(value, function, numbers)

    def _activated(self, value: str, function: int, numbers: Sequence[float]) -> bool:
        if function in (1, 4, 5):
            return self.add({1: "Relu", 4: "Sigmoid", 5: "Mish"}[function], [value])
        if function == 2:
            return self.add("LeakyRelu", [value], alpha=numbers[0])
        if function == 3:
            return self.add("Clip", [value], min=numbers[0], max=numbers[1])
        return function == 6 and self._hard_swish(value, numbers[0], numbers[1])

    def _hard_swish(self, value: str, alpha: float, beta: float) -> bool:
        if alpha == np.float32(1 / 6) and beta == 0.5:
            return self.add("HardSwish", [value])
        return alpha > 0 and self.add("Mul", [value, self.block.add("Clip", [self.affine(value, alpha, beta)], min=0.0, max=1.0)])

    # Moves

    def copied(self) -> bool:
        """Write blobs as they are."""
        for place, top in enumerate(self.outputs):
            source = place if len(self.inputs) > 1 else 0
            self.block.add("Identity", [self.inputs[source]], [top], self.label)
            self.give(self.lengths(source), place)
            self.blobs.integers.update({top} if self.inputs[source] in self.blobs.integers else ())
        return len(self.inputs) in (1, len(self.outputs))

    def packed(self) -> bool:
        """Write the same numbers in another order of the memory."""
        self.integer(0, 1)
        return not self.integer(1) and self.integer(2) == self.integer(3) and self.copied()

    def reshape(self) -> bool:
        """Write elements in another shape; of 0 is the length of the same axis in what it reads, and -1 what is left."""
        stated = {axis: self.integer(key, _ABSENT) for axis, key in _KEYS}
        if self.integer(3) or self.integer(12, -_ABSENT) != -_ABSENT or self.integer(13, -_ABSENT) != -_ABSENT:
            return False  # a permutation in old files, and axes of batches
        rank = next((rank for rank, axis in ((0, "w"), (1, "h"), (2, "c"), (3, "d")) if stated[axis] == _ABSENT), 4)
        x, before = self.x(integers=True), self.lengths()
        if not rank:
            return self.copied()
        places = dict(zip(AXES[len(before)], range(len(before)), strict=True))
        shape: list[str] = [self.whole_numbers([0])]
        after = Lengths()
        for axis in AXES[rank]:
            length = stated[axis]
            same = not length and axis in places
            after.append(before[places[axis]] if same else None if length == -1 else length or 1)
            shape.append(self.length(x, 0, places[axis]) if same else self.whole_numbers([length or 1]))
        if None in after and None not in before and after.count(None) == 1:
            rest, total = math.prod(length or 1 for length in after), math.prod(length or 1 for length in before)
            after[after.index(None)] = total // rest
        if None not in (count := _count(before), other := _count(after)) and count != other:
            return False
        self.blobs.integers.update(self.outputs[:1] if self.inputs[0] in self.blobs.integers else ())
        return self.gives(after, "Reshape", [x, self.block.add("Concat", shape, axis=0)])

    def permute(self) -> bool:
        """Write axes in another order."""
        number, lengths = self.integer(0), self.lengths()
        if not number or len(lengths) < 2:
            return self.copied()
        letters = AXES[len(lengths)]
        order = [letters.index(axis) for axis in reversed(_ORDERS[len(lengths)][number])] if len(lengths) < 4 else []
        return bool(order) and self.gives(
            [lengths[axis] for axis in order], "Transpose", [self.x()], perm=[0, *(axis + 1 for axis in order)]
        )

    def _axes(self, rank: int) -> list[int]:
        """Return the axes that Squeeze and ExpandDims name: in an array, or each by a separate number."""
        flags = [AXES[rank].index(axis) for axis, key in _KEYS if self.integer(key) and axis in AXES[rank]]
        axes = sorted({self.counted(axis, rank) for axis in self.places(3)})
        return axes or sorted(flags)

    def squeeze(self) -> bool:
        """Write axes of length 1 away."""
        lengths = self.lengths()
        axes = self._axes(len(lengths))
        if any(lengths[axis] is None for axis in axes):
            return False  # only one of length 1 goes
        gone = [axis for axis in axes if lengths[axis] == 1]
        gone = gone[: -1 if len(gone) == len(lengths) else None]  # one axis is left
        left = [length for axis, length in enumerate(lengths) if axis not in gone]
        if not gone:
            return self.copied()
        return self.gives(left, "Squeeze", [self.x()], axes=[axis + 1 for axis in gone])

    def expand(self) -> bool:
        """Write further axes of length 1."""
        axes = self.places(3)
        rank = self.rank() + len(axes)
        places = sorted({self.counted(axis, rank) for axis in axes})
        lengths = list(self.lengths())
        for axis in places:
            lengths.insert(axis, 1)
        return len(places) == len(axes) > 0 and self.gives(lengths, "Unsqueeze", [self.x()], axes=[axis + 1 for axis in places])

    def flatten(self) -> bool:
        """Write one axis of all."""
        lengths = self.lengths()
        total = None if None in lengths else math.prod(length or 1 for length in lengths)
        return self.gives([total], "Flatten", [self.x()], axis=1)

    def slice(self) -> bool:
        """Write parts along an axis, by their lengths or by where they end; one of -233 is an equal share of what is left."""
        axis, sizes, bounds = self.axis(1), self.places(0), self.places(2)
        x, lengths, count = self.x(), self.lengths(), len(self.outputs)
        if len(bounds) not in (count - 1, count) if bounds else len(sizes) != count:
            return False
        total = lengths[axis]
        if total is None and not bounds and all(size == _ABSENT for size in sizes):
            for place in range(count):
                self.give(lengths, place)
            return self.add("Split", [x], axis=axis + 1)
        ends: Lengths = [end + total if end < 0 and total is not None else end for end in bounds[: count - 1]]
        for place, size in enumerate(sizes if not bounds else ()):
            at = ends[-1] if ends else 0
            rest = None if total is None and place == count - 1 else ((total or 0) - (at or 0)) // (count - place)
            ends.append(None if rest is None and size == _ABSENT else (at or 0) + (rest or 0 if size == _ABSENT else size))
        ends += [total] * bool(bounds)
        for place, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if start is None or not 0 <= start < (end or END) or (total is not None and (end or END) > total):
                return False
            self.give([*lengths[:axis], None if end is None else end - start, *lengths[axis + 1 :]], place)
            self.block.add("Slice", [x], [self.outputs[place]], self.label, axes=[axis + 1], starts=[start], ends=[end or END])
        return True

    def crop(self) -> bool:
        """Write ranges of axes: by where they begin and end, or by what is cut off at both sides and how much is left at most."""
        lengths, x = list(self.lengths()), self.x()
        starts, ends, axes = (self.places(key) for key in (9, 10, 11))
        offsets, sizes, behind = (
            {axis: self.integer(key, 0) for axis, key in zip("whdc", keys, strict=True)}
            for keys in ((0, 1, 13, 2), (3, 4, 14, 5), (6, 7, 15, 8))
        )
        ranges: list[tuple[int, int, int]] = []
        if starts and ends:
            axes = [self.counted(axis, len(lengths)) for axis in axes] or list(range(len(lengths)))
            if not len(starts) == len(ends) == len(axes) or len({*axes}) < len(axes):
                return False
            for axis, start, end in zip(axes, starts, ends, strict=True):
                ranges.append((axis, 0 if start == _ABSENT else start, END if end in (_ABSENT, 0) else end))
        else:
            for axis, letter in enumerate(AXES[len(lengths)]):
                start, size, left = offsets[letter], sizes[letter], behind[letter]
                if size == 0 or (size != _ABSENT and (size < 0 or left)) or start < 0 or left < 0:
                    return False  # what is left is decided by two at once, or by another blob
                ranges.append((axis, start, -left or END if size == _ABSENT else start + size))
        for axis, start, end in ranges:
            length = lengths[axis]
            if length is not None:
                low, high = (start if start >= 0 else length + start), min(length, end if end > 0 else length + end)
                if not 0 <= low < high:
                    return False
                lengths[axis] = high - low
            elif start < 0 < end < END or end < start < 0:
                return False
            else:
                span = -start if start < 0 and end == END else end - start if (start < 0) == (end < 0) and end != END else None
                lengths[axis] = span
        if len(self.inputs) != 1 or not ranges:
            return False
        along = {
            "axes": [axis + 1 for axis, _, _ in ranges],
            "starts": [start for _, start, _ in ranges],
            "ends": [end for *_, end in ranges],
        }
        return self.gives(lengths, "Slice", [x], **along)

    def concat(self) -> bool:
        """Write blobs side by side along an axis."""
        axis, every = self.axis(0), [self.lengths(place) for place in range(len(self.inputs))]
        if len({len(lengths) for lengths in every}) > 1:
            return False
        joined = [next((lengths[n] for lengths in every if lengths[n] is not None), None) for n in range(len(every[0]))]
        along = [lengths[axis] for lengths in every]
        joined[axis] = None if None in along else sum(length or 0 for length in along)
        return self.gives(joined, "Concat", [self.batched(place) for place in range(len(self.inputs))], axis=axis + 1)

    def flipped(self) -> bool:
        """Write a blob turned around along axes."""
        axes, rank = self.places(0), self.rank()
        if not axes:
            return self.copied()
        self.inputs = [self.x()]
        return self.give(self.lengths()) and self.flip(sorted({self.counted(axis, rank) + 1 for axis in axes}))

    def tiled(self) -> bool:
        """Write a blob several times along its axes."""
        repeats, lengths = self.places(2), list(self.lengths())
        axis, times = self.integer(0), self.integer(1, 1)
        if not repeats:
            repeats = [1] * len(lengths)
            repeats[self.counted(axis, len(lengths))] = times
        if len(repeats) > len(lengths) or min(repeats) < 1:
            return False
        repeats = [1] * (len(lengths) - len(repeats)) + repeats
        after = [None if length is None else length * count for length, count in zip(lengths, repeats, strict=True)]
        return self.gives(after, "Tile", [self.x(), self.whole_numbers([1, *repeats])])

    def bordered(self) -> bool:
        """Write numbers around a blob."""
        top, bottom, left, right, kind = (self.integer(key) for key in (0, 1, 2, 3, 4))
        number, each, front, behind = self.real(5), self.integer(6), self.integer(7), self.integer(8)
        lengths = self.lengths()
        sides = {"w": (left, right), "h": (top, bottom), "c": (front, behind) if len(lengths) == 3 else (0, 0), "d": (front, behind)}
        pairs = [sides[axis] for axis in AXES[len(lengths)]]
        if each or min(map(min, pairs)) < 0 or kind not in (0, 1, 2):
            return False
        after = [None if length is None else length + sum(pair) for length, pair in zip(lengths, pairs, strict=True)]
        counts = self.whole_numbers([0, *(low for low, _ in pairs), 0, *(high for _, high in pairs)])
        filled = [self.constant(number)] if not kind else []
        return self.gives(after, "Pad", [self.x(), counts, *filled], mode=("constant", "edge", "reflect")[kind])

    def cast(self) -> bool:
        """Write a change of the element type."""
        self.integer(0)
        to = _TYPES.get(self.integer(1))
        return to is not None and self.alike("Cast", to=to)

    # Functions of each number

    def scaled(self, kind: str) -> bool:
        """Write a function of `shift + scale * x`: a power of a base, a logarithm, or a power."""
        base, inside = self.real(0, 1.0 if kind == "Pow" else -1.0), self.affine(self.x(), self.real(1, 1.0), self.real(2))
        self.give(self.lengths())
        if kind == "Pow":
            return self.add(kind, [inside, self.constant(base)])
        if base == -1:
            return self.add(kind, [inside])
        if kind == "Exp":
            return base > 0 and self.add("Pow", [self.constant(base), inside])
        return base > 0 and base != 1 and self.add("Mul", [self.block.add("Log", [inside]), self.constant(1 / math.log(base))])

    def hard_swish(self) -> bool:
        """Write HardSwish with its two numbers."""
        return self.give(self.lengths()) and self._hard_swish(self.x(), self.real(0, 0.2), self.real(1, 0.5))

    def swish(self) -> bool:
        """Write Swish."""
        return self.gives(self.lengths(), "Mul", [self.x(), self.block.add("Sigmoid", [self.x()])])

    def selu(self) -> bool:
        """Write SELU; with other numbers than the paper's it has no common operation."""
        paper = np.allclose([self.real(0, 1.67326324), self.real(1, 1.050700987)], [1.67326324, 1.050700987], rtol=1e-6)
        return paper and self.alike("Selu")

    def dropout(self) -> bool:
        """Write what dropout does to numbers where nothing is trained."""
        scale = self.real(0, 1.0) if self.row.parameters.get(0) != "1" else 1.0
        return self.give(self.lengths()) and self.add("Identity", [self.affine(self.x(), scale, 0.0)])

    def above(self) -> bool:
        """Write 1 where a number is above a threshold, and 0 elsewhere."""
        return self.gives(
            self.lengths(), "Cast", [self.block.add("Greater", [self.x(), self.constant(self.real(0))])], to=np.dtype(np.float32)
        )

    def gated(self) -> bool:
        """Write the first half of an axis times the sigmoid of the second one."""
        axis = self.axis(0)
        lengths = list(self.lengths())
        total = lengths[axis]
        if total is None or total % 2:
            return False
        lengths[axis] = total // 2
        first, second = (
            self.block.add("Slice", [self.x()], axes=[axis + 1], starts=[start], ends=[start + total // 2]) for start in (0, total // 2)
        )
        return self.gives(lengths, "Mul", [first, self.block.add("Sigmoid", [second])])

    def softmax(self) -> bool:
        """Write a softmax along an axis; old files mean another axis."""
        axis, meant, lengths = self.axis(0), self.flag(1), self.lengths()
        if not meant and self.integer(0):
            return False
        self.inputs = [self.x()]
        return self.give(lengths) and self.softmax_along("Softmax", len(lengths) + 1, axis + 1)

    def summed(self) -> bool:
        """Write the sums of all numbers up to each along an axis."""
        place = self.whole_numbers([self.axis(0) + 1])
        return self.gives(self.lengths(), "CumSum", [self.x(), self.block.add("Squeeze", [place], axes=[0])])

    def unary(self) -> bool:
        """Write a function of each number by its number."""
        number, x, add = self.integer(0), self.x(), self.block.add
        self.give(self.lengths())
        if number in _UNARY:
            return self.add(_UNARY[number], [x])
        if number == 4:
            return self.add("Mul", [x, x])
        if number == 6:
            return self.add("Reciprocal", [add("Sqrt", [x])])
        return number == 17 and self.add("Mul", [add("Log", [x]), self.constant(1 / math.log(10))])

    # Several blobs

    def binary(self) -> bool:
        """Write an operator of two blobs, or of a blob and a number."""
        number, by_number, value = self.integer(0), self.flag(1), self.real(2)
        if by_number:
            lengths, pair = self.lengths(), [self.x(), self.constant(value)]
        elif len(self.inputs) == 2:
            lengths, pair = self._spread()
        else:
            return False
        self.give(lengths)
        kind, turned = _BINARY[number]
        pair = pair[::-1] if turned else pair
        if kind == "FloorDiv":
            return self.add("Floor", [self.block.add("Div", pair)])
        return self.add(kind, pair, **({"fmod": 1} if kind == "Mod" else {}))

    def _spread(self) -> tuple[Lengths, list[str]]:
        """Return two blobs of as many axes, and the lengths of what they are spread to."""
        every, names = [self.lengths(place) for place in (0, 1)], [self.x(place) for place in (0, 1)]
        rank = max(map(len, every))
        for place, other in ((0, 1), (1, 0)):
            lengths, new = every[place], rank - len(every[place])
            if not new:
                continue
            behind = len(lengths) > 1 or self._is_first(lengths[0], every[other][0])
            every[place] = [*lengths, *[1] * new] if behind else [*[1] * new, *lengths]
            first = len(lengths) + 1 if behind else 1
            names[place] = self.block.add("Unsqueeze", [names[place]], axes=[axis + first for axis in range(new)])
        spread = Lengths()
        for pair in zip(*every, strict=True):
            longer = {length for length in pair if length is not None and length != 1}
            if len(longer) > 1:
                raise ValueError(f"blobs of {every}")
            spread.append(longer.pop() if longer else None if None in pair else 1)
        return spread, names

    @staticmethod
    def _is_first(length: int | None, first: int | None) -> bool:
        """Return whether a vector stands for the first axis of a blob: where it is as long. Raises ValueError where a run decides that."""
        if length == 1:
            return False
        if length is None or first is None:
            raise ValueError("a vector of a length that a run decides")
        return length == first

    def eltwise(self) -> bool:
        """Write the product, the sum with weights, or the largest of blobs of one shape."""
        kind, factors = self.integer(0), self.listed(1)
        blobs = [self.x(place) for place in range(len(self.inputs))]
        if len(blobs) < 2 or kind not in (0, 1, 2) or (factors and (kind != 1 or len(factors) != len(blobs))):
            return False
        if len({self.rank(place) for place in range(len(blobs))}) > 1:
            return False
        blobs = [self.affine(blob, factor, 0.0) for blob, factor in zip(blobs, factors or [1.0] * len(blobs), strict=True)]
        operator, (value, *others) = ("Mul", "Add", "Max")[kind], blobs
        for other in others[:-1]:
            value = self.block.add(operator, [value, other])
        return self.gives(self.lengths(), operator, [value, others[-1]])

    def multiplied(self) -> bool:
        """Write a product of matrices, or of stacks of them; a vector is one row, or one column."""
        turned, ranks = self.flag(0), [self.rank(place) for place in (0, 1)]
        most, every, factors = max(2, *ranks), list[Lengths](), list[str]()
        for place, rank in enumerate(ranks):
            name, lengths = self.x(place), list(self.lengths(place))
            if rank == 1:
                name = self.block.add("Unsqueeze", [name], axes=[1 + place])
                lengths.insert(place, 1)
            elif place and turned:
                name = self.block.add("Transpose", [name], perm=[*range(rank - 1), rank, rank - 1])
                lengths[-2:] = lengths[:-3:-1]
            new = most - len(lengths)
            factors.append(self.block.add("Unsqueeze", [name], axes=[axis + 1 for axis in range(new)]) if new else name)
            every.append([*[1] * new, *lengths])
        left, right = every
        if len(self.inputs) != 2 or (left[-1] != right[-2] and None not in (left[-1], right[-2])):
            return False
        stacks = [b if a in (1, None) and b is not None else a for a, b in zip(left[:-2], right[:-2], strict=True)]
        after, gone = [*stacks, left[-2], right[-1]], [axis for axis, rank in zip((most - 2, most - 1), ranks, strict=True) if rank == 1]
        gone = gone[:1] if len(gone) == most else gone  # of two vectors one number is left
        if not gone:
            return self.gives(after, "MatMul", factors)
        after = [length for axis, length in enumerate(after) if axis not in gone]
        return self.gives(after, "Squeeze", [self.block.add("MatMul", factors)], axes=[axis + 1 for axis in gone])

    def reduce(self) -> bool:
        """Write a reduction of the numbers along axes."""
        number, every, factor, axes, keep, meant = (
            self.integer(0), self.flag(1, 1), self.real(2, 1.0), self.places(3), self.flag(4), self.flag(5),
        )  # fmt: skip
        lengths = self.lengths()
        if (axes and not meant) or number not in _REDUCED:
            return False  # old files mean other axes
        along = list(range(len(lengths))) if every or len(lengths) == 1 else sorted({self.counted(axis, len(lengths)) for axis in axes})
        left = [1 if axis in along else length for axis, length in enumerate(lengths) if keep or axis not in along]
        value = self.x()
        kind, before = _REDUCED[number]
        value = self.block.add(before, [value]) if before else value
        if along:
            value = self.block.add(kind, [value], axes=[axis + 1 for axis in along], keepdims=int(keep))
        if not left:
            value = self.block.add("Unsqueeze", [value], axes=[1])
        return bool(along) and self.gives(left or [1], "Identity", [self.affine(value, factor, 0.0)])

    # Layers with numbers

    def connected(self) -> bool:
        """Write a product with a matrix, of each row of a blob of two axes that are as long, and else of all its numbers."""
        self.integer(0), self.flag(1), self.integer(2), self.integer(8)
        weight, x, lengths = self.arrays.get("weight_data"), self.x(), self.lengths()
        if weight is None:
            return False
        units, width = weight.shape
        if len(lengths) == 2 and lengths[1] in (width, None):
            after: Lengths = [lengths[0], units]
        elif None not in lengths and math.prod(length or 1 for length in lengths) == width:
            after, x = [units], x if len(lengths) == 1 else self.block.add("Flatten", [x], axis=1)
        elif len(lengths) == 1 and lengths[0] is None:
            after = [units]
        else:
            return False
        matrix = self.block.add("Transpose", [self.stored("weight_data")], perm=[1, 0])
        self.give(after)
        if "bias_data" not in self.arrays:
            return self.ends("MatMul", [x, matrix])
        return self.ends("Add", [self.block.add("MatMul", [x, matrix], name=self.label), self.stored("bias_data")])

    def product_with(self) -> bool:
        """Write a product with a stored matrix, and what is added to it."""
        alpha, beta = self.real(0, 1.0), self.real(1, 1.0)
        turn, turned, left, right, added = (self.flag(key) for key in (2, 3, 4, 5, 6))
        spread = self.integer(10)
        for key in (7, 8, 9, 12, 20, 21, 22):  # sizes, and how it is computed
            self.integer(key)
        if (
            left
            or not right
            or self.integer(11)
            or self.integer(13) not in (0, 1)
            or self.integer(14)
            or self.integer(18)
            or self.rank() != 2
        ):
            return False
        if len(self.inputs) != 1 or "B_data" not in self.arrays or (added and spread != -1 and "C_data" not in self.arrays):
            return False
        rows, columns = self.lengths()[::-1] if turn else self.lengths()
        shape = self.arrays["B_data"].shape
        if columns not in (shape[turned], None):
            return False
        x = self.block.add("Transpose", [self.x()], perm=[0, 2, 1]) if turn else self.x()
        matrix = self.stored("B_data")
        matrix = self.block.add("Transpose", [matrix], perm=[1, 0]) if turned else matrix
        value = self.block.add("MatMul", [x, matrix], name=self.label)
        if added and spread != -1:
            more = self.stored("C_data", {0: (1,), 4: (-1,), 1: (-1, 1)}.get(spread, ()))
            if spread in (1, 2, 3) and rows not in (self.arrays["C_data"].shape[0], None):
                return False
            value = self.block.add("Add", [value, self.affine(more, beta, 0.0)])
        return self.give([rows, shape[1 - turned]]) and self.add("Identity", [self.affine(value, alpha, 0.0)])

    def embedded(self) -> bool:
        """Write the rows of a table."""
        self.integer(0), self.integer(1), self.integer(2), self.integer(3), self.integer(18)
        if self.rank() != 1 or self.inputs[0] not in self.blobs.integers:
            return False
        self.give([*self.lengths(), self.arrays["weight_data"].shape[1]] if "weight_data" in self.arrays else [])
        rows = [self.stored("weight_data"), self.x(integers=True)]
        if "bias_data" not in self.arrays:
            return self.add("Gather", rows, axis=0)
        return self.add("Add", [self.block.add("Gather", rows, name=self.label, axis=0), self.stored("bias_data")])

    def held(self) -> bool:
        """Write stored numbers."""
        for _, key in _KEYS:
            self.integer(key)
        self.integer(21, 1)
        return self.gives(self.arrays["data"].shape, "Unsqueeze", [self.stored("data")], axes=[0])

    def _strided(self, rank: int, strides: tuple[int, int], pads: tuple[int, int, int, int]) -> tuple[list[int], list[int]]:
        """Return the strides of each axis of space, and the pads in front of them and behind.

        strides  the parameters of the width and the height
        pads     the parameters at the left, the right, the top, and the bottom
        """
        wide = self.integer(strides[0], 1)
        left = self.integer(pads[0])
        right = self.integer(pads[1], left)
        if rank == 1:
            return [wide], [left, right]
        top = self.integer(pads[2], left)
        return [self.integer(strides[1], wide), wide], [top, left, self.integer(pads[3], top), right]

    def _pads(self, pads: Sequence[int]) -> dict[str, Any]:
        if len({*pads}) == 1 and pads[0] in _SAME:
            return {"auto_pad": _SAME[pads[0]]}
        if min(pads) < 0:
            raise ValueError("pads below zero")
        return {"pads": list(pads)}

    def convolved(self, rank: int, transposed: bool = False, grouped: bool = False) -> bool:
        """Write a convolution over the last axes, or its transpose."""
        for key in (0, 1, 5, 6, 8, *((11,) if rank == 2 else ())):
            self.integer(key)
        self.flag(5)
        if len(self.inputs) != 1 or self.flag(28 if transposed else 19) or "weight_data" not in self.arrays:
            return False
        groups, weight, lengths = self.integer(7, 1) if grouped else 1, self.arrays["weight_data"], self.lengths()
        strides, pads = self._strided(rank, (3, 13), (4, 15, 14, 16))
        wide = self.integer(2, 1)
        dilations = [self.integer(12, wide), wide][-rank:]
        kernel, around = weight.shape[2:], self._pads(pads)
        if len(lengths) != rank + 1 or lengths[0] not in (weight.shape[1] * groups, None):
            return False
        reach = [step * (count - 1) + 1 for step, count in zip(dilations, kernel, strict=True)]
        value, settings = self.stored("weight_data"), {"strides": strides, "dilations": dilations, "group": groups, **around}
        if transposed:
            more = self.integer(18), self.integer(19 if rank == 2 else 18)
            if any(more) or self.integer(20) or (rank == 2 and self.integer(21)) or "pads" not in around:
                return False
            value = self._turned(value, groups, weight.shape)
            totals = [low + high for low, high in zip(pads[:rank], pads[rank:], strict=True)]
            after = [
                None if length is None else (length - 1) * stride + size - total
                for length, stride, size, total in zip(lengths[1:], strides, reach, totals, strict=True)
            ]
        else:
            if self.real(18):
                return False  # what it is padded with
            after = self._windows(lengths[1:], reach, strides, around)
        self.give([weight.shape[0], *after])
        inputs = [self.x(), value, *([self.stored("bias_data")] if "bias_data" in self.arrays else [])]
        return self.ends("ConvTranspose" if transposed else "Conv", inputs, **settings)

    def _turned(self, value: str, groups: int, shape: Sequence[int]) -> str:
        """Return the weights of a transposed convolution as the common operation has them: what it reads in front."""
        if groups == 1:
            return self.block.add("Transpose", [value], perm=[1, 0, *range(2, len(shape))])
        parts = self.block.add("Reshape", [value, self.whole_numbers([groups, shape[0] // groups, *shape[1:]])])
        order = [0, 2, 1, *range(3, len(shape) + 1)]
        return self.block.add(
            "Reshape",
            [self.block.add("Transpose", [parts], perm=order), self.whole_numbers([groups * shape[1], shape[0] // groups, *shape[2:]])],
        )

    @staticmethod
    def _windows(space: Sequence[int | None], reach: Sequence[int], strides: Sequence[int], around: Mapping[str, Any]) -> Lengths:
        """Return how many windows there are along each axis."""
        pads, rank = around.get("pads"), len(space)
        return [
            None
            if length is None
            else -(-length // stride)
            if pads is None
            else (length + pads[axis] + pads[axis + rank] - size) // stride + 1
            for axis, (length, size, stride) in enumerate(zip(space, reach, strides, strict=True))
        ]

    def pooled(self, rank: int) -> bool:
        """Write the largest number, or the mean, of windows over the last axes, or of these axes as a whole."""
        kind, mode, overall, counted, adaptive = self.integer(0), self.integer(5), *(self.flag(key) for key in (4, 6, 7))
        wide, out_wide = self.integer(1), self.integer(8)
        kernel = [self.integer(11, wide), wide] if rank == 2 else [wide]
        out = [self.integer(18, out_wide), out_wide] if rank == 2 else [out_wide]
        strides, pads = self._strided(rank, (2, 12), (3, 14, 13, 15))
        lengths, x = self.lengths(), self.x()
        if kind not in (0, 1) or len(lengths) != rank + 1:
            return False
        reduced, axes = ("ReduceMean" if kind else "ReduceMax"), [axis + 2 for axis in range(rank)]
        if overall:
            return self.gives(lengths[:1], reduced, [x], axes=axes, keepdims=0)
        if adaptive and all(length == 1 for length in out):
            return self.gives([lengths[0], *[1] * rank], reduced, [x], axes=axes, keepdims=1)
        if adaptive:
            space = [(length, count if count > 0 else length) for length, count in zip(lengths[1:], out, strict=True)]
            if any(length is None or count is None or length % count for length, count in space):
                return False
            kernel = [length // count for length, count in space if length and count]
            strides, pads, mode, counted = kernel, [0] * 2 * rank, 1, False
        if min(kernel) < 1 or mode not in (0, 1, 2, 3) or min(pads) < 0:
            return False
        around: dict[str, Any] = {"pads": pads} if mode < 2 else {"auto_pad": ("SAME_UPPER", "SAME_LOWER")[mode - 2]}
        if not mode:  # a window for what is left at the end
            for axis, (length, size, stride) in enumerate(zip(lengths[1:], kernel, strides, strict=True)):
                if stride > 1 and length is None:
                    return False
                pads[axis + rank] += -((length or size) + pads[axis] + pads[axis + rank] - size) % stride
        settings: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, **around}
        if kind:
            settings["count_include_pad"] = int(counted or mode > 1)
        return self.gives(
            [lengths[0], *self._windows(lengths[1:], kernel, strides, around)], "AveragePool" if kind else "MaxPool", [x], **settings
        )

    def normalised(self, kind: str) -> bool:
        """Write numbers by their mean and variance along the last axes, with a scale and a shift where it has them."""
        size, epsilon, scaled, lengths = self.integer(0), self.real(1, 0.001), self.flag(2, 1), self.lengths()
        over = 1 if len(lengths) < 3 or lengths[-1] == size else 2
        if len(lengths) > 3 or (over == 2 and (None in lengths[1:] or math.prod(length or 1 for length in lengths[1:]) != size)):
            return False
        shape = [length or 0 for length in lengths[-over:]] if over == 2 else []
        if lengths[-1] not in (size, None) and over == 1:
            return False
        self.inputs = [self.x()]
        self.give(lengths)
        if scaled:
            names = ("gamma_data", "beta_data") if kind == "LayerNormalization" else ("gamma_data",)
            return self.add(kind, [*self.inputs, *(self.stored(name, shape) for name in names)], axis=-over, epsilon=epsilon)
        return kind == "LayerNormalization" and self.centred([-axis for axis in range(over, 0, -1)], epsilon, True)

    def by_channel(self, kind: str) -> bool:
        """Write a norm of the first axis's places, or of groups of them, over all others."""
        groups = {"groups": self.integer(0, 1)} if kind == "GroupNormalization" else {}
        first = int(bool(groups))
        channels, epsilon, scaled = self.integer(first), self.real(first + 1, 0.001), self.flag(first + 2, 1)
        lengths = self.lengths()
        if lengths[0] not in (channels, None) or (not groups and len(lengths) < 3):
            return False
        self.inputs = [self.x()]
        self.give(lengths)
        if scaled:
            settings = {"num_groups": groups["groups"]} if groups else {}
            return self.add(kind, [*self.inputs, self.stored("gamma_data"), self.stored("beta_data")], epsilon=epsilon, **settings)
        return not groups and self.centred(range(2, len(lengths) + 1), epsilon, True)

    def batch_norm(self) -> bool:
        """Write a norm by stored means and variances of the first axis's places."""
        channels, epsilon = self.integer(0), self.real(1)
        variance = self.arrays.get("var_data")
        if variance is None or not (variance + np.float32(epsilon) > 0).all() or self.lengths()[0] not in (channels, None):
            return False
        names = ("slope_data", "bias_data", "mean_data", "var_data")
        return self.alike("BatchNormalization", *map(self.stored, names), epsilon=epsilon)

    def by_first_axis(self) -> bool:
        """Write a scale and a shift of the first axis's places."""
        size, biased = self.integer(0), self.flag(1)
        lengths = self.lengths()
        if size == ANOTHER_LAYERS or lengths[0] not in (size, None) or len(self.inputs) != 1:
            return False
        shape = [-1, *[1] * (len(lengths) - 1)]
        value = self.block.add("Mul", [self.x(), self.stored("scale_data", shape)])
        return self.give(lengths) and (
            self.add("Add", [value, self.stored("bias_data", shape)]) if biased else self.add("Identity", [value])
        )

    def shifted(self) -> bool:
        """Write a shift of each channel."""
        size, lengths = self.integer(0), self.lengths()
        if len(lengths) < 3 or lengths[0] not in (size, None):
            return False  # a blob of fewer axes has one channel
        return self.alike("Add", self.stored("bias_data", [-1, *[1] * (len(lengths) - 1)]))

    def sloped(self) -> bool:
        """Write slopes below zero, one for all numbers or one for each place of the first axis."""
        size, lengths = self.integer(0), self.lengths()
        if size > 1 and lengths[0] not in (size, None):
            return False
        shape = [-1, *[1] * (len(lengths) - 1)] if size > 1 else [1]
        return self.alike("PRelu", self.stored("slope_data", shape))


def _as_held(number: float | str) -> float:
    """Return a number in float32. Raises ValueError for one beyond."""
    if abs(float(number)) > _LARGEST:
        raise ValueError(f"{number} in float32")
    return float(np.float32(number))


_UNARY = {
    0: "Abs", 1: "Neg", 2: "Floor", 3: "Ceil", 5: "Sqrt", 7: "Exp", 8: "Log", 9: "Sin", 10: "Cos", 11: "Tan", 12: "Asin", 13: "Acos",
    14: "Atan", 15: "Reciprocal", 16: "Tanh", 18: "Round", 20: "Sign", 22: "Sinh", 24: "Cosh",
}  # fmt: skip
"""UnaryOp's numbers."""
_BINARY = {
    0: ("Add", False), 1: ("Sub", False), 2: ("Mul", False), 3: ("Div", False), 4: ("Max", False), 5: ("Min", False), 6: ("Pow", False),
    7: ("Sub", True), 8: ("Div", True), 9: ("Pow", True), 12: ("Mod", False), 13: ("Mod", True), 15: ("FloorDiv", False),
    16: ("FloorDiv", True),
}  # fmt: skip
"""BinaryOp's numbers, and whether what it reads stands in the other order."""
_REDUCED = {
    0: ("ReduceSum", ""), 1: ("ReduceSum", "Abs"), 2: ("ReduceSumSquare", ""), 3: ("ReduceMean", ""), 4: ("ReduceMax", ""),
    5: ("ReduceMin", ""), 6: ("ReduceProd", ""), 7: ("ReduceSum", "Abs"), 8: ("ReduceL2", ""),
}  # fmt: skip
"""Reduction's numbers, and the function before it."""
_RULES: Mapping[str, Callable[[LayerRule], bool]] = {
    "AbsVal": lambda step: step.alike("Abs"),
    "BNLL": lambda step: step.alike("Softplus"),
    "BatchNorm": LayerRule.batch_norm,
    "Bias": LayerRule.shifted,
    "BinaryOp": LayerRule.binary,
    "CELU": lambda step: step.alike("Celu", alpha=step.real(0, 1.0)),
    "Cast": LayerRule.cast,
    "Clip": lambda step: step.alike("Clip", min=step.real(0, -_LARGEST), max=step.real(1, _LARGEST)),
    "Concat": LayerRule.concat,
    "Convolution": lambda step: step.convolved(2),
    "Convolution1D": lambda step: step.convolved(1),
    "ConvolutionDepthWise": lambda step: step.convolved(2, grouped=True),
    "ConvolutionDepthWise1D": lambda step: step.convolved(1, grouped=True),
    "Crop": LayerRule.crop,
    "CumulativeSum": LayerRule.summed,
    "Deconvolution": lambda step: step.convolved(2, transposed=True),
    "Deconvolution1D": lambda step: step.convolved(1, transposed=True),
    "DeconvolutionDepthWise": lambda step: step.convolved(2, transposed=True, grouped=True),
    "DeconvolutionDepthWise1D": lambda step: step.convolved(1, transposed=True, grouped=True),
    "Dropout": LayerRule.dropout,
    "ELU": lambda step: step.alike("Elu", alpha=step.real(0, 0.1)),
    "Eltwise": LayerRule.eltwise,
    "Embed": LayerRule.embedded,
    "Erf": lambda step: step.alike("Erf"),
    "Exp": lambda step: step.scaled("Exp"),
    "ExpandDims": LayerRule.expand,
    "Flatten": LayerRule.flatten,
    "Flip": LayerRule.flipped,
    "GELU": lambda step: step.alike("Gelu", **({"approximate": "tanh"} if step.flag(0) else {})),
    "GLU": LayerRule.gated,
    "Gemm": LayerRule.product_with,
    "GroupNorm": lambda step: step.by_channel("GroupNormalization"),
    "HardSigmoid": lambda step: step.alike("HardSigmoid", alpha=step.real(0, 0.2), beta=step.real(1, 0.5)),
    "HardSwish": LayerRule.hard_swish,
    "InnerProduct": LayerRule.connected,
    "InstanceNorm": lambda step: step.by_channel("InstanceNormalization"),
    "LayerNorm": lambda step: step.normalised("LayerNormalization"),
    "Log": lambda step: step.scaled("Log"),
    "MatMul": LayerRule.multiplied,
    "MemoryData": LayerRule.held,
    "Mish": lambda step: step.alike("Mish"),
    "Noop": LayerRule.copied,
    "PReLU": LayerRule.sloped,
    "Packing": LayerRule.packed,
    "Padding": LayerRule.bordered,
    "Permute": LayerRule.permute,
    "Pooling": lambda step: step.pooled(2),
    "Pooling1D": lambda step: step.pooled(1),
    "Power": lambda step: step.scaled("Pow"),
    "RMSNorm": lambda step: step.normalised("RMSNormalization"),
    "ReLU": lambda step: step.alike("LeakyRelu", alpha=step.real(0)) if step.real(0) else step.alike("Relu"),
    "Reduction": LayerRule.reduce,
    "Reshape": LayerRule.reshape,
    "SELU": LayerRule.selu,
    "Scale": LayerRule.by_first_axis,
    "Sigmoid": lambda step: step.alike("Sigmoid"),
    "Slice": LayerRule.slice,
    "Softmax": LayerRule.softmax,
    "Softplus": lambda step: step.alike("Softplus"),
    "Split": LayerRule.copied,
    "Squeeze": LayerRule.squeeze,
    "Swish": LayerRule.swish,
    "TanH": lambda step: step.alike("Tanh"),
    "Threshold": LayerRule.above,
    "Tile": LayerRule.tiled,
    "UnaryOp": LayerRule.unary,
}
