"""A graph of basic operations as a .tflite file: one rule for each operation that is not a single operator.

Source: tensorflow/lite/kernels, for what each operator takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, Pieced, nbytes
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.tflite import flatbuffer_write
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.export_steps import steps
from rnnconvert.formats.tflite.export_tables import BOOL, FLOAT, INT, WIDE, OperatorGraph, kind_of
from rnnconvert.formats.tflite.tables import ModelTables
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.scaffolding.graph.model import NamedTensor, OperationGraph, WrittenGraph

LACKING = (
    "Celu", "Elu", "Selu", "LeakyRelu", "PRelu", "HardSigmoid", "HardSwish", "Softplus", "Softsign", "Reciprocal", "ReduceL2",
    "LayerNormalization", "InstanceNormalization", "ScatterElements", "Trilu", "Clip",
)  # fmt: skip
"""The operations that are composed of others: TFLite has none, or one of other constants."""


def exported(graph: OperationGraph) -> WrittenGraph:
    """Return a graph as a TFLite model. Raises RefusedError for an operation or a recurrent layer without an equivalent."""
    for tensor in (*graph.inputs, *graph.outputs):
        if tensor.value.dtype not in ("float32", "int32", "int64", "bool"):
            raise RefusedError(f"{tensor.name!r} of type {tensor.value.dtype}", "TFLite", "its kernels compute in float32 alone")
    writer = _TfliteWriter(graph)
    for tensor in graph.inputs:
        writer.input(tensor)
    for node in graph.nodes:
        writer.node(node)
    for tensor in graph.outputs:
        writer.output(tensor)
    notes = ["resize_tensor_input gives its inputs their lengths; it keeps no states from call to call"] if graph.inputs else []
    if any(tensor.value.dtype == "int64" for tensor in graph.inputs):
        notes.append("whole numbers are computed in 32 bits")
    tables = writer.values.model
    size = sum(nbytes(buffer[s.BUFFER["data"]]) for buffer in tables.buffers if buffer)
    count = sum(len(part.operators) for part in tables.graphs)
    write = partial(flatbuffer_write.write, identifier=s.IDENTIFIER, root=tables.root())
    return WrittenGraph(graph, count, writer.recurrent, notes, size, write)


class _TfliteWriter:
    """A TFLite model under construction.

    values     its main graph
    recurrent  its recurrent layers, in words
    """

    def __init__(self, graph: OperationGraph) -> None:
        self.values = OperatorGraph(ModelTables(), "main")
        self.recurrent: list[str] = []
        self._graph, self._scope = graph, graph.scope()
        self._shapes = Shapes(self._scope.program)
        self._places: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        """Return a value of the graph; stored numbers become a constant where they are first read."""
        if name not in self._places:
            self._places[name] = self.values.constant(name, self._graph.arrays[name])
        return self._places[name]

    def stored(self, name: str) -> Array | Pieced | None:
        """Return stored numbers; None for a value that is computed."""
        return self._graph.arrays.get(name)

    def numbers(self, name: str) -> list[int] | None:
        """Return whole numbers that are known without a run."""
        array = self._scope.constant(name)
        return None if array is None else [int(number) for number in np.asarray(array).reshape(-1)]

    def partly(self, name: str) -> Sequence[int | None] | None:
        """Return whole numbers of which some are known without a run."""
        return self._shapes.partly(self._scope, name)

    def dims(self, node: Operation, name: str) -> Sequence[int | None]:
        """Return the axes of a value. Raises RefusedError where not even their number is known."""
        dims = self._shapes.dims(self._scope, name)
        if dims is None:
            raise RefusedError("a value of any number of axes", "TFLite", "its operators are for a number that is known", "", node.name)
        return dims

    def shape(self, name: str) -> Sequence[int | None] | None:
        """Return the axes of a value; None where not even their number is known."""
        return self._shapes.dims(self._scope, name)

    def input(self, tensor: NamedTensor) -> None:
        """Add an input of the model."""
        wide = tensor.value.dtype == "int64"
        kind = WIDE if wide else kind_of(np.dtype(tensor.value.dtype))
        place = self.values.value(tensor.name, kind, tensor.value.shape)
        self.values.inputs[tensor.name] = place
        self._places[tensor.name] = self.cast(place, INT, f"{tensor.name}/narrow") if wide else place

    def output(self, tensor: NamedTensor) -> None:
        """Add an output of the model."""
        kind = WIDE if tensor.value.dtype == "int64" else kind_of(np.dtype(tensor.value.dtype))
        place = self[tensor.name]
        self.values.outputs[tensor.name] = self.cast(place, kind, tensor.name)

    def cast(self, place: int, kind: int, name: str) -> int:
        """Add a change of the element type."""
        codes: dict[str, Any] = {"from": self.values.kinds[place], "to": kind}
        return self.values.add("CAST", [place], name, kind, **codes)

    def node(self, node: Operation) -> None:
        """Add an operation. Raises RefusedError for one that is unknown here."""
        rule = _RULES.get(node.kind)
        if rule is None:
            raise RefusedError(f"the operation {node.kind}", "TFLite", "no operator of TFLite's is known for it", "", node.name)
        rule(self, node)

    def put(self, node: Operation, operator: str, inputs: Sequence[int] | None = None, kind: int | None = None, **options: Any) -> None:
        """Add an operator that gives what an operation of the graph gives."""
        read = [self[name] for name in node.inputs] if inputs is None else inputs
        output = node.outputs[0]
        self.named(output, self.values.add(operator, read, node.name, kind, self.shape(output), **options))

    def named(self, name: str, place: int) -> None:
        """Let a value of the graph be one that is there."""
        self._places[name] = place

    def add(self, operator: str, inputs: Sequence[int], node: Operation, word: str, kind: int | None = None, **options: Any) -> int:
        """Add an operator on the way to what an operation gives."""
        return self.values.add(operator, inputs, f"{node.name}/{word}", kind, **options)

    def transposed(self, node: Operation, place: int, order: Sequence[int], word: str) -> int:
        """Add a change of the order of axes."""
        return self.add("TRANSPOSE", [place, self.values.integers(*order)], node, word)

    def cut(self, node: Operation, place: int, begins: Mapping[int, int], ends: Mapping[int, int], shrink: Sequence[int] = ()) -> int:
        """Add a part of a value: where it begins and ends along axes; of those that shrink, one place, without its axis."""
        axes = max([*begins, *ends, *shrink]) + 1
        lists = [[each.get(axis, 0) for axis in range(axes)] for each in (begins, ends)]
        masks = [sum(1 << axis for axis in range(axes) if axis not in each) for each in (begins, ends)]
        bounds = [self.values.integers(*numbers) for numbers in (*lists, [1] * axes)]
        shrunk = sum(1 << axis for axis in shrink)
        return self.add("STRIDED_SLICE", [place, *bounds], node, "part", begin_mask=masks[0], end_mask=masks[1], shrink_axis_mask=shrunk)

    def picked(self, node: Operation, place: int, axis: int, index: int) -> int:
        """Add one place along an axis, without that axis; a negative one counts from the end."""
        return self.cut(node, place, {axis: index}, {axis: index + 1} if index != -1 else {}, [axis])

    def size(self, node: Operation, place: int) -> int:
        """Add the lengths of a value's axes."""
        return self.add("SHAPE", [place], node, "shape", INT, out_type=INT)


