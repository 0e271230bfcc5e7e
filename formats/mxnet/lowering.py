"""A symbol of MXNet's in the common operations, one rule for each operator.

A symbol states what its operators read and their attributes, but neither shapes nor, for most values, element types: how many axes a
value has follows from the operators around it (`ranks.py`), and all numbers are float32 that nothing makes others.

Source: MXNet 1.9.1, src/operator: each operator by its name in the DMLC_DECLARE_PARAMETER of its header, which states its attributes
and their defaults. A Custom operator is one of Python's and may compute anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.malformed import Entries, Fields
from rnnconvert.core.names import is_count
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.mxnet.ranks import RECURRENT, ranks_of
from rnnconvert.formats.mxnet.symbol import MOST_OUTPUTS, Key, SymbolGraph, SymbolNode
from rnnconvert.graphs.program.lowering import END, OPSET, WIDE, Block, CheckedRule, needed
from rnnconvert.graphs.program.operations import Body, Declared, Program, StoredNumbers
from rnnconvert.models.units import single_layers
from rnnconvert.recognition.flow import RecurrentCall
from rnnconvert.recognition.stacked import SingleCall, StackOperator

DOMAIN = "mxnet"
_FLOAT = np.dtype(np.float32)
_NUMBERED: Sequence[np.dtype[Any]] = [np.dtype(name) for name in ("f4", "f8", "f2", "u1", "i4", "i1", "i8", "bool")]
"""Element types by the numbers of mshadow's TypeFlag."""
_SAME = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softsign": "Softsign", "exp": "Exp", "log": "Log", "abs": "Abs", "sqrt": "Sqrt",
    "negative": "Neg", "sign": "Sign", "floor": "Floor", "ceil": "Ceil", "erf": "Erf", "reciprocal": "Reciprocal", "sin": "Sin",
    "cos": "Cos",
    "elemwise_add": "Add", "_plus": "Add", "_Plus": "Add", "_add": "Add", "broadcast_add": "Add", "broadcast_plus": "Add",
    "_grad_add": "Add",
    "elemwise_sub": "Sub", "_minus": "Sub", "_Minus": "Sub", "_sub": "Sub", "broadcast_sub": "Sub", "broadcast_minus": "Sub",
    "elemwise_mul": "Mul", "_mul": "Mul", "_Mul": "Mul", "broadcast_mul": "Mul",
    "_maximum": "Max", "_Maximum": "Max", "broadcast_maximum": "Max", "_minimum": "Min", "_Minimum": "Min", "broadcast_minimum": "Min",
    "_power": "Pow", "_Power": "Pow", "broadcast_power": "Pow", "_copy": "Identity", "identity": "Identity", "BlockGrad": "Identity",
    "stop_gradient": "Identity", "MakeLoss": "Identity", "make_loss": "Identity",
}  # fmt: skip
"""Operators that are a common one with the same inputs. The last two only end a graph that is trained."""
_WITH_NUMBER = {
    "_plus_scalar": ("Add", False), "_minus_scalar": ("Sub", False), "_rminus_scalar": ("Sub", True), "_mul_scalar": ("Mul", False),
    "_div_scalar": ("Div", False), "_rdiv_scalar": ("Div", True), "_power_scalar": ("Pow", False), "_rpower_scalar": ("Pow", True),
    "_maximum_scalar": ("Max", False), "_minimum_scalar": ("Min", False),
}  # fmt: skip
"""Operators of a value and a number, and whether the number comes first."""
_EARLIER = re.compile(r"_(r?)([a-z])([a-z]+)_scalar")
"""Their names, which were _PlusScalar and _RMinusScalar before 0.9."""
_COMPARED = {"equal": "Equal", "greater": "Greater", "greater_equal": "GreaterOrEqual", "lesser": "Less", "lesser_equal": "LessOrEqual"}
_FUNCTIONS = Fields({"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softrelu": "Softplus", "softsign": "Softsign"})
"""The act_type of Activation."""
_HINTS = frozenset(
    {"ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage", "profiler_scope", "num_args", "workspace", "cudnn_tune",
        "cudnn_off",
     "is_int", "grad_scale", "normalization", "valid_thresh", "ignore_label", "use_ignore", "out_grad", "smooth_alpha", "momentum",
     "use_global_stats", "sparse_grad", "cudnn_algo_verbose", "cudnn_algo_fwd", "cudnn_algo_bwd_data", "cudnn_algo_bwd_filter",
     "cudnn_tensor_core_only", "min_calib_range", "max_calib_range", "num_filter", "num_hidden", "input_dim", "output_dim", "ctx"}
)  # fmt: skip
"""Attributes that change no output of a trained model: hints, those of training, and sizes that the weights show."""


NamedArrays: TypeAlias = "Mapping[str, tuple[str, Array]]"


