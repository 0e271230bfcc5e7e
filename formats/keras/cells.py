"""Where the recurrent cells are among a Keras file's arrays, by the names that each era gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rnnconvert.core.arrays import Array
from rnnconvert.formats.keras.config import Era
from rnnconvert.formats.keras.model.entries import Entry

_KERAS_3_VARIABLES = {"0": "kernel", "1": "recurrent_kernel", "2": "bias"}
_PEEPHOLES = tuple(f"{gate}_gate_peephole_weights" for gate in ("input", "forget", "output"))
_LEAVES = ("kernel", "recurrent_kernel", "bias", *_PEEPHOLES)
_OPTIMIZER = ("optimizer", "optimizer_weights")
_KERAS_1 = re.compile(r"(?P<owner>.+)_(?P<local>[WUb](?:_[icfozrh])?)")
_CELL = re.compile(r"(?:(?:layer_norm_)?lstm|gru|simple_rnn|peephole_lstm|cu_?dnn_?\w+)_cell(?:_\d+)?|cell|RNNCell_\d+")
_STACKED = re.compile(r"stacked_rnn_cells(?:_\d+)?|cells")
_DIRECTION = re.compile(r"(?P<way>forward|backward)_(?P<inner>.+)")


@dataclass
class CellArrays:
    """One cell's arrays.

    layer      path of the layer that it belongs to, without the parts below
    direction  0 forward, 1 backward; None outside a Bidirectional
    arrays     by the local names of the layouts: kernel, recurrent_kernel, bias, or W_i ...
    names      the arrays' names in the file
    """

    layer: str
    direction: int | None
    arrays: dict[str, Array] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class StatedLayers:
    """A Keras file's statements about its layers.

    model    its configuration, if it has one
    era      the version of Keras that wrote it
    places   where the arrays of Keras's own recurrent layers are
    ours     for layers of rnnconvert's own, the array of each variable
    entries  the configurations of the recurrent layers, if there are any
    normed   where the arrays of recurrent layers are whose cells go through norms: those that no Recurrent holds
    """

    model: Entry | None
    era: Era
    places: Mapping[str, CellPlace]
    ours: Mapping[str, Mapping[str, str]]
    entries: Mapping[str, Entry | None]
    normed: Mapping[str, CellPlace] = field(default_factory=dict)


@dataclass(frozen=True)
class CellPlace:
    """Where a layer's arrays are in its file.

    path   the layer's own path
    cells  by (layer, direction)
    """

    path: str
    cells: Mapping[tuple[int, int], CellArrays]


_ALONE = ("LSTMCell", "GRUCell")
_NAMED_ALONE = re.compile(r"(?:lstm|gru)_cell(?:_\d+)?")


def is_cell_of_keras(entry: Entry | None, label: str) -> bool:
    """Return whether a layer is a cell of Keras's own: one of its user's may have variables of the same shapes, and compute anything.

    entry  its configuration, if the file states it
    label  its name in the file; without a configuration, Keras's own for an unnamed cell is what says its class
    """
    if entry is None:
        return bool(_NAMED_ALONE.fullmatch(label))
    return entry.class_name in _ALONE


def of_optimizer(name: str) -> bool:
    """Return whether an array is an optimizer's: moments have the names of the weights that they belong to."""
    return name.partition("/")[0] in _OPTIMIZER


def find(arrays: Mapping[str, Array], is_cell: Callable[[str], bool] = lambda path: False) -> list[CellArrays]:
    """Return every recurrent cell, in the order of the file.

    A cell is recurrent if a matrix of it acts on the state; convolutional cells (rank 4 kernels) are left out.

    is_cell  whether the layer at a path, whose numbered variables have the shapes of a cell's, is one that no other layer holds
    """
    groups: dict[str, CellArrays] = {}
    for name, array in arrays.items():
        if of_optimizer(name):
            continue
        path, local = _split(name)
        if local:
            group = groups.setdefault(path, _place(path) if _in_layer(name) else CellArrays(path, None))
            group.arrays[local] = array
            group.names.append(name)
    recurrent = {path: group for path, group in groups.items() if _recurrent(group.arrays)}
    return _named_backward([group for path, group in recurrent.items() if _in_layer(group.names[0]) or (_gated(group) and is_cell(path))])


def _in_layer(name: str) -> bool:
    """Return whether the name of an array says that it is a recurrent cell's: Keras 3 numbers the variables of any layer."""
    parts = name.split("/")
    return parts[-2:-1] != ["vars"] or parts[-3] == "cell" or (len(parts) > 3 and parts[-4] == "cells")


def _gated(cell: CellArrays) -> bool:
    """Return whether numbered variables have the shapes of a gated cell's."""
    if set(cell.arrays) != set(_KERAS_3_VARIABLES.values()):
        return False
    kernel, recurrent, bias = (cell.arrays[local].shape for local in _KERAS_3_VARIABLES.values())
    wide = [recurrent[0] * gates for gates in (3, 4)]
    return len(kernel) == 2 and kernel[1] == recurrent[1] in wide and bias in ((kernel[1],), (2, kernel[1]))


def _named_backward(cells: list[CellArrays]) -> list[CellArrays]:
    """Return the cells; a backward layer with a different name is identified by the forward one next to it."""
    forward = {cell.layer for cell in cells if cell.direction == 0}
    for layer in forward - {cell.layer for cell in cells if cell.direction == 1}:
        siblings = [cell for cell in cells if cell.direction is None and cell.layer.rpartition("/")[0] == layer]
        if len({cell.layer for cell in siblings}) == 1:
            for cell in siblings:
                cell.layer, cell.direction = layer, 1
    return cells


def _split(name: str) -> tuple[str, str]:
    """Return the path of the cell that an array belongs to and the array's local name, or "" if there is none."""
    parts = name.split("/")
    leaf = parts[-1].partition(":")[0]
    if leaf in _LEAVES:
        return "/".join(parts[:-1]), leaf
    if len(parts) > 2 and parts[-2] == "vars" and leaf in _KERAS_3_VARIABLES:
        return "/".join(parts[:-2]), _KERAS_3_VARIABLES[leaf]
    match = _KERAS_1.fullmatch(leaf)
    if match:
        return "/".join([*parts[:-1], match["owner"]]), match["local"]
    return "", ""


def _recurrent(arrays: Mapping[str, Array]) -> bool:
    matrices = [array for name, array in arrays.items() if name == "recurrent_kernel" or name.startswith("U")]
    return bool(matrices) and all(array.ndim == 2 for array in matrices)


def _place(path: str) -> CellArrays:
    """Strip from a cell's path what is below its layer: cell, stack of cells, direction."""
    parts = path.split("/")
    direction: int | None = None
    if len(parts) > 1 and _STACKED.fullmatch(parts[-2]):
        parts = parts[:-2]
        if parts and parts[-1] == "cell":
            parts = parts[:-1]
    elif len(parts) > 1 and _CELL.fullmatch(parts[-1]):
        parts = parts[:-1]
    match = _DIRECTION.fullmatch(parts[-1])
    if match:
        direction = 0 if match["way"] == "forward" else 1
        parts = parts[:-1] if len(parts) > 1 else [match["inner"]]
    return CellArrays("/".join(parts), direction)
