"""The code of a TorchScript archive, examined before torch loads it, since parts of it run while it is loaded.

The code is written in Python's syntax. What reaches beyond a model can only be reached by its name: as an operator
(torch.save, ops.aten.save), as a method of any value (x.save), by getattr, or as a class that torch brings along. Sources:
torch/csrc/jit/serialization/import.cpp, import_source.cpp; torch/csrc/jit/frontend/lexer.h, sugared_value.cpp (2.13).
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

LONGEST = 16 << 20
"""The most bytes of code that are examined; the code of a network has thousands, its numbers stand elsewhere."""

_FILES = {"f", "file", "filename", "filenames", "files", "path", "paths", "dir", "directory", "address", "url", "host"}
"""Names of operators' arguments for a text that leads outside."""
_NAMED = {"save", "load", "from_file", "rpc_async", "rpc_sync", "rpc_remote"}
"""Operators that are refused in every version of torch, regardless of their schemas."""
_NAMESPACES = {
    "aten", "prim", "prims", "quantized", "_quantized", "quantization", "sparse", "mkldnn", "mkldnn_prepacked", "mkl", "onednn", "onnx",
    "profiler",
}  # fmt: skip
"""Namespaces whose operators compute on what they are given; others send to other processes, or take part in compilers and tests."""
_CLASSES = {"quantized", "sparse", "mkldnn", "rnn", "xnnpack", "profiler"}
"""Where torch's own classes that hold weights are."""
_LEAST = {"torch": 2, "ops": 3, "CONSTANTS": 2, "__torch__": 2}
"""How many names stand together where something of these is meant: less is a name for many things, which leads to any of them later."""
_PLAIN = re.compile(rb"[\t\n -~]*")
_TYPES = re.compile(rb"#\s*type\s*:")
_CLASS_NAMES = re.compile(rb"torch\.classes\.(\w*)")


def refuse_outside_archive(file: str) -> None:
    """Raise NotImplementedError for an archive whose code, or whose objects, reach beyond the model.

    It is read by torch's own reader, so that torch loads what is examined here.
    """
    import torch

    with Path(file).open("rb") as stream:
        head = stream.read(8)
    if head[:4] != b"PK\x03\x04" or head[4:] == b"PTMF":
        raise NotImplementedError("the archive does not begin as one: torch might take it for another kind of file")
    reader = torch._C.PyTorchFileReader(file)
    names = reader.get_all_records()
    if len({name.lower() for name in names}) < len(names):
        raise NotImplementedError("two entries of the archive have one name")
    if "model.json" in map(str.lower, names):
        raise NotImplementedError("the archive is that of torch 1.0, whose code may stand in any entry")
    total, refused = 0, _operators()
    for name in names:
        ending = name.lower().rpartition(".")[2]
        if ending == "py":
            code = bytes(reader.get_record(name))
            total += len(code)
            if total > LONGEST:
                raise NotImplementedError(f"its code has more than {LONGEST >> 20} MiB, too much to be examined")
            refuse_outside_code(code, name, refused)
        elif ending == "pkl":
            for space in _CLASS_NAMES.findall(bytes(reader.get_record(name))):
                if space.decode() not in _CLASSES:
                    raise _outside(name, f"torch.classes.{space.decode()}")


def _operators() -> set[str]:
    """Return the names of operators that reach outside, each with its namespace, from torch's list of all operators."""
    import torch

    refused = {f"aten::{name}" for name in _NAMED} | {f"prim::{name}" for name in _NAMED}
    for schema in torch._C._jit_get_all_schemas():
        texts = {argument.name for argument in schema.arguments if "str" in str(argument.type)}
        if texts & _FILES or schema.name.partition("::")[0] not in _NAMESPACES:
            refused.add(schema.name)
    return refused


def _outside(name: str, what: str) -> NotImplementedError:
    return NotImplementedError(f"the code in {name} reaches beyond the model: {what}")


def refuse_outside_code(code: bytes, name: str, refused: Iterable[str]) -> None:
    """Raise NotImplementedError for code that names an operator that reaches outside, or could come to one without its name.

    name  the entry that the code stands in
    refused  operators with their namespaces: "aten::save"
    """
    unread = NotImplementedError(f"the code in {name} is not written as torch writes it, and cannot be examined")
    # Torch writes ASCII; what Python and torch would read differently does not come up in it.
    if not _PLAIN.fullmatch(code) or _TYPES.search(code):
        raise unread
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise unread from None
    check = _CodeExaminer(name, refused)
    waiting: list[Any] = [tree]
    while waiting:
        waiting += check.node(waiting.pop())


class _CodeExaminer:
    """Examines one node after another. Raises NotImplementedError for one that reaches outside."""

    def __init__(self, name: str, refused: Iterable[str]) -> None:
        self._name, self._refused = name, set(refused)
        self._methods = {operator[6:] for operator in self._refused if operator.startswith("aten::")} | _NAMED

    def node(self, node: Any) -> list[Any]:
        """Return the nodes inside that remain to be examined."""
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Name):
            self._chain([node.id])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            return self._getattr(node)
        elif isinstance(node, (ast.ImportFrom, ast.JoinedStr)) or (isinstance(node, ast.alias) and node.asname):
            raise _outside(self._name, f"line {getattr(node, 'lineno', 1)}")
        return list(ast.iter_child_nodes(node))

    def _attribute(self, node: Any) -> list[Any]:
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            self._chain([node.id, *names])
            return []
        for each in names:
            self._method(each)
        return [node]

    def _chain(self, names: Sequence[str]) -> None:
        """Examine names with dots between them."""
        head, text = names[0], ".".join(names)
        if head == "getattr" or head in _NAMED & {"rpc_async", "rpc_sync", "rpc_remote"} or len(names) < _LEAST.get(head, 1):
            raise _outside(self._name, text)
        if head == "torch" and f"aten::{names[1]}" in self._refused:
            raise _outside(self._name, text)
        if head == "ops" and f"{names[1]}::{names[2]}" in self._refused:
            raise _outside(self._name, text)
        if head == "__torch__" and names[1] == "torch":
            brought_along = names[2:3] == ["classes"]
            if len(names) == 2 or (brought_along and (len(names) < 5 or names[3] not in _CLASSES)):
                raise _outside(self._name, text)
        for each in names[1:]:
            self._method(each, text)

    def _method(self, name: str, text: str = "") -> None:
        """Examine the name of an attribute: operators are methods of what they receive first."""
        if name in self._methods:
            raise _outside(self._name, text or f".{name}")

    def _getattr(self, node: Any) -> list[Any]:
        """Examine a call of getattr, by which torch writes names that are not Python's, such as "0"."""
        name = node.args[1] if len(node.args) in (2, 3) and not node.keywords else None
        # As torch reads it: a text in one piece, without escapes.
        if not (
            isinstance(name, ast.Constant)
            and isinstance(name.value, str)
            and name.lineno == name.end_lineno
            and (name.end_col_offset or 0) - name.col_offset == len(name.value) + 2
        ):
            raise _outside(self._name, "getattr")
        self._method(name.value)
        return list(node.args)
