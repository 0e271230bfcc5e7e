"""Recurrent layers that a TFLite graph computes in other operators: WHILE, and steps that are written out.

The graph becomes one of ONNX's in memory, in which loops are Loop nodes; there the layers are recognized and proved
(formats/onnx/computed.py). A product of float numbers with a matrix of integers is that with the numbers that these stand for;
other quantized tensors are left alone: no formula of theirs is exact.

Source: tensorflow/lite/schema/schema.fbs; tensorflow/lite/kernels/fully_connected.cc, EvalHybrid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rnnconvert.core.arrays import Array
from rnnconvert.core.claims import ROUNDED
from rnnconvert.formats.onnx.block import Block, needed
from rnnconvert.formats.onnx.computed import Computed, Looked
from rnnconvert.formats.onnx.fuse.graph import bodies as inner_graphs
from rnnconvert.formats.onnx.fuse.graph import reads
from rnnconvert.formats.onnx.lowered import layers_of
from rnnconvert.formats.tflite import lists
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.flow import Given, Looped, Read
from rnnconvert.formats.tflite.graph import Graph, Model, Operator, Tensor, numbers

__all__ = ["Looked", "bodies", "looped", "quantised", "read", "tensors"]

_LATER = re.compile(r"(/while(_\d+)?(/LoopCond/_\d+)?|/(MatMul|BiasAdd|add)(_\d+)?)+(;.*)?$")
_KINDS: Mapping[int, int] = {0: 1, 1: 10, 2: 6, 4: 7, 6: 9, 10: 11}
"""ONNX's element types by the schema's."""
_SAME = {
    14: "Sigmoid", 19: "Relu", 28: "Tanh", 47: "Exp", 55: "Max", 57: "Min", 58: "Less", 59: "Neg", 61: "Greater", 62: "GreaterOrEqual",
    63: "LessOrEqual", 71: "Equal", 75: "Sqrt", 86: "And", 84: "Or", 87: "Not", 101: "Abs", 111: "Elu", 123: "Where",
}  # fmt: skip
"""Operators that are one of ONNX's with the same inputs."""
_SUMS = {0: "Add", 18: "Mul", 41: "Sub", 42: "Div"}
"""Operators with a function of their result, which the first field of their options is."""
_FULLY_CONNECTED, _SHAPE, _WHILE = 9, 77, 119
_FLOAT, _LIST = 0, 14
"""Numbers of element types: single precision, and a list of tensors (VARIANT)."""


def read(path: Path, model: Model) -> Looked:
    """Return the layers that the main graph computes."""
    lowering = _Lowering(path, model)
    looked = layers_of(path, lowering.message, _LATER)
    for name, one in looked.layers.items():
        types = sorted({lowering.types[value] for value in _values(one.nodes) if value in lowering.types})
        if types:
            warning = quantised(name, types, "its input and its states")
            looked.layers[name] = replace(one, warnings=(*one.warnings, warning))
    return looked


def quantised(name: str, types: Sequence[str], rounded: str) -> str:
    """Return what there is to say of a layer whose weights are not stored as float32.

    types    their element types
    rounded  what kernels for integers round besides
    """
    text = f"{name}: its weights are stored as {' and '.join(types)}, and are read as the float numbers that these stand for."
    if not any("int" in one for one in types):
        return text
    return f"{text} TFLite's kernel for integers also rounds {rounded}, {ROUNDED}"


