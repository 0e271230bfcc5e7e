"""The function that a SavedModel serves, as a frozen graph: its variables are constants, and what it calls is in place of the calls.

Sources: tensorflow/python/framework/convert_to_constants.py, which does the same; core/ops/{resource_variable_ops,functional_ops}.cc.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from rnnconvert.containers.graph_def import GraphDef, GraphDefFunction
from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.containers.saved_model import MetaGraph, Signature
from rnnconvert.core.arrays import Array
from rnnconvert.core.limits import FUNCTION_NESTING, WRITTEN_OPERATIONS
from rnnconvert.core.malformed import Entries, Fields
from rnnconvert.files.adapter import unique
from rnnconvert.formats.tensorflow1.control_flow import Conditions

VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
_BRANCHES = ("body", "cond", "then_branch", "else_branch")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_CHANGES = ("Assign", "Resource", "Scatter", "StridedSliceAssign", "Apply", "SparseApply", "CountUpTo")
"""The beginnings of the names of operations that change a variable."""
_CHANGE_NOTHING = ("ResourceGather", "ResourceGatherNd", "ScatterNd", "ScatterNdNonAliasingAdd")
"""Those that begin so, and change none. Source: core/ops/{resource_variable_ops,state_ops,array_ops}.cc."""


@dataclass(eq=False)
class _Called:
    """A function where it is called, or the graph itself.

    nodes    its operations by name
    outputs  what it gives
    around   where it is called, and what is handed to it there by the names of its arguments
    scope    the operation that calls it, where names without a scope of their own belong
    inner    the functions that its operations call, by these
    flat     what its operations are called in the frozen graph
    """

    nodes: Mapping[str, GraphDefNode]
    outputs: tuple[str, ...] = ()
    around: _Called | None = None
    handed: Mapping[str, str] = field(default_factory=dict)
    scope: str = ""
    inner: dict[str, _Called] = field(default_factory=dict)
    flat: dict[str, str] = field(default_factory=Fields)


class FrozenFunction:
    """A function that is served, on its way to a frozen graph.

    graph    the frozen graph
    outputs  the values that it gives, by the names that callers use; inputs likewise
    changed  operations that change a variable
    """

    def __init__(self, meta: MetaGraph, signature: Signature, arrays: Mapping[str, Array]) -> None:
        """arrays  the entries of the checkpoint"""
        self._functions = meta.graph.functions
        self._used: set[str] = set()
        self._count = 0
        self.changed: list[str] = []
        reached = _reached(meta.graph.nodes, [*signature.inputs.values(), *signature.outputs.values()], waited_for=True)
        nodes = {name: node for name, node in meta.graph.nodes.items() if name in reached}
        entries = {name: arrays[entry] for name, entry in meta.entries().items() if entry in arrays}
        top = _Called(with_constants(GraphDef(nodes), entries).nodes)
        called = [*self._entered(top, 0)]
        written = dict(self._written(called))
        self.inputs = {key: self._value(top, tensor) for key, tensor in signature.inputs.items()}
        self.outputs = {key: self._value(top, tensor) for key, tensor in signature.outputs.items()}
        reached = _reached(written, [*self.inputs.values(), *self.outputs.values()])
        self.graph = Conditions(GraphDef({name: node for name, node in written.items() if name in reached}, self._functions)).decided()

    def _entered(self, called: _Called, depth: int) -> Iterator[_Called]:
        """Yield a function, and those that it calls, with the names of their operations."""
        yield called
        for node in called.nodes.values():
            self._count += 1
            if self._count > WRITTEN_OPERATIONS:
                raise OverflowError(f"its functions are more than {WRITTEN_OPERATIONS} operations")
            self.changed += self._changes(node)
            function = self._called_by(node)
            if function is None:
                name = node.name if "/" in node.name or not called.scope else f"{called.scope}/{node.name}"
                called.flat[node.name] = unique(name, self._used)
                self._used.add(called.flat[node.name])
            elif depth < FUNCTION_NESTING:
                handed = dict(zip(function.inputs, node.read, strict=True))
                called.inner[node.name] = _Called(function.nodes, function.outputs, called, handed, node.name)
                yield from self._entered(called.inner[node.name], depth + 1)
            else:
                raise OverflowError(f"its functions call one another more than {FUNCTION_NESTING} times")

    def _changes(self, node: GraphDefNode) -> list[str]:
        """Return the operations that change a variable: a node itself, or operations of the loop or the branches that it runs."""
        waiting, seen, changes = [node], set[str](), list[str]()
        while waiting:
            inner = waiting.pop()
            changes += [inner.name] if inner.op.startswith(_CHANGES) and inner.op not in _CHANGE_NOTHING else []
            names = {name for key in _BRANCHES if (name := inner.called(key))} | ({inner.called("f")} if inner is not node else set())
            for name in names - seen:
                seen.add(name)
                waiting += self._functions[name].nodes.values() if name in self._functions else ()
        return changes

    def _called_by(self, node: GraphDefNode) -> GraphDefFunction | None:
        function = self._functions.get(node.called("f")) if node.op in _CALLS else None
        return function if function is not None and len(function.inputs) == len(node.read) else None

    def _written(self, every: list[_Called]) -> Iterator[tuple[str, GraphDefNode]]:
        for called in every:
            for name, flat in called.flat.items():
                node = called.nodes[name]
                yield flat, replace(node, name=flat, inputs=tuple(self._value(called, source) for source in node.read))

    def _value(self, called: _Called, source: str) -> str:
        """Return the name of a value in the frozen graph."""
        for _ in range(WRITTEN_OPERATIONS):
            name, _, rest = source.partition(":")
            if source in called.handed and called.around is not None:
                called, source = called.around, called.handed[source]
            elif name in called.inner:
                called, place = called.inner[name], rest.rpartition(":")[2]
                source = Entries(called.outputs)[int(place) if place else 0]
            else:
                return f"{called.flat[name]}:{rest}" if rest else called.flat[name]
        raise OverflowError("its functions hand a value round in a circle")


def with_constants(graph: GraphDef, arrays: Mapping[str, Array]) -> GraphDef:
    """Return a graph in which variables are constants.

    arrays  their numbers, by the names of their nodes
    """
    nodes = {
        name: replace(node, op="Const", inputs=(), attributes={}, stored=arrays[name]) if node.op in VARIABLES and name in arrays else node
        for name, node in graph.nodes.items()
    }
    return GraphDef(nodes, graph.functions)


def _reached(nodes: Mapping[str, GraphDefNode], values: Iterable[str], waited_for: bool = False) -> set[str]:
    """Return the operations that values come from, and those that run before them if these are wanted, too."""
    waiting = [value.partition(":")[0] for value in values]
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in reached and name in nodes:
            reached.add(name)
            sources = nodes[name].inputs if waited_for else nodes[name].read
            waiting += [source.lstrip("^").partition(":")[0] for source in sources]
    return reached
