"""What the graph of a SavedModel states about its recurrent layers: the end that they read from, their functions, how two
directions are joined. A SavedModel of Keras 3 has no configuration.

Only the names and operations of nodes are read. A layer's nodes are in a scope that is called as the layer's variables are,
with a number behind; whatever does not look as Keras builds it is left open.

Sources: tensorflow/core/protobuf/{saved_model,meta_graph}.proto, core/framework/{graph,function,node_def}.proto; keras/src
(3.15), layers/rnn/{lstm,gru,simple_rnn,bidirectional}.py and backend/tensorflow/{rnn,nn}.py.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from rnnconvert.containers import graph_def
from rnnconvert.containers.graph_def import Function

FILE = "saved_model.pb"
_FUNCTIONS = {
    "Sigmoid": "sigmoid", "Tanh": "tanh", "Relu": "relu", "Softsign": "softsign", "Softplus": "softplus", "Elu": "elu", "Selu": "selu",
}  # fmt: skip
"""Operations that are functions, by Keras's names for them."""
_PLAIN = {
    "Const", "ReadVariableOp", "MatMul", "BiasAdd", "Add", "AddV2", "Split", "Squeeze", "StridedSlice", "Sub", "Mul", "Identity",
    "NoOp", "Cast", "Unpack",
}  # fmt: skip
"""Operations that one step of a cell is made of, beside its functions."""
_STEPS = {"lstm": (3, 2, 3), "gru": (2, 1, 3), "rnn": (0, 1, 0)}
"""Of one step of a cell: how many gates it has, how often it takes the candidate's function, and how many products."""
_MERGES = {
    ("ConcatV2",): "concat", ("AddV2",): "sum", ("Mul",): "mul", ("AddV2", "RealDiv"): "ave", ("AddV2", "Mul"): "ave", (): "none",
}  # fmt: skip
"""The operations of a Bidirectional's own scope that join its directions, sorted, by its merge_mode."""
_JOINING = {"ConcatV2", "AddV2", "Mul", "RealDiv"}


LOOPS = ("While", "StatelessWhile")
_CONTROL = {
    **dict.fromkeys(LOOPS, ("cond", "body")),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
}
"""Operators that run functions any number of times, and the attributes that name these."""


class Functions(NamedTuple):
    """The functions of a cell by Keras's names; "" for one that the graph leaves open."""

    activation: str = ""
    recurrent_activation: str = ""


class SavedGraph:
    """The functions of a SavedModel, and the operation of each of their nodes, by name."""

    def __init__(self, functions: Sequence[Function], repeated: Sequence[Function]) -> None:
        self.parts = functions
        self._repeated = {id(function) for function in repeated}
        self._nodes = {node.name: node.op for function in functions for node in function.nodes.values()}

    def is_repeated(self, function: Function) -> bool:
        """Return whether a loop or a branch of the model runs a function: any number of times."""
        return id(function) in self._repeated

    def functions(self, cell: str, kind: str) -> Functions:
        """Return the functions of a cell, by the path of its variables and its kind."""
        layer, _, own = cell.rpartition("/")
        scope = self._scope(layer)
        if not scope:
            return Functions()
        loop = re.compile(rf"{re.escape(scope)}/while/{re.escape(own)}(?:_\d+)?/", re.S)
        unrolled = re.compile(rf"({re.escape(scope)}/{re.escape(own)}(?:_\d+)?)/", re.S)
        steps: dict[str, Counter[str]] = {}
        for name, operation in self._nodes.items():
            if loop.match(name):
                steps.setdefault("while", Counter())[operation] += 1
            elif match := unrolled.match(name):
                steps.setdefault(match[1], Counter())[operation] += 1
        met = (
            {_functions(steps["while"], kind)}
            if "while" in steps
            else {_functions(one, kind) for one in steps.values()}
        )
        return met.pop() if len(met) == 1 else Functions()

    def backwards(self, cell: str) -> bool | None:
        """Return whether the layer around a cell reads from the end; None where the graph does not show it."""
        scope = self._scope(cell.rpartition("/")[0])
        if not scope or f"{scope}/while" not in self._nodes:  # an unrolled layer turns a list, not a tensor
            return None
        return any(self._nodes.get(f"{scope}/{one}") == "ReverseV2" for one in ("ReverseV2", "ReverseV2_1"))

    def merge(self, layer: str) -> str:
        """Return how a Bidirectional joins its directions, by the path of its variables; "" where that is not clear."""
        scope = self._scope(layer)
        own = [operation for name, operation in self._nodes.items() if scope and name.rpartition("/")[0] == scope]
        joining = tuple(sorted(one for one in own if one in _JOINING))
        turned = own.count("ReverseV2")  # the outputs of the backward layer, back in order; its last one is not turned
        return _MERGES.get(joining, "") if turned == 1 or (not turned and joining) else ""

    def _scope(self, path: str) -> str:
        """Return the one scope that is called as a path of variables, its last word with a number behind; or ""."""
        several = self.scopes(path)
        return several[0] if len(several) == 1 else ""

    def scopes(self, path: str) -> list[str]:
        """Return the scopes that are called as a path of variables, their last word with a number behind: one for each call."""
        words = [re.escape(word) for word in path.split("/")]
        parts = [*(rf"{word}(?:_\d+)?" for word in words[:-1]), rf"{words[-1]}_\d+"]
        expression = re.compile(r"(?:[^/]+/)*" + "/".join(parts), re.S)  # in the scopes of the models around it
        return [scope for scope in self._scopes if expression.fullmatch(scope)]

    @cached_property
    def _scopes(self) -> list[str]:
        """Every scope, those inside others among them."""
        found: set[str] = set()
        for name in self._nodes:
            while (name := name.rpartition("/")[0]) and name not in found:
                found.add(name)
        return sorted(found)


def _functions(step: Counter[str], kind: str) -> Functions:
    """Return the functions in one step of a cell; the open ones where its operations are not Keras's own."""
    gates, candidates, products = _STEPS[kind]
    step = Counter(step)
    recurrent = ""
    if gates and step["Relu6"] == step["RealDiv"] == gates:  # hard_sigmoid, relu6(x + 3) / 6
        recurrent = "hard_sigmoid"
        del step["Relu6"], step["RealDiv"]
    met = {operation: count for operation, count in step.items() if operation in _FUNCTIONS}
    if step["Mul"] != products or set(step) - _PLAIN - set(met):
        return Functions()
    if recurrent:
        gates = 0
    if not gates:
        names = [one for one, count in met.items() if count == candidates]
        return Functions(_FUNCTIONS[names[0]] if len(names) == len(met) == 1 else "", recurrent)
    if len(met) == 1 and set(met.values()) == {gates + candidates}:
        (only,) = met
        return Functions(_FUNCTIONS[only], _FUNCTIONS[only])
    if sorted(met.values()) != sorted((gates, candidates)):
        return Functions()
    by_count = {count: _FUNCTIONS[one] for one, count in met.items()}
    return Functions(by_count[candidates], by_count[gates])


def read(path: Path) -> SavedGraph:
    """Return the graph of a saved_model.pb. Raises UnreadableError for a damaged one."""
    functions: list[Function] = []
    repeated: list[Function] = []
    for graph in graph_def.read_saved(path):
        nodes = itertools.chain(graph.nodes.values(), *(one.nodes.values() for one in graph.functions.values()))
        bodies = {node.called(key) for node in nodes for key in _CONTROL.get(node.op, ())}
        repeated += [function for name, function in graph.functions.items() if name in bodies]
        functions += graph.functions.values()
    return SavedGraph(functions, repeated)