Rule = Callable[[_TfliteWriter, Operation], None]


def _refuse(node: Operation, feature: str, reason: str) -> RefusedError:
    return RefusedError(feature, "TFLite", reason, "", node.name)


def _plain(operator: str, kind: int | None = None) -> Rule:
    return lambda w, node: w.put(node, operator, kind=kind)


def _folded(operator: str) -> Rule:
    def rule(w: _TfliteWriter, node: Operation) -> None:
        first, *others = (w[name] for name in node.inputs)
        for other in others[:-1]:
            first = w.add(operator, [first, other], node, "before")
        w.put(node, operator, [first, others[-1]])

    return rule


def _product(w: _TfliteWriter, node: Operation) -> None:
    left, right = node.inputs
    ranks = [len(w.dims(node, name)) for name in node.inputs]
    stored = w.stored(right)
    if stored is not None and ranks[1] == 2 and ranks[0] > 1:
        turned = stored.T if isinstance(stored, np.ndarray) else np.asarray(stored).T
        w.put(node, "FULLY_CONNECTED", [w[left], w.values.constant(right, turned), -1], keep_num_dims=1)
    elif min(ranks) > 1:
        w.put(node, "BATCH_MATMUL")
    else:
        raise _refuse(node, "a product with a list of numbers", "its operators take matrices")


