"""The effects of MXNet's operators on elements, as a dialect."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.graphs import moves
from rnnconvert.graphs.operators import SAME, Applied, Casts, ChangesError, Computes, Dialect, Measures, Moves

READ, GIVE = "the steps that a layer reads", "a step that a layer gives"
"""Operators that stand for no operator of the file."""


def _numbers(applied: Applied, key: str) -> list[int | None]:
    """Return an attribute that is a number or several: "(1, None, -1)"."""
    words = re.findall(r"-?\d{1,18}|None", str(applied.attributes.get(key, "")))
    return [None if word == "None" else int(word) for word in words]


def _all(applied: Applied, key: str) -> list[int]:
    return [number for number in _numbers(applied, key) if number is not None]


def _number(applied: Applied, key: str, default: int) -> int:
    return next(iter(_all(applied, key)), default)


def _is(applied: Applied, key: str) -> bool:
    return str(applied.attributes.get(key, "False")) in ("True", "true", "1")


def _dropout(applied: Applied) -> Array:
    if applied.attributes.get("mode", "training") != "training":
        raise ChangesError("Dropout that is on")
    return applied.input(0)


def _split(applied: Applied) -> list[Array]:
    axis = _number(applied, "axis", 1)
    parts = moves.split(applied.input(0), axis, _number(applied, "num_outputs", 1))
    return [moves.squeeze(part, [axis]) for part in parts] if _is(applied, "squeeze_axis") else parts


def _reshape(applied: Applied) -> Array:
    """Return an array in another shape: 0 stands for the array's own length, -1 for what is left, -2 for all axes that are left,
    -3 for two axes as one, -4 for one axis as the two that follow.
    """
    if _is(applied, "reverse") or "shape" not in applied.attributes:
        raise ChangesError("Reshape from the end")
    array, lengths, place = applied.input(0), list[int](), 0
    words = iter(_all(applied, "shape"))
    for word in words:
        if word == -2:
            lengths += array.shape[place:]
            place = array.ndim
        elif word == -3:
            lengths.append(array.shape[place] * array.shape[place + 1])
            place += 2
        elif word == -4:
            first, second = next(words, 0), next(words, 0)
            total = array.shape[place]
            lengths += [total // second if first == -1 else first, total // first if second == -1 else second]
            place += 1
        else:
            lengths.append(array.shape[place] if word == 0 else word)
            place += 1
    return moves.reshape(array, lengths)


def _swap(applied: Applied) -> Array:
    return np.swapaxes(applied.input(0), _number(applied, "dim1", 0), _number(applied, "dim2", 0))


def _slice(applied: Applied) -> Array:
    begin, steps = _numbers(applied, "begin"), _numbers(applied, "step")
    return moves.cut(applied.input(0), begin, _numbers(applied, "end"), [step or 1 for step in steps])


def _slice_axis(applied: Applied) -> Array:
    (begin,), (end,) = _numbers(applied, "begin"), _numbers(applied, "end")
    return moves.cut(applied.input(0), [begin], [end], [], [_number(applied, "axis", 0)])


def _take(applied: Applied) -> Array:
    array, places, axis = applied.input(0), applied.input(1).astype(np.int64), _number(applied, "axis", 0)
    length = array.shape[moves.axis_of(axis, array.ndim)]
    mode = applied.attributes.get("mode", "clip")
    places = places % length if mode == "wrap" else np.clip(places, 0, length - 1)
    return moves.take(array, places, axis)


def _sequence_reverse(applied: Applied) -> Array:
    array = applied.input(0)
    if not _is(applied, "use_sequence_length"):
        return moves.reverse(array, [0])
    return moves.reverse_sequences(array, applied.input(1).astype(np.int64), 0, 1)


def _dtype(applied: Applied) -> np.dtype[Any]:
    name = str(applied.attributes.get("dtype", ""))
    if name == "bfloat16":
        return BFLOAT16
    if not re.fullmatch(r"(float|u?int)(8|16|32|64)", name):
        raise ChangesError(f"Cast to {name!r}")
    return np.dtype(name)


def _axes(applied: Applied) -> list[int]:
    return _all(applied, "axis")


_SPLIT, _CONCAT = Moves(_split), Moves(lambda applied: moves.concatenate(applied.arrays, _number(applied, "dim", 1)), None)


_TRANSPOSE, _SWAP = Moves(lambda applied: moves.transpose(applied.input(0), _all(applied, "axes"))), Moves(_swap)


_FLATTEN, _FLIP = (
    Moves(lambda applied: moves.flatten(applied.input(0), 1)),
    Moves(lambda applied: moves.reverse(applied.input(0), _axes(applied))),
)


_RESHAPE, _CAST, _TAKE = Moves(_reshape), Casts(_dtype), Moves(_take)


DIALECT: Dialect = {
    # elemwise_unary_op_basic.cc: the same numbers, of which the last two stop gradients
    "_copy": SAME,
    "identity": SAME,
    "BlockGrad": SAME,
    "stop_gradient": SAME,
    "Dropout": Moves(_dropout),
    "SliceChannel": _SPLIT,
    "split": _SPLIT,
    "Reshape": _RESHAPE,
    "reshape": _RESHAPE,
    "Flatten": _FLATTEN,
    "flatten": _FLATTEN,
    "expand_dims": Moves(lambda applied: moves.unsqueeze(applied.input(0), _axes(applied))),
    "squeeze": Moves(lambda applied: moves.squeeze(applied.input(0), _axes(applied))),
    "Concat": _CONCAT,
    "concat": _CONCAT,
    "stack": Moves(lambda applied: moves.stack(applied.arrays, _number(applied, "axis", 0)), None),
    "SwapAxis": _SWAP,
    "swapaxes": _SWAP,
    "transpose": _TRANSPOSE,
    "Cast": _CAST,
    "cast": _CAST,
    "slice": Moves(_slice),
    "slice_axis": Moves(_slice_axis),
    "reverse": _FLIP,
    "flip": _FLIP,
    "take": _TAKE,
    "SequenceReverse": Moves(_sequence_reverse),
    "tile": Moves(lambda applied: moves.tile(applied.input(0), _all(applied, "reps"))),
    "_zeros": Computes(),
    "_ones": Computes(),
    "zeros_like": Measures(lambda applied: np.zeros(applied.input(0).shape)),
    READ: Moves(lambda applied: moves.stack(applied.arrays, 0), None),
    GIVE: Moves(lambda applied: applied.input(0)[applied.attributes["step"]]),
}
