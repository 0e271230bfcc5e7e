"""What the modules of ours compute, and what is left to their caller."""

from __future__ import annotations

from collections.abc import Collection

from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Recurrent
from rnnconvert.rewrites.left_to_caller import flipped, flips, side_by_side, without_state


def check(stack: Recurrent, dtype: str | None = None) -> None:
    """Prove that our modules compute this stack.

    Raises RefusedError for an activation that is not known, a projection of another cell than the LSTM, what a source
    computes beyond the canonical form, and weights of several element types where none is asked for.
    """

    def refuse(feature: str, reason: str, remedy: str = "") -> RefusedError:
        return RefusedError(feature, "a module of rnnconvert's own", reason, remedy, stack.name)

    for unconvertible in stack.unconvertible:
        raise refuse(unconvertible.feature, unconvertible.reason, f"Take it over and say so: {unconvertible.option}.")
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
    """The stack without what the caller takes over: see rnnconvert.rewrites.fit_to_layout.ACCEPTS."""
    stack = stack.replace(
        unconvertible=tuple(
            unconvertible for unconvertible in stack.unconvertible if unconvertible.option not in accepted
        )
    )
    if "merge" in accepted and stack.layers[-1].merge != "none":
        stack = side_by_side(stack)
    if flips(stack) in accepted:
        stack = flipped(stack)
    if "initial_state" in accepted:
        stack = without_state(without_state(stack, "initial_hidden"), "initial_cell")
    return stack
