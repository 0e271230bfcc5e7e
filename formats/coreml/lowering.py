"""Core ML's programs in the common operations, one rule each.

Source: coremltools 9.0, converters/mil/mil/ops/defs, each operation by its class. A custom_layer is the user's own
and may compute anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RnnConvertError, UnreadableError
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.coreml.contents import UnknownError
from rnnconvert.formats.coreml.message import Message
from rnnconvert.formats.coreml.values import BOOL, TYPES, ProgramOperation, Values
from rnnconvert.graphs.graph import CallSizes
from rnnconvert.graphs.program.lowering import INTEGER, OPSET, Block, LoopLowering, Rule, Variable
from rnnconvert.graphs.program.operations import Body, Declared, Program, StoredNumbers
from rnnconvert.recognition.flow import FINAL_WORDS, RecurrentCall

DOMAIN = "coreml"
_DTYPES = {"fp16": "f2", "fp32": "f4", "fp64": "f8", "int32": "i4", "int16": "i2", "int8": "i1", "uint8": "u1", "uint16": "u2", "bool": "?"}
_WIDENED = {"f2": "f4", "i2": "i4", "u2": "i4"}
_SAME = {
    "abs": "Abs", "acos": "Acos", "add": "Add", "asin": "Asin", "atan": "Atan", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh",
    "equal": "Equal", "erf": "Erf", "exp": "Exp", "floor": "Floor", "greater": "Greater", "greater_equal": "GreaterOrEqual",
    "identity": "Identity", "less": "Less", "less_equal": "LessOrEqual", "logical_and": "And", "logical_not": "Not", "logical_or": "Or",
    "logical_xor": "Xor", "maximum": "Max", "minimum": "Min", "mul": "Mul", "pow": "Pow", "range_1d": "Range", "real_div": "Div",
    "relu": "Relu", "round": "Round", "select": "Where", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh",
    "softplus": "Softplus", "softsign": "Softsign", "sqrt": "Sqrt", "sub": "Sub", "tan": "Tan", "tanh": "Tanh",
}  # fmt: skip
"""Operations that are a common one with the same inputs."""
_READ = {
    "fill_like": ("ref_tensor",), "gather_along_axis": ("x", "indices"), "fill": ("shape",), "one_hot": ("indices", "one_hot_vector_size"),
    "reshape": ("x", "shape"), "tile": ("x", "reps"), "range_1d": ("start", "end", "step"),
    "reverse_sequence": ("x", "lengths"), "select": ("cond", "a", "b"), "slice_by_size": ("x", "begin", "size"),
}  # fmt: skip
"""The inputs of operations that do not read x, or x and y, in their order."""
_CONSTANT = {"const": (), "constexpr_cast": (), "constexpr_affine_dequantize": (), "constexpr_lut_to_dense": ("shape",)}
"""Operations that are constants, and what tells them from those of the same name which iOS 18 has."""


@dataclass(frozen=True)
class RecurrentOperation:
    """A recurrent operation of a program.

    stack     its layer
    sequence  whether it gives its outputs at all steps
    turned    the values behind operations that turn its outputs around, if that belongs to the layer
    """

    operation: ProgramOperation
    stack: Recurrent
    sequence: bool
    turned: Sequence[str]

    @property
    def gives(self) -> Sequence[str]:
        """The sequences that it gives: one, by several names."""
        return (self.turned or self.operation.outputs[:1]) if self.sequence else ()

    @property
    def last(self) -> Sequence[str]:
        """The values (batch, units) that are its last states: of a layer that gives no sequences, its output is one, too."""
        return self.operation.outputs[1 if self.sequence else 0 :]

    @property
    def call(self) -> RecurrentCall:
        """The call in the program that it is written into."""
        (layer,) = self.stack.layers
        words = FINAL_WORDS if self.sequence else (FINAL_WORDS[0], *FINAL_WORDS)
        x = next((argument for argument in self.operation.inputs.get("x", ()) if isinstance(argument, str)), "")
        return RecurrentCall(
            (x, "tbi"),
            {name: "tbu" for name in self.gives[:1]},
            CallSizes(layer.output_size, dtype=self.stack.dtype, width=self.stack.input_size),
            {_stacked(name): word for name, word in zip(self.last, words, strict=False)},
            [f"{self.operation.outputs[0]}/{key}" for key in _INITIAL if self.operation.inputs.get(key)],
        )


_INITIAL = ("initial_h", "initial_c")


def _stacked(name: str) -> str:
    """Return the name of a state (direction, batch, units), of which (batch, units of all directions) is made."""
    return f"{name}/stacked"


def dims(message: Message, name: str = "") -> list[int | str | None] | None:
    """Return the lengths of the axes that a value's type states; None for what is not a tensor, or has any number of axes.

    name  of an input, whose open axes go by names of their own
    """
    tensor = message.within(2, 1)
    axes = [*tensor.every(3)] if tensor is not None else []
    if tensor is None or any((axis.submessage(2) or axis).number(1) for axis in axes if 2 in axis):
        return None
    lengths = [axis.submessage(1) for axis in axes]
    unknown = [f"{name} {axis}" if name else None for axis in range(len(lengths))]
    return [other if length is None else length.number(1) for length, other in zip(lengths, unknown, strict=True)]


class FunctionLowering:
    """A function on its way.

    values   its operations
    layers   the recurrent ones that are read, by their own outputs
    widened  whether what it computes in half precision is written in single precision
    """

    def __init__(self, values: Values, layers: Sequence[RecurrentOperation], widened: bool) -> None:
        self.values, self.widened, self.rounds = values, widened, False
        self.arrays: dict[str, Array] = {}
        self.layers = {id(layer.operation): layer for layer in layers}
        self.skipped = {name for layer in layers for name in layer.turned}
        self.dims: dict[str, Sequence[int | str | None] | None] = {}
        self.kinds: dict[str, np.dtype[Any]] = {}
        self.wide: dict[str, tuple[str, Sequence[int]]] = {}
        self.loops: dict[str, LoopValues] = {}
        self.behind: dict[str, str] = {}
        self.sizes: dict[str, int] = {}

    def program(self, path: Path, size: int, inputs: Sequence[Message], main: Message) -> Program:
        """Return the function as a program.

        size  how many bytes of the file there are
        main  the block that it computes
        """
        block, declared = Block("", self.arrays), list[Declared]()
        for message in inputs:
            declared.append(self.declare(message, message.text(1)))
        self.write(main, block)
        stored = {name: numbers for name in self.values.makers if (numbers := self._stored(name)) is not None}
        for name in [*self.dims]:
            if name not in stored:
                declared.append(Declared(name, self.kinds.get(name), self.dims[name]))
        names = [message.text(1) for message in inputs]
        return Program(path, Body(block.nodes, names, main.texts(2), {**stored, **block.stored}, declared), {"": OPSET}, size=size)

    def declare(self, message: Message, name: str = "") -> Declared:
        """Note what a value's type states of it."""
        tensor, value = message.within(2, 1), message.text(1)
        kind = self.dtype(tensor.number(1)) if tensor is not None else None
        self.dims[value] = dims(message, name)
        length = message.within(2, 2, 2, 1)
        if length is not None:
            self.sizes[value] = length.number(1)
        if kind is not None:
            self.kinds[value] = kind
        return Declared(value, kind, self.dims[value])

    def dtype(self, number: int) -> np.dtype[Any] | None:
        """Return an element type of the format; None for one that is not of numbers."""
        if number != BOOL and number not in TYPES:
            return None
        return self.widest(np.dtype("?" if number == BOOL else TYPES[number]).newbyteorder("="))

    @staticmethod
    def is_constant(operation: ProgramOperation) -> bool:
        """Return whether an operation is a constant that is read."""
        stated = {*operation.inputs, *dict(operation.message.entries(5))}
        return operation.type in _CONSTANT and stated.issuperset(_CONSTANT[operation.type])

    def widest(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the element type in which numbers of a type are written."""
        self.rounds |= self.widened and dtype == np.float16
        return np.dtype(_WIDENED.get(dtype.str[1:], dtype)) if self.widened else dtype

    def write(self, block: Message, target: Block, loop: LoopValues | None = None) -> None:
        """Write the operations of a block."""
        for operation in self.values.operations_in(block):
            if self.is_constant(operation):
                continue
            for output in operation.message.every(3):
                self.declare(output)
            target.operator = operation.type
            MilRule(self, operation, target, loop).write()

    def stored_value(self, argument: str | Message) -> Any:
        """Return the numbers, truths or text of a value; None where the program computes it."""
        maker = self.values.makers.get(argument) if isinstance(argument, str) else None
        value = dict(maker.message.entries(5)).get("val") if maker is not None and maker.type == "const" else argument
        if isinstance(value, Message):
            truths = value.within(3, 1, 3)
            if text := self.values.text(value):
                return text
            shape, kind = self.values.type(value)
            if kind == BOOL and truths is not None:
                return np.array(truths.integers(1), bool).reshape(shape)
        used = set(self.values.used)
        try:
            array, _ = self.values.constant(argument, "value")
        except (UnknownError, RnnConvertError):
            return None
        finally:
            self.values.used = used
        return array.astype(self.widest(array.dtype.newbyteorder("=")), copy=False)

    def _stored(self, name: str) -> StoredNumbers | None:
        maker = self.values.makers[name]
        if not self.is_constant(maker) or name in self.arrays:
            return None
        message = next(maker.message.every(3))
        shape, kind = self.values.type(message)
        dtype = self.dtype(kind)
        # Numbers are read where something asks for them: those of large tables are not needed to follow a graph.
        return None if dtype is None else StoredNumbers(name, shape, dtype, partial(self._read, name))

    def _read(self, name: str) -> Array:
        array = self.stored_value(name)
        if not isinstance(array, np.ndarray):
            raise UnreadableError(self.values.path, f"the constant {name!r} has no numbers that are read")
        return array


@dataclass
class LoopValues:
    """The values of a step of a loop whose steps are counted.

    iteration  the number of the step
    counters   the variables that count the steps from 0 on
    states     variables that hold a state at the place of each step: the state
    """

    iteration: str
    counters: set[str]
    states: dict[str, str]


class MilRule(Rule):
    """One operation, and the graph that it is written into."""

    def __init__(self, function: FunctionLowering, operation: ProgramOperation, block: Block, loop: LoopValues | None) -> None:
        super().__init__(block, [], operation.outputs, operation.name)
        self.function, self.operation, self.loop = function, operation, loop

    def numbers(self, index: int) -> Array | None:
        if index >= len(self.inputs) or not self.inputs[index]:
            return None
        name = self.inputs[index]
        return self.block.arrays[name] if name in self.block.arrays else self.array(name)

    def array(self, argument: str | Message) -> Array | None:
        """Return the numbers that an argument is."""
        value = self.function.stored_value(argument)
        return value if isinstance(value, np.ndarray) else None

    def write(self) -> None:
        """Write the operation; one of another domain where it has no equivalent."""
        kind, layer = self.operation.type, self.function.layers.get(id(self.operation))
        if layer is not None:
            self.recurrent(layer)
        elif not (self.outputs and set(self.outputs) <= self.function.skipped):
            self.inputs = self.values(*_READ.get(kind, ("x", "y"))) or self.every("values")
            if kind in _SAME and (kind != "real_div" or self.is_float()):
                self.add(_SAME[kind], self.inputs)
            elif not self.by_rule(_RULES.get(kind)):
                names = [self.name_of(each) for arguments in self.operation.inputs.values() for each in arguments if not self.is_text(each)]
                self.block.add(kind, [name for name in names if name], self.outputs, self.label, DOMAIN)

    # Arguments

    def name_of(self, argument: str | Message) -> str:
        """Return the name of the value that an argument is; "" for a text."""
        if isinstance(argument, str):
            return argument
        array = self.array(argument)
        return "" if array is None else self.block.constant(array)

    def is_text(self, argument: str | Message) -> bool:
        """Return whether an argument is a constant of another kind than numbers."""
        maker = self.function.values.makers.get(argument) if isinstance(argument, str) else None
        if maker is None or maker.type != "const":
            return False
        return self.function.dtype(self.function.values.type(next(maker.message.every(3)))[1]) is None

    def value(self, parameter: str) -> str:
        """Return the value of a parameter; "" where it is not given."""
        arguments = self.operation.inputs.get(parameter)
        return self.name_of(arguments[0]) if arguments else ""

    def values(self, *parameters: str) -> list[str]:
        """Return the values of those parameters that are given."""
        return [value for parameter in parameters if (value := self.value(parameter))]

    def every(self, parameter: str) -> list[str]:
        """Return the values of a parameter that takes several."""
        return [self.name_of(argument) for argument in self.operation.inputs.get(parameter, ())]

    def states(self, parameter: str) -> bool:
        """Return whether a parameter is stated."""
        return bool(self.operation.inputs.get(parameter))

    def stored(self, parameter: str) -> Any:
        """Return the numbers or the text that a parameter states; None where it is not given, or computed."""
        arguments = self.operation.inputs.get(parameter)
        return self.function.stored_value(arguments[0]) if arguments else None

    def listed(self, parameter: str) -> list[int] | None:
        """Return whole numbers or truths that a parameter states; None where it is not given, or computed."""
        array = self.stored(parameter)
        return [int(number) for number in array.reshape(-1)] if isinstance(array, np.ndarray) and array.dtype.kind in "iub" else None

    def integer(self, parameter: str, default: int | None = None) -> int:
        """Return a whole number that a parameter states. Raises ValueError where it states none."""
        numbers = self.listed(parameter)
        if numbers is None and default is not None and not self.states(parameter):
            return default
        if numbers is None or len(numbers) != 1:
            raise ValueError(f"{parameter} of {self.label!r} is not one stored number")
        return numbers[0]

    def real(self, parameter: str, default: float) -> float:
        """Return a number that a parameter states. Raises ValueError for one that is computed."""
        array = self.stored(parameter) if self.states(parameter) else np.array(default)
        if not isinstance(array, np.ndarray) or array.size != 1:
            raise ValueError(f"{parameter} of {self.label!r} is not one stored number")
        return float(array.reshape(()))

    def word(self, parameter: str, default: str) -> str:
        """Return a text that a parameter states. Raises ValueError for one that is computed."""
        value = self.stored(parameter) if self.states(parameter) else default
        if not isinstance(value, str):
            raise ValueError(f"{parameter} of {self.label!r} is not a stored text")
        return value

    def lengths(self, name: str) -> list[int] | None:
        """Return the lengths of a value's axes, -1 for an open one; None where the file does not state their number."""
        constant, stated = self.function.values.makers.get(name), self.function.dims.get(name)
        if name not in self.function.dims and constant is not None:
            stated = self.function.values.type(next(constant.message.every(3)))[0]
        return None if stated is None else [length if isinstance(length, int) else -1 for length in stated]

    def rank(self, name: str) -> int:
        """Return how many axes a value has. Raises ValueError where the file does not state it."""
        lengths = self.lengths(name)
        if lengths is None:
            raise ValueError(f"the file does not state how many axes {name!r} has")
        return len(lengths)

    def is_float(self) -> bool:
        """Return whether it gives floating-point numbers."""
        kind = self.function.kinds.get(self.outputs[0])
        return kind is not None and kind.kind == "f"

    def constant(self, number: float) -> str:
        return self.block.constant(np.array(number, self.function.kinds.get(self.outputs[0], np.dtype(np.float32))))

    # Functions of numbers

    def rounded_quotient(self) -> bool:
        """Write a quotient that is rounded down; of whole numbers where none is below zero: the common operation cuts them off."""
        if self.is_float():
            return self.add("Floor", [self.block.add("Div", self.inputs)])
        return self._count() and self.add("Div", self.inputs)

    def _count(self) -> bool:
        """Return whether what it reads is made of lengths of axes and of constants that are not below zero."""
        waiting, seen = list[str | Message](self.inputs), set[str | Message]()
        while waiting:
            value = waiting.pop()
            maker = self.function.values.makers.get(value) if isinstance(value, str) else None
            if value in seen or (maker is not None and maker.type in ("shape", "abs")):
                continue
            seen.add(value)
            if maker is not None and maker.type in _OF_LENGTHS:
                waiting += [each for key in ("x", "y", "values") for each in maker.inputs.get(key, ())]
            elif (array := self.array(value)) is None or (array < 0).any():
                return False
        return True

    def remainder(self) -> bool:
        """Write a remainder of the divisor's sign."""
        if not self.is_float():
            return self.add("Mod", self.inputs)
        quotient = self.block.add("Floor", [self.block.add("Div", self.inputs)])
        return self.add("Sub", [self.inputs[0], self.block.add("Mul", [quotient, self.inputs[1]])])

    def raised(self, epsilon: float) -> str:
        """Return x with a small number added to it."""
        return self.affine(self.inputs[0], 1.0, self.real("epsilon", epsilon))

    def cast(self) -> bool:
        """Write a change of the element type."""
        name = _DTYPES.get(self.word("dtype", ""))
        return name is not None and self.add("Cast", self.inputs, to=self.function.widest(np.dtype(name)))

    def reduce(self, kind: str) -> bool:
        """Write a reduction along axes, or along all of them."""
        axes = self.listed("axes")
        axes = axes if axes is not None or self.states("axes") else list(range(self.rank(self.inputs[0])))
        return self.reduced(kind, axes, self.integer("keep_dims", 0))

    # Products, windows and norms

    def linear(self) -> bool:
        """Write a product with a matrix (units, features), and its bias."""
        weight = self.block.add("Transpose", [self.value("weight")], perm=[1, 0])
        if not self.states("bias"):
            return self.add("MatMul", [*self.inputs, weight])
        return self.add("Add", [self.block.add("MatMul", [*self.inputs, weight], name=self.label), self.value("bias")])

    def multiplied(self) -> bool:
        """Write a product of matrices, or of stacks of them."""
        ranks = [self.rank(name) for name in self.inputs]
        turns = [bool(self.integer(f"transpose_{letter}", 0)) for letter in "xy"]
        return min(ranks) > 1 and self.product(turns[0], turns[1], ranks)

    def windows(self, rank: int) -> dict[str, Any]:
        """Return the strides and pads of windows over so many axes of space."""
        strides, word = self.listed("strides") or [1] * rank, self.word("pad_type", "valid")
        if word in ("same", "same_lower"):
            return {"strides": strides, "auto_pad": "SAME_UPPER" if word == "same" else "SAME_LOWER"}
        pads = self.listed("pad") or [0] * 2 * rank
        return {"strides": strides, "pads": [*pads[::2], *pads[1::2]] if word == "custom" else [0] * 2 * rank}

    def convolved(self) -> bool:
        """Write a convolution of (batch, channels, space)."""
        rank = self.rank(self.inputs[0]) - 2
        more = {"group": self.integer("groups", 1), "dilations": self.listed("dilations") or [1] * rank}
        return self.add("Conv", [*self.inputs, self.value("weight"), *self.values("bias")], **more, **self.windows(rank))

    def spread(self) -> bool:
        """Write a transposed convolution; what it states of its output's lengths is how far that goes beyond the windows."""
        x, weight = self.lengths(self.inputs[0]), self.lengths(self.value("weight"))
        if x is None or weight is None:
            return False
        rank = len(x) - 2
        settings, dilations = self.windows(rank), self.listed("dilations") or [1] * rank
        more = {"group": self.integer("groups", 1), "dilations": dilations, **settings}
        stated = self.listed("output_shape")
        if "pads" not in settings or (stated is None and self.states("output_shape")):
            return False
        if stated is not None:
            pads = settings["pads"]
            sizes = [
                (length - 1) * stride + (window - 1) * by + 1 - low - high if length >= 0 else None
                for length, stride, window, by, low, high in zip(
                    x[2:], settings["strides"], weight[2:], dilations, pads[:rank], pads[rank:], strict=True
                )
            ]
            beyond = [-1 if size is None else length - size for length, size in zip(stated[-rank:], sizes, strict=True)]
            if any(not 0 <= extra < stride for extra, stride in zip(beyond, settings["strides"], strict=True)):
                return False
            more["output_padding"] = beyond
        return self.add("ConvTranspose", [*self.inputs, self.value("weight"), *self.values("bias")], **more)

    def pooled(self, kind: str) -> bool:
        """Write the largest number, or the mean, of windows over the axes of space."""
        kernel = self.listed("kernel_sizes")
        if kernel is None:
            return False
        settings = self.windows(len(kernel)) | ({"ceil_mode": 1} if self.integer("ceil_mode", 0) else {})
        if kind == "AveragePool":
            settings["count_include_pad"] = 1 - self.integer("exclude_padding_from_average", 0)
        return self.add(kind, self.inputs, kernel_shape=kernel, **settings)

    def normed(self, kind: str) -> bool:
        """Write a norm of channels; without a scale or a shift, by ones and zeros."""
        if kind == "InstanceNormalization" and not self.states("gamma") and not self.states("beta"):
            return self.centred(range(2, self.rank(self.inputs[0])), self.real("epsilon", 1e-5), True)
        size = next(iter((self.lengths(self.inputs[0]) or [])[1:]), -1)
        if size < 1 and not (self.states("gamma") and self.states("beta")):
            return False
        numbers = [self.value(key) or self.block.constant(np.full(size, n, np.float32)) for key, n in (("gamma", 1), ("beta", 0))]
        measured = self.values("mean", "variance") if kind == "BatchNormalization" else []
        return self.add(kind, [*self.inputs, *numbers, *measured], epsilon=self.real("epsilon", 1e-5))

    def layer_norm(self) -> bool:
        """Write a norm over the last axes."""
        lengths, axes = self.lengths(self.inputs[0]), self.listed("axes")
        if lengths is None:
            return False
        axes = [axis % len(lengths) for axis in axes or range(len(lengths))]
        sizes = [lengths[axis] for axis in sorted(axes)]
        if sorted(axes) != list(range(len(lengths) - len(axes), len(lengths))):
            if self.states("gamma") or self.states("beta"):
                return False
            return self.centred(axes, self.real("epsilon", 1e-5), True)
        if min(sizes) < 1 and not self.states("gamma"):
            return False
        gamma = self.value("gamma") or self.block.constant(np.ones(sizes, np.float32))
        inputs = [*self.inputs, gamma, *self.values("beta")]
        return self.add("LayerNormalization", inputs, axis=-len(axes), epsilon=self.real("epsilon", 1e-5))

    # Moves

    def squeezed(self) -> bool:
        """Write axes of length 1 away: those that an operation before it put there are left out."""
        axes, lengths = self.listed("axes"), self.lengths(self.inputs[0])
        before = self.function.wide.get(self.inputs[0])
        if before is not None and axes is not None and [*before[1]] == axes:
            return self.add("Identity", [before[0]])
        if lengths is None:
            return False
        # Of no axes it means those whose length is stated as 1; those of another length it leaves.
        axes = [axis for axis in range(len(lengths)) if lengths[axis] == 1] if axes is None else [a for a in axes if lengths[a] in (-1, 1)]
        return self.add("Squeeze", self.inputs, axes=axes) if axes else self.add("Identity", self.inputs)

    def widened(self, value: str, axes: Sequence[int] | None) -> bool:
        """Write a value with further axes of length 1."""
        if axes is None:
            return False
        self.function.wide[self.outputs[0]] = value, axes
        return self.add("Unsqueeze", [value], axes=list(axes))

    def joined(self) -> bool:
        """Write values one behind the other; single numbers as a vector."""
        if self.integer("interleave", 0):
            return False
        axis, single = self.integer("axis"), self.lengths(self.inputs[0]) == []
        return self.stack(axis) if single else self.add("Concat", self.inputs, axis=axis)

    def taken_apart(self) -> bool:
        """Write parts along an axis."""
        axis, sizes = self.integer("axis"), self.listed("split_sizes")
        if sizes is None and self.states("split_sizes"):
            return False
        return self.split(sizes, axis) if sizes is not None else self.add("Split", self.inputs, axis=axis)

    def by_index(self) -> bool:
        """Write ranges and single elements of axes."""
        self.inputs = [*self.inputs, self.value("begin"), self.value("end"), self.value("stride")]
        begin, rank = self.integers(1), self.rank(self.inputs[0])
        if not self.inputs[3]:
            self.inputs[3] = self.block.constant(np.ones(rank, np.int64))
        keys = ("begin_mask", "end_mask", "", "", "squeeze_mask")
        masks = [(self.listed(key) or [] if key else []) for key in keys]
        if any(opened and single for opened, single in zip(masks[0], masks[4], strict=False)):
            if begin is None:
                return False
            begin = [0 if opened else start for opened, start in zip(masks[0], begin, strict=True)]
            self.inputs[1] = self.whole_numbers(begin)
        steps = self.integers(3)
        behind = self.function.behind.get(uncast(self.function.values, self.inputs[0]))
        starts = [0 if opened else start for start, opened in zip(begin or [], masks[0] or [0] * rank, strict=False)]
        to_the_end = len(masks[1]) == rank and all(masks[1]) and not any(masks[4])
        if behind and to_the_end and starts == [1] + [0] * (len(starts) - 1) and set(steps or ()) == {1}:
            return self.add("Cast", [behind], to=self.function.kinds[self.outputs[0]])
        return self.cut([sum(bool(bit) << place for place, bit in enumerate(mask)) for mask in masks])

    def gathered(self) -> bool:
        """Write elements along an axis; where a step of a loop reads the one at its own place, that one."""
        axis, indices, loop = self.integer("axis", 0), self.value("indices"), self.loop
        if self.integer("batch_dims", 0):
            return False
        if loop is None or self.above_zero(indices) not in loop.counters:
            return self.add("Gather", [*self.inputs, indices], axis=axis)
        single = self.lengths(indices) == [1]
        if self.inputs[0] in loop.states:
            state = self.block.add("Cast", [loop.states[self.inputs[0]]], to=self.function.kinds[self.outputs[0]])
            return axis == 0 and single and self.widened(state, [0])
        if not single:
            return self.add("Gather", [*self.inputs, loop.iteration], axis=axis)
        return self.widened(self.block.add("Gather", [*self.inputs, loop.iteration], name=self.label, axis=axis), [axis])

    def spread_out(self) -> bool:
        """Write a list that is made of a tensor, or becomes one: it is its elements, one after another."""
        value, places = self.value("value"), self.array(self.value("indices"))
        if places is not None:
            complete = places.tolist() == [*range(places.size)]
            complete &= value != "" or self.function.sizes.get(self.value("ls")) == places.size
        else:
            maker = self.function.values.makers.get(self.value("indices"))
            counted = MilRule(self.function, maker, self.block, None) if maker is not None and maker.type == "range_1d" else self
            complete = (counted.integer("start"), counted.integer("step")) == (0, 1)
            end = self.function.values.makers.get(counted.value("end"))
            complete &= value != "" or (end is not None and end.type == "list_length" and end.inputs["ls"] == self.operation.inputs["ls"])
        return complete and self.add("Identity", [value or self.value("ls")])

    def read_at(self) -> bool:
        """Write an element of a list."""
        index = self.value("index")
        counted = self.loop is not None and self.above_zero(index) in self.loop.counters
        return self.add("Gather", [self.value("ls"), self.loop.iteration if self.loop is not None and counted else index], axis=0)

    def above_zero(self, name: str) -> str:
        """Return the value that an index is where that is not below zero: programs choose between it and one counted from the end."""
        name = uncast(self.function.values, name)
        maker = self.function.values.makers.get(name)
        if maker is None or maker.type != "select":
            return name
        (chosen, *_), (truth, *_) = maker.inputs.get("a") or [""], maker.inputs.get("cond") or [""]
        compared = self.function.values.makers.get(truth) if isinstance(truth, str) else None
        if not isinstance(chosen, str) or compared is None or compared.type != "greater_equal" or compared.inputs.get("x") != [chosen]:
            return name
        bounds = [self.array(each) for each in compared.inputs.get("y", ())]
        return uncast(self.function.values, chosen) if all(each is not None and not each.any() for each in bounds) else name

    def turned(self) -> bool:
        """Write a value turned around along axes, or along all of them."""
        axes = self.listed("axes")
        return self.flip(axes if axes is not None or self.states("axes") else list(range(self.rank(self.inputs[0]))))

    def around(self) -> bool:
        """Write values around a value: how many before and behind each of the last axes."""
        mode = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}.get(self.word("mode", "constant"))
        widths, rank = self.listed("pad"), self.rank(self.inputs[0])
        if widths is None or mode is None or len(widths) > 2 * rank:
            return False
        widths = [0] * (2 * rank - len(widths)) + widths
        pads = self.block.constant(np.array([*widths[::2], *widths[1::2]], np.int64))
        number = [self.constant(self.real("constant_val", 0.0))] if mode == "constant" else []
        return self.add("Pad", [*self.inputs, pads, *number], **({} if mode == "constant" else {"mode": mode}))

    def filled(self) -> bool:
        """Write one number in a shape."""
        number = self.stored("value") if self.states("value") else np.zeros((), np.float32)
        if not isinstance(number, np.ndarray) or number.size != 1:
            return False
        self.inputs = [self.wide(0), self.block.constant(number)]
        return self.fill()

    def marked(self) -> bool:
        """Write places as vectors of one number at the place, and another one elsewhere."""
        dtype, axis = self.function.kinds.get(self.outputs[0], np.dtype(np.int32)), self.integer("axis", -1)
        levels = self.real("off_value", 0.0), self.real("on_value", 1.0)
        vectors = self.hot(self.inputs[0], self.function.kinds.get(self.inputs[0], INTEGER), self.wide(1), levels, axis)
        # In float32, which runtimes compute it in, and then in the type of the file.
        return self.add("Cast", [vectors], to=dtype)

    def best(self) -> bool:
        """Write the largest or smallest numbers along an axis, and their places."""
        if not self.integer("sort", 1) or not self.integer("return_indices", 1):
            return False
        return self.top(self.integer("k", 1), self.integer("axis", -1), 1 - self.integer("ascending", 0), INTEGER)

    # Recurrent layers and loops

    def recurrent(self, layer: RecurrentOperation) -> None:
        """Write a recurrent operation: its states have an axis of directions, of which the program's are made."""
        ways, add, call = layer.stack.num_directions, self.block.add, layer.call
        for key, name in zip(_INITIAL, call.initial, strict=False):
            state = self.value(key)
            if ways > 1:
                shape = self.block.constant(np.array([0, ways, -1], np.int64))
                add("Transpose", [add("Reshape", [state, shape])], [name], perm=[1, 0, 2])
            else:
                add("Unsqueeze", [state], [name], axes=[0])
        weights = [self.value(key) for key in layer.operation.inputs if key.startswith(("weight", "bias", "peephole"))]
        sequences = [*layer.gives]
        add(self.operation.type, [call.sequence[0], *call.initial, *weights], [*sequences[:1], *call.states], self.label, DOMAIN)
        for name in sequences[1:]:
            add("Identity", sequences[:1], [name])
        for name in layer.last:
            if ways > 1:
                shape = self.block.constant(np.array([0, -1], np.int64))
                add("Reshape", [add("Transpose", [_stacked(name)], perm=[1, 0, 2]), shape], [name])
            else:
                add("Squeeze", [_stacked(name)], [name], axes=[0])


