"""Recurrent layers as Keras 3, whose masks, directions and orders of states descriptions follow."""

from __future__ import annotations

from typing import Any

from rnnconvert.core.cells import SIGMOID, TANH, Activation
from rnnconvert.formats.keras.scaffold.space import window
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.spelling import sizes

_CLASSES = {"lstm": "LSTM", "gru": "GRU", "rnn": "SimpleRNN"}


def _function(m: Any, node: Node, key: str, function: Activation, default: Activation) -> str:
    if function == default:
        return ""
    plain = function.alpha is None or (function.name == "elu" and function.alpha == 1)
    sixth = function.name == "hard_sigmoid" and function.alpha == 1 / 6
    if function.name == "leaky_relu":
        return f"{key}=layers.LeakyReLU({function.alpha:.9g})"
    if not plain and not sixth:
        raise m.refused(node, f"the function {function}", "Keras 3 has no such function")
    return f'{key}="{function.name}"'


def conv_lstm(m: Any, node: Node) -> str:
    """Write the line of an LSTM whose products are convolutions."""
    cell, finals = node["cell"], node.outputs[1:]
    wants = any(m.used_by(node.layer, place) for place in range(1, len(node.outputs)))
    words = [
        str(node["filters"]), sizes(node["kernel"]), *window(node), _function(m, node, "activation", cell.activation, TANH),
        _function(m, node, "recurrent_activation", cell.gate_activation, SIGMOID), "" if node["bias"] else "use_bias=False",
        *(f"{word}=True" for word, wish in (
            ("return_sequences", node["sequences"]), ("return_state", wants), ("go_backwards", node["backwards"]),
            ("stateful", node["stateful"])) if wish),
    ]  # fmt: skip
    states = [m(value) for value in node.named.get("states", ())]
    more = f"initial_state=[{', '.join(states)}]" if states else ""
    layer = f"layers.ConvLSTM{node['rank']}D({', '.join(word for word in words if word)})"
    text = str(m.called(layer, node.x, more, layer=node.layer))
    if not wants:
        return text
    m.release(node)
    names = [m.new(value, f"{m.stem(node)}_{word}") if m.used(value) else "_" for word, value in zip("hc", finals, strict=True)]
    m.line(f"{', '.join([m.new(node.y), *names])} = {text}", node.y.shape)
    return ""


def _constructed(m: Any, node: Node, way: int, more: list[str]) -> str:
    """Return the constructor of one direction."""
    cell, units, bias = node["cells"][way], node["units"], node["biases"]
    units, bias = units[way] if isinstance(units, tuple) else units, bias[way] if isinstance(bias, tuple) else bias
    if cell.clips:
        raise m.refused(node, f"a cell with {', '.join(map(str, cell.clips))}", "the layers of Keras have no such bounds")
    words = [str(units), _function(m, node, "activation", cell.activation, TANH)]
    if cell.kind != "rnn":
        words.append(_function(m, node, "recurrent_activation", cell.gate_activation, SIGMOID))
    if cell.kind == "lstm" and cell.output_activation != cell.activation:
        raise m.refused(node, "an LSTM with another function for its output", "Keras has one for both")
    words += ["" if bias else "use_bias=False", "reset_after=False" if cell.kind == "gru" and not cell.reset_after else "", *more]
    return f"layers.{_CLASSES[cell.kind]}({', '.join(word for word in words if word)})"


def recurrent(m: Any, node: Node) -> str:
    """Write the line of a recurrent layer."""
    cells, both, mask = node["cells"], len(node["cells"]) > 1, node.named.get("mask")
    count = 2 if both and node["merge"] is None else 1
    outs, finals = node.outputs[:count], node.outputs[count:]
    wants = any(m.used_by(node.layer, place) for place in range(count, len(node.outputs)))
    zero = node["zero"] and bool(mask)
    if both and mask and node["sequences"] and not zero:
        raise m.refused(node, "two directions that keep their outputs at masked steps", "Keras's Bidirectional gives zeros there")
    more = [
        "return_sequences=True" if node["sequences"] else "",
        "return_state=True" if wants else "",
        "stateful=True" if node["stateful"] else "",
        "zero_output_for_mask=True" if zero and not both else "",
    ]
    layer = _constructed(m, node, 0, [*more, "go_backwards=True" if node["backwards"] else ""])
    if both:
        unlike = cells[1] != cells[0] or isinstance(node["units"], tuple) or isinstance(node["biases"], tuple)
        back = _constructed(m, node, 1, [*more, "go_backwards=True"]) if unlike else ""
        merge = "" if node["merge"] == "concat" else f"merge_mode={node['merge']!r}".replace("'", '"')
        layer = f"layers.Bidirectional({', '.join(word for word in (layer, f'backward_layer={back}' if back else '', merge) if word)})"
    states = [m(value) for value in node.named.get("states", ())]
    arguments = [f"mask={m(mask[0])}" if mask else "", f"initial_state=[{', '.join(states)}]" if len(states) > 1 else ""]
    arguments += [f"initial_state={states[0]}"] if len(states) == 1 else []
    text = str(m.called(layer, node.x, *arguments, layer=node.layer))
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
