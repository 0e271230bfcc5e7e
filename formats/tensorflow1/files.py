"""TensorFlow 1's checkpoints, frozen graphs and .npz of variables: cells of tf.nn.rnn_cell and tf.contrib by their scopes.

TensorFlow is not imported. What only the graph says is read from it where it is there: in a frozen .pb, or in the .meta
beside a checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers import archives, graph_def, hdf5, npz_file, sorted_table, tensor_bundle
from rnnconvert.containers.companions import companion
from rnnconvert.containers.files import lowered
from rnnconvert.containers.graph_def import GraphDef
from rnnconvert.containers.stored import FileMetadata, Stored
from rnnconvert.core.arrays import FLOATS, Array, is_float
from rnnconvert.core.cells import RELU, TANH, Activation, Cell, Clip
from rnnconvert.core.errors import NotALayerError, UnreadableError
from rnnconvert.core.names import add, natural
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.remedies import Flag, Setting
from rnnconvert.core.weights import Call, Direction, Layer, Recurrent, Unknown
from rnnconvert.files import flat
from rnnconvert.files.adapter import Job, WriteResult, unique
from rnnconvert.files.checkpoint import Checkpoint, Contents
from rnnconvert.files.opened import SHAPED, STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.tensorflow1 import flow as tensorflow1_flow
from rnnconvert.formats.tensorflow1 import graph as tensorflow1_graph
from rnnconvert.formats.tensorflow1 import graph_model, manifest, served
from rnnconvert.formats.tensorflow1 import loops as tensorflow1_loops
from rnnconvert.formats.tensorflow1 import states as tensorflow1_states
from rnnconvert.formats.tensorflow1 import write as tensorflow1_write
from rnnconvert.formats.tensorflow1.control_flow import Conditions
from rnnconvert.formats.tensorflow1.graph import FUNCTIONS, CellGraph, GraphFacts
from rnnconvert.formats.tensorflow1.lowering import GraphDefLowering
from rnnconvert.formats.tensorflow1.names import CLASSES, FORWARD_ALONE, CellPlaces, Member, Wrapped, known_other, wrappers
from rnnconvert.formats.tensorflow1.states import Start
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import assemble, unpack
from rnnconvert.recognition.flow import ReadProgram
from rnnconvert.recognition.lowered import scopes_in

NAME = "tensorflow1"
SUFFIXES = registry.endings(NAME)

_GRAPH = ".pb"
_FIRST = ":0"
_AROUND = re.compile(r"(?:^|/)((?:attention_wrapper|\w+_cell_wrapper|\w+_projection_wrapper|embedding_wrapper)(?:_\d+)?)/")
"""Scopes of wrappers that compute: attention, projections of inputs and outputs."""
_WORDS = {"initial_hidden": "initial state", "initial_cell": "initial cell state"}
_HIGHWAY = re.compile(r"(^|/)carry_w(_\d+)?$")
_KINDS = {"lstm": "lstm", "gru": "gru", "rnn_tanh": "rnn", "rnn_relu": "rnn"}


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize variables in the scopes of tf.nn.rnn_cell's classes, or a frozen graph."""
    if graph_model.topology(file) is not None:
        return FormatClaim(STATED, "a graph of TensorFlow's, as TensorFlow.js keeps it")
    listed = manifest.manifest(file)
    if listed is not None:
        if not _has_known(wrappers(manifest.names(listed))):
            return None
        return FormatClaim(STATED, "a manifest of a checkpoint's variables, as deeplearn.js and ml5.js load them")
    index = tensor_bundle.index_of(file.path)
    if index is not None:
        kind = "a TensorFlow checkpoint" if has_cells(index) else ""
    elif "table" in file.kinds:
        return FormatClaim(STATED, "a TensorFlow checkpoint of version 1")
    elif lowered(file.path).suffix == _GRAPH and graph_def.looks_like(file.head):
        return FormatClaim(STATED, "a graph of TensorFlow's")
    elif file.archive and file.kinds & {"hdf5", "npz", "pickle"}:
        kind = file.archive if _in_archive(file) else ""
    else:
        return None
    return FormatClaim(SHAPED, f"{kind} with variables in the scopes of tf.nn.rnn_cell") if kind else None


