"""MXNet's parameters: gluon's layers and cells, the RNN operator's flat vector, and the arrays that mx.rnn unpacks.

A graph next to the file (`model-symbol.json`) states what the arrays do not: an RNN's function, the sizes
in a flat vector, a clip of the cell state.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rnnconvert.containers import npz_file
from rnnconvert.containers.files import lowered
from rnnconvert.containers.stored import FileMetadata
from rnnconvert.core.arrays import FLOATS, Array, PiecewiseArray
from rnnconvert.core.errors import NotALayerError, UnreadableError
from rnnconvert.core.names import distinct
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.weights import Recurrent
from rnnconvert.files import flat
from rnnconvert.files.adapter import Job, WriteResult, loading, put
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.flat import Description
from rnnconvert.files.opened import SHAPED, STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.mxnet import mxnet_params
from rnnconvert.formats.mxnet import symbol as mxnet_symbol
from rnnconvert.formats.mxnet.cells import cell_of, check_sizes
from rnnconvert.formats.mxnet.flow import SymbolReading
from rnnconvert.formats.mxnet.flow import read as read_symbol
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit, names_of
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import assemble, pack, unpack

NAME = "mxnet"
SUFFIXES = registry.endings(NAME)

_STYLES = {"stack": "", "gates": "_gates", "cell": "_cell", "cell_gates": "_cell_gates", "flat": "_flat"}
"""The spellings of a layer's arrays, the longer names first, and the endings of those layouts' names."""
_STORED = re.compile(r"(?P<kept>(?:arg|aux):)?(?P<name>.*)", re.S)
_UNFUSED = re.compile(
    r"(?P<prefix>(?:.*?[._])??)(?:_unfused\.(?P<layer>\d{1,3})\.(?:(?P<side>[lr])_cell\.)?|(?P<only>[lr])_cell\.)"
    r"(?P<rest>(?:i2h|h2h|h2r)_(?:weight|bias))",
    re.S,
)
"""The names that save_parameters gives the arrays of a layer, and of the two cells of a BidirectionalCell."""


class MxnetMetadata(FileMetadata, total=False):
    """The metadata of a file: where the arrays of its layers are."""

    homes: Any


class _LayerArrays(NamedTuple):
    """Arrays of one layer: the beginning of their names, their spelling, and their full names by their own."""

    prefix: str
    style: str
    names: dict[str, str]


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize the number that MXNet's lists of arrays begin with, or gluon's names in the archives of MXNet 2."""
    if mxnet_params.looks_like(file.head):
        return FormatClaim(STATED, "the magic number of MXNet's lists of arrays")
    if lowered(file.path).suffix in SUFFIXES and "npz" in file.kinds:
        return FormatClaim(SHAPED, "a zip archive of .npy files, as gluon of MXNet 2 writes its parameters")
    return None


def layouts(options: Options) -> list[Layout]:
    """Return gluon's layers, or with `module` its cells, the flat vector, or the arrays that mx.rnn unpacks."""
    return _layouts(options.choose("module", ("stack", "cell", "flat", "gates"), "stack"))


