"""What the operations of a graph_def do to elements.

Source: tensorflow/core/ops/{array,manip,math}_ops.cc and the kernels. An operation that a library of the user's registers has a name of
its own: TensorFlow refuses one twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.containers.tensor_bundle import TYPES
from rnnconvert.core.arrays import Array
from rnnconvert.graphs import moves
from rnnconvert.graphs.lengths import NUMBERS, multiplied
from rnnconvert.graphs.operators import SAME, Applied, Casts, ChangesError, Computes, Dialect, Measures, Moves

NODE = "node"
"""The attribute that is the operation itself."""
PASSING = (
    "Identity",
    "StopGradient",
    "Snapshot",
    "EnsureShape",
    "PreventGradient",
    "CheckNumerics",
    "ReadVariableOp",
    "TensorListFromTensor",
    "PlaceholderWithDefault",
)
"""Operations whose output is their first input."""


def _node(applied: Applied) -> GraphDefNode:
    node: GraphDefNode = applied.attributes[NODE]
    return node


def _integer(applied: Applied, index: int) -> int:
    return applied.integers(index)[0]


def _concat(applied: Applied) -> Array:
    return moves.concatenate(applied.arrays[:-1], _integer(applied, len(applied.inputs) - 1))


def _gather(applied: Applied) -> Array:
    if _node(applied).number("batch_dims", 0):
        raise ChangesError(f"{_node(applied).op} by batch")
    return moves.take(applied.input(0), applied.input(1), _integer(applied, 2) if len(applied.inputs) > 2 else 0)


def _strided(applied: Applied) -> Array:
    begin, end, steps = (applied.integers(index) for index in (1, 2, 3))
    keys = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    bits = [int(_node(applied).number(key, 0)) for key in keys]
    masks = [[bool(mask >> place & 1) for place in range(len(begin))] for mask in bits]
    return moves.strided(applied.input(0), begin, end, steps, masks=masks)


def _slice(applied: Applied) -> Array:
    begin, sizes = applied.integers(1), applied.integers(2)
    return moves.cut(applied.input(0), begin, [None if size == -1 else low + size for low, size in zip(begin, sizes, strict=True)])


def _reverse_sequence(applied: Applied) -> Array:
    node = _node(applied)
    time, batch = int(node.number("seq_dim", 0)), int(node.number("batch_dim", 0))
    return moves.reverse_sequences(applied.input(0), applied.input(1), time, batch)


def _dtype(applied: Applied) -> np.dtype[Any]:
    number = int(_node(applied).number("DstT", 0))
    if number not in TYPES:
        raise ChangesError(f"Cast to type {number}")
    return np.dtype(TYPES[number])


_ZEROS, _GATHER = Measures(lambda applied: np.zeros(applied.input(0).shape)), Moves(_gather)
DIALECT: Dialect = {
    **dict.fromkeys(PASSING, SAME),
    "Transpose": Moves(lambda applied: moves.transpose(applied.input(0), applied.integers(1))),
    "Reshape": Moves(lambda applied: moves.reshape(applied.input(0), applied.integers(1))),
    "ExpandDims": Moves(lambda applied: moves.unsqueeze(applied.input(0), applied.integers(1))),
    "Squeeze": Moves(lambda applied: moves.squeeze(applied.input(0), _node(applied).integers("squeeze_dims"))),
    "ConcatV2": Moves(_concat, None, extra=1),
    "Pack": Moves(lambda applied: moves.stack(applied.arrays, int(_node(applied).number("axis", 0))), None),
    "Unpack": Moves(lambda applied: moves.unstack(applied.input(0), int(_node(applied).number("axis", 0)))),
    "Split": Moves(lambda applied: moves.split(applied.input(1), _integer(applied, 0), int(_node(applied).number("num_split", 1))), (1,)),
    "SplitV": Moves(lambda applied: moves.split(applied.input(0), _integer(applied, 2), applied.integers(1))),
    "Gather": _GATHER,
    "GatherV2": _GATHER,
    "StridedSlice": Moves(_strided),
    "Slice": Moves(_slice),
    "ReverseV2": Moves(lambda applied: moves.reverse(applied.input(0), applied.integers(1))),
    "ReverseSequence": Moves(_reverse_sequence),
    "Tile": Moves(lambda applied: moves.tile(applied.input(0), applied.integers(1))),
    "Fill": Moves(lambda applied: moves.broadcast(applied.input(1), applied.integers(0)), (1,)),
    "Cast": Casts(_dtype),
    "Shape": Measures(lambda applied: np.array(applied.input(0).shape, np.int64)),
    "ZerosLike": _ZEROS,
    "Add": NUMBERS["add"],
    "AddV2": NUMBERS["add"],
    "Sub": NUMBERS["subtract"],
    "Mul": NUMBERS["multiply"],
    "Maximum": NUMBERS["maximum"],
    "Prod": Computes(lambda applied: np.asarray(np.prod(applied.input(0))), formula=multiplied),
    "Minimum": NUMBERS["minimum"],
}
"""By the operation's name."""
