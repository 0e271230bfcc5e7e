"""What is known of the shapes of a graph's values without running it, and of the whole numbers computed from shapes.

The model's own statements come first, then one rule for each operator; what neither gives is unknown.
"""

from __future__ import annotations

import numpy as np
import onnx

from rnnconvert.core.arrays import Array
from rnnconvert.graphs.program.fold import Call, fold
from rnnconvert.graphs.program.products import product_of
from rnnconvert.graphs.program.rules import ALIKE, COMPARED, SPREAD, Dims, Rule, part
from rnnconvert.graphs.program.scopes import Scope

_DEEPEST = 40
_FOLLOWED = 200
_MOST = 2_000
"""The most whole numbers that are followed: shapes have few, and tables have many."""
_INTEGERS = (
    "Gather",
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Cast",
    "Concat",
    "Unsqueeze",
    "Squeeze",
    "Slice",
    "Identity",
    "Reshape",
)


class Shapes:
    """The shapes of a model's values."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._known: dict[str, list[int | None]] = {}
        self._twice: set[str] = set()
        self._kinds: dict[str, int] = {}
        self._ruled: dict[tuple[int, str], list[int | None] | None] = {}
        self._given: dict[tuple[int, str], list[int | None] | None] = {}
        self._bodies: list[Scope] = []  # kept, so that no other graph gets the id of one
        self._widths: dict[int, dict[str, int]] = {}
        self._passed: dict[int, Scope] = {}  # kept likewise
        self.sources: dict[str, tuple[tuple[str, int], ...]] = {}
        """What a layer's sequence is as long as, axis by axis: a value that the layer reads, and the axis of it."""
        self._collect(model.graph)

    def _collect(self, graph: onnx.GraphProto) -> None:
        for one in (*graph.input, *graph.value_info, *graph.output):
            kind = one.type.tensor_type
            if kind.elem_type:
                self._kinds.setdefault(one.name, kind.elem_type)
            if kind.HasField("shape"):
                self._state(
                    one.name, [axis.dim_value if axis.HasField("dim_value") else None for axis in kind.shape.dim]
                )
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    self._collect(attribute.g)

    def _state(self, name: str, dims: list[int | None]) -> None:
        if self._known.setdefault(name, dims) != dims:
            self._twice.add(name)

    def give(self, scope: Scope, name: str, dims: Dims | None) -> None:
        """Note the axes of a graph's input, which the node around it gives."""
        if dims is not None and (name not in self._known or None in self._known[name]):
            self._given[id(scope), name] = self._ruled[id(scope), name] = list(dims)
            self._bodies.append(scope)

    def stated(self, name: str) -> Dims | None:
        """Return what the model states of the axes of a value."""
        return self._known[name] if name in self._known and name not in self._twice else None

    def learn(self, name: str, dims: Dims) -> None:
        """Note the axes of a value of the main graph, as a layer gives it; what was found without them is found anew."""
        if self.stated(name) is None and name not in self._twice:
            self._known[name] = list(dims)
            self._ruled, self._widths, self._passed = dict(self._given), {}, {}

    def dims(self, scope: Scope, name: str, deep: int = 0) -> Dims | None:
        """Return the axes of a value, None for those that are not known."""
        scope, name = scope.resolve(name)
        if id(scope) not in self._passed:  # in the order of the nodes, so that no rule asks for many others
            self._passed[id(scope)] = scope
            for node in scope.nodes:
                for one in node.output:
                    self._dims(scope, one, 0)
        return self._dims(scope, name, deep)

    def _dims(self, scope: Scope, name: str, deep: int) -> Dims | None:
        stated = self.stated(name)
        if stated is not None and None not in stated:
            return stated
        key = id(scope), name
        if key not in self._ruled:
            self._ruled[key] = None
            self._ruled[key] = self._by_rule(scope, name, deep) if deep < _DEEPEST else None
        ruled = self._ruled[key]
        if stated is None or ruled is None or len(ruled) != len(stated):
            return ruled if stated is None else stated
        return [one if one is not None else other for one, other in zip(stated, ruled, strict=True)]

    def _by_rule(self, scope: Scope, name: str, deep: int) -> list[int | None] | None:
        stored = scope.stored(name)
        if stored is not None:
            return list(stored.dims)
        producer = scope.producer(name)
        if producer is None or producer[0].domain not in ("", "ai.onnx"):
            return None
        node, index = producer
        try:
            found = Rule(self, scope, node, index, deep + 1).dims()
        except (IndexError, ValueError, TypeError, KeyError, ArithmeticError):
            return None  # a node that is not as its operator asks
        return None if found is None else list(found)

    def kind(self, scope: Scope, name: str) -> int:
        """Return the element type of a value, 0 where it is not known."""
        for _ in range(_FOLLOWED):
            scope, name = scope.resolve(name)
            stored = scope.stored(name)
            producer = scope.producer(name)
            if name in self._kinds or stored is not None or producer is None:
                return self._kinds.get(name, 0 if stored is None else stored.data_type)
            node = producer[0]
            kind = node.op_type
            attributes = scope.attributes(node)
            if kind in ("Shape", "Size"):
                return int(onnx.TensorProto.INT64)
            if kind in COMPARED or kind in ("Not", "And", "Or", "Xor"):
                return int(onnx.TensorProto.BOOL)
            if kind == "Cast":
                return int(attributes["to"].i) if "to" in attributes else 0
            if kind == "ConstantOfShape":
                return int(attributes["value"].t.data_type if "value" in attributes else onnx.TensorProto.FLOAT)
            if len(node.input) <= (kind == "Where") or kind in ("Loop", "Scan", "If"):
                return 0
            name = node.input[kind == "Where"]
        return 0

    def width(self, scope: Scope, name: str) -> int | None:
        """Return the length of a value's last axis, if it is known: by its shape, or by the matrices that it meets."""
        dims = self.dims(scope, name)
        if dims and dims[-1] is not None:
            return dims[-1]
        scope, name = scope.resolve(name)
        if id(scope) not in self._widths:
            self._widths[id(scope)] = self._met(scope)
        return self._widths[id(scope)].get(name)

    def _met(self, scope: Scope) -> dict[str, int]:
        """Return the widths of a graph's values by the matrices that multiply them: of what these read, from the end to the
        beginning, then of what they give.
        """
        found = self._met_before(scope)
        for node in scope.nodes:
            if not node.output or node.output[0] in found or node.domain not in ("", "ai.onnx"):
                continue
            product = product_of(scope, node)
            if product is not None and not product.gives_columns:
                found[node.output[0]] = product.matrix.shape[1]
            elif node.op_type in ALIKE or node.op_type in SPREAD:
                widths = []
                for name in node.input if node.op_type in SPREAD else node.input[:1]:
                    dims = self.dims(scope, name)
                    widths.append(dims[-1] if dims else found.get(name))
                known = [one for one in widths if one is not None and one > 1]
                if known and len(set(known)) == 1:
                    found[node.output[0]] = known[0]
        return found

    def _met_before(self, scope: Scope) -> dict[str, int]:
        found: dict[str, int] = {}
        for node in reversed(scope.nodes):
            product = product_of(scope, node)
            if product is not None and not product.reads_columns:
                found.setdefault(product.value, product.matrix.shape[0])
            own = next((found[name] for name in node.output if name in found), None)
            if own is None or not node.input:
                continue
            if node.op_type in ALIKE or (
                node.op_type in ("Gather", "Squeeze", "Unsqueeze") and not self._is_last(scope, node)
            ):
                found.setdefault(node.input[0], own)
            elif node.op_type == "Transpose":
                order = list(scope.attributes(node)["perm"].ints) if "perm" in scope.attributes(node) else []
                if order and order[-1] == len(order) - 1:
                    found.setdefault(node.input[0], own)
        return found

    def _is_last(self, scope: Scope, node: onnx.NodeProto) -> bool:
        """Return whether a node takes or makes the last axis of a value, as far as is known."""
        attributes = scope.attributes(node)
        if node.op_type == "Gather":
            return not ("axis" not in attributes or attributes["axis"].i in (0, 1))
        axes = self.integers(scope, node, "axes", 1)
        return axes is None or any(axis not in (0, 1) for axis in axes)

    def integers(self, scope: Scope, node: onnx.NodeProto, name: str, index: int) -> list[int] | None:
        """Return a list that is an attribute in old operator sets and an input in new ones."""
        attribute = scope.attributes(node).get(name)
        if attribute is not None:
            return [int(one) for one in attribute.ints]
        if index >= len(node.input) or not node.input[index]:
            return None
        found = self.number(scope, node.input[index])
        return None if found is None else [int(one) for one in found.reshape(-1)]

    def number(self, scope: Scope, name: str, deep: int = 0) -> Array | None:
        """Return whole numbers that are constant, or computed from the known axes of values."""
        scope, name = scope.resolve(name)
        constant = scope.constant(name)
        if constant is not None:
            return constant
        producer = scope.producer(name)
        if producer is None or deep > _DEEPEST or producer[0].domain not in ("", "ai.onnx"):
            return None
        node = producer[0]
        if node.op_type == "Shape":
            dims = self.dims(scope, node.input[0], deep)
            return part(scope, node, np.array(dims, np.int64)) if dims is not None and None not in dims else None
        if node.op_type == "Gather":
            shape = scope.producer(node.input[0])
            which = self.number(scope, node.input[1], deep + 1)
            if shape is not None and shape[0].op_type == "Shape" and which is not None and which.size == 1:
                dims = self.dims(scope, shape[0].input[0], deep)
                at = int(which.reshape(()))
                if dims is not None and -len(dims) <= at < len(dims) and dims[at] is not None:
                    return np.full(which.shape, dims[at], np.int64)
        if node.op_type in COMPARED:
            one, other = (self.number(scope, given, deep + 1) for given in node.input)
            return None if one is None or other is None else np.asarray(COMPARED[node.op_type](one, other))
        if node.op_type not in _INTEGERS:
            return None
        inputs = [self.number(scope, given, deep + 1) if given else None for given in node.input]
        if any(one is None and given for one, given in zip(inputs, node.input, strict=True)):
            return None
        if any(one is not None and one.size > _MOST for one in inputs):
            return None
        attributes = {one.name: list(one.ints) or one.i for one in node.attribute}
        opset = scope.opsets.get("", scope.opsets.get("ai.onnx", 1))
        made = fold(Call(node.op_type, inputs, attributes, len(node.output), opset, lambda size: None))
        return None if made is None or producer[1] >= len(made) else made[producer[1]]

    def partly(self, scope: Scope, name: str, deep: int = 0) -> Dims | None:
        """Return whole numbers of which some are known: a shape that is put together from parts."""
        found = self.number(scope, name, deep)
        if found is not None:
            return [int(one) for one in found.reshape(-1)] if found.size <= _MOST and found.dtype.kind in "iu" else None
        scope, name = scope.resolve(name)
        producer = scope.producer(name)
        if producer is None or deep > _DEEPEST:
            return None
        node = producer[0]
        if node.op_type == "Shape":
            return self.dims(scope, node.input[0], deep)
        if node.op_type == "Concat":
            parts = [self.partly(scope, one, deep + 1) for one in node.input]
            return None if None in parts else [one for part in parts for one in (part or ())]
        if node.op_type in ("Cast", "Identity"):
            return self.partly(scope, node.input[0], deep + 1)
        if node.op_type in ("Unsqueeze", "Reshape"):
            return self.partly(scope, node.input[0], deep + 1) or [None]
        if node.op_type == "Gather":
            which = self.number(scope, node.input[1], deep + 1)
            return [None] * which.size if which is not None and which.size <= _MOST else None
        if node.op_type == "Slice":
            whole = self.partly(scope, node.input[0], deep + 1)
            bounds = [self.integers(scope, node, key, at) for key, at in (("starts", 1), ("ends", 2), ("steps", 4))]
            if whole is None or bounds[0] is None or bounds[1] is None or (bounds[2] or [1]) != [1]:
                return None
            return whole[slice(bounds[0][0], bounds[1][0])]
        return None
