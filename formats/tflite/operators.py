"""TFLite's operators in the common ones, one rule each.

A product of float numbers with a matrix of integers is that with the numbers that these stand for; other quantized tensors are
left alone: no formula of theirs is exact.

Source: tensorflow/lite/schema/schema.fbs; tensorflow/lite/kernels/fully_connected.cc, EvalHybrid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.formats.tflite import lists
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.graph import Operator, Subgraph, SubgraphTensor, numbers
from rnnconvert.graphs.program.lowering import INTEGER, WIDE, Block, Rule

_TYPES: Mapping[int, np.dtype[Any]] = {**{kind: np.dtype(dtype) for kind, dtype in s.TYPES.items()}, 6: np.dtype("?"), 18: BFLOAT16}
"""Element types by the schema's numbers."""
_SAME = {
    "LOGISTIC": "Sigmoid", "RELU": "Relu", "TANH": "Tanh", "EXP": "Exp", "MAXIMUM": "Max", "MINIMUM": "Min", "LESS": "Less", "NEG": "Neg",
    "GREATER": "Greater", "GREATER_EQUAL": "GreaterOrEqual", "LESS_EQUAL": "LessOrEqual", "EQUAL": "Equal", "SQRT": "Sqrt",
    "LOG": "Log", "SIN": "Sin", "COS": "Cos", "FLOOR": "Floor", "CEIL": "Ceil", "ROUND": "Round", "SIGN": "Sign", "POW": "Pow",
    "ADD_N": "Sum", "HARD_SWISH": "HardSwish", "PRELU": "PRelu", "SELECT": "Where",
    "LOGICAL_AND": "And", "LOGICAL_OR": "Or", "LOGICAL_NOT": "Not", "ABS": "Abs", "ELU": "Elu", "SELECT_V2": "Where",
    "RANGE": "Range",
}  # fmt: skip
"""Operators that are a common one with the same inputs."""
_SUMS = {"ADD": "Add", "MUL": "Mul", "SUB": "Sub", "DIV": "Div"}
"""Operators with a function of their result, which the first field of their options is."""
_PADS = {0: "SAME_UPPER", 1: "VALID"}
"""How places are added at the ends of the axes of space, by the schema's numbers."""
_FULLY_CONNECTED, _SHAPE = 9, 77
_FLOAT = 0


def dtype(tensor: SubgraphTensor) -> np.dtype[Any]:
    """Return the element type of a tensor: float32 for what has no numbers."""
    return _TYPES.get(tensor.kind, np.dtype("f4"))


def both(name: str) -> str:
    """Return the name of the two outputs of an operator as one value, the directions first."""
    return f"{name}/directions"


class StoredBuffers:
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

    def constants(self, graph: Subgraph, block: Block, prefix: str) -> None:
        """Add the stored numbers of a graph that stand for themselves."""
        for place, tensor in enumerate(graph.tensors):
            if tensor.stored is not None and not tensor.odd and not tensor.scales.size:
                self.sources[block.constant(tensor.stored, f"{prefix}{place}", tensor.name)] = tensor.stored

    def stored(self, tensor: SubgraphTensor, block: Block, name: str) -> str:
        """Add the numbers that a stored tensor stands for; return their name."""
        if name not in self.arrays and tensor.stored is not None:
            self.types[name] = str(tensor.stored.dtype)
            if id(tensor) not in self._read:
                self._read[id(tensor)] = numbers(self.path, tensor).astype(np.float32, copy=False)
            self.sources[block.constant(self._read[id(tensor)], name)] = tensor.stored
        return name


