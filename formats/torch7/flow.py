"""The modules of a Torch7 file as graphs: what lies between the recurrent layers of each nn.Sequential.

Source: torch/nn, Sequential.lua, Dropout.lua and Identity.lua; Element-Research/rnn, Sequencer.lua.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.limits import NESTING
from rnnconvert.core.weights import Call, Recurrent, Unknown
from rnnconvert.formats.torch7.torch7_file import LuaTable, Object
from rnnconvert.graphs.between import calls as followed
from rnnconvert.graphs.graph import CallSizes, Graph
from rnnconvert.graphs.operators import SAME, Applied, ChangesError, Dialect, Moves


def calls(objects: Sequence[tuple[str, Object]], layers: Mapping[str, Recurrent]) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each recurrent layer of a file, by its place.

    objects  all objects of the file with their places, outer ones first
    """
    follower = _Follower(Graph(_DIALECT), {id(entry): place for place, entry in objects}, layers, set())
    for _, root in objects:
        if root.name == "nn.Sequential" and id(root) not in follower.done:
            follower.follow(root, ("input", id(root)))
    received_calls = followed(follower.graph)
    unseen = Call(Unknown("no nn.Sequential shows what it reads"))
    return {name: received_calls.get(name, (unseen,)) for name in layers}


class _Follower(NamedTuple):
    """Modules on their way into a graph: the graph, the places of modules by their identity, the layers by place, what is done."""

    graph: Graph
    places: Mapping[int, str]
    layers: Mapping[str, Recurrent]
    done: set[int]

    def follow(self, module: Object, value: Hashable, depth: int = 0) -> Hashable:
        """Note what a module does with a value; return what it gives."""
        place = self.places.get(id(module), "")
        output = ("given by", id(module), len(self.graph.layers), value)
        if place in self.layers:
            stack = self.layers[place]
            self.graph.call(place, (value, "tbi"), {output: "tbu"}, sizes=CallSizes(stack.layers[-1].output_size, width=stack.input_size))
            return output
        self.done.add(id(module))
        modules, inside = module.fields.get("modules"), list[object]()
        if module.name == "nn.Sequential" and isinstance(modules, LuaTable):
            inside = modules.listed()
        elif module.name == "nn.Sequencer":
            inside = [module.fields.get("module")]
        if inside and depth < NESTING:
            for child in inside:
                if isinstance(child, Object):
                    value = self.follow(child, value, depth + 1)
            return value
        self.graph.add(module.name, [value], [output], module.fields)
        return output


def _dropout(applied: Applied) -> Array:
    if applied.attributes.get("v2") is not True:
        raise ChangesError("nn.Dropout that scales its input when it is off")
    return np.asarray(applied.input(0))


_DIALECT: Dialect = {"nn.Identity": SAME, "nn.Dropout": Moves(_dropout)}
