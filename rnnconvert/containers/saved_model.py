"""SavedModels of TensorFlow: the functions that they serve, and which entry of their checkpoint each variable is.

Nothing runs. Sources: tensorflow/core/protobuf/{saved_model,meta_graph}.proto; python/training/saving/saveable_object_util.py and
checkpoint/functional_saver.py, which write the function that restores the variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rnnconvert.containers import graph_def, wire
from rnnconvert.containers.files import map_file
from rnnconvert.containers.graph_def import GraphDef
from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.core.names import is_count, named

_PASSING = ("Identity", "ReadVariableOp")
_RESTORING = ("Assign", "AssignVariableOp")


@dataclass(frozen=True)
class Signature:
    """A function that a SavedModel serves under a name: the tensors of its graph that go in and come out, by the names that callers use."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class MetaGraph:
    """A graph of a SavedModel with its signatures, by name, but without TensorFlow's own, which initialize it."""

    graph: GraphDef
    signatures: Mapping[str, Signature]

    @property
    def served(self) -> Signature | None:
        """The signature that is served by default, or the only one; None where neither shows."""
        only = next(iter(self.signatures.values())) if len(self.signatures) == 1 else None
        return self.signatures.get("serving_default", only)

    def entries(self) -> dict[str, str]:
        """Return which entry of the checkpoint each variable of the graph is restored from, by the variable's node."""
        graph = self.graph
        restored = dict(_restored(graph.nodes, {}))
        for node in graph.nodes.values():
            function = graph.functions.get(node.called("f"))
            if function is not None and len(function.inputs) == len(node.read):
                handed = dict(zip(function.inputs, (source.partition(":")[0] for source in node.read), strict=True))
                restored |= _restored(function.nodes, handed)
        return restored


def read(folder: Path) -> list[MetaGraph]:
    """Return the graphs of a SavedModel. Raises UnreadableError."""
    path = folder / "saved_model.pb"
    graphs = []
    for number, meta in wire.values(map_file(path).data, path):
        parts = list(wire.values(meta, path)) if number == 2 and isinstance(meta, memoryview) else []
        content = next((part for which, part in parts if which == 2 and isinstance(part, memoryview)), None)
        if content is not None:
            signatures = named(_signatures([part for which, part in parts if which == 5 and isinstance(part, memoryview)], path), path)
            graphs.append(MetaGraph(graph_def.parsed(content, path), signatures))
    return graphs


def _signatures(entries: list[memoryview], path: Path) -> Iterator[tuple[str, Signature]]:
    for entry in entries:
        for name, stated in _map([entry], path):
            if not name.startswith("__"):
                fields = list(wire.values(stated, path))
                tensors = [
                    {key: text for key, value in _map([m for n, m in fields if n == which and isinstance(m, memoryview)], path)
                     if (text := _tensor(value, path))}
                    for which in (1, 2)
                ]  # fmt: skip
                yield name, Signature(*tensors)


def _map(entries: list[memoryview], path: Path) -> Iterator[tuple[str, memoryview]]:
    """Yield the names and contents of a message's map."""
    for entry in entries:
        fields = dict(wire.values(entry, path))
        key, value = fields.get(1), fields.get(2)
        if isinstance(key, memoryview) and isinstance(value, memoryview):
            yield wire.text_of(key, path), value


def _tensor(stated: memoryview, path: Path) -> str:
    """Return the tensor that a signature names; "" for one of several parts, as sparse ones are."""
    name = dict(wire.values(stated, path)).get(1)
    return wire.text_of(name, path) if isinstance(name, memoryview) else ""


def _restored(nodes: Mapping[str, GraphDefNode], handed: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the variables that nodes fill from a checkpoint, and their entries.

    handed  the variables that arguments of a function are
    """
    keys: dict[str, list[str]] = {}
    for node in nodes.values():
        if node.op not in _RESTORING or len(node.read) < 2:
            continue
        variable, source = node.read[:2]
        maker = nodes.get(source.partition(":")[0])
        for _ in range(4):
            if maker is None or maker.op not in _PASSING or not maker.read:
                break
            source = maker.read[0]
            maker = nodes.get(source.partition(":")[0])
        place = source.rpartition(":")[2]
        if maker is None or maker.op != "RestoreV2" or len(maker.read) < 2:
            continue
        if maker.name not in keys:
            listed = nodes.get(maker.read[1].partition(":")[0])
            keys[maker.name] = [] if listed is None else listed.texts("value")
        number = int(place) if is_count(place) else 0
        if number < len(keys[maker.name]):
            name = variable.partition(":")[0]
            yield handed.get(name, name), keys[maker.name][number]
