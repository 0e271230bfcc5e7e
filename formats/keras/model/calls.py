"""How a configuration of layers states that its model calls them: the `inbound_nodes` of Keras 1 to 3.

A node is one call of a layer. In Keras 1 and 2 it lists the tensors that the layer is called on, each as [layer, node, output,
arguments]; Keras 3 has the arguments by place and by name, with tensors as objects that have a `keras_history`. Models in
memory have tuples where files have lists.

Sources: keras 1.2.2 and 2.3.1 engine/topology.py, Container.get_config; tf_keras/src/engine/node.py, Node.serialize;
keras/src/models/functional.py (3.15), serialize_node and functional_from_config; keras/src/ops/function.py (3.15), map_graph, whose
order decides at which path of a file a layer's weights are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import ARGUMENT_NESTING
from rnnconvert.core.printable import quoted
from rnnconvert.formats.keras.model.entries import DROPOUTS, HEADED, RECURRENT, Entry

CALLS = 100_000
"""The most calls of one layer."""
_CONSTANT = "_CONSTANT_VALUE"
"""The mark of tf_keras for a layer in place of a tensor that is a constant."""


@dataclass(frozen=True)
class LayerOutput:
    """An output of a layer: its name, which of its calls, which of the outputs of that call."""

    layer: str
    call: int
    index: int

    def listed(self) -> list[Any]:
        """Return the list [layer, call, index], which models state as their inputs and outputs."""
        return [self.layer, self.call, self.index]


ALL_OUTPUTS = -1
"""The index that stands for all outputs of a call: a Sequential hands on whatever a layer gives."""


@dataclass(frozen=True)
class KerasCall:
    """One call of a layer: plain values as the file states them, and a LayerOutput for each tensor.

    reads   the tensors that it is called on: of a recurrent layer the sequence alone, of an operation all
    named   the other arguments by their names, "place 2" where that is not known; those that are null are left out
    places  the arguments by place as they are stated: what an operation is called with
    """

    reads: Sequence[LayerOutput] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    places: Sequence[Any] = ()

    def sources(self) -> list[LayerOutput]:
        """Return all tensors that it reads, in the order in which Keras flattens them."""
        return [*self.reads, *refs(dict(self.named))]

    def moved(self, change: Callable[[LayerOutput], LayerOutput]) -> KerasCall:
        """Return it with other references."""
        return KerasCall([change(ref) for ref in self.reads], _moved(self.named, change), _moved(self.places, change))


Where: TypeAlias = "Path | str"
"""The file, or what messages call the configuration."""


def calls_of(layer: Entry, path: Where) -> list[KerasCall]:
    """Return the calls of a layer. Raises UnreadableError for nodes of an unknown form."""
    nodes = layer.nodes or []
    if not isinstance(nodes, list) or len(nodes) > CALLS:
        raise _strange(layer, path)
    return [_call(layer, *_arguments(layer, node, path)) for node in nodes]


def _call(layer: Entry, places: Sequence[Any], named: Mapping[str, Any]) -> KerasCall:
    stated = {key: value for key, value in named.items() if any(inside is not None for inside in flat(value))}
    if layer.is_operation:
        return KerasCall(tuple(refs(places)), stated, places)
    words = [*_signature(layer), *(f"place {number}" for number in range(len(_signature(layer)), len(places)))]
    stated = {word: value for word, value in zip(words, places[1:], strict=False) if value is not None} | stated
    first = places[0] if places else None
    if layer.class_name in RECURRENT and isinstance(first, (list, tuple)) and len(first) > 1:
        # Keras 1 and 2 list initial states and constants behind the sequence.
        several = layer.config.get("num_constants")
        count = len(first) - (several if type(several) is int and 0 < several < len(first) else 0)
        for word, values in (("initial_state", first[1:count]), ("constants", first[count:])):
            if values:
                stated[word] = [*values, *flat(stated.get(word, []))]
        first = first[0]
        places = [first]
    return KerasCall(tuple(refs(first)), stated, places)


def _signature(layer: Entry) -> tuple[str, ...]:
    """Return the names of a layer's arguments behind the first, as far as they matter here."""
    if layer.is_model or layer.class_name in DROPOUTS or layer.class_name == "TimeDistributed":
        return ("training", "mask")
    if layer.class_name in RECURRENT:
        return ("initial_state", "mask", "training")
    return ("value", "key") if layer.class_name in HEADED else ()


