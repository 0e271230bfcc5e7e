"""Flux: trees of Flux.state, whole models in BSON.jl's files, and arrays under the names of their fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array, Source
from rnnconvert.core.cells import Activation, Cell
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.weights import Direction, Key, Layer, Recurrent
from rnnconvert.files.adapter import Job
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.opened import KIND, SHAPED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.julia.julia_tree import below
from rnnconvert.formats.julia.metadata import JuliaMetadata
from rnnconvert.formats.julia.trees import Fields, JuliaFiles, Leaves
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import pack

FIELDS: Fields = {
    # 0.15 to 0.16
    ("Flux", "RNN", 1): ("cell",),
    ("Flux", "LSTM", 1): ("cell",),
    ("Flux", "GRU", 1): ("cell",),
    ("Flux", "GRUv3", 1): ("cell",),
    ("Flux", "Recurrence", 1): ("cell",),
    ("Flux", "RNNCell", 4): ("σ", "Wi", "Wh", "bias"),
    ("Flux", "LSTMCell", 3): ("Wi", "Wh", "bias"),
    ("Flux", "GRUCell", 3): ("Wi", "Wh", "b"),
    ("Flux", "GRUv3Cell", 4): ("Wi", "Wh", "b", "Wh_h̃"),
    # 0.12 to 0.14, where the state is a matrix of one column; and 0.8 to 0.11, where it is a vector
    ("Flux", "Recur", 2): ("cell", "state"),
    ("Flux", "RNNCell", 5): ("σ", "Wi", "Wh", "b", "h|state0"),
    ("Flux", "LSTMCell", 4): ("Wi", "Wh", "b", "state0"),
    ("Flux", "GRUCell", 4): ("Wi", "Wh", "b", "h|state0"),
    ("Flux", "GRUv3Cell", 5): ("Wi", "Wh", "b", "Wh_h̃", "state0"),
    ("Flux", "Recur", 3): ("cell", "init", "state"),
    ("Flux", "LSTMCell", 5): ("Wi", "Wh", "b", "h", "c"),
    # What stands around them; the arrays of 0.9 and before are tracked
    ("Flux", "Chain", 1): ("layers",),
    ("Flux", "Dense", 3): ("weight", "bias", "σ"),
    ("Flux", "Embedding", 1): ("weight",),
    **{("Flux", word, count): ("p", "dims", "active") for word in ("Dropout", "AlphaDropout") for count in (3, 4)},
    ("Tracker", "TrackedArray", 3): ("tracker", "", "grad"),
}
"""Source: src/layers/recurrent.jl of each version, and of 0.9 src/tracker/lib/array.jl; only their number tells them apart."""

FUNCTIONS = {
    "tanh": "tanh",
    "tanh_fast": "tanh",
    "relu": "relu",
    "σ": "sigmoid",
    "sigmoid": "sigmoid",
    "sigmoid_fast": "sigmoid",
    "identity": "linear",
    "softplus": "softplus",
    "softsign": "softsign",
    "swish": "silu",
    "selu": "selu",
    "elu": "elu",
    "leakyrelu": "leaky_relu",
}
"""Our names for NNlib's functions. Source: NNlib.jl, src/activations.jl."""
_CALLED = {ours: theirs for theirs, ours in reversed(FUNCTIONS.items())}
_PLACES = {"h": ("", "/1"), "c": ("/2",), "state0": ("",), "state0/1": ("/1",), "state0/2": ("/2",)}
"""Where a Recur has its own copy of the cell's field of that name: in a tuple, if there are two."""
_NO_CONSTANTS = frozenset({"σ", "b", "bias", "Wi", "Wh", "Wh_h̃", "state0", "h", "c", "init", "state", "cell"})
"""Fields that are read, or hold where the last call ended."""
_CELLS = {name for _, name, _ in FIELDS if name.endswith("Cell")}


