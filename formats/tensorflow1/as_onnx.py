"""TensorFlow's operations as ONNX's: what the steps of a recurrent layer are made of.

An operation that is not here, or is used in a way that has no equivalent, becomes a node of another domain, which nothing
looks into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from rnnconvert.containers.graph_def import Node
from rnnconvert.core.arrays import Array
from rnnconvert.graphs.program.block import Block

DOMAIN = "tensorflow"
TYPES: Mapping[int, int] = {1: 1, 2: 11, 3: 6, 9: 7, 10: 9, 14: 16, 19: 10}
"""ONNX's element types by TensorFlow's."""
PASSING = (
    "Identity", "StopGradient", "Snapshot", "EnsureShape", "PreventGradient", "CheckNumerics", "ReadVariableOp",
    "TensorListFromTensor", "PlaceholderWithDefault",
)  # fmt: skip
"""Operations whose output is their first input."""
_SAME = {
    "Sigmoid": "Sigmoid", "Tanh": "Tanh", "Relu": "Relu", "Elu": "Elu", "Selu": "Selu", "Softsign": "Softsign",
    "Softplus": "Softplus", "Exp": "Exp", "Neg": "Neg", "Abs": "Abs", "Sqrt": "Sqrt", "Reciprocal": "Reciprocal",
    "Inv": "Reciprocal", "LogicalNot": "Not", "Add": "Add", "AddV2": "Add", "Sub": "Sub", "Mul": "Mul", "RealDiv": "Div",
    "Maximum": "Max", "Minimum": "Min", "Less": "Less", "LessEqual": "LessOrEqual", "Greater": "Greater",
    "GreaterEqual": "GreaterOrEqual", "Equal": "Equal", "LogicalAnd": "And", "LogicalOr": "Or", "Pow": "Pow", "AddN": "Sum",
    "SelectV2": "Where", "Reshape": "Reshape", "Range": "Range",
}  # fmt: skip
"""Operations that are an operator of ONNX with the same inputs."""
_FLOATS = (1, 2, 14, 19)


class Step:
    """One operation that is to become nodes.

    inputs   the values that it reads
    outputs  names of the values that it gives
    numbers  gives the stored numbers that an input is, or None
    """

    def __init__(
        self,
        block: Block,
        node: Node,
        inputs: Sequence[str],
        outputs: Sequence[str],
        numbers: Callable[[int], Array | None],
    ) -> None:
        self.block, self.node, self.inputs, self.outputs, self.numbers = block, node, inputs, outputs, numbers

    def write(self) -> None:
        """Add the nodes that compute it."""
        kind = self.node.op
        done = False
        if kind in PASSING:
            done = self._add("Identity", self.inputs[:1])
        elif kind in _SAME:
            done = self._add(_SAME[kind], self.inputs)
        elif kind in _RULES:
            done = _RULES[kind](self)
        if not done:
            self.block.add(kind, self.inputs, self.outputs, self.node.name, domain=DOMAIN)

    def _add(self, operator: str, inputs: Sequence[str], **extra: Any) -> bool:
        self.block.add(operator, inputs, self.outputs, self.node.name, **extra)
        return True

    def _axis(self, index: int) -> int | None:
        found = self.numbers(index)
        return int(found.reshape(())) if found is not None and found.size == 1 else None

    def _list(self, index: int) -> list[int] | None:
        found = self.numbers(index)
        return None if found is None or found.dtype.kind not in "iu" else [int(one) for one in found.reshape(-1)]

    def _bias(self) -> bool:
        return self.node.text("data_format") in ("", "NHWC") and self._add("Add", self.inputs)

    def _mat_mul(self) -> bool:
        one, two = self.inputs[:2]
        if self.node.number("transpose_a", 0):
            one = self.block.add("Transpose", [one], perm=[1, 0])
        if self.node.number("transpose_b", 0):
            two = self.block.add("Transpose", [two], perm=[1, 0])
        return self._add("MatMul", [one, two])

    def _cast(self) -> bool:
        to = TYPES.get(int(self.node.number("DstT", 0)))
        return to is not None and self._add("Cast", self.inputs[:1], to=to)

    def _split(self) -> bool:
        axis = self._axis(0)
        return axis is not None and self._add("Split", self.inputs[1:2], axis=axis)

    def _split_v(self) -> bool:
        sizes, axis = self._list(1), self._axis(2)
        if sizes is None or axis is None or sizes.count(-1) > 1 or len(sizes) != len(self.outputs):
            return False
        if -1 not in sizes:
            return self._add("Split", self.inputs[:1], axis=axis, split=sizes)
        rest = sizes.index(-1)
        for number, name in enumerate(self.outputs):  # those behind the one of any length are counted from the end
            start = sum(sizes[:number]) if number <= rest else -sum(sizes[number:])
            end = sum(sizes[: number + 1]) if number < rest else -sum(sizes[number + 1 :]) or 2**31 - 1
            self.block.add("Slice", self.inputs[:1], [name], axes=[axis], starts=[start], ends=[end])
        return True

    def _concat(self) -> bool:
        axis = self._axis(len(self.inputs) - 1)
        return axis is not None and self._add("Concat", self.inputs[:-1], axis=axis)

    def _pack(self) -> bool:
        axis = int(self.node.number("axis", 0))
        parts = [self.block.add("Unsqueeze", [one], axes=[axis]) for one in self.inputs]
        return axis >= 0 and self._add("Concat", parts, axis=axis)

    def _unpack(self) -> bool:
        axis = int(self.node.number("axis", 0))
        for number, name in enumerate(self.outputs):
            index = self.block.constant(np.array(number, np.int64))
            self.block.add("Gather", [self.inputs[0], index], [name], axis=axis)
        return True

    def _transpose(self) -> bool:
        order = self._list(1)
        return order is not None and self._add("Transpose", self.inputs[:1], perm=order)

    def _expand_dims(self) -> bool:
        axis = self._axis(1)
        return axis is not None and self._add("Unsqueeze", self.inputs[:1], axes=[axis])

    def _squeeze(self) -> bool:
        axes = self.node.integers("squeeze_dims")
        return self._add("Squeeze", self.inputs[:1], **({"axes": axes} if axes else {}))

    def _shape(self) -> bool:
        if int(self.node.number("out_type", 3)) == 9:
            return self._add("Shape", self.inputs[:1])
        return self._add("Cast", [self.block.add("Shape", self.inputs[:1])], to=onnx.TensorProto.INT32)

    def _size(self) -> bool:
        """Write how many elements a list has: it is its elements as one tensor."""
        whole, first = self.block.add("Shape", self.inputs[1:2]), self.block.constant(np.array(0, np.int64))
        return self._add("Cast", [self.block.add("Gather", [whole, first])], to=onnx.TensorProto.INT32)

    def _fill(self) -> bool:
        value = self.numbers(1)
        if value is None or value.size != 1:
            return False
        wide = self.block.add("Cast", self.inputs[:1], to=onnx.TensorProto.INT64)
        return self._add("ConstantOfShape", [wide], value=onnx.numpy_helper.from_array(np.array(value).reshape(1)))

    def _level(self) -> bool:
        """Write zeros or ones of the shape of another value."""
        shape = self.block.add("Shape", self.inputs[:1])
        level = onnx.numpy_helper.from_array(np.array([self.node.op == "OnesLike"], np.float32))
        return int(self.node.number("T", 1)) == 1 and self._add("ConstantOfShape", [shape], value=level)

    def _gather(self) -> bool:
        axis = self._axis(2) if len(self.inputs) > 2 else 0
        if axis is None or self.node.number("batch_dims", 0):
            return False
        return self._add("Gather", self.inputs[:2], axis=axis)

    def _item(self) -> bool:
        return self._add("Gather", self.inputs[:2], axis=0)

    def _reverse(self) -> bool:
        axes = self._list(1)
        if axes is None or len(axes) != 1:
            return False
        return self._add("Slice", self.inputs[:1], starts=[-1], ends=[-(2**31)], axes=axes, steps=[-1])

    def _differs(self) -> bool:
        return self._add("Not", [self.block.add("Equal", self.inputs[:2])])

    def _reduced(self) -> bool:
        """Write whether one of the truths along some axes holds, or all of them."""
        axes = self._list(1)
        if axes is None:
            return False
        numbers = self.block.add("Cast", self.inputs[:1], to=onnx.TensorProto.INT32)
        operator, keep = "ReduceMax" if self.node.op == "Any" else "ReduceMin", int(self.node.number("keep_dims", 0))
        found = self.block.add(operator, [numbers], axes=axes, keepdims=keep)
        return self._add("Cast", [found], to=onnx.TensorProto.BOOL)

    def _sum(self) -> bool:
        axes = self._list(1)
        keep = int(self.node.number("keep_dims", 0))
        return axes is not None and self._add("ReduceSum", self.inputs[:1], axes=axes, keepdims=keep)

    def _tile(self) -> bool:
        repeats = self.block.add("Cast", self.inputs[1:2], to=onnx.TensorProto.INT64)
        return self._add("Tile", [self.inputs[0], repeats])

    def _select(self) -> bool:
        """Write a choice by truths, one for each number or one for each row."""
        wide = self.block.add("Reshape", [self.inputs[0], self.block.constant(np.array([0, -1], np.int64))])
        return self._add("Where", [wide, *self.inputs[1:3]])

    def _clip(self) -> bool:
        return self._add("Clip", self.inputs[:3])

    def _relu6(self) -> bool:
        return self._add("Clip", self.inputs[:1], min=0.0, max=6.0)

    def _leaky(self) -> bool:
        return self._add("LeakyRelu", self.inputs[:1], alpha=self.node.number("alpha", 0.2))

    def _square(self) -> bool:
        return self._add("Mul", [self.inputs[0], self.inputs[0]])

    def _strided(self) -> bool:
        """Return whether a StridedSlice takes ranges and single elements of axes, which are Slice and Squeeze."""
        begin, end, steps = (self._list(index) for index in (1, 2, 3))
        masks = {
            key: int(self.node.number(f"{key}_mask", 0))
            for key in ("begin", "end", "shrink_axis", "ellipsis", "new_axis")
        }
        if begin is None or end is None or steps is None or masks["ellipsis"] or masks["new_axis"]:
            return False
        if not len(begin) == len(end) == len(steps):
            return False
        starts, ends, axes, gone = [], [], [], []
        for axis, (low, high, step) in enumerate(zip(begin, end, steps, strict=True)):
            single = masks["shrink_axis"] >> axis & 1
            if single:
                gone.append(axis)
                if len(begin) == 1 or all(
                    masks["begin"] >> n & 1
                    and masks["end"] >> n & 1
                    and steps[n] == 1
                    and not masks["shrink_axis"] >> n & 1
                    for n in range(len(begin))
                    if n != axis
                ):
                    index = self.block.constant(np.array(low, np.int64))
                    return self._add("Gather", [self.inputs[0], index], axis=axis)
                high = low + 1 if low != -1 else 2**31 - 1
            elif masks["begin"] >> axis & 1 and masks["end"] >> axis & 1 and step == 1:
                continue
            if masks["begin"] >> axis & 1 and not single:
                low = 0 if step > 0 else -1
            if masks["end"] >> axis & 1 and not single:
                high = 2**31 - 1 if step > 0 else -(2**31)
            starts.append(low)
            ends.append(high)
            axes.append(axis)
        taken = [steps[axis] for axis in axes]
        value = self.inputs[0]
        if not axes:
            return self._add("Identity", [value])
        extra: dict[str, Any] = {
            "starts": starts,
            "ends": ends,
            "axes": axes,
            **({"steps": taken} if set(taken) != {1} else {}),
        }
        if not gone:
            return self._add("Slice", [value], **extra)
        return self._add("Squeeze", [self.block.add("Slice", [value], **extra)], axes=gone)


_RULES: Mapping[str, Callable[[Step], bool]] = {
    "BiasAdd": Step._bias, "MatMul": Step._mat_mul, "Cast": Step._cast, "Split": Step._split, "SplitV": Step._split_v,
    "ConcatV2": Step._concat, "Pack": Step._pack, "Unpack": Step._unpack, "Transpose": Step._transpose,
    "ExpandDims": Step._expand_dims, "Squeeze": Step._squeeze, "Shape": Step._shape, "Fill": Step._fill,
    "ZerosLike": Step._level, "OnesLike": Step._level, "Gather": Step._gather, "GatherV2": Step._gather, "TensorListGetItem": Step._item,
    "ReverseV2": Step._reverse, "ClipByValue": Step._clip, "Relu6": Step._relu6, "LeakyRelu": Step._leaky,
    "Any": Step._reduced, "All": Step._reduced, "NotEqual": Step._differs, "Select": Step._select,
    "Tile": Step._tile, "Sum": Step._sum,
    "Square": Step._square, "TensorArraySizeV3": Step._size, "StridedSlice": Step._strided,
}  # fmt: skip
