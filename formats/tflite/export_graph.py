"""A graph of basic operations as a .tflite file: one rule for each operation that is not a single operator.

Source: tensorflow/lite/kernels, for what each operator takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from rnnconvert.core.arrays import nbytes
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.tflite import flatbuffer
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.export_axes import AXES
from rnnconvert.formats.tflite.export_scan import scan
from rnnconvert.formats.tflite.export_space import SPACE
from rnnconvert.formats.tflite.export_tables import OperatorGraph, Storage, StoringTables
from rnnconvert.formats.tflite.export_writer import Rule, TfliteWriter
from rnnconvert.formats.tflite.operator_values import BOOL, FLOAT, INT
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.scaffolding.export_target import ExportedGraph
from rnnconvert.scaffolding.graph.model import OperationGraph
from rnnconvert.scaffolding.graph.target import of_other_type

LACKING = (
    "Celu", "Elu", "Selu", "LeakyRelu", "PRelu", "HardSigmoid", "HardSwish", "Softplus", "Softsign", "Reciprocal", "ReduceL2",
    "LayerNormalization", "InstanceNormalization", "ScatterElements", "Trilu", "Clip", "Einsum", "Tan", "IsInf", "IsNaN",
)  # fmt: skip
"""The operations that are composed of others: TFLite has none, or one of other constants."""


def exported(graph: OperationGraph, storage: Storage = "float32") -> ExportedGraph:
    """Return a graph as a TFLite model. Raises RefusedError for an operation or a recurrent layer without an equivalent."""
    if (tensor := of_other_type(graph)) is not None:
        raise RefusedError(f"{tensor.name!r} of type {tensor.value.dtype}", "TFLite", "its kernels compute in float32 alone")
    tables = StoringTables(storage)
    writer = TfliteWriter(graph, RULES, OperatorGraph(tables, "main"))
    writer.write_all()
    is_open = any(isinstance(length, str) for tensor in graph.inputs for length in tensor.axes)
    notes = [f"{'resize_tensor_input gives its inputs their lengths; ' if is_open else ''}it keeps no states from call to call"]
    unusual = ["its loops are graphs of their own"] * (len(tables.graphs) > 1) + ["its lengths are open"] * is_open
    if len(tables.graphs) > 1:
        notes.append(
            f"{' and '.join(unusual)}, which interpreters for microcontrollers may not take: for one of these, export a C header (.h)"
        )
    if any(tensor.value.dtype == "int64" for tensor in graph.inputs):
        notes.append("whole numbers are computed in 32 bits")
    size = sum(nbytes(buffer[s.BUFFER["data"]]) for buffer in tables.buffers if buffer)
    count = sum(len(part.operators) for part in tables.graphs)
    write = partial(flatbuffer.write, identifier=s.IDENTIFIER, root=tables.root())
    return graph.exported(count, [*notes, *tables.notes()], size, write, _ROUNDED[storage])


_ROUNDED: Mapping[Storage, str] = {
    "float32": "",
    "float16": "its weights are rounded to float16",
    "int8": "its matrices are rounded to int8",
}


def _plain(operator: str, kind: int | None = None) -> Rule:
    return lambda w, node: w.put(node, operator, kind=kind)


def _folded(operator: str) -> Rule:
    def rule(w: TfliteWriter, node: Operation) -> None:
        first, *others = (w[name] for name in node.inputs)
        for other in others[:-1]:
            first = w.add(operator, [first, other], node, "before")
        w.put(node, operator, [first, others[-1]])

    return rule


def _product(w: TfliteWriter, node: Operation) -> None:
    left, right = node.inputs
    ranks = [len(w.dims(node, name)) for name in node.inputs]
    stored = w.stored(right)
    if stored is not None and ranks[1] == 2 and ranks[0] > 1:
        turned = stored.T if isinstance(stored, np.ndarray) else np.asarray(stored).T
        w.put(node, "FULLY_CONNECTED", [w[left], w.values.matrix(right, turned), -1], keep_num_dims=1)
    else:
        w.put(node, "BATCH_MATMUL")


def _reduced(operator: str) -> Rule:
    def rule(w: TfliteWriter, node: Operation) -> None:
        axes = node.attributes.get("axes") or w.numbers(node.inputs[1]) or ()
        rank = len(w.dims(node, node.inputs[0]))
        listed = w.values.integers(*(axis % rank for axis in axes))
        w.put(node, operator, [w[node.inputs[0]], listed], keep_dims=int(node.attributes.get("keepdims", 1)))

    return rule


def _best(operator: str) -> Rule:
    def rule(w: TfliteWriter, node: Operation) -> None:
        axis = node.attributes["axis"] % len(w.dims(node, node.inputs[0]))
        place = w.add(operator, [w[node.inputs[0]], w.values.integer(axis)], node, "places", INT, output_type=INT)
        if node.attributes["keepdims"]:
            place = w.add("EXPAND_DIMS", [place, w.values.integer(axis)], node, "wide")
        w.named(node.outputs[0], place)

    return rule


def _last_axis(w: TfliteWriter, node: Operation) -> list[int]:
    """Return the order of axes that puts an operation's own axis last, which changes nothing by being applied twice."""
    rank = len(w.dims(node, node.inputs[0]))
    order = list(range(rank))
    axis = node.attributes["axis"] % rank
    order[axis], order[-1] = order[-1], order[axis]
    return order


