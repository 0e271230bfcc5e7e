"""A described model without what a person would not write: masks that are computed twice, or handed through a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rnnconvert.scaffolding import kinds
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
        self.first: dict[object, tuple[Value, ...]] = {}
        self.nodes: list[Node[kinds.Kind]] = []

    def resolved(self, value: Value) -> Value:
        return self.same.get(id(value), value)

    def all_known(self, values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(map(self.resolved, values))

    def run(self) -> None:
        for node in self.scope.nodes:
            named = {key: self.all_known(values) for key, values in node.named.items()}
            node = replace(node, inputs=self.all_known(node.inputs), named=named)
            if isinstance(node.kind, kinds.Model):
                self._model(node, node.kind.scope)
            elif node.y.dtype == "bool" and not node.layer:
                self._mask(node)
                continue
            self.nodes.append(node)
        self.scope.nodes = self.nodes
        self.scope.outputs = self.all_known(self.scope.outputs)

    def _mask(self, node: Node[kinds.Kind]) -> None:
        """Append what makes a mask, unless it is there already, or is simpler."""
        node = self._of_any(node)
        kind, y, last = node.kind, node.y, len(node.y.shape) - 1
        operation = kind.operation if isinstance(kind, kinds.Mask) else ""
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
        elif isinstance(kind, kinds.Concatenate) and kind.axis == last and all(id(value) in self.wide for value in node.inputs):
            masks = [mask for value in node.inputs for mask in self.wide[id(value)]]
            self.wide[id(y)] = tuple({id(mask): mask for mask in masks}.values())
        elif _is_any(node) and id(node.x) in self.wide:
            masks = list(self.wide[id(node.x)])
            if len(masks) == 1:
                self.same[id(y)] = masks[0]
                return
        key = (kind, len(node.inputs), tuple(map(id, node.reads())))
        if key in self.first:
            self.same.update(zip(map(id, node.outputs), self.first[key], strict=True))
            return
        self.first[key] = node.outputs
        self.nodes.append(node)

    def _of_any(self, node: Node[kinds.Kind]) -> Node[kinds.Kind]:
        """Return whether any feature differs from a number as one node, where it is two."""
        before = next((other for other in self.nodes if other.y is node.x), None) if _is_any(node) else None
        if before is None or not isinstance(before.kind, kinds.Mask) or before.kind.operation != "not_equal":
            return node
        return replace(node, inputs=before.inputs, kind=replace(before.kind, operation="any differs"))

    def _model(self, node: Node[kinds.Kind], inner: DescribedModel) -> None:
        """Let what a model hands through be what was handed in."""
        handed = {id(start): value for start, value in zip(inner.inputs, node.inputs, strict=True)}
        for inside, outside in zip(inner.outputs, node.outputs, strict=True):
            if inside.dtype == "bool" and id(inside) in handed:
                self.same[id(outside)] = handed[id(inside)]


def _is_any(node: Node[kinds.Kind]) -> bool:
    """Return whether a mask is true where any of the last axis of another is."""
    kind = node.kind
    return isinstance(kind, kinds.Mask) and kind.operation == "any" and not kind.keep and kind.axis == len(node.x.shape) - 1


def simplify(top: DescribedModel) -> None:
    """Simplify the masks of a model and of the models in it; what nothing reads then is left for `prune`."""
    for scope in (*top.inner(), top):
        _Simplification(scope).run()
