"""The exact rewrites between cells: other weights, the same function.

Each is a named value with its mathematics, and a function that applies it to a stack. A rewrite
is bit-exact where it only moves, drops or adds zeros and signs, so that nothing is rounded;
otherwise it is exact in real numbers, and rounds like any arithmetic. Matrices are rewritten
lazily: never more than one gate's is computed at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.arrays import Array, Deferred, Source
from rnnconvert.cells import Activation
from rnnconvert.weights import BIAS_PARTS, GATE_PARTS, Direction, Key, Layer, Recurrent


@dataclass(frozen=True)
class Rewrite:
    """A rewrite as documentation.

    name         what reports call it
    mathematics  why the function stays the same
    bit_exact    whether the stored numbers are the source's own, or zeros, or their negatives
    needs        what must hold for it to apply
    """

    name: str
    mathematics: str
    bit_exact: bool
    needs: str = ""


@dataclass(frozen=True)
class Step:
    """A rewrite that was applied.

    rewrite  its name
    layer    the layer it was applied to
    detail   what was done, in words
    exact    whether nothing was rounded
    """

    rewrite: str
    layer: str
    detail: str
    exact: bool

    def __str__(self) -> str:
        where = f"{self.layer}: " if self.layer else ""
        return f"{where}{self.detail} ({'bit-exact' if self.exact else 'exact up to rounding'})"


REWRITES: dict[str, Rewrite] = {}


def _named(name: str, mathematics: str, bit_exact: bool, needs: str = "") -> Rewrite:
    REWRITES[name] = Rewrite(name, mathematics, bit_exact, needs)
    return REWRITES[name]


Change = Callable[[Direction], Direction]


def each(stack: Recurrent, change: Change) -> Recurrent:
    """The stack with every direction changed."""
    layers = tuple(Layer(tuple(change(d) for d in layer.directions), layer.merge) for layer in stack.layers)
    return stack.but(layers=layers)


def deferred(source: Source, change: Callable[[Array], Array]) -> Deferred:
    """`change` of each number, computed in at least single precision when it is asked for."""

    def of(numbers: Array) -> Array:
        return change(_wide(numbers)).astype(source.dtype, copy=False)

    return Deferred(
        tuple(source.shape),
        source.dtype,
        lambda: of(np.asarray(source)),
        lambda rows, columns: of(source[rows, columns]),
    )


Mix = Callable[[Array, slice], Array]
"""From some rows of a matrix, the same rows of another one, of which only some columns are wanted."""


def mixed(source: Source, mix: Mix, width: int) -> Deferred:
    """A matrix of that width whose rows come from those of another, in at least single precision."""

    def part(rows: slice, columns: slice) -> Array:
        return mix(_wide(source[rows, :]), columns).astype(source.dtype, copy=False)

    return Deferred((source.shape[0], width), source.dtype, lambda: part(slice(None), slice(None)), part)


def _wide(numbers: Array) -> Array:
    return numbers if numbers.dtype.itemsize == 8 else numbers.astype(np.float32, copy=False)


def _negated(source: Source) -> Source:
    return deferred(source, np.negative)


def _zeros(direction: Direction) -> Array:
    return np.zeros(direction.hidden_size, direction.dtype)


SUM_BIASES = _named(
    "sum biases",
    "W x + b_w + R h + b_r = W x + (b_w + b_r) + R h. Not for the candidate of a GRU with the reset gate after the "
    "product, n = act(W x + b_w + r * (R h + b_r)), unless its b_r is zero.",
    False,
    "a zero recurrent bias in the candidate of a GRU with reset_after",
)


def sum_biases(direction: Direction, gates: Collection[str] = (), into: str = "input_bias") -> Direction:
    """One bias, in `into`, of all gates or of those named; the recurrent one of a reset-after candidate must be zero.

    gates  where some are named, the other bias stays, and theirs in it is zero
    """
    (other,) = {*BIAS_PARTS} - {into}
    arrays: dict[Key, Source | None] = {}
    for gate in gates or direction.cell.gates:
        found = [a for a in (direction.get("input_bias", gate), direction.get("recurrent_bias", gate)) if a is not None]
        if len(found) == 2 and found[0].any() and found[1].any():
            total: Source = (found[0].astype(np.float64) + found[1].astype(np.float64)).astype(direction.dtype)
        else:
            total = next((a for a in found if a.any()), found[0])
        arrays[into, gate] = total
        arrays[other, gate] = _zeros(direction) if gates else None
    return direction.with_arrays(arrays)


def sums_exactly(direction: Direction, gates: Collection[str] = ()) -> bool:
    """Whether one of each gate's two biases is zero, so that their sum is not rounded; of all gates, or those named."""
    summed = gates or direction.cell.gates
    both = [(direction.get("input_bias", g), direction.get("recurrent_bias", g)) for g in summed]
    return all(a is None or b is None or not a.any() or not b.any() for a, b in both)


