"""What the modules of ours compute, and what is left to their caller."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rnnconvert.errors import RefusedError
from rnnconvert.weights import Direction, Layer, Recurrent


def check(stack: Recurrent, dtype: str | None = None) -> None:
    """Prove that our modules compute this stack.

    Raises RefusedError for an activation that is not known, a projection of another cell than the LSTM, what a source
    computes beyond the canonical form, and weights of several element types where none is asked for.
    """

    def refuse(feature: str, reason: str, remedy: str = "") -> RefusedError:
        return RefusedError(feature, "rnnconvert.modules", reason, remedy, stack.name)

    for beyond in stack.beyond:
        raise refuse(beyond.feature, beyond.reason, f"Take it over and say so: {beyond.option}.")
    for _, _, direction in stack.directions():
        cell = direction.cell
        roles = {"rnn": 1, "gru": 2, "lstm": 3}[cell.kind]
        for function in (cell.activation, cell.gate_activation, cell.output_activation)[:roles]:
            if not function.known:
                raise refuse(f"the activation {function}", "it is not known here what it computes")
        if direction.projection_size and cell.kind != "lstm":
            raise refuse("a projection", f"a {cell.kind} has none, only the LSTM does")
        if cell.coupled and cell.kind != "lstm":
            raise refuse("coupled gates", f"a {cell.kind} has none, only the LSTM does")
    dtypes = {str(direction.dtype.newbyteorder("=")) for _, _, direction in stack.directions()}
    if len(dtypes) > 1 and dtype is None:
        raise refuse(
            "weights of several element types", f"these are {' and '.join(sorted(dtypes))}", "Choose one with dtype=."
        )


def taken_over(stack: Recurrent, accepted: Collection[str]) -> Recurrent:
    """The stack without what the caller takes over: see rnnconvert.represent.ACCEPTS."""
    stack = stack.but(beyond=tuple(beyond for beyond in stack.beyond if beyond.option not in accepted))
    layers = stack.layers
    if "merge" in accepted and layers[-1].merge != "none":
        layers = (*layers[:-1], Layer(layers[-1].directions, "concat"))
    one_way = all(len(layer.directions) == 1 and layer.directions[0].reverse for layer in layers)
    processing = stack.output_order == "processing"
    if one_way and ("output_order" in accepted if processing else "reverse" in accepted):
        layers = tuple(replace(layer, directions=(layer.directions[0].but(reverse=False),)) for layer in layers)
        stack = stack.but(output_order="time")
    if "initial_state" in accepted:
        layers = tuple(Layer(tuple(map(_without_states, layer.directions)), layer.merge) for layer in layers)
    return stack.but(layers=layers)


def _without_states(direction: Direction) -> Direction:
    return direction.with_arrays({("initial_hidden", ""): None, ("initial_cell", ""): None})