def _values(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Return the values that some nodes read, and those that graphs inside them read."""
    found: set[str] = set()
    for node in nodes:
        found.update(node.input)
        for graph in inner_graphs([node]):
            found |= _values(graph.node)
    return found


def looped(one: Computed) -> Looped:
    """Return what a layer reads and gives in the main graph."""
    found, words = one.found, {"hidden": "the final state", "cell": "the final cell state"}
    reads = [
        Read([_tensor_of(value) for value in read.steps or (read.value,)], read.axis, bool(read.steps), read.window)
        for read in found.reads
    ]
    gives = [
        Given(
            _tensor_of(use.value), use.axis, use.step if use.kind == "step" else None, words.get(use.kind, ""), use.rank
        )
        for use in found.uses
    ]
    mask = "" if found.mask is None else f"{found.mask.value!r}"
    lengths = found.mask is not None and found.mask.rank == 1
    return Looped(
        one.stack, reads, gives, [_tensor_of(value) for value in found.states.values()], one.turned, "" if lengths else mask,
        mask if lengths else "",
    )  # fmt: skip


def _tensor_of(value: str) -> Hashable:
    """Return the tensor that a value stands for; the value itself where it lies inside an operator."""
    place = value.removesuffix("/last")
    return int(place) if place.isdigit() else value


def tensors(one: Computed) -> set[int]:
    """Return the tensors of the main graph that a layer's operators read."""
    return {int(name) for node in one.nodes for name in reads(node) if name.isdigit()}


def bodies(operator: Operator) -> set[int]:
    """Return the graphs of a WHILE, by their numbers."""
    options = operator.options
    return set() if options is None else {int(options.number(field, "i")) for field in (0, 1)}


class _Lowering:
    """A model on its way.

    types   how numbers that are not float32 are stored, by their values' names
    bodies  the steps of its loops, each with what the loop hands to them
    """

    def __init__(self, path: Path, model: Model) -> None:
        self.path, self.model = path, model
        self.arrays: dict[str, Array] = {}
        self.types: dict[str, str] = {}
        self.bodies: list[Graph] = []
        self._read: dict[int, Array] = {}

    def message(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """Return the model, and its stored numbers."""
        graph = self.model.graphs[0]
        block = Block("", self.arrays)
        self._constants(graph, block, "")
        for operator in graph.operators:
            self._write(graph, operator, block, "")
        made = onnx.ModelProto(ir_version=8)
        made.opset_import.append(helper.make_opsetid("", 12))
        made.graph.node.extend(block.nodes)
        made.graph.initializer.extend(block.tensors())
        for place, tensor in enumerate(graph.tensors):
            if str(place) not in self.arrays:
                field = made.graph.input if place in graph.inputs else made.graph.value_info
                # Without axes it is one number, or, in files of TensorFlow 2.2, of any axes.
                dims = None if tensor.kind == _LIST or not tensor.dims else list(tensor.dims)
                field.append(helper.make_tensor_value_info(str(place), _KINDS.get(tensor.kind, 1), dims))
        made.graph.output.extend(onnx.ValueInfoProto(name=str(place)) for place in graph.outputs)
        return made, self.arrays

    def _constants(self, graph: Graph, block: Block, prefix: str) -> None:
        for place, tensor in enumerate(graph.tensors):
            if tensor.stored is not None and not tensor.odd and not tensor.scales.size:
                block.constant(tensor.stored, f"{prefix}{place}")

    def stored(self, tensor: Tensor, block: Block, name: str) -> str:
        """Add the numbers that a stored tensor stands for; return their name."""
        if name not in self.arrays and tensor.stored is not None:
            self.types[name] = str(tensor.stored.dtype)
            if id(tensor) not in self._read:
                self._read[id(tensor)] = numbers(self.path, tensor).astype(np.float32, copy=False)
            block.constant(self._read[id(tensor)], name)
        return name

    def _write(self, graph: Graph, operator: Operator, block: Block, prefix: str) -> None:
        """Add the nodes of an operator; one of another domain where it has no equivalent here.

        One without outputs, as those that fill a variable, gives no value.
        """
        if not operator.outputs:
            return
        own = _Written(self, graph, operator, block, prefix)
        if operator.code == _WHILE and not prefix and own.loop(self.model):
            return
        if not own.plain():
            inputs = [own.name(place) for place in operator.inputs]
            block.add(operator.label, inputs, own.outputs, own.label, domain="tflite")


class _Written:
    """One operator, and the graph that it is written into."""

    def __init__(self, whole: _Lowering, graph: Graph, operator: Operator, block: Block, prefix: str) -> None:
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
        stated = self.graph.producer(self.operator.input(1))
        if stated is not None and stated.code == _SHAPE and stated.input(0) == self.operator.input(0):
            return self._add("Identity", inputs[:1])  # a stacked list, by converters of TensorFlow 2.2
        if shape is None:
            return False
        return self._add("Reshape", [inputs[0], self.block.constant(np.array(shape, np.int64))])

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
        ends = [
            (begin[axis] + 1 or 2**31 - 1) if axis in gone else 2**31 - 1 if high >> axis & 1 else one
            for axis, one in enumerate(end)
        ]
        extra: dict[str, Any] = {"starts": starts, "ends": ends, "axes": list(range(len(begin)))}
        if not gone:
            return self._add("Slice", inputs[:1], **extra)
        return self._add(
            "Squeeze", [self.block.add("Slice", inputs[:1], [f"{self.outputs[0]}/cut"], **extra)], axes=gone
        )

    def _shape(self, inputs: Sequence[str]) -> bool:
        wide = self.block.add("Shape", inputs[:1])
        return self._add(
            "Cast", [wide], to=_KINDS.get(self.graph.tensors[self.operator.outputs[0]].kind, onnx.TensorProto.INT32)
        )

    def _cast(self, inputs: Sequence[str]) -> bool:
        to = _KINDS.get(self.graph.tensors[self.operator.outputs[0]].kind)
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

    def loop(self, model: Model) -> bool:
        """Write a WHILE; return whether its graphs are there."""
        going, body = (
            model.graphs[at] if 0 < at < len(model.graphs) else None
            for at in (self.option(0, "i"), self.option(1, "i"))
        )
        count = len(self.operator.inputs)
        if going is None or body is None or not count == len(body.inputs) == len(body.outputs) == len(going.inputs):
            return False
        prefix = f"{self.label}/body/"
        block = Block(prefix, self.whole.arrays)
        self.whole._constants(body, block, prefix)
        body, outside = lists.settled(self.graph, self.operator, body)
        self.whole.bodies.append(body)
        for place, source in outside.items():
            if str(source) in self.whole.arrays:
                block.add("Identity", [str(source)], [f"{prefix}{place}"])
                self.whole.arrays[f"{prefix}{place}"] = self.whole.arrays[str(source)]
        for operator in body.operators:
            self.whole._write(body, operator, block, prefix)
        first = [self.name(place) for place in self.operator.inputs]
        begin = self._going(going, first, self.block, f"{self.label}/first/")
        after = [f"{prefix}{place}" for place in body.outputs]
        on = self._going(going, after, block, f"{self.label}/next/")
        states, collected, single = [], [], []
        loop = lists.Loop(self.graph, self.operator, going, body)
        for number, (inner, outer) in enumerate(zip(body.outputs, self.outputs, strict=True)):
            if inner in outside:
                self.block.add("Identity", [first[number]], [outer])
                continue
            if loop.unread(number):
                continue
            item = loop.each(number)
            last = loop.last(number)
            if item is not None:
                collected.append((f"{prefix}{item}", outer))
            elif last is not None:
                single.append((number, f"{prefix}{last}", outer))
            else:
                states.append((number, f"{prefix}{inner}", outer))
        graph = onnx.GraphProto(name="body")
        wanted = [on, *(one[1] for one in states), *(one[1] for one in single), *(one[0] for one in collected)]
        graph.node.extend(needed(block.nodes, wanted))
        graph.initializer.extend(block.tensors())
        graph.input.append(helper.make_tensor_value_info(f"{prefix}iteration", onnx.TensorProto.INT64, []))
        graph.input.append(helper.make_tensor_value_info(f"{prefix}going", onnx.TensorProto.BOOL, []))
        inputs = ["", begin]
        nothing = self.block.constant(np.zeros((), np.float32)) if single else ""
        for number in [*(one[0] for one in states), *(one[0] for one in single)]:
            tensor = body.tensors[body.inputs[number]]
            graph.input.append(onnx.ValueInfoProto(name=f"{prefix}{body.inputs[number]}"))
            graph.input[-1].type.tensor_type.elem_type = _KINDS.get(tensor.kind, 1)
            inputs.append(nothing if any(number == one[0] for one in single) else first[number])
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
        outputs = [*(one[2] for one in states), *(f"{one[2]}/last" for one in single), *(one[1] for one in collected)]
        self.block.nodes.append(helper.make_node("Loop", inputs, outputs, self.label, body=graph))
        for _, _, outer in single:
            self.block.add("Unsqueeze", [f"{outer}/last"], [outer], axes=[0])
        return True

    def _going(self, graph: Graph, values: Sequence[str], block: Block, prefix: str) -> str:
        """Write what decides whether a loop goes on; return its value."""
        self.whole._constants(graph, block, prefix)
        for place, value in zip(graph.inputs, values, strict=True):
            block.add("Identity", [value], [f"{prefix}{place}"])
        for operator in graph.operators:
            self.whole._write(graph, operator, block, prefix)
        return f"{prefix}{graph.outputs[0]}"


def _readable(tensor: Tensor) -> bool:
    """Return whether the numbers that a tensor stands for can be computed from the file."""
    stored = tensor.stored
    return stored is not None and not tensor.odd and (stored.dtype.kind == "f" or bool(tensor.scales.size))


_RULES: Mapping[int, Callable[[_Written, Sequence[str]], bool]] = {
    2: _Written._concatenation, 9: _Written._connected, 22: _Written._reshape, 36: _Written._gather, 39: _Written._transpose,
    45: _Written._strided, 49: _Written._split, 88: _Written._unpack, 102: _Written._split_v, 105: _Written._reverse,
    53: _Written._cast, 69: _Written._tile, 70: _Written._expand, 72: _Written._differs, 77: _Written._shape, 83: _Written._pack,
    91: _Written._any, 93: _Written._zeros, 94: _Written._fill,
    126: _Written._batched, s.CUSTOM: _Written._custom, s.DEQUANTIZE: _Written._dequantize,
}  # fmt: skip
