"""A stack as its layers."""

from __future__ import annotations

from rnnconvert.core.weights import Recurrent
from rnnconvert.rewrites.join_with_zeros import JOIN_WITH_ZEROS
from rnnconvert.rewrites.rewrite import Rewrite, always


def _change(stack: Recurrent) -> list[Recurrent]:
    """Return one stack for each layer, named after the layer's number."""
    if stack.num_layers == 1:
        return [stack]
    stack = JOIN_WITH_ZEROS.apply(stack)
    last = stack.num_layers - 1
    return [
        Recurrent(
            f"{stack.name}_l{index}" if stack.name else f"layer_{index}",
            (layer,),
            output_order=stack.output_order if index == last else "time",
            readout=stack.readout if index == last else (),
            unconvertible=stack.unconvertible,
            wrapped=stack.wrapped,
        )
        for index, layer in enumerate(stack.layers)
    ]


SPLIT_STACK = Rewrite("split a stack into layers", "A stack is its layers, each reading the one below.", True, "", always, _change)
"""Of a stack, into stacks of one layer."""


def split_stack(stack: Recurrent) -> list[Recurrent]:
    """Return one stack for each layer, named after the layer's number.

    >>> import rnnconvert as rc
    >>> checkpoint = rc.load("examples/encoder.keras")
    >>> stack = rc.join_stack([checkpoint["encoder"], checkpoint["summary"]], "both")
    >>> [layer.name for layer in rc.split_stack(stack)]
    ['both_l0', 'both_l1']
    """
    return SPLIT_STACK.apply(stack)
