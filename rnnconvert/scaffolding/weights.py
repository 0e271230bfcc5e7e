"""The weights of a described model's layers, as its file or the live model holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.models.model import Model, Unit


@dataclass(frozen=True)
class LayerWeights:
    """The weights of layers, by their paths in the description.

    model  what holds them
    names  what it calls the layers, by their paths
    """

    model: Model
    names: Mapping[str, Sequence[str]]
    _read: set[str] = field(default_factory=set)

    def unit(self, path: str) -> Unit:
        """Return a layer. Raises RefusedError where the source holds no such layer."""
        unit = self.model.unit(self.names[path][0]) if self.names.get(path) else None
        if unit is None:
            raise RefusedError("a layer without weights", "a model with weights", f"{self.model.title} holds none for it", "", path)
        while unit.alias and (other := self.model.unit(unit.alias)) is not None:
            unit = other
        self._read.add(unit.name)
        return unit

    def unread(self) -> list[str]:
        """Return the layers and arrays of the source that nobody asked for; whole numbers are counters, single ones constants."""
        arrays = self.model.arrays
        units = (unit for unit in self.model.units if unit.name not in self._read and not unit.alias)
        unread = [unit.name for unit in units if any(_is_weight(arrays[name]) for name in {*unit.arrays} - self._read)]
        return [*unread, *(name for name in self.model.loose if name not in self._read and _is_weight(arrays[name]))]

    def parts(self, path: str, kind: str) -> dict[str, Array]:
        """Return the canonical arrays of a layer without recurrence, by part. Raises RefusedError for a layer of another kind."""
        unit = self.unit(path)
        if kind not in unit.kinds:
            words = " or ".join(unit.kinds)
            raise RefusedError("its weights", "a model with weights", f"they are those of a layer of kind {words}, not {kind}", "", path)
        return self.model.parts(unit, kind)

    def numbers(self, path: str) -> Array:
        """Return the only array of a layer, as the source holds it, or an array by its own name.

        Raises RefusedError for a layer of several arrays.
        """
        name = (self.names.get(path) or ("",))[0]
        if name in self.model.arrays and self.model.unit(name) is None:
            self._read.add(name)
            return np.asarray(self.model.arrays[name])
        unit = self.unit(path)
        if len(unit.arrays) != 1:
            raise RefusedError(
                "its weights", "a model with weights", f"they are {len(unit.arrays)} arrays, where one is asked for", "", path
            )
        return np.asarray(self.model.arrays[unit.arrays[0]])

    def stack(self, path: str) -> Recurrent:
        """Return a recurrent layer. Raises RefusedError for a layer of another kind."""
        unit = self.unit(path)
        if unit.stack is None:
            raise RefusedError("its weights", "a model with weights", "they are not those of a recurrent layer", "", path)
        return unit.stack

    def directions(self, path: str) -> tuple[Direction, ...]:
        """Return the directions of a recurrent layer, each as if it read from the first step on.

        Learned initial states are left out: they are tensors of the description. Raises what `stack` raises.
        """

        def plain(direction: Direction) -> Direction:
            states = dict.fromkeys(key for key in direction.arrays if key[0].startswith("initial"))
            return direction.with_arrays(states).replace(reverse=False)

        return tuple(map(plain, self.stack(path).layers[0].directions))


def _is_weight(array: Source) -> bool:
    return array.dtype.kind == "f" and bool(array.shape)
