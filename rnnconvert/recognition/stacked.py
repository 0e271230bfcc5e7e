"""Operators that are a whole stack of recurrent layers, as cuDNN's is: written layer by layer, each reading the one before it.

Such an operator reads (time, batch, features) and gives (time, batch, units of both directions); its states are those of all layers and
directions, (layers x directions, batch, units).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import unique
from rnnconvert.graphs.graph import CallSizes
from rnnconvert.graphs.program.lowering import Block
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.recognition.flow import FINAL_WORDS, PlacedCall, ReadProgram, RecurrentCall

SingleCall: TypeAlias = tuple[Recurrent, RecurrentCall, Sequence[str]]
"""A layer of a stack, as a stack of one; its call; and the values of its weights."""


@dataclass(frozen=True)
class ReadStacks(ReadProgram):
    """A program, and the layer of each of its calls: an operator may be a whole stack, and one layer may have several."""

    singles: Mapping[str, Recurrent] = field(default_factory=dict)


def placed(scope: Scope, calls: Iterable[SingleCall]) -> tuple[dict[str, PlacedCall], dict[str, Recurrent]]:
    """Return the calls of layers with the operations that they are, and the layer of each, by a name for each call."""
    places, singles = dict[str, PlacedCall](), dict[str, Recurrent]()
    for single, call, weights in calls:
        node, _ = scope.producer(next(iter(call.outputs))) or (None, 0)
        if node is not None:
            name = unique(single.name, places)
            places[name], singles[name] = PlacedCall(scope, node, call, weights), single
    return places, singles


@dataclass(frozen=True)
class StackOperator:
    """An operator that is a stack.

    kind     its name, and the domain of what is written
    label    its name in the file
    reads    the value of its sequence
    gives    the values of its outputs, and of its final states, the hidden one first
    states   the values of the states that it begins with; none where they are zeros
    lengths  the value of the lengths of its sequences, if it has one
    """

    kind: str
    domain: str
    label: str
    reads: str
    gives: Sequence[str]
    states: Sequence[str] = ()
    lengths: Sequence[str] = ()

    def call(self, stack: Recurrent) -> RecurrentCall:
        """Return its call, for a stack of one layer or of several."""
        sizes = CallSizes(stack.layers[-1].output_size, dtype=stack.dtype, width=stack.input_size)
        finals = dict(zip(self.gives[1:], FINAL_WORDS, strict=False))
        return RecurrentCall((self.reads, "tbi"), {self.gives[0]: "tbu"}, sizes, finals, self.states, self.lengths)

    def write(self, block: Block, singles: Sequence[Recurrent]) -> list[tuple[Recurrent, RecurrentCall]]:
        """Add an operation for each layer; return the layers with their calls.

        singles  the layers, each as a stack of one
        """
        ways, value, calls, ends = singles[0].num_directions, self.reads, list[tuple[Recurrent, RecurrentCall]](), list[Sequence[str]]()
        for number, single in enumerate(singles):
            alone = len(singles) == 1
            bounds: dict[str, Any] = {"axes": [0], "starts": [number * ways], "ends": [(number + 1) * ways]}
            outputs = list(self.gives) if alone else [f"{name}/layer {number}" for name in self.gives]
            outputs[0] = self.gives[0] if number == len(singles) - 1 else outputs[0]
            states = self.states if alone else [block.add("Slice", [state], **bounds) for state in self.states]
            block.add(self.kind, [value, *states, *self.lengths], outputs, self.label, self.domain)
            layer = StackOperator(self.kind, self.domain, self.label, value, outputs, states, self.lengths)
            calls.append((single, layer.call(single)))
            value = outputs[0]
            ends.append(outputs[1:])
        for name, parts in zip(self.gives[1:], zip(*ends, strict=True), strict=True):
            if len(singles) > 1:
                block.add("Concat", parts, [name], axis=0)
        return calls
