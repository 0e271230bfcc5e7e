"""How the layers of a Keras 3 model are called, and how the axes of its inputs and outputs are named in ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from rnnconvert.formats.keras.upgrade_graph import Ref, reference
from rnnconvert.formats.keras.upgrade_old import Old
from rnnconvert.formats.keras.whole_onnx_layers import refuse


def calls(old: Old) -> list[list[Ref]]:
    """Return what a layer reads at each of its calls. Raises RefusedError for what has no equivalent."""
    nodes = old.raw.get("inbound_nodes") or []
    found: list[list[Ref]] = []
    for node in nodes:
        if not isinstance(node, Mapping):  # as Keras 2 has it
            raise refuse(old.name, "a call of an unknown form", "only those of Keras 3 are known here")
        reads: list[Ref] = []
        for one in _flat(node.get("args", [])):
            ref = _history(one)
            if ref is None:
                raise refuse(
                    old.name, f"a call with {str(one)[:60]}", "it changes what the layer computes, or is not known"
                )
            reads.append(ref)
        for key, value in (node.get("kwargs") or {}).items():
            if (
                value is not None
                and not (key == "training" and value is False)
                and not (isinstance(value, list) and not any(value))
            ):
                raise refuse(old.name, f"a call with {key}", "it changes what the layer computes, or is not known")
        found.append(reads)
    return found or [[]]


def _flat(value: Any) -> list[Any]:
    return [each for one in value for each in _flat(one)] if isinstance(value, (list, tuple)) else [value]


def _history(value: Any) -> Ref | None:
    config = value.get("config") if isinstance(value, Mapping) else None
    return reference(config.get("keras_history")) if isinstance(config, Mapping) else None


def axes(shape: Sequence[int | None], name: str) -> list[Any]:
    """Return the axes of an input or output: the first is the batch, an open second one the time of that input."""
    return [
        "batch" if n == 0 and size is None else f"{name}_{n}" if size is None else size for n, size in enumerate(shape)
    ]


def described(value: onnx.ValueInfoProto) -> str:
    """Return an input or output with its axes."""
    axes = ", ".join(axis.dim_param or str(axis.dim_value) for axis in value.type.tensor_type.shape.dim)
    return f"{value.name} ({axes})"
