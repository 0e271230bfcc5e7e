"""One recurrent layer as C: its arrays, and a function for one step."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray, pieces
from rnnconvert.core.cells import Activation
from rnnconvert.core.weights import Recurrent
from rnnconvert.language.layout import Layout

_PER_LINE = 8
_PART = 1 << 14


class StoredMatrix(NamedTuple):
    """The arrays of a layer as a header holds them: numbers, or integers of 8 bits and a scale for each of their rows.

    scales  of the arrays that are integers, by their names
    """

    numbers: Mapping[str, Array | PiecewiseArray]
    scales: Mapping[str, Array]

    def definitions(self, name: str, dtype: np.dtype[Any]) -> Iterator[str]:
        """Yield the definitions of the arrays, which hold numbers of a type; a large array is never in memory as text."""
        real = "double" if dtype == np.float64 else "float"
        for local, array in self.numbers.items():
            full, size = f"{name}_{local}", int(np.prod(array.shape))
            if local in self.scales:
                yield from _array("int8_t", full, size, (map(str, part.tolist()) for part in _parts(array)))
                yield from _array(real, f"{full}_scale", self.scales[local].size, [numbers_in_c(self.scales[local], real)])
            elif dtype == np.float16:
                yield from _array("uint16_t", full, size, (map(str, part.view(np.uint16).tolist()) for part in _parts(array)))
            else:
                yield from _array(real, full, size, (numbers_in_c(part, real) for part in _parts(array)))


def comment(content: str) -> str:
    r"""Return a comment that nothing in it ends or begins again; what is JSON in it stays so: there `\u002a` is an asterisk.

    What nobody sees is escaped in the same way: marks that turn the direction of writing, and letters without a form.
    """
    plain = re.sub(r"[\x00-\x1f]", " ", content).replace("*", r"\u002a")
    if not plain.isascii():
        plain = "".join(char if char.isprintable() and not _UNSEEN.match(char) else json.dumps(char)[1:-1] for char in plain)
    return f"/* {plain.replace(chr(0x7F), ' ')} */"


_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters and marks without a form, which Python calls printable."""


LAYER_IDENTIFIERS = (
    *("INPUT", "HIDDEN", "OUTPUT", "state", "step"),
    *(f"{local}{end}" for local in ("W", "R", "b", "P", "projection") for end in ("", "_scale")),
)
"""The ends of a recurrent layer's identifiers, behind its name."""


