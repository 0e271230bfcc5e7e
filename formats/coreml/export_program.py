"""A program of Core ML under construction: typed values, operations in blocks, and constants, which every block sees.

Source: coremltools 9.0, converters/mil/mil/ops/defs/iOS15 and iOS16, for what each operation takes and gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rnnconvert.core import int8
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.cached import cached_property
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.coreml import mil
from rnnconvert.formats.coreml.package import NewWeights
from rnnconvert.models.names import listing

TITLE = "Core ML"
VERSION, OPSET = 7, "CoreML6"
"""The version of the specification, and the set of operations: of iOS 16 and macOS 13, the first with weights in half."""
MOST_AXES = 5
_IMMEDIATE = 10
"""From how many numbers on they lie in the file of weights, as coremltools has it."""

Storage = Literal["float32", "float16"]
Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class MilValue:
    """A value of a program: its name, its element type, and its axes, None for a length that a run decides."""

    name: str
    dtype: str
    shape: Shape = ()

    @property
    def rank(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @cached_property
    def type(self) -> bytes:
        """Its type as the program states it."""
        return mil.tensor(self.dtype, self.shape)


Operand = MilValue | Sequence[MilValue] | str | bool
"""An operand of an operation: values, or a text or a truth, which becomes a constant."""


def dtype_of(dtype: np.dtype) -> str:
    """Return the element type in which a program computes with numbers of a type."""
    return {"b": "bool", "f": "fp32"}.get(dtype.kind, "int32")


def spread(*shapes: Shape) -> Shape:
    """Return the axes of numbers that are spread over one another."""
    rank = max(map(len, shapes))
    columns = zip(*(((1,) * (rank - len(shape)) + shape) for shape in shapes), strict=True)
    return tuple(_length(column) for column in columns)


def _length(column: Sequence[int | None]) -> int | None:
    longer = [length for length in column if length != 1]
    return next((length for length in longer if length is not None), None) if longer else 1


class MilProgram:
    """The state that the blocks of a program share.

    storage    how weights are held
    weights    the file of weights
    constants  the operations that make constants, which stand in front
    count      how many other operations there are
    size       how many bytes its numbers have
    wide       the arrays that stay float32 since halves do not reach so far
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.names = mil.ProgramNames()
        self.weights = NewWeights()
        self.constants: list[bytes] = []
        self.count = 0
        self.size = 0
        self.wide: list[str] = []
        self._small: dict[object, MilValue] = {}

    def constant(self, wanted: str, array: Array | PiecewiseArray) -> MilValue:
        """Add stored numbers. Whole ones become 32 bits wide, and those beyond them the last; small ones are stored once."""
        dtype, shape = dtype_of(np.dtype(array.dtype)), tuple(array.shape)
        count = int(np.prod(shape, dtype=object))
        if dtype == "fp32" and count >= _IMMEDIATE:
            return self._in_file(wanted, array, shape)
        stored = np.asarray(array)
        if dtype == "int32":
            ends = np.iinfo(np.int32)
            stored = np.clip(stored, ends.min, ends.max).astype("<i4")
        elif dtype == "fp32":
            stored = stored.astype("<f4")
        key = (dtype, shape, stored.tobytes())
        if key not in self._small:
            self._small[key] = self._stored(wanted, dtype, shape, mil.immediate(dtype, stored))
            self.size += stored.nbytes
        return self._small[key]

    def _in_file(self, wanted: str, array: Array | PiecewiseArray, shape: tuple[int, ...]) -> MilValue:
        if self.storage == "float16":
            if int8.largest(array) <= float(np.finfo(np.float16).max):
                halves = mil.in_file("fp16", shape, self.weights.add(int8.Float16Array(array)))
                self.size += 2 * int(np.prod(shape, dtype=object))
                value = MilValue(self.names.unique(wanted), "fp32", shape)
                stated = {"source_val": halves, "output_dtype": mil.word("fp32")}
                self.constants.append(mil.operation("constexpr_cast", value.name, {}, [(value.name, value.type)], stated))
                return value
            self.wide.append(wanted)
        numbers = array if np.dtype(array.dtype) == np.float32 else np.asarray(array).astype("<f4")
        self.size += 4 * int(np.prod(shape, dtype=object))
        return self._stored(wanted, "fp32", shape, mil.in_file("fp32", shape, self.weights.add(numbers)))

    def word(self, text: str) -> MilValue:
        """Add a text, stored once."""
        key = ("str", text)
        if key not in self._small:
            self._small[key] = self._stored("word", "str", (), mil.word(text))
        return self._small[key]

    def _stored(self, wanted: str, dtype: str, shape: Shape, value: bytes) -> MilValue:
        result = MilValue(self.names.unique(wanted), dtype, shape)
        self.constants.append(mil.operation("const", result.name, {}, [(result.name, result.type)], {"val": value}))
        return result

    def notes(self) -> list[str]:
        """Return the notes for the user on how the weights are held."""
        return [f"in float32, since float16 ends at 65504: {listing(self.wide)}"] if self.wide else []