class SymbolRule(CheckedRule):
    """One operator, and the graph that it is written into."""

    def __init__(self, lowering: SymbolLowering, node: SymbolNode, block: Block) -> None:
        self.lowering, self.node = lowering, node
        self._read = {key for key in node.attributes if key.startswith("__")} | _HINTS
        super().__init__(block, Entries(map(lowering.name, node.inputs)), Entries(lowering.outputs(node)), node.name)
        self.dtype = lowering.dtypes.get(self.inputs[0], _FLOAT) if self.inputs else _FLOAT

    def numbers(self, index: int) -> Array | None:
        return self.block.arrays.get(self.inputs[index]) if index < len(self.inputs) else None

    def constant(self, number: float) -> str:
        return self.block.constant(np.array(number, self.dtype))

    def unread(self) -> Mapping[str, object]:
        return {key: value for key, value in self.node.attributes.items() if key not in self._read}

    def write(self) -> None:
        """Write the operator; one of another domain where it has no equivalent, or an attribute that is not read."""
        self.write_checked(_RULES.get(self.node.operator), self.node.operator, self.inputs, DOMAIN)
        self.lowering.dtypes |= dict.fromkeys(self.lowering.outputs(self.node), self.dtype)

    # Attributes

    def word(self, key: str, default: str = "") -> str:
        """Return an attribute as text; None and its like are the default."""
        self._read.add(key)
        stated = self.node.attributes.get(key, "None")
        return default if stated in ("None", "") else stated

    def several(self, key: str) -> list[int | None]:
        """Return an attribute that is a whole number or several: "(1, None, -1)"."""
        text = self.word(key, "()").strip("()[] ")
        words = [word.strip() for word in text.split(",") if word.strip()]
        return [None if word == "None" else int(word.rstrip("L")) for word in words]

    def counts(self, key: str) -> list[int]:
        """Return an attribute that is a whole number or several, of which none is left open."""
        listed = [number for number in self.several(key) if number is not None]
        if len(listed) != len(self.several(key)):
            raise ValueError(f"{key} leaves a number open")
        return listed

    def integer(self, key: str, default: int) -> int:
        """Return an attribute that is one whole number."""
        return int(self.word(key, str(default)))

    def real(self, key: str, default: float) -> float:
        """Return an attribute that is a number."""
        return float(self.word(key, str(default)))

    def flag(self, key: str, default: bool = False) -> bool:
        """Return an attribute that is a truth."""
        return bool(Fields({"true": True, "1": True, "false": False, "0": False})[self.word(key, str(default)).lower()])

    def type_of(self, key: str, default: str) -> np.dtype[Any]:
        """Return an attribute that is an element type."""
        name = self.word(key, default)
        if name != "bfloat16" and not re.fullmatch(r"(float|u?int)(8|16|32|64)|bool", name):
            raise ValueError(f"no element type {name!r}")
        return BFLOAT16 if name == "bfloat16" else np.dtype(name)

    @property
    def rank(self) -> int:
        """How many axes the first input has. Raises ValueError where nothing shows it."""
        return self.rank_of(0)

    def rank_of(self, index: int) -> int:
        """Return how many axes an input has. Raises ValueError where nothing shows it."""
        rank = self.lowering.ranks.get(Entries(self.node.inputs)[index])
        if rank is None:
            raise ValueError("nothing shows how many axes it has")
        return rank

    # Operators

    def with_number(self, kind: str, first: bool) -> bool:
        """Write an operator of a value and a number; of whole numbers, a number that is whole."""
        number = self.real("scalar", 0.0)
        if self.dtype.kind != "f" and (kind in ("Div", "Pow") or number != int(number)):
            return False
        pair = [self.inputs[0], self.constant(number)]
        return self.add(kind, pair[::-1] if first else pair)

    def divided(self) -> bool:
        """Write a quotient of real numbers."""
        return self.dtype.kind == "f" and self.add("Div", self.inputs)

    def compared(self, kind: str) -> bool:
        """Write where two values, or a value and a number, compare, as ones and zeros of their own type."""
        other = self.inputs[1] if len(self.inputs) > 1 else self.constant(self.real("scalar", 0.0))
        truths = self.block.add("Equal" if kind == "NotEqual" else kind, [self.inputs[0], other])
        truths = self.block.add("Not", [truths]) if kind == "NotEqual" else truths
        return self.add("Cast", [truths], to=self.dtype)

    def activated(self) -> bool:
        """Write an Activation."""
        return self.add(_FUNCTIONS[self.word("act_type")], self.inputs)

    def leaky(self) -> bool:
        """Write a LeakyReLU of its several kinds."""
        kind, slope = self.word("act_type", "leaky"), self.real("slope", 0.25)
        self._read |= {"lower_bound", "upper_bound"}  # of rrelu alone, which draws in training
        if kind == "prelu":
            return self.per_channel_slopes(self.numbers(1), self.rank)
        if kind == "gelu":
            return self.gelu(0)
        plain = {"leaky": ("LeakyRelu", {"alpha": slope}), "elu": ("Elu", {"alpha": slope}), "selu": ("Selu", {})}
        return kind in plain and self.add(plain[kind][0], self.inputs[:1], **plain[kind][1])

    def dropped(self) -> bool:
        """Write a Dropout, which does nothing unless it is always on."""
        self._read |= {"p", "axes"}
        return self.word("mode", "training") == "training" and self.add("Identity", self.inputs[:1])

    def connected(self) -> bool:
        """Write a FullyConnected layer: of all axes but the first in one, or of the last axis."""
        bias, value = [] if self.flag("no_bias") else self.inputs[2:3], self.inputs[0]
        if self.flag("flatten", True):
            flat = value if self.lowering.ranks.get(Entries(self.node.inputs)[0]) == 2 else self.block.add("Flatten", [value], axis=1)
            return self.add("Gemm", [flat, self.inputs[1], *bias], transB=1)
        turned = self.block.add("Transpose", self.inputs[1:2], perm=[1, 0])
        if not bias:
            return self.add("MatMul", [value, turned])
        return self.add("Add", [self.block.add("MatMul", [value, turned], name=self.label), *bias])

    def _windows(self, axes: int) -> dict[str, Any]:
        pads = self.counts("pad") or [0] * axes
        if self.word("layout", "NCHW") not in ("NCW", "NCHW", "NCDHW"):
            raise ValueError("its channels are last")
        return {"strides": self.counts("stride") or [1] * axes, "pads": [*pads, *pads]}

    def convolved(self, turned: bool) -> bool:
        """Write a convolution, or a transposed one."""
        kernel = self.counts("kernel")
        settings = self._windows(len(kernel)) | {
            "dilations": self.counts("dilate") or [1] * len(kernel),
            "group": self.integer("num_group", 1),
        }
        if turned:
            settings |= {"output_padding": adj} if any(adj := self.counts("adj")) else {}
            if self.counts("target_shape"):
                return False
        inputs = self.inputs[:2] if self.flag("no_bias", turned) else self.inputs[:3]
        return self.add("ConvTranspose" if turned else "Conv", inputs, kernel_shape=kernel, **settings)

    def pooled(self) -> bool:
        """Write the largest number, or the mean, of windows over the axes of space, or of all of them."""
        kind = Fields({"max": "MaxPool", "avg": "AveragePool"})[self.word("pool_type", "max")]
        everywhere, counted, kernel = self.flag("global_pool"), self.flag("count_include_pad", True), self.counts("kernel")
        convention, windows = self.word("pooling_convention", "valid"), self._windows(len(kernel))
        if everywhere:
            return self.add(f"Global{kind}", self.inputs[:1])
        if convention not in ("valid", "full"):
            return False
        settings = {"kernel_shape": kernel, **windows} | ({"ceil_mode": 1} if convention == "full" else {})
        settings |= {"count_include_pad": int(counted)} if kind == "AveragePool" else {}
        return self.add(kind, self.inputs[:1], **settings)

    def normalised(self) -> bool:
        """Write a BatchNorm by its stored means and variances; with fix_gamma its factors count as ones."""
        axis, epsilon, fixed = self.integer("axis", 1), self.real("eps", 1e-3), self.flag("fix_gamma", True)
        scale, numbers, rank = self.inputs[1], self.numbers(1), self.lowering.ranks.get(Entries(self.node.inputs)[0])
        if fixed and numbers is not None and (numbers != 1).any():
            scale = self.block.constant(np.ones_like(numbers))
        if (fixed and numbers is None) or self.flag("output_mean_var") or (rank is None and axis < 0):
            return False
        statistics, self.outputs = [scale, *self.inputs[2:5]], self.outputs[:1]
        axis = axis % rank if rank is not None else axis
        if axis == 1:
            return self.add("BatchNormalization", [self.inputs[0], *statistics], epsilon=epsilon)
        order = self._exchanged(1, axis)
        turned = self.block.add("Transpose", self.inputs[:1], perm=order)
        turned = self.block.add("BatchNormalization", [turned, *statistics], name=self.label, epsilon=epsilon)
        return self.add("Transpose", [turned], perm=order)

    def layer_normalised(self) -> bool:
        """Write a LayerNorm of the last axis."""
        axis, self.outputs = self.integer("axis", -1), self.outputs[:1]
        if self.flag("output_mean_var") or (axis != -1 and axis != self.rank - 1):
            return False
        return self.add("LayerNormalization", self.inputs[:3], axis=-1, epsilon=self.real("eps", 1e-5))

    def embedded(self) -> bool:
        """Write rows of a matrix by their numbers, which are real ones here."""
        self.dtype = self.lowering.dtypes.get(self.inputs[1], _FLOAT)
        self._read |= {"dtype"} if self.type_of("dtype", "float32") == self.dtype else set()
        return self.add("Gather", [self.inputs[1], self._clipped(self._places(0))], axis=0)

    def _clipped(self, places: str) -> str:
        """Return places with the first one for those below zero, which the common operation counts from the end."""
        return self.block.add("Max", [places, self.block.constant(np.array(0, np.int64))])

    def _places(self, index: int) -> str:
        return self.block.add("Cast", [self.inputs[index]], to=WIDE)

    def gathered(self) -> bool:
        """Write indices of an axis; stored ones below zero are the first, unless they count from the end."""
        mode, axis, stored = self.word("mode", "clip"), self.integer("axis", 0), self.numbers(1)
        if mode not in ("clip", "wrap"):
            return False
        if stored is None:
            places = self._places(1)
            places = self._clipped(places) if mode == "clip" else places
        else:
            low = stored.astype(np.int64)
            places = self.block.constant(np.maximum(low, 0) if mode == "clip" else low)
        return self.add("Gather", [self.inputs[0], places], axis=axis)

    def softened(self, kind: str) -> bool:
        """Write a softmax along an axis, by a temperature."""
        axis, temperature = self.integer("axis", -1), self.real("temperature", 1.0)
        if self.flag("use_length") or self.word("dtype", self.dtype.name) != self.dtype.name:
            return False
        if temperature != 1.0:
            self.inputs = [self.block.add("Div", [self.inputs[0], self.constant(temperature)])]
        return self._softmax(kind, axis)

    def _softmax(self, kind: str, axis: int) -> bool:
        if axis == -1:
            return self.add(kind, self.inputs[:1], axis=-1)
        return self.softmax_along(kind, self.rank, axis % self.rank)

    def softmax_output(self) -> bool:
        """Write the softmax of a loss: along the second axis, the last one, or all but the first."""
        several, last = self.flag("multi_output"), self.flag("preserve_shape")
        if self.node.operator == "SoftmaxActivation":
            several = self.word("mode", "instance") == "channel"
        if not several and not last and self.rank != 2:
            return False
        return self._softmax("Softmax", 1 if several else -1)

    def reshaped(self) -> bool:
        """Write elements in another shape: 0 stands for the value's own length, -1 for what is left, -2 for all axes that are left, -3 for
        two axes as one, -4 for one axis as the two that follow.
        """
        words, parts, place = self.counts("shape"), list[str](), 0
        if self.flag("reverse") or not words:
            return False
        if min(words) >= -1:
            return self.add("Reshape", [self.inputs[0], self.whole_numbers(words)])
        listed = iter(words)
        for word in listed:
            if word == -2:
                parts += [self._length(axis) for axis in range(place, self.rank)]
                place = self.rank
            elif word == -3:
                parts.append(self.block.add("Mul", [self._length(place), self._length(place + 1)]))
                place += 2
            elif word == -4:
                before, behind = next(listed), next(listed)
                other = self.whole_numbers([behind if before == -1 else before])
                rest = self.block.add("Div", [self._length(place), other])
                both = [self.whole_numbers([before]), self.whole_numbers([behind])]
                parts += [rest, both[1]] if before == -1 else [both[0], rest] if behind == -1 else both
                place += 1
            else:
                parts.append(self._length(place) if word == 0 else self.whole_numbers([word]))
                place += 1
        return self.add("Reshape", [self.inputs[0], self.block.add("Concat", parts, axis=0)])

    def _length(self, axis: int, index: int = 0) -> str:
        """Return the length of an axis of an input as a value of one number."""
        shape = self.block.add("Shape", [self.inputs[index]])
        return self.block.add("Slice", [shape], axes=[0], starts=[axis], ends=[axis + 1])

    def squeezed(self) -> bool:
        """Write axes of length 1 away."""
        axes = self.counts("axis")
        return self.add("Squeeze", self.inputs[:1], **({"axes": axes} if axes else {}))

    def swapped(self) -> bool:
        """Write two axes exchanged."""
        return self.transpose(self._exchanged(self.integer("dim1", 0), self.integer("dim2", 0)))

    def _exchanged(self, first: int, second: int) -> list[int]:
        """Return the axes in their order, with two exchanged. Raises ValueError for one that there is not."""
        axes = range(self.rank)
        first, second = axes.index(first % len(axes)), axes.index(second % len(axes))
        return [{first: second, second: first}.get(axis, axis) for axis in axes]

    def transposed(self) -> bool:
        """Write axes in another order, or in the reverse one."""
        return self.transpose(self.counts("axes") or list(range(self.rank))[::-1])

    def ranges(self) -> bool:
        """Write ranges of the first axes."""
        begin, end, steps = (self.several(key) for key in ("begin", "end", "step"))
        return self._cut(begin, end, [step or 1 for step in steps] or [1] * len(begin), range(len(begin)))

    def range_of_axis(self) -> bool:
        """Write a range of an axis."""
        axis, begin, end = self.integer("axis", 0), self.several("begin"), self.word("end", "None")
        return self._cut(begin or [None], [None if end == "None" else int(end)], [1], [axis])

    def _cut(self, begin: Sequence[int | None], end: Sequence[int | None], steps: Sequence[int], axes: Sequence[int]) -> bool:
        starts = [(0 if step > 0 else END) if low is None else low for low, step in zip(begin, steps, strict=True)]
        ends = [(END if step > 0 else -END) if high is None else high for high, step in zip(end, steps, strict=True)]
        return self.add("Slice", self.inputs[:1], axes=list(axes), starts=starts, ends=ends, steps=list(steps))

    def cut_like(self) -> bool:
        """Write the beginning of axes, as long as those of another value."""
        axes = self.counts("axes") or list(range(self.rank))
        axes = [axis % self.rank for axis in axes]
        ends = self.block.add("Concat", [self._length(axis, 1) for axis in axes], axis=0)
        starts, along = self.whole_numbers([0] * len(axes)), self.whole_numbers(axes)
        return self.add("Slice", [self.inputs[0], starts, ends, along])

    def parted(self) -> bool:
        """Write equal parts of an axis, or its elements."""
        axis, count, single = self.integer("axis", 1), self.integer("num_outputs", 0), self.flag("squeeze_axis")
        return self._parts(axis, [None] * min(count, MOST_OUTPUTS + 1), single)

    def parted_at(self) -> bool:
        """Write parts of an axis that begin at stated places, or equal ones."""
        axis, count, single = self.integer("axis", 1), self.integer("sections", 0), self.flag("squeeze_axis")
        begins = self.counts("indices")
        return self._parts(axis, [None] * min(count, MOST_OUTPUTS + 1) if count else [*begins], single)

    def _parts(self, axis: int, begins: Sequence[int | None], single: bool) -> bool:
        if len(begins) > MOST_OUTPUTS:
            raise ValueError(f"{len(begins)} parts")
        outputs = self.lowering.several(self.node, len(begins))
        names = [f"{output}/whole" for output in outputs] if single else outputs
        if not begins:
            return False
        if None in begins:
            self.block.add("Split", self.inputs[:1], names, self.label, axis=axis)
        for number, (name, low) in enumerate(zip(names, begins, strict=True)):
            if low is not None:
                high = begins[number + 1] if number + 1 < len(begins) else END
                self.block.add("Slice", self.inputs[:1], [name], self.label, axes=[axis], starts=[low], ends=[high])
            if single:
                self.block.add("Squeeze", [name], [outputs[number]], axes=[axis])
        return True

    def padded_around(self) -> bool:
        """Write numbers around a value; how many before and behind each axis stand in pairs."""
        counts, level, mode = self.counts("pad_width"), self.real("constant_value", 0.0), self.word("mode", "constant")
        pads = self.whole_numbers([*counts[::2], *counts[1::2]])
        return mode in ("constant", "edge", "reflect") and self.add("Pad", [self.inputs[0], pads, self.constant(level)], mode=mode)

    def spread_to(self) -> bool:
        """Write a value repeated along axes of length 1; 0 is the value's own length."""
        return self.add("Expand", [self.inputs[0], self.whole_numbers([length or 1 for length in self.counts("shape")])])

    def spread_along(self) -> bool:
        """Write a value repeated along some axes of length 1."""
        sizes = dict(zip((axis % self.rank for axis in self.counts("axis")), self.counts("size"), strict=True))
        return self.add("Expand", [self.inputs[0], self.whole_numbers([sizes.get(axis, 1) for axis in range(self.rank)])])

    def spread_like(self) -> bool:
        """Write a value repeated along axes of length 1 up to the lengths of another."""
        return self.add("Expand", [self.inputs[0], self.block.add("Shape", self.inputs[1:2])])

    def reduced_to(self, kind: str) -> bool:
        """Write a reduction of the numbers along axes, along all others with `exclude`, along all where none are stated."""
        axes, keep = self.counts("axis"), self.flag("keepdims")
        if self.flag("exclude") and axes:
            axes = [axis for axis in range(self.rank) if axis not in [each % self.rank for each in axes]]
            if not axes:
                return False
        if kind == "Norm":
            kind = Fields({"1": "ReduceL1", "2": "ReduceL2"})[self.word("ord", "2")]
        if kind == "ReduceMean" and self.dtype.kind != "f":
            return False
        if not axes and not keep:  # a number is a vector of one
            return self.add("Reshape", [self.block.add(kind, self.inputs[:1], keepdims=0), self.whole_numbers([1])])
        return self.add(kind, self.inputs[:1], keepdims=int(keep), **({"axes": axes} if axes else {}))

    def placed(self, kind: str) -> bool:
        """Write the place of the largest or smallest number along an axis, as a real number."""
        axes, keep = self.counts("axis"), self.flag("keepdims")
        self.dtype = _FLOAT
        return len(axes) == 1 and self.place(kind, _FLOAT, axes[0], int(keep))

    def multiplied(self, stacked: bool) -> bool:
        """Write a product of two matrices, or of two stacks of them."""
        turns = self.flag("transpose_a"), self.flag("transpose_b")
        ranks = [self.rank_of(0), self.rank_of(1)]
        if self.real("alpha", 1.0) != 1 or self.integer("axis", -2) != -2 or self.word("forward_stype"):
            return False
        fits = ranks[0] == ranks[1] > 1 if stacked else ranks[1] == 2 and (ranks[0] == 2 or not turns[0])
        return fits and self.product(*turns, ranks)

    def by_root_of_width(self) -> bool:
        """Write a value by the square root of the length of its last axis."""
        width = self.block.add("Cast", [self._length(self.rank - 1)], to=self.dtype)
        return self.add("Div", [self.inputs[0], self.block.add("Sqrt", [width])])

    def cast(self) -> bool:
        """Write a change of the element type."""
        self.dtype = self.type_of("dtype", "")
        return self.add("Cast", self.inputs[:1], to=self.dtype)

    def chosen(self) -> bool:
        """Write one of two values where a third one is not zero."""
        truths = self.block.add("Cast", self.inputs[:1], to=np.dtype(bool))
        if self.rank == 1 < self.rank_of(1):  # one truth for each row
            truths = self.block.add("Unsqueeze", [truths], axes=list(range(1, self.rank_of(1))))
        self.dtype = self.lowering.dtypes.get(self.inputs[1], _FLOAT)
        return self.add("Where", [truths, *self.inputs[1:3]])

    def marked(self) -> bool:
        """Write places as rows of zeros with a one."""
        self.dtype, off, on = self.type_of("dtype", "float32"), self.real("off_value", 0.0), self.real("on_value", 1.0)
        depth = self.block.constant(np.array(self.integer("depth", 0), np.int64))
        ones = self.hot(self._places(0), WIDE, depth, [0, 1], -1)
        ones = ones if self.dtype == _FLOAT else self.block.add("Cast", [ones], to=self.dtype)
        return self.add("Identity", [self.affine(ones, on - off, off)])

    def filled_with(self, level: float) -> bool:
        """Write one number in a stated shape. A length of 0 is open: MXNet infers it from what the operators that read it need, and it is
        written as 1 where these spread it.
        """
        lengths, self.dtype = self.counts("shape"), self.type_of("dtype", "float32")
        if 0 in lengths and not all(reader.operator in _SPREADING for reader in self.lowering.readers[self.node.index]):
            return False
        number = StoredNumbers.of(np.array([self.real("value", level)], self.dtype))
        return self.add("ConstantOfShape", [self.whole_numbers([length or 1 for length in lengths])], value=number)

    def filled_as(self, level: float) -> bool:
        """Write one number in the shape of a value; the number alone where all that read it have that shape from their other input."""
        readers, nodes = self.lowering.readers[self.node.index], self.lowering.graph.nodes
        alike = [reader.operator in _SAME and reader.operator in _SPREADING and len(reader.inputs) == 2 for reader in readers]
        others = [nodes[index].operator for reader in readers for index, _ in reader.inputs[:2] if index != self.node.index]
        if readers and all(alike) and len(others) == len(readers) and not {"ones_like", "zeros_like"} & {*others}:
            self.block.constant(np.array(level, self.dtype), self.outputs[0], self.label)
            return True
        return self.filled_like(level, self.dtype)

    def reversed_sequences(self) -> bool:
        """Write sequences turned around, as far as they go."""
        if self.integer("axis", 0) != 0:
            return False
        if not self.flag("use_sequence_length"):
            return self.flip([0])
        self.inputs = [self.inputs[0], self._places(1)]
        return self.turned_by_lengths(0, 1)

    def last_of_sequences(self) -> bool:
        """Write the last step of sequences of one length."""
        last = self.block.constant(np.array(-1, np.int64))
        return not self.flag("use_sequence_length") and self.add("Gather", [self.inputs[0], last], axis=self.integer("axis", 0))

    def masked(self) -> bool:
        """Write sequences of one length, which nothing masks."""
        self._read |= {"value", "axis"}
        return not self.flag("use_sequence_length") and self.add("Identity", self.inputs[:1])


