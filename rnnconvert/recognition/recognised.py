"""A recurrent layer found in other operators: its weights, what it reads, and what of it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Direction, Key
from rnnconvert.graphs.program.evaluate import UnmatchedError
from rnnconvert.graphs.program.kinds import MOVING, REPEATING
from rnnconvert.graphs.program.operations import Operation
from rnnconvert.graphs.program.products import product_of
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.recognition.cell import sides
from rnnconvert.recognition.expression import REVERSE, Leaf, Origin
from rnnconvert.recognition.trial import Match


class Use(NamedTuple):
    """A value of the old graph that the new node has to give.

    value  its name
    kind   "sequence": every state, "hidden" or "cell": a final one, "step": the state after one step
    axis   of time, for a sequence
    step   which, for a step
    rank   how many axes one state has: 2, or 3 with a first of length 1
    fill   of a layer with a mask, what stands for a step that does not count: the "state" before it, the "output" before it, which
           is zero at first, or "zero"
    """

    value: str
    kind: Literal["sequence", "hidden", "cell", "step"]
    axis: int = 0
    step: int = 0
    rank: int = 2
    fill: Literal["state", "output", "zero"] = "state"


class ReadSequence(NamedTuple):
    """A sequence that the layer reads.

    value  its name; "" where its elements stand for themselves
    width   how many features it has
    axis    of time
    steps   the elements by name, where there is no sequence
    window  the first step and the end, where not all are read
    """

    value: str
    width: int
    axis: int = 0
    steps: tuple[str, ...] = ()
    window: tuple[int, int] | None = None


class Mask(NamedTuple):
    """Which steps of each sequence count; the state stays at the others.

    value    truths for each step and sequence, with or without a last axis of length 1; or how many steps of each sequence count
    axis     of time
    rank     how many axes it has: 3, 2, or 1 for lengths
    negated  whether what holds at a step is that it does not count
    """

    value: str
    axis: int
    rank: int
    negated: bool


@dataclass(frozen=True, eq=False)
class RecognisedLayer:
    """A recurrent layer in other operators.

    label      what it is called: a node's name
    what       the operators that it is made of, in words
    direction  its weights
    reads      the sequences that it reads, side by side
    states     its initial states by letter: "h", "c"; a name of a value
    uses       what of it is used
    rank       how many axes a state has: 2, or 3 with a first of length 1
    processing whether its outputs stand in the order in which they were computed, although it reads from the end
    steps      how many steps are written out; None for a loop
    node       the Loop or Scan
    mask       which steps count; None for all
    zeros      what copies of the output begin with
    longest    the lengths after the longest of which a Loop ends; "" for one that runs all steps
    partly     why it does not begin a step earlier, where its first state comes from the cell's own matrices; "" otherwise
    """

    label: str
    what: str
    direction: Direction
    reads: Sequence[ReadSequence]
    states: Mapping[str, str]
    uses: Sequence[Use]
    rank: int = 2
    processing: bool = False
    steps: int | None = None
    node: Operation | None = None
    mask: Mask | None = None
    zeros: Sequence[str] = ()
    longest: str = ""
    partly: str = ""

    @property
    def operator(self) -> str:
        """The common operation that it is."""
        return {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}[self.direction.cell.kind]


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights of a cell, and what it reads.

    origins  the values of the input that the columns of the input matrices belong to, and how many each has
    """

    arrays: Mapping[Key, Array]
    origins: Mapping[Origin, int]


