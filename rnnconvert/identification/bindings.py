"""Which array is which block: arrays of one shape are exchanged for one another, in the orders in which programs write them first."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping

from rnnconvert.language.layout import Shape

_MOST_BINDINGS = 400
"""How many ways of telling arrays of one shape apart are tried."""
_ALL_ORDERS = 720


def bindings(blocks: Mapping[str, Shape], found: Mapping[str, Shape], usual: bool) -> Iterator[dict[str, str]]:
    """Yield the ways of taking one array for each block, by shapes; see Tier for `usual`."""
    classes = []
    for shape in dict.fromkeys(blocks.values()):
        need = tuple(block for block, own in blocks.items() if own == shape)
        have = tuple(name for name, own in found.items() if own == shape)
        if len(have) < len(need):
            return
        classes.append((need, have))
    written = _written(tuple(classes))
    if usual:
        yield from map(dict, written)
        return
    every = [
        itertools.permutations(have, len(need))
        for need, have in classes
        if math.perm(len(have), len(need)) <= _ALL_ORDERS
    ]
    if len(every) == len(classes):
        for chosen in itertools.islice(itertools.product(*every), 4 * _MOST_BINDINGS):
            own = tuple(
                sorted(
                    pair for (need, _), one in zip(classes, chosen, strict=True) for pair in zip(need, one, strict=True)
                )
            )
            if own not in written:
                yield dict(own)


@functools.lru_cache(4096)
def _written(classes: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return the orders in which programs write arrays: layer by layer, part by part, gate by gate, in any nesting."""
    made: dict[tuple[tuple[str, str], ...], None] = {}
    for nesting in itertools.permutations(range(4)):
        choices = []
        for need, have in classes:
            keys = [_key(block) for block in need]
            numbers = sorted({key[0] for key in keys})
            ways = []
            for order in itertools.islice(itertools.permutations(numbers), 24):
                at = {number: place for place, number in enumerate(order)}
                ranked = sorted(
                    zip(keys, need, strict=True),
                    key=lambda one: [at[one[0][0]] if n == 0 else one[0][n] for n in nesting],
                )
                for window in itertools.islice(itertools.combinations(have, len(need)), 60):
                    ways.append(tuple(zip((block for _, block in ranked), window, strict=True)))
            choices.append(list(dict.fromkeys(ways)))
        for chosen in itertools.islice(itertools.product(*choices), _MOST_BINDINGS):
            made[tuple(sorted(pair for pairs in chosen for pair in pairs))] = None
    return tuple(made)


def _key(block: str) -> tuple[int, int, str, int]:
    """Return tensor, layer, direction and gate of a block, as they are sorted."""
    number, layer, direction, gate = block.split("|")
    return int(number), int(layer or 0), "fb".find(direction or "f") * "x", "igforzn".find(gate or "i")
