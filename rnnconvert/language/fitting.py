"""Read a layout and its sizes off the names and shapes of a framework's arrays.

A shape does not show the order of the gates, nor does a flat buffer show its sizes. Where several layouts fit, the caller decides.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rnnconvert.core.weights import BIAS_PARTS, gates_of
from rnnconvert.language.layout import Layout, Shape, Sizes, Tensor
from rnnconvert.language.places import shapes


@functools.cache
def pattern(layout: Layout, tensor: Tensor) -> re.Pattern[str]:
    """Return the pattern of a tensor's names, with the groups layer, pseudo_layer, direction and gate."""
    text = re.escape(tensor.name)
    letters = layout.spelt(tensor)
    spellings = [*layout.spelling, *([] if layout.alone is None else [layout.alone])]
    words = {
        "layer": r"(?P<layer>\d{1,3})",
        "pseudo_layer": r"(?P<pseudo_layer>\d{1,3})",
        "direction": f"(?P<direction>{'|'.join(re.escape(word) for word in spellings)})",
        "gate": f"(?P<gate>{'|'.join(re.escape(letter) for letter in letters)})",
    }
    for word, group in words.items():
        text = text.replace(re.escape(f"{{{word}}}"), group)
    return re.compile(text)


def names_of(layouts: Iterable[Layout]) -> str:
    """Return a regular expression, without named groups, for the names of all arrays of these layouts."""
    patterns = (pattern(layout, tensor).pattern for layout in layouts for tensor in layout.tensors)
    return "|".join(re.sub(r"\?P<\w+>", "?:", regex) for regex in patterns)


def may_name(layout: Layout, names: str) -> bool:
    """Return whether the letters that some tensor of a layout has in every name occur in a text; to look is faster than a pattern is made.

    names  all that may be one, in one text
    """
    return any(all(part in names for part in _WORD.split(tensor.name)) for tensor in layout.tensors)


_WORD = re.compile(r"\{\w+\}")


def fit(layout: Layout, array_shapes: Mapping[str, Shape], most_layers: int = 256) -> Sizes | None:
    """Return the sizes with which these names and shapes are exactly this layout's arrays, or None.

    A shape does not show the order of the gates, nor does a flat buffer show its sizes: several layouts may fit.
    """
    return _first(layout, tuple(array_shapes.items()), most_layers) if len(array_shapes) > 1 else None


def fits(layout: Layout, array_shapes: Mapping[str, Shape], most_layers: int = 256) -> tuple[Sizes, ...]:
    """Return every set of sizes with which these names and shapes are exactly this layout's arrays.

    Where a name counts layers and directions together, two layers of one direction and one layer of two have the same names.
    """
    return _every(layout, tuple(array_shapes.items()), most_layers)


# The layers of a file are often alike: what fits one of them fits all.


@functools.lru_cache(maxsize=512)
def _first(layout: Layout, array_shapes: tuple[tuple[str, Shape], ...], most_layers: int) -> Sizes | None:
    return next(_fitting(layout, dict(array_shapes), most_layers), None)


@functools.lru_cache(maxsize=512)
def _every(layout: Layout, array_shapes: tuple[tuple[str, Shape], ...], most_layers: int) -> tuple[Sizes, ...]:
    return tuple(_fitting(layout, dict(array_shapes), most_layers))


def _fitting(layout: Layout, array_shapes: Mapping[str, Shape], most_layers: int) -> Iterator[Sizes]:
    if not _may_fit(layout, array_shapes):
        return
    seen = []
    for sizes in candidates(layout, array_shapes, most_layers):
        with contextlib.suppress(ValueError):
            if sizes not in seen and shapes(layout, sizes) == array_shapes:
                seen.append(sizes)
                yield sizes


def _may_fit(layout: Layout, names: Iterable[str]) -> bool:
    """Return whether names fit a layout's tensors and include the matrices that every cell has; to try sizes takes far longer."""
    present: set[str] = set()
    for name in names:
        named = [tensor for tensor in layout.tensors if pattern(layout, tensor).fullmatch(name)]
        if not named:
            return False
        present.update(*(tensor.part_names for tensor in named))
    return present >= {"input", "recurrent"}


