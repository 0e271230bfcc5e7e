"""Lengths of axes while a model is read: whole numbers, and sums of products of lengths that only a run knows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

Dim: TypeAlias = "int | Size"
Dims: TypeAlias = "tuple[Dim, ...]"
_Terms: TypeAlias = "dict[tuple[str, ...], int]"
_MOST = 64
"""The most products of one sum, and the most factors of one product."""
_BITS = 64
"""Bits of a whole number: those that programs compute with have no more."""
_TEXT = 4096
"""The most characters of a length that others give by a function."""


class ComputedSymbol(str):
    """A length that others give by a function: a factor of products as the symbols of axes are, and the same wherever it has one text.

    function  "//", "trunc", "min", "max" or "round": the quotient of two whole numbers rounded to the nearest, to the even of two
    operands  what it is computed from
    """

    function: str
    operands: tuple[Dim, ...]

    def __new__(cls, function: str, *operands: Dim) -> ComputedSymbol:
        """Return the length that a function gives for others."""
        words = [repr(operand) for operand in operands]
        if sum(map(len, words)) > _TEXT:
            raise ValueError("a length that is computed from too many others")
        sign = function == "//"
        symbol = super().__new__(cls, f"({words[0]}) // ({words[1]})" if sign else f"{function}({', '.join(words)})")
        symbol.function, symbol.operands = function, operands
        return symbol


class Size:
    """An open length: products of symbols, each with a whole number; two are equal if they are for every run."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[tuple[str, ...], int]) -> None:
        self.terms = tuple(sorted(terms.items()))

    @property
    def symbol(self) -> str:
        """The symbol that it is, "" for a sum or a product."""
        (names, count), *more = self.terms
        return names[0] if not more and count == 1 and len(names) == 1 else ""

    @property
    def bare(self) -> Dim:
        """The sum without the lengths that all of its products have: zero for the same runs."""
        terms = dict(self.terms)
        for name in self.terms[-1][0]:
            rest = {names: _without(names, (name,)) for names in terms}
            if None not in rest.values():
                terms = {rest[names] or (): count for names, count in terms.items()}
        return _size(terms)

    @property
    def root(self) -> tuple[str, int]:
        """The only length in a sum, and what makes the sum zero; "" and 0 where there are several, or no whole number does."""
        terms = dict(self.terms)
        number = terms.pop((), 0)
        ((names, count), *more) = terms.items()
        return (names[0], -number // count) if not more and len(names) == 1 and number % count == 0 else ("", 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)

    def __repr__(self) -> str:
        return " + ".join("*".join([*([str(count)] if count != 1 or not names else []), *names]) for names, count in self.terms)

    def __add__(self, other: Any) -> Dim:
        if not isinstance(other, (int, Size)):
            return NotImplemented
        return _size(_sum(dict(self.terms), _terms(other), 1))

    def __sub__(self, other: Any) -> Dim:
        if not isinstance(other, (int, Size)):
            return NotImplemented
        return _size(_sum(dict(self.terms), _terms(other), -1))

    def __rsub__(self, other: Any) -> Dim:
        return _size(_sum(_terms(other), dict(self.terms), -1))

    def __neg__(self) -> Size:
        return Size({names: -count for names, count in self.terms})

    def __mul__(self, other: Any) -> Dim:
        if not isinstance(other, (int, Size)):
            return NotImplemented
        terms: _Terms = {}
        for names, count in self.terms:
            for more, times in _terms(other).items():
                key = tuple(sorted((*names, *more)))
                terms[key] = terms.get(key, 0) + count * times
        return _size(terms)

    def __floordiv__(self, other: Any) -> Dim:
        """Return the quotient: exact where it is for every run, else a new symbol, the same each time."""
        exact = divided(self, other)
        return exact if exact is not None else open_size(ComputedSymbol("//", self, other))

    def __rfloordiv__(self, other: Any) -> Dim:
        exact = divided(other, self)
        return exact if exact is not None else open_size(ComputedSymbol("//", other, self))

    __radd__ = __add__
    __rmul__ = __mul__

    def __mod__(self, other: Any) -> Dim:
        rest: Dim = self - (self // other) * other
        return rest

    @property
    def positive(self) -> bool:
        """Whether it is surely at least 1 wherever no axis is empty."""
        return reaches(self, 1)


def _terms(value: Dim) -> _Terms:
    return dict(value.terms) if isinstance(value, Size) else {(): int(value)}


def _sum(terms: _Terms, more: _Terms, sign: int) -> _Terms:
    for names, count in more.items():
        terms[names] = terms.get(names, 0) + sign * count
    return terms


def in_64_bits(number: int) -> int:
    """Return a whole number. Raises ValueError for one that does not fit into 64 bits, which no program can mean."""
    if number.bit_length() > _BITS:
        raise ValueError(f"a whole number of {number.bit_length():,} bits, where programs have {_BITS}")
    return number


def raised(base: int, exponent: int) -> int | float:
    """Return a power. Raises ValueError for a whole number that does not fit into 64 bits, without computing it."""
    if exponent > 0 and (base.bit_length() - 1) * exponent >= _BITS:
        raise ValueError(f"{base} to the power {exponent}, where whole numbers have {_BITS} bits")
    return in_64_bits(base**exponent) if exponent >= 0 else float(base) ** exponent


def _size(terms: _Terms) -> Dim:
    """Return a sum as a whole number where it is one. Raises ValueError for one that is too long, or a number of more than 64 bits."""
    left = {names: in_64_bits(count) for names, count in terms.items() if count}
    if len(left) > _MOST or any(len(names) > _MOST for names in left):
        raise ValueError("a length that is computed from too many others")
    return left.get((), 0) if set(left) <= {()} else Size(left)


def divided(value: Dim, by: Dim) -> Dim | None:
    """Return an exact quotient; None where there is none for every run."""
    terms, divisor = _terms(value), {names: count for names, count in _terms(by).items() if count}
    if not divisor:
        return None
    # Long division, as of polynomials: the largest product of the rest by the largest of the divisor.
    first = max(divisor, key=_order)
    quotient: _Terms = {}
    for _ in range(_MOST):
        terms = {names: count for names, count in terms.items() if count}
        if not terms:
            return _size(quotient)
        largest = max(terms, key=_order)
        rest = _without(largest, first)
        if rest is None or terms[largest] % divisor[first]:
            return None
        quotient[rest] = terms[largest] // divisor[first]
        for names, count in divisor.items():
            key = tuple(sorted((*names, *rest)))
            terms[key] = terms.get(key, 0) - count * quotient[rest]
    return None


def _order(names: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """Return a sort key for products, under which one with more factors is larger."""
    return len(names), names


def _without(names: tuple[str, ...], factors: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return a product without some of its factors; None where it lacks one."""
    rest = list(names)
    for name in factors:
        if name not in rest:
            return None
        rest.remove(name)
    return tuple(rest)


def least(*lengths: Dim) -> Dim:
    """Return the smallest of several lengths: one of them if it is the smallest in every run."""
    return _chosen("min", lengths, lambda length, other: reaches(other - length, 0))


def most(*lengths: Dim) -> Dim:
    """Return the largest of several lengths, as `least` does the smallest."""
    return _chosen("max", lengths, lambda length, other: reaches(length - other, 0))


def _chosen(function: str, lengths: Sequence[Dim], before: Callable[[Dim, Dim], bool]) -> Dim:
    surely = [length for length in lengths if all(before(length, other) for other in lengths)]
    return surely[0] if surely else open_size(ComputedSymbol(function, *lengths))


def truncated(value: Dim, by: Dim) -> Dim:
    """Return a quotient rounded towards zero, as C does."""
    exact = divided(value, by)
    if exact is not None:
        return exact
    if reaches(value, 0) and reaches(by, 1):
        return value // by
    return (
        math.trunc(Fraction(value, by)) if isinstance(value, int) and isinstance(by, int) else open_size(ComputedSymbol("trunc", value, by))
    )


def rounded(value: Dim, by: Dim) -> Dim:
    """Return a quotient rounded to the nearest whole number, to the even of two, as Python's `round` does."""
    exact = divided(value, by)
    if exact is not None:
        return exact
    return round(Fraction(value, by)) if isinstance(value, int) and isinstance(by, int) else open_size(ComputedSymbol("round", value, by))


def reaches(value: Dim, least_value: int) -> bool:
    """Return whether a length is surely at least a number wherever no axis is empty."""
    bound = _lower({names: Fraction(count) for names, count in _terms(value).items()}, _DEEP)
    return bound is not None and bound >= least_value


_DEEP = 8
"""How many lengths that are computed are followed into one another."""


def _lower(terms: Mapping[tuple[str, ...], Fraction], deep: int) -> Fraction | None:
    """Return a number that a sum is not below, each axis being 1 or longer; None where none is seen."""
    computed = next(((names, name) for names in terms for name in names if isinstance(name, ComputedSymbol)), None)
    if computed is None:
        return sum(terms.values(), Fraction()) if all(count >= 0 for names, count in terms.items() if names) else None
    names, name = computed
    # A computed length is replaced by sums that bound it, until only axes are left.
    others = {key: count for key, count in terms.items() if key != names}
    bounds = _bounds(name, above=terms[names] < 0) if names == (name,) and deep else []
    lowest = [_lower(_sum_of(others, bound, terms[names]), deep - 1) for bound in bounds]
    return max((each for each in lowest if each is not None), default=None)


def _bounds(name: ComputedSymbol, above: bool) -> Sequence[Mapping[tuple[str, ...], Fraction]]:
    """Return sums that a computed length is surely not above, or not below."""
    operands = [{names: Fraction(count) for names, count in _terms(operand).items()} for operand in name.operands]
    if name.function in ("min", "max"):
        return operands if above == (name.function == "min") else []
    by = name.operands[1]
    if not isinstance(by, int) or by < 1:
        return []
    # A floor is below the quotient by less than 1, what is cut off below or above it; rounding is off by a half at most.
    off = Fraction(1, 2) if name.function == "round" else Fraction(by - 1, by)
    quotient = {names: count / by for names, count in operands[0].items()}
    off = -off if not above else Fraction() if name.function == "//" else off
    return [
        _sum_of(quotient, {(): Fraction(1)}, off),
        *([dict[tuple[str, ...], Fraction]()] if not above and reaches(name.operands[0], 0) else []),
    ]


def _sum_of(
    terms: Mapping[tuple[str, ...], Fraction], more: Mapping[tuple[str, ...], Fraction], times: Fraction
) -> dict[tuple[str, ...], Fraction]:
    return {names: terms.get(names, Fraction()) + times * more.get(names, Fraction()) for names in {**terms, **more}}


def open_size(name: str) -> Size:
    """Return the length of an axis that the source leaves open."""
    return Size({(name,): 1})


def product(dims: Iterable[Dim]) -> Dim:
    """Return how many elements axes have together."""
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def broadcast(shapes: Sequence[Dims]) -> Dims:
    """Return the axes of several tensors spread over one another, as numpy does it. Raises ValueError where they cannot be."""
    rank = max(map(len, shapes))
    dims: list[Dim] = []
    for axis in range(rank):
        lengths = [shape[axis - rank + len(shape)] for shape in shapes if axis - rank + len(shape) >= 0]
        several = list(dict.fromkeys(length for length in lengths if length != 1))
        fixed = [length for length in several if isinstance(length, int)]
        if len(fixed) > 1:
            raise ValueError(f"axes of lengths {fixed}")
        # An open length beside a stated one can only be that one, or 1.
        dims.append((fixed or several or [1])[0])
    return tuple(dims)
