"""A header of recurrent layers: their arrays, and a function for one step of each in plain C99, which needs <math.h> alone.

`NAME_step(x, &state, y)` reads NAME_INPUT numbers and gives NAME_OUTPUT; a state of zeros begins a sequence. The comment at the top says,
in JSON, what each layer is, so that the header can be read again.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from rnnconvert.containers.files import replacing
from rnnconvert.core import int8
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, c_names
from rnnconvert.formats.c_header.layer_code import StoredMatrix, WrittenLayer, comment
from rnnconvert.formats.c_header.model_code import WrittenModel
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import split_stack

TAG = "rnnconvert-layers:"
MATRICES = ("W", "R", "projection")


def text(path: Path, job: Job) -> tuple[Iterator[str], list[str], list[str]]:
    """Return the header's lines, what a user should know, and lines of C that run it."""
    stacks = [(part.layout, part.stack.name, split_stack(part.stack)) for part in job.parts]
    called = [_called(written_stack, pieces, path) for _, written_stack, pieces in stacks]
    names = c_names(name for several in called for name in several)
    layers: list[WrittenLayer] = []
    notes: list[str] = []
    narrow = job.options.get("storage") == "int8"
    for (layout, _, single), several in zip(stacks, called, strict=True):
        for stack, name in zip(single, several, strict=True):
            packed = pack(layout, stack, job.dtype, job.watch)
            stored = StoredMatrix(packed, {})
            if narrow:
                stored, *change = as_bytes(packed, MATRICES, by_columns=True)
                notes.append(int8.narrowed(names[name], *change))
            layers.append(WrittenLayer(names[name], layout, stack, next(iter(packed.values())).dtype, stored))
    return rendered(layers, guard_of(path)), notes, _recipe(path, layers[: len(called[0])])


def guard_of(path: Path) -> str:
    """Return the macro that keeps a header from being read twice."""
    return "RNNCONVERT_" + re.sub(r"[^A-Z0-9_]", "_", path.stem.upper()) + "_H"


def _called(name: str, pieces: Sequence[Recurrent], path: Path) -> list[str]:
    """Return the names of a stack's layers in C: from the header's, if the stack has no name."""
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


def rendered(layers: Sequence[WrittenLayer], guard: str, model: WrittenModel | None = None) -> Iterator[str]:
    """Yield the lines of a header.

    model  the whole model that the layers belong to
    """
    described = json.dumps([layer.described() for layer in layers], sort_keys=True)
    half = any(layer.dtype == np.float16 for layer in layers) or (model is not None and model.dtype == np.float16)
    yield comment(f"Written by rnnconvert. {TAG} {described}")
    if model is not None:
        yield from model.about()
    yield from (f"#ifndef {guard}", f"#define {guard}", "", "#include <math.h>", "#include <stdint.h>", "#include <string.h>")
    if model is not None:
        yield "#include <stddef.h>"
    yield from ("", *_HELPERS, *(_HALF if half else []), *(_CLIP if any(layer.stack.cell.clips for layer in layers) else []))
    for layer in layers:
        yield from layer.arrays()
        yield from layer.function()
    if model is not None:
        yield from model.code()
    yield "#endif"


def as_bytes(
    packed: Mapping[str, Array | PiecewiseArray], matrices: Sequence[str], by_columns: bool = False
) -> tuple[StoredMatrix, float, float]:
    """Return arrays with their matrices in int8, and a scale for each row that acts on a unit; the largest change, the largest number.

    by_columns  whether it is a column of the array that acts on a unit
    """
    numbers, scales = dict(packed), dict[str, Array]()
    lost = most = 0.0
    for local in filter(packed.__contains__, matrices):
        matrix = int8.as_bytes(packed[local], by_columns)
        numbers[local], scales[local] = matrix.codes, matrix.scales
        lost, most = max(lost, matrix.lost), max(most, matrix.most)
    return StoredMatrix(numbers, scales), lost, most


