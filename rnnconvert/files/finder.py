"""Files of arrays by name, where names and shapes show the recurrent layers: one adapter class for many frameworks.

A framework with only layouts gets this adapter: a user's description (`--layout my_layout.toml`), or a package that adds layouts and
nothing else. Other adapters derive from it and override what differs: the methods below the line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rnnconvert.containers import archives, npy
from rnnconvert.containers.stored import FileMetadata, Stored
from rnnconvert.core.arrays import Array, PiecewiseArray, is_float
from rnnconvert.core.cells import RELU, TANH, Cell
from rnnconvert.core.errors import NotALayerError, UnreadableError, UsageError
from rnnconvert.core.limits import NAME_LENGTH
from rnnconvert.core.names import add
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.remedies import Setting
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.files import flat
from rnnconvert.files.adapter import Job, WriteResult, loading, put
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.conservation import attributes_of
from rnnconvert.files.finder_words import Doubt, doubt_about_extra, sentences, unlike, why_none
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.functions import as_chosen, class_in_words, clips_of, function_of, why_clips_are_open
from rnnconvert.files.opened import SHAPED, STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.language import registry
from rnnconvert.language.fitting import as_wide, fits, may_name, more_matrices, names_of, norms
from rnnconvert.language.layout import Cut, Layout
from rnnconvert.language.packing import assemble, pack, unpack
from rnnconvert.rewrites import each


@dataclass(frozen=True)
class ArrayFiles:
    """The adapter of one framework: see rnnconvert.files.adapter.

    NAME       the format's name
    SUFFIXES   the endings of its files, the one written by default first
    separators characters that may separate a layer's name from the names of its arrays; the first is written
    beside_vectors  the endings of arrays' names that accompany a flat vector and change nothing: states of the last call
    STATED_KIND  whether a file of its kind states that it is its own, whatever the arrays are called
    cuts       where its arrays lie in the arrays of a file that calls them otherwise, as a user's layout describes it
    training   parts of the names of what training left under an array's own name: gradients
    """

    STATED_KIND: ClassVar[bool] = False
    NAME: str
    SUFFIXES: tuple[str, ...] = archives.SUFFIXES
    separators: str = "/."
    beside_vectors: tuple[str, ...] = ()
    training: tuple[str, ...] = ()
    cuts: tuple[Cut, ...] = ()

    def recognise(self, file: Opened) -> FormatClaim | None:
        """Recognize arrays with the names and shapes of one of its layouts, or a kind that is its own."""
        kind, system = self.kind(file), registry.systems().get(self.NAME)
        if self.STATED_KIND:
            return FormatClaim(STATED, kind) if kind else None
        if not kind or (system is not None and system.on_request):
            return None
        try:
            groups, doubts = self._find_groups(self.stored(file).arrays, Options())
        except UnreadableError:
            return None
        if groups:
            covered = sum(len(group.names) for group in groups)
            return FormatClaim(SHAPED, f"{kind}, with arrays named as those of {class_in_words(groups[0].layout)}", covered)
        fitting = [doubt for doubt in doubts.values() if doubt.fits]
        covered = sum(doubt.covered for doubt in fitting)
        return FormatClaim(SHAPED, f"{kind}, with arrays of its shapes", covered) if fitting else None

    def classes(self, arrays: Mapping[str, Array]) -> list[str]:
        """Return the framework's names for the layers whose names and shapes arrays have."""
        groups, _ = self._find_groups(arrays, Options())
        return [*dict.fromkeys(group.layout.class_name for group in groups)]

    def layouts(self, options: Options) -> list[Layout]:
        """Return the layouts that can be written."""
        return [layout for layout in registry.layouts_of(self.NAME) if layout.writable]

    def read(self, path: Path, options: Options) -> Checkpoint:
        """Return every recurrent layer of a file; what is unsettled counts as unread, and warnings name it, too."""
        return self.read_stored(self.stored(Opened(path)), path, options)

    def read_stored(self, stored: Stored, path: Path, options: Options) -> Checkpoint:
        """Read arrays that are in memory already."""
        groups, unread = self.find(path, stored, options)
        warnings = [LayerNote(name, str(why)) for name, why in stored.metadata_as(FileMetadata).get("unreadable", {}).items()]
        layers: dict[str, Recurrent] = {}
        attributes = stored.metadata_as(FileMetadata).get("attributes", {})
        for group in groups:
            add(layers, group.name, self.layer(group, stored, options), path)
            stated = attributes_of(attributes, list(group.names.values()), whole_file=not group.name)
            options.facts(group.name, "its attributes", stated)
            warnings += [LayerNote(group.name, text) for text in _cautions(group.layout, layers[group.name])]
        used = {full for group in groups for full in group.names.values()}
        return Checkpoint(
            str(path),
            self.NAME,
            layers,
            {name: array for name, array in stored.arrays.items() if name not in used},
            tuple(f"{_place(group.name)}: arrays named as those of {class_in_words(group.layout)}" for group in groups),
            options.questions,
            (*unread, *warnings),
            stored.metadata,
            stored.arrays,
            unread=tuple(unread),
        )

    def write(self, path: Path, job: Job) -> WriteResult:
        """Write one layer of another format under its own names, several with their names before them."""
        arrays, written = self.packed(path, job)
        if not job.dry_run:
            self.write_arrays(path, arrays)
        return written

    def packed(self, path: Path, job: Job) -> tuple[dict[str, Array | PiecewiseArray], WriteResult]:
        """Return the arrays of the file by full names, and the rest of the result."""
        arrays: dict[str, Array | PiecewiseArray] = {}
        notes = []
        stacks = job.stacks()
        places = self.places([stack for _, stack in stacks], job)
        for (layout, stack), name in zip(stacks, places, strict=True):
            above = name + self.separators[0] if name and name[-1] not in self.separators else name
            for local, packed in pack(layout, stack, job.dtype, job.watch).items():
                put(arrays, above + local, packed)
            notes.append(f"{_place(name)} has the arrays of {self.constructor(layout, stack)}")
            notes += [LayerNote(name, text) for text in _cautions(layout, stack)]
        alone = len(stacks) == 1 and not places[0]
        recipe = loading(self.NAME, path, self.constructor(*stacks[0])) if alone else []
        return arrays, WriteResult(notes, recipe, job.carry(arrays))

    def _asked(self, options: Options, layer: str = "") -> str:
        """Return the layout that is asked for by the whole name or its second half; "" where none of this framework is."""
        wanted = options.peek("layout", layer) or ""
        framework, _, variant = wanted.rpartition(".")
        if not wanted or framework not in ("", self.NAME):
            return ""
        names = [layout.name for layout in registry.layouts_of(self.NAME)]
        if f"{self.NAME}.{variant}" not in names:
            raise UsageError(f"{self.NAME} has no layout {variant!r}. It has {', '.join(names)}")
        return f"{self.NAME}.{variant}"

    def find(self, path: Path, stored: Stored, options: Options) -> tuple[list[FoundLayer], list[LayerNote]]:
        """Return the recurrent layers of a file by names and shapes, those in vectors whose sizes are given, and what is unsettled."""
        matched, doubts = self.groups(stored.arrays, options)
        groups = list(matched)
        vectors: dict[str, list[Layout]] = {}
        flat_groups: list[FoundLayer] = []
        for layout in registry.layouts_of(self.NAME):
            if layout.flat:
                vectors.setdefault(layout.tensors[0].name, []).append(layout)
        for local, possible in vectors.items():
            expression = _expression(possible[0], self.separators)
            for full, array in stored.arrays.items():
                match = expression.fullmatch(full)
                if match is None or array.ndim != 1:
                    continue
                name = match["prefix"] or ""
                if not is_float(array):
                    doubts.append(LayerNote(full, f"it is of type {array.dtype}, not of floating-point numbers", UNREAD))
                    continue
                wanted = self._asked(options, name)
                asked = [layout for layout in possible if layout.name == wanted]
                if asked:
                    options.get("layout", name)
                description = self.description(stored, name)
                try:
                    layout, sizes = flat.sizes(path, asked or possible, name, array.size, description, options)
                except NotALayerError as error:
                    doubts.append(LayerNote(full, str(error), UNREAD))
                    continue
                group = FoundLayer(name, layout, sizes, {local: full})
                groups.append(group)
                flat_groups.append(group)
        if flat_groups:
            places = _Places(stored.arrays, self.separators)
            for group, inside in zip(flat_groups, _inside(flat_groups, stored.arrays, self.separators), strict=True):
                neighbours = dict.fromkeys([*places.next_to(group), *inside])
                left = {
                    neighbour: stored.arrays[neighbour].shape for neighbour in neighbours if not neighbour.endswith(self.beside_vectors)
                }
                options.facts(group.name, "its scope", left)
        unanswered = {group.name: why_clips_are_open(group, options) for group in groups}
        doubts += [LayerNote(name, str(why), UNREAD, unnamed="the file itself") for name, why in unanswered.items() if why]
        return [group for group in groups if not unanswered[group.name]], doubts

    def documented(self) -> list[Layout]:
        """Return the layouts that are found by names and shapes, thus not the layouts of vectors, which do not show their sizes."""
        return [layout for layout in registry.layouts_of(self.NAME) if not layout.flat]

    def groups(self, arrays: Mapping[str, Array], options: Options) -> tuple[list[FoundLayer], list[LayerNote]]:
        """Return the recurrent layers among arrays, in the order of the file, and what is unsettled about others."""
        groups, doubts = self._find_groups(arrays, options)
        return groups, sentences(doubts)

    def _find_groups(self, arrays: Mapping[str, Array], options: Options) -> tuple[list[FoundLayer], dict[str, Doubt]]:
        matched: dict[str, dict[str, dict[str, str]]] = {}
        names = "\n".join(full for full in arrays if len(full) <= NAME_LENGTH)
        for layout in self.documented():
            if not may_name(layout, names):
                continue
            expression = _expression(layout, self.separators)
            for full, array in arrays.items():
                match = expression.fullmatch(full) if len(full) <= NAME_LENGTH else None
                if match and array.size:  # some write an empty array for what is not there
                    matched.setdefault(match["prefix"] or "", {}).setdefault(layout.name, {})[match["local"]] = full
        order = {full: place for place, full in enumerate(arrays)}
        places = _Places(arrays, self.separators)
        groups: list[FoundLayer] = []
        doubts: dict[str, Doubt] = {}
        for name in sorted(
            matched, key=lambda group_name: min(order[full] for names in matched[group_name].values() for full in names.values())
        ):
            settled = self._settled(name, matched[name], arrays, options)
            if isinstance(settled, FoundLayer) and not self._asked(options, name):
                neighbours = _unlike_its_code(settled, places.next_to(settled))
                settled = doubt_about_extra(settled, neighbours, arrays) if neighbours else settled
            if isinstance(settled, FoundLayer):
                groups.append(settled)
            elif settled is not None:
                doubts[name] = settled
        used = {full for group in groups for full in group.names.values()}
        unsaid = [other for other in groups if not self._asked(options, other.name)]
        wider: dict[str, Doubt] = {}
        for group, inside in zip(unsaid, _inside(unsaid, arrays, self.separators), strict=True):
            extra = [full for full in inside if full not in used and not any(mark in full for mark in self.training)]
            extra = _unlike_its_code(group, extra)
            if extra:
                wider[group.name] = doubt_about_extra(group, extra, arrays)
        return [group for group in groups if group.name not in wider], {**doubts, **wider}

    def _settled(
        self, name: str, candidates: Mapping[str, dict[str, str]], arrays: Mapping[str, Array], options: Options
    ) -> FoundLayer | Doubt | None:
        """Return the layer under a name; or why it is not one, or None where nothing indicates one."""
        by_name = {layout.name: layout for layout in registry.layouts_of(self.NAME)}
        wanted = self._asked(options, name)
        fitting = []
        if wanted in candidates:
            options.get("layout", name)
        for full in [wanted] if wanted in candidates else candidates:
            names = candidates[full]
            shapes = {local: tuple(arrays[full_name].shape) for local, full_name in names.items()}
            fitting += [FoundLayer(name, by_name[full], sizes, names) for sizes in fits(by_name[full], shapes)]
        most = max((len(group.names) for group in fitting), default=0)
        fitting = [group for group in fitting if len(group.names) == most]
        bidirectional = options.get("bidirectional", name)
        if bidirectional is not None:
            fitting = [group for group in fitting if group.sizes.num_directions == 1 + (bidirectional == "true")]
        if not fitting:
            return why_none(candidates, arrays)
        fitting = unlike(fitting)
        layouts = list(dict.fromkeys(group.layout.name for group in fitting))
        if len(layouts) > 1:
            return Doubt(f"its arrays may belong to {' or '.join(layouts)}. Choose with {Setting('layout', 'NAME')}", covered=most)
        if len(fitting) > 1:
            return Doubt(f"it may be layers of one direction, or one of two. Choose with {Setting('bidirectional', 'true', 'false')}")
        (group,) = fitting
        odd = [full for full in group.names.values() if not is_float(arrays[full])]
        if odd:
            return Doubt(f"{odd[0]!r} is of type {arrays[odd[0]].dtype}, not of floating-point numbers")
        return group

    def layer(self, group: FoundLayer, stored: Stored, options: Options) -> Recurrent:
        """Return the canonical form of a layer that was found; what its file leaves open is asked."""
        arrays = {local: stored.arrays[full] for local, full in group.names.items()}
        number = group.sizes.num_directions
        each_own = number == 1 or group.layout.holds.own_functions or group.layout.holds.mixed_directions
        cells = [] if group.cell is None else [group.cell] * number
        for asking in [options.direction(place, number) if each_own else options for place in range(number)]:
            if group.cell is None:
                cell = self.cell(group, stored, asking)
                cells.append(as_chosen(group, cell.replace(clips=(*cell.clips, *clips_of(group, asking))), asking))
        stack = assemble(group.name, cells[0], unpack(group.layout, group.sizes, arrays), number)
        if cells[-1] != cells[0]:
            ways = [(layer.directions[0], layer.directions[1].replace(cell=cells[1])) for layer in stack.layers]
            stack = stack.replace(layers=tuple(Layer(way, layer.merge) for way, layer in zip(ways, stack.layers, strict=True)))
        called = class_in_words(group.layout)
        if group.layout.holds.reverse and group.sizes.num_directions == 1:
            why = f"the arrays of {called} do not show from which end it reads"
            if options.ask("go_backwards", group.name, assumed="false", why=why) == "true":
                stack = each(stack, lambda direction: direction.replace(reverse=True))
                order: Any = group.layout.holds.reverse_order
                stack = stack.replace(output_order=order)
        merges = group.layout.holds.merges
        if group.sizes.num_directions == 1 or merges == ("concat",):
            return stack
        joined: Any = merges[0]
        if len(merges) > 1:
            why = f"the arrays of {called} do not show how its directions are joined"
            joined = options.ask("merge_mode", group.name, assumed=merges[0], why=why, choices=merges)
        layers = tuple(Layer(layer.directions, joined) for layer in stack.layers)
        return stack.replace(layers=layers)

    # What a framework may know better.

    def constructor(self, layout: Layout, stack: Recurrent) -> str:
        """Return the words for the layer that these arrays fit: its class, and the function if files do not state it."""
        open_function = layout.kind == "rnn" and len(layout.holds.activations) > 1
        parts = [f"the function {stack.cell.activation}"] if open_function else []
        parts += [str(clip) for clip in stack.cell.clips if clip.kind in layout.holds.open_clips]
        return class_in_words(layout) + (f" with {' and '.join(parts)}" if parts else "")

    def places(self, stacks: Sequence[Recurrent], job: Job) -> list[str]:
        """Return the prefix of each stack's arrays: none for a single layer from another format."""
        bare = len(stacks) == 1 and job.source.format != self.NAME
        asked = [job.options.get("prefix", stack.name) for stack in stacks]
        return [
            ("" if bare else stack.name).strip(self.separators) if wanted is None else wanted
            for wanted, stack in zip(asked, stacks, strict=True)
        ]

    def kind(self, file: Opened) -> str:
        """Return the kind of this file, in words; "" if it does not belong to this framework."""
        return file.archive or ("a bare array of numpy's" if self.cuts and "npy" in file.kinds else "")

    def stored(self, file: Opened) -> Stored:
        """Return everything in a file. Raises UnreadableError."""
        reader = npy.read_row if self.cuts and "npy" in file.kinds else archives.reader(file.path, file.head)
        return cut(file.path, file.cached(reader), self.cuts)

    def write_arrays(self, path: Path, arrays: Mapping[str, Array | PiecewiseArray]) -> None:
        """Write everything into a file."""
        archives.write(path, arrays)

    def description(self, stored: Stored, name: str) -> flat.Description:
        """Return the description of a vector, in the words of rnnconvert.files.flat."""
        return {}

    def cell(self, group: FoundLayer, stored: Stored, options: Options) -> Cell:
        """Return a layer's cell: a vector's from its description; the caller is asked for what the file leaves open."""
        layout = group.layout
        mode = (options.peek("cell", group.name) or self.description(stored, group.name).get("mode", "")) if layout.flat else ""
        if mode.startswith("rnn_"):
            return layout.cell.replace(activation=RELU if mode == "rnn_relu" else TANH)
        holds = layout.holds
        candidate = function_of(group, options, holds.activations, layout.cell.activation, "activation")
        cell = layout.cell.replace(activation=candidate)
        if layout.kind == "lstm" and holds.output_activation == "same":
            cell = cell.replace(output_activation=candidate)
        elif layout.kind == "lstm":
            asked = function_of(group, options, holds.activations, layout.cell.output_activation, "output_activation")
            cell = cell.replace(output_activation=asked)
        if layout.kind != "rnn":
            default = cell.gate_activation
            gates = function_of(group, options, holds.gate_activations, default, "recurrent_activation")
            cell = cell.replace(gate_activation=gates)
        return cell


