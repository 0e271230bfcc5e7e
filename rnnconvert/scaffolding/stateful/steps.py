"""Which axis of each tensor is the time of a stream, and whether a step is computed of itself and of those before it alone.

A layer may be cut between any two steps if it gives a step of that step alone, as a dense layer does, or if what it needs of the steps
before is in its states. What the last step decides, such as the last output of a recurrent layer, stands for the stream so far.
"""

from __future__ import annotations

from collections.abc import Sequence

from rnnconvert.core.errors import RefusedError
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import ComputedLength, DescribedModel, Length, Node, Value
from rnnconvert.scaffolding.stateful.rules import OTHERS, RULES, SO_FAR, Place

STREAM = "a stream"
"""The name in a refusal if no format is known."""


def _sizes_read(kind: kinds.Kind) -> Sequence[Length | int | None] | None:
    """Return the lengths for which a kind may read tensors; None for other kinds."""
    if isinstance(kind, kinds.Full | kinds.LengthsTensor | kinds.View | kinds.Expand | kinds.SplitAxis):
        return kind.lengths
    if isinstance(kind, kinds.Range):
        return kind.start, kind.stop
    if isinstance(kind, kinds.SliceBetween):
        return kind.start, kind.end
    return (kind.index,) if isinstance(kind, kinds.SelectBetween) else None


class StreamSteps:
    """The tensors of a model, followed from its inputs on.

    scope    the model whose nodes are being followed
    carried  the recurrent nodes, by what they give first, whose states last from one piece to the next
    seen     how many nodes were followed
    misplaced  whether a recurrent layer has another axis for its time
    """

    def __init__(self, scope: DescribedModel, inputs: Sequence[Place]) -> None:
        self.scope = scope
        self.carried: set[int] = set()
        self.seen = 0
        self.misplaced = False
        self._called: dict[int, list[Place]] = {}
        self._places: dict[int, Place] = dict(zip(map(id, scope.inputs), inputs, strict=True))

    def __call__(self, value: Value) -> Place:
        """Return where the time of a tensor is."""
        return self._places[id(value)]

    def refused(self, node: Node[kinds.Kind], feature: str, reason: str, remedy: str = "") -> RefusedError:
        """Return the refusal of a layer."""
        layer = self.scope.inside(node.label)
        return RefusedError(feature, STREAM, reason, remedy, layer)

    def run(self) -> None:
        """Follow all nodes. Raises RefusedError for one that cannot be computed piece by piece."""
        for node in self.scope.nodes:
            self.seen += 1
            if isinstance(node.kind, kinds.LeftOut):
                raise node.kind.error
            if isinstance(node.kind, kinds.Model):
                self._model(node, node.kind.scope)
                continue
            place = self._place(node)
            for value in node.outputs:
                self._places[id(value)] = place
            if isinstance(node.kind, kinds.Recurrent) and place is not None:
                self._ends(node, node.kind.sequences)

    def _place(self, node: Node[kinds.Kind]) -> Place:
        """Return where the time is in what a node gives."""
        places = {self(value) for value in node.reads()}
        if places <= {None} or self._reads_sizes(node):
            return None
        if places <= {None, SO_FAR}:
            return SO_FAR
        rule = RULES.get(type(node.kind))
        if rule is None:
            raise self.refused(node, f"a layer of kind {node.kind.word!r}", OTHERS)
        if SO_FAR in places:
            raise self.refused(node, "steps beside what the last step gives", "a step would depend on those behind it")
        return rule(self, node)

    def _reads_sizes(self, node: Node[kinds.Kind]) -> bool:
        """Return whether a node reads sequences for their sizes alone, and none of these is the number of steps."""
        stated, alone = _sizes_read(node.kind), isinstance(node.kind, kinds.Full | kinds.LengthsTensor | kinds.Range)
        if stated is None or (not alone and self(node.x) is not None):
            return False
        return not any(self.reads_time(node, length) for length in stated if length is not None)

    def _ends(self, node: Node[kinds.Kind], sequences: bool) -> None:
        """Note the outputs of a recurrent layer that are not sequences: its last states."""
        for value in node.outputs if not sequences else node.outputs[1:]:
            self._places[id(value)] = SO_FAR

    def _model(self, node: Node[kinds.Kind], scope: DescribedModel) -> None:
        outer, self.scope = self.scope, scope
        places = [self(value) for value in node.inputs]
        if self._called.setdefault(id(self.scope), places) != places:
            self.scope = outer
            raise self.refused(node, "a model that is called on steps and on what has none", "its layers go on in one call alone")
        self._places |= {id(inside): self(value) for inside, value in zip(self.scope.inputs, node.inputs, strict=True)}
        self.run()
        self._places |= {id(value): self(inside) for value, inside in zip(node.outputs, self.scope.outputs, strict=True)}
        self.scope = outer

    def reads_time(self, node: Node[kinds.Kind], length: Length | int) -> bool:
        """Return whether a length depends on how many steps a piece has."""
        if isinstance(length, int):
            return False
        factors = [factor for _, several in length.terms for factor in several]
        return any(
            any(self.reads_time(node, operand) for operand in factor.operands)
            if isinstance(factor, ComputedLength)
            else self(node.inputs[factor[0]]) == factor[1]
            for factor in factors
        )
