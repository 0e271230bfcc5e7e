"""What PyTorch's operators do to the elements of tensors: the dialect of its archives' and exported programs' graphs.

Source: aten/src/ATen/native/native_functions.yaml, and torch/csrc/jit/runtime/register_prim_ops.cpp for those on numbers and lists.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.formats.pytorch import aten_moves as to
from rnnconvert.formats.pytorch import aten_slices
from rnnconvert.formats.pytorch.aten_moves import attribute, number, on_numbers
from rnnconvert.graphs import SAME, Applied, Casts, ChangesError, Chooses, Computes, Dialect, Measures, Moves, Operator, UnfitError, lengths
from rnnconvert.graphs.operators import Formula

BRANCH = "if"
"""A value that a condition chooses: the condition, then the values for false and for true."""
LIST = "a list of numbers"
"""A list made of single numbers, as shapes are."""
ITEM = "an item of a list"
"""An item of a list of numbers: the list, and its index."""
STEPS = "the steps of a packed sequence"
PACKED = "a packed sequence"
"""A packed sequence's data as (time, batch, values), and back: the data, and the sizes of its batches."""


def _all(operator: Operator, names: str) -> dict[Hashable, Operator]:
    return {name: operator for name in names.split()}


def _again(split: Callable[[Applied], list[Array]], join: Callable[..., Array]) -> Moves:
    """Return the operator that joins all parts of another's list."""
    return Moves(lambda applied: join(split(applied), axis=attribute(applied, "dim")))


def _counted(split: Callable[[Applied], list[Array]]) -> Callable[[Applied], list[Array]]:
    """Return an operator that gives as many parts as the code takes."""

    def parts(applied: Applied) -> list[Array]:
        pieces = split(applied)
        count = applied.attributes.get("count", len(pieces))
        if count != len(pieces):
            raise UnfitError(f"{applied.kind} into {len(pieces)} parts", [count])
        if split is aten_slices.split and applied.input(1).ndim == 0 and len(pieces) == 1 and count == 1:
            # Another number of parts is what a longer sequence would give; "cat of" joins them all.
            raise ChangesError(f"{applied.kind}, which cuts what is longer than {number(applied, 1)},")
        return pieces

    return parts


_PARTS: dict[str, Callable[[Applied], list[Array]]] = {
    "chunk": aten_slices.chunk,
    "split": aten_slices.split,
    "split_with_sizes": aten_slices.split,
    "tensor_split": aten_slices.tensor_split,
    "unbind": aten_slices.unbind,
}
_PARTS |= {f"unsafe_{name}": function for name, function in _PARTS.items()}
_JOINS: dict[str, Callable[..., Array]] = {
    "cat": np.concatenate,
    "concat": np.concatenate,
    "concatenate": np.concatenate,
    "stack": np.stack,
}


