"""Recurrent layers of Keras 3 as ONNX nodes RNN, GRU and LSTM, with the states that the model hands to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rnnconvert.core.remedies import Flag
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.formats.keras.config import Era
from rnnconvert.formats.keras.export.layer_facts import LayerFacts, ModelTensor, refuse
from rnnconvert.formats.keras.export.layers import EmitAll, GraphBuilder
from rnnconvert.formats.keras.export.masks import mask_on
from rnnconvert.formats.keras.upgrade.config import Translator
from rnnconvert.formats.keras.upgrade.layers import Layers
from rnnconvert.formats.keras.upgrade.notes import Notes
from rnnconvert.formats.onnx.graph import attributes
from rnnconvert.formats.onnx.masked_steps import CountedSteps, steps
from rnnconvert.language import registry
from rnnconvert.language.packing import pack
from rnnconvert.rewrites.fit_to_layout import fit_to_layout

_PLAIN = ("LSTM", "GRU", "SimpleRNN")


def _run(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> list[ModelTensor]:
    """Return what a recurrent layer gives."""
    start = _start(build, facts, values)
    sequences, zero = bool(facts.get("return_sequences", False)), bool(facts.get("zero_output_for_mask", False))
    output, finals = _node(build, facts, start, _LayerOutputs(sequences, zero))
    return [output, *finals] if facts.get("return_state", False) else [output]


@dataclass(frozen=True)
class _LayerInputs:
    """What a recurrent layer reads, the states that it starts from, and which steps count; None for all."""

    x: ModelTensor
    states: Sequence[ModelTensor]
    steps: CountedSteps | None


@dataclass(frozen=True)
class _LayerOutputs:
    """What a recurrent layer gives.

    sequences  its outputs at all steps
    zero       zeros at steps that do not count, instead of the output before
    turned     whether a layer that reads from the end gives its outputs in the order of time
    """

    sequences: bool
    zero: bool
    turned: bool = False


def _start(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> _LayerInputs:
    """Return what a layer starts with: its states follow the input or have a name in the call.

    Keras hands a layer the mask of its input where the input is the only tensor of the call.
    """
    if not values:
        raise refuse(facts.name, "a call without an input", "only calls with the input in front are known here")
    x, states = values[0], [*values[1:], *facts.tensors("initial_state")]
    if len(x.shape) != 3:
        raise refuse(facts.name, f"an input of {len(x.shape)} axes", "it takes (batch, time, features)")
    mask = mask_on(build, facts, x) if not states or "mask" in facts.named else None
    if mask is not None and mask.name not in build.steps:
        build.steps[mask.name] = steps(build, mask.name, mask.name)
    return _LayerInputs(x, states, None if mask is None else build.steps[mask.name])


def _node(build: GraphBuilder, facts: LayerFacts, start: _LayerInputs, wish: _LayerOutputs) -> tuple[ModelTensor, list[ModelTensor]]:
    """Return the output of a recurrent layer in the order in which Keras has it, and its final states."""
    x, states, counting = start.x, start.states, start.steps
    for key in ("use_bias", "activation", "recurrent_activation", "reset_after", "units"):
        facts.get(key)
    if facts.get("stateful", False):
        raise refuse(
            facts.name,
            "stateful = True",
            "its states last from one call to the next, and the graph keeps none",
            f"Convert the layer alone, with its states as inputs and outputs ({Flag('stateful')}), or build it without.",
        )
    facts.need("time_major", False)
    facts.need("num_constants", None)
    old, name = facts.old, facts.name
    backwards = bool(facts.get("go_backwards", False))
    mirrored = backwards and wish.zero and wish.sequences and start.steps is not None
    if bool(facts.get("unroll", False)) and mirrored:
        raise refuse(
            name,
            "unroll = True on a masked sequence read from the end, with zeros at masked steps",
            "Keras zeroes the mirrored steps on TensorFlow, none on JAX, and stops on PyTorch (keras/src/backend/*/rnn.py)",
            "Build the layer with unroll=False, which zeroes the masked steps everywhere, and check what the model gives then.",
        )
    direction, _ = Layers(Translator(Era("3"), "float32", Notes()), "").direction(old)
    direction = Direction(direction.cell, direction.arrays, backwards)
    fitted = fit_to_layout(Recurrent(name, (Layer((direction,)),)), registry.layouts_of("onnx"))
    single, size = fitted.stack, direction.hidden_size
    kind = single.layers[0].directions[0].cell.kind
    packed = pack(fitted.layout, single)
    read = x.name if counting is None else counting.front(build, name, x.name)
    inputs = [build.transposed(read, [1, 0, 2], f"{name}/in")]
    inputs += [build.constant(f"{name}/{key}", packed[key]) if key in packed else "" for key in "WRB"]
    if states:
        wanted = 2 if kind == "lstm" else 1
        if len(states) != wanted or any(len(state.shape) != 2 or state.shape[1] != size for state in states):
            shapes = ", ".join(str(state.shape) for state in states)
            raise refuse(name, f"initial states of shape {shapes}", f"its cell has {wanted} of {size} numbers for each sequence")
    if states or counting is not None:
        inputs.append("" if counting is None else counting.lengths(build, name))
        inputs += [build.add("Unsqueeze", [state.name, build.integers(0)], f"{name}/initial") for state in states]
    label = build.name(name)
    outputs = [build.name(f"{label}/{word}") for word in (("Y", "Y_h", "Y_c") if kind == "lstm" else ("Y", "Y_h"))]
    operator = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}[kind]
    build.node(operator, inputs, outputs, label, **attributes(single))
    build.recurrent.append(f"{label} ({operator} {direction.input_size} -> {size})")
    ends = [build.add("Squeeze", [output, build.integers(0)], f"{output}/last") for output in outputs[1:]]
    finals = ends
    if counting is not None:
        first = [state.name for state in states] or [build.zero()] * len(ends)
        finals = [counting.ended(build, label, *both) for both in zip(ends, first, strict=True)]
    states = [ModelTensor(final, (x.shape[0], size)) for final in finals]
    if not wish.sequences:
        last = ends[0] if counting is None else counting.last(build, label, ends[0], backwards, wish.zero)
        return ModelTensor(last, (x.shape[0], size)), states
    every = build.add("Squeeze", [outputs[0], build.integers(1)], f"{label}/states")
    every = build.transposed(every, [1, 0, 2], f"{label}/out")
    if counting is not None:
        every = counting.spread(build, label, every, backwards, wish.zero)
    if backwards and not wish.turned:
        bounds = [build.integers(-1), build.integers(np.iinfo(np.int64).min + 1), build.integers(1), build.integers(-1)]
        every = build.add("Slice", [every, *bounds], f"{label}/in_processing_order")
    return ModelTensor(every, (*x.shape[:2], size)), states


def _both(build: GraphBuilder, facts: LayerFacts, values: Sequence[ModelTensor]) -> list[ModelTensor]:
    """Return what a Bidirectional gives."""
    start = _start(build, facts, values)
    states = start.states
    facts.get("layer"), facts.get("backward_layer")
    mode, name, old = facts.get("merge_mode", "concat"), facts.name, facts.old
    half = len(states) // 2
    halves = [states[:half], states[half:]]
    ends: list[ModelTensor] = []
    finals: list[ModelTensor] = []
    for layer, own_states in zip(old.inside, halves, strict=True):
        inner = LayerFacts(layer, layer.entry.config)
        if layer.kind not in _PLAIN:
            raise refuse(name, f"a Bidirectional around {layer.kind}", "only plain LSTM, GRU and SimpleRNN are known here")
        if bool(inner.get("go_backwards", False)) != (layer is not old.inside[0]):
            raise refuse(name, "a forward layer that reads from the end", "the order of its outputs is unknown")
        if states and not own_states:
            raise refuse(name, "one initial state for both directions", "each direction starts from its own")
        # A Bidirectional makes its layers give zeros at masked steps if they give sequences, and not otherwise.
        sequences = bool(inner.get("return_sequences", False))
        end, last = _node(build, inner, replace(start, states=own_states), _LayerOutputs(sequences, sequences, turned=True))
        ends.append(end)
        finals += last if inner.get("return_state", False) else []
        inner.finish()
    return [*_merged(build, facts, mode, ends), *finals]


def _merged(build: GraphBuilder, facts: LayerFacts, mode: str | None, ends: Sequence[ModelTensor]) -> list[ModelTensor]:
    """Return what comes of both directions."""
    shape, names, name = ends[0].shape, [end.name for end in ends], facts.name
    if mode is None:
        return list(ends)
    if mode == "concat":
        output = build.add("Concat", names, f"{name}/joined", axis=-1)
        return [ModelTensor(output, (*shape[:-1], sum(end.shape[-1] or 0 for end in ends)))]
    if mode not in ("sum", "mul", "ave"):
        raise refuse(name, f"merge_mode = {mode!r}", "only concat, sum, mul, ave and None are known here")
    output = build.add("Mul" if mode == "mul" else "Add", names, f"{name}/joined")
    if mode == "ave":
        output = build.add("Mul", [output, build.constant(f"{name}/half", np.array(0.5, np.float32))], f"{name}/halved")
    return [ModelTensor(output, shape)]


RECURRENT: Mapping[str, EmitAll] = {**dict.fromkeys(_PLAIN, _run), "Bidirectional": _both}
"""The recurrent layers, by their classes."""
