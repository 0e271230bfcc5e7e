"""A described model on its way into a graph of basic operations: its tensors, its weights, and lengths that a run decides.

The operations are the common ones of rnnconvert/graphs/program, as ONNX has them in its operator set 17. A tensor keeps the axes that it
has in the description; what an operation wants otherwise is transposed around it.
Source: onnx/docs/Operators.md and onnx/docs/Changelog.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.weights import Recurrent
from rnnconvert.graphs.program.building import OperationBuilder
from rnnconvert.graphs.program.masked_steps import CountedSteps, steps
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import ComputedLength, DescribedModel, Length, Lengths, Node, Rules, Value
from rnnconvert.scaffolding.graph.composed import COMPOSED
from rnnconvert.scaffolding.operators import axis_of
from rnnconvert.scaffolding.walk import LayerWalk
from rnnconvert.scaffolding.weights import LayerWeights

Holds = Callable[[Recurrent, bool, bool], bool]
"""Whether a recurrent operation of a framework computes a layer; the steps of any other are a Scan. Its arguments: the layer, whether
sequences have different lengths, and whether anything reads their last cell states."""


class GraphWriter(LayerWalk[str], OperationBuilder):
    """A graph under construction: what stands for a tensor is the name of a value.

    values   the tensors of the description that its values are, by name
    holds    decides which recurrent layers are operations
    """

    def __init__(
        self, scope: DescribedModel, rules: Rules, weights: LayerWeights, title: str, lacking: Container[str], holds: Holds
    ) -> None:
        LayerWalk.__init__(self, scope, rules, weights)
        OperationBuilder.__init__(self)
        self.title, self.unknown = title, f"no operator of {title} is known for it"
        self._lacking, self.holds = lacking, holds
        self._recurrent: dict[str, str] = {}
        self.values: dict[str, Value] = {}
        self._joined: set[int] = set()
        self._reserved: set[str] = set()
        self._steps: dict[str, CountedSteps] = {}
        self._shared: dict[object, str] = {}
        self._stored: dict[object, str] = {}

    # Names

    def name(self, wanted: str) -> str:
        """Return a name that no value has."""
        name, number = wanted, 2
        while name in self._reserved:
            name, number = f"{wanted}_{number}", number + 1
        self._reserved.add(name)
        return name

    def constant(self, wanted: str, array: Array | PiecewiseArray) -> str:
        """Add stored numbers, unless the same ones in memory are there, as for a layer that is called again. Return their name."""
        if not isinstance(array, np.ndarray) or not array.size:
            return super().constant(wanted, array)
        # What is stored is alive, so nothing else can lie in its memory.
        key = array.ctypes.data, array.shape, array.strides, array.dtype.str
        if key not in self._stored:
            self._stored[key] = super().constant(wanted, array)
        return self._stored[key]

    def shared(self, wanted: str, array: Array) -> str:
        """Return the name of numbers that are stored once."""
        self._reserved.add(wanted)
        return super().shared(wanted, array)

    def hand(self, value: Value, held: str) -> None:
        super().hand(value, held)
        self.values.setdefault(held, value)

    give = hand

    # Scopes

    @contextlib.contextmanager
    def body(self) -> Iterator[list[Operation]]:
        """Collect the operations that are added as a graph in the graph: values that are computed once in it stay in it."""
        around = self.nodes, self._shared, self._steps
        self.nodes, self._shared, self._steps = [], dict(self._shared), dict(self._steps)
        try:
            yield self.nodes
        finally:
            self.nodes, self._shared, self._steps = around

    def visit(self, node: Node[kinds.Kind]) -> None:
        if id(node) not in self._joined:
            super().visit(node)

    def join(self, following: Node[kinds.Kind]) -> None:
        """Let the nodes that were just added do the work of another node, too."""
        self._joined.add(id(following))

    # Recurrent layers

    def recurs(self, name: str, words: str) -> None:
        """Note in words what an operation computes that runs over the steps of sequences."""
        self._recurrent[name] = words

    def recurrent(self, nodes: Sequence[Operation]) -> list[str]:
        """Return the operations that run over the steps of sequences, in words, including that in the graphs of operations."""
        words = []
        for node in nodes:
            words += [self._recurrent[node.name]] if node.name in self._recurrent else []
            for _, body in node.bodies:
                words += self.recurrent(body.nodes)
        return words

    # Nodes

    def add(self, operator: str, inputs: Sequence[str], wanted: str, **attributes: Any) -> str:
        if operator in self._lacking:
            return COMPOSED[operator](self, inputs, wanted, attributes)
        return super().add(operator, inputs, wanted, **attributes)

    def put(self, node: Node[kinds.Kind], operator: str, inputs: Sequence[str], **attributes: Any) -> None:
        """Add the operation that gives what a node of the description gives."""
        self.give(node.y, self.add(operator, inputs, self.label(node), **attributes))

    def transposed(self, value: str, order: Sequence[int], wanted: str) -> str:
        """Add a Transpose, unless nothing moves."""
        if list(order) == list(range(len(order))):
            return value
        return self.add("Transpose", [value], f"{wanted}/transposed", perm=list(order))

    def number(self, value: float, dtype: str = "float32") -> str:
        """Return a number of a type, stored once."""
        array = np.array(value, dtype)
        key = (array.tobytes(), dtype)
        if key not in self._shared:
            self._shared[key] = self.constant(f"number_{value:g}".replace("-", "m"), array)
        return self._shared[key]

    def index(self, number: int) -> str:
        """Return a whole number without axes, stored once."""
        return self.shared(f"index_{number}".replace("-", "m"), np.array(number, np.int64))

    def cast(self, name: str, dtype: str, wanted: str) -> str:
        """Add a Cast to an element type."""
        return self.add("Cast", [name], f"{wanted}/{dtype}", to=np.dtype(dtype))

    def typed(self, value: Value, dtype: str) -> str:
        """Return a tensor in an element type."""
        return self(value) if value.dtype == dtype else self.cast(self(value), dtype, self(value))

    def counted(self, mask: Value) -> CountedSteps:
        """Return the counts of steps that recurrent layers need from a mask, added once."""
        name = self(mask)
        if name not in self._steps:
            self._steps[name] = steps(self, name, name)
        return self._steps[name]

    # Lengths

    def length(self, node: Node[kinds.Kind], value: Length | int, wanted: str) -> str:
        """Return a length as a list of one whole number: stored, or computed from axes of what a node reads."""
        if isinstance(value, int):
            return self.integers(value)
        terms = []
        for count, factors in value.terms:
            names = [self._factor(node, factor, wanted) for factor in factors]
            names += [self.integers(count)] if count != 1 or not names else []
            terms.append(self.folded("Mul", names, wanted))
        return self.folded("Add", terms, wanted)

    def folded(self, operator: str, names: Sequence[str], wanted: str) -> str:
        """Add an operator of two values over several, from the first on."""
        result, *others = names
        for other in others:
            result = self.add(operator, [result, other], wanted)
        return result

    def _factor(self, node: Node[kinds.Kind], factor: tuple[int, int] | ComputedLength, wanted: str) -> str:
        if isinstance(factor, tuple):
            number, axis = factor
            return self.size(node.inputs[number], axis)
        first, second = (self.length(node, operand, wanted) for operand in factor.operands)
        if factor.function in ("min", "max"):
            return self.add(factor.function.capitalize(), [first, second], wanted)
        if factor.function == "trunc":
            return self.add("Div", [first, second], wanted)
        if factor.function == "//":
            return self.floor_divided(first, second, wanted)
        doubles = [self.cast(name, "float64", wanted) for name in (first, second)]
        rounded = self.add("Round", [self.add("Div", doubles, f"{wanted}/quotient")], f"{wanted}/rounded")
        return self.cast(rounded, "int64", wanted)

    def floor_divided(self, number: str, by: str, wanted: str) -> str:
        """Add the floor of a quotient of whole numbers: Div cuts off, and Mod has the divisor's sign."""
        rest = self.add("Mod", [number, by], f"{wanted}/rest")
        return self.add("Div", [self.add("Sub", [number, rest], f"{wanted}/even"), by], f"{wanted}/quotient")

    def size(self, value: Value, axis: int) -> str:
        """Return the length of an axis as a list of one whole number."""
        length = value.shape[axis]
        if length is not None:
            return self.integers(length)
        return self._once("Shape", self(value), f"axis_{axis}", start=axis, end=axis + 1)

    def shape_of(self, value: Value) -> str:
        """Return the lengths of a tensor's axes."""
        return self._once("Shape", self(value), "shape")

    def _once(self, operator: str, name: str, word: str, **attributes: Any) -> str:
        key = (operator, name, word)
        if key not in self._shared:
            self._shared[key] = self.add(operator, [name], f"{name}/{word}", **attributes)
        return self._shared[key]

    def lengths(self, node: Node[kinds.Kind], values: Lengths, wanted: str) -> str:
        """Return several lengths as a list of whole numbers."""
        numbers = [value for value in values if isinstance(value, int)]
        if len(numbers) == len(values):
            return self.integers(*numbers)
        return self.add("Concat", [self.length(node, value, wanted) for value in values], f"{wanted}/shape", axis=0)

    def reshaped(self, node: Node[kinds.Kind], values: Lengths) -> None:
        """Add a Reshape of a node's first input: an axis of the same place and length is copied, and one is left to the runtime."""
        wanted = list(values)
        for axis, value in enumerate(values):
            if axis_of(value) == (0, axis):
                wanted[axis] = 0  # copied
        opened = [axis for axis, value in enumerate(wanted) if not isinstance(value, int)]
        if len(opened) == 1 and -1 not in wanted:
            wanted[opened[0]] = -1
        label = self.label(node)
        self.put(node, "Reshape", [self(node.x), self.lengths(node, tuple(wanted), label)])
