"""A described model without what a person would not write: masks that are computed twice, or handed through a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rnnconvert.scaffolding.description import DescribedModel, Node, Value


class _Simplification:
    """A model being simplified.

    same  what stands for a value that was dropped
    wide  masks that are alike along their last axis: what they are where any of these holds
    """

    def __init__(self, scope: DescribedModel) -> None:
        self.scope = scope
        self.same: dict[int, Value] = {}
        self.wide: dict[int, tuple[Value, ...]] = {}
        self.zeros: set[int] = set()
        self.first: dict[object, Value] = {}
        self.nodes: list[Node] = []

    def resolved(self, value: Value) -> Value:
        return self.same.get(id(value), value)

    def all_known(self, values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(map(self.resolved, values))

    def run(self) -> None:
        for node in self.scope.nodes:
            named = {key: self.all_known(values) for key, values in node.named.items()}
            node = replace(node, inputs=self.all_known(node.inputs), named=named)
            if node.kind == "model":
                node = self._model(node)
            elif node.y.dtype == "bool" and not node.layer:
                self._mask(node)
                continue
            self.nodes.append(node)
        self.scope.nodes = self.nodes
        self.scope.outputs = self.all_known(self.scope.outputs)

    def _mask(self, node: Node) -> None:
        """Append what makes a mask, unless it is there already, or is simpler."""
        node = self._of_any(node)
        operation, y, last = node.settings.get("operation"), node.y, len(node.y.shape) - 1
        if operation == "zeros":
            self.zeros.add(id(y))
        elif operation == "widened" and node.x.dtype == "bool":
            self.wide[id(y)] = (node.x,)
        elif operation == "or" and len({id(value) for value in node.inputs}) == 1:
            self.same[id(y)] = node.x
            return
        elif operation == "or" and any(id(value) in self.zeros for value in node.inputs):
            mask = next((value for value in node.inputs if id(value) not in self.zeros), None)
            if mask is not None and id(mask) in self.wide:
                self.wide[id(y)] = self.wide[id(mask)]
        elif node.kind == "concatenate" and node["axis"] == last and all(id(value) in self.wide for value in node.inputs):
            masks = [mask for value in node.inputs for mask in self.wide[id(value)]]
            self.wide[id(y)] = tuple({id(mask): mask for mask in masks}.values())
        elif operation == "any" and id(node.x) in self.wide and node["axis"] == len(node.x.shape) - 1 and not node.settings.get("keep"):
            masks = list(self.wide[id(node.x)])
            if len(masks) == 1:
                self.same[id(y)] = masks[0]
                return
        key = (node.kind, tuple(map(id, node.inputs)), tuple(sorted((key, repr(value)) for key, value in node.settings.items())))
        if key in self.first:
            self.same[id(y)] = self.first[key]
            return
        self.first[key] = y
        self.nodes.append(node)

    def _of_any(self, node: Node) -> Node:
        """Return whether any feature differs from a number as one node, where it is two."""
        settings = node.settings
        if settings.get("operation") != "any" or settings.get("keep") or settings.get("axis") != len(node.x.shape) - 1:
            return node
        before = next((other for other in self.nodes if other.y is node.x), None)
        if before is None or before.settings.get("operation") != "not_equal":
            return node
        return replace(node, inputs=before.inputs, settings={"operation": "any differs", "value": float(before["value"])})

    def _model(self, node: Node) -> Node:
        """Let what a model hands through be what was handed in."""
        inner: DescribedModel = node["scope"]
        handed = {id(start): value for start, value in zip(inner.inputs, node.inputs, strict=True)}
        for inside, outside in zip(inner.outputs, node.outputs, strict=True):
            if inside.dtype == "bool" and id(inside) in handed:
                self.same[id(outside)] = handed[id(inside)]
        return node


def simplify(top: DescribedModel) -> None:
    """Simplify the masks of a model and of the models in it; what nothing reads then is left for `prune`."""
    for scope in (*top.inner(), top):
        _Simplification(scope).run()
