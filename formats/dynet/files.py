"""DyNet's text files: a line on each parameter, and a line of its numbers, by columns.

Source: clab/dynet 2.1.2, dynet/io.cc, TextFileSaver; dynet/model.cc, ParameterCollection::add_subcollection for the names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rnnconvert.containers.files import map_file, replacing
from rnnconvert.containers.reading import charging
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.names import add, is_count
from rnnconvert.core.notes import UNREAD, LayerNote, layer_of
from rnnconvert.core.remedies import Setting
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.finder import ArrayFiles
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.opened import Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.dynet.layouts import VANILLA
from rnnconvert.language.layout import Layout

_FIELDS = {
    "vanilla-lstm-builder": ("x2i", "h2i", "bi"),
    "compact-vanilla-lstm-builder": ("x2i", "h2i", "bi"),
    "gru-builder": ("x2z", "h2z", "bz", "x2r", "h2r", "br", "x2h", "h2h", "bh"),
    "simple-rnn-builder": ("x2h", "h2h", "hb"),
    "fast-lstm-builder": ("x2i", "h2i", "", "bi", "x2o", "h2o", "", "bo", "x2c", "h2c", "bc"),
}
"""The parameters of one layer of each builder, in their order, "" for one that its equations do not read."""
_BUILDERS = {"h2z": "gru-builder", "hb": "simple-rnn-builder", "bi": "vanilla-lstm-builder"}
"""The builders that are written, each by a parameter that the others lack."""
_NORMS = ("ln_gh", "ln_bh", "ln_gx", "ln_bx", "ln_gc", "ln_bc")
"""The gains and biases that ln_lstm puts behind the parameters of each layer, in the collection around the builder's own."""
_WITH_NORMS = "it is a VanillaLSTMBuilder with layer norm (ln_lstm), whose gains and biases no cell here has"
_COUPLED = "it is a CoupledLSTMBuilder, whose peepholes are whole matrices, as in no other framework"
_HEADER = re.compile(
    rb"#(Lookup)?Parameter# (?P<name>[^ #]{1,4096}) \{(?P<dims>\d{1,12}(,\d{1,12}){0,6})\} \d{1,18}(?: (?P<grad>[A-Z_]{1,20}))?\r?"
)
_BACKWARD = VANILLA.spelling[1]
_NAMED = re.compile(rf"(?P<layer>.*)\.(?P<local>[a-z0-9_]+_\d+(?:{_BACKWARD})?)")
_BYTES = 64
"""What a number takes as a word of text in Python's memory."""


class DyNet(ArrayFiles):
    """The adapter of DyNet: see rnnconvert.files.adapter."""

    STATED_KIND = True

    def kind(self, file: Opened) -> str:
        """Return the kind of this file, in words; "" if it is not one of DyNet."""
        return "parameters as DyNet's text, by its first line" if file.head.startswith((b"#Parameter# ", b"#LookupParameter# ")) else ""

    def stored(self, file: Opened) -> Stored:
        """Return every parameter: those of builders as "builder.field_layer", others by their paths."""
        parameters, arrays = _parameters(file.path), dict[str, Array]()
        for stored, name in _names(parameters).items():
            add(arrays, name, parameters[stored], file.path)
        return Stored(arrays)

    def find(self, path: Path, stored: Stored, options: Options) -> tuple[list[FoundLayer], list[LayerNote]]:
        """Return the builders that a cell computes, and which others there are."""
        builders, unread = super().find(path, stored, options)
        refused = {name.rpartition(".")[0]: _WITH_NORMS for name in stored.arrays if name.rpartition(".")[2].startswith("ln_")}
        collections = (name.rpartition("/")[0] for name in stored.arrays)
        refused |= {collection: _COUPLED for collection in collections if _builder(collection) == "lstm-builder"}
        notes = [LayerNote(name, why, UNREAD) for name, why in refused.items()]
        return builders, [*(note for note in unread if layer_of(note) not in refused), *notes]

    def constructor(self, layout: Layout, stack: Recurrent) -> str:
        """Return the call that makes a builder in a collection `parameters`."""
        cell, builder = stack.cell, layout.class_name
        added = cell.constants.get("f", 0.0) if cell.kind == "lstm" else 1.0
        stated = "" if added == 1 else f", forget_bias={added}"
        if stack.num_directions == 1:
            return f"{builder}({stack.num_layers}, {stack.input_size}, {stack.hidden_size}, parameters{stated})"
        factory = f"lambda *sizes: {builder}(*sizes{stated})" if stated else builder
        return f"dynet.BiRNNBuilder({stack.num_layers}, {stack.input_size}, {2 * stack.hidden_size}, parameters, {factory})"

    def write_arrays(self, path: Path, arrays: Mapping[str, Array | PiecewiseArray]) -> None:
        """Write all parameters as DyNet's text."""
        with replacing(path) as file:
            for name, array in _numbered(arrays).items():
                values = np.asarray(array)
                dims = ",".join(map(str, array.shape))
                file.write(f"#Parameter# {name} {{{dims}}} {16 * values.size + 1} ZERO_GRAD\n".encode())
                file.write("".join(f"{value:+.8e} " for value in values.reshape(-1, order="F").tolist()).encode() + b"\n")


