"""Recurrent layers of an ONNX model that are not an RNN, GRU or LSTM node: what each is, where, and the way out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from rnnconvert.core.remedies import Flag
from rnnconvert.formats.onnx.fuse.graph import bodies
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.recognition.computed import Looked, label_of

_PRODUCTS = {
    "MatMul",
    "Gemm",
    "Conv",
    "MatMulInteger",
    "QLinearMatMul",
    "FusedMatMul",
    "FusedGemm",
    "FusedConv",
    "Einsum",
}
_GATES = {"Sigmoid", "HardSigmoid"}
_FUNCTIONS = {*_GATES, "Tanh", "Relu", "Softsign", "Elu", "LeakyRelu", "Clip", "Affine", "ScaledTanh"}
_WORDS = ("LSTM", "GRU", "RNN")
_BEFORE_QUANTISED = "Read the model as it was before it was quantized."


def _from_source() -> str:
    return (
        "Read the file of the framework that the model was exported from, or hand its weights as .npz or .safetensors with "
        f"{Flag('layout')}."
    )


def looks_recurrent(scope: Scope) -> bool:
    """Return whether a graph may compute a recurrent layer in other operators than RNN, GRU and LSTM."""
    carried = (_carried(node) for node in scope.nodes if node.op_type in ("Loop", "Scan"))
    return any(one is False for one in carried) or bool(_written_out(scope, Looked()))


def unread(scopes: Sequence[Scope], read: Iterable[onnx.NodeProto], looked: Looked) -> list[str]:
    """Return a sentence for each recurrent computation of a model apart from the layers that were read.

    read    the nodes of ONNX's own operators RNN, GRU and LSTM, which have a reader
    looked  what was found of layers in other operators of the main graph
    """
    own = looked.nodes
    known = {id(node) for node in read} | own
    inside = {id(graph) for scope in scopes for graph in bodies(node for node in scope.nodes if id(node) in own)}
    found: list[str] = []
    for scope in scopes:
        if id(scope.graph) in inside:
            continue
        for node in scope.nodes:
            if id(node) in known or scope.calls(node):
                continue
            where = f"the node {node.name or next(iter(node.output), '')!r} of {scope.path}"
            if any(word in node.op_type for word in _WORDS):
                domain = f" of the domain {node.domain!r}" if node.domain else ""
                way = _BEFORE_QUANTISED if "Quant" in node.op_type or "Q" in node.op_type[:1] else _from_source()
                found.append(f"{where} is a {node.op_type}{domain}, which cannot be read. {way}")
            elif node.op_type in ("Loop", "Scan"):
                convolves = _carried(node)
                if convolves is not None:
                    what = "a ConvLSTM or another convolutional recurrent cell" if convolves else "a recurrent cell"
                    why = looked.reasons.get(label_of(node), "") if scope is looked.scope else ""
                    found.append(
                        f"{where} is a {node.op_type} that computes {what} step by step, which cannot be read"
                        f"{': ' + why if why else ''}. {_from_source()}"
                    )
        found += _written_out(scope, looked)
    return found


def _carried(node: onnx.NodeProto) -> bool | None:
    """Return whether a loop's state goes through convolutions; None where it goes through no product and function of a
    cell.
    """
    body = next((attribute.g for attribute in node.attribute if attribute.name == "body"), None)
    if body is None or any(inner.op_type in _WORDS for inner in body.node):
        return None
    if node.op_type == "Loop":
        states = [value.name for value in body.input[2:]]
        ends = [value.name for value in body.output[1 : 1 + len(states)]]
    else:
        scanned = next((attribute.i for attribute in node.attribute if attribute.name == "num_scan_inputs"), 1)
        states = [value.name for value in body.input[: max(0, len(body.input) - scanned)]]
        ends = [value.name for value in body.output[: len(states)]]
    nodes = list(body.node)
    operators = {nodes[place].op_type for place in _after(nodes, states) & _before(nodes, ends)}
    if not operators & _PRODUCTS or not operators & _FUNCTIONS:
        return None
    return any("Conv" in operator for operator in operators)


def _after(nodes: Iterable[onnx.NodeProto], names: Iterable[str]) -> set[int]:
    """Return the places of nodes that depend on values; the nodes are in an order in which they can run."""
    known, found = set(names), set()
    for place, node in enumerate(nodes):
        if known & set(node.input):
            found.add(place)
            known.update(node.output)
    return found


def _before(nodes: Sequence[onnx.NodeProto], names: Iterable[str]) -> set[int]:
    """Return the places of nodes that values depend on."""
    known, found = set(names), set()
    for place, node in reversed(list(enumerate(nodes))):
        if known & set(node.output):
            found.add(place)
            known.update(node.input)
    return found


def _written_out(scope: Scope, looked: Looked) -> list[str]:
    """Return cells that products and functions compute: unrolled ones, and single steps of an LSTM or a GRU."""
    found = []
    own = looked.nodes
    nodes = [node for node in scope.nodes if id(node) not in own]
    unrolled = _unrolled(scope, nodes)
    why = ""
    if scope is looked.scope:
        loops = {label_of(node) for node in scope.nodes if node.op_type in ("Loop", "Scan")}
        why = next((f": {reason}" for label, reason in looked.reasons.items() if label not in loops), "")
    if unrolled:
        weight, times = unrolled
        found.append(
            f"{scope.path} multiplies by {weight!r} {times} times, each time a function of the previous product: a "
            f"recurrent layer that is written out step by step, which cannot be read{why}. {_from_source()}"
        )
    else:
        split = _gates(scope, nodes)
        if split:
            found.append(
                f"{scope.path} computes {split} like the cell of an LSTM or a GRU, from products and functions of its own, "
                f"which cannot be read{why}. {_from_source()}"
            )
    return found


def _unrolled(scope: Scope, nodes: Iterable[onnx.NodeProto]) -> tuple[str, int] | None:
    """Return a matrix that multiplies values which depend, through a function, on its previous product."""
    depends: dict[str, frozenset[tuple[object, bool]]] = {}
    times: dict[object, int] = {}
    names: dict[object, str] = {}
    for node in nodes:
        given = frozenset[tuple[object, bool]]().union(*(depends.get(name, frozenset()) for name in node.input))
        if node.op_type in _FUNCTIONS:
            given = frozenset((weight, True) for weight, _ in given)
        if node.op_type in _PRODUCTS and len(node.input) > 1:
            matrix = scope.constant(node.input[1])
            # one matrix may have another name at each step
            weight: object = (
                node.input[1]
                if matrix is None
                else (matrix.__array_interface__["data"][0], matrix.shape, matrix.strides)
            )
            names.setdefault(weight, node.input[1])
            if (weight, True) in given:
                times[weight] = times.get(weight, 1) + 1
            if matrix is not None:
                given |= {(weight, False)}
        for name in node.output:
            if len(given) <= 64 and name:
                depends[name] = given
    if not times:
        return None
    most = max(times, key=lambda weight: times[weight])
    return names[most], times[most]


_PASSING = {
    "Split",
    "Slice",
    "Squeeze",
    "Add",
    "Sum",
    "Reshape",
    "Identity",
    "Unsqueeze",
    "Transpose",
    "Clip",
    "Gather",
}


def _gates(scope: Scope, nodes: Iterable[onnx.NodeProto]) -> str:
    """Return the gates among one product's parts that meet in products with a candidate of the same: "3 gates ..." or
    "".
    """
    origin: dict[str, frozenset[str]] = {}
    functions: dict[str, tuple[str, frozenset[str]]] = {}
    met: dict[str, set[str]] = {}
    for node in nodes:
        given = frozenset[str]().union(*(origin.get(name, frozenset()) for name in node.input))
        if node.op_type in _PRODUCTS and any(scope.constant(name) is not None for name in node.input[1:2]):
            given = frozenset({node.output[0]})
        elif node.op_type in _FUNCTIONS and given:
            functions[node.output[0]] = node.op_type, given
            given = frozenset()
        elif node.op_type not in _PASSING:
            if node.op_type == "Mul":
                own = [functions[name] for name in node.input if name in functions]
                for operator, products in own:
                    for product in sorted(products):  # sets of text have another order in each run
                        met.setdefault(product, set()).update(
                            name for name in node.input if name in functions and product in functions[name][1]
                        )
                        if operator in _GATES:
                            met[product].add("a product with a gate")
            given = frozenset()
        for name in node.output:
            if given and len(given) <= 16 and name:
                origin[name] = given
    for product in met:
        gates = [name for name, (operator, products) in functions.items() if operator in _GATES and product in products]
        others = [
            name for name, (operator, products) in functions.items() if operator not in _GATES and product in products
        ]
        if len(gates) >= 2 and others and "a product with a gate" in met[product]:
            return f"{len(gates)} gates and a candidate of the product {product!r}"
    return ""