def _arguments(layer: Entry, node: object, path: Where) -> tuple[Sequence[Any], dict[str, Any]]:
    """Return the arguments of a call by place and by name."""
    if isinstance(node, Mapping) and "args" in node:
        places, named = node["args"], node.get("kwargs") or {}
        if not isinstance(places, (list, tuple)) or not isinstance(named, Mapping):
            raise _strange(layer, path)
        return [_revived(value, layer, path) for value in places], {str(key): _revived(value, layer, path) for key, value in named.items()}
    more: dict[str, Any] = {}
    first = _called_on(node, layer, path, more)
    return [first], {key: _with_refs(value, layer, path) for key, value in more.items()}


def _called_on(node: object, layer: Entry, path: Where, named: dict[str, Any], depth: int = 0) -> Any:
    """Return the tensors that a layer is called on, as Keras 1 and 2 state them; note the other arguments, which stand with each tensor."""
    if depth > ARGUMENT_NESTING:
        raise _strange(layer, path)
    if isinstance(node, Mapping):
        return {str(key): _called_on(value, layer, path, named, depth + 1) for key, value in node.items()}
    if not isinstance(node, (list, tuple)) or not node:
        raise _strange(layer, path)
    if isinstance(node[0], str):
        more = node[3] if len(node) == 4 else {}
        if not isinstance(more, Mapping):
            raise _strange(layer, path)
        for key, value in more.items():
            named.setdefault(str(key), value)
        if node[0] == _CONSTANT and len(node) > 2:
            return node[2]
        ref = reference(node)
        if ref is None:
            raise _strange(layer, path)
        return ref
    several = [_called_on(value, layer, path, named, depth + 1) for value in node]
    return several[0] if len(several) == 1 and not depth else several


def _with_refs(value: Any, layer: Entry, path: Where, depth: int = 0) -> Any:
    """Return an argument of Keras 1 or 2, with a Ref for each tensor."""
    if depth > ARGUMENT_NESTING:
        raise _strange(layer, path)
    ref = reference(value)
    if ref is not None:
        return ref
    if isinstance(value, Mapping):
        return {str(key): _with_refs(inside, layer, path, depth + 1) for key, inside in value.items()}
    return [_with_refs(inside, layer, path, depth + 1) for inside in value] if isinstance(value, (list, tuple)) else value


def _revived(value: Any, layer: Entry, path: Where, depth: int = 0) -> Any:
    """Return an argument of Keras 3, with a Ref for each tensor."""
    if depth > ARGUMENT_NESTING:
        raise _strange(layer, path)
    if isinstance(value, Mapping):
        config = value.get("config")
        if isinstance(config, Mapping) and "keras_history" in config:
            ref = reference(config["keras_history"])
            if ref is None:
                raise _strange(layer, path)
            return ref
        return {str(key): _revived(inside, layer, path, depth + 1) for key, inside in value.items()}
    return [_revived(inside, layer, path, depth + 1) for inside in value] if isinstance(value, (list, tuple)) else value


def _strange(layer: Entry, path: Where) -> UnreadableError:
    return UnreadableError(path, f"a call of layer {quoted(layer.name)} has an unknown form")


def reference(value: object) -> LayerOutput | None:
    """Return the output that a list of a name and two numbers refers to; None for anything else."""
    if isinstance(value, (list, tuple)) and len(value) in (3, 4) and isinstance(value[0], str):
        call, index = value[1:3]
        if type(call) is int and type(index) is int and min(call, index) >= 0:
            return LayerOutput(value[0], call, index)
    return None


def slice_of(value: object) -> slice | None:
    """Return the slice whose ends a mapping states as whole numbers; None for anything else."""
    ends = [value.get(key) for key in ("start", "stop", "step")] if isinstance(value, Mapping) else [""]
    return slice(*ends) if all(end is None or type(end) is int for end in ends) else None


def references(value: object, depth: int = 0) -> list[LayerOutput] | None:
    """Return the inputs or outputs that a model lists, also by name; None for anything else."""
    ref = reference(value)
    if ref is not None:
        return [ref]
    # Keras flattens what is named in the order of the names.
    inside = [value[key] for key in sorted(value)] if isinstance(value, Mapping) else value
    if not isinstance(inside, (list, tuple)) or depth > ARGUMENT_NESTING:
        return None
    several = [references(part, depth + 1) for part in inside]
    return None if any(part is None for part in several) else [ref for part in several for ref in part or []]


