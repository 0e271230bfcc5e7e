"""The recurrent operators of aten, layer by layer. Source: aten/src/ATen/native/RNN.cpp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rnnconvert.formats.pytorch.aten_operator import BoundCall, PackedSteps
from rnnconvert.graphs.sizes import Dim
from rnnconvert.models.model import Unit
from rnnconvert.scaffolding.recurrent import recurrent as called
from rnnconvert.scaffolding.tensors import SourceTensor

if TYPE_CHECKING:
    from rnnconvert.formats.pytorch.described.reading import ProgramReading

_CELLS = {"lstm": ("lstm", "tanh"), "gru": ("gru", "tanh"), "rnn_tanh": ("rnn", "tanh"), "rnn_relu": ("rnn", "relu")}
"""By their operators the kinds of cells, and their functions."""


def recurrent(r: ProgramReading, call: BoundCall) -> list[Any]:
    """Return the outputs of a recurrent operator: its output, and the final states of all its layers."""
    x, *arguments = call.arguments
    packed = x if isinstance(x, PackedSteps) else None
    if packed is None:
        states, weights, biased, layers, rate, training, both, first = arguments
    else:
        (sizes, states, weights, biased, layers, rate, training, both), first, x = arguments, True, packed.x
        packed.check_sizes(sizes)
    lstm = call.name == "lstm"
    if training and rate and layers > 1:
        raise r.build.refuse("dropout between layers that is on", "save the model in evaluation, model.eval()")
    if not isinstance(x, SourceTensor) or x.rank != 3:
        raise ValueError("a sequence of other than three axes")
    if x.dtype != "float32":
        raise ValueError(f"a layer of {x.dtype}")
    x = x if first else r.build.transpose(x, (1, 0, 2))
    states = list(states) if isinstance(states, (list, tuple)) else [states]
    states = states if packed is None else [packed.in_rows(state) for state in states]
    for state in states:
        if state.rank != 3:
            raise ValueError("states of other than three axes")
        r.build.need(state.dims[0], layers * (1 + bool(both)))
    ways, per = 1 + bool(both), len(weights) // (layers * (1 + bool(both)))
    finals: list[list[SourceTensor]] = [[] for _ in range(1 + lstm)]
    for layer in range(layers):
        arrays = weights[layer * ways * per : (layer + 1) * ways * per]
        begun = [[r.build.select(state, 0, layer * ways + way) for state in states] for way in range(ways)]
        unit = _unit(r, call.name, arrays, ways, bool(biased))
        initial = _states(r, unit, [state for way in begun for state in way], x.dims[0])
        x, ends = called(r.build, unit, x, initial, None if packed is None else packed.mask)
        for word, listed in enumerate(finals):
            listed += ends[word :: 1 + lstm]
    stacked = [r.build.stacked(listed) for listed in finals]
    if packed is not None:
        return [replace(packed, x=x, zero=True), *(packed.reordered(state, 1) for state in stacked)]
    return [x if first else r.build.transpose(x, (1, 0, 2)), *stacked]


def cell(r: ProgramReading, call: BoundCall) -> Any:
    """Return the outputs of a cell's operator: its states after a step."""
    x, states, *weights = call.arguments
    states = list(states) if isinstance(states, (list, tuple)) else [states]
    if not all(isinstance(tensor, SourceTensor) and tensor.rank == 2 for tensor in (x, *states)):
        raise ValueError("a step of other than two axes")
    present = [weight for weight in weights if weight is not None]
    unit = _unit(r, call.name.removesuffix("_cell"), present, 1, len(present) == 4)
    _, finals = called(r.build, unit, r.build.unsqueeze(x, [1]), _states(r, unit, states, x.dims[0]), sequences=False)
    return finals if len(finals) > 1 else finals[0]


def _unit(r: ProgramReading, operator: str, weights: Sequence[Any], ways: int, biased: bool) -> Unit:
    """Return the layer that weights are of. Raises RefusedError where the operator reads them as others."""
    unit: Unit = r.unit(*weights)
    stack = unit.stack
    words = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if biased else ()))
    words += ("weight_hr",) if stack is not None and stack.first.projection_size else ()
    if stack is None or stack.num_layers != 1 or stack.num_directions != ways or len(weights) != ways * len(words):
        raise r.build.refuse("a recurrent layer of other weights than its own", "no line is known for it")
    order = [*words] * ways
    for number, (word, weight) in enumerate(zip(order, weights, strict=True)):
        name = weight.stored.rpartition(".")[2]
        if not name.startswith(word) or name.endswith("_reverse") != (number >= len(order) // ways):
            raise r.build.refuse("a recurrent layer that reads its weights in another order", f"{name!r} stands for {word}")
    if (stack.cell.kind, stack.cell.activation.name) != _CELLS[operator]:
        raise r.build.refuse(f"weights of {stack.cell.kind} read by {operator}", "the file says otherwise")
    return unit


def _states(r: ProgramReading, unit: Unit, states: Sequence[SourceTensor], batch: Dim) -> list[SourceTensor]:
    """Return initial states for a batch; none where they are zeros."""
    if all(map(r.build.is_zero, states)):
        return []
    assert unit.stack is not None
    first = unit.stack.first
    widths = [first.output_size, first.hidden_size][: 1 + (first.cell.kind == "lstm")]
    for number, state in enumerate(states):
        r.build.need(state.dims[1], widths[number % len(widths)])
        if state.dims[0] != 1:
            r.same(state.dims[0], batch)
    return [r.build.expand(state, (batch, state.dims[1])) if state.dims[0] == 1 else state for state in states]
