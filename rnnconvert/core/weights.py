"""The canonical form: one array for each gate and part, for any stack of layers and directions.

Every array of one direction of one layer is found by (part, gate):

    input            (hidden, in)    W, acts on the input        one for each gate
    recurrent        (hidden, out)   R, acts on the state h      one for each gate
    input_bias       (hidden,)       added with W x              one for each gate, or absent
    recurrent_bias   (hidden,)       added with R h              one for each gate, or absent
    peephole         (hidden,)       times the cell state        gates i f o, or absent
    projection       (out, hidden)   h' = projection @ h'        one, or absent
    initial_hidden   (out,)          learned state at time 0     one, or absent (zero)
    initial_cell     (hidden,)       likewise                    one, or absent

Objects that hold arrays compare by identity: comparing numbers needs a tolerance.

`hidden` is hidden_size, `in` what the layer reads, `out` what a direction gives: hidden_size, or
the projection's rows. The arrays are views of the source's memory wherever that is possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias, overload

import numpy as np

from rnnconvert.core.arrays import Array, Source, widest
from rnnconvert.core.cells import GATES, PEEPHOLE_GATES, Cell
from rnnconvert.core.errors import NoSuchLayerError, UsageError
from rnnconvert.core.names import Named
from rnnconvert.core.printable import called, quoted

Key = tuple[str, str]
"""(part, gate), with the gate "" for the parts that have none."""

GATE_PARTS = ("input", "recurrent", "input_bias", "recurrent_bias", "peephole")
BIAS_PARTS = ("input_bias", "recurrent_bias")

Biases = Literal["none", "input", "recurrent", "both"]
Merge = Literal["concat", "sum", "mul", "ave", "none"]


def gates_of(kind: str, part: str) -> tuple[str, ...]:
    """Return the gates that a part has an array for; ("",) for a part without gates."""
    if part == "peephole":
        return PEEPHOLE_GATES if kind == "lstm" else ()
    return GATES[kind] if part in GATE_PARTS else ("",)


class Gate:
    """One gate's arrays, by name; a part that the cell lacks is None."""

    def __init__(self, letter: str, arrays: Mapping[Key, Source]) -> None:
        self.letter = letter
        self._arrays = arrays

    def _part(self, part: str) -> Array | None:
        source = self._arrays.get((part, self.letter))
        return None if source is None else np.asarray(source)

    @property
    def input(self) -> Array | None:
        """W, (hidden, in); None where the layer reads its input unweighted (cuDNN's skip input)."""
        return self._part("input")

    @property
    def recurrent(self) -> Array:
        """R, (hidden, out)."""
        return np.asarray(self._arrays["recurrent", self.letter])

    @property
    def input_bias(self) -> Array | None:
        """Bias added with W x, (hidden,)."""
        return self._part("input_bias")

    @property
    def recurrent_bias(self) -> Array | None:
        """Bias added with R h, (hidden,)."""
        return self._part("recurrent_bias")

    @property
    def peephole(self) -> Array | None:
        """Weights of the cell state in this gate, (hidden,)."""
        return self._part("peephole")

    def __repr__(self) -> str:
        parts = [f"{part}{self._arrays[part, self.letter].shape}" for part in GATE_PARTS if (part, self.letter) in self._arrays]
        return f"<Gate {self.letter}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        """Return a table of the gate's arrays, each as a picture, for a notebook."""
        from rnnconvert.core.notebook import listing, pictured

        arrays = [(part, array) for part in GATE_PARTS if (array := self._part(part)) is not None]
        return listing(f"Gate {self.letter}", [(part, pictured(array)) for part, array in arrays])


