"""The calls of the recurrent layers of a layered model: the graph of its steps, the calls in it, and what is unusual in them, in words.

Sources: keras 1.2.2 layers/recurrent.py; keras 2.3.1 layers/{recurrent,wrappers}.py; tensorflow 2.15 keras/src/layers/rnn;
keras/src/layers/rnn and keras/src/models/functional.py (3.15).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rnnconvert.core.notes import LayerNote
from rnnconvert.core.weights import INPUT, Call, Directly, Recurrent, Unknown
from rnnconvert.formats.keras.model.entries import Entry, every, innermost, stated_shape
from rnnconvert.formats.keras.model.layered import Layered, LayerStep, StepOutput
from rnnconvert.formats.keras.model.masks import MAY_MASK, gives_sequences
from rnnconvert.formats.keras.model.operators import APART, CAST, DIALECT, TRAINING, drops
from rnnconvert.formats.keras.model.settings import policy_of
from rnnconvert.formats.keras.run_exact import MIXED
from rnnconvert.graphs.between import calls
from rnnconvert.graphs.graph import CallSizes, Dims, Graph

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_LARGEST = 16
"""The largest batch that is followed as a model's inputs state it; larger ones are open."""
_ELEMENTS = 1 << 22
"""The most elements that sequences as long as a model's inputs state have in all its layers; longer ones are open."""

_NOT_CALLED = (Call(Unknown("the configuration of the model does not show how it is called")),)

_Layers = Mapping[int, tuple[str, Recurrent]]
"""Recurrent layers, with their names, by the `id` of their configurations."""


