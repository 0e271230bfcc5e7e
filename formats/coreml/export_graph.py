"""A graph of basic operations as a program of Core ML: one rule for each operation that is not its namesake.

Source: coremltools 9.0, converters/mil/mil/ops/defs, for what each operation takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.coreml import mil
from rnnconvert.formats.coreml.export_axes import AXES
from rnnconvert.formats.coreml.export_program import TITLE, MilBlock, MilValue, Operand, Storage, dtype_of
from rnnconvert.formats.coreml.export_recurrent import recurrent
from rnnconvert.formats.coreml.export_space import SPACE
from rnnconvert.formats.coreml.export_writer import MOST_SEQUENCES, MOST_STEPS, MilWriter, Rule
from rnnconvert.graphs.program.operations import Body, Declared, Operation
from rnnconvert.scaffolding.export_target import ExportedGraph
from rnnconvert.scaffolding.graph.model import OperationGraph
from rnnconvert.scaffolding.graph.target import of_other_type

LACKING = (
    "Celu", "Selu", "PRelu", "HardSwish", "Softplus", "Reciprocal", "ReduceL2", "InstanceNormalization", "ScatterElements", "Trilu", "Clip",
    "Einsum", "LogSoftmax", "IsInf", "IsNaN",
)  # fmt: skip
"""The operations that are composed of others: Core ML has none, or one that adds a number itself, or one that is known less well."""


def exported(graph: OperationGraph, lengths: Sequence[Sequence[int]], storage: Storage = "float32") -> ExportedGraph:
    """Return a graph as a program of Core ML.

    lengths  the lengths of each input's axes, unless a user states others

    Raises RefusedError for an operation or a recurrent layer without an equivalent.
    """
    if (tensor := of_other_type(graph)) is not None:
        raise RefusedError(f"{tensor.name!r} of type {tensor.value.dtype}", TITLE, "its programs compute in float32")
    writer = MilWriter(graph, RULES, storage)
    writer.write_all()
    notes = [*_notes(graph, writer), *writer.program.notes()]
    rounded = "its weights are rounded to float16" if storage == "float16" else ""
    write = partial(writer.write, lengths)
    return writer.as_written().exported(writer.program.count, notes, writer.program.size, write, rounded)


def _notes(graph: OperationGraph, writer: MilWriter) -> list[str]:
    notes = ["it is for iOS 16 and macOS 13 or later, computes in float32, and keeps no states from call to call"]
    if any(None in value.shape for value in writer.inputs):
        notes.append(f"open axes: the first of at most {MOST_SEQUENCES}, others of at most {MOST_STEPS}")
    dtypes = {tensor.value.dtype for tensor in graph.inputs}
    if "int64" in dtypes:
        notes.append("whole numbers are computed in 32 bits")
    if "bool" in dtypes or any(tensor.value.dtype == "bool" for tensor in graph.outputs):
        notes.append("truths are features of whole numbers, 0 and 1")
    notes.append("Core ML runs on Apple's systems alone, where nobody has run this file: compare one prediction there with the source's")
    return notes


# Numbers at the same place


def _each(kind: str) -> Rule:
    return lambda w, node: w.put(node, kind, {"x": w[node.inputs[0]]})


def _folded(kind: str, dtype: str = "") -> Rule:
    def rule(w: MilWriter, node: Operation) -> None:
        value, *others = (w[name] for name in node.inputs)
        for other in others:
            value = w.main.both(kind, value, other, node.outputs[0], dtype)
        w.named(node.outputs[0], value)

    return rule


def _compared(kind: str) -> Rule:
    """Return a rule for truths about numbers; of truths, whether they are equal."""

    def rule(w: MilWriter, node: Operation) -> None:
        x, y = (w.main.cast(w[name], "int32" if w[name].dtype == "bool" else w[name].dtype, f"{node.name}/numbers") for name in node.inputs)
        w.named(node.outputs[0], w.main.both(kind, x, y, node.outputs[0], "bool"))

    return rule


def _divide(w: MilWriter, node: Operation) -> None:
    """Add a quotient; of whole numbers without its fraction."""
    main, name = w.main, node.name
    x, y = (w[each] for each in node.inputs)
    if x.dtype != "int32":
        w.named(node.outputs[0], main.both("real_div", x, y, node.outputs[0]))
        return
    size, by = (main.each("abs", each, f"{name}/size") for each in (x, y))
    sign = main.both("mul", main.each("sign", x, f"{name}/sign"), main.each("sign", y, f"{name}/sign"), f"{name}/signs")
    w.named(node.outputs[0], main.both("mul", sign, main.both("floor_div", size, by, f"{name}/quotient"), node.outputs[0]))


def _modulo(w: MilWriter, node: Operation) -> None:
    """Add a remainder of the divisor's sign, or of the number's."""
    main, name = w.main, node.name
    x, y = (w[each] for each in node.inputs)
    if not node.attributes.get("fmod", 0):
        w.named(node.outputs[0], main.both("mod", x, y, node.outputs[0]))
        return
    size, by = (main.each("abs", each, f"{name}/size") for each in (x, y))
    rest = main.both("mod", size, by, f"{name}/rest")
    w.named(node.outputs[0], main.both("mul", main.each("sign", x, f"{name}/sign"), rest, node.outputs[0]))


def _negative(w: MilWriter, node: Operation) -> None:
    x = w[node.inputs[0]]
    minus = w.main.index(-1) if x.dtype == "int32" else w.main.number(-1.0)
    w.named(node.outputs[0], w.main.both("mul", x, minus, node.outputs[0]))


def _logarithm(w: MilWriter, node: Operation) -> None:
    """Add a logarithm; Core ML adds 1e-45 to the number where no other epsilon is stated."""
    w.put(node, "log", {"x": w[node.inputs[0]], "epsilon": w.main.number(0.0)})


def _alpha(kind: str, default: float) -> Rule:
    return lambda w, node: w.put(node, kind, {"x": w[node.inputs[0]], "alpha": w.main.number(node.attributes.get("alpha", default))})


def _hard_sigmoid(w: MilWriter, node: Operation) -> None:
    alpha, beta = (w.main.number(node.attributes.get(word, default)) for word, default in (("alpha", 0.2), ("beta", 0.5)))
    w.put(node, "sigmoid_hard", {"x": w[node.inputs[0]], "alpha": alpha, "beta": beta})


def _where(w: MilWriter, node: Operation) -> None:
    """Add one of two values; its operation gives the axes of these, not of the truths."""
    main, name, output = w.main, node.name, node.outputs[0]
    truths, x, y = (w[each] for each in node.inputs)
    if x.dtype == "bool":
        chosen = main.both("logical_and", truths, x, f"{name}/chosen")
        others = main.both("logical_and", main.each("logical_not", truths, f"{name}/not"), y, f"{name}/others")
        w.named(output, main.both("logical_or", chosen, others, output))
        return
    axes = w.dims(node, output)
    if len(x.shape) < len(axes) or x.shape != axes:
        zeros = main.both("mul", main.cast(truths, x.dtype, f"{name}/numbers"), _zero(w, x.dtype), f"{name}/zeros")
        x = main.both("add", x, zeros, f"{name}/wide")
    w.put(node, "select", {"cond": truths, "a": x, "b": y}, x.dtype)


def _zero(w: MilWriter, dtype: str) -> MilValue:
    return w.main.index(0) if dtype == "int32" else w.main.number(0.0)


# Reductions, places and products


def _reduced(kind: str) -> Rule:
    def rule(w: MilWriter, node: Operation) -> None:
        x = w[node.inputs[0]]
        axes = node.attributes.get("axes") or (w.numbers(node.inputs[1]) if len(node.inputs) > 1 else None) or range(x.rank)
        listed = w.main.numbers(*(axis % x.rank for axis in axes))
        w.put(node, kind, {"x": x, "axes": listed, "keep_dims": bool(node.attributes.get("keepdims", 1))})

    return rule


def _best(kind: str) -> Rule:
    def rule(w: MilWriter, node: Operation) -> None:
        x = w[node.inputs[0]]
        axis = w.main.index(node.attributes["axis"] % x.rank)
        w.put(node, kind, {"x": x, "axis": axis, "keep_dims": bool(node.attributes["keepdims"])}, "int32")

    return rule


def _top(w: MilWriter, node: Operation) -> None:
    x, counts = w[node.inputs[0]], w.numbers(node.inputs[1])
    axis = node.attributes["axis"] % x.rank
    if counts is None:
        raise w.refused(node, "a number of largest that a run decides", "its operation knows it")
    shape = tuple(counts[0] if place == axis else length for place, length in enumerate(x.shape))
    inputs: dict[str, Operand] = {
        "x": x,
        "k": w.main.index(counts[0]),
        "axis": w.main.index(axis),
        "ascending": not node.attributes["largest"],
    }
    values = w.main.several("topk", node.outputs[0], [(x.dtype, shape), ("int32", shape)], inputs)
    for name, value in zip(node.outputs, values, strict=True):
        w.named(name, value)


def _softmax(w: MilWriter, node: Operation) -> None:
    w.put(node, "softmax", {"x": w[node.inputs[0]], "axis": w.main.index(node.attributes["axis"])})


def _layer_norm(w: MilWriter, node: Operation) -> None:
    x = w[node.inputs[0]]
    axes = w.main.numbers(*range(x.rank + node.attributes["axis"], x.rank))
    numbers = {word: w[name] for word, name in zip(("gamma", "beta"), node.inputs[1:], strict=False)}
    w.put(node, "layer_norm", {"x": x, "axes": axes, "epsilon": w.main.number(node.attributes["epsilon"]), **numbers})


def _product(w: MilWriter, node: Operation) -> None:
    x, stored = w[node.inputs[0]], w.stored(node.inputs[1])
    if stored is not None and len(stored.shape) == 2 and 1 < x.rank <= 3:
        turned = stored.T if isinstance(stored, np.ndarray) else np.asarray(stored).T
        inputs = {"x": x, "weight": w.program.constant(node.inputs[1], turned)}
        w.named(node.outputs[0], w.main.op("linear", node.outputs[0], x.dtype, (*x.shape[:-1], turned.shape[0]), inputs))
        return
    w.put(node, "matmul", {"x": x, "y": w[node.inputs[1]], "transpose_x": False, "transpose_y": False})


def _one_hot(w: MilWriter, node: Operation) -> None:
    places, counts = w[node.inputs[0]], w.numbers(node.inputs[1])
    if counts is None:
        raise w.refused(node, "as many places as a run decides", "its operation knows them")
    off, on = (w.program.constant("number", np.asarray(number)) for number in np.asarray(w.stored(node.inputs[2])))
    inputs = {"indices": places, "one_hot_vector_size": w.main.index(counts[0]), "axis": w.main.index(-1), "on_value": on, "off_value": off}
    w.named(node.outputs[0], w.main.op("one_hot", node.outputs[0], on.dtype, (*places.shape, counts[0]), inputs))


def _range(w: MilWriter, node: Operation) -> None:
    start, end, step = (w[name] for name in node.inputs)
    w.put(node, "range_1d", {"start": start, "end": end, "step": step})


def _cumulative(w: MilWriter, node: Operation) -> None:
    x, (axis,) = w[node.inputs[0]], w.numbers(node.inputs[1]) or [0]
    w.put(node, "cumsum", {"x": x, "axis": w.main.index(axis % x.rank), "exclusive": False, "reverse": False})


# What runs a graph of its own at every step of sequences, as a while_loop: cells that have no operation, LSTMs of convolutions.
# Source: coremltools 9.0, converters/mil/mil/ops/defs/iOS15/control_flow.py and scatter_gather.py.


def scan(w: MilWriter, node: Operation) -> None:
    """Add a loop over the steps of sequences: its variables are the number of the step, the states, and what all steps give.

    Raises RefusedError where an axis of what its steps give has a length that nothing tells before they run.
    """
    ((_, inner),) = node.bodies
    states, around = len(node.inputs) - node.attributes["num_scan_inputs"], w.main
    declared = {value.name: value for value in inner.declared}
    sequences = [_number(around, w[name], f"{node.name}/sequence") for name in node.inputs[states:]]
    count = around.size(sequences[0], 0, f"{node.name}/steps")
    elements = [declared[name] for name in inner.outputs[states:]]
    lists = [_zeros(w, node, inner, output, step, count) for output, step in zip(node.outputs[states:], elements, strict=True)]
    variables = [around.numbers(0), *(w[name] for name in node.inputs[:states]), *lists]
    shapes = [(1,), *(w.step_dims(node, declared[name]) for name in inner.inputs[:states]), *(value.shape for value in lists)]
    held = [
        MilValue(w.program.names.unique(f"{node.name}/variable"), value.dtype, shape)
        for value, shape in zip(variables, shapes, strict=True)
    ]
    number, *before = held
    going, block = MilBlock(w.program, node.name), MilBlock(w.program, node.name)
    goes_on = going.both("less", number, count, f"{node.name}/less", "bool")
    with w.graph_in(node, block) as body:
        for name, value in zip(body.inputs[:states], before, strict=False):
            w.named(name, value)
        for name, sequence in zip(body.inputs[states:], sequences, strict=True):
            w.named(name, _step(block, sequence, number, _type(declared[name]), f"{node.name}/step"))
        w.write_nodes()
        after = [w[name] for name in body.outputs]
    filled = [_with_step(block, value, number, step, node.name) for value, step in zip(before[states:], after[states:], strict=True)]
    counted = block.both("add", number, block.numbers(1), f"{node.name}/next")
    types = [(value.name, value.type) for value in held]
    blocks = [
        mil.block(going.operations, [goes_on.name], types),
        mil.block(block.operations, [value.name for value in (counted, *after[:states], *filled)], types),
    ]
    results = around.several("while_loop", node.name, [(value.dtype, value.shape) for value in held], {"loop_vars": variables}, blocks)
    for name, value in zip(node.outputs, results[1:], strict=True):
        w.named(name, value)
    for name, value, step in zip(node.outputs[states:], results[1 + states :], elements, strict=True):
        w.named(name, around.cast(value, _type(step), f"{node.name}/truths"))


def _type(value: Declared) -> str:
    """Return the element type in which a program computes with a value of a step."""
    return dtype_of(np.dtype(value.dtype))


def _number(block: MilBlock, value: MilValue, wanted: str) -> MilValue:
    """Return truths as whole numbers, which alone are gathered and scattered, and other values as they are."""
    return block.cast(value, "int32", wanted) if value.dtype == "bool" else value


def _step(block: MilBlock, sequence: MilValue, number: MilValue, dtype: str, wanted: str) -> MilValue:
    inputs = {"x": sequence, "indices": number, "axis": block.index(0)}
    at = block.op("gather", f"{wanted}/at", sequence.dtype, (1, *sequence.shape[1:]), inputs)
    return block.cast(block.squeezed(at, [0], wanted), dtype, f"{wanted}/truths")


def _with_step(block: MilBlock, every: MilValue, number: MilValue, step: MilValue, name: str) -> MilValue:
    updates = block.wide(_number(block, step, f"{name}/numbers"), [0], f"{name}/wide")
    inputs: dict[str, Operand] = {"data": every, "indices": number, "updates": updates, "axis": block.index(0), "mode": "update"}
    return block.op("scatter", f"{name}/listed", every.dtype, every.shape, inputs)


def _zeros(w: MilWriter, node: Operation, body: Body, output: str, step: Declared, count: MilValue) -> MilValue:
    """Add zeros in the place of what all steps give."""
    lengths: list[MilValue] = [count]
    for length in w.lengths_of_steps(node, body, output, step):
        lengths.append(w.main.numbers(length) if isinstance(length, int) else w.main.size(w[length[0]], length[1], f"{node.name}/length"))
    dims = w.step_dims(node, step)
    zero = w.main.number(0.0) if _type(step) == "fp32" else w.main.index(0)
    return w.main.filled(w.main.joined(lengths, 0, f"{node.name}/lengths"), (None, *dims), zero, f"{node.name}/zeros")


RULES: Mapping[str, Rule] = {
    **{kind: _each(kind.lower()) for kind in (
        "Abs", "Acos", "Asin", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Relu", "Round", "Sigmoid", "Sign", "Sin",
        "Sinh", "Softsign", "Sqrt", "Tan", "Tanh",
    )},
    **{kind: _folded(other) for kind, other in {
        "Add": "add", "Sub": "sub", "Mul": "mul", "Pow": "pow", "Max": "maximum", "Min": "minimum", "And": "logical_and",
        "Or": "logical_or", "Xor": "logical_xor",
    }.items()},
    **{kind: _compared(other) for kind, other in {
        "Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_equal", "Less": "less", "LessOrEqual": "less_equal",
    }.items()},
    **{f"Reduce{word}": _reduced(f"reduce_{word.lower()}") for word in ("Max", "Mean", "Min", "Prod", "Sum")},
    **dict.fromkeys(("RNN", "GRU", "LSTM"), recurrent), "Scan": scan, **AXES, **SPACE,
    "ArgMax": _best("reduce_argmax"), "ArgMin": _best("reduce_argmin"), "CumSum": _cumulative, "Div": _divide, "Elu": _alpha("elu", 1.0),
    "Gelu": lambda w, node: w.put(node, "gelu", {"x": w[node.inputs[0]], "mode": "EXACT"}), "HardSigmoid": _hard_sigmoid,
    "Identity": lambda w, node: w.named(node.outputs[0], w[node.inputs[0]]),
    "LayerNormalization": _layer_norm, "LeakyRelu": _alpha("leaky_relu", 0.01), "Log": _logarithm, "MatMul": _product, "Mod": _modulo,
    "Neg": _negative, "Not": _each("logical_not"), "OneHot": _one_hot, "Range": _range, "Softmax": _softmax, "TopK": _top, "Where": _where,
}  # fmt: skip
"""The operations that are known."""
