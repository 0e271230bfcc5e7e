"""Steps of cells that a program writes out as single operators, as PyTorch's own cells do when they are traced or decomposed.

Source: aten/src/ATen/native/RNN.cpp, LSTMCell, GRUCell and SimpleCell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rnnconvert.formats.pytorch import aten
from rnnconvert.formats.pytorch.program.cells import CellStep
from rnnconvert.formats.pytorch.program.program import OperatorCall, Ref, refs

_READERS = 64
"""The most operators that read one value of a cell that is written out."""


class _OperatorUses:
    """The operators of a program by what they read."""

    def __init__(self, operations: Iterable[OperatorCall]) -> None:
        self._of: dict[Ref, list[OperatorCall]] = {}
        for operation in operations:
            for ref in refs(operation.inputs):
                readers = self._of.setdefault(ref, [])
                if len(readers) < _READERS:
                    readers.append(operation)

    def single(self, kinds: str, *read: Ref | None) -> OperatorCall | None:
        """Return the one operator of some kinds that reads these values and no others."""
        if any(ref is None for ref in read):
            return None
        wanted = {ref for ref in read if ref is not None}
        readers = [
            operation
            for operation in self._of.get(next(iter(wanted)), ())
            if operation.kind in kinds.split() and set(refs(operation.inputs)) == wanted and len(list(refs(operation.inputs))) == len(read)
        ]
        return readers[0] if len(readers) == 1 else None

    def gives(self, kinds: str, *read: Ref | None) -> Ref | None:
        """Return the output of that operator."""
        operation = self.single(kinds, *read)
        return operation.outputs.get(0) if operation is not None else None

    def of(self, ref: Ref | None, kind: str) -> list[OperatorCall]:
        """Return the operators of a kind that read a value."""
        return [] if ref is None else [operation for operation in self._of.get(ref, ()) if operation.kind == kind]

    def parts(self, ref: Ref | None, count: int) -> list[Ref | None]:
        """Return the parts that a value is cut into."""
        for operation in self._of.get(ref, ()) if ref is not None else ():
            sizes = operation.inputs[1] if len(operation.inputs) > 1 else None
            cut = operation.kind.removeprefix("unsafe_") if operation.kind in aten.SPLITS else ""
            equal = isinstance(sizes, list) and len(sizes) == count and len(set(map(str, sizes))) == 1
            if (cut == "chunk" and sizes == count) or (cut in ("split", "split_with_sizes") and equal):
                return [operation.outputs.get(number) for number in range(count)]
        return [None] * count


def _product(operation: OperatorCall, owners: Mapping[str, tuple[str, str]]) -> tuple[str, Any] | None:
    """Return the name of the weight that an operator multiplies with, and what it multiplies."""
    if operation.kind == "linear" and len(operation.inputs) > 1:
        weight, x = operation.inputs[1], operation.inputs[0]
    elif operation.kind == "addmm" and len(operation.inputs) > 2:
        weight, x = operation.inputs[2], operation.inputs[1]
    elif operation.kind in ("mm", "matmul") and len(operation.inputs) > 1:
        weight, x = operation.inputs[1], operation.inputs[0]
    else:
        return None
    turned = weight.operation if isinstance(weight, Ref) else None
    if turned is not None and turned.kind in ("t", "permute", "transpose", "numpy_T"):
        weight = turned.inputs[0]
    return (weight.stored, x) if isinstance(weight, Ref) and weight.stored in owners else None


def written_out(
    operations: Sequence[OperatorCall], owners: Mapping[str, tuple[str, str]]
) -> tuple[dict[str, list[CellStep]], dict[str, int]]:
    """Return the steps of cells that are written out as PyTorch writes its own, by layer; and how many products with a layer's
    recurrent weights do not belong to such a step.
    """
    products = {candidate: product for candidate in operations if (product := _product(candidate, owners)) is not None}
    if not products:
        return {}, {}
    uses = _OperatorUses(operations)
    steps: dict[str, list[CellStep]] = {}
    others: dict[str, int] = {}
    for operation, (weight, h) in products.items():
        name, local = owners[weight]
        if not local.startswith("weight_hh"):
            continue
        step = _step(uses, operation, h, name, products, owners)
        if step is not None:
            steps.setdefault(name, []).append(step)
        else:
            others[name] = others.get(name, 0) + 1
    return steps, others


def _step(
    uses: _OperatorUses,
    recurrent: OperatorCall,
    h: Any,
    name: str,
    products: Mapping[OperatorCall, tuple[str, Any]],
    owners: Mapping[str, tuple[str, str]],
) -> CellStep | None:
    """Return the step that begins with a product of a state and the recurrent weights."""
    by_h = recurrent.outputs.get(0)
    for add in uses.of(by_h, "add"):
        others = [ref for ref in refs(add.inputs) if ref is not by_h]
        if len(others) == 1 and (x := _input(others[0], name, products, owners)) is not None:
            total = add.outputs.get(0)
            return _lstm(uses, total, x, h) or _rnn(uses, total, x, h)
    parts = uses.parts(by_h, 3)
    for add in uses.of(parts[0], "add"):
        for other in refs(add.inputs):
            cut = other.operation
            if other is not parts[0] and cut is not None and cut.kind in aten.SPLITS and isinstance(cut.inputs[0], Ref):
                x = _input(cut.inputs[0], name, products, owners)
                if x is not None:
                    return _gru(uses, parts, uses.parts(cut.inputs[0], 3), x, h)
    return None


def _input(ref: Ref, name: str, products: Mapping[OperatorCall, tuple[str, Any]], owners: Mapping[str, tuple[str, str]]) -> Any:
    """Return the factor of a product with a layer's input weights."""
    weight, x = products.get(ref.operation, ("", None)) if ref.operation is not None else ("", None)
    return x if weight and owners[weight][0] == name and owners[weight][1].startswith("weight_ih") else None


def _lstm(uses: _OperatorUses, total: Ref | None, x: Any, h: Any) -> CellStep | None:
    i, f, g, o = uses.parts(total, 4)
    i, f, o = (uses.gives("sigmoid", gate) for gate in (i, f, o))
    added = uses.gives("mul", i, uses.gives("tanh", g))
    if f is None or added is None:
        return None
    for remembered in uses.of(f, "mul"):
        before = [ref for ref in refs(remembered.inputs) if ref is not f]
        c = uses.gives("add", remembered.outputs.get(0), added)
        ends = [uses.single("mul", o, squashed.outputs.get(0)) for squashed in uses.of(c, "tanh")]
        last = next((end for end in ends if end is not None), None)
        if len(before) == 1 and last is not None:
            return CellStep(last, x, h, before[0], last.outputs.get(0), c)
    return None


def _gru(uses: _OperatorUses, by_h: Sequence[Ref | None], by_x: Sequence[Ref | None], x: Any, h: Any) -> CellStep | None:
    r, z = (uses.gives("sigmoid", uses.gives("add", by_h[at], by_x[at])) for at in (0, 1))
    n = uses.gives("tanh", uses.gives("add", by_x[2], uses.gives("mul", by_h[2], r)))
    last = uses.single("add", uses.gives("mul", uses.gives("sub", h, n), z), n) if isinstance(h, Ref) else None
    return None if last is None else CellStep(last, x, h, None, last.outputs.get(0))


def _rnn(uses: _OperatorUses, total: Ref | None, x: Any, h: Any) -> CellStep | None:
    last = uses.single("tanh relu", total)
    return None if last is None else CellStep(last, x, h, None, last.outputs.get(0))
