"""The cells of a TensorFlow 1 graph, whose variables do not say all: forget_bias, the function, the clips, the first states.

The graph is in the common operations, in which all loops of TensorFlow's are alike, and block operations are the steps that they
compute. From a cell's matrix to its product, past the bias, to the parts that it is split into. Any structure that tf.nn.rnn_cell
does not build is left undecided.

Sources (1.15.5): tensorflow/python/ops/rnn_cell_impl.py, the call of each cell; python/ops/clip_ops.py, clip_by_value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rnnconvert.containers.graph_def import WHILES, GraphDef
from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.cells import Activation, Clip
from rnnconvert.formats.tensorflow1.operations import PASSING
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.recognition.functions import TWO
from rnnconvert.recognition.masks import same_numbers

FUNCTIONS: Mapping[str, str] = {
    "Tanh": "tanh",
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Softsign": "softsign",
    "Softplus": "softplus",
    "Elu": "elu",
    "Selu": "selu",
}
"""Operations that are activation functions."""
LINEAR = Activation("linear")
_SUMS = ("Add", "AddV2", "BiasAdd")
_KEEPS_FOR_TRAINING = ("StackPush", "StackPushV2", "TensorListPushBack")
_TRAINING = re.compile(r"(^|/)gradients(_\d+)?/")
_TURNING = ("Reverse", "ReverseV2", "ReverseSequence")
_BACKWARD = re.compile(r"(^|/)bw/")
_BLOCKS = {"BlockLSTM": ((2, 3), (5, 6, 7)), "LSTMBlockCell": ((1, 2), (4, 5, 6)), "GRUBlockCell": ((1,), ())}
"""Operations that are steps of a layer: which of their inputs are states, and which the weights of peepholes."""
_FOLLOWED = 64
_LEAST = {**dict.fromkeys((*TWO, "MatMul", "GreaterOrEqual", "Gather"), 2), **dict.fromkeys(("Identity", "Cast", "Split"), 1)}
"""How many inputs operations have at least that are followed."""


@dataclass(frozen=True)
class GraphFacts:
    """A graph's statements about a cell; None for facts that it does not state.

    forget_bias  the constant that is added to gate f
    activation   the candidate's function
    clips        the bounds, none included
    """

    forget_bias: float | None = None
    activation: Activation | None = None
    clips: tuple[Clip, ...] | None = None


@dataclass(frozen=True, eq=False)
class CellProduct:
    """A product with a stored matrix, in the graph of a step.

    reading  the operations of that graph that read each value
    """

    scope: Scope
    node: Operation
    reading: Mapping[str, Sequence[Operation]]

    @property
    def value(self) -> str:
        """The value that it gives."""
        return self.node.outputs[0]

    def readers(self, value: str) -> list[Operation]:
        """Return the operations that read a value to compute with it."""
        return [node for node in self.reading.get(value, ()) if node.kind not in _KEEPS_FOR_TRAINING]

    @property
    def sums(self) -> list[Operation]:
        """Its sums with a bias."""
        return [node for node in self.readers(self.value) if node.kind == "Add"]

    def parts(self, count: int) -> Sequence[str]:
        """Return the parts that it is split into behind its bias; nothing where there are not so many."""
        splits = [node for total in self.sums for node in self.readers(total.outputs[0]) if node.kind == "Split"]
        return splits[0].outputs if len(splits) == 1 and len(splits[0].outputs) == count else ()

    def number(self, value: str) -> float | None:
        """Return the number of a constant of one element."""
        numbers = self.scope.constant(value)
        return float(numbers.reshape(-1)[0]) if numbers is not None and numbers.size == 1 else None


class CellGraph:
    """The products of a graph, by the names of the variables and constants that they multiply by.

    scopes  every graph, the main one first; nothing where an operation lacks an input
    """

    def __init__(self, scopes: Sequence[Scope]) -> None:
        damaged = any(len(node.inputs) < _LEAST.get(node.kind, 0) for scope in scopes for node in scope.nodes if not node.domain)
        self.scopes: Sequence[Scope] = () if damaged else scopes
        self._products: dict[str, list[CellProduct]] = {}
        for scope in self.scopes:
            reading: dict[str, list[Operation]] = {}
            for node in scope.nodes:
                for value in dict.fromkeys(node.inputs):
                    reading.setdefault(value, []).append(node)
                if node.kind == "MatMul" and not node.domain and (matrix := stored_name(scope, node.inputs[1])):
                    self._products.setdefault(matrix, []).append(CellProduct(scope, node, reading))

    def products(self, variable: str) -> Sequence[CellProduct]:
        """Return the products with a variable."""
        return self._products.get(variable, ())

    def facts(self, kernel: str, projection: str = "") -> GraphFacts:
        """Return the facts on which all uses of a cell's matrix agree.

        kernel      name of the variable of an LSTM's or RNN's matrix, or of a GRU's candidate
        projection  name of the projection's, if there is one
        """
        facts = {single for product in self.products(kernel) if (single := _use(product)) is not None}
        if len(facts) != 1:
            return GraphFacts()
        (single,) = facts
        if not projection or single.clips is None:
            return single
        bounds = {_clip(product, product.value, "projection") for product in self.products(projection)}
        bound = bounds.pop() if len(bounds) == 1 else None
        return GraphFacts(single.forget_bias, single.activation, None if bound is None else (*single.clips, *bound))

    def residual_adds(self, kernel: str) -> list[str]:
        """Return the operations that add something to a cell's output, as ResidualWrapper does, without the cell's own."""
        cells = {_cell_scope(product) for product in self.products(kernel)} - {""}

        def within(name: str) -> bool:
            return any(name.startswith(f"{cell}/") for cell in cells)

        return sorted(
            {
                node.name
                for scope in self.scopes
                for node in scope.nodes
                if node.operator in _SUMS and not within(node.name) and any(within(_maker(scope, value)) for value in node.inputs)
            }
        )

    def in_both_ways(self, variable: str) -> bool:
        """Return whether two loops multiply by a matrix, of which one is the backward direction of a layer."""
        loops = dict.fromkeys(loop for product in self.products(variable) if (loop := loop_around(product.scope)) is not None)
        return sorted(map(is_backward, loops)) == [False, True]

    def uses(self, kernel: str) -> int:
        """Return how often a step of a loop multiplies by a matrix: more than once where a MultiRNNCell has one cell several times."""
        steps = [product.scope for product in self.products(kernel) if product.scope.outer is not None]
        return max(map(steps.count, steps), default=0)

    def loops(self, arrays: Mapping[str, Array]) -> list[WeightedLoop]:
        """Return the loops of a graph that read matrices, which are `arrays` by the names of their operations."""
        weighted = []
        for node in self.scopes[0].nodes if self.scopes else ():
            if node.kind not in ("Loop", *WHILES):
                continue
            matrices: dict[str, tuple[int, ...]] = {}
            read = [value for _, body in node.bodies for value in sorted(body.free)] or node.inputs
            for value in read:
                name = stored_name(self.scopes[0], value)
                array = arrays.get(name)
                if array is not None and array.ndim == 2 and array.size and is_float(array):
                    matrices[name] = tuple(array.shape)
            weighted += [WeightedLoop(_common_scope(list(matrices)), node.name, matrices)] if matrices else []
        return weighted


def is_backward(loop: Operation) -> bool:
    """Return whether a loop is the backward direction of a layer, by the scope that bidirectional_dynamic_rnn gives it."""
    return bool(_BACKWARD.search(loop.name))


def loop_around(scope: Scope) -> Operation | None:
    """Return the loop of which a graph is the step; None for any other graph."""
    around = () if scope.outer is None else scope.outer.nodes
    return next((node for node in around if any(body is scope.body for _, body in node.bodies)), None)


def origin(scope: Scope, value: str) -> tuple[Scope, str]:
    """Return the value that a value is handed on from as it is, and its graph."""
    for _ in range(_FOLLOWED):
        scope, value = scope.resolve(value)
        same = same_numbers(scope, value)
        if same == value:
            break
        value = same
    return scope, value


def stored_name(scope: Scope, value: str) -> str:
    """Return the file's name for the stored numbers that a value is; "" for any other value."""
    scope, value = origin(scope, value)
    stored = scope.stored(value)
    return "" if stored is None else stored.name


