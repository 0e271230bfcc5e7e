"""Layers that read one another as one stack."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import quoted
from rnnconvert.core.weights import INPUT, Directly, Input, Recurrent, Through, Unknown
from rnnconvert.rewrites.join_with_zeros import JOIN_WITH_ZEROS
from rnnconvert.rewrites.rewrite import Obstacle, Rewrite


def between(below: Recurrent, above: Recurrent) -> Obstacle | None:
    """Return why a layer is not the one above another in a stack, where their source says so."""
    for stack in (below, above):
        if stack.wrapped:
            return Obstacle(f"{quoted(stack.name)} is {stack.wrapped}", "the weights do not include what that computes")
        if len(stack.calls) > 1:
            return Obstacle(f"{quoted(stack.name)} is called {len(stack.calls)} times in the model", "a stack runs each of its layers once")
        if isinstance(stack.reads, Unknown) and stack.reads.stated:
            return Obstacle(f"what {quoted(stack.name)} reads in the model is not known", stack.reads.why)
    names = f"{quoted(above.name)} does not read {quoted(below.name)}"
    match above.reads:
        case Through(_, changes):
            return Obstacle(f"{names} directly", f"{', '.join(changes)} comes before it in the model")
        case Directly(layers) if layers != below.sources:
            return Obstacle(names, f"it reads {' and '.join(map(repr, layers))}")
        case Input():
            return Obstacle(names, "it reads what no recurrent layer gives")
    return _received(below, above)


def _received(below: Recurrent, above: Recurrent) -> Obstacle | None:
    """Return why two layers do not receive, beyond their sequences, what a stack hands to each of its layers."""
    for stack in (below, above):
        for call in stack.calls:
            if call.random:
                return Obstacle(f"{quoted(stack.name)} is random in the model", call.random)
            if call.states not in ("", INPUT):
                return Obstacle(f"the initial states of {quoted(stack.name)} are given", f"they are {call.states}")
    for words, values in {
        "the initial states": [_states(stack) for stack in (below, above)],
        "the mask": [call.mask for stack in (below, above) for call in stack.calls],
        "the lengths of the sequences": [call.lengths for stack in (below, above) for call in stack.calls],
    }.items():
        if len(values) == 2 and values[0] != values[1]:
            texts = (f"{text or 'none'} for {quoted(stack.name)}" for text, stack in zip(values, (below, above), strict=True))
            return Obstacle(f"{words} of {quoted(below.name)} and {quoted(above.name)} are not the same", ", ".join(texts))
    return None


def _states(stack: Recurrent) -> str:
    """Return where a layer's initial states come from: learned ones are weights, which a stack keeps for each layer."""
    return stack.calls[0].states if stack.calls else ""


def _obstacle(stacks: Sequence[Recurrent], name: str = "") -> Obstacle | None:
    for stack in stacks[:-1]:
        if stack.readout or stack.output_order != "time":
            return Obstacle(f"{quoted(stack.name)} cannot be joined to what follows", "its output is not that of its layer")
    for below, above in itertools.pairwise(stacks):
        if (obstacle := between(below, above)) is not None:
            return obstacle
    try:
        _change(stacks, name)
    except ValueError as error:
        return Obstacle("layers that do not read one another", str(error))
    return None


def _change(stacks: Sequence[Recurrent], name: str = "") -> Recurrent:
    """Return one stack from stacks that read one another, first to last."""
    if len(stacks) > 1:
        stacks = [JOIN_WITH_ZEROS.apply(s) if s.num_layers > 1 else s for s in stacks]
        stacks = [_side_by_side(*pair) for pair in itertools.pairwise(stacks)] + [stacks[-1]]
    layers = tuple(layer for stack in stacks for layer in stack.layers)
    joined = name or "+".join(stack.name for stack in stacks)
    unconvertible = tuple(feature for stack in stacks for feature in stack.unconvertible)
    parts = tuple(part for stack in stacks for part in stack.sources) if len(stacks) > 1 else stacks[0].parts
    join = stacks[0].join if len(stacks) == 1 else "layer"
    return stacks[-1].replace(name=joined, layers=layers, join=join, unconvertible=unconvertible, calls=stacks[0].calls, parts=parts)


def _side_by_side(below: Recurrent, above: Recurrent) -> Recurrent:
    """Return a stack that gives its directions apart as one that gives them side by side, if that is how they are read."""
    last = below.layers[-1]
    if last.merge != "none" or not isinstance(above.reads, Directly):
        return below
    return below.replace(layers=(*below.layers[:-1], replace(last, merge="concat")))


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

        >>> import rnnconvert as rc
        >>> checkpoint = rc.load("examples/encoder.keras")
        >>> rc.join_stack([checkpoint["encoder"], checkpoint["summary"]], "both").num_layers
        2
    """
    if not stacks:
        raise UsageError("no stack was given. Give one or more to join")
    return JOIN_STACK.apply(stacks, name)
