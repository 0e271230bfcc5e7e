"""Wrong stacks: what a wrong conversion turns the layers and directions of one into; None where it does not apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.diagnosis.fault_weights import Change, input_halves, with_direction

StackChange = Callable[[Recurrent], Recurrent | None]


def everywhere(change: Change) -> StackChange:
    """Return a fault in every direction that it applies to."""

    def changed(stack: Recurrent) -> Recurrent | None:
        directions = [(index, number, change(direction)) for index, number, direction in stack.directions()]
        if all(direction is None for *_, direction in directions):
            return None
        for index, number, direction in directions:
            if direction is not None:
                stack = with_direction(stack, index, number, direction)
        return stack

    return changed


def _same_shapes(direction: Direction, other: Direction) -> bool:
    return {key: s.shape for key, s in direction.arrays.items()} == {key: s.shape for key, s in other.arrays.items()}


def directions_swapped(stack: Recurrent) -> Recurrent | None:
    """Give each direction the other's weights."""
    layers = [layer for layer in map(_exchanged, stack.layers) if layer is not None]
    return stack.replace(layers=tuple(layers)) if len(layers) == stack.num_layers else None


def _exchanged(layer: Layer) -> Layer | None:
    """Return a layer with the weights of each direction in the other; None where there are no two of one shape."""
    if len(layer.directions) < 2 or not _same_shapes(*layer.directions):
        return None
    ahead, other = layer.directions
    return Layer((other.replace(reverse=ahead.reverse), ahead.replace(reverse=other.reverse)), layer.merge)


def input_halves_above(stack: Recurrent) -> Recurrent | None:
    """Let every layer above a bidirectional one read the halves of its input in the other order."""
    if stack.join == "end":
        return None
    changed = stack
    for index, number, direction in stack.directions():
        below = stack.layers[index - 1] if index else None
        if below is None or len(below.directions) < 2 or below.merge not in ("concat", "none"):
            continue
        exchanged = input_halves(direction)
        if exchanged is not None:
            changed = with_direction(changed, index, number, exchanged)
    return None if changed is stack else changed


def layers_exchanged(first_index: int, other: int) -> StackChange:
    """Give each of two layers the other's weights."""

    def change(stack: Recurrent) -> Recurrent | None:
        first, second = stack.layers[first_index], stack.layers[other]
        if len(first.directions) != len(second.directions) or not all(map(_same_shapes, first.directions, second.directions)):
            return None
        layers = list(stack.layers)
        layers[first_index], layers[other] = Layer(second.directions, first.merge), Layer(first.directions, second.merge)
        return stack.replace(layers=tuple(layers))

    return change


def directions_exchanged(layer: int) -> StackChange:
    """Give each direction of one layer the other's weights."""

    def change(stack: Recurrent) -> Recurrent | None:
        exchanged = _exchanged(stack.layers[layer])
        return None if exchanged is None else stack.replace(layers=(*stack.layers[:layer], exchanged, *stack.layers[layer + 1 :]))

    return change


def layers_reversed(stack: Recurrent) -> Recurrent | None:
    """Put the last layer first."""
    if stack.num_layers < 2 or stack.join == "end" or stack.readout:
        return None
    try:
        changed = stack.replace(layers=stack.layers[::-1])
    except ValueError:  # a layer does not read what the one above gives
        return None
    # It must read the same input, and start from the same states.
    widths = [[(d.hidden_size, d.output_size) for _, _, d in version.directions()] for version in (stack, changed)]
    return changed if widths[0] == widths[1] and changed.input_size == stack.input_size else None


def merged_as(merge: Literal["sum", "ave", "mul"]) -> Callable[[Recurrent], Recurrent | None]:
    """Join directions by another operation on values."""

    def change(stack: Recurrent) -> Recurrent | None:
        others = [la for la in stack.layers if la.merge in ("sum", "ave", "mul") and la.merge != merge]
        layers = tuple(Layer(la.directions, merge) if la in others else la for la in stack.layers)
        return stack.replace(layers=layers) if others and stack.num_directions == 2 else None

    return change


def forward(d: Direction) -> Direction | None:
    """Let a direction that reads from the end read from the start."""
    return d.replace(reverse=False) if d.reverse else None
