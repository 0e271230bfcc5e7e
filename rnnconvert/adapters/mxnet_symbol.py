"""The graph beside MXNet's parameters: what its RNN operators are told, by the names of the arrays that they read.

Source: what mx.sym.Symbol.tojson writes; "attr" and "param" stood for "attrs" before 1.0 (nnvm/src/pass/saveload_json.cc).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnnconvert.containers.files import map_file
from rnnconvert.errors import UnreadableError

MOST = 1 << 26
"""The most bytes of a graph."""
_THROUGH = {"_rnn_param_concat", "_npi_rnn_param_concat", "Reshape", "reshape", "Concat", "concat", "Flatten", "_copy"}
"""Operators that a layer's arrays pass through on their way into one flat vector."""

Told = Mapping[str, str]
"""What an operator is told, in its own words."""


def beside(path: Path) -> Path | None:
    """The graph of a file of parameters, if it is there: model-symbol.json beside model-0012.params or model.params."""
    stem = re.sub(r"-\d{4,}$", "", path.name.removesuffix(path.suffix))
    found = path.with_name(f"{stem}-symbol.json")
    return found if found.is_file() else None


def read(path: Path) -> dict[str, Told]:
    """What each RNN operator is told, by the names of its parameters.

    Raises UnreadableError for what is no graph.
    """
    data = map_file(path)
    if data.size > MOST:
        raise UnreadableError(path, f"a graph of {data.size} bytes; at most {MOST} are read")
    try:
        nodes = json.loads(bytes(data))["nodes"]
        return {name: told for node in nodes for name, told in _operator(node, nodes).items()}
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise UnreadableError(path, f"it is no graph of MXNet's: {type(error).__name__} {str(error)[:200]}") from None


def _operator(node: Mapping[str, Any], nodes: list[Mapping[str, Any]]) -> dict[str, Told]:
    if node["op"] not in ("RNN", "_npx_rnn"):
        return {}
    told: dict[str, Any] = node.get("attrs") or node.get("attr") or node.get("param") or {}
    plain = {str(key): str(value) for key, value in told.items()}
    found: dict[str, Told] = {}
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
