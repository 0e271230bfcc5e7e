"""TensorFlow 1's checkpoints, frozen graphs and .npz of variables: cells of tf.nn.rnn_cell and tf.contrib by their scopes.

TensorFlow is not imported. What only the graph says is read from it where it is there: in a frozen .pb, or in the .meta
beside a checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rnnconvert import registry
from rnnconvert.adapters import Job, put, tensorflow1_graph
from rnnconvert.adapters.tensorflow1_graph import FUNCTIONS, Told
from rnnconvert.adapters.tensorflow1_names import CLASSES, Member, Wrapped, natural, wrappers
from rnnconvert.arrays import FLOATS, Array, Pieced
from rnnconvert.cells import TANH, Activation, Cell, Clip
from rnnconvert.checkpoint import Checkpoint, Undecided
from rnnconvert.containers import npz_file, tensor_bundle, tensorflow_graph
from rnnconvert.containers.stored import Stored
from rnnconvert.containers.tensorflow_graph import Graph
from rnnconvert.errors import UnreadableError, UsageError
from rnnconvert.fitting import fit, misfit
from rnnconvert.layout import Form, Layout
from rnnconvert.options import Options
from rnnconvert.packing import pack, unpack
from rnnconvert.weights import Direction, Layer, Recurrent

NAME = "tensorflow1"
SUFFIXES = (".index", ".npz")

_GRAPH = ".pb"
_KINDS = {"lstm": "lstm", "gru": "gru", "rnn_tanh": "rnn", "rnn_relu": "rnn"}
_SCOPES = {"lstm": "lstm_cell", "gru": "gru_cell", "gru_block": "gru_cell", "cudnn_gru": "cudnn_compatible_gru_cell",
           "rnn": "basic_rnn_cell"}  # fmt: skip
"""The scope that the class of a layout gives its variables."""


@dataclass(frozen=True)
class Read:
    """Where the cells of each layer were: by the layer's name and (layer, direction)."""

    cells: Mapping[str, Mapping[tuple[int, int], Member]]


def recognise(path: Path, head: bytes) -> str:
    """Variables in the scopes of tf.nn.rnn_cell's classes, or a frozen graph."""
    index = tensor_bundle.index_of(path)
    if index is not None:
        found = "a TensorFlow checkpoint" if has_cells(index) else ""
    elif path.suffix == _GRAPH and tensorflow_graph.looks_like(head):
        return "a graph of TensorFlow's"
    elif head[:2] == b"PK" and npz_file.is_npz(path):
        try:
            names = npz_file.read(path).arrays
        except UnreadableError:
            return ""
        found = "a zip archive of .npy files" if _known(wrappers(names)) else ""
    else:
        return ""
    return f"{found} with variables in the scopes of tf.nn.rnn_cell" if found else ""


def has_cells(index: Path) -> bool:
    """Whether a checkpoint has variables of TensorFlow 1's cells; False for a damaged one."""
    try:
        return _known(wrappers(tensor_bundle.names(index)))
    except UnreadableError:
        return False


def _known(found: Collection[Wrapped]) -> bool:
    return any(member.known for wrapped in found for member in wrapped.cells.values())


def layouts(options: Options) -> list[Layout]:
    """LSTMCell, GRUCell, CudnnCompatibleGRUCell and BasicRNNCell; with `layout`, that one first."""
    asked = (options.get("layout") or "").rpartition(".")[2]
    return sorted(registry.frameworks()[NAME], key=lambda layout: layout.name != f"{NAME}.{asked}")


def read(path: Path, options: Options) -> Checkpoint:
    """Every recurrent layer of a checkpoint, a frozen graph or an archive; what is not read is told in the warnings.

    Raises UnreadableError for damaged files, UsageError for an option that is no such value.
    """
    stored, graph = _stored(path)
    reader = _Reader(stored.arrays, graph, options)
    for wrapped in wrappers(stored.arrays, options.layers()):
        reader.add(wrapped)
    if not reader.layers and not reader.warnings and npz_file.is_npz(path):
        raise UnreadableError(path, "no arrays in it are named as the variables of tf.nn.rnn_cell's cells")
    used = {full for cells in reader.cells.values() for cell in cells.values() for full in cell.names.values()}
    others = {name: array for name, array in stored.arrays.items() if name not in used}
    warnings = [f"{name}: {why}" for name, why in stored.metadata.get("unreadable", {}).items()] + reader.warnings
    evidence = [*reader.evidence, *(["the graph says what its cells compute"] if graph and reader.layers else [])]
    return Checkpoint(
        str(path), NAME, reader.layers, others, tuple(evidence), tuple(reader.undecided), tuple(warnings),
        {}, stored.arrays, Read(reader.cells),
    )  # fmt: skip


