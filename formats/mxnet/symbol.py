"""The graph next to MXNet's parameters: the settings of its RNN operators, by the names of the arrays that they read.

Source: what mx.sym.Symbol.tojson writes; "attr" and "param" stood for "attrs" before 1.0 (nnvm/src/pass/saveload_json.cc).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnnconvert.containers.files import map_file
from rnnconvert.core.errors import UnreadableError
from rnnconvert.files.flat import Description

MOST = 1 << 26
"""The most bytes of a graph."""
_THROUGH = {"_rnn_param_concat", "_npi_rnn_param_concat", "Reshape", "reshape", "Concat", "concat", "Flatten", "_copy"}
"""Operators that a layer's arrays pass through on their way into one flat vector."""


def beside(path: Path) -> Path | None:
    """Return the graph of a file of parameters, if it exists: model-symbol.json for model-0012.params or model.params."""
    stem = re.sub(r"-\d{4,}$", "", path.name.removesuffix(path.suffix))
    found = path.with_name(f"{stem}-symbol.json")
    return found if found.is_file() else None


def read(path: Path) -> dict[str, Description]:
    """Return the settings of each RNN operator, by the names of its parameters.

    Raises UnreadableError for a file that is not a graph.
    """
    data = map_file(path)
    if data.size > MOST:
        raise UnreadableError(path, f"the graph has {data.size} bytes, more than the limit of {MOST}")
    try:
        nodes = json.loads(bytes(data))["nodes"]
        return {name: told for node in nodes for name, told in _operator(node, nodes).items()}
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise UnreadableError(
            path, f"it is not a graph of MXNet's: {type(error).__name__} {str(error)[:200]}"
        ) from None


def reads(path: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return what each cell or RNN operator reads, by the names of its input weights, or of its vector's parts.

    That is the beginning of the names of the parameters of the layer whose output it is ("" where there is no layer), and
    the operators between. What the graph feeds from outside is left out.

    Raises UnreadableError for a file that is not a graph.
    """
    data = map_file(path)
    if data.size > MOST:
        raise UnreadableError(path, f"the graph has {data.size} bytes, more than the limit of {MOST}")
    try:
        nodes = json.loads(bytes(data))["nodes"]
        found: dict[str, tuple[str, tuple[str, ...]]] = {}
        for node in nodes:
            weights = [nodes[one[0]]["name"] for one in node["inputs"] if nodes[one[0]]["op"] == "null"]
            names = [name for name in weights if node["op"] == "FullyConnected" and name.endswith("i2h_weight")]
            for name in [*names, *_operator(node, nodes)]:
                if name not in found and (fed := _fed(node["inputs"][0][0], nodes)) is not None:
                    found[str(name)] = fed
        return found
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise UnreadableError(
            path, f"it is not a graph of MXNet's: {type(error).__name__} {str(error)[:200]}"
        ) from None


_SHAPES = {
    "Dropout", "SliceChannel", "split", "Reshape", "reshape", "expand_dims", "squeeze", "Concat", "concat", "stack",
    "SwapAxis", "swapaxes", "transpose", "Flatten", "_copy", "identity", "Cast", "cast",
}  # fmt: skip
"""Operators that change no value when a model runs without training."""


def _fed(index: int, nodes: list[Mapping[str, Any]]) -> tuple[str, tuple[str, ...]] | None:
    """Return the layer whose output a value is, and what comes between; None for what is given from outside."""
    for _ in range(len(nodes)):
        node = nodes[index]
        cell = re.fullmatch(r"(.*_)t\d+_out", str(node["name"]), re.S)
        if cell:
            return cell[1], ()
        if vector := _operator(node, nodes):
            return next(iter(vector)), ()
        if node["op"] == "null":
            return None
        if node["op"] not in _SHAPES:
            return "", (str(node["op"]),)
        index = node["inputs"][0][0]
    return None


def _operator(node: Mapping[str, Any], nodes: list[Mapping[str, Any]]) -> dict[str, Description]:
    if node["op"] not in ("RNN", "_npx_rnn"):
        return {}
    told: dict[str, Any] = node.get("attrs") or node.get("attr") or node.get("param") or {}
    plain = {str(key): str(value) for key, value in told.items()}
    found: dict[str, Description] = {}
    waiting, seen = [node["inputs"][1][0]], set()
    while waiting:
        index = waiting.pop()
        if index in seen or not 0 <= index < len(nodes):
            continue
        seen.add(index)
        above = nodes[index]
        if above["op"] == "null":
            found[str(above["name"])] = plain
        elif above["op"] in _THROUGH:
            waiting += [one[0] for one in above["inputs"]]
    return found