def received(model: Layered, layers: Mapping[str, Recurrent], entries: Mapping[str, Entry]) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each recurrent layer, by name; Unknown for one that the model's configuration does not call.

    entries  the layers' own configurations, out of that of the model, as far as there are any
    """
    names: dict[int, list[str]] = {}
    for name, layer in entries.items():
        names.setdefault(id(innermost(layer).config), []).append(name)
    alone = {config: (several[0], layers[several[0]]) for config, several in names.items() if len(several) == 1}
    calls_by_layer = calls(_Build(model, alone).graph)
    if not model.stated:
        why = "the model is of a class of its user, whose code may call its layers otherwise"
        calls_by_layer = {name: tuple(_unless_direct(call, why) for call in several) for name, several in calls_by_layer.items()}
    return {name: calls_by_layer.get(name, _NOT_CALLED) for name in layers}


def _unless_direct(call: Call, why: str) -> Call:
    if not isinstance(call.sequence, Directly):
        return call
    return replace(call, sequence=Unknown(why))


def _computes_in(config: Mapping[str, Any]) -> str:
    """Return the element type that a layer computes in, "" where its configuration does not state it."""
    plain = policy_of(config, "").removeprefix("mixed_")
    return plain if plain in _FLOATS else ""


class _Build:
    """The graph of a layered model."""

    def __init__(self, model: Layered, layers: _Layers) -> None:
        self.graph = Graph(DIALECT)
        self._layers = layers
        self._dtypes: dict[int, str] = {}
        widths = [layers[id(step.layer.config)][1].layers[-1].output_size for step in model.steps if id(step.layer.config) in layers]
        self._longest = longest(widths)
        for step in model.steps:
            self._add(step)

    def _add(self, step: LayerStep) -> None:
        if step.layer.class_name == "InputLayer":
            self._dtypes[id(step)] = _computes_in(step.layer.config)
            self.graph.describe((id(step), 0), _dims(step.layer, self._longest))
            return
        dtype = _computes_in(step.layer.config)
        reads = [self._cast(tensor, dtype, step) for tensor in step.reads]
        self._dtypes[id(step)] = dtype or next((self._dtypes[id(tensor.step)] for tensor in step.reads), "")
        if id(step.layer.config) in self._layers:
            name, stack = self._layers[id(step.layer.config)]
            self._call(step, name, stack, reads[0] if reads else (id(step), "nothing"))
            return
        others = [(id(state.step), state.index) for state in (*step.states, *step.constants, *step.others)]
        outputs = [(id(step), index) for index in sorted(step.outputs)]
        self._inside(step, reads, others)
        attributes = {**step.layer.config, TRAINING: step.training}
        self.graph.add(step.layer.class_name, [*reads, *others], outputs, attributes, _label(step))

    def _cast(self, tensor: StepOutput, dtype: str, step: LayerStep) -> Any:
        """Return the input of a layer, in the element type that it computes in."""
        key, before = (id(tensor.step), tensor.index), self._dtypes[id(tensor.step)]
        if not dtype or not before or dtype == before:
            return key
        cast = (*key, dtype)
        self.graph.add(CAST, [key], [cast], {"dtype": dtype}, _label(step))
        if tensor.step.layer.class_name == "InputLayer":
            self.graph.describe(cast, _dims(tensor.step.layer, self._longest))
        return cast

    def _inside(self, step: LayerStep, reads: list[Any], others: list[Any]) -> None:
        """Note the recurrent layers inside an operator: they read what it makes of its input, and it reads their outputs."""
        several = [self._layers[id(inner.config)] for inner in _within(step.layer) if id(inner.config) in self._layers]
        for number, (name, stack) in enumerate(several):
            start, end = (id(step), "into", number), (id(step), "out of", number)
            self.graph.add((step.layer.class_name, "around"), [*reads, *others], [start], {}, _label(step))
            self.graph.call(
                name,
                (start, "bti"),
                {},
                {end: f"what {_label(step)} makes of the outputs"},
                sizes=CallSizes(_width(stack)),
                received=_received(step, self._layers),
            )
            reads.append(end)

    def _call(self, step: LayerStep, name: str, stack: Recurrent, read: Any) -> None:
        config = _sequence_config(step.layer)
        order = "tb" if config.get("time_major") else "bt"
        last = stack.layers[-1]
        apart = len(last.directions) > 1 and last.merge == "none"
        side_by_side = len(last.directions) if last.merge in ("concat", "none") else 1
        outputs: dict[Any, str] = {}
        states: dict[Any, str] = {}
        sequences = gives_sequences(step.layer)
        for index in sorted(step.outputs):
            key = (id(step), index)
            if index < 2 and sequences and apart:
                outputs[id(step), "both"] = f"{order}u"
            elif index == 0 and sequences and not apart:
                outputs[key] = f"{order}u"
            elif index == 0 and not apart:
                states[key] = "the last output"
            elif index < 2 and apart:
                states[key] = f"the last output of the {'backward' if index else 'forward'} direction"
            else:
                states[key] = "the final states"
        if apart and outputs:
            self.graph.add(APART, [*outputs], [(id(step), 0), (id(step), 1)], {}, None)
        self.graph.call(
            name,
            (read, f"{order}i"),
            outputs,
            states,
            sizes=CallSizes(
                last.directions[0].output_size if not stack.readout else last.output_size // side_by_side,
                directions=side_by_side,
                dtype=np.dtype(self._dtypes[id(step)] or np.float32),
                width=stack.input_size,
            ),
            received=_received(step, self._layers),
        )


def _within(layer: Entry) -> list[Entry]:
    return [inner for inner in every(layer) if inner is not layer]


def _sequence_config(layer: Entry) -> Mapping[str, Any]:
    """Return the configuration that states what a recurrent layer gives: a Bidirectional's is that of the layer inside."""
    inner = layer.inner("layer")
    return inner.config if inner is not None else layer.config


def _width(stack: Recurrent) -> int:
    return stack.layers[-1].directions[0].output_size


def _label(step: LayerStep) -> str:
    """Return the name of a step in messages."""
    layer = step.layer
    function = layer.config.get("function")
    if layer.class_name == "TFOpLambda" and isinstance(function, str):
        return function
    return layer.class_name if layer.built_in else f"{layer.class_name}, a class of its user,"


def _received(step: LayerStep, layers: _Layers) -> Call:
    """Return a call with what it receives in addition to its sequence."""
    states = ""
    if step.has_states:
        makers = [tensor.step for tensor in step.states]
        of_inputs = bool(makers) and all(maker.layer.class_name == "InputLayer" for maker in makers)
        states = INPUT if of_inputs else " and ".join(dict.fromkeys(_state_words(maker, layers) for maker in makers))
        states = states or "constants of the model"
    elif step.constants:
        states = "given with constants"
    random = "its dropout is on, by training=True" if step.training and drops(step.layer.config) else ""
    mask = f"that of {step.mask}" if step.mask else ""
    return Call(Unknown("its graph was not followed yet"), states, mask, random=random, returns=_returns(step.layer))