def _stored(path: Path) -> tuple[Stored, Graph | None]:
    index = tensor_bundle.index_of(path)
    if index is not None:
        beside = index.with_suffix(".meta")
        return tensor_bundle.read(index), tensorflow_graph.read(beside) if beside.is_file() else None
    if npz_file.is_npz(path):
        return npz_file.read(path), None
    graph = tensorflow_graph.read(path)
    constants = {name: node.tensor for name, node in graph.nodes.items() if node.op == "Const"}
    # Numbers that shapes and loops are made of are no weights.
    arrays = {
        name: array
        for name, array in constants.items()
        if array is not None and array.ndim and str(array.dtype.newbyteorder("=")) in FLOATS
    }
    return Stored(dict(sorted(arrays.items(), key=lambda entry: natural(entry[0])))), graph


class _Reader:
    """Layers in the making."""

    def __init__(self, arrays: Mapping[str, Array], graph: Graph | None, options: Options) -> None:
        self.arrays, self.graph, self.options = arrays, graph, options
        self.layers: dict[str, Recurrent] = {}
        self.cells: dict[str, dict[tuple[int, int], Member]] = {}
        self.undecided: list[Undecided] = []
        self.warnings: list[str] = []
        self.evidence: list[str] = []

    def add(self, wrapped: Wrapped) -> None:
        """Take in a layer, or a warning that says why it is none."""
        name = wrapped.name
        made: dict[tuple[int, int], Direction] = {}
        asked: list[Undecided] = []
        for place, member in sorted(wrapped.cells.items()):
            found = wrapped.odd or self._fitted(name, member)
            if isinstance(found, str):
                self.warnings.append(f"{name}: {found}")
                return
            layout, form = found
            local = {own: self.arrays[full] for own, full in member.names.items()}
            cell, unsure = self._cell(name, member, layout)
            asked += [question for question in unsure if question not in asked]
            made[place] = Direction(cell, unpack(layout, form, local)[0, 0], reverse=place[1] == 1)
        depth, ways = 1 + max(layer for layer, _ in made), 1 + max(way for _, way in made)
        layers = tuple(Layer(tuple(made[layer, way] for way in range(ways))) for layer in range(depth))
        try:
            self.layers[name] = Recurrent(name, layers, "end" if wrapped.join == "end" else "layer")
        except ValueError as error:
            self.warnings.append(f"{name}: its cells do not read one another: {error}")
            return
        self.cells[name] = wrapped.cells
        self.undecided += asked
        self.evidence.append(f"{name}: variables in the scopes of {', '.join(_said(wrapped))}")

    def _fitted(self, name: str, member: Member) -> tuple[Layout, Form] | str:
        """Layout and sizes of a cell, or why it is none."""
        asked = self.options.get("cell", name)
        kind = CLASSES.get(member.known) or _KINDS.get(asked or "", "")
        last = member.scope.rpartition("/")[2]
        if not kind:
            return (
                f"its cells are in the scope {last!r}, which names no class whose equations are known here; if they are "
                f"those of a class of tf.nn.rnn_cell, say which with --set {name}:cell=lstm, gru or rnn_tanh"
            )
        tried = [layout for layout in registry.frameworks()[NAME] if layout.kind == kind]
        shapes = {local: tuple(self.arrays[full].shape) for local, full in member.names.items()}
        dtypes = {str(self.arrays[full].dtype.newbyteorder("=")) for full in member.names.values()}
        if len(dtypes) > 1 or not dtypes <= set(FLOATS):
            return f"its arrays are of the types {', '.join(sorted(dtypes))}, not of one type of floating-point numbers"
        for layout in tried:
            form = fit(layout, shapes)
            if form is not None:
                return layout, form
        return f"the variables under {member.scope!r} do not go together: {misfit(tried, shapes)}"

    def _cell(self, name: str, member: Member, layout: Layout) -> tuple[Cell, list[Undecided]]:
        """What a cell computes, and what neither its scope, the graph nor the options say of it."""
        own = member.names
        kernel = own.get("kernel") or own.get("candidate/kernel") or ""
        told = tensorflow1_graph.told(self.graph, kernel, own.get("projection/kernel", "")) if self.graph else Told()
        cell, unsure = layout.cell, []
        if len(layout.holds.activations) > 1:
            function, question = self._function(name, member, told)
            cell = cell.but(activation=function, output_activation=function if layout.kind == "lstm" else TANH)
            unsure += question
        if layout.kind == "lstm":
            added, question = self._forget_bias(name, member, told)
            clips, more = self._clips(name, member, told)
            cell = cell.but(constants={"f": added}, clips=clips)
            unsure += question + more
        return cell, unsure

    def _function(self, name: str, member: Member, told: Told) -> tuple[Activation, list[Undecided]]:
        said = self.options.get("activation", name) or self.options.get("nonlinearity", name)
        choices = tuple(sorted({*FUNCTIONS.values(), "linear"}))
        if said is None and self.options.get("cell", name) == "rnn_relu":
            said = "relu"
        if said is not None:
            if said not in choices:
                raise UsageError(f"option activation cannot be {said!r} here; it is one of {', '.join(choices)}")
            return Activation(said), []
        # These classes have no argument for it.
        if told.activation is not None or member.known in ("lstm_fused_cell", "cudnn_compatible_lstm_cell"):
            return told.activation or TANH, []
        return TANH, [Undecided("activation", "tanh", choices, self._silent("function"), name)]

    def _forget_bias(self, name: str, member: Member, told: Told) -> tuple[float, list[Undecided]]:
        said = self.options.real("forget_bias", name)
        if said is not None:
            return said, []
        if told.forget_bias is not None:
            return told.forget_bias, []
        if member.known == "cudnn_compatible_lstm_cell":
            return 0.0, []
        return 1.0, [Undecided("forget_bias", "1.0", (), self._silent("forget_bias"), name)]

    def _clips(self, name: str, member: Member, told: Told) -> tuple[tuple[Clip, ...], list[Undecided]]:
        if told.clips is not None:
            return told.clips, []
        if member.known in ("basic_lstm_cell", "cudnn_compatible_lstm_cell"):
            return (), []  # these classes have none
        found, unsure = [], []
        kinds: dict[str, Any] = {"cell_clip": "cell"}
        if "projection/kernel" in member.names:
            kinds["proj_clip"] = "projection"
        for option, kind in kinds.items():
            bound = self.options.real(option, name)
            if bound is not None:
                found.append(Clip(kind, -abs(bound), abs(bound)))
            elif self.options.get(option, name) is None:
                unsure.append(Undecided(option, "none", (), self._silent(option), name))
        return tuple(found), unsure

    def _silent(self, what: str) -> str:
        if self.graph is not None:
            return f"the graph does not show its {what} where tf.nn.rnn_cell has it; its class's default was taken"
        return f"its {what} is in the graph, and there is no .meta beside the file; its class's default was taken"


