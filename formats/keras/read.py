"""Reading Keras's files: every recurrent layer, by its arrays and by what its configuration states."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import FLOATS
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, HARD_SIGMOID_KERAS_3, SIGMOID, TANH, Activation, Cell
from rnnconvert.core.errors import RefusedError, UnreadableError, UsageError
from rnnconvert.core.names import add
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.printable import called
from rnnconvert.core.remedies import Flag
from rnnconvert.core.weights import Call, Direction, Layer, Merge, Recurrent
from rnnconvert.files.catalogue import OPTIONS
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.conservation import attributes_of
from rnnconvert.files.options import Options
from rnnconvert.formats.keras import keys
from rnnconvert.formats.keras import ours as keras_ours
from rnnconvert.formats.keras.cells import CellArrays, CellPlace, StatedLayers, find, is_cell_of_keras
from rnnconvert.formats.keras.cells_of_layers import (
    WHOLE_MODEL,
    cells_of,
    incomplete,
    leftovers,
    numbered,
    ordered,
    place_of,
    sides_of,
    stacked_in,
    unsaved,
)
from rnnconvert.formats.keras.config import KINDS, Era, activation, functions, unstated
from rnnconvert.formats.keras.configured import Configured, Outside
from rnnconvert.formats.keras.files import NAME
from rnnconvert.formats.keras.metadata import KerasMetadata, stated_model, stated_of_file, version_shown
from rnnconvert.formats.keras.model.entries import NORMED, WRAPPERS, Entry, entry, every, innermost, of_file
from rnnconvert.formats.keras.model.layered_calls import unusual_settings
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.layout import Layout, Sizes
from rnnconvert.language.packing import unpack

if TYPE_CHECKING:
    from rnnconvert.formats.keras import saved_graph

_SILENT = "the configuration of this layer does not state it"
_GRAPH_FILE = "saved_model.pb"
_FUNCTIONS = ("tanh", "relu", "sigmoid", "hard_sigmoid", "linear", "softsign", "softplus", "elu", "selu")
_ORDERS = {"lstm": ("an LSTM", "i f c o"), "gru": ("a GRU", "z r h")}
"""How gates are stacked, in Keras's letters."""
_MOST_NAMED = 8


ALONE = Outside()
"""The architecture of weights without a file of it: none."""


def graph_file(path: Path) -> Path:
    """Return where the graph of a SavedModel is that a path is of; whether it exists is the caller's question."""
    above = path.parent
    if path.name == _GRAPH_FILE:
        folder = above
    elif above.name == "variables":
        folder = above.parent
    else:
        folder = path
    return folder / _GRAPH_FILE


def _is_time_major(where: Entry | None) -> bool:
    """Return whether a layer is called with (time, batch, features)."""
    return where is not None and bool(innermost(where, ("Bidirectional", "TimeDistributed")).config.get("time_major"))


def _has_cells(layer: Entry, cells: Sequence[CellArrays]) -> bool:
    """Return whether a layer is a recurrent one of Keras's own, of one direction or two as its cells are."""
    layer = innermost(layer)
    sides = sides_of(layer)
    inside = [cell for side in sides for cell in cells_of(side)]
    recurrent = bool(inside) and all(entry_.built_in for entry_ in sides) and all(cell.class_name in KINDS for cell in inside)
    return recurrent and (cells[0].direction is not None) == (layer.class_name == "Bidirectional")


def _has_norms(layer: Entry) -> bool:
    """Return whether norms stand in a cell of a recurrent layer."""
    return any(cell.class_name == NORMED for side in sides_of(layer) for cell in cells_of(side))