def _in_archive(file: Opened) -> bool:
    """Return whether an archive holds variables of TensorFlow 1's cells, and none of Keras's layers; False for a damaged one."""
    try:
        stored = file.cached(archives.reader(file.path, file.head))
    except UnreadableError:
        return False
    attributes = stored.metadata_as(FileMetadata).get("attributes", {}).values()
    if any(held.keys() & {"layer_names", "weight_names", "keras_version", "model_config"} for held in attributes):
        return False
    wrapped_cells = wrappers(name.removesuffix(_FIRST) for name in stored.arrays)
    # Keras 3 numbers its variables in scopes of the same names, and people call a cell of theirs `lstm_cell`.
    return any(member.known_class and member.state_matrix for wrapped in wrapped_cells for member in wrapped.cells.values())


def has_cells(index: Path) -> bool:
    """Return whether a checkpoint has variables of TensorFlow 1's cells; False for a damaged one."""
    try:
        names = tensor_bundle.names(index)
    except UnreadableError:
        return False
    wrapped_cells = wrappers(names)
    if _has_known(wrapped_cells) or any(name.rpartition("/")[2] == "opaque_kernel" for name in names):
        return True
    cells = [cell for wrapped in wrapped_cells for cell in wrapped.cells.values()]
    return any(cell.state_matrix and "recurrent_kernel" not in cell.names for cell in cells)


def _has_known(wrapped_cells: Collection[Wrapped]) -> bool:
    return any(member.known_class for wrapped in wrapped_cells for member in wrapped.cells.values())


def layouts(options: Options) -> list[Layout]:
    """Return the layouts of LSTMCell, GRUCell, CudnnCompatibleGRUCell and BasicRNNCell."""
    return registry.layouts_of(NAME)