def _gather(w: _TfliteWriter, node: Operation) -> None:
    name, where = node.inputs
    axis, dims = node.attributes.get("axis", 0), w.dims(node, name)
    index = w.numbers(where)
    if index is not None and w.shape(where) == []:
        w.named(node.outputs[0], w.picked(node, w[name], axis % len(dims), index[0]))
        return
    places = w[where]
    if index is None:
        places = _from_the_beginning(w, node, places, axis % len(dims), dims[axis])
    if index is not None and min(index, default=0) < 0:
        length = dims[axis]
        if length is None:
            raise _refuse(node, "places that count from the end", "its operator counts from the beginning")
        shape = [each or 1 for each in w.shape(where) or ()]
        places = w.values.constant(where, np.array([n % length for n in index], np.int32).reshape(shape))
    w.put(node, "GATHER", [w[name], places], axis=axis % len(dims), batch_dims=0)


def _from_the_beginning(w: _TfliteWriter, node: Operation, places: int, axis: int, length: int | None) -> int:
    """Add places along an axis, those that count from its end turned into such from its beginning."""
    size = w.values.integer(length) if length is not None else w.picked(node, w.size(node, w[node.inputs[0]]), 0, axis)
    negative = w.add("LESS", [places, w.values.integer(0)], node, "negative", BOOL)
    turns = w.add("MUL", [w.add("CAST", [negative], node, "turns", INT, **{"from": BOOL, "to": INT}), size], node, "turned")
    return w.add("ADD", [places, turns], node, "places")


def _gather_by_row(w: _TfliteWriter, node: Operation) -> None:
    """Add steps of each sequence at places of its own."""
    name, where = node.inputs
    if node.attributes.get("batch_dims", 0) != 1:
        raise _refuse(node, "places in several axes", "no operator of TFLite's is known for it")
    last = len(w.dims(node, where)) - 1
    w.put(node, "GATHER", [w[name], w.picked(node, w[where], last, 0)], axis=1, batch_dims=1)


def _reshape(w: _TfliteWriter, node: Operation) -> None:
    name, target = node.inputs
    x, wanted = w[name], w.numbers(target)
    zeros = not node.attributes.get("allowzero", 0)
    stated = wanted if wanted is not None else w.partly(target)
    copied = [axis for axis, length in enumerate(stated or ()) if length == 0 and zeros]
    if not copied:
        w.put(node, "RESHAPE", [x, w.values.integers(*wanted) if wanted else w[target]])
        return
    dims, size = w.dims(node, name), w.size(node, x)
    parts = []
    for axis, length in enumerate(stated or ()):
        if axis in copied and dims[axis] is not None:
            parts.append(w.values.integers(dims[axis] or 0))
        elif axis in copied:
            parts.append(w.cut(node, size, {0: axis}, {0: axis + 1}))
        elif length is not None:
            parts.append(w.values.integers(length))
        else:
            parts.append(w.cut(node, w[target], {0: axis}, {0: axis + 1}))
    w.put(node, "RESHAPE", [x, w.add("CONCATENATION", parts, node, "shape", axis=0) if len(parts) > 1 else parts[0]])


def _squeeze(w: _TfliteWriter, node: Operation) -> None:
    dims = w.dims(node, node.inputs[0])
    every = [axis for axis, length in enumerate(dims) if length == 1 or len(dims) == 1]
    axes = [axis % len(dims) for axis in w.numbers(node.inputs[1]) or ()] if len(node.inputs) > 1 else every
    w.named(node.outputs[0], w.cut(node, w[node.inputs[0]], {}, {}, axes) if axes else w[node.inputs[0]])


def _unsqueeze(w: _TfliteWriter, node: Operation) -> None:
    axes = w.numbers(node.inputs[1]) or []
    rank = len(w.dims(node, node.inputs[0])) + len(axes)
    place = w[node.inputs[0]]
    for axis in sorted(axis % rank for axis in axes):
        place = w.add("EXPAND_DIMS", [place, w.values.integer(axis)], node, "wide")
    w.named(node.outputs[0], place)


