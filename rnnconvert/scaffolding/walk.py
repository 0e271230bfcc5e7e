"""A walk through the nodes of a described model, each by the rule of its kind: for all that makes something of a whole model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import DescribedModel, Node, Rules, Value, joined_path, on
from rnnconvert.scaffolding.weights import LayerWeights

Held = TypeVar("Held")
"""What stands for a tensor of the description in what is being made."""


class ModelWalk(Generic[Held]):
    """A walk through a model and the models in it.

    title     what is being made, as a refusal names it
    unknown   why a node is refused whose kind has no rule
    scope     the model whose nodes are visited: the outermost, or one in it
    position  which of its nodes is visited
    """

    title: str
    unknown: str

    def __init__(self, scope: DescribedModel, rules: Rules) -> None:
        self.scope, self.rules, self.position = scope, rules, 0
        self._prefix = ""
        self._held: dict[int, Held] = {}

    @property
    def visited(self) -> Node[kinds.Kind]:
        """The node that is visited."""
        return self.scope.nodes[self.position]

    def __call__(self, value: Value) -> Held:
        """Return the counterpart of a tensor in what is being made."""
        return self._held[id(value)]

    def hand(self, value: Value, held: Held) -> None:
        """Let a tensor be what stands for another one."""
        self._held[id(value)] = held

    def label(self, node: Node[kinds.Kind]) -> str:
        """Return the name of a node, with those of the calls of models around it: its layer's path, or its output's name."""
        return joined_path(self._prefix, node.label)

    def path(self, node: Node[kinds.Kind]) -> str:
        """Return the path in the source of a node's layer."""
        return self.scope.inside(node.source)

    def refused(self, node: Node[kinds.Kind], feature: str, reason: str, remedy: str = "") -> RefusedError:
        """Return the refusal of a node."""
        return RefusedError(feature, self.title, reason, remedy, self.scope.inside(node.label))

    def rule(self, node: Node[kinds.Kind]) -> Callable[[Any, Node[Any]], Any]:
        """Return the rule of a node. Raises RefusedError for a kind without one, and for what the description leaves out."""
        if isinstance(node.kind, kinds.LeftOut):
            raise node.kind.error
        rule = self.rules.get(type(node.kind))
        if rule is None:
            raise self.refused(node, f"a layer of kind {node.kind.word!r}", self.unknown)
        return rule

    def visit(self, node: Node[kinds.Kind]) -> None:
        """Add what a node is. Raises RefusedError for one without an equivalent."""
        self.rule(node)(self, node)

    def run(self, scope: DescribedModel, prefix: str = "") -> None:
        """Visit the nodes of a model. Raises RefusedError for one without an equivalent.

        prefix  the beginning of their labels
        """
        around = self.scope, self._prefix, self.position
        self.scope, self._prefix = scope, prefix
        for self.position, node in enumerate(scope.nodes):
            self.visit(node)
        self.scope, self._prefix, self.position = around

    def enter(self, node: Node[kinds.Kind], scope: DescribedModel) -> None:
        """Visit the nodes of a model in the model, which a node calls, as if they stood among the nodes around it."""
        for inside, outside in zip(scope.inputs, node.inputs, strict=True):
            self.hand(inside, self(outside))
        self.run(scope, self.label(node))
        for outside, inside in zip(node.outputs, scope.outputs, strict=True):
            self.hand(outside, self(inside))


INNER: Rules = on(kinds.Model, lambda walk, node: walk.enter(node, node.kind.scope))
"""The rule of a model in the model: its nodes are added among those around it."""


class LayerWalk(ModelWalk[Held]):
    """A walk that takes the weights of the layers along.

    weights  the weights of the layers
    """

    def __init__(self, scope: DescribedModel, rules: Rules, weights: LayerWeights) -> None:
        super().__init__(scope, rules)
        self.weights = weights

    def parts(self, node: Node[kinds.Kind], kind: str, inner: str = "") -> dict[str, Array]:
        """Return the canonical weights of a node's layer, or of a layer within it, by part. Raises RefusedError where it has none."""
        return self.weights.parts(joined_path(self.path(node), inner), kind)