_NOT_FOLLOWED = (Call(Unknown("what its graph has between layers is not followed")),)


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent layer of a checkpoint, a frozen graph or an archive; warnings name what is not read.

    Raises UnreadableError for damaged files, UsageError for an option without such a value.
    """
    stored, graph, companion_files = _stored(path)
    frozen = Conditions(graph).decided() if graph is not None and tensor_bundle.index_of(path) is None else None
    graph = frozen or graph
    looked = tensorflow1_loops.RecognisedLayers() if frozen is None else tensorflow1_loops.read(path, frozen)
    reader = _CellReader(stored.arrays, _cells(path, graph, stored.arrays, looked), options)
    reader.looked = looked
    state_variables = tensorflow1_graph.state_variables(graph) if graph else set()
    for wrapped in wrappers([name for name in stored.arrays if name not in state_variables], options.settings.layers()):
        reader.add(wrapped)
    for full in stored.arrays:
        reader.add_flat(path, full)
    turned = tensorflow1_graph.turned(graph) if graph and reader.layers else ""
    if turned:
        reader.warnings.append(
            f"the graph reverses a sequence ({turned}): a layer between two such nodes reads from the end, which is not kept"
        )
    reader.add_computed()
    reader.add_loops()
    reader.add_steps()
    reader.follow()
    if not reader.layers and not reader.warnings and (npz_file.is_npz(path) or hdf5.is_hdf5(path)):
        raise UnreadableError(path, "no arrays in it are named as the variables of tf.nn.rnn_cell's cells")
    used = (
        {full for cells in reader.cells.values() for cell in cells.values() for full in cell.names.values()}
        | reader.flat
        | reader.states
        | reader.inside
    )
    reader.others = {name: array for name, array in stored.arrays.items() if name not in used}
    unreadable = stored.metadata_as(FileMetadata).get("unreadable", {})
    reader.warnings = [*(LayerNote(name, str(why)) for name, why in unreadable.items()), *reader.warnings]
    reader.evidence += ["the graph states what its cells compute"] if graph and reader.layers else []
    if graph is not None:
        reader.layers = {name: stack if stack.calls else stack.replace(calls=_NOT_FOLLOWED) for name, stack in reader.layers.items()}
    program = ReadProgram(reader.looked.scopes, {}, reader.looked.layers) if reader.looked.scopes else None
    read = CellPlaces(reader.cells, program)
    return reader.checkpoint(path, NAME, options, arrays=stored.arrays, read=read, beside=tuple(map(str, companion_files)))


def _cells(path: Path, graph: GraphDef | None, arrays: Mapping[str, Array], looked: tensorflow1_loops.RecognisedLayers) -> CellGraph | None:
    """Return the cells of a graph, whose variables are constants of it."""
    if graph is None:
        return None
    inference = tensorflow1_graph.without_training(graph)
    if inference is graph and looked.scopes:
        return CellGraph(looked.scopes)
    return CellGraph(scopes_in(lambda: GraphDefLowering(served.with_constants(inference, arrays)).program(path)))


def _stored(path: Path) -> tuple[Stored, GraphDef | None, tuple[Path, ...]]:
    """Return the arrays of a file, the graph that computes with them, and other files that belong to a graph."""
    index = tensor_bundle.index_of(path)
    if index is not None:
        meta_graph = companion(index, f"{index.name.removesuffix(tensor_bundle.SUFFIX)}.meta")
        return tensor_bundle.read(index), graph_def.read(meta_graph) if meta_graph.is_file() else None, ()
    file = Opened(path)
    listed = manifest.manifest(file)
    if listed is not None:
        variables, files = manifest.read(listed)
        return variables, None, files
    if file.kinds & {"npz", "hdf5", "pickle"}:
        return _by_variable(file.cached(archives.reader(path, file.head))), None, ()
    if sorted_table.ends(path):
        raise UnreadableError(
            path,
            "a TensorFlow checkpoint of version 1, whose table is compressed",
            "Restore it with tf.train.Saver and save it again: since TensorFlow 0.12 that writes version 2.",
        )
    model = graph_model.topology(file)
    graph, companion_files = (graph_def.read(path), ()) if model is None else graph_model.read(model)
    constants = {name: node.tensor for name, node in graph.nodes.items() if node.op == "Const"}
    # Numbers that shapes and loops are made of are no weights.
    arrays = {name: array for name, array in constants.items() if array is not None and array.ndim and is_float(array)}
    return Stored(dict(sorted(arrays.items(), key=lambda entry: natural(entry[0])))), graph, companion_files


def whole_graph(path: Path) -> GraphDef | None:
    """Return a file's graph as it stands; None for variables alone."""
    return None if tensor_bundle.index_of(path) is not None else _stored(path)[1]


def _by_variable(stored: Stored) -> Stored:
    """Return the arrays by the names of variables: names of tensors end in ":0"."""
    names = [name.removesuffix(_FIRST) for name in stored.arrays]
    if len(set(names)) < len(names):
        return stored
    return replace(stored, arrays=dict(zip(names, stored.arrays.values(), strict=True)))


