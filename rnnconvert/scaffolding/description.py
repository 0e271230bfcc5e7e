"""A whole model as layers that call one another: a source describes it, and a target writes it.

A node is one call of a layer. What it computes is its kind, with its settings: rnnconvert/scaffolding/kinds.py.

A tensor keeps the axes that it has in the source: if another framework wants them otherwise, its target turns them, visibly.
"""

from __future__ import annotations

import ast
import functools
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from rnnconvert.core.arrays import Array
from rnnconvert.core.syntax import tree_of
from rnnconvert.models.model import Model
from rnnconvert.scaffolding import kinds

K_co = TypeVar("K_co", bound=kinds.Kind, covariant=True)
K = TypeVar("K", bound=kinds.Kind)
Writer = TypeVar("Writer")
Result = TypeVar("Result")

Shape = tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the model.

    name   its name in the source, or the layer that gives it
    shape  its axes, the batch first if the source has one; None for open axes
    dtype  its element type
    axes   labels, equal for open axes of the same length, "" for other axes; empty if the source does not distinguish them
    sized  whether its axes are stated: the output of a layer that is left out may have any
    """

    name: str
    shape: Shape
    dtype: str = "float32"
    axes: tuple[str, ...] = ()
    sized: bool = True


@dataclass(frozen=True)
class Length:
    """A length that a run decides: a sum of products.

    terms  for each product a whole number, and what is multiplied: axes, by the number of the node's input and its axis, and lengths
           that are computed
    """

    terms: tuple[tuple[int, tuple[tuple[int, int] | ComputedLength, ...]], ...]


@dataclass(frozen=True)
class ComputedLength:
    """A length that others give by a function.

    function  "//", "trunc", "min", "max" or "round", of the quotient of two
    operands  what it is computed from
    """

    function: str
    operands: tuple[Length | int, ...]


RANK = -1
"""In the place of an axis: how many axes there are."""
_TRIED = 256
"""The length up to which a condition is tried."""


@dataclass(frozen=True)
class Check:
    """A condition on lengths of a model's inputs: what the source computes for others is not known.

    text  the condition as Python has it, with {0}, {1} for the lengths; several joined by "and" or "or" are in parentheses
    axes  for each the number of the input, and its axis; RANK for how many axes it has
    """

    text: str
    axes: tuple[tuple[int, int], ...]

    def spelled(self, names: Sequence[str]) -> tuple[list[str], str]:
        """Return its lengths and itself as Python has them, for inputs of some names."""
        words = [f"len({names[number]}.shape)" if axis == RANK else f"{names[number]}.shape[{axis}]" for number, axis in self.axes]
        return words, self.text.format(*words)

    def raising(self, names: Sequence[str], others: str = "") -> list[str]:
        """Return the lines of Python that raise ValueError where inputs of some names do not fulfil it.

        others  what has to hold, too, for them to raise
        """
        words, condition = self.spelled(names)
        got = ", ".join(f"{word} = {{{word}}}" for word in words)
        return [f"if {others}not {condition}:", f'    raise ValueError(f"got {got}, expected {condition}")']

    def takes(self, shapes: Sequence[Sequence[int]]) -> bool:
        """Return whether inputs of some shapes fulfil it."""
        return self.holds([len(shapes[number]) if axis == RANK else shapes[number][axis] for number, axis in self.axes])

    def holds(self, lengths: Sequence[int]) -> bool:
        """Return whether lengths, as many as it has axes, fulfil it; none do with which it divides by zero."""
        try:
            return bool(_computed(parsed(self.text, len(lengths)), lengths))
        except ZeroDivisionError:
            return False

    @property
    def always(self) -> bool:
        """Whether every length surely fulfils it, as (n // 2) <= n: its numbers are so small that none is decided beyond those tried."""
        numbers = [int(word) for word in re.findall(r"(?<![{\d])\d+(?![}\d])", self.text)]
        small = math.prod(max(number, 1) for number in numbers) <= _TRIED // 2
        return len(self.axes) == 1 and small and all(self.holds([length]) for length in range(1, _TRIED))


_COMPUTE: Mapping[type, Any] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Div: operator.truediv,
}  # fmt: skip


@functools.lru_cache(maxsize=1024)
def parsed(text: str, count: int) -> ast.expr:
    """Parse a condition on so many lengths, which are names: length_0, length_1."""
    body: ast.expr = tree_of(text.format(*(f"{LENGTH}{number}" for number in range(count))), "eval").body
    return body


LENGTH = "length_"
"""The beginning of the names of lengths, before their numbers."""


