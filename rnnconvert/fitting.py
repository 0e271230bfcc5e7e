"""Which layout, and which sizes: read off the names and shapes of a framework's arrays.

A gate order cannot be seen in a shape, nor sizes in a flat buffer: several layouts may fit, and then the caller says.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rnnconvert.layout import Form, Layout, Shape, Tensor, shapes
from rnnconvert.weights import BIAS_PARTS


def pattern(layout: Layout, tensor: Tensor) -> re.Pattern[str]:
    """What the names of a tensor look like, with groups layer, direction and gate."""
    text = re.escape(tensor.name)
    letters = layout.spelt(tensor)
    directions = [*layout.spelling, *([] if layout.alone is None else [layout.alone])]
    words = {
        "layer": r"(?P<layer>\d{1,3})",
        "direction": f"(?P<direction>{'|'.join(map(re.escape, directions))})",
        "gate": f"(?P<gate>{'|'.join(re.escape(letter) for letter in letters)})",
    }
    for word, group in words.items():
        text = text.replace(re.escape(f"{{{word}}}"), group)
    return re.compile(text)


def fit(layout: Layout, found: Mapping[str, Shape], most_layers: int = 256) -> Form | None:
    """The form under which these names and shapes are exactly this layout's arrays, or None.

    A gate order cannot be seen in a shape, nor sizes in a flat buffer: several layouts may fit.
    """
    if len(found) < 2:
        return None
    for form in candidates(layout, found, most_layers):
        try:
            if shapes(layout, form) == dict(found):
                return form
        except ValueError:
            continue
    return None


def candidates(layout: Layout, found: Mapping[str, Shape], most_layers: int = 256) -> Iterator[Form]:
    """Forms worth trying for these arrays: sizes solved from the shapes, counts read off the names."""
    present: set[str] = set()
    counts = {"layer": 1, "direction": 1}
    for name in found:
        for tensor in layout.tensors:
            match = pattern(layout, tensor).fullmatch(name)
            if not match:
                continue
            present |= tensor.part_names
            groups = match.groupdict()
            if groups.get("layer"):
                counts["layer"] = max(counts["layer"], min(int(groups["layer"]) + 1, most_layers))
            if groups.get("direction") is not None and groups["direction"] == layout.spelling[1]:
                counts["direction"] = 2
            break
    # A missing array must not pass for a form that has none: every cell has its matrices, and a bias mode.
    present |= {"input", "recurrent"}
    both = set(BIAS_PARTS)
    modes = {"none": set(), "input": {"input_bias"}, "recurrent": {"recurrent_bias"}, "both": both}
    if present & both not in [modes[mode] for mode in layout.holds.biases]:
        present |= both & layout.part_names
    lengths = sorted({length for shape in found.values() for length in shape})
    gates = len(layout.order)
    hidden_sizes = sorted({n // factor for n in lengths for factor in (1, gates, 2 * gates) if n and n % factor == 0})
    projections = lengths if "projection" in present else [0]
    directions = [1, 2] if all("{direction}" not in t.name for t in layout.tensors) else [counts["direction"]]
    for way, hidden, projection in itertools.product(directions, hidden_sizes, projections):
        if projection and projection > hidden:
            continue
        one = Form(layout.kind, 1, hidden, counts["layer"], way, projection, frozenset(present))
        try:
            low, high = shapes(layout, one), shapes(layout, replace(one, input_size=2))
        except ValueError:
            continue
        # Every length is affine in the input width, so two evaluations give it.
        for name, shape in found.items():
            if name not in low or len(shape) != len(low[name]):
                continue
            rises = [(s, a, b - a) for s, a, b in zip(shape, low[name], high[name], strict=True) if b != a]
            if rises and rises[0][0] >= rises[0][1] and (rises[0][0] - rises[0][1]) % rises[0][2] == 0:
                yield replace(one, input_size=1 + (rises[0][0] - rises[0][1]) // rises[0][2])
                break


def misfit(layouts: Sequence[Layout], found: Mapping[str, Shape]) -> str:
    """Why these arrays are none of these layouts', in the words of the form that comes nearest."""
    best: tuple[int, str] | None = None
    for layout in layouts:
        for form in candidates(layout, found):
            expected = shapes(layout, form)
            wrong = [
                f"{name!r} has shape {found[name]}, expected {shape}"
                for name, shape in expected.items()
                if name in found and found[name] != shape
            ]
            wrong += [f"{name!r} is missing, expected shape {s}" for name, s in expected.items() if name not in found]
            wrong += [f"{name!r} belongs to no part of {layout.name}" for name in found if name not in expected]
            if wrong and (best is None or len(wrong) < best[0]):
                best = (len(wrong), f"{wrong[0]} (for {form.input_size} inputs and {form.hidden_size} units)")
    return best[1] if best else "no sizes fit"
