"""Dropout whose probability is known to be none: what it multiplies stays.

Source: tensorflow/python/ops/nn_ops.py, dropout_v2: x / (1 - rate) * (uniform >= rate); before 1.13, dropout:
x / keep_prob * floor(keep_prob + uniform), with uniform in [0, 1); from 2.5 on, where(uniform >= rate, x / (1 - rate), 0);
python/ops/random_ops.py, random_uniform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.containers.tensor_bundle import TYPES
from rnnconvert.formats.tensorflow1.operations import PASSING

_INPUTS = ("Placeholder", "PlaceholderV2", "PlaceholderWithDefault")
_ADDING, _DIVIDING = ("Add", "AddV2"), ("RealDiv", "Div")
_COMPUTED: Mapping[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(_ADDING, np.add), **dict.fromkeys(_DIVIDING, np.divide), "Sub": np.subtract, "Mul": np.multiply,
}  # fmt: skip
_DEEP = 100
"""How many operations stand between a probability and what states it."""
_CERTAIN = (1.0, 0.0)
"""Probabilities of all and of nothing."""


class Dropouts:
    """The dropout of a graph.

    numbers  the values that a caller states of inputs, by their names
    nothing  the values that come out as they went in, by the names of the operations
    draws    the input that decides whether anything is dropped, and its value for nothing, by the names of the operations that draw
    """

    def __init__(self, nodes: Mapping[str, GraphDefNode], numbers: Mapping[str, float]) -> None:
        self._nodes, self._numbers = nodes, numbers
        self.nothing: dict[str, str] = {}
        self.draws: dict[str, tuple[str, float]] = {}
        self._read: dict[tuple[str, tuple[str, float] | None], tuple[Any, frozenset[str]]] = {}
        for node in nodes.values():
            for value, mask in self._masked(node):
                probability, drawn, keeps = self._mask(mask)
                number, asked = self._asked(probability) if drawn else (None, ())
                if number is not None and (number == 1 if keeps else number <= 0):
                    self.nothing[node.name] = self._scaled(value)
                if len(asked) == 1:
                    (name,) = asked
                    for certain in _CERTAIN:
                        if self._asked(probability, (name, certain))[0] == float(keeps):
                            self.draws[drawn] = name, certain

    def _masked(self, node: GraphDefNode) -> Iterable[tuple[str, str]]:
        """Return the pairs of inputs that may be a value and its mask."""
        if node.op == "Mul" and len(node.read) == 2:
            first, second = node.read
            return (first, second), (second, first)
        if node.op in ("Select", "SelectV2") and len(node.read) == 3 and self._number(node.read[2]) == 0:
            return [(node.read[1], node.read[0])]
        return ()

    def _mask(self, source: str) -> tuple[str, str, bool]:
        """Return of a mask the probability, what draws it, and whether that is the probability to keep; "" for what is not a mask."""
        node, rounds = self._node(source), False
        if node is not None and node.op in ("Floor", "Cast") and node.read:
            rounds = node.op == "Floor"
            node = self._node(node.read[0])
        if node is None or len(node.read) != 2 or node.op not in (_ADDING if rounds else ("GreaterEqual",)):
            return "", "", False
        first, second = node.read
        for probability, drawn in ((second, first), (first, second)) if rounds else [(second, first)]:
            if name := self._uniform(drawn):
                return probability, name, rounds
        return "", "", False

    def _scaled(self, value: str) -> str:
        """Return the value that is multiplied with, or divided by, 1."""
        node = self._node(value)
        if node is not None and node.op in ("Mul", *_DIVIDING) and len(node.read) == 2:
            for source, scale in (node.read, node.read[::-1])[: 2 if node.op == "Mul" else 1]:
                if self._number(scale) == 1:
                    return source
        return value

    def _uniform(self, source: str) -> str:
        """Return the operation that draws numbers from 0 on and below 1, "" for other values."""
        node, low, span = self._node(source), 0.0, 1.0
        for _ in range(_DEEP):
            if node is None or node.op == "RandomUniform":
                return node.name if node is not None and (low, span) == (0, 1) else ""
            number = self._number(node.read[1]) if node.op in ("Mul", *_ADDING) and len(node.read) == 2 else None
            if number is None:
                return ""
            low, span = (low + number * span, span) if node.op in _ADDING else (low, span * number)
            node = self._node(node.read[0])
        return ""

    def _number(self, source: str) -> Any:
        """Return a number that the graph or a caller states, in its own precision; None for others."""
        return self._asked(source)[0]

    def _asked(self, source: str, certain: tuple[str, float] | None = None, depth: int = 0) -> tuple[Any, frozenset[str]]:
        """Return a number, None where it is not known, and the inputs that have a part in it, two of them at most.

        certain  an input and its value, in the place of the caller's
        """
        node = self._node(source)
        if node is None or depth > _DEEP:
            return None, frozenset()
        key = node.name, certain
        if key not in self._read:
            self._read[key] = None, frozenset()  # of a value that reads itself nothing is known
            with np.errstate(all="ignore"):
                self._read[key] = self._computed(node, certain, depth)
        return self._read[key]

    def _computed(self, node: GraphDefNode, certain: tuple[str, float] | None, depth: int) -> tuple[Any, frozenset[str]]:
        if node.op == "Const":
            array = node.tensor
            return (array[()] if array is not None and array.ndim == 0 and array.dtype.kind == "f" else None), frozenset()
        if node.op in _INPUTS:
            numbers, dtype = self._numbers if certain is None else dict([certain]), TYPES.get(int(node.number("dtype", 1)))
            if node.name in numbers and dtype is not None and dtype.kind == "f" and not node.shape("shape"):
                return dtype.type(numbers[node.name]), frozenset([node.name])
            number, asked = self._asked(node.read[0], certain, depth + 1) if node.op == _INPUTS[2] and node.read else (None, frozenset())
            return number, frozenset(sorted({*asked, node.name})[:2])
        if node.op not in _COMPUTED or len(node.read) != 2:
            return None, frozenset()
        (first, by_first), (second, by_second) = (self._asked(each, certain, depth + 1) for each in node.read)
        number = None if first is None or second is None else _COMPUTED[node.op](first, second)
        return number, frozenset(sorted(by_first | by_second)[:2])

    def _node(self, source: str) -> GraphDefNode | None:
        """Return the operation that gives a value, behind those that hand it on."""
        for _ in range(_DEEP):
            node = self._nodes.get(source.partition(":")[0])
            if node is None or node.op not in (*PASSING, "Enter") or node.op in _INPUTS or not node.read:
                return node
            source = node.read[0]
        return None
