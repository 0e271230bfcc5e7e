"""The operators of aten, each as one kind of a description. Source: aten/src/ATen/native/native_functions.yaml."""

from __future__ import annotations

from typing import Any

from rnnconvert.formats.pytorch import aten
from rnnconvert.formats.pytorch.described.functions import FLOATS, FUNCTIONS, number, to_length
from rnnconvert.formats.pytorch.described.functions import pair as _pair
from rnnconvert.formats.pytorch.described.layers import LAYERS
from rnnconvert.formats.pytorch.described.loops import StepList
from rnnconvert.formats.pytorch.described.moves import MOVES
from rnnconvert.formats.pytorch.described.reading import BoundCall, ProgramReading, Rule
from rnnconvert.formats.pytorch.program.cells import APART
from rnnconvert.formats.pytorch.program.program import JOINED, UNBOUND, Several
from rnnconvert.graphs.sizes import Size, least, most, product, reaches
from rnnconvert.scaffolding import operations
from rnnconvert.scaffolding.tensors import SourceTensor


def _reduce(operation: str) -> Rule:
    def rule(r: ProgramReading, call: BoundCall) -> Any:
        x, stated, keep = call.tensor(), call("dim"), bool(call("keepdim", False))
        if x.dtype not in FLOATS and operation != "sum":
            raise ValueError(f"a {operation} of {x.dtype}")
        axes = range(x.rank) if stated in (None, []) else [axis % x.rank for axis in (stated if isinstance(stated, list) else [stated])]
        return operations.reduced(r.build, x, operation, axes, keep, dtype="" if x.dtype in FLOATS else "int64")

    return rule


def _norm(r: ProgramReading, call: BoundCall) -> Any:
    if call("p", 2) != 2:
        raise ValueError(f"a norm of order {call('p')}")
    x = call.tensor()
    total = _reduce("sum")(
        r, BoundCall("sum", call.operation, [r.build.elementwise("multiply", [x, x]), call("dim"), call("keepdim")], {}, _OVER)
    )
    return operations.function(r.build, total, "sqrt", name="norm")


def _spread(root: bool) -> Rule:
    """Return the rule of a variance, or of its root."""

    def rule(r: ProgramReading, call: BoundCall) -> Any:
        x, stated = call.tensor(), call("dim")
        by = call("correction", call("unbiased", True))
        if isinstance(stated, bool):  # the overload without axes
            stated, by = None, stated
        axes = [*range(x.rank)] if stated in (None, []) else [axis % x.rank for axis in (stated if isinstance(stated, list) else [stated])]
        count = product(x.dims[axis] for axis in axes)
        if by and not isinstance(count, int):
            raise r.build.refuse("a variance over open axes, less one", "how many numbers there are is decided by a run")
        off = r.build.elementwise("subtract", [x, operations.reduced(r.build, x, "mean", axes, True)])
        squares = operations.function(r.build, off, "square")
        result = operations.reduced(r.build, squares, "mean", axes, bool(call("keepdim", False)), "variance")
        if by:
            assert isinstance(count, int)
            result = r.build.elementwise("multiply", [result, number(count / (count - int(by)))])
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
    return r.build.add("cumulative", [call.tensor()], call.tensor().dims, axis=call.axis(), name="sums")


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
    product = r.product(call.tensor("left"), call.tensor("right"))
    return r.sum(product, call.tensor()) or r.build.elementwise("add", [product, call.tensor()])


def _index_select(r: ProgramReading, call: BoundCall) -> SourceTensor:
    x, axis, index = call.tensor(), call.axis(), call.tensor("index")
    return r.build.add("gather", [x, index], (*x.dims[:axis], *index.dims, *x.dims[axis + 1 :]), axis=axis, name="taken")


def _top(r: ProgramReading, call: BoundCall) -> list[SourceTensor]:
    return operations.top(r.build, call.tensor(), call("k"), call.axis("dim", -1), bool(call("largest", True)))


def _item(r: ProgramReading, call: BoundCall) -> Any:
    values, index = call("x"), call("index")
    if not -len(values) <= index < len(values):  # of the lengths of an input that may have more axes
        raise ValueError(f"element {index} of {len(values)}")
    return values[index]


def _contains(r: ProgramReading, call: BoundCall) -> bool:
    return call("other") in call("x")


def _length(r: ProgramReading, call: BoundCall) -> Any:
    x = call("x")
    if isinstance(x, StepList):
        return x.x.dims[0]
    if isinstance(x, Several) and x.operation.kind in APART:
        sequence, axis, *_ = [*x.operation.inputs, 0]
        x = BoundCall("len", call.operation, [r.value(sequence), axis], {}, "x dim")
        return x.tensor().dims[x.axis()]
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


def _unbound(r: ProgramReading, call: BoundCall) -> StepList:
    x, axis = call.tensor(), call.axis()
    return StepList(r.build.transpose(x, [axis, *(other for other in range(x.rank) if other != axis)]))


_OVER = "x dim keepdim dtype"
RULES: dict[str, tuple[str, Rule]] = {
    **LAYERS,
    **FUNCTIONS,
    **MOVES,
    **{word: (_OVER, _reduce(word)) for word in ("mean", "sum")},
    **{word: ("x p dim keepdim dtype", _norm) for word in ("norm", "linalg_vector_norm")},
    **{word: ("x dim correction keepdim unbiased", _spread(word == "std")) for word in ("var", "std")},
    "amax": ("x dim keepdim", _reduce("max")),
    "amin": ("x dim keepdim", _reduce("min")),
    **{word: ("x dim keepdim other", _extreme(word)) for word in ("max", "min")},
    **{word: ("x dim keepdim", _arg(word)) for word in ("argmax", "argmin")},
    "cumsum": ("x dim dtype", _cumsum),
    **{word: ("x other", _product(rank)) for word, rank in (("matmul", 0), ("mm", 2), ("bmm", 3))},
    "addmm": ("x left right beta alpha", _addmm),
    "scaled_dot_product_attention": ("query key value attn_mask dropout_p is_causal scale enable_gqa", _attention),
    "index_select": ("x dim index", _index_select),
    "topk": ("x k dim largest sorted", _top),
    "einsum": ("equation tensors path", lambda r, call: operations.einsum(r.build, str(call("equation")), call("tensors"))),
    **dict.fromkeys(("NumToTensor", "ScalarImplicit", "list"), ("x", lambda r, call: call("x"))),
    "dim": ("x", lambda r, call: call.tensor().rank),
    "len": ("x", _length),
    "numel": ("x", lambda r, call: product(call.tensor().dims)),
    "contains": ("x other", _contains),
    "range_length": ("start stop step", _range_length),
    JOINED: ("x other", _joined),
    UNBOUND: ("x dim", _unbound),
    "derive_index": ("x start step", _derived_index),
    "list_add": ("x other", lambda r, call: [*call("x"), *call("other")]),
    aten.ITEM: ("x index", _item),
    aten.LIST: ("a b c d e f g h", lambda r, call: [*call.arguments]),
}
"""The operators that are known, with their parameters in the order in which calls have them."""