def without_training(graph: GraphDef) -> GraphDef:
    """Return a graph without the operations that training adds."""
    nodes = {name: node for name, node in graph.nodes.items() if not _TRAINING.search(name)}
    return graph if len(nodes) == len(graph.nodes) else GraphDef(nodes, graph.functions)


def turned(graph: GraphDef) -> str:
    """Return the name of the first node that reverses a sequence outside bidirectional_dynamic_rnn, or ""."""
    for node in without_training(graph).nodes.values():
        if node.op in _TURNING and not any(map(_BACKWARD.search, (node.name, *node.inputs[:1]))):
            return node.name
    return ""


def state_variables(graph: GraphDef) -> set[str]:
    """Return the variables and constants that block operations read as states, or as peepholes that they do not use."""
    names = set()
    for node in graph.nodes.values():
        states, peepholes = _BLOCKS.get(node.op, ((), ()))
        idle = () if node.number("use_peephole", 0) else peepholes
        for source in (source for place, source in enumerate(node.inputs) if place in (*states, *idle)):
            name = source.partition(":")[0]
            for _ in range(_FOLLOWED):
                before = graph.nodes.get(name)
                if before is None or before.op not in (*PASSING, "Enter", "Merge", "Switch") or not before.inputs:
                    break
                name = before.inputs[0].partition(":")[0]
            names.add(name)
    return names


def _maker(scope: Scope, value: str) -> str:
    """Return the name of the operation that gives a value; "" for one without a name."""
    scope, value = scope.resolve(value)
    producer = scope.producer(value)
    return "" if producer is None else producer[0].name


