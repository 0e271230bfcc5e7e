"""A header of recurrent layers: their arrays, and a function for one step of each in plain C99, which needs <math.h> alone.

`NAME_step(x, &state, y)` reads NAME_INPUT numbers and gives NAME_OUTPUT; a state of zeros begins a sequence. The comment at the top says,
in JSON, what each layer is, so that the header can be read again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, c_names
from rnnconvert.formats.c_header.layer_code import StoredMatrix, WrittenLayer, comment
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import split_stack

TAG = "rnnconvert-layers:"
MATRICES = ("W", "R", "projection")


def text(path: Path, job: Job) -> tuple[str, list[str], list[str]]:
    """Return the header, what a user should know, and lines of Python that load it."""
    stacks = [(part.layout, part.stack.name, split_stack(part.stack)) for part in job.parts]
    called = [_called(written_stack, pieces, path) for _, written_stack, pieces in stacks]
    names = c_names(name for several in called for name in several)
    layers: list[WrittenLayer] = []
    notes: list[str] = []
    narrow = job.options.get("storage") == "int8"
    for (layout, _, pieces), several in zip(stacks, called, strict=True):
        for stack, name in zip(pieces, several, strict=True):
            packed = {local: np.asarray(array) for local, array in pack(layout, stack, job.dtype, job.watch).items()}
            stored = as_bytes(packed, layout) if narrow else StoredMatrix(packed, {})
            layers.append(WrittenLayer(names[name], layout, stack, next(iter(packed.values())).dtype, stored))
            if narrow:
                lost, largest = _lost(packed, stored, layout)
                notes.append(f"{names[name]}: in int8 a weight changes by up to {lost:.3g}, of weights of up to {largest:.3g}")
    guard = "RNNCONVERT_" + re.sub(r"[^A-Z0-9_]", "_", path.stem.upper()) + "_H"
    return rendered(layers, guard), notes, _recipe(path, layers[: len(called[0])])


def _called(name: str, pieces: Sequence[Recurrent], path: Path) -> list[str]:
    """Return what the layers of a stack are called in C: where it has no name, as the header is."""
    if name:
        return [piece.name for piece in pieces]
    return [path.stem] if len(pieces) == 1 else [f"{path.stem}_l{index}" for index in range(len(pieces))]


def _recipe(path: Path, layers: Sequence[WrittenLayer]) -> list[str]:
    """Return C that runs a sequence through layers, each reading what the one before gives; none where no #include can name the file."""
    if not re.fullmatch(r'[^"\\\x00-\x1f]+', path.name):
        return []
    reads = f"x + t * {layers[0].name.upper()}_INPUT"
    lines, calls = [f'#include "{path.name}"'], []
    for layer in layers:
        lines.append(f"{layer.name}_state {layer.name}_s = {{0}};  // zeros, where a sequence begins")
        lines.append(f"{layer.real} {layer.name}_y[{layer.name.upper()}_OUTPUT];")
        calls.append(f"    {layer.name}_step({reads}, &{layer.name}_s, {layer.name}_y);")
        reads = f"{layer.name}_y"
    return [*lines, "for (int t = 0; t < steps; t++) {", *calls, "}"]


def rendered(layers: Sequence[WrittenLayer], guard: str) -> str:
    """Return the text of a header."""
    described = json.dumps([layer.described() for layer in layers], sort_keys=True)
    half = any(layer.dtype == np.float16 for layer in layers)
    head = [
        comment(f"Written by rnnconvert. {TAG} {described}"),
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <math.h>",
        "#include <stdint.h>",
        "",
        *_HELPERS,
        *(_HALF if half else []),
    ]
    body = [line for layer in layers for line in (*layer.arrays(), *layer.function())]
    return "\n".join([*head, *body, "#endif", ""])


def as_bytes(packed: Mapping[str, Array], layout: Layout) -> StoredMatrix:
    """Return arrays with their matrices in int8, and a scale for each row that acts on a gate's unit."""
    numbers, scales = dict(packed), dict[str, Array]()
    for local in filter(packed.__contains__, MATRICES):
        rows = _rows(packed[local], layout).astype(np.float64)
        largest = np.abs(rows).max(axis=1) / 127
        scales[local] = np.where(largest > 0, largest, 1).astype(np.float32)
        numbers[local] = _rows(np.clip(np.round(rows / scales[local][:, None]), -127, 127).astype(np.int8), layout)
    return StoredMatrix(numbers, scales)


def _rows(array: Array, layout: Layout) -> Array:
    """Return a matrix by rows, or a matrix by rows as the layout has it."""
    return array.T if layout.name.endswith("_columns") else array


def _lost(packed: Mapping[str, Array], stored: StoredMatrix, layout: Layout) -> tuple[float, float]:
    """Return the largest change of a number in int8, and the largest number."""
    lost = largest = 0.0
    for local, scales in stored.scales.items():
        exact, codes = (_rows(side[local], layout).astype(np.float64) for side in (packed, stored.numbers))
        lost = max(lost, float(np.abs(codes * scales[:, None].astype(np.float64) - exact).max(initial=0)))
        largest = max(largest, float(np.abs(exact).max(initial=0)))
    return lost, largest


_HELPERS = [
    "#ifndef RNNCONVERT_HELPERS",
    "#define RNNCONVERT_HELPERS",
    "#define RNNCONVERT_SIGMOID(x) (1 / (1 + exp(-(x))))",
    "#define RNNCONVERT_SIGMOIDF(x) (1 / (1 + expf(-(x))))",
    "#define RNNCONVERT_CLAMP(x) ((x) < 0 ? 0 : (x) > 1 ? 1 : (x))",
    "#endif",
    "",
]
_HALF = [
    "#ifndef RNNCONVERT_HALF",
    "#define RNNCONVERT_HALF",
    "/* The number that 16 bits stand for: a sign, 5 bits of exponent and 10 of fraction. */",
    "static inline float rnnconvert_half(uint16_t bits) {",
    "    int exponent = (bits >> 10) & 31, fraction = bits & 1023;",
    "    float value = exponent == 31 ? (fraction ? NAN : INFINITY)",
    "                : exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24);",
    "    return bits & 0x8000 ? -value : value;",
    "}",
    "#endif",
    "",
]
