"""Layers in a row, of which each reads the one before: what files state that list their layers and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rnnconvert.core.weights import Call, Directly, Input, Through


def in_a_row(row: Sequence[tuple[str, str]], layers: Collection[str]) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each recurrent layer of a row, by its name.

    row     the name of each layer, and its name in messages
    layers  the names of the recurrent ones
    """
    received: dict[str, tuple[Call, ...]] = {}
    below, between = "", dict[str, None]()
    for name, label in row:
        if name not in layers:
            between[label] = None
            continue
        if not below:
            received[name] = (Call(Input()),)
        else:
            received[name] = (Call(Through((below,), tuple(between)) if between else Directly((below,))),)
        below, between = name, {}
    return received