@dataclass(frozen=True, repr=False, eq=False)
class Direction:
    """One direction of one layer: a cell and its arrays.

    cell     what it computes
    arrays   the arrays by (part, gate): see the module
    reverse  whether it reads the sequence from its end; its outputs stand at the time they belong to
    """

    cell: Cell
    arrays: Mapping[Key, Source]
    reverse: bool = False

    @property
    def gates(self) -> dict[str, Gate]:
        """The gates by their canonical letters."""
        return Named("gate", {gate: Gate(gate, self.arrays) for gate in self.cell.gates})

    def rows(self) -> list[tuple[str, str]]:
        """Return a table's rows for its gates: the direction with the gate's letter, and the gate's recurrent matrix."""
        from rnnconvert.core.notebook import pictured

        way = "backward" if self.reverse else "forward"
        return [(f"{way}, gate {letter}: recurrent", pictured(gate.recurrent)) for letter, gate in self.gates.items()]

    def _shape(self, part: str) -> tuple[int, ...] | None:
        source = self.arrays.get((part, gates_of(self.cell.kind, part)[0]))
        return None if source is None else source.shape

    @property
    def hidden_size(self) -> int:
        """The number of units of the cell. Raises UsageError for a direction without a recurrent matrix."""
        first = self.arrays.get(("recurrent", self.cell.gates[0]))
        if first is None:
            raise UsageError(f"recurrent of gate {self.cell.gates[0]} is missing")
        return first.shape[0]

    @property
    def input_size(self) -> int:
        """Width of what it reads at each step."""
        shape = self._shape("input")
        return self.hidden_size if shape is None else shape[1]

    @property
    def projection_size(self) -> int:
        """Width of the projected state, 0 where there is no projection."""
        shape = self._shape("projection")
        return 0 if shape is None else shape[0]

    @property
    def output_size(self) -> int:
        """Width of what it gives at each step."""
        return self.projection_size or self.hidden_size

    @property
    def biases(self) -> Biases:
        """Which bias vectors there are."""
        input_bias, recurrent_bias = ((part, self.cell.gates[0]) in self.arrays for part in BIAS_PARTS)
        if input_bias:
            return "both" if recurrent_bias else "input"
        return "recurrent" if recurrent_bias else "none"

    @property
    def skip_input(self) -> bool:
        """Whether the input is added to every gate unweighted."""
        return self._shape("input") is None

    @property
    def has_peepholes(self) -> bool:
        """Whether any gate sees the cell state."""
        return any(part == "peephole" for part, _ in self.arrays)

    @property
    def dtype(self) -> np.dtype:
        """Element type of the arrays; the one that holds all of them exactly, where they have several."""
        return widest(source.dtype for source in self.arrays.values())

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The element types of the arrays: one, unless the source mixes them."""
        return tuple(sorted({str(source.dtype.newbyteorder("=")) for source in self.arrays.values()}))

    def get(self, part: str, gate: str = "") -> Array | None:
        """Return the numbers of a part, computed if need be, or None where it is absent."""
        source = self.arrays.get((part, gate))
        return None if source is None else np.asarray(source)

    def replace(self, **changes: object) -> Direction:
        """Return this direction with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def with_arrays(self, arrays: Mapping[Key, Source | None]) -> Direction:
        """Return this direction with some arrays replaced, or removed where the new one is None."""
        merged = {**self.arrays, **arrays}
        return replace(self, arrays={key: value for key, value in merged.items() if value is not None})

    def check(self) -> None:
        """Check that every array has the shape that the others imply.

        Raises ValueError naming the part, the gate, the shape found and the shape expected.
        """
        kind, hidden, out = self.cell.kind, self.hidden_size, self.output_size
        expected: dict[str, tuple[int, ...]] = {
            "input": (hidden, self.input_size),
            "recurrent": (hidden, out),
            "projection": (self.projection_size, hidden),
            "initial_hidden": (out,),
        }
        for (part, gate), source in self.arrays.items():
            want = expected.get(part, (hidden,))
            if gate not in gates_of(kind, part):
                raise UsageError(f"a {kind} has no {part} of gate {gate!r}")
            if tuple(source.shape) != want:
                where = f"{part} of gate {gate}" if gate else part
                raise UsageError(f"{where} has shape {tuple(source.shape)}, expected {want}")
        for part in ("recurrent", *(("input",) if not self.skip_input else ()), *BIAS_PARTS):
            missing = [gate for gate in self.cell.gates if (part, gate) not in self.arrays]
            if missing and (part not in BIAS_PARTS or len(missing) < len(self.cell.gates)):
                raise UsageError(f"{part} of gate {missing[0]} is missing")

    def __repr__(self) -> str:
        return f"<Direction {describe_direction(self)}>"


