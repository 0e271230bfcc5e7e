"""Functions and norms that a source spells out in operators, as the one call that a person would write.

What a chain of operators computes is recognized by its numbers: it is run on points in double and in single precision, and is a known
function only if it agrees with that everywhere. So it does not matter how an exporter spells it; a chain that is almost a function is
unchanged.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import FUNCTIONS
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Node, Value
from rnnconvert.scaffolding.names import Names

_MOST = 12
"""The most operators of one function."""
_CLOSE = {np.float64: 3e-7, np.float32: 3e-6}
"""How far a function may be off, in parts of numbers above 1: constants in files are of single precision."""

Function = Callable[..., Any]


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[x.dtype])(x))


def _of_layers(name: str, alpha: float = 0, beta: float = 0) -> Function:
    """Return a function that recurrent layers have."""
    return lambda x: FUNCTIONS[name](np, x, alpha, beta)


_hard_sigmoid, _softplus = _of_layers("hard_sigmoid", 1 / 6, 0.5), _of_layers("softplus")
_NAMED: dict[str, Function] = {
    **{name: _of_layers(name) for name in ("gelu", "silu", "softsign", "selu", "sigmoid", "tanh")},
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": lambda x: x * _hard_sigmoid(x),
    "softplus": _softplus,
    "relu6": lambda x: np.clip(x, 0, 6),
}
"""The functions that chains of operators may be, by the names that activations have."""
_OPERATIONS: dict[str, Function] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "power": np.power, "maximum": np.maximum,
    "minimum": np.minimum, "abs": np.abs, "neg": np.negative, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "square": np.square,
    "reciprocal": np.reciprocal, "rsqrt": lambda x: 1 / np.sqrt(x), "erf": _erf, "where": np.where, "greater": np.greater,
    "less": np.less, "greater_equal": np.greater_equal, "less_equal": np.less_equal,
}  # fmt: skip
"""Functions of numbers at the same place, by their names in a description."""
_ACTIVATIONS: dict[str, Function] = {**_NAMED, "relu": lambda x: np.maximum(x, 0), "exponential": np.exp, "abs": np.abs, "sqrt": np.sqrt}


def _computed(node: Node[kinds.Kind], values: Mapping[int, Array]) -> Any:
    """Return the output of an operator."""
    read, kind = [values[id(value)] for value in node.inputs], node.kind
    if isinstance(kind, kinds.Activation):
        return _ACTIVATIONS[kind.name](*read)
    if isinstance(kind, kinds.Clip):
        return np.clip(read[0], kind.min, kind.max)
    if isinstance(kind, kinds.Reduce):
        return np.mean(read[0], axis=-1, keepdims=True)
    assert isinstance(kind, kinds.Arithmetic | kinds.Elementwise)
    dtype = read[0].dtype if read[0].dtype != bool else np.result_type(*(x.dtype for x in read))
    operands = [("input", n) for n in range(len(read))] if isinstance(kind, kinds.Arithmetic) else kind.operands
    return _OPERATIONS[kind.operation](*(read[value] if word == "input" else dtype.type(value) for word, value in operands))


class _Chains:
    """The chains of operators in a model that may be one function.

    producers  the nodes with their places, by the values that they give
    """

    def __init__(self, scope: DescribedModel) -> None:
        self.scope = scope
        self.producers = {id(node.y): (place, node) for place, node in enumerate(scope.nodes) if len(node.outputs) == 1}

    def ending_in(self, node: Node[kinds.Kind]) -> Iterator[tuple[Value, list[Node[kinds.Kind]]]]:
        """Yield chains that end in a node and read one value alone, with that value, the longest first."""
        chains: list[tuple[Value, list[Node[kinds.Kind]]]] = []
        open_ends, chain = {id(node.y): node.y}, list[Node[kinds.Kind]]()
        while len(chain) < _MOST:
            last = max(open_ends, key=lambda key: self.producers[key][0] if key in self.producers else -1)
            if last not in self.producers or not self._fits(self.producers[last][1], node):
                break
            inner = self.producers[last][1]
            del open_ends[last]
            open_ends.update((id(value), value) for value in inner.inputs)
            chain.insert(0, inner)
            if len(open_ends) == 1 and len(chain) > 1:
                chains.append((next(iter(open_ends.values())), list(chain)))
        yield from reversed(chains)

    def _fits(self, node: Node[kinds.Kind], end: Node[kinds.Kind]) -> bool:
        """Return whether an operator works on numbers at the same place, or is a mean over the last axis of what a norm reads."""
        if node.layer or node.named or any(not value.sized for value in node.reads()):
            return False
        rank = len(end.y.shape)
        if isinstance(node.kind, kinds.Reduce):
            return bool(rank) and node.kind.operation == "mean" and node.kind.keep and node.kind.axes in ((rank - 1,), (-1,))
        if any(len(value.shape) != rank or value.shape[:-1] != end.y.shape[:-1] for value in (*node.inputs, node.y)):
            return False
        if isinstance(node.kind, kinds.Activation):
            return node.kind.name in _ACTIVATIONS and node.kind.alpha is None
        plain = isinstance(node.kind, kinds.Elementwise | kinds.Arithmetic) and node.kind.operation in _OPERATIONS
        return (plain and len(node.inputs) <= 3) or isinstance(node.kind, kinds.Clip)


@functools.cache
def _points(dtype: Any) -> Array:
    """Return the points on which chains are run: dense around zero, and of every size, so that no threshold or bound is overlooked."""
    sizes = np.logspace(-7, 30, 300)
    return np.concatenate([np.linspace(-9, 9, 1201), sizes, -sizes]).astype(dtype)


@functools.cache
def _named(name: str, dtype: Any) -> Array:
    """Return the values of a function on the points."""
    with np.errstate(all="ignore"):
        return np.asarray(_NAMED[name](_points(dtype)))


def _run(chain: Sequence[Node[kinds.Kind]], x: Value, numbers: Array) -> Array | None:
    """Return the output of a chain; None if it is of another shape or type."""
    values = {id(x): numbers}
    with np.errstate(all="ignore"):
        for node in chain:
            values[id(node.y)] = np.asarray(_computed(node, values))
    result = values[id(chain[-1].y)]
    return result if result.dtype == numbers.dtype and result.shape == numbers.shape else None


def _agree(a: Array | None, b: Array | None, close: float) -> bool:
    return (
        a is not None and b is not None and bool(np.isfinite(a).all()) and bool((np.abs(a - b) <= close * np.maximum(1, np.abs(b))).all())
    )


def _function(chain: Sequence[Node[kinds.Kind]], x: Value) -> str:
    """Return the function that a chain is, "" for none."""
    if any(isinstance(node.kind, kinds.Reduce) or node.y.shape != x.shape for node in chain):
        return ""
    runs = {dtype: _run(chain, x, _points(dtype)) for dtype in _CLOSE}
    if not _agree(runs[np.float64], runs[np.float64], 0):
        return ""
    same = (name for name in _NAMED if all(_agree(runs[dtype], _named(name, dtype), close) for dtype, close in _CLOSE.items()))
    return next(same, "")


def _norm(chain: Sequence[Node[kinds.Kind]], x: Value) -> kinds.LastAxesNorm | None:
    """Return the norm over the last axis that a chain is; None for none."""
    size = x.shape[-1] if x.shape else None
    if not isinstance(size, int) or size < 2 or not any(isinstance(node.kind, kinds.Reduce) for node in chain):
        return None
    numbers = np.random.default_rng(0).standard_normal((64, size)) * np.logspace(-4, 3, 64)[:, None]
    numbers += np.linspace(-2, 2, 64)[:, None] * np.logspace(-4, 3, 64)[::-1, None] ** 0.5
    spikes = np.eye(2, size) * np.array([[1], [-1]])  # of what a norm gives nothing is larger, at either end
    large = numbers[-1] * np.array([[1e3], [1e9]])  # no bound of the input is overlooked
    numbers = np.concatenate([numbers, spikes, large])
    result = _run(chain, x, numbers)
    centered = {kinds.LayerNorm: numbers - numbers.mean(-1, keepdims=True), kinds.RMSNorm: numbers}
    for node in chain:
        for word, epsilon in node.kind.operands if isinstance(node.kind, kinds.Elementwise) and node.kind.operation == "add" else ():
            if word != "number" or not 0 < epsilon < 1:
                continue
            for kind, x_c in centered.items():
                if _agree(result, x_c / np.sqrt((x_c**2).mean(-1, keepdims=True) + epsilon), 1e-7):
                    return kind(float(epsilon), False, False, (size,))
    return None


def _rewritten(chains: _Chains, node: Node[kinds.Kind], names: Names) -> Node[kinds.Kind] | None:
    """Return the one call that a chain of operators ending in a node is; None for none."""
    if not isinstance(node.kind, kinds.Arithmetic | kinds.Elementwise | kinds.Clip | kinds.Activation) or node.y.dtype != "float32":
        return None
    for x, chain in chains.ending_in(node):
        if x.dtype != "float32" or chain[-1].y.shape != x.shape:
            continue
        if name := _function(chain, x):
            return Node(kinds.Activation(name), "", (x,), (node.y,))
        if (norm := _norm(chain, x)) is not None:
            return Node(norm, names.new(norm.word), (x,), (node.y,))
    return None


def recompose(top: DescribedModel) -> None:
    """Put one call in the place of operators that are one, in a model and in those in it; what nothing reads then is left for `prune`."""
    for scope in (*top.inner(), top):
        chains, names = _Chains(scope), Names(node.layer for node in scope.nodes)
        scope.nodes = [_rewritten(chains, node, names) or node for node in scope.nodes]