def _cautions(layout: Layout, stack: Recurrent) -> list[str]:
    """Return the cautions on a layer that its numbers give rise to."""
    ways = [direction for layer in stack.layers for direction in layer.directions]
    parts = {part for way in ways for part, gate in way.arrays if part in layout.cautions and np.any(way.get(part, gate))}
    return [text for part, text in layout.cautions.items() if part in parts]


def _place(name: str) -> str:
    return name or "the file itself"


def _expression(layout: Layout, separators: str) -> re.Pattern[str]:
    """Return the names of a layout's arrays, after any name of a layer."""
    # As little as possible is the layer's name: what says a direction may itself look like one.
    return re.compile(rf"(?:(?P<prefix>.*?)[{re.escape(separators)}])??(?P<local>{names_of([layout])})", re.S)


def _unlike_its_code(group: FoundLayer, names: Sequence[str]) -> list[str]:
    """Return the arrays that the code of a layout does not keep next to its layer."""
    return [full for full in names if full.removeprefix(group.name).lstrip("._/") not in group.layout.neighbours]


def _inside(groups: Sequence[FoundLayer], arrays: Mapping[str, Array], separators: str) -> list[list[str]]:
    """Return for each layer the arrays deeper than its own: under the name of one of them, as adapters are, or of the layer."""
    scopes: dict[str, list[int]] = {}
    used = [{*group.names.values()} for group in groups]
    for number, group in enumerate(groups):
        for scope in {*used[number], group.name} - {""}:
            scopes.setdefault(scope, []).append(number)
    lengths = sorted({len(scope) for scope in scopes})
    inside: list[list[str]] = [[] for _ in groups]
    for full, array in arrays.items():
        if 0 in array.shape:  # an array without elements states nothing
            continue
        ends = [at for at in lengths if at < len(full) and full[at] in separators]
        for number in dict.fromkeys(number for at in ends for number in scopes.get(full[:at], ())):
            if full not in used[number]:
                inside[number].append(full)
    return inside


