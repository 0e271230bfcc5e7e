"""How the layers of an old model are called, and in which order Keras 3 lists and numbers the layers of a graph.

Sources: keras 1.2.2 and 2.3.1 engine/topology.py, tf_keras/src/engine/{functional,node}.py, and keras/src/ops/function.py
(3.15), map_graph, whose order decides at which path of a file a layer's weights are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.formats.keras.model import calls as any_era
from rnnconvert.formats.keras.model.calls import Arguments, LayerOutput, TracedCall, flat, ordered, refs
from rnnconvert.formats.keras.model.entries import Entry
from rnnconvert.formats.keras.upgrade.notes import refuse


def serialised(ref: LayerOutput, dtype: str) -> dict[str, Any]:
    """Return an output as a call refers to it; Keras replaces it by the tensor itself, whose shape it knows."""
    config = {"shape": [], "dtype": dtype, "keras_history": ref.listed()}
    return {"class_name": "__keras_tensor__", "config": config}


@dataclass
class OldCall:
    """One call of a layer.

    reads   the outputs that it is called on
    states  the initial states that a recurrent layer is given
    masks   of each output that it reads: the mask on it
    """

    reads: list[LayerOutput] = field(default_factory=list)
    states: list[LayerOutput] = field(default_factory=list)
    masks: list[LayerOutput | None] = field(default_factory=list)

    def sources(self) -> list[LayerOutput]:
        """Return all that it reads, in Keras's order."""
        return [*self.reads, *self.states, *(mask for mask in self.masks if mask is not None)]


@dataclass(frozen=True)
class OutsideOperation:
    """A step of a graph outside its layers: an operation on tensors."""

    name: str
    class_name: str
    reads: tuple[LayerOutput, ...]
    config: Mapping[str, Any]

    def serialised(self, dtype: str) -> dict[str, Any]:
        """Return it as a configuration holds it; what it compares with is an argument of its call."""
        config = {"name": self.name, **{key: value for key, value in self.config.items() if key != "value"}}
        args = [*(serialised(ref, dtype) for ref in self.reads), *([self.config["value"]] if "value" in self.config else [])]
        document = {"module": "keras.src.ops.numpy", "class_name": self.class_name, "config": config, "registered_name": self.class_name}
        return {**document, "name": self.name, "inbound_nodes": [{"args": args, "kwargs": {}}]}


def calls_of(layer: Entry, takes: str) -> list[OldCall]:
    """Return how a layer is called.

    takes  see rnnconvert.formats.keras.upgrade.tables.Rule
    Raises RefusedError for an argument that changes what a layer computes and has no equivalent.
    """
    return [_call(layer.name, arguments, takes) for arguments in any_era.calls_of(layer, "the configuration")]


def _call(name: str, arguments: Arguments, takes: str) -> OldCall:
    call = OldCall(list(refs(arguments.places)))
    if any(not isinstance(value, LayerOutput) for place in arguments.places for value in flat(place)):
        raise refuse(name, f"a call with {str(arguments.places)[:80]}", "it changes what the layer computes, or is not known")
    for key, value in arguments.named.items():
        _argument(name, call, key, value, takes)
    if takes == "states" and len(call.reads) > 1:
        call.states = [*call.reads[1:], *call.states]
        call.reads = call.reads[:1]
    return call


def _argument(name: str, call: OldCall, key: str, value: Any, takes: str) -> None:
    """Take one further argument of a call."""
    if all(inside is None for inside in flat(value)) or (key == "training" and value is False):
        return
    if key == "initial_state" and takes == "states" and all(isinstance(inside, LayerOutput) for inside in flat(value)):
        call.states += refs(value)
        return
    raise refuse(name, f"a call with {key} = {str(value)[:80]}", "it changes what the layer computes, or is not known")


def references(model: str, value: object) -> list[LayerOutput]:
    """Return the inputs or outputs of a model."""
    listed = None if isinstance(value, Mapping) else any_era.references(value)
    if not listed:
        raise refuse(model, "inputs or outputs by name", "only lists of them are known here")
    return listed


def order(calls: Mapping[str, Sequence[TracedCall]], ends: Sequence[LayerOutput], starts: Sequence[LayerOutput]) -> list[str]:
    """Return the layers in the order of Keras 3's model.layers: farthest from the outputs first.

    calls  of every layer; an input has one without sources
    Raises UnreadableError for a graph with a loop or with references to nothing.
    """
    finished, first = ordered(calls, ends, "the configuration")
    _, layers = _depths(calls, finished)
    for ref in starts:
        if ref.layer not in layers:
            layers[ref.layer], first[ref.layer] = 0, -1
    return sorted(layers, key=lambda name: (-layers[name], first[name]))


def order_of_running(calls: Mapping[str, Sequence[TracedCall]], ends: Sequence[LayerOutput]) -> list[tuple[str, int]]:
    """Return the calls of a graph in the order in which Keras 3 runs them. Raises UnreadableError as `order` does."""
    depths, _ = _depths(calls, ordered(calls, ends, "the configuration")[0])
    return sorted(depths, key=lambda node: -depths[node])


def _depths(
    calls: Mapping[str, Sequence[TracedCall]], finished: Sequence[tuple[str, int]]
) -> tuple[dict[tuple[str, int], int], dict[str, int]]:
    """Return how far each call, and each layer, is from the outputs, in the order in which Keras meets them.

    finished  the calls, each after those that it reads
    """
    depths: dict[tuple[str, int], int] = {}
    layers: dict[str, int] = {}
    within = set(finished)
    for node in reversed(finished):
        depth = max(depths.setdefault(node, 0), layers.get(node[0], 0))
        layers[node[0]] = depths[node] = depth
        for ref in calls[node[0]][node[1]].sources():
            above = (ref.layer, ref.call)
            if above in within:
                depths[above] = max(depth + 1, depths.get(above, 0))
    return depths, layers
