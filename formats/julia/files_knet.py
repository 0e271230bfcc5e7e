"""Knet: the flat vector `w` of an RNN, with the sizes that the file keeps next to it."""

from __future__ import annotations

from dataclasses import dataclass

from rnnconvert.containers.stored import Stored
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job
from rnnconvert.files.flat import Description
from rnnconvert.files.opened import SHAPED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.julia.julia_tree import below
from rnnconvert.formats.julia.metadata import JuliaMetadata
from rnnconvert.formats.julia.trees import Fields, JuliaFiles, Leaves
from rnnconvert.language.layout import Layout

MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")
"""What `mode` counts: the fields' comments in struct RNN, src/ops20/rnn.jl."""

FIELDS: Fields = {
    ("Knet", "RNN", 16): (
        "w", "h", "c", "inputSize", "hiddenSize", "numLayers", "dropout", "seed", "inputMode", "direction", "mode", "algo",
        "dataType", "rnnDesc", "dropoutDesc", "dx",
    ),
    ("Knet", "RNN", 18): (
        "w", "h", "c", "inputSize", "hiddenSize", "numLayers", "dropout", "seed", "inputMode", "direction", "mode", "algo",
        "dataType", "rnnDesc", "dropoutDesc", "dx", "dhx", "dcx",
    ),
    ("AutoGrad", "Param", 2): ("", "opt"),
    ("Knet", "KnetArray", 2): ("", "dims"),
}  # fmt: skip
"""Source: src/ops20/rnn.jl, struct RNN; AutoGrad.jl, src/core.jl, struct Param."""
_SIZES = ("inputSize", "numLayers", "inputMode", "direction")
_CONSTANTS = frozenset(
    {"mode", "hiddenSize", *_SIZES, "h", "c", "dropout", "seed", "algo", "dataType", "rnnDesc", "dropoutDesc", "dx", "dhx", "dcx"}
)
"""Fields that are read, or that serve training or cuDNN's plans, or hold where a call ended. Source: src/ops20/rnn.jl, struct RNN."""
_WRAPPED = ("value", "array", "a")
"""The name of the array of a Param, or of a KnetArray in a .jld2."""


@dataclass(frozen=True)
class KnetFiles(JuliaFiles):
    """The adapter of Knet: see rnnconvert.files.adapter."""

    NAME: str = "knet"
    root: str = "rnn"
    constants_known: frozenset[str] = _CONSTANTS
    beside_vectors: tuple[str, ...] = ("/h", "/c", "/dx", "/dhx", "/dcx")

    @property
    def fields(self) -> Fields:
        """The fields of Knet's RNN."""
        return FIELDS

    def recognise(self, file: Opened) -> FormatClaim | None:
        """Recognize a flat vector `w` with the sizes of an RNN."""
        kind = self.kind(file)
        try:
            stored = self.stored(file) if kind else Stored({})
        except UnreadableError:
            return None
        try:
            groups = self.find(file.path, stored, Options())[0] if kind else []
        except UnreadableError:
            return FormatClaim(SHAPED, f"{kind}, with the sizes of a Knet.RNN")  # reading it says what is wrong with them
        return FormatClaim(SHAPED, f"{kind}, with the vector and the sizes of a Knet.RNN") if groups else None

    def stored(self, file: Opened) -> Stored:
        """Return everything in a file; `w` is one line of numbers, as in memory."""
        stored = super().stored(file)
        arrays = {}
        notes = dict(stored.metadata_as(JuliaMetadata)["unreadable"])
        for full, array in stored.arrays.items():
            words = full.split("/")
            while len(words) > 1 and words[-1] in _WRAPPED and "w" in words[:-1]:
                words.pop()
            name = "/".join(words)
            flat = words[-1] == "w" and array.shape[:-1] in ((), (1,), (1, 1))
            arrays[name] = array.reshape(-1) if flat else array
        for name in list(arrays):
            above, _, last = name.rpartition("/")
            if last in ("h", "c") and below(above, "w") in arrays:
                notes[name] = "a state that the RNN passes on from call to call; it was left out"
        return Stored(arrays, {**stored.metadata, "unreadable": notes})

    def description(self, stored: Stored, above: str) -> Description:
        """Return the fields of the RNN that the vector belongs to."""
        values = stored.metadata_as(JuliaMetadata)["values"]

        def number(name: str) -> int:
            value = values.get(below(above, name))
            return value if isinstance(value, int) else 0

        mode = values.get(below(above, "mode"))
        if (
            not isinstance(mode, int)
            or isinstance(mode, bool)
            or not 0 <= mode < len(MODES)
            or not number("hiddenSize")
            or any(below(above, name) not in values for name in _SIZES)
            or not all(number(name) in (0, 1) for name in ("direction", "inputMode"))
        ):
            return {}
        return {
            "mode": MODES[mode],
            "state_size": str(number("hiddenSize")),
            "input_size": str(number("inputSize")),
            "num_layers": str(number("numLayers") or 1),
            "bidirectional": "true" if number("direction") else "false",
            "input_mode": "skip" if number("inputMode") else "linear",
        }

    def leaves(self, layout: Layout, stack: Recurrent, name: str, job: Job) -> Leaves:
        """Return the vector, and with it the fields of its RNN, so that it can be read again."""
        kind = stack.cell.kind
        mode = f"rnn_{stack.cell.activation}" if kind == "rnn" else kind
        sizes = {
            "inputSize": stack.input_size,
            "hiddenSize": stack.hidden_size,
            "numLayers": stack.num_layers,
            "inputMode": int(stack.first.skip_input),
            "direction": stack.num_directions - 1,
            "mode": MODES.index(mode),
        }
        return super().leaves(layout, stack, name, job) | {below(name, key): size for key, size in sizes.items()}

    def constructor(self, layout: Layout, stack: Recurrent) -> str:
        """Return the call that makes an RNN for this vector."""
        kind = stack.cell.kind
        words = [f"rnnType=:{stack.cell.activation if kind == 'rnn' else kind}"]
        if stack.num_layers > 1:
            words.append(f"numLayers={stack.num_layers}")
        if stack.num_directions == 2:
            words.append("bidirectional=true")
        if stack.first.skip_input:
            words.append("skipInput=true")
        return f"Knet.RNN({stack.input_size}, {stack.hidden_size}; {', '.join(words)})"


ADAPTERS = (KnetFiles(),)
