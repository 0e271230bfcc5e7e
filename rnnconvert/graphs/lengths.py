"""Formulas of the numbers that a graph computes from the lengths of axes: what is tried at some lengths must hold at all of them.

A formula is an array beside the numbers: for each of them the number itself, where no length decides it, a Size, or None for a
number that depends on lengths in a way that nothing else may be computed from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.graphs.operators import Applied, ChangesError, Computes, Formula
from rnnconvert.graphs.sizes import Dim, Size, divided, open_size

_FACTORS = 3
"""The most lengths of one product."""
_LARGEST = 1 << 16
"""The largest number by which lengths are multiplied: 32 bits hold the product."""
_AXIS, _PLACE, _OTHER = "axis ", "place ", "length "
"""The beginnings of names of lengths: of open axes, of numbers from 0 on, and of lengths about which nothing else is known."""

Symbols: TypeAlias = "Mapping[str, tuple[int, int]]"
"""The lengths of each open axis in two passes, by its name."""


def constants(numbers: Array) -> Array:
    """Return the formulas of numbers that no length decides."""
    plain = [int(number) if number == number // 1 else number for number in numbers.reshape(-1).tolist()]
    return _objects(plain, numbers.shape)


def _objects(entries: Sequence[Any], shape: Sequence[int]) -> Array:
    formulas = np.empty(len(entries), object)
    formulas[:] = entries
    return formulas.reshape(tuple(shape))


def measured(numbers: Array, others: Array, symbols: Symbols) -> Array | None:
    """Return the formulas of numbers that come from a shape, by their values in another pass; None if no length decides them."""
    if numbers.shape == others.shape:
        if np.array_equal(numbers, others):
            return None
        pairs = zip(numbers.reshape(-1).tolist(), others.reshape(-1).tolist(), strict=True)
        return _objects([_length(int(length), int(other), symbols) for length, other in pairs], numbers.shape)
    values = [np.unique(array).tolist() for array in (numbers, others)]
    alike = [int(several[0]) for several in values if len(several) == 1]
    entry = _length(alike[0], alike[1], symbols) if len(alike) == 2 else None
    return _objects([entry] * numbers.size, numbers.shape)


def _length(length: int, other: int, symbols: Symbols) -> Dim:
    """Return the product of lengths that a number is in two passes; an open length where it is not one."""
    products: list[tuple[int, int, tuple[str, ...]]] = [(length, other, ())]
    for first, second, names in products:
        if first == second:
            return Size({names: first}) if names and first else first
        # The list grows while it is read, so that products of few lengths come before those of many.
        if len(names) < _FACTORS and first and second:
            products += [
                (first // in_first, second // in_second, (*names, name))
                for name, (in_first, in_second) in symbols.items()
                # Names in order, so that each product is found once.
                if name >= max(names, default="") and not first % in_first and not second % in_second
            ]
    return open_size(f"{_OTHER}{length} or {other}")


def axis_name(length: int, other: int) -> str:
    """Return the name of the open axes that are so long in two passes."""
    return f"{_AXIS}{length} or {other}"


def agree(formulas: Array, numbers: Array) -> bool:
    """Return whether formulas are the numbers that operators compute at the lengths tried: these neither round nor wrap around."""
    return all(
        entry is None or _value(entry) == number
        for entry, number in zip(formulas.reshape(-1).tolist(), numbers.reshape(-1).tolist(), strict=True)
    )


def _value(formula: Dim) -> int:
    """Return the value of a formula in the first of two passes: each name begins with a word and its value there."""
    terms = formula.terms if isinstance(formula, Size) else (((), formula),)
    return sum(count * math.prod(int(name.split()[1]) for name in names) for names, count in terms)


def are_constant(formulas: Array) -> bool:
    """Return whether no length decides any of some numbers."""
    return all(not isinstance(entry, Size) and entry is not None for entry in formulas.reshape(-1))


def are_products(formulas: Array) -> bool:
    """Return whether numbers are constants and products of lengths: what two of these do at lengths that are prime, they always do."""
    return all(entry is not None and (not isinstance(entry, Size) or len(entry.terms) == 1) for entry in formulas.reshape(-1))


def fits(formulas: Array, dtype: np.dtype[Any]) -> bool:
    """Return whether an element type holds numbers at all lengths at which there can be tensors."""
    if are_constant(formulas):
        return True
    bits = {"i": 32, "u": 32, "f": 32}.get(dtype.kind)
    if bits is None or 8 * dtype.itemsize < bits:
        return False
    factors = 1 if dtype == np.float32 else _FACTORS
    return all(
        abs(count) < _LARGEST and len(set(names)) == len(names) <= factors
        for entry in formulas.reshape(-1)
        if isinstance(entry, Size)
        for names, count in entry.terms
    )


# What operators compute of formulas -------------------------------------------------------------------


def each(function: Callable[..., Any]) -> Formula:
    """Return an operator on formulas that applies a function to the numbers at each place."""

    def entry(number: Any, *read: Any) -> Any:
        if None in read:
            raise ChangesError("what is computed from numbers that depend on lengths")
        return function(*read) if any(isinstance(formula, Size) for formula in read) else number

    def compute(applied: Applied, numbers: Array) -> Array:
        arrays = applied.arrays
        return np.asarray(np.frompyfunc(entry, len(arrays) + 1, 1)(constants(numbers), *arrays), dtype=object)

    return compute


def same(applied: Applied, _: Array) -> Array:
    """Return the formulas of an operator that gives the numbers that it reads."""
    return applied.input(0)


def alike(applied: Applied, numbers: Array) -> Array:
    """Return the formulas of a constant that is repeated: lengths decide how often."""
    _check_products(applied)
    return constants(numbers)


def counted(applied: Applied, numbers: Array) -> Array:
    """Return the formulas of the numbers from one to another."""
    _check_products(applied)
    start, _, step = (applied.input(index).reshape(()).item() for index in range(3))
    plain = (start, step) == (0, 1)
    return _objects([open_size(f"{_PLACE}{place}") if plain else None for place in range(numbers.size)], numbers.shape)


def _check_products(applied: Applied) -> None:
    if not all(are_products(formulas) for formulas in applied.arrays):
        raise ChangesError(f"{applied.kind} of numbers that depend on lengths")


def listed(applied: Applied, _: Array) -> Array:
    """Return the formulas of numbers one behind the other."""
    return np.concatenate([formulas.reshape(-1) for formulas in applied.arrays])


def multiplied(applied: Applied, numbers: Array) -> Array:
    """Return the formula of the product of all numbers."""
    result: Any = 1
    if numbers.size != 1:
        raise ChangesError("a product along some axes")
    for entry in applied.input(0).reshape(-1):
        if entry is None:
            raise ChangesError("a product of numbers that depend on lengths")
        result = result * entry
    return _objects([result], numbers.shape)


def lists_equal(applied: Applied, numbers: Array) -> Array:
    """Return the formula of whether numbers, or lists of them, are the same."""
    first, other = applied.arrays
    if first.shape != other.shape:
        return constants(numbers)
    equal = all(_sign(*pair) == 0 for pair in zip(first.reshape(-1), other.reshape(-1), strict=True))
    return _objects([int(equal)], numbers.shape)


def lists_differ(applied: Applied, numbers: Array) -> Array:
    """Return the formula of whether numbers, or lists of them, are not the same."""
    return 1 - lists_equal(applied, numbers)


def _truth(*_: Dim) -> Dim:
    raise ChangesError("what is true by a length")


def _quotient(dividend: Dim, divisor: Dim) -> Dim:
    exact = divided(dividend, divisor)
    if exact is None:
        raise ChangesError(f"a quotient of a length by {divisor}, which is not whole at every length,")
    return exact


def _remainder(dividend: Dim, divisor: Dim) -> Dim:
    return _quotient(dividend, divisor) and 0


def _sign(number: Dim, other: Dim) -> int:
    """Return whether a number is more than another, 1, less, -1, or equal, 0, at all lengths."""
    difference = number - other
    if not isinstance(difference, Size):
        return (difference > 0) - (difference < 0)
    # Lengths of axes are at least 1; of other lengths nothing is known.
    if all(name.startswith(_AXIS) for names, _ in difference.terms for name in names):
        if difference.positive:
            return 1
        if (-difference).positive:
            return -1
    limit = other if not isinstance(other, Size) else number
    raise ChangesError(f"a choice by whether a length is more than {limit if not isinstance(limit, Size) else 'another'}")


def _choice(condition: Dim, number: Dim, other: Dim) -> Dim:
    return number if _sign(condition, 0) else other


SUM = each(lambda number, other: number + other)
DIFFERENCE = each(lambda number, other: number - other)
PRODUCT = each(lambda number, other: number * other)
NEGATIVE = each(lambda number: -number)
QUOTIENT = each(_quotient)
REMAINDER = each(_remainder)
EQUAL = each(lambda number, other: _sign(number, other) == 0)
LESS = each(lambda number, other: _sign(number, other) < 0)
GREATER = each(lambda number, other: _sign(number, other) > 0)
AT_MOST = each(lambda number, other: _sign(number, other) <= 0)
AT_LEAST = each(lambda number, other: _sign(number, other) >= 0)
LEAST = each(lambda number, other: number if _sign(number, other) < 0 else other)
LARGEST = each(lambda number, other: number if _sign(number, other) > 0 else other)
CHOICE = each(_choice)
SAME_TRUTH = each(_truth)
ABSOLUTE = each(lambda number: number if _sign(number, 0) >= 0 else -number)

NUMBERS: Mapping[str, Computes] = {
    "add": Computes(lambda applied: applied.input(0) + applied.input(1), formula=SUM),
    "subtract": Computes(lambda applied: applied.input(0) - applied.input(1), formula=DIFFERENCE),
    "multiply": Computes(lambda applied: applied.input(0) * applied.input(1), formula=PRODUCT),
    "minimum": Computes(lambda applied: np.minimum(applied.input(0), applied.input(1)), formula=LEAST),
    "maximum": Computes(lambda applied: np.maximum(applied.input(0), applied.input(1)), formula=LARGEST),
}
"""Operators that compute numbers and mean the same in many frameworks."""
