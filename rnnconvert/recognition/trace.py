"""The formula of a value, read off the graph that computes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import reduce
from typing import Any

import numpy as np

from rnnconvert.core.arrays import FLOATS, Array
from rnnconvert.core.limits import FORMULA_NESTING, TRACED_NUMBERS
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.graphs.program.kinds import COMPARED, SAME
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.products import Product, product_of
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.graphs.program.spread import everywhere
from rnnconvert.recognition.conditions import decision
from rnnconvert.recognition.expression import Formula, Leaf, Origin, StoredPiece, alone, product, take, together, width
from rnnconvert.recognition.functions import PAIRS, UNARY

_FLOATS = tuple(FLOATS.values())
_SAME = (*SAME, "Cast")
_MASKS = ("Where", *COMPARED, "Not", "And", "Or")
_DEFAULTS = {"HardSigmoid": (0.2, 0.5), "Elu": (1.0,), "LeakyRelu": (0.01,), "ThresholdedRelu": (1.0,)}

At = tuple[int, int]
"""Which element of a sequence: its axis of time, and the step (Origin.step)."""


class Tracer:
    """Reads formulas off a graph, for one step.

    scope    the graph of the step
    shapes   what is known of the shapes of values
    states   values that the step before left, by name
    later    names of the values that depend on a state; all others belong to the input
    scanned  values of the graph that are elements of a sequence around it: the sequence, its axis, and the step
    counted  the step for a value that counts steps, or None
    """

    def __init__(
        self,
        scope: Scope,
        shapes: Shapes,
        states: Collection[str],
        later: Collection[str],
        scanned: dict[str, tuple[str, int, int]] | None = None,
        counted: Callable[[str], int | None] | None = None,
    ) -> None:
        self.scope, self.shapes, self.states, self.later = scope, shapes, set(states), later
        self.scanned, self.counted = scanned or {}, counted or (lambda name: None)
        self._pieces: dict[tuple[Scope, str, At | None], Formula] = {}
        self._widths: dict[tuple[Scope, str], int] = {}
        self._depth = 0

    def trace(self, name: str) -> Formula:
        """Return the formula of a value of the step. Raises UnmatchedError for what no cell computes."""
        return self._value(self.scope, name, None)

    def _value(self, scope: Scope, name: str, at: At | None) -> Formula:
        scope, name = scope.resolve(name)
        key = scope, name, at
        if key not in self._pieces:
            self._depth += 1
            try:
                if self._depth > FORMULA_NESTING:
                    raise UnmatchedError("a step is deeper than a cell")
                self._pieces[key] = self._traced(scope, name, at)
            finally:
                self._depth -= 1
        return self._pieces[key]

    def _traced(self, scope: Scope, name: str, at: At | None) -> Formula:
        local = scope is self.scope and at is None
        if local and name in self.states:
            return self._leaf(scope, name, Origin(name, state=True))
        constant = scope.constant(name)
        if constant is not None:
            return self._stored(constant, name)
        depends = local and name in self.later
        if local and name in self.scanned:
            outer, axis, step = self.scanned[name]
            return self._value(*self._as_wide(scope, name, *self._outside(outer)), (axis, step))
        producer = scope.producer(name)
        if producer is None:
            if depends:
                # It depends on a state, but no node computes it: it is handed from step to step itself.
                raise UnmatchedError(f"{name!r} is another state")
            return self._source(scope, name, at)
        node, index = producer
        try:
            pieces = self._through(scope, node, index, at, depends)
        except UnmatchedError:
            if depends:
                raise
            pieces = None
        if pieces is not None:
            return pieces
        if depends:
            if node.kind in _MASKS:
                words = decision(scope, node.inputs[0] if node.kind == "Where" else name)
                raise UnmatchedError(
                    f"a node {node.kind} ({name!r}{words and f', by {words}'}) keeps or drops what a step computes, and the "
                    "operator of a layer knows lengths of sequences alone"
                )
            left = f" and {node.foreign}" if node.foreign else ""
            raise UnmatchedError(f"a node {node.kind} ({name!r}) is not part of a cell{left}")
        return self._source(scope, name, at)

    def _outside(self, name: str) -> tuple[Scope, str]:
        return (self.scope.outer or self.scope), name

    def _leaf(self, scope: Scope, name: str, origin: Origin) -> Formula:
        size = self._width(scope, name)
        if size is None:
            raise UnmatchedError(f"the width of {name!r} is not known")
        return (Leaf(origin, 0, size, size),)

    def _width(self, scope: Scope, name: str) -> int | None:
        size = self.shapes.width(scope, name)
        return size if size is not None else self._widths.get((scope, name))

    def _as_wide(self, scope: Scope, name: str, other: Scope, source: str) -> tuple[Scope, str]:
        """Return a value that is as wide as another one, and note that."""
        size = self._width(scope, name)
        other, source = other.resolve(source)
        if size is not None:
            self._widths.setdefault((other, source), size)
        return other, source

    def _source(self, scope: Scope, name: str, at: At | None) -> Formula:
        """Return a value of the input as what it is: an element of a sequence, where it is one."""
        scope, name = scope.resolve(name)
        while True:
            location = self.element(scope, name) if at is None else None
            if location is not None:
                scope, name, at = location
                continue
            producer = scope.producer(name)
            if producer is None or producer[0].domain:
                break
            node = producer[0]
            passed = self._passed_on(scope, node)
            if passed:
                scope, name = self._as_wide(scope, name, scope, passed)
            # A Transpose before an element is taken moves the axis of time; the features must stay last.
            elif at is not None and node.kind == "Transpose":
                order = scope.attributes(node).get("perm", [])
                if len(order) != 3 or order[2] != 2:
                    break
                scope, name = self._as_wide(scope, name, scope, node.inputs[0])
                at = (order[at[0]], at[1])
            else:
                break
        if at is None:
            return self._leaf(scope, name, Origin(name))
        return self._leaf(scope, name, Origin(name, False, *at))

    def _passed_on(self, scope: Scope, node: Operation) -> str:
        """Return the name of the value that a node passes on unchanged; "" for a node that computes anything."""
        if node.kind in SAME:
            return str(node.inputs[0])
        if factor := _times_one(scope, node):
            return factor
        # A Where with the same truth everywhere hands on one of its inputs whole.
        chosen = self.shapes.number(scope, node.inputs[0]) if node.kind == "Where" else None
        if chosen is None or not chosen.size or chosen.min() != chosen.max():
            return ""
        return str(node.inputs[1 if chosen.all() else 2])

    def element(self, scope: Scope, name: str) -> tuple[Scope, str, At] | None:
        """Return the sequence that a value is one element of, with its axis of time and the step."""
        if scope is self.scope and name in self.scanned:
            outer, axis, scanned = self.scanned[name]
            return (*self._as_wide(scope, name, *self._outside(outer)), (axis, scanned))
        producer = scope.producer(name)
        if producer is None:
            return None
        node, _ = producer
        if node.domain:
            return None
        attributes = scope.attributes(node)
        if node.kind == "Cast" and {attributes["to"], self.shapes.kind(scope, node.inputs[0])} <= {*_FLOATS}:
            return self.element(*scope.resolve(node.inputs[0]))
        if node.kind == "Gather":
            axis = attributes.get("axis", 0)
            where = scope.constant(node.inputs[1])
            step: int | None = self.counted(node.inputs[1])
            # An index from the end would be another step at another length.
            if where is not None and where.ndim == 0 and where >= 0:
                step = int(where)
            if step is None or axis not in (0, 1):
                return None
            return (*self._as_wide(scope, name, scope, node.inputs[0]), (axis, step))
        # A slice of length 1 whose axis is then removed is one element, too.
        if node.kind in ("Squeeze", "Reshape"):
            axes = self.shapes.integers(scope, node, "axes", 1) if node.kind == "Squeeze" else None
            inner = scope.producer(node.inputs[0])
            if inner is None or inner[0].kind not in ("Slice", "Split"):
                return None
            cut = self._cut(scope, *inner)
            if cut is None or cut[1] != 1 or (axes is not None and list(axes) != [cut[2]]):
                return None
            return (*self._as_wide(scope, name, scope, inner[0].inputs[0]), (cut[2], cut[0]))
        return None

    def _cut(self, scope: Scope, node: Operation, index: int) -> tuple[int, int, int] | None:
        """Return the part that a Slice or Split takes: the first element, how many, and the axis."""
        dims = self.shapes.dims(scope, node.inputs[0])
        attributes = scope.attributes(node)
        if node.kind == "Slice":
            starts, ends = (self.shapes.integers(scope, node, key, i) for key, i in (("starts", 1), ("ends", 2)))
            axes = self.shapes.integers(scope, node, "axes", 3) or (range(len(starts)) if starts else None)
            steps = self.shapes.integers(scope, node, "steps", 4) or ([1] * len(starts) if starts else None)
            if not starts or not ends or axes is None or steps is None or any(step != 1 for step in steps):
                return None
            cuts = []
            for start, end, axis in zip(starts, ends, axes, strict=True):
                length = dims[axis] if dims is not None and -len(dims) <= axis < len(dims) else None
                # All of an axis, even if its length is unknown.
                if start == 0 and end >= 2**31 - 1:
                    continue
                if length is None and (start < 0 or end < 0 or end >= 2**31 - 1):
                    return None
                begin, stop, _ = slice(start, end).indices(length if length is not None else max(end, 1))
                if (begin, stop) != (0, length):
                    cuts.append((begin, stop - begin, axis))
            if len(cuts) != 1:
                return None
            begin, count, axis = cuts[0]
        else:
            axis = attributes.get("axis", 0)
            parts = self.shapes.integers(scope, node, "split", 1)
            if parts is None:
                length = dims[axis] if dims is not None and -len(dims) <= axis < len(dims) else None
                if length is None and self._last(scope, node.inputs[0], axis, None):
                    length = self.shapes.width(scope, node.inputs[0])
                if length is None:
                    return None
                # ONNX splits evenly, and the last part is the smaller one.
                share = -(-length // len(node.outputs))
                parts = [min(share, length - share * number) for number in range(len(node.outputs))]
            begin, count = sum(parts[:index]), parts[index]
        if axis < 0 and dims is not None:
            axis += len(dims)
        return begin, count, axis

    def _last(self, scope: Scope, name: str, axis: int, at: At | None) -> bool:
        """Return whether an axis is the last one of a value."""
        dims = self.shapes.dims(scope, name)
        return axis == -1 or (axis == len(dims) - 1 if dims is not None else axis >= (1 if at is None else 2))

    def _stored(self, array: Array, name: str) -> Formula:
        """Return stored numbers as they are added to, or multiplied with, the features of each sequence alike."""
        if array.dtype.kind not in "fV" and array.dtype.kind != "i":
            raise UnmatchedError(f"{name!r} is not of numbers")
        if array.ndim == 0:
            return (StoredPiece(array),)
        if array.size > TRACED_NUMBERS:
            raise UnmatchedError(f"{name!r} is larger than a vector of a cell")
        # Numbers with an axis for the batch are a bias only if they are the same for every sequence.
        rows = array.reshape(-1, array.shape[-1])
        if not rows.shape[0] or (rows != rows[:1]).any():
            raise UnmatchedError(f"{name!r} is another vector for each sequence of the batch")
        return (StoredPiece(rows[0]),)

    def _operand(self, scope: Scope, name: str, at: At | None) -> Formula:
        """Return the factor of a matrix: the formula of a value that depends on a state, else the value itself."""
        where, resolved = scope.resolve(name)
        if where is self.scope and at is None and (resolved in self.later or resolved in self.states):
            return self._value(scope, name, at)
        return self._source(scope, name, at)

    def _through(self, scope: Scope, node: Operation, index: int, at: At | None, depends: bool) -> Formula | None:
        """Return the formula of a node's output, or None if it is not part of a formula."""
        if node.domain:
            return None
        kind = node.kind
        attributes: Mapping[str, Any] = scope.attributes(node)
        if kind in _SAME:
            if kind == "Cast" and attributes["to"] not in _FLOATS:
                return None
            return self._value(*self._as_wide(scope, node.outputs[0], scope, node.inputs[0]), at)
        if kind == "Where":
            passed = self._passed_on(scope, node)
            return self._value(scope, passed, at) if passed else None
        factors = product_of(scope, node)
        if factors is not None:
            return None if factors.gives_columns else self._product(scope, factors, at)
        if kind in ("Split", "Slice"):
            cut = self._cut(scope, node, index)
            if cut is None or not self._last(scope, node.inputs[0], cut[2], at):
                return None
            return take(self._value(scope, node.inputs[0], at), cut[0], cut[0] + cut[1])
        # Cells with one matrix for both join their input and their state before the product.
        if kind == "Concat" and depends:
            axis = attributes["axis"]
            if not self._last(scope, node.inputs[0], axis, at):
                return None
            parts = [self._operand(scope, name, at) for name in node.inputs]
            return tuple(piece for part in parts for piece in part)
        # Sums are followed further: a part of them may be the cell's bias.
        if not depends and kind not in ("Add", "Sub"):
            location = self.element(scope, node.outputs[index]) if at is None else None
            if location is not None:
                return self._value(*location)
        # Axes of length 1 around a state, as ONNX's recurrent operators have them, leave its features alone.
        if kind in ("Squeeze", "Unsqueeze", "Reshape") and depends:
            before = self._value(scope, node.inputs[0], at)
            size = self.shapes.width(scope, node.outputs[0])
            if size is not None and size != width(before):
                return None
            return before
        if _swaps(scope, node, self.shapes):
            return self._columns(scope, node.inputs[0]) if at is None else None
        if kind == "Transpose":
            order = attributes.get("perm", [])
            if len(order) != 3 or order[2] != 2:
                return None
            source = self._as_wide(scope, node.outputs[0], scope, node.inputs[0])
            return self._value(*source, at if at is None else (order[at[0]], at[1]))
        return self._function(scope, node, attributes, at, depends)

    def _product(self, scope: Scope, factors: Product, at: At | None) -> Formula | None:
        # Of a product over a whole sequence only the plain form is read at one step.
        if at is not None and (factors.reads_columns or factors.bias):
            return None
        read = self._columns(scope, factors.value) if factors.reads_columns else self._operand(scope, factors.value, at)
        if read is None:
            return None
        total = product(read, factors.matrix)
        if factors.bias:
            bias = scope.constant(factors.bias)
            added = (StoredPiece(_vector(bias, factors.matrix.shape[1])),) if bias is not None else self._value(scope, factors.bias, None)
            total = together("Add", total, added)
        return total

    def _columns(self, scope: Scope, name: str) -> Formula | None:
        """Return the formula of a value (features, batch); None for a value that is not known to be one."""
        scope, name = scope.resolve(name)
        producer = scope.producer(name)
        if producer is None:
            return None
        node, index = producer
        if _swaps(scope, node, self.shapes):
            return self._operand(scope, node.inputs[0], None)
        if node.kind in _SAME:
            return self._columns(scope, node.inputs[0])
        factors = product_of(scope, node)
        if factors is not None:
            return self._product(scope, factors, None) if factors.gives_columns else None
        if node.kind in PAIRS and len(node.inputs) == 2:
            parts = [self._columns(scope, operand) for operand in node.inputs]
            return None if None in parts else together(node.kind, *filter(None, parts))
        cut = self._cut(scope, node, index) if node.kind in ("Split", "Slice") else None
        columns = self._columns(scope, node.inputs[0]) if cut is not None and cut[2] == 0 else None
        return None if cut is None or columns is None else take(columns, cut[0], cut[0] + cut[1])

    def _function(self, scope: Scope, node: Operation, attributes: Mapping[str, Any], at: At | None, depends: bool) -> Formula | None:
        kind = node.kind
        if kind == "Sum":
            return reduce(lambda total, term: together("Add", total, term), [self._value(scope, name, at) for name in node.inputs])
        if factor := _times_one(scope, node):
            return self._value(scope, factor, at)
        if kind in PAIRS and len(node.inputs) == 2:
            if not depends:
                stored = [scope.constant(name) is not None for name in node.inputs]
                if kind not in ("Add", "Sub", "Mul") or not any(stored):
                    return None  # the input's own business
            return together(kind, *(self._value(scope, name, at) for name in node.inputs))
        if kind not in UNARY or not depends:
            return None
        constants = _DEFAULTS.get(kind, ())
        stated = {key: float(np.float32(attribute)) for key, attribute in attributes.items()}
        names = ("alpha", "beta")[: len(constants)]
        constants = tuple(stated.get(name, default) for name, default in zip(names, constants, strict=True))
        if kind == "Clip":
            constants = self._bounds(scope, node, stated)
        return alone(kind, self._value(scope, node.inputs[0], at), constants)

    def _bounds(self, scope: Scope, node: Operation, stated: dict[str, float]) -> tuple[float, ...]:
        bounds = [stated.get("min", -np.inf), stated.get("max", np.inf)]
        for number, name in enumerate(node.inputs[1:3]):
            if name:
                bound = scope.constant(name)
                if bound is None:
                    raise UnmatchedError("a bound that is computed")
                bounds[number] = float(bound.reshape(()))
        return tuple(bounds)


def _times_one(scope: Scope, node: Operation) -> str:
    """Return the value that a node multiplies with 1 everywhere, as dropout's mask is outside training; "" for any other node."""
    if node.kind != "Mul":
        return ""
    others = [name for name in node.inputs if everywhere(*scope.resolve(name)) != 1.0]
    return str(others[0]) if len(others) == 1 else ""


def _swaps(scope: Scope, node: Operation, shapes: Shapes) -> bool:
    """Return whether a node turns a matrix."""
    if node.kind != "Transpose":
        return False
    attributes = scope.attributes(node)
    if "perm" in attributes:
        return bool(attributes["perm"] == [1, 0])
    dims = shapes.dims(scope, node.inputs[0])
    return dims is not None and len(dims) == 2


def _vector(array: Array, size: int) -> Array:
    """Return the bias of a Gemm as one vector."""
    rows = np.broadcast_to(array, np.broadcast_shapes(array.shape, (1, size))).reshape(-1, size)
    if (rows != rows[:1]).any():
        raise UnmatchedError("a bias that is another for each sequence of the batch")
    return array.reshape(-1) if array.size == size else rows[0]
