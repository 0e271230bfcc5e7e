"""One written-out step, and what it hands to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.recognition.expression import Linear, Origin, Piece, Unitwise, signature
from rnnconvert.recognition.recognised import Weights
from rnnconvert.recognition.trace import Tracer
from rnnconvert.recognition.trial import Match
from rnnconvert.recognition.uses import UsedGraph, same


@dataclass(frozen=True, eq=False)
class WrittenStep:
    """One step.

    before, after     the states around it, by name
    old, new          the cell states around it; "" without one, or while its name is unknown
    piece, tracer     its formula, and what read it
    formula, origins  what steps of one cell share, and the values in which they differ (fuse_expression.signature)
    """

    before: str
    after: str
    piece: Piece
    tracer: Tracer
    match: Match
    weights: Weights
    old: str
    new: str
    formula: object
    origins: tuple[Origin, ...]


def hands_on(graph: UsedGraph, step: WrittenStep, name: str) -> bool:
    """Return whether a value is the cell state that a step leaves."""
    new = step.match.new
    if new is None:
        return False
    asked = signature(new)[0]
    names = set(same(graph, name))
    if step.new in names:
        return True
    for each in names:
        try:
            pieces = step.tracer.trace(each)
        except UnmatchedError:
            continue
        if len(pieces) == 1 and signature(pieces[0])[0] == asked and _has(step.piece, pieces[0].key):
            return True
    return False


def _has(piece: Piece, key: object) -> bool:
    """Return whether a formula has a part."""
    parts: Sequence[Piece] = piece.operands if isinstance(piece, Unitwise) else ()
    if isinstance(piece, Linear):
        parts = [term.operand for term in piece.terms]
    return piece.key == key or any(_has(part, key) for part in parts)


def between(graph: UsedGraph, name: str) -> str:
    """Return the origin of a value, in words."""
    producer = graph.scope.producer(name)
    return f"{name!r} is " + ("given" if producer is None else f"what a node {producer[0].kind} makes of it")


def same_step(step: WrittenStep, other: WrittenStep) -> bool:
    """Return whether two steps are of one cell with the same numbers."""
    if step.formula == other.formula:
        return True
    if step.match.cell != other.match.cell or step.weights.arrays.keys() != other.weights.arrays.keys():
        return False
    if list(step.weights.origins.values()) != list(other.weights.origins.values()):
        return False
    pairs = ((step.weights.arrays[key], other.weights.arrays[key]) for key in step.weights.arrays)
    return all(a is b or (a.shape == b.shape and np.array_equal(a, b)) for a, b in pairs)