class _Places:
    """The arrays of a file by what stands before the last word of their names."""

    def __init__(self, arrays: Mapping[str, Array], separators: str) -> None:
        self._arrays, self._separators = arrays, separators
        self._at: dict[str, list[tuple[int, str]]] = {}
        for number, full in enumerate(arrays):
            self._at.setdefault(self._above(full), []).append((number, full))

    def _above(self, full: str) -> str:
        return full[: max(full.rfind(separator) for separator in self._separators) + 1]

    def next_to(self, group: FoundLayer) -> list[str]:
        """Return arrays that are among a layer's own but do not belong to it, in the order of the file."""
        own_names = set(group.names.values())
        scopes = {group.name + mark for mark in self._separators if group.name} | {self._above(full) for full in own_names}
        nearby = [entry for scope in scopes for entry in self._at.get(scope, ()) if entry[1] not in own_names]
        shaped = {} if group.name else {full: tuple(array.shape) for full, array in self._arrays.items() if full not in own_names}
        norm_names = norms(shaped, group.sizes, self._separators)  # a name is enough for what is under the layer's own
        return [*(full for _, full in sorted(nearby) if self._counts(full, group)), *norm_names, *self._further_matrices(group)]

    def _further_matrices(self, group: FoundLayer) -> list[str]:
        """Return further matrices of a layer whose matrices have scopes of their own, each in a scope next to theirs."""
        own_names = set(group.names.values())
        own_scopes = {self._above(full) for full in own_names}
        if len(own_scopes) < 2:
            return []
        around = self._above(os.path.commonprefix([*own_scopes]))  # noqa: RUF071  # of names, not of paths: it ends at a separator
        further = {
            full: tuple(self._arrays[full].shape)
            for scope, entries in self._at.items()
            if scope and scope not in own_scopes and self._above(scope[:-1]) == around
            for _, full in entries
        }
        own_shapes = [tuple(self._arrays[full].shape) for full in own_names]
        return more_matrices(own_shapes, further, group.layout.kind, group.sizes)

    def _counts(self, full: str, group: FoundLayer) -> bool:
        """Return whether an array states anything: one without elements does not, nor one at the top that no layer could own."""
        shape = tuple(self._arrays[full].shape)
        return 0 not in shape and (bool(self._above(full)) or as_wide(shape, group.sizes))


