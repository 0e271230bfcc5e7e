"""Operations of a graph, computed in double precision: what the steps of a recurrent layer give, without any framework.

Stored numbers and inputs of any float type become doubles, and rounding to another float type is left out. An operator that
is not here, or a use of one that makes no sense, raises UnmatchedError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import FLOATS, Array, is_float
from rnnconvert.core.reference import FUNCTIONS
from rnnconvert.graphs.program.fold import Call, fold
from rnnconvert.graphs.program.operations import Operation, Program
from rnnconvert.graphs.program.scopes import Scope

_NODES = 200_000
_WORK = 1 << 36
_STORED = 1 << 26
"""Nodes, multiplications and stored numbers that one proof may take; a function of a number counts as several."""
_OVERHEAD = 1 << 14
"""What a node takes besides its numbers, in multiplications."""
_LEAST, _EACH_BYTE = 1 << 34, 1 << 14
_EACH = 16
_FLOATS = tuple(FLOATS.values())


class UnmatchedError(Exception):
    """A part of a graph is not what was searched for, or cannot be computed; its text says why."""


class Budget:
    """How much may still be computed."""

    def __init__(self, work: int = _WORK, whole: Budget | None = None) -> None:
        """Begin.

        work   how many multiplications
        whole  what all proofs of a file may take together
        """
        self.nodes, self.work, self.stored, self.whole = _NODES, work, _STORED, whole

    def spend(self, nodes: int, work: int) -> None:
        """Account for work that is about to be done. Raises UnmatchedError."""
        self.nodes -= nodes
        self.work -= work
        if self.whole is not None:
            self.whole.work -= work + _OVERHEAD * nodes
            if self.whole.work < 0:
                raise UnmatchedError("what the file's layers take to compute is more than a file of its size may")
        if self.nodes < 0 or self.work < 0:
            raise UnmatchedError("its steps take more work to compute than this proof may")


def budget_of(program: Program) -> Budget:
    """Return what the proofs of a file's layers may take together: as long as its numbers need, and not longer."""
    return Budget(min(64 * _WORK, _LEAST + _EACH_BYTE * max(0, program.size + program.beside)))