def _computed(node: ast.expr, lengths: Sequence[int]) -> int:
    """Return the value of a condition on numbers. Raises KeyError for syntax that no condition has."""
    if isinstance(node, ast.Name):
        return lengths[int(node.id.removeprefix(LENGTH))]
    if isinstance(node, ast.BoolOp):
        return (all if isinstance(node.op, ast.And) else any)(_computed(value, lengths) for value in node.values)
    if isinstance(node, ast.Compare):
        return int(_COMPUTE[type(node.ops[0])](_computed(node.left, lengths), _computed(node.comparators[0], lengths)))
    if isinstance(node, ast.BinOp):
        return int(_COMPUTE[type(node.op)](_computed(node.left, lengths), _computed(node.right, lengths)))
    if isinstance(node, ast.Call):
        words = [_computed(value, lengths) for value in node.args]
        called: Any = {"min": min, "max": max, "round": round, "int": int}[ast.unparse(node.func)]
        return int(called(*words))
    if isinstance(node, ast.UnaryOp):
        return -_computed(node.operand, lengths)
    return int(node.value)  # type: ignore[attr-defined]


Lengths = tuple[Length | int, ...]
"""Lengths of axes; -1 for the one that is left."""


def joined_path(*parts: str) -> str:
    """Return the path of a layer in the outermost model; parts that are "" are none."""
    return "/".join(part for part in parts if part)


@dataclass(frozen=True, eq=False)
class Node(Generic[K_co]):
    """One call of a layer.

    kind      what it computes
    layer     the layer's path in the source, "" if a line stands for it, without a layer; calls of one layer share its weights
    inputs    the values that it reads
    outputs   the values that it gives
    named     further values that it reads: mask, states
    of        the layer of the source of which it is a direction; "" for any other node
    """

    kind: K_co
    layer: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    named: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    of: str = ""

    @property
    def x(self) -> Value:
        """The first of its inputs."""
        return self.inputs[0]

    @property
    def y(self) -> Value:
        """The first of its outputs."""
        return self.outputs[0]

    @property
    def label(self) -> str:
        """Its name in its model: its layer's, or its output's if it has no layer."""
        return self.layer or self.y.name

    @property
    def source(self) -> str:
        """The layer in the source that has its weights."""
        return self.of or self.layer

    def reads(self) -> tuple[Value, ...]:
        """Return everything that it reads."""
        return (*self.inputs, *(value for values in self.named.values() for value in values))


Rules = Mapping[type[kinds.Kind], Callable[[Any, Node[Any]], Any]]
"""What adds a node to what is being made, by its kind."""


def on(kind: type[K], rule: Callable[[Writer, Node[K]], Result]) -> dict[type[kinds.Kind], Callable[[Writer, Node[Any]], Result]]:
    """Return the part of a table of rules that is for a kind."""
    return {kind: rule}


@dataclass(eq=False)
class DescribedModel:
    """A model: its inputs, its nodes in the order of running, its outputs.

    name  what the source calls it
    path  where it is in the outermost one, "" for that itself
    """

    name: str
    path: str = ""
    inputs: tuple[Value, ...] = ()
    nodes: list[Node[kinds.Kind]] = field(default_factory=list)
    outputs: tuple[Value, ...] = ()

    def add(
        self,
        kind: kinds.Kind,
        layer: str,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        named: Mapping[str, Sequence[Value]] | None = None,
    ) -> Node[kinds.Kind]:
        """Append a node and return it."""
        others = {key: tuple(values) for key, values in (named or {}).items() if values}
        node = Node(kind, layer, tuple(inputs), tuple(outputs), others)
        self.nodes.append(node)
        return node

    def copy(self) -> DescribedModel:
        """Return a model to rewrite: with the same tensors and copies of the nodes, also in the models in it."""
        return self._copied({})

    def _copied(self, copies: dict[int, DescribedModel]) -> DescribedModel:
        if id(self) not in copies:
            nodes = [
                replace(node, kind=kinds.Model(node.kind.scope._copied(copies))) if isinstance(node.kind, kinds.Model) else node
                for node in self.nodes
            ]
            copies[id(self)] = DescribedModel(self.name, self.path, self.inputs, nodes, self.outputs)
        return copies[id(self)]

    def inside(self, layer: str) -> str:
        """Return the path of a layer of this model in the outermost one."""
        return joined_path(self.path, layer)

    def only_reader(self, value: Value) -> Node[kinds.Kind] | None:
        """Return the node that alone reads a tensor, once; None where several do, or the model gives it."""
        readers = [node for node in self.nodes for read in node.reads() if read is value]
        return readers[0] if len(readers) == 1 and not any(output is value for output in self.outputs) else None

    def inner(self) -> Iterator[DescribedModel]:
        """Yield the models in this model, each once, the innermost first."""
        done: set[int] = set()
        for node in self.nodes:
            if isinstance(node.kind, kinds.Model) and id(node.kind.scope) not in done:
                for scope in (*node.kind.scope.inner(), node.kind.scope):
                    if id(scope) not in done:
                        done.add(id(scope))
                        yield scope

    def with_steps(self) -> Iterator[Node[kinds.Kind]]:
        """Yield its nodes, and those of the steps of its loops."""
        for node in self.nodes:
            yield node
            if isinstance(node.kind, kinds.Loop):
                yield from node.kind.scope.with_steps()

    def every_node(self) -> Iterator[Node[kinds.Kind]]:
        """Yield the nodes of the model and of the models in it."""
        for scope in (*self.inner(), self):
            yield from scope.nodes

    def drop_unread(self) -> None:
        """Drop the nodes on which no output depends."""
        needed = {id(value) for value in self.outputs}
        remaining = []
        for node in reversed(self.nodes):
            if any(id(value) in needed for value in node.outputs):
                remaining.append(node)
                needed.update(id(value) for value in node.reads())
        self.nodes = remaining[::-1]


