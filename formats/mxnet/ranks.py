"""How many axes the values of a symbol have: its file states none, and its operators say how many they read and give.

Source: MXNet 1.9.1, src/operator: the shape inference of each operator, by its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rnnconvert.formats.mxnet.symbol import Key, SymbolGraph, SymbolNode

RECURRENT = ("RNN", "_npx_rnn")
SPLITS = ("SliceChannel", "split", "_split_v2")
_FIXED: Mapping[str, Callable[[SymbolNode], tuple[int | None, int | None]]] = {
    **dict.fromkeys(RECURRENT, lambda node: (3, 3)),
    **dict.fromkeys(("Convolution", "Deconvolution"), lambda node: (_kernel(node), _kernel(node))),
    "FullyConnected": lambda node: (None, 2) if _is(node, "flatten", "True") else (None, None),
    **dict.fromkeys(("Flatten", "flatten"), lambda node: (None, 2)),
    "Pooling": lambda node: (_kernel(node), _kernel(node)),
    "batch_dot": lambda node: (3, 3),
    "broadcast_to": lambda node: (_count(node, "shape"), _count(node, "shape")),
    **dict.fromkeys(("_zeros", "_ones", "_full"), lambda node: (None, _count(node, "shape"))),
    "transpose": lambda node: (_count(node, "axes"), _count(node, "axes")),
    "shape_array": lambda node: (None, 1),
    **dict.fromkeys(("Reshape", "reshape"), lambda node: (None, None if -2 in _words(node) else _reshaped(node)[1])),
}
"""Operators that say how many axes their first input has, and their outputs; None where they do not."""
_MORE: Mapping[str, Callable[[SymbolNode], int | None]] = {
    **dict.fromkeys(("expand_dims", "Embedding", "stack", "one_hot"), lambda node: 1),
    "squeeze": lambda node: -(_count(node, "axis") or 0) or None,
    **dict.fromkeys(("Reshape", "reshape"), lambda node: (_reshaped(node)[1] or 0) - _reshaped(node)[0] if -2 in _words(node) else None),
    **dict.fromkeys(SPLITS, lambda node: -int(_is(node, "squeeze_axis"))),
    "SequenceLast": lambda node: -1,
    **dict.fromkeys(("sum", "sum_axis", "mean", "max", "max_axis", "min", "min_axis", "prod", "norm", "argmax", "argmin"),
        lambda node: _less(node)),
    "FullyConnected": lambda node: None if _is(node, "flatten", "True") else 0,
}  # fmt: skip
"""Operators that give more axes than they read, or fewer. Of others not named here the inputs and outputs have as many."""
_OTHERS = ("null", "Custom", "_rnn_param_concat", "_npi_rnn_param_concat")
"""Operators of whose values nothing is known here."""
_FIRST_ALONE = {"BatchNorm", "LayerNorm", "InstanceNorm", "Embedding", "LeakyReLU", "SequenceReverse", "SequenceMask", "SequenceLast",
                "SoftmaxOutput", "Softmax", "softmax", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput",
                "slice_like", "broadcast_like", "dot", "take", "FullyConnected", *RECURRENT, "Convolution", "Deconvolution"}  # fmt: skip
"""Operators whose other inputs have axes of their own."""


_PASSES = 64
"""The most walks to and fro through a graph."""


def ranks_of(graph: SymbolGraph, stated_ranks: Mapping[str, int]) -> dict[Key, int]:
    """Return how many axes values have, as far as the operators that give and read them show.

    stated_ranks  how many axes variables have, by their names
    """
    ranks: dict[Key, int] = {}
    for node in graph.nodes:
        stated = re.findall(r"\d+", node.attributes.get("__shape__", "")) if node.operator == "null" else ()
        if node.operator == "null" and (node.name in stated_ranks or stated):
            ranks[node.index, 0] = stated_ranks.get(node.name, len(stated))
    _spread(graph, ranks)
    for node in graph.nodes:  # a step of an unrolled cell flattens (batch, features), as far as nothing shows other axes
        split = graph.nodes[node.inputs[0][0]] if node.operator == "FullyConnected" and node.inputs else None
        if split is not None and split.operator in SPLITS and _is(split, "squeeze_axis"):
            ranks.setdefault(node.inputs[0], 2)
    _spread(graph, ranks)
    return ranks


def _spread(graph: SymbolGraph, ranks: dict[Key, int]) -> None:
    """Note what follows forwards and backwards, until nothing more does."""
    for _ in range(_PASSES):
        count = len(ranks)
        for order in (graph.nodes, reversed(graph.nodes)):
            for node in order:
                _follow(node, graph.outputs[node.index], ranks)
        if count == len(ranks):
            break


def _follow(node: SymbolNode, outputs: int, ranks: dict[Key, int]) -> None:
    """Note the ranks that follow from one operator."""
    if node.operator in _OTHERS or not (node.inputs or node.operator in _FIXED):
        return
    gives: list[Key] = [(node.index, number) for number in range(outputs)]
    if node.operator in _FIXED:
        read, output = _FIXED[node.operator](node)
        if read is not None and node.inputs:
            ranks.setdefault(node.inputs[0], read)
        states = 0 if node.operator not in RECURRENT else 2 if node.attributes.get("mode") == "lstm" else 1
        for key in node.inputs[2 : 2 + states]:
            ranks.setdefault(key, 3)
        for key in gives if output is not None else ():
            ranks.setdefault(key, output or 0)
        if node.operator not in _MORE:
            return
    more = _MORE[node.operator](node) if node.operator in _MORE else 0
    if node.operator == "take":  # the axes of its places stand for one axis
        more = ranks[node.inputs[1]] - 1 if node.inputs[1] in ranks else None
    if more is None:
        return
    reads = node.inputs[1:] if node.operator == "where" else node.inputs[:1] if node.operator in _FIRST_ALONE else node.inputs
    forward = next((ranks[key] for key in reads if key in ranks), None)
    backward = next((ranks[key] - more for key in gives if key in ranks), None)
    rank = forward if forward is not None else backward
    if rank is not None:
        for key in reads:
            ranks.setdefault(key, rank)
        for key in gives:
            ranks.setdefault(key, rank + more)


def _count(node: SymbolNode, key: str) -> int | None:
    """Return how many whole numbers an attribute holds; None where it holds none."""
    return len(re.findall(r"-?\d+", node.attributes.get(key, ""))) or None


def _kernel(node: SymbolNode) -> int | None:
    axes = _count(node, "kernel")
    return None if axes is None else axes + 2


def _is(node: SymbolNode, key: str, default: str = "False") -> bool:
    return node.attributes.get(key, default).lower() in ("true", "1")


def _less(node: SymbolNode) -> int | None:
    """Return how many axes a reduction takes away, below zero; None where it depends on how many there are."""
    if _is(node, "keepdims"):
        return 0
    count = _count(node, "axis")
    return None if count is None or _is(node, "exclude") else -count


def _words(node: SymbolNode) -> list[int]:
    return [int(word) for word in re.findall(r"-?\d+", node.attributes.get("shape", ""))]


def _reshaped(node: SymbolNode) -> tuple[int, int | None]:
    """Return how many axes a Reshape reads and gives, apart from those that -2 stands for."""
    words = iter(_words(node))
    reads = gives = 0
    for word in words:
        if word == -4:
            next(words, 0), next(words, 0)
        reads += 2 if word == -3 else word != -2
        gives += 2 if word == -4 else word != -2
    return reads, gives or None
