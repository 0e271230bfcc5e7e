"""Paddle's .pdparams: the state_dict of any model, whose layers and cells are found by the names of their arrays. Inference models are
read by their program (inference.py).

Source: python/paddle/nn/layer/rnn.py (3.3.1), RNNBase: a stack registers its cells, and lists their arrays under names
like weight_ih_l0 too; RNN and BiRNN hold a cell, or two, under the names that a stack's layer has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from rnnconvert.containers.files import lowered
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.finder import ArrayFiles
from rnnconvert.files.finder_words import sentences
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.opened import KIND, SHAPED, STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.paddle import inference, paddle_params
from rnnconvert.formats.paddle.paddle_params import PaddleMetadata
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.rewrites import each

_CELL = re.compile(r"(?P<above>(?:.*\.)?)(?P<layer>\d{1,3})\.cell(?P<side>_fw|_bw|)\.(?P<rest>(?:weight|bias)_(?:ih|hh|ho))", re.S)
_ALIAS = re.compile(r"(?P<above>(?:.*\.)?)(?P<rest>(?:weight|bias)_(?:ih|hh))_l(?P<layer>\d{1,3})(?P<side>_reverse|)", re.S)
_ALONE = re.compile(r"(?:.*\.)?cell", re.S)
_HALF = re.compile(r"(?P<above>(?:.*\.)?)cell_(?P<side>fw|bw)", re.S)
_SIDES = {"": "", "_fw": "", "_bw": "_reverse"}


class PaddleFiles(ArrayFiles):
    """The adapter of Paddle's files: see rnnconvert.files.adapter."""

    def kind(self, file: Opened) -> str:
        """Return the words for a pickle of a dictionary."""
        return "a pickle of a dictionary" if paddle_params.looks_like(file.head) else ""

    def stored(self, file: Opened) -> Stored:
        """Return every array without duplicates. Raises UnreadableError."""
        stored = file.cached(paddle_params.read)
        listed = {match["above"] for match in map(_ALIAS.fullmatch, stored.arrays) if match}
        notes = {**stored.metadata_as(PaddleMetadata).get("unreadable", {}), **_contradicting(stored.arrays)}
        return Stored(_once(stored.arrays), {**stored.metadata, "listed": listed, "unreadable": notes})

    def recognise(self, file: Opened) -> FormatClaim | None:
        """Recognize an inference model by its beginning, and a state_dict by its arrays."""
        seen = inference.recognise(file) or super().recognise(file)
        if seen is None or seen.score != SHAPED:
            return seen
        # Others name arrays so, too: Paddle's own files have its names of the parameters in them, or those of cells.
        stored = file.cached(paddle_params.read)
        has_names = stored.metadata_as(PaddleMetadata)["names"] or any(map(_CELL.fullmatch, stored.arrays))
        named = lowered(file.path).suffix == registry.endings(self.NAME)[0]
        return FormatClaim(STATED if has_names or named else KIND, seen.evidence)

    def read(self, path: Path, options: Options) -> Checkpoint:
        """Return every layer. Raises what others raise."""
        if inference.recognise(Opened(path)):
            return inference.read(path, options)
        checkpoint = super().read(path, options)
        listed = checkpoint.metadata_as(PaddleMetadata)["listed"]
        lists = [
            LayerNote(
                name,
                f"{layer.num_layers} layers under the names of a stack, without the second names that "
                "Paddle gives one: it is read as a stack, but it may be a LayerList of paddle.nn.RNN",
                unnamed="the file itself",
            )
            for name, layer in checkpoint.layers.items()
            if layer.num_layers > 1 and not layer.first.projection_size and (f"{name}." if name else "") not in listed
        ]
        return checkpoint.replace(warnings=(*checkpoint.warnings, *lists))

    def layer(self, group: FoundLayer, stored: Stored, options: Options) -> Recurrent:
        """Return the canonical form of a layer; the second cell of a BiRNN reads from the end, that of an RNN may."""
        stack = super().layer(group, stored, options)
        half = _HALF.fullmatch(group.name)
        if half and half["side"] == "bw" and any(full.startswith(f"{half['above']}cell_fw.") for full in stored.arrays):
            return each(stack, lambda direction: direction.replace(reverse=True))
        if group.layout.holds.layers or not _ALONE.fullmatch(group.name):
            return stack
        why = "arrays do not state whether a paddle.nn.RNN reads from the end (is_reverse=True)"
        backwards = options.ask("go_backwards", group.name, assumed="false", why=why) == "true"
        return each(stack, lambda direction: direction.replace(reverse=backwards))

    def layouts(self, options: Options) -> list[Layout]:
        """Return the layouts that can be written: with both biases, since a layer without them has some that are zero."""
        return [replace(layout, holds=replace(layout.holds, biases=("both",))) for layout in super().layouts(options)]

    def constructor(self, layout: Layout, stack: Recurrent) -> str:
        """Return the call that makes a layer for these arrays."""
        words = [str(stack.input_size), str(stack.hidden_size)]
        words += [f"num_layers={stack.num_layers}"] if stack.num_layers > 1 else []
        words += ["direction='bidirect'"] if stack.num_directions == 2 else []
        words += [f"activation='{stack.cell.activation}'"] if layout.kind == "rnn" else []
        words += [f"proj_size={stack.first.projection_size}"] if stack.first.projection_size else []
        return f"{layout.class_name}({', '.join(words)})"

    def write_arrays(self, path: Path, arrays: Mapping[str, Array | PiecewiseArray]) -> None:
        """Write the arrays, and the arrays of stacks a second time as Paddle lists them."""
        projected = {match["above"] for match in map(_CELL.fullmatch, arrays) if match and match["rest"] == "weight_ho"}
        written = dict(arrays)
        for full, array in arrays.items():
            match = _CELL.fullmatch(full)
            if match and match["above"] not in projected:
                alias = f"{match['above']}{match['rest']}_l{match['layer']}{_SIDES[match['side']]}"
                written.setdefault(alias, array)
        paddle_params.write(path, written)

    def groups(self, arrays: Mapping[str, Array], options: Options) -> tuple[list[FoundLayer], list[LayerNote]]:
        """Return the layers; a cell of a stack is not found again, and a single cell is not a broken stack."""
        all_groups, doubts = self._find_groups(arrays, options)
        stacks = {full for group in all_groups if group.layout.holds.layers for full in group.names.values()}
        remaining = [group for group in all_groups if group.layout.holds.layers or not stacks & set(group.names.values())]
        remaining = _paired(remaining)
        used = {full for group in remaining for full in group.names.values()}
        if remaining and used >= {full for full in arrays if _CELL.fullmatch(full)}:
            doubts = {name: doubt for name, doubt in doubts.items() if doubt.extra}
        return remaining, sentences(doubts)


