"""Nodes of an ONNX graph, and those that compute lengths: what they give is known before a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.graphs.program.computing import computed
from rnnconvert.graphs.program.fold import fold
from rnnconvert.graphs.program.fold_call import FoldedCall
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.sizes import Dim, Size, in_64_bits, least, most, truncated
from rnnconvert.scaffolding.nodes import Nodes
from rnnconvert.scaffolding.tensors import SourceTensor

COUNTED = ("Add", "Sub", "Mul", "Concat", "Expand", "Gather", "Identity", "Neg", "Reshape", "Slice", "Split", "Squeeze", "Unsqueeze")
"""The operators that work on lengths as on numbers."""
FUNCTIONS = ("Sqrt", "Div", "Mul", "Add", "Sub", "Pow", "Reciprocal")
"""The operators that work on numbers of a file as on lengths."""
TRUTHS = ("Not", "And", "Or")
"""The operators that work on truths that are known."""
CHOSEN: Mapping[str, Callable[..., Dim]] = {"Max": most, "Min": least}
"""The operators that choose one of several lengths, and how."""
_MOST = 1 << 16
"""The most numbers with which lengths are computed."""


class Attributes(Mapping[str, Any]):
    """Attributes of a node by name; those that a rule leaves unread may change what it computes."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def unread(self) -> list[str]:
        """Return the names of those that nothing has read."""
        return sorted({*self._values} - self._read)


@dataclass(frozen=True, eq=False)
class Op:
    """A node that is being read.

    scope, node  the node, and the graph that it is in
    inputs       what it reads, None where an optional input is left out
    values       its attributes by name
    """

    scope: Scope
    node: Operation
    inputs: tuple[SourceTensor | None, ...]
    values: Attributes

    @property
    def kind(self) -> str:
        """Its operator."""
        return self.node.kind

    @property
    def opset(self) -> int:
        """The version of ONNX's operators that it is of."""
        return self.scope.opset

    @property
    def tensors(self) -> list[SourceTensor]:
        """The inputs that are there."""
        return [x for x in self.inputs if x is not None]

    def __getitem__(self, index: int) -> SourceTensor:
        """Return an input that must be there. Raises ValueError if it is not."""
        x = self.optional(index)
        if x is None:
            raise ValueError(f"it has no input {index}")
        return x

    def optional(self, index: int) -> SourceTensor | None:
        """Return an input, None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def has(self, index: int) -> bool:
        """Return whether it gives an output."""
        return index < len(self.node.outputs) and bool(self.node.outputs[index])


def count(build: Nodes, op: Op) -> list[SourceTensor | None] | None:
    """Return the result of an operator on lengths; None if it reads anything else."""
    held = [None if x is None else x.numbers for x in op.inputs]
    numbers = [array for array in held if array is not None]
    if not numbers or len(numbers) != sum(x is not None for x in op.inputs) or max(array.size for array in numbers) > _MOST:
        return None
    first = next(x for x in op.inputs if x is not None)
    kinds = {array.dtype.kind for array in numbers}
    if op.kind in (FUNCTIONS if kinds == {"f"} else TRUTHS if kinds == {"b"} else ()):
        results = computed(FoldedCall(op.kind, held, {}, 1, op.opset, op.scope.charge))
        return None if results is None else [SourceTensor(results[0].shape, first.dtype, first.name, numbers=results[0])]
    if any(array.dtype.kind not in "iuO" for array in numbers):
        return None
    if op.kind in CHOSEN:
        together = np.broadcast(*(array.astype(object) for array in numbers))
        chosen = [(CHOSEN[op.kind](*lengths), lengths) for lengths in together]
        if any(length not in lengths for length, lengths in chosen):
            return None  # a run decides which
        return [counted(np.asarray([length for length, _ in chosen] + [None], object)[:-1].reshape(together.shape), first.dtype)]
    if op.kind == "Div":
        quotients = np.frompyfunc(truncated, 2, 1)(numbers[0].astype(object), numbers[1].astype(object))
        return [counted(quotients, first.dtype)]
    if op.kind not in COUNTED or (op.kind == "Expand" and any(isinstance(length, Size) for length in numbers[-1].reshape(-1))):
        return None  # of a length that is spread over an open axis, its rule knows that it is everywhere
    plain = [None if array is None else array.astype(object) for array in held]
    folded = fold(FoldedCall(op.kind, plain, dict(op.values), len(op.node.outputs), op.opset, op.scope.charge))
    if folded is None:
        raise build.refuse("lengths that are computed in another way", "no line is known for it")
    return [counted(array, first.dtype) for array in folded]


def counted(numbers: Array, dtype: str = "int64") -> SourceTensor:
    """Return a tensor of lengths. Raises ValueError for a number of more than 64 bits."""
    listed = np.asarray(numbers, object)
    for length in listed.reshape(-1):
        if isinstance(length, int):
            in_64_bits(length)
    stated = not any(isinstance(length, Size) for length in listed.reshape(-1))
    return SourceTensor(listed.shape, dtype, "size", numbers=listed.astype(dtype) if stated else listed)
