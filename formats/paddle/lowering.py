"""Paddle's programs in the common operations, one rule for each operator, by its names in Fluid, Paddle 2 and Paddle 3.

Of what an operator reads and states, Fluid and Paddle 2 name the parameters; in Paddle 3 they have places instead, and axes and shapes
are values. Operators may write over what they read: each time, the variable is another value.

Source: paddle/fluid/operators (1.8, 2.6) and paddle/phi/ops/yaml/ops.yaml and op_compat.yaml (2.6, 3.3), each operator by its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.malformed import Entries, Fields
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.paddle.program import ProgramOperator, StatedProgram
from rnnconvert.graphs.graph import CallSizes
from rnnconvert.graphs.program.lowering import BEGIN, OPSET, WIDE, Block, CheckedRule
from rnnconvert.graphs.program.operations import Body, Declared, Program, StoredNumbers
from rnnconvert.models.units import single_layers
from rnnconvert.recognition.flow import FINAL_WORDS, RecurrentCall
from rnnconvert.recognition.stacked import SingleCall, StackOperator

DOMAIN = "paddle"
FED = ("feed", "data")
_DATA = ("X", "Input", "0")
"""The parameter of an operator's data, of which some have several."""
_TYPES: Mapping[Any, np.dtype[Any]] = {
    **dict(enumerate(map(np.dtype, ("bool", "i2", "i4", "i8", "f2", "f4", "f8")))), 20: np.dtype("u1"), 21: np.dtype("i1"), 22: BFLOAT16,
    **{name: np.dtype(name) for name in ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")},
    "bfloat16": BFLOAT16,
}  # fmt: skip
"""Element types by the numbers of VarType.Type, and by Paddle 3's words."""
_SAME = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softsign": "Softsign", "exp": "Exp", "log": "Log", "abs": "Abs", "sqrt": "Sqrt",
    "sign": "Sign", "floor": "Floor", "ceil": "Ceil", "erf": "Erf", "reciprocal": "Reciprocal", "sin": "Sin", "cos": "Cos",
    "logical_not": "Not", "assign": "Identity", "share_data": "Identity", "share_data_": "Identity", "memcpy_d2h": "Identity",
    "memcpy_h2d": "Identity", "relu_": "Relu", "sigmoid_": "Sigmoid", "tanh_": "Tanh", "assign_": "Identity",
}  # fmt: skip
"""Operators that are a common one with the same input."""
_PAIRS = {
    "add": "Add", "sub": "Sub", "subtract": "Sub", "mul": "Mul", "multiply": "Mul", "div": "Div", "divide": "Div", "max": "Max",
    "maximum": "Max", "min": "Min", "minimum": "Min", "pow": "Pow",
}  # fmt: skip
"""Operators of two values; in Paddle 2 they begin with "elementwise_", and an axis may say where the second one's axes stand."""
_COMPARED = {"equal": "Equal", "greater_than": "Greater", "greater_equal": "GreaterOrEqual", "less_than": "Less",
             "less_equal": "LessOrEqual", "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}  # fmt: skip
_REDUCED = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}
_HINTS = frozenset(
    {"op_role", "op_namescope", "op_callstack", "op_device", "op_role_var", "with_quant_attr", "struct_name", "stop_gradient", "place",
     "place_type", "force_cpu", "use_mkldnn", "use_onednn", "mkldnn_data_type", "use_cudnn", "cudnn_exhaustive_search", "exhaustive_search",
     "workspace_size_MB", "is_test", "momentum", "seed", "fix_seed", "infer_flags", "use_global_stats", "name", "col", "sparse",
     "is_sparse",
     "is_distributed", "remote_prefetch", "use_quantizer", "persistable", "in_dtype", "use_addto", "num", "is_custom_op"}
)  # fmt: skip
"""Attributes that change no output of a trained model: hints, those of training, and what the outputs show."""
_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "trainable_statistics": (False,), "adaptive": (False,), "Scale_x": (1.0,), "Scale_y": (1.0,), "Scale_out": (1.0,),
    "x_data_format": ("",), "y_data_format": ("",), "head_number": (1,), "fuse_relu": (False,), "fuse_activation": ("",),
    "fuse_relu_before_depthwise_conv": (False,), "fuse_residual_connection": (False,), "force_fp32_output": (False,),
    "padding_algorithm": ("EXPLICIT",), "out_dtype": (-1,), "epsilon_inside": (True,), "flatten": (False,), "grad_inplace": (False,),
    "rounding_mode": ("",), "overwrite": (True,),
}  # fmt: skip
"""Attributes with the values at which they change nothing."""
_LARGEST = 1 << 16
"""The most numbers of a constant that a shape makes of one number."""


