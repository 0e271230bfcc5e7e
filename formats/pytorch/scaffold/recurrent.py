"""Recurrent layers as PyTorch: torch.nn's where they compute the same, a loop over the steps where they do not."""

from __future__ import annotations

from rnnconvert.core.cells import SIGMOID, TANH, Cell
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.pytorch.scaffold.loops import loop
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.steps import class_of
from rnnconvert.scaffolding.writer import Module


def _plain(cell: Cell) -> bool:
    """Return whether torch.nn has the cell."""
    if cell.clips:
        return False
    if cell.kind == "rnn":
        return cell.activation.name in ("tanh", "relu")
    gates = cell.gate_activation == SIGMOID and cell.activation == TANH
    return gates and (cell.reset_after is True if cell.kind == "gru" else cell.output_activation == TANH)


def recurrent(m: Module, node: Node[kinds.Recurrent]) -> str:
    """Write the lines of a recurrent layer."""
    cell: Cell = node.kind.cells[0]
    both, lstm, units = len(node.kind.cells) > 1, cell.kind == "lstm", node.kind.units
    plain = _plain(cell)
    words = f"{node.x.shape[-1]}, {units}"
    words += "" if node.kind.biases else ", bias=False"
    words += ", bidirectional=True" if both else ""
    if plain:
        words += ', nonlinearity="relu"' if cell.kind == "rnn" and cell.activation.name == "relu" else ""
        constructor = f"nn.{cell.kind.upper()}({words}, batch_first=True)"
    else:
        wishes = [word for word, wish in (("both ways", both), ("masked", node.named.get("mask"))) if wish]
        constructor = f"{class_of(m.file, cell, loop, '', *wishes)}({words})"
    part = m.part(node.layer, constructor)
    state = _initial(m, node, both, lstm)
    mask = m(node.named["mask"][0]) if node.named.get("mask") else ""
    turn = ".flip(1)" if node.kind.backwards else ""
    x = m(node.x) + turn
    zero = ", zero=True" if node.kind.zero else ""
    if mask and plain:
        call = f"{m.helper('masked')}({part}, {x}, {mask}{turn}{', ' + state if state else ''}{zero})"
    else:
        call = f"{part}({x}{', ' + state if state else ''}{f', mask={mask}{turn}{zero}' if mask else ''})"
    _lines(m, node, call, both, lstm)
    return ""


def _initial(m: Module, node: Node[kinds.Recurrent], both: bool, lstm: bool) -> str:
    """Return the initial states as torch takes them: (directions, batch, hidden)."""
    states = [m(value) for value in node.named.get("states", ())]
    if node.kind.stateful:
        if states:
            raise RefusedError("initial states of a stateful layer", "PyTorch", "it keeps those of the last call", "", node.layer)
        return m.state(node.layer)
    if not states:
        return ""
    count = 2 if lstm else 1
    by_word = [states[word::count] for word in range(count)]
    stacked = [f"torch.stack([{', '.join(values)}])" if both else f"{values[0]}.unsqueeze(0)" for values in by_word]
    return f"({', '.join(stacked)})" if lstm else stacked[0]


def _lines(m: Module, node: Node[kinds.Recurrent], call: str, both: bool, lstm: bool) -> None:
    merge, sequences = node.kind.merge, node.kind.sequences
    count = 2 if both and merge is None else 1
    outs, finals = node.outputs[:count], node.outputs[count:]
    keeps = m.state(node.layer) if node.kind.stateful else ""
    wants_states = any(m.used(value) for value in finals)
    m.release(node)
    ends = "h, c" if lstm else "h"
    ends_needed = wants_states or not sequences
    got = keeps or (("h, _" if lstm and not wants_states else ends) if ends_needed else "_")
    target = f"({got})" if ends_needed and lstm and not keeps else got
    if sequences:
        name = m.new(outs[0]) if len(outs) == 1 else m.new(outs[0], "both")
        m.line(f"{name}, {target} = {call}", node.y.shape if not both or merge == "concat" else None)
        if both and merge != "concat":
            halves = f"{name}.chunk(2, dim=-1)"
            _merge(m, node, name, halves)
    else:
        m.line(f"_, {target} = {call}")
    if keeps and ends_needed:
        m.line(f"{ends} = {keeps}")
    if not sequences and (merge != "concat" or m.used(outs[0])):
        if not both:
            m.line(f"{m.new(outs[0])} = h[0]", node.y.shape)
        elif merge == "concat":
            m.line(f"{m.new(outs[0])} = torch.cat([h[0], h[1]], dim=-1)", node.y.shape)
        else:
            _merge(m, node, m.new(outs[0]) if len(outs) == 1 else "", "h")
    per = 2 if lstm else 1
    for number, value in enumerate(finals):
        if m.used(value):
            way, word = divmod(number, per)
            name = m.new(value, f"{m.stem(node)}_{'hc'[word]}" + "_backward" * way)
            m.line(f"{name} = {'hc'[word]}[{way}]", value.shape)


_MERGES = {"sum": "{0} + {1}", "mul": "{0} * {1}", "ave": "({0} + {1}) / 2"}


def _merge(m: Module, node: Node[kinds.Recurrent], name: str, halves: str) -> None:
    """Write the line that merges both directions."""
    if node.kind.merge is None:
        first, second = (m.rename(value, word) for value, word in zip(node.outputs[:2], ("forward", "backward"), strict=True))
        m.line(f"{first}, {second} = {halves}", node.y.shape)
        return
    if halves == "h":
        m.line(f"{name} = {_MERGES[node.kind.merge].format('h[0]', 'h[1]')}", node.y.shape)
        return
    m.line(f"ahead, back = {halves}")
    m.line(f"{name} = {_MERGES[node.kind.merge].format('ahead', 'back')}", node.y.shape)
