"""Core ML's neural networks in the common operations, one rule each.

A recurrent layer reads and gives (time, batch, channels, 1, 1).

Source: apple/coremltools, mlmodel/format/NeuralNetwork.proto, the message of each layer's parameters. A layer goes by the number of its
field; one that is custom may compute anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.coreml.message import Message
from rnnconvert.graphs.graph import CallSizes
from rnnconvert.graphs.program.lowering import OPSET, WIDE, Block, Rule
from rnnconvert.graphs.program.operations import Body, Declared, Program
from rnnconvert.recognition.flow import FINAL_WORDS, RecurrentCall

DOMAIN = "coreml"
TRUTH = np.dtype(bool)
CONSTANTS = (290, 1070)
LOOPS: Mapping[int, tuple[int, ...]] = {605: (1, 2), 615: (3, 4)}
"""Layers that hold networks: in which fields."""
_ALL = (3, 4)
"""The axes of length 1 behind the channels."""
_NAMES = {
    100: "convolution", 120: "pooling", 130: "activation", 140: "innerProduct", 150: "embedding", 160: "batchnorm", 165: "mvn",
    175: "softmax", 190: "crop", 200: "padding", 220: "unary", 230: "add", 231: "multiply", 240: "average", 245: "scale", 250: "bias",
    280: "reduce", 300: "reshape", 301: "flatten", 310: "permute", 320: "concat", 330: "split", 340: "sequenceRepeat",
    345: "reorganizeData", 350: "slice", 400: "simpleRecurrent", 410: "gru", 420: "uniDirectionalLSTM", 430: "biDirectionalLSTM",
    500: "custom", 600: "copy", 605: "branch", 615: "loop", 660: "clip", 880: "addBroadcastable", 900: "multiplyBroadcastable",
    905: "subtractBroadcastable", 920: "tile", 925: "stack", 930: "gather", 960: "reverse", 965: "reverseSeq", 975: "splitND",
    980: "concatND", 985: "transpose", 995: "sliceStatic", 1000: "sliceDynamic", 1045: "batchedMatmul", 1065: "getShape",
    1120: "squeeze", 1125: "expandDims", 1130: "flattenTo2D", 1135: "reshapeLike", 1140: "reshapeStatic", 1145: "reshapeDynamic",
    1150: "rankPreservingReshape", 1350: "layerNormalization",
}  # fmt: skip
"""The names of layers, by the numbers of their fields."""
_SAME = {
    260: "Max", 261: "Min", 600: "Identity", 665: "Ceil", 670: "Floor", 680: "Sign", 685: "Round", 710: "Sin", 715: "Cos", 720: "Tan",
    730: "Asin", 735: "Acos", 740: "Atan", 750: "Sinh", 755: "Cosh", 760: "Tanh", 790: "Erf",
    870: "Min", 875: "Max", 880: "Add", 885: "Pow", 890: "Div", 900: "Mul", 905: "Sub", 1065: "Shape",
}  # fmt: skip
"""Layers that are a common operation with the same inputs."""


@dataclass(frozen=True)
class NetworkLayer:
    """A layer of a network: the number of its field, its parameters, and the values that it reads and gives.

    weights  its arrays by their fields, with their names, where it has no recurrence
    """

    number: int
    content: Message
    inputs: Sequence[str]
    outputs: Sequence[str]
    label: str = ""
    name: str = ""
    weights: Mapping[int, tuple[str, Array]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The name of its kind."""
        return self.label or _NAMES.get(self.number, f"layer {self.number}")


Ends = tuple[Sequence[Declared], Sequence[str]]
"""What is stated of a network's inputs, and the names of its outputs."""


def constant(content: Message) -> Array | None:
    """Return the numbers of a constant layer; None where they are not plain ones."""
    data, shape = content.submessage(2), content.integers(1)
    values = None if data is None or set(data.fields) - {1} else data.reals(1)
    return values.reshape(shape) if values is not None and values.size == math.prod(shape) else None