@dataclass(frozen=True, repr=False, eq=False)
class Layer:
    """One layer: a direction, or two that read the same input.

    directions  the forward direction, then the backward one where there are two
    merge       how the outputs of two directions are joined: concat, sum, mul, ave, or none (kept apart)
    """

    directions: tuple[Direction, ...]
    merge: Merge = "concat"

    @property
    def gates(self) -> dict[str, Gate]:
        """The gates, where there is one direction.

        Raises UsageError for two: pick one first, `layer.directions[1].gates`.
        """
        if len(self.directions) > 1:
            raise UsageError(f"a layer of {len(self.directions)} directions has gates in each. Pick one, as in stack[0, 1].gates")
        return self.directions[0].gates

    @property
    def output_size(self) -> int:
        """Width of the layer's joined output at each step."""
        sizes = [direction.output_size for direction in self.directions]
        return sum(sizes) if self.merge in ("concat", "none") else sizes[0]

    def __repr__(self) -> str:
        return f"<Layer {self._outline()}>"

    def _outline(self) -> str:
        ways = f", {len(self.directions)} directions joined by {self.merge}" if len(self.directions) > 1 else ""
        return f"{describe_direction(self.directions[0])}{ways}"

    def _repr_html_(self) -> str:
        """Return a table of the gates, for a notebook."""
        from rnnconvert.core.notebook import listing

        rows = [row for direction in self.directions for row in direction.rows()]
        return listing(f"Layer: {self._outline()}", rows)


@dataclass(frozen=True)
class Unconvertible:
    """Something that a source computes and the canonical form cannot express: a conversion refuses it.

    option   what the caller may take over instead (rnnconvert.rewrites.fit_to_layout.ACCEPTS)
    feature  what it is, in a few words
    reason   what the source computes
    unknown  whether nothing shows what that is: it is a statement of the file that nobody here knows
    """

    option: str
    feature: str
    reason: str
    unknown: bool = False


@dataclass(frozen=True)
class Directly:
    """A layer reads the outputs of other recurrent layers, side by side in this order, and nothing changes them on the way."""

    layers: tuple[str, ...]


@dataclass(frozen=True)
class Through:
    """Something changes the outputs of other recurrent layers on their way to a layer.

    layers   the layers, by name
    changes  what does it, in the source's own words, and how
    """

    layers: tuple[str, ...]
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Input:
    """A layer reads no other recurrent layer: an input of the model, or what operators compute from it."""


@dataclass(frozen=True)
class Unknown:
    """The source does not show what a layer reads.

    why     what the source lacks, in words
    stated  whether the source states a model, in which it reads something that is not followed: nobody can confirm that this is
            another layer
    """

    why: str
    stated: bool = False


Reads: TypeAlias = "Directly | Through | Input | Unknown"


@dataclass(frozen=True)
class Call:
    """One call of a layer in its source, and what it receives there. Equal words stand for the same thing.

    sequence  what it reads
    states    where its initial states come from: "" for zeros and for learned ones, which are weights; INPUT for inputs of
              the model
    mask      which steps it leaves out; "" for none
    lengths   where the lengths of its sequences come from; "" where all are whole
    random    what is random in it each time that the model runs; "" for nothing
    returns   what the layer is set to return; "" where the source states nothing of the kind
    """

    sequence: Reads
    states: str = ""
    mask: str = ""
    lengths: str = ""
    random: str = ""
    returns: str = ""


INPUT = "an input of the model"
"""The value of `Call.states` for states that a caller of the model passes."""


