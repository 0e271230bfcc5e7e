"""What is known of the shapes of a graph's values without running it, and of the whole numbers computed from shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from rnnconvert.core.arrays import Array
from rnnconvert.formats.onnx.onnx_fold import Call, fold
from rnnconvert.formats.onnx.onnx_scopes import Scope

Dims = Sequence["int | None"]
_DEEPEST = 40
_COMPARED = {
    "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal, "GreaterOrEqual": np.greater_equal,
    "Equal": np.equal,
}  # fmt: skip


class Shapes:
    """Shapes that onnx's shape inference finds; values of a graph in a node are looked up in that graph's."""

    def __init__(self, model: onnx.ModelProto) -> None:
        try:
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        except Exception:  # it does not fail on most damaged models, and without it less is known
            inferred = model
        self._known: dict[str, list[int | None]] = {}
        self._twice: set[str] = set()
        self._kinds: dict[str, int] = {}
        self._collect(inferred.graph)

    def _collect(self, graph: onnx.GraphProto) -> None:
        for one in (*graph.input, *graph.value_info, *graph.output):
            kind = one.type.tensor_type
            if kind.elem_type:
                self._kinds.setdefault(one.name, kind.elem_type)
            if kind.HasField("shape"):
                dims = [axis.dim_value if axis.HasField("dim_value") else None for axis in kind.shape.dim]
                if self._known.setdefault(one.name, dims) != dims:
                    self._twice.add(one.name)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    self._collect(attribute.g)

    def dims(self, scope: Scope, name: str, deep: int = 0) -> Dims | None:
        """Return the axes of a value, None for those that are not known."""
        scope, name = scope.resolve(name)
        if name in self._known and name not in self._twice:
            return self._known[name]
        stored = scope.stored(name)
        if stored is not None:
            return list(stored.dims)
        producer = scope.producer(name)
        if producer is None or deep > _DEEPEST:
            return None
        node = producer[0]
        if node.op_type in ("Identity", "Cast", "Dropout", "Tanh", "Sigmoid", "Relu"):
            return self.dims(scope, node.input[0], deep + 1)
        if node.op_type == "Gather":
            data, at = self.dims(scope, node.input[0], deep + 1), self.dims(scope, node.input[1], deep + 1)
            axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
            if data is not None:
                inner = at if at is not None else []
                return [*data[:axis], *inner, *data[axis + 1 :]]
        return None

    def kind(self, name: str) -> int:
        """Return the element type of a value, 0 where it is not known."""
        return self._kinds.get(name, 0)

    def width(self, scope: Scope, name: str) -> int | None:
        """Return the length of a value's last axis, if it is known."""
        dims = self.dims(scope, name)
        return dims[-1] if dims else None

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
            dims = self.dims(scope, node.input[0])
            return np.array(dims, np.int64) if dims is not None and None not in dims else None
        if node.op_type == "Gather":
            shape = scope.producer(node.input[0])
            which = self.number(scope, node.input[1], deep + 1)
            if shape is not None and shape[0].op_type == "Shape" and which is not None and which.size == 1:
                dims = self.dims(scope, shape[0].input[0])
                at = int(which.reshape(()))
                if dims is not None and -len(dims) <= at < len(dims) and dims[at] is not None:
                    return np.full(which.shape, dims[at], np.int64)
        if node.op_type in _COMPARED:
            one, other = (self.number(scope, given, deep + 1) for given in node.input)
            return None if one is None or other is None else np.asarray(_COMPARED[node.op_type](one, other))
        if node.op_type not in (
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
        ):
            return None
        inputs = [self.number(scope, given, deep + 1) if given else None for given in node.input]
        if any(one is None and given for one, given in zip(inputs, node.input, strict=True)):
            return None
        attributes = {one.name: list(one.ints) or one.i for one in node.attribute}
        opset = scope.opsets.get("", scope.opsets.get("ai.onnx", 1))
        made = fold(Call(node.op_type, inputs, attributes, len(node.output), opset, lambda size: None))
        return None if made is None else made[producer[1]]
