"""The names that exporters give in ONNX models, and what they show about the model that was exported."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from rnnconvert.graphs.program.operations import Operation

_SCOPES = "pkg.torch.onnx.name_scopes"


def made_up(name: str) -> bool:
    """Return whether an exporter made up the name of a value, which then is not a parameter of the exported model."""
    return bool(re.fullmatch(r".*onnx::\w+_\d+|(.*/)?val_\d+|.*_output_\d+|(.*/)?Constant(_\d+)?|(.*/)?\d+|const_.*", name))


def module_path(node: Operation, values: Sequence[str]) -> str:
    """Return the module that a layer was made from, according to its exporter; "" where nothing shows it.

    values  names of its arrays, the weight first

    PyTorch leaves its parameters' names, or a node's path: "/blocks/blocks.0/MatMul" in the older exporter, and in the
    newer one the node's metadata. tf2onnx has TensorFlow's names, "sequential_1/dense_1/MatMul".
    """
    for value in values:
        if re.fullmatch(r"\w+(\.\w+)+", value):
            return value.rpartition(".")[0]
    scopes = next((entry.value for entry in node.source.metadata_props if entry.key == _SCOPES), "")
    if scopes:
        return _innermost(scopes)
    parts = node.name.split("/")
    if len(parts) < 2:
        return ""
    if not parts[0]:
        inner = [part for part in parts[1:-1] if part]
        after = [*inner[1:], ""]
        scoped = [path for path, following in zip(inner, after, strict=False) if not following.startswith(f"{path}.")]
        return ".".join(scoped)
    return next((part for part in reversed(parts[:-1]) if part not in ("Tensordot", "add", "batchnorm")), "")


def _innermost(scopes: str) -> str:
    try:
        names = ast.literal_eval(scopes)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    return str(names[-2]) if isinstance(names, list) and len(names) > 1 else ""
