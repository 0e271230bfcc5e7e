"""Whether a target's layer computes the source's cell."""

from __future__ import annotations

from collections.abc import Mapping

from rnnconvert.core.printable import quoted
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.models.pairs import FilledPair


class MisfitError(Exception):
    """A mismatch, in words."""


_WORDS = {
    "kind": "the cell",
    "reset_after": "the place of the reset gate (reset_after)",
    "activation": "the candidate's function",
    "gate_activation": "the gates' function",
    "output_activation": "the output's function",
    "coupled": "coupled gates",
    "constants": "the constants added at run time",
    "clips": "the clips",
}


def same_cells(pair: FilledPair, stack: Recurrent, fitted: Recurrent) -> None:
    """Raise MisfitError if the target computes another function with these weights."""
    for (_, _, wanted), (_, _, direction) in zip(stack.directions(), fitted.directions(), strict=True):
        for name, word in _WORDS.items():
            ours, theirs = getattr(wanted.cell, name), getattr(direction.cell, name)
            if name in ("gate_activation", "output_activation") and wanted.cell.kind == "rnn":
                continue
            if name == "output_activation" and wanted.cell.kind != "lstm":
                continue
            if ours != theirs and (ours or theirs):
                raise MisfitError(
                    f"{quoted(pair.target.name)}: {word} differs: {_spelled(ours)} in the target, {_spelled(theirs)} in "
                    f"{quoted(pair.source.name)} of the source; make the target with the source's"
                )
        if wanted.reverse != direction.reverse:
            raise MisfitError(
                f"{quoted(pair.target.name)} reads {_way(wanted)}, but {quoted(pair.source.name)} of the source reads {_way(direction)}"
            )
    same_ends(pair, stack, fitted)


def same_ends(pair: FilledPair, stack: Recurrent, fitted: Recurrent) -> None:
    """Raise MisfitError if the target joins or orders its outputs otherwise."""
    if stack.layers[-1].merge != fitted.layers[-1].merge and stack.num_directions > 1:
        raise MisfitError(
            f"{quoted(pair.target.name)} joins its directions by {stack.layers[-1].merge}, but {quoted(pair.source.name)} of the source "
            f"by {fitted.layers[-1].merge}; make the target with merge_mode={fitted.layers[-1].merge!r}"
        )
    if stack.output_order != fitted.output_order:
        raise MisfitError(
            f"{quoted(pair.target.name)} gives its outputs in {stack.output_order} order, but {quoted(pair.source.name)} of the source in "
            f"{fitted.output_order} order"
        )


def _spelled(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{gate} {number:+g}" for gate, number in value.items()) or "none"
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in value) or "none"
    return str(value) or "none"


def _way(direction: Direction) -> str:
    return "from the end" if direction.reverse else "forward"
