"""When a Loop ends: after a number of steps that is the sequence's, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.rules import Dims
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.recognition import masks as masks
from rnnconvert.recognition.states import given_at_run_time

_TRIED = 3
"""Up to how many steps every proof of a whole model runs at least, and one more."""


_ENDLESS = 2**31 - 1


_LISTED = 1000


def check_end(scope: Scope, inner: Scope, node: Operation, counters: set[str], firsts: Sequence[str]) -> None:
    """Raise UnmatchedError unless shapes and constants alone decide when a Loop ends."""
    for name in (*node.inputs[:2], *firsts):
        if name and given_at_run_time(scope, name):
            raise UnmatchedError(f"how often it runs depends on numbers that the model is given ({name!r})")
    waiting, seen = [inner.body.outputs[0]], set()
    while waiting:
        where, name = inner.resolve(waiting.pop())
        if name in seen:
            continue
        seen.add(name)
        if where is not inner:
            if given_at_run_time(where, name):
                raise UnmatchedError(f"it ends by numbers that the model is given ({name!r})")
            continue
        producer = inner.producer(name)
        if producer is not None:
            waiting += [operand for operand in producer[0].inputs if operand]
        elif name not in counters and inner.constant(name) is None and name != inner.body.inputs[1]:
            raise UnmatchedError(f"it ends by what it computes ({name!r})")


def check_limits(scope: Scope, inner: Scope, node: Operation, shapes: Sequence[Dims | None], axes: Sequence[int]) -> None:
    """Raise UnmatchedError where a stored number may end a Loop before its sequence: no proof runs sequences of every length."""
    lengths = {dims[axis] for dims, axis in zip(shapes, axes, strict=True) if dims is not None}
    waiting = [(scope, name) for name in node.inputs[:2] if name] + [(inner, inner.body.outputs[0])]
    seen: set[tuple[Scope, str]] = set()
    while waiting:
        start, unresolved = waiting.pop()
        where, name = start.resolve(unresolved)
        if (where, name) in seen:
            continue
        seen.add((where, name))
        stored = where.constant(name)
        if stored is not None:
            for number in np.abs(stored.astype(np.float64)).reshape(-1)[:_LISTED].tolist():
                if _TRIED < number < _ENDLESS and number not in lengths:
                    raise UnmatchedError(f"the number {number:g} ({name!r}) has a part in when it ends, and its sequence may be longer")
            continue
        producer = where.producer(name)
        if producer is None or producer[0].kind in ("Shape", "Size"):
            continue
        if producer[0].domain or bool(producer[0].bodies):
            raise UnmatchedError(f"a node {producer[0].kind} ({name!r}) decides when it ends")
        waiting += [(where, name) for name in producer[0].inputs if name]
