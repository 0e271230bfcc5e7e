"""A layout is data: where each canonical number lies in a framework's arrays.

`axes` says how one array lies, outermost first, in seven words:

    section layer direction part     what one array may gather
    gate hidden in                   the axes of one part

An axis of length 1 is "1". Words in parentheses share one axis of the array, slowest first (C order), in any order but for a
section, which stands before its parts. "(gate hidden) in" is PyTorch's weight_ih; "in (gate hidden)", its transpose,
Keras's kernel; and "(section layer direction part gate hidden in)" the flat buffer of cuDNN. `hidden` is the rows of a
matrix that acts from the left, `in` its columns; a projection has them too.

Everything rests on `slots`: for one gate of one part, which array it is in and where. To pack
is to write through these places (rnnconvert.language.packing), to unpack is to look through them;
shapes, offsets, detection and the documentation are read off the same places.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.cached import cached_property
from rnnconvert.core.cells import SIGMOID, TANH, Activation, Cell, Clip
from rnnconvert.core.weights import BIAS_PARTS, Key, Recurrent, gates_of

OUTER = ("section", "layer", "direction", "part")
INNER = ("gate", "hidden", "in")

UNUSED = "."
"""In a tensor's gates: a block that the framework allocates and never reads. It is written as zeros."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Sizes:
    """Which arrays a stack has and how large they are: everything but the numbers. Sizes in elements.

    A layer above the first reads the outputs of every direction below it.
    """

    kind: str
    input_size: int
    hidden_size: int
    num_layers: int = 1
    num_directions: int = 1
    projection_size: int = 0
    parts: frozenset[str] = frozenset({"input", "recurrent", *BIAS_PARTS})
    skip_input: bool = False

    @property
    def output_size(self) -> int:
        """Width of what one direction gives at each step."""
        return self.projection_size or self.hidden_size

    def shape(self, layer: int, part: str) -> Shape | None:
        """Return the shape of a part without its gates, or None if there is no such part."""
        if part not in self.parts or (part == "input" and self.skip_input and layer == 0):
            return None
        if part == "input":
            below = self.input_size if layer == 0 else self.num_directions * self.output_size
            return (self.hidden_size, below)
        if part == "recurrent":
            return (self.hidden_size, self.output_size)
        if part == "projection":
            return (self.projection_size, self.hidden_size)
        return (self.output_size if part == "initial_hidden" else self.hidden_size,)

    @classmethod
    def of(cls, stack: Recurrent) -> Sizes:
        """Return the sizes of a stack whose directions are alike."""
        first = stack.first
        parts = {part for part, _ in first.arrays} | ({"input"} if stack.num_layers > 1 else set())
        return cls(
            first.cell.kind,
            stack.input_size,
            first.hidden_size,
            stack.num_layers,
            stack.num_directions,
            first.projection_size,
            frozenset(parts),
            first.skip_input,
        )


@dataclass(frozen=True)
class Place:
    """The place of a part in an array, for any strides of the array.

    start  index of its first element, one number for each axis of the array
    dims   for each axis of the part: its length, the array's axis it runs along, and the step on it
    """

    start: tuple[int, ...]
    dims: tuple[tuple[int, int, int], ...]

    @property
    def shape(self) -> Shape:
        """Shape of the part."""
        return tuple(length for length, _, _ in self.dims)

    def view(self, array: Array) -> Array:
        """Return the part as a view of the array that it lies in."""
        corner = array[tuple(slice(index, None) for index in self.start)]
        strides = tuple(array.strides[axis] * step for _, axis, step in self.dims)
        return np.lib.stride_tricks.as_strided(corner, self.shape, strides, writeable=array.flags.writeable)

    def offset(self, shape: Shape) -> int:
        """Return the number of elements before the part's first one in a C-ordered array of that shape."""
        return sum(index * step for index, step in zip(self.start, c_strides(shape), strict=True))

    def strides(self, shape: Shape) -> Shape:
        """Return the distance between neighbours along each axis of the part, in elements of a C-ordered array."""
        unit = c_strides(shape)
        return tuple(unit[axis] * step for _, axis, step in self.dims)


