"""One rule for each operator: the shape of what it gives, by the shapes of what it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.core.malformed import Entries
from rnnconvert.graphs.program.kinds import ALIKE, SPREAD
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope

if TYPE_CHECKING:
    from rnnconvert.graphs.program.shapes import Shapes

Dims = Sequence["int | None"]


def part(scope: Scope, node: Operation, dims: Dims) -> Dims:
    """Return the axes that a Shape gives, out of the axes of its input: all, or a part of them."""
    attributes = scope.attributes(node)
    start, end = (attributes.get(key, None) for key in ("start", "end"))
    return dims[slice(start, end)]


class ShapeRule:
    """One node, whose output's shape is asked for."""

    def __init__(self, shapes: Shapes, scope: Scope, node: Operation, index: int, deep: int) -> None:
        self.shapes, self.scope, self.node, self.index, self.deep = shapes, scope, node, index, deep
        self.attributes: Mapping[str, Any] = scope.attributes(node)

    def input_dims(self, number: int) -> Dims | None:
        """Return the axes of an input, of which one that a node asks for may not be there."""
        name = self.node.inputs[number] if number < len(self.node.inputs) else ""
        dims = self.shapes.dims(self.scope, name, self.deep) if name else None
        return None if dims is None else Entries(dims)

    def axes(self, index: int = 1) -> list[int] | None:
        return self.shapes.integers(self.scope, self.node, "axes", index)

    def number(self, name: str, default: int) -> int:
        return int(self.attributes.get(name, default))

    def dims(self) -> Dims | None:
        """Return the axes of the output."""
        kind = self.node.kind
        if kind in ALIKE:
            return self.input_dims(0) if self.index == 0 else None
        if kind in SPREAD:
            return _spread(self.input_dims(number) for number in range(len(self.node.inputs)))
        rule = _RULES.get(kind)
        return None if rule is None else rule(self)

    def transpose(self) -> Dims | None:
        dims = self.input_dims(0)
        if dims is None:
            return None
        order = self.attributes.get("perm", list(range(len(dims)))[::-1])
        return [dims[axis] for axis in order]

    def squeeze(self) -> Dims | None:
        dims, axes = self.input_dims(0), self.axes()
        if dims is None or (axes is None and (None in dims or len(self.node.inputs) > 1)):
            return None
        gone = {axis % len(dims) for axis in axes} if axes is not None else {n for n, size in enumerate(dims) if size == 1}
        return [size for axis, size in enumerate(dims) if axis not in gone]

    def unsqueeze(self) -> Dims | None:
        dims, axes = self.input_dims(0), self.axes()
        if dims is None or axes is None:
            return None
        result = list(dims)
        for axis in sorted(axis % (len(dims) + len(axes)) for axis in axes):
            result.insert(axis, 1)
        return result

    def reshape(self) -> Dims | None:
        dims = self.input_dims(0)
        asked = self.attributes.get("shape")
        target: Dims | None = asked
        if target is None:
            target = self.shapes.partly(self.scope, self.node.inputs[1], self.deep)
        if target is None:
            return None
        # A 0 means the length of the input's axis at this place.
        keep = not self.number("allowzero", 0)
        result = [
            (dims[n] if dims is not None and n < len(dims) else None) if size == 0 and keep else size for n, size in enumerate(target)
        ]
        if -1 in result:
            at = result.index(-1)
            others = [size for n, size in enumerate(result) if n != at]
            complete = dims is not None and None not in dims and None not in others
            share = int(np.prod([size or 0 for size in others], dtype=object)) if complete else 0
            total = int(np.prod([size or 0 for size in dims or ()], dtype=object)) if complete else 0
            result[at] = total // share if share else None
        return result

    def gather(self) -> Dims | None:
        data, at = self.input_dims(0), self.input_dims(1)
        if data is None or at is None:
            where = self.scope.constant(self.node.inputs[1]) if data is not None else None
            at = list(where.shape) if where is not None else None
        if data is None:
            return None
        axis = self.number("axis", 0)
        # An index of unknown shape is the number of a step, as loops have it.
        return [*data[:axis], *(at or []), *data[axis % len(data) + 1 :]] if data else None

    def gather_nd(self) -> Dims | None:
        data, at = self.input_dims(0), self.input_dims(1)
        if data is None or not at or at[-1] is None:
            return None
        return [*at[:-1], *data[self.number("batch_dims", 0) + at[-1] :]]

    def slice(self) -> Dims | None:
        dims = self.input_dims(0)
        starts, ends, steps = (
            self.shapes.integers(self.scope, self.node, key, at) for key, at in (("starts", 1), ("ends", 2), ("steps", 4))
        )
        if dims is None:
            return None
        axes = self.axes(3)
        if axes is None:
            axes = list(range(len(starts))) if starts is not None else None
        if axes is None:
            return [None] * len(dims)
        result = list(dims)
        for number, axis in enumerate(axes):
            length = dims[axis]
            if length is None or starts is None or ends is None:
                result[axis] = None
                continue
            step = steps[number] if steps else 1
            result[axis] = len(range(*slice(starts[number], ends[number], step).indices(length)))
        return result

    def split(self) -> Dims | None:
        dims = self.input_dims(0)
        if dims is None:
            return None
        axis, result = self.number("axis", 0), list(dims)
        parts = self.shapes.integers(self.scope, self.node, "split", 1)
        length = dims[axis]
        if parts is not None:
            result[axis] = Entries(parts)[self.index]
        elif length is not None:
            # ONNX splits evenly, and the last part is the smaller one.
            share = -(-length // len(self.node.outputs))
            result[axis] = min(share, length - share * self.index)
        return result

    def concat(self) -> Dims | None:
        parts = [self.input_dims(number) for number in range(len(self.node.inputs))]
        stated_parts = [part for part in parts if part is not None]
        if not stated_parts:
            return None
        axis = self.number("axis", 1) % len(stated_parts[0])
        result = [next((part[n] for part in stated_parts if part[n] is not None), None) for n in range(len(stated_parts[0]))]
        lengths = [None if part is None else part[axis] for part in parts]
        result[axis] = None if None in lengths else sum(length or 0 for length in lengths)
        return result

    def mat_mul(self) -> Dims | None:
        left, right = self.input_dims(0), self.input_dims(1)
        if left is None or right is None or not left or not right:
            return None
        batch = _spread([left[:-2], right[:-2]]) or []
        return [*batch, *left[-2:-1], *([right[-1]] if len(right) > 1 else [])]

    def gemm(self) -> Dims | None:
        left, right = self.input_dims(0), self.input_dims(1)
        rows = None if left is None else left[self.number("transA", 0)]
        return [rows, None if right is None else right[1 - self.number("transB", 0)]]

    def einsum(self) -> Dims | None:
        operands, arrow, result = self.attributes["equation"].replace(" ", "").partition("->")
        lengths: dict[str, int | None] = {}
        for number, letters in enumerate(operands.split(",")):
            dims = self.input_dims(number)
            if dims is None or len(dims) != len(letters) or not arrow:
                return None
            lengths |= {letter: size for letter, size in zip(letters, dims, strict=True) if lengths.get(letter) is None}
        return [lengths[letter] for letter in result]

    def filled(self) -> Dims | None:
        return self.shapes.partly(self.scope, self.node.inputs[0], self.deep)

    def expand(self) -> Dims | None:
        target = self.shapes.partly(self.scope, self.node.inputs[1], self.deep)
        return _spread([self.input_dims(0), target])

    def tile(self) -> Dims | None:
        dims, times = self.input_dims(0), self.shapes.partly(self.scope, self.node.inputs[1], self.deep)
        if dims is None or times is None or len(dims) != len(times):
            return None
        return [None if None in (size, count) else size * count for size, count in zip(dims, times, strict=True)]  # type: ignore[operator]

    def shape(self) -> Dims | None:
        dims = self.input_dims(0)
        return [None if dims is None else len(part(self.scope, self.node, dims))]

    def loop(self) -> Dims | None:
        body = next(inner for name, inner in self.node.bodies if name == "body")
        scanned = self.number("num_scan_inputs", 0)
        first = 2 if self.node.kind == "Loop" else 0
        count = len(self.node.inputs) - first - scanned
        if self.index < count:
            return self.input_dims(first + self.index)
        # A Loop's body gives its condition first, and collects each output along a new axis.
        inner = self.shapes.stated(body.outputs[self.index + (first > 0)])
        if inner is None:
            return None
        axes = self.attributes.get("scan_output_axes", [])
        axis = axes[self.index - count] if axes else 0
        return [*inner[:axis], None, *inner[axis:]]

    def convolved(self) -> Dims | None:
        """Return batch, channels, and how often a window fits into each other axis; None if that rounds up."""
        dims, window = self.input_dims(0), self.input_dims(1)
        if dims is None:
            return None
        count = len(dims) - 2
        channels, kernel = dims[1], self.attributes.get("kernel_shape")
        if self.node.kind == "Conv":
            channels = None if window is None else window[0]
            kernel = window[2:] if window is not None else kernel
        strides, dilations = self.integers("strides", [1] * count), self.integers("dilations", [1] * count)
        pads = self.integers("pads", [0] * 2 * count)
        kind = self.attributes.get("auto_pad", "NOTSET")
        result: list[int | None] = [dims[0], channels]
        for axis, length in enumerate(dims[2:]):
            size, stride = None if kernel is None else kernel[axis], strides[axis]
            if length is None or size is None or stride < 1 or self.number("ceil_mode", 0):
                result.append(None)
            elif kind.startswith("SAME"):
                result.append(-(-length // stride))
            else:
                around = pads[axis] + pads[axis + count] if kind == "NOTSET" else 0
                result.append((length + around - dilations[axis] * (size - 1) - 1) // stride + 1)
        return result

    def integers(self, name: str, default: Dims | None) -> Any:
        """Return the numbers that an attribute lists."""
        return list(self.attributes.get(name, default))

    def reduced(self) -> Dims | None:
        dims, axes, keep = self.input_dims(0), self.axes(), self.number("keepdims", 1)
        if dims is None or (axes is None and len(self.node.inputs) > 1):
            return None
        gone = {axis % len(dims) for axis in (axes if axes is not None else range(len(dims)))}
        result = [1 if axis in gone else size for axis, size in enumerate(dims)]
        return result if keep else [size for axis, size in enumerate(dims) if axis not in gone]

    def recurrent(self) -> Dims | None:
        data, size = self.input_dims(0), self.number("hidden_size", 0) or None
        both_ways = self.attributes.get("direction") == "bidirectional"
        if data is None or self.number("layout", 0):
            return None
        return [*([data[0]] if self.index == 0 else []), 2 if both_ways else 1, data[1], size]


def _spread(shapes: Iterable[Dims | None]) -> list[int | None] | None:
    """Return the shape of values that are spread over one another; None if one is unknown."""
    every = list(shapes)
    if any(dims is None for dims in every):
        return None
    rank = max((len(dims) for dims in every if dims is not None), default=0)
    result: list[int | None] = []
    for axis in range(-rank, 0):
        lengths = {dims[axis] for dims in every if dims is not None and len(dims) >= -axis} - {1}
        result.append(1 if not lengths else next((length for length in lengths if length is not None), None))
    return result


_RULES: Mapping[str, Callable[[ShapeRule], Dims | None]] = {
    "Transpose": ShapeRule.transpose, "Squeeze": ShapeRule.squeeze, "Unsqueeze": ShapeRule.unsqueeze, "Reshape": ShapeRule.reshape,
    "Gather": ShapeRule.gather, "Slice": ShapeRule.slice, "Split": ShapeRule.split, "Concat": ShapeRule.concat, "MatMul": ShapeRule.mat_mul,
    "Gemm": ShapeRule.gemm, "Einsum": ShapeRule.einsum, "ConstantOfShape": ShapeRule.filled, "Expand": ShapeRule.expand,
    "Shape": ShapeRule.shape, "GatherND": ShapeRule.gather_nd, "Range": lambda rule: [None],
    "Tile": ShapeRule.tile,
    "Conv": ShapeRule.convolved, "MaxPool": ShapeRule.convolved, "AveragePool": ShapeRule.convolved,
    **dict.fromkeys(("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd", "ReduceL2"), ShapeRule.reduced),
    "Loop": ShapeRule.loop, "Scan": ShapeRule.loop, "RNN": ShapeRule.recurrent, "GRU": ShapeRule.recurrent, "LSTM": ShapeRule.recurrent,
}  # fmt: skip