_CAST = ("cast", "identity")


def uncast(values: Values, name: str) -> str:
    """Return the value that a value is, but for its element type."""
    for _ in range(8):
        maker = values.makers.get(name)
        source = maker.inputs.get("x", [""])[0] if maker is not None and maker.type in _CAST else ""
        if not isinstance(source, str) or not source:
            break
        name = source
    return name


@dataclass(frozen=True)
class _Listed:
    """A variable that holds, at the place of each step, what that step gives.

    element  what a step gives, by its name, and whether it has an axis of length 1 in front
    ahead    by how many places what a step gives lies behind what it reads
    aliases  the variable's names in a step, in several element types
    single   whether it has one place, which each step takes
    """

    element: str
    wide: bool
    ahead: int
    aliases: set[str]
    single: bool = False


class MilLoop:
    """A while_loop on its way."""

    def __init__(self, rule: MilRule) -> None:
        self.rule, self.function, operation = rule, rule.function, rule.operation
        self.makers = self.function.values.makers
        self.going, self.steps = [*operation.message.every(4)]
        self.inside = [message.text(1) for message in self.steps.every(1)]
        self.after = self.steps.texts(2)
        self.first = rule.every("loop_vars")

    def write(self) -> bool:
        """Write it; return whether its steps are counted."""
        rule, label = self.rule, self.rule.label
        if not len(self.inside) == len(self.after) == len(self.first) == len(rule.outputs):
            return False
        counters = {name for name, after, first in self._variables() if self._counts(name, after, first)}
        limit = self._limit(counters)
        if not limit:
            return False
        for message in self.steps.every(1):
            self.function.declare(message)
        block, outer = Block(f"{label}/", self.function.arrays), rule.block
        values = LoopValues(f"{label}/iteration", counters, {})
        lists = {
            name: listed
            for name, after, first in self._variables()
            if (listed := self._listed(name, after, first, counters, limit)) is not None
        }
        values.states |= {alias: f"{name}/state" for name, listed in lists.items() if listed.ahead for alias in listed.aliases}
        self.function.write(self.steps, block, values)
        states, single, collected = list[Variable](), list[Variable](), list[tuple[str, str]]()
        for (name, after, first), final in zip(self._variables(), rule.outputs, strict=True):
            dtype, listed = self.function.kinds.get(name), lists.get(name)
            if listed is None:
                states.append(Variable(first, dtype, name, after, final))
                continue
            if listed.single:
                single.append(Variable(first, self.function.kinds.get(listed.element), name, listed.element, final))
                continue
            element = block.add("Squeeze", [listed.element], axes=[0]) if listed.wide else listed.element
            if dtype is not None and dtype != self.function.kinds.get(listed.element, dtype):
                element = block.add("Cast", [element], to=dtype)
            each = f"{final}/steps" if listed.ahead else final
            collected.append((element, each))
            if listed.ahead:
                zero = outer.constant(np.zeros((), np.int64))
                begins = outer.add("Gather", [first, zero], axis=0)
                states.append(Variable(begins, dtype, values.states[name], element, ""))
                self.function.behind[final] = each
        going, goes_on = (target.constant(np.array(True)) for target in (outer, block))
        outer.operator = rule.operation.type
        rule.inputs = [limit]
        count = outer.add("Reshape", [rule.wide(0), outer.constant(np.zeros(0, np.int64))])
        LoopLowering(label, going, goes_on, states, single, collected, count).write(outer, block)
        for (name, _, first), final in zip(self._variables(), rule.outputs, strict=True):
            if name in self.function.dims and name in values.states:
                begun = outer.add("Slice", [first], axes=[0], starts=[0], ends=[1])
                outer.add("Concat", [begun, f"{final}/steps"], [final], axis=0)
        return True

    def _variables(self) -> list[tuple[str, str, str]]:
        """Return the names of the variables in a step, what they become, and what they are at first."""
        return list(zip(self.inside, self.after, self.first, strict=True))

    def _counts(self, name: str, after: str, first: str) -> bool:
        """Return whether a variable begins with zero and becomes itself plus one."""
        maker, zero = self.makers.get(after), self.rule.array(first)
        if maker is None or maker.type != "add" or zero is None or zero.size != 1 or zero.any():
            return False
        operands = [*maker.inputs.get("x", ()), *maker.inputs.get("y", ())]
        others = [self.rule.array(each) for each in operands if each != name]
        return (
            len(others) == 1
            and others[0] is not None
            and others[0].size == 1
            and others[0].dtype.kind == "i"
            and int(others[0].reshape(())) == 1
        )

    def _limit(self, counters: set[str]) -> str:
        """Return the number below which counters go on; "" where something else decides when the loop ends."""
        names = dict(zip([message.text(1) for message in self.going.every(1)], self.inside, strict=False))
        waiting, limits = self.going.texts(2), set[str]()
        for _ in range(16):
            if not waiting:
                break
            maker = self.makers.get(waiting.pop())
            operands = [next(iter(maker.inputs.get(key, ())), "") for key in "xy"] if maker is not None else []
            if maker is not None and maker.type == "logical_and" and all(isinstance(each, str) for each in operands):
                waiting += [str(each) for each in operands]
                continue
            if maker is None or maker.type != "less" or names.get(str(operands[0])) not in counters:
                return ""
            bound = self.rule.name_of(operands[1])
            limits.add(self._outside(names.get(bound, bound)))
        return limits.pop() if len(limits) == 1 and not waiting else ""

    def _outside(self, name: str) -> str:
        """Return the value around the loop that a variable is at every step; "" for one that steps change."""
        for inside, after, first in self._variables():
            if name == inside:
                return first if after == inside else ""
        return name

    def _listed(self, name: str, after: str, first: str, counters: set[str], limit: str) -> _Listed | None:
        """Return the element that each step puts in its place of a variable; None for a variable that is otherwise used."""
        maker = self.makers.get(self._uncast(after))
        if maker is not None and maker.type == "list_write":
            return self._written(name, maker, first, counters, limit)
        aliases = {name} | {
            each.outputs[0]
            for each in self.function.values.operations_in(self.steps)
            if each.type in _CAST and each.inputs.get("x") == [name]
        }
        if maker is None or maker.type != "scatter" or next(iter(maker.inputs.get("data", ())), "") not in aliases:
            return None
        rule = MilRule(self.function, maker, self.rule.block, None)
        index, updates, mode = rule.above_zero(rule.value("indices")), rule.value("updates"), rule.word("mode", "add")
        ahead = 0 if index in counters else 1
        if rule.integer("axis", 0) or mode not in ("add", "update") or (ahead and not self._is_next(index, counters)):
            return None
        for reader in self.function.values.operations_in(self.steps):
            # Of its shape, programs make the place from the end that no counter needs.
            if reader is maker or reader.type == "shape" or aliases & set(reader.outputs) or not aliases & set(reader.values()):
                continue
            if reader.type != "gather" or not ahead or next(iter(reader.inputs.get("x", ())), "") not in aliases:
                return None
        if not self._as_long(first, limit, ahead) or (mode == "add" and not self._is_empty(self._uncast(first), ahead)):
            return None
        source = self.makers.get(updates)
        axes = rule.array(next(iter(source.inputs.get("axes", ())), "")) if source is not None and source.type == "expand_dims" else None
        if source is not None and axes is not None and axes.tolist() == [0]:
            element = source.inputs.get("x", [""])[0]
            return _Listed(element, False, ahead, aliases) if isinstance(element, str) else None
        return _Listed(updates, True, ahead, aliases)

    def _written(self, name: str, maker: ProgramOperation, first: str, counters: set[str], limit: str) -> _Listed | None:
        """Return the element that each step puts in its place of a list, or in the only one."""
        rule, source = MilRule(self.function, maker, self.rule.block, None), self.makers.get(first)
        others = [each for each in self.function.values.operations_in(self.steps) if each is not maker and name in each.values()]
        if source is None or source.type != "make_list" or rule.value("ls") != name or others:
            return None
        index, length = rule.value("index"), MilRule(self.function, source, self.rule.block, None).value("init_length")
        if index in counters:
            places, steps = (self.rule.array(each) for each in (length, limit))
            alike = length == limit or (places is not None and steps is not None and np.array_equal(places, steps))
            return _Listed(rule.value("value"), False, 0, {name}) if alike else None
        place = rule.array(index)
        only = self.function.sizes.get(first) == 1 and place is not None and not place.any()
        return _Listed(rule.value("value"), False, 0, {name}, single=True) if only else None

    def _uncast(self, name: str) -> str:
        return uncast(self.function.values, name)

    def _is_next(self, index: str, counters: set[str]) -> bool:
        """Return whether a value is what a counter is in the next step."""
        return any(name in counters and after == index for name, after, _ in self._variables())

    def _as_long(self, first: str, limit: str, ahead: int) -> bool:
        """Return whether a list is as long as the loop has steps, with the places that lie before them."""
        first = self._uncast(first)
        lengths, steps = self.rule.lengths(first), self.rule.array(limit)
        if lengths and lengths[0] >= 0 and steps is not None:
            return steps.size == 1 and int(steps.reshape(())) + ahead == lengths[0]
        maker = self.makers.get(first)
        if maker is not None and ahead and maker.type == "concat":
            parts = maker.inputs.get("values", ())
            if len(parts) != 2:
                return False
            begun, rest = map(str, parts)
            return (self.rule.lengths(begun) or [0])[0] == 1 and self._as_long(rest, limit, 0)
        if maker is None or ahead or maker.type != "fill":
            return False
        shape = self.makers.get(str(next(iter(maker.inputs.get("shape", ())), "")))
        return shape is not None and shape.type == "concat" and shape.inputs.get("values", [""])[0] == limit

    def _is_empty(self, first: str, ahead: int) -> bool:
        """Return whether the places of a list that steps fill hold zeros at first."""
        array, maker = self.rule.array(first), self.makers.get(first)
        if array is not None:
            return not array[ahead:].any()
        if maker is not None and maker.type == "concat" and ahead:
            return all(self.function.values.zero(part) for part in maker.inputs.get("values", ())[1:])
        return self.function.values.zero(first)


