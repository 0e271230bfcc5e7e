"""Limits of rnnconvert's own modules, and what is left to their caller."""

from __future__ import annotations

from collections.abc import Collection

from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Recurrent
from rnnconvert.rewrites.left_to_caller import flipped, flips, side_by_side, without_state


def check(stack: Recurrent, dtype: str | None = None) -> None:
    """Check that our modules compute this stack.

    Raises RefusedError for an unknown activation, a projection of a cell other than the LSTM, what a source
    computes that the canonical form cannot express, and weights of several element types where none is asked for.
    """

    def refuse(feature: str, reason: str, remedy: str = "") -> RefusedError:
        return RefusedError(feature, "a module of rnnconvert's own", reason, remedy, stack.name)

    for unconvertible in stack.unconvertible:
        raise refuse(unconvertible.feature, unconvertible.reason, f"Take it over and confirm with {unconvertible.option}.")
    for _, _, direction in stack.directions():
        cell = direction.cell
        roles = {"rnn": 1, "gru": 2, "lstm": 3}[cell.kind]
        for function in (cell.activation, cell.gate_activation, cell.output_activation)[:roles]:
            if not function.known:
                raise refuse(f"the activation {function}", "this function is unknown")
        if direction.projection_size and cell.kind != "lstm":
            raise refuse("a projection", f"only the LSTM has one, and this is a {cell.kind}")
        if cell.coupled and cell.kind != "lstm":
            raise refuse("coupled gates", f"only the LSTM has one, and this is a {cell.kind}")
    dtypes = {str(direction.dtype.newbyteorder("=")) for _, _, direction in stack.directions()}
    if len(dtypes) > 1 and dtype is None:
        raise refuse("weights of several element types", f"these are {' and '.join(sorted(dtypes))}", "Choose one with dtype=.")


def taken_over(stack: Recurrent, accepted: Collection[str]) -> Recurrent:
    """Return the stack without what the caller takes over: see rnnconvert.rewrites.fit_to_layout.ACCEPTS."""
    stack = stack.replace(
        unconvertible=tuple(unconvertible for unconvertible in stack.unconvertible if unconvertible.option not in accepted)
    )
    if "merge" in accepted and stack.layers[-1].merge != "none":
        stack = side_by_side(stack)
    if flips(stack) in accepted:
        stack = flipped(stack)
    if "initial_state" in accepted:
        stack = without_state(without_state(stack, "initial_hidden"), "initial_cell")
    return stack
