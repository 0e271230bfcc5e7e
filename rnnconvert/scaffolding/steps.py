"""One step of a cell as a line or two of Python, in the words of any array library; and what a written class says of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rnnconvert.core.cells import SIGMOID, TANH, Activation, Cell
from rnnconvert.scaffolding.writer import File, Loop

GATES = {"rnn": 1, "gru": 3, "lstm": 4}


@dataclass(frozen=True)
class Language:
    """A library's notation for the parts of a step.

    call     a function's value
    product  a tensor times a weight, plus a bias unless that is ""
    split    a tensor cut into so many parts along its last axis
    cut      a weight cut into the weights of its gates
    clip     a tensor within two bounds
    bare     whether a product takes a tensor as an argument, without parentheses around a sum or a product
    """

    call: Callable[[Activation, str], str]
    product: Callable[[str, str, str], str]
    split: Callable[[str, int], str]
    cut: Callable[[str, int], str]
    clip: Callable[[str, float, float], str]
    bare: bool = True


def steps(cell: Cell, language: Language, recurrent: str, bias: str, theirs: str) -> tuple[str, list[str]]:
    """Return the description of a cell, in a sentence, and the lines of its step, from the input's product x_t and the states before.

    cell             its clips, if any, are of gates and of the cell state
    recurrent, bias  the names of the recurrent weight and bias
    theirs           the library's own GRU, which a GRU that resets before the product is not
    """
    product, split = language.product, language.split
    act, gate, out = cell.activation, cell.gate_activation, cell.output_activation

    def clipped(kind: str, x: str) -> str:
        for clip in cell.clips:
            x = language.clip(x, clip.low, clip.high) if clip.kind == kind else x
        return x

    def call(function: Activation, x: str) -> str:
        return language.call(function, clipped("gates", x))

    def added(x: str, h: str, weight: str) -> str:
        return f"{x} + {product(h, weight, '')}"

    if cell.kind == "rnn":
        return f"A plain recurrent layer with {act.name} for its function.", [f"h = {call(act, added('x_t', 'h', recurrent))}"]
    if cell.kind == "lstm":
        new = f"{call(gate, 'f')} * c + {call(gate, 'i')} * {call(act, 'g')}"
        return f"An LSTM with {gate.name} for its gates and {act.name} for its candidate and its output.", [
            f"i, f, g, o = {split(added('x_t', 'h', recurrent), 4)}",
            f"c = {clipped('cell', new)}",
            f"h = {call(gate, 'o')} * {language.call(out, 'c')}",
        ]
    lines = [f"x_r, x_z, x_n = {split('x_t', 3)}"]
    if cell.reset_after:
        return f"A GRU with {gate.name} for its gates and {act.name} for its candidate.", [
            *lines,
            f"h_r, h_z, h_n = {split(product('h', recurrent, bias), 3)}",
            f"r, z = {call(gate, 'x_r + h_r')}, {call(gate, 'x_z + h_z')}",
            f"h = (1 - z) * {call(act, 'x_n + r * h_n')} + z * h",
        ]
    return (
        f"A GRU whose reset gate scales the state before the recurrent product, with {gate.name} for its gates.\n\n"
        f"    Its candidate is {act.name}. {theirs} scales the product instead."
    ), [
        *lines,
        f"weight_r, weight_z, weight_n = {language.cut(recurrent, 3)}",
        f"r = {call(gate, added('x_r', 'h', 'weight_r'))}",
        f"z = {call(gate, added('x_z', 'h', 'weight_z'))}",
        f"h = (1 - z) * {call(act, added('x_n', 'r * h' if language.bare else '(r * h)', 'weight_n'))} + z * h",
    ]


def settings(cell: Cell, indent: int) -> str:
    """Return the definition of a cell, as a dictionary that rnnconvert.load_into reads in a written class."""
    rows = [f'"kind": "{cell.kind}",', f'"reset_after": {cell.reset_after},']
    for key in ("activation", "gate_activation", "output_activation"):
        function: Activation = getattr(cell, key)
        rows.append(f'"{key}": ("{function.name}", {function.alpha!r}, {function.beta!r}),')
    if cell.clips:
        rows.append(f'"clips": {[[clip.kind, clip.low, clip.high] for clip in cell.clips]},'.replace("'", '"'))
    return "{\n" + "".join(f"{' ' * (indent + 4)}{row}\n" for row in rows) + " " * indent + "}"


def class_of(file: File, cell: Cell, make: Loop, plain: str = "", *wishes: str, kind: str = "") -> str:
    """Return the name of the class of a cell that a library lacks, and note what it is asked for.

    make   returns its class
    plain  the prefix before its kind in the name of a cell with the usual functions
    kind   the end of its name, if not its own kind
    """
    functions = [cell.activation, *([cell.gate_activation] if cell.kind != "rnn" else [])]
    others = [f.name for f in functions if f != TANH and (cell.kind == "rnn" or f != SIGMOID)]
    words = "_".join(dict.fromkeys(others))
    name = "".join(part.capitalize() for part in words.split("_")) or plain
    name = f"{'Clipped' if cell.clips else ''}{name}"
    name += kind or {"rnn": "RNN", "lstm": "LSTM", "gru": "GRU"}[cell.kind]
    standard = cell.gate_activation == SIGMOID and cell.activation == TANH
    before = cell.kind == "gru" and not cell.reset_after
    name += "ResetBefore" if before else "WithOtherGates" if not words and not standard and cell.kind != "rnn" else ""
    stem, number = name, 2
    while name in file.loops and file.loops[name][0] != cell:
        name, number = f"{stem}{number}", number + 1
    if name not in file.loops:
        name = file.names.new(name)
        file.loops[name] = cell, set(), make
    file.loops[name][1].update(wishes)
    return name
