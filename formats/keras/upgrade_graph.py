"""How the layers of an old model are called, and in which order Keras 3 lists and numbers the layers of a graph.

Sources: keras 1.2.2 and 2.3.1 engine/topology.py, tf_keras/src/engine/{functional,node}.py, and keras/src/ops/function.py
(3.15), map_graph, whose order decides at which path of a file a layer's weights are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rnnconvert.core.errors import UnreadableError
from rnnconvert.formats.keras.upgrade_config import refuse

CALLS = 100_000


@dataclass(frozen=True)
class Ref:
    """An output of a layer: its name, which of its calls, which of the outputs of that call."""

    layer: str
    call: int
    index: int

    def listed(self) -> list[Any]:
        """Return it as a model lists its inputs and outputs."""
        return [self.layer, self.call, self.index]

    def serialised(self, dtype: str) -> dict[str, Any]:
        """Return it as a call refers to it; Keras replaces it by the tensor itself, whose shape it knows."""
        config = {"shape": [], "dtype": dtype, "keras_history": self.listed()}
        return {"class_name": "__keras_tensor__", "config": config}


@dataclass
class Call:
    """One call of a layer.

    reads   the outputs that it is called on
    states  the initial states that a recurrent layer is given
    masks   of each output that it reads: the mask on it
    """

    reads: list[Ref] = field(default_factory=list)
    states: list[Ref] = field(default_factory=list)
    masks: list[Ref | None] = field(default_factory=list)

    def sources(self) -> list[Ref]:
        """Return all that it reads, in Keras's order."""
        return [*self.reads, *self.states, *(one for one in self.masks if one is not None)]


class Reading(Protocol):
    """A call, as far as its sources go."""

    def sources(self) -> list[Ref]:
        """Return all that it reads, in Keras's order."""


@dataclass(frozen=True)
class Operation:
    """A step of a graph outside its layers: an operation on tensors."""

    name: str
    class_name: str
    reads: tuple[Ref, ...]
    config: Mapping[str, Any]

    def serialised(self, dtype: str) -> dict[str, Any]:
        """Return it as a configuration holds it; what it compares with is an argument of its call."""
        config = {"name": self.name, **{key: value for key, value in self.config.items() if key != "value"}}
        args = [
            *(ref.serialised(dtype) for ref in self.reads),
            *([self.config["value"]] if "value" in self.config else []),
        ]
        made = {
            "module": "keras.src.ops.numpy",
            "class_name": self.class_name,
            "config": config,
            "registered_name": self.class_name,
        }
        return {**made, "name": self.name, "inbound_nodes": [{"args": args, "kwargs": {}}]}


def calls_of(name: str, raw: Mapping[str, Any], takes: str) -> list[Call]:
    """Return how a layer is called.

    takes  see rnnconvert.formats.keras.upgrade_tables.Rule
    Raises RefusedError for an argument that changes what a layer computes and has no equivalent.
    """
    nodes = raw.get("inbound_nodes") or []
    if not isinstance(nodes, list) or len(nodes) > CALLS:
        raise UnreadableError("the configuration", f"the calls of layer {name!r} have an unknown form")
    return [_call(name, node, takes) for node in nodes]


def _call(name: str, node: object, takes: str) -> Call:
    call = Call()
    if isinstance(node, list) and len(node) in (3, 4) and isinstance(node[0], str):
        node = [node]  # a single tensor, as tf.keras has it where the call takes no list
    if not isinstance(node, list) or not node:
        raise UnreadableError("the configuration", f"a call of layer {name!r} has an unknown form")
    for one in node:
        ref = reference(one)
        if ref is None:
            raise UnreadableError("the configuration", f"a call of layer {name!r} has an unknown form")
        call.reads.append(ref)
        for key, value in (one[3] if len(one) > 3 and isinstance(one[3], Mapping) else {}).items():
            _argument(name, call, str(key), value, takes)
    if takes == "states" and len(call.reads) > 1:
        call.states = [*call.reads[1:], *call.states]
        call.reads = call.reads[:1]
    return call


def _argument(name: str, call: Call, key: str, value: Any, takes: str) -> None:
    """Take one further argument of a call."""
    empty = value is None or (isinstance(value, list) and all(one is None for one in value))
    if empty or (key == "training" and value is False):
        return
    if key == "initial_state" and takes == "states":
        several = [value] if reference(value) is not None else value
        found = [reference(one) for one in several] if isinstance(several, list) else [None]
        states = [one for one in found if one is not None]
        if len(states) == len(found):
            call.states += [one for one in states if one not in call.states]
            return
    raise refuse(name, f"a call with {key} = {str(value)[:80]}", "it changes what the layer computes, or is not known")