def _paired(groups: list[FoundLayer]) -> list[FoundLayer]:
    """Return the layers, with the two cells of a BiRNN as one of two directions if they are alike."""
    cells = {group.name: group for group in groups if not group.layout.holds.layers}
    result: list[FoundLayer] = []
    for group in groups:
        half = _HALF.fullmatch(group.name) if group.name in cells else None
        other = cells.get(f"{half['above']}cell_{'bw' if half['side'] == 'fw' else 'fw'}") if half else None
        if half is None or other is None or (other.layout, other.sizes) != (group.layout, group.sizes):
            result.append(group)
        elif half["side"] == "fw":
            layout = registry.layout_named(group.layout.name.removesuffix("_cell"))
            names = {
                f"0.{half_group.name.rpartition('.')[2]}.{local}": full
                for half_group in (group, other)
                for local, full in half_group.names.items()
            }
            result.append(FoundLayer(half["above"].rstrip("."), layout, replace(group.sizes, num_directions=2), names))
    return result


def _once(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays under the names of their cells, which Paddle loads last.

    Second names are not trusted: in a projected stack they belong to other arrays. A file
    that has no others is read by them, and its shapes show whether they are right.
    """
    cells = {match["above"] for match in map(_CELL.fullmatch, arrays) if match}
    both_ways = {match["above"] for match in map(_ALIAS.fullmatch, arrays) if match and match["side"]}
    distinct: dict[str, Array] = {}
    for full, array in arrays.items():
        match = _ALIAS.fullmatch(full)
        if match is None:
            distinct[full] = array
        elif match["above"] not in cells:
            distinct[_cell_name(match, match["above"] in both_ways)] = array
    return distinct


def _contradicting(arrays: Mapping[str, Array]) -> dict[str, str]:
    """Return notes about second names whose arrays are not their cells', except in projected stacks."""
    projected = {match["above"] for match in map(_CELL.fullmatch, arrays) if match and match["rest"] == "weight_ho"}
    both_ways = {match["above"] for match in map(_ALIAS.fullmatch, arrays) if match and match["side"]}
    reasons = {}
    for full, array in arrays.items():
        match = _ALIAS.fullmatch(full)
        cell_name = _cell_name(match, match["above"] in both_ways) if match and match["above"] not in projected else ""
        if cell_name not in arrays or np.shares_memory(array, arrays[cell_name]):
            continue
        if array.dtype != arrays[cell_name].dtype or not np.array_equal(array, arrays[cell_name], equal_nan=True):
            reasons[full] = f"it is a second name of {cell_name} with other numbers; {cell_name} was read, which Paddle loads last"
    return reasons


def _cell_name(match: re.Match[str], both_ways: bool) -> str:
    """Return the name that an array has in its cell."""
    way = "_bw" if match["side"] else "_fw"
    side = way if both_ways else ""
    return f"{match['above']}{match['layer']}.cell{side}.{match['rest']}"


ADAPTERS = (PaddleFiles("paddle", registry.endings("paddle"), "."),)
