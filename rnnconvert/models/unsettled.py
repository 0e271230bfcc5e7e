"""Layers that nothing pairs, and what a user could say of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from rnnconvert.core.printable import quoted
from rnnconvert.core.remedies import Flag
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.options import BACKWARDS
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.names import listing
from rnnconvert.models.pairs import Choice, Pairing


def unsettled(pairing: Pairing, target: Model, source: Model, inline: int = 0, by_name: bool = False) -> list[str]:
    """Return the open ends that a strict transplant does not allow; if names share one memory, one of them is enough.

    inline  how many numbers an array of no layer may have that the code around the target states itself
    by_name  whether the code around the target, whose layers were paired by name, is known to read nothing else from the source
    """
    filled = target.memory(name for filled_pair in pairing.pairs for name in filled_pair.target.arrays)
    used = source.memory(name for used_pair in pairing.pairs for name in used_pair.source.arrays)
    problems = [*map(str, pairing.ambiguous), *_remedies(pairing, target, source)]
    problems += [
        f"nothing in the source fits {quoted(unit.name)} of the target ({_what(target, unit)}){_nearest(unit, pairing, target, source)}"
        for unit in pairing.unfilled
        if not target.memory(unit.arrays) <= filled
    ]
    problems += [
        f"nothing in the target takes {quoted(unit.name)} of the source ({_what(source, unit)}){_elsewhere(unit, pairing)}"
        for unit in pairing.unused
        if not source.memory(unit.arrays) <= used
        and not (by_name or (unit.kinds == ("array",) and all(source.arrays[name].size <= inline for name in unit.arrays)))
    ]
    return problems


def _remedies(pairing: Pairing, target: Model, source: Model) -> list[str]:
    """Return the remedy that decides between layers that fit in several ways: once for all of them."""
    choices = pairing.ambiguous
    if not choices:
        return []
    remedy = f"choose {'for each of these ' if len(choices) > 1 else ''}with a mapping (rnnconvert map proposes one)"
    if any(len(choice.targets) == len(choice.sources) for choice in choices):
        remedy += f", {_or_in_order(target, source)}"
    copies = _copies(choices)
    if copies:
        remedy += f"; or fill from one of {listing(copies)} alone, which hold a model each: give its state dictionary as the source"
    return [remedy]


def _copies(choices: Sequence[Choice]) -> tuple[str, ...]:
    """Return the names under which a file has every layer, as one with a model and its moving average does."""
    prefixes: set[tuple[str, ...]] = set()
    for choice in choices:
        if len(choice.sources) < 2 or len(choice.targets) != 1:
            return ()
        parts = [source.split(".") for source in choice.sources]
        shared = sum(1 for _ in itertools.takewhile(lambda last: len(set(last)) == 1, zip(*(part[::-1] for part in parts), strict=False)))
        prefixes.add(tuple(".".join(part[: len(part) - shared]) for part in parts))
    copies = prefixes.pop() if len(choices) > 1 and len(prefixes) == 1 else ()
    return copies if all(copies) else ()


def _or_in_order(target: Model, source: Model) -> str:
    if target.alphabet:
        model = target
    elif source.alphabet:
        model = source
    else:
        model = None
    if model is None:
        return f"or use {Flag('trust-order')} to take them in order"
    return (
        f"or use {Flag('trust-order')} to take them in order, which in {model.title} is alphabetical and does not show "
        "the model's own order"
    )


def _directions(unit: Unit, others: Sequence[Unit], whose: str, pair: Callable[[str], str]) -> str:
    """Return the mapping that pairs both directions of a layer with the two others that may be these; "" where not two may be."""
    complete = unit.stack
    if complete is None or complete.num_layers != 1 or complete.num_directions != 2:
        return ""
    ways = [(other.name, other.stack.first.reverse) for other in others if other.stack is not None and _is_a_way(other.stack, complete)]
    if len(ways) != 2:
        return ""
    forward, backward = (name for name, reverse in sorted(ways, key=lambda way: way[1] or BACKWARDS.search(way[0]) is not None))
    both = f"{forward} + {backward}"
    return (
        f"; if {forward!r} and {backward!r} of the {whose} are its forward and its backward direction, confirm with the "
        f"mapping {pair(both)}"
    )


def _nearest(unit: Unit, pairing: Pairing, target: Model, source: Model) -> str:
    """Return the hint at what the source has instead: its one unpaired layer of the same kind, or both directions as separate layers."""
    if hint := _directions(unit, pairing.unused, "source", lambda ways: f"{unit.name}: {ways}"):
        return hint
    alike = [other for other in pairing.unused if set(other.kinds) & set(unit.kinds)]
    if unit.kinds == ("array",):
        alike = [other for other in alike if _shape(source, other) == _shape(target, unit)]
        confirm = (
            f"; if it is {quoted(alike[0].name)} of the source, confirm with the mapping {unit.name}: {alike[0].name}" if alike else ""
        )
        return confirm if len(alike) == 1 else ""
    if len(alike) != 1:
        return ""
    return f"; the nearest is {quoted(alike[0].name)} ({_what(source, alike[0])})"


def _elsewhere(unit: Unit, pairing: Pairing) -> str:
    """Return what to do about a layer that nothing takes: its two directions in the target, or leaving it out."""
    left_out = f"; to leave it out, use {Flag('partial')}, which leaves out what does not fit"
    return _directions(unit, pairing.unfilled, "target", lambda ways: f"{ways}: {unit.name}") or left_out


def _shape(model: Model, unit: Unit) -> tuple[int, ...]:
    """Return the shape of an array of no layer, without axes of one number."""
    return tuple(length for name in unit.arrays for length in model.arrays[name].shape if length != 1)


def _is_a_way(stack: Recurrent, complete: Recurrent) -> bool:
    """Return whether a stack may be one direction of another."""
    sizes = [(side.cell.kind, side.input_size, side.hidden_size) for side in (stack, complete)]
    return stack.num_layers * stack.num_directions == 1 and sizes[0] == sizes[1]


def _what(model: Model, unit: Unit) -> str:
    if unit.stack is not None:
        return str(unit.stack.describe())
    shapes = ", ".join(f"{local or name} {tuple(model.arrays[name].shape)}" for local, name in unit.names.items())
    kinds = " or ".join(kind.replace("_", " ") for kind in unit.kinds)
    return f"{kinds}: {shapes}"