@dataclass(frozen=True)
class FluxFiles(JuliaFiles):
    """The adapter of Flux: see rnnconvert.files.adapter."""

    NAME: str = "flux"
    root: str = "model_state"
    constants_known: frozenset[str] = _NO_CONSTANTS
    training: tuple[str, ...] = ("/tracker/", "/grad")

    @property
    def fields(self) -> Fields:
        """The fields of Flux's structs, of every version."""
        return FIELDS

    def recognise(self, file: Opened) -> FormatClaim | None:
        """Recognize arrays named and shaped as Flux's; also a file of Julia's that is damaged, or whose arrays are of other layers."""
        kind = self.kind(file)
        if ".jl" in kind:
            try:
                self.stored(file)
            except UnreadableError:
                return FormatClaim(KIND, kind)  # reading it says what is wrong with it
        seen = super().recognise(file)
        if seen or ".jl" not in kind:
            return seen
        return FormatClaim(SHAPED, f"{kind}, with arrays without names") if _lists(self.stored(file)) else FormatClaim(KIND, kind)

    def stored(self, file: Opened) -> Stored:
        """Return everything in a file; initial states are those that Flux.reset! goes back to."""
        stored = super().stored(file)
        types = stored.metadata_as(JuliaMetadata)["types"]
        notes = dict(stored.metadata_as(JuliaMetadata)["unreadable"])
        unread: dict[str, str] = {}
        for place, (words, count) in types.items():
            if words[-1] in _CELLS and ("Flux", words[-1], count) not in FIELDS:
                unread[place] = f"a {words[-1]} with {count} fields, which no known version of Flux has"
            elif words[-1] in _CELLS and "Flux" not in words:
                unread[place] = f"a {'.'.join(words)}, which is not a cell of Flux"
        for place in _lists(stored):
            unread[place] = (
                "a list of arrays without names, as Flux.params returns it: their layers are unknown. In Julia, put them "
                "back with Flux.loadparams! and save Flux.state(model)"
            )
        arrays = {**stored.arrays, **_initial(stored.arrays, notes)}
        return Stored(arrays, {**stored.metadata, "unreadable": notes, "unread": unread})

    def find(self, path: Path, stored: Stored, options: Options) -> tuple[list[FoundLayer], list[LayerNote]]:
        """Return the recurrent layers, and every cell of a whole model that could not be read as one."""
        groups, doubts = super().find(path, stored, options)
        doubts += [LayerNote(place, str(why), UNREAD) for place, why in stored.metadata_as(JuliaMetadata)["unread"].items()]
        types = stored.metadata_as(JuliaMetadata)["types"]
        vague = [doubt.endswith("no sizes fit") and doubt.partition(": its arrays are named")[0] in types for doubt in doubts]
        doubts = [doubt for doubt, unclear in zip(doubts, vague, strict=True) if not unclear]
        explained = {group.name for group in groups} | {doubt.partition(":")[0] for doubt in doubts}
        for place, (words, count) in types.items():
            if words[-1] in _CELLS and ("Flux", words[-1], count) in FIELDS and "Flux" in words and place not in explained:
                doubts.append(LayerNote(place, f"a Flux.{words[-1]} whose fields are not plain arrays; it was left out", UNREAD))
        return groups, doubts

    def layer(self, group: FoundLayer, stored: Stored, options: Options) -> Recurrent:
        """Return a layer, whose bias may be the number false instead of zeros.

        Raises RefusedError for a bias that is another number.
        """
        for name in ("b", "bias"):
            value = stored.metadata_as(JuliaMetadata).get("values", {}).get(below(group.name, name))
            if value:
                raise RefusedError(
                    "a bias that is one number", "Flux", f"{name} is {value!r}, but only false stands for no bias", "", group.name
                )
        return super().layer(group, stored, options)

    def cell(self, group: FoundLayer, stored: Stored, options: Options) -> Cell:
        """Return a layer's cell: a whole model states an RNN's function, a tree of Flux.state does not."""
        function_name = stored.metadata_as(JuliaMetadata).get("values", {}).get(below(group.name, "σ"))
        if group.name in stored.metadata_as(JuliaMetadata).get("types", {}):  # a whole model has a function there, if one without a name
            function_name = function_name or "unnamed"
        if group.layout.kind != "rnn" or not isinstance(function_name, str):
            return super().cell(group, stored, options)
        name = options.stated("activation", group.name, FUNCTIONS.get(function_name, function_name), "its field σ", ("nonlinearity",))
        return group.layout.cell.replace(activation=Activation(name))

    def places(self, stacks: Sequence[Recurrent], job: Job) -> list[str]:
        """Return the places of layers: a Recur, LSTM, GRU or RNN, whose cell has the arrays."""
        return [name.rpartition("/")[0] if name.endswith("/cell") else name for name in super().places(stacks, job)]

    def leaves(self, layout: Layout, stack: Recurrent, name: str, job: Job) -> Leaves:
        """Return the fields in their order, as Flux.loadmodel! compares them."""
        if len(layout.tensors) == 1:
            return super().leaves(layout, stack, name, job)
        old = layout.holds.initial_states
        stack = _with_states(stack, layout) if old else stack
        packed = pack(layout, stack, job.dtype, job.watch)
        inner = below(name, "cell")
        result: Leaves = {below(inner, "σ"): ()} if layout.kind == "rnn" else {}
        for tensor in layout.tensors:
            result[below(inner, tensor.name)] = packed.get(tensor.name, False)
        if old:
            states = {local: array for local, array in packed.items() if local.startswith("state0")}
            result |= {below(name, local.replace("state0", "state")): np.asarray(state) for local, state in states.items()}
        return result

    def loading(self, layout: Layout, name: str) -> str:
        """Return the call that copies a tree into a layer: `path` stands for the file."""
        if len(layout.tensors) == 1:
            return ""
        top, _, rest = name.partition("/")
        inside = "".join(f"[{word}]" if word.isdecimal() else f".{word}" for word in rest.split("/") if word)
        return f"Flux.loadmodel!(layer.cell, BSON.load(path)[:{top}]{inside}.cell)"

    def constructor(self, layout: Layout, stack: Recurrent) -> str:
        """Return the call that makes a layer for these arrays."""
        name, _, version = layout.class_name.partition(" ")
        words = [f"{stack.input_size} => {stack.hidden_size}"]
        if layout.kind == "rnn":
            words.append(called(stack.cell.activation))
        bias = "; bias = false" if stack.first.biases == "none" else ""
        return f"{name}({', '.join(words)}{bias})" + (f" {version}" if version else "")


