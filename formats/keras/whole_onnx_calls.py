"""How the layers of a Keras 3 model are called, and how the axes of its inputs and outputs are named in ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx

from rnnconvert.formats.keras.upgrade_graph import Ref, reference
from rnnconvert.formats.keras.upgrade_old import Old
from rnnconvert.formats.keras.whole_onnx_layers import Value, refuse


@dataclass(frozen=True)
class Call:
    """One call of a layer.

    reads    the tensors that it is called on
    named    those that the call names: initial_state, key, mask; None for a mask that is left open
    flags    what else it states: use_causal_mask
    numbers  of an operation: the numbers among its arguments, by their places
    """

    reads: list[Ref] = field(default_factory=list)
    named: dict[str, list[Ref | None]] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=dict)
    numbers: dict[int, Any] = field(default_factory=dict)

    def sources(self) -> list[Ref]:
        """Return all that it reads, in Keras's order."""
        named = (ref for _, refs in sorted(self.named.items()) for ref in refs)
        return [*self.reads, *(ref for ref in named if ref is not None)]

    def arguments(self, values: Sequence[Value]) -> list[Any]:
        """Return the arguments of an operation: tensors and numbers."""
        left = iter(values)
        return [self.numbers[n] if n in self.numbers else next(left) for n in range(len(values) + len(self.numbers))]


def calls(old: Old) -> list[Call]:
    """Return the calls of a layer. Raises RefusedError for what has no equivalent."""
    found: list[Call] = []
    for node in old.raw.get("inbound_nodes") or []:
        if not isinstance(node, Mapping):  # as Keras 2 has it
            raise refuse(old.name, "a call of an unknown form", "only those of Keras 3 are known here")
        call = Call()
        for number, one in enumerate(_flat(node.get("args", []))):
            ref = _history(one)
            if ref is None and old.is_operation and isinstance(one, (int, float)):
                call.numbers[number] = one
                continue
            if ref is None:
                raise refuse(
                    old.name, f"a call with {str(one)[:60]}", "it changes what the layer computes, or is not known"
                )
            call.reads.append(ref)
        for key, value in (node.get("kwargs") or {}).items():
            several = _flat(value) if isinstance(value, (list, tuple)) else [value]
            if all(one is None for one in several) or (key == "training" and value is False):
                continue
            refs = [_history(one) for one in several]
            known = [ref is not None for ref in refs]
            if any(known) and not all(
                ok or (one is None and key == "mask") for ok, one in zip(known, several, strict=True)
            ):
                raise refuse(old.name, f"a call with {key}", "some of its tensors are not known")
            if any(known):
                call.named[key] = refs
            else:
                call.flags[key] = value
        found.append(call)
    return found or [Call()]


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
