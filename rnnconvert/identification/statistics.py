"""What names, shapes and numbers suggest about arrays of unknown origin: candidates with their evidence, never a verdict."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import BIAS_PARTS
from rnnconvert.identification.bindings import bindings
from rnnconvert.identification.reading import Blocks, blocks_of
from rnnconvert.identification.structures import Structure, enough, template_of
from rnnconvert.language import registry
from rnnconvert.language.fitting import fits
from rnnconvert.language.layout import Layout, Shape, Sizes
from rnnconvert.language.places import shapes, slots

_MOST_SIZES = 200
_MOST_ARRAYS = 64
_LARGEST_SQUARE = 1 << 22
"""Of larger recurrent matrices the orthogonality is not computed."""


@dataclass(frozen=True)
class Candidate:
    """A layout that arrays may have.

    names     the known layouts that would keep these numbers at the same places
    sizes     of the stack, in words
    score     how much speaks for it: what the names say counts most
    evidence  what speaks for it, in words
    against   what speaks against it
    """

    names: tuple[str, ...]
    sizes: str
    score: float
    evidence: tuple[str, ...]
    against: tuple[str, ...] = ()


def candidates(arrays: Mapping[str, Array]) -> list[Candidate]:
    """Return the layouts that arrays may have by their names, shapes and numbers, the most likely first."""
    found = {name: tuple(array.shape) for name, array in arrays.items()}
    made: dict[tuple[object, ...], list[tuple[str, Candidate]]] = {}
    for layout in registry.layouts().values():
        for sizes, binding, named in _fitting(layout, found):
            candidate = _weighed(layout, sizes, binding, named, arrays)
            key = (candidate.sizes, candidate.score, candidate.evidence, candidate.against)
            made.setdefault(key, []).append((layout.name, candidate))
    listed = [replace(entries[0][1], names=tuple(dict.fromkeys(name for name, _ in entries))) for entries in made.values()]
    return sorted(listed, key=lambda one: (-one.score, one.names))


def _fitting(layout: Layout, found: Mapping[str, Shape]) -> Iterator[tuple[Sizes, Mapping[str, str], bool]]:
    """Yield the sizes for which some arrays are a layout's, which is which, and whether their names show it."""
    for prefix in _prefixes(found):
        local = {name[len(prefix) :]: shape for name, shape in found.items() if name.startswith(prefix)}
        met = list(fits(layout, local)) if len(local) > 1 else []
        if met:
            yield from ((sizes, {name: prefix + name for name in local}, True) for sizes in met)
            return
    if len(found) > _MOST_ARRAYS:
        return
    template = template_of(layout)
    for sizes in itertools.islice(_sizes(layout, found), _MOST_SIZES):
        if not enough(template, sizes, found, True):
            continue
        try:
            expected = shapes(layout, sizes)
        except (ValueError, KeyError, IndexError):
            continue
        if sorted(expected.values()) != sorted(found.values()):
            continue
        blocks = dict(zip(shapes(template, sizes), expected.values(), strict=False))
        if len(blocks) == len(expected):
            for binding in itertools.islice(bindings(template, blocks, found, True, True), 1):
                yield sizes, dict(zip(expected, (binding[name] for name in blocks), strict=True)), False


def _prefixes(found: Mapping[str, Shape]) -> list[str]:
    """Return what may be the names of layers before the names of their arrays."""
    made = {""}
    for name in found:
        made.update(name[: match.end()] for match in re.finditer(r"[/.]", name))
    return sorted(made)[:200]