@dataclass(frozen=True, repr=False, eq=False)
class Recurrent:
    """A stack of recurrent layers.

    name          what the source calls it
    layers        the layers, first to last
    join          where two directions meet: at every "layer", or only at the "end", each direction being a separate stack until then
    output_order  "time", or "processing" for a reversed layer whose outputs stay in the order in which they
                  were computed (Keras go_backwards)
    readout       matrices (P, hidden) still to be applied to the last layer's output, one for each
                  direction: what is left of a projection that was folded; empty otherwise
    unconvertible what the source computes in addition; a conversion refuses it unless the caller takes it over
    wrapped       what the source puts around the stack, in words; "" if nothing is known
    calls         each call of it in the source; none where the source does not state its calls
    parts         the names of the source's layers that it consists of; none if it is one of them
    """

    INSTEAD: ClassVar[str] = "For one layer use rnnconvert.pack, or the function that makes a framework's objects (to_...)"

    name: str
    layers: tuple[Layer, ...]
    join: Literal["layer", "end"] = "layer"
    output_order: Literal["time", "processing"] = "time"
    readout: tuple[Source, ...] = ()
    unconvertible: tuple[Unconvertible, ...] = ()
    wrapped: str = ""
    calls: tuple[Call, ...] = ()
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise UsageError(f"{quoted(self.name)} has no layers")
        for index, layer in enumerate(self.layers):
            for number, direction in enumerate(layer.directions):
                where = f"layer {index}" + (f", direction {number}" if len(layer.directions) > 1 else "")
                try:
                    direction.check()
                except ValueError as error:
                    raise UsageError(f"{quoted(self.name)}, {where}: {error}") from None
                width = self._reads(index, number)
                if width is not None and direction.input_size != width:
                    raise UsageError(
                        f"{quoted(self.name)}, {where} reads {direction.input_size} values per step, but layer {index - 1} gives {width}"
                    )

    def _reads(self, index: int, number: int) -> int | None:
        if index == 0:
            return None
        below = self.layers[index - 1]
        return below.directions[number].output_size if self.join == "end" else below.output_size

    def directions(self) -> Iterator[tuple[int, int, Direction]]:
        """Yield every direction with its layer's index and its own."""
        for index, layer in enumerate(self.layers):
            for number, direction in enumerate(layer.directions):
                yield index, number, direction

    def __len__(self) -> int:
        """Return how many layers there are, as `num_layers`."""
        return len(self.layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    @overload
    def __getitem__(self, index: int) -> Layer: ...
    @overload
    def __getitem__(self, index: tuple[int, int]) -> Direction: ...
    def __getitem__(self, index: int | tuple[int, int]) -> Layer | Direction:
        """Return a layer by its number, or a direction by both: stack[0], stack[0, 1].

        Raises NoSuchLayerError, Python's IndexError too, for one that does not exist.
        """
        indices = index if isinstance(index, tuple) else (index,)
        if not 1 <= len(indices) <= 2 or not all(hasattr(part, "__index__") for part in indices):
            raise UsageError(f"a stack has layers by number, and directions: stack[0], stack[0, 1]; not {index!r}")
        try:
            layer = self.layers[indices[0]]
            return layer if len(indices) == 1 else layer.directions[indices[1]]
        except IndexError:
            raise NoSuchLayerError(
                f"{called(self.name)} has no {list(index) if isinstance(index, tuple) else index}: it has {self.num_layers} layers of "
                f"{self.num_directions} directions, counted from 0"
            ) from None

    @property
    def reads(self) -> Reads:
        """The sequence that its first call reads; Unknown if the source does not state its calls."""
        return self.calls[0].sequence if self.calls else Unknown("its source states weights, and no model around them")

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the source's layers that it consists of."""
        return self.parts or (self.name,)

    def _repr_html_(self) -> str:
        """Return a table of the layers and directions, for a notebook."""
        from rnnconvert.core.notebook import listing

        rows = [(f"[{layer}, {number}]", describe_direction(direction)) for layer, number, direction in self.directions()]
        return listing(f"{called(self.name)}: {self.describe()}", rows)

    @property
    def first(self) -> Direction:
        """The forward direction of the first layer."""
        return self.layers[0].directions[0]

    @property
    def cell(self) -> Cell:
        """The cell of the first layer's first direction; `uniform` says whether the others are the same."""
        return self.first.cell

    @property
    def gates(self) -> dict[str, Gate]:
        """The gates, where there is one layer of one direction.

        Raises UsageError for a stack: pick a direction first, `stack[layer, direction].gates`.
        """
        if self.num_layers > 1 or self.num_directions > 1:
            raise UsageError(
                f"{quoted(self.name)} has {self.num_layers} layers and {self.num_directions} directions: "
                "Pick one, as in stack[0, 1].gates for the backward direction of the first layer"
            )
        return self.first.gates

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return len(self.layers)

    @property
    def num_directions(self) -> int:
        """1, or 2 where the first layer reads both ways."""
        return len(self.layers[0].directions)

    @property
    def input_size(self) -> int:
        """Width of what the stack reads at each step."""
        return self.first.input_size

    @property
    def hidden_size(self) -> int:
        """Units of the first layer's first direction."""
        return self.first.hidden_size

    @property
    def dtype(self) -> np.dtype:
        """Element type of the weights; the one that holds all of them exactly, where they have several."""
        return widest(direction.dtype for _, _, direction in self.directions())

    @property
    def parameters(self) -> int:
        """How many numbers the weights are."""
        return sum(int(np.prod(a.shape)) for _, _, d in self.directions() for a in d.arrays.values())

    @property
    def uniform(self) -> bool:
        """Whether all directions are one cell with the same parts, hidden and projection size."""

        def signature(direction: Direction) -> tuple[object, ...]:
            d = direction
            return (d.cell, d.hidden_size, d.projection_size, d.biases, d.has_peepholes, d.dtype)

        first = signature(self.first)
        shapes = {len(layer.directions) for layer in self.layers}
        return len(shapes) == 1 and all(signature(d) == first for _, _, d in self.directions())

    def replace(self, **changes: object) -> Recurrent:
        """Return this stack with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def describe(self) -> str:
        """Describe the stack in one line: cell, layers, sizes, biases and what is unusual."""
        first = describe_direction(self.first)
        if self.num_directions == 2:
            ways = "bidirectional"
        elif self.first.reverse:
            ways = "reverse"
        else:
            ways = "forward"
        layers = f"{self.num_layers} layer{'s' if self.num_layers > 1 else ''}, {ways}"
        rest = first.partition(", ")[2]
        kinds = dict.fromkeys(describe_direction(direction).partition(", ")[0] for _, _, direction in self.directions())
        words = [" and ".join(kinds), layers, rest]
        if self.num_directions == 2 and self.layers[-1].merge != "concat":
            words.append(f"directions joined by {self.layers[-1].merge}")
        if self.num_directions == 2 and self.num_layers > 1 and self.join == "end":
            words.append("directions joined only at the end")
        if self.output_order == "processing":
            words.append("outputs in processing order")
        if not self.uniform:
            words.append("directions or layers differ")
        words += [unconvertible.feature for unconvertible in self.unconvertible]
        words += [self.wrapped] if self.wrapped else []
        return ", ".join(words)

    def __repr__(self) -> str:
        return f"<Recurrent{f' {self.name!r}' if self.name else ''}: {self.describe()}>"


def describe_direction(direction: Direction) -> str:
    """Describe a direction in one line: cell, sizes, biases, dtype and what is unusual."""
    cell = direction.cell
    kind = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}[cell.kind]
    if cell.kind == "gru":
        kind += " (reset after)" if cell.reset_after else " (reset before)"
    words = [kind, f"{direction.input_size} -> {direction.hidden_size}"]
    if direction.projection_size:
        words.append(f"projected to {direction.projection_size}")
    words.append({"none": "no bias", "both": "two biases"}.get(direction.biases, "one bias"))
    words.append(" and ".join(direction.dtypes) if len(direction.dtypes) > 1 else str(direction.dtype))
    words += cell.describe()
    if direction.has_peepholes:
        words.append("peepholes")
    if direction.skip_input:
        words.append("input unweighted (skip)")
    learned = [part for part in ("initial_hidden", "initial_cell") if (part, "") in direction.arrays]
    if learned:
        words.append("learned initial state")
    return ", ".join(words)
