"""The operators of aten in one table, which all readers of PyTorch's programs share: see AtenOperator.

Source: aten/src/ATen/native/native_functions.yaml, and torch/csrc/jit/runtime/register_prim_ops.cpp for those on numbers and lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.formats.pytorch import aten_elements as elements
from rnnconvert.formats.pytorch.aten_operator import AtenOperator
from rnnconvert.formats.pytorch.described import packed
from rnnconvert.formats.pytorch.described.functions import FUNCTIONS
from rnnconvert.formats.pytorch.described.layers import LAYERS
from rnnconvert.formats.pytorch.described.moves import MOVES
from rnnconvert.formats.pytorch.described.operators import OPERATORS as _OVER_AXES
from rnnconvert.formats.pytorch.program.kinds import BRANCH, ITEM, LENGTHS, PACKED, STEPS
from rnnconvert.graphs.operators import SAME, Casts, Chooses, Computes, Dialect, Measures, Moves

_PACK, _PADDED = "x lengths batch_first", "x batch_sizes batch_first padding_value total_length"
_PACKING: Mapping[str, AtenOperator] = {
    "pack": AtenOperator(_PACK, packed.pack, Moves(elements.pack)),
    "padded": AtenOperator(_PADDED, lambda r, call: packed.padded(r, call)[0], Moves(elements.padded)),
    LENGTHS: AtenOperator(_PADDED, lambda r, call: packed.padded(r, call)[1]),
    "_pad_packed_sequence": AtenOperator(_PADDED, packed.padded),
    STEPS: AtenOperator("", elements=Moves(elements.steps)),
    PACKED: AtenOperator("", elements=Moves(lambda applied: applied.input(0).reshape(-1, applied.input(0).shape[-1]))),
    "batches": AtenOperator(_PACK, packed.batch_sizes, Measures(elements.batches)),
    "sort": AtenOperator("x dim descending stable", packed.sort),
    "argsort": AtenOperator("x dim descending stable", lambda r, call: packed.sort(r, call)[1]),
    "scatter": AtenOperator("x dim index src", packed.scatter),
}
OPERATORS: Mapping[str, AtenOperator] = {
    **LAYERS,
    **FUNCTIONS,
    **MOVES,
    **_OVER_AXES,
    **_PACKING,
    BRANCH: AtenOperator("", elements=Chooses(), shares=True),
    "logit": AtenOperator("x eps", elements=Computes()),
}
"""By the operator's name in aten, without its overload, and without the underscore of those that work in place."""

TENSORS = frozenset(
    {name for name, operator in OPERATORS.items() if isinstance(operator.elements, Moves | Casts) and name not in (ITEM, "slice_list")}
    | {"sum", "mean", "cumsum", "argmax", "argmin"}
)
"""Operators that give a tensor, whatever they are called with."""
OF_ROWS = frozenset(
    {"linear", "embedding", "dropout", "clone", "contiguous", "same", "layer_norm", "batch_norm"}
    | {name for name, operator in FUNCTIONS.items() if not {"dim", "mask", "condition", "dtype"} & set(operator.names)}
)
"""Operators that do to each row of a matrix the same as to each step of sequences."""
ZEROS = frozenset({"zeros", "new_zeros", "zeros_like"})
CASTS = frozenset({"to", "_to_copy", "type", "type_as"})
SPLITS = frozenset(
    {name for name in OPERATORS if name.removeprefix("unsafe_") in ("chunk", "split", "split_with_sizes", "tensor_split", "unbind")}
)
"""Operators that give lists of tensors, which share no elements with one another."""
_JOINS: Mapping[str, Callable[..., Array]] = {
    "cat": np.concatenate,
    "concat": np.concatenate,
    "concatenate": np.concatenate,
    "stack": np.stack,
}
_REJOINED: Dialect = {
    f"{kind} of {name}": elements.rejoined(operator, join)
    for name in SPLITS
    if isinstance(operator := OPERATORS[name].elements, Moves)
    for kind, join in _JOINS.items()
}
DIALECT: Dialect = {**{name: operator.elements for name, operator in OPERATORS.items() if operator.elements is not None}, **_REJOINED}
"""The effects of operators on elements, with joins of all parts of another's list."""
MOVES_BY_NAME = frozenset(
    {
        name
        for name, operator in OPERATORS.items()
        if operator.parameters and isinstance(operator.elements, Moves) and operator.elements is not SAME
    }
)
"""Operators whose arguments stand in the order of their parameters, however the code names them."""
_WITHOUT_A_RULE = """
addbmm baddbmm bernoulli cumprod index_fill native_layer_norm rand rand_like randn
"""
FRESH = frozenset({*_WITHOUT_A_RULE.split(), *map(str, _REJOINED), *(name for name, operator in OPERATORS.items() if not operator.shares)})
"""Operators whose result is a separate tensor: a change in place to it does not change what they read."""