class MilBlock:
    """A block under construction: what a function, a loop or its condition computes.

    label  what the names of its values begin with
    """

    def __init__(self, program: MilProgram, label: str) -> None:
        self.program, self.label = program, label
        self.operations: list[bytes] = []

    def op(self, kind: str, wanted: str, dtype: str, shape: Sequence[int | None], inputs: Mapping[str, Operand]) -> MilValue:
        """Add an operation with one output; return that."""
        (output,) = self.several(kind, wanted, [(dtype, tuple(shape))], inputs)
        return output

    def several(
        self, kind: str, wanted: str, outputs: Sequence[tuple[str, Shape]], inputs: Mapping[str, Operand], blocks: Sequence[bytes] = ()
    ) -> list[MilValue]:
        """Add an operation of several outputs. Raises RefusedError for more axes than Core ML has."""
        sources: dict[str, list[str]] = {}
        for parameter, value in inputs.items():
            if isinstance(value, bool):
                value = self.program.constant("truth", np.array(value))
            elif isinstance(value, str):
                value = self.program.word(value)
            sources[parameter] = [value.name] if isinstance(value, MilValue) else [each.name for each in value]
        values = [MilValue(self.program.names.unique(wanted), *output) for output in outputs]
        if any(value.rank > MOST_AXES for value in values):
            raise RefusedError(f"a value of {values[0].rank} axes", TITLE, f"its values have at most {MOST_AXES}", "", wanted)
        self.program.count += 1
        self.operations.append(mil.operation(kind, values[0].name, sources, [(value.name, value.type) for value in values], None, blocks))
        return values

    # Constants

    def numbers(self, *values: int) -> MilValue:
        """Return a list of whole numbers."""
        return self.program.constant("numbers", np.array(values, np.int32))

    def index(self, value: int) -> MilValue:
        """Return a whole number without axes."""
        return self.program.constant("index", np.array(value, np.int32))

    def number(self, value: float) -> MilValue:
        """Return a number without axes."""
        return self.program.constant("number", np.array(value, np.float32))

    def truths(self, values: Sequence[bool]) -> MilValue:
        """Return a list of truths."""
        return self.program.constant("truths", np.array(values, bool))

    # What many rules add

    def both(self, kind: str, x: MilValue, y: MilValue, wanted: str, dtype: str = "") -> MilValue:
        """Add an operation on two values that are spread over one another."""
        return self.op(kind, wanted, dtype or x.dtype, spread(x.shape, y.shape), {"x": x, "y": y})

    def each(self, kind: str, x: MilValue, wanted: str, **others: Operand) -> MilValue:
        """Add an operation that changes no axis of a value."""
        return self.op(kind, wanted, x.dtype, x.shape, {"x": x, **others})

    def cast(self, x: MilValue, dtype: str, wanted: str) -> MilValue:
        """Add a change of the element type, unless nothing changes."""
        return x if x.dtype == dtype else self.op("cast", wanted, dtype, x.shape, {"x": x, "dtype": dtype})

    def transposed(self, x: MilValue, order: Sequence[int], wanted: str) -> MilValue:
        """Add another order of axes."""
        return self.op("transpose", wanted, x.dtype, [x.shape[axis] for axis in order], {"x": x, "perm": self.numbers(*order)})

    def wide(self, x: MilValue, axes: Sequence[int], wanted: str) -> MilValue:
        """Add new axes of one element, at places in what comes of it."""
        rest = iter(x.shape)
        shape = [1 if axis in axes else next(rest) for axis in range(x.rank + len(axes))]
        return self.op("expand_dims", wanted, x.dtype, shape, {"x": x, "axes": self.numbers(*axes)})

    def squeezed(self, x: MilValue, axes: Sequence[int], wanted: str) -> MilValue:
        """Leave out axes of one element."""
        shape = [length for axis, length in enumerate(x.shape) if axis not in axes]
        return self.op("squeeze", wanted, x.dtype, shape, {"x": x, "axes": self.numbers(*axes)})

    def part(self, x: MilValue, axis: int, begin: int, end: int | None, wanted: str) -> MilValue:
        """Add a part of a value along an axis whose length is known, or a part that begins and ends at numbers that are."""
        length = x.shape[axis]
        size = end - begin if end is not None else None if length is None else length - begin
        shape = [size if place == axis else other for place, other in enumerate(x.shape)]
        lists = [self.numbers(*(bound if place == axis else 0 for place in range(x.rank))) for bound in (begin, end or 0)]
        masks = [self.truths([place != axis or bound is None for place in range(x.rank)]) for bound in (begin, end)]
        inputs = {"begin": lists[0], "end": lists[1], "begin_mask": masks[0], "end_mask": masks[1]}
        return self.op("slice_by_index", wanted, x.dtype, shape, {"x": x, **inputs})

    def joined(self, values: Sequence[MilValue], axis: int, wanted: str) -> MilValue:
        """Add values behind one another along an axis."""
        if len(values) == 1:
            return values[0]
        lengths = [value.shape[axis] for value in values]
        total = None if None in lengths else sum(length or 0 for length in lengths)
        shape = [total if place == axis % values[0].rank else length for place, length in enumerate(spread(*(v.shape for v in values)))]
        return self.op("concat", wanted, values[0].dtype, shape, {"values": values, "axis": self.index(axis), "interleave": False})

    def sizes(self, x: MilValue, wanted: str) -> MilValue:
        """Add the lengths of a value's axes."""
        return self.op("shape", wanted, "int32", (x.rank,), {"x": x})

    def size(self, x: MilValue, axis: int, wanted: str) -> MilValue:
        """Return the length of an axis as a list of one number: stored where it is known."""
        length = x.shape[axis]
        return self.numbers(length) if length is not None else self.part(self.sizes(x, wanted), 0, axis, axis + 1, wanted)

    def filled(self, shape: MilValue, lengths: Sequence[int | None], value: MilValue, wanted: str) -> MilValue:
        """Add a number at every place of a shape."""
        return self.op("fill", wanted, value.dtype, lengths, {"shape": shape, "value": value})
