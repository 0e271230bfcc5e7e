"""The operation Scan, which runs a separate graph at every step of a sequence; LSTMs of convolutions use it.

Source: onnx/docs/Operators.md, Scan: a state is handed from step to step, a sequence is read and written along its first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rnnconvert.core.cells import Activation
from rnnconvert.graphs.program.operations import Body, Declared
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node, Value
from rnnconvert.scaffolding.graph.layers import PLAIN
from rnnconvert.scaffolding.graph.space import at_ends, window_of
from rnnconvert.scaffolding.graph.writer import GraphWriter
from rnnconvert.scaffolding.windows import same


@dataclass(frozen=True)
class ScanValues:
    """Values of one step of a Scan, by name: the states, and one step of each sequence."""

    states: Sequence[Value]
    sequences: Sequence[Value] = ()

    def __iter__(self) -> Iterator[Value]:
        """Yield the states, then the steps."""
        return iter((*self.states, *self.sequences))


def scan(
    g: GraphWriter,
    label: str,
    states: Sequence[str],
    sequences: Sequence[str],
    reads: ScanValues,
    step: Callable[[], ScanValues],
    words: str = "",
) -> list[str]:
    """Add a Scan; return its last states, and the sequences (time, ...) of what its steps give.

    states     what it begins with, by name
    sequences  what it reads step by step, (time, ...)
    reads      what stands for these in a step; they get names here
    step       adds the operations of a step, and returns its new states and what it gives
    words      says what it computes, for a user
    """
    inputs = [g.name(f"{label}/{value.name}") for value in reads]
    for value, name in zip(reads, inputs, strict=True):
        g.give(value, name)
    with g.body() as nodes:
        after = step()
        outputs = [g.add("Identity", [g(value)], f"{label}/next") for value in after]
        declared = [
            Declared(name, np.dtype(value.dtype), value.shape if value.sized else None)
            for name, value in zip([*inputs, *outputs], [*reads, *after], strict=True)
        ]
        body = Body(nodes, inputs, outputs, declared=declared)
    results = [g.name(f"{label}/{word}") for word in ("last",) * len(states) + ("every",) * len(after.sequences)]
    name = g.name(label)
    g.recurs(name, words or f"{name} (Scan)")
    g.node("Scan", [*states, *sequences], results, name, body=body, num_scan_inputs=len(sequences))
    return results


def flipped(g: GraphWriter, x: str, axes: Sequence[int], wanted: str) -> str:
    """Add a tensor that runs the other way along some axes."""
    ends = [np.iinfo(np.int64).min + 1] * len(axes)
    bounds = [g.integers(*[-1] * len(axes)), g.integers(*ends), g.integers(*axes), g.integers(*[-1] * len(axes))]
    return g.add("Slice", [x, *bounds], wanted)


# LSTMs of convolutions


def conv_lstm(g: GraphWriter, node: Node[kinds.ConvLSTM]) -> None:
    """Add an LSTM whose products are convolutions: that with its inputs for all steps at once, that with its states step by step."""
    if node.kind.stateful:
        reason = "its states last from one call to the next, and the graph keeps none"
        raise g.refused(node, "stateful = True", reason, "Build it without.")
    label, parts, rank = g.label(node), g.parts(node, "conv_lstm"), node.kind.rank
    filters, space, size = node.kind.filters, [*range(2, 2 + rank)], list(node.kind.size)
    places = [length for length in node.x.shape[2:-1] if length is not None]  # all of them, as the source sees to
    x = flipped(g, g(node.x), [1], f"{label}/turned") if node.kind.backwards else g(node.x)
    steps = g.transposed(x, [1, 0, rank + 2, *space], f"{label}/in")
    flat = g.add("Reshape", [steps, g.integers(-1, node.kind.channels, *places)], f"{label}/steps")
    arrays = [g.constant(f"{label}/{part}", parts[part]) for part in ("weight", "bias") if part in parts]
    product = g.add("Conv", [flat, *arrays], f"{label}/product", **window_of(node.kind))
    lengths = [g.add("Shape", [steps], f"{label}/lengths", start=0, end=2), g.integers(4 * filters, *size)]
    products = g.add("Reshape", [product, g.add("Concat", lengths, f"{label}/shape", axis=0)], f"{label}/products")
    shape = (node.x.shape[0], filters, *size)
    h, c, x_t = Value("h", shape), Value("c", shape), Value("x", (shape[0], 4 * filters, *size))
    recurrent = g.constant(f"{label}/recurrent", parts["recurrent"])
    kernel = {"kernel_shape": list(node.kind.kernel), "pads": at_ends([same(n) for n in node.kind.kernel])}
    cell = node.kind.cell

    def step() -> ScanValues:
        sums = g.add("Add", [g(x_t), g.add("Conv", [g(h), recurrent], f"{label}/recurrent", **kernel)], f"{label}/sums")
        names = [g.name(f"{label}/{gate}") for gate in "ifgo"]
        g.node("Split", [sums, g.integers(*[filters] * 4)], names, g.name(f"{label}/gates"), axis=1)
        functions = (cell.gate_activation, cell.gate_activation, cell.activation, cell.gate_activation)
        i, f, new, o = (activated(g, node, function, name) for function, name in zip(functions, names, strict=True))
        remembered, added = g.add("Mul", [f, g(c)], f"{label}/remembered"), g.add("Mul", [i, new], f"{label}/added")
        after = Value("c", shape), Value("h", shape)
        g.give(after[0], g.add("Add", [remembered, added], f"{label}/c"))
        g.give(after[1], g.add("Mul", [o, activated(g, node, cell.output_activation, g(after[0]))], f"{label}/h"))
        return ScanValues((after[1], after[0]), (after[1],))

    states = [g.transposed(g(state), [0, rank + 1, *range(1, rank + 1)], f"{label}/initial") for state in node.named.get("states", ())]
    if not states:
        batch = g.add("Shape", [x], f"{label}/batch", start=0, end=1)
        zeros = g.add("Concat", [batch, g.integers(filters, *size)], f"{label}/state shape", axis=0)
        states = [g.add("Expand", [g.zero(), zeros], f"{label}/zeros")] * 2
    *finals, every = scan(g, label, states, [products], ScanValues((h, c), (x_t,)), step)
    ended = [0, *range(2, 2 + rank), 1]
    out = g.transposed(every, [1, 0, *range(3, 3 + rank), 2], f"{label}/out") if node.kind.sequences else ""
    lasts = [g.transposed(final, ended, f"{label}/final") for final in finals]
    for value, name in zip(node.outputs, [out or lasts[0], *lasts], strict=False):
        g.give(value, name)


_FUNCTIONS: Mapping[str, str] = {**PLAIN, "gelu": "Gelu"}
_OF_NUMBERS: Mapping[str, tuple[str, ...]] = {"leaky_relu": ("alpha",), "elu": ("alpha",), "hard_sigmoid": ("alpha", "beta")}


def activated(g: GraphWriter, node: Node[kinds.Kind], function: Activation, x: str) -> str:
    """Add a function of gates. Raises RefusedError for one without an operation."""
    name, wanted = function.name, f"{g.label(node)}/{function.name}"
    if name == "linear":
        return x
    if name in _FUNCTIONS:
        return g.add(_FUNCTIONS[name], [x], wanted)
    if name in _OF_NUMBERS:
        operator = {"leaky_relu": "LeakyRelu", "elu": "Elu", "hard_sigmoid": "HardSigmoid"}[name]
        return g.add(operator, [x], wanted, **{key: float(getattr(function, key)) for key in _OF_NUMBERS[name]})
    if name == "silu":
        return g.add("Mul", [x, g.add("Sigmoid", [x], f"{wanted}/sigmoid")], wanted)
    raise g.refused(node, f"the activation {function}", g.unknown)
