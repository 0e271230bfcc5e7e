"""Which cells of a file belong to one layer, and in which order."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Any

from rnnconvert.core.arrays import Array
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.formats.keras.cells import CellArrays, of_optimizer
from rnnconvert.formats.keras.config import labels
from rnnconvert.formats.keras.model.entries import RECURRENT, Entry, children, listed

WHOLE_MODEL = frozenset(
    {
        f"{key} of {place}"
        for key in ("model_config", "training_config", "nb_layers", "optimizer_weights", "keras_version")
        for place in ("the root", "model_weights")
    }
)
"""Attributes of the whole model that are read elsewhere, or serve training."""


_CELL = re.compile(r"(?:.*/)?(?:(?:(?:layer_norm_)?lstm|gru|simple_rnn)_cell(?:_\d+)?|cell/vars)", re.S)
"""Where Keras keeps the arrays of a cell: under the cell's own name, and in Keras 3 under the attribute of its layer."""


def incomplete(
    arrays: Mapping[str, Array], accounted: Collection[str], called: Callable[[str], str] = lambda place: place
) -> list[LayerNote]:
    """Return the places of cells with incomplete arrays: why each is not a cell, by the name that its layer is called by."""
    places: dict[str, list[str]] = {}
    for name, array in arrays.items():
        above, _, last = name.rpartition("/")
        if of_optimizer(name):
            continue
        if above not in accounted and (last.partition(":")[0] == "recurrent_kernel" or _CELL.fullmatch(above)):
            places.setdefault(above, []).append(f"{last} {array.shape}")
    convolving = {above for above in places if any(arrays[name].ndim > 2 for name in arrays if name.rpartition("/")[0] == above)}
    misfit = "its arrays are those of a recurrent cell but do not fit together"
    convolution = "the cell of a ConvLSTM, whose products are convolutions: no recurrent layer here holds them"
    return [
        LayerNote(called(above), convolution if above in convolving else f"{misfit}: {', '.join(shapes)}", UNREAD)
        for above, shapes in places.items()
    ]


def unsaved(model: Entry, attributes: Collection[str], arrays: Iterable[str]) -> list[LayerNote]:
    """Return the layers of a model whose weights are missing in its HDF5 file, which has a group for every layer.

    attributes  the groups and arrays that have attributes
    """
    if "model_weights" not in attributes:
        return []
    there = {part for name in (*attributes, *arrays) for part in name.split("/")}
    lost = [
        layer
        for layer in children(model)
        # Operations have neither weights nor groups, and a layer that is called in two models may be in the group of either.
        if any(key.endswith("_initializer") for config in _configs(layer) for key in config) and not there.issuperset(layer.name.split("/"))
    ]
    why = "the model states it, and its group of weights is missing: the file is not complete, as where saving it broke off"
    return [LayerNote(layer.name, why, UNREAD if layer.class_name in RECURRENT else "") for layer in lost]


def _configs(layer: Entry) -> list[Mapping[str, Any]]:
    """Return the configuration of a layer, and of those that it wraps."""
    inner = [layer.inner(key) for key in ("layer", "cell")]
    return [layer.config, *(config for each in inner if each is not None for config in _configs(each))]


_HARMLESS = re.compile(r"(?:^|/)(?:seed_generator(?:_\d+)?|\.OPTIMIZER_SLOT)/")
"""The state of dropout's random numbers, and what an optimizer keeps of a variable."""


def leftovers(arrays: Mapping[str, Array], cells: Sequence[CellArrays], cellular: Container[str]) -> dict[str, tuple[int, ...]]:
    """Return the arrays that are among or under a cell's own but do not belong to it, with their shapes.

    cellular  the arrays of all cells
    """
    cell_names = {full for cell in cells for full in cell.names}
    # Keras 3 keeps the variables of a cell in `vars`, and what the cell holds next to it.
    places = tuple(f"{place.removesuffix('/vars')}/" for full in cell_names if (place := full.rpartition("/")[0]))
    return {
        name: array.shape
        for name, array in arrays.items()
        if name not in cellular and name.startswith((*places, *(f"{full}/" for full in cell_names))) and not _HARMLESS.search(name)
    }


def place_of(cell: CellArrays) -> str:
    """Return the path that the variables of a cell have in common."""
    return cell.names[0].rpartition("/")[0]


def ordered(cells: list[CellArrays], where: Entry | None) -> list[CellArrays]:
    """Return the cells of a layer in the order in which they compute.

    Keras 3 numbers stacked cells by class, and HDF5 sorts them as words: gru_cell, lstm_cell, lstm_cell_1, lstm_cell_10,
    lstm_cell_2. The configuration has the order of the cells, or the numbers have it where it is missing.
    """
    ranks: dict[str, int] = {}
    for side in sides_of(where) if where is not None else ():
        ranks |= {label: rank for rank, label in enumerate(labels(cell.short_class_name for cell in cells_of(side)))}

    def place(cell: CellArrays) -> tuple[int, str, int]:
        above, _, label = place_of(cell).removesuffix("/vars").rpartition("/")
        if above.rpartition("/")[2] != "cells":
            return (0, "", 0)
        parts = re.fullmatch(r"(.*?)(?:_(\d+))?", label, re.S)
        assert parts is not None  # any text fits
        kind, number = parts.groups()
        return (ranks.get(label, len(ranks)), kind, int(number or 0))

    return sorted(cells, key=place)


def numbered(cells: list[CellArrays]) -> dict[tuple[int, int], CellArrays]:
    """Return the cells of a layer by (layer, direction)."""
    result: dict[tuple[int, int], CellArrays] = {}
    for cell in cells:
        number = cell.direction or 0
        result[sum(direction == number for _, direction in result), number] = cell
    return result


def sides_of(layer: Entry) -> list[Entry]:
    """Return the layers of a Bidirectional, forward and backward; any other layer alone."""
    if layer.class_name != "Bidirectional":
        return [layer]
    forward = layer.inner("layer")
    return [] if forward is None else [forward, layer.inner("backward_layer") or forward]


def stacked_in(layer: Entry) -> list[Entry]:
    """Return the StackedRNNCells of an RNN, if it has them."""
    cell = layer.inner("cell")
    return [cell] if layer.class_name == "RNN" and cell is not None and cell.class_name == "StackedRNNCells" else []


def cells_of(layer: Entry) -> list[Entry]:
    """Return the cells of a layer: itself, or the cells of an RNN around cells."""
    if layer.class_name != "RNN":
        return [layer]
    cell = layer.inner("cell")
    if cell is None:
        cells = layer.config.get("cell")
        return listed(cells) if isinstance(cells, list) else [layer]
    if cell.class_name != "StackedRNNCells":
        return [cell]
    return listed(cell.config.get("cells"))
