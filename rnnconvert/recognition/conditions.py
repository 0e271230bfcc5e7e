"""The conditions in a graph: the operators that compare values, and the numbers with which they do.

Random numbers never meet a condition such as x == -1, so inputs are made that do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.graphs.program.kinds import COMPARED
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope

_SPECIAL: Mapping[str, tuple[float, ...]] = {
    "IsNaN": (np.nan,),
    "IsInf": (np.inf, -np.inf),
    "Sign": (0.0,),
    "Floor": (1.0,),
    "Ceil": (1.0,),
    "Round": (0.5,),
}
"""Operators that decide by numbers of their own."""
_BOUNDS = ("Clip", "Min", "Max", "ThresholdedRelu", "Sub", "Add")
"""Operators that decide, or move what decides, by a number of the file."""
_FOLLOWED = 50
_FEW = 4
_MOST = 16
"""The most numbers for which inputs are made."""
_NEAR = 1e-3
_FAR = 1e4


def _numbers(scope: Scope, names: Iterable[str], kinds: str = "f") -> Iterator[float]:
    for name in names:
        stored = scope.constant(name) if name else None
        if stored is not None and stored.size <= _FEW and stored.dtype.kind in kinds:
            yield from map(float, stored.reshape(-1))


def decision(scope: Scope, name: str) -> str:
    """Return the comparison behind a boolean value, in words, such as "Equal with -7"; "" where no comparison is found."""
    waiting, words = [name], ""
    followed: set[str] = set()
    while waiting and len(followed) < _FOLLOWED:
        value = waiting.pop(0)
        producer = scope.producer(value) if value else None
        if producer is None or value in followed:
            continue
        followed.add(value)
        node = producer[0]
        if node.kind in COMPARED:
            # Whole numbers that are not equalled are those of counts and truths.
            number = next(_numbers(scope, node.inputs, "fi" if node.kind == "Equal" else "f"), None)
            if number is not None:
                return f"{node.kind} with {number:g}"
            words = words or str(node.kind)
        if node.kind in ("IsNaN", "IsInf"):
            return str(node.kind)
        waiting += node.inputs
    return words


def conditions(scope: Scope, nodes: Sequence[Operation]) -> list[float]:
    """Return the numbers at which something in nodes may begin or end, where one of them compares; none otherwise."""
    compare = [node for node in nodes if node.kind in COMPARED or node.kind in _SPECIAL]
    numbers: dict[float, None] = {}
    for node in compare:
        numbers |= dict.fromkeys(_SPECIAL.get(node.kind, ()))
        numbers |= dict.fromkeys(_numbers(scope, node.inputs))
    for node in nodes if numbers else ():
        if node.kind in _BOUNDS:
            numbers |= dict.fromkeys(_numbers(scope, node.inputs))
    return list(numbers)[:_MOST]


def _near(number: float) -> list[float]:
    """Return a number of single precision with its neighbours, and numbers that are far on both sides."""
    single = np.float32(number)
    if not np.isfinite(single):
        return [float(single)]
    inf = np.float32(np.inf)
    sides = [np.nextafter(single, -inf), single, np.nextafter(single, inf)]
    return [*map(float, sides), float(single) - _NEAR, float(single) + _NEAR, -_FAR * (abs(number) + 1), _FAR * (abs(number) + 1)]


def directed(trial: Mapping[str, Array], sequences: Mapping[str, int | None], numbers: Sequence[float]) -> Iterator[dict[str, Array]]:
    """Yield a trial with some of its numbers in place: at the first, second and last step, of one sequence, one feature, and all.

    sequences  the inputs that the steps read: the axis of time of each; None for the elements themselves, in their order
    """
    elements = [name for name, axis in sequences.items() if axis is None]
    wholes = {name: axis for name, axis in sequences.items() if axis is not None}
    lengths = {trial[name].shape[axis] for name, axis in wholes.items()} | ({len(elements)} if elements else set())
    steps = sorted({0, min(1, min(lengths) - 1), min(lengths) - 1}) if lengths else []
    for number in (near for bound in numbers for near in _near(bound)):
        for step in steps:
            changed = {name: array.copy() for name, array in trial.items()}
            rows = [np.moveaxis(changed[name], axis, 0)[step] for name, axis in wholes.items()]
            for row in (*rows, *([changed[elements[step]]] if elements else [])):
                row[0] = number
                row[-1, 0] = number
            yield changed