def _said(wrapped: Wrapped) -> list[str]:
    return sorted({member.scope.rpartition("/")[2] for member in wrapped.cells.values()})


def write(path: Path, job: Job) -> list[str]:
    """A checkpoint of version 2, or an .npz of the variables; each layer in the scopes that TensorFlow gives its wrapper."""
    arrays: dict[str, Array | Pieced] = {}
    notes = []
    homes = job.source.read_as(Read).cells if isinstance(job.source.read, Read) else {}
    bare = len(job.parts) == 1 and not homes
    for part in job.parts:
        asked = job.options.get("prefix", part.stack.name)
        above = ("" if bare else part.stack.name) if asked is None else asked
        above = above.strip("/").replace(":", "_")
        cells = homes.get(part.stack.name, {}) if asked is None else {}
        for layer, number, direction in part.stack.directions():
            layout = _layout_of(direction, part.layout)
            home = cells.get((layer, number))
            scope = _scope(home, direction, layout) or _scopes(part.stack, above)(layer, number) + _own_scope(layout)
            single = Recurrent(part.stack.name, (Layer((direction.but(reverse=False),)),))
            for local, packed in pack(layout, single, job.dtype or direction.dtype, job.watch).items():
                kept = home.names.get(local) if home is not None and scope == home.scope else None
                put(arrays, kept or f"{scope}/{local}", packed)
        notes.append(f"{above or 'the file itself'} loads into {constructor(part.stack, part.layout)}")
    job.carry(arrays)
    if not job.dry_run:
        if path.suffix == ".npz":
            npz_file.write(path, arrays)
        else:
            tensor_bundle.write(path, arrays, job.force)
    return notes


