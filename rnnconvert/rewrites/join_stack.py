"""Layers that read one another as one stack."""

from __future__ import annotations

from collections.abc import Sequence

from rnnconvert.rewrites.join_with_zeros import JOIN_WITH_ZEROS
from rnnconvert.rewrites.rewrite import Obstacle, Rewrite
from rnnconvert.weights import Recurrent


def _obstacle(stacks: Sequence[Recurrent], name: str = "") -> Obstacle | None:
    for stack in stacks[:-1]:
        if stack.readout or stack.output_order != "time":
            return Obstacle(f"{stack.name!r} cannot be joined to what follows", "its output is not its layer's own")
    try:
        _change(stacks, name)
    except ValueError as error:
        return Obstacle("layers that do not read one another", str(error))
    return None


def _change(stacks: Sequence[Recurrent], name: str = "") -> Recurrent:
    """One stack from stacks that read one another, first to last."""
    if len(stacks) > 1:
        stacks = [JOIN_WITH_ZEROS.apply(s) if s.num_layers > 1 else s for s in stacks]
    layers = tuple(layer for stack in stacks for layer in stack.layers)
    joined = name or "+".join(stack.name for stack in stacks)
    beyond = tuple(one for stack in stacks for one in stack.beyond)
    join = stacks[0].join if len(stacks) == 1 else "layer"
    return stacks[-1].but(name=joined, layers=layers, join=join, beyond=beyond)


JOIN_STACK = Rewrite(
    "join layers into one stack",
    "Layers that read one another are one stack.",
    True,
    "nothing between the layers, each as wide as the next one reads",
    _obstacle,
    _change,
)
"""Of stacks, first to last; name: the stack's, their names joined by + if it has none."""


def join_stack(stacks: Sequence[Recurrent], name: str = "") -> Recurrent:
    """One stack from stacks that read one another, first to last.

    Raises ValueError if a width differs from what is read, or if what lies between them cannot be joined:
    a folded projection, outputs in processing order.
    """
    return JOIN_STACK.apply(stacks, name)
