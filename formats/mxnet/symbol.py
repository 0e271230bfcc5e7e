"""The graph next to MXNet's parameters: the settings of its RNN operators, by the names of the arrays that they read.

Source: what mx.sym.Symbol.tojson writes; "attr" and "param" stood for "attrs" before 1.0 (nnvm/src/pass/saveload_json.cc).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rnnconvert.containers import json_text
from rnnconvert.containers.companions import companion
from rnnconvert.containers.files import map_file
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.limits import DESCRIPTION_BYTES
from rnnconvert.core.malformed import malformed
from rnnconvert.files.flat import Description

_THROUGH = {"_rnn_param_concat", "_npi_rnn_param_concat", "Reshape", "reshape", "Concat", "concat", "Flatten", "_copy"}
"""Operators that a layer's arrays pass through on their way into one flat vector."""


Key: TypeAlias = "tuple[int, int]"
"""A value: its node, and which of the node's outputs."""
MOST_OUTPUTS = 1 << 12


@dataclass(frozen=True)
class SymbolNode:
    """A node of a graph: a variable, whose operator is "null", or an operator."""

    index: int
    operator: str
    name: str
    inputs: tuple[Key, ...]
    attributes: Mapping[str, str]


@dataclass(frozen=True)
class SymbolGraph:
    """A graph: its nodes, each behind those that it reads, the values that it gives, and how many outputs each node has as far as
    something reads them.
    """

    nodes: tuple[SymbolNode, ...]
    heads: tuple[Key, ...]
    outputs: tuple[int, ...]


def graph_of(path: Path) -> SymbolGraph:
    """Return the graph of a file. Raises UnreadableError for a file that is not one, ValueError for nodes in no order."""
    with _tree(path) as tree:
        rows = [
            SymbolNode(index, str(node["op"]), str(node["name"]), tuple((edge[0], edge[1]) for edge in node["inputs"]), attributes(node))
            for index, node in enumerate(tree["nodes"])
        ]
        heads = tuple((head[0], head[1]) for head in tree.get("heads", ()))
    counts = [1] * len(rows)
    for row in rows:
        for index, number in row.inputs:
            if not (0 <= index < row.index and 0 <= number < MOST_OUTPUTS):
                raise ValueError(f"the node {row.name!r} reads what stands behind it")
    read = [key for row in rows for key in row.inputs]
    for index, number in [*read, *heads]:
        counts[index] = max(counts[index], number + 1)
    unread = {row.index for row in rows if row.operator != "null"} - {index for index, _ in read}
    return SymbolGraph(tuple(rows), heads or tuple((index, 0) for index in sorted(unread)), tuple(counts))


def symbol_of(path: Path) -> Path | None:
    """Return the graph of a file of parameters, if it exists: model-symbol.json for model-0012.params or model.params."""
    stem = re.sub(r"-\d{4,}$", "", path.name.removesuffix(path.suffix))
    companion_file = companion(path, f"{stem}-symbol.json")
    return companion_file if companion_file.is_file() else None


@contextlib.contextmanager
def opened(path: Path) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the nodes of a graph. Raises UnreadableError for a file that is not one, and where what looks at it fails."""
    with _tree(path) as tree:
        yield tree["nodes"]


@contextlib.contextmanager
def _tree(path: Path) -> Iterator[Mapping[str, Any]]:
    data = map_file(path)
    if data.size > DESCRIPTION_BYTES:
        raise UnreadableError(path, f"the graph has {data.size} bytes, more than the limit of {DESCRIPTION_BYTES}")
    with malformed(lambda what: UnreadableError(path, f"it is not a graph of MXNet's: {what}")):
        yield json_text.loads(bytes(data), path)


def read(path: Path) -> dict[str, Description]:
    """Return the settings of each RNN operator, by the names of its parameters.

    Raises UnreadableError for a file that is not a graph.
    """
    with opened(path) as nodes:
        return {name: description for node in nodes for name, description in operator(node, nodes).items()}


_SHAPES = {
    "Dropout", "SliceChannel", "split", "Reshape", "reshape", "expand_dims", "squeeze", "Concat", "concat", "stack",
    "SwapAxis", "swapaxes", "transpose", "Flatten", "_copy", "identity", "Cast", "cast",
}  # fmt: skip
"""Operators behind which `modified` looks for the cell that a value comes from."""


_FUNCTIONS = {"tanh": "tanh", "relu": "relu", "sigmoid": "sigmoid", "softsign": "softsign", "softrelu": "softplus"}
"""MXNet's functions, as operators and as the act_type of Activation, by our names for them."""
STEP = {
    "FullyConnected", "Activation", *_FUNCTIONS, "SliceChannel", "split", "elemwise_add", "_plus", "_Plus", "elemwise_mul", "_mul",
    "_Mul", "elemwise_sub", "_minus", "_Minus", "_rminus_scalar", "_RMinusScalar", "ones_like", "zeros_like", "_zeros", "_ones",
    "_copy", "identity", "null", "broadcast_add", "broadcast_mul",
}  # fmt: skip
"""Operators that one step of a cell is made of. Source: gluon/rnn/rnn_cell.py and rnn/rnn_cell.py (1.9.1), hybrid_forward."""
_CANDIDATES = ("c", "h_act", "out")
_GATES = ("i", "f", "o", "r_act", "z_act")
"""What the nodes of a step's functions are called: the candidate's, those of the gates."""