ZERO_BIASES = _named("add zero biases", "a + 0 = a: a bias vector that the target needs is written as zeros.", True)


def zero_biases(direction: Direction, parts: Sequence[str]) -> Direction:
    """The bias vectors named, as zeros where they are absent."""
    arrays: dict[Key, Source | None] = {
        (part, gate): _zeros(direction)
        for part in parts
        for gate in direction.cell.gates
        if (part, gate) not in direction.arrays
    }
    return direction.with_arrays(arrays)


def zero_state(direction: Direction, part: str) -> Direction:
    """The direction with an initial state of zeros, where it has none."""
    size = direction.output_size if part == "initial_hidden" else direction.hidden_size
    return direction.with_arrays({(part, ""): direction.arrays.get((part, ""), np.zeros(size, direction.dtype))})


FOLD_CONSTANTS = _named(
    "fold run-time constants",
    "gate(a + constant) with a = W x + b + R h is gate(W x + (b + constant) + R h): forget_bias goes into the bias.",
    False,
)


def fold_constants(direction: Direction, wanted: dict[str, float]) -> Direction:
    """The cell with `wanted` added at run time, the difference moved into the input bias."""
    changed = zero_biases(direction, ["input_bias"])
    arrays: dict[Key, Source | None] = {}
    for gate in direction.cell.gates:
        difference = direction.cell.constants.get(gate, 0.0) - wanted.get(gate, 0.0)
        bias = changed.get("input_bias", gate)
        if difference and bias is not None:
            arrays["input_bias", gate] = (bias.astype(np.float64) + difference).astype(direction.dtype)
    return changed.with_arrays(arrays).but(cell=direction.cell.but(constants=wanted))


COUPLED_GATE = _named(
    "write out the coupled gate",
    "1 - sigmoid(a) = sigmoid(-a), and likewise for hard_sigmoid with beta 0.5: the gate f = 1 - i is a gate of its "
    "own whose weights, biases and peephole are the negatives of i's.",
    False,
    "sigmoid, or hard_sigmoid with beta 0.5",
)


def write_out_coupled_gate(direction: Direction) -> Direction:
    """Two gates of their own in place of a coupled pair."""
    direction = weighted(direction)
    cell = direction.cell
    kept, written = ("i", "f") if cell.coupled == "f" else ("f", "i")
    arrays: dict[Key, Source | None] = {}
    for part in GATE_PARTS:
        source = direction.arrays.get((part, kept))
        arrays[part, written] = None if source is None else _negated(source)
    constants = {gate: value for gate, value in cell.constants.items() if gate != written}
    if constants.get(kept):
        constants[written] = -constants[kept]
    return direction.with_arrays(arrays).but(cell=cell.but(coupled="", constants=constants))