def _layout_of(direction: Direction, layout: Layout) -> Layout:
    """The layout of a cell in a stack of cells of several kinds."""
    cell = direction.cell
    if (cell.kind, cell.reset_after) == (layout.kind, layout.reset_after):
        return layout
    return registry.layout(NAME, cell.kind, cell.reset_after)


def _own_scope(layout: Layout) -> str:
    return _SCOPES[layout.name.partition(".")[2]]


def _scope(home: Member | None, direction: Direction, layout: Layout) -> str:
    """The scope that a cell has already, if the class that it names computes what the cell does."""
    if home is None or CLASSES.get(home.known) != layout.kind:
        return ""
    cudnn = home.known.startswith("cudnn_")
    if layout.kind == "lstm" and cudnn and (direction.cell.constants.get("f") or direction.projection_size):
        return ""
    return "" if layout.kind == "gru" and cudnn != bool(layout.reset_after) else home.scope


def _scopes(stack: Recurrent, above: str) -> Any:
    """What stands before a cell's scope, by layer and direction: the scopes of TensorFlow's own wrappers."""
    start = f"{above}/" if above else ""
    if stack.num_directions == 1:
        inner = "multi_rnn_cell/cell_{layer}/" if stack.num_layers > 1 else ""
        text = start + "rnn/" + inner
    elif stack.num_layers == 1:
        text = start + "bidirectional_rnn/{way}/"
    elif stack.join == "end":
        text = start + "bidirectional_rnn/{way}/multi_rnn_cell/cell_{layer}/"
    else:
        text = start + "stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{way}/"
    head, tail = text[: len(start)], text[len(start) :]
    return lambda layer, number: head + tail.format(layer=layer, way=("fw", "bw")[number])


def constructor(stack: Recurrent, layout: Layout) -> str:
    """The calls that make a layer whose variables have these names."""
    cells = [_call(layer.directions[0], _layout_of(layer.directions[0], layout)) for layer in stack.layers]
    several = "[" + ", ".join(cells) + "]"
    if stack.num_directions == 1:
        cell = f"tf.nn.rnn_cell.MultiRNNCell({several})" if len(cells) > 1 else cells[0]
        return f"tf.nn.dynamic_rnn({cell}, x)"
    if len(cells) == 1:
        return f"tf.nn.bidirectional_dynamic_rnn({cells[0]} for each direction, x)"
    if stack.join == "end":
        return f"tf.nn.bidirectional_dynamic_rnn(tf.nn.rnn_cell.MultiRNNCell({several}) for each direction, x)"
    return f"tf.contrib.rnn.stack_bidirectional_dynamic_rnn({several} for each direction, x)"


def _call(direction: Direction, layout: Layout) -> str:
    cell = direction.cell
    words = [str(direction.hidden_size)]
    if cell.kind == "lstm":
        words += ["use_peepholes=True"] if direction.has_peepholes else []
        words += [f"num_proj={direction.projection_size}"] if direction.projection_size else []
        names = {"cell": "cell_clip", "projection": "proj_clip"}
        words += [f"{names[clip.kind]}={clip.high:g}" for clip in cell.clips]
        words += [f"forget_bias={cell.constants.get('f', 0.0):g}"]
    if cell.activation != TANH:
        words.append(
            f"activation={'tf.identity' if cell.activation.name == 'linear' else f'tf.nn.{cell.activation.name}'}"
        )
    return f"{layout.class_name}({', '.join(words)})"