def weights(match: Match, hidden: str, scope: Scope) -> Weights:
    """Return the weights of a cell from its gates. Raises UnmatchedError for a gate that reads anything else.

    scope  the graph of the sequences that it reads
    """
    arrays: dict[Key, Array] = {}
    inputs: dict[str, list[tuple[Leaf, Array | None]]] = {}
    biases: dict[Key, Array] = {}
    size = 0
    for letter, piece in match.gates.items():
        gate, linear, sign = letter.rstrip("'"), sides(piece), match.signs[letter]
        size = linear.width
        for operand, matrix in linear.terms:
            # The operand of a candidate that resets before the product is a formula itself: r * h.
            nested = not isinstance(operand, Leaf)
            state = operand if isinstance(operand, Leaf) and operand.origin.state else None
            cell_state = (match.old is not None and operand.key == match.old.key) or (
                match.new is not None and operand.key == match.new.key
            )
            if cell_state and matrix is not None and matrix.ndim == 1 and gate != "g":
                if (gate == "o") != (match.new is not None and operand.key == match.new.key):
                    raise UnmatchedError(f"the peephole of gate {gate} sees the cell state of the wrong step")
                _add(arrays, ("peephole", gate), matrix * sign if sign < 0 else matrix)
            elif isinstance(operand, Leaf) and not operand.origin.state:
                # What the reset gate multiplies has no input in it.
                if letter == "n'" or (matrix is not None and matrix.ndim != 2):
                    raise UnmatchedError(f"gate {gate} reads the input in another way than a cell does")
                inputs.setdefault(gate, []).append((operand, matrix))
            elif matrix is not None and matrix.ndim == 2 and (nested or state is not None):
                if matrix.shape != (size, size) or (state is not None and state.origin.value != hidden):
                    raise UnmatchedError(f"the recurrent matrix of gate {gate} is {matrix.shape[::-1]} for {size} units")
                if nested != (gate == "n" and match.cell.kind == "gru" and not match.cell.reset_after):
                    raise UnmatchedError(f"gate {gate} reads the state in another way than a cell does")
                if match.cell.reset_after and letter == "n":
                    raise UnmatchedError("the candidate reads the state outside the reset gate")
                _add(arrays, ("recurrent", gate), matrix.T * sign if sign < 0 else matrix.T)
            else:
                raise UnmatchedError(f"gate {gate} reads the state in another way than a cell does")
        for bias, recurrent in linear.biases:
            # Of two biases that are summed anyway, the one beside the recurrent product is called recurrent.
            inside = letter == "n'" or (recurrent and not (match.cell.reset_after and letter == "n"))
            key = ("recurrent_bias" if inside else "input_bias", gate)
            if key in biases:
                biases[key] = biases[key] + sign * bias
            elif sign > 0:
                biases[key] = bias
            else:
                biases[key] = -bias
    for leaf, matrix in (term for terms in inputs.values() for term in terms):
        # The input is added to the gate without a matrix: an identity, unless its matrix is merely out of sight.
        if matrix is None:
            _check_read_as_it_is(scope, leaf.origin.value)
    origins = _origins(inputs)
    kinds = {array.dtype for array in arrays.values()}
    if not origins or len(kinds) != 1:
        raise UnmatchedError("it reads no input" if not origins else "its weights are of several types")
    dtype = kinds.pop()
    for gate in match.cell.gates:
        arrays[("input", gate)] = _columns(inputs.get(gate, []), origins, size, match.signs[gate], dtype)
        arrays.setdefault(("recurrent", gate), np.zeros((size, size), dtype))
    for part in ("input_bias", "recurrent_bias"):
        if any(key[0] == part for key in biases):
            for gate in match.cell.gates:
                arrays[part, gate] = biases.get((part, gate), np.zeros(size, dtype)).astype(dtype, copy=False)
    if any(part == "peephole" for part, _ in arrays):
        for gate in "ifo":
            arrays.setdefault(("peephole", gate), np.zeros(size, dtype))
    return Weights(arrays, origins)


_PASSED = (*MOVING, *REPEATING, "Cast", "Add", "Sub", "Mul", "Sum", "Neg")
_PRODUCTS = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm", "TransposeMatMul", "Einsum", "Conv", "FusedConv", "MatMulNBits", "MatMulInteger")


def _check_read_as_it_is(scope: Scope, value: str) -> None:
    """Raise UnmatchedError where what a gate reads without a matrix is a product: its matrix would be left out."""
    waiting, seen = [scope.resolve(value)], set()
    while waiting:
        place, name = waiting.pop()
        producer = None if (place, name) in seen else place.producer(name)
        seen.add((place, name))
        if producer is None or place.constant(name) is not None:
            continue
        node = producer[0]
        if node.kind in _PRODUCTS or product_of(place, node) is not None:
            raise UnmatchedError(
                f"it reads {value!r} without an input matrix of its own, and the product {node.name or node.outputs[0]!r} ({node.kind}) "
                "before it, which may be its input matrix, is in a form that is not followed (as an optimiser writes it): convert the "
                "file as it was before it was optimised"
            )
        if node.kind in _PASSED:
            waiting += [place.resolve(read) for read in node.inputs if read]


def _add(arrays: dict[Key, Array], key: Key, array: Array) -> None:
    if key in arrays:
        raise UnmatchedError(f"gate {key[1]} has two products with one state")
    arrays[key] = array


def _origins(inputs: Mapping[str, Sequence[tuple[Leaf, Array | None]]]) -> dict[Origin, int]:
    """Return every value of the input with its width, in the order in which gates read them."""
    widths: dict[Origin, int] = {}
    for terms in inputs.values():
        for leaf, _ in terms:
            widths[leaf.origin] = leaf.full_width
    return widths


def _columns(terms: Sequence[tuple[Leaf, Array | None]], origins: Mapping[Origin, int], size: int, sign: int, dtype: np.dtype) -> Array:
    """Return the input matrix of a gate: (units, all inputs side by side)."""
    if len(terms) == 1 and len(origins) == 1 and sign > 0:
        leaf, matrix = terms[0]
        if matrix is not None and (leaf.start, leaf.stop) == (0, origins[leaf.origin]):
            return matrix.T
    starts = dict(zip(origins, np.cumsum([0, *origins.values()]).tolist(), strict=False))
    # All inputs stand side by side, with zeros for those that this gate does not read.
    columns = np.zeros((size, sum(origins.values())), dtype)
    for leaf, matrix in terms:
        start = starts[leaf.origin] + leaf.start
        if matrix is None:
            matrix = np.eye(size, dtype=dtype)
        columns[:, start : start + leaf.width] += sign * matrix.T
    return columns


def reverse(origins: Mapping[Origin, int]) -> bool:
    """Return whether a loop reads its sequences from the end. Raises UnmatchedError if it does both."""
    ways = {origin.step == REVERSE for origin in origins}
    if len(ways) > 1:
        raise UnmatchedError("it reads one sequence forward and another one from its end")
    return ways.pop()