def _layouts(style: str) -> list[Layout]:
    """Return the layouts of one spelling; a plain RNN has one gate, and the names that gluon gives it."""
    kinds = {layout.name.partition(".")[2]: layout for layout in registry.layouts_of(NAME)}
    plain = "rnn_cell" if style.startswith("cell") else "rnn"
    return [kinds.get(kind + _STYLES[style], kinds[plain]) for kind in ("lstm", "gru", "rnn")]


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent layer of a file of parameters, found by the names and shapes of its arrays.

    Raises UnreadableError for a damaged file or graph, and for a graph that states another cell than the shapes show;
    UsageError for sizes in the options that a flat vector does not have.
    """
    reader = _ParameterReader(path, options)
    for group in reader.groups:
        reader.add(group)
    reader.note_absent()
    return reader.checkpoint()


class _ParameterReader:
    """A file of parameters on its way to a checkpoint.

    groups  the arrays of each layer
    graph   the file of the graph, where there is one
    stated  what the graph states of RNN operators, by the names of their parameters
    homes   the full names of each layer's arrays by their own
    """

    def __init__(self, path: Path, options: Options) -> None:
        self.path, self.options = path, options
        self.zipped = npz_file.is_npz(path)
        stored = npz_file.read(path) if self.zipped else mxnet_params.read(path)
        self.arrays = stored.arrays
        self.graph = graph = mxnet_symbol.symbol_of(path)
        self._graph_name = graph.name if graph else "the graph"
        self.stated = mxnet_symbol.read(graph) if graph else {}
        self._steps = mxnet_symbol.steps(graph) if graph else {}
        self._around = mxnet_symbol.modified(graph) if graph else {}
        self.groups = _groups(path, stored.arrays, self.stated)
        self.layers: dict[str, Recurrent] = {}
        self.homes: dict[str, dict[str, str]] = {}
        self.evidence: list[str] = []
        self.unread: list[LayerNote] = []
        self.warnings: list[str] = [LayerNote(name, why) for name, why in stored.metadata_as(MxnetMetadata)["unreadable"].items()]
        self.warnings += _run_together([group.prefix for group in self.groups if group.style.startswith("cell")])
        self._prefixes: dict[str, str] = {}

    def add(self, group: _LayerArrays) -> None:
        """Take in a layer, or a note that says why its arrays are none."""
        name, options, source = _layer_name(group.prefix, self.layers), self.options, self.graph or self.path
        arrays = {local: self.arrays[full] for local, full in group.names.items()}
        facts = self._facts(name, group)
        try:
            layout, sizes = _fitted(self.path, group, name, arrays, facts, options)
        except NotALayerError as error:
            self.unread.append(LayerNote(name, str(error), UNREAD, unnamed="the file itself"))
            return
        check_sizes(source, name, sizes, facts)
        step = options.facts(name, f"its steps in {self._graph_name}", self._steps.get(_bare(group.prefix), {}))
        cell = cell_of(source, layout, name, facts, step, options)
        if group.style == "flat":  # the one array of its layout, whatever its name ends in
            arrays = dict(zip(("parameters",), arrays.values(), strict=True))
        around = self._around.get(_bare(group.prefix))
        wrapped = _WRAPPED if _modified(group) else ""
        if around is not None:
            wrapped = f"followed at each step by {around} of the graph, as in a ResidualCell or ZoneoutCell"
        self.layers[name] = assemble(name, cell, unpack(layout, sizes, arrays), sizes.num_directions).replace(wrapped=wrapped)
        if wrapped:
            self.warnings.append(LayerNote(name, f"it is {wrapped}: the computation around it is not in the file, and is left to you"))
        self._prefixes[name] = group.prefix
        self.homes[name] = dict(zip(arrays, group.names.values(), strict=True))
        self.evidence.append(f"{name or 'the file itself'}: arrays named as those of {layout.class_name}")

    def _facts(self, name: str, group: _LayerArrays) -> Description:
        """Return the graph's statements about a layer's RNN operator."""
        parameters = (*map(_bare, group.names.values()), f"{group.prefix}parameters")
        stated = next((self.stated[parameter] for parameter in parameters if parameter in self.stated), {})
        return self.options.facts(
            name,
            f"its RNN operator in {self._graph_name}",
            stated,
            neutral={"lstm_state_clip_nan": ("False", "0")},
            harmless={"p", "state_outputs", "use_sequence_length", *(key for key in stated if key.startswith("__"))},
        )

    def note_absent(self) -> None:
        """Name the parameters of the graph's RNN operators that the file lacks."""
        there = {*map(_bare, self.arrays), *(f"{group.prefix}parameters" for group in self.groups)}
        for parameter, operator in self.stated.items():
            if not any(name in there for name, other in self.stated.items() if other is operator):
                self.unread.append(LayerNote(parameter, "an RNN operator of the graph reads it, but the file lacks it", UNREAD))

    def _graph(self) -> SymbolReading:
        """Return the graph with what the layers receive in it."""
        if self.graph is None:
            return SymbolReading({name: stack.calls for name, stack in self.layers.items()})
        bare = {_bare(full): (full, array) for full, array in self.arrays.items()}
        owned = {
            name: (stack, [*map(_bare, self.homes[name].values()), f"{self._prefixes[name]}parameters"])
            for name, stack in self.layers.items()
        }
        return read_symbol(self.graph, owned, bare)

    def checkpoint(self) -> Checkpoint:
        """Return the file as it was read. Raises UnreadableError for an archive without any layer."""
        graph = self._graph()
        layers = {name: self.layers[name].replace(calls=received) for name, received in graph.calls.items()}
        if self.zipped and not layers:
            raise UnreadableError(self.path, "no arrays in it are named as those of gluon's recurrent layers")
        if self.stated:
            self.evidence.append(f"{self.graph.name if self.graph else ''} states what its RNN operators compute")
        used = {full for names in self.homes.values() for full in names.values()}
        for name, computed in graph.others.items():
            layers[name] = computed.stack
            self.warnings += computed.warnings
            self.evidence.append(computed.evidence)
            used |= graph.stored_by(computed)
        return Checkpoint(
            str(self.path),
            NAME,
            layers,
            {name: array for name, array in self.arrays.items() if name not in used},
            tuple(self.evidence),
            self.options.questions,
            (*self.unread, *self.warnings),
            {"homes": self.homes},
            read=graph.program,
            unread=tuple(self.unread),
        )


