"""Parts of graphs that may be recurrent layers in other operations: loops whose state goes through a cell, and written-out steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope

LAYERS = ("LSTM", "GRU", "RNN")
"""Operations that are layers, and parts of the names of others that are."""
_PRODUCTS = {"MatMul", "Gemm", "Conv", "MatMulInteger", "QLinearMatMul", "FusedMatMul", "FusedGemm", "FusedConv", "Einsum"}

_GATES = {"Sigmoid", "HardSigmoid"}

_FUNCTIONS = {*_GATES, "Tanh", "Relu", "Softsign", "Elu", "LeakyRelu", "Clip", "Max", "Min", "Affine", "ScaledTanh"}


def carried(node: Operation) -> bool | None:
    """Return whether a loop's state goes through convolutions; None where it goes through no product and function of a cell."""
    body = next((inner for name, inner in node.bodies if name == "body"), None)
    if body is None or any(inner.kind in LAYERS for inner in body.nodes):
        return None
    if node.kind == "Loop":
        states = body.inputs[2:]
        ends = body.outputs[1 : 1 + len(states)]
    else:
        states = body.inputs[: max(0, len(body.inputs) - node.attributes.get("num_scan_inputs", 1))]
        ends = body.outputs[: len(states)]
    operators = {body.nodes[place].kind for place in _after(body.nodes, states) & _before(body.nodes, ends)}
    if not operators & _PRODUCTS or not operators & _FUNCTIONS:
        return None
    return any("Conv" in operator for operator in operators)


def _after(nodes: Iterable[Operation], names: Iterable[str]) -> set[int]:
    """Return the places of nodes that depend on values; the nodes are in an order in which they can run."""
    reached, places = set(names), set()
    for place, node in enumerate(nodes):
        if reached & set(node.inputs):
            places.add(place)
            reached.update(node.outputs)
    return places


def _before(nodes: Sequence[Operation], names: Iterable[str]) -> set[int]:
    """Return the places of nodes that values depend on."""
    reached, places = set(names), set()
    for place, node in reversed(list(enumerate(nodes))):
        if reached & set(node.outputs):
            places.add(place)
            reached.update(node.inputs)
    return places


def unrolled(scope: Scope, nodes: Iterable[Operation]) -> tuple[str, int] | None:
    """Return a matrix that multiplies values which depend, through a function, on its previous product."""
    depends: dict[str, frozenset[tuple[object, bool]]] = {}
    times: dict[object, int] = {}
    names: dict[object, str] = {}
    for node in nodes:
        reached = frozenset[tuple[object, bool]]().union(*(depends.get(name, frozenset()) for name in node.inputs))
        if node.kind in _FUNCTIONS:
            reached = frozenset((weight, True) for weight, _ in reached)
        if node.kind in _PRODUCTS and len(node.inputs) > 1:
            matrix = scope.constant(node.inputs[1])
            # one matrix may have another name at each step
            weight: object = node.inputs[1] if matrix is None else (matrix.__array_interface__["data"][0], matrix.shape, matrix.strides)
            names.setdefault(weight, node.inputs[1])
            if (weight, True) in reached:
                times[weight] = times.get(weight, 1) + 1
            if matrix is not None:
                reached |= {(weight, False)}
        for name in node.outputs:
            if len(reached) <= 64 and name:
                depends[name] = reached
    if not times:
        return None
    most = max(times, key=lambda weight: times[weight])
    return names[most], times[most]


_PASSING = ("Split", "Slice", "Squeeze", "Add", "Sum", "Reshape", "Identity", "Unsqueeze", "Transpose", "Clip", "Gather")


def gates(scope: Scope, nodes: Iterable[Operation]) -> str:
    """Return the gates among one product's parts that meet in products with a candidate of the same: "3 gates ..." or ""."""
    origin: dict[str, frozenset[str]] = {}
    functions: dict[str, tuple[str, frozenset[str]]] = {}
    partners: dict[str, set[str]] = {}
    for node in (node for node in nodes if node.outputs):
        sources = frozenset[str]().union(*(origin.get(name, frozenset()) for name in node.inputs))
        if node.kind in _PRODUCTS and any(scope.constant(name) is not None for name in node.inputs[1:2]):
            sources = frozenset({node.outputs[0]})
        elif node.kind in _FUNCTIONS and sources:
            functions[node.outputs[0]] = node.kind, sources
            sources = frozenset()
        elif node.kind not in _PASSING:
            if node.kind == "Mul":
                operands = [functions[name] for name in node.inputs if name in functions]
                for operator, products in operands:
                    for product in sorted(products):  # sets of text have another order in each run
                        partners.setdefault(product, set()).update(
                            name for name in node.inputs if name in functions and product in functions[name][1]
                        )
                        if operator in _GATES:
                            partners[product].add("a product with a gate")
            sources = frozenset()
        for name in node.outputs:
            if sources and len(sources) <= 16 and name:
                origin[name] = sources
    for product in partners:
        gates = [name for name, (operator, products) in functions.items() if operator in _GATES and product in products]
        others = [name for name, (operator, products) in functions.items() if operator not in _GATES and product in products]
        if len(gates) >= 2 and others and "a product with a gate" in partners[product]:
            return f"{len(gates)} gates and a candidate of the product {product!r}"
    return ""


def looks_recurrent(scope: Scope) -> bool:
    """Return whether a graph may compute a recurrent layer in other operators than RNN, GRU and LSTM."""
    loops = (carried(node) for node in scope.nodes if node.kind in ("Loop", "Scan"))
    return any(convolves is False for convolves in loops) or bool(unrolled(scope, scope.nodes) or gates(scope, scope.nodes))