def _parameters(path: Path) -> dict[str, Array]:
    """Return the parameters of a file by their paths in the collection. Raises UnreadableError for a line that DyNet does not write."""
    data = map_file(path)
    charge = charging(data.size)
    charge.memory(data.size, path)
    lines = iter(data.tobytes().split(b"\n"))
    parameters = dict[str, Array]()
    for line in filter(None, lines):
        header = _HEADER.fullmatch(line)
        if header is None:
            raise UnreadableError(path, f"{line[:60]!r} is not a line that begins a parameter", "The file is damaged; save it again.")
        name = header["name"].decode("utf-8", "replace").removeprefix("/")
        dims = [int(length) for length in header["dims"].split(b",")]
        text = next(lines, b"")
        charge.memory(_BYTES * (len(text) // 2), path)
        try:
            with np.errstate(over="ignore"):  # infinite: that is noted where every format's numbers are looked at
                values = np.array(text.split(), np.float32)
        except ValueError as error:
            raise UnreadableError(path, f"the numbers of {name!r} cannot be read: {error}") from None
        if header["grad"] == b"FULL_GRAD":
            next(lines, b"")
        if values.size != math.prod(dims):
            raise UnreadableError(path, f"{name!r} has {values.size} numbers, not those of {dims}", "The file is cut off or damaged.")
        add(parameters, name, values.reshape(dims, order="F"), path)
    return parameters


def _names(parameters: Mapping[str, Array]) -> dict[str, str]:
    """Return the name of each parameter by its path, in the order of the file.

    The builders of a BiRNNBuilder have one layer each: the forward one of the first layer, the backward one, those of the next layer.
    """
    names: dict[str, str] = {}
    norms, home = list[str](), ""
    for path, array in parameters.items():
        collection, _, last = path.rpartition("/")
        around = collection.rpartition("/")[0]
        fields, number = _FIELDS.get(_builder(collection), ()), last[1:]
        layer, place = divmod(int(number), len(fields)) if fields and is_count(number) else (0, 0)
        if fields and not is_count(number):
            names[path] = f"{collection}.{last}"
        elif fields and fields[place]:
            name, step = collection, str(layer)
            if _builder(around) == "birnn" and layer == 0:
                pair, backwards = divmod(int(collection[len(around) + 1 + len(_builder(collection)) :].removeprefix("_") or 0), 2)
                name, step = around, f"{pair}{_BACKWARD if backwards else ''}"
            names[path] = f"{name}.{fields[place]}_{step}"
            norms, home = [f"{name}.{norm}_{step}" for norm in _NORMS] if fields[place:] == ("bi",) else [], around
        elif norms and array.ndim == 1 and collection == home:
            names[path] = norms.pop(0)
        else:
            norms, names[path] = [], path
    return names


def _builder(collection: str) -> str:
    """Return the name that a builder gives its collection, without the number that makes it the only one of its name."""
    return re.sub(r"_\d+$", "", collection.rpartition("/")[2])


def _numbered(arrays: Mapping[str, Array | PiecewiseArray]) -> dict[str, Array | PiecewiseArray]:
    """Return arrays by their paths in a collection, in the order in which a builder adds them."""
    layers: dict[str, dict[str, Array | PiecewiseArray]] = {}
    written: dict[str, Array | PiecewiseArray] = {}
    for name, array in arrays.items():
        match = _NAMED.fullmatch(f".{name}" if "." not in name else name)
        if match is None:
            written[f"/{name}"] = array
        else:
            layers.setdefault(match["layer"], {})[match["local"]] = array
    for layer, parameters in layers.items():
        if re.search(r"[\s#]", layer):
            raise UsageError(
                f"DyNet takes no name with a blank or '#', and {layer!r} has one. Give another with {Setting('prefix', 'NAME')}"
            )
        stem = next(stem for field, stem in _BUILDERS.items() if f"{field}_0" in parameters)
        sides = ("", _BACKWARD) if f"{_FIELDS[stem][0]}_0{_BACKWARD}" in parameters else ("",)
        builder = "birnn" if len(sides) == 2 else stem
        place = layer if _builder(layer) == builder else "/".join(filter(None, (layer, builder)))
        for number in range(len(parameters) // len(_FIELDS[stem])):
            depth, side = divmod(number, len(sides))
            for count, field in enumerate(_FIELDS[stem]):
                alone = f"{place}/_{number * len(_FIELDS[stem]) + count}"
                inside = f"{place}/{stem}{f'_{number}' if number else ''}/_{count}"
                written[f"/{alone if len(sides) == 1 else inside}"] = parameters[f"{field}_{depth}{sides[side]}"]
    return written


ADAPTERS = (DyNet("dynet", (".dynet",), "."),)