class Written(Rule):
    """One operator, and the graph that it is written into."""

    def __init__(self, store: StoredBuffers, graph: Subgraph, operator: Operator, block: Block, prefix: str) -> None:
        self.store, self.graph, self.operator, self.prefix = store, graph, operator, prefix
        first = operator.outputs[0] if operator.outputs else -1
        label = graph.tensors[first].name if first >= 0 else ""
        super().__init__(block, [], [self.name(place) for place in operator.outputs], label)

    def name(self, place: int) -> str:
        """Return the name of a tensor."""
        return f"{self.prefix}{place}" if place >= 0 else ""

    def option(self, field: int, code: str = "i", default: Any = 0) -> Any:
        """Return an option of the operator."""
        return default if self.operator.options is None else self.operator.options.number(field, code, default)

    def numbers(self, index: int) -> Array | None:
        return self.store.arrays.get(self.name(self.operator.input(index)))

    @property
    def result(self) -> SubgraphTensor:
        """Its output."""
        return self.graph.tensors[self.operator.outputs[0]]

    def write(self) -> None:
        """Write any operator but a loop; one of another domain where it has no equivalent."""
        if self._plain():
            return
        self.inputs, outputs = [self.name(place) for place in self.operator.inputs], self.outputs
        if self.operator.code in (s.BOTH_RNN, s.BOTH_LSTM) and len(outputs) == 2:
            self.inputs = [self.block.add(self.operator.label, self.inputs, [both(outputs[0])], self.label, "tflite")]
            self.block.operator = None
            self.unstack(0)
        else:
            self.block.add(self.operator.label, self.inputs, outputs, self.label, "tflite")

    def _plain(self) -> bool:
        """Write an operator that has an equivalent; return whether it has."""
        kind = s.OPERATORS.get(self.operator.code, "")
        outputs, inputs = ([self.graph.tensors[n] for n in places if n >= 0] for places in (self.operator.outputs, self.operator.inputs))
        scales = {(tensor.scales.tobytes(), tensor.zeros.tobytes()) for tensor in (*outputs, *inputs) if tensor.scales.size}
        moves = kind in _MOVES and len(scales) < 2
        read = [self.name(place) if moves else self._operand(place) for place in self.operator.inputs]
        self.inputs = [name for name in read if name is not None]
        if len(self.inputs) < len(read) or (not moves and any(tensor.scales.size for tensor in outputs)):
            return False
        if kind in _SAME:
            return self.add(_SAME[kind], self.inputs)
        if kind in _SUMS:
            return self.with_function(_SUMS[kind], self.inputs, 0)
        return kind in _RULES and _RULES[kind](self)

    def _operand(self, place: int) -> str | None:
        """Return the name of what the operator reads; None for integers that it computes with."""
        tensor = self.graph.tensors[place] if place >= 0 else None
        if tensor is None or not tensor.scales.size:
            return self.name(place)
        weights = self.operator.code == _FULLY_CONNECTED and place == self.operator.input(1)
        wide = all(self.graph.tensors[output].kind == _FLOAT for output in (self.operator.input(0), *self.operator.outputs))
        if self.operator.code == s.DEQUANTIZE or (weights and wide):
            return self.store.stored(tensor, self.block, self.name(place)) if _readable(tensor) else None
        return None

    def dequantize(self) -> bool:
        """Write the numbers that stored integers stand for, or float16 as float32."""
        tensor = self.graph.tensors[self.operator.input(0)]
        if tensor.stored is None and not tensor.scales.size:
            return self.cast()
        if not _readable(tensor) or self.result.kind != _FLOAT:
            return False
        self.store.stored(tensor, self.block, self.outputs[0])
        return True

    def custom(self) -> bool:
        """Write an operator for lists: one that is made of a tensor, or becomes one, is that tensor."""
        name = self.operator.name
        if name in (lists.FROM_TENSOR, lists.STACK):
            return self.add("Identity", self.inputs[:1])
        return name == lists.GET and self.add("Gather", self.inputs[:2], axis=0)

    def with_function(self, kind: str, inputs: Sequence[str], field: int, **attributes: Any) -> bool:
        """Write an operation and the function of its result that the options state."""
        function = int(self.option(field, "b"))
        if not function:
            return self.add(kind, inputs, **attributes)
        bounds: dict[str, float] = {2: {"min": -1.0, "max": 1.0}, 3: {"min": 0.0, "max": 6.0}}.get(function, {})
        after = {1: "Relu", 2: "Clip", 3: "Clip", 4: "Tanh"}.get(function)
        if after is None:
            return False
        value = self.block.add(kind, inputs, **attributes)
        self.block.operator = f"{self.operator.label} with the function {s.FUNCTIONS[function]}"
        return self.add(after, [value], **bounds)

    def connected(self) -> bool:
        """Write a product with a matrix, and what is added to it."""
        inputs = self.inputs
        weight = self.graph.tensors[self.operator.input(1)].shape
        if len(self.graph.tensors[self.operator.input(0)].shape) > 2 and not self.option(2, "?", False):
            rows = self.block.constant(np.array([-1, weight[-1]], np.int64))
            inputs = [self.block.add("Reshape", [inputs[0], rows]), *inputs[1:]]
        weights = self.block.add("Transpose", [inputs[1]], perm=[1, 0])
        biased = len(inputs) > 2 and bool(inputs[2])
        if self.option(1, "b") or len(weight) != 2:
            return False
        if not biased:
            return self.with_function("MatMul", [inputs[0], weights], 0)
        product = self.block.add("MatMul", [inputs[0], weights], name=self.label)
        return self.with_function("Add", [product, inputs[2]], 0)

    def batched(self) -> bool:
        """Write a product of matrices."""
        ranks = [len(self.graph.tensors[place].shape) for place in self.operator.inputs[:2]]
        return min(ranks) > 1 and self.product(self.option(0, "?", False), self.option(1, "?", False), ranks)

    def softmax(self) -> bool:
        """Write the softmax of the last axis of numbers times beta."""
        beta = float(self.option(0, "f", 0.0))
        scale = [] if beta == 1 else [self.block.constant(np.array(beta, np.float32))]
        scaled = self.block.add("Mul", [self.inputs[0], *scale]) if scale else self.inputs[0]
        return self.add("Softmax", [scaled], axis=-1)

    def convolved(self, depth: bool) -> bool:
        """Write a convolution over two axes, or one of each channel by itself."""
        weight, more = self.graph.tensors[self.operator.input(1)], int(depth)
        if len(weight.shape) != 4 or self.option(0, "b") not in _PADS:
            return False
        turned = self.block.add("Transpose", [self.inputs[1]], perm=[3, 0, 1, 2] if depth else [0, 3, 1, 2])
        biases = [name for name in self.inputs[2:3] if name]
        groups = weight.shape[3] // max(1, int(self.option(3))) if depth else 1
        dilations = [int(self.option(field + more, "i", 1)) for field in (5, 4)]
        value, order = self.over_space(
            "Conv", [turned, *biases], 2, strides=self._strides(), dilations=dilations, group=groups, auto_pad=_PADS[self.option(0, "b")]
        )
        return self.with_function("Transpose", [value], 3 + more, perm=order)

    def pooled(self, kind: str) -> bool:
        """Write the largest number, or the mean, of windows over two axes."""
        window, pads = [int(self.option(field)) for field in (4, 3)], self.option(0, "b")
        if pads not in _PADS or min(window) < 1:
            return False
        value, order = self.over_space(kind, [], 2, kernel_shape=window, strides=self._strides(), auto_pad=_PADS[pads])
        return self.with_function("Transpose", [value], 5, perm=order)

    def _strides(self) -> list[int]:
        return [int(self.option(field)) for field in (2, 1)]

    def over_axes(self, kind: str) -> bool:
        """Write a reduction of the numbers along axes."""
        return self.reduced(kind, self.integers(1), int(self.option(0, "?", False)))

    def one_hot(self) -> bool:
        """Write places as vectors of one number at the place, and another one elsewhere."""
        on, off = (self.numbers(index) for index in (2, 3))
        if on is None or off is None:
            return False
        kind = _TYPES.get(self.graph.tensors[self.operator.input(0)].kind, INTEGER)
        vectors = self.hot(self.inputs[0], kind, self.inputs[1], [float(off), float(on)], int(self.option(0)))
        return self.add("Cast", [vectors], to=dtype(self.result))

    def largest(self) -> bool:
        """Write the largest numbers of the last axis, and their places."""
        count = self.integers(1)
        return count is not None and len(count) == 1 and self.top(count[0], -1, 1, INTEGER)

    def expanded(self) -> bool:
        """Write a value in a larger shape; in the one to which its own and lengths broadcast, as ONNX means it."""
        shape = self.graph.producer(self.operator.input(1))
        if shape is None or s.OPERATORS.get(shape.code) != "BROADCAST_ARGS":
            return self.repeated("Expand")
        sources = [self.graph.producer(place) for place in shape.inputs]
        of_it = [source is not None and source.code == _SHAPE and source.input(0) == self.operator.input(0) for source in sources]
        if not any(of_it):
            return False
        lengths = self.block.add("Cast", [self.name(shape.input(int(of_it[0])))], to=WIDE)
        return self.add("Expand", [self.inputs[0], lengths])

    def with_cumulated(self) -> bool:
        """Write the sums of all numbers up to each along an axis."""
        exclusive, back = (int(self.option(field, "?", False)) for field in (0, 1))
        return self.add("CumSum", self.inputs[:2], exclusive=exclusive, reverse=back)

    def normalised(self) -> bool:
        """Write numbers by the root of the sum of their squares along the last axis. Source: kernels/internal, L2Normalization."""
        squares = self.block.add("Mul", [self.inputs[0], self.inputs[0]])
        total = self.block.add("ReduceSum", [squares], axes=[-1], keepdims=1)
        root = self.block.add("Max", [self.block.add("Sqrt", [total]), self.block.constant(np.array(1e-6, np.float32))])
        return self.with_function("Div", [self.inputs[0], root], 0)

    def reshape(self) -> bool:
        """Write elements in another shape."""
        inputs, shape = self.inputs, self.integers(1)
        if shape is not None:
            return self.add("Reshape", [inputs[0], self.block.constant(np.array(shape, np.int64))], allowzero=1)
        if len(inputs) < 2 or not inputs[1]:
            return False
        stated = self.graph.producer(self.operator.input(1))
        if stated is not None and stated.code == _SHAPE and stated.input(0) == self.operator.input(0):
            return self.add("Identity", inputs[:1])  # a stacked list, by converters of TensorFlow 2.2
        return self.add("Reshape", [inputs[0], self.block.add("Cast", inputs[1:2], to=WIDE)], allowzero=1)

    def squeezed(self) -> bool:
        """Write a value without axes of length 1: those that the options state, or all."""
        options = self.operator.options
        axes = [] if options is None else [int(axis) for axis in options.vector(0, "<i4")]
        return self.add("Squeeze", self.inputs[:1], **({"axes": axes} if axes else {}))

    def cast(self) -> bool:
        """Write a change of the element type."""
        to = _TYPES.get(self.result.kind)
        return to is not None and self.add("Cast", self.inputs[:1], to=to)