def _returns(layer: Entry) -> str:
    """Return the outputs that a layer is set to return, in words; "" for one whose configuration does not state them."""
    config = _sequence_config(layer)
    if "return_sequences" not in config:
        return ""
    sequence = "the output of each step" if config["return_sequences"] else "the last output"
    return f"{sequence} and the final states" if config.get("return_state") else sequence


def _state_words(maker: LayerStep, layers: _Layers) -> str:
    if id(maker.layer.config) in layers:
        return f"what {layers[id(maker.layer.config)][0]!r} gives"
    return f"what {maker.label!r} gives"


def _dims(layer: Entry, most: int) -> Dims | None:
    """Return the lengths of an input's axes."""
    shape = stated_shape(layer.config)
    return None if shape is None else dims_of(shape, layer.name, most)


def longest(widths: Sequence[int]) -> int:
    """Return the longest sequence that is followed as a model's inputs state it.

    widths  of the outputs of each call of a recurrent layer
    """
    return _ELEMENTS // (_LARGEST * max(1, sum(widths)))


def dims_of(shape: Sequence[int | None], name: str, most: int) -> Dims | None:
    """Return the lengths of a model's input that has the axes (batch, time, ...), None in its shape for what is open.

    most  see `longest`
    """
    if any(size is not None and size < 0 for size in shape):
        return None
    names, limits = {0: "batch", 1: "time"}, {0: _LARGEST, 1: most}
    return [
        size if size is not None and size <= limits.get(axis, size) else names.get(axis, f"{name}:{axis}")
        for axis, size in enumerate(shape)
    ]


# In words


def unusual_settings(layer: Entry) -> Iterator[str]:
    """Yield the unusual features of a layer's call."""
    config = layer.config
    if config.get("stateful"):
        yield "it is stateful: it begins a batch with the state that the last one left, which the weights do not hold"
    if config.get("time_major"):
        yield "it is time_major: its input has the axes (time, batch, features)"
    if config.get("num_constants"):
        yield f"it is called with {config['num_constants']!r} constants, which Keras's own cells do not read"
    policy = policy_of(config)
    if policy in MIXED:
        dtype = policy.removeprefix("mixed_")
        yield LayerNote("", f"it computes in {dtype} there ({policy}), but its weights are kept unchanged", dtype)


def around(model: Layered) -> dict[int, list[str]]:
    """Return the unusual features of the calls of a model's layers, and what these receive in addition to a sequence (states, constants,
    masks, dropout that is on), by the `id` of each layer's configuration.
    """
    words_by_layer: dict[int, list[str]] = {}
    calls: Counter[int] = Counter()
    for step in model.steps:
        for layer in every(step.layer):
            words_by_layer.setdefault(id(layer.config), []).extend(_given_words(step))
            calls[id(layer.config)] += 1
    for layer_id, number in calls.items():
        if number > 1:
            words_by_layer[layer_id].append(f"the model calls it {number} times")
    return {layer_id: list(dict.fromkeys(words)) for layer_id, words in words_by_layer.items() if words}


def _given_words(step: LayerStep) -> Iterator[str]:
    """Yield sentences on the arguments of one call of a layer in addition to its sequence."""
    if step.has_states:
        makers = _labels([tensor.step for tensor in step.states])
        yield f"the model gives its initial state{f' ({makers})' if makers else ''}: pass it at every call"
    if step.constants:
        yield f"it is called with constants ({_labels([tensor.step for tensor in step.constants])})"
    if step.passed:
        yield f"a mask is passed to it ({_labels(step.passed)}): pass the lengths of its sequences"
    elif step.mask:
        masks = "may mask" if MAY_MASK in step.mask else "masks"
        yield f"{step.mask} before it {masks} steps of its input: pass the lengths of its sequences"
    if (step.passed or step.mask) and any(layer.config.get("zero_output_for_mask") for layer in every(step.layer)):
        yield "its outputs are zero where its input is masked"  # Keras 3's Bidirectional sets it, though most models mask nothing
    if step.training and drops(step.layer.config):
        yield "its dropout is on, by training=True: what it gives is random"


def _labels(steps: Sequence[LayerStep]) -> str:
    return ", ".join(dict.fromkeys(step.label for step in steps))
