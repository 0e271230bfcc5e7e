"""The shapes of a graph's values, as far as they are known without running it, and the whole numbers computed from shapes.

The model's own statements come first, then one rule for each operator; anything else is unknown.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.limits import SHAPE_NESTING, SHAPE_NUMBERS
from rnnconvert.core.malformed import MALFORMED, passes
from rnnconvert.graphs.program.fold import fold
from rnnconvert.graphs.program.fold_call import FoldedCall
from rnnconvert.graphs.program.kinds import ALIKE, COMPARED, MEASURING, SPREAD
from rnnconvert.graphs.program.operations import Body, Operation, Program, StoredNumbers, bodies
from rnnconvert.graphs.program.products import product_of
from rnnconvert.graphs.program.rules import Dims, ShapeRule, part
from rnnconvert.graphs.program.scopes import Scope

_FOLLOWED = 200
_INTEGERS = ("Gather", "Add", "Sub", "Mul", "Div", "Cast", "Concat", "Unsqueeze", "Squeeze", "Slice", "Identity", "Reshape")


class Shapes:
    """The shapes of a model's values."""

    def __init__(self, program: Program) -> None:
        self._learned: dict[str, list[int | None]] = {}
        self._twice: set[str] = set()
        self._kinds: dict[str, np.dtype[Any]] = {}
        self._ruled: dict[tuple[Scope, str], list[int | None] | None] = {}
        self._cache: dict[tuple[Scope, str], list[int | None] | None] = {}
        self._widths: dict[Scope, dict[str, int]] = {}
        self._passed: set[Scope] = set()
        self.sources: dict[str, tuple[tuple[str, int], ...]] = {}
        """The origin of the lengths of a layer's sequence, axis by axis: a value that the layer reads, and the axis of it."""
        self._collect(program.main)

    def _collect(self, graph: Body) -> None:
        for value in graph.declared:
            if value.dtype is not None:
                self._kinds.setdefault(value.name, value.dtype)
            if value.dims is not None:
                self._state(value.name, [length if isinstance(length, int) else None for length in value.dims])
        for inner in bodies(graph.nodes):
            self._collect(inner)

    def _state(self, name: str, dims: list[int | None]) -> None:
        if self._learned.setdefault(name, dims) != dims:
            self._twice.add(name)

    def give(self, scope: Scope, name: str, dims: Dims | None) -> None:
        """Note the axes of a graph's input, which the node around it gives."""
        if dims is not None and (name not in self._learned or None in self._learned[name]):
            self._cache[scope, name] = self._ruled[scope, name] = list(dims)

    def stated(self, name: str) -> Dims | None:
        """Return the axes that the model states for a value."""
        return self._learned[name] if name in self._learned and name not in self._twice else None

    def learn(self, name: str, dims: Dims) -> None:
        """Note the axes of a value of the main graph, as a layer gives it; what was found without them is found anew."""
        if self.stated(name) is None and name not in self._twice:
            self._learned[name] = list(dims)
            # Shapes that followed from a lack of this one may be known now.
            self._ruled, self._widths, self._passed = dict(self._cache), {}, set()

    def dims(self, scope: Scope, name: str, deep: int = 0) -> Dims | None:
        """Return the axes of a value, None for those that are not known."""
        scope, name = scope.resolve(name)
        if scope not in self._passed:  # in the order of the nodes, so that no rule asks for many others
            self._passed.add(scope)
            for node in scope.nodes:
                for output in node.outputs:
                    self._dims(scope, output, 0)
        return self._dims(scope, name, deep)

    def _dims(self, scope: Scope, name: str, deep: int) -> Dims | None:
        stated = self.stated(name)
        if stated is not None and None not in stated:
            return stated
        key = scope, name
        if key not in self._ruled:
            # Noted before it is known, so that a value that depends on itself ends here.
            self._ruled[key] = None
            self._ruled[key] = self._by_rule(scope, name, deep) if deep < SHAPE_NESTING else None
        ruled = self._ruled[key]
        if stated is None or ruled is None or len(ruled) != len(stated):
            return ruled if stated is None else stated
        return [size if size is not None else other for size, other in zip(stated, ruled, strict=True)]

    def _by_rule(self, scope: Scope, name: str, deep: int) -> list[int | None] | None:
        stored = scope.stored(name)
        if stored is not None:
            return list(stored.dims)
        producer = scope.producer(name)
        if producer is None or producer[0].domain:
            return None
        node, index = producer
        try:
            dims = ShapeRule(self, scope, node, index, deep + 1).dims()
        except MALFORMED as error:
            if passes(error):
                raise
            return None  # a node that is not as its operator asks
        return None if dims is None else list(dims)

    def kind(self, scope: Scope, name: str) -> np.dtype[Any] | None:
        """Return the element type of a value, None where it is not known."""
        for _ in range(_FOLLOWED):
            scope, name = scope.resolve(name)
            stored = scope.stored(name)
            producer = scope.producer(name)
            if name in self._kinds or stored is not None or producer is None:
                return self._kinds.get(name, None if stored is None else stored.dtype)
            node = producer[0]
            kind = node.kind
            attributes = scope.attributes(node)
            if kind in MEASURING:
                return np.dtype(np.int64)
            if kind in COMPARED or kind in ("Not", "And", "Or", "Xor"):
                return np.dtype(np.bool_)
            if kind == "Cast":
                to = attributes.get("to")
                return to if isinstance(to, np.dtype) else None
            if kind == "ConstantOfShape":
                value = attributes.get("value")
                return value.dtype if isinstance(value, StoredNumbers) else np.dtype(np.float32)
            if len(node.inputs) <= (kind == "Where") or kind in ("Loop", "Scan", "If"):
                return None
            name = node.inputs[kind == "Where"]
        return None

    def width(self, scope: Scope, name: str) -> int | None:
        """Return the length of a value's last axis, if it is known: by its shape, or by the matrices that it meets."""
        dims = self.dims(scope, name)
        if dims and dims[-1] is not None:
            return dims[-1]
        scope, name = scope.resolve(name)
        # The shape does not show it, but a matrix that multiplies the value does.
        if scope not in self._widths:
            self._widths[scope] = self._product_widths(scope)
        return self._widths[scope].get(name)

    def _product_widths(self, scope: Scope) -> dict[str, int]:
        """Return the widths of a graph's values by the matrices that multiply them: of what these read, from the end to the
        beginning, then of what they give.
        """
        result = self._met_before(scope)
        for node in scope.nodes:
            if not node.outputs or node.outputs[0] in result or node.domain:
                continue
            product = product_of(scope, node)
            if product is not None and not product.gives_columns:
                result[node.outputs[0]] = product.matrix.shape[1]
            elif node.kind in ALIKE or node.kind in SPREAD:
                widths = []
                for name in node.inputs if node.kind in SPREAD else node.inputs[:1]:
                    dims = self.dims(scope, name)
                    widths.append(dims[-1] if dims else result.get(name))
                stated = [width for width in widths if width is not None and width > 1]
                if stated and len(set(stated)) == 1:
                    result[node.outputs[0]] = stated[0]
        return result

    def _met_before(self, scope: Scope) -> dict[str, int]:
        result: dict[str, int] = {}
        # From the end: a product shows the width of what it reads, and of all that this comes from.
        for node in reversed(scope.nodes):
            product = product_of(scope, node)
            if product is not None and not product.reads_columns:
                result.setdefault(product.value, product.matrix.shape[0])
            width = next((result[name] for name in node.outputs if name in result), None)
            if width is None or not node.inputs:
                continue
            if node.kind in ALIKE or (node.kind in ("Gather", "Squeeze", "Unsqueeze") and not self._is_last(scope, node)):
                result.setdefault(node.inputs[0], width)
            elif node.kind == "Transpose":
                order = scope.attributes(node).get("perm", [])
                if order and order[-1] == len(order) - 1:
                    result.setdefault(node.inputs[0], width)
        return result

    def _is_last(self, scope: Scope, node: Operation) -> bool:
        """Return whether a node takes or makes the last axis of a value, as far as is known."""
        attributes = scope.attributes(node)
        if node.kind == "Gather":
            return attributes.get("axis", 0) not in (0, 1)
        axes = self.integers(scope, node, "axes", 1)
        return axes is None or any(axis not in (0, 1) for axis in axes)

    def integers(self, scope: Scope, node: Operation, name: str, index: int) -> list[int] | None:
        """Return a list that is an attribute in old operator sets and an input in new ones."""
        attribute = scope.attributes(node).get(name)
        if attribute is not None:
            return list(attribute)
        if index >= len(node.inputs) or not node.inputs[index]:
            return None
        array = self.number(scope, node.inputs[index])
        return None if array is None else [int(number) for number in array.reshape(-1)]

    def number(self, scope: Scope, name: str, deep: int = 0) -> Array | None:
        """Return whole numbers that are constant, or computed from the known axes of values."""
        scope, name = scope.resolve(name)
        constant = scope.constant(name)
        if constant is not None:
            return constant
        producer = scope.producer(name)
        if producer is None or deep > SHAPE_NESTING or producer[0].domain:
            return None
        node = producer[0]
        if node.kind == "Shape":
            dims = self.measured(scope, node, deep)
            return np.array(dims, np.int64) if dims is not None and None not in dims else None
        if node.kind == "Gather":
            shape = scope.producer(node.inputs[0])
            dtype = np.dtype(np.int64)
            if shape is not None and shape[0].kind == "Cast":  # some graphs have shapes of 32 bits
                dtype = np.dtype((scope.values(shape[0]) or {}).get("to", dtype))
                shape = scope.producer(shape[0].inputs[0])
            which = self.number(scope, node.inputs[1], deep + 1)
            if shape is not None and shape[0].kind == "Shape" and which is not None and which.size == 1:
                dims = self.measured(scope, shape[0], deep)
                at = int(which.reshape(()))
                if dims is not None and -len(dims) <= at < len(dims) and dims[at] is not None:
                    return np.full(which.shape, dims[at], dtype)
        if node.kind in COMPARED:
            number, other = (self.number(scope, operand, deep + 1) for operand in node.inputs)
            return None if number is None or other is None else np.asarray(COMPARED[node.kind](number, other))
        if node.kind not in _INTEGERS:
            return None
        inputs = [self.number(scope, operand, deep + 1) if operand else None for operand in node.inputs]
        if any(array is None and operand for array, operand in zip(inputs, node.inputs, strict=True)):
            return None
        if any(operand_value is not None and operand_value.size > SHAPE_NUMBERS for operand_value in inputs):
            return None
        attributes = scope.values(node)
        if attributes is None:
            return None
        folded = fold(FoldedCall(node.kind, inputs, attributes, len(node.outputs), scope.opset, lambda size: None))
        return None if folded is None or producer[1] >= len(folded) else folded[producer[1]]

    def measured(self, scope: Scope, node: Operation, deep: int) -> Dims | None:
        """Return the lengths that a Shape gives, None for an unknown length; None alone if not even their count is known."""
        dims = self.dims(scope, node.inputs[0], deep)
        return None if dims is None else part(scope, node, dims)

    def partly(self, scope: Scope, name: str, deep: int = 0) -> Dims | None:
        """Return whole numbers of which some are known: a shape that is put together from parts."""
        array = self.number(scope, name, deep)
        if array is not None:
            return [int(number) for number in array.reshape(-1)] if array.size <= SHAPE_NUMBERS and array.dtype.kind in "iu" else None
        scope, name = scope.resolve(name)
        producer = scope.producer(name)
        if producer is None or deep > SHAPE_NESTING:
            return None
        node = producer[0]
        if node.kind == "Shape":
            return self.measured(scope, node, deep)
        if node.kind == "Concat":
            parts = [self.partly(scope, operand, deep + 1) for operand in node.inputs]
            return None if None in parts else [size for part in parts for size in (part or ())]
        if node.kind in ("Cast", "Identity"):
            return self.partly(scope, node.inputs[0], deep + 1)
        if node.kind in ("Unsqueeze", "Reshape"):
            return self.partly(scope, node.inputs[0], deep + 1) or [None]
        if node.kind == "Gather":
            which = self.number(scope, node.inputs[1], deep + 1)
            return [None] * which.size if which is not None and which.size <= SHAPE_NUMBERS else None
        if node.kind == "Slice":
            elements = self.partly(scope, node.inputs[0], deep + 1)
            bounds = [self.integers(scope, node, key, at) for key, at in (("starts", 1), ("ends", 2), ("steps", 4))]
            if elements is None or bounds[0] is None or bounds[1] is None or (bounds[2] or [1]) != [1]:
                return None
            return elements[slice(bounds[0][0], bounds[1][0])]
        return None