class Evaluation:
    """Values of a graph, computed from some that are given.

    scope   the graph
    given   values by name
    budget  what this may cost
    shaken  where numbers come from that put every stored float about one unit in the last place off, as rounding does
    """

    def __init__(
        self, scope: Scope, given: Mapping[str, Array], budget: Budget, shaken: np.random.Generator | None = None
    ) -> None:
        self.scope, self.budget, self.shaken = scope, budget, shaken
        self._values: dict[tuple[Scope, str], Array] = {(scope, name): _wide(one) for name, one in given.items()}
        self._stored: dict[tuple[Scope, str], Array] = {}
        self.held = 0

    def run(self, nodes: Sequence[Operation], outputs: Sequence[str]) -> list[Array]:
        """Compute nodes in their order; return some of their outputs."""
        with np.errstate(all="ignore"):
            for node in nodes:
                self._compute(self.scope, node)
        return [self._value(self.scope, name) for name in outputs]

    def _value(self, scope: Scope, name: str) -> Array:
        scope, name = scope.resolve(name)
        key = scope, name
        if key in self._values:
            return self._values[key]
        if key not in self._stored:
            stored = scope.constant(name)
            if stored is None:
                raise UnmatchedError(f"{name!r} is not known when it is read")
            self._stored[key] = self._shaken(stored)
        return self._stored[key]

    def _shaken(self, stored: Array) -> Array:
        self.held += stored.size
        if self.held > self.budget.stored:
            raise UnmatchedError("its matrices are larger than this proof may hold")
        self.budget.spend(1, stored.size)
        array = _wide(stored)
        if self.shaken is None or not is_float(stored) or stored.size == 1:  # one number may be what others equal
            return array
        eps = float(
            2.0**-7 if stored.dtype.kind == "V" or stored.dtype.name == "bfloat16" else np.finfo(stored.dtype).eps
        )
        return np.asarray(array * (1 + eps * self.shaken.uniform(-1, 1, array.shape)))

    def _compute(self, scope: Scope, node: Operation) -> None:
        if node.kind == "Constant" and not node.domain:
            return  # looked up where it is read
        inputs = [self._value(scope, name) if name else None for name in node.inputs]
        for name, array in zip(node.outputs, self._outputs(scope, node, inputs), strict=False):
            if name:
                self._values[scope, name] = array

    def _outputs(self, scope: Scope, node: Operation, inputs: list[Array | None]) -> Sequence[Array]:
        kind = node.kind
        self.budget.spend(1, _EACH * sum(one.size for one in inputs if one is not None) + 50)
        try:
            if node.domain:
                raise UnmatchedError(f"a node {kind} of the domain {node.domain!r} is not computed here")
            if kind in ("Loop", "Scan"):
                return self._loop(scope, node, inputs) if kind == "Loop" else self._scan(scope, node, inputs)
            attributes: Mapping[str, Any] = scope.attributes(node)
            if kind in _OPERATORS:
                return [_wide(_OPERATORS[kind](self, inputs, attributes))]
            if kind == "Cast" and inputs[0] is not None and inputs[0].dtype.kind == "f" and attributes["to"] in _FLOATS:
                return [inputs[0]]
            values = scope.values(node)
            if values is None:
                raise ValueError("its attributes are of kinds that no number needs")
            size = len(node.outputs)
            found = fold(Call(kind, inputs, values, size, scope.opset, lambda count: self.budget.spend(0, count)))
        except (
            ValueError,
            TypeError,
            IndexError,
            KeyError,
            OverflowError,
            ArithmeticError,
            AttributeError,
            MemoryError,
        ) as error:
            raise UnmatchedError(
                f"a node {kind} ({next(iter(node.outputs), '')!r}) cannot be computed here: {error}"
            ) from None
        if found is None:
            raise UnmatchedError(f"a node {kind} ({next(iter(node.outputs), '')!r}) cannot be computed here")
        return [_wide(one) for one in found]

    def product(self, left: Array, right: Array) -> Array:
        """Return a product of matrices."""
        if not left.ndim or not right.ndim or left.dtype != right.dtype:
            raise TypeError("a product of no matrices")
        columns = right.shape[-1] if right.ndim > 1 else 1
        self.budget.spend(0, left.size * columns)
        return np.asarray(np.matmul(left, right))

    def _body(self, scope: Scope, node: Operation) -> Scope:
        return next(scope.inner(node, 0))

    def _step(self, inner: Scope, given: Sequence[tuple[str, Array]]) -> list[Array]:
        for name, array in given:
            self._values[inner, name] = array
        for node in inner.nodes:
            self._compute(inner, node)
        return [self._value(inner, name) for name in inner.body.outputs]

    def _loop(self, scope: Scope, node: Operation, inputs: Sequence[Array | None]) -> list[Array]:
        inner = self._body(scope, node)
        names = inner.body.inputs
        most = None if inputs[0] is None else int(inputs[0].reshape(()))
        going = inputs[1] is None or bool(inputs[1].reshape(()))
        states = [_there(one) for one in inputs[2:]]
        gathered: list[list[Array]] = [[] for _ in inner.body.outputs[1 + len(states) :]]
        number = 0
        while going and (most is None or number < most):
            given = [np.array(number, np.int64), np.array(True), *states]
            found = self._step(inner, list(zip(names, given, strict=True)))
            going = bool(found[0].reshape(()))
            states = found[1 : 1 + len(states)]
            for kept, one in zip(gathered, found[1 + len(states) :], strict=True):
                kept.append(one)
            number += 1
        return [*states, *(np.stack(one) for one in gathered)]

    def _scan(self, scope: Scope, node: Operation, inputs: Sequence[Array | None]) -> list[Array]:
        inner, attributes = self._body(scope, node), scope.attributes(node)
        count = len(inputs) - attributes["num_scan_inputs"]

        def listed(name: str, length: int) -> list[int]:
            return list(attributes.get(name, [0] * length))

        states = [_there(one) for one in inputs[:count]]
        sequences = [np.moveaxis(_there(one), axis, 0) for one, axis in
                     zip(inputs[count:], listed("scan_input_axes", len(inputs) - count), strict=True)]  # fmt: skip
        ways = listed("scan_input_directions", len(sequences))
        sequences = [one[::-1] if way else one for one, way in zip(sequences, ways, strict=True)]
        names = inner.body.inputs
        gathered: list[list[Array]] = [[] for _ in inner.body.outputs[count:]]
        for number in range(min(len(one) for one in sequences)):
            found = self._step(inner, list(zip(names, [*states, *(one[number] for one in sequences)], strict=True)))
            states = found[:count]
            for kept, one in zip(gathered, found[count:], strict=True):
                kept.append(one)
        made = []
        given = zip(
            gathered,
            listed("scan_output_axes", len(gathered)),
            listed("scan_output_directions", len(gathered)),
            strict=True,
        )
        for parts, axis, way in given:
            made.append(np.moveaxis(np.stack(parts[::-1] if way else parts), 0, axis))
        return [*states, *made]


