"""Random stacks in canonical form: of given sizes, of what a layout holds, or of everything that a stack can be.

A `Draw` makes each of them from one seed; a `Variety` says what it chooses from.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3, PEEPHOLE_GATES, RELU, SIGMOID, TANH, Activation, Cell, Clip
from rnnconvert.core.weights import BIAS_PARTS, Direction, Key, Layer, Recurrent, gates_of
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import assemble
from rnnconvert.rewrites import each

T = TypeVar("T")

PLAIN = frozenset({"input", "recurrent"})
BOTH = PLAIN | frozenset(BIAS_PARTS)

FUNCTIONS = (
    TANH, TANH, TANH, SIGMOID, RELU, Activation("linear"), Activation("softsign"), Activation("softplus"),
    Activation("elu"), Activation("elu", 0.7), Activation("selu"), Activation("leaky_relu", 0.2),
    Activation("leaky_relu", 0.05), Activation("gelu"), Activation("silu"), Activation("hard_sigmoid", 0.2, 0.5),
    Activation("hard_sigmoid", 1 / 6, 0.5), Activation("hard_sigmoid", 0.3, 0.4), Activation("affine", 0.5, 0.1),
    Activation("scaled_tanh", 0.8, 0.6), Activation("thresholded_relu", 0.25),
)  # fmt: skip
GATE_FUNCTIONS = (
    SIGMOID, SIGMOID, SIGMOID, SIGMOID, Activation("hard_sigmoid", 0.2, 0.5), Activation("hard_sigmoid", 1 / 6, 0.5),
    Activation("hard_sigmoid", 0.25, 0.4), Activation("softsign"), TANH,
)  # fmt: skip

STATE_CLIPS = tuple(Clip(kind, -0.3, 0.4) for kind in ("cell", "state", "projection"))

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Variety:
    """What stacks are drawn from. A sequence has each of its values as often as it stands there; a number is a chance.

    depths       how many layers
    sizes        hidden sizes
    inputs       input sizes; 0 for the hidden size
    projections  of an LSTM, in parts of the hidden size; 0 for none
    functions    of the candidates; gate_functions of the gates
    standard     whether a cell has the usual functions
    gate_clips   how often the gates are clipped, and to what
    state_clips  how often an LSTM's cell, state or projection is clipped, and how
    coupled      coupled gates of an LSTM
    constant     how often a gate has a constant added, and which
    parts        chances of which a stack draws one for each optional part, so that all, some or none of its directions have it;
                 zeros likewise for zeros in it, diagonal for diagonal recurrent matrices
    alone        whether only the candidate's matrix is diagonal
    matrix       what the input goes through where it is as wide as the layer: a "matrix", the "identity", or nothing: "skip"
    merges       of the directions
    one_merges   whether a layer of one direction has one of these, too
    end          whether directions meet only after the last layer
    order        whether outputs come in the order of processing; where a single direction reads backwards every other time
    alike        whether all directions have one cell; else, one_kind: whether these are of one kind
    one_size     whether all layers and directions have one size
    in_order     whether the second direction of two is the backward one
    backward     whether a single direction reads backwards
    """

    depths: Sequence[int] = (1, 1, 2, 3)
    sizes: Sequence[int] = (1, 3, 4)
    inputs: Sequence[int] = (2, 0)
    projections: Sequence[float] = (0, 0, 0, 0.75, 1)
    functions: Sequence[Activation] = FUNCTIONS
    gate_functions: Sequence[Activation] = GATE_FUNCTIONS
    standard: float = 0.5
    gate_clips: tuple[float, Sequence[Bounds]] = (0.1, ((-0.4, 0.4), (-0.4, 0.4), (-0.4, 0.7)))
    state_clips: tuple[float, Sequence[Clip]] = (0.1, STATE_CLIPS)
    coupled: Sequence[Literal["", "f", "i"]] = ("", "", "", "f", "i")
    constant: tuple[float, float] = (0.05, 1.0)
    parts: Sequence[float] = (0, 0, 0, 0.5, 1)
    zeros: Sequence[float] = (0, 0, 0.5, 1)
    diagonal: Sequence[float] = (0, 0, 0.5, 1)
    alone: float = 0.3
    matrix: Sequence[str] = ("matrix", "matrix", "matrix", "skip", "identity")
    merges: Sequence[str] = ("concat", "concat", "concat", "sum", "sum", "ave", "ave", "mul", "none")
    one_merges: bool = False
    end: float = 0.3
    order: float = 0.05
    alike: float = 0.7
    one_kind: float = 0.9
    one_size: float = 0.85
    in_order: float = 0.85
    backward: float = 0.25


HARD = tuple(Activation("hard_sigmoid", *constants) for constants in ((0.2, 0.5), (1 / 6, 0.5), (0.2, 0.4)))
"""Functions that some rewrites take for one another, and others not at all."""

ON_THE_EDGE = Variety(
    depths=(1, 2), sizes=(4,), inputs=(3, 0), projections=(0, 0.5, 1), functions=(TANH, HARD[0], HARD[2]),
    gate_functions=(SIGMOID, *HARD, HARD[2]), standard=0,
    gate_clips=(0.6, ((-0.3, 0.3), (-0.1, 0.4), (-np.inf, np.inf))),
    state_clips=(0.5, (*[Clip("projection", -0.05, 0.05)] * 3, Clip("cell", -1, 1.5), Clip("state", -1, 1.5))),
    coupled=("", "f", "i"), constant=(0.2, 0.5), parts=(0, 0, 1), zeros=(0, 0, 1), diagonal=(0, 1, 1), alone=0.7,
    merges=("concat", "sum", "ave", "mul"), one_merges=True, end=0.45, alike=1, one_size=1,
)  # fmt: skip
"""Stacks that meet the condition of a rewrite or just miss it. Their directions are alike: a rewrite is asked of all."""


@dataclass(frozen=True)
class _Plan:
    """What the directions of one stack have in common: the biases, the chance of each part, and of zeros in it."""

    biases: str
    projection: float
    parts: Mapping[str, float]
    zeros: Mapping[str, float]
    diagonal: float
    alone: bool


class Draw:
    """Random stacks, which one seed decides.

    choice   what is drawn; `numbers` the numbers of the arrays
    dtype    their element type
    scale    how large they are: with 1 nothing saturates
    """

    def __init__(self, seed: int, dtype: Any = np.float32, scale: float = 1) -> None:
        self.choice, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.dtype, self.scale = dtype, scale

    def often(self, chance: float) -> bool:
        return self.choice.random() < chance

    def pick(self, values: Sequence[T]) -> T:
        return self.choice.choice(values)

    def array(self, *shape: int) -> Array:
        spread = 1 / np.sqrt(shape[-1]) if len(shape) == 2 else 0.5
        return np.asarray(self.numbers.uniform(-1, 1, shape) * spread * self.scale).astype(self.dtype)

    # Of given sizes -------------------------------------------------------------------------------------

    def filled(self, form: Sizes, cell: Cell | None = None) -> Recurrent:
        """A stack of that form, biases and all."""
        stack_arrays: dict[tuple[int, int], dict[Key, Source]] = {}
        for layer in range(form.num_layers):
            for direction in range(form.num_directions):
                arrays: dict[Key, Source] = {}
                for part in sorted(form.parts):
                    shape = form.shape(layer, part)
                    if shape is not None:
                        arrays |= {(part, gate): self.array(*shape) for gate in gates_of(form.kind, part)}
                stack_arrays[layer, direction] = arrays
        plain = Cell(form.kind, True if form.kind == "gru" else None)  # type: ignore[arg-type]
        return assemble("random", cell or plain, stack_arrays, form.num_directions)

    # Of a layout ----------------------------------------------------------------------------------------

    def held(self, layout: Layout, mixed: bool = True) -> Recurrent:
        """A stack that a layout holds; mixed: with constants and functions that it may not state."""
        sizes = self._sizes(layout)
        cell = layout.cell
        if mixed and self.often(0.3):
            cell = cell.replace(constants={"f": 1.0} if layout.kind == "lstm" and self.often(0.7) else {})
        if mixed and self.often(0.25):
            activation = Activation(self.pick(("tanh", "relu", "softsign", "elu")))
            cell = cell.replace(
                activation=activation,
                gate_activation=self.pick((cell.gate_activation, HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3)),
                output_activation=activation if layout.kind == "lstm" else cell.output_activation,
            )
        return each(self.filled(sizes, cell), lambda d: _in_place(layout, d))

    def _sizes(self, layout: Layout) -> Sizes:
        mode = self.pick(layout.holds.biases)
        biases = {"none": set(), "input": {"input_bias"}, "recurrent": {"recurrent_bias"}, "both": set(BIAS_PARTS)}[mode]
        optional = {part for part in ("peephole", "initial_hidden", "initial_cell", "projection") if part in layout.part_names}
        if self.often(0.5):
            optional -= {"initial_hidden", "initial_cell"}
        if self.often(0.5) or not any(t.part_names & {"peephole"} == t.part_names for t in layout.tensors):
            optional -= {"peephole", "projection"}
        parts = ({"input", "recurrent"} & (layout.part_names | {"recurrent"})) | (biases & layout.part_names) | optional
        size = self.choice.randint(3, 7)
        skip = "input" not in layout.part_names
        return Sizes(
            layout.kind, size if skip else self.choice.randint(2, 7), size,
            self.pick((1, 1, 2)) if layout.holds.layers and not skip else 1,
            self.pick((1, 2)) if layout.holds.directions == 2 and _names_directions(layout) else 1,
            self.choice.randint(2, size - 1) if "projection" in optional else 0, frozenset(parts), skip,
        )  # fmt: skip

    # Of everything --------------------------------------------------------------------------------------

    def stack(self, variety: Variety) -> Recurrent:
        kind = self.pick(("rnn", "gru", "lstm", "lstm"))
        count, ways, hidden = self.pick(variety.depths), self.pick((1, 2)), self.pick(variety.sizes)
        alike, same_kind, same_size = (self.often(c) for c in (variety.alike, variety.one_kind, variety.one_size))
        in_order, backward = self.often(variety.in_order), self.often(variety.backward)
        optional = ("peephole", "initial_hidden", "initial_cell")
        plan = _Plan(
            self.pick(("none", "input", "recurrent", "both", "both")), self.pick(variety.projections),
            {part: self.pick(variety.parts) for part in optional},
            {part: self.pick(variety.zeros) for part in (*optional, *BIAS_PARTS, "candidate's recurrent_bias")},
            self.pick(variety.diagonal), self.often(variety.alone),
        )  # fmt: skip
        cell, matrix = self.cell(kind, variety), self.pick(variety.matrix)
        join: Any = "end" if self.often(variety.end) else "layer"
        width = first = self.pick(variety.inputs) or hidden
        layers: list[Layer] = []
        for index in range(count):
            merge: Any = self.pick(variety.merges) if ways == 2 or variety.one_merges else "concat"
            directions: list[Direction] = []
            for number in range(ways):
                direction_cell = cell if alike else self.cell(kind if same_kind else self.pick(("gru", "lstm", "rnn")), variety)
                fixed = same_size or (matrix != "matrix" and first == hidden)
                size = hidden if fixed else self.pick((hidden, hidden + 1))
                if merge in ("sum", "mul", "ave") and directions:
                    size = directions[0].hidden_size
                if index:
                    below = layers[-1]
                    width = below.directions[number].output_size if join == "end" else below.output_size
                reverse = number == 1 if ways == 2 else backward
                reverse = reverse if in_order else self.often(0.5)
                through = matrix if width == size else "matrix"
                directions.append(Direction(direction_cell, self.arrays(direction_cell, (size, width), through, plan), reverse))
            if len({d.output_size for d in directions}) > 1:
                merge = "concat"
            layers.append(Layer(tuple(directions), merge))
        order: Any = "processing" if self.often(0.5 if backward and ways == 1 else variety.order) else "time"
        return Recurrent("layer", tuple(layers), join, order)

    def cell(self, kind: Any, variety: Variety) -> Cell:
        standard, is_lstm = self.often(variety.standard), kind == "lstm"
        act = TANH if standard else self.pick(variety.functions)
        clips: list[Clip] = []
        chance, bounds = variety.gate_clips
        if self.often(chance):
            clips.append(Clip("gates", *self.pick(bounds)))
        chance, states = variety.state_clips
        if is_lstm and self.often(chance):
            clips.append(self.pick(states))
        chance, value = variety.constant
        reset_after = self.often(0.6) if kind == "gru" else None
        return Cell(
            kind,
            reset_after,
            act,
            SIGMOID if standard or kind == "rnn" else self.pick(variety.gate_functions),
            (act if self.often(0.8) else self.pick(variety.functions)) if is_lstm else TANH,
            self.pick(variety.coupled) if is_lstm else "",
            {gate: value for gate in Cell(kind, reset_after).gates if self.often(chance)},
            tuple(clips),
        )

    def arrays(self, cell: Cell, sizes: tuple[int, int], through: str, plan: _Plan) -> dict[Key, Source]:
        """The arrays of a direction with a hidden and an input size."""
        (hidden, width), is_lstm = sizes, cell.kind == "lstm"
        projection = max(1, int(hidden * plan.projection)) if is_lstm and plan.projection else 0
        out = projection or hidden
        zero = {part for part, chance in plan.zeros.items() if self.often(chance)}
        diagonal = self.often(plan.diagonal) and not projection
        drawn: dict[Key, Array] = {}
        for gate in cell.gates:
            if through != "skip":
                drawn["input", gate] = self.array(hidden, width)
            if through == "identity":
                drawn["input", gate] = np.eye(hidden, dtype=self.dtype)
            drawn["recurrent", gate] = self.array(hidden, out)
            if diagonal and (gate == "n" or not plan.alone):
                drawn["recurrent", gate] = np.diag(np.diag(drawn["recurrent", gate]))
            for part in BIAS_PARTS:
                if plan.biases in ("both", part.removesuffix("_bias")):
                    drawn[part, gate] = self.array(hidden)
        if is_lstm and self.often(plan.parts["peephole"]):
            drawn |= {("peephole", gate): self.array(hidden) for gate in PEEPHOLE_GATES}
        if projection:
            drawn["projection", ""] = self.array(projection, hidden)
        for part, size in (("initial_hidden", out), ("initial_cell", hidden)):
            if self.often(plan.parts[part]) and (part == "initial_hidden" or is_lstm):
                drawn[part, ""] = self.array(size)
        gone = [(part, gate) for part, gate in drawn if part in zero]
        gone += [("recurrent_bias", "n")] if "candidate's recurrent_bias" in zero and ("recurrent_bias", "n") in drawn else []
        return {**drawn, **{key: np.zeros_like(drawn[key]) for key in gone}}


def _names_directions(layout: Layout) -> bool:
    """Whether its arrays hold two directions, or have names for them."""
    words = [(tensor.axes.replace("(", " ").replace(")", " ").split(), tensor.name) for tensor in layout.tensors]
    return all("direction" in axes or "direction}" in name or "pseudo" in name for axes, name in words)


def _in_place(layout: Layout, direction: Direction) -> Direction:
    """A direction with zeros where the layout has no place, and shared arrays equal."""
    arrays = dict(direction.arrays)
    for part, gate in arrays:
        if part in BIAS_PARTS and (part, gate) not in layout.keys and gate != layout.coupled:
            arrays[part, gate] = np.zeros(arrays[part, gate].shape, np.float32)
    if len(set(layout.letters.split())) < len(layout.letters.split()):
        arrays |= {(part, "z"): arrays[part, "r"] for part, gate in arrays if gate == "z"}
    return direction.with_arrays(arrays)


def random_stack(form: Sizes, seed: int, dtype: Any = np.float64, cell: Cell | None = None, scale: float = 1) -> Recurrent:
    """A stack of that form with random numbers, biases and all, small enough not to saturate."""
    return Draw(seed, dtype, scale).filled(form, cell)


def backwards(stack: Recurrent, order: Literal["time", "processing"] = "time") -> Recurrent:
    """The same directions, each read from the end."""
    return each(stack, lambda direction: direction.replace(reverse=True)).replace(output_order=order)


def mistaken(layout: Layout) -> Iterator[Layout]:
    """The same arrays with two gates taken for each other, for every two."""
    gates = layout.gates.split()
    for gate, other in itertools.combinations(range(len(gates)), 2):
        wrong = list(gates)
        wrong[gate], wrong[other] = gates[other], gates[gate]
        yield dataclasses.replace(layout, gates=" ".join(wrong), letters=layout.letters or layout.gates.replace("-", ""))


def with_functions(layout: Layout) -> list[Cell]:
    """The cell of a layout; of a plain RNN that with relu, too."""
    return [layout.cell, layout.cell.replace(activation=RELU)] if layout.kind == "rnn" else [layout.cell]


def random_states(form: Sizes, batch: int, seed: int, dtype: Any = np.float64) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Random initial states of such a stack: hidden, and cell."""
    rng = np.random.default_rng(seed)
    count = form.num_layers * form.num_directions
    hidden = tuple(rng.uniform(-1, 1, (batch, form.output_size)).astype(dtype) for _ in range(count))
    return hidden, tuple(rng.uniform(-1, 1, (batch, form.hidden_size)).astype(dtype) for _ in range(count))


def cell_of(layout: Layout) -> Cell:
    """The cell that a layout's arrays are of where nothing else is said."""
    return layout.cell