def steps(path: Path) -> dict[str, dict[str, str]]:
    """Return the statements of each cell's unrolled steps, by the beginning of the names of its parameters.

    activation, recurrent_activation, output_activation: the functions, if all steps agree; "operator NAME" for a node that
    no cell's step has.

    Raises UnreadableError for a file that is not a graph.
    """
    with opened(path) as nodes:
        result: dict[str, dict[str, str]] = {}
        for node in nodes:
            match = re.fullmatch(r"(?P<cell>.*_)t\d+_(?P<part>\w+)", str(node["name"]), re.S)
            if match is not None:
                _step(result.setdefault(match["cell"], {}), node, match["part"].lstrip("_"), nodes)
        return result


def modified(path: Path) -> dict[str, str]:
    """Return the operator that computes with the output of each unrolled cell and with its input, as ResidualCell (a sum with its
    input) and ZoneoutCell (a choice between it and the step before) do; by the beginning of the names of its parameters.

    Raises UnreadableError for a file that is not a graph.
    """
    with opened(path) as nodes:
        modifiers: dict[str, str] = {}
        reads: dict[str, int] = {}
        for node in nodes:
            product = re.fullmatch(r"(.*_)t\d+_i2h", str(node["name"]), re.S)
            if product and node["inputs"]:
                reads.setdefault(product[1], _root(node["inputs"][0][0], nodes))  # at the first step
        for node in nodes:
            roots = [_root(edge[0], nodes) for edge in node["inputs"]] if node["op"] in _AROUND else []
            for root in roots:
                match = re.fullmatch(r"(.*_)t\d+_out", str(nodes[root]["name"]), re.S)
                if match is None or re.match(rf"{re.escape(match[1])}t\d+_", str(node["name"])):
                    continue
                if node["op"] == "where" or reads.get(match[1]) in roots:
                    modifiers.setdefault(match[1], f"{node['op']} {node['name']!r}")
        return modifiers


def _root(index: int, nodes: list[Mapping[str, Any]]) -> int:
    """Return the node that a value comes from, through operators that change none."""
    for _ in range(len(nodes)):
        if nodes[index]["op"] not in _SHAPES or not nodes[index]["inputs"]:
            break
        index = nodes[index]["inputs"][0][0]
    return index


_AROUND = {"where", "elemwise_add", "_plus", "_Plus", "broadcast_add"}
"""Operators by which a modifier cell changes what its cell gives."""


def _step(stated: dict[str, str], node: Mapping[str, Any], part: str, nodes: list[Mapping[str, Any]]) -> None:
    """Add what one node of a step states."""
    plain = attributes(node)
    function = _function(node)
    role = ""
    if function and part in _CANDIDATES:
        role = "activation"
    elif function and part in _GATES:
        role = "recurrent_activation"
    elif function:
        role = "output_activation"
    elif part == "out":  # an LSTM's: a gate times a function of its state
        inner = [_function(nodes[edge[0]]) for edge in node["inputs"] if not _named_gate(nodes[edge[0]])]
        role, function = ("output_activation", inner[0]) if len(inner) == 1 and inner[0] else ("", "")
    if role:
        stated_function = stated.setdefault(role, function)
        if stated_function != function:
            stated[f"operator {node['name']}"] = function
    if node["op"] not in STEP:
        stated[f"operator {node['name']}"] = str(node["op"])
    if node["op"] == "FullyConnected" and plain.get("no_bias", "False") not in ("False", "0"):
        stated[f"no_bias of {node['name']}"] = plain["no_bias"]


def _named_gate(node: Mapping[str, Any]) -> bool:
    return re.fullmatch(r".*_t\d+_[ifo]", str(node["name"]), re.S) is not None


def _function(node: Mapping[str, Any]) -> str:
    """Return the function that a node computes, by our name for it; "" for any other node."""
    name = attributes(node).get("act_type", "") if node["op"] == "Activation" else str(node["op"])
    return _FUNCTIONS.get(name, name if node["op"] == "Activation" else "")


def attributes(node: Mapping[str, Any]) -> dict[str, str]:
    """Return the attributes of a node, which other versions call attr or param; one that has both states an operator's in param."""
    texts: dict[str, Any] = {**(node.get("attr") or {}), **(node.get("param") or {}), **(node.get("attrs") or {})}
    return {str(key): str(value) for key, value in texts.items()}


def operator(node: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> dict[str, Description]:
    """Return the settings of an RNN operator, by the names of its parameters; nothing for another one."""
    if node["op"] not in ("RNN", "_npx_rnn"):
        return {}
    plain = attributes(node)
    descriptions: dict[str, Description] = {}
    waiting, seen = [node["inputs"][1][0]], set()
    while waiting:
        index = waiting.pop()
        if index in seen or not 0 <= index < len(nodes):
            continue
        seen.add(index)
        above = nodes[index]
        if above["op"] == "null":
            descriptions[str(above["name"])] = plain
        elif above["op"] in _THROUGH:
            waiting += [edge[0] for edge in above["inputs"]]
    return descriptions