class _CellReader(Contents):
    """Layers in the making."""

    def __init__(self, arrays: Mapping[str, Array], graph: CellGraph | None, options: Options) -> None:
        super().__init__(arrays=dict(arrays))
        self.graph, self.options = graph, options
        self._highways: dict[str, list[str]] = {}
        for name in filter(_HIGHWAY.search, arrays):
            self._highways.setdefault(name.rpartition("/")[0], []).append(name)
        self.cells: dict[str, dict[tuple[int, int], Member]] = {}
        self.flat: set[str] = set()
        self.states: set[str] = set()
        self.loops = graph.loops(arrays) if graph is not None else []
        self.named: set[str] = set()
        self.inside: set[str] = set()
        self.computing: set[str] = set()  # operations of layers that are read by what they compute
        self.looked = tensorflow1_loops.RecognisedLayers()

    def _read(self) -> set[str]:
        """Return the arrays of the layers that are read by their names."""
        return {full for cells in self.cells.values() for cell in cells.values() for full in cell.names.values()}

    def add_computed(self) -> None:
        """Take in the layers that operations of the graph compute, apart from those that are read by their names."""
        read = self._read() | self.named
        for name, layer in self.looked.layers.items():
            constants = tensorflow1_loops.constants(layer)
            if constants & read:
                continue
            name = unique(name, self.layers)
            renamed = layer.renamed(name)
            self.layers[name] = renamed.stack
            self.warnings += renamed.warnings
            self.inside |= constants & self.arrays.keys()
            self.computing |= tensorflow1_loops.names(layer)
            self.evidence.append(renamed.evidence)

    def follow(self) -> None:
        """Note what the layers that are read by their names receive in the graph."""
        if self.graph is None:
            return
        owned = {
            name: (
                self.layers[name],
                [
                    frozenset(full for (_, cell_way), member in cells.items() if cell_way == way for full in member.names.values())
                    for way in sorted({way for _, way in cells})
                ],
            )
            for name, cells in self.cells.items()
        }
        calls, self.batch_first = tensorflow1_flow.calls(self.graph, owned)
        for name, received in calls.items():
            self.layers[name] = self.layers[name].replace(calls=received)

    def add_loops(self) -> None:
        """Name the recurrent layers that are loops and are not read."""
        read = self._read() | self.inside
        for loop in self.loops:
            if loop.node in self.computing or (read | self.named) & loop.matrices.keys():
                continue
            why = self.looked.reasons.get(loop.node, "") or self.looked.reasons.get("", "")
            self._leave(
                LayerNote(
                    loop.name,
                    f"{loop}; it is not a layer that can be read{': ' + why if why else ''}. Save the model where it was "
                    f"made (Keras: model.save('model.keras'), or model.save_weights), or give its arrays as .npz with {Flag('layout')}",
                    UNREAD,
                )
            )

    def add_steps(self) -> None:
        """Name what looks like a recurrent layer where nothing else was read or named."""
        if self.layers or self.unread:
            return
        for refusal in self.looked.refusals():
            self._leave(refusal)

    def _computed(self, wrapped: Wrapped) -> bool:
        """Return whether layers that operations of the graph compute are made of the arrays of cells."""
        arrays = {full for cell in wrapped.cells.values() for full in cell.names.values()}
        return any(arrays & tensorflow1_loops.constants(layer) for layer in self.looked.layers.values())

    def _unfitted(self, wrapped: Wrapped, member: Member, why: str) -> None:
        """Say why cells are not a layer, where no loop says more about them."""
        arrays = {full for cell in wrapped.cells.values() for full in cell.names.values()}
        if member.known_class and not wrapped.odd and any(arrays & loop.matrices.keys() for loop in self.loops):
            return
        if self._computed(wrapped):
            return
        self.named |= arrays
        last = member.scope.rpartition("/")[2]
        (self._leave if member.known_class or known_other(last) else self.warnings.append)(LayerNote(wrapped.name, str(why), UNREAD))

    def _leave(self, why: LayerNote) -> None:
        """Note that a recurrent layer is not read."""
        self.warnings.append(why)
        self.unread.append(why)

    def add(self, wrapped: Wrapped) -> None:
        """Take in a layer, or a warning that says why it is not one."""
        name = wrapped.name
        forward = [member.state_matrix for member in wrapped.cells.values()]
        if wrapped.odd == FORWARD_ALONE and self.graph is not None and all(map(self.graph.in_both_ways, forward)):
            wrapped.share()
        directions: dict[tuple[int, int], Direction] = {}
        notes: list[str] = []
        states: set[str] = set()
        for place, member in sorted(wrapped.cells.items()):
            try:
                layout, sizes = self._fitted(wrapped, member)
            except NotALayerError as error:
                self._unfitted(wrapped, member, str(error))
                return
            local = {short_name: self.arrays[full] for short_name, full in member.names.items()}
            cell = self._cell(name, member, layout)
            direction = Direction(cell, unpack(layout, sizes, local)[0, 0], reverse=place[1] == 1)
            begins = self._starts(member, direction)
            odd = next((f"its {_WORDS[part]}: {start.odd}" for part, start in begins.items() if start.odd), "")
            if odd.endswith(tensorflow1_states.UNSEEN) and self._computed(wrapped):
                return
            if odd and self.options.get("initial_state", name) != "call":
                self.named |= {full for cell in wrapped.cells.values() for full in cell.names.values()}
                self._leave(
                    LayerNote(
                        name,
                        f"what its cells begin with cannot be read, {odd}. If you pass that state at every call, confirm with "
                        f"{Setting('initial_state', 'call')}",
                        UNREAD,
                    )
                )
                return
            notes += [
                LayerNote(
                    name, f"its {_WORDS[part]} is computed from what the model reads ({start.fed}), or given there: pass it at every call"
                )
                for part, start in begins.items()
                if start.fed
            ]
            states.update(*(start.made_of for start in begins.values()))
            directions[place] = _with_starts(direction, begins)
        depth, ways = 1 + max(layer for layer, _ in directions), 1 + max(way for _, way in directions)
        widths = {directions[0, way].input_size for way in range(ways)}
        if len(widths) > 1:
            self._leave(LayerNote(name, f"its two directions read {' and '.join(map(str, sorted(widths)))} values per step", UNREAD))
            return
        layers = tuple(Layer(tuple(directions[layer, way] for way in range(ways))) for layer in range(depth))
        try:
            self.layers[name] = Recurrent(name, layers, "end" if wrapped.join == "end" else "layer")
        except ValueError as error:
            self._leave(LayerNote(name, f"its cells do not read one another: {error}", UNREAD))
            return
        around = {match[1] for member in wrapped.cells.values() if (match := _AROUND.search(member.scope))}
        self.warnings += [LayerNote(name, f"the computation of {operator} around its cells is not read") for operator in sorted(around)]
        between = self._around(wrapped)
        self.warnings += [LayerNote(name, str(sentence)) for sentence in between]
        if depth > 1:  # what stands around the cells of a stack stands between its layers
            between += [f"{operator} computes around its cells" for operator in around]
            self.options.facts(name, "what stands between its layers", {f"layer {n}": sentence for n, sentence in enumerate(between)})
            if self.graph is None and not any("cudnn" in member.known_class for member in wrapped.cells.values()):
                self.warnings.append(LayerNote(name, _UNSEEN_BETWEEN))
        self.warnings += notes
        self.states |= states
        self.cells[name] = wrapped.cells
        self.evidence.append(f"{name}: variables in the scopes of {', '.join(_scopes_named(wrapped))}")

    def _starts(self, member: Member, direction: Direction) -> dict[str, Start]:
        """Return the first states of a cell, by part; nothing if no graph shows them."""
        if self.graph is None:
            return {}
        sizes = {"initial_hidden": direction.output_size}
        if direction.cell.kind == "lstm":
            sizes["initial_cell"] = direction.hidden_size
        return tensorflow1_states.starts(self.graph, member.state_matrix, sizes)

    def _around(self, wrapped: Wrapped) -> list[str]:
        """Return the computations around the cells of a layer by wrappers without a separate scope."""
        above = {member.scope.rpartition("/")[0] for member in wrapped.cells.values()}
        gates = [name for scope in above for name in self._highways.get(scope, ())]
        sentences = [f"HighwayWrapper mixes what a cell reads into what it gives ({gates[0]}), which is not read"] if gates else []
        graph = self.graph
        if graph is None:
            return sentences
        cells = [member.matrix for member in wrapped.cells.values()]
        sums = [addition for matrix in cells for addition in graph.residual_adds(matrix)]
        if sums and not gates:
            sentences.append(f"the graph adds something to what its cells give ({sums[0]}), as ResidualWrapper does; that is not read")
        times = max(map(graph.uses, cells))
        if times > 1:
            sentences.append(
                f"the graph computes a cell of it {times} times in each step, like a MultiRNNCell that has one cell several times; "
                "that is read as one layer"
            )
        return sentences

    def add_flat(self, path: Path, full: str) -> None:
        """Take in a vector of CudnnLSTM and its kin, whose sizes the options give."""
        scope, _, local = full.rpartition("/")
        array = self.arrays[full]
        if local != "opaque_kernel" or array.ndim != 1 or not is_float(array):
            return
        name = scope or local
        possible = [layout for layout in registry.layouts_of(NAME) if layout.name.endswith("_flat")]
        try:
            layout, sizes = flat.sizes(path, possible, name, array.size, {}, self.options)
        except NotALayerError as error:
            self._leave(LayerNote(name, str(error), UNREAD))
            return
        cell = layout.cell.replace(activation=RELU) if self.options.get("cell", name) == "rnn_relu" else layout.cell
        add(self.layers, name, assemble(name, cell, unpack(layout, sizes, {local: array}), sizes.num_directions), path)
        self.flat.add(full)
        self.evidence.append(f"{name}: the vector of {layout.class_name}, according to the options")

    def _fitted(self, wrapped: Wrapped, member: Member) -> tuple[Layout, Sizes]:
        """Return the layout and sizes of a cell. Raises NotALayerError."""
        if wrapped.odd:
            raise NotALayerError(wrapped.odd)
        kind = CLASSES.get(member.known_class) or _KINDS[self._class(wrapped)]
        tried = _tried(kind, member.known_class.startswith("coupled_"))
        shapes = self._shapes(member)
        dtypes = {str(self.arrays[full].dtype.newbyteorder("=")) for full in member.names.values()}
        if len(dtypes) > 1 or not dtypes <= set(FLOATS):
            raise NotALayerError(f"its arrays are of the types {', '.join(sorted(dtypes))}, not of one type of floating-point numbers")
        for layout in tried:
            sizes = fit(layout, shapes)
            if sizes is not None:
                return layout, sizes
        raise NotALayerError(f"the variables under {member.scope!r} do not fit together: {misfit(tried, shapes)}")

    def _shapes(self, member: Member) -> dict[str, tuple[int, ...]]:
        return {local: tuple(self.arrays[full].shape) for local, full in member.names.items()}

    def _class(self, wrapped: Wrapped) -> str:
        """Return the class that the caller names for cells whose scopes name none, among those that their shapes allow.

        Raises NotALayerError if no class has such variables, or if the scopes belong to cells with other equations.
        """
        name, cells = wrapped.name, list(wrapped.cells.values())
        scopes = [cell.scope.rpartition("/")[2] for cell in cells if not cell.known_class]
        why = f"its cells are in the scope {scopes[0]!r}, which names no class with known equations"
        possible = [
            word for word, kind in _KINDS.items() if all(any(fit(layout, self._shapes(cell)) for layout in _tried(kind)) for cell in cells)
        ]
        if self.options.peek("cell", name) is None and (not possible or any(map(known_other, scopes))):
            raise NotALayerError(
                f"{why}. If they are those of a class of tf.nn.rnn_cell, choose it with "
                f"{Setting('cell', 'lstm', 'gru', 'rnn_tanh', layer=name)}"
            )
        why += f"; by their names and shapes they may be {' or '.join(possible)} of tf.nn.rnn_cell"
        return self.options.ask("cell", name, assumed=possible[0] if possible else "", why=why, choices=possible, common=True)

    def _cell(self, name: str, member: Member, layout: Layout) -> Cell:
        """Return a cell; the caller is asked for facts that neither its scope nor the graph states."""
        names = member.names
        # A coupled cell splits its product in three: of its graph nothing is read.
        kernel = member.matrix
        facts = self.graph.facts(kernel, names.get("projection/kernel", "")) if self.graph and kernel else GraphFacts()
        cell = layout.cell
        if len(layout.holds.activations) > 1:
            function = self._function(name, member, facts)
            cell = cell.replace(activation=function, output_activation=function if layout.kind == "lstm" else TANH)
        if layout.kind == "lstm":
            added = self._forget_bias(name, member, facts)
            cell = cell.replace(constants={"f": added}, clips=self._clips(name, member, facts))
        return cell

    def _function(self, name: str, member: Member, facts: GraphFacts) -> Activation:
        choices = tuple(sorted({*FUNCTIONS.values(), "linear"}))
        if facts.activation is not None:
            answer = self.options.stated("activation", name, facts.activation.name, "the graph", ("nonlinearity",))
            return facts.activation if answer == facts.activation.name else Activation(answer)
        # These classes have no argument for it.
        if member.known_class in ("lstm_fused_cell", "cudnn_compatible_lstm_cell"):
            return TANH
        if self.options.peek("cell", name) == "rnn_relu":
            return Activation(self.options.stated("activation", name, "relu", "the option cell", ("nonlinearity",)))
        why, also = self._silent("function"), ("nonlinearity",)
        return Activation(self.options.ask(("activation", *also), name, assumed="tanh", why=why, choices=choices, common=self._unseen))

    def _forget_bias(self, name: str, member: Member, facts: GraphFacts) -> float:
        if facts.forget_bias is not None:
            return _number(self.options.stated("forget_bias", name, f"{facts.forget_bias:.9g}", "the graph"))
        if member.known_class == "cudnn_compatible_lstm_cell":
            return 0.0
        return _number(self.options.ask("forget_bias", name, assumed="1.0", why=self._silent("forget_bias"), common=self._unseen))

    def _clips(self, name: str, member: Member, facts: GraphFacts) -> tuple[Clip, ...]:
        if member.known_class in ("basic_lstm_cell", "cudnn_compatible_lstm_cell"):
            return facts.clips or ()  # these classes have none
        kinds: dict[str, Any] = {"cell_clip": "cell"} if "kernel" in member.names else {}
        if {"projection/kernel", "W_P_0"} & set(member.names):
            kinds["proj_clip"] = "projection"
        clips = [clip for clip in facts.clips or () if clip.kind not in kinds.values()]
        for option, kind in kinds.items():
            if facts.clips is not None:
                clip_stated = next((clip for clip in facts.clips if clip.kind == kind), None)
                stated = "none" if clip_stated is None else f"{clip_stated.high:.9g}"
                bound = self.options.stated(option, name, stated, "the graph")
                if clip_stated is not None and bound == stated:
                    clips.append(clip_stated)
                    continue
            else:
                bound = self.options.ask(option, name, assumed="none", why=self._silent(option))
            if bound != "none":
                clips.append(Clip(kind, -abs(float(bound)), abs(float(bound))))
        return tuple(clips)

    @property
    def _unseen(self) -> bool:
        """Whether there is a graph, which may state something else than what is usual where it is not followed."""
        return self.graph is not None

    def _silent(self, what: str) -> str:
        if self.graph is not None:
            return f"the graph does not show its {what} where tf.nn.rnn_cell has it"
        return f"its {what} is in the graph, but the .meta file is missing"