def _along_last(operator: str, **options: Any) -> Rule:
    def rule(w: TfliteWriter, node: Operation) -> None:
        order, x = _last_axis(w, node), w[node.inputs[0]]
        if order == sorted(order):
            w.put(node, operator, [x], **options)
            return
        output = w.add(operator, [w.transposed(node, x, order, "last")], node, "along", **options)
        w.put(node, "TRANSPOSE", [output, w.values.integers(*order)])

    return rule


def _top(w: TfliteWriter, node: Operation) -> None:
    order, largest = _last_axis(w, node), node.attributes["largest"]
    x = w.transposed(node, w[node.inputs[0]], order, "last")
    x = x if largest else w.add("NEG", [x], node, "less")
    counts = w.numbers(node.inputs[1])
    if counts is None:
        raise w.refused(node, "a number of places that a run decides", w.unknown_reason)
    outputs = [w.values.value(f"{node.name}/{word}", kind) for word, kind in (("top", w.values.kinds[x]), ("at", INT))]
    w.values.several("TOPK_V2", [x, w.values.integer(counts[0])], outputs)
    top = outputs[0] if largest else w.add("NEG", outputs[:1], node, "values")
    for name, place in zip(node.outputs, (top, outputs[1]), strict=True):
        w.named(name, w.transposed(node, place, order, "back"))


def _one_hot(w: TfliteWriter, node: Operation) -> None:
    index, depth = (w[name] for name in node.inputs[:2])
    off, on = (w.values.constant(f"{node.name}/{n}", number) for n, number in enumerate(np.asarray(w.stored(node.inputs[2]))))
    w.put(node, "ONE_HOT", [index, depth, on, off], w.values.kinds[on], axis=-1)


def _concat(w: TfliteWriter, node: Operation) -> None:
    places = [w[name] for name in node.inputs]
    if len(places) == 1:
        w.named(node.outputs[0], places[0])
        return
    w.put(node, "CONCATENATION", places, axis=node.attributes["axis"])


def _modulo(w: TfliteWriter, node: Operation) -> None:
    left, right = (w[name] for name in node.inputs)
    if not node.attributes.get("fmod", 0):
        w.put(node, "FLOOR_MOD")
        return
    if w.values.kinds[left] == FLOAT:
        raise w.refused(node, "a remainder towards zero", w.unknown_reason)
    quotient = w.add("DIV", [left, right], node, "quotient")
    w.put(node, "SUB", [left, w.add("MUL", [quotient, right], node, "product")])


def _where(w: TfliteWriter, node: Operation) -> None:
    w.dims(node, node.outputs[0])  # where a file does not state them, LiteRT drops the axes of one element
    w.put(node, "SELECT_V2", kind=w.values.kinds[w[node.inputs[1]]])


RULES: Mapping[str, Rule] = {
    **{kind: _plain(kind.upper()) for kind in ("Abs", "Ceil", "Cos", "Exp", "Floor", "Log", "Neg", "Relu", "Sign", "Sin", "Sqrt", "Tanh")},
    **{kind: _folded(operator) for kind, operator in {
        "Add": "ADD", "Sub": "SUB", "Mul": "MUL", "Div": "DIV", "Pow": "POW", "Max": "MAXIMUM", "Min": "MINIMUM",
        "And": "LOGICAL_AND", "Or": "LOGICAL_OR",
    }.items()},
    **{kind: _plain(operator, BOOL) for kind, operator in {
        "Equal": "EQUAL", "Greater": "GREATER", "GreaterOrEqual": "GREATER_EQUAL", "Less": "LESS", "LessOrEqual": "LESS_EQUAL",
        "Not": "LOGICAL_NOT", "Xor": "NOT_EQUAL",
    }.items()},
    **{f"Reduce{word}": _reduced(operator) for word, operator in {
        "Max": "REDUCE_MAX", "Mean": "MEAN", "Min": "REDUCE_MIN", "Prod": "REDUCE_PROD", "Sum": "SUM",
    }.items()},
    **AXES, **SPACE,
    "ArgMax": _best("ARG_MAX"), "ArgMin": _best("ARG_MIN"), "Concat": _concat, "CumSum": _plain("CUMSUM"),
    "Gelu": _plain("GELU"), "Identity": lambda w, node: w.named(node.outputs[0], w[node.inputs[0]]),
    "LogSoftmax": _along_last("LOG_SOFTMAX"), "MatMul": _product, "Mod": _modulo, "OneHot": _one_hot, "Range": _plain("RANGE"),
    "Round": _plain("ROUND"), "Scan": scan, "Sigmoid": _plain("LOGISTIC"), "Softmax": _along_last("SOFTMAX", beta=1.0),
    "Tile": _plain("TILE"), "TopK": _top, "Where": _where,
}  # fmt: skip
"""The operations that are known."""