class WrittenLayer:
    """One layer as C.

    name    what its arrays and its function are called
    stack   its cell, its sizes and its own name; its weights are those in `stored`
    """

    def __init__(self, name: str, layout: Layout, stack: Recurrent, dtype: np.dtype[Any], stored: StoredMatrix) -> None:
        self.name, self.layout, self.stack, self.dtype, self.stored = name, layout, stack, dtype, stored
        self.first = stack.first
        self.real = "double" if dtype == np.float64 else "float"

    def described(self) -> dict[str, Any]:
        """Return the facts that a reader has to know."""
        cell = self.stack.cell
        functions = {"activation": cell.activation}
        functions |= {"gate_activation": cell.gate_activation} if cell.kind != "rnn" else {}
        functions |= {"output_activation": cell.output_activation} if cell.kind == "lstm" else {}
        return {
            "name": self.stack.name,
            "prefix": self.name,
            "layout": self.layout.name,
            "storage": "int8" if self.stored.scales else str(self.dtype),
            "dtype": str(self.dtype),
            "shapes": {local: list(array.shape) for local, array in self.stored.numbers.items()},
            **{key: [function.name, function.alpha, function.beta] for key, function in functions.items()},
            **({"clips": [[clip.kind, clip.low, clip.high] for clip in cell.clips]} if cell.clips else {}),
        }

    def arrays(self) -> Iterator[str]:
        """Yield the definitions of the sizes and the arrays."""
        upper, first = self.name.upper(), self.first
        yield comment(f"{self.name}: {self._about()}")
        yield f"#define {upper}_INPUT {first.input_size}"
        yield f"#define {upper}_HIDDEN {first.hidden_size}"
        yield f"#define {upper}_OUTPUT {first.output_size}"
        yield from self.stored.definitions(self.name, self.dtype)
        yield ""

    def _about(self) -> str:
        """Return cell, sizes, element type and the order of gates in words."""
        first, gates = self.first, f"; gates {' '.join(gate for gate, _ in self.layout.order)}"
        kind = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}[first.cell.kind]
        kind += {True: " (reset after)", False: " (reset before)", None: ""}[first.cell.reset_after]
        sizes = f"{first.input_size} -> {first.hidden_size}"
        sizes += f", projected to {first.projection_size}" if first.projection_size else ""
        note = ": b has a bias of each, then that of n's recurrent product" if first.cell.reset_after else ""
        return f"{kind}, {sizes}, {self.dtype}{gates if first.cell.kind != 'rnn' else ''}{note}"

    def _add_products(self, local: str, sums: str, first: int, count: int, rows: int, columns: int, vector: str) -> Iterator[str]:
        """Yield the code that adds the products of rows of a matrix and a vector to sums, several of which a compiler computes at a time.

        first, count  the rows
        rows          how many the matrix has, by whose columns it is stored
        vector        the C of the vector's number i

        A scale stands outside of the loop.
        """
        value, narrow = f"{self.name}_{local}[i * {rows} + {f'{first} + ' if first else ''}j]", local in self.stored.scales
        value = f"rnnconvert_half({value})" if self.dtype == np.float16 and not narrow else value
        indent, into = ("        ", "part") if narrow else ("    ", sums)
        if narrow:
            yield "    {"
            yield f"        {self.real} part[{count}] = {{0}};"
        yield f"{indent}for (i = 0; i < {columns}; i++) {{"
        yield f"{indent}    {self.real} number = {vector};"
        yield f"{indent}    for (j = 0; j < {count}; j++) {into}[j] += {value} * number;"
        yield f"{indent}}}"
        if narrow:
            row = f"{first} + j" if first else "j"
            yield f"        for (j = 0; j < {count}; j++) {sums}[j] += part[j] * {self.name}_{local}_scale[{row}];"
            yield "    }"

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
        yield f"    for (j = 0; j < {rows}; j++) a[j] = {self._vector('b', 'j')};"
        yield from self._add_products("W", "a", 0, rows, rows, width, "x[i]")
        yield from self._add_products("R", "a", 0, 2 * units if kind == "gru" else rows, rows, out, "state->h[i]")
        yield from {"rnn": self._rnn, "gru": self._gru, "lstm": self._lstm}[kind](units, rows)
        yield f"    for (j = 0; j < {out}; j++) y[j] = state->h[j];"
        yield "}"
        yield ""

    def _clipped(self, kind: str, value: str) -> str:
        """Return the C of a value within the bounds that the cell has for a kind of values."""
        for clip in self.stack.cell.clips:
            if clip.kind == kind:
                value = f"RNNCONVERT_CLIP({value}, {number_in_c(clip.low, self.real)}, {number_in_c(clip.high, self.real)})"
        return value

    def _gate(self, function: Activation, value: str) -> str:
        """Return the C of a gate: the function of its sum, within the cell's bounds."""
        return _function(function, self._clipped("gates", value), self.real)

    def _rnn(self, units: int, rows: int) -> Iterator[str]:
        yield f"    for (j = 0; j < {units}; j++) state->h[j] = {self._gate(self.stack.cell.activation, 'a[j]')};"

    def _gru(self, units: int, rows: int) -> Iterator[str]:
        """Yield a GRU's step: rows r, z, n."""
        cell, real = self.stack.cell, self.real
        yield f"    for (j = 0; j < {2 * units}; j++) a[j] = {self._gate(cell.gate_activation, 'a[j]')};"
        begin = self._vector("b", f"{3 * units} + j") if cell.reset_after else f"a[{2 * units} + j]"
        yield f"    for (j = 0; j < {units}; j++) n[j] = {begin};"
        vector = "state->h[i]" if cell.reset_after else "a[i] * state->h[i]"
        yield from self._add_products("R", "n", 2 * units, units, rows, units, vector)
        candidate = f"(a[{2 * units} + j] + a[j] * n[j])" if cell.reset_after else "n[j]"
        yield f"    for (j = 0; j < {units}; j++) n[j] = {self._gate(cell.activation, candidate)};"
        yield f"    for (j = 0; j < {units}; j++) {{"
        yield f"        {real} z = a[{units} + j];"
        yield "        state->h[j] = (1 - z) * n[j] + z * state->h[j];"
        yield "    }"

    def _lstm(self, units: int, rows: int) -> Iterator[str]:
        """Yield an LSTM's step: rows i, f, g, o."""
        cell, real = self.stack.cell, self.real
        peeping = "P" in self.stored.numbers
        peep = {gate: f" + {self._vector('P', f'{place * units} + j')} * " if peeping else "" for place, gate in enumerate("ifo")}
        before, after = self._clipped("state", "state->c[j]"), self._clipped("state", "c")
        old, new = (before if peeping else ""), (after if peeping else "")

        def gate(index: int, more: str) -> str:
            return self._gate(cell.gate_activation, f"(a[{index * units} + j]{more})")

        projected = self.first.projection_size
        if projected:
            yield f"    {real} m[{units}];"
        yield f"    for (j = 0; j < {units}; j++) {{"
        yield f"        {real} in = {gate(0, peep['i'] + old)};"
        yield f"        {real} forget = {gate(1, peep['f'] + old)};"
        total = f"forget * {before} + in * {self._gate(cell.activation, f'a[{2 * units} + j]')}"
        yield f"        {real} c = {total};"
        if (bounded := self._clipped("cell", "c")) != "c":
            yield f"        c = {bounded};"
        yield f"        {real} out = {gate(3, peep['o'] + new)};"
        yield "        state->c[j] = c;"
        yield f"        {'m[j]' if projected else 'state->h[j]'} = out * {_function(cell.output_activation, after, real)};"
        yield "    }"
        if projected:
            yield f"    for (j = 0; j < {projected}; j++) state->h[j] = 0;"
            yield from self._add_products("projection", "state->h", 0, projected, projected, units, "m[i]")
            if (bounded := self._clipped("projection", "state->h[j]")) != "state->h[j]":
                yield f"    for (j = 0; j < {projected}; j++) state->h[j] = {bounded};"