_UNSEEN_BETWEEN = (
    "its layers are read as a plain stack: whether something is added between them, as ResidualWrapper does and ELMo's models do, is in "
    "the graph, but the .meta file is missing"
)


def _tried(kind: str, coupled: bool = False) -> list[Layout]:
    """Return the layouts of the classes of a kind."""
    return [
        layout
        for layout in registry.layouts_of(NAME)
        if layout.kind == kind and bool(layout.coupled) == coupled and not layout.name.endswith("_flat")
    ]


def _number(value: str) -> float:
    return 0.0 if value == "none" else float(value)


def _with_starts(direction: Direction, begins: Mapping[str, Start]) -> Direction:
    """Return a direction with the states that it begins with, if one of them is not zero."""
    numbers = {part: start.numbers for part, start in begins.items() if start.numbers is not None}
    if not any(array.any() for array in numbers.values()):
        return direction
    sizes = {"initial_hidden": direction.output_size, "initial_cell": direction.hidden_size}
    states = {(part, ""): numbers.get(part, np.zeros(sizes[part])).astype(direction.dtype) for part in begins}
    return direction.with_arrays(states)


def _scopes_named(wrapped: Wrapped) -> list[str]:
    return sorted({member.scope.rpartition("/")[2] for member in wrapped.cells.values()})


companions = tensorflow1_write.companions


def write(path: Path, job: Job) -> WriteResult:
    """Write a checkpoint of version 2, or an .npz of the variables; each layer in the scopes of TensorFlow's own wrapper."""
    return tensorflow1_write.write(path, job)