# Arrays of a file by the names and in the shapes that a layout has for them, where the file has others.


def cut(path: Path, stored: Stored, cuts: Sequence[Cut]) -> Stored:
    """Return a file's arrays with each described array in the place of the file's own; arrays that no cut takes stay.

    Raises UnreadableError if the file lacks an array, or has one that is too short.
    """
    arrays: dict[str, Array] = {}
    used: dict[str, int] = {}
    for piece in cuts:
        source = stored.arrays.get(piece.source)
        if source is None:
            raise UnreadableError(path, f"the layout takes {piece.name!r} from {piece.source!r}, and there is no such array")
        arrays[piece.name] = source if not piece.shape else _view(path, source, piece)
        used[piece.source] = used.get(piece.source, 0) + arrays[piece.name].size
    rest = {name: array for name, array in stored.arrays.items() if used.get(name, 0) < max(1, array.size)}
    return Stored({**rest, **arrays}, stored.metadata)


def _view(path: Path, source: Array, piece: Cut) -> Array:
    behind = piece.start + sum((length - 1) * step for length, step in zip(piece.shape, piece.steps, strict=True))
    if behind >= source.size:
        raise UnreadableError(
            path, f"the layout takes {piece.name!r} from {piece.source!r}, which ends before it: it has {source.size} numbers"
        )
    row = np.ascontiguousarray(source).reshape(-1)[piece.start :]
    strides = tuple(step * row.itemsize for step in piece.steps)
    return np.lib.stride_tricks.as_strided(row, piece.shape, strides, writeable=False)