def _readable(tensor: SubgraphTensor) -> bool:
    """Return whether the numbers that a tensor stands for can be computed from the file."""
    stored = tensor.stored
    return stored is not None and not tensor.odd and (stored.dtype.kind == "f" or bool(tensor.scales.size))


_RULES: Mapping[str, Callable[[Written], bool]] = {
    "ARG_MAX": lambda step: step.place("ArgMax", _TYPES.get(step.result.kind, INTEGER), step.axis(1)),
    "ARG_MIN": lambda step: step.place("ArgMin", _TYPES.get(step.result.kind, INTEGER), step.axis(1)),
    "AVERAGE_POOL_2D": lambda step: step.pooled("AveragePool"),
    "BATCH_MATMUL": Written.batched,
    "BROADCAST_TO": Written.expanded,
    "CAST": Written.cast,
    "CONCATENATION": lambda step: step.with_function("Concat", step.inputs, 1, axis=int(step.option(0))),
    "CONV_2D": lambda step: step.convolved(False),
    "CUMSUM": lambda step: step.with_cumulated(),
    "CUSTOM": Written.custom,
    "DEPTHWISE_CONV_2D": lambda step: step.convolved(True),
    "DEQUANTIZE": Written.dequantize,
    "EMBEDDING_LOOKUP": lambda step: step.add("Gather", step.inputs[1::-1], axis=0),
    "EXPAND_DIMS": lambda step: step.unsqueeze(step.axis(1)),
    "FILL": Written.fill,
    "FLOOR_MOD": lambda step: step.result.kind != _FLOAT and step.add("Mod", step.inputs),
    "MIRROR_PAD": lambda step: not step.option(0, "b") and step.padded(mode="reflect"),
    "ONE_HOT": Written.one_hot,
    "PAD": Written.padded,
    "PADV2": lambda step: step.padded(step.inputs[2]),
    "REVERSE_SEQUENCE": lambda step: step.turned_by_lengths(int(step.option(0)), int(step.option(1))),
    "SLICE": Written.parts,
    "SQUEEZE": Written.squeezed,
    "FULLY_CONNECTED": Written.connected,
    "GELU": lambda step: step.add("Gelu", step.inputs[:1], **({"approximate": "tanh"} if step.option(0, "?", False) else {})),
    "GATHER": lambda step: not step.option(1) and step.add("Gather", step.inputs, axis=int(step.option(0))),
    "L2_NORMALIZATION": Written.normalised,
    "LEAKY_RELU": lambda step: step.add("LeakyRelu", step.inputs, alpha=step.option(0, "f", 0.0)),
    "LOG_SOFTMAX": lambda step: step.add("LogSoftmax", step.inputs[:1], axis=-1),
    "MAX_POOL_2D": lambda step: step.pooled("MaxPool"),
    "MEAN": lambda step: step.over_axes("ReduceMean"),
    "NOT_EQUAL": Written.differs,
    "PACK": lambda step: step.stack(int(step.option(1))),
    "REDUCE_MAX": lambda step: step.over_axes("ReduceMax"),
    "REDUCE_MIN": lambda step: step.over_axes("ReduceMin"),
    "REDUCE_PROD": lambda step: step.over_axes("ReduceProd"),
    "REDUCE_ALL": lambda step: step.truths("ReduceMin", step.integers(1), int(step.option(0, "?", False))),
    "REDUCE_ANY": lambda step: step.truths("ReduceMax", step.integers(1), int(step.option(0, "?", False))),
    "RELU6": lambda step: step.add("Clip", step.inputs, min=0.0, max=6.0),
    "RELU_0_TO_1": lambda step: step.add("Clip", step.inputs, min=0.0, max=1.0),
    "RELU_N1_TO_1": lambda step: step.add("Clip", step.inputs, min=-1.0, max=1.0),
    "RESHAPE": Written.reshape,
    "REVERSE_V2": lambda step: step.flip(step.integers(1)),
    "RSQRT": Written.rooted,
    "SOFTMAX": Written.softmax,
    "SQUARED_DIFFERENCE": Written.difference_squared,
    "SUM": lambda step: step.over_axes("ReduceSum"),
    "SQUARE": lambda step: step.add("Mul", [step.inputs[0], step.inputs[0]]),
    "SHAPE": lambda step: step.shape(_TYPES.get(step.result.kind, INTEGER)),
    "SPLIT": lambda step: step.with_axis("Split", step.inputs[1:2], step.axis(0)),
    "SPLIT_V": lambda step: step.split(step.integers(1), step.axis(2)),
    "STRIDED_SLICE": lambda step: step.cut([int(step.option(field)) for field in range(5)], bool(step.option(5, "?", False))),
    "TILE": lambda step: step.repeated("Tile"),
    "TOPK_V2": Written.largest,
    "TRANSPOSE": lambda step: step.transpose(step.integers(1)),
    "UNPACK": lambda step: step.unstack(int(step.option(1))),
    "ZEROS_LIKE": lambda step: step.filled_like(0, _TYPES.get(step.result.kind)),
}
_MOVES = {
    "BROADCAST_TO", "CONCATENATION", "EXPAND_DIMS", "GATHER", "PACK", "RESHAPE", "REVERSE_SEQUENCE", "REVERSE_V2", "SLICE", "SPLIT",
    "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK",
}  # fmt: skip
"""Operators that give integers which stand for numbers as they are, where both have one scale."""
