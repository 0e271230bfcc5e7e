"""Gradients as a framework gives them, brought to the canonical form beside the reference's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import MissingPackageError, UsageError
from rnnconvert.core.reference import Gradients, Reference
from rnnconvert.core.weights import Key
from rnnconvert.judging.case_kinds import Case
from rnnconvert.judging.cases import farthest, shaken
from rnnconvert.judging.rounding import ARITHMETICS
from rnnconvert.language.fitting import fit
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import unpack
from rnnconvert.language.places import shapes
from rnnconvert.language.registry import layouts_of
from rnnconvert.rewrites.fit_to_layout import Fitted


@dataclass(frozen=True)
class GradientCase:
    """Gradients of one case: an executor's own, the float64 truth, and the same in the element type of the weights."""

    found: Gradients
    truth: Gradients
    floor: Gradients


def graded(answer: Mapping[str, Any], part: Fitted, case: Case, rounding: str) -> GradientCase:
    """Return an answer's gradients beside the reference's. Raises ValueError for gradients of other shapes."""
    assert case.cotangents is not None
    hidden, cell = case.hidden or (), case.cell or ()
    gradients = Gradients(answer["x"], tuple(answer["hidden"]), tuple(answer["cell"]), canonical(answer["weights"], part))
    try:
        arithmetic = ARITHMETICS[rounding]
        rough = shaken(part.stack) if rounding == "float64" else part.stack
        references = (Reference(rough, arithmetic.dtype, functions=functions) for functions in arithmetic.estimates)
        truth, *several = (
            reference.gradients(case.x, hidden, cell, case.lengths, case.cotangents) for reference in (Reference(part.stack), *references)
        )
    except ImportError:
        raise MissingPackageError("torch", "know the true gradients") from None
    mine, true = ([array.shape for array in (gradients_.x, *gradients_.hidden, *gradients_.cell)] for gradients_ in (gradients, truth))
    if mine != true:
        raise ValueError(f"its gradients of x and states have the shapes {mine}, expected {true}")
    return GradientCase(gradients, *(_placed(gradients_, part.layout) for gradients_ in (truth, _farthest(truth, several))))


def _farthest(truth: Gradients, several: Sequence[Gradients]) -> Gradients:
    """Return of several estimates the one of each number that is farthest from the truth."""
    hidden, cell = (tuple(map(farthest, *(getattr(each, name) for each in (truth, *several)))) for name in ("hidden", "cell"))
    weights = zip(truth.weights, *(each.weights for each in several), strict=True)
    return Gradients(
        farthest(truth.x, *(each.x for each in several)),
        hidden,
        cell,
        tuple({key: farthest(exact, *(arrays[key] for arrays in others)) for key, exact in true.items()} for true, *others in weights),
    )


def _placed(gradients: Gradients, layout: Layout) -> Gradients:
    """Leave out gradients of weights that a layout has no place for: such biases are zero there and never learned."""
    return replace(gradients, weights=tuple(_with_place(arrays, layout) for arrays in gradients.weights))


def _with_place(arrays: Mapping[Key, Array], layout: Layout) -> dict[Key, Array]:
    return {key: array for key, array in arrays.items() if key in layout.keys}


def canonical(weights: Mapping[str, Mapping[str, Array]], part: Fitted) -> tuple[dict[Key, Array], ...]:
    """Return a framework's own arrays of gradients, by layer and name, as arrays by direction and (part, gate).

    A separate direction is spelled "forward/kernel", "backward/kernel".

    Raises UsageError if they are not the layout's.
    """
    result: list[dict[Key, Array]] = []
    for arrays in weights.values():
        if _is_whole(arrays, part):
            result += _canonical(arrays, part)
            continue
        if any("/" in tensor.name for tensor in part.layout.tensors):  # paths in a tree: each cell is one direction
            result += _canonical(arrays, replace(part, layout=_layout_of(arrays, part.layout)))
            continue
        ways = {name.rpartition("/")[0] for name in arrays}
        for way in sorted(ways, key=lambda way: way.startswith("backward")):
            way_arrays = {name.rpartition("/")[2]: array for name, array in arrays.items() if name.rpartition("/")[0] == way}
            result += _canonical(way_arrays, part)
    if len(result) != sum(1 for _ in part.stack.directions()):
        raise UsageError(f"gradients of {len(result)} directions for {part.stack.describe()}")
    return tuple(result)


def _layout_of(arrays: Mapping[str, Array], default: Layout) -> Layout:
    """Return the layout of a cell's arrays: a library may spell one cell in two ways, as nnx its LSTM."""
    named = {name: tuple(array.shape) for name, array in arrays.items()}
    kin = [layout for layout in layouts_of(default.framework) if layout.kind == default.kind and layout.writable]
    return next((layout for layout in [default, *kin] if fit(layout, named)), default)


def _is_whole(arrays: Mapping[str, Array], part: Fitted) -> bool:
    """Return whether these are all arrays of the stack under the names of its layout, which may contain slashes."""
    try:
        expected = shapes(part.layout, Sizes.of(part.stack))
    except ValueError:
        return False
    return {name: tuple(array.shape) for name, array in arrays.items()} == expected


def _canonical(own_arrays: Mapping[str, Array], part: Fitted) -> list[dict[Key, Array]]:
    # One flat buffer shows no sizes: they are the stack's.
    fitting = fit(part.layout, {name: tuple(array.shape) for name, array in own_arrays.items()})
    sizes = Sizes.of(part.stack) if fitting is None or _is_whole(own_arrays, part) else fitting
    try:
        by_place = unpack(part.layout, sizes, own_arrays)
    except ValueError as error:
        raise UsageError(f"these gradients are not those of {part.layout.class_name}: {error}") from None
    directions = ({key: np.asarray(source) for key, source in by_place[place].items()} for place in sorted(by_place))
    return [_with_place(arrays, part.layout) for arrays in directions]