def refs(value: object) -> Iterator[LayerOutput]:
    """Yield the tensors of an argument, in the order in which Keras flattens it."""
    if isinstance(value, LayerOutput):
        yield value
    elif isinstance(value, Mapping):
        for key in sorted(value):
            yield from refs(value[key])
    elif isinstance(value, (list, tuple)):
        for inside in value:
            yield from refs(inside)


def flat(value: object) -> list[Any]:
    """Return the values in an argument, lists in lists opened."""
    return [each for inside in value for each in flat(inside)] if isinstance(value, (list, tuple)) else [value]


def _moved(value: Any, change: Callable[[LayerOutput], LayerOutput]) -> Any:
    if isinstance(value, LayerOutput):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _moved(inside, change) for key, inside in value.items()}
    return [_moved(inside, change) for inside in value] if isinstance(value, (list, tuple)) else value


def from_zero(ref: LayerOutput, base: Mapping[str, int]) -> LayerOutput:
    """Return a reference with the calls of each layer counted from zero: `base` has the number from which some are counted, see `bases`."""
    return replace(ref, call=max(0, ref.call - base.get(ref.layer, 0)))


def bases(calls: Mapping[str, Sequence[KerasCall]], models: Iterable[str], ends: Iterable[LayerOutput] = ()) -> dict[str, int]:
    """Return from which number the calls of each model inside a model are counted: Keras 1 and 2 count its own first one.

    calls   of every layer
    models  the names of the models
    ends    further outputs that are referred to in the same way
    """
    numbers: dict[str, set[int]] = {name: set() for name in models}
    for ref in [*ends, *(ref for several in calls.values() for call in several for ref in call.sources())]:
        if ref.layer in numbers:
            numbers[ref.layer].add(ref.call)
    return {name: 0 if 0 in numbers[name] else 1 for name in numbers}


def ordered(
    calls: Mapping[str, Sequence[KerasCall]], ends: Iterable[LayerOutput], path: Where
) -> tuple[list[tuple[str, int]], dict[str, int]]:
    """Return the calls that outputs depend on, each after those that it reads, and when each layer was met first.

    Raises UnreadableError for a graph with a loop or with references to nothing.
    """
    finished: dict[tuple[str, int], None] = {}
    begun: set[tuple[str, int]] = set()
    first: dict[str, int] = {}
    for end in ends:
        stack: list[tuple[tuple[str, int], Iterator[LayerOutput]]] = []
        waiting: Iterator[LayerOutput] = iter([end])
        while True:
            ref = next(waiting, None)
            if ref is None:
                if not stack:
                    break
                node, _ = stack.pop()
                finished[node] = None
                begun.discard(node)
                waiting = stack[-1][1] if stack else iter(())
                continue
            node = (ref.layer, ref.call)
            if node in finished:
                continue
            if node in begun:
                raise UnreadableError(path, f"layer {quoted(ref.layer)} reads its own output")
            if ref.layer not in calls or ref.call >= len(calls[ref.layer]):
                raise UnreadableError(path, f"something reads call {ref.call} of layer {quoted(ref.layer)}, which has none")
            first.setdefault(ref.layer, len(first))
            begun.add(node)
            waiting = iter(calls[ref.layer][ref.call].sources())
            stack.append((node, waiting))
    return list(finished), first


def order(calls: Mapping[str, Sequence[KerasCall]], ends: Sequence[LayerOutput], starts: Sequence[LayerOutput]) -> list[str]:
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


def order_of_running(calls: Mapping[str, Sequence[KerasCall]], ends: Sequence[LayerOutput], path: Where) -> list[tuple[str, int]]:
    """Return the calls of a graph in the order in which Keras 3 runs them. Raises UnreadableError as `order` does."""
    depths, _ = _depths(calls, ordered(calls, ends, path)[0])
    return sorted(depths, key=lambda node: -depths[node])


def _depths(
    calls: Mapping[str, Sequence[KerasCall]], finished: Sequence[tuple[str, int]]
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
