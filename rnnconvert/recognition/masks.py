"""Masks in the body of a Loop or Scan: at each step, for each sequence, whether the state becomes the new one or stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rnnconvert.core.limits import MASK_NESTING
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.graphs.program.kinds import REPEATING
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.recognition.expression import FORWARD
from rnnconvert.recognition.recognised import Mask

_WIDENING = ("Identity", *REPEATING, "Unsqueeze", "Squeeze", "Reshape")
_COMPARING: Mapping[tuple[str, int], bool] = {
    ("Less", 0): False,
    ("Greater", 1): False,
    ("GreaterOrEqual", 0): True,
    ("LessOrEqual", 1): True,
}
"""How a step is compared with a length: the operator and the step's place; whether what holds is the end."""

Element = Callable[[Scope, str], "tuple[Scope, str, tuple[int, int]] | None"]
"""Returns the sequence that a value is one element of, with its axis of time and the step."""


class Truth(NamedTuple):
    """A truth for each sequence: the value that it comes from, and whether it is turned into its opposite."""

    value: str
    negated: bool


@dataclass(frozen=True)
class Selection:
    """A value of a step that is one of two.

    truth  what decides
    new    the value where it holds
    old    the value where it does not
    """

    truth: Truth
    new: str
    old: str


def same(scope: Scope, name: str) -> str:
    """Return the value that a value is, through nodes that change nothing."""
    return _through(scope, name, lambda node: node.kind == "Identity")


def same_numbers(scope: Scope, name: str) -> str:
    """Return the value that a value has the numbers of: through a Cast to float32, too, which is what states are of."""
    return _through(scope, name, lambda node: node.kind == "Identity" or _to_float(scope, node))


def _through(scope: Scope, name: str, passes: Callable[[Operation], bool]) -> str:
    producer = scope.producer(name)
    while producer is not None and not producer[0].domain and passes(producer[0]):
        name = producer[0].inputs[0]
        producer = scope.producer(name)
    return name


def _to_float(scope: Scope, node: Operation) -> bool:
    attributes = scope.attributes(node)
    return node.kind == "Cast" and attributes.get("to") == np.float32


def choice(inner: Scope, name: str) -> Selection | None:
    """Return a value as one of two: by Where, or as a sum of two products with a truth and its opposite."""
    producer = inner.producer(same_numbers(inner, name))
    if producer is None:
        return None
    node = producer[0]
    if node.kind == "Where":
        truth = _truth(inner, node.inputs[0])
        return Selection(truth, same_numbers(inner, node.inputs[1]), same_numbers(inner, node.inputs[2]))
    if node.kind != "Add":
        return None
    parts = [part for operand in node.inputs if (part := _product(inner, operand)) is not None]
    if len(parts) != 2:
        return None
    # m * new + (1 - m) * old.
    (operand_truth, new), (other, old) = parts
    if operand_truth.value != other.value or operand_truth.negated == other.negated:
        return None
    return Selection(operand_truth, new, old)


def _product(inner: Scope, name: str) -> tuple[Truth, str] | None:
    """Return a product of a truth, as ones and zeros, with a value."""
    producer = inner.producer(same(inner, name))
    if producer is None or producer[0].kind != "Mul":
        return None
    for place in (0, 1):
        factor = inner.producer(same(inner, producer[0].inputs[place]))
        if factor is not None and factor[0].kind == "Cast":
            return _truth(inner, producer[0].inputs[place]), same_numbers(inner, producer[0].inputs[1 - place])
    return None


def _truth(inner: Scope, name: str) -> Truth:
    """Return the comparison behind a boolean value, through Not and a last Cast, and whether it is negated."""
    negated, producer = False, inner.producer(same(inner, name))
    if producer is not None and producer[0].kind == "Cast":
        name = producer[0].inputs[0]
    for _ in range(MASK_NESTING):
        producer = inner.producer(name)
        if producer is None or producer[0].kind not in (*_WIDENING, "Not"):
            break
        negated ^= producer[0].kind == "Not"
        name = producer[0].inputs[0]
    return Truth(name, negated)


def masked_states(inner: Scope, states: Sequence[tuple[str, str]]) -> tuple[Truth | None, dict[str, str]]:
    """Return the condition that keeps states as they are, and the value that each takes otherwise; None for states without a mask.

    states  names of states and of their new values
    """
    updates: dict[str, str] = {}
    truths: set[Truth] = set()
    for name, after in states:
        selection = choice(inner, after)
        if selection is None or name not in (selection.new, selection.old):
            continue
        # The state stays where the truth holds, if it is what the truth selects.
        turned = name == selection.new
        truths.add(Truth(selection.truth.value, selection.truth.negated != turned))
        updates[name] = selection.old if turned else selection.new
    if len(truths) > 1:
        raise UnmatchedError("several masks decide at one step which states stay")
    return (truths.pop() if truths else None), updates


def is_read(inner: Scope, state: str) -> bool:
    """Return whether more reads a state than the choice that keeps it: a copy of the output has no other use."""
    readers = (node for node in inner.nodes if node.kind != "Identity")
    return sum(any(same(inner, operand) == state for operand in node.inputs) for node in readers) > 1


def mask(inner: Scope, shapes: Shapes, truth: Truth, element: Element, counted: Callable[[str], int | None]) -> Mask:
    """Return where a truth of a step comes from: a sequence of truths, or lengths. Raises UnmatchedError for anything else."""
    location = element(inner, truth.value)
    if location is not None:
        _, value, (axis, step) = location
        scope, value = inner.resolve(same(inner, value))
        if step != FORWARD or axis not in (0, 1):
            raise UnmatchedError(f"the mask {value!r} is read in another order than time")
        dims = shapes.dims(scope, value)
        rank = len(dims) if dims is not None else 3
        if rank not in (2, 3) or (dims is not None and rank == 3 and dims[2] not in (1, None)):
            raise UnmatchedError(f"the mask {value!r} has {rank} axes, and more than one truth for a step")
        return Mask(value, axis, rank, truth.negated)
    producer = inner.producer(truth.value)
    # The number of the step compared with the length of each sequence, either way round.
    for place in (0, 1):
        if producer is None:
            break
        ends = _COMPARING.get((producer[0].kind, place))
        if ends is None or counted(plain(inner, producer[0].inputs[place])) != FORWARD:
            continue
        where, lengths = inner.resolve(plain(inner, producer[0].inputs[1 - place]))
        if where is not inner and where.constant(lengths) is None and truth.negated == ends:
            return Mask(lengths, 0, 1, False)
    raise UnmatchedError(f"{truth.value!r} decides at each step what is kept, and is neither a mask nor made of the lengths of sequences")


def plain(inner: Scope, name: str) -> str:
    """Return the number or the numbers that a value is, through nodes that change the type and the form alone."""
    for _ in range(MASK_NESTING):
        producer = inner.producer(name)
        if producer is None or producer[0].kind not in (*_WIDENING, "Cast"):
            break
        name = producer[0].inputs[0]
    return name