def _cell_scope(product: CellProduct) -> str:
    """Return the scope of a cell that multiplies: of its bias, if the product has a separate scope within.

    Source: tensorflow 1.0 and 1.1, core_rnn_cell_impl.py, _linear: the product in a scope `lstm_cell`, the bias and all else outside;
    0.6 to 0.12, rnn_cell.py, _linear: the product in `Linear`, the bias added outside by Add.
    """
    within = product.node.name.rpartition("/")[0]
    biased = [node for node in product.sums if any(stored_name(product.scope, value) for value in node.inputs)]
    biases = {node.name.rpartition("/")[0] for node in biased}
    return next((scope for scope in biases if within.startswith(f"{scope}/") and len(biases) == 1), within)


def _use(product: CellProduct) -> GraphFacts | None:
    """Return the facts that one use states; None if no cell makes such a use."""
    if len(product.sums) != 1:
        return None
    total = product.sums[0].outputs[0]
    if not any(node.kind == "Split" for node in product.readers(total)):
        return GraphFacts(activation=_function(product, total), clips=())
    parts = product.parts(4)
    if not parts:
        return None
    state = _state(product, parts[1])
    clips = _clip(product, state, "cell") if state else None
    return GraphFacts(_added(product, parts[2]), _function(product, parts[1]), clips)


def _function(product: CellProduct, value: str) -> Activation | None:
    """Return the one function that reads a value; a product with another one reads it unchanged."""
    reading = product.readers(value)
    if len(reading) == 1 and reading[0].kind == "Identity":  # what tf.identity makes
        reading = product.readers(reading[0].outputs[0])
    kinds = {node.kind for node in reading}
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    if kind == "LeakyRelu":
        return Activation("leaky_relu", round(reading[0].attributes["alpha"], 7))
    if kind == "Mul" and all(product.number(operand) is None for node in reading for operand in node.inputs):
        return LINEAR
    return Activation(FUNCTIONS[kind]) if kind in FUNCTIONS else None


def _added(product: CellProduct, value: str) -> float | None:
    """Return the constant that is added to a part, 0 where it goes straight on."""
    numbers = set()
    for node in product.readers(value):
        others = [product.number(operand) for operand in node.inputs if operand != value]
        if node.kind == "Add" and len(others) == 1 and others[0] is not None:
            numbers.add(others[0])
        elif node.kind == "Sigmoid":
            numbers.add(0.0)
    return numbers.pop() if len(numbers) == 1 else None


def _state(product: CellProduct, candidate: str) -> str:
    """Return the new cell state, before it is clipped: the sum with the product that the candidate enters; "" if unclear."""
    functions = [node for node in product.readers(candidate) if node.kind in (*FUNCTIONS, "LeakyRelu", "Identity")]
    value = functions[0].outputs[0] if functions else candidate
    for kind in ("Mul", "Add"):
        nodes = [node for node in product.readers(value) if node.kind == kind]
        if len(nodes) != 1:
            return ""
        value = nodes[0].outputs[0]
    return value


def _clip(product: CellProduct, value: str, kind: Literal["cell", "projection"]) -> tuple[Clip, ...] | None:
    """Return the bounds that a value is put between, none included; None where they are not constants, or not symmetric."""
    bounds: dict[str, float | None] = {}
    for operation in ("Clip", "Min", "Max"):
        nodes = [node for node in product.readers(value) if node.kind == operation]
        if not nodes:
            continue
        node, several = nodes[0], len(nodes) > 1
        if operation == "Clip":
            stated = dict(zip(("max", "min"), map(product.number, [*node.inputs][:0:-1]), strict=False)) or node.attributes
            bounds = {"Min": stated.get("max"), "Max": stated.get("min")}
        else:
            numbers = [product.number(operand) for operand in node.inputs if operand != value]
            bounds[operation] = numbers[0] if numbers and not several else None
        value = node.outputs[0]
    if not bounds:
        return ()
    high, low = bounds.get("Min"), bounds.get("Max")
    return None if high is None or low is None or low != -high else (Clip(kind, low, high),)


@dataclass(frozen=True)
class WeightedLoop:
    """A loop that reads matrices, as a recurrent layer does.

    name      what its matrices are called, as far as they are called alike
    node      the loop's node, or the name of its frame
    matrices  the shape of each constant or variable
    """

    name: str
    node: str
    matrices: Mapping[str, tuple[int, ...]]

    def __str__(self) -> str:
        word = next((word for word in _NAMED if f"{word}_cell" in self.name), "")
        what = f"{_NAMED[word]} by its name, " if word else ""
        sizes = ", ".join(map(str, sorted(self.matrices.values())))
        return f"{what}the loop {self.node!r}, which reads {len(self.matrices)} matrices ({sizes})"


_NAMED = {"lstm": "an LSTM", "gru": "a GRU", "simple_rnn": "a SimpleRNN"}
"""Words in the names of Keras's cells."""


def _common_scope(names: Sequence[str]) -> str:
    """Return the scope that all names have; the first name where there is none."""
    scopes = [name.split("/")[:-1] for name in names]
    shared = 0
    while all(len(scope) > shared and scope[shared] == scopes[0][shared] for scope in scopes):
        shared += 1
    return "/".join(scopes[0][:shared]) or names[0]
