"""OpenVINO's operations in the common ones, one rule each.

Source: docs.openvino.ai, Operation Sets; for each operation its class in src/core/src/op. An operation of another set than OpenVINO's
("opset1" to "opset16") is an extension, which may compute anything under any name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.formats.openvino import loops
from rnnconvert.formats.openvino.net import TYPES, Net, NetOperation, Value, value_name
from rnnconvert.graphs.program.lowering import END, OPSET, WIDE, Block, Rule
from rnnconvert.graphs.program.operations import Body, Declared, Program

DOMAIN = "openvino"
_LOOPS = ("Loop", "TensorIterator")
_CELLS = ("LSTMCell", "GRUCell", "RNNCell")
_OPSET = re.compile(r"opset\d{1,2}")
_PRECISIONS = {
    "FP32": "f32", "FP16": "f16", "BF16": "bf16", "FP64": "f64", "I8": "i8", "U8": "u8", "I16": "i16", "I32": "i32", "I64": "i64",
    "BOOL": "boolean",
}  # fmt: skip
_TRUE = ("true", "1")
_SAME = {
    "Sigmoid": "Sigmoid", "Relu": "Relu", "ReLU": "Relu", "Tanh": "Tanh", "Exp": "Exp", "Log": "Log", "Abs": "Abs", "Ceiling": "Ceil",
    "Floor": "Floor", "Sin": "Sin", "Cos": "Cos", "Sqrt": "Sqrt", "Sign": "Sign", "Negative": "Neg", "Erf": "Erf", "HSwish": "HardSwish",
    "SoftPlus": "Softplus", "SoftSign": "Softsign", "Mish": "Mish", "Add": "Add", "Subtract": "Sub", "Multiply": "Mul",
    "Maximum": "Max", "Minimum": "Min", "Power": "Pow", "Equal": "Equal", "Less": "Less", "LessEqual": "LessOrEqual",
    "Greater": "Greater", "GreaterEqual": "GreaterOrEqual", "LogicalAnd": "And", "LogicalOr": "Or", "LogicalNot": "Not",
    "LogicalXor": "Xor", "Select": "Where", "Identity": "Identity", "Range": "Range",
}  # fmt: skip
"""Operations that are a common one with the same inputs."""


class NetRule(Rule):
    """One operation, and the graph that it is written into."""

    def __init__(self, net: Net, layer: NetOperation, block: Block) -> None:
        self.net, self.layer = net, layer
        outputs = [value_name(net, (layer.id, port)) for port in range(len(layer.output_shapes))]
        super().__init__(block, [value_name(net, value) if value else "" for value in layer.inputs], outputs, layer.name)

    def numbers(self, index: int) -> Array | None:
        if index < len(self.layer.inputs):
            return self.net.constant(self.layer.inputs[index])
        return self.block.arrays.get(self.inputs[index]) if index < len(self.inputs) else None

    def write(self) -> None:
        """Write the operation; one of another domain where it has no equivalent."""
        kind = self.layer.type
        if _OPSET.fullmatch(self.layer.version) is None:
            self.block.add(kind, self.inputs, self.outputs, self.label, self.layer.version or "an extension")
        elif kind in _SAME:
            self.add(_SAME[kind], self.inputs)
        elif kind in _LOOPS and loops.written(self, _written):
            pass
        elif kind in _CELLS and self.net.where and loops.cell(self):
            pass  # of a loop; one of the main graph is a layer itself
        elif kind not in _RULES or not _RULES[kind](self):
            self.block.add(kind, self.inputs, self.outputs, self.label, DOMAIN)

    def words(self, key: str) -> list[int]:
        """Return an attribute that is a list of whole numbers: "1, 0, 1"."""
        return [int(word) for word in self.layer.data.get(key, "").split(",") if word.strip()]

    def word(self, key: str, default: str) -> str:
        """Return an attribute that is a word."""
        return self.layer.data.get(key, default)

    def option(self, key: str, default: int = 0) -> int:
        """Return an attribute that is a whole number."""
        return int(self.layer.data.get(key, default))

    def number(self, key: str, default: float) -> float:
        """Return an attribute that is a number."""
        return float(self.layer.data.get(key, default))

    def flag(self, key: str, default: str = "false") -> bool:
        """Return an attribute that is a truth."""
        return self.layer.data.get(key, default).lower() in _TRUE

    def lengths(self, index: int) -> tuple[int, ...]:
        """Return the lengths of an input's axes, -1 for one that is open, as what gives it states them."""
        value = self.layer.inputs[index]
        if value is None:
            raise ValueError(f"the operation {self.layer.name!r} lacks an input")
        return self.net.layers[value[0]].output_shapes[value[1]]

    def rank(self, index: int) -> int:
        """Return how many axes an input has."""
        return len(self.lengths(index))

    def from_front(self, axis: int | None) -> int | None:
        """Return an axis of the first input, counted from the front."""
        return None if axis is None else axis % self.rank(0)

    def is_float(self) -> bool:
        """Return whether it gives floating-point numbers."""
        return self.layer.precision in ("FP32", "FP16", "FP64", "BF16")

    def cast(self) -> bool:
        """Write a change of the element type."""
        to = TYPES.get(self.layer.data.get("destination_type", ""))
        return to is not None and self.add("Cast", self.inputs[:1], to=to.newbyteorder("="))

    def divided(self) -> bool:
        """Write a quotient; of whole numbers, which are rounded down, only where none is below zero: the common operation cuts them off."""
        return (self.is_float() or all(map(self._is_length, self.layer.inputs))) and self.add("Div", self.inputs)

    def _is_length(self, value: Value | None) -> bool:
        """Return whether a value is made of lengths of axes and of constants that are not below zero."""
        waiting, seen = [value], set[str]()
        while waiting:
            layer = self.net.producer(waiting.pop())
            if layer is None:
                return False
            if layer.id in seen or layer.type == "ShapeOf":
                continue
            seen.add(layer.id)
            if layer.type == "Const":
                numbers = self.net.constant((layer.id, 0))
                if numbers is None or (numbers < 0).any():
                    return False
            elif layer.type not in (*_OF_LENGTHS, *_OF_SOME):
                return False
            waiting += layer.inputs[:1] if layer.type in _OF_SOME else layer.inputs
        return True

    def reduced_to(self, kind: str) -> bool:
        """Write a reduction of the numbers along axes."""
        return self.reduced(kind, self.integers(1), int(self.flag("keep_dims")))

    def multiplied(self) -> bool:
        """Write a product of matrices, or of stacks of them."""
        ranks = [self.rank(index) for index in (0, 1)]
        turns = self.flag("transpose_a"), self.flag("transpose_b")
        turned = [rank for rank, turn in zip(ranks, turns, strict=True) if turn]
        return min(turned, default=2) > 1 and self.product(*turns, ranks)

    def reshape(self) -> bool:
        """Write elements in another shape, in which a length of 0 may stand for the value's own."""
        return self.add("Reshape", [self.inputs[0], self.wide(1)], **({} if self.flag("special_zero") else {"allowzero": 1}))

    def with_axes(self, kind: str) -> bool:
        """Write axes of length 1 away, or anew."""
        if len(self.inputs) < 2:
            return self.add(kind, self.inputs)
        axes = self.integers(1)
        return axes is not None and self.add(kind, self.inputs[:1], axes=axes)

    def squeezed(self) -> bool:
        """Write axes of length 1 away, or a value turned around, which the frontend of TensorFlow makes one sequence of a batch for."""
        turned = self.net.producer(self.layer.inputs[0])
        ports = self.net.around.enters if self.net.around is not None and turned is not None else []
        part = next((port for port in ports if turned is not None and port.inner == turned.id and port.axis is not None), None)
        if part is not None and self.integers(1) == [part.axis]:
            return self.add("Identity", [loops.element_name(self.inputs[0])])
        widened = self.net.producer(turned.inputs[0]) if turned is not None and turned.type == "ReverseSequence" else None
        if turned is not None and widened is not None and widened.type == "Unsqueeze" and (value := widened.inputs[0]) is not None:
            axes = [self.net.constant(layer.inputs[1]) for layer in (widened, self.layer) if len(layer.inputs) > 1]
            axis, front = int(turned.data.get("seq_axis", 1)), turned.data.get("batch_axis", "0") == "0"
            axis += len(turned.shapes[0]) if axis < 0 else 0
            if front and len(axes) == 2 and all(each is not None and not each.any() for each in axes) and self._all_of(turned, axis):
                self.inputs = [value_name(self.net, value)]
                return self.flip([axis - 1])
        return self.with_axes("Squeeze")

    def _all_of(self, turned: NetOperation, axis: int) -> bool:
        """Return whether a single sequence is turned around as far as its axis goes."""
        value, place = turned.inputs[1], 0
        for _ in range(8):
            layer, numbers = self.net.producer(value), self.net.constant(value)
            if numbers is not None:
                return numbers.size == 1 and int(numbers.reshape(())) == turned.shapes[0][axis]
            if layer is None or layer.type == "ShapeOf":
                return layer is not None and layer.inputs[0] == turned.inputs[0] and place == axis
            index = self.net.constant(layer.inputs[1]) if layer.type == "Gather" else None
            if index is None or place >= index.size:
                return False
            value, place = layer.inputs[0], int(index.reshape(-1)[place])
        return False

    def ranges(self) -> bool:
        """Write ranges of axes: where they begin, where they end, their steps, the axes."""
        axes = [self.wide(4)] if len(self.inputs) > 4 else [""]
        return self.add("Slice", [self.inputs[0], self.wide(1), self.wide(2), *axes, self.wide(3)])

    def taken_apart(self) -> bool:
        """Write parts along an axis, of lengths that are stored, or that the graph computes and states of what it gives."""
        sizes, axis = self.integers(2), self.axis(1)
        if axis is None:
            return False
        stated = [shape[axis] for shape in self.layer.output_shapes]
        return self.split(stated if min(stated) >= 0 else sizes, axis)

    def strided(self) -> bool:
        """Write a strided slice."""
        begin = self.integers(1)
        if begin is None:
            return False
        if len(self.inputs) < 4:
            self.inputs = [*self.inputs, self.block.constant(np.ones(len(begin), np.int64))]
        keys = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
        return self.cut([sum(bool(flag) << place for place, flag in enumerate(self.words(f"{key}_mask"))) for key in keys])

    def padded_by(self) -> bool:
        """Write values around a value: how many before each axis, and behind it."""
        counts = self.block.add("Concat", [self.wide(1), self.wide(2)], axis=0)
        mode = self.layer.data.get("pad_mode", "constant")
        return mode == "constant" and self.add("Pad", [self.inputs[0], counts, *self.inputs[3:4]])

    def reversed(self) -> bool:
        """Write a value turned around along axes, which are stated by their numbers or by a truth for each."""
        places = self.numbers(1)
        if places is None:
            return False
        return self.flip([int(axis) for axis in (np.flatnonzero(places) if self.layer.data.get("mode") == "mask" else places.reshape(-1))])

    def rolled(self) -> bool:
        """Write elements moved along axes; beyond the end they begin again. How long the axes are must be stated."""
        shifts, axes, value = self.integers(1), self.integers(2), self.inputs[0]
        if shifts is None or axes is None or len(shifts) != len(axes) or any(self.lengths(0)[axis] < 1 for axis in axes):
            return False
        for shift, axis in zip(shifts, axes, strict=True):
            first = -shift % self.lengths(0)[axis]
            parts = [self.block.add("Slice", [value], axes=[axis], starts=[low], ends=[high]) for low, high in ((first, END), (0, first))]
            value = self.block.add("Concat", parts, axis=axis) if first else value
        return self.add("Identity", [value])

    def with_constants(self, kind: str, names: Sequence[str], paper: Sequence[float] = ()) -> bool:
        """Write a function whose constants are stored numbers.

        paper  the constants that the common operation has where it states none
        """
        stored = [self.numbers(index) for index in (1, 2)]
        numbers = [float(array.reshape(())) for array in stored if array is not None and array.size == 1]
        if len(numbers) != len(names):
            return False
        stated = {} if paper and np.allclose(numbers, paper, rtol=1e-6) else dict(zip(names, numbers, strict=True))
        return self.add(kind, self.inputs[:1], **stated)

    def swish(self) -> bool:
        """Write Swish; its factor, where it has one, is stored."""
        scaled = self.block.add("Mul", self.inputs[:2]) if len(self.inputs) > 1 else self.inputs[0]
        return self.add("Mul", [self.inputs[0], self.block.add("Sigmoid", [scaled])])

    def convolved(self, grouped: bool, backwards: bool = False) -> bool:
        """Write a convolution of (batch, channels, space), or what it reads from what it gives; in groups where the weights have an axis
        for them.
        """
        weight, groups = self.inputs[1], 1
        if grouped:
            shape = self.lengths(1)
            if min(shape) < 0:
                return False
            groups, rows = shape[0], [shape[0] * shape[1], *shape[2:]]
            weight = self.block.add("Reshape", [weight, self.block.constant(np.array(rows, np.int64))])
        settings = {"group": groups, "dilations": self.words("dilations"), **self._windows()}
        if not backwards:
            return self.add("Conv", [self.inputs[0], weight], **settings)
        # A third input states how much space it gives.
        more = {"output_padding": self.words("output_padding")} if self.layer.data.get("output_padding") else {}
        return len(self.inputs) == 2 and "pads" in settings and self.add("ConvTranspose", [self.inputs[0], weight], **settings, **more)

    def pooled(self, kind: str) -> bool:
        """Write the largest number, or the mean, of windows over the axes of space."""
        odd = any(length != 1 for length in self.words("dilations")) or (len(self.outputs) > 1 and self._is_read(1))
        settings = self._windows() | {"kernel_shape": self.words("kernel")}
        settings |= {"ceil_mode": 1} if self.layer.data.get("rounding_type", "floor") == "ceil" else {}
        if kind == "AveragePool":
            settings |= {"count_include_pad": int(not self.flag("exclude-pad", "true"))}
        if odd or self.layer.data.get("rounding_type") == "ceil_torch":
            return False
        self.outputs = self.outputs[:1]
        return self.add(kind, self.inputs[:1], **settings)

    def _is_read(self, port: int) -> bool:
        return bool(self.net.readers.get((self.layer.id, port)))

    def _windows(self) -> dict[str, Any]:
        pads = {"same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}.get(self.layer.data.get("auto_pad", "explicit"))
        explicit = {"pads": [*self.words("pads_begin"), *self.words("pads_end")]}
        return {"strides": self.words("strides")} | ({"auto_pad": pads} if pads else explicit)

    def standardised(self) -> bool:
        """Write numbers less their mean along axes, by the root of their variance."""
        axes, inside = self.integers(1), self.word("eps_mode", "inside_sqrt").lower() == "inside_sqrt"
        return axes is not None and self.centred(axes, self.number("eps", 1e-6), self.flag("normalize_variance", "true"), inside)

    def best(self) -> bool:
        """Write the largest or smallest numbers along an axis, and their places."""
        count, to = self.axis(1), TYPES.get(self.word("index_element_type", "i32"), np.dtype(np.int32))
        if count is None or self.word("sort", "value") != "value":
            return False
        return self.top(count, self.option("axis"), int(self.layer.data.get("mode") == "max"), to.newbyteorder("="))


def program(net: Net) -> Program:
    """Return a graph in the common operations."""
    block = Block("", {})
    inputs, outputs, declared = _written(net, block)
    size = net.path.stat().st_size + (0 if net.numbers is None else net.numbers.nbytes)
    return Program(net.path, Body(block.nodes, inputs, outputs, block.stored, declared), {"": OPSET}, size=size)


def _written(net: Net, block: Block) -> tuple[list[str], list[str], list[Declared]]:
    """Write a graph into another one; return its inputs, its outputs, and what is stated of its values."""
    inputs, outputs, declared = list[str](), list[str](), list[Declared]()
    for layer in _in_order(net):
        names = [value_name(net, (layer.id, port)) for port in range(len(layer.output_shapes))]
        for name, shape in zip(names, layer.output_shapes, strict=True):
            declared.append(Declared(name, _dtype(layer), _dims(layer, shape)))
        array = net.constant((layer.id, 0)) if layer.type == "Const" and names else None
        if array is not None:
            block.constant(array, names[0], layer.name)
        elif layer.type == "Parameter":
            inputs += names
        elif layer.type == "Result":
            outputs += [value_name(net, value) for value in layer.inputs if value is not None]
        elif layer.type != "ReadValue":  # what ReadValue gives is from the run before
            block.operator = layer.type
            NetRule(net, layer, block).write()
    return inputs, outputs, declared


def _in_order(net: Net) -> Iterator[NetOperation]:
    """Yield the operations, each behind those that it reads."""
    done: set[str] = set()
    for first in net.layers.values():
        waiting, entered = [(first, False)], set[str]()
        while waiting:
            layer, ready = waiting.pop()
            if ready:
                done.add(layer.id)
                yield layer
            elif layer.id not in done and layer.id not in entered:
                entered.add(layer.id)
                waiting.append((layer, True))
                waiting += [(net.layers[value[0]], False) for value in layer.inputs if value is not None]


def _dtype(layer: NetOperation) -> np.dtype[Any] | None:
    """Return the element type of what an operation gives first."""
    dtype = TYPES.get(_PRECISIONS.get(layer.precision, ""))
    return None if dtype is None or len(layer.output_shapes) > 1 else dtype.newbyteorder("=")


def _dims(layer: NetOperation, shape: Sequence[int]) -> list[int | str | None]:
    """Return the lengths of a value's axes; each open one of an input goes by a name."""
    named = layer.type == "Parameter" or None
    return [length if length >= 0 else named and f"{layer.id} {axis}" for axis, length in enumerate(shape)]


def _reducing(kind: str) -> Callable[[NetRule], bool]:
    return lambda step: step.reduced_to(kind)


_OF_LENGTHS = {"Add", "Concat", "Convert", "Divide", "Maximum", "Minimum", "Multiply"}
_OF_SOME = {"Gather", "ReduceProd", "Reshape", "Slice", "Split", "Squeeze", "StridedSlice", "Unsqueeze", "VariadicSplit"}
"""Operations that give numbers of their first input; the others choose them."""
_RULES: Mapping[str, Callable[[NetRule], bool]] = {
    "AvgPool": lambda step: step.pooled("AveragePool"),
    # The inputs of the first set's stand in another order.
    "BatchNormInference": lambda step: (
        step.layer.version != "opset1" and step.add("BatchNormalization", step.inputs[:5], epsilon=step.number("epsilon", 1e-5))
    ),
    "Broadcast": lambda step: step.word("mode", "numpy") != "explicit" and step.add("Expand", [step.inputs[0], step.wide(1)]),
    "Clamp": lambda step: step.add("Clip", step.inputs, min=step.number("min", -np.inf), max=step.number("max", np.inf)),
    "Concat": lambda step: step.add("Concat", step.inputs, axis=step.option("axis")),
    "Convert": NetRule.cast,
    "Convolution": lambda step: step.convolved(False),
    "CumSum": lambda step: (
        len(step.inputs) > 1 and step.add("CumSum", step.inputs, exclusive=int(step.flag("exclusive")), reverse=int(step.flag("reverse")))
    ),
    "Divide": NetRule.divided,
    "Einsum": lambda step: step.add("Einsum", step.inputs, equation=step.layer.data.get("equation", "")),
    "Elu": lambda step: step.add("Elu", step.inputs, alpha=step.number("alpha", 1.0)),
    "Gather": lambda step: not step.option("batch_dims") and step.with_axis("Gather", step.inputs[:2], step.axis(2)),
    "GatherElements": lambda step: step.add("GatherElements", step.inputs, axis=step.option("axis")),
    "Gelu": lambda step: step.gelu(int(step.word("approximation_mode", "ERF").upper() == "TANH")),
    "ConvolutionBackpropData": lambda step: step.convolved(False, backwards=True),
    "GroupConvolution": lambda step: step.convolved(True),
    "GroupConvolutionBackpropData": lambda step: step.convolved(True, backwards=True),
    "HardSigmoid": lambda step: step.with_constants("HardSigmoid", ("alpha", "beta")),
    "LogSoftmax": lambda step: step.softmax_along("LogSoftmax", step.rank(0), step.option("axis", 1)),
    "MVN": NetRule.standardised,
    "MatMul": NetRule.multiplied,
    "MaxPool": lambda step: step.pooled("MaxPool"),
    "NotEqual": NetRule.differs,
    "PReLU": lambda step: step.per_channel_slopes(step.numbers(1), step.rank(0)),
    "Pad": NetRule.padded_by,
    **{f"Reduce{word}": _reducing(f"Reduce{word}") for word in ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum")},
    "Reshape": NetRule.reshape,
    "Reverse": NetRule.reversed,
    "ReverseSequence": lambda step: step.turned_by_lengths(step.option("seq_axis", 1), step.option("batch_axis")),
    "Roll": NetRule.rolled,
    "Round": lambda step: step.word("mode", "half_to_even").lower() == "half_to_even" and step.add("Round", step.inputs),
    "Selu": lambda step: step.with_constants("Selu", ("alpha", "gamma"), (1.67326319, 1.05070102)),
    "ShapeOf": lambda step: step.shape(TYPES.get(step.layer.data.get("output_type", "i64"), WIDE).newbyteorder("=")),
    "Slice": NetRule.ranges,
    **dict.fromkeys(("SoftMax", "Softmax"), lambda step: step.softmax_along("Softmax", step.rank(0), step.option("axis", 1))),
    "Split": lambda step: step.with_axis("Split", step.inputs[:1], step.from_front(step.axis(1))),
    "SquaredDifference": NetRule.difference_squared,
    "Squeeze": NetRule.squeezed,
    "StridedSlice": NetRule.strided,
    "Swish": NetRule.swish,
    "Tile": lambda step: step.tile(step.integers(1), step.rank(0)),
    "TopK": NetRule.best,
    "Transpose": lambda step: step.transpose(step.integers(1)),
    "Unsqueeze": lambda step: step.with_axes("Unsqueeze"),
    "VariadicSplit": NetRule.taken_apart,
}