def _slice(w: _TfliteWriter, node: Operation) -> None:
    rank = len(w.dims(node, node.inputs[0]))
    bounds = [w.numbers(name) for name in node.inputs[1:]]
    begins, ends = bounds[:2]
    count = len(w.dims(node, node.inputs[1])) and w.dims(node, node.inputs[1])[0]
    axes = (bounds[2] if len(bounds) > 2 else None) or list(range(count or 0))
    strides = (bounds[3] if len(bounds) > 3 else None) or [1] * len(axes)
    axes = [axis % rank for axis in axes]
    x = w[node.inputs[0]]
    largest = np.iinfo(np.int32).max
    if set(strides) == {-1} and begins is not None and ends is not None and set(begins) == {-1} and max(ends) < -largest:
        for axis in axes:
            x = w.add("REVERSE_V2", [x, w.values.integers(axis)], node, "turned")
        w.named(node.outputs[0], x)
        return
    width = max(axes) + 1
    lists, masks = [], []
    for name, stated, empty in ((node.inputs[1], begins, 0), (node.inputs[2], ends, 0)):
        if stated is None and len(axes) > 1:
            raise _refuse(node, "a part with several bounds that a run decides", "no operator of TFLite's is known for it")
        mask = sum(1 << axis for axis in range(width) if axis not in axes)
        if stated is None:
            before = [w.values.integers(*[empty] * axes[0])] if axes[0] else []
            parts = [*before, w[name]]
            lists.append(w.add("CONCATENATION", parts, node, "bounds", axis=0) if before else parts[0])
        else:
            by_axis = dict(zip(axes, stated, strict=True))
            mask |= sum(1 << axis for axis in axes if abs(by_axis[axis]) >= largest)
            lists.append(w.values.integers(*(max(-largest, min(largest, by_axis.get(axis, empty))) for axis in range(width))))
        masks.append(mask)
    steps_of = dict(zip(axes, strides, strict=True))
    step = w.values.integers(*(steps_of.get(axis, 1) for axis in range(width)))
    w.put(node, "STRIDED_SLICE", [x, *lists, step], begin_mask=masks[0], end_mask=masks[1], shrink_axis_mask=0)


def _split(w: _TfliteWriter, node: Operation) -> None:
    x, sizes = (w[name] for name in node.inputs)
    kind = w.values.kinds[x]
    outputs = [w.values.value(name, kind, w.shape(name)) for name in node.outputs]
    w.values.several("SPLIT_V", [x, sizes, w.values.integer(node.attributes["axis"])], outputs, count=len(outputs))
    for name, place in zip(node.outputs, outputs, strict=True):
        w.named(name, place)


def _shape(w: _TfliteWriter, node: Operation) -> None:
    x, first, last = w[node.inputs[0]], node.attributes.get("start", 0), node.attributes.get("end", None)
    size = w.size(node, x)
    if first or last is not None:
        size = w.cut(node, size, {0: first}, {} if last is None else {0: last})
    w.named(node.outputs[0], size)


def _filled(w: _TfliteWriter, node: Operation) -> None:
    value = node.attributes.get("value")
    number = np.zeros((), np.float32) if value is None else np.asarray(value.numbers).reshape(())
    place = w.values.constant(f"{node.name}/value", number)
    w.put(node, "FILL", [w[node.inputs[0]], place], w.values.kinds[place])


def _expand(w: _TfliteWriter, node: Operation) -> None:
    x, target = (w[name] for name in node.inputs)
    both = w.add("BROADCAST_ARGS", [w.size(node, x), target], node, "lengths", INT)
    w.put(node, "BROADCAST_TO", [x, both])


def _cast(w: _TfliteWriter, node: Operation) -> None:
    place, kind = w[node.inputs[0]], kind_of(node.attributes["to"])
    before = w.values.kinds[place]
    if kind == before:
        w.named(node.outputs[0], place)
    elif kind == BOOL:
        zero = w.values.number(0.0) if before == FLOAT else w.values.integer(0)
        w.put(node, "NOT_EQUAL", [place, zero], BOOL)
    else:
        w.named(node.outputs[0], w.cast(place, kind, node.name))