class ProgramRule(CheckedRule):
    """One operator, and the graph that it is written into."""

    def __init__(self, lowering: ProgramLowering, operator: ProgramOperator, outputs: Sequence[str], block: Block) -> None:
        self.lowering, self.operator = lowering, operator
        self.stated: dict[str, Any] = {**operator.attributes, **operator.reals, **operator.lists}
        self._read = set(_HINTS)
        self.args = Fields({word: Entries(map(lowering.name, names)) for word, names in operator.inputs.items()})
        first = next((word for word in _DATA if self.args.get(word)), "")
        super().__init__(block, self.args.get(first, Entries()), Entries(outputs), outputs[0] if outputs else "")

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The element type of what it gives first, if the program states it."""
        return self.lowering.dtypes.get(self.outputs[0]) if self.outputs else None

    def numbers(self, index: int) -> Array | None:
        return self.block.arrays.get(self.inputs[index]) if index < len(self.inputs) else None

    def constant(self, number: float) -> str:
        return self.block.constant(np.array(number, self.dtype or np.float32))

    def unread(self) -> Mapping[str, object]:
        stated = {**dict.fromkeys(self.operator.others, "..."), **self.stated}
        return {name: value for name, value in stated.items() if name not in self._read and value not in (*_NEUTRAL.get(name, ()), ())}

    def write(self) -> None:
        """Write the operator; one of another domain where it has no equivalent, or an attribute that is not read."""
        kind, reads = self.operator.type, [name for names in self.args.values() for name in names]
        self.write_checked(_RULES.get(kind), kind, reads, DOMAIN)

    # What it reads and states

    def argument(self, parameter: str, place: int = -1) -> Sequence[str]:
        """Return the values that it reads as a parameter, or at a place; none where it has none."""
        values: Sequence[str] = self.args.get(parameter) or self.args.get(str(place)) or Entries()
        return values

    def stated_or_read(self, keys: Sequence[str], parameter: str = "", place: int = -1) -> list[int] | None:
        """Return whole numbers that it states, or reads as constants; None for those that a run decides."""
        values = self.argument(parameter, place)
        self._read |= {*keys}
        if values:
            arrays = [self.block.arrays[value].reshape(-1) for value in values if value in self.block.arrays]
            return [int(number) for array in arrays for number in array] if len(arrays) == len(values) else None
        stated = next((self.stated[key] for key in keys if key in self.stated), ())
        listed = [stated] if isinstance(stated, int | float) else list(stated)
        if any(number != int(number) for number in listed):
            raise ValueError(f"{keys[0]} is not whole")
        return [int(number) for number in listed]

    def integers_of(self, keys: Sequence[str], parameter: str = "", place: int = -1) -> list[int]:
        """Return whole numbers likewise. Raises ValueError for those that a run decides."""
        numbers = self.stated_or_read(keys, parameter, place)
        if numbers is None:
            raise ValueError(f"a run decides its {keys[0]}")
        return numbers

    def integer(self, keys: Sequence[str], default: int, parameter: str = "", place: int = -1) -> int:
        """Return one whole number."""
        return next(iter(self.integers_of(keys, parameter, place)), default)

    def real(self, keys: Sequence[str], default: float, parameter: str = "", place: int = -1) -> float:
        """Return a number that it states, or reads as a constant."""
        self._read |= {*keys}
        values = self.argument(parameter, place)
        if values:
            return float(np.reshape(Fields(self.block.arrays)[values[0]], ()))
        return float(next((self.stated[key] for key in keys if key in self.stated), default))

    def flag(self, keys: Sequence[str], default: bool = False) -> bool:
        """Return a truth."""
        self._read |= {*keys}
        return bool(next((self.stated[key] for key in keys if key in self.stated), default))

    def word(self, keys: Sequence[str], default: str) -> str:
        """Return a text."""
        self._read |= {*keys}
        return str(next((self.stated[key] for key in keys if key in self.stated), default))

    def lengths(self, value: str = "") -> Sequence[int]:
        """Return the lengths of a value's axes, -1 for one that is open. Raises KeyError where the program states none."""
        return Entries(self.lowering.shapes[value or self.inputs[0]])

    @property
    def rank(self) -> int:
        """How many axes the data have."""
        return len(self.lengths())

    def numbers_value(self, keys: Sequence[str], parameter: str, place: int, several: str = "") -> str:
        """Return whole numbers that it states or reads as a value of 64 bits.

        several  the parameter of such values, one for each number
        """
        parts = self.argument(several) if several else []
        values = parts or self.argument(parameter, place)
        if not values:
            return self.whole_numbers(self.integers_of(keys))
        self._read |= {*keys}
        if len(values) == 1 and not parts:
            return self.block.add("Cast", values, to=WIDE)
        rows = [self.block.add("Reshape", [value, self.whole_numbers([-1])]) for value in values]
        return self.block.add("Concat", [self.block.add("Cast", [row], to=WIDE) for row in rows], axis=0)

    # Operators

    def pair(self, kind: str) -> bool:
        """Write an operator of two values; the second one's axes stand at the end of the first one's, or from an axis on."""
        left, right = self.argument("X", 0)[0], self.argument("Y", 1)[0]
        axis, ranks = self.integer(["axis"], -1), [len(self.lowering.shapes.get(value, ())) for value in (left, right)]
        if axis >= 0 and axis + ranks[1] < ranks[0]:
            right = self.block.add("Unsqueeze", [right], axes=list(range(ranks[1], ranks[0] - axis)))
        integers = self.dtype is not None and self.dtype.kind != "f"
        return not (integers and kind in ("Div", "Pow")) and self.add(kind, [left, right])

    def floor_divided(self) -> bool:
        """Write a quotient that is rounded down: of whole numbers what is left of the first one is taken off before."""
        left, right = self.argument("X", 0)[0], self.argument("Y", 1)[0]
        if self.dtype is not None and self.dtype.kind == "f":
            return self.add("Floor", [self.block.add("Div", [left, right])])
        return self.add("Div", [self.block.add("Sub", [left, self.block.add("Mod", [left, right])]), right])

    def compared(self, kind: str) -> bool:
        """Write where two values compare."""
        self._read |= {"axis"} if self.stated.get("axis", -1) == -1 else set()
        pair = [*self.argument("X", 0), *self.argument("Y", 1)]
        return self.add("Not", [self.block.add("Equal", pair)]) if kind == "NotEqual" else self.add(kind, pair)

    def of_bits(self, kind: str) -> bool:
        """Write an operator of bits, where these are truths."""
        values = [*self.argument("X", 0), *self.argument("Y", 1)]
        return self.dtype == bool and self.add(kind, values)

    def scaled(self) -> bool:
        """Write a factor and a shift."""
        factor, shift = self.real(["scale"], 1.0, "ScaleTensor", 1), self.real(["bias"], 0.0)
        shift = shift if self.flag(["bias_after_scale"], True) else shift * factor
        return self.add("Identity", [self.affine(self.inputs[0], factor, shift)])

    def power(self) -> bool:
        """Write a value to the power of a number."""
        return self.add("Pow", [self.inputs[0], self.constant(self.real(["factor", "y"], 1.0, "FactorTensor", 1))])

    def with_slope(self, kind: str, keys: Sequence[str], default: float, name: str = "alpha") -> bool:
        """Write a function with a constant."""
        return self.add(kind, self.inputs[:1], **{name: self.real(keys, default)})

    def softplus(self) -> bool:
        """Write a Softplus; beyond its threshold the value itself is as near as float32 can tell."""
        return self.real(["beta"], 1.0) == 1 and self.real(["threshold"], 20.0) >= 15 and self.add("Softplus", self.inputs[:1])

    def swish(self) -> bool:
        """Write a value times its sigmoid."""
        return self.real(["beta"], 1.0) == 1 and self.add("Mul", [self.inputs[0], self.block.add("Sigmoid", self.inputs[:1])])

    def hard_swish(self) -> bool:
        """Write a hard swish with its own constants."""
        constants = [self.real([key], level) for key, level in (("threshold", 6.0), ("scale", 6.0), ("offset", 3.0))]
        return constants == [6.0, 6.0, 3.0] and self.add("HardSwish", self.inputs[:1])

    def selu(self) -> bool:
        """Write a Selu with its own constants."""
        constants = [self.real([key], level) for key, level in (("alpha", 1.6732632), ("scale", 1.050701))]
        return np.allclose(constants, [1.6732632, 1.050701], rtol=1e-6) and self.add("Selu", self.inputs[:1])

    def clipped(self) -> bool:
        """Write bounds."""
        low, high = self.real(["min"], -np.inf, "Min", 1), self.real(["max"], np.inf, "Max", 2)
        return self.add("Clip", self.inputs[:1], min=low, max=high)

    def sloped(self) -> bool:
        """Write a PReLU with a slope for all numbers, or for each channel."""
        slopes = self.block.arrays.get(next(iter(self.argument("Alpha", 1)), ""))
        mode, layout = self.word(["mode"], "all"), self.word(["data_format"], "NCHW")
        fits = mode == "all" or (mode == "channel" and layout in ("NCHW", "NCL", "NC", "NCDHW"))
        return fits and slopes is not None and self.per_channel_slopes(slopes.reshape(-1), self.rank)

    def softmax(self, kind: str) -> bool:
        """Write a softmax along an axis."""
        axis = self.integer(["axis"], -1)
        self._read |= {"data_format"}
        return self.softmax_along(kind, self.rank, axis % self.rank)

    def multiplied(self) -> bool:
        """Write a product of matrices, or of stacks of them; of fluid's matmul with a factor."""
        left, right = self.argument("X", 0)[0], self.argument("Y", 1)[0]
        turns = self.flag(["trans_x", "transpose_X", "transpose_x"]), self.flag(["trans_y", "transpose_Y", "transpose_y"])
        ranks, self.inputs = [len(self.lowering.shapes[value]) for value in (left, right)], [left, right]
        return self.real(["alpha"], 1.0) == 1 and min(ranks) > 1 and self.product(*turns, ranks)

    def flat_product(self) -> bool:
        """Write fluid's product, which takes the first axes of a value as rows and the others as columns."""
        left, right = self.argument("X", 0)[0], self.argument("Y", 1)[0]
        rows, columns = self.integer(["x_num_col_dims"], 1), self.integer(["y_num_col_dims"], 1)
        if columns != 1 or len(self.lowering.shapes[right]) != 2:
            return False
        if rows == len(self.lowering.shapes[left]) - 1:
            return self.add("MatMul", [left, right])
        flat = self.block.add("Flatten", [left], axis=rows)
        return rows == 1 and self.add("MatMul", [flat, right])

    def _windows(self, axes: int) -> dict[str, Any]:
        layout, pads = self.word(["data_format"], "NCHW"), self.integers_of(["paddings"])
        algorithm, strides = self.word(["padding_algorithm"], "EXPLICIT"), self.integers_of(["strides"]) or [1] * axes
        if layout not in ("NCHW", "NCDHW", "AnyLayout", "NCL") or algorithm not in ("EXPLICIT", "VALID", "SAME"):
            raise ValueError("its channels are last")
        if algorithm != "EXPLICIT":
            return {"strides": strides, "auto_pad": {"SAME": "SAME_UPPER"}.get(algorithm, algorithm)}
        pads = [*pads[::2], *pads[1::2]] if len(pads) == 2 * axes else [*pads, *pads]
        return {"strides": strides, "pads": pads}

    def convolved(self, turned: bool) -> bool:
        """Write a convolution, or a transposed one."""
        weight, axes = self.argument("Filter", 1)[0], self.rank - 2
        settings = self._windows(axes) | {"group": self.integer(["groups"], 1), "dilations": self.integers_of(["dilations"]) or [1] * axes}
        settings["kernel_shape"] = list(self.lowering.shapes[weight])[2:]
        if settings.get("auto_pad") == "SAME_UPPER" and {*settings["dilations"]} != {1}:
            return False
        if self.argument("ResidualData") or self.argument("Bias"):
            return False
        if turned:
            adj = self.integers_of(["output_padding"])
            settings |= {"output_padding": adj} if any(adj) else {}
            sizes = self.stated_or_read(["output_size"], "OutputSizeTensor", 2)
            if sizes is None or sizes or "auto_pad" in settings:
                return False
        return self.add("ConvTranspose" if turned else "Conv", [self.inputs[0], weight], **settings)

    def pooled(self) -> bool:
        """Write the largest number, or the mean, of windows over the axes of space, or of all of them."""
        kind = Fields({"max": "MaxPool", "avg": "AveragePool"})[self.word(["pooling_type"], "max")]
        size, everywhere = self.integers_of(["ksize", "kernel_size"], "", 1), self.flag(["global_pooling"])
        settings, ceil, inside = self._windows(len(size)), self.flag(["ceil_mode"]), self.flag(["exclusive"], True)
        if everywhere or (self.flag(["adaptive"]) and {*size} == {1}):
            return self.add(f"Global{kind}", self.inputs[:1])
        settings |= {"kernel_shape": size} | ({"ceil_mode": 1} if ceil else {})
        pads = settings.get("pads", [1, 0] if settings.get("auto_pad") == "SAME_UPPER" else [])
        if kind == "AveragePool" and not inside and pads[: len(pads) // 2] != pads[len(pads) // 2 :]:
            return False  # only what lies before the first number is counted at the end, too
        settings |= {"count_include_pad": int(not inside)} if kind == "AveragePool" else {}
        return not self.flag(["adaptive"]) and self.add(kind, self.inputs[:1], **settings)

    def batch_normalised(self) -> bool:
        """Write a batch norm by its stored means and variances."""
        places = (("Scale", 3), ("Bias", 4), ("Mean", 1), ("Variance", 2))
        statistics = [value for word, place in places for value in self.argument(word, place)]
        layout, self.outputs = self.word(["data_layout", "data_format"], "NCHW"), [self.lowering.output(self.operator, "Y")]
        fits = len(statistics) == 4 and (layout in ("NCHW", "NC", "NCL", "NCDHW", "AnyLayout") or self.rank == 2)
        settings = {"epsilon": self.real(["epsilon"], 1e-5)}
        return fits and self.add("BatchNormalization", [self.inputs[0], *statistics], **settings)

    def layer_normalised(self) -> bool:
        """Write a layer norm of the axes from one on."""
        first, epsilon = self.integer(["begin_norm_axis"], 1), self.real(["epsilon"], 1e-5)
        scale, bias = self.argument("Scale", 1), self.argument("Bias", 2)
        self.outputs = [self.lowering.output(self.operator, "Y")]
        if first != self.rank - 1:
            return False
        if not scale and not bias:
            return self.centred([-1], epsilon, True)
        width = self.lengths()[-1]
        scale = scale or [self.block.constant(np.ones(width, np.float32))]
        return self.add("LayerNormalization", [self.inputs[0], *scale, *bias], axis=-1, epsilon=epsilon)

    def instance_normalised(self) -> bool:
        """Write an instance norm."""
        parts = [value for word, place in (("Scale", 1), ("Bias", 2)) for value in self.argument(word, place)]
        self.outputs, self._read = [self.lowering.output(self.operator, "Y")], self._read | {"data_format"}
        return len(parts) == 2 and self.add("InstanceNormalization", [self.inputs[0], *parts], epsilon=self.real(["epsilon"], 1e-5))

    def dropped(self) -> bool:
        """Write a dropout that is off, of the kind that then scales its input or not."""
        mode = self.word(["dropout_implementation", "mode"], "downgrade_in_infer")
        rate = self.real(["dropout_prob", "p"], 0.5, "", 2)
        self.outputs = self.outputs[:1]
        factor = 1.0 if mode == "upscale_in_train" else 1 - rate
        self._read |= {"axis"}
        return bool(self.stated.get("is_test")) and self.add("Identity", [self.affine(self.inputs[0], factor, 0.0)])

    def embedded(self, column: bool) -> bool:
        """Write rows of a matrix by their numbers; that of padding must be zero, as it counts so.

        column  whether the numbers have a last axis of length 1
        """
        ids, weight = self.argument("Ids", 0)[0], self.argument("W", 1)[0]
        padding, rows = self.integer(["padding_idx"], -1), self.block.arrays.get(weight)
        if padding != -1 and (rows is None or np.asarray(rows[padding]).any()):
            return False
        if column:
            ids = self.block.add("Squeeze", [ids], axes=[-1])
        return self.add("Gather", [weight, ids], axis=0)

    def reduced_to(self, kind: str) -> bool:
        """Write a reduction of the numbers along axes."""
        axes, keep = self.integers_of(["dim", "axis"], "", 1), self.flag(["keep_dim", "keepdim"])
        everything = self.flag(["reduce_all"]) or not axes
        stated, before = self.stated.get("out_dtype", self.stated.get("dtype", -1)), self.lowering.dtypes.get(self.inputs[0])
        if str(stated).lower().startswith(("-1", "undefined")) or _TYPES.get(stated) == before:
            self._read |= {"dtype", "out_dtype"}
        if kind == "ReduceMean" and self.dtype is not None and self.dtype.kind != "f":
            return False
        return self.add(kind, self.inputs[:1], keepdims=int(keep), **({} if everything else {"axes": axes}))

    def placed(self, kind: str) -> bool:
        """Write the place of the largest or smallest number along an axis."""
        axis, keep = self.integers_of(["axis"], "Axis", 1), self.flag(["keepdims"])
        to = _TYPES.get(self.stated.get("dtype", 3), WIDE)
        self._read |= {"dtype"}
        return len(axis) == 1 and not self.flag(["flatten"]) and self.place(kind, to, axis[0], int(keep))

    def reshaped(self) -> bool:
        """Write elements in another shape, in which 0 is the value's own length."""
        return self.first().add("Reshape", [self.inputs[0], self.numbers_value(["shape"], "Shape", 1, "ShapeTensor")])

    def first(self) -> ProgramRule:
        """Return the rule, which gives its first output alone: others serve training."""
        names = [self.lowering.output(self.operator, word) for word in ("Out", "Y", "Output", "0") if self.operator.outputs.get(word)]
        self.outputs = names[:1] or self.outputs[:1]
        return self

    def squeezed(self) -> bool:
        """Write axes of length 1 away: of those that are named, those that are that long."""
        axes = [axis % self.rank for axis in self.integers_of(["axes", "axis"], "", 1) or range(self.rank)]
        lengths = self.lengths()
        if any(lengths[axis] == -1 for axis in axes):
            return False
        gone = [axis for axis in axes if lengths[axis] == 1]
        return self.first().add("Squeeze" if gone else "Identity", self.inputs[:1], **({"axes": gone} if gone else {}))

    def unsqueezed(self) -> bool:
        """Write further axes of length 1, one after the other."""
        value, self._read = self.inputs[0], self._read | {"axes", "axis"}
        axes = self.integers_of(["axes", "axis"], "AxesTensor", 1)
        for axis in axes:
            value = self.block.add("Unsqueeze", [value], axes=[axis])
        return self.first().add("Identity", [value])

    def flattened(self) -> bool:
        """Write some axes as one."""
        first, last = (axis % max(self.rank, 1) for axis in (self.integer(["start_axis"], 1), self.integer(["stop_axis"], -1)))
        lengths = list(self.lengths())
        if first <= last:
            words = [0] * first + [-1] + lengths[last + 1 :]
            if words.count(-1) == 1:
                return self.first().add("Reshape", [self.inputs[0], self.whole_numbers(words)])
        return False

    def flattened_from(self) -> bool:
        """Write all axes as two, as Paddle 1 does."""
        return self.first().add("Flatten", self.inputs[:1], axis=self.integer(["axis"], 1))

    def joined(self) -> bool:
        """Write values behind one another."""
        return self.add("Concat", self.inputs, axis=self.integer(["axis"], 0, "AxisTensor", 1))

    def parted(self, count: bool) -> bool:
        """Write parts of an axis.

        count  whether they are equal ones, whose number is stated
        """
        axis = self.integer(["axis"], 0, "AxisTensor", 1 if count else 2)
        sections = [] if count else self.integers_of(["sections"], "SectionsTensorList", 1)
        if not sections:
            return self.add("Split", self.inputs[:1], axis=axis)
        return self.split(sections, axis)

    def ranges(self) -> bool:
        """Write ranges of axes, some of which go away as single elements."""
        axes, gone = self.integers_of(["axes"]), self.integers_of(["decrease_axis"])
        steps = self.integers_of(["strides"], "StridesTensor", 3) or [1] * len(axes)
        starts, ends = (
            self.numbers_value([key], f"{word}Tensor", place, f"{word}TensorList")
            for key, word, place in (("starts", "Starts", 1), ("ends", "Ends", 2))
        )
        if min(steps, default=1) < 0:  # there, -1 is the place before the first one
            last = self.integers_of(["ends"], "EndsTensor", 2)
            ends = self.whole_numbers([BEGIN if (end, step < 0) == (-1, True) else end for end, step in zip(last, steps, strict=True)])
        along, by = self.whole_numbers(axes), self.whole_numbers(steps)
        gone = [] if gone == [-1] else gone
        value = [self.inputs[0], starts, ends, along, by]
        if not gone:
            return self.add("Slice", value)
        return self.add("Squeeze", [self.block.add("Slice", value)], axes=gone)

    def gathered(self) -> bool:
        """Write indices of an axis."""
        places = self.argument("Index", 1)
        axis = self.integer(["axis", "dim"], 0, "Axis", 2)
        if len(self.lowering.shapes.get(places[0], ())) == 2:  # (n, 1) counts as (n)
            places = [self.block.add("Squeeze", places, axes=[1])]
        return self.add("Gather", [self.inputs[0], *places], axis=axis)

    def cast(self) -> bool:
        """Write a change of the element type."""
        to = _TYPES.get(self.stated.get("out_dtype", self.stated.get("dtype")))
        self._read |= {"out_dtype", "dtype"}
        return to is not None and self.add("Cast", self.inputs[:1], to=to)

    def filled(self) -> bool:
        """Write one number in a shape."""
        stated = self.stated.get("str_value", "") or self.stated.get("value", 0)
        self._read |= {"str_value", "value", "dtype"}
        dtype = _TYPES.get(self.stated.get("dtype", 5))
        shape = self.stated_or_read(["shape"], "ShapeTensor", 1)
        if dtype is None or self.argument("ValueTensor"):
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            level = np.array(_number(stated), np.float64).astype(dtype)
        parts = self.argument("ShapeTensorList")
        if shape is not None and not parts and -1 not in shape and math.prod(shape) <= _LARGEST:
            self.block.constant(np.full(shape, level, dtype), self.outputs[0])
            return True
        lengths = self.numbers_value(["shape"], "ShapeTensor", 1, "ShapeTensorList")
        return self.add("ConstantOfShape", [lengths], value=StoredNumbers.of(level.reshape(1)))

    def filled_with(self) -> bool:
        """Write a number in a shape, both of which are values."""
        value, shape = (self.args[place][0] for place in ("0", "1"))
        self._read |= {"dtype"}
        level, lengths = self.block.arrays.get(value), self.block.add("Cast", [shape], to=WIDE)
        dtype = _TYPES.get(self.stated.get("dtype", ""), self.dtype)
        if level is None or level.size != 1 or dtype is None:
            return False
        return self.add("ConstantOfShape", [lengths], value=StoredNumbers.of(level.reshape(1).astype(dtype)))

    def filled_as(self) -> bool:
        """Write one number in the shape of a value."""
        self._read |= {"dtype"}
        return self.filled_like(self.real(["value"], 0.0, "", 1), self.dtype)

    def filled_for_batch(self) -> bool:
        """Write one number in a shape, of which one axis is as long as one of a value's."""
        stated = self.stated.get("str_value", "") or self.stated.get("value", 0)
        self._read |= {"str_value", "value", "dtype"}
        shape, source, target = self.integers_of(["shape"]), self.integer(["input_dim_idx"], 0), self.integer(["output_dim_idx"], 0)
        dtype = _TYPES.get(self.stated.get("dtype", 5))
        length = self.block.add("Slice", [self.block.add("Shape", self.inputs[:1])], axes=[0], starts=[source], ends=[source + 1])
        parts = [length if axis == target else self.whole_numbers([size]) for axis, size in enumerate(shape)]
        if dtype is None:
            return False
        level = StoredNumbers.of(np.array([_number(stated)], np.float64).astype(dtype))
        return self.add("ConstantOfShape", [self.block.add("Concat", parts, axis=0)], value=level)

    def listed(self) -> bool:
        """Write stated numbers."""
        keys = ("value", "values", "int64_values", "int32_values", "fp32_values", "bool_values")
        self._read |= {*keys, "dtype"}
        there = [self.stated[key] for key in keys if key in self.stated]
        numbers = next((numbers for numbers in there if numbers != ()), () if there else None)
        dtype, shape = _TYPES.get(self.stated.get("dtype", 3)), self.integers_of(["shape"])
        if dtype is None or not isinstance(numbers, tuple):
            return False
        self.block.constant(np.array(numbers, np.float64).astype(dtype).reshape(shape if "shape" in self.stated else -1), self.outputs[0])
        return True

    def tiled(self) -> bool:
        """Write a value several times along its axes."""
        return self.tile(self.integers_of(["repeat_times"], "RepeatTimes", 1), self.rank)

    def expanded(self) -> bool:
        """Write a value repeated along axes of length 1; -1 is the value's own length."""
        shape = self.stated_or_read(["shape"], "Shape", 1)
        if shape is None or self.argument("expand_shapes_tensor"):
            return False
        return self.add("Expand", [self.inputs[0], self.whole_numbers([1 if length == -1 else length for length in shape])])

    def expanded_as(self) -> bool:
        """Write a value repeated along axes of length 1 up to the lengths of another."""
        other = self.argument("Y", 1)
        self._read |= {"target_shape"}
        return self.add("Expand", [self.inputs[0], self.block.add("Shape", other)]) if other else False

    def chosen(self) -> bool:
        """Write one of two values where a truth holds."""
        parts = [self.argument(word, place)[0] for place, word in enumerate(("Condition", "X", "Y"))]
        return self.add("Where", parts)

    def marked(self) -> bool:
        """Write places as rows of zeros with a one."""
        depth, levels = self.integer(["depth", "num_classes"], 0, "depth_tensor", 1), self.block.constant(np.array([0, 1], np.float32))
        self._read |= {"dtype", "allow_out_of_range"}
        places = self.block.add("Cast", self.inputs[:1], to=WIDE)
        return self.dtype == np.float32 and self.add("OneHot", [places, self.block.constant(np.array(depth, np.int64)), levels], axis=-1)


def _number(stated: Any) -> float:
    """Return an attribute that is a number, or the text of one. Raises ValueError for another."""
    if not isinstance(stated, str | int | float):
        raise ValueError(f"{stated!r} is not a number")
    return float(stated)


def _pairing(kind: str) -> Callable[[ProgramRule], bool]:
    return lambda step: step.pair(kind)


def _comparing(kind: str) -> Callable[[ProgramRule], bool]:
    return lambda step: step.compared(kind)


def _reducing(kind: str) -> Callable[[ProgramRule], bool]:
    return lambda step: step.reduced_to(kind)


def _alike(kind: str) -> Callable[[ProgramRule], bool]:
    return lambda step: step.first().add(kind, step.inputs[:1])


_RULES: Mapping[str, Callable[[ProgramRule], bool]] = {
    **{name: _alike(kind) for name, kind in _SAME.items()},
    "floor_divide": ProgramRule.floor_divided,
    **{name: _pairing(kind) for name, kind in _PAIRS.items() if name not in ("mul", "max", "min", "pow", "sub", "div")},
    **{f"elementwise_{name}": _pairing(kind) for name, kind in _PAIRS.items()},
    **{name: _comparing(kind) for name, kind in {**_COMPARED, "not_equal": "NotEqual"}.items()},
    **{name: _reducing(kind) for name, kind in _REDUCED.items()},
    **{f"reduce_{name}": _reducing(kind) for name, kind in _REDUCED.items()},
    "sum": lambda step: step.add("Sum", step.inputs) if "X" in step.args else step.reduced_to("ReduceSum"),  # Paddle 2: of values
    "add_": _pairing("Add"),
    "add_n": lambda step: step.add("Sum", step.inputs),
    **dict.fromkeys(("arg_max", "argmax"), lambda step: step.placed("ArgMax")),
    **dict.fromkeys(("arg_min", "argmin"), lambda step: step.placed("ArgMin")),
    **dict.fromkeys(("assign_value", "assign_value_", "full_int_array"), ProgramRule.listed),
    **dict.fromkeys(("batch_norm", "batch_norm_"), ProgramRule.batch_normalised),
    **dict.fromkeys(("matmul", "matmul_v2", "bmm"), ProgramRule.multiplied),
    "bitwise_and": lambda step: step.of_bits("And"),
    "bitwise_not": lambda step: step.of_bits("Not"),
    "bitwise_or": lambda step: step.of_bits("Or"),
    "bitwise_xor": lambda step: step.of_bits("Xor"),
    "cast": ProgramRule.cast,
    "clip": ProgramRule.clipped,
    "concat": ProgramRule.joined,
    **dict.fromkeys(("conv2d", "depthwise_conv2d", "conv3d"), lambda step: step.convolved(False)),
    **dict.fromkeys(("conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose"), lambda step: step.convolved(True)),
    "dropout": ProgramRule.dropped,
    "elu": lambda step: step.with_slope("Elu", ["alpha"], 1.0),
    **dict.fromkeys(("expand", "expand_v2"), ProgramRule.expanded),
    **dict.fromkeys(("expand_as", "expand_as_v2"), ProgramRule.expanded_as),
    **dict.fromkeys(("fill_any_like", "full_like"), ProgramRule.filled_as),
    **dict.fromkeys(("fill_constant", "full"), ProgramRule.filled),
    **dict.fromkeys(("fill_constant_batch_size_like", "full_batch_size_like"), ProgramRule.filled_for_batch),
    "flatten_contiguous_range": ProgramRule.flattened,
    "flatten": lambda step: step.flattened() if "start_axis" in step.stated else step.flattened_from(),
    "flatten2": ProgramRule.flattened_from,
    **dict.fromkeys(("flip", "reverse"), lambda step: step.flip(step.integers_of(["axis"], "", 1))),
    "full_with_tensor": ProgramRule.filled_with,
    **dict.fromkeys(("gather", "index_select"), ProgramRule.gathered),
    "gelu": lambda step: step.gelu(int(step.flag(["approximate"]))),
    **dict.fromkeys(("hard_sigmoid", "hardsigmoid"), lambda step: step.add(
        "HardSigmoid", step.inputs[:1], alpha=step.real(["slope"], 0.2), beta=step.real(["offset"], 0.5))),
    **dict.fromkeys(("hard_swish", "hardswish"), ProgramRule.hard_swish),
    "instance_norm": ProgramRule.instance_normalised,
    "layer_norm": ProgramRule.layer_normalised,
    "leaky_relu": lambda step: step.with_slope("LeakyRelu", ["alpha", "negative_slope"], 0.02),
    "log_softmax": lambda step: step.softmax("LogSoftmax"),
    "logsigmoid": lambda step: step.add("Neg", [step.block.add("Softplus", [step.block.add("Neg", step.inputs[:1])])]),
    "lookup_table": lambda step: step.embedded(True),
    **dict.fromkeys(("embedding", "lookup_table_v2"), lambda step: step.embedded(False)),
    "mish": lambda step: step.real(["threshold", "lambda"], 20.0) >= 15 and step.add("Mish", step.inputs[:1]),
    "mul": ProgramRule.flat_product,
    "one_hot_v2": ProgramRule.marked,
    "one_hot": lambda step: "0" in step.args and step.marked(),  # Fluid's takes a last axis away
    **dict.fromkeys(("pool2d", "pool3d"), ProgramRule.pooled),
    "pow": ProgramRule.power,
    "prelu": ProgramRule.sloped,
    "relu6": lambda step: step.real(["threshold"], 6.0) == 6 and step.add("Clip", step.inputs[:1], min=0.0, max=6.0),
    **dict.fromkeys(("reshape", "reshape2"), ProgramRule.reshaped),
    "rsqrt": ProgramRule.rooted,
    **dict.fromkeys(("scale", "scale_"), ProgramRule.scaled),
    "selu": ProgramRule.selu,
    "shape64": lambda step: step.add("Shape", step.inputs[:1]),
    "shape": lambda step: step.add("Cast", [step.block.add("Shape", step.inputs[:1])], to=np.dtype(np.int32)),
    **dict.fromkeys(("silu", "swish"), ProgramRule.swish),
    **dict.fromkeys(("slice", "strided_slice"), ProgramRule.ranges),
    **dict.fromkeys(("softmax", "softmax_"), lambda step: step.softmax("Softmax")),
    "softplus": ProgramRule.softplus,
    "split": lambda step: step.parted(False),
    "split_with_num": lambda step: step.parted(True),
    "square": lambda step: step.add("Mul", [*step.inputs[:1], *step.inputs[:1]]),
    **dict.fromkeys(("squeeze", "squeeze2"), ProgramRule.squeezed),
    "stack": lambda step: step.stack(step.integer(["axis"], 0)),
    "tile": ProgramRule.tiled,
    **dict.fromkeys(("transpose", "transpose2"), lambda step: step.first().transpose(step.integers_of(["perm", "axis"]))),
    **dict.fromkeys(("unbind", "unstack"), lambda step: step.unstack(step.integer(["axis"], 0))),
    **dict.fromkeys(("unsqueeze", "unsqueeze2"), ProgramRule.unsqueezed),
    "where": ProgramRule.chosen,
}  # fmt: skip


@dataclass(frozen=True)
class FluidOperator:
    """A recurrent operator of Fluid's, whose sequences have the steps of the whole batch, one behind the other.

    name      the layer that is read of it
    operator  the operator
    stack     the layer
    reads     the variable that the layer reads, through the fc before the operator
    """

    name: str
    operator: ProgramOperator
    stack: Recurrent
    reads: str

    def call(self, reads: str, named: Callable[[str], str]) -> RecurrentCall:
        """Return its call.

        reads  the value that the layer reads
        named  returns a variable's value
        """
        states = [named(state) for word in ("H0", "C0") for state in self.operator.inputs.get(word, ())]
        hidden = next(iter(self.operator.outputs.get("Hidden", ())), "")
        others = [name for names in self.operator.outputs.values() for name in names if name != hidden]
        sizes = CallSizes(self.stack.layers[-1].output_size, width=self.stack.input_size)
        finals = dict.fromkeys(map(named, others), FINAL_WORDS[0])
        return RecurrentCall((reads, "ti"), {named(hidden): "tu"} if hidden else {}, sizes, finals, states)


class ProgramLowering:
    """One graph of a program on its way into the common operations.

    shapes, dtypes  what the program states of values
    names           what it calls its inputs, by their values
    calls           the calls of the operators rnn, layer by layer
    stacks          the calls of whole stacks, by the names of the layers
    """

    def __init__(
        self, stated: StatedProgram, arrays: Mapping[str, Array], stacks: Mapping[int, Recurrent], fluid: Sequence[FluidOperator] = ()
    ) -> None:
        self.stated, self.arrays, self.owners = stated, arrays, stacks
        self.fluid: dict[int, list[FluidOperator]] = {}
        for layer in fluid:
            self.fluid.setdefault(id(layer.operator), []).append(layer)
        self.shapes: dict[str, Sequence[int]] = Fields()
        self.dtypes: dict[str, np.dtype[Any]] = {}
        self.names: dict[str, str] = {}
        self.calls: list[SingleCall] = []
        self.stacks: list[tuple[str, RecurrentCall]] = []
        self._written: dict[str, int] = {}

    def name(self, variable: str) -> str:
        """Return the name of a variable's value as it was last written."""
        times = self._written.get(variable, 0)
        return f"{variable} (written {times} times)" if times else variable

    def output(self, operator: ProgramOperator, parameter: str) -> str:
        """Return the value of an operator's output, or of its first one in Paddle 3."""
        return self.name(next(iter(operator.outputs.get(parameter) or operator.outputs.get("0", ()))))

    def _state(self, variable: str) -> None:
        """Note what the program states of the value that a variable now is."""
        value, dtype = self.name(variable), _TYPES.get(self.stated.types.get(variable))
        stated = self.stated.shapes.get(variable, self.stated.parameters.get(variable))
        shape = self.arrays[variable].shape if variable in self.arrays else stated
        self.shapes.update({} if shape is None else {value: shape})
        self.dtypes |= {} if dtype is None else {value: dtype}

    def program(self, operators: Sequence[ProgramOperator], size: int) -> Program:
        """Return a graph as a program.

        size  how many bytes its file and its arrays have
        """
        block, declared, inputs, ends = Block("", {}), list[Declared](), list[str](), dict[int, str]()
        for variable in self.stated.parameters:
            self._state(variable)
        for variable, array in self.arrays.items():
            block.constant(array, variable, variable)
            self._state(variable)
            self.dtypes[variable] = array.dtype.newbyteorder("=")
        for operator in operators:
            read = {name for names in operator.inputs.values() for name in names}
            if operator.type == "fetch":
                column = operator.attributes.get("col")
                ends |= {column if isinstance(column, int) else len(ends): self.name(name) for name in read}
                continue
            rule, outputs = ProgramRule(self, operator, [], block), list[str]()
            recurrent = [(layer, self.name(layer.reads)) for layer in self.fluid.get(id(operator), ())]
            for name in (each for names in operator.outputs.values() for each in names):
                again = name in self._written or name in self.arrays or name in read
                self._written[name] = self._written.get(name, 0) + again
                self._state(name)
                outputs.append(self.name(name))
            if operator.type in FED:
                inputs += outputs
                declared += [self._declared(operator, value) for value in outputs]
                continue
            self.stacks += [(layer.name, layer.call(reads, self.name)) for layer, reads in recurrent]
            block.operator = operator.type
            if id(operator) in self.owners:
                self._recurrent(rule, self.owners[id(operator)])
                continue
            rule.outputs, rule.label = Entries(outputs), next(iter(outputs), "")
            if outputs:
                rule.write()
        used = {name for node in block.nodes for name in node.reads} | {*ends.values()}
        gives = [ends[column] for column in sorted(ends)]
        body = Body(block.nodes, [name for name in inputs if name in used], gives, block.stored, declared)
        return Program(self.stated.path, body, {"": OPSET}, size=size)

    def _declared(self, operator: ProgramOperator, value: str) -> Declared:
        """Return what is stated of an input; each open axis goes by a name."""
        shape = operator.lists.get("shape") or self.shapes.get(value)
        name = self.names[value] = str(operator.attributes.get("name", value))
        dims = None if shape is None else [length if length >= 0 else f"{name}, axis {axis}" for axis, length in enumerate(shape)]
        return Declared(value, self.dtypes.get(value), dims)

    def _recurrent(self, rule: ProgramRule, stack: Recurrent) -> None:
        """Write an operator rnn, layer by layer."""
        operator = rule.operator
        states = operator.outputs.get("State") or operator.outputs.get("2", ())
        gives = [self.output(operator, "Out"), *map(self.name, states)]
        written = StackOperator(
            "rnn", DOMAIN, gives[0], rule.inputs[0], gives, rule.args.get("PreState", []), rule.args.get("SequenceLength", [])
        )
        self.calls += [(single, call, rule.args["WeightList"]) for single, call in written.write(rule.block, single_layers(stack))]
        self.stacks.append((stack.name, written.call(stack)))
