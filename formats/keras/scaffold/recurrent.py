"""Recurrent layers as Keras 3, whose masks, directions and orders of states descriptions follow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rnnconvert.core.cells import SIGMOID, TANH, Activation
from rnnconvert.formats.keras.scaffold.configured import KerasLayer, alike, layer
from rnnconvert.formats.keras.scaffold.space import window
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node

_CLASSES = {"lstm": "LSTM", "gru": "GRU", "rnn": "SimpleRNN"}


def _function(m: Any, node: Node[kinds.Kind], function: Activation, default: Activation) -> str | KerasLayer | None:
    if function == default:
        return None
    plain = function.alpha is None or (function.name == "elu" and function.alpha == 1)
    sixth = function.name == "hard_sigmoid" and function.alpha == 1 / 6
    if function.name == "leaky_relu":
        return layer("LeakyReLU", 1, negative_slope=float(f"{function.alpha:.9g}"))
    if not plain and not sixth:
        raise m.refused(node, f"the function {function}", "Keras 3 has no such function")
    return function.name


def conv_lstm(m: Any, node: Node[kinds.ConvLSTM]) -> str:
    """Write the line of an LSTM whose products are convolutions."""
    cell, finals = node.kind.cell, node.outputs[1:]
    wants = any(m.used_by(node.layer, place) for place in range(1, len(node.outputs)))
    convolving = layer(
        f"ConvLSTM{node.kind.rank}D", 2, filters=node.kind.filters, kernel_size=alike(node.kind.kernel), **window(node),
        activation=_function(m, node, cell.activation, TANH), recurrent_activation=_function(m, node, cell.gate_activation, SIGMOID),
        use_bias=None if node.kind.bias else False, return_sequences=node.kind.sequences or None, return_state=wants or None,
        go_backwards=node.kind.backwards or None, stateful=node.kind.stateful or None,
    )  # fmt: skip
    states = [m(value) for value in node.named.get("states", ())]
    more = f"initial_state=[{', '.join(states)}]" if states else ""
    text = str(m.called(convolving, node.x, more, layer=node.layer))
    if not wants:
        return text
    m.release(node)
    names = [m.new(value, f"{m.stem(node)}_{word}") if m.used(value) else "_" for word, value in zip("hc", finals, strict=True)]
    m.line(f"{', '.join([m.new(node.y), *names])} = {text}", node.y.shape)
    return ""


def _constructed(m: Any, node: Node[kinds.Recurrent], way: int, more: dict[str, Any]) -> KerasLayer:
    """Return one direction."""
    cell, units, bias = node.kind.cells[way], node.kind.units, node.kind.biases
    units, bias = units[way] if isinstance(units, tuple) else units, bias[way] if isinstance(bias, tuple) else bias
    if cell.clips:
        raise m.refused(node, f"a cell with {', '.join(map(str, cell.clips))}", "the layers of Keras have no such bounds")
    if cell.kind == "lstm" and cell.output_activation != cell.activation:
        raise m.refused(node, "an LSTM with another function for its output", "Keras has one for both")
    return layer(
        _CLASSES[cell.kind], 1, units=units, activation=_function(m, node, cell.activation, TANH),
        recurrent_activation=None if cell.kind == "rnn" else _function(m, node, cell.gate_activation, SIGMOID),
        use_bias=None if bias else False, reset_after=False if cell.kind == "gru" and not cell.reset_after else None, **more,
    )  # fmt: skip


def recurrent(m: Any, node: Node[kinds.Recurrent]) -> str:
    """Write the line of a recurrent layer."""
    cells, both, mask = node.kind.cells, len(node.kind.cells) > 1, node.named.get("mask")
    count = 2 if both and node.kind.merge is None else 1
    outs, finals = node.outputs[:count], node.outputs[count:]
    wants = any(m.used_by(node.layer, place) for place in range(count, len(node.outputs)))
    zero = node.kind.zero and bool(mask)
    if both and mask and node.kind.sequences and not zero:
        raise m.refused(node, "two directions that keep their outputs at masked steps", "Keras's Bidirectional gives zeros there")
    more = {
        "return_sequences": node.kind.sequences or None,
        "return_state": wants or None,
        "stateful": node.kind.stateful or None,
        "zero_output_for_mask": (zero and not both) or None,
    }
    called = _constructed(m, node, 0, {**more, "go_backwards": node.kind.backwards or None})
    if both:
        unlike = cells[1] != cells[0] or isinstance(node.kind.units, tuple) or isinstance(node.kind.biases, tuple)
        back = _constructed(m, node, 1, {**more, "go_backwards": True}) if unlike else None
        called = layer("Bidirectional", 1, layer=called, backward_layer=back)
        merge = {} if node.kind.merge == "concat" else {"merge_mode": node.kind.merge}  # None is a setting here, not the default
        called = replace(called, settings={**called.settings, **merge})
    states = [m(value) for value in node.named.get("states", ())]
    arguments = [f"mask={m(mask[0])}" if mask else "", f"initial_state=[{', '.join(states)}]" if len(states) > 1 else ""]
    arguments += [f"initial_state={states[0]}"] if len(states) == 1 else []
    text = str(m.called(called, node.x, *arguments, layer=node.layer))
    if len(outs) == 1 and not wants:
        return text
    m.release(node)
    names = (
        [m.new(outs[0])] if len(outs) == 1 else [m.rename(value, word) for value, word in zip(outs, ("forward", "backward"), strict=True)]
    )
    ends = [(way, word) for way, cell in enumerate(cells) for word in range(2 if cell.kind == "lstm" else 1)]
    for (way, word), value in zip(ends, finals if wants else (), strict=False):
        names.append(m.new(value, f"{m.stem(node)}_{'hc'[word]}" + "_backward" * way) if m.used(value) else "_")
    m.line(f"{', '.join(names)} = {text}", node.y.shape)
    return ""