SCALE_HARD_SIGMOID = _named(
    "scale for the other hard_sigmoid",
    "clip(alpha a + beta) = clip(alpha' (k a + s) + beta') with k = alpha / alpha' and s = (beta - beta') / alpha': the "
    "gates' weights and biases are multiplied by k (1.2 from 0.2 x + 0.5 to x / 6 + 0.5), and s is added to the bias.",
    False,
    "no clip on the gates",
)


def scale_hard_sigmoid(direction: Direction, wanted: Activation, role: str) -> Direction:
    """The gates (`role` "gate_activation") or the candidate ("activation") through another hard_sigmoid."""
    direction = weighted(direction)
    cell = direction.cell
    own: Activation = getattr(cell, role)
    gates = cell.sigmoid_gates if role == "gate_activation" else tuple(set(cell.gates) - set(cell.sigmoid_gates))
    assert own.alpha and wanted.alpha and own.beta is not None and wanted.beta is not None
    factor = own.alpha / wanted.alpha
    arrays: dict[Key, Source | None] = {
        (part, gate): deferred(source, lambda array: array * array.dtype.type(factor))
        for (part, gate), source in direction.arrays.items()
        if gate in gates
    }
    constants = {gate: value * (factor if gate in gates else 1) for gate, value in cell.constants.items()}
    changed = direction.with_arrays(arrays)
    shift = (own.beta - wanted.beta) / wanted.alpha
    changed = changed.but(cell=cell.but(**{role: wanted, "constants": constants}))
    if abs(shift) > 1e-12:
        offsets = {gate: constants.get(gate, 0.0) + shift for gate in gates}
        changed = fold_constants(changed.but(cell=changed.cell.but(constants={**constants, **offsets})), constants)
    return changed


DROP_ZEROS = _named("drop zeros", "A peephole or an initial state of zeros adds nothing.", True, "every value is zero")


def drop(direction: Direction, part: str) -> Direction:
    """The direction without a part."""
    return direction.with_arrays({key: None for key in direction.arrays if key[0] == part})


FOLD_PROJECTION = _named(
    "fold the projection",
    "With h = P m, R h = (R P) m, and W h = (W P) m in the layer above: a cell without projection gives m, and P is left "
    "as a matrix on the last layer's output and on its final states.",
    False,
    "no clip on the projection, no learned initial state",
)


def fold_projection(stack: Recurrent) -> Recurrent:
    """A stack without projections, with the last layer's as its readout."""
    layers: list[Layer] = []
    below: list[Source] = []
    for layer in stack.layers:
        changed = []
        for number, direction in enumerate(layer.directions):
            feeds = below if stack.join == "layer" else below[number : number + 1]
            changed.append(_fold_direction(direction, feeds))
        layers.append(Layer(tuple(changed), layer.merge))
        below = [d.arrays["projection", ""] for d in layer.directions]
    return stack.but(layers=tuple(layers), readout=tuple(below))


def _fold_direction(direction: Direction, feeds: Sequence[Source]) -> Direction:
    own = direction.arrays["projection", ""]
    hidden = direction.hidden_size
    arrays: dict[Key, Source | None] = {("projection", ""): None}
    for gate in direction.cell.gates:
        recurrent = direction.arrays["recurrent", gate]
        arrays["recurrent", gate] = mixed(recurrent, lambda r, columns: _through(r, [own], columns), hidden)
        weight = direction.arrays.get(("input", gate))
        if feeds and weight is not None:
            width = sum(feed.shape[1] for feed in feeds)
            arrays["input", gate] = mixed(weight, lambda w, columns: _through(w, feeds, columns), width)
    return direction.with_arrays(arrays)


def _through(weight: Array, feeds: Sequence[Source], columns: slice) -> Array:
    """Some columns of a weight times the matrices, side by side, that what it reads has gone through."""
    first, last, _ = columns.indices(sum(feed.shape[1] for feed in feeds))
    blocks, row, column = [], 0, 0
    for feed in feeds:
        inside = slice(max(first - column, 0), max(last - column, 0))
        right = feed[:, inside].astype(weight.dtype, copy=False)
        blocks.append(weight[:, row : row + feed.shape[0]] @ right)
        row, column = row + feed.shape[0], column + feed.shape[1]
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)