class LayerReader:
    """One file on its way to the canonical form."""

    def __init__(self, path: Path, stored: Stored, options: Options, outside: Outside = ALONE) -> None:
        """Take the arrays of a file, and the configuration that another file states."""
        self.path, self.stored, self.options, self.outside = path, stored, options, outside
        self._asking = options  # as the direction that is read asks it
        self.attributes = stored.metadata_as(KerasMetadata).get("attributes", {})
        self.era = self._era()
        self.model = self._model()
        major = self.era.major if self.era.text else 0
        self.configured = None if self.model is None else Configured(self.model, path, major)
        root = stored.metadata_as(KerasMetadata).get("root_config")
        self.called = Configured(entry(root), path, major) if root and self.configured is None else self.configured
        self.graph = self._graph()
        self.evidence: list[str] = []
        self.warnings: list[str] = [outside.warning] if outside.warning else []
        self._where = "its configuration" + (f" in {outside.path.name}" if outside.config is not None else "")
        self.unread: list[LayerNote] = []

    def read(self) -> Checkpoint:
        """Return the checkpoint."""
        found_cells = self._cells()
        groups: dict[str, list[CellArrays]] = {}
        for cell in found_cells:
            groups.setdefault(cell.layer, []).append(cell)
        if not found_cells and any(name.rpartition("/")[2] == "param_0" for name in self.stored.arrays):
            raise RefusedError(
                "the weights of Keras 0.x",
                "the canonical form",
                "its arrays are numbered instead of named",
                "Load the file in Keras 1 and save it again.",
            )
        layers: dict[str, Recurrent] = {}
        places: dict[str, CellPlace] = {}
        normed: dict[str, CellPlace] = {}
        used: set[str] = set()
        configured: dict[str, str] = {}
        entries: dict[str, Entry | None] = {}
        elsewhere = {full for cell in found_cells for full in cell.names}
        for path, cells in groups.items():
            layer = self._entry(path)
            where = self._inside(layer, path, cells)
            cells = ordered(cells, where)
            name = self._name(path, where, layers)
            configured[name] = where.name if where is not None else ""
            stack = self._stack(name, where, cells)
            if stack is None and where is not None and _has_norms(where):
                normed[name] = CellPlace(path, numbered(cells))
            elif stack is not None:
                self.warnings += self._own_around(name, where, layer)
                self.options.facts(name, "its arrays", leftovers(self.stored.arrays, cells, elsewhere))
                layer_attributes = attributes_of(self.attributes, [full for cell in cells for full in cell.names])
                self.options.facts(name, "its attributes", layer_attributes, harmless=WHOLE_MODEL)
                layers[name] = stack
                entries[name] = where
                places[name] = CellPlace(path, numbered(cells))
                used |= {array for cell in cells for array in cell.names}
        own_names: dict[str, dict[str, str]] = {}
        stated = {name: where for name, where in entries.items() if where is not None}
        try:
            for ours_as, ours, names in keras_ours.find_own(self.model, self.stored.arrays, self.attributes):
                add(layers, ours.name, ours, self.path)
                stated[ours.name] = ours_as
                own_names[ours.name] = names
                configured[ours.name] = ours.name
                used.update(names.values())
                self.evidence.append(f"{ours.name}: configured as a layer of rnnconvert's own")
        except UsageError as error:
            raise UnreadableError(self.path, str(error)) from None
        for name, reason in self.stored.metadata_as(KerasMetadata).get("unreadable", {}).items():
            self.warnings.append(LayerNote(name, str(reason)))
        accounted = {array.rpartition("/")[0] for cell in found_cells for array in cell.names} | {
            array_name.rpartition("/")[0] for array_name in used
        }
        self.unread += incomplete(self.stored.arrays, accounted, self._called)
        lost = [] if self.model is None else unsaved(self.model, self.attributes, self.stored.arrays)
        self.unread += [note for note in lost if note.kind == UNREAD]
        self.warnings += [note for note in lost if note.kind != UNREAD]
        self.warnings[:0] = self._gate_orders(layers, entries)
        others = {name: array for name, array in self.stored.arrays.items() if name not in used}
        layers = self._in_models_order(layers, configured)
        calls = self._calls(layers, stated, places)
        layers = {name: stack.replace(calls=calls.get(name, ())) for name, stack in layers.items()}
        return Checkpoint(
            str(self.path),
            NAME,
            layers,
            others,
            tuple(self.evidence),
            self.options.questions,
            (*self.warnings, *self.unread),
            self.stored.metadata,
            self.stored.arrays,
            StatedLayers(self.model, self.era, places, own_names, entries, normed),
            tuple(self.unread),
            turned=frozenset() if self.called is None else self.called.turned(layers, stated),
            batch_first={name: not _is_time_major(entries.get(name)) for name in layers},
        )

    def _gate_orders(self, layers: Mapping[str, Recurrent], entries: Mapping[str, Entry | None]) -> Iterator[str]:
        """Yield the order in which gates are taken to be stacked, where only names show it: other libraries have Keras's names, too."""
        if not self.stored.metadata_as(KerasMetadata).get("names_alone"):
            return
        for kind, (word, order) in _ORDERS.items():
            named = [called(name) for name, where in entries.items() if where is None and layers[name].cell.kind == kind]
            if named:
                more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
                yield (
                    f"Keras's gate order {order} of {word} is assumed for {', '.join(named[:_MOST_NAMED])}{more}, by the names of "
                    f"the arrays alone; {Flag('layout')} describes another"
                )

    def _cells(self) -> list[CellArrays]:
        return find(self.stored.arrays, lambda path: is_cell_of_keras(self._entry(path), self._label(path)))

    def _calls(
        self, layers: Mapping[str, Recurrent], stated: Mapping[str, Entry], places: Mapping[str, CellPlace]
    ) -> Mapping[str, tuple[Call, ...]]:
        """Return the calls of each layer, if the file states a model around it."""
        if self.called is not None:
            return self.called.calls(layers, stated)
        if self.graph is None:
            return {}
        from rnnconvert.formats.keras import saved_calls

        return saved_calls.received(self.graph, {name: place.path for name, place in places.items()}, layers)

    def _era(self) -> Era:
        meaning = self.options.peek("hard_sigmoid")
        version = stated_of_file(self.stored, "keras_version", self.outside.version)
        stated = "." in version  # "2-tf" is read off a graph of objects
        version = version or version_shown(self.stored)
        meanings = {None: None, "keras2": HARD_SIGMOID_KERAS_2, "keras3": HARD_SIGMOID_KERAS_3}
        return Era(version, meanings[meaning], stated)

    def _graph(self) -> saved_graph.SavedGraph | None:
        """Return the graph of a SavedModel without configurations."""
        file = graph_file(self.path)
        if "layer_configs" in self.stored.metadata or self.model is not None or not file.is_file():
            return None
        from rnnconvert.formats.keras import saved_graph

        return saved_graph.read(file, [place_of(cell) for cell in self._cells()])

    def _model(self) -> Entry | None:
        config = stated_model(self.path, self.stored.metadata_as(KerasMetadata)) or self.outside.config
        if not isinstance(config, Mapping) or not isinstance(config.get("config"), (Mapping, list)):
            return None
        with of_file(self.path):
            model = entry(config)
            for layer in every(model):
                if layer.class_name in WRAPPERS and layer.inner("layer") is None:
                    raise UnreadableError(self.path, f"the {layer.class_name} {layer.name!r} has no layer inside")
            return model

    def _entry(self, path: str) -> Entry | None:
        """Return the configuration of the layer at a path."""
        return self._entry_beside(path) if self.configured is None else self.configured.entry(path)

    def _inside(self, where: Entry | None, path: str, cells: Sequence[CellArrays]) -> Entry | None:
        """Return the layer of Keras's own that a layer of a user's own class is around, where the file states one that has these cells."""
        if where is None or where.built_in:
            return where
        places = self.stored.metadata_as(KerasMetadata).get("places", {})
        configs = self.stored.metadata_as(KerasMetadata).get("layer_configs", {})
        wrapped = where.inner("layer")
        inner = {wrapped.name: wrapped} if wrapped is not None else {}
        for place, name in places.items():
            if places.get(place.rpartition("/")[0]) == where.name:
                inner.setdefault(name, entry(configs[name]))
        fitting = [layer for layer in inner.values() if _has_cells(layer, cells)]
        named = [layer for layer in fitting if layer.name in path.split("/")]
        return named[0] if len(named) == 1 else fitting[0] if len(fitting) == 1 else where

    def _own_around(self, name: str, where: Entry | None, entry: Entry | None) -> Iterator[LayerNote]:
        """Yield the classes of a user's own that are around a layer of Keras's own."""
        outer = [where] if where is not None else []
        for layer in outer:  # which grows
            outer += self.called.wrappers(layer) if self.called is not None else []
        for class_name in dict.fromkeys(layer.class_name for layer in (entry, *outer) if layer is not None and not layer.built_in):
            yield LayerNote(
                name, f"the class {class_name!r} around it is not one of Keras's own: what it does to inputs and outputs is unknown"
            )

    def _in_models_order(self, layers: Mapping[str, Recurrent], configured: Mapping[str, str]) -> dict[str, Recurrent]:
        """Return the layers in the model's order: a Keras 3 file sorts its classes by name."""
        order = self.configured.ranks if self.configured is not None else {}
        ranks = {name: order[label] for name, label in configured.items() if label in order}
        return {name: layers[name] for name in sorted(layers, key=lambda name: ranks.get(name, len(order)))}

    def _entry_beside(self, path: str) -> Entry | None:
        where = None if self.called is None else self.called.entry(path)
        if where is not None:
            return where
        configs = self.stored.metadata_as(KerasMetadata).get("layer_configs", {})
        return next((entry(configs[part]) for part in reversed(path.split("/")) if part in configs), None)

    def _called(self, place: str) -> str:
        """Return the name of the layer that a cell's arrays belong to, or where they are if the file does not state one."""
        layer = place.removesuffix("/vars").removesuffix("/cell")
        where = self._entry(layer)
        return (where.name if where is not None else "") or self._label(layer) or place

    def _label(self, path: str) -> str:
        """Return the name that Keras 3 gives the layer at a path; empty where the file has none."""
        label = self.attributes.get(f"{path}/vars", {}).get("name")
        return label if isinstance(label, str) else ""

    def _name(self, path: str, where: Entry | None, names: Mapping[str, object]) -> str:
        name = (where.name if where else "") or self._label(path) or path.rpartition("/")[2]
        return path if name in names else name

    def _stack(self, name: str, where: Entry | None, cells: list[CellArrays]) -> Recurrent | None:
        while where is not None and where.class_name in WRAPPERS:
            self._check(name, where)
            where = where.inner("layer")
        for layer in self._wrappers(where):
            self._check(name, layer)
        by_direction: dict[int, list[CellArrays]] = {}
        for (_, number), cell in numbered(cells).items():
            by_direction.setdefault(number, []).append(cell)
        bidirectional = cells[0].direction is not None
        configured = self._configured(name, where, bidirectional)
        if configured is None:
            return None
        stacks: list[list[Direction]] = []
        for number, members in sorted(by_direction.items()):
            entries = configured[number] if number < len(configured) else []
            if entries and len(entries) != len(members):
                raise UnreadableError(self.path, f"layer {name!r} has {len(members)} cells, but its configuration has {len(entries)}")
            backwards = number == 1
            if not bidirectional:
                backwards = self._go_backwards(name, where, members)
            self._asking = self.options.direction(number, 2) if bidirectional else self.options
            stacks.append([self._direction(name, member, entries[i] if entries else None, backwards) for i, member in enumerate(members)])
            for i, entry_ in enumerate(entries):
                around = [entry_] if i or where is None else [where, *sides_of(where)[number:][:1], entry_]
                self._check_arrays(name, members[i], stacks[-1][i], around)
        self._asking = self.options
        if bidirectional and len(stacks) != 2:
            raise UnreadableError(self.path, f"layer {name!r} has only one of its two directions")
        if len({len(stack) for stack in stacks}) > 1:
            raise RefusedError("directions of different depth", "the canonical form", f"layer {name!r}", "", name)
        merge = self._merge(name, where, cells) if bidirectional else "concat"
        layers = tuple(Layer(directions, merge) for directions in zip(*stacks, strict=True))
        order: Any = "processing" if not bidirectional and stacks[0][0].reverse else "time"
        self.evidence.append(f"{name}: " + (f"configured as {where.class_name}" if where else "by the names of its arrays"))
        try:
            return Recurrent(name, layers, "end" if bidirectional else "layer", order)
        except ValueError as error:
            raise UnreadableError(self.path, str(error)) from None

    def _configured(self, name: str, where: Entry | None, bidirectional: bool) -> list[list[Entry]] | None:
        """Return the configured cells of each direction; empty lists without a configuration, None if unknown to us."""
        if where is None and self.outside.config is not None:
            raise UnreadableError(
                self.outside.path,
                f"its model has no layer {name!r}, which {self.path.name} has weights of",
                "Give the architecture of the model that these weights were saved from.",
            )
        if where is None:
            return [[], []]
        sides = sides_of(where)
        if not sides:
            raise UnreadableError(self.path, f"the Bidirectional layer {name!r} has no layer inside")
        if len(sides) == 1 and bidirectional:
            sides = [where, where]
        result = []
        for side in sides:
            cells = cells_of(side)
            if not cells:
                raise UnreadableError(self.path, f"the configuration of layer {name!r} has no cells")
            if _has_norms(side):
                why = "layer norms stand in its cell, which no recurrent layer of a target has; rnnconvert export writes the whole model"
                self.unread.append(LayerNote(name, why, UNREAD))
                return None
            around = [layer for layer in (where, side) if not layer.built_in]
            unknown = [*around, *(cell for cell in cells if cell.class_name not in KINDS)]
            if unknown:
                why = f"its class {unknown[0].class_name!r} is not one of Keras's own, so its equations are unknown"
                # The live layer has those of Keras's that its class makes; of a cell it has the class alone.
                way_out = "; in Python, with that class, rnnconvert.load_into(module, keras.models.load_model(file)) reads its layers"
                self.unread.append(LayerNote(name, why + (way_out if around else ""), UNREAD))
                return None
            for layer in (where, side, *stacked_in(side), *cells):
                self._check(name, layer)
            result.append(cells)
        if where.class_name == "Bidirectional":
            self._check_sides(name, where, sides[0])
        texts = [text for layer in (where, *sides) for text in unusual_settings(layer)]
        texts += [] if self.called is None else self.called.around(where)
        self.warnings += [text.of(name) if isinstance(text, LayerNote) else LayerNote(name, text) for text in dict.fromkeys(texts)]
        return result

    def _wrappers(self, layer: Entry | None) -> Iterator[Entry]:
        """Yield Keras's own wrappers around a layer that call it on each step."""
        for outer in self.configured.wrappers(layer) if self.configured is not None and layer is not None else ():
            if outer.class_name in WRAPPERS:
                yield outer

    def _check(self, name: str, layer: Entry) -> None:
        """Account for every key of a configuration. Raises UnreadableError for a value of another type than the key has."""
        first = self.called is None or self.called.is_first(layer)
        wrong = list(keys.mistyped(layer, first))
        if wrong:
            raise UnreadableError(self.path, f"the configuration of layer {name!r} has values of wrong types: {'; '.join(wrong)}")
        overlooked = [LayerNote(name, str(text)) for text in keys.overlooked(layer, first)]
        self.warnings += [text for text in overlooked if text not in self.warnings]
        neutral = dict.fromkeys(layer.config, (False,))
        self.options.facts(name, "its configuration", layer.config, harmless=keys.known_keys(layer), neutral=neutral)

    def _check_sides(self, name: str, where: Entry, forward: Entry) -> None:
        """Raise an error unless one layer of a Bidirectional reads forward and the other one backward."""
        if forward.config.get("go_backwards"):
            raise RefusedError(
                "a Bidirectional around a go_backwards layer",
                "the canonical form",
                "Keras reverses its outputs twice",
                "Build it with the directions exchanged.",
                name,
            )
        backward = where.inner("backward_layer")
        if backward is not None and not backward.config.get("go_backwards"):
            raise UnreadableError(self.path, f"the backward_layer of {name!r} has go_backwards = false; Keras allows only true there")

    def _check_arrays(self, name: str, cell: CellArrays, direction: Direction, around: Sequence[Entry]) -> None:
        """Raise an UnreadableError where configurations contradict a cell's arrays."""
        bias = direction.biases != "none"
        arrays = keys.Arrays(direction.hidden_size, direction.input_size, bias, direction.cell.reset_after if bias else None)
        first = self.called is None or any(self.called.is_first(layer) for layer in around)
        stated = dict.fromkeys(text for layer in around for text in keys.contradicted(layer, arrays, first))
        self.warnings += [
            LayerNote(name, f"{text}; Keras ignores it: it takes one shape, that of the layer which its model begins with")
            for text, counts in stated
            if not counts
        ]
        wrong = [text for text, counts in stated if counts]
        if wrong:
            raise UnreadableError(
                self.path,
                f"the configuration of layer {name!r} contradicts its arrays ({cell.names[0]} ...): {'; '.join(wrong)}",
                "Correct the configuration, or read the weights alone: a .weights.h5 file has none.",
            )

    def _go_backwards(self, name: str, where: Entry | None, cells: Sequence[CellArrays]) -> bool:
        if where is None:
            backwards = {self.graph.backwards(place_of(cell)) for cell in cells} if self.graph is not None else {None}
            answer = backwards.pop() if len(backwards) == 1 else None
            if answer is not None:
                return self.options.stated("go_backwards", name, str(answer).lower(), _GRAPH_FILE) == "true"
            return self._ask("go_backwards", "false", name) == "true"
        stated = str(bool(where.config.get("go_backwards"))).lower()
        return self.options.stated("go_backwards", name, stated, self._where) == "true"

    def _merge(self, name: str, where: Entry | None, cells: Sequence[CellArrays]) -> Merge:
        # Each is one of the option's choices, which are those of Merge.
        return cast("Merge", self._merge_mode(name, where, cells))

    def _merge_mode(self, name: str, where: Entry | None, cells: Sequence[CellArrays]) -> str:
        if where is None and self.graph is not None:
            layers = {place_of(cell).rpartition("/")[0].rpartition("/")[0] for cell in cells}
            joined = self.graph.merge(layers.pop()) if len(layers) == 1 else ""
            if joined:
                return self.options.stated("merge_mode", name, joined, _GRAPH_FILE)
        if where is None or where.class_name != "Bidirectional":
            return self._ask("merge_mode", "concat", name)
        mode = where.config.get("merge_mode", "concat")
        stated = "none" if mode is None else str(mode)
        if stated not in OPTIONS["merge_mode"].choices:
            raise UnreadableError(self.path, f"layer {name!r} has the merge_mode {mode!r}")
        return self.options.stated("merge_mode", name, stated, self._where)

    def _ask(self, option: str, assumed: str, name: str, why: str = "", choices: Sequence[str] = ()) -> str:
        hint = self.outside.hint if why != _SILENT else ""
        if option == "activation" and not (why or hint or stated_model(self.path, self.stored.metadata_as(KerasMetadata))):
            hint = f". Name the file of the model or its JSON, which states it, with {Flag('config')}"
        reason = (why or "the file has no configuration of this layer") + hint
        # What a configuration leaves out is the default. Without one, many train with relu; the gates' function is hardly ever
        # chosen, but its default was another one before 2.3, and of 2.2.4-tf either.
        varied = option == "activation" or (option == "recurrent_activation" and self.era.gates_open)
        common = varied and why != _SILENT
        return self._asking.ask(option, name, assumed=assumed, why=reason, choices=choices, common=common)

    def _direction(self, name: str, arrays: CellArrays, config: Entry | None, backwards: bool) -> Direction:
        layout, sizes = self._fit(name, arrays, config)
        candidate, gates = self._functions(name, config, layout, arrays)
        kind: Any = layout.kind
        cell = Cell(kind, layout.reset_after, candidate, gates if kind != "rnn" else SIGMOID, candidate if kind == "lstm" else TANH)
        return Direction(cell, unpack(layout, sizes, arrays.arrays)[0, 0], backwards)

    def _functions(self, name: str, config: Entry | None, layout: Layout, arrays: CellArrays) -> tuple[Activation, Activation]:
        if "cudnn" in layout.name:
            return TANH, SIGMOID
        if config is not None:
            defaults = functions(config, self.era)
            missing = unstated(config)
        else:
            defaults = TANH, self.era.hard_sigmoid if self.era.before_2_3 else SIGMOID
            missing = ["activation", "recurrent_activation"]
            if self.graph is not None:
                defaults, missing = self._stated_by_graph(layout, arrays, defaults)
        silent = _SILENT if config is not None else ""
        candidate = self._function("activation", name, defaults[0], missing, _FUNCTIONS, silent)
        if layout.kind == "rnn":
            return candidate, defaults[1]
        choices = ("hard_sigmoid", "sigmoid") if self.era.before_2_3 else ("sigmoid", "hard_sigmoid")
        why = silent or self._written_by()
        return candidate, self._function("recurrent_activation", name, defaults[1], missing, choices, why)

    def _stated_by_graph(
        self, layout: Layout, arrays: CellArrays, defaults: tuple[Activation, Activation]
    ) -> tuple[tuple[Activation, Activation], list[str]]:
        """Return the functions that the graph of a SavedModel states, the usual ones otherwise, and what it leaves open."""
        assert self.graph is not None
        words = self.graph.functions(place_of(arrays), layout.kind)
        era = Era("3", HARD_SIGMOID_KERAS_3, False)
        functions_ = tuple(activation(word, era) if word else default for word, default in zip(words, defaults, strict=True))
        open_ = [option for option, word in zip(words._fields, words, strict=True) if not word]
        return (functions_[0], functions_[1]), open_

    def _function(
        self, option: str, name: str, default: Activation, missing: Collection[str], choices: Sequence[str], why: str
    ) -> Activation:
        """Return a function as the configuration states it, or as the caller decides."""
        if option in missing:
            word = self._asking.get(option, name) or self._ask(option, default.name, name, why, choices)
        else:
            where = self._where if self.graph is None else _GRAPH_FILE
            word = self._asking.stated(option, name, default.name, where)
        function = default if word == default.name else activation(word, self.era)
        if function.name == "hard_sigmoid" and (self.graph is None or option in missing):
            self._check_hard_sigmoid(name)
        return function

    def _check_hard_sigmoid(self, name: str) -> None:
        """Ask what hard_sigmoid means where the file does not show which Keras wrote it."""
        default = "keras3" if self.era.major >= 3 else "keras2"
        if self.era.text:
            self.options.stated("hard_sigmoid", name, default, f"the version of Keras that wrote the file ({self.era.text})")
        else:
            why = "the file does not state which version of Keras wrote it: 0.2 x + 0.5 up to Keras 2, x / 6 + 0.5 from 3 on"
            self._ask("hard_sigmoid", default, name, why)

    def _written_by(self) -> str:
        """Return why the gates' function is open, and what may help to find it."""
        sentence = f"it was written by Keras {self.era.text}" if self.era.stated else "nor does it state which Keras wrote it"
        return f"the file has no configuration of this layer; {sentence}. See recurrent_activation in the code of the model"

    def _fit(self, name: str, arrays: CellArrays, config: Entry | None) -> tuple[Layout, Sizes]:
        shapes = {local: tuple(array.shape) for local, array in arrays.arrays.items()}
        kind = KINDS[config.class_name] if config is not None else None
        fitting: list[tuple[Layout, Sizes]] = []
        tried = [layout for layout in registry.layouts_of(NAME) if kind in (None, layout.kind)]
        for layout in tried:
            sizes = fit(layout, shapes)
            if sizes is not None:
                fitting.append((layout, sizes))
        if not fitting:
            reason = misfit(tried, shapes)
            raise UnreadableError(self.path, f"the arrays of layer {name!r} do not fit together: {reason}")
        dtypes = {str(array.dtype.newbyteorder("=")) for array in arrays.arrays.values()}
        if not dtypes <= set(FLOATS):
            raise RefusedError("weights of these types", "the canonical form", f"layer {name!r} has {', '.join(sorted(dtypes))}", "", name)
        modes = {layout.reset_after for layout, _ in fitting}
        if len(modes) == 1:
            return fitting[0]
        after = self._reset_after(name, config)
        return next(pair for pair in fitting if pair[0].reset_after == after)

    def _reset_after(self, name: str, config: Entry | None) -> bool:
        """Return where the reset gate of a GRU without biases is: with biases, their shape shows it."""
        if config is not None:
            after = bool(config.config.get("reset_after", False)) or config.class_name.startswith("CuDNN")
            return self.options.stated("reset_after", name, str(after).lower(), self._where) == "true"
        why = "without biases both GRUs have the same arrays, but the file has no configuration of this layer"
        return self._ask("reset_after", str(self.era.major >= 3).lower(), name, why) == "true"


def read_stored(stored: Stored) -> Checkpoint:
    """Read arrays that are in memory already."""
    return LayerReader(Path("(in memory)"), stored, Options()).read()
