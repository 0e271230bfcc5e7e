"""A whole Keras 3 model from its inputs to its outputs, call by call: the order in which Keras runs it."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from rnnconvert.core.errors import UnreadableError
from rnnconvert.formats.keras.describe.calls import KerasCall, calls
from rnnconvert.formats.keras.describe.layer_facts import LayerFacts, refuse
from rnnconvert.formats.keras.model.calls import LayerOutput
from rnnconvert.formats.keras.upgrade.graph import order_of_running, references
from rnnconvert.formats.keras.upgrade.old import SourceLayer
from rnnconvert.scaffolding.description import Value


class Walk(ABC):
    """A walk through a model with a value for every tensor.

    readers  returns what reads the layer at which the walk is: the number of its output, and the layer; None for the model's outputs
    """

    readers: Callable[[], list[tuple[int, SourceLayer | None]]]

    def calls(self, old: SourceLayer) -> list[KerasCall]:
        """Return the calls of a layer. Raises RefusedError for what has no equivalent."""
        return calls(old)

    @abstractmethod
    def start(self, old: SourceLayer) -> Value:
        """Return the value of an input of the outermost model."""

    @abstractmethod
    def layer(self, facts: LayerFacts, values: Sequence[Value], call: KerasCall) -> list[Value]:
        """Return the outputs of a layer, a model or an operation."""

    def model(self, old: SourceLayer, inputs: Sequence[Value] | None) -> list[Value]:
        """Return the outputs of a model for some inputs; None for the outermost, whose inputs `start` makes.

        Raises RefusedError for a model without inputs, UnreadableError for a damaged configuration.
        """
        return self._line(old, inputs) if old.kind == "Sequential" else self._graph(old, inputs)

    def _line(self, old: SourceLayer, inputs: Sequence[Value] | None) -> list[Value]:
        inside = list(old.inside)
        values = list(inputs) if inputs is not None else []
        if inside and inside[0].kind == "InputLayer":
            start = inside.pop(0)
            values = values or [self.start(start)]
        if not values:
            raise refuse(old.name, "a Sequential model without the shape of its input", "its graph needs that")
        for layer, behind in itertools.zip_longest(inside, inside[1:]):
            self.readers = lambda behind=behind: [(0, behind)]  # type: ignore[misc]
            values = self.layer(LayerFacts(layer, layer.entry.config), values, KerasCall())
        return values

    def _graph(self, old: SourceLayer, inputs: Sequence[Value] | None) -> list[Value]:
        config = old.entry.config
        starts, ends = (references(old.name, config.get("input_layers")), references(old.name, config.get("output_layers")))
        layers = {layer.name: layer for layer in old.inside}
        if len(layers) != len(old.inside):
            raise UnreadableError("the configuration", f"two layers of {old.name!r} have one name")
        known_calls = {layer.name: self.calls(layer) for layer in old.inside}
        # Keras counts the call with which a model was built, in the lists of inputs and outputs alone.
        starts, ends = (
            [LayerOutput(ref.layer, ref.call - (layers[ref.layer].kind in ("Functional", "Model")), ref.index) for ref in refs]
            for refs in (starts, ends)
        )
        results: dict[tuple[str, int], list[Value]] = {}
        for number, start in enumerate(starts):
            results[start.layer, start.call] = [inputs[number]] if inputs is not None else [self.start(layers[start.layer])]
        for name, number in order_of_running(known_calls, ends):
            if (name, number) in results:
                continue
            call = known_calls[name][number]

            def read(refs: Sequence[LayerOutput | None]) -> list[Value | None]:
                return [None if ref is None else _output(results, ref) for ref in refs]

            values = [value for value in read(call.reads) if value is not None]
            named = {key: read(refs) for key, refs in call.named.items()}
            facts = LayerFacts(layers[name], layers[name].entry.config, named=named, flags=call.flags)

            def readers(place: tuple[str, int] = (name, number)) -> list[tuple[int, SourceLayer | None]]:
                inside = [(ref, layer) for layer in old.inside for other in known_calls[layer.name] for ref in other.sources()]
                every = [*inside, *((end, None) for end in ends)]
                return [(ref.index, layer) for ref, layer in every if (ref.layer, ref.call) == place]

            self.readers = readers
            results[name, number] = self.layer(facts, values, call)
        return [_output(results, end) for end in ends]


def _output(results: Mapping[tuple[str, int], Sequence[Value]], ref: LayerOutput) -> Value:
    """Return an output of a layer. Raises RefusedError for one that it lacks, as Keras counts some of unlike directions."""
    outputs = results[ref.layer, ref.call]
    if ref.index >= len(outputs):
        raise refuse(
            ref.layer, f"a tensor from its output {ref.index}", f"it gives {len(outputs)}, counted from 0; Keras cannot run it either"
        )
    return outputs[ref.index]
