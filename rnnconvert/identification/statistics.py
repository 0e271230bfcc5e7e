"""Evidence of names, shapes and numbers about arrays of unknown origin: candidates with their evidence, never a verdict."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from rnnconvert.core.arguments import unknown
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UsageError
from rnnconvert.core.names import is_count
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


_STATED = {"input_size": "input_size", "hidden_size": "hidden_size", "num_layers": "num_layers", "bidirectional": "num_directions"}


def stated(sizes: Mapping[str, int | bool | str]) -> dict[str, int]:
    """Return the fields of `Sizes` that a caller knows, by the words of settings: hidden_size=16, bidirectional=true.

    Raises UsageError for another word, and for a value that is not a size.
    """
    fields = {}
    for word, value in sizes.items():
        if word not in _STATED:
            raise unknown("size", word, _STATED)
        truth = {"true": True, "false": False}.get(str(value).lower())
        if (word == "bidirectional") != (truth is not None) or (truth is None and not is_count(str(value))):
            raise UsageError(f"{word}={value}: expected {'true or false' if word == 'bidirectional' else 'a whole number'}")
        fields[_STATED[word]] = int(value) if truth is None else 1 + truth
    return fields


def candidates(arrays: Mapping[str, Array], sizes_stated: Mapping[str, int] | None = None) -> list[Candidate]:
    """Return the layouts that arrays may have by their names, shapes and numbers, the most likely first.

    sizes_stated  fields of `Sizes` that the caller knows
    """
    array_shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    by_key: dict[tuple[object, ...], list[tuple[str, Candidate]]] = {}
    for layout in registry.layouts().values():
        for sizes, binding, named in _fitting(layout, array_shapes, sizes_stated or {}):
            candidate = _weighed(layout, sizes, binding, named, arrays)
            key = (candidate.sizes, candidate.score, candidate.evidence, candidate.against)
            by_key.setdefault(key, []).append((layout.name, candidate))
    listed = [replace(entries[0][1], names=tuple(dict.fromkeys(name for name, _ in entries))) for entries in by_key.values()]
    return sorted(listed, key=lambda entry: (-entry.score, entry.names))


def _fitting(
    layout: Layout, array_shapes: Mapping[str, Shape], sizes_stated: Mapping[str, int]
) -> Iterator[tuple[Sizes, Mapping[str, str], bool]]:
    """Yield the sizes for which some arrays are a layout's, which is which, and whether their names show it."""
    for prefix in _prefixes(array_shapes):
        local = {name[len(prefix) :]: shape for name, shape in array_shapes.items() if name.startswith(prefix)}
        matching = list(fits(layout, local)) if len(local) > 1 else []
        if matching:
            yield from ((sizes, {name: prefix + name for name in local}, True) for sizes in matching if _agrees(sizes, sizes_stated))
            return
    if len(array_shapes) > _MOST_ARRAYS:
        return
    template = template_of(layout)
    fitting = (sizes for sizes in _sizes(layout, array_shapes) if _agrees(sizes, sizes_stated))
    for sizes in itertools.islice(fitting, _MOST_SIZES):
        if not enough(template, sizes, array_shapes, True):
            continue
        try:
            expected = shapes(layout, sizes)
        except (ValueError, KeyError, IndexError):
            continue
        if sorted(expected.values()) != sorted(array_shapes.values()):
            continue
        blocks = dict(zip(shapes(template, sizes), expected.values(), strict=False))
        if len(blocks) == len(expected):
            for binding in itertools.islice(bindings(template, blocks, array_shapes, True, True), 1):
                yield sizes, dict(zip(expected, (binding[name] for name in blocks), strict=True)), False


def _agrees(sizes: Sizes, sizes_stated: Mapping[str, int]) -> bool:
    return all(getattr(sizes, field) == value for field, value in sizes_stated.items())


def _prefixes(array_shapes: Mapping[str, Shape]) -> list[str]:
    """Return the possible names of layers before the names of their arrays."""
    prefixes = {""}
    for name in array_shapes:
        prefixes.update(name[: match.end()] for match in re.finditer(r"[/.]", name))
    return sorted(prefixes)[:200]


def _sizes(layout: Layout, array_shapes: Mapping[str, Shape]) -> Iterator[Sizes]:
    """Yield the sizes that shapes allow; of a flat vector, those that its length allows."""
    gates = len(layout.order)
    lengths = sorted({length for shape in array_shapes.values() for length in shape})
    total = sum(math.prod(shape) for shape in array_shapes.values())
    parts = frozenset(layout.part_names | {"input", "recurrent"})
    for way, layers in itertools.product(range(1, layout.holds.directions + 1), (1, 2, 3, 4) if layout.holds.layers else (1,)):
        hidden = {n // k for n in lengths for k in (1, gates, 2 * gates) if n % k == 0 and n // k}
        if layout.flat:
            hidden = set(range(1, math.isqrt(total // gates) + 1))
        for size in sorted(hidden, reverse=layout.flat):
            if gates * size * size * way * layers > total:
                continue
            unit_sizes = Sizes(layout.kind, 1, size, layers, way, 0, parts - {"projection"})
            for mode in _modes(layout, unit_sizes.parts):
                least = _total(layout, replace(unit_sizes, parts=mode))
                rise = gates * size * way
                if least is not None and least <= total and (total - least) % rise == 0:
                    yield replace(unit_sizes, parts=mode, input_size=1 + (total - least) // rise)


def _modes(layout: Layout, parts: frozenset[str]) -> Iterator[frozenset[str]]:
    """Yield the parts with each arrangement of biases that a layout has, and without what may be absent."""
    modes = {"none": set(), "input": {"input_bias"}, "recurrent": {"recurrent_bias"}, "both": set(BIAS_PARTS)}
    spare = parts & {"initial_hidden", "initial_cell", "peephole"}
    for mode in layout.holds.biases:
        mode_parts = (parts - set(BIAS_PARTS)) | (modes[mode] & layout.part_names)
        yield mode_parts
        if spare:
            yield mode_parts - spare


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
    """Yield the evidence of the numbers for a layout, and against it."""
    block = blocks[0, 0]
    biases = {gate: np.asarray(value, np.float64) for (part, gate), value in block.items() if part == "input_bias"}
    if layout.kind == "lstm" and len(biases) == 4:
        both = {gate: values + np.asarray(block.get(("recurrent_bias", gate), 0.0), np.float64) for gate, values in biases.items()}
        means = {gate: float(values.mean()) for gate, values in both.items()}
        high = max(means, key=lambda gate: means[gate])
        others = [value for gate, value in means.items() if gate != high]
        if means[high] > 0.5 and means[high] - max(others) > 0.4:
            sentence = f"the largest bias, {means[high]:.2f} on average, "
            yield (
                (sentence + "is that of its forget gate, which trainers set to 1", 1.5)
                if high == "f"
                else (sentence + f"would be that of gate {high}, and trainers set the forget gate's to 1", -1.0)
            )
    squares = [np.asarray(value, np.float64) for (part, _), value in block.items() if part == "recurrent"]
    if squares and 3 < squares[0].shape[0] == squares[0].shape[1] and squares[0].size <= _LARGEST_SQUARE:
        errors = [float(np.abs(square @ square.T - np.eye(len(square))).max()) for square in squares]
        if max(errors) < 0.1:
            yield "each gate's recurrent block is orthogonal, as initializers make it", 1.0
        elif len(squares) > 1:
            joined = np.concatenate(squares)
            if np.abs(joined.T @ joined - np.eye(joined.shape[1])).max() < 0.1:
                yield "the recurrent matrix as a whole is orthogonal, as initializers make it", 0.5