def called(function: Activation) -> str:
    """Return NNlib's name for a function."""
    return _CALLED.get(function.name, function.name)


def _lists(stored: Stored) -> set[str]:
    """Return the places of lists of arrays, if a file has nothing else."""
    ends = [name.rpartition("/") for name in stored.arrays]
    nothing_else = all(last.isdecimal() for _, _, last in ends) and not stored.metadata_as(JuliaMetadata)["types"]
    return {above for above, _, _ in ends} if nothing_else else set()


def _initial(arrays: dict[str, Array], notes: dict[str, str]) -> dict[str, Array]:
    """Return initial states that differ from the cells' own, and notes about states that are not initial ones.

    Until 0.11 reset! goes back to Recur's `init`, later to the cell's `state0`. `state` is where the last call ended.
    """
    changed: dict[str, Array] = {}
    for full, array in arrays.items():
        above, cell, local = full.rpartition("cell/")
        if not cell or local not in _PLACES:
            continue
        init, state = (
            next((arrays[above + word + number] for number in _PLACES[local] if above + word + number in arrays), None)
            for word in ("init", "state")
        )
        if init is not None and init.shape == array.shape and not np.array_equal(init, array):
            changed[full] = init
            notes[full] = "differs from the init that Flux.reset! goes back to; the init was read"
        if state is not None and not np.array_equal(state, array if init is None else init):
            notes[above + "state"] = f"is where a call had ended, and was not read: {full} was read, as after Flux.reset!"
    return changed


def _with_states(stack: Recurrent, layout: Layout) -> Recurrent:
    """Return a stack of one direction with initial states, zero where it has none: 0.12 to 0.14 always store them."""
    direction: Direction = stack.first
    sizes = Sizes.of(stack)
    missing: dict[Key, Source | None] = {
        (part, ""): np.zeros(sizes.hidden_size, direction.dtype)
        for part in ("initial_hidden", "initial_cell")
        if part in layout.part_names and direction.get(part) is None
    }
    return stack.replace(layers=(Layer((direction.with_arrays(missing),)),))


ADAPTERS = (FluxFiles(),)
