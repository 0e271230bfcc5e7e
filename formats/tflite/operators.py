"""TFLite's operators as ONNX's, one rule each.

A product of float numbers with a matrix of integers is that with the numbers that these stand for; other quantized tensors are
left alone: no formula of theirs is exact.

Source: tensorflow/lite/schema/schema.fbs; tensorflow/lite/kernels/fully_connected.cc, EvalHybrid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from rnnconvert.core.arrays import Array
from rnnconvert.formats.tflite import lists
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.graph import Graph, Operator, Tensor, numbers
from rnnconvert.graphs.program.block import Block

KINDS: Mapping[int, int] = {0: 1, 1: 10, 2: 6, 4: 7, 6: 9, 10: 11}
"""ONNX's element types by the schema's."""
_SAME = {
    14: "Sigmoid", 19: "Relu", 28: "Tanh", 47: "Exp", 55: "Max", 57: "Min", 58: "Less", 59: "Neg", 61: "Greater", 62: "GreaterOrEqual",
    63: "LessOrEqual", 71: "Equal", 75: "Sqrt", 86: "And", 84: "Or", 87: "Not", 101: "Abs", 111: "Elu", 123: "Where",
}  # fmt: skip
"""Operators that are one of ONNX's with the same inputs."""
_SUMS = {0: "Add", 18: "Mul", 41: "Sub", 42: "Div"}
"""Operators with a function of their result, which the first field of their options is."""
_FULLY_CONNECTED, _SHAPE = 9, 77
_FLOAT = 0