_HELPERS = [
    "#ifndef RNNCONVERT_HELPERS",
    "#define RNNCONVERT_HELPERS",
    "#define RNNCONVERT_CLAMP(x) ((x) < 0 ? 0 : (x) > 1 ? 1 : (x))",
    "#define rnnconvert_sigmoid(x) (1 / (1 + exp(-(x))))",
    "#define rnnconvert_tanh tanh",
    "/* Functions of float without a branch, for several numbers at a time; off by less than 3 units in the last place. */",
    "static inline uint32_t rnnconvert_bits(float x) { uint32_t bits; memcpy(&bits, &x, sizeof bits); return bits; }",
    "static inline float rnnconvert_float(uint32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }",
    "/* exp(-|x|), and that less 1. */",
    "static inline float rnnconvert_decay(float x, float *less) {",
    "    uint32_t bits = rnnconvert_bits(x) & 0x7fffffff, nan = bits > 0x7f800000 ? 0x7fc00000 : 0;",
    "    int32_t n;",
    "    float r, p, scale;",
    "    x = rnnconvert_float(bits < 0x42ae0000 ? bits : 0x42ae0000); /* 87 */",
    "    n = (int32_t)(x * 1.44269504f + 0.5f);",
    "    r = ((float)n * 0.693359375f - x) - (float)n * 2.12194440e-4f; /* -x = r - n * log(2) */",
    "    p = (((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r + 1.6666665459e-1f;",
    "    p = (p * r + 5.0000001201e-1f) * r * r + r; /* exp(r) - 1 */",
    "    scale = rnnconvert_float((uint32_t)(127 - n) << 23);",
    "    *less = p * scale + rnnconvert_float(rnnconvert_bits(scale - 1) | nan); /* by way of bits, so that no compiler joins the sums */",
    "    return rnnconvert_float(rnnconvert_bits(p * scale + scale) | nan);",
    "}",
    "static inline float rnnconvert_either(uint32_t mask, float x, float y) { /* x where all bits of the mask are 1, y where none is */",
    "    return rnnconvert_float((rnnconvert_bits(x) & mask) | (rnnconvert_bits(y) & ~mask));",
    "}",
    "static inline float rnnconvert_sigmoidf(float x) {",
    "    float less, e = rnnconvert_decay(x, &less);",
    "    return rnnconvert_either(0u - (rnnconvert_bits(x) >> 31), e, 1) / (1 + e);",
    "}",
    "static inline float rnnconvert_tanhf(float x) {",
    "    float less, e = rnnconvert_decay(2 * x, &less);",
    "    uint32_t far = 0u - ((rnnconvert_bits(x) & 0x7fffffff) > 0x3f0ccccd); /* from 0.55 on the ratio would lose more */",
    "    return copysignf(rnnconvert_either(far, 1, 0) - rnnconvert_either(far, 2 * e, less) / (1 + e), x);",
    "}",
    "#endif",
    "",
]
_CLIP = [
    "#ifndef RNNCONVERT_CLIP",
    "#define RNNCONVERT_CLIP(x, low, high) ((x) < (low) ? (low) : (x) > (high) ? (high) : (x))",
    "#endif",
    "",
]
_HALF = [
    "#ifndef RNNCONVERT_HALF",
    "#define RNNCONVERT_HALF",
    "/* The number that 16 bits stand for: a sign, 5 bits of exponent and 10 of fraction. */",
    "static inline float rnnconvert_half(uint16_t bits) {",
    "    uint32_t moved = (uint32_t)(bits & 0x7fff) << 13, small = 0u - ((bits & 0x7c00) == 0), most = 0u - ((bits & 0x7c00) == 0x7c00);",
    "    float fraction = rnnconvert_float(moved + 0x38800000) - 6.103515625e-05f; /* what has no exponent */",
    "    uint32_t size = (rnnconvert_bits(fraction) & small) | ((moved + 0x38000000 + (most & 0x38000000)) & ~small);",
    "    return rnnconvert_float(size | (uint32_t)(bits & 0x8000) << 16);",
    "}",
    "#endif",
    "",
]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a new file of lines, of which no more than some are in memory."""
    with replacing(path) as file:
        for some in _batched(lines, 4096):
            file.write("".join(f"{line}\n" for line in some).encode())


def _batched(lines: Iterable[str], count: int) -> Iterator[list[str]]:
    iterator = iter(lines)
    while some := list(itertools.islice(iterator, count)):
        yield some
