"""Features that a caller may take over from a layer: no rewrite, since the file alone then computes something else."""

from __future__ import annotations

from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.rewrites.arrays import drop, each

ACCEPTS: dict[str, tuple[str, str]] = {
    "merge": ("concat", "you join the last layer's directions yourself"),
    "output_order": ("time", "you put the outputs of a go_backwards layer into processing order yourself"),
    "initial_state": ("call", "you pass the learned initial state at every call"),
    "unaccounted": ("harmless", "you know that what else the file states does not change what the layer computes"),
    "reverse": ("flipped", "you flip the sequences before, and the outputs after, a layer that reads from the end"),
}
"""The features that a caller may take over: the option, the value that confirms it, and its meaning."""


def flips(stack: Recurrent) -> str:
    """Return the option by which one flip outside of the stack makes it read forward, or "" if there is none."""
    ways = {tuple(direction.reverse for direction in layer.directions) for layer in stack.layers}
    if ways != {(True,)}:
        return ""
    return "output_order" if stack.output_order == "processing" else "reverse"


def flipped(stack: Recurrent) -> Recurrent:
    """Return the stack as one that reads forward: the caller flips its sequences."""
    assert flips(stack)
    return each(stack.replace(output_order="time"), lambda d: d.replace(reverse=False))


def side_by_side(stack: Recurrent) -> Recurrent:
    """Return the stack with its last directions side by side: the caller joins them."""
    return stack.replace(layers=(*stack.layers[:-1], Layer(stack.layers[-1].directions, "concat")))


def without_state(stack: Recurrent, part: str) -> Recurrent:
    """Return the stack without its learned states: the caller passes them."""
    return each(stack, lambda d: drop(d, part))