def _there(array: Array | None) -> Array:
    if array is None:
        raise UnmatchedError("a state without a first value")
    return array


def _wide(array: Array) -> Array:
    """Return floats as doubles, and anything else as it is."""
    return np.asarray(array, np.float64) if is_float(array) else np.asarray(array)


Inputs = Sequence["Array | None"]
_Operator = Callable[[Evaluation, Inputs, Mapping[str, Any]], Array]


def _of_one(name: str, alpha: float | None = None, beta: float | None = None) -> _Operator:
    """Return a function of each unit, with the defaults of its constants."""

    def run(own: Evaluation, inputs: Inputs, attributes: Mapping[str, Any]) -> Array:
        a, b = (attributes.get(key, default) for key, default in (("alpha", alpha), ("beta", beta)))
        return np.asarray(FUNCTIONS[name](np, _there(inputs[0]), a, b))

    return run


def _unit(function: Callable[[Array], Any]) -> _Operator:
    """Return a function of one value."""
    return lambda own, inputs, attributes: np.asarray(function(_there(inputs[0])))


def _pair(function: Callable[[Array, Array], Any]) -> _Operator:
    """Return a function of two values of one type, or of more from the first on."""

    def run(own: Evaluation, inputs: Inputs, attributes: Mapping[str, Any]) -> Array:
        found, *others = (_there(one) for one in inputs)
        for one in others:
            if one.dtype != found.dtype:
                raise TypeError("its inputs are of several types")
            own.budget.spend(0, max(found.size, one.size))
            found = np.asarray(function(found, one))
        return found

    return run


def _selu(own: Evaluation, inputs: Inputs, attributes: Mapping[str, Any]) -> Array:
    if attributes:
        raise ValueError("its constants are others than Selu's own")
    return np.asarray(FUNCTIONS["selu"](np, _there(inputs[0]), None, None))


def _dropout(own: Evaluation, inputs: Inputs, attributes: Mapping[str, Any]) -> Array:
    if len(inputs) > 2 and inputs[2] is not None and inputs[2].any():
        raise ValueError("it is set to training")
    return _there(inputs[0])


def _clip(own: Evaluation, inputs: Inputs, attributes: Mapping[str, Any]) -> Array:
    low, high = (attributes.get(key, default) for key, default in (("min", -np.inf), ("max", np.inf)))
    low = inputs[1] if len(inputs) > 1 and inputs[1] is not None else low
    high = inputs[2] if len(inputs) > 2 and inputs[2] is not None else high
    return np.asarray(np.minimum(np.maximum(_there(inputs[0]), low), high))


def _gemm(own: Evaluation, inputs: Inputs, attributes: Mapping[str, Any]) -> Array:
    left, right = _there(inputs[0]), _there(inputs[1])
    left = left.T if attributes.get("transA") else left
    right = right.T if attributes.get("transB") else right
    if left.ndim != 2 or right.ndim != 2:
        raise ValueError("Gemm of no matrices")
    alpha, beta = (attributes.get(key, 1.0) for key in ("alpha", "beta"))
    found = alpha * own.product(left, right)
    added = inputs[2] if len(inputs) > 2 else None
    return found if added is None else np.asarray(found + beta * added)


def _einsum(own: Evaluation, inputs: Inputs, attributes: Mapping[str, Any]) -> Array:
    """Return sums of products of two values, whose axes have letters."""
    equation = attributes["equation"].replace(" ", "")
    operands, arrow, _ = equation.partition("->")
    letters, values = operands.split(","), [_there(one) for one in inputs]
    if not arrow or len(values) != 2 or [len(one) for one in letters] != [one.ndim for one in values]:
        raise ValueError("its equation is not of two values")
    if any(one.dtype != values[0].dtype for one in values):
        raise TypeError("its values are of several types")
    lengths = dict(zip("".join(letters), (size for one in values for size in one.shape), strict=True))
    own.budget.spend(0, math.prod(lengths.values()))
    return np.asarray(np.einsum(equation, *values))


