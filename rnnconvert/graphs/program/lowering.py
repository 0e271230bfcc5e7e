"""The kit for writing a framework's graph in the common operations: what frameworks spell differently and mean alike.

Each of `Rule`'s methods writes one operator and returns whether it could; where it could not, the room writes an operation of its
own domain, which nothing looks into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.malformed import MALFORMED, passes
from rnnconvert.graphs.program.operations import Body, Declared, Operation, StoredNumbers

OPSET = 12
"""The version of the common operations that is written: axes and bounds are attributes."""
END, BEGIN = 2**31 - 1, -(2**31)
"""Ends of a range that stand for the end of any axis, and for its beginning where the steps go back."""
INTEGER, WIDE, TRUTH = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.bool_)


class Block:
    """A graph that is being written.

    prefix    the beginning of its own values' names
    arrays    numbers by the names of values, for all graphs of the program together
    operator  the framework's operator that is being written: see Operation
    """

    def __init__(self, prefix: str, arrays: dict[str, Array]) -> None:
        self.prefix, self.arrays = prefix, arrays
        self.nodes: list[Operation] = []
        self.operator: str | None = None
        self._stored: list[str] = []
        self._labels: dict[str, str] = {}
        self._count = 0

    def add(
        self, kind: str, inputs: Sequence[str], outputs: int | Sequence[str] = 1, name: str = "", domain: str = "", **attributes: Any
    ) -> str:
        """Add an operation; return its first output, "" if it gives none."""
        if isinstance(outputs, int):
            self._count += 1
            outputs = [f"{self.prefix}made_{self._count}:{number}" for number in range(outputs)]
        self.nodes.append(Operation(kind, list(inputs), list(outputs), name, domain, attributes, operator=self.operator))
        return outputs[0] if outputs else ""

    def constant(self, array: Array, name: str = "", label: str = "") -> str:
        """Add stored numbers; return the name of their value.

        label  what the file calls them
        """
        if not name:
            self._count += 1
            name = f"{self.prefix}stored_{self._count}"
        if name not in self.arrays:
            self.arrays[name] = array
            self._stored.append(name)
            self._labels[name] = label or name
        return name

    @property
    def stored(self) -> dict[str, StoredNumbers]:
        """Its stored numbers by name."""
        return {name: StoredNumbers.of(self.arrays[name], self._labels[name]) for name in self._stored}


def needed(nodes: Sequence[Operation], values: Iterable[str]) -> list[Operation]:
    """Return the operations by which some values are computed, in their order."""
    wanted = set(values)
    operations = []
    for node in reversed(nodes):
        # From the end, so that one pass sees every reader before what it reads.
        if wanted & set(node.outputs):
            operations.append(node)
            wanted |= node.reads
    return operations[::-1]


@dataclass(frozen=True)
class Variable:
    """A variable of a loop, which each step hands to the next.

    first   its first value
    dtype   its element type; None for a list, and for one that is not known
    inside  its name inside the steps
    after   the value that a step gives for it
    final   the value that the loop leaves; "" if nothing reads it
    """

    first: str
    dtype: np.dtype[Any] | None
    inside: str
    after: str
    final: str


@dataclass(frozen=True)
class LoopLowering:
    """A loop that is being written.

    name       its name in the file
    begins     the value that decides whether it runs at all
    goes_on    the value of a step that decides whether another one follows
    states     its variables
    single     lists of one element, which each step replaces: `after` is the element
    collected  the element that each step puts at its own place in a list, and the value of the whole list
    count      the value of how many steps there are at most; "" where a condition alone decides
    sizes      the values of how long the lists of `collected` are, zero where no step puts anything; nothing where steps decide that
    """

    name: str
    begins: str
    goes_on: str
    states: Sequence[Variable]
    single: Sequence[Variable]
    collected: Sequence[tuple[str, str]]
    count: str = ""
    sizes: Sequence[str] = ()

    def write(self, outer: Block, steps: Block) -> None:
        """Add the loop to a graph.

        steps  the graph of one step
        """
        variables = [*self.states, *self.single]
        ends = [self.goes_on, *(variable.after for variable in variables), *(value for value, _ in self.collected)]
        declared = [
            Declared(f"{steps.prefix}iteration", WIDE, []),
            Declared(f"{steps.prefix}going", TRUTH, []),
            *(Declared(variable.inside, variable.dtype) for variable in variables),
        ]
        inputs = [variable.name for variable in declared]
        body = Body(needed(steps.nodes, ends), inputs, ends, steps.stored, declared)
        # A Loop needs a first value for each variable; no step reads this one.
        nothing = outer.constant(np.zeros((), np.float32)) if self.single else ""
        firsts = [*(variable.first for variable in self.states), *(nothing for _ in self.single)]
        lasts = [variable.final and f"{variable.final}/last" for variable in self.single]
        outputs = [*(variable.final for variable in self.states), *lasts, *(final for _, final in self.collected)]
        facts = {"sizes": [*self.sizes]} if self.sizes else {}
        inputs = [self.count, self.begins, *firsts]
        loop = Operation("Loop", inputs, outputs, self.name, attributes=facts, bodies=[("body", body)], operator=outer.operator)
        outer.nodes.append(loop)
        for variable, last in zip(self.single, lasts, strict=True):
            if last:
                outer.add("Unsqueeze", [last], [variable.final], axes=[0])


class Rule:
    """One operator of a framework, and the graph that it is written into.

    inputs   the values that it reads
    outputs  names of the values that it gives
    label    what the file calls it
    """

    def __init__(self, block: Block, inputs: Sequence[str], outputs: Sequence[str], label: str) -> None:
        self.block, self.inputs, self.outputs, self.label = block, inputs, outputs, label

    def numbers(self, index: int) -> Array | None:
        """Return the stored numbers that an input is, or None."""
        raise NotImplementedError

    def by_rule(self, rule: Callable[[Any], bool] | None) -> bool:
        """Write the operator by a rule; return whether there is one that could: not for settings that it cannot use."""
        try:
            return rule is not None and rule(self)
        except (ValueError, IndexError):  # a setting that is not stored, or an axis that a value does not have
            return False

    def integers(self, index: int) -> list[int] | None:
        """Return an input that is stored whole numbers."""
        numbers = self.numbers(index)
        if numbers is None or numbers.dtype.kind not in "iu":
            return None
        return [int(number) for number in numbers.reshape(-1)]

    def axis(self, index: int) -> int | None:
        """Return an input that is one stored whole number."""
        numbers = self.integers(index)
        return numbers[0] if numbers is not None and len(numbers) == 1 else None

    def wide(self, index: int) -> str:
        """Return an input of whole numbers as the common operations have them, in 64 bits."""
        numbers = self.numbers(index)
        if numbers is not None:
            return self.block.constant(numbers.astype(np.int64))
        return self.block.add("Cast", [self.inputs[index]], to=WIDE)

    def add(self, kind: str, inputs: Sequence[str], **attributes: Any) -> bool:
        """Write one common operation."""
        self.block.add(kind, inputs, self.outputs, self.label, **attributes)
        return True

    def with_axis(self, kind: str, inputs: Sequence[str], axis: int | None) -> bool:
        """Write an operation along an axis, if that is known."""
        return axis is not None and self.add(kind, inputs, axis=axis)

    def product(self, turn_left: bool, turn_right: bool, ranks: Sequence[int] = (2, 2)) -> bool:
        """Write a product of two matrices, or of stacks of them of so many axes, either of them turned first."""
        factors = []
        for value, turn, rank in zip(self.inputs, (turn_left, turn_right), ranks, strict=False):
            # Only the last two axes are the matrix; those before them are stacks.
            order = [*range(rank - 2), rank - 1, rank - 2]
            factors.append(self.block.add("Transpose", [value], perm=order) if turn else value)
        return self.add("MatMul", factors)

    def reduced(self, kind: str, axes: Sequence[int] | None, keep: int) -> bool:
        """Write a reduction of the numbers along some axes, such as their sum: along none it is of each number, where ONNX takes all."""
        if axes is not None and not axes:
            each = {"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceSumSquare": "Mul"}.get(kind, "Identity")
            return self.add(each, [self.inputs[0]] * (1 + (each == "Mul")))
        return axes is not None and self.add(kind, self.inputs[:1], axes=list(axes), keepdims=keep)

    def place(self, kind: str, to: np.dtype[Any], axis: int | None, keep: int = 0) -> bool:
        """Write the place of the largest or smallest number along an axis, in whole numbers of a type."""
        return axis is not None and self.add("Cast", [self.block.add(kind, self.inputs[:1], axis=axis, keepdims=keep)], to=to)

    def constant(self, number: float) -> str:
        """Return a number as a value, of the type of what the operator gives where that is known."""
        return self.block.constant(np.array(number, np.float32))

    def affine(self, value: str, factor: float, shift: float) -> str:
        """Return `factor * x + shift`."""
        value = self.block.add("Mul", [value, self.constant(factor)]) if factor != 1 else value
        return self.block.add("Add", [value, self.constant(shift)]) if shift else value

    def gelu(self, form: int) -> bool:
        """Write Gelu: exactly (0), by tanh (1) or by a sigmoid (2)."""
        if form == 2:
            return self.add("Mul", [self.inputs[0], self.block.add("Sigmoid", [self.affine(self.inputs[0], 1.702, 0.0)])])
        return form in (0, 1) and self.add("Gelu", self.inputs[:1], **({"approximate": "tanh"} if form else {}))

    def per_channel_slopes(self, slopes: Array | None, rank: int) -> bool:
        """Write PReLU of a value of so many axes, with a slope for all numbers or for each channel, the second axis."""
        if slopes is None or (slopes.size > 1 and (slopes.ndim != 1 or rank < 2)):
            return False
        shape = [1] if slopes.size == 1 else [-1, *[1] * (rank - 2)]
        return self.add("PRelu", [self.inputs[0], self.block.constant(slopes.reshape(shape))])

    def top(self, count: int, axis: int, largest: int, to: np.dtype[Any]) -> bool:
        """Write the largest numbers along an axis, or the smallest, in their order, and their places in whole numbers of a type."""
        values, places = self.outputs
        wide = f"{places}/wide"
        self.block.add("TopK", [self.inputs[0], self.whole_numbers([count])], [values, wide], self.label, axis=axis, largest=largest)
        self.block.add("Cast", [wide], [places], to=to)
        return True

    def hot(self, places: str, dtype: np.dtype[Any], depth: str, levels: Sequence[float], axis: int) -> str:
        """Return places, whole numbers of a type, as vectors of one number at the place, and another one elsewhere.

        levels  the number elsewhere, and the one at the place
        """
        zero, beyond = (self.block.constant(np.array(number, dtype)) for number in (0, np.iinfo(dtype).max))
        # Places below zero are none to frameworks; the common operation counts them from the end.
        places = self.block.add("Where", [self.block.add("Less", [places, zero]), beyond, places])
        return self.block.add("OneHot", [places, depth, self.block.constant(np.array(levels, np.float32))], axis=axis)

    def rooted(self) -> bool:
        """Write one by the square root."""
        return self.add("Reciprocal", [self.block.add("Sqrt", self.inputs[:1])])

    def difference_squared(self) -> bool:
        """Write the square of a difference."""
        difference = self.block.add("Sub", self.inputs[:2])
        return self.add("Mul", [difference, difference])

    def softmax_along(self, kind: str, rank: int, axis: int) -> bool:
        """Write a softmax along an axis of so many, which goes last for it: the common one is of all axes from there on."""
        order = list(range(rank))
        order[axis], order[-1] = order[-1], order[axis]
        if order == sorted(order):
            return self.add(kind, self.inputs[:1], axis=-1)
        value = self.block.add(kind, [self.block.add("Transpose", self.inputs[:1], perm=order)], axis=-1)
        return self.add("Transpose", [value], perm=order)

    def centred(self, axes: Sequence[int], epsilon: float, divided: bool, inside: bool = True) -> bool:
        """Write numbers less their mean along axes, and divided by the root of their variance.

        epsilon  a small number that is added to the variance, or to its root
        inside   whether it is added to the variance
        """
        add, small = self.block.add, self.block.constant(np.array(epsilon, np.float32))
        centred = add("Sub", [self.inputs[0], add("ReduceMean", self.inputs[:1], axes=list(axes), keepdims=1)])
        if not divided:
            return self.add("Identity", [centred])
        variance = add("ReduceMean", [add("Mul", [centred, centred])], axes=list(axes), keepdims=1)
        root = add("Sqrt", [add("Add", [variance, small])]) if inside else add("Add", [add("Sqrt", [variance]), small])
        return self.add("Div", [centred, root])

    def over_space(self, kind: str, weights: Sequence[str], rank: int, **attributes: Any) -> tuple[str, list[int]]:
        """Write an operation over the axes of space of (batch, *space, channels).

        rank  how many axes of space there are

        Return its output (batch, channels, *space), and the order that puts the channels last again.
        """
        x = self.block.add("Transpose", self.inputs[:1], perm=[0, rank + 1, *range(1, rank + 1)])
        return self.block.add(kind, [x, *weights], name=self.label, **attributes), [0, *range(2, rank + 2), 1]

    def split(self, sizes: Sequence[int] | None, axis: int | None) -> bool:
        """Write parts of these lengths along an axis, of which one may be -1."""
        if sizes is None or axis is None or sizes.count(-1) > 1 or len(sizes) != len(self.outputs):
            return False
        if -1 not in sizes:
            return self.add("Split", self.inputs[:1], axis=axis, split=list(sizes))
        rest = sizes.index(-1)
        for number, name in enumerate(self.outputs):  # those behind the one of any length are counted from the end
            start = sum(sizes[:number]) if number <= rest else -sum(sizes[number:]) or END
            end = sum(sizes[: number + 1]) if number < rest else -sum(sizes[number + 1 :]) or END
            self.block.add("Slice", self.inputs[:1], [name], axes=[axis], starts=[start], ends=[end])
        return True

    def stack(self, axis: int) -> bool:
        """Write values side by side along an axis of their own."""
        parts = [self.block.add("Unsqueeze", [value], axes=[axis]) for value in self.inputs]
        return self.add("Concat", parts, axis=axis)

    def unstack(self, axis: int) -> bool:
        """Write the elements along an axis."""
        for number, name in enumerate(self.outputs):
            index = self.block.constant(np.array(number, np.int64))
            self.block.add("Gather", [self.inputs[0], index], [name], axis=axis)
        return True

    def transpose(self, order: Sequence[int] | None) -> bool:
        """Write axes in another order."""
        return order is not None and self.add("Transpose", self.inputs[:1], perm=[axis % len(order) for axis in order])

    def unsqueeze(self, axis: int | None) -> bool:
        """Write a further axis of length 1."""
        return axis is not None and self.add("Unsqueeze", self.inputs[:1], axes=[axis])

    def shape(self, dtype: np.dtype[Any]) -> bool:
        """Write the lengths of a value's axes."""
        if dtype == WIDE:
            return self.add("Shape", self.inputs[:1])
        return self.add("Cast", [self.block.add("Shape", self.inputs[:1])], to=dtype)

    def fill(self) -> bool:
        """Write one number, the second input, in a shape, the first."""
        value, wide = self.numbers(1), self.block.add("Cast", self.inputs[:1], to=WIDE)
        if value is None:
            # A number that is not stored is spread over the shape as a value.
            return self.add("Expand", [self.inputs[1], wide])
        return value.size == 1 and self.add("ConstantOfShape", [wide], value=StoredNumbers.of(np.array(value).reshape(1)))

    def filled_like(self, level: float, dtype: np.dtype[Any] | None) -> bool:
        """Write one number in the shape of a value."""
        shape = self.block.add("Shape", self.inputs[:1])
        return dtype is not None and self.add("ConstantOfShape", [shape], value=StoredNumbers.of(np.array([level], dtype)))

    def tile(self, repeats: Sequence[int] | None, rank: int) -> bool:
        """Write a value of so many axes several times along its axes; where fewer times are stated, along the last ones."""
        if repeats is None:
            return False
        value, times = self.inputs[0], self.whole_numbers([1] * (rank - len(repeats)) + list(repeats))
        if len(repeats) > rank:
            value = self.block.add("Unsqueeze", [value], axes=list(range(len(repeats) - rank)))
        return self.add("Tile", [value, times])

    def repeated(self, kind: str) -> bool:
        """Write a value several times along its axes: as often as the second input says (Tile), or up to its lengths (Expand)."""
        return self.add(kind, [self.inputs[0], self.block.add("Cast", self.inputs[1:2], to=WIDE)])

    def flip(self, axes: Sequence[int] | None) -> bool:
        """Write a value turned around along axes."""
        if axes is None:
            return False
        ends = {"starts": [-1] * len(axes), "ends": [BEGIN] * len(axes), "steps": [-1] * len(axes)}
        return self.add("Slice", self.inputs[:1], axes=list(axes), **ends)

    def parts(self) -> bool:
        """Write ranges of the first axes, by where they begin and how long they are; -1 for all that follows."""
        begin, sizes = self.integers(1), self.integers(2)
        if begin is not None and sizes is not None:
            # A range that is counted from the end and reaches it would end at 0, the beginning.
            ends = [END if size == -1 or (low < 0 and low + size == 0) else low + size for low, size in zip(begin, sizes, strict=True)]
            return self.add("Slice", self.inputs[:1], starts=begin, ends=ends, axes=list(range(len(begin))))
        low, count = (self.block.add("Cast", [value], to=WIDE) for value in self.inputs[1:3])
        # Whether a size is -1, which means all up to the end, is only known when the graph runs.
        high = self._either(
            self.block.add("Equal", [count, self.whole_numbers([-1])]), self.whole_numbers([END]), self.block.add("Add", [low, count])
        )
        return self.add("Slice", [self.inputs[0], low, high])

    def padded(self, *filling: str, **attributes: Any) -> bool:
        """Write numbers around a value, zeros unless others are named: how many before and behind each axis is the second input, a row for
        an axis.
        """
        columns = self.block.add("Transpose", [self.block.add("Cast", self.inputs[1:2], to=WIDE)], perm=[1, 0])
        return self.add("Pad", [self.inputs[0], self.block.add("Reshape", [columns, self.whole_numbers([-1])]), *filling], **attributes)

    def turned_by_lengths(self, time: int, batch: int) -> bool:
        """Write each sequence turned around up to its length, the second input."""
        return self.add("ReverseSequence", self.inputs[:2], time_axis=time, batch_axis=batch)

    def whole_numbers(self, numbers: Sequence[int]) -> str:
        """Return whole numbers as a value."""
        return self.block.constant(np.array(numbers, np.int64))

    def _either(self, truths: Sequence[int] | str, first: str, second: str) -> str:
        truths = truths if isinstance(truths, str) else self.block.constant(np.array(truths, np.bool_))
        return self.block.add("Where", [truths, first, second])

    def differs(self) -> bool:
        """Write where two values are not equal."""
        return self.add("Not", [self.block.add("Equal", self.inputs[:2])])

    def truths(self, kind: str, axes: Sequence[int] | None, keep: int) -> bool:
        """Write whether one of the truths along some axes holds ("ReduceMax"), or all of them ("ReduceMin")."""
        if axes is None:
            return False
        numbers = self.block.add("Cast", self.inputs[:1], to=INTEGER)
        return self.add("Cast", [self.block.add(kind, [numbers], axes=list(axes), keepdims=keep)], to=TRUTH)

    def cut(self, masks: Sequence[int], offset: bool = False) -> bool:
        """Write ranges and single elements of axes, whose bounds and stored steps are the inputs 1 to 3.

        masks  bits for each range: whether its begin and its end are left open, whether it stands for all axes that are not named,
               whether it is a new axis, and whether it is one element, whose axis disappears
        offset whether ranges are stated by where they begin and how long they are
        """
        steps = self.integers(3)
        if steps is None:
            return False
        open_begin, open_end, others, new, single = ([bool(mask >> place & 1) for place in range(len(steps))] for mask in masks)
        # Ranges behind the one for all unnamed axes are counted from the last axis.
        middle = others.index(True) if any(others) else len(steps)
        begin, end = self.integers(1), self.integers(2)
        if sum(others) > 1 or any(bounds is not None and len(bounds) != len(steps) for bounds in (begin, end)):
            return False
        if offset and begin is not None and end is not None:
            end = [low + length for low, length in zip(begin, end, strict=True)]

        def axis(place: int, counted: Callable[[int], bool]) -> int:
            """Return the number of an axis; behind those that are not named, from the end."""
            around = range(place) if place < middle else range(place, len(steps))
            count = sum(counted(other) for other in around)
            return count if place < middle else -count

        read = [place for place in range(len(steps)) if not new[place] and place != middle]
        axes = {place: axis(place, lambda other: not new[other]) for place in read}
        gone = [axes[place] for place in read if single[place]]
        fresh = [place for place in range(len(steps)) if new[place] and place != middle]
        added = [axis(place, lambda other: new[other] or not single[other]) for place in fresh]
        cut = [place for place in read if single[place] or not (open_begin[place] and open_end[place] and steps[place] == 1)]
        chain = list[tuple[str, list[str], dict[str, Any]]]()
        if begin is not None and len(gone) == len(cut) == 1:
            chain.append(("Gather", [self.block.constant(np.array(begin[cut[0]], np.int64))], {"axis": gone.pop()}))
        elif cut:
            first = [0 if steps[place] > 0 else -1 for place in cut]
            last = [END if steps[place] > 0 or single[place] else BEGIN for place in cut]
            counts = [1 if single[place] else steps[place] for place in cut]
            if begin is not None and end is not None:
                starts = [low if open_begin[place] and not single[place] else begin[place] for place, low in zip(cut, first, strict=True)]
                ends = [
                    begin[place] + 1 or END if single[place] else high if open_end[place] else end[place]
                    for place, high in zip(cut, last, strict=True)
                ]
                attributes = {"starts": starts, "ends": ends, "axes": [axes[place] for place in cut]}
                chain.append(("Slice", [], attributes | ({"steps": counts} if set(counts) != {1} else {})))
            else:
                places, stop = self.whole_numbers(cut), self.whole_numbers(last)
                low, high = (
                    self.block.add("Gather", [self.block.add("Cast", [value], to=WIDE), places], axis=0) for value in self.inputs[1:3]
                )
                high = self.block.add("Add", [low, high]) if offset else high
                # One element ends behind itself; behind the last one, -1 + 1 = 0 would mean the beginning.
                behind = self.block.add("Add", [low, self.whole_numbers([1] * len(cut))])
                behind = self._either(self.block.add("Equal", [behind, self.whole_numbers([0] * len(cut))]), stop, behind)
                high = self._either([open_end[place] for place in cut], stop, high)
                high = self._either([single[place] for place in cut], behind, high)
                low = self._either([open_begin[place] and not single[place] for place in cut], self.whole_numbers(first), low)
                chain.append(("Slice", [low, high, self.whole_numbers([axes[place] for place in cut]), self.whole_numbers(counts)], {}))
        chain += [("Squeeze", [], {"axes": gone})] if gone else []
        chain += [("Unsqueeze", [], {"axes": added})] if added else []
        *before, (kind, inputs, attributes) = chain or [("Identity", [], {})]
        value = self.inputs[0]
        for kind_before, operands, stated in before:
            value = self.block.add(kind_before, [value, *operands], **stated)
        return self.add(kind, [value, *inputs], **attributes)


class CheckedRule(Rule):
    """A rule of an operator whose settings have to be read, each of them: one that is left decides something that is not written."""

    def by_rule(self, rule: Callable[[Any], bool] | None) -> bool:
        """Write the operator by a rule; return whether there is one that could: not for what a damaged file states, either."""
        try:
            return rule is not None and rule(self)
        except MALFORMED as error:
            if passes(error):
                raise
            return False

    def unread(self) -> Mapping[Any, object]:
        """Return the unread settings that may change the result, with their values."""
        raise NotImplementedError

    def write_checked(self, rule: Callable[[Any], bool] | None, kind: str, reads: Sequence[str], domain: str, word: str = "") -> bool:
        """Write the operator by a rule; as one of a domain where it has none that can, or where a setting is left. Return whether it has.

        kind   its name
        reads  all values that it reads
        word   what a setting is called
        """
        begun, outputs = len(self.block.nodes), self.outputs
        written = self.by_rule(rule)
        unread = self.unread() if written else {}
        if written and not unread:
            return True
        if unread:
            key = min(unread)
            self.block.operator = f"{kind} with {word}{key}={unread[key]}"
        del self.block.nodes[begun:]
        self.block.add(kind, reads, outputs, self.label, domain)
        return False
