"""Which array is which block: arrays of one shape are exchanged for one another, in the orders in which programs write them first."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from rnnconvert.core.weights import BIAS_PARTS
from rnnconvert.language.layout import Layout, Shape

_MOST_BINDINGS = 400
"""How many ways of telling arrays of one shape apart are tried."""
_ALL_ORDERS = 720
_MOST_DEALT = 8000


def bindings(
    layout: Layout, blocks: Mapping[str, Shape], shapes: Mapping[str, Shape], common_only: bool, tied: bool
) -> Iterator[dict[str, str]]:
    """Yield the ways of taking one array for each block, by shapes; see SearchRound for `common_only` and `tied`.

    Where the gates of each part are in any order, the gate orders decide which array of a part is which gate.
    """
    classes = []
    for shape in dict.fromkeys(blocks.values()):
        need = tuple(block for block, block_shape in blocks.items() if block_shape == shape)
        have = tuple(name for name, block_shape in shapes.items() if block_shape == shape)
        if len(have) < len(need):
            return
        classes.append((need, have))
    written = _written(tuple(classes))
    if common_only:
        yield from map(dict, written)
        return
    if not tied and len({block.partition("|")[2].rpartition("|")[0] for block in blocks} - {"|"}) <= 1:
        chosen_of = [list(itertools.islice(_dealt(layout, *class_), _MOST_DEALT)) for class_ in classes]
        for parts in itertools.islice(itertools.product(*chosen_of), _MOST_DEALT):
            yield dict(pair for pairs in parts for pair in pairs)
        return
    every = [itertools.permutations(have, len(need)) for need, have in classes if math.perm(len(have), len(need)) <= _ALL_ORDERS]
    if len(every) == len(classes):
        for chosen in itertools.islice(itertools.product(*every), 4 * _MOST_BINDINGS):
            binding = tuple(
                sorted(pair for (need, _), dealt in zip(classes, chosen, strict=True) for pair in zip(need, dealt, strict=True))
            )
            if binding not in written:
                yield dict(binding)


def _dealt(layout: Layout, need: tuple[str, ...], have: tuple[str, ...]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield the ways of dealing arrays of one shape out to the tensors of one layer, each of which takes its own in any order.

    The two biases of a gate are added: which of them is which matters for the candidate of a GRU alone.
    """
    families: dict[int, list[str]] = {}
    for block in need:
        families.setdefault(_key(block)[0], []).append(block)
    parts = {number: layout.tensors[number].part_names for number in families}
    first, second = (next((n for n in families if parts[n] == {part}), None) for part in BIAS_PARTS)
    paired = first is not None and second is not None and len(families[first]) == len(families[second])
    orders = [number for number in families if not paired or number not in (first, second)]
    for dealt, left in _dealt_families([families[number] for number in orders], have):
        if not paired or first is None or second is None:
            yield dealt
            continue
        for pairs in _pairs(left):
            for way in (1, -1) if layout.kind == "gru" else (1,):
                both = zip(families[first], families[second], pairs, strict=True)
                yield dealt + tuple(name for a, b, pair in both for name in zip((a, b), pair[::way], strict=True))


def _dealt_families(
    families: Sequence[Sequence[str]], have: tuple[str, ...]
) -> Iterator[tuple[tuple[tuple[str, str], ...], tuple[str, ...]]]:
    """Yield which arrays each family of blocks may take, and which are left."""
    if not families:
        yield (), have
        return
    for combination in itertools.combinations(have, len(families[0])):
        rest = tuple(name for name in have if name not in combination)
        for more, left in _dealt_families(families[1:], rest):
            yield (*zip(families[0], combination, strict=True), *more), left


def _pairs(names: tuple[str, ...]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield the ways of making pairs of names."""
    if not names:
        yield ()
    for other in names[1:]:
        for rest in _pairs(tuple(name for name in names[1:] if name != other)):
            yield ((names[0], other), *rest)


@functools.lru_cache(4096)
def _written(classes: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return the orders in which programs write arrays: layer by layer, part by part, gate by gate, in any nesting."""
    ordered: dict[tuple[tuple[str, str], ...], None] = {}
    for nesting in itertools.permutations(range(4)):
        choices = []
        for need, have in classes:
            keys = [_key(block) for block in need]
            numbers = sorted({key[0] for key in keys})
            ways = []
            for order in itertools.islice(itertools.permutations(numbers), 24):
                at = {number: place for place, number in enumerate(order)}
                ranked = sorted(
                    zip(keys, need, strict=True), key=lambda pairs: [at[pairs[0][0]] if n == 0 else pairs[0][n] for n in nesting]
                )
                for window in itertools.islice(itertools.combinations(have, len(need)), 60):
                    ways.append(tuple(zip((block for _, block in ranked), window, strict=True)))
            choices.append(list(dict.fromkeys(ways)))
        for chosen in itertools.islice(itertools.product(*choices), _MOST_BINDINGS):
            ordered[tuple(sorted(pair for pairs in chosen for pair in pairs))] = None
    return tuple(ordered)


def _key(block: str) -> tuple[int, int, str, int]:
    """Return tensor, layer, direction and gate of a block, as they are sorted."""
    number, layer, direction, gate = block.split("|")
    return int(number), int(layer or 0), "fb".find(direction or "f") * "x", "igforzn".find(gate or "i")
