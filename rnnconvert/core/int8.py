"""Weights in fewer bits: matrices as integers of 8 bits with a scale for each row, arrays as halves; computed when they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray, pieces
from rnnconvert.core.errors import RefusedError


class RowCodes:
    """A matrix in int8, computed when it is written: its rows divided by their scales.

    rows  yields the matrix, some rows at a time
    """

    dtype = np.dtype(np.int8)

    def __init__(self, shape: tuple[int, ...], rows: Callable[[], Iterator[Array]], scales: Array, by_columns: bool) -> None:
        self.shape, self._rows, self._scales, self._by_columns = shape, rows, scales, by_columns

    def pieces(self) -> Iterator[Array]:
        """Yield the integers in C order."""
        place = 0
        for rows in self._rows():
            scales = self._scales if self._by_columns else self._scales[place : place + len(rows), None]
            yield np.clip(np.round(rows / scales), -127, 127).astype(np.int8).reshape(-1)
            place += len(rows)


class Float16Array:
    """An array in float16, computed when it is written."""

    dtype = np.dtype("<f2")

    def __init__(self, array: Array | PiecewiseArray) -> None:
        self.shape, self._array = tuple(array.shape), array

    def pieces(self) -> Iterator[Array]:
        """Yield the numbers in C order."""
        for piece in pieces(self._array):
            yield piece.astype("<f2")


@dataclass(frozen=True, eq=False)
class ByteMatrix:
    """A matrix in int8.

    codes   its integers
    scales  what these are multiplied by, a number for each row, or for each column
    lost    the largest change of a weight
    most    the largest weight
    """

    codes: RowCodes
    scales: Array
    lost: float
    most: float


def as_bytes(array: Array | PiecewiseArray, by_columns: bool = False) -> ByteMatrix:
    """Return a matrix (rows, columns) in int8; a row of zeros has the scale 1.

    by_columns  whether it is a column that has a scale, and not a row

    Raises RefusedError for a matrix with infinite numbers, whose scale would be infinite.
    """

    def rows() -> Iterator[Array]:
        return (block.astype(np.float64) for block in _rows(array))

    parts = [np.abs(block).max(axis=0 if by_columns else 1) for block in rows()] or [np.zeros(array.shape[1] if by_columns else 0)]
    largest = np.max(parts, axis=0) if by_columns else np.concatenate(parts)
    if not np.isfinite(largest).all():
        raise RefusedError("a weight that is infinite or not a number", "int8", "the scale of its row would be", "Write it in float32.")
    scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    scales[scales == 0] = np.finfo(np.float32).tiny
    codes = RowCodes((array.shape[0], array.shape[1]), rows, scales, by_columns)
    lost, place, wide = 0.0, 0, scales.astype(np.float64)
    for block, integers in zip(rows(), codes.pieces(), strict=True):
        spread = wide if by_columns else wide[place : place + len(block), None]
        lost = max(lost, float(np.abs(integers.reshape(block.shape) * spread - block).max(initial=0)))
        place += len(block)
    return ByteMatrix(codes, scales, lost, float(largest.max(initial=0)))


def _rows(array: Array | PiecewiseArray) -> Iterator[Array]:
    """Yield a matrix, some whole rows at a time."""
    width, rest = array.shape[1], np.empty(0, array.dtype)
    for piece in pieces(array):
        rest = np.concatenate([rest, piece]) if rest.size else piece
        count = rest.size // width
        if count:
            yield rest[: count * width].reshape(count, width)
        rest = rest[count * width :].copy()


def largest(array: Array | PiecewiseArray) -> float:
    """Return the largest size of a finite number of an array; 0 where it has none."""
    sizes = (np.abs(piece[np.isfinite(piece)]).max(initial=0) for piece in pieces(array))
    return float(max(sizes, default=0.0))


def narrowed(name: str, lost: float, most: float) -> str:
    """Return the sentence on how far int8 changes the weights."""
    return f"{name}: in int8 a weight changes by up to {lost:.3g}, of weights of up to {most:.3g}"