_WRAPPED = "wrapped in another cell (ResidualCell, ZoneoutCell, VariationalDropoutCell ...)"
"""Gluon's name for a cell inside a modifier, `base_cell`; it does not show the modifier."""


def _modified(group: _LayerArrays) -> bool:
    """Return whether save_parameters found a layer's arrays inside a modifier cell."""
    return any("base_cell" in re.split(r"[.]", _bare(full)) for full in group.names.values())


def _bare(full: str) -> str:
    """Return a name without what Module's checkpoints put before it."""
    matched = _STORED.fullmatch(full)
    assert matched is not None
    return matched["name"]


_FLAT = re.compile(r"(parameters|rnn_param)\Z")


def _groups(path: object, arrays: Mapping[str, Array], stated: Collection[str]) -> list[_LayerArrays]:
    """Return arrays that are named as one layer's, in the order of the file. Raises UnreadableError if two have one name.

    stated  names of arrays that RNN operators read
    """
    names_by_group: dict[tuple[str, str], dict[str, str]] = {}
    expressions = {style: _expression(_layouts(style)) for style in _STYLES if style != "flat"}
    learned = [full for full in arrays if not full.startswith("aux:")]
    flat: list[str] = []
    for name, full in distinct(learned, lambda full: _plain_spelling(_bare(full)), path).items():
        for style, expression in expressions.items():
            match = expression.fullmatch(name)
            if match:
                names = names_by_group.setdefault((match["prefix"], style), {})
                names[match["local"]] = full
                break
        else:
            if (_FLAT.search(name) or name in stated) and arrays[full].ndim == 1:
                flat.append(full)
    for prefix, full in distinct(flat, lambda full: _FLAT.sub("", _plain_spelling(_bare(full))), path).items():
        names_by_group[prefix, "flat"] = {"parameters": full}
    return [_LayerArrays(prefix, style, names) for (prefix, style), names in names_by_group.items() if len(names) > 1 or style == "flat"]


def _run_together(prefixes: Collection[str]) -> list[str]:
    """Return warnings of cells that may be the backward direction of a layer whose prefix ends in a letter."""
    pairs = {prefix: re.sub(r"r(\d+_)$", r"l\1", prefix) for prefix in prefixes if re.search(r"[^\W_]r\d+_$", prefix)}
    return [
        f"{first!r} and {other!r} are read as two cells; if they are the two directions of one layer, {first!r} reads from the end"
        for first, other in pairs.items()
        if other in prefixes
    ]


def _expression(layouts: Iterable[Layout]) -> re.Pattern[str]:
    """Return the names of all arrays of these layouts, after any prefix that does not run into them."""
    return re.compile(rf"(?P<prefix>(?:.*[^A-Za-z0-9])?)(?P<local>{names_of(layouts)})", re.S)


def _plain_spelling(name: str) -> str:
    """Return gluon's own name for what save_parameters and BidirectionalCell spell by place."""
    match = _UNFUSED.fullmatch(name)
    if match is None:
        return name
    side = match["side"] or match["only"] or "l"
    return f"{match['prefix']}{side}{match['layer'] or 0}_{match['rest']}"