class Stored:
    """The stored numbers of a model on its way.

    arrays   by the names of their values
    types    how numbers that are not float32 are stored, by their values' names
    sources  what of the file `arrays` are, by their values' names
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.arrays: dict[str, Array] = {}
        self.types: dict[str, str] = {}
        self.sources: dict[str, Array] = {}
        self._read: dict[int, Array] = {}

    def constants(self, graph: Graph, block: Block, prefix: str) -> None:
        """Add the stored numbers of a graph that stand for themselves."""
        for place, tensor in enumerate(graph.tensors):
            if tensor.stored is not None and not tensor.odd and not tensor.scales.size:
                self.sources[block.constant(tensor.stored, f"{prefix}{place}")] = tensor.stored

    def stored(self, tensor: Tensor, block: Block, name: str) -> str:
        """Add the numbers that a stored tensor stands for; return their name."""
        if name not in self.arrays and tensor.stored is not None:
            self.types[name] = str(tensor.stored.dtype)
            if id(tensor) not in self._read:
                self._read[id(tensor)] = numbers(self.path, tensor).astype(np.float32, copy=False)
            self.sources[block.constant(self._read[id(tensor)], name)] = tensor.stored
        return name


class Written:
    """One operator, and the graph that it is written into."""

    def __init__(self, whole: Stored, graph: Graph, operator: Operator, block: Block, prefix: str) -> None:
        self.whole, self.graph, self.operator, self.block, self.prefix = whole, graph, operator, block, prefix
        self.outputs = [self.name(place) for place in operator.outputs]
        first = operator.outputs[0] if operator.outputs else -1
        self.label = graph.tensors[first].name if first >= 0 else ""

    def name(self, place: int) -> str:
        """Return the name of a tensor."""
        return f"{self.prefix}{place}" if place >= 0 else ""

    def option(self, field: int, code: str, default: Any = 0) -> Any:
        """Return an option of the operator."""
        return default if self.operator.options is None else self.operator.options.number(field, code, default)

    def numbers(self, index: int) -> Array | None:
        """Return an input that is stored."""
        return self.whole.arrays.get(self.name(self.operator.input(index)))

    def _list(self, index: int) -> list[int] | None:
        found = self.numbers(index)
        return None if found is None or found.dtype.kind not in "iu" else [int(one) for one in found.reshape(-1)]

    def _axis(self, index: int) -> int | None:
        found = self._list(index)
        return found[0] if found is not None and len(found) == 1 else None

    def _add(self, operator: str, inputs: Sequence[str], **extra: Any) -> bool:
        self.block.add(operator, inputs, self.outputs, self.label, **extra)
        return True

    def plain(self) -> bool:
        """Write any operator but a loop; return whether it has an equivalent."""
        code, read = self.operator.code, [self._operand(place) for place in self.operator.inputs]
        inputs = [name for name in read if name is not None]
        if len(inputs) < len(read) or any(
            self.graph.tensors[place].scales.size for place in self.operator.outputs if place >= 0
        ):
            return False
        if code in _SAME:
            return self._add(_SAME[code], inputs)
        if code in _SUMS:
            return self._function(_SUMS[code], inputs, 0)
        rule = _RULES.get(code)
        return rule is not None and rule(self, inputs)

    def _operand(self, place: int) -> str | None:
        """Return the name of what the operator reads; None for integers that it computes with."""
        tensor = self.graph.tensors[place] if place >= 0 else None
        if tensor is None or not tensor.scales.size:
            return self.name(place)
        weights = self.operator.code == _FULLY_CONNECTED and place == self.operator.input(1)
        wide = all(self.graph.tensors[one].kind == _FLOAT for one in (self.operator.input(0), *self.operator.outputs))
        if self.operator.code == s.DEQUANTIZE or (weights and wide):
            return self.whole.stored(tensor, self.block, self.name(place)) if _readable(tensor) else None
        return None

    def _dequantize(self, inputs: Sequence[str]) -> bool:
        tensor = self.graph.tensors[self.operator.input(0)]
        if not _readable(tensor) or self.graph.tensors[self.operator.outputs[0]].kind != _FLOAT:
            return False
        self.whole.stored(tensor, self.block, self.outputs[0])
        return True

    def _custom(self, inputs: Sequence[str]) -> bool:
        """Write an operator for lists: one that is made of a tensor, or becomes one, is that tensor."""
        name = self.operator.name
        if name in (lists.FROM_TENSOR, lists.STACK):
            return self._add("Identity", inputs[:1])
        return name == lists.GET and self._add("Gather", inputs[:2], axis=0)

    def _function(self, operator: str, inputs: Sequence[str], field: int, **extra: Any) -> bool:
        """Add an operator and the function of its result that its options state."""
        function = int(self.option(field, "b"))
        if not function:
            return self._add(operator, inputs, **extra)
        bounds: dict[str, float] = {2: {"min": -1.0, "max": 1.0}, 3: {"min": 0.0, "max": 6.0}}.get(function, {})
        after = {1: "Relu", 2: "Clip", 3: "Clip", 4: "Tanh"}.get(function)
        if after is None:
            return False
        return self._add(after, [self.block.add(operator, inputs, **extra)], **bounds)

    def _connected(self, inputs: Sequence[str]) -> bool:
        weights = self.block.add("Transpose", [inputs[1]], perm=[1, 0])
        biased = len(inputs) > 2 and bool(inputs[2])
        if self.option(1, "b") or len(self.graph.tensors[self.operator.input(1)].shape) != 2:
            return False
        if not biased:
            return self._function("MatMul", [inputs[0], weights], 0)
        return self._function("Add", [self.block.add("MatMul", [inputs[0], weights], name=self.label), inputs[2]], 0)

    def _batched(self, inputs: Sequence[str]) -> bool:
        if self.option(0, "?", False) or len(self.graph.tensors[self.operator.input(1)].shape) != 2:
            return False
        two = self.block.add("Transpose", [inputs[1]], perm=[1, 0]) if self.option(1, "?", False) else inputs[1]
        return self._add("MatMul", [inputs[0], two])

    def _reshape(self, inputs: Sequence[str]) -> bool:
        shape = self._list(1)
        if shape is not None:
            return self._add("Reshape", [inputs[0], self.block.constant(np.array(shape, np.int64))])
        if len(inputs) < 2 or not inputs[1]:
            return False
        stated = self.graph.producer(self.operator.input(1))
        if stated is not None and stated.code == _SHAPE and stated.input(0) == self.operator.input(0):
            return self._add("Identity", inputs[:1])  # a stacked list, by converters of TensorFlow 2.2
        return self._add("Reshape", [inputs[0], self.block.add("Cast", inputs[1:2], to=onnx.TensorProto.INT64)])

    def _split(self, inputs: Sequence[str]) -> bool:
        axis = self._axis(0)
        return axis is not None and self._add("Split", inputs[1:2], axis=axis)

    def _split_v(self, inputs: Sequence[str]) -> bool:
        sizes, axis = self._list(1), self._axis(2)
        if sizes is None or axis is None or sizes.count(-1) > 1 or len(sizes) != len(self.outputs):
            return False
        if -1 not in sizes:
            return self._add("Split", inputs[:1], axis=axis, split=sizes)
        rest = sizes.index(-1)
        for number, name in enumerate(self.outputs):  # those behind the one of any length are counted from the end
            start = sum(sizes[:number]) if number <= rest else -sum(sizes[number:])
            end = sum(sizes[: number + 1]) if number < rest else -sum(sizes[number + 1 :]) or 2**31 - 1
            self.block.add("Slice", inputs[:1], [name], axes=[axis], starts=[start], ends=[end])
        return True

    def _concatenation(self, inputs: Sequence[str]) -> bool:
        return self._function("Concat", inputs, 1, axis=int(self.option(0, "i")))

    def _transpose(self, inputs: Sequence[str]) -> bool:
        order = self._list(1)
        return order is not None and self._add("Transpose", inputs[:1], perm=order)

    def _gather(self, inputs: Sequence[str]) -> bool:
        return not self.option(1, "i") and self._add("Gather", inputs, axis=int(self.option(0, "i")))

    def _unpack(self, inputs: Sequence[str]) -> bool:
        for number, name in enumerate(self.outputs):
            index = self.block.constant(np.array(number, np.int64))
            self.block.add("Gather", [inputs[0], index], [name], axis=int(self.option(1, "i")))
        return True

    def _reverse(self, inputs: Sequence[str]) -> bool:
        axis = self._axis(1)
        return axis is not None and self._add(
            "Slice", inputs[:1], starts=[-1], ends=[-(2**31)], axes=[axis], steps=[-1]
        )

    def _strided(self, inputs: Sequence[str]) -> bool:
        begin, end, steps = (self._list(index) for index in (1, 2, 3))
        low, high, ellipsis, new, single = (int(self.option(field, "i")) for field in range(5))
        if begin is None or end is None or steps is None or ellipsis or new or set(steps) != {1}:
            return False
        gone = [axis for axis in range(len(begin)) if single >> axis & 1]
        starts = [0 if low >> axis & 1 and axis not in gone else one for axis, one in enumerate(begin)]
        last = 2**31 - 1
        ends = [last if high >> axis & 1 else place for axis, place in enumerate(end)]
        ends = [begin[axis] + 1 or last if axis in gone else place for axis, place in enumerate(ends)]
        extra: dict[str, Any] = {"starts": starts, "ends": ends, "axes": list(range(len(begin)))}
        if not gone:
            return self._add("Slice", inputs[:1], **extra)
        return self._add(
            "Squeeze", [self.block.add("Slice", inputs[:1], [f"{self.outputs[0]}/cut"], **extra)], axes=gone
        )

    def _shape(self, inputs: Sequence[str]) -> bool:
        wide = self.block.add("Shape", inputs[:1])
        return self._add(
            "Cast", [wide], to=KINDS.get(self.graph.tensors[self.operator.outputs[0]].kind, onnx.TensorProto.INT32)
        )

    def _cast(self, inputs: Sequence[str]) -> bool:
        to = KINDS.get(self.graph.tensors[self.operator.outputs[0]].kind)
        return to is not None and self._add("Cast", inputs[:1], to=to)

    def _expand(self, inputs: Sequence[str]) -> bool:
        axis = self._axis(1)
        return axis is not None and self._add("Unsqueeze", inputs[:1], axes=[axis])

    def _pack(self, inputs: Sequence[str]) -> bool:
        axis = int(self.option(1, "i"))
        parts = [self.block.add("Unsqueeze", [one], axes=[axis]) for one in inputs]
        return axis >= 0 and self._add("Concat", parts, axis=axis)

    def _fill(self, inputs: Sequence[str]) -> bool:
        value = self.numbers(1)
        if value is None or value.size != 1:
            return False
        wide = self.block.add("Cast", inputs[:1], to=onnx.TensorProto.INT64)
        return self._add("ConstantOfShape", [wide], value=onnx.numpy_helper.from_array(np.array(value).reshape(1)))

    def _zeros(self, inputs: Sequence[str]) -> bool:
        if self.graph.tensors[self.operator.outputs[0]].kind != _FLOAT:
            return False
        return self._add("ConstantOfShape", [self.block.add("Shape", inputs[:1])])

    def _differs(self, inputs: Sequence[str]) -> bool:
        return self._add("Not", [self.block.add("Equal", inputs[:2])])

    def _any(self, inputs: Sequence[str]) -> bool:
        """Write whether one of the truths along some axes holds."""
        axes = self._list(1)
        if axes is None:
            return False
        wide = self.block.add("Cast", inputs[:1], to=onnx.TensorProto.INT32)
        found = self.block.add("ReduceMax", [wide], axes=axes, keepdims=int(self.option(0, "?", False)))
        return self._add("Cast", [found], to=onnx.TensorProto.BOOL)

    def _tile(self, inputs: Sequence[str]) -> bool:
        return self._add("Tile", [inputs[0], self.block.add("Cast", inputs[1:2], to=onnx.TensorProto.INT64)])

    # Loops ----------------------------------------------------------------------------------------------------


def _readable(tensor: Tensor) -> bool:
    """Return whether the numbers that a tensor stands for can be computed from the file."""
    stored = tensor.stored
    return stored is not None and not tensor.odd and (stored.dtype.kind == "f" or bool(tensor.scales.size))


_RULES: Mapping[int, Callable[[Written, Sequence[str]], bool]] = {
    2: Written._concatenation, 9: Written._connected, 22: Written._reshape, 36: Written._gather, 39: Written._transpose,
    45: Written._strided, 49: Written._split, 88: Written._unpack, 102: Written._split_v, 105: Written._reverse,
    53: Written._cast, 69: Written._tile, 70: Written._expand, 72: Written._differs, 77: Written._shape, 83: Written._pack,
    91: Written._any, 93: Written._zeros, 94: Written._fill,
    126: Written._batched, s.CUSTOM: Written._custom, s.DEQUANTIZE: Written._dequantize,
}  # fmt: skip
