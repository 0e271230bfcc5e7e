"""Packed sequences, and the order of the rows in which they are packed.

Sources: aten/src/ATen/native/PackedSequence.cpp, torch/nn/utils/rnn.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rnnconvert.formats.pytorch.aten_operator import BatchSizes, BoundCall, PackedSteps, ReorderedRows, SortedOrder
from rnnconvert.formats.pytorch.described.functions import INTEGERS, number
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.tensors import SourceTensor

if TYPE_CHECKING:
    from rnnconvert.formats.pytorch.described.reading import ProgramReading


def pack(r: ProgramReading, call: BoundCall) -> PackedSteps:
    """Return padded sequences of which the steps of each one's own length count."""
    x, lengths, first = call.tensor(), call.tensor("lengths"), bool(call("batch_first"))
    key = x, lengths, first
    if key not in r.packed:
        r.ask_type(lengths, "int64")
        if x.rank < 2 or lengths.rank != 1 or lengths.dtype not in INTEGERS:
            raise ValueError(f"packed sequences of {x.rank} axes, whose lengths have {lengths.rank}")
        batch, order = 1 - first, None
        if isinstance(lengths, ReorderedRows) and isinstance(x, ReorderedRows) and x.is_by(lengths.order, batch):
            order, x, lengths = lengths.order, x.rows, lengths.rows
        x = x if first else r.build.transpose(x, (1, 0, *range(2, x.rank)))
        r.same(lengths.dims[0], x.dims[0])
        constant = lengths.numbers
        longest = r.build.opened(f"longest of {lengths.name} ({len(r.packed)})") if constant is None else int(constant.max())
        mask = r.build.add(kinds.Mask(operation="lengths", packed=True), [lengths, x], x.dims[:2], "bool", name="mask")
        r.packed[key] = PackedSteps(x, lengths, mask, longest, order)
    return r.packed[key]


def padded(r: ProgramReading, call: BoundCall) -> list[SourceTensor]:
    """Return packed sequences padded with zeros, or another number, behind their ends, and their lengths."""
    steps, first, value = call("x"), bool(call("batch_first")), call("padding_value", 0.0)
    if not isinstance(steps, PackedSteps):
        raise ValueError("other than packed sequences are padded")
    steps.check_sizes(call("batch_sizes"))
    x, length = steps.x, call("total_length", -1)
    if value or not steps.zero:
        x = r.build.elementwise("where", [r.build.unsqueeze(steps.mask, range(2, x.rank)), x, number(value, x.dtype)], x.dtype)
    if length in (-1, steps.longest) and isinstance(steps.longest, int):
        r.build.reaches(x.dims[1], steps.longest)
        x = r.build.slice(x, 1, 0, steps.longest, 1)
    elif length in (-1, steps.longest):
        x = r.build.add(kinds.CutToLongest(), [x, steps.lengths], (x.dims[0], steps.longest, *x.dims[2:]), name=x.name)
    elif length != x.dims[1]:
        r.same(length, x.dims[1])
        raise r.build.refuse(f"packed sequences padded to {length}", "they are padded to the longest, or to the length that they had")
    x = x if first else r.build.transpose(x, (1, 0, *range(2, x.rank)))
    return [steps.reordered(x, 1 - first), steps.reordered(steps.lengths, 0)]


def sort(r: ProgramReading, call: BoundCall) -> list[SourceTensor]:
    """Return the rows of a tensor in their order, and where they are; the order of an order is its inverse."""
    call.note_read("stable")
    x, axis, largest = call.tensor(), call.axis("dim", -1), bool(call("descending", False))
    if x.rank != 1:
        raise r.build.refuse("a sort of several axes", "only rows of one axis are sorted here")
    if isinstance(x, SortedOrder) and not largest:
        order = x.inverse()
    else:
        order = SortedOrder(x.dims, "int64", "order", of=x, axis=axis, largest=largest)
    return [ReorderedRows(x.dims, x.dtype, x.name, rows=x, axis=axis, order=order), order]


def scatter(r: ProgramReading, call: BoundCall) -> SourceTensor:
    """Return a tensor with one number at the places of an index, as a one-hot vector is made; or the inverse of an order, which puts the
    numbers of the rows at the places of the order."""
    value = call("src")
    if isinstance(value, (bool, int, float)):
        return _put_number(r, call, value)
    order, source = call.tensor("index"), call.tensor("src")
    node = next((node for node in reversed(r.build.scope.nodes) if source.value is not None and source.value in node.outputs), None)
    counts = (
        node is not None
        and isinstance(node.kind, kinds.Range)
        and node.kind.start == 0
        and node.kind.step == 1
        and source.dims == order.dims
    )
    if not counts or not isinstance(order, SortedOrder) or call.axis() != 0 or call.tensor().dims != order.dims:
        raise r.build.refuse("numbers put at computed places", "only the inverse of an order is known here")
    return order.inverse()


def _put_number(r: ProgramReading, call: BoundCall, value: float) -> SourceTensor:
    x, index, axis = call.tensor(), call.tensor("index"), call.axis()
    length, count = x.dims[axis], index.dims[axis] if index.rank == x.rank else None
    if not isinstance(length, int) or not isinstance(count, int) or index.dtype != "int64":
        raise ValueError(f"an index of {index.rank} axes of {index.dtype} into an axis of {length}")
    for place in range(x.rank):
        if place != axis:
            r.same(index.dims[place], x.dims[place])
    numbers = np.arange(length).reshape([length if place == axis else 1 for place in range(x.rank)])
    places = SourceTensor(numbers.shape, "int64", "places", numbers=numbers)
    for column in range(count):
        here = r.build.elementwise("equal", [r.build.slice(index, axis, column, column + 1, 1), places], "bool")
        x = r.build.elementwise("where", [here, number(value, x.dtype), x], x.dtype)
    return x


def batch_sizes(r: ProgramReading, call: BoundCall) -> BatchSizes:
    """Return how many sequences have each step."""
    return BatchSizes(pack(r, call))
