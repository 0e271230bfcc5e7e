"""The operators of aten, each as one kind of a description. Source: aten/src/ATen/native/native_functions.yaml."""

from __future__ import annotations

import operator as numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rnnconvert.formats.pytorch import aten
from rnnconvert.formats.pytorch.described_files.layers import LAYERS
from rnnconvert.formats.pytorch.described_files.model import Call, Reading, Rule
from rnnconvert.scaffolding.building import Tensor
from rnnconvert.scaffolding.sizes import Dim, Dims, Size, broadcast, product

FLOATS = ("float32", "float64")


def number(value: Any, dtype: str = "float32") -> Tensor:
    """Return a number as a tensor without axes."""
    return Tensor((), dtype, "number", numbers=np.asarray(value, object if isinstance(value, Size) else dtype))


def _operand(value: Any, like: Tensor) -> Tensor:
    """Return what an operator reads beside a tensor: of a number, what the tensor's element type makes of it."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} beside a tensor")
    if isinstance(value, float) and like.dtype not in FLOATS:
        raise TypeError("a number of another type than the tensor's")
    return number(value, like.dtype)


def _pair(operation: str, dtype: str = "", scaled: bool = False, swapped: bool = False) -> Rule:
    """Return the rule of an operator on two tensors, or on a tensor and a number.

    scaled   whether `alpha` multiplies the second
    swapped  whether the second comes first
    """

    def rule(r: Reading, call: Call) -> Any:
        left, right = call("x"), call("other")
        if not isinstance(left, Tensor) and not isinstance(right, Tensor):
            return _NUMBERS[operation](left, right)
        like = left if isinstance(left, Tensor) else right
        word = operation
        if operation == "divide" and call("rounding_mode") is not None:
            raise ValueError("a division that rounds")
        left, right = _operand(left, like), _operand(right, like)
        if left.dtype != right.dtype and operation not in ("and", "or"):
            raise TypeError(f"{left.dtype} beside {right.dtype}")
        if operation == "divide" and like.dtype not in FLOATS:
            raise TypeError("a division of whole numbers, which gives fractions")
        if scaled and call("alpha", 1) != 1:
            right = r.build.elementwise("multiply", [right, _operand(call("alpha"), like)])
        return r.build.elementwise(word, [right, left] if swapped else [left, right], dtype)

    return rule


def _ratio(left: Any, right: Any) -> Any:
    return left / right


_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": numbers.add, "subtract": numbers.sub, "multiply": numbers.mul, "divide": _ratio, "power": numbers.pow,
    "equal": numbers.eq, "not_equal": numbers.ne, "greater": numbers.gt, "less": numbers.lt, "greater_equal": numbers.ge,
    "less_equal": numbers.le,
}  # fmt: skip


def _compared(operation: str) -> Rule:
    compare = _pair(operation, "bool")

    def rule(r: Reading, call: Call) -> Any:
        left, right = call("x"), call("other")
        if isinstance(left, list) or isinstance(right, list) or isinstance(left, Tensor) or isinstance(right, Tensor):
            return _NUMBERS[operation](left, right) if isinstance(left, list) else compare(r, call)
        difference = left - right
        if isinstance(difference, Size):
            if not (difference.positive or (-difference).positive):
                raise r.build.refuse("a comparison of lengths", "its truth is decided by a run")
            difference = 1 if difference.positive else -1
        return _NUMBERS[operation](difference, 0)

    return rule


def _unary(operation: str) -> Rule:
    def rule(r: Reading, call: Call) -> Any:
        x = call("x")
        if not isinstance(x, Tensor):
            return {"not": numbers.not_, "neg": numbers.neg, "abs": abs}[operation](x)
        return r.build.add("elementwise", [x], x.dims, operation=operation, operands=(("input", 0),), name=operation)

    return rule


def activated(r: Reading, x: Tensor, word: str, alpha: Any = None, axis: int = -1) -> Tensor:
    """Add an activation function."""
    return r.build.several("activation", "", [x], [(x.dims, x.dtype, word)], name=word, alpha=alpha, axis=axis)[0]


def _function(word: str, key: str = "", default: Any = None) -> Rule:
    return lambda r, call: activated(r, call.tensor(), word, float(call(key, default)) if key else None)


def _elu(r: Reading, call: Call) -> Tensor:
    if call("scale", 1) != 1 or call("input_scale", 1) != 1:
        raise ValueError("an elu with scales")
    return activated(r, call.tensor(), "elu", float(call("alpha", 1.0)))


def _gelu(r: Reading, call: Call) -> Tensor:
    return activated(r, call.tensor(), "gelu" if call("approximate", "none") == "none" else "gelu_tanh")


def _softplus(r: Reading, call: Call) -> Tensor:
    if call("beta", 1) != 1 or call("threshold", 20) != 20:
        raise ValueError("a softplus with numbers of its own")
    return activated(r, call.tensor(), "softplus")


def _softmax(word: str) -> Rule:
    def rule(r: Reading, call: Call) -> Tensor:
        x, axis = call.tensor(), call.axis()
        if call("dtype") not in (None, False) and str(call("dtype")) != x.dtype:
            raise ValueError("a softmax in another element type")
        return activated(r, x, word, axis=-1 if axis == x.rank - 1 else axis)

    return rule


def _clamp(low: str, high: str) -> Rule:
    def rule(r: Reading, call: Call) -> Tensor:
        x = call.tensor()
        ends = [call(low) if low else None, call(high) if high else None]
        if any(isinstance(end, Tensor) for end in ends):
            raise ValueError("bounds that are tensors")
        return r.build.clip(x, ends[0], ends[1])

    return rule


def _same(r: Reading, call: Call) -> Any:
    return call("x")


def _dropout(r: Reading, call: Call) -> Tensor:
    if call("train") is True and call("p", 0) != 0:
        raise r.build.refuse("dropout that is on", "it is random: save the model in evaluation, model.eval()")
    return call.tensor()


def _cast(r: Reading, call: Call) -> Any:
    x, dtype = call.tensor(), call.operation.attributes.get("dtype")
    if dtype is None:
        return x
    if str(dtype) not in (*FLOATS, "int32", "int64", "bool"):
        raise r.build.refuse(f"a cast to {dtype}", "numbers of single precision and whole ones are known here")
    return x if str(dtype) == x.dtype else r.build.cast(x, str(dtype))


# Shapes


def _transpose(r: Reading, call: Call) -> Tensor:
    x, order = call.tensor(), list(range(call.tensor().rank))
    one, two = call.axis("dim0"), call.axis("dim1")
    order[one], order[two] = order[two], order[one]
    return r.build.transpose(x, order)


def _t(r: Reading, call: Call) -> Tensor:
    x = call.tensor()
    return r.build.transpose(x, (1, 0)) if x.rank == 2 else x


def _permute(r: Reading, call: Call) -> Tensor:
    x = call.tensor()
    return r.build.transpose(x, [axis % x.rank for axis in call("dims")])


def lengths(value: Any) -> list[Dim]:
    """Return a list of lengths."""
    return [
        one if isinstance(one, Size) else int(one) for one in (value if isinstance(value, (list, tuple)) else [value])
    ]


def _reshape(r: Reading, call: Call) -> Tensor:
    x, shape = call.tensor(), lengths(call("size"))
    return r.build.reshape(x, filled(x.dims, shape))


def filled(dims: Sequence[Dim], shape: Sequence[Dim]) -> Dims:
    """Return a shape with what its -1 stands for."""
    places = [n for n, length in enumerate(shape) if isinstance(length, int) and length == -1]
    if not places:
        return tuple(shape)
    whole, rest = product(dims), product(length for n, length in enumerate(shape) if n != places[0])
    return tuple(whole // rest if n == places[0] else length for n, length in enumerate(shape))


def _flatten(r: Reading, call: Call) -> Tensor:
    x = call.tensor()
    start, end = call.axis("start_dim", 0), call.axis("end_dim", -1)
    return r.build.reshape(x, (*x.dims[:start], product(x.dims[start : end + 1]), *x.dims[end + 1 :]))


def _unflatten(r: Reading, call: Call) -> Tensor:
    x, axis = call.tensor(), call.axis()
    return r.build.reshape(x, (*x.dims[:axis], *filled([x.dims[axis]], lengths(call("sizes"))), *x.dims[axis + 1 :]))


def _squeeze(r: Reading, call: Call) -> Tensor:
    x, stated = call.tensor(), call("dim")
    axes = (
        range(x.rank)
        if stated is None
        else [axis % x.rank for axis in (stated if isinstance(stated, list) else [stated])]
    )
    if any(isinstance(x.dims[axis], Size) for axis in axes):
        raise r.build.refuse("a squeeze of an open axis", "whether it has length 1 is decided by a run")
    return r.build.squeeze(x, [axis for axis in axes if x.dims[axis] == 1])


def _unsqueeze(r: Reading, call: Call) -> Tensor:
    x = call.tensor()
    return r.build.unsqueeze(x, [call("dim") % (x.rank + 1)])


def _expand(r: Reading, call: Call) -> Tensor:
    x, shape = call.tensor(), lengths(call("size"))
    front = len(shape) - x.rank
    dims = tuple(x.dims[n - front] if isinstance(size, int) and size == -1 else size for n, size in enumerate(shape))
    return r.build.expand(x, dims)


def _cat(r: Reading, call: Call) -> Tensor:
    tensors = call("tensors")
    if not all(isinstance(x, Tensor) for x in tensors):
        raise TypeError("a list of other than tensors")
    return r.build.concatenate(tensors, call("dim", 0) % tensors[0].rank)


def _stack(r: Reading, call: Call) -> Tensor:
    tensors = call("tensors")
    axis = call("dim", 0) % (tensors[0].rank + 1)
    return r.build.concatenate([r.build.unsqueeze(x, [axis]) for x in tensors], axis)


def _parts(r: Reading, x: Tensor, axis: int, sizes: Sequence[int]) -> list[Tensor]:
    dims = [tuple(size if n == axis else dim for n, dim in enumerate(x.dims)) for size in sizes]
    return r.build.several("split", "", [x], [(one, x.dtype, "part") for one in dims], axis=axis, sizes=tuple(sizes))


def _fixed(x: Tensor, axis: int) -> int:
    length = x.dims[axis]
    if not isinstance(length, int):
        raise ValueError("an open axis cut into parts")
    return length


def _chunk(r: Reading, call: Call) -> list[Tensor]:
    x, axis = call.tensor(), call.axis("dim", 0)
    whole = _fixed(x, axis)
    step = -(-whole // call("chunks"))
    return _parts(r, x, axis, [min(step, whole - start) for start in range(0, whole, step)])


def _split(r: Reading, call: Call) -> list[Tensor]:
    x, axis, sizes = call.tensor(), call.axis("dim", 0), call("split_sizes")
    if isinstance(sizes, int):
        whole = _fixed(x, axis)
        sizes = [min(sizes, whole - start) for start in range(0, whole, sizes)]
    return _parts(r, x, axis, [int(size) for size in sizes])


def _unbind(r: Reading, call: Call) -> list[Tensor]:
    x, axis = call.tensor(), call.axis("dim", 0)
    return [r.build.select(x, axis, index) for index in range(_fixed(x, axis))]


def _select(r: Reading, call: Call) -> Tensor:
    if not isinstance(call("index"), int):
        raise ValueError("an index that a run decides")
    return r.build.select(call.tensor(), call.axis(), call("index"))


def _slice(r: Reading, call: Call) -> Tensor:
    x, axis, step = call.tensor(), call.axis("dim", 0), call("step", 1)
    return r.build.slice(x, axis, call("start", 0), call("end", 1 << 62), step)


def _narrow(r: Reading, call: Call) -> Tensor:
    return r.build.slice(call.tensor(), call.axis(), call("start"), call("start") + call("length"), 1)


def _flip(r: Reading, call: Call) -> Tensor:
    x = call.tensor()
    for axis in call("dims"):
        x = r.build.flip(x, axis % x.rank)
    return x


def _repeat(r: Reading, call: Call) -> Tensor:
    x, by = call.tensor(), call("repeats")
    if len(by) != x.rank or not all(isinstance(n, int) for n in by):
        raise ValueError("repeats of new axes")
    return r.build.add(
        "tile", [x], tuple(dim * n for dim, n in zip(x.dims, by, strict=True)), by=tuple(by), name=x.name
    )


def _pad(r: Reading, call: Call) -> Tensor:
    x, flat, mode, value = call.tensor(), call("pad"), call("mode", "constant"), call("value", 0.0)
    mode = mode if isinstance(mode, str) else "constant"
    pairs = [(0, 0)] * (x.rank - len(flat) // 2) + list(zip(flat[::2], flat[1::2], strict=True))[::-1]
    if mode not in ("constant", "reflect", "replicate"):
        raise ValueError(f"a padding {mode!r}")
    dims = tuple(dim + low + high for dim, (low, high) in zip(x.dims, pairs, strict=True))
    return r.build.add(
        "pad axes",
        [x],
        dims,
        pairs=tuple(pairs),
        mode="edge" if mode == "replicate" else mode,
        number=value,
        name=x.name,
    )


def _size(r: Reading, call: Call) -> Any:
    x = call.tensor()
    return [*x.dims] if call("dim") is None else x.dims[call.axis()]


def _zeros(value: float) -> Rule:
    def rule(r: Reading, call: Call) -> Tensor:
        dtype = call("dtype")
        return Tensor(
            tuple(lengths(call("size"))),
            str(dtype) if isinstance(dtype, np.dtype) else "float32",
            "zeros",
            filled=value,
        )

    return rule


def _like(value: float) -> Rule:
    return lambda r, call: Tensor(call.tensor().dims, call.tensor().dtype, "zeros", filled=value)


def _arange(r: Reading, call: Call) -> Tensor:
    ends = [call(word) for word in ("x", "stop", "step")]
    start, stop = (0, ends[0]) if ends[1] is None else ends[:2]
    if not all(isinstance(end, (int, Size)) for end in (start, stop)) or ends[2] not in (None, 1):
        raise ValueError("arange of other than whole numbers")
    extra: list[Any] = []
    bounds = r.build.lengths([start, stop], extra)
    return r.build.add(
        "range", [], (stop - start,), "int64", extra=extra, start=bounds[0], stop=bounds[1], step=1, name="steps"
    )


# Along axes


def _reduce(operation: str) -> Rule:
    def rule(r: Reading, call: Call) -> Any:
        x, stated, keep = call.tensor(), call("dim"), bool(call("keepdim", False))
        if x.dtype not in FLOATS:
            raise TypeError(f"a {operation} of {x.dtype}")
        axes = (
            range(x.rank)
            if stated in (None, [])
            else [axis % x.rank for axis in (stated if isinstance(stated, list) else [stated])]
        )
        dims = tuple(1 if n in axes else dim for n, dim in enumerate(x.dims) if keep or n not in axes)
        return r.build.add(
            "reduce", [x], dims, operation=operation, axes=tuple(sorted(axes)), keep=keep, name=operation
        )

    return rule


def _extreme(operation: str) -> Rule:
    """Return the rule of max and min: of two tensors, of a whole tensor, or along an axis with the places."""
    whole, pair = _reduce(operation), _pair(f"{operation}imum")

    def rule(r: Reading, call: Call) -> Any:
        if isinstance(call("dim"), Tensor):
            return r.build.elementwise(f"{operation}imum", [call.tensor(), call("dim")])
        if call("other") is not None:
            return pair(r, call)
        made = whole(r, call)
        if call("dim") is None:
            return made
        x, keep, axis = call.tensor(), bool(call("keepdim", False)), call.axis()
        places = r.build.add(
            "arg", [x], made.dims, "int64", operation=f"arg{operation}", axis=axis, keep=keep, name="places"
        )
        return [made, places]

    return rule


def _arg(operation: str) -> Rule:
    def rule(r: Reading, call: Call) -> Tensor:
        x, axis, keep = call.tensor(), call.axis(), bool(call("keepdim", False))
        dims = tuple(1 if n == axis else dim for n, dim in enumerate(x.dims) if keep or n != axis)
        return r.build.add("arg", [x], dims, "int64", operation=operation, axis=axis, keep=keep, name="places")

    return rule


def _cumsum(r: Reading, call: Call) -> Tensor:
    return r.build.add("cumulative", [call.tensor()], call.tensor().dims, axis=call.axis(), name="sums")


def _where(r: Reading, call: Call) -> Tensor:
    like = next(x for x in (call("yes"), call("no")) if isinstance(x, Tensor))
    return r.build.elementwise(
        "where", [call.tensor(), _operand(call("yes"), like), _operand(call("no"), like)], like.dtype
    )


def _masked_fill(r: Reading, call: Call) -> Tensor:
    x = call.tensor()
    return r.build.elementwise("where", [call.tensor("mask"), _operand(call("value"), x), x], x.dtype)


def matmul(r: Reading, left: Tensor, right: Tensor) -> Tensor:
    """Add a product of matrices."""
    lead = broadcast([left.dims[:-2], right.dims[:-2]])
    rows = left.dims[-2:-1] if left.rank > 1 else ()
    return r.build.add(
        "matmul", [left, right], (*lead, *rows, *(right.dims[-1:] if right.rank > 1 else ())), name="product"
    )


def _attention(r: Reading, call: Call) -> Tensor:
    query, key, value, mask = call.tensor("query"), call.tensor("key"), call.tensor("value"), call("attn_mask")
    if call("dropout_p", 0) or call("is_causal") or call("enable_gqa") or (mask is not None and mask.dtype == "bool"):
        raise ValueError("attention with dropout, or with a mask of truths")
    width = query.dims[-1]
    if not isinstance(width, int):
        raise ValueError("attention over an open width")
    order = [*range(key.rank - 2), key.rank - 1, key.rank - 2]
    scores = matmul(r, query, r.build.transpose(key, order))
    scale = call("scale")
    scores = r.build.elementwise("multiply", [scores, number(width**-0.5 if scale is None else scale)])
    scores = scores if mask is None else r.build.elementwise("add", [scores, mask])
    return matmul(r, activated(r, scores, "softmax"), value)


def _index_select(r: Reading, call: Call) -> Tensor:
    x, axis, index = call.tensor(), call.axis(), call.tensor("index")
    return r.build.add(
        "gather", [x, index], (*x.dims[:axis], *index.dims, *x.dims[axis + 1 :]), axis=axis, name="taken"
    )


def _top(r: Reading, call: Call) -> list[Tensor]:
    x, axis, count = call.tensor(), call.axis("dim", -1), call("k")
    dims = tuple(count if n == axis else dim for n, dim in enumerate(x.dims))
    return r.build.several("top", "", [x], [(dims, x.dtype, "values"), (dims, "int64", "indices")], count=count, axis=axis,
                           largest=bool(call("largest", True)))  # fmt: skip


def _einsum(r: Reading, call: Call) -> Tensor:
    equation, tensors = str(call("equation")).replace(" ", ""), call("tensors")
    letters, arrow, out = equation.partition("->")
    words = letters.split(",")
    if (
        not arrow
        or not all(word.isalpha() for word in words)
        or not (out.isalpha() or not out)
        or [len(word) for word in words] != [x.rank for x in tensors]
    ):
        raise ValueError(f"the equation {equation!r}")
    sizes = {
        letter: dim for word, x in zip(words, tensors, strict=True) for letter, dim in zip(word, x.dims, strict=True)
    }
    return r.build.add("einsum", tensors, tuple(sizes[letter] for letter in out), equation=equation, name="product")


# Numbers and lists


def _item(r: Reading, call: Call) -> Any:
    return call("x")[call("index")]


def _contains(r: Reading, call: Call) -> bool:
    return call("other") in call("x")


def _each(words: str, rule: Rule, names: str) -> dict[str, tuple[str, Rule]]:
    return {word: (names, rule) for word in words.split()}


RULES: dict[str, tuple[str, Rule]] = {
    **LAYERS,
    "add": ("x other alpha", _pair("add", scaled=True)), "sub": ("x other alpha", _pair("subtract", scaled=True)),
    "rsub": ("x other alpha", _pair("subtract", swapped=True)), "mul": ("x other", _pair("multiply")),
    "div": ("x other rounding_mode", _pair("divide")), "true_divide": ("x other", _pair("divide")), "pow": ("x other", _pair("power")),
    "maximum": ("x other", _pair("maximum")), "minimum": ("x other", _pair("minimum")), "logical_and": ("x other", _pair("and", "bool")),
    "logical_or": ("x other", _pair("or", "bool")), "bitwise_and": ("x other", _pair("and", "bool")), "floordiv": ("x other", lambda r, call: call("x") // call("other")),
    "bitwise_or": ("x other", _pair("or", "bool")), "eq": ("x other", _compared("equal")), "ne": ("x other", _compared("not_equal")),
    "lt": ("x other", _compared("less")), "gt": ("x other", _compared("greater")), "le": ("x other", _compared("less_equal")),
    "ge": ("x other", _compared("greater_equal")),
    **{word: ("x", _unary(word)) for word in "abs exp log sqrt reciprocal erf sin cos tan floor ceil round sign neg square rsqrt".split()},
    "not": ("x", _unary("not")), "logical_not": ("x", _unary("not")), "bitwise_not": ("x", _unary("not")),
    **{word: ("x", _function(word)) for word in "relu sigmoid tanh softsign selu silu mish relu6".split()},
    "hardsigmoid": ("x", _function("hard_sigmoid")), "hardswish": ("x", _function("hard_swish")), "gelu": ("x approximate", _gelu),
    "leaky_relu": ("x negative_slope", _function("leaky_relu", "negative_slope", 0.01)), "elu": ("x alpha scale input_scale", _elu),
    "softplus": ("x beta threshold", _softplus), "softmax": ("x dim dtype", _softmax("softmax")), "_softmax": ("x dim dtype", _softmax("softmax")),
    "log_softmax": ("x dim dtype", _softmax("log_softmax")), "_log_softmax": ("x dim dtype", _softmax("log_softmax")),
    "clamp": ("x min max", _clamp("min", "max")), "clip": ("x min max", _clamp("min", "max")), "hardtanh": ("x min_val max_val", _clamp("min_val", "max_val")),
    "clamp_min": ("x min", _clamp("min", "")), "clamp_max": ("x max", _clamp("", "max")),
    **_each("contiguous clone detach alias lift lift_fresh lift_fresh_copy cpu same requires_grad resolve_conj positive", _same, "x memory_format"),
    **_each("int Int NumToTensor ScalarImplicit IntImplicit item list", _same, "x"),
    **_each("dropout feature_dropout", _dropout, "x p train"), **_each("to _to_copy type type_as", _cast, "x a b c d e dtype"),
    **_each("transpose swapaxes swapdims", _transpose, "x dim0 dim1"), "t": ("x", _t), "numpy_T": ("x", _t), "permute": ("x dims", _permute),
    **_each("reshape view _unsafe_view view_copy", _reshape, "x size"), "flatten": ("x start_dim end_dim", _flatten),
    "unflatten": ("x dim sizes", _unflatten), "squeeze": ("x dim", _squeeze), "unsqueeze": ("x dim", _unsqueeze),
    "expand": ("x size implicit", _expand), **_each("cat concat concatenate", _cat, "tensors dim"), "stack": ("tensors dim", _stack),
    **_each("chunk unsafe_chunk", _chunk, "x chunks dim"),
    **_each("split split_with_sizes unsafe_split unsafe_split_with_sizes", _split, "x split_sizes dim"), "unbind": ("x dim", _unbind),
    "select": ("x dim index", _select), "slice": ("x dim start end step", _slice), "narrow": ("x dim start length", _narrow),
    "flip": ("x dims", _flip), "repeat": ("x repeats", _repeat), **_each("pad constant_pad_nd", _pad, "x pad mode value"),
    "size": ("x dim", _size), "dim": ("x", lambda r, call: call.tensor().rank), "len": ("x", lambda r, call: len(call("x")) if isinstance(call("x"), list) else call.tensor().dims[0]),
    "numel": ("x", lambda r, call: product(call.tensor().dims)), "zeros": ("size dtype", _zeros(0)), "ones": ("size dtype", _zeros(1)),
    "new_zeros": ("x size dtype", _zeros(0)), "zeros_like": ("x dtype", _like(0)), "ones_like": ("x dtype", _like(1)),
    "arange": ("x stop step dtype", _arange), "mean": ("x dim keepdim dtype", _reduce("mean")), "sum": ("x dim keepdim dtype", _reduce("sum")),
    "amax": ("x dim keepdim", _reduce("max")), "amin": ("x dim keepdim", _reduce("min")), "max": ("x dim keepdim other", _extreme("max")),
    "min": ("x dim keepdim other", _extreme("min")), "argmax": ("x dim keepdim", _arg("argmax")), "argmin": ("x dim keepdim", _arg("argmin")),
    "cumsum": ("x dim dtype", _cumsum), "where": ("x yes no", _where), "masked_fill": ("x mask value", _masked_fill),
    **_each("matmul mm bmm", lambda r, call: matmul(r, call.tensor(), call.tensor("other")), "x other"),
    "scaled_dot_product_attention": ("query key value attn_mask dropout_p is_causal scale enable_gqa", _attention),
    "index_select": ("x dim index", _index_select), "topk": ("x k dim largest sorted", _top), "einsum": ("equation tensors path", _einsum),
    aten.ITEM: ("x index", _item), "contains": ("x other", _contains), "list_add": ("x other", lambda r, call: [*call("x"), *call("other")]),
}  # fmt: skip
"""The operators that are known, with their parameters in the order in which calls have them."""
RULES[aten.LIST] = "a b c d e f g h", lambda r, call: [*call.given]
