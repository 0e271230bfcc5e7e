"""Spectral radii of recurrent matrices: exact if that is quick, else found from a few products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rnnconvert.core.arrays import Array

_EXACT = 256
"""The largest matrix whose eigenvalues are all computed."""

_STEPS = 80
"""Dimensions of the space in which the largest eigenvalue of a larger matrix is approximated."""


@dataclass(frozen=True)
class Radius:
    """The largest magnitude of an eigenvalue, and whether it is exact but for rounding."""

    value: float
    exact: bool


@dataclass
class EigenvalueBudget:
    """How many products of numbers all eigenvalues of matrices may still take."""

    left: int = 20_000_000_000


def radius(factors: Sequence[Array], work: EigenvalueBudget) -> Radius | None:
    """Return the spectral radius of a product of matrices whose sizes match all around; None for an empty one.

    factors  the matrix applied last comes first
    """
    inner = min(matrix.shape[1] for matrix in factors)
    if not inner:
        return None
    # AB and BA have the same eigenvalues but for zeros: the smallest size is the one to work in.
    turn = next(at for at, matrix in enumerate(factors) if matrix.shape[1] == inner) + 1
    factors = [*factors[turn:], *factors[:turn]]
    cost = 25 * inner**3
    if inner <= _EXACT and cost <= work.left:
        work.left -= cost
        product = factors[0].astype(np.float64)
        for matrix in factors[1:]:
            product = product @ matrix.astype(np.float64)
        return Radius(float(np.abs(np.linalg.eigvals(product)).max()), True)
    steps = min(_STEPS, inner)
    work.left -= steps * (sum(matrix.size for matrix in factors) + 2 * steps * inner)
    if work.left < 0:
        return None
    return Radius(_arnoldi([_floats(matrix) for matrix in factors], inner, steps), steps == inner)


def _floats(matrix: Array) -> Array:
    """Return a matrix in a type that is multiplied fast, without a copy where it has one."""
    return matrix if matrix.dtype in (np.float32, np.float64) else matrix.astype(np.float32)


def _arnoldi(factors: Sequence[Array], size: int, steps: int) -> float:
    """Return the largest eigenvalue's magnitude in a Krylov space (Arnoldi's method, orthogonalised twice)."""
    basis = np.zeros((steps + 1, size))
    projected = np.zeros((steps + 1, steps))
    start = np.random.default_rng(0).normal(size=size)
    basis[0] = start / np.linalg.norm(start)
    for step in range(steps):
        moved = basis[step]
        for matrix in reversed(factors):
            moved = matrix @ moved.astype(matrix.dtype)
        moved = moved.astype(np.float64)
        before = np.linalg.norm(moved)
        for _ in range(2):
            part = basis[: step + 1] @ moved
            moved -= part @ basis[: step + 1]
            projected[: step + 1, step] += part
        length = float(np.linalg.norm(moved))
        if length <= 1e-12 * before:  # the space is closed: its eigenvalues are the matrix's own
            return float(np.abs(np.linalg.eigvals(projected[: step + 1, : step + 1])).max())
        projected[step + 1, step] = length
        basis[step + 1] = moved / length
    return float(np.abs(np.linalg.eigvals(projected[:steps])).max())
