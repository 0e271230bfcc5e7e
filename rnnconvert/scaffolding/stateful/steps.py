"""Which axis of each tensor is the time of a stream, and whether a step is computed of itself and of those before it alone.

A layer may be cut between any two steps if it gives a step of that step alone, as a dense layer does, or if what it needs of the steps
before is in its states. What the last step decides, such as the last output of a recurrent layer, stands for the stream so far.
"""

from __future__ import annotations

from collections.abc import Sequence

from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import ComputedLength, DescribedModel, Length, Node
from rnnconvert.scaffolding.stateful.rules import OTHERS, RULES, SO_FAR, Place, Rule
from rnnconvert.scaffolding.walk import ModelWalk

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


class StreamSteps(ModelWalk[Place]):
    """The tensors of a model, followed from its inputs on: what stands for one is where its time is.

    carried  the recurrent nodes, by what they give first, whose states last from one piece to the next
    seen     how many nodes were followed
    misplaced  whether a recurrent layer has another axis for its time
    """

    title, unknown = STREAM, OTHERS

    def __init__(self, scope: DescribedModel, inputs: Sequence[Place]) -> None:
        super().__init__(scope, RULES)
        self.carried: set[int] = set()
        self.seen = 0
        self.misplaced = False
        self._called: dict[int, list[Place]] = {}
        self._held |= zip(map(id, scope.inputs), inputs, strict=True)

    def visit(self, node: Node[kinds.Kind]) -> None:
        self.seen += 1
        if isinstance(node.kind, kinds.LeftOut):
            raise node.kind.error
        if isinstance(node.kind, kinds.Model):
            self._check_called(node, node.kind.scope)
            self.enter(node, node.kind.scope)
            return
        place = self._place(node)
        for value in node.outputs:
            self.hand(value, place)
        if isinstance(node.kind, kinds.Recurrent) and place is not None:
            self._ends(node, node.kind.sequences)

    def _place(self, node: Node[kinds.Kind]) -> Place:
        """Return where the time is in what a node gives."""
        places = {self(value) for value in node.reads()}
        if places <= {None} or self._reads_sizes(node):
            return None
        if places <= {None, SO_FAR}:
            return SO_FAR
        rule: Rule = self.rule(node)
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
            self.hand(value, SO_FAR)

    def _check_called(self, node: Node[kinds.Kind], scope: DescribedModel) -> None:
        """Raise RefusedError for a model in the model that was called before on what has its time elsewhere."""
        places = [self(value) for value in node.inputs]
        if self._called.setdefault(id(scope), places) != places:
            raise self.refused(node, "a model that is called on steps and on what has none", "its layers go on in one call alone")

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
