"""What TensorFlow's operators do to elements, in the graph of a SavedModel.

Sources: tensorflow/core/ops/{array,manip,math}_ops.cc, and the kernels in core/kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnconvert.containers.graph_def import Node
from rnnconvert.containers.tensor_bundle import TYPES
from rnnconvert.core.arrays import Array
from rnnconvert.graphs import SAME, Applied, Casts, ChangesError, Computes, Dialect, Measures, Moves, moves

NODE = "node"
"""The attribute that is the operator itself."""


def _node(applied: Applied) -> Node:
    node: Node = applied.attributes[NODE]
    return node


def _cast(applied: Applied) -> np.dtype[Any]:
    dtype = TYPES.get(_node(applied).type("DstT"))
    if dtype is None:
        raise ChangesError("Cast to an unknown type")
    return dtype


def _slice(applied: Applied) -> Array:
    node, array = _node(applied), applied.input(0)
    begin, end, stride = (applied.integers(place) for place in (1, 2, 3))
    masks = {key: int(node.number(f"{key}_mask", 0)) for key in ("begin", "end", "shrink_axis", "ellipsis", "new_axis")}
    if masks["ellipsis"] or masks["new_axis"]:
        raise ChangesError("StridedSlice with new axes")
    axes = range(len(stride))
    begins, ends, single = ([bool(masks[key] >> axis & 1) for axis in axes] for key in ("begin", "end", "shrink_axis"))
    none = [False] * len(stride)
    return np.asarray(moves.strided(array, begin, end, stride, masks=[begins, ends, none, none, single]))


def _squeeze(applied: Applied) -> Array:
    return np.squeeze(applied.input(0), tuple(_node(applied).integers("squeeze_dims")) or None)


def _concat(applied: Applied) -> Array:
    arrays = [array for array in applied.inputs[:-1] if array is not None]
    return np.concatenate(arrays, applied.integers(len(applied.inputs) - 1)[0])


def _pack(applied: Applied) -> Array:
    return np.stack(
        [applied.input(place) for place in range(len(applied.inputs))], int(_node(applied).number("axis", 0))
    )


def _shape(applied: Applied) -> Array:
    return np.array(applied.input(0).shape, np.int64)


def _gather(applied: Applied) -> Array:
    return np.take(applied.input(0), applied.input(1).astype(np.int64), axis=applied.integers(2)[0])


DIALECT: Dialect = {
    # tensorflow/core/kernels/identity_op.cc: forwards its input; the others are of training and of checks.
    **dict.fromkeys(("Identity", "StopGradient", "PreventGradient", "Snapshot", "EnsureShape"), SAME),
    "Cast": Casts(_cast),
    "Transpose": Moves(lambda applied: applied.input(0).transpose(applied.integers(1))),
    "Reshape": Moves(lambda applied: applied.input(0).reshape(applied.integers(1))),
    "Squeeze": Moves(_squeeze),
    "ExpandDims": Moves(lambda applied: np.expand_dims(applied.input(0), applied.integers(1)[0])),
    "ReverseV2": Moves(lambda applied: np.flip(applied.input(0), tuple(applied.integers(1)))),
    "ConcatV2": Moves(_concat, data=None),
    "Pack": Moves(_pack, data=None),
    "GatherV2": Moves(_gather),
    "StridedSlice": Moves(_slice),
    "Shape": Measures(_shape),
    "Prod": Computes(lambda applied: np.asarray(np.prod(applied.input(0)))),
}
"""By the operator's name."""
