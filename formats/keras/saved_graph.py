"""The statements of a SavedModel's graph about its recurrent layers: the end that they read from, their functions, how two
directions are joined. A SavedModel of Keras 3 has no configuration.

Only the names and operations of nodes are read. A layer's nodes are in a scope that is called as the layer's variables are: Keras 3
puts a number behind, Keras 2 does not. So `lstm_1` is the scope of `lstm` in the one and of `lstm_1` in the other; the scopes of the
cells show which it is. Anything that does not look as Keras builds it is left open.

Sources: tensorflow/core/protobuf/{saved_model,meta_graph}.proto, core/framework/{graph,function,node_def}.proto; keras/src
(3.15), layers/rnn/{lstm,gru,simple_rnn,bidirectional}.py and backend/tensorflow/{rnn,nn}.py; tf_keras/src (2.21), layers/rnn/lstm.py
and gru.py, standard_lstm and standard_gru.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rnnconvert.containers import graph_def
from rnnconvert.containers.graph_def import WHILES, GraphDefFunction
from rnnconvert.core.cached import cached_property

_FUNCTIONS = {
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Relu": "relu",
    "Softsign": "softsign",
    "Softplus": "softplus",
    "Elu": "elu",
    "Selu": "selu",
}
"""Operations that are functions, by Keras's names for them."""
_PLAIN = {
    "Const", "ReadVariableOp", "MatMul", "BiasAdd", "Add", "AddV2", "Split", "Squeeze", "StridedSlice", "Sub", "Mul", "Identity",
    "NoOp", "Cast", "Unpack", "SplitV",
}  # fmt: skip
"""Operations that one step of a cell is made of, beside its functions."""
_STEPS = {"lstm": (3, 2, 3), "gru": (2, 1, 3), "rnn": (0, 1, 0)}
"""Of one step of a cell: how many gates it has, how often it takes the candidate's function, and how many products."""
_MERGES = {("ConcatV2",): "concat", ("AddV2",): "sum", ("Mul",): "mul", ("AddV2", "RealDiv"): "ave", ("AddV2", "Mul"): "ave", (): "none"}
"""The operations of a Bidirectional's own scope that join its directions, sorted, by its merge_mode."""
JOINING = ("ConcatV2", "AddV2", "Mul", "RealDiv")
"""The operations that join the outputs of two directions."""


