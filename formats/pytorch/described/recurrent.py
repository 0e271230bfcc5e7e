"""The recurrent operators of aten, layer by layer. Source: aten/src/ATen/native/RNN.cpp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnnconvert.formats.pytorch.described.reading import Call, Reading
from rnnconvert.models.model import Unit
from rnnconvert.scaffolding.tensors import Tensor

_CELLS = {"lstm": ("lstm", "tanh"), "gru": ("gru", "tanh"), "rnn_tanh": ("rnn", "tanh"), "rnn_relu": ("rnn", "relu")}
"""By their operators the kinds of cells, and their functions."""


def recurrent(r: Reading, call: Call) -> list[Tensor]:
    """Return what a recurrent operator gives: its output, and the final states of all its layers."""
    arguments, lstm = call.arguments, call.name == "lstm"
    if len(arguments) != 9 or isinstance(arguments[1 if lstm else 2], bool):
        raise r.build.refuse("a recurrent layer over packed sequences", "lengths that a run hands over are not followed here")
    x, states, weights, biased, layers, _, training, both, first = arguments
    if training and arguments[5] and layers > 1:
        raise r.build.refuse("dropout between layers that is on", "save the model in evaluation, model.eval()")
    if not isinstance(x, Tensor) or x.rank != 3:
        raise ValueError("a sequence of other than three axes")
    if x.dtype != "float32":
        raise ValueError(f"a layer of {x.dtype}")
    x = x if first else r.build.transpose(x, (1, 0, 2))
    r.build.call(x.dims[0], "batch")
    r.build.call(x.dims[1], "time")
    states = list(states) if isinstance(states, (list, tuple)) else [states]
    for state in states:
        if state.rank != 3:
            raise ValueError("states of other than three axes")
        r.build.need(state.dims[0], layers * (1 + bool(both)))
    ways, per = 1 + bool(both), len(weights) // (layers * (1 + bool(both)))
    finals: list[list[Tensor]] = [[] for _ in range(1 + lstm)]
    for layer in range(layers):
        arrays = weights[layer * ways * per : (layer + 1) * ways * per]
        begun = [[r.build.select(state, 0, layer * ways + way) for state in states] for way in range(ways)]
        x, ends = _layer(r, call, x, arrays, [state for way in begun for state in way], ways, bool(biased))
        for word, listed in enumerate(finals):
            listed += ends[word :: 1 + lstm]
    return [x if first else r.build.transpose(x, (1, 0, 2)), *(r.build.stacked(listed) for listed in finals)]


def _layer(
    r: Reading, call: Call, x: Tensor, weights: Sequence[Any], states: Sequence[Tensor], ways: int, biased: bool
) -> tuple[Tensor, list[Tensor]]:
    """Add one layer on (batch, time, features); return its output, and the final states of each direction."""
    unit: Unit = r.unit(*weights)
    stack = unit.stack
    if stack is None or stack.num_layers != 1 or stack.num_directions != ways or len(weights) != ways * (2 + 2 * biased):
        raise r.build.refuse("a recurrent layer with a projection, or of other weights than its own", "no line is known for it")
    order = [word for word in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[: 2 + 2 * biased]] * ways
    for number, (word, weight) in enumerate(zip(order, weights, strict=True)):
        name = weight.stored.rpartition(".")[2]
        if not name.startswith(word) or name.endswith("_reverse") != (number >= len(order) // ways):
            raise r.build.refuse("a recurrent layer that reads its weights in another order", f"{name!r} stands for {word}")
    r.build.need(x.dims[2], stack.input_size)
    units, lstm, cell = stack.hidden_size, stack.cell.kind == "lstm", stack.cell
    if (cell.kind, cell.activation.name) != _CELLS[call.name]:
        raise r.build.refuse(f"weights of {cell.kind} read by {call.name}", "the file says otherwise")
    if all(map(r.build.is_zero, states)):
        states = []
    for state in states:
        r.build.need(state.dims[1], units)
        if state.dims[0] != 1:
            r.build.need(state.dims[0], x.dims[0])
    states = [r.build.expand(state, (x.dims[0], units)) if state.dims[0] == 1 else state for state in states]
    named: dict[str, Any] = {"mask": [], "states": list(states)}
    ends = [((x.dims[0], units), "float32", f"{unit.name}_{word}") for word in ("h", "c")[: 1 + lstm]] * ways
    out, *finals = r.build.several(
        "recurrent",
        unit.name,
        [x],
        [((x.dims[0], x.dims[1], ways * units), "float32", unit.name), *ends],
        named,
        cells=(cell,) * ways,
        units=units,
        biases=biased,
        sequences=True,
        zero=False,
        backwards=False,
        merge="concat",
        stateful=False,
    )
    return out, finals
