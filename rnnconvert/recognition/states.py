"""The first states of a graph's recurrent layers: stored, zeros of any batch, or given at run time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.notes import PASSED, LayerNote
from rnnconvert.core.weights import Key, Unconvertible
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.spread import spread
from rnnconvert.graphs.program.walk import behind


class States:
    """The initial states of a layer in the making.

    learned        of each direction
    unconvertible  states that have no canonical form
    warnings       states that the caller has to pass
    """

    def __init__(self, path: Path, scope: Scope, layer: str, sizes: tuple[int, int], like: Array | None) -> None:
        """Begin.

        sizes  directions, and units
        like   an array of the layer, for its element type
        """
        self.path, self.scope, self.layer, self.like = path, scope, layer, like
        self.number, self.size = sizes
        self.learned: list[dict[Key, Source]] = [{} for _ in range(self.number)]
        self.unconvertible: list[Unconvertible] = []
        self.warnings: list[LayerNote] = []

    def add(self, part: str, name: str, batch_first: bool = False) -> None:
        """Take in a state (directions, batch, units); without its first axis where the layer has one direction."""
        value = self._value(name)
        if value is None:
            if given_at_run_time(self.scope, name):
                self.warnings.append(LayerNote(self.layer, f"its initial state {name!r} is given at run time. Pass it yourself", PASSED))
            else:
                reason = f"{name!r} is made by nodes that cannot be evaluated here"
                self.unconvertible.append(Unconvertible("initial_state", "an initial state made in the graph", reason))
            return
        value = value.swapaxes(0, 1) if batch_first and value.ndim == 3 else value
        if value.ndim == 2 and self.number == 1:
            value = value[None]
        if value.ndim != 3 or value.shape[0] != self.number or value.shape[2] != self.size or not value.shape[1]:
            raise UnreadableError(self.path, f"the state {name!r} of node {self.layer!r} has shape {value.shape}")
        if not value.any():
            return
        if (value != value[:, :1]).any():
            reason = f"the rows of {name!r}, one for each sequence of a batch of {value.shape[1]}, are not the same"
            self.unconvertible.append(Unconvertible("initial_state", "an initial state for one batch", reason))
            return
        for direction in range(self.number):
            self.learned[direction][part, ""] = value[direction, 0]

    def _value(self, name: str) -> Array | None:
        value = spread(self.scope, name)
        if value is None:
            return None
        if not value.ndim:
            dtype = value.dtype if self.like is None or self.scope.constant(name) is not None else self.like.dtype
            return np.full((self.number, 1, self.size), value, dtype)
        if self.scope.constant(name) is None:  # what is repeated fills the shape that the layer asks for
            value = value[None] if value.ndim == 2 else value
            fits = value.ndim == 3 and value.shape[0] in (1, self.number) and value.shape[2] in (1, self.size)
            return np.broadcast_to(value, (self.number, value.shape[1], self.size)) if fits else None
        return value


def given_at_run_time(scope: Scope, name: str) -> bool:
    """Return whether a value depends on what the model is given, and not only on the shapes of it."""
    # None is an input of the graph, or a value of the graph around it; a node with a graph of its own decides by a branch.
    return any(node is None or bool(node.bodies) for _, node in behind(scope, name))