def _function(function: Activation, value: str, real: str) -> str:
    """Return the C of a function of a value; functions of float have an f behind their names."""
    alpha, beta = (number_in_c(constant or 0.0, real) for constant in (function.alpha, function.beta))
    end = "f" if real == "float" else ""
    return {
        "tanh": f"rnnconvert_tanh{end}({value})",
        "sigmoid": f"rnnconvert_sigmoid{end}({value})",
        "relu": f"({value} > 0 ? {value} : 0)",
        "linear": value,
        "softsign": f"({value} / (1 + fabs{end}({value})))",
        "hard_sigmoid": f"RNNCONVERT_CLAMP({alpha} * {value} + {beta})",
    }[function.name]


def number_in_c(value: float, real: str) -> str:
    """Return a number as C has it, so that it is read again as the same one."""
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    digits = f"{value:.17g}" if real == "double" else f"{value:.9g}"
    digits += "" if "." in digits or "e" in digits else ".0"
    return digits + ("" if real == "double" else "f")


def numbers_in_c(array: Array, real: str) -> Iterator[str]:
    """Yield numbers as C has them."""
    return (number_in_c(number, real) for number in array.tolist())


def _parts(array: Array | PiecewiseArray) -> Iterator[Array]:
    """Yield an array in parts that are small as Python's numbers, too, each of which takes eight times the memory."""
    return (piece[start : start + _PART] for piece in pieces(array) for start in range(0, piece.size, _PART))


def _array(kind: str, name: str, size: int, parts: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the definition of an array, of which no more than a part is in memory at a time."""
    yield f"static const {kind} {name}[{size}] = {{"
    words = itertools.chain.from_iterable(parts)
    while line := list(itertools.islice(words, _PER_LINE)):
        yield "    " + ", ".join(line) + ","
    yield "};"