@dataclass(frozen=True)
class NetworkCall:
    """A recurrent layer of a network.

    stack      the layer
    sequences  whether it gives its outputs at all steps
    """

    layer: NetworkLayer
    stack: Recurrent
    sequences: bool

    @property
    def call(self) -> RecurrentCall:
        """The call in the program that it is written into."""
        layer, (first, *_) = self.layer, self.layer.outputs
        lstm = self.stack.cell.kind == "lstm"
        return RecurrentCall(
            (f"{first}/read", "tbi"),
            {f"{first}/given": "tbu"} if self.sequences else {},
            CallSizes(self.stack.layers[0].output_size, width=self.stack.input_size),
            {f"{first}/state {letter}": word for letter, word in zip("hc"[: 1 + lstm], FINAL_WORDS, strict=False)},
            [f"{first}/initial {letter}" for letter in "hc"[: 1 + lstm]] if len(layer.inputs) > 1 else [],
        )


def program(path: Path, rows: Sequence[NetworkLayer], calls: Sequence[NetworkCall], ends: Ends) -> Program:
    """Return a network as a program.

    ends  what is stated of its inputs, and the names of its outputs
    """
    block, current = Block("", {}), dict[str, str]()
    ranks = {value.name: len(value.dims) for value in ends[0] if value.dims is not None}
    recurrent = {id(call.layer): call for call in calls}
    values: set[str] = {value.name for value in ends[0]}
    for row in rows:
        inputs = [current.get(name, name) for name in row.inputs]
        outputs = list[str]()
        for name in row.outputs:  # a later layer may give a value of the same name another time
            outputs.append(name if name not in values else f"{name}/{len(values)}")
            values.add(outputs[-1])
            current[name] = outputs[-1]
        call = recurrent.get(id(row))
        moved = replace(row, inputs=inputs, outputs=outputs)
        block.operator = row.kind
        rule = NetworkRule(moved, block, ranks)
        if call is not None:
            rule.recurrent(call, row.outputs[0])
        else:
            rule.write()
    body = Body(block.nodes, [value.name for value in ends[0]], [current.get(name, name) for name in ends[1]], block.stored, ends[0])
    return Program(path, body, {"": OPSET}, size=path.stat().st_size)