def _reduced(kind: str) -> Callable[[MilRule], bool]:
    return lambda rule: rule.reduce(kind)


_OF_LENGTHS = {
    "add", "cast", "concat", "expand_dims", "floor_div", "gather", "maximum", "minimum", "mul", "reshape", "slice_by_index", "squeeze",
}  # fmt: skip
_RULES: Mapping[str, Callable[[MilRule], bool]] = {
    "avg_pool": lambda rule: rule.pooled("AveragePool"),
    "batch_norm": lambda rule: rule.normed("BatchNormalization"),
    "cast": MilRule.cast,
    "clip": lambda rule: rule.add("Clip", rule.inputs, min=rule.real("alpha", -math.inf), max=rule.real("beta", math.inf)),
    "concat": MilRule.joined,
    "conv": MilRule.convolved,
    "conv_transpose": MilRule.spread,
    "cumsum": lambda rule: rule.add(
        "CumSum",
        [*rule.inputs, rule.block.constant(np.array(rule.integer("axis", 0), np.int64))],
        exclusive=rule.integer("exclusive", 0),
        reverse=rule.integer("reverse", 0),
    ),
    "einsum": lambda rule: rule.add("Einsum", rule.inputs, equation=rule.word("equation", "")),
    "elu": lambda rule: rule.add("Elu", rule.inputs, alpha=rule.real("alpha", 1.0)),
    "expand_dims": lambda rule: rule.widened(rule.inputs[0], rule.listed("axes")),
    "exp2": lambda rule: rule.add("Pow", [rule.constant(2.0), *rule.inputs]),
    "fill": MilRule.filled,
    "fill_like": lambda rule: rule.filled_like(rule.real("value", 0.0), rule.function.kinds.get(rule.outputs[0])),
    "flatten2d": lambda rule: rule.add("Flatten", rule.inputs, axis=rule.integer("axis", 1)),
    "floor_div": MilRule.rounded_quotient,
    "gather": MilRule.gathered,
    "gather_along_axis": lambda rule: rule.add("GatherElements", rule.inputs, axis=rule.integer("axis", 0)),
    "gelu": lambda rule: rule.gelu(("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION").index(rule.word("mode", "EXACT"))),
    "instance_norm": lambda rule: rule.normed("InstanceNormalization"),
    "inverse": lambda rule: rule.add("Reciprocal", [rule.raised(1e-4)]),
    "layer_norm": MilRule.layer_norm,
    "leaky_relu": lambda rule: rule.add("LeakyRelu", rule.inputs, alpha=rule.real("alpha", 0.01)),
    "linear": MilRule.linear,
    "linear_activation": lambda rule: rule.add("Identity", [rule.affine(rule.inputs[0], rule.real("alpha", 1.0), rule.real("beta", 0.0))]),
    "list_gather": MilRule.spread_out,
    "list_read": MilRule.read_at,
    "list_scatter": MilRule.spread_out,
    "log": lambda rule: rule.add("Log", [rule.raised(1e-45)]),
    "matmul": MilRule.multiplied,
    "max_pool": lambda rule: rule.pooled("MaxPool"),
    "mod": MilRule.remainder,
    "not_equal": MilRule.differs,
    "one_hot": MilRule.marked,
    "pad": MilRule.around,
    "prelu": lambda rule: rule.per_channel_slopes(rule.array(rule.value("alpha")), rule.rank(rule.inputs[0])),
    "reduce_argmax": lambda rule: rule.place("ArgMax", INTEGER, rule.integer("axis", -1), rule.integer("keep_dims", 0)),
    "reduce_argmin": lambda rule: rule.place("ArgMin", INTEGER, rule.integer("axis", -1), rule.integer("keep_dims", 0)),
    "reduce_l1_norm": _reduced("ReduceL1"),
    "reduce_l2_norm": _reduced("ReduceL2"),
    **{f"reduce_{word.lower()}": _reduced(f"Reduce{word}") for word in ("Max", "Mean", "Min", "Prod", "Sum")},
    "reduce_sum_square": _reduced("ReduceSumSquare"),
    "relu6": lambda rule: rule.add("Clip", rule.inputs, min=0.0, max=6.0),
    # A length of 0 stands for the value's own in both.
    "reshape": lambda rule: rule.add("Reshape", [rule.inputs[0], rule.wide(1)]),
    "reverse": MilRule.turned,
    "reverse_sequence": lambda rule: rule.turned_by_lengths(rule.integer("seq_axis", 0), rule.integer("batch_axis", 0)),
    "rsqrt": lambda rule: rule.add("Reciprocal", [rule.block.add("Sqrt", [rule.raised(1e-12)])]),
    "scaled_tanh": lambda rule: rule.add(
        "Mul", [rule.block.add("Tanh", [rule.affine(rule.inputs[0], rule.real("beta", 1.0), 0.0)]), rule.constant(rule.real("alpha", 1.0))]
    ),
    "shape": lambda rule: rule.shape(INTEGER),
    "sigmoid_hard": lambda rule: rule.add("HardSigmoid", rule.inputs, alpha=rule.real("alpha", 0.2), beta=rule.real("beta", 0.5)),
    "silu": lambda rule: rule.add("Mul", [*rule.inputs, rule.block.add("Sigmoid", rule.inputs)]),
    "slice_by_index": MilRule.by_index,
    "slice_by_size": MilRule.parts,
    "softmax": lambda rule: rule.softmax_along("Softmax", rule.rank(rule.inputs[0]), rule.integer("axis", -1)),
    "split": MilRule.taken_apart,
    "square": lambda rule: rule.add("Mul", [*rule.inputs, *rule.inputs]),
    "squeeze": MilRule.squeezed,
    "stack": lambda rule: rule.stack(rule.integer("axis")),
    "threshold": lambda rule: rule.add("Max", [*rule.inputs, rule.constant(rule.real("alpha", 0.0))]),
    "tile": lambda rule: rule.add("Tile", [rule.inputs[0], rule.wide(1)]),
    "topk": MilRule.best,
    "transpose": lambda rule: rule.transpose(rule.listed("perm")),
    "while_loop": lambda rule: rule.loop is None and MilLoop(rule).write(),
}