def _reduced(function: Callable[..., Any]) -> _Operator:
    def run(own: Evaluation, inputs: Inputs, attributes: Mapping[str, Any]) -> Array:
        axes: Any = tuple(attributes["axes"]) if "axes" in attributes else None
        if len(inputs) > 1 and inputs[1] is not None:
            axes = tuple(int(axis) for axis in inputs[1].reshape(-1))
        keep = bool(attributes.get("keepdims", 1))
        if axes == () and attributes.get("noop_with_empty_axes"):
            return _there(inputs[0])
        return np.asarray(function(_there(inputs[0]), axis=axes or None, keepdims=keep))

    return run


def _range(own: Evaluation, inputs: Inputs, attributes: Mapping[str, Any]) -> Array:
    start, stop, step = (_there(one).reshape(()).item() for one in inputs)
    own.budget.spend(0, max(0, int((stop - start) / step)))
    return np.asarray(np.arange(start, stop, step), _there(inputs[0]).dtype)


def _reverse_sequence(own: Evaluation, inputs: Inputs, attributes: Mapping[str, Any]) -> Array:
    data, lengths = _there(inputs[0]), _there(inputs[1])
    batch, time = (attributes.get(key, default) for key, default in (("batch_axis", 1), ("time_axis", 0)))
    if lengths.shape != (data.shape[batch],) or {batch, time} != {0, 1}:
        raise ValueError("its lengths are not those of its sequences")
    found = data.copy()
    for number, length in enumerate(lengths.tolist()):
        where: list[Any] = [slice(0, length), number] if time == 0 else [number, slice(0, length)]
        found[tuple(where)] = data[tuple(where)][::-1]
    return found


def _reverse(own: Evaluation, inputs: Inputs, attributes: Mapping[str, Any]) -> Array:
    """Compute TensorFlow's ReverseV2, which tf2onnx writes unchanged below operator set 10."""
    return np.asarray(np.flip(_there(inputs[0]), tuple(int(axis) for axis in _there(inputs[1]).reshape(-1))))


def _tile(own: Evaluation, inputs: Inputs, attributes: Mapping[str, Any]) -> Array:
    data, repeats = _there(inputs[0]), [int(one) for one in _there(inputs[1]).reshape(-1)]
    if len(repeats) != data.ndim or min(repeats, default=1) < 0:
        raise ValueError("it repeats other axes than there are")
    own.budget.spend(0, data.size * math.prod(repeats))
    return np.tile(data, repeats)


_OPERATORS: Mapping[str, _Operator] = {
    "Sigmoid": _of_one("sigmoid"), "Tanh": _of_one("tanh"), "Relu": _of_one("relu"), "Softsign": _of_one("softsign"),
    "Softplus": _of_one("softplus"), "Elu": _of_one("elu", 1.0), "LeakyRelu": _of_one("leaky_relu", 0.01),
    "Selu": _selu, "ThresholdedRelu": _of_one("thresholded_relu", 1.0),
    "HardSigmoid": _of_one("hard_sigmoid", 0.2, 0.5),
    "Exp": _unit(np.exp), "Abs": _unit(np.abs), "Sqrt": _unit(np.sqrt), "Reciprocal": _unit(np.reciprocal),
    "Log": _unit(np.log), "Not": _unit(np.logical_not), "Sum": _pair(np.add), "Min": _pair(np.minimum),
    "Max": _pair(np.maximum), "Pow": _pair(np.power), "Less": _pair(np.less), "Greater": _pair(np.greater),
    "LessOrEqual": _pair(np.less_equal), "GreaterOrEqual": _pair(np.greater_equal), "Equal": _pair(np.equal),
    "And": _pair(np.logical_and), "Or": _pair(np.logical_or), "Clip": _clip, "Gemm": _gemm,
    "Einsum": _einsum,
    "MatMul": lambda own, inputs, attributes: own.product(_there(inputs[0]), _there(inputs[1])),
    "ReduceMax": _reduced(np.max), "ReduceMin": _reduced(np.min), "ReduceSum": _reduced(np.sum), "ReduceAll": _reduced(np.all),
    "Range": _range, "ReverseSequence": _reverse_sequence, "ReverseV2": _reverse, "Dropout": _dropout, "Tile": _tile,
    "Size": lambda own, inputs, attributes: np.array(_there(inputs[0]).size, np.int64),
}  # fmt: skip
"""Operators that are computed here; those that move numbers, and sums and products, are those of `fold`."""
