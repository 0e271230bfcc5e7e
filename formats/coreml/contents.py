"""A recurrent layer of a Core ML model on its way to the canonical form: what both kinds of model share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.cells import Cell, Clip
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.weights import INPUT, Call, Direction, Layer, Recurrent
from rnnconvert.files.checkpoint import Contents
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.packing import unpack
from rnnconvert.recognition.computed import RecognisedLayers
from rnnconvert.recognition.flow import PlacedCall, ReadProgram, RecurrentCall

NO_CLIPS = (500.0, 50000.0)
"""The thresholds that coremltools writes where a cell is not clipped: its converter's, and its builder's."""


@dataclass(eq=False)
class Network(Contents):
    """The contents of a model.

    labels    the beginnings of the names of its other arrays, up to the last slash
    programs  its networks and functions as programs; None for one that is not used as it asks
    """

    labels: set[str] = field(default_factory=set)
    programs: list[ReadProgram | None] = field(default_factory=list)

    def add_program(self, looked: RecognisedLayers, homes: Mapping[str, RecurrentCall]) -> None:
        """Add a program with its layers; recurrent operations in the graph of another operation are not part of its main graph."""
        main, calls = looked.scope, {}
        if main is None:
            self.programs.append(None)
            return
        for name, call in homes.items():
            node, _ = main.producer(next(iter([*call.outputs, *call.states]), "")) or (None, 0)
            if node is not None:
                calls[name] = PlacedCall(main, node, call, [value for value in node.inputs[1 + len(call.initial) :] if value])
        self.programs.append(ReadProgram(looked.scopes, calls, looked.layers))


def handed(calls: Sequence[Call], inside: bool, word: str) -> tuple[Call, ...]:
    """Return calls of a layer; inside of another layer or operation, that hands on what would be an input of the model elsewhere."""
    states = f"what the {word} around it hands on"
    return tuple(replace(call, states=states) if inside and call.states == INPUT else call for call in calls)


@dataclass(frozen=True)
class StatedSettings:
    """A layer's statements in addition to its arrays.

    kind     rnn, gru or lstm
    cells    its cell for each direction
    reverse  whether its one direction reads from the end; its outputs stay in processing order
    """

    kind: str
    cells: tuple[Cell, ...]
    reverse: bool = False


class UnknownError(ValueError):
    """Why a layer is named and not read."""


def assembled(path: object, name: str, format: str, arrays: Mapping[str, Array], stated: StatedSettings) -> Recurrent:
    """Return the layer of these arrays. Raises UnreadableError if they do not fit together."""
    layout = registry.layout(format, stated.kind, False if stated.kind == "gru" else None)
    odd = next((local for local, array in arrays.items() if not is_float(array)), "")
    if odd:
        raise UnreadableError(path, f"{odd} of {name!r} is of type {arrays[odd].dtype}")
    if len({array.dtype for array in arrays.values()}) > 1:
        arrays = {local: np.asarray(array, np.float32) for local, array in arrays.items()}
    shapes = {local: tuple(array.shape) for local, array in arrays.items()}
    sizes = fit(layout, shapes)
    if sizes is None or sizes.num_directions != len(stated.cells):
        why = misfit([layout], shapes) if sizes is None else f"they are for {sizes.num_directions} directions"
        raise UnreadableError(path, f"the weights of {name!r} do not fit together: {why}")
    parts = unpack(layout, sizes, arrays)
    layer_directions = tuple(Direction(cell, parts[0, way], reverse=way == 1 or stated.reverse) for way, cell in enumerate(stated.cells))
    order: Any = "processing" if stated.reverse else "time"
    return Recurrent(name, (Layer(layer_directions),), output_order=order)


def cell_clips(path: object, name: str, bound: float, warnings: list[str]) -> tuple[Clip, ...]:
    """Return the clip of a cell at a bound; none where coremltools writes this bound for none, which a warning names."""
    if not bound > 0 or math.isinf(bound):
        raise UnreadableError(path, f"{name!r} clips its cell at {bound:g}, which is not a bound")
    if bound in NO_CLIPS:
        warnings.append(
            LayerNote(name, f"its cell is clipped to [-{bound:g}, {bound:g}], as coremltools writes it for none; this is left out")
        )
        return ()
    exact = float(str(np.float32(bound)))
    return (Clip("cell", -exact, exact),)