WRITE_IDENTITY = _named("write the skipped input as identity", "x = I x for every gate of the layer.", True)


def write_identity(direction: Direction) -> Direction:
    """Identity matrices in place of an input that is read unweighted."""
    size, dtype = direction.hidden_size, direction.dtype

    def identity(rows: slice, columns: slice) -> Array:
        numbers = np.arange(size)
        return np.equal.outer(numbers[rows], numbers[columns]).astype(dtype)

    arrays: dict[Key, Source | None] = {
        ("input", gate): Deferred((size, size), dtype, lambda: np.eye(size, dtype=dtype), identity)
        for gate in direction.cell.gates
    }
    return direction.with_arrays(arrays)


def weighted(direction: Direction) -> Direction:
    """The direction with weights for its input: identity matrices, where it reads that unweighted."""
    return write_identity(direction) if direction.skip_input else direction


DROP_IDENTITY = _named(
    "leave out identities of the input", "I x = x: a cell that adds its input unweighted computes the same.", True,
    "every gate's input matrix is the identity",
)  # fmt: skip


MOVE_RESET_GATE = _named(
    "move the reset gate",
    "R (r * h) = r * (R h) where R is diagonal (always with one unit).",
    True,
    "a diagonal candidate matrix, and a zero recurrent bias in it",
)


def move_reset_gate(direction: Direction) -> Direction:
    """The other GRU, for a diagonal candidate matrix: its bias outside the reset product."""
    after = not direction.cell.reset_after
    changed = direction.but(cell=direction.cell.but(reset_after=after))
    if not after or direction.biases in ("none", "input"):
        return changed
    summed = sum_biases(direction)
    return summed.but(cell=changed.cell)


JOIN_WITH_ZEROS = _named(
    "write independent directions with zeros",
    "Two stacks that meet only at the end are one stack that joins at every layer, whose weights on the other "
    "direction's outputs are zero: W x_f = [W 0] [x_f; x_b].",
    True,
    "finite outputs in the lower layers",
)


def join_with_zeros(stack: Recurrent) -> Recurrent:
    """A stack whose directions join at every layer, from one whose directions join at the end."""
    layers = [Layer(stack.layers[0].directions, "concat")]
    for layer in stack.layers[1:]:
        sizes = [d.output_size for d in layers[-1].directions]
        changed = [
            _widen(weighted(direction), sum(sizes[:number]), sum(sizes))
            for number, direction in enumerate(layer.directions)
        ]
        layers.append(Layer(tuple(changed), "concat"))
    layers[-1] = Layer(layers[-1].directions, stack.layers[-1].merge)
    return stack.but(layers=tuple(layers), join="layer")


def _widen(direction: Direction, start: int, width: int) -> Direction:
    def widened(weight: Array, columns: slice) -> Array:
        wide = np.zeros((weight.shape[0], width), weight.dtype)
        wide[:, start : start + weight.shape[1]] = weight
        return wide[:, columns]

    arrays: dict[Key, Source | None] = {
        ("input", gate): mixed(direction.arrays["input", gate], widened, width) for gate in direction.cell.gates
    }
    return direction.with_arrays(arrays)


FOLD_MERGE = _named(
    "fold the sum of directions",
    "W (x_f + x_b) = [W W] [x_f; x_b], and W (x_f + x_b) / 2 = [W/2 W/2] [x_f; x_b] in the layer above.",
    False,
    "directions summed or averaged below the last layer",
)


