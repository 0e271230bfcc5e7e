"""A header of recurrent layers: their arrays, and a function for one step of each in plain C99, which needs <math.h> alone.

`NAME_step(x, &state, y)` reads NAME_INPUT numbers and gives NAME_OUTPUT; a state of zeros begins a sequence. The comment at the top says,
in JSON, what each layer is, so that the header can be read again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Activation
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, c_names
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack

TAG = "rnnconvert-layers:"
_MATRICES = ("W", "R", "projection")
_PER_LINE = 8


def text(path: Path, job: Job) -> tuple[str, list[str]]:
    """Return the header, and what a user should know."""
    stacks = job.stacks()
    names = c_names(stack.name or stack.cell.kind for _, stack in stacks)
    described: list[dict[str, Any]] = []
    body: list[str] = []
    notes: list[str] = []
    narrow = job.options.get("storage") == "int8"
    for layout, stack in stacks:
        name = names[stack.name or stack.cell.kind]
        packed = {local: np.asarray(array) for local, array in pack(layout, stack, job.dtype, job.watch).items()}
        layer = _Layer(name, layout, stack, packed, narrow)
        body += [*layer.arrays(), *layer.function()]
        described.append(layer.described(stack.name))
        notes.append(
            f"{name}_step(x, &state, y) computes a step of {stack.name or 'the layer'}; a state of zeros begins a sequence"
        )
        if narrow:
            notes.append(
                f"{name}: in int8 a weight changes by up to {layer.lost:.3g}, of weights of up to {layer.largest:.3g}"
            )
    guard = "RNNCONVERT_" + re.sub(r"[^A-Z0-9_]", "_", path.stem.upper()) + "_H"
    half = any('"float16"' in json.dumps(one) for one in described)
    head = [
        _comment(f"Written by rnnconvert. {TAG} {json.dumps(described, sort_keys=True)}"),
        f"#ifndef {guard}", f"#define {guard}", "", "#include <math.h>", "#include <stdint.h>", "", *_HELPERS, *(_HALF if half else []),
    ]  # fmt: skip
    return "\n".join([*head, *body, "#endif", ""]), notes


_HELPERS = [
    "#ifndef RNNCONVERT_HELPERS", "#define RNNCONVERT_HELPERS",
    "#define RNNCONVERT_SIGMOID(x) (1 / (1 + exp(-(x))))",
    "#define RNNCONVERT_SIGMOIDF(x) (1 / (1 + expf(-(x))))",
    "#define RNNCONVERT_CLAMP(x) ((x) < 0 ? 0 : (x) > 1 ? 1 : (x))",
    "#endif", "",
]  # fmt: skip
_HALF = [
    "#ifndef RNNCONVERT_HALF", "#define RNNCONVERT_HALF",
    "/* The number that 16 bits stand for: a sign, 5 bits of exponent and 10 of fraction. */",
    "static inline float rnnconvert_half(uint16_t bits) {",
    "    int exponent = (bits >> 10) & 31, fraction = bits & 1023;",
    "    float value = exponent == 31 ? (fraction ? NAN : INFINITY)",
    "                : exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24);",
    "    return bits & 0x8000 ? -value : value;", "}", "#endif", "",
]  # fmt: skip


def _comment(content: str) -> str:
    r"""Return a comment that nothing in it ends or begins again; what is JSON in it stays so: there `\u002a` is an asterisk."""
    return "/* " + re.sub(r"[\x00-\x1f]", " ", content).replace("*", r"\u002a") + " */"


class _Layer:
    """One layer as C."""

    def __init__(self, name: str, layout: Layout, stack: Recurrent, packed: dict[str, Array], narrow: bool) -> None:
        self.name, self.layout, self.stack, self.packed = name, layout, stack, packed
        self.first = stack.first
        self.dtype = next(iter(packed.values())).dtype
        self.real = "double" if self.dtype == np.float64 else "float"
        self.columns = layout.name.endswith("_columns")
        self.narrow = narrow
        self.lost = self.largest = 0.0

    def described(self, called: str) -> dict[str, Any]:
        """Return what a reader has to know."""
        cell = self.stack.cell
        functions = {"activation": cell.activation}
        functions |= {"gate_activation": cell.gate_activation} if cell.kind != "rnn" else {}
        functions |= {"output_activation": cell.output_activation} if cell.kind == "lstm" else {}
        return {
            "name": called, "prefix": self.name, "layout": self.layout.name, "storage": "int8" if self.narrow else str(self.dtype),
            "dtype": str(self.dtype), "shapes": {local: list(array.shape) for local, array in self.packed.items()},
            **{key: [one.name, one.alpha, one.beta] for key, one in functions.items()},
        }  # fmt: skip

    def arrays(self) -> Iterator[str]:
        """Yield the definitions of the sizes and the arrays."""
        upper, first = self.name.upper(), self.first
        yield _comment(f"{self.name}: {self.stack.describe()}")
        yield f"#define {upper}_INPUT {first.input_size}"
        yield f"#define {upper}_HIDDEN {first.hidden_size}"
        yield f"#define {upper}_OUTPUT {first.output_size}"
        for local, array in self.packed.items():
            if self.narrow and local in _MATRICES:
                yield from self._bytes(local, array)
            elif self.dtype == np.float16:
                yield from _array(
                    "uint16_t", f"{self.name}_{local}", [str(one) for one in array.view(np.uint16).reshape(-1)]
                )
            else:
                yield from _array(
                    self.real, f"{self.name}_{local}", [_number(one, self.real) for one in array.reshape(-1).tolist()]
                )
        yield ""

    def _bytes(self, local: str, array: Array) -> Iterator[str]:
        """Yield a matrix in int8, with a scale for each row that acts on a gate's unit."""
        rows = (array.T if self.columns else array).astype(np.float64)
        scales = np.abs(rows).max(axis=1) / 127
        scales = np.where(scales > 0, scales, 1).astype(np.float32)
        codes = np.clip(np.round(rows / scales[:, None]), -127, 127).astype(np.int8)
        self.lost = max(self.lost, float(np.abs(codes * scales[:, None].astype(np.float64) - rows).max(initial=0)))
        self.largest = max(self.largest, float(np.abs(rows).max(initial=0)))
        stored = codes.T if self.columns else codes
        yield from _array("int8_t", f"{self.name}_{local}", [str(one) for one in stored.reshape(-1)])
        yield from _array(self.real, f"{self.name}_{local}_scale", [_number(one, self.real) for one in scales.tolist()])

    def _get(self, local: str, row: str, column: str, rows: int, columns: int) -> str:
        """Return the C of one number of a matrix."""
        place = f"({column}) * {rows} + {row}" if self.columns else f"({row}) * {columns} + {column}"
        value = f"{self.name}_{local}[{place}]"
        if self.narrow:
            return f"{value} * {self.name}_{local}_scale[{row}]"
        return f"rnnconvert_half({value})" if self.dtype == np.float16 else value

    def _vector(self, local: str, place: str) -> str:
        value = f"{self.name}_{local}[{place}]"
        return f"rnnconvert_half({value})" if self.dtype == np.float16 else value

    def function(self) -> Iterator[str]:
        """Yield the state and the step."""
        first, name, real = self.first, self.name, self.real
        kind, units, out, width = first.cell.kind, first.hidden_size, first.output_size, first.input_size
        gates = len(self.layout.order)
        rows = gates * units
        cell = f" {real} c[{units}];" if kind == "lstm" else ""
        yield f"typedef struct {{ {real} h[{out}];{cell} }} {name}_state;"
        yield ""
        yield f"static inline void {name}_step(const {real} *x, {name}_state *state, {real} *y) {{"
        yield f"    {real} a[{rows}];"
        if kind == "gru":
            yield f"    {real} n[{units}];"
        yield "    int i, j;"
        yield f"    for (j = 0; j < {rows}; j++) {{"
        yield f"        {real} sum = {self._vector('b', 'j')};"
        yield f"        for (i = 0; i < {width}; i++) sum += {self._get('W', 'j', 'i', rows, width)} * x[i];"
        recurrent = f"for (i = 0; i < {out}; i++) sum += {self._get('R', 'j', 'i', rows, out)} * state->h[i];"
        yield f"        {recurrent if kind != 'gru' else f'if (j < {2 * units}) ' + recurrent}"
        yield "        a[j] = sum;"
        yield "    }"
        yield from {"rnn": self._rnn, "gru": self._gru, "lstm": self._lstm}[kind](units, rows)
        yield f"    for (j = 0; j < {out}; j++) y[j] = state->h[j];"
        yield "}"
        yield ""

    def _rnn(self, units: int, rows: int) -> Iterator[str]:
        yield f"    for (j = 0; j < {units}; j++) state->h[j] = {_function(self.stack.cell.activation, 'a[j]', self.real)};"

    def _gru(self, units: int, rows: int) -> Iterator[str]:
        """Yield a GRU's step: rows r, z, n."""
        cell, real = self.stack.cell, self.real
        row = f"{2 * units} + j"
        product = self._get("R", row, "i", rows, units)
        yield f"    for (j = 0; j < {2 * units}; j++) a[j] = {_function(cell.gate_activation, 'a[j]', real)};"
        yield f"    for (j = 0; j < {units}; j++) {{"
        if cell.reset_after:
            yield f"        {real} sum = {self._vector('b', f'{3 * units} + j')};"
            yield f"        for (i = 0; i < {units}; i++) sum += {product} * state->h[i];"
            yield f"        sum = a[{row}] + a[j] * sum;"
        else:
            yield f"        {real} sum = a[{row}];"
            yield f"        for (i = 0; i < {units}; i++) sum += {product} * (a[i] * state->h[i]);"
        yield f"        n[j] = {_function(cell.activation, 'sum', real)};"
        yield "    }"
        yield f"    for (j = 0; j < {units}; j++) {{"
        yield f"        {real} z = a[{units} + j];"
        yield "        state->h[j] = (1 - z) * n[j] + z * state->h[j];"
        yield "    }"

    def _lstm(self, units: int, rows: int) -> Iterator[str]:
        """Yield an LSTM's step: rows i, f, g, o."""
        cell, real = self.stack.cell, self.real
        peeping = "P" in self.packed
        peep = {
            gate: f" + {self._vector('P', f'{place * units} + j')} * " if peeping else ""
            for place, gate in enumerate("ifo")
        }
        old, new = ("state->c[j]" if peeping else ""), ("c" if peeping else "")

        def gate(index: int, more: str) -> str:
            return _function(cell.gate_activation, f"(a[{index * units} + j]{more})", real)

        projected = self.first.projection_size
        if projected:
            yield f"    {real} m[{units}];"
        yield f"    for (j = 0; j < {units}; j++) {{"
        yield f"        {real} in = {gate(0, peep['i'] + old)};"
        yield f"        {real} forget = {gate(1, peep['f'] + old)};"
        yield f"        {real} c = forget * state->c[j] + in * {_function(cell.activation, f'a[{2 * units} + j]', real)};"
        yield f"        {real} out = {gate(3, peep['o'] + new)};"
        yield "        state->c[j] = c;"
        yield f"        {'m[j]' if projected else 'state->h[j]'} = out * {_function(cell.output_activation, 'c', real)};"
        yield "    }"
        if projected:
            yield f"    for (j = 0; j < {projected}; j++) {{"
            yield f"        {real} sum = 0;"
            yield f"        for (i = 0; i < {units}; i++) sum += {self._get('projection', 'j', 'i', projected, units)} * m[i];"
            yield "        state->h[j] = sum;"
            yield "    }"