def _reduced(operator: str) -> Rule:
    def rule(w: _TfliteWriter, node: Operation) -> None:
        axes = node.attributes.get("axes") or w.numbers(node.inputs[1]) or ()
        rank = len(w.dims(node, node.inputs[0]))
        listed = w.values.integers(*(axis % rank for axis in axes))
        w.put(node, operator, [w[node.inputs[0]], listed], keep_dims=int(node.attributes.get("keepdims", 1)))

    return rule


def _best(operator: str) -> Rule:
    def rule(w: _TfliteWriter, node: Operation) -> None:
        axis = node.attributes["axis"] % len(w.dims(node, node.inputs[0]))
        place = w.add(operator, [w[node.inputs[0]], w.values.integer(axis)], node, "places", INT, output_type=INT)
        if node.attributes["keepdims"]:
            place = w.add("EXPAND_DIMS", [place, w.values.integer(axis)], node, "wide")
        w.named(node.outputs[0], place)

    return rule


def _last_axis(w: _TfliteWriter, node: Operation) -> list[int]:
    """Return the order of axes that puts an operation's own axis last, which changes nothing by being applied twice."""
    rank = len(w.dims(node, node.inputs[0]))
    order = list(range(rank))
    axis = node.attributes["axis"] % rank
    order[axis], order[-1] = order[-1], order[axis]
    return order


def _along_last(operator: str, **options: Any) -> Rule:
    def rule(w: _TfliteWriter, node: Operation) -> None:
        order, x = _last_axis(w, node), w[node.inputs[0]]
        if order == sorted(order):
            w.put(node, operator, [x], **options)
            return
        output = w.add(operator, [w.transposed(node, x, order, "last")], node, "along", **options)
        w.put(node, "TRANSPOSE", [output, w.values.integers(*order)])

    return rule


def _top(w: _TfliteWriter, node: Operation) -> None:
    order, largest = _last_axis(w, node), node.attributes["largest"]
    x = w.transposed(node, w[node.inputs[0]], order, "last")
    x = x if largest else w.add("NEG", [x], node, "less")
    counts = w.numbers(node.inputs[1])
    if counts is None:
        raise _refuse(node, "a number of places that a run decides", "no operator of TFLite's is known for it")
    outputs = [w.values.value(f"{node.name}/{word}", kind) for word, kind in (("top", w.values.kinds[x]), ("at", INT))]
    w.values.several("TOPK_V2", [x, w.values.integer(counts[0])], outputs)
    top = outputs[0] if largest else w.add("NEG", outputs[:1], node, "values")
    for name, place in zip(node.outputs, (top, outputs[1]), strict=True):
        w.named(name, w.transposed(node, place, order, "back"))


def _one_hot(w: _TfliteWriter, node: Operation) -> None:
    index, depth = (w[name] for name in node.inputs[:2])
    off, on = (w.values.constant(f"{node.name}/{n}", number) for n, number in enumerate(np.asarray(w.stored(node.inputs[2]))))
    w.put(node, "ONE_HOT", [index, depth, on, off], w.values.kinds[on], axis=-1)


def _concat(w: _TfliteWriter, node: Operation) -> None:
    places = [w[name] for name in node.inputs]
    if len(places) == 1:
        w.named(node.outputs[0], places[0])
        return
    w.put(node, "CONCATENATION", places, axis=node.attributes["axis"])


def _cumulative(w: _TfliteWriter, node: Operation) -> None:
    w.put(node, "CUMSUM")


def _modulo(w: _TfliteWriter, node: Operation) -> None:
    left, right = (w[name] for name in node.inputs)
    if not node.attributes.get("fmod", 0):
        w.put(node, "FLOOR_MOD")
        return
    if w.values.kinds[left] == FLOAT:
        raise _refuse(node, "a remainder towards zero", "no operator of TFLite's is known for it")
    quotient = w.add("DIV", [left, right], node, "quotient")
    w.put(node, "SUB", [left, w.add("MUL", [quotient, right], node, "product")])


def _tangent(w: _TfliteWriter, node: Operation) -> None:
    x = w[node.inputs[0]]
    w.put(node, "DIV", [w.add("SIN", [x], node, "sin"), w.add("COS", [x], node, "cos")])


