"""A whole Keras 3 model from its inputs to its outputs, call by call: the order in which Keras runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, refuse
from rnnconvert.formats.keras.model.calls import ALL_OUTPUTS, KerasCall, LayerOutput, flat
from rnnconvert.formats.keras.model.entries import stated_shape
from rnnconvert.formats.keras.model.layered import run_order
from rnnconvert.formats.keras.model.tree import SourceLayer
from rnnconvert.scaffolding.description import Value

Readers = Callable[[], list[tuple[int, SourceLayer | None]]]
"""Returns what reads a call: the number of its output, and the layer; None for the model's outputs."""


class Walk(ABC):
    """A walk through a model with a value for every tensor."""

    @abstractmethod
    def start(self, old: SourceLayer) -> Value:
        """Return the value of an input of the outermost model."""

    @abstractmethod
    def layer(self, facts: LayerFacts, values: Sequence[Value], readers: Readers) -> list[Value]:
        """Return the outputs of a layer, a model or an operation."""

    def model(self, old: SourceLayer, inputs: Sequence[Value] | None) -> list[Value]:
        """Return the outputs of a model for some inputs; None for the outermost, whose inputs `start` makes.

        Raises RefusedError for a model without inputs, UnreadableError for a damaged configuration.
        """
        if any(isinstance(old.config.get(key), Mapping) for key in ("input_layers", "output_layers")):
            raise refuse(old.name, "inputs or outputs by name", "only lists of them are known here")
        inside = {id(layer.entry): layer for layer in old.inside}
        plan = run_order(old.entry, "the configuration", [layer.entry for layer in old.inside])
        layers = {name: inside.get(id(entry)) or SourceLayer(entry) for name, entry in plan.layers.items()}
        if inputs is None and old.kind == "Sequential" and all(stated_shape(layers[start.layer].config) is None for start in plan.starts):
            raise refuse(old.name, "a Sequential model without the shape of its input", "its graph needs that")
        results: dict[tuple[str, int], list[Value]] = {}
        for number, start in enumerate(plan.starts):
            results[start.layer, start.call] = [inputs[number]] if inputs is not None else [self.start(layers[start.layer])]
        if inputs is not None and old.kind == "Sequential":  # the first of its layers may be a model of several inputs
            results |= {(start.layer, start.call): list(inputs) for start in plan.starts}
        for name, number in plan.order:
            if (name, number) in results:
                continue
            call = plan.calls[name][number]
            values = [value for ref in call.reads for value in _outputs(results, ref)]
            if old.kind == "Sequential" and not call.reads:
                values = list(inputs or ())

            def readers(place: tuple[str, int] = (name, number)) -> list[tuple[int, SourceLayer | None]]:
                read = [(ref, layers[reader]) for reader, several in plan.calls.items() for each in several for ref in each.sources()]
                every = [*read, *((end, None) for end in plan.ends)]
                return [(max(0, ref.index), layer) for ref, layer in every if (ref.layer, ref.call) == place]

            results[name, number] = self.layer(_facts(layers[name], call, results), values, readers)
        return [value for end in plan.ends for value in _outputs(results, end)]


def _facts(old: SourceLayer, call: KerasCall, results: Mapping[tuple[str, int], Sequence[Value]]) -> LayerFacts:
    """Return a layer with one of its calls: the tensors that it names, and what else it states."""
    named: dict[str, list[Value | None]] = {}
    flags: dict[str, Any] = {}
    for key, value in call.named.items():
        several = flat(value)
        if key == "training" and value is False:
            continue
        if all(isinstance(inside, LayerOutput) or (inside is None and key == "mask") for inside in several):
            named[key] = [None if ref is None else _outputs(results, ref)[0] for ref in several]
        else:
            flags[key] = value
    return LayerFacts(old, call, named=named, flags=flags)


def _outputs(results: Mapping[tuple[str, int], Sequence[Value]], ref: LayerOutput) -> Sequence[Value]:
    """Return what a reference stands for. Raises RefusedError for a missing output: Keras counts some of unlike directions otherwise."""
    outputs = results[ref.layer, ref.call]
    if ref.index >= len(outputs):
        raise refuse(
            ref.layer, f"a tensor from its output {ref.index}", f"it gives {len(outputs)}, counted from 0; Keras cannot run it either"
        )
    return outputs if ref.index == ALL_OUTPUTS else [outputs[ref.index]]