def _function(function: Activation, value: str, real: str) -> str:
    """Return the C of a function of a value; functions of float have an f behind their names."""
    alpha, beta = (_number(one or 0.0, real) for one in (function.alpha, function.beta))
    end = "f" if real == "float" else ""
    return {
        "tanh": f"tanh{end}({value})", "sigmoid": f"RNNCONVERT_SIGMOID{end.upper()}({value})", "relu": f"({value} > 0 ? {value} : 0)",
        "linear": value, "softsign": f"({value} / (1 + fabs{end}({value})))",
        "hard_sigmoid": f"RNNCONVERT_CLAMP({alpha} * {value} + {beta})",
    }[function.name]  # fmt: skip


def _number(value: float, real: str) -> str:
    """Return a number as C has it, so that it is read again as the same one."""
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    digits = f"{value:.17g}" if real == "double" else f"{value:.9g}"
    digits += "" if "." in digits or "e" in digits else ".0"
    return digits + ("" if real == "double" else "f")


def _array(kind: str, name: str, numbers: list[str]) -> Iterator[str]:
    yield f"static const {kind} {name}[{len(numbers)}] = {{"
    for start in range(0, len(numbers), _PER_LINE):
        yield "    " + ", ".join(numbers[start : start + _PER_LINE]) + ","
    yield "};"