def candidates(layout: Layout, array_shapes: Mapping[str, Shape], most_layers: int = 256) -> Iterator[Sizes]:
    """Yield sizes worth trying for these arrays: widths solved from the shapes, counts read off the names."""
    present: set[str] = set()
    counts = {"layer": 1, "direction": 1, "pseudo_layer": 0}
    for name, shape in array_shapes.items():
        for tensor in layout.tensors:
            match = pattern(layout, tensor).fullmatch(name)
            if not match:
                continue
            present |= tensor.part_names
            groups = match.groupdict()
            if ["layer"] in tensor.groups and len(shape) == len(tensor.groups):
                length = shape[tensor.groups.index(["layer"])] + (tensor.layers == "above")
                counts["layer"] = max(counts["layer"], min(length, most_layers))
            for word in ("layer", "pseudo_layer"):
                if groups.get(word):
                    counts[word] = max(counts[word], min(int(groups[word]) + 1, most_layers))
            if groups.get("direction") is not None and groups["direction"] == layout.spelling[1]:
                counts["direction"] = 2
            break
    # A missing array must not pass for a form that has none: every cell has its matrices, and a bias mode.
    present |= {"input", "recurrent"}
    both = set(BIAS_PARTS)
    modes = {"none": set(), "input": {"input_bias"}, "recurrent": {"recurrent_bias"}, "both": both}
    if present & both not in [modes[mode] for mode in layout.holds.biases]:
        present |= both & layout.part_names
    # Peepholes that stand in an array of other parts may be absent from it: its length says so.
    joined = any("peephole" in tensor.part_names and len(tensor.part_names) > 1 for tensor in layout.tensors)
    choices = [present, present - {"peephole"}] if joined else [present]
    lengths = sorted({length for shape in array_shapes.values() for length in shape})
    gates = len(layout.order)
    hidden_sizes = sorted({n // factor for n in lengths for factor in (1, gates, 2 * gates) if n and n % factor == 0})
    projections = lengths if "projection" in present else [0]
    directions = [1, 2] if all("{direction}" not in t.name for t in layout.tensors) else [counts["direction"]]
    stacks = [(counts["layer"], way) for way in directions]
    if counts["pseudo_layer"]:
        stacks = [(counts["pseudo_layer"] // way, way) for way in (1, 2) if counts["pseudo_layer"] % way == 0]
    for (layers, way), hidden, projection, parts in itertools.product(stacks, hidden_sizes, projections, choices):
        if projection and projection > hidden:
            continue
        sizes = Sizes(layout.kind, 1, hidden, layers, way, projection, frozenset(parts))
        try:
            low, high = shapes(layout, sizes), shapes(layout, replace(sizes, input_size=2))
        except ValueError:
            # Layers side by side in one array read inputs of one width.
            even = replace(sizes, input_size=way * sizes.output_size)
            with contextlib.suppress(ValueError):
                shapes(layout, even)
                yield even
            continue
        # Every length is affine in the input width, so two evaluations give it.
        for name, shape in array_shapes.items():
            if name not in low or len(shape) != len(low[name]):
                continue
            rises = [(s, a, b - a) for s, a, b in zip(shape, low[name], high[name], strict=True) if b != a]
            if rises and rises[0][0] >= rises[0][1] and (rises[0][0] - rises[0][1]) % rises[0][2] == 0:
                yield replace(sizes, input_size=1 + (rises[0][0] - rises[0][1]) // rises[0][2])
                break


def as_wide(shape: Shape, sizes: Sizes) -> bool:
    """Return whether an array could be a bias, a peephole or a matrix of a layer: one of its axes is as long as gates are."""
    return any(length in range(sizes.hidden_size, 8 * sizes.hidden_size + 1, sizes.hidden_size) for length in shape)


def norms(array_shapes: Mapping[str, Shape], sizes: Sizes, separators: str) -> list[str]:
    """Return the arrays of modules that may norm the gates or the state of a layer: a norm's arrays are alike in shape and as wide.

    array_shapes  by name, without what stands before the modules
    separators    characters that may separate a module's name from the names of its arrays
    """
    modules: dict[str, dict[str, Shape]] = {}
    for name, shape in array_shapes.items():
        at = max(name.rfind(separator) for separator in separators)
        if at > 0 and math.prod(shape) > 1:  # beside vectors, some count batches
            modules.setdefault(name[:at], {})[name] = shape
    return [
        name
        for arrays in modules.values()
        if len({*arrays.values()}) == 1
        and all((len(shape) == 1 or len(arrays) > 1) and as_wide((math.prod(shape),), sizes) for shape in arrays.values())
        for name in arrays
    ]


def more_matrices(own_shapes: Iterable[Shape], array_shapes: Mapping[str, Shape], kind: str, sizes: Sizes) -> list[str]:
    """Return the arrays that could be further matrices of a layer: they read its input or its state, and give its state or its gates.

    own_shapes    of the layer's own arrays, which show from which side its matrices act
    array_shapes  by name, of those next to them
    """
    wide = {sizes.hidden_size, sizes.hidden_size * len(gates_of(kind, "input"))}
    from_left = {(gives, reads) for gives in wide for reads in (sizes.input_size, sizes.hidden_size)}
    from_right = {shape[::-1] for shape in from_left}
    matrices = {shape for shape in own_shapes if len(shape) == 2 and 1 not in shape}
    sides = [side for side in (from_left, from_right) if matrices and matrices <= side]
    return [name for name, shape in array_shapes.items() if 1 not in shape and any(shape in side for side in sides)]


def misfit(layouts: Sequence[Layout], array_shapes: Mapping[str, Shape]) -> str:
    """Say why these arrays fit none of these layouts, in terms of the closest fit."""
    best: tuple[int, str] | None = None
    for layout in layouts:
        for sizes in candidates(layout, array_shapes):
            expected = shapes(layout, sizes)
            wrong = [
                f"{name!r} has shape {array_shapes[name]}, expected {shape}"
                for name, shape in expected.items()
                if name in array_shapes and array_shapes[name] != shape
            ]
            wrong += [f"{name!r} is missing, expected shape {s}" for name, s in expected.items() if name not in array_shapes]
            wrong += [f"{name!r} is not an array of {layout.name}" for name in array_shapes if name not in expected]
            if wrong and (best is None or len(wrong) < best[0]):
                best = (len(wrong), f"{wrong[0]} (for {sizes.input_size} inputs and {sizes.hidden_size} units)")
    return best[1] if best else "no sizes fit"
