"""Layers that read one another as one stack."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import quoted
from rnnconvert.core.weights import Recurrent
from rnnconvert.rewrites.join_with_zeros import JOIN_WITH_ZEROS
from rnnconvert.rewrites.rewrite import Obstacle, Rewrite


def between(below: Recurrent, above: Recurrent) -> Obstacle | None:
    """Return why a layer does not read another one directly, where their source says so."""
    for one in (below, above):
        if one.wrapped:
            return Obstacle(f"{quoted(one.name)} is {one.wrapped}", "the weights do not include what that computes")
    if above.reads is not None and above.reads.through:
        return Obstacle(
            f"{above.name!r} does not read {below.name!r} directly",
            f"{', '.join(above.reads.through)} comes before it in the model",
        )
    if above.reads is not None and above.reads.layers and below.name not in above.reads.layers:
        return Obstacle(
            f"{above.name!r} does not read {below.name!r}", f"it reads {' and '.join(map(repr, above.reads.layers))}"
        )
    return None


def _obstacle(stacks: Sequence[Recurrent], name: str = "") -> Obstacle | None:
    for stack in stacks[:-1]:
        if stack.readout or stack.output_order != "time":
            return Obstacle(
                f"{quoted(stack.name)} cannot be joined to what follows", "its output is not that of its layer"
            )
    for below, above in itertools.pairwise(stacks):
        if (found := between(below, above)) is not None:
            return found
    try:
        _change(stacks, name)
    except ValueError as error:
        return Obstacle("layers that do not read one another", str(error))
    return None


def _change(stacks: Sequence[Recurrent], name: str = "") -> Recurrent:
    """Return one stack from stacks that read one another, first to last."""
    if len(stacks) > 1:
        stacks = [JOIN_WITH_ZEROS.apply(s) if s.num_layers > 1 else s for s in stacks]
    layers = tuple(layer for stack in stacks for layer in stack.layers)
    joined = name or "+".join(stack.name for stack in stacks)
    unconvertible = tuple(one for stack in stacks for one in stack.unconvertible)
    join = stacks[0].join if len(stacks) == 1 else "layer"
    return stacks[-1].replace(name=joined, layers=layers, join=join, unconvertible=unconvertible, reads=stacks[0].reads)


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
    """Return one stack from stacks that read one another, first to last.

    Raises ValueError if the widths of neighbours differ, or if the stacks cannot be joined because of a folded projection or
    outputs in processing order; UsageError for none.
    """
    if not stacks:
        raise UsageError("no stack was given. Give one or more to join")
    return JOIN_STACK.apply(stacks, name)
