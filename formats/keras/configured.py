"""The configuration of a whole model, looked up by path and by name: every table is made once, however many layers ask."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rnnconvert.core.cached import cached_property
from rnnconvert.core.weights import Call, Recurrent
from rnnconvert.formats.keras.config import tree
from rnnconvert.formats.keras.model.entries import Entry, children, every
from rnnconvert.formats.keras.model.layered import Layered, LayerStep
from rnnconvert.formats.keras.model.layered_calls import around, received


class _InnerLayers(NamedTuple):
    """The layers inside a model by their names, and the layers among them that wrap a layer of that name."""

    named: dict[str, Entry]
    wrapped: dict[str, Entry]


class Outside(NamedTuple):
    """The configuration of a model that lies in another file than its weights.

    config    as `model.to_json` writes it; None where the weights' own file has it, or nothing has
    version   the Keras that wrote it; "" where it is not stated
    path      the file
    warning   what the user should know of how it was chosen
    hint      why none was chosen, for the questions that it would have answered
    """

    config: Mapping[str, Any] | None = None
    version: str = ""
    path: Path = Path()
    warning: str = ""
    hint: str = ""


class Configured:
    """A model, its layers, and the models among them."""

    def __init__(self, model: Entry, path: Path, era: int) -> None:
        """Follow a model of Keras 1, 2 or 3; 0 where its file does not state which.

        Raises UnreadableError if the calls of its layers cannot be followed.
        """
        self.model = model
        self._layered = Layered(model, path, era)
        self._names_in: dict[int, _InnerLayers] = {}
        self._models_in: dict[int, dict[str, Entry]] = {}

    @cached_property
    def _around(self) -> Mapping[int, list[str]]:
        return around(self._layered)

    def around(self, layer: Entry) -> list[str]:
        """Return the unusual features of a layer's call, and what it receives in addition to a sequence."""
        return self._around.get(id(layer.config), [])

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """Where each layer stands in the model's order, by its name."""
        ranks: dict[str, int] = {}
        for number, layer in enumerate(every(self.model)):
            ranks.setdefault(layer.name, number)
        return ranks

    @cached_property
    def _by_path(self) -> Mapping[str, Entry]:
        layers: dict[str, Entry] = {}
        for place, layer in tree(self.model):
            layers.setdefault(place, layer)
        return layers

    @cached_property
    def _wrappers(self) -> Mapping[int, list[Entry]]:
        wrappers: dict[int, list[Entry]] = {}
        for outer in every(self.model):
            inner = outer.inner("layer")
            if inner is not None:
                wrappers.setdefault(id(inner.config), []).append(outer)
        return wrappers

    @cached_property
    def _first(self) -> set[int]:
        """The layers that Sequential models begin with: there alone does Keras take the shape of the input that a layer states,
        and not after an InputLayer.

        Source: keras/src/engine/sequential.py of 2.15 and keras/src/models/sequential.py (3.15), Sequential.add.
        """
        models = [model for model in (self.model, *every(self.model)) if model.class_name == "Sequential"]
        first = [layers[0] for inner in models if (layers := children(inner))]
        for layer in first:
            wrapped = layer.inner("layer")
            first += [] if wrapped is None else [wrapped]
        return {id(layer.config) for layer in first}

    def is_first(self, layer: Entry) -> bool:
        """Return whether a layer is the first of a Sequential model, or wrapped by it."""
        return id(layer.config) in self._first

    def wrappers(self, layer: Entry) -> list[Entry]:
        """Return the layers that have this one as their `layer`."""
        return self._wrappers.get(id(layer.config), [])

    def entry(self, path: str) -> Entry | None:
        """Return the configuration of the layer at a path: by its place in a Keras 3 tree, else by its name."""
        if "layers/" in path and path in self._by_path:
            return self._by_path[path]
        for scope in (self._nested(path), self.model):
            names = self._names(scope)
            for part in reversed(path.split("/")):
                if part in names.named:
                    outer = names.wrapped.get(part, names.named[part])
                    return outer if outer.class_name == "Bidirectional" else names.named[part]
        return None

    def _names(self, scope: Entry) -> _InnerLayers:
        if id(scope.config) not in self._names_in:
            inside = list(every(scope))
            self._names_in[id(scope.config)] = _InnerLayers(
                {layer.name: layer for layer in inside if layer.name},
                {inner.name: layer for layer in inside if (inner := layer.inner("layer")) is not None},
            )
        return self._names_in[id(scope.config)]

    def _nested(self, path: str) -> Entry:
        """Return the innermost model that a path names: nested models may have layers of the same name."""
        scope = self.model
        for part in path.split("/"):
            if id(scope.config) not in self._models_in:
                models: dict[str, Entry] = {}
                for child in children(scope):
                    for layer in (child, child.inner("layer")):
                        if layer is not None and children(layer):
                            models.setdefault(layer.name, layer)
                self._models_in[id(scope.config)] = models
            scope = self._models_in[id(scope.config)].get(part, scope)
        return scope

    def turned(self, layers: Mapping[str, Recurrent], entries: Mapping[str, Entry]) -> frozenset[str]:
        """Return the layers in the order of processing of whose outputs the model reads the last alone, or only what a Flip makes of them.

        entries  the layers' own configurations, as far as there are any
        """
        backward = {name: layer for name, layer in entries.items() if name in layers and layers[name].output_order == "processing"}
        if not backward:
            return frozenset()
        as_they_are: set[int] = set()
        flipped: set[int] = set()
        for step in self._layered.steps:
            for tensor in (*step.reads, *step.others, *step.states, *step.constants):
                if tensor.index == 0:
                    (flipped if _turns_steps(step) else as_they_are).add(id(tensor.step.layer.config))
        as_they_are |= {id(end.step.layer.config) for end in self._layered.ends if end.index == 0}
        only_flipped = flipped - as_they_are
        return frozenset(
            name for name, layer in backward.items() if id(layer.config) in only_flipped or not layer.config.get("return_sequences")
        )

    def calls(self, layers: Mapping[str, Recurrent], entries: Mapping[str, Entry]) -> dict[str, tuple[Call, ...]]:
        """Return the calls of each recurrent layer, in their order.

        entries  the layers' own configurations, as far as there are any
        """
        return received(self._layered, layers, entries)


def _turns_steps(step: LayerStep) -> bool:
    """Return whether a call reverses (batch, time, values) along the steps."""
    axis = step.layer.config.get("axis")
    return step.layer.class_name == "Flip" and axis in (1, -2, [1], [-2])
