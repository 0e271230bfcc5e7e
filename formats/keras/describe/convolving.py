"""LSTMs of Keras whose products are convolutions, in the words of rnnconvert.scaffolding.description.

Source: keras 3.15 keras/src/layers/rnn/conv_lstm.py. The recurrent convolution has no strides and no dilation, and keeps its input's size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, Cell
from rnnconvert.formats.keras.config import Era, functions
from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, refuse
from rnnconvert.formats.keras.describe.masks import masks_on
from rnnconvert.formats.keras.describe.settings import each_rank
from rnnconvert.formats.keras.describe.space import channels_of, lengths_behind, window_of
from rnnconvert.formats.keras.describe.writer import Describe, Writer
from rnnconvert.formats.keras.model.entries import Entry
from rnnconvert.formats.keras.upgrade.layers import OLD_HARD_SIGMOID
from rnnconvert.scaffolding.description import Value


def _conv_lstm(rank: int) -> Describe:
    def describe(w: Writer, facts: LayerFacts, values: Sequence[Value]) -> list[Value]:
        if not values or len(values[0].shape) != rank + 3 or None in values[0].shape[2:]:
            raise refuse(facts.name, "an input of unknown or other axes", f"it takes (batch, time, {rank} axes of space, channels)")
        stated: Any = facts.tensors("initial_state")
        x, states = values[0], [*values[1:], *stated]
        if any(mask is not None for mask in masks_on(w, facts, [x])):
            raise refuse(facts.name, "a mask on what a ConvLSTM reads", "only sequences whose steps all count are known here")
        step = Value(x.name, (x.shape[0], *x.shape[2:]))
        channels, window, filters = channels_of(facts, step, rank), window_of(facts, rank), int(facts.get("filters"))
        act, gate = functions(Entry(facts.name, facts.old.kind, facts.config), Era("3"))
        for key in ("activation", "recurrent_activation"):
            facts.get(key)
        gate = HARD_SIGMOID_KERAS_2 if facts.get(OLD_HARD_SIGMOID) else gate
        size = lengths_behind(step, window)
        shape = (x.shape[0], *size, filters)
        if states and [state.shape[1:] for state in states] != [shape[1:]] * 2:
            raise refuse(facts.name, f"{len(states)} initial states", f"its cell has two of shape {shape[1:]} for each sequence")
        sequences = bool(facts.get("return_sequences", False))
        finals = [w.value(f"{facts.name}_{word}", shape) for word in "hc"] if facts.get("return_state", False) else []
        out = w.value(facts.name, (shape[0], x.shape[1], *shape[1:]) if sequences else shape)
        w.scope.add(
            "conv_lstm", w.noted(facts), [x], [out, *finals], {"states": states}, **window, channels=channels, filters=filters,
            size=size, cell=Cell("lstm", None, act, gate, act), bias=bool(facts.get("use_bias", True)), sequences=sequences,
            backwards=bool(facts.get("go_backwards", False)), stateful=bool(facts.get("stateful", False)),
        )  # fmt: skip
        return [out, *finals]

    return describe


CONVOLVING: Mapping[str, Describe] = each_rank("ConvLSTM{}D", _conv_lstm)
"""The layers that are known, by their classes."""