_FOLLOWED = 256
"""The most nodes behind an input in which the steps of a cell are searched."""
_KEEPING = ("Embedding", "Dropout", "Cast", "_copy")
"""Operators that leave the first axes as they are."""
_SPREADING = {"FullyConnected", *(name for name, kind in _SAME.items() if kind in ("Add", "Sub", "Mul")), *RECURRENT}
"""Operators that make of one row as many as the other value has."""


def _reducing(kind: str) -> Callable[[SymbolRule], bool]:
    return lambda step: step.reduced_to(kind)


def _of_number(kind: str, first: bool) -> Callable[[SymbolRule], bool]:
    return lambda step: step.with_number(kind, first)


def _comparing(kind: str) -> Callable[[SymbolRule], bool]:
    return lambda step: step.compared(kind)


def _alike(kind: str) -> Callable[[SymbolRule], bool]:
    return lambda step: step.add(kind, step.inputs)


_RULES: Mapping[str, Callable[[SymbolRule], bool]] = {
    **{name: _alike(kind) for name, kind in _SAME.items()},
    **{name: _of_number(*row) for name, row in _WITH_NUMBER.items()},
    **{_EARLIER.sub(lambda match: f"_{match[1].upper()}{match[2].upper()}{match[3]}Scalar", name): _of_number(*row)
       for name, row in _WITH_NUMBER.items()},
    **{f"{mark}{name}{end}": _comparing(kind) for name, kind in {**_COMPARED, "not_equal": "NotEqual"}.items()
       for mark, end in (("_", ""), ("_", "_scalar"), ("broadcast_", ""))},
    **dict.fromkeys(("elemwise_div", "_div", "_Div", "broadcast_div"), SymbolRule.divided),
    **dict.fromkeys(("add_n", "ElementWiseSum"), _alike("Sum")),
    "Activation": SymbolRule.activated,
    "BatchNorm": SymbolRule.normalised,
    **dict.fromkeys(("Cast", "cast", "amp_cast"), SymbolRule.cast),
    **dict.fromkeys(("Concat", "concat"), lambda step: step.add("Concat", step.inputs, axis=step.integer("dim", 1))),
    "Convolution": lambda step: step.convolved(False),
    "Deconvolution": lambda step: step.convolved(True),
    "Dropout": SymbolRule.dropped,
    "Embedding": SymbolRule.embedded,
    **dict.fromkeys(("Flatten", "flatten"), lambda step: step.add("Flatten", step.inputs, axis=1)),
    "FullyConnected": SymbolRule.connected,
    "InstanceNorm": lambda step: step.add("InstanceNormalization", step.inputs[:3], epsilon=step.real("eps", 1e-3)),
    "LayerNorm": SymbolRule.layer_normalised,
    "LeakyReLU": SymbolRule.leaky,
    **dict.fromkeys(("LinearRegressionOutput", "MAERegressionOutput"), lambda step: step.add("Identity", step.inputs[:1])),
    "LogisticRegressionOutput": lambda step: step.add("Sigmoid", step.inputs[:1]),
    **dict.fromkeys(("Pad", "pad"), SymbolRule.padded_around),
    "Pooling": SymbolRule.pooled,
    **dict.fromkeys(("Reshape", "reshape"), SymbolRule.reshaped),
    "SequenceLast": SymbolRule.last_of_sequences,
    "SequenceMask": SymbolRule.masked,
    "SequenceReverse": SymbolRule.reversed_sequences,
    **dict.fromkeys(("SliceChannel", "split"), SymbolRule.parted),
    **dict.fromkeys(("SoftmaxOutput", "Softmax", "SoftmaxActivation"), SymbolRule.softmax_output),
    **dict.fromkeys(("SwapAxis", "swapaxes"), SymbolRule.swapped),
    "_contrib_div_sqrt_dim": SymbolRule.by_root_of_width,
    "_full": lambda step: step.filled_with(0.0),
    "_ones": lambda step: step.filled_with(1.0),
    "_split_v2": SymbolRule.parted_at,
    "_zeros": lambda step: step.filled_with(0.0),
    "argmax": lambda step: step.placed("ArgMax"),
    "argmin": lambda step: step.placed("ArgMin"),
    "batch_dot": lambda step: step.multiplied(True),
    **dict.fromkeys(("broadcast_axis", "broadcast_axes"), SymbolRule.spread_along),
    "broadcast_like": SymbolRule.spread_like,
    "broadcast_to": SymbolRule.spread_to,
    "clip": lambda step: step.add("Clip", step.inputs, min=step.real("a_min", -np.inf), max=step.real("a_max", np.inf)),
    "dot": lambda step: step.multiplied(False),
    "expand_dims": lambda step: step.unsqueeze(step.integer("axis", 0)),
    "hard_sigmoid": lambda step: step.add("HardSigmoid", step.inputs, alpha=step.real("alpha", 0.2), beta=step.real("beta", 0.5)),
    **dict.fromkeys(("_linalg_gemm2", "linalg_gemm2"), lambda step: step.multiplied(True)),
    "log_softmax": lambda step: step.softened("LogSoftmax"),
    **dict.fromkeys(("max", "max_axis"), _reducing("ReduceMax")),
    "mean": _reducing("ReduceMean"),
    **dict.fromkeys(("min", "min_axis"), _reducing("ReduceMin")),
    "norm": _reducing("Norm"),
    "ones_like": lambda step: step.filled_as(1.0),
    "one_hot": SymbolRule.marked,
    "prod": _reducing("ReduceProd"),
    **dict.fromkeys(("reverse", "flip"), lambda step: step.flip(step.counts("axis"))),
    "rsqrt": SymbolRule.rooted,
    "shape_array": lambda step: step.shape(WIDE),
    "slice": SymbolRule.ranges,
    "slice_axis": SymbolRule.range_of_axis,
    "slice_like": SymbolRule.cut_like,
    "softmax": lambda step: step.softened("Softmax"),
    "square": lambda step: step.add("Mul", [*step.inputs, *step.inputs]),
    "squeeze": SymbolRule.squeezed,
    "stack": lambda step: step.stack(step.integer("axis", 0)),
    **dict.fromkeys(("sum", "sum_axis"), _reducing("ReduceSum")),
    "take": SymbolRule.gathered,
    "tile": lambda step: step.tile(step.counts("reps"), step.rank),
    "transpose": SymbolRule.transposed,
    "where": SymbolRule.chosen,
    "zeros_like": lambda step: step.filled_as(0.0),
}  # fmt: skip