def fold_merges(stack: Recurrent) -> Recurrent:
    """Every layer below the last concatenates; sums and averages have gone into the weights above."""
    layers = list(stack.layers)
    for index in range(len(layers) - 1):
        merge, size = layers[index].merge, layers[index].output_size
        if merge not in ("sum", "ave"):
            continue
        factor = 0.5 if merge == "ave" else 1.0

        def doubled(weight: Array, columns: slice, factor: float = factor) -> Array:
            both: Array = np.concatenate([weight, weight], axis=1)[:, columns] * weight.dtype.type(factor)
            return both

        above = []
        for direction in map(weighted, layers[index + 1].directions):
            arrays: dict[Key, Source | None] = {
                ("input", gate): mixed(direction.arrays["input", gate], doubled, 2 * size)
                for gate in direction.cell.gates
            }
            above.append(direction.with_arrays(arrays))
        layers[index] = Layer(layers[index].directions, "concat")
        layers[index + 1] = Layer(tuple(above), layers[index + 1].merge)
    return stack.but(layers=tuple(layers))


JOIN_STACK = _named("join layers into one stack", "Layers that read one another are one stack.", True)
SPLIT_STACK = _named("split a stack into layers", "A stack is its layers, each reading the one below.", True)
SPLIT_DIRECTIONS = _named(
    "split directions",
    "Two directions of one layer are two layers that read the same input; the caller joins their outputs.",
    True,
)


def join_stack(stacks: Sequence[Recurrent], name: str = "") -> Recurrent:
    """One stack from stacks that read one another, first to last.

    Raises ValueError if a width differs from what is read, or if what lies between them cannot be joined:
    a folded projection, outputs in processing order.
    """
    for stack in stacks[:-1]:
        if stack.readout or stack.output_order != "time":
            raise ValueError(f"{stack.name!r} cannot be joined to what follows: its output is not its layer's own")
    if len(stacks) > 1:
        stacks = [join_with_zeros(s) if s.join == "end" and s.num_layers > 1 else s for s in stacks]
    layers = tuple(layer for stack in stacks for layer in stack.layers)
    joined = name or "+".join(stack.name for stack in stacks)
    beyond = tuple(one for stack in stacks for one in stack.beyond)
    join = stacks[0].join if len(stacks) == 1 else "layer"
    return stacks[-1].but(name=joined, layers=layers, join=join, beyond=beyond)


def split_stack(stack: Recurrent) -> list[Recurrent]:
    """One stack for each layer, named after the layer's number."""
    if stack.num_layers == 1:
        return [stack]
    if stack.join == "end":
        stack = join_with_zeros(stack)
    last = stack.num_layers - 1
    return [
        Recurrent(
            f"{stack.name}_l{index}",
            (layer,),
            output_order=stack.output_order if index == last else "time",
            readout=stack.readout if index == last else (),
            beyond=stack.beyond,
        )
        for index, layer in enumerate(stack.layers)
    ]


def split_directions(stack: Recurrent) -> list[Recurrent]:
    """A forward and a backward stack, from one layer or from directions that meet only at the end.

    Raises ValueError for a deep stack whose directions meet at every layer.
    """
    if stack.num_directions == 1:
        return [stack]
    if stack.num_layers > 1 and stack.join == "layer":
        raise ValueError(f"{stack.name!r}: its directions meet at every layer; split it into layers first")
    return [
        Recurrent(
            f"{stack.name}_{word}",
            tuple(Layer((layer.directions[number],)) for layer in stack.layers),
            readout=stack.readout[number : number + 1],
            beyond=stack.beyond,
        )
        for number, word in enumerate(("forward", "backward"))
    ]


def largest(array: Any) -> tuple[float, tuple[int, ...]]:
    """The value of largest magnitude and its index, to be named in a refusal."""
    values = np.asarray(array).astype(np.float64)
    index = np.unravel_index(int(np.argmax(np.abs(np.nan_to_num(values, nan=np.inf)))), values.shape)
    return float(values[index]), tuple(int(i) for i in index)
