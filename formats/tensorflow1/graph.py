"""Facts about a cell that TensorFlow 1's graph states and its variables do not: forget_bias, the function, the clips.

From a cell's matrix along the wires: to the product, past the bias, to the pieces that it is split into. Any structure
that tf.nn.rnn_cell does not build is left undecided. Matrices that gradients read are recognized by their transposition.

Sources (1.15.5): tensorflow/python/ops/rnn_cell_impl.py, LSTMCell.call, BasicLSTMCell.call, GRUCell.call;
python/ops/clip_ops.py, clip_by_value; core/ops/rnn_ops.cc, the defaults of LSTMBlockCell and BlockLSTM.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rnnconvert.containers.graph_def import GraphDef, output
from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.cells import Activation, Clip

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
_THROUGH = {"Identity", "Enter", "ReadVariableOp", "Cast"}
_SUMS = {"Add", "AddV2", "BiasAdd"}
_VARIABLES = {"Variable", "VariableV2", "VarHandleOp", "Const"}
_KEEPS_FOR_TRAINING = {"StackPush", "StackPushV2", "TensorListPushBack"}
_TRAINING = re.compile(r"(^|/)gradients(_\d+)?/")
BLOCKS = {"LSTMBlockCell", "BlockLSTM"}
"""Operations that are a whole LSTM."""
_TURNING = {"Reverse", "ReverseV2", "ReverseSequence"}
_BACKWARD = re.compile(r"(^|/)bw/")


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


def cell_facts(graph: GraphDef, kernel: str, projection: str = "") -> GraphFacts:
    """Return the facts on which all uses of a cell's matrix agree.

    kernel      name of the variable of an LSTM's or RNN's matrix, or of a GRU's candidate
    projection  name of the projection's, if there is one
    """
    facts = {single for node in _products(graph, kernel) if (single := _use(graph, node)) is not None}
    if len(facts) != 1:
        return GraphFacts()
    (single,) = facts
    if not projection or single.clips is None:
        return single
    bounds = {_clip(graph, output(node.name), "projection") for node in _products(graph, projection)}
    bound = bounds.pop() if len(bounds) == 1 else None
    return GraphFacts(single.forget_bias, single.activation, None if bound is None else (*single.clips, *bound))


def residual_adds(graph: GraphDef, kernel: str) -> list[str]:
    """Return the nodes that add something to a cell's output, as ResidualWrapper does, without the cell's own."""
    scopes = {_scope(graph, product) for product in _products(graph, kernel)} - {""}

    def above(name: str) -> str:
        parts = name.split("/")
        return next((scope for count in range(1, len(parts)) if (scope := "/".join(parts[:count])) in scopes), "")

    names = set()
    for node in graph.nodes.values():
        if node.op in _SUMS and not _TRAINING.search(node.name) and not above(node.name):
            names |= {node.name for source in node.inputs if above(source)}
    return sorted(names)


def _scope(graph: GraphDef, product: GraphDefNode) -> str:
    """Return the scope of a cell that multiplies: of its bias, if the product has a separate scope within.

    Source: tensorflow 1.0 and 1.1, core_rnn_cell_impl.py, _linear: the product in a scope `lstm_cell`, the bias and all else outside;
    0.6 to 0.12, rnn_cell.py, _linear: the product in `Linear`, the bias added outside by Add.
    """
    within = product.name.rpartition("/")[0]
    biases = {node.name.rpartition("/")[0] for node in readers(graph, output(product.name)) if _adds_a_bias(graph, node)}
    return next((scope for scope in biases if within.startswith(f"{scope}/") and len(biases) == 1), within)


def _adds_a_bias(graph: GraphDef, node: GraphDefNode) -> bool:
    if node.op == "BiasAdd":
        return True
    addends = [graph.nodes[name] for source in node.inputs if (name := source.partition(":")[0]) in graph.nodes]
    origins = [graph.nodes.get(_origin(graph, addend), addend) for addend in addends]
    return node.op in _SUMS and any(origin.op in _VARIABLES for origin in origins)


def uses(graph: GraphDef, kernel: str) -> int:
    """Return how often one step of a loop multiplies by a matrix: more than once where a MultiRNNCell has one cell several times."""
    frames: dict[bytes, set[str]] = {}
    for node in graph.nodes.values():
        if node.op == "Enter" and _origin(graph, node) == kernel:
            products = {product.name for product in _products(graph, node.name) if not _TRAINING.search(product.name)}
            frames.setdefault(bytes(node.attributes.get("frame_name", b"")), set()).update(products)
    return max(map(len, frames.values()), default=0)


def _origin(graph: GraphDef, node: GraphDefNode) -> str:
    """Return the variable that a node passes on."""
    for _ in range(8):
        source = graph.nodes.get(node.inputs[0].partition(":")[0]) if node.inputs else None
        if source is None or node.op not in _THROUGH:
            break
        node = source
    return node.name


def turned(graph: GraphDef) -> str:
    """Return the name of the first node that reverses a sequence outside bidirectional_dynamic_rnn, or ""."""
    for node in graph.nodes.values():
        near = (node.name, *node.inputs[:1])
        if node.op in _TURNING and not _TRAINING.search(node.name) and not any(map(_BACKWARD.search, near)):
            return node.name
    return ""


def step_products(graph: GraphDef, variable: str) -> list[GraphDefNode]:
    """Return the nodes that multiply by a variable at a step, without those that training adds."""
    products = _products(graph, variable, BLOCKS | {"GRUBlockCell"})
    return [node for node in products if not _TRAINING.search(node.name)]


def _products(graph: GraphDef, variable: str, blocks: Collection[str] = BLOCKS) -> Iterator[GraphDefNode]:
    """Yield the nodes that multiply by a variable."""
    queue, seen = [output(variable)], set()
    for source in queue:
        for node in readers(graph, source):
            if node.op in _THROUGH and node.name not in seen:
                seen.add(node.name)
                queue.append(output(node.name))
            elif node.op in blocks or (node.op == "MatMul" and not node.number("transpose_a", 0) and not node.number("transpose_b", 0)):
                yield node


def _use(graph: GraphDef, product: GraphDefNode) -> GraphFacts | None:
    """Return the facts that one use states; None if no cell makes such a use."""
    if product.op in BLOCKS:
        bound = product.number("cell_clip", 3.0)
        bounds = (Clip("cell", -bound, bound),) if bound > 0 else ()
        return GraphFacts(product.number("forget_bias", 1.0), Activation("tanh"), bounds)
    summed = [node for node in readers(graph, output(product.name)) if node.op in _SUMS]
    if len(summed) != 1:
        return None
    split = [node for node in readers(graph, output(summed[0].name)) if node.op in ("Split", "SplitV")]
    if not split:
        return GraphFacts(activation=_function(graph, output(summed[0].name)), clips=())
    if len(split) > 1 or split[0].number("num_split", 0) != 4:
        return None
    name = split[0].name
    state = _state(graph, f"{name}:1")
    clips = _clip(graph, state, "cell") if state else None
    return GraphFacts(_added(graph, f"{name}:2"), _function(graph, f"{name}:1"), clips)


def readers(graph: GraphDef, source: str) -> list[GraphDefNode]:
    """Return the nodes that read an output to compute with it, without those that training adds."""
    return [node for node in graph.readers.get(source, []) if node.op not in _KEEPS_FOR_TRAINING and not _TRAINING.search(node.name)]


def _function(graph: GraphDef, source: str) -> Activation | None:
    """Return the one function that reads an output; a product with another one reads it unchanged."""
    reading = readers(graph, source)
    if len(reading) == 1 and reading[0].op == "Identity":  # what tf.identity makes
        reading = readers(graph, output(reading[0].name))
    ops = {node.op for node in reading}
    if len(ops) != 1:
        return None
    (op,) = ops
    if op == "LeakyRelu":
        return Activation("leaky_relu", round(reading[0].number("alpha", 0.2), 7))
    if op == "Mul" and all(_constant(graph, operand) is None for node in reading for operand in node.inputs):
        return LINEAR
    return Activation(FUNCTIONS[op]) if op in FUNCTIONS else None


def _added(graph: GraphDef, source: str) -> float | None:
    """Return the constant that is added to a piece, 0 where it goes straight on."""
    constants_added = set()
    for node in readers(graph, source):
        constants = [_constant(graph, operand) for operand in node.inputs if output(operand) != source]
        if node.op in ("Add", "AddV2") and len(constants) == 1 and constants[0] is not None:
            constants_added.add(constants[0])
        elif node.op == "Sigmoid":
            constants_added.add(0.0)
    return constants_added.pop() if len(constants_added) == 1 else None


def _constant(graph: GraphDef, source: str) -> float | None:
    """Return the number of a constant of one element."""
    name = source.partition(":")[0]
    for _ in range(8):
        node = graph.nodes.get(name)
        if node is None or node.op not in (*_THROUGH, "Const") or (node.op != "Const" and not node.inputs):
            return None
        if node.op == "Const":
            values = node.tensor
            return float(np.asarray(values).reshape(-1)[0]) if values is not None and values.size == 1 else None
        name = node.inputs[0].partition(":")[0]
    return None


def _state(graph: GraphDef, candidate: str) -> str:
    """Return the new cell state, before it is clipped: the sum with the product that the candidate enters; "" if unclear."""
    functions = [node for node in readers(graph, candidate) if node.op in (*FUNCTIONS, "LeakyRelu", "Identity")]
    source = output(functions[0].name) if functions else candidate
    for ops in ({"Mul"}, {"Add", "AddV2"}):
        nodes = [node for node in readers(graph, source) if node.op in ops]
        if len(nodes) != 1:
            return ""
        source = output(nodes[0].name)
    return source


def _clip(graph: GraphDef, source: str, kind: Literal["cell", "projection"]) -> tuple[Clip, ...] | None:
    """Return the bounds that an output is put between, none included; None where they are not constants, or not symmetric."""
    bounds: list[float | None] = []
    for op in ("Minimum", "Maximum"):
        nodes = [node for node in readers(graph, source) if node.op == op]
        if nodes:
            values = [_constant(graph, operand) for operand in nodes[0].inputs if output(operand) != source]
            bounds.append(values[0] if values and len(nodes) == 1 else None)
            source = output(nodes[0].name)
    if not bounds:
        return ()
    high, low = bounds if len(bounds) == 2 else (None, None)
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


def loops(graph: GraphDef, arrays: Mapping[str, Array]) -> list[WeightedLoop]:
    """Return the loops of a graph that read matrices, which are `arrays` by the names of their nodes."""
    matrices_of: dict[str, dict[str, tuple[int, ...]]] = {}
    for node in graph.nodes.values():
        if node.op not in ("Enter", "While", "StatelessWhile") or _TRAINING.search(node.name):
            continue
        where = node.name if node.op != "Enter" else node.text("frame_name") or node.name
        for source in node.inputs:
            before = graph.nodes.get(source.partition(":")[0])
            origin = _origin(graph, before) if before is not None else ""
            array = arrays.get(origin)
            if array is not None and array.ndim == 2 and array.size and is_float(array):
                matrices_of.setdefault(where, {})[origin] = tuple(array.shape)
    return [WeightedLoop(_common_scope(list(matrices)), where, matrices) for where, matrices in matrices_of.items()]


def _common_scope(names: Sequence[str]) -> str:
    """Return the scope that all names have; the first name where there is none."""
    scopes = [name.split("/")[:-1] for name in names]
    shared = 0
    while all(len(scope) > shared and scope[shared] == scopes[0][shared] for scope in scopes):
        shared += 1
    return "/".join(scopes[0][:shared]) or names[0]