def c_strides(shape: Shape) -> Shape:
    """Return the strides of a C-ordered array, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


class Slot(NamedTuple):
    """One gate of one part of one direction, and where the framework keeps it.

    sign            -1 where the framework stores the gate negated
    reinterpreted   the array's (in, hidden) block is the memory of the (hidden, in) matrix, read on

    A block that nothing reads has the gate UNUSED.
    """

    array: str
    layer: int
    direction: int
    key: Key
    sign: int
    place: Place
    reinterpreted: bool


@dataclass(frozen=True)
class Tensor:
    """One array of a framework, or one family of arrays.

    name           how it is called; {layer}, {direction} and {gate} are filled in, and {pseudo_layer}, the place of a
                   direction among all of them: 2 * layer + direction where there are two
    parts          the canonical parts in it, in order: "input recurrent"; "|" starts a new section; gates
                   in brackets where they are not the layout's: "peephole[i o f]", "recurrent_bias[n]", and UNUSED for
                   a block of a gate's size that nothing reads: "recurrent[r z .]"
    axes           how they lie: see the module; by default a matrix has a gate's rows below one another, "(gate hidden) in",
                   and a vector its numbers, "(gate hidden)"
    reinterpreted  each gate's block holds the matrix's memory in another shape (Keras 2's CuDNN layers)
    letters        the spelling of {gate} in this name where it is not the layout's
    layers         "first" or "above" for an array of the first layer alone, or of those above it
    """

    name: str
    parts: str
    axes: str = ""
    reinterpreted: bool = False
    letters: str = ""
    layers: str = ""

    def __post_init__(self) -> None:
        if not self.axes:
            vectors = self.part_names <= {"input_bias", "recurrent_bias", "peephole"}
            object.__setattr__(self, "axes", "(gate hidden)" if vectors else "(gate hidden) in")

    def has_layer(self, layer: int) -> bool:
        """Return whether it holds parts of this layer."""
        return self.layers in ("", "above" if layer else "first")

    @cached_property
    def groups(self) -> list[list[str]]:
        """The words of each axis."""
        return [match.strip("()").split() for match in re.findall(r"\([^)]*\)|\S+", self.axes)]

    @cached_property
    def outer(self) -> tuple[str, ...]:
        """The words of what it gathers, slowest first; those that it does not name have one value, or none."""
        named = [word for group in self.groups for word in group if word in OUTER]
        absent = [word for word in OUTER if word not in named]
        return (*(word for word in absent if word != "part"), *named, *(word for word in absent if word == "part"))

    @cached_property
    def sections(self) -> list[list[tuple[str, tuple[str, ...] | None]]]:
        """The parts of each section, each with its gates where the tensor says so."""
        sections: list[list[tuple[str, tuple[str, ...] | None]]] = []
        for section in self.parts.split("|"):
            matches = re.finditer(r"(\w+)(?:\[([^\]]*)\])?", section)
            sections.append([(m[1], tuple(m[2].split()) if m[2] is not None else None) for m in matches])
        return sections

    @cached_property
    def part_names(self) -> frozenset[str]:
        """The parts that it may hold."""
        return frozenset(part for section in self.sections for part, _ in section)


@dataclass(frozen=True)
class Holds:
    """The abilities of a framework's cell beyond the plain equations of rnnconvert.core.cells.

    biases            its bias modes, preferred first: none, input, recurrent, both
    activations       its functions for the candidate: a name, with any constants, or an Activation with
                      exactly these; "any" for every function
    gate_activations  likewise for the other gates
    output_activation "same" if the LSTM's output goes through the candidate's function, else as above
    asked_functions   functions that its class takes as arguments and its files do not hold, by the options that decide them:
                      activation, recurrent_activation, output_activation
    coupled           the coupled gates that it knows: "f", "i"
    constants         what the framework adds to a gate at run time, and does not store
    chosen            gates whose constant is an argument of the framework's class, like forget_bias: one that a source
                      has there stays, and one that has none is given the value of `constants`
    clips             the kinds of clips whose bounds are arguments of the framework's class, or a Clip that it always has
    uneven_clips      whether the two bounds of a clip may differ, rather than be one number and its negative
    layers            whether one set of arrays may hold several layers
    directions        how many directions one set of arrays may hold
    reverse           whether a single direction may read from the end
    reverse_order     the order of such a direction's outputs: by "time", or of "processing"
    merges            how it can join two directions
    joins             where the directions of a stack may meet: at every "layer", only at the "end"
    alone             whether a file holds one layer, or layers of which each reads the one before
    initial_states    whether it stores learned states
    readout           whether a folded projection's matrix can follow it
    mixed_directions  whether the two directions may be different cells
    own_functions     whether each direction may have its own functions, which files do not state
    processing_order  whether reversed outputs may stay in the order in which they were computed
    skip_input        whether the first layer may read its input unweighted
    full_projection   whether a projection may be as wide as the cell
    dtypes            element types that it stores
    """

    biases: tuple[str, ...] = ("both", "none")
    activations: tuple[str | Activation, ...] = ("tanh",)
    gate_activations: tuple[str | Activation, ...] = ("sigmoid",)
    output_activation: str = "same"
    asked_functions: tuple[str, ...] = ()
    coupled: tuple[str, ...] = ()
    constants: Mapping[str, float] = field(default_factory=dict)
    chosen: tuple[str, ...] = ()
    clips: tuple[str | Clip, ...] = ()
    uneven_clips: bool = False
    layers: bool = True
    directions: int = 2
    reverse: bool = False
    reverse_order: str = "time"
    merges: tuple[str, ...] = ("concat",)
    joins: tuple[str, ...] = ("layer",)
    alone: bool = False
    initial_states: bool = False
    readout: bool = False
    mixed_directions: bool = False
    own_functions: bool = False
    processing_order: bool = False
    skip_input: bool = False
    full_projection: bool = True
    dtypes: tuple[str, ...] = ("float16", "bfloat16", "float32", "float64")

    @property
    def fixed_clips(self) -> tuple[Clip, ...]:
        """The clips that every cell of this class has."""
        return tuple(clip for clip in self.clips if isinstance(clip, Clip))

    @property
    def open_clips(self) -> tuple[str, ...]:
        """The kinds of clips whose bounds are arguments of this class."""
        return tuple(clip for clip in self.clips if isinstance(clip, str))


@dataclass(frozen=True)
class Layout:
    """How one framework stores one cell. A bias is zero for a gate that the layout has no place for.

    name         "framework.cell"
    kind         rnn, gru or lstm
    gates        the order in which gates are stacked, in canonical letters; "-z" where the framework mixes
                 with 1 - z: sigmoid(-x) = 1 - sigmoid(x)
    tensors      its arrays
    source       where the framework's source states this
    class_name   the framework's name for the layer
    reset_after  gru: whether its reset gate stands after the recurrent product
    letters      the framework's spelling of `gates` where {gate} is part of a name; two gates of one spelling
                 are one array
    coupled      lstm: a gate without arrays, "i" for i = 1 - f or "f" for f = 1 - i
    spelling     what {direction} reads for the forward and the backward direction
    alone        what it reads for a single direction; None if that is spelt as the forward one of two
    holds        what else it can compute
    writable     False for a layout that is only read: nothing that runs today takes it
    proof        the proof that the framework computes this; "" if its System states one for all of them
    neighbours   the names of arrays that the same code keeps next to the layer's, such as its output's: they change nothing in it
    cautions     warnings about a layer with numbers other than zero in a part, by the part
    """

    name: str
    kind: str
    gates: str
    tensors: tuple[Tensor, ...]
    source: str
    class_name: str = ""
    reset_after: bool | None = None
    letters: str = ""
    coupled: str = ""
    spelling: tuple[str, str] = ("", "_reverse")
    alone: str | None = None
    holds: Holds = field(default_factory=Holds)
    writable: bool = True
    proof: str = ""
    neighbours: tuple[str, ...] = ()
    cautions: Mapping[str, str] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def framework(self) -> str:
        """The part of the name before the dot."""
        return self.name.partition(".")[0]

    @property
    def flat(self) -> bool:
        """Whether it is one vector, whose length does not show its sizes."""
        return len(self.tensors) == 1 and len(self.tensors[0].groups) == 1

    @cached_property
    def order(self) -> list[tuple[str, int]]:
        """Each stacked gate's canonical letter and sign."""
        return [(gate.lstrip("-"), -1 if gate[0] == "-" else 1) for gate in self.gates.split()]

    @cached_property
    def part_names(self) -> frozenset[str]:
        """The parts that it has a place for."""
        return frozenset(part for tensor in self.tensors for part in tensor.part_names)

    @cached_property
    def keys(self) -> frozenset[Key]:
        """The gates of the parts that it has a place for: some have a recurrent bias of the candidate alone."""
        parts = [place for tensor in self.tensors for section in tensor.sections for place in section]
        held = {(part, gate) for part, gates in parts for gate in gates or gates_of(self.kind, part)}
        return frozenset(key for key in held if key[1] not in (UNUSED, self.coupled or UNUSED))

    @property
    def cell(self) -> Cell:
        """The cell that its arrays are of where nothing else is said, with what the framework adds at run time."""
        kind: Any = self.kind
        coupled: Any = self.coupled
        candidate = _default_of(self.holds.activations, TANH)
        gates = _default_of(self.holds.gate_activations, SIGMOID)
        clips = self.holds.fixed_clips
        of_output = candidate if kind == "lstm" else TANH
        return Cell(kind, self.reset_after, candidate, gates, of_output, coupled, self.holds.constants, clips)

    def spelt(self, tensor: Tensor) -> list[str]:
        """Return the spellings of {gate} in a tensor's name, in the order of `gates`."""
        return (tensor.letters or self.letters or self.gates.replace("-", "")).split()


@dataclass(frozen=True)
class Option:
    """An option of the caller: `--set NAME=VALUE`, or a keyword in Python.

    name     its key
    choices  the values that it may have; empty where any text or number will do
    meaning  what it decides, and what is assumed without it, in the words of no framework
    side     "read" where it decides a fact of the source, "write" one of the target, "both" for either
    number   "whole" or "real" where its values are numbers; "none" is a value of a real number too
    each     whether two directions may have different values: `relu,tanh`, forward and backward
    """

    name: str
    choices: tuple[str, ...]
    meaning: str
    side: Literal["read", "write", "both"] = "read"
    number: Literal["", "whole", "real"] = ""
    each: bool = False


FAMILIES = {
    "training": "frameworks that train",
    "deployment": "runtimes and exchange",
    "audio": "audio plug-ins",
    "microcontrollers": "microcontrollers",
    "libraries": "the weights of libraries, as their programs hold them",
}
"""Where files of a format come from: a word, and what it stands for. The common one first."""


@dataclass(frozen=True)
class Cut:
    """Where an array lies in one of a file that has another name, or that holds several.

    name    the array's name, as the layouts have it
    source  the file's array
    start   its first element there, in C order
    shape   its lengths; none for all of the file's array, as it is
    steps   from one element to the next along each of its axes, in elements
    """

    name: str
    source: str
    start: int = 0
    shape: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class System:
    """A framework, or a library or file that holds weights: the facts that its layouts do not state.

    name      the beginning of its layouts' names
    title     the name that people use
    versions  the versions that are meant, and those at which the meaning of a file changed
    proof     how it was shown that it computes what its layouts say, in one of four ways, strongest first:
              "executed: ..." (the framework itself, and its version), "golden: ..." (files that it wrote, with its
              outputs), "corpus: ..." (real files of others with outputs), "source: ..." (read in the source only)
    notes     refusals and cautions for the user; one sentence each
    separator the separator of a layer's name and the names of its arrays in the files that are written
    speaking  whether its files state what a layer computes, so that an executor that runs one needs no description
    suffixes  the endings of its files, the default first, for a framework known by its layouts alone; if empty, the endings of every
              archive of arrays
    asks      the options (rnnconvert.files.options) that its files and its writer leave to the caller, each with what that
              means here and what is assumed here; "" where the option's own meaning says it all
    options   options that it alone has
    functions functions whose names mean others elsewhere, by what tells them apart
    channels  how arrays are usually flattened in it: "channels_first" or "channels_last"; "" where it has no such habit
    words     its words for settings of layers around the core that it calls otherwise, by our own
    new_momentum  whether the momentum of its running averages is the part of what is new
    own_layer what makes a layer of ours in it, for the cells that it lacks
    unstated  facts of a cell that its files leave to the code that runs them: an executor receives them, for each direction
    recipes   lines of Python that load a file of one layer, by its ending: {call} makes the layer, {path} is the file
    language  in which what it writes is loaded, and the lines that do so: a file's recipe
    family    where its files come from, one of FAMILIES
    cuts      where the arrays of its layouts lie in a file that names or arranges its arrays otherwise
    heads     files that no format reads and that people take for its own: where, which bytes, what to say
    called    other names that people use, in lower case, with blanks between: including libraries that read its files
    on_request  whether another framework's arrays have the names and shapes of its own: a file is read as its only where the caller says so
    """

    name: str
    title: str
    versions: str
    proof: str
    notes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    separator: str = "/"
    speaking: bool = False
    asks: Mapping[str, str] = field(default_factory=dict)
    options: tuple[Option, ...] = ()
    functions: Mapping[str, Activation] = field(default_factory=dict)
    channels: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    new_momentum: bool = False
    own_layer: str = ""
    unstated: tuple[str, ...] = ()
    recipes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    language: str = "Python"
    family: str = "training"
    heads: tuple[tuple[int, bytes, str], ...] = ()
    cuts: tuple[Cut, ...] = ()
    called: str = ""
    on_request: bool = False


def _default_of(allowed: Sequence[str | Activation], default: Activation) -> Activation:
    """Return one of the functions that a framework has: the one that most people mean, or its first."""
    if any(entry in ("any", default.name) or entry == default for entry in allowed):
        return default
    return allowed[0] if isinstance(allowed[0], Activation) else Activation(allowed[0])
