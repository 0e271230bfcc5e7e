"""Operators of aten that compute over axes, and those on numbers and lists. Source: aten/src/ATen/native/native_functions.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.formats.pytorch import aten_elements as elements
from rnnconvert.formats.pytorch.aten_operator import AtenOperator, BoundCall, Rule, StepList
from rnnconvert.formats.pytorch.described.functions import FLOATS, NUMBER_GIVEN, number, to_length
from rnnconvert.formats.pytorch.described.functions import pair as _pair
from rnnconvert.formats.pytorch.program.kinds import ITEM, JOINED, LIST
from rnnconvert.graphs import lengths
from rnnconvert.graphs.operators import Computes, Measures, Moves
from rnnconvert.graphs.sizes import Size, least, most, product, reaches
from rnnconvert.scaffolding import kinds, operations
from rnnconvert.scaffolding.tensors import SourceTensor

if TYPE_CHECKING:
    from rnnconvert.formats.pytorch.described.reading import ProgramReading


def _in_its_type(r: ProgramReading, call: BoundCall) -> SourceTensor:
    """Return the input, in the element type in which the operator is to compute: of whole numbers and truths, in int64."""
    x, dtype = call.tensor(), call("dtype")
    if dtype is not None and str(dtype) not in (*FLOATS, "int32", "int64"):
        raise ValueError(f"a computation in {dtype}")
    return r.build.cast(x, str(dtype) if dtype is not None else x.dtype if x.dtype in FLOATS else "int64")


def _reduce(operation: str) -> Rule:
    def rule(r: ProgramReading, call: BoundCall) -> SourceTensor:
        x = _in_its_type(r, call)
        if x.dtype not in FLOATS and operation != "sum":
            raise ValueError(f"a {operation} of {x.dtype}")
        return operations.reduced(r.build, x, operation, call.axes(), bool(call("keepdim", False)))

    return rule


def _norm(r: ProgramReading, call: BoundCall) -> Any:
    if call("p", 2) != 2:
        raise ValueError(f"a norm of order {call('p')}")
    x = _in_its_type(r, call)
    if x.dtype not in FLOATS:
        raise ValueError(f"a norm of {x.dtype}")
    squares = r.build.elementwise("multiply", [x, x])
    total = operations.reduced(r.build, squares, "sum", call.axes(), bool(call("keepdim", False)))
    return operations.function(r.build, total, "sqrt", name="norm")


def _spread(root: bool) -> Rule:
    """Return the rule of a variance, or of its root."""

    def rule(r: ProgramReading, call: BoundCall) -> Any:
        x, stated = call.tensor(), call("dim")
        by = call("correction", call("unbiased", True))
        axes = [*range(x.rank)] if isinstance(stated, bool) else call.axes()
        by = stated if isinstance(stated, bool) else by  # the overload without axes
        count = product(x.dims[axis] for axis in axes)
        off = r.build.elementwise("subtract", [x, operations.reduced(r.build, x, "mean", axes, True)])
        squares = operations.function(r.build, off, "square")
        result = operations.reduced(r.build, squares, "mean", axes, bool(call("keepdim", False)), "variance")
        if by and isinstance(count, int):
            result = r.build.elementwise("multiply", [result, number(count / (count - int(by)))])
        elif by:
            lengths = [SourceTensor((), "int64", "count", numbers=np.asarray(length, object)) for length in (count, count - int(by))]
            ratio = r.build.elementwise("divide", [r.build.cast(length, x.dtype) for length in lengths])
            result = r.build.elementwise("multiply", [result, ratio])
        return operations.function(r.build, result, "sqrt") if root else result

    return rule


def _extreme(operation: str) -> Rule:
    """Return the rule of max and min: of two tensors, of a whole tensor, or along an axis with the places."""
    reduced, pair = _reduce(operation), _pair(f"{operation}imum")
    of_lengths = least if operation == "min" else most

    def rule(r: ProgramReading, call: BoundCall) -> Any:
        values = call("x") if isinstance(call("x"), list) else [call("x"), call("dim")]
        if all(isinstance(value, (int, Size)) for value in values):
            return of_lengths(*values)
        if isinstance(call("dim"), SourceTensor):
            return r.build.elementwise(f"{operation}imum", [call.tensor(), call("dim")])
        if call("other") is not None:
            return pair(r, call)
        values = reduced(r, call)
        if call("dim") is None:
            return values
        x, keep, axis = call.tensor(), bool(call("keepdim", False)), call.axis()
        return [values, operations.place(r.build, x, f"arg{operation}", axis, keep)]

    return rule


def _arg(operation: str) -> Rule:
    def rule(r: ProgramReading, call: BoundCall) -> SourceTensor:
        return operations.place(r.build, call.tensor(), operation, call.axis(), bool(call("keepdim", False)))

    return rule


def _cumsum(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x = _in_its_type(r, call)
    return r.build.add(kinds.Cumulative(axis=call.axis()), [x], x.dims, name="sums")


def _attention(r: ProgramReading, call: BoundCall) -> SourceTensor:
    query, key, value, mask = call.tensor("query"), call.tensor("key"), call.tensor("value"), call("attn_mask")
    if call("dropout_p", 0) or call("is_causal") or call("enable_gqa") or (mask is not None and mask.dtype == "bool"):
        raise ValueError("attention with dropout, or with a mask of truths")
    width = query.dims[-1]
    if not isinstance(width, int):
        raise ValueError("attention over an open width")
    order = [*range(key.rank - 2), key.rank - 1, key.rank - 2]
    scores = operations.matmul(r.build, query, r.build.transpose(key, order))
    scale = call("scale")
    scores = r.build.elementwise("multiply", [scores, number(width**-0.5 if scale is None else scale)])
    scores = scores if mask is None else r.build.elementwise("add", [scores, mask])
    return operations.matmul(r.build, operations.activation(r.build, scores, "softmax"), value)


def _product(rank: int) -> Rule:
    """Return the rule of a product of tensors of so many axes, 0 for any."""

    def rule(r: ProgramReading, call: BoundCall) -> SourceTensor:
        x, other = call.tensor(), call.tensor("other")
        if rank and (x.rank, other.rank) != (rank, rank):
            raise ValueError(f"tensors of {x.rank} and {other.rank} axes, which are to have {rank}")
        return r.product(x, other)

    return rule


def _addmm(r: ProgramReading, call: BoundCall) -> SourceTensor:
    if call("beta", 1) != 1 or call("alpha", 1) != 1:
        raise ValueError("a product with factors")
    left, right = call.tensor("left"), call.tensor("right")
    if (left.rank, right.rank) != (2, 2):
        raise ValueError(f"matrices of {left.rank} and {right.rank} axes")
    product = r.product(left, right)
    return r.sum(product, call.tensor()) or r.build.elementwise("add", [product, call.tensor()])


def _top(r: ProgramReading, call: BoundCall) -> list[SourceTensor]:
    return operations.top(r.build, call.tensor(), call("k"), call.axis("dim", -1), bool(call("largest", True)))


def _item(r: ProgramReading, call: BoundCall) -> Any:
    values, index = call("x"), call("index")
    if not -len(values) <= index < len(values):  # of the lengths of an input that may have more axes
        raise ValueError(f"element {index} of {len(values)}")
    return values[index]


def _slice_list(r: ProgramReading, call: BoundCall) -> list[Any]:
    bounds = [call(word) for word in ("start", "end", "step")]
    if not isinstance(call("x"), list) or not all(bound is None or isinstance(bound, int) for bound in bounds):
        raise ValueError("a part of a list that a run decides")
    return list(call("x")[slice(*bounds)])


def _contains(r: ProgramReading, call: BoundCall) -> bool:
    return call("other") in call("x")


def _length(r: ProgramReading, call: BoundCall) -> Any:
    x = call("x")
    if isinstance(x, StepList):
        return x.x.dims[0]
    return len(x) if isinstance(x, list) else call.tensor().dims[0]


def _range_length(r: ProgramReading, call: BoundCall) -> Any:
    """Return how many numbers a range has. Raises ValueError for one that may be empty because it ends before it starts, or skips some."""
    start, stop, step = (to_length(call(word)) for word in ("start", "stop", "step"))
    up = isinstance(step, int) and step > 0
    reach = (stop - start if up else start - stop) if isinstance(step, int) and step else -1
    if not reaches(reach, 0):
        raise ValueError(f"a range from {start} to {stop} in steps of {step}")
    return (reach + abs(step) - 1) // abs(step)


def _derived_index(r: ProgramReading, call: BoundCall) -> Any:
    """Return a number of a range, by its place in it."""
    start, step = (to_length(call(word)) for word in ("start", "step"))
    if isinstance(call("x"), (int, Size)):
        return start + call("x") * step
    x = r.build.elementwise("multiply", [call.tensor(), number(step, "int64")])
    return r.build.elementwise("add", [x, number(start, "int64")])


def _joined(r: ProgramReading, call: BoundCall) -> StepList:
    lists = [each.x if isinstance(each, StepList) else r.build.stacked(each) for each in (call("x"), call("other"))]
    return StepList(r.build.concatenate(lists, 0))


def _as_list(*values: Any) -> Any:
    return np.asarray([int(value) for value in values], np.int64)


def _matrices(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return (*shapes[0][:-1], shapes[1][-1])


_OVER = "x dim keepdim dtype"
_SAME_NUMBER = AtenOperator("x", lambda r, call: call("x"), NUMBER_GIVEN)
OPERATORS: dict[str, AtenOperator] = {
    **{word: AtenOperator(_OVER, _reduce(word)) for word in ("mean", "sum")},
    **dict.fromkeys(("norm", "linalg_vector_norm"), AtenOperator("x p dim keepdim dtype", _norm)),
    **{word: AtenOperator("x dim correction keepdim unbiased", _spread(word == "std")) for word in ("var", "std")},
    "amax": AtenOperator("x dim keepdim", _reduce("max")),
    "amin": AtenOperator("x dim keepdim", _reduce("min")),
    **{word: AtenOperator("x dim keepdim other", _extreme(word)) for word in ("max", "min")},
    **{word: AtenOperator("x dim keepdim", _arg(word)) for word in ("argmax", "argmin")},
    "cumsum": AtenOperator("x dim dtype", _cumsum, Computes(shape=lambda shapes: shapes[0])),
    **{word: AtenOperator("x other", _product(rank), Computes(shape=_matrices)) for word, rank in (("matmul", 0), ("mm", 2), ("bmm", 3))},
    "addmm": AtenOperator("x left right beta alpha", _addmm),
    "scaled_dot_product_attention": AtenOperator("query key value attn_mask dropout_p is_causal scale enable_gqa", _attention),
    "topk": AtenOperator("x k dim largest sorted", _top),
    "einsum": AtenOperator(
        "equation tensors path", lambda r, call: operations.einsum(r.build, str(call("equation")), call("tensors")), shares=True
    ),
    **dict.fromkeys(("NumToTensor", "ScalarImplicit"), _SAME_NUMBER),
    "list": _SAME_NUMBER,
    "dim": AtenOperator("x", lambda r, call: call.tensor().rank, Measures(lambda applied: np.asarray(applied.input(0).ndim))),
    "len": AtenOperator("x", _length, Measures(elements.length)),
    "numel": AtenOperator("x", lambda r, call: product(call.tensor().dims), Measures(lambda applied: np.asarray(applied.input(0).size))),
    "contains": AtenOperator("x other", _contains, elements.on_numbers(lambda several, member: bool(np.isin(member, several).all()))),
    "range_length": AtenOperator("start stop step", _range_length),
    "derive_index": AtenOperator("x start step", _derived_index),
    "list_add": AtenOperator(
        "x other",
        lambda r, call: [*call("x"), *call("other")],
        elements.on_numbers(lambda left, other: np.hstack([left, other]), lengths.listed),
    ),
    "slice_list": AtenOperator("x start end step", _slice_list, Moves(elements.slice_list)),
    JOINED: AtenOperator("x other", _joined, shares=True),
    ITEM: AtenOperator("x index", _item, Moves(elements.item)),
    LIST: AtenOperator("a b c d e f g h", lambda r, call: [*call.arguments], elements.on_numbers(_as_list, lengths.listed)),
}
"""Operators that compute over axes, products, and operators on numbers and lists."""
