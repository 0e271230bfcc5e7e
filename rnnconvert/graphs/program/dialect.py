"""The effects of the common operations on elements, by domain and name. Source: onnx/docs/Operators.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.limits import PUSHED_ELEMENTS
from rnnconvert.graphs import lengths, moves
from rnnconvert.graphs.operators import SAME, Applied, Casts, ChangesError, Computes, Dialect, Formula, Measures, Moves, UnfitError
from rnnconvert.graphs.program.computing import reverse_sequence
from rnnconvert.graphs.program.fold import fold
from rnnconvert.graphs.program.fold_call import FoldedCall
from rnnconvert.graphs.program.kinds import CUTTING, EACH, RESHAPING

OPSET = "operator set"
"""The attribute under which a node of the floor has the version of its operators."""

READ, GIVE = "what a layer reads", "what a layer gives"
"""How a layer that other operators compute reads its sequences, or single steps, and in which form it gives its states."""


def _folded(applied: Applied, inputs: Sequence[Array | None]) -> list[Array]:
    call = _call(applied, inputs)
    results = fold(call)
    if results is None:
        lengths = [*call.attributes.get("split", ()), *call.attributes.get("shape", ())]
        raise UnfitError(f"{call.operator} does not take this", [*lengths, sum(lengths), applied.outputs])
    return results


def _call(applied: Applied, inputs: Sequence[Array | None]) -> FoldedCall:
    attributes = {name: value for name, value in applied.attributes.items() if name != OPSET}
    operator = str(applied.kind[1] if isinstance(applied.kind, tuple) else applied.kind)
    return FoldedCall(operator, inputs, attributes, applied.outputs, applied.attributes.get(OPSET, 1), _bounded)


def _bounded(size: int) -> None:
    """Raise UnfitError for more bytes than the graph floor moves."""
    if size > 8 * PUSHED_ELEMENTS:
        raise UnfitError(f"{size} bytes")


def _fold(applied: Applied) -> list[Array]:
    return _folded(applied, applied.inputs)


def _dropout(applied: Applied) -> Array:
    mode = applied.inputs[2] if len(applied.inputs) > 2 else None
    if mode is not None and mode.any():
        raise ChangesError("Dropout that is on")
    return applied.input(0)


def _pad(applied: Applied) -> list[Array]:
    # The number that fills is left out: what stands there comes from no element.
    return _folded(applied, [applied.input(0), applied.inputs[1] if len(applied.inputs) > 1 else None, None, *applied.inputs[3:]])


def _slice(applied: Applied) -> list[Array]:
    starts, ends = (_listed(applied, name, place) for place, name in ((1, "starts"), (2, "ends")))
    axes = _listed(applied, "axes", 3) or range(len(starts))
    array = applied.input(0)
    for axis, start, end in zip(axes, starts, ends, strict=False):
        moves.check_range(array.shape[moves.axis_of(axis, array.ndim)], start, end)
    return _fold(applied)


def _listed(applied: Applied, name: str, place: int) -> list[int]:
    """Return a list that is an input, or an attribute in old operator sets."""
    stated = len(applied.inputs) > place and applied.inputs[place] is not None
    return applied.integers(place) if stated else list(applied.attributes.get(name, ()))


def _dtype(applied: Applied) -> np.dtype[Any]:
    to = applied.attributes.get("to")
    if not isinstance(to, np.dtype):
        raise ChangesError("Cast to a type that holds no numbers")
    return to


def _product(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    if len(shapes) != 2 or min(map(len, shapes)) < 2 or shapes[0][-1] != shapes[1][-2]:
        raise UnfitError("MatMul of other shapes")
    return (*np.broadcast_shapes(shapes[0][:-2], shapes[1][:-2]), shapes[0][-2], shapes[1][-1])


def _range(applied: Applied) -> Array:
    start, limit, delta = (int(applied.input(place).reshape(())) for place in range(3))
    if not delta or not 0 <= (limit - start) / delta < 1 << 12 or applied.input(0).dtype.kind != "i":
        raise UnfitError("Range of other numbers")
    return np.arange(start, limit, delta)


def _multiplied(applied: Applied) -> Array:
    axes = _listed(applied, "axes", 1)
    return np.asarray(np.prod(applied.input(0), axis=tuple(axes) or None, keepdims=bool(applied.attributes.get("keepdims", 1))))


def _read(applied: Applied) -> Array:
    """Return the sequences of a layer side by side, (time, batch, features)."""
    values = iter(applied.arrays)
    sequences: list[Array] = []
    for read in applied.attributes["reads"]:
        steps = [next(values) for _ in read.steps or (read.value,)]
        sequence = np.stack(steps) if read.steps else np.moveaxis(steps[0], read.axis, 0)
        sequence = sequence[slice(*read.window)] if read.window is not None else sequence
        sequences.append(sequence.reshape(len(sequence), -1, sequence.shape[-1]))
    return np.concatenate(sequences, axis=2)


def _give(applied: Applied) -> Array:
    """Return states (time, batch, units) as they are used: all of them, or one."""
    states, use = applied.input(0), applied.attributes["use"]
    if use.kind == "step":
        return np.asarray(states[use.step][None] if use.rank == 3 else states[use.step])
    return np.moveaxis(states[:, None] if use.rank == 3 else states, 0, use.axis)


def _compared(function: np.ufunc, formula: Formula) -> Computes:
    return Computes(lambda applied: np.asarray(function(*applied.arrays)), formula=formula)


_OF_NUMBERS: Mapping[str, Formula | None] = {
    "Add": lengths.SUM,
    "Sub": lengths.DIFFERENCE,
    "Mul": lengths.PRODUCT,
    "Div": lengths.QUOTIENT,
    "Neg": lengths.NEGATIVE,
    "Where": lengths.CHOICE,
    "ConstantOfShape": lengths.alike,
    "Constant": None,
}
_FOLDED = (*CUTTING, *RESHAPING, "Expand")

_OPERATORS: Dialect = {
    **dict.fromkeys((*EACH, "Pow"), Computes()),
    **dict.fromkeys(_FOLDED, Moves(_fold)),
    **{name: Computes(_fold, formula=formula) for name, formula in _OF_NUMBERS.items()},
    "Identity": SAME,
    "Dropout": Moves(_dropout),
    "Pad": Moves(_pad),
    "Tile": Moves(lambda applied: moves.tile(applied.input(0), applied.integers(1))),
    "ReverseSequence": Moves(reverse_sequence),
    "Concat": Moves(_fold, None),
    "Cast": Casts(_dtype),
    "Shape": Measures(_fold),
    "Size": Measures(lambda applied: np.array(applied.input(0).size)),
    "MatMul": Computes(None, _product),
    "Range": Computes(_range, formula=lengths.counted),
    "Slice": Moves(_slice),
    "Equal": _compared(np.equal, lengths.EQUAL),
    "Less": _compared(np.less, lengths.LESS),
    "Greater": _compared(np.greater, lengths.GREATER),
    "Min": _compared(np.minimum, lengths.LEAST),
    "Max": _compared(np.maximum, lengths.LARGEST),
    "ReduceProd": Computes(_multiplied, formula=lengths.multiplied),
}

DIALECT: Dialect = {**{("", name): operator for name, operator in _OPERATORS.items()}, READ: Moves(_read, None), GIVE: Moves(_give)}
"""The common operations by ("", name); operations of other domains, and a program's own functions, are not here."""