def _product(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return (*shapes[0][:-1], shapes[1][-1])


_NUMBERS: Mapping[str, tuple[Callable[..., Any], Formula | None]] = {
    "add": (np.add, lengths.SUM),
    "sub": (np.subtract, lengths.DIFFERENCE),
    "mul": (np.multiply, lengths.PRODUCT),
    "floordiv": (to.divided, lengths.QUOTIENT),
    "floor_divide": (to.divided, lengths.QUOTIENT),
    "remainder": (lambda dividend, other: np.mod(dividend, other) if np.all(other) else to.divided(dividend, other), lengths.REMAINDER),
    "neg": (np.negative, lengths.NEGATIVE),
    "abs": (np.abs, lengths.ABSOLUTE),
    "eq": (to.equal, lengths.lists_equal),
    "ne": (lambda left, other: not to.equal(left, other), lengths.lists_differ),
    "lt": (np.less, lengths.LESS),
    "gt": (np.greater, lengths.GREATER),
    "le": (np.less_equal, lengths.AT_MOST),
    "ge": (np.greater_equal, lengths.AT_LEAST),
    "not": (np.logical_not, lengths.SAME_TRUTH),
    "and": (np.logical_and, lengths.SAME_TRUTH),
    "or": (np.logical_or, lengths.SAME_TRUTH),
    "contains": (lambda several, member: bool(np.isin(member, several).all()), None),
    LIST: (lambda *numbers: np.asarray([int(value) for value in numbers], np.int64), lengths.listed),
    "list_add": (lambda first, other: np.concatenate([np.atleast_1d(first), np.atleast_1d(other)]), lengths.listed),
}
"""What operators compute of numbers, and of formulas of lengths."""

DIALECT: Dialect = {
    # These give the tensor that they read, or a copy of it.
    **_all(SAME, "contiguous clone detach alias lift lift_fresh requires_grad cpu cuda same resolve_conj resolve_neg positive"),
    **_all(
        Computes(lambda applied: applied.input(0), formula=lengths.same),
        "int NumToTensor ScalarImplicit IntImplicit Int item _local_scalar_dense list",
    ),
    **_all(Moves(to.dropout), "dropout feature_dropout alpha_dropout feature_alpha_dropout"),
    **_all(Casts(to.to), "to _to_copy type type_as"),
    **_all(Moves(to.transpose), "transpose swapaxes swapdims"),
    **_all(Moves(to.movedim), "movedim moveaxis"),
    **_all(Moves(to.reshape), "reshape view _unsafe_view view_copy"),
    **_all(Moves(to.like, (0, 1)), "view_as reshape_as"),
    **_all(Moves(aten_slices.cat, None), "cat concat concatenate"),
    **_all(Moves(to.tile), "tile repeat"),
    **_all(Moves(to.pad), "pad constant_pad_nd"),
    **_all(Moves(to.matrix_transpose), "mT matrix_H adjoint"),
    **{name: Moves(_counted(split)) for name, split in _PARTS.items()},
    **{f"{kind} of {name}": _again(split, join) for name, split in _PARTS.items() for kind, join in _JOINS.items()},
    "permute": Moves(lambda applied: applied.input(0).transpose(applied.integers(1))),
    "t": Moves(to.t),
    "numpy_T": Moves(lambda applied: applied.input(0).T),
    "flatten": Moves(to.flatten),
    "unflatten": Moves(to.unflatten),
    "ravel": Moves(lambda applied: applied.input(0).reshape(-1)),
    "squeeze": Moves(to.squeeze),
    "unsqueeze": Moves(to.unsqueeze),
    "expand": Moves(to.expand),
    "expand_as": Moves(to.expand_as, (0, 1)),
    "repeat_interleave": Moves(to.repeat_interleave),
    "flip": Moves(to.flip),
    "fliplr": Moves(lambda applied: np.fliplr(applied.input(0))),
    "flipud": Moves(lambda applied: np.flipud(applied.input(0))),
    "roll": Moves(to.roll),
    "rot90": Moves(to.rot90),
    "slice": Moves(aten_slices.sliced),
    "slice_list": Moves(aten_slices.slice_list),
    "narrow": Moves(aten_slices.narrow),
    "select": Moves(aten_slices.select),
    "index_select": Moves(aten_slices.index_select),
    "gather": Moves(aten_slices.gather),
    "index": Moves(aten_slices.indexed),
    "stack": Moves(aten_slices.stack, None),
    "hstack": Moves(aten_slices.joined(np.hstack), None),
    "vstack": Moves(aten_slices.joined(np.vstack), None),
    "dstack": Moves(aten_slices.joined(np.dstack), None),
    "pack": Moves(to.pack),
    "padded": Moves(to.padded),
    STEPS: Moves(to.steps),
    PACKED: Moves(lambda applied: applied.input(0).reshape(-1, applied.input(0).shape[-1])),
    BRANCH: Chooses(),
    ITEM: Moves(lambda applied: np.asarray(applied.input(0)[number(applied, 1)])),
    "size": Measures(to.measured),
    "dim": Measures(lambda applied: np.asarray(applied.input(0).ndim)),
    "numel": Measures(lambda applied: np.asarray(applied.input(0).size)),
    "len": Measures(to.length),
    "batches": Measures(to.batches),
    **{name: on_numbers(function, formula) for name, (function, formula) in _NUMBERS.items()},
    # These compute; later operators need the shape of what they give.
    **_all(
        Computes(),
        "relu tanh sigmoid sin cos exp log sqrt square gelu elu selu silu leaky_relu hardtanh clamp clamp_min clamp_max softplus sign rsub "
        "div true_divide maximum minimum where pow round floor ceil softsign hardsigmoid hardswish mish relu6 logit reciprocal rsqrt erf",
    ),
    **_all(Computes(shape=lambda shapes: shapes[0]), "softmax _softmax log_softmax layer_norm batch_norm cumsum masked_fill"),
    **_all(Computes(shape=lambda shapes: (*shapes[0][:-1], shapes[1][0])), "linear"),
    **_all(Computes(shape=_product), "mm matmul bmm"),
    "embedding": Computes(shape=lambda shapes: (*shapes[1], shapes[0][-1])),
}
"""By the operator's name in aten, without its overload, and without the underscore of those that work in place."""

PARAMETERS: Mapping[str, str] = {
    **dict.fromkeys(("transpose", "swapaxes", "swapdims"), "self dim0 dim1"),
    **dict.fromkeys(("movedim", "moveaxis"), "self source destination"),
    **dict.fromkeys(("reshape", "view", "_unsafe_view", "view_copy", "expand"), "self size"),
    **dict.fromkeys(("view_as", "reshape_as", "expand_as"), "self other"),
    **dict.fromkeys(("cat", "concat", "concatenate", "stack"), "tensors* dim"),
    **dict.fromkeys(("hstack", "vstack", "dstack"), "tensors*"),
    **dict.fromkeys(("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes"), "self split_sizes dim"),
    **dict.fromkeys(("chunk", "unsafe_chunk"), "self chunks dim"),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"), "input p train"),
    **dict.fromkeys(("squeeze", "unsqueeze", "unbind", "unsafe_unbind"), "self dim"),
    **dict.fromkeys(("permute", "flip"), "self dims"),
    **dict.fromkeys(("pad", "constant_pad_nd"), "self pad mode"),
    **dict.fromkeys(("tile", "repeat"), "self repeats"),
    **dict.fromkeys(("select", "index_select", "gather"), "self dim index"),
    **dict.fromkeys(("tensor_split", "unsafe_tensor_split"), "self indices_or_sections dim"),
    "flatten": "self start_dim end_dim",
    "unflatten": "self dim sizes",
    "repeat_interleave": "self repeats dim",
    "roll": "self shifts dims",
    "rot90": "self k dims",
    "slice": "self dim start end step",
    "narrow": "self dim start length",
    "index": "self indices*",
}
"""The parameters of operators that are called by name as well; a star follows the name of a list of tensors."""

_OF_THEIR_OWN = """
flip fliplr flipud roll rot90 hstack vstack dstack repeat tile repeat_interleave clone index index_select gather pad constant_pad_nd pack
padded addmm baddbmm addbmm einsum sum mean sort argsort topk max min amax amin norm native_layer_norm full ones convolution _convolution
conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
group_norm rms_norm prelu index_fill full_like ones_like arange bernoulli rand rand_like randn cumprod
"""
FRESH = frozenset({*_OF_THEIR_OWN.split(), *_JOINS, STEPS, PACKED, LIST, ITEM, *(name for name in map(str, DIALECT) if " of " in name)})
"""Operators whose result is a tensor of its own: what is done in place to it does not change what they read."""
SPLITS = frozenset(_PARTS)
"""Operators that give lists of tensors, which share no elements with one another."""
ZEROS = frozenset({"zeros", "new_zeros", "zeros_like"})
CASTS = frozenset({"to", "_to_copy", "type", "type_as"})