def reference(value: object) -> Ref | None:
    """Return the output that a list of a name and two numbers refers to; None for anything else."""
    if isinstance(value, (list, tuple)) and len(value) in (3, 4) and isinstance(value[0], str):
        call, index = value[1:3]
        if isinstance(call, int) and isinstance(index, int) and not isinstance(call, bool) and min(call, index) >= 0:
            return Ref(value[0], call, index)
    return None


def references(model: str, value: object) -> list[Ref]:
    """Return the inputs or outputs of a model."""
    if reference(value) is not None:
        value = [value]
    found = [reference(one) for one in value] if isinstance(value, list) else [None]
    good = [one for one in found if one is not None]
    if not good or len(good) != len(found):
        raise refuse(model, "inputs or outputs by name", "only lists of them are known here")
    return good


def bases(calls: Mapping[str, Sequence[Call]], models: Mapping[str, int], ends: Sequence[Ref]) -> dict[str, int]:
    """Return from which number the calls of each model inside a model are counted: old Kerases count its own first one.

    models  how often each is called
    """
    met: dict[str, set[int]] = {name: set() for name in models}
    for ref in [*ends, *(ref for several in calls.values() for call in several for ref in call.sources())]:
        if ref.layer in met:
            met[ref.layer].add(ref.call)
    return {name: 0 if 0 in met[name] else 1 for name in models}


def order(calls: Mapping[str, Sequence[Reading]], ends: Sequence[Ref], starts: Sequence[Ref]) -> list[str]:
    """Return the layers in the order of Keras 3's model.layers: farthest from the outputs first.

    calls  of every layer; an input has one without sources
    Raises UnreadableError for a graph with a loop or with references to nothing.
    """
    finished, first = _sorted(calls, ends)
    _, layers = _depths(calls, finished)
    for ref in starts:
        if ref.layer not in layers:
            layers[ref.layer], first[ref.layer] = 0, -1
    return sorted(layers, key=lambda name: (-layers[name], first[name]))


def order_of_running(calls: Mapping[str, Sequence[Reading]], ends: Sequence[Ref]) -> list[tuple[str, int]]:
    """Return the calls of a graph in the order in which Keras 3 runs them. Raises UnreadableError as `order` does."""
    depths, _ = _depths(calls, _sorted(calls, ends)[0])
    return sorted(depths, key=lambda node: -depths[node])


def _depths(
    calls: Mapping[str, Sequence[Reading]], finished: Sequence[tuple[str, int]]
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


def sorted_calls(calls: Mapping[str, Sequence[Reading]], ends: Sequence[Ref]) -> list[tuple[str, int]]:
    """Return the calls of a graph, each after those that it reads."""
    return _sorted(calls, ends)[0]


def _sorted(
    calls: Mapping[str, Sequence[Reading]], ends: Sequence[Ref]
) -> tuple[list[tuple[str, int]], dict[str, int]]:
    """Return the calls, each after those that it reads, and when each layer was met first."""
    finished: dict[tuple[str, int], None] = {}
    begun: set[tuple[str, int]] = set()
    first: dict[str, int] = {}
    for end in ends:
        stack: list[tuple[tuple[str, int], Iterator[Ref]]] = []
        _enter(end, calls, finished, begun, first, stack)
        while stack:
            node, sources = stack[-1]
            ref = next(sources, None)
            if ref is not None:
                _enter(ref, calls, finished, begun, first, stack)
            else:
                stack.pop()
                finished[node] = None
                begun.discard(node)
    return list(finished), first


def _enter(
    ref: Ref, calls: Mapping[str, Sequence[Reading]], finished: Mapping[tuple[str, int], None], begun: set[tuple[str, int]],
    first: dict[str, int], stack: list[tuple[tuple[str, int], Iterator[Ref]]],
) -> None:  # fmt: skip
    node = (ref.layer, ref.call)
    if node in finished:
        return
    if node in begun:
        raise UnreadableError("the configuration", f"layer {ref.layer!r} reads its own output")
    if ref.layer not in calls or ref.call >= len(calls[ref.layer]):
        raise UnreadableError(
            "the configuration", f"something reads call {ref.call} of layer {ref.layer!r}, which has none"
        )
    first.setdefault(ref.layer, len(first))
    begun.add(node)
    stack.append((node, iter(calls[ref.layer][ref.call].sources())))
