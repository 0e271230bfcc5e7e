"""Two directions as two layers."""

from __future__ import annotations

from rnnconvert.core.printable import quoted
from rnnconvert.core.remedies import Setting
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.rewrites.rewrite import Obstacle, Rewrite


def _obstacle(stack: Recurrent) -> Obstacle | None:
    if stack.num_directions == 1:
        return None
    remedy = f"Split it into layers, too: {Setting('stack', 'split')}."
    if stack.num_layers > 1 and stack.join == "layer":
        return Obstacle(quoted(stack.name), "its directions meet at every layer", remedy)
    if any(len(layer.directions) == 1 for layer in stack.layers):
        return Obstacle(quoted(stack.name), "some of its layers read one way", remedy)
    return None


def names_of_directions(name: str) -> tuple[str, str]:
    """Return the names of the two layers that the directions of a layer of this name become."""
    return (f"{name}_forward", f"{name}_backward") if name else ("forward", "backward")


def _change(stack: Recurrent) -> list[Recurrent]:
    """Return a forward and a backward stack, from one layer or from directions that meet only at the end."""
    if stack.num_directions == 1:
        return [stack]
    return [
        Recurrent(
            name,
            tuple(Layer((layer.directions[number],)) for layer in stack.layers),
            output_order=stack.output_order,
            readout=stack.readout[number : number + 1],
            unconvertible=stack.unconvertible,
            wrapped=stack.wrapped,
            calls=stack.calls,
        )
        for number, name in enumerate(names_of_directions(stack.name))
    ]


SPLIT_DIRECTIONS = Rewrite(
    "split directions",
    "Two directions of one layer are two layers that read the same input; the caller joins their outputs.",
    True,
    "directions that meet only at the end",
    _obstacle,
    _change,
)
"""Of a stack, into one that reads forward and one that reads from the end."""


def split_directions(stack: Recurrent) -> list[Recurrent]:
    """Return a forward and a backward stack, from one layer or from directions that meet only at the end.

    Raises ValueError for a deep stack whose directions meet at every layer.

        >>> import rnnconvert as rc
        >>> encoder = rc.load("examples/encoder.keras")["encoder"]
        >>> [(half.name, half.first.reverse) for half in rc.split_directions(encoder)]
        [('encoder_forward', False), ('encoder_backward', True)]
    """
    return SPLIT_DIRECTIONS.apply(stack)