class NetworkRule(Rule):
    """One layer, and the graph that it is written into.

    ranks  how many axes values have, where it is known
    """

    def __init__(self, layer: NetworkLayer, block: Block, ranks: dict[str, int]) -> None:
        super().__init__(block, layer.inputs, layer.outputs, layer.name)
        self.layer, self.content, self.ranks = layer, layer.content, ranks

    def numbers(self, index: int) -> Array | None:
        return self.block.arrays.get(self.inputs[index]) if index < len(self.inputs) else None

    def write(self) -> None:
        """Write the layer; one of another domain where it has no equivalent."""
        number = self.layer.number
        if number in CONSTANTS and self.outputs and (array := constant(self.content)) is not None:
            array = array[None, None] if number == CONSTANTS[0] else array  # of a sequence and a batch of one
            self.block.constant(array, self.outputs[0])
            self.ranked(array.ndim)
            return
        ranks = [self.ranks[name] for name in self.inputs if name in self.ranks]
        if ranks and len(ranks) == len(self.inputs):
            self.ranked(1 if number == 1065 else max(ranks))
        if number in _SAME and (number != 1065 or len(self.inputs) == 1):
            self.add(_SAME[number], self.inputs)
        elif not self.by_rule(_RULES.get(number)):
            self.block.add(self.layer.kind, self.inputs, self.outputs, self.label, DOMAIN)
            self.ranked(None)

    def ranked(self, rank: int | None) -> NetworkRule:
        """Note how many axes the outputs have; return the rule."""
        for name in self.outputs:
            self.ranks.pop(name, None)
            self.ranks |= {} if rank is None else {name: rank}
        return self

    # Settings

    def listed(self, field: int = 1) -> list[int]:
        """Return the whole numbers of a setting."""
        return self.content.integers(field)

    def integer(self, field: int = 1) -> int:
        """Return a whole number among the settings."""
        return next(iter(self.listed(field)), 0)

    def real(self, field: int = 1) -> str:
        """Return a number among the settings as a value."""
        return self.constant(self.content.real(field))

    def weight(self, field: int, *shape: int) -> str:
        """Return an array of the layer. Raises ValueError where it has none."""
        if field not in self.layer.weights:
            raise ValueError(f"the layer {self.label!r} lacks an array")
        name, array = self.layer.weights[field]
        if array.dtype != np.float32:
            array = array.astype(np.float32)
        return self.block.constant(array, name) if not shape else self.block.constant(array.reshape(shape))

    def rank(self, index: int = 0) -> int:
        """Return how many axes an input has. Raises ValueError where that is not known."""
        if self.inputs[index] not in self.ranks:
            raise ValueError(f"how many axes {self.inputs[index]!r} has is not known")
        return self.ranks[self.inputs[index]]

    # Layers

    def folded(self, kind: str) -> bool:
        """Write a sum or product of several values, or of one with a number."""
        first, *rest = [*self.inputs, *([self.real()] if len(self.inputs) == 1 else [])]
        for value in rest[:-1]:
            first = self.block.add(kind, [first, value])
        return self.add(kind, [first, rest[-1]])

    def activated(self) -> bool:
        """Write a function of each number."""
        (number,) = self.content.fields
        stated = self.content.submessage(number)
        if stated is None:
            return False
        alpha, beta = stated.real(1), stated.real(2)
        plain = {10: "Relu", 30: "Tanh", 40: "Sigmoid", 60: "Softsign", 70: "Softplus"}
        if number in plain:
            return self.add(plain[number], self.inputs)
        if number in (15, 50):
            return self.add("LeakyRelu" if number == 15 else "Elu", self.inputs, alpha=alpha)
        if number == 41 and (alpha or beta):
            return self.add("HardSigmoid", self.inputs, alpha=alpha, beta=beta)
        return number == 5 and self.add("Identity", [self.affine(self.inputs[0], alpha, beta)])

    def unary(self) -> bool:
        """Write a function of each number, which is scaled and shifted first."""
        alpha, epsilon, shift, scale = (self.content.real(field) for field in (2, 3, 4, 5))
        kind = self.integer()
        value = self.affine(self.inputs[0], scale or 1.0, shift)
        if kind in (1, 2):
            value = self.affine(value, 1.0, epsilon or 1e-6)
            return self.add("Reciprocal", [self.block.add("Sqrt", [value]) if kind == 1 else value])
        if kind in (3, 7):
            return self.add("Pow" if kind == 3 else "Max", [value, self.constant(alpha)])
        return kind in _UNARY and self.add(_UNARY[kind], [self.affine(value, 1.0, epsilon) if kind == 5 else value])

    def with_numbers(self) -> bool:
        """Write a product with numbers of the layer, and a sum."""
        scaled = self.block.add("Mul", [*self.inputs, self.by_channel(2, 1)])
        return self.add("Add", [scaled, self.by_channel(5, 4)]) if self.integer(3) else self.add("Identity", [scaled])

    def by_channel(self, field: int, shape: int) -> str:
        """Return numbers of the layer; those of one axis belong to the channels."""
        stated = self.listed(shape)
        return self.weight(field, *stated, *[1, 1] * (len(stated) == 1))

    def dense(self) -> bool:
        """Write a product with a matrix (units, features), over the channels of each place, and its bias."""
        first, rank = self.inputs[0], self.rank()
        if rank > 3:
            first = self.block.add("Reshape", [first, self.whole_numbers([0] * (rank - 3) + [-1])])
        product = self.block.add("MatMul", [first, self.turned(20)], name=self.label)
        return self.with_bias(product, 10, 21, [rank - 2, rank - 1] if rank > 3 else [])

    def embedded(self, count: int, stated: int) -> bool:
        """Write rows of a table, by the numbers on so many last axes of length 1."""
        rank = self.rank()
        places = self.block.add("Cast", [self.block.add("Squeeze", self.inputs, axes=list(range(rank - count, rank)))], to=WIDE)
        rows = self.block.add("Gather", [self.turned(20), places], name=self.label, axis=0)
        return self.with_bias(rows, stated, 21, [rank - 2, rank - 1] if count > 1 else [])

    def multiplied(self) -> bool:
        """Write a product of two values, or of one with a matrix of the layer."""
        if len(self.inputs) == 2:
            ranks = [self.rank(0), self.rank(1)]
            return min(ranks) > 1 and self.product(bool(self.integer(1)), bool(self.integer(2)), ranks)
        return self.with_bias(self.block.add("MatMul", [*self.inputs, self.turned(8)], name=self.label), 7, 9)

    def turned(self, field: int) -> str:
        """Return a matrix of the layer, its columns as rows."""
        return self.block.add("Transpose", [self.weight(field)], perm=[1, 0])

    def with_bias(self, value: str, stated: int, field: int, axes: Sequence[int] = ()) -> bool:
        """Write a value with its bias, where one is stated, and with further axes of length 1."""
        value = self.block.add("Add", [value, self.weight(field)]) if self.integer(stated) else value
        return self.add("Unsqueeze", [value], axes=list(axes)) if axes else self.add("Identity", [value])

    def _windows(self, same: int, valid: int) -> dict[str, Any] | None:
        """Return the strides and pads of windows over height and width; None for pads that are not written."""
        strides = {"strides": self.listed(20 if same == 31 else 30) or [1, 1]}
        if self.content.submessage(same) is not None:
            lower = bool((self.content.submessage(same) or self.content).number(1))
            return strides | {"auto_pad": "SAME_LOWER" if lower else "SAME_UPPER"}
        amounts = self.content.within(valid, 1)
        pairs = [[edge.number(1), edge.number(2)] for edge in amounts.every(10)] if amounts is not None else [[0, 0], [0, 0]]
        pairs = pairs or [[0, 0], [0, 0]]
        return strides | {"pads": [pair[0] for pair in pairs] + [pair[1] for pair in pairs]} if len(pairs) == 2 else None

    def convolved(self) -> bool:
        """Write a convolution of (batch, channels, height, width)."""
        windows = self._windows(51, 50)
        if windows is None or self.rank() not in (4, 5) or self.integer(60) or len(self.inputs) > 1:
            return False
        more = {"group": max(1, self.integer(10)), "dilations": self.listed(40) or [1, 1], **windows}
        weights = [self.weight(90), *([self.weight(91)] if self.integer(70) else [])]
        return self.of_images("Conv", weights, **more)

    def of_images(self, kind: str, weights: Sequence[str], **settings: Any) -> bool:
        """Write an operation on (batch, channels, height, width); on a sequence of such it is of each step."""
        if self.rank() == 4:
            return self.add(kind, [*self.inputs, *weights], **settings)
        add, lengths = self.block.add, self.block.add("Shape", self.inputs)
        joined = add("Concat", [self.whole_numbers([-1]), add("Slice", [lengths], axes=[0], starts=[2], ends=[5])], axis=0)
        each = add(kind, [add("Reshape", [*self.inputs, joined]), *weights], name=self.label, **settings)
        space = add("Slice", [add("Shape", [each])], axes=[0], starts=[1], ends=[4])
        steps = add("Slice", [lengths], axes=[0], starts=[0], ends=[2])
        return self.add("Reshape", [each, add("Concat", [steps, space], axis=0)])

    def pooled(self) -> bool:
        """Write the largest number, or the mean, of windows over height and width."""
        windows, kinds = self._windows(31, 30), {0: "MaxPool", 1: "AveragePool"}
        kind = kinds.get(self.integer())
        if windows is None or self.rank() not in (4, 5) or kind is None or self.content.submessage(32) is not None:
            return False
        if self.integer(60):
            return self.of_images(f"Global{kind}", ())
        more = {"count_include_pad": 1 - self.integer(50)} if kind == "AveragePool" else {}
        return self.of_images(kind, (), kernel_shape=self.listed(10) or [3, 3], **windows, **more)

    def normed(self) -> bool:
        """Write a norm of channels, the third axis from the end, by what it has learned."""
        epsilon, rank = self.content.real(10) or 1e-5, self.rank()
        if self.integer(5) or rank < 3:
            return False
        names = [self.weight(field) for field in (15, 16, 17, 18)]
        if rank == 4:
            return self.add("BatchNormalization", [*self.inputs, *names], epsilon=epsilon)
        gamma, beta, mean, variance = (self.block.arrays[name].astype(np.float64).reshape(-1, 1, 1) for name in names)
        factor = gamma / np.sqrt(variance + epsilon)
        scale, shift = (self.block.constant(array.astype(np.float32)) for array in (factor, beta - mean * factor))
        return self.add("Add", [self.block.add("Mul", [*self.inputs, scale]), shift])

    def reduce(self, kind: str) -> bool:
        """Write a reduction along axes, or along all."""
        rank, keep = self.rank(), self.integer(2)
        axes = list(range(rank)) if self.integer(3) else self.listed(1)
        if keep or len(axes) < rank:
            self.ranked(rank if keep else rank - len(axes))
            return self.reduced(kind, axes, keep)
        self.ranked(1)  # a network has no value without axes
        return self.add("Reshape", [self.block.add(kind, self.inputs, axes=axes, keepdims=0), self.whole_numbers([1])])

    def truths_as_numbers(self, kind: str, inputs: Sequence[str]) -> bool:
        """Write an operation that gives truths: a network has them as 1 and 0."""
        return self.add("Cast", [self.block.add(kind, inputs)], to=np.dtype(np.float32))

    def filled(self, shape: str) -> bool:
        """Write one number in a shape."""
        self.inputs = [shape, self.real()]
        return self.ranked(None).fill()

    # Moves

    def shaped_to(self, lengths: Sequence[int]) -> bool:
        """Write elements in a stated shape, in which a length of 0 stands for the value's own."""
        return self.ranked(len(lengths)).add("Reshape", [self.inputs[0], self.whole_numbers(lengths)])

    def permuted(self) -> bool:
        """Write a value of five axes with its time, channels, height and width in another order."""
        order = [axis + (axis > 0) for axis in self.listed()]
        return len(order) == 4 and self.transpose([order[0], 1, *order[1:]])

    def parted(self) -> bool:
        """Write parts along an axis."""
        sizes = self.listed(3)
        return self.split(sizes, self.integer()) if sizes else self.add("Split", self.inputs, axis=self.integer())

    def cut_static(self) -> bool:
        """Write ranges and single elements of axes."""
        self.inputs = [self.inputs[0], *(self.whole_numbers(self.listed(field)) for field in (1, 3, 5))]
        self.ranked(self.rank() - sum(map(bool, self.listed(6))))
        masks = [sum(bool(bit) << place for place, bit in enumerate(self.listed(field))) for field in (2, 4, 6)]
        return self.cut([masks[0], masks[1], 0, 0, masks[2]])

    def cut_axis(self) -> bool:
        """Write a range of the channels, the height or the width."""
        axes, starts, ends, steps = [self.integer(4) - 3], [self.integer(1)], [self.integer(2)], [self.integer(3) or 1]
        return steps[0] > 0 and self.add("Slice", self.inputs, axes=axes, starts=starts, ends=ends, steps=steps)

    def squeezed(self) -> bool:
        """Write axes of length 1 away, all but one where a value has no others."""
        axes = self.listed()[: self.rank() - 1]
        self.ranked(self.rank() - len(axes))
        return not self.content.number(2) and (self.add("Squeeze", self.inputs, axes=axes) if axes else self.add("Identity", self.inputs))

    # Recurrent layers

    def recurrent(self, call: NetworkCall, first: str) -> None:
        """Write a recurrent layer: without the axes of length 1, and with one of directions in its states.

        first  the name that the file has for what it gives
        """
        add, placed, ways = self.block.add, call.call, call.stack.num_directions
        letters, states = len(placed.states), list(self.inputs[1:])
        self.ranked(5)
        add("Squeeze", self.inputs[:1], [placed.sequence[0]], axes=[*_ALL])
        for number, name in enumerate(placed.initial):
            rows = [add("Squeeze", [state], axes=[*_ALL]) for state in states[number::letters][:ways]]
            add("Concat", rows, [name], axis=0)
        add(self.layer.kind, [placed.sequence[0], *placed.initial], [*placed.outputs, *placed.states], self.label, DOMAIN)
        ends = [f"{name}/wide" for name in placed.states]
        for name, wide in zip(placed.states, ends, strict=True):
            add("Unsqueeze", [name], [wide], axes=[*_ALL])
        if call.sequences:
            add("Unsqueeze", [*placed.outputs], self.outputs[:1], axes=[*_ALL])
        else:
            rows = [add("Slice", ends[:1], axes=[0], starts=[way], ends=[way + 1]) for way in range(ways)]
            add("Concat", rows, self.outputs[:1], axis=2)
        for place, name in enumerate(self.outputs[1:]):
            way, letter = divmod(place, letters)
            if way < ways:
                add("Slice", [ends[letter]], [name], axes=[0], starts=[way], ends=[way + 1])