_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_LISTS = ("TensorListGetItem", "TensorListSetItem")
_STANDARD = re.compile(r"__(?:inference|forward)_standard_(?:lstm|gru)_\d+")
"""The functions of their own that Keras 2, and it alone, makes of layers as cuDNN has them."""
_CONTROL = {**dict.fromkeys(WHILES, ("cond", "body")), **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch"))}
"""Operators that run functions any number of times, and the attributes that name these."""


class Functions(NamedTuple):
    """The functions of a cell by Keras's names; "" for one that the graph leaves open."""

    activation: str = ""
    recurrent_activation: str = ""


class SavedGraph:
    """The functions of a SavedModel, and the operation of each of their nodes, by name.

    path   of the file
    cells  the paths of the variables of its recurrent cells
    """

    def __init__(self, path: Path, graphs: Iterable[graph_def.GraphDef], cells: Sequence[str]) -> None:
        self.path = path
        self.parts: list[GraphDefFunction] = []
        self._cells = cells
        self._library: dict[str, GraphDefFunction] = {}
        self._repeated: set[int] = set()
        for graph in graphs:
            within = itertools.chain(graph.nodes.values(), *(function.nodes.values() for function in graph.functions.values()))
            bodies = {node.called(key) for node in within for key in _CONTROL.get(node.op, ())}
            self._repeated |= {id(function) for name, function in graph.functions.items() if name in bodies}
            self._library |= graph.functions
            self.parts += graph.functions.values()
        nodes = [node for function in self.parts for node in function.nodes.values()]
        self._nodes = {node.name: node.op for node in nodes}
        self._called = {node.name: node.called("f") for node in nodes if node.op in _CALLS}

    def is_repeated(self, function: GraphDefFunction) -> bool:
        """Return whether a loop or a branch of the model runs a function: any number of times."""
        return id(function) in self._repeated

    def functions(self, cell: str, kind: str) -> Functions:
        """Return the functions of a cell, by the path of its variables and its kind."""
        layer, _, cell_name = cell.rpartition("/")
        results: set[Functions] = set()
        for scope in self._certain(layer):
            apart = self._apart(scope)
            steps = self._steps(scope, cell_name) if apart is None else self._loops(apart)
            results |= {_functions(step, kind) for step in steps}
        return results.pop() if len(results) == 1 else Functions()

    def _steps(self, scope: str, cell_name: str) -> Iterable[Counter[str]]:
        """Return the operations of each step of a cell that the graph has in the scope of its layer."""
        number = r"(?:_\d+)?" if self._numbered else ""
        loop = re.compile(rf"{re.escape(scope)}/while/{re.escape(cell_name)}{number}/", re.S)
        unrolled = re.compile(rf"({re.escape(scope)}/{re.escape(cell_name)}(?:_\d+)?)/", re.S)
        steps: dict[str, Counter[str]] = {}
        for name, operation in self._nodes.items():
            if loop.match(name):
                steps.setdefault("while", Counter())[operation] += 1
            elif match := unrolled.match(name):
                steps.setdefault(match[1], Counter())[operation] += 1
        return [steps["while"]] if "while" in steps else steps.values()

    def _apart(self, scope: str) -> GraphDefFunction | None:
        """Return the separate function that Keras 2 makes of a layer as cuDNN has them; None for another layer."""
        return self._library.get(self._called.get(f"{scope}/PartitionedCall", ""))

    def _loops(self, function: GraphDefFunction) -> Iterator[Counter[str]]:
        """Yield the operations of a step of each loop of a function, without those that fetch what it reads and keep what it gives."""
        for node in function.nodes.values():
            body = self._library.get(node.called("body")) if node.op in WHILES else None
            if body is not None:
                yield Counter(operation.op for operation in body.nodes.values() if operation.op not in _LISTS)

    def backwards(self, cell: str) -> bool | None:
        """Return whether the layer around a cell reads from the end; None where the graph does not show it."""
        turned = {self._turns(scope) for scope in self._certain(cell.rpartition("/")[0])} - {None}
        return turned.pop() if len(turned) == 1 else None

    def _turns(self, scope: str) -> bool | None:
        apart = self._apart(scope)
        if apart is not None:
            return any(node.op == "ReverseV2" for node in apart.nodes.values())
        if f"{scope}/while" not in self._nodes:  # an unrolled layer turns a list, not a tensor
            return None
        return any(self._nodes.get(f"{scope}/{operator}") == "ReverseV2" for operator in ("ReverseV2", "ReverseV2_1"))

    def merge(self, layer: str) -> str:
        """Return how a Bidirectional joins its directions, by the path of its variables; "" if that is not clear."""
        joins = {self._joins(scope) for scope in self._certain(layer)}
        return joins.pop() if len(joins) == 1 else ""

    def _joins(self, scope: str) -> str:
        operations = [operation for name, operation in self._nodes.items() if name.rpartition("/")[0] == scope]
        joining = tuple(sorted(operation for operation in operations if operation in JOINING))
        turned = operations.count("ReverseV2")  # the outputs of the backward layer, back in order; its last one is not turned
        return _MERGES.get(joining, "") if turned == 1 or (not turned and joining) else ""

    def scopes(self, path: str) -> list[str]:
        """Return the scopes that are called as a path of variables, as Keras 3 does where nothing shows which it was: one for each call."""
        expression = _scope_of(path, numbered=self._numbered is not False)
        return [scope for scope in self._scopes if expression.fullmatch(scope)]

    def _certain(self, path: str) -> list[str]:
        """Return the same scopes, none where the scopes of the cells do not show how they are called."""
        return [] if self._numbered is None else self.scopes(path)

    @cached_property
    def _numbered(self) -> bool | None:
        """Whether scopes have a number that the variables' names have not; None where the scopes of the cells do not show it."""
        seen = {False for name in self._called.values() if _STANDARD.match(name)}
        for numbered, cell in itertools.product((False, True), self._cells):
            layer, _, cell_name = cell.rpartition("/")
            around = _scope_of(layer, numbered=numbered)
            inside = re.compile(rf"{re.escape(cell_name)}_\d+" if numbered else re.escape(cell_name), re.S)
            if any(
                inside.fullmatch(last) and around.fullmatch(scope.removesuffix("/while"))
                for scope, _, last in (path.rpartition("/") for path in self._scopes)
            ):
                seen.add(numbered)
        return seen.pop() if len(seen) == 1 else None

    @cached_property
    def _scopes(self) -> list[str]:
        """Every scope, those inside others among them."""
        scopes: set[str] = set()
        for name in self._nodes:
            while (name := name.rpartition("/")[0]) and name not in scopes:
                scopes.add(name)
        return sorted(scopes)


def _scope_of(path: str, *, numbered: bool) -> re.Pattern[str]:
    """Return a pattern for the scope of a layer, within the scopes of the models around it, by the path of the layer's variables."""
    words = [re.escape(word) for word in path.split("/")]
    parts = [*(rf"{word}(?:_\d+)?" for word in words[:-1]), rf"{words[-1]}_\d+"] if numbered else words
    return re.compile(r"(?:[^/]+/)*" + "/".join(parts), re.S)


def _functions(step: Counter[str], kind: str) -> Functions:
    """Return the functions in one step of a cell; the open ones where its operations are not Keras's own."""
    gates, candidates, products = _STEPS[kind]
    step = Counter(step)
    recurrent = ""
    if gates and step["Relu6"] == step["RealDiv"] == gates:  # hard_sigmoid, relu6(x + 3) / 6
        recurrent = "hard_sigmoid"
        del step["Relu6"], step["RealDiv"]
    counts = {operation: count for operation, count in step.items() if operation in _FUNCTIONS}
    if step["Mul"] != products or set(step) - _PLAIN - set(counts):
        return Functions()
    if recurrent:
        gates = 0
    if not gates:
        names = [operation for operation, count in counts.items() if count == candidates]
        return Functions(_FUNCTIONS[names[0]] if len(names) == len(counts) == 1 else "", recurrent)
    if len(counts) == 1 and set(counts.values()) == {gates + candidates}:
        (only,) = counts
        return Functions(_FUNCTIONS[only], _FUNCTIONS[only])
    if sorted(counts.values()) != sorted((gates, candidates)):
        return Functions()
    by_count = {count: _FUNCTIONS[operation] for operation, count in counts.items()}
    return Functions(by_count[candidates], by_count[gates])


def read(path: Path, cells: Sequence[str]) -> SavedGraph:
    """Return the graph of a saved_model.pb. Raises UnreadableError for a damaged one.

    cells  the paths of the variables of its recurrent cells
    """
    return SavedGraph(path, graph_def.read_saved(path), cells)