def _is_infinite(w: _TfliteWriter, node: Operation) -> None:
    size = w.add("ABS", [w[node.inputs[0]]], node, "size")
    w.put(node, "EQUAL", [size, w.values.number(math.inf)], BOOL)


def _is_no_number(w: _TfliteWriter, node: Operation) -> None:
    x = w[node.inputs[0]]
    w.put(node, "NOT_EQUAL", [x, x], BOOL)


def _where(w: _TfliteWriter, node: Operation) -> None:
    w.dims(node, node.outputs[0])  # where a file does not state them, LiteRT drops the axes of one element
    w.put(node, "SELECT_V2", kind=w.values.kinds[w[node.inputs[1]]])


def _contracted(w: _TfliteWriter, node: Operation) -> None:
    """Add sums of products of two values whose axes have letters."""
    operands, _, result = node.attributes["equation"].replace(" ", "").partition("->")
    letters = operands.split(",")
    if len(letters) != 2:
        raise _refuse(node, f"a product {node.attributes['equation']!r}", "it is not of two values")
    every = [*result, *sorted(set("".join(letters)) - set(result))]
    places = []
    for name, axes_read in zip(node.inputs, letters, strict=True):
        place = w.transposed(node, w[name], [axes_read.index(letter) for letter in every if letter in axes_read], "turned")
        for axis, letter in enumerate(every):
            if letter not in axes_read:
                place = w.add("EXPAND_DIMS", [place, w.values.integer(axis)], node, "wide")
        places.append(place)
    if len(every) == len(result):
        w.put(node, "MUL", places)
        return
    product = w.add("MUL", places, node, "products")
    w.put(node, "SUM", [product, w.values.integers(*range(len(result), len(every)))], keep_dims=0)


# Space: TFLite's windows have two axes, and channels at the end


def _to_end(w: _TfliteWriter, node: Operation, place: int, count: int) -> int:
    """Return a value whose channels are behind the batch, with two axes of space before its channels."""
    place = w.transposed(node, place, [0, *range(2, 2 + count), 1], "channels_last")
    return place if count == 2 else w.add("EXPAND_DIMS", [place, w.values.integer(1)], node, "plane")


def _back(w: _TfliteWriter, node: Operation, place: int, count: int) -> None:
    """Let an operation give a value with two axes of space and its channels at the end."""
    place = place if count == 2 else w.cut(node, place, {}, {}, [1])
    w.put(node, "TRANSPOSE", [place, w.values.integers(0, 1 + count, *range(1, 1 + count))])


def _two(numbers: Sequence[int]) -> tuple[int, int]:
    first, second = [1, *numbers][-2:]
    return first, second


def _flat(node: Operation, count: int, what: str) -> None:
    if count not in (1, 2):
        raise _refuse(node, f"{what} over {count} axes", "its operators are for one axis or two")


_SAME, _VALID = 0, 1


def _padded(w: _TfliteWriter, node: Operation, x: int, count: int, number: float) -> tuple[int, int]:
    """Return a value with what stands around its windows, and TFLite's word for what is still to be padded."""
    if node.attributes.get("auto_pad") == "SAME_UPPER":
        return x, _SAME
    pads = node.attributes.get("pads", [0] * 2 * count)
    if any(pads):
        pairs = [(0, 0)] * (3 - count) + list(zip(pads[:count], pads[count:], strict=True)) + [(0, 0)]
        listed = w.values.constant(f"{node.name}/pads", np.array(pairs, np.int32))
        x = w.add("PADV2", [x, listed, w.values.number(number)], node, "padded")
    return x, _VALID


