"""The operators of aten in one table, which all readers of PyTorch's programs share: see AtenOperator.

Source: aten/src/ATen/native/native_functions.yaml, and torch/csrc/jit/runtime/register_prim_ops.cpp for those on numbers and lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.formats.pytorch import aten_elements as elements
from rnnconvert.formats.pytorch.aten_operator import AtenOperator
from rnnconvert.formats.pytorch.described.functions import FUNCTIONS
from rnnconvert.formats.pytorch.described.layers import LAYERS
from rnnconvert.formats.pytorch.described.moves import MOVES
from rnnconvert.formats.pytorch.described.operators import OPERATORS as _OVER_AXES
from rnnconvert.formats.pytorch.program.kinds import BRANCH, PACKED, STEPS
from rnnconvert.graphs import SAME, Chooses, Computes, Dialect, Measures, Moves

_PACKING: Mapping[str, AtenOperator] = {
    "pack": AtenOperator("", elements=Moves(elements.pack)),
    "padded": AtenOperator("", elements=Moves(elements.padded)),
    STEPS: AtenOperator("", elements=Moves(elements.steps)),
    PACKED: AtenOperator("", elements=Moves(lambda applied: applied.input(0).reshape(-1, applied.input(0).shape[-1]))),
    "batches": AtenOperator("", elements=Measures(elements.batches)),
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
addbmm argsort baddbmm bernoulli cumprod index_fill native_layer_norm rand rand_like randn sort
"""
FRESH = frozenset({*_WITHOUT_A_RULE.split(), *map(str, _REJOINED), *(name for name, operator in OPERATORS.items() if not operator.shares)})
"""Operators whose result is a separate tensor: a change in place to it does not change what they read."""