def _layer_name(prefix: str, used: Mapping[str, Recurrent]) -> str:
    name = prefix.rstrip("._")
    return prefix if name in used else name


def _fitted(
    path: Path, group: _LayerArrays, name: str, arrays: Mapping[str, Array], description: Description, options: Options
) -> tuple[Layout, Sizes]:
    """Return the layout and sizes of a layer. Raises NotALayerError."""
    dtypes = {str(array.dtype.newbyteorder("=")) for array in arrays.values()}
    if len(dtypes) > 1 or not dtypes <= set(FLOATS):
        raise NotALayerError(f"its arrays are of the types {', '.join(sorted(dtypes))}, not of one type of floating-point numbers")
    possible = _layouts(group.style)
    if group.style == "flat":
        return flat.sizes(path, possible, name, next(iter(arrays.values())).size, description, options)
    shapes = {local: tuple(array.shape) for local, array in arrays.items()}
    for layout in possible:
        sizes = fit(layout, shapes)
        if sizes is not None:
            return layout, sizes
    raise NotALayerError(f"its arrays are named as those of a recurrent layer but do not fit together: {misfit(possible, shapes)}")


def write(path: Path, job: Job) -> WriteResult:
    """Write a file of parameters: one layer of another format under its own names, several with their names before them."""
    arrays: dict[str, Array | PiecewiseArray] = {}
    notes = []
    homes: dict[str, dict[str, str]] = job.source.metadata_as(MxnetMetadata).get("homes", {}) if job.source.format == NAME else {}
    mark = "arg:" if any(full.startswith("arg:") for names in homes.values() for full in names.values()) else ""
    stacks = job.stacks()
    bare = len(stacks) == 1 and job.source.format != NAME
    for layout, stack in stacks:
        asked = job.options.get("prefix", stack.name)
        spelt = "" if bare else re.sub(r"[./]", "_", stack.name.strip("/."))
        above = spelt if asked is None else asked
        above += "_" if above and above[-1] not in "._" else ""
        spelled: Mapping[str, str] = {} if asked is not None else homes.get(stack.name, {})
        for local, packed in pack(layout, stack, job.dtype, job.watch).items():
            full = spelled.get(local, mark + above + local)
            put(arrays, full, packed)
        notes.append(f"{above.rstrip('._') or 'the file itself'} loads into {constructor(layout, stack, above)}")
    recipe = []
    if bare and not above and (call := constructor(*stacks[0])).startswith("mxnet.gluon.rnn."):
        recipe = loading(NAME, path, call)
    result = WriteResult(notes, recipe, job.carry(arrays))
    if not job.dry_run:
        mxnet_params.write(path, arrays)
    return result


def constructor(layout: Layout, stack: Recurrent, prefix: str = "") -> str:
    """Return the call that makes a layer for these parameters; for the flat vector, the operator's settings."""
    cell, first = stack.cell, stack.first
    flat, unpacked = layout.name.endswith("_flat"), layout.name.endswith("_gates")
    mode = f"rnn_{cell.activation}" if cell.kind == "rnn" else cell.kind
    words = [f"mode='{mode}', state_size={stack.hidden_size}" if flat else str(stack.hidden_size)]
    if layout.holds.layers and stack.num_layers > 1:
        words.append(f"num_layers={stack.num_layers}")
    if stack.num_directions == 2:
        words.append("bidirectional=True")
    if first.projection_size:
        words.append(f"projection_size={first.projection_size}")
    if unpacked and layout.holds.layers:
        words.append(f"mode='{mode}'")
    elif cell.kind == "rnn" and not flat:
        words.append(f"activation='{cell.activation}'")
    if not flat and not unpacked:
        words.append(f"input_size={stack.input_size}")
    if prefix and not flat:
        words.append(f"prefix='{prefix}'")
    name = "mxnet.nd.RNN" if flat else layout.class_name.partition("(")[0]
    name = "mxnet.gluon.contrib.rnn.LSTMPCell" if name.endswith("LSTMCell") and first.projection_size else name
    return f"{name}({', '.join(words)})"