def _conv(w: _TfliteWriter, node: Operation) -> None:
    stored = w.stored(node.inputs[1])
    if stored is None:
        raise _refuse(node, "a convolution with computed weights", "no operator of TFLite's is known for it")
    weights = np.asarray(stored)
    count, groups = weights.ndim - 2, node.attributes.get("group", 1)
    _flat(node, count, "a convolution")
    x, padding = _padded(w, node, _to_end(w, node, w[node.inputs[0]], count), count, 0.0)
    if count == 1:
        weights = weights[:, :, None]
    stride_h, stride_w = _two(node.attributes.get("strides", [1] * count))
    by_h, by_w = _two(node.attributes.get("dilations", [1] * count))
    options = {"padding": padding, "stride_w": stride_w, "stride_h": stride_h, "by_w": by_w, "by_h": by_h}
    bias = np.asarray(w.stored(node.inputs[2])) if len(node.inputs) > 2 else np.zeros(len(weights), np.float32)
    added = w.values.constant(f"{node.name}/bias", bias)
    if groups > 1 and weights.shape[1] == 1:
        kernel = w.values.constant(f"{node.name}/kernel", np.transpose(weights, (1, 2, 3, 0)))
        output = w.add("DEPTHWISE_CONV_2D", [x, kernel, added], node, "convolved", **options, multiplier=len(weights) // groups)
    else:
        kernel = w.values.constant(f"{node.name}/kernel", np.transpose(weights, (0, 2, 3, 1)))
        output = w.add("CONV_2D", [x, kernel, added], node, "convolved", **options)
    _back(w, node, output, count)


def _conv_transposed(w: _TfliteWriter, node: Operation) -> None:
    weights = np.asarray(w.stored(node.inputs[1]))
    count = weights.ndim - 2
    _flat(node, count, "a transposed convolution")
    if node.attributes.get("group", 1) > 1 or max(node.attributes.get("dilations", [1])) > 1:
        raise _refuse(node, "a transposed convolution in groups or with places apart", "its operator has neither")
    weights = weights[:, :, None] if count == 1 else weights
    strides, kernel = _two(node.attributes.get("strides", [1] * count)), weights.shape[2:]
    more = [0, *node.attributes.get("output_padding", [0] * count)][-2:]
    x = _to_end(w, node, w[node.inputs[0]], count)
    size = w.size(node, x)
    batch, space = w.cut(node, size, {}, {0: 1}), w.cut(node, size, {0: 1}, {0: 3})
    spread = w.add("MUL", [w.add("SUB", [space, w.values.integer(1)], node, "gaps"), w.values.integers(*strides)], node, "spread")
    reach = w.add("ADD", [spread, w.values.integers(*(k + m for k, m in zip(kernel, more, strict=True)))], node, "reach")
    shape = w.add("CONCATENATION", [batch, reach, w.values.integers(weights.shape[1])], node, "size", axis=0)
    stored = w.values.constant(f"{node.name}/kernel", np.transpose(weights, (1, 2, 3, 0)))
    output = w.add("TRANSPOSE_CONV", [shape, stored, x], node, "convolved", FLOAT, padding=_VALID, stride_w=strides[1], stride_h=strides[0])
    pads = list(node.attributes.get("pads", [0] * 2 * count))
    if any(pads):
        begins = {3 - count + axis: pads[axis] for axis in range(count)}
        ends = {3 - count + axis: -pads[count + axis] for axis in range(count) if pads[count + axis]}
        output = w.cut(node, output, begins, ends)
    if len(node.inputs) > 2:
        output = w.add("ADD", [output, w[node.inputs[2]]], node, "moved")
    _back(w, node, output, count)


def _pool(w: _TfliteWriter, node: Operation) -> None:
    kernel = node.attributes["kernel_shape"]
    count, most = len(kernel), node.kind == "MaxPool"
    _flat(node, count, "a pool")
    strides, pads = node.attributes.get("strides", [1] * count), node.attributes.get("pads", [0] * 2 * count)
    if node.attributes.get("ceil_mode", 0) or max(node.attributes.get("dilations", [1])) > 1:
        raise _refuse(node, "a pool with windows beyond its input (ceil_mode) or over places apart", "its operators have neither")
    x = _to_end(w, node, w[node.inputs[0]], count)
    padding = _SAME
    same = [n for size in kernel for n in ((size - 1) // 2,)] + [size // 2 for size in kernel]
    if not (most or node.attributes.get("count_include_pad", 0)) and any(pads):
        if list(pads) != same or max(strides) > 1:
            raise _refuse(node, "an average that leaves its padding out", "its operator does so for other pads")
    else:
        x, padding = _padded(w, node, x, count, float(np.finfo(np.float32).min) if most else 0.0)
    (height, width), (stride_h, stride_w) = _two(kernel), _two(strides)
    options = {"padding": padding, "stride_w": stride_w, "stride_h": stride_h, "width": width, "height": height}
    _back(w, node, w.add("MAX_POOL_2D" if most else "AVERAGE_POOL_2D", [x], node, "pooled", **options), count)


def _pad(w: _TfliteWriter, node: Operation) -> None:
    pads, mode = w.numbers(node.inputs[1]), node.attributes.get("mode", "constant")
    if pads is None or min(pads) < 0 or mode not in ("constant", "reflect"):
        raise _refuse(node, f"padding of mode {mode!r}, or by a number below zero or of a run", "no operator of TFLite's is known for it")
    pairs = np.array(pads, np.int32).reshape(2, -1).T
    x, listed = w[node.inputs[0]], w.values.constant(f"{node.name}/pads", pairs)
    if mode == "reflect":
        w.put(node, "MIRROR_PAD", [x, listed], mode=0)
    elif len(node.inputs) > 2:
        w.put(node, "PADV2", [x, listed, w[node.inputs[2]]])
    else:
        w.put(node, "PAD", [x, listed])


# Recurrent layers


def _recurrent(w: _TfliteWriter, node: Operation) -> None:
    """Add a WHILE for each direction; one that reads from the end runs over turned sequences."""
    stack: Recurrent = node.attributes["stack"]
    (layer,) = stack.layers
    read = [*node.inputs, "", "", ""]
    x, lengths = w[read[0]], w[read[4]] if read[4] else -1
    by_way = []
    for way, direction in enumerate(layer.directions):
        name = node.name if len(layer.directions) == 1 else f"{node.name}/{('forward', 'backward')[way]}"
        states = [w.picked(node, w[state], 0, way) for state in read[5:7] if state]

        def turned(place: int, word: str) -> int:
            if lengths < 0:
                return w.values.add("REVERSE_V2", [place, w.values.integers(0)], f"{node.name}/{word}")
            return w.values.add("REVERSE_SEQUENCE", [place, lengths], f"{node.name}/{word}", seq_dim=0, batch_dim=1)

        every, *ends = steps(w.values, name, direction, turned(x, "turned") if direction.reverse else x, states, lengths)
        by_way.append([turned(every, "in order") if direction.reverse else every, *ends])
    w.recurrent.append(f"{node.name} ({node.kind} {stack.input_size} -> {layer.directions[0].output_size})")
    for number, (name, places) in enumerate(zip(node.outputs, zip(*by_way, strict=True), strict=False)):
        axis = 0 if number else 1
        wide = [w.add("EXPAND_DIMS", [place, w.values.integer(axis)], node, "wide") for place in places]
        w.named(name, w.add("CONCATENATION", wide, node, "ways", axis=axis) if len(wide) > 1 else wide[0])


_RULES: Mapping[str, Rule] = {
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
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _recurrent), **dict.fromkeys(("AveragePool", "MaxPool"), _pool),
    "ArgMax": _best("ARG_MAX"), "ArgMin": _best("ARG_MIN"), "Cast": _cast, "Concat": _concat, "ConstantOfShape": _filled, "Conv": _conv,
    "ConvTranspose": _conv_transposed, "CumSum": _cumulative, "Einsum": _contracted, "Expand": _expand, "Gather": _gather,
    "GatherND": _gather_by_row, "Gelu": _plain("GELU"), "Identity": lambda w, node: w.named(node.outputs[0], w[node.inputs[0]]),
    "IsInf": _is_infinite, "IsNaN": _is_no_number, "LogSoftmax": _along_last("LOG_SOFTMAX"), "MatMul": _product, "Mod": _modulo,
    "OneHot": _one_hot, "Pad": _pad, "Range": _plain("RANGE"), "Reshape": _reshape, "Round": _plain("ROUND"),
    "Shape": _shape, "Sigmoid": _plain("LOGISTIC"), "Slice": _slice, "Softmax": _along_last("SOFTMAX", beta=1.0), "Split": _split,
    "Squeeze": _squeeze, "Tan": _tangent, "Tile": _plain("TILE"), "TopK": _top, "Unsqueeze": _unsqueeze, "Where": _where,
    "Transpose": lambda w, node: w.put(node, "TRANSPOSE", [w[node.inputs[0]], w.values.integers(*node.attributes["perm"])]),
}  # fmt: skip
"""The operations that are known."""