def _sizes(layout: Layout, found: Mapping[str, Shape]) -> Iterator[Sizes]:
    """Yield the sizes that shapes allow; of a flat vector, those that its length allows."""
    gates = len(layout.order)
    lengths = sorted({length for shape in found.values() for length in shape})
    total = sum(math.prod(shape) for shape in found.values())
    parts = frozenset(layout.part_names | {"input", "recurrent"})
    for way, layers in itertools.product(range(1, layout.holds.directions + 1), (1, 2, 3, 4) if layout.holds.layers else (1,)):
        hidden = {n // k for n in lengths for k in (1, gates, 2 * gates) if n % k == 0 and n // k}
        if layout.flat:
            hidden = set(range(1, math.isqrt(total // gates) + 1))
        for size in sorted(hidden, reverse=layout.flat):
            if gates * size * size * way * layers > total:
                continue
            one = Sizes(layout.kind, 1, size, layers, way, 0, parts - {"projection"})
            for mode in _modes(layout, one.parts):
                least = _total(layout, replace(one, parts=mode))
                rise = gates * size * way
                if least is not None and least <= total and (total - least) % rise == 0:
                    yield replace(one, parts=mode, input_size=1 + (total - least) // rise)


def _modes(layout: Layout, parts: frozenset[str]) -> Iterator[frozenset[str]]:
    """Yield the parts with each arrangement of biases that a layout has, and without what may be absent."""
    modes = {"none": set(), "input": {"input_bias"}, "recurrent": {"recurrent_bias"}, "both": set(BIAS_PARTS)}
    spare = parts & {"initial_hidden", "initial_cell", "peephole"}
    for mode in layout.holds.biases:
        own = (parts - set(BIAS_PARTS)) | (modes[mode] & layout.part_names)
        yield own
        if spare:
            yield own - spare


def _total(layout: Layout, sizes: Sizes) -> int | None:
    try:
        return sum(math.prod(shape) for shape in shapes(layout, sizes).values())
    except (ValueError, KeyError, IndexError):
        return None


def _weighed(layout: Layout, sizes: Sizes, binding: Mapping[str, str], named: bool, arrays: Mapping[str, Array]) -> Candidate:
    evidence: list[str] = []
    against: list[str] = []
    score = 1.0
    if named:
        score += 3
        evidence.append("the arrays have its names and shapes")
    elif layout.flat:
        evidence.append("the length of the vector allows these sizes, as it does many others")
        score -= 0.5
    else:
        evidence.append("the arrays have its shapes")
    structure = Structure(layout, sizes, binding, tuple(slots(layout, sizes)))
    blocks = blocks_of(structure, arrays)
    for text, weight in _of_numbers(layout, blocks):
        score += weight
        (evidence if weight > 0 else against).append(text)
    if len({tuple(sorted(sizes.parts & set(BIAS_PARTS))), ("input_bias", "recurrent_bias")}) == 1 and layout.kind == "lstm":
        evidence.append("it has two biases, of which only the sum counts")
    ways = ", bidirectional" if sizes.num_directions == 2 else ""
    layers = f", {sizes.num_layers} layers" if sizes.num_layers > 1 else ""
    what = f"{layout.kind.upper()}, {sizes.input_size} -> {sizes.hidden_size}{layers}{ways}"
    return Candidate((layout.name,), what, round(score, 2), tuple(evidence), tuple(against))


def _of_numbers(layout: Layout, blocks: Blocks) -> Iterator[tuple[str, float]]:
    """Yield what the numbers say for a layout, and against it."""
    own = blocks[0, 0]
    biases = {gate: np.asarray(value, np.float64) for (part, gate), value in own.items() if part == "input_bias"}
    if layout.kind == "lstm" and len(biases) == 4:
        both = {gate: values + np.asarray(own.get(("recurrent_bias", gate), 0.0), np.float64) for gate, values in biases.items()}
        means = {gate: float(values.mean()) for gate, values in both.items()}
        high = max(means, key=lambda gate: means[gate])
        others = [value for gate, value in means.items() if gate != high]
        if means[high] > 0.5 and means[high] - max(others) > 0.4:
            said = f"the largest bias, {means[high]:.2f} on average, "
            yield (
                (said + "is that of its forget gate, which trainers set to 1", 1.5)
                if high == "f"
                else (said + f"would be that of gate {high}, and trainers set the forget gate's to 1", -1.0)
            )
    squares = [np.asarray(value, np.float64) for (part, _), value in own.items() if part == "recurrent"]
    if squares and 3 < squares[0].shape[0] == squares[0].shape[1] and squares[0].size <= _LARGEST_SQUARE:
        errors = [float(np.abs(one @ one.T - np.eye(len(one))).max()) for one in squares]
        if max(errors) < 0.1:
            yield "each gate's recurrent block is orthogonal, as initializers make it", 1.0
        elif len(squares) > 1:
            joined = np.concatenate(squares)
            if np.abs(joined.T @ joined - np.eye(joined.shape[1])).max() < 0.1:
                yield "the recurrent matrix as a whole is orthogonal, as initializers make it", 0.5
