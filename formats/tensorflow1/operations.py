"""TensorFlow's operations in the common ones: what the steps of a recurrent layer are made of.

An operation that is not here, or is used in a way that has no equivalent, becomes one of another domain, which nothing looks into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.containers.tensor_bundle import TYPES
from rnnconvert.core.arrays import Array
from rnnconvert.graphs.program.kinds import CUTTING, MEASURING, SAME
from rnnconvert.graphs.program.lowering import INTEGER, WIDE, Block, LoopLowering, Rule, Variable, needed

DOMAIN = "tensorflow"
PASSING = (
    "Identity",
    "StopGradient",
    "Snapshot",
    "EnsureShape",
    "PreventGradient",
    "CheckNumerics",
    "ReadVariableOp",
    "TensorListFromTensor",
    "PlaceholderWithDefault",
)
"""Operations whose output is their first input."""
_SAME = {
    **dict.fromkeys(PASSING, "Identity"),
    "Sigmoid": "Sigmoid", "Tanh": "Tanh", "Relu": "Relu", "Elu": "Elu", "Selu": "Selu", "Softsign": "Softsign",
    "Softplus": "Softplus", "Exp": "Exp", "Neg": "Neg", "Abs": "Abs", "Sqrt": "Sqrt", "Reciprocal": "Reciprocal",
    "Inv": "Reciprocal", "LogicalNot": "Not", "Add": "Add", "AddV2": "Add", "Sub": "Sub", "Mul": "Mul", "RealDiv": "Div",
    "Maximum": "Max", "Minimum": "Min", "Less": "Less", "LessEqual": "LessOrEqual", "Greater": "Greater",
    "GreaterEqual": "GreaterOrEqual", "Equal": "Equal", "LogicalAnd": "And", "LogicalOr": "Or", "Pow": "Pow", "AddN": "Sum",
    "SelectV2": "Where", "GatherNd": "GatherND", "Range": "Range",
    "Log": "Log", "Sin": "Sin", "Cos": "Cos", "Floor": "Floor", "Ceil": "Ceil", "Sign": "Sign",
    "Erf": "Erf", "Round": "Round",
}  # fmt: skip
"""Operations that are a common one with the same inputs."""
_FUSED = {name: _SAME[name] for name in ("Relu", "Elu", "Tanh", "Sigmoid")}
CELLS = ("LSTMBlockCell", "GRUBlockCell", "BlockLSTM")
"""Operations that are a layer or a step of one, with all that they compute on the way as outputs."""
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


class OperationStep(Rule):
    """One operation that is to become common ones.

    stored  gives the stored numbers that an input is, or None
    """

    def __init__(
        self, block: Block, node: GraphDefNode, inputs: Sequence[str], outputs: Sequence[str], stored: Callable[[int], Array | None]
    ) -> None:
        super().__init__(block, inputs, outputs, node.name)
        self.node, self._stored = node, stored

    def numbers(self, index: int) -> Array | None:
        return self._stored(index)

    def write(self) -> None:
        """Add what computes it."""
        kind = self.node.op
        if kind in _SAME:
            self.add(_SAME[kind], self.inputs[:1] if kind in PASSING else self.inputs)
        elif kind not in _RULES or not _RULES[kind](self):
            self.block.add(kind, self.inputs, self.outputs, self.label, DOMAIN)

    def option(self, name: str, default: int = 0) -> int:
        """Return a number that the operation states."""
        return int(self.node.number(name, default))

    def cast(self) -> bool:
        """Write a change of the element type."""
        to = TYPES.get(self.option("DstT"))
        return to is not None and self.add("Cast", self.inputs[:1], to=to)

    def size(self) -> bool:
        """Write how many elements a list has: it is its elements as one tensor."""
        shape, first = self.block.add("Shape", self.inputs[1:2]), self.block.constant(np.array(0, np.int64))
        return self.add("Cast", [self.block.add("Gather", [shape, first])], to=INTEGER)

    def gather(self) -> bool:
        """Write elements at places along an axis."""
        axis = self.axis(2) if len(self.inputs) > 2 else 0
        return not self.option("batch_dims") and self.with_axis("Gather", self.inputs[:2], axis)

    def over_axes(self, kind: str) -> bool:
        """Write a reduction of the numbers along axes."""
        return self.reduced(kind, self.integers(1), self.option("keep_dims"))

    def convolved(self, depth: bool) -> bool:
        """Write a convolution over two axes of (batch, height, width, channels), or one of each channel by itself."""
        weight, groups = self.numbers(1) if depth else None, 1
        if not self._over_two_axes() or (depth and (weight is None or weight.ndim != 4)):
            return False
        turned = self.block.add("Transpose", [self.inputs[1]], perm=[2, 3, 0, 1] if depth else [3, 2, 0, 1])
        if weight is not None:
            groups = weight.shape[2]
            rows = self.block.constant(np.array([groups * weight.shape[3], 1, *weight.shape[:2]], np.int64))
            turned = self.block.add("Reshape", [turned, rows])
        dilations = (self.node.integers("dilations") or [1] * 4)[1:3]
        value, order = self.over_space("Conv", [turned], 2, **self._windows(), dilations=dilations, group=groups)
        return self.add("Transpose", [value], perm=order)

    def fused(self, kind: str) -> bool:
        """Write an operation with its bias and a function. Source: tensorflow/core/kernels/fused_eigen_output_kernels.h."""
        words = self.node.texts("fused_ops")
        function = words[1] if len(words) == 2 else ""
        rules = {"": "Identity", "Relu6": "Clip", "LeakyRelu": "LeakyRelu", "Prelu": "", **_FUSED}
        plain = OperationStep(self.block, self.node, self.inputs[:2], [f"{self.outputs[0]}/{kind}"], self._stored)
        if words[:1] != ["BiasAdd"] or len(words) > 2 or function not in rules or len(self.inputs) != 3 + (function == "Prelu"):
            return False
        if not _RULES[kind](plain):
            return False
        bounds = {"Relu6": {"min": 0.0, "max": 6.0}, "LeakyRelu": {"alpha": self.node.number("leakyrelu_alpha", 0.2)}}
        total = self.block.add("Add", [*plain.outputs, self.inputs[2]], name=self.label)
        if function == "Prelu":
            return self.sloped(total, self.inputs[3])
        return self.add(rules[function], [total], **bounds.get(function, {}))

    def sloped(self, x: str, slopes: str) -> bool:
        """Write numbers of which those below zero are multiplied by slopes, one for each place of the last axes."""
        below = self.block.add("Neg", [self.block.add("Relu", [self.block.add("Neg", [x])])])
        return self.add("Add", [self.block.add("Relu", [x]), self.block.add("Mul", [below, slopes])])

    def pooled(self, kind: str) -> bool:
        """Write the largest number, or the mean, of windows over two axes."""
        window = self.node.integers("ksize")
        if not self._over_two_axes() or len(window) != 4 or window[0] != 1 or window[3] != 1:
            return False
        value, order = self.over_space(kind, [], 2, **self._windows(), kernel_shape=window[1:3])
        return self.add("Transpose", [value], perm=order)

    def _over_two_axes(self) -> bool:
        """Return whether windows go over height and width of (batch, height, width, channels), with a padding that is known."""
        strides, plain = self.node.integers("strides"), self.node.text("data_format") in ("", "NHWC")
        return plain and self.node.text("padding") in ("SAME", "VALID") and len(strides) == 4 and strides[0] == strides[3] == 1

    def _windows(self) -> dict[str, Any]:
        same = self.node.text("padding") == "SAME"
        return {"strides": self.node.integers("strides")[1:3], "auto_pad": "SAME_UPPER" if same else "VALID"}

    def normalised(self) -> bool:
        """Write channels scaled by what was learned of them, or by their own mean and variance where a graph takes these.

        The latter is how Keras 2 normalises layers. Source: tensorflow/core/kernels/fused_batch_norm_op.cc, whose other outputs in training
        are not written.
        """
        add, last = self.block.add, self.node.text("data_format") in ("", "NHWC")
        training = bool(self.option("is_training", 1))
        if not last and (self.node.text("data_format") != "NCHW" or not training):
            return False
        epsilon = self.block.constant(np.array(self.node.number("epsilon", 1e-4), np.float32))
        x, scale, shift, mean, variance = self.inputs[:5]
        if training:
            axes = [0, 1, 2] if last else [0, 2, 3]
            mean = add("ReduceMean", [x], axes=axes, keepdims=1)
            difference = add("Sub", [x, mean])
            variance = add("ReduceMean", [add("Mul", [difference, difference])], axes=axes, keepdims=1)
        if not last:
            scale, shift = (add("Unsqueeze", [value], axes=[1, 2]) for value in (scale, shift))
        root = add("Sqrt", [add("Add", [variance, epsilon])])
        scaled = add("Mul", [add("Div", [add("Sub", [x, mean]), root]), scale])
        add("Add", [scaled, shift], self.outputs[:1], self.label)
        return True

    def stacked_product(self) -> bool:
        """Write a product of stacks of matrices, neither of them turned."""
        return not self.option("adj_x") and not self.option("adj_y") and self.add("MatMul", self.inputs[:2])

    def lstm_cell(self) -> bool:
        """Write one step of an LSTM: gates i c f o, a bias of the forget gate, peepholes and a bound of the cell state where it has them.

        Source: tensorflow/core/kernels/rnn/lstm_ops.cc, LSTMBlockCellFprop.
        """
        if len(self.inputs) < 8 or (units := self._units(7, 4)) is None:
            return False
        x, c, h, w, *peepholes, b = self.inputs[:8]
        add, sights = self.block.add, peepholes if self.option("use_peephole") else ["", "", ""]
        gates = self._sums([x, h], w, b, [units] * 4)

        def activated(gate: str, sight: str, state: str) -> str:
            return add("Sigmoid", [add("Add", [gate, add("Mul", [sight, state])]) if sight else gate])

        forget = self.block.constant(np.array(self.node.number("forget_bias", 1.0), np.float32))
        i, f = activated(gates[0], sights[0], c), activated(add("Add", [gates[2], forget]), sights[1], c)
        new = add("Tanh", [gates[1]])
        cell = add("Add", [add("Mul", [i, new]), add("Mul", [f, c])])
        bound = self.node.number("cell_clip", 3.0)
        cell = add("Clip", [cell], min=-bound, max=bound) if bound > 0 else cell
        o, bent = activated(gates[3], sights[2], cell), add("Tanh", [cell])
        return self._each([i, cell, f, o, new, bent, add("Mul", [o, bent])])

    def lstm_layer(self) -> bool:
        """Write the steps of an LSTM over (time, batch, features): a loop of what LSTMBlockCell computes.

        Source: tensorflow/core/kernels/rnn/lstm_ops.cc, BlockLSTMOp; core/ops/rnn_ops.cc, its inputs.
        """
        if len(self.inputs) < 9:
            return False
        limit, x, c, h, *weights = self.inputs
        longest = limit
        # Steps behind the longest sequence give zeros: all are taken, and those are put out.
        if self._is_computed(limit) or self._stored(0) is not None:
            length = self.block.constant(np.array(0, np.int64))
            limit = self.block.add("Gather", [self.block.add("Shape", [x]), length], axis=0)
        name = next(filter(None, self.outputs)).rpartition(":")[0]
        steps = Block(f"{name}/body/", self.block.arrays)
        first, second = (self.block.constant(np.array(number, np.int64)) for number in (0, 1))
        count, old_cell, old_state = (f"{steps.prefix}{word}" for word in ("step", "old_cs", "old_h"))
        gives = [f"{steps.prefix}{word}" for word in ("i", "cs", "f", "o", "ci", "co", "h")]
        step = OperationStep(steps, self.node, [steps.add("Gather", [x, count], axis=0), old_cell, old_state, *weights], gives, self._next)
        if not step.lstm_cell():
            return False
        after, dtype = steps.add("Add", [count, second]), TYPES.get(self.option("T", 1), TYPES[1])
        states = [
            Variable(first, WIDE, count, after, ""),
            Variable(c, dtype, old_cell, gives[1], ""),
            Variable(h, dtype, old_state, gives[6], ""),
        ]
        outputs = [output and (output if limit == longest else f"{output}/all") for output in self.outputs]
        collected = [(value, output) for value, output in zip(gives, outputs, strict=False) if output]
        begins, goes_on = self.block.add("Less", [first, limit]), steps.add("Less", [after, limit])
        LoopLowering(self.label, begins, goes_on, states, [], collected).write(self.block, steps)
        if limit != longest:
            add, zero = self.block.add, self.block.constant(np.array(0, dtype))
            within = add("Less", [add("Unsqueeze", [add("Range", [first, limit, second])], axes=[1, 2]), longest])
            for every, output in zip(outputs, self.outputs, strict=True):
                if output:
                    add("Where", [within, every, zero], [output], self.label)
        return True

    def _is_computed(self, length: str) -> bool:
        """Return whether a length may be another than that of an axis: numbers that the model reads, or a sum, have a part in it."""
        outputs = {name for node in self.block.nodes for name in node.outputs} | self.block.arrays.keys()
        followed = needed([node for node in self.block.nodes if node.kind not in MEASURING], [length])
        handed_on = all(node.kind in (*SAME, *CUTTING) for node in followed)
        return not handed_on or not outputs.issuperset({length}.union(*(node.reads for node in followed)))

    def _next(self, index: int) -> Array | None:
        return self._stored(index + 1)

    def gru_cell(self) -> bool:
        """Write one step of a GRU whose reset gate comes before the product: gates r u.

        Source: tensorflow/core/kernels/rnn/gru_ops.cc, GRUBlockCellFprop.
        """
        if len(self.inputs) < 6 or (units := self._units(5, 1)) is None:
            return False
        x, h, w, w_new, b, b_new = self.inputs[:6]
        add = self.block.add
        r, u = (add("Sigmoid", [gate]) for gate in self._sums([x, h], w, b, [units] * 2))
        (new,) = self._sums([x, add("Mul", [r, h])], w_new, b_new, [units])
        new, rest = add("Tanh", [new]), add("Sub", [self.block.constant(np.array(1, np.float32)), u])
        return self._each([r, u, new, add("Add", [add("Mul", [u, h]), add("Mul", [rest, new])])])

    def _units(self, bias: int, gates: int) -> int | None:
        """Return how many units a cell has; None unless its bias is stored."""
        numbers = self.numbers(bias)
        return None if numbers is None or numbers.ndim != 1 or not numbers.size or numbers.size % gates else numbers.size // gates

    def _sums(self, values: Sequence[str], matrix: str, bias: str, sizes: Sequence[int]) -> list[str]:
        """Write values side by side, their product with a matrix, and the parts of that."""
        product = self.block.add("MatMul", [self.block.add("Concat", values, axis=1), matrix], name=self.label)
        total = self.block.add("Add", [product, bias])
        if len(sizes) == 1:
            return [total]
        names = [f"{total}/part_{number}" for number in range(len(sizes))]
        self.block.add("Split", [total], names, axis=1, split=list(sizes))
        return names

    def _each(self, values: Sequence[str]) -> bool:
        """Write what each output is that something reads."""
        for value, name in zip(values, self.outputs, strict=False):
            if name:
                self.block.add("Identity", [value], [name], self.label)
        return True

    def same(self) -> bool:
        """Write each value as it is."""
        return self._each(self.inputs)

    def select(self) -> bool:
        """Write a choice by truths, one for each number or one for each row."""
        wide = self.block.add("Reshape", [self.inputs[0], self.block.constant(np.array([0, -1], np.int64))])
        return self.add("Where", [wide, *self.inputs[1:3]])


def _squeeze(step: OperationStep) -> bool:
    axes = step.node.integers("squeeze_dims")
    return step.add("Squeeze", step.inputs[:1], **({"axes": axes} if axes else {}))


_RULES: Mapping[str, Callable[[OperationStep], bool]] = {
    "BiasAdd": lambda step: step.node.text("data_format") in ("", "NHWC") and step.add("Add", step.inputs),
    "MatMul": lambda step: step.product(bool(step.option("transpose_a")), bool(step.option("transpose_b"))),
    "Cast": OperationStep.cast,
    "Split": lambda step: step.with_axis("Split", step.inputs[1:2], step.axis(0)),
    "SplitV": lambda step: step.split(step.integers(1), step.axis(2)),
    "Concat": lambda step: step.with_axis("Concat", step.inputs[1:], step.axis(0)),
    "ConcatV2": lambda step: step.with_axis("Concat", step.inputs[:-1], step.axis(len(step.inputs) - 1)),
    "Pack": lambda step: step.stack(step.option("axis")),
    "Unpack": lambda step: step.unstack(step.option("axis")),
    "Transpose": lambda step: step.transpose(step.integers(1)),
    "ExpandDims": lambda step: step.unsqueeze(step.axis(1)),
    "Squeeze": _squeeze,
    "Reshape": lambda step: step.add("Reshape", step.inputs, allowzero=1),
    "Shape": lambda step: step.shape(TYPES.get(step.option("out_type", 3), INTEGER)),
    "Fill": OperationStep.fill,
    "ZerosLike": lambda step: step.filled_like(0, TYPES.get(step.option("T", 1))),
    "OnesLike": lambda step: step.filled_like(1, TYPES.get(step.option("T", 1))),
    **dict.fromkeys(("Gather", "GatherV2", "ResourceGather"), OperationStep.gather),
    "TensorListGetItem": lambda step: step.add("Gather", step.inputs[:2], axis=0),
    "ReverseSequence": lambda step: step.turned_by_lengths(step.option("seq_dim"), step.option("batch_dim")),
    "Slice": OperationStep.parts,
    "Prod": lambda step: step.over_axes("ReduceProd"),
    "ReverseV2": lambda step: step.flip(step.integers(1)),
    "ClipByValue": lambda step: step.add("Clip", step.inputs[:3]),
    "Relu6": lambda step: step.add("Clip", step.inputs[:1], min=0.0, max=6.0),
    "Prelu": lambda step: step.sloped(*step.inputs[:2]),
    "LeakyRelu": lambda step: step.add("LeakyRelu", step.inputs[:1], alpha=step.node.number("alpha", 0.2)),
    "Any": lambda step: step.truths("ReduceMax", step.integers(1), step.option("keep_dims")),
    "All": lambda step: step.truths("ReduceMin", step.integers(1), step.option("keep_dims")),
    "NotEqual": OperationStep.differs,
    "Select": OperationStep.select,
    "Tile": lambda step: step.repeated("Tile"),
    "BroadcastTo": lambda step: step.repeated("Expand"),
    "Sum": lambda step: step.over_axes("ReduceSum"),
    "Mean": lambda step: step.over_axes("ReduceMean"),
    "Max": lambda step: step.over_axes("ReduceMax"),
    "Min": lambda step: step.over_axes("ReduceMin"),
    "Softmax": lambda step: step.add("Softmax", step.inputs[:1], axis=-1),
    "LogSoftmax": lambda step: step.add("LogSoftmax", step.inputs[:1], axis=-1),
    "Rsqrt": OperationStep.rooted,
    "SquaredDifference": OperationStep.difference_squared,
    "Conv2D": lambda step: step.convolved(False),
    "DepthwiseConv2dNative": lambda step: step.convolved(True),
    "_FusedMatMul": lambda step: step.fused("MatMul"),
    "_FusedConv2D": lambda step: step.fused("Conv2D"),
    **dict.fromkeys(("_FusedDepthwiseConv2dNative", "FusedDepthwiseConv2dNative"), lambda step: step.fused("DepthwiseConv2dNative")),
    "MaxPool": lambda step: step.pooled("MaxPool"),
    "AvgPool": lambda step: step.pooled("AveragePool"),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), OperationStep.normalised),
    "ArgMax": lambda step: step.place("ArgMax", TYPES.get(step.option("output_type", 9), INTEGER), step.axis(1)),
    "ArgMin": lambda step: step.place("ArgMin", TYPES.get(step.option("output_type", 9), INTEGER), step.axis(1)),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2"), OperationStep.stacked_product),
    "Erfc": lambda step: step.add("Sub", [step.block.constant(np.array(1, np.float32)), step.block.add("Erf", step.inputs[:1])]),
    "Einsum": lambda step: step.add("Einsum", step.inputs, equation=step.node.text("equation")),
    "IdentityN": OperationStep.same,
    "LSTMBlockCell": OperationStep.lstm_cell,
    "GRUBlockCell": OperationStep.gru_cell,
    "BlockLSTM": OperationStep.lstm_layer,
    "FloorMod": lambda step: step.option("T", 1) == 1 and step.add("Mod", step.inputs),
    "FloorDiv": lambda step: step.option("T", 1) == 1 and step.add("Floor", [step.block.add("Div", step.inputs)]),
    "Expm1": lambda step: step.add("Sub", [step.block.add("Exp", step.inputs[:1]), step.block.constant(np.array(1, np.float32))]),
    "Square": lambda step: step.add("Mul", [step.inputs[0], step.inputs[0]]),
    "TensorArraySizeV3": OperationStep.size,
    "StridedSlice": lambda step: step.cut([step.option(name) for name in _MASKS]),
}