class SymbolLowering:
    """A symbol on its way into the common operations.

    graph    the symbol
    arrays   the file's arrays by the names of its variables, each with its name in the file
    owners   the recurrent layers by the indices of the operators RNN that they are read of
    ranks    how many axes values have, as far as it shows
    dtypes   the element types of values
    readers  the nodes that read a node
    calls    the calls of the operators RNN, layer by layer
    stacks   the calls of whole stacks, by the names of the layers
    """

    def __init__(self, graph: SymbolGraph, arrays: NamedArrays, owners: Mapping[int, Recurrent], ranks: Mapping[str, int]) -> None:
        self.graph, self.owners = graph, owners
        self.arrays = {name: array for name, (_, array) in arrays.items()}
        self._labels = {name: label for name, (label, _) in arrays.items()}
        self.ranks = ranks_of(graph, {**ranks, **{name: array.ndim for name, array in self.arrays.items()}})
        self.dtypes: dict[str, np.dtype[Any]] = {}
        self.readers: dict[int, list[SymbolNode]] = {node.index: [] for node in graph.nodes}
        self._names: dict[int, str] = {}
        self.calls: list[SingleCall] = []
        self.stacks: list[tuple[str, RecurrentCall]] = []
        names = set[str]()
        for node in graph.nodes:
            name = node.name if node.name not in names else f"{node.name} (node {node.index})"
            names.add(name)
            self._names[node.index] = name
            for index, _ in node.inputs:
                self.readers[index].append(node)

    def name(self, key: Key) -> str:
        """Return the name of a value: its node's, with what tells its outputs apart."""
        return self._names[key[0]] + (f", output {key[1]}" if key[1] else "")

    def several(self, node: SymbolNode, count: int) -> list[str]:
        """Return the names of so many outputs of a node."""
        return [self.name((node.index, number)) for number in range(count)]

    def outputs(self, node: SymbolNode) -> list[str]:
        """Return the names of a node's outputs that something reads, and of those before them."""
        return self.several(node, self.graph.outputs[node.index])

    def program(self, path: Path, size: int) -> Program:
        """Return the symbol as a program.

        size  how many bytes its file and its arrays have
        """
        block, declared, inputs = Block("", {}), list[Declared](), list[str]()
        for node in self.graph.nodes:
            name = self.name((node.index, 0))
            if node.operator == "null" and node.name in self.arrays:
                array = self.arrays[node.name]
                self.dtypes[name] = array.dtype.newbyteorder("=")
                block.constant(array, name, self._labels[node.name])
            elif node.operator == "null":
                self.dtypes[name] = self._dtype(node)
                inputs.append(name)
                declared.append(Declared(name, self.dtypes[name], self._dims(node)))
            elif node.index in self.owners:
                block.operator = node.operator
                self._recurrent(node, self.owners[node.index], block)
            else:
                custom = node.operator == "Custom"
                block.operator = f"Custom {node.attributes.get('op_type', '')}" if custom else node.operator
                SymbolRule(self, node, block).write()
        ends = [self.name(key) for key in self.graph.heads]
        used = {name for operation in needed(block.nodes, ends) for name in operation.reads} | {*ends}  # a loss does not read its labels
        return Program(
            path, Body(block.nodes, [name for name in inputs if name in used], ends, block.stored, declared), {"": OPSET}, size=size
        )

    def _dtype(self, node: SymbolNode) -> np.dtype[Any]:
        flag = node.attributes.get("__dtype__", "0")
        return _NUMBERED[int(flag)] if flag.isdigit() and int(flag) < len(_NUMBERED) else _FLOAT

    def _dims(self, node: SymbolNode) -> list[int | str | None] | None:
        """Return the lengths of an input's axes; each open one goes by a name."""
        stated = [int(word) for word in re.findall(r"\d{1,12}", node.attributes.get("__shape__", ""))]
        rank = len(stated) or self.ranks.get((node.index, 0))
        lengths = stated or [0] * (rank or 0)
        waiting, seen = [node] if lengths else [], {node.index}
        while waiting and len(seen) < _FOLLOWED:  # steps of unrolled cells state how many there are
            readers = [reader for reader in self.readers[waiting.pop().index] if reader.index not in seen]
            seen |= {reader.index for reader in readers}
            waiting += [reader for reader in readers if reader.operator in _KEEPING]
            for split in readers:
                if split.operator == "SliceChannel" and split.attributes.get("squeeze_axis") in ("1", "True"):
                    axis, count = split.attributes.get("axis", "1"), split.attributes.get("num_outputs", "")
                    if is_count(axis) and is_count(count) and int(axis) < len(lengths):
                        lengths[int(axis)] = int(count)
        words: list[int | str | None] = [length or f"{node.name}, axis {axis}" for axis, length in enumerate(lengths)]
        for reader in self.readers[node.index]:
            if reader.index in self.owners and len(words) == 3:
                words = self._of_layer(reader, node.index, words)
        return words if rank is not None else None

    def _of_layer(self, reader: SymbolNode, index: int, words: list[int | str | None]) -> list[int | str | None]:
        """Return the axes of an input that an operator RNN reads, as its weights show them: a sequence, or a state for the same batch."""
        stack, reads = self.owners[reader.index], [key[0] for key in reader.inputs]
        if reads.index(index) == 0:
            return [*words[:2], stack.input_size]
        sequence, place = self.graph.nodes[reads[0]], reads.index(index)
        batch = f"{sequence.name}, axis 1" if sequence.operator == "null" and "__shape__" not in sequence.attributes else None
        width = stack.first.output_size if place == 2 else stack.hidden_size
        return [stack.num_layers * stack.num_directions, batch, width] if place in (2, 3) else words

    def _recurrent(self, node: SymbolNode, stack: Recurrent, block: Block) -> None:
        """Write an operator RNN, layer by layer."""
        lstm = stack.cell.kind == "lstm"
        ragged = node.attributes.get("use_sequence_length", "False") in ("True", "true", "1")
        names = [self.name(key) for key in node.inputs]
        states = [name for name, key in zip(names[2 : 3 + lstm], node.inputs[2 : 3 + lstm], strict=True) if not self._is_open(key[0])]
        gives = self.several(node, 2 + lstm)
        operator = StackOperator("RNN", DOMAIN, node.name, names[0], gives, states, names[-1:] if ragged else [])
        self.calls += [(single, call, [names[1]]) for single, call in operator.write(block, single_layers(stack))]
        self.stacks.append((stack.name, operator.call(stack)))
        self.dtypes |= dict.fromkeys(gives, self.dtypes.get(names[0], _FLOAT))

    def _is_open(self, index: int) -> bool:
        """Return whether a state is zeros for any batch."""
        node = self.graph.nodes[index]
        return node.operator == "_zeros" and 0 in [int(word) for word in re.findall(r"\d{1,12}", node.attributes.get("shape", ""))]