def prune(top: DescribedModel) -> None:
    """Drop what no output depends on, such as masks that no layer reads, in a model and in the models in it."""
    top.drop_unread()
    for scope in reversed(list(top.inner())):  # from the outside to the inside
        everywhere = [(outer, number, node) for outer in (top, *top.inner()) for number, node in enumerate(outer.nodes)]
        places = [(outer, number) for outer, number, node in everywhere if isinstance(node.kind, kinds.Scoped) and node.kind.scope is scope]
        read = {id(value) for _, _, node in everywhere for value in node.reads()}
        read.update(id(value) for outer in (top, *top.inner()) for value in outer.outputs)
        wanted = [any(id(outer.nodes[number].outputs[n]) in read for outer, number in places) for n in range(len(scope.outputs))]
        scope.outputs = tuple(itertools.compress(scope.outputs, wanted))
        scope.drop_unread()
        inside = {id(value) for value in (*scope.outputs, *(value for node in scope.nodes for value in node.reads()))}
        needed = [id(value) in inside or value.dtype != "bool" for value in scope.inputs]
        scope.inputs = tuple(itertools.compress(scope.inputs, needed))
        for outer, number in places:
            node = outer.nodes[number]
            outer.nodes[number] = replace(
                node, inputs=tuple(itertools.compress(node.inputs, needed)), outputs=tuple(itertools.compress(node.outputs, wanted))
            )


@dataclass(frozen=True)
class Description:
    """A model to write.

    scope    the outermost model
    notes    notes for a reader of the written file
    names    layers with weights, by their paths: their possible names in the source's file, the most likely first
    options  the files that `rnnconvert.load_into` needs in addition to the source's, by the names of its options
    words    the names of open axes, by their labels in Value.axes
    roles    likewise their roles, if known: "batch" or "time"
    partial  whether layers that cannot be written are left out, and named in the file
    checks   the conditions on its inputs that the written code checks
    states   how many of its inputs are states that it goes on from, and of its outputs the same ones as it leaves them: the last of both,
             in one order
    weights  the name of the file of weights that is written with the code; "" for none
    constants  arrays of the source that are written out as numbers, since they are short
    integers   whether the source rounds to integers of 8 bits what its layers multiply, which this does not
    continues  whether the source goes on from one call to the next, where this begins each call anew
    open_ranks  the inputs of which the source does not state how many axes they have, nor the caller
    model      the model that holds the weights, if a transplant knows the layers of the file by other names
    through    for such a model, a file that `export` writes and whose layers have names, so that code can be written of it, unless its
               layers have the file's own names
    fixed      the values of the source's inputs that the caller fixed, by their names; the model has no such inputs
    """

    scope: DescribedModel
    notes: tuple[str, ...] = ()
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    partial: bool = False
    checks: tuple[Check, ...] = ()
    states: int = 0
    open_ranks: tuple[Value, ...] = ()
    weights: str = ""
    constants: frozenset[str] = frozenset()
    integers: bool = False
    continues: bool = False
    model: Model | None = None
    through: str = ""
    fixed: Mapping[str, Array] = field(default_factory=dict)

    @property
    def output_names(self) -> list[str]:
        """Return the names of the outputs in a graph: "output", or "output_0" and so on; states have other names."""
        count = len(self.scope.outputs) - self.states
        plain = ["output"] if count == 1 else [f"output_{number}" for number in range(count)]
        return [*plain, *(value.name for value in self.scope.outputs[count:])]

    @property
    def notes_of_code(self) -> tuple[str, ...]:
        """Return the notes for a reader of the model as code, which also checks how many axes its inputs have."""
        names = [value.name for value in self.scope.inputs]
        conditions = [check.spelled(names)[1] for check in self.checks if all(axis == RANK for _, axis in check.axes)]
        if not conditions:
            return self.notes
        note = f"the file does not state how many axes its inputs have, and the code checks them: {' and '.join(conditions)}"
        return (note, *self.notes)