_UNARY = {0: "Sqrt", 4: "Exp", 5: "Log", 6: "Abs"}
_REDUCED = {1250: "ReduceL1", 1255: "ReduceL2", 1260: "ReduceMax", 1265: "ReduceMin", 1270: "ReduceSum", 1275: "ReduceProd",
            1280: "ReduceMean", 1290: "ReduceSumSquare"}  # fmt: skip
_LOGICAL = {840: "Or", 845: "Xor", 850: "Not", 855: "And"}
_COMPARED = {815: ("Equal", 1), 825: ("Less", 2), 827: ("LessOrEqual", 2), 830: ("Greater", 2), 832: ("GreaterOrEqual", 2)}


def _reducing(kind: str) -> Callable[[NetworkRule], bool]:
    return lambda rule: rule.reduce(kind)


def _comparing(kind: str, field: int) -> Callable[[NetworkRule], bool]:
    return lambda rule: rule.truths_as_numbers(kind, rule.inputs if len(rule.inputs) > 1 else [*rule.inputs, rule.real(field)])


def _logical(kind: str) -> Callable[[NetworkRule], bool]:
    return lambda rule: rule.truths_as_numbers(kind, [rule.block.add("Cast", [value], to=TRUTH) for value in rule.inputs])


_RULES: Mapping[int, Callable[[NetworkRule], bool]] = {
    100: NetworkRule.convolved,
    120: NetworkRule.pooled,
    130: NetworkRule.activated,
    140: NetworkRule.dense,
    150: lambda rule: rule.rank() in (4, 5) and rule.embedded(3, 10),
    160: NetworkRule.normed,
    # Over the last three axes, or the last two; coremltools writes its layer_norm in this way.
    165: lambda rule: rule.centred([-3, -2, -1][not rule.integer() :], rule.content.real(3) or 1e-6, bool(rule.integer(2))),
    175: lambda rule: rule.rank() > 2 and rule.softmax_along("Softmax", rule.rank(), -3),
    220: NetworkRule.unary,
    230: lambda rule: rule.folded("Add"),
    231: lambda rule: rule.folded("Mul"),
    245: NetworkRule.with_numbers,
    250: lambda rule: rule.add("Add", [*rule.inputs, rule.by_channel(2, 1)]),
    301: lambda rule: not rule.integer() and rule.rank() > 2 and rule.shaped_to([0] * (rule.rank() - 3) + [-1, 1, 1]),
    310: NetworkRule.permuted,
    320: lambda rule: rule.add("Concat", rule.inputs, axis=-5 if rule.content.number(100) else -3),  # by their steps, or channels
    330: lambda rule: rule.add("Split", rule.inputs, axis=-3),
    350: NetworkRule.cut_axis,
    660: lambda rule: rule.add("Clip", rule.inputs, min=rule.content.real(1), max=rule.content.real(2)),
    795: lambda rule: rule.gelu(rule.integer()),
    820: lambda rule: rule.truths_as_numbers(
        "Not", [rule.block.add("Equal", rule.inputs if len(rule.inputs) > 1 else [*rule.inputs, rule.real()])]
    ),
    920: lambda rule: len(rule.inputs) == 1 and rule.tile(rule.listed(), rule.rank()),
    925: lambda rule: rule.ranked(rule.rank() + 1).stack(rule.integer()),
    930: lambda rule: rule.ranked(rule.rank(0) + rule.rank(1) - 1).add("Gather", [rule.inputs[0], rule.wide(1)], axis=rule.integer()),
    950: lambda rule: rule.softmax_along("Softmax", rule.rank(), rule.integer()),
    960: lambda rule: rule.flip([axis for axis, turned in enumerate(rule.listed()) if turned]),
    975: NetworkRule.parted,
    980: lambda rule: not rule.content.number(2) and rule.add("Concat", rule.inputs, axis=rule.integer()),
    985: lambda rule: rule.transpose(rule.listed()),
    995: NetworkRule.cut_static,
    1040: lambda rule: rule.embedded(1, 3),
    1045: NetworkRule.multiplied,
    1085: lambda rule: rule.filled(rule.whole_numbers(rule.listed(2))),
    1090: lambda rule: rule.filled(rule.wide(0)),
    1120: NetworkRule.squeezed,
    1125: lambda rule: rule.ranked(rule.rank() + len(rule.listed())).add("Unsqueeze", rule.inputs, axes=rule.listed()),
    1130: lambda rule: rule.ranked(2).add("Flatten", rule.inputs, axis=rule.integer()),
    1140: lambda rule: rule.shaped_to(rule.listed()),
    1145: lambda rule: rule.ranked(None).add("Reshape", [rule.inputs[0], rule.wide(1)]),
    1150: lambda rule: rule.shaped_to(rule.listed()),
    **{number: _reducing(kind) for number, kind in _REDUCED.items()},
    **{number: _comparing(*kind) for number, kind in _COMPARED.items()},
    **{number: _logical(kind) for number, kind in _LOGICAL.items()},
}
