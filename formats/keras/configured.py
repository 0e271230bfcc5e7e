"""The configuration of a whole model, looked up by path and by name: every table is made once, however many layers ask."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import NamedTuple

from rnnconvert.core.weights import Call
from rnnconvert.formats.keras import facts
from rnnconvert.formats.keras.config import Entry, children, every, reads_of, tree
from rnnconvert.graphs.listed import listed

_HARMLESS = (
    "Dropout", "SpatialDropout1D", "GaussianNoise", "GaussianDropout", "AlphaDropout", "ActivityRegularization", "Identity",
)  # fmt: skip
"""Layers that change no value when a model runs without training."""


class _Names(NamedTuple):
    """The layers inside a model by their names, and those of them that wrap a layer of that name."""

    named: dict[str, Entry]
    wrapped: dict[str, Entry]


class _Scope(NamedTuple):
    """The layers of one model, without those of models in it, and which of them each reads."""

    named: dict[str, Entry]
    reads: dict[str, list[str]]


class Configured:
    """A model, its layers, and the models among them."""

    def __init__(self, model: Entry) -> None:
        self.model = model
        self._names_in: dict[int, _Names] = {}
        self._models_in: dict[int, dict[str, Entry]] = {}

    @cached_property
    def around(self) -> Mapping[str, list[str]]:
        """What each layer receives besides a sequence, by its name."""
        return facts.around(self.model)

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """Where each layer stands in the model's order, by its name."""
        ranks: dict[str, int] = {}
        for number, layer in enumerate(every(self.model)):
            ranks.setdefault(layer.name, number)
        return ranks

    @cached_property
    def _by_path(self) -> Mapping[str, Entry]:
        found: dict[str, Entry] = {}
        for place, layer in tree(self.model):
            found.setdefault(place, layer)
        return found

    @cached_property
    def _wrappers(self) -> Mapping[int, list[Entry]]:
        found: dict[int, list[Entry]] = {}
        for outer in every(self.model):
            inner = outer.inner("layer")
            if inner is not None:
                found.setdefault(id(inner.config), []).append(outer)
        return found

    @cached_property
    def _scopes(self) -> Mapping[str, _Scope]:
        """The first model that has a layer of each name."""
        found: dict[str, _Scope] = {}
        for model in every(self.model):
            named = {layer.name: layer for layer in children(model)}
            if named:
                scope = _Scope(named, reads_of(model))
                for name in named:
                    found.setdefault(name, scope)
        return found

    def wrappers(self, layer: Entry) -> list[Entry]:
        """Return the layers that have this one as their `layer`."""
        return self._wrappers.get(id(layer.config), [])

    def entry(self, path: str) -> Entry | None:
        """Return the configuration of the layer at a path: by its place in a Keras 3 tree, else by its name."""
        plain = path.replace("_layer_checkpoint_dependencies/", "layers/")
        if "layers/" in plain and plain in self._by_path:
            return self._by_path[plain]
        for scope in (self._nested(path), self.model):
            names = self._names(scope)
            for part in reversed(path.split("/")):
                if part in names.named:
                    outer = names.wrapped.get(part, names.named[part])
                    return outer if outer.class_name == "Bidirectional" else names.named[part]
        return None

    def _names(self, scope: Entry) -> _Names:
        if id(scope.config) not in self._names_in:
            inside = list(every(scope))
            self._names_in[id(scope.config)] = _Names(
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
                    for one in (child, child.inner("layer")):
                        if one is not None and children(one):
                            models.setdefault(one.name, one)
                self._models_in[id(scope.config)] = models
            scope = self._models_in[id(scope.config)].get(part, scope)
        return scope

    def fed(self, name: str, recurrent: Collection[str]) -> tuple[Call, ...]:
        """Return what a layer reads: which recurrent layer, and what comes between; None where that is not stated.

        recurrent  names of the recurrent layers
        """
        scope = self._scopes.get(name)
        if scope is None:
            return ()
        seen = {name}
        through: list[str] = []
        # The first is what it reads; initial states stand behind it.
        while (above := next(iter(scope.reads.get(name, ())), "")) and above not in seen:
            layer = scope.named.get(above)
            if above in recurrent:
                return listed((above,), tuple(through))
            if layer is None or layer.class_name == "InputLayer":
                break
            linear = layer.class_name == "Activation" and layer.config.get("activation") == "linear"
            if layer.class_name not in _HARMLESS and not linear:
                through.append(layer.class_name)
            seen.add(above)
            name = above
        return listed((), tuple(through)) if through else ()
