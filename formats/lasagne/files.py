"""Lasagne's parameters: np.savez(path, *lasagne.layers.get_all_param_values(network)), numbers in order without names.

Source: lasagne/layers/helper.py, get_all_param_values; examples/mnist.py saves it so. Lasagne 0.1 adds the peephole of the
output gate behind that gate's function, its master before it (layers/recurrent.py, LSTMLayer.get_output_for, step).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from rnnconvert.containers import archives, npz_file
from rnnconvert.containers.stored import FileMetadata
from rnnconvert.core.arrays import Array, PiecewiseArray, Source
from rnnconvert.core.cells import Activation
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.weights import Direction, Key, Recurrent
from rnnconvert.files.adapter import Job, WriteResult, written_layouts
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.functions import with_functions
from rnnconvert.files.opened import SHAPED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.files.positional import ArrayRun, LayerPlaces, check_places, placed, read_row, search, shapes_of
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import assemble, pack, unpack
from rnnconvert.rewrites import each, split_stack

NAME = "lasagne"
SUFFIXES = registry.endings(NAME)

_NAME = re.compile(r"arr_(\d{1,6})")


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize an archive of arrays that numpy has named by their places, with a run of them that is a Lasagne layer's."""
    if not file.kinds & {"npz", "pickle"}:
        return None
    try:
        runs, doubts = search(shapes_of(_arrays(file)[0]), layouts(Options()))
    except UnreadableError:
        return None
    description = f"{file.archive}, arrays by their places (arr_0, arr_1, ...), which may be those of {NAME} layers"
    return FormatClaim(SHAPED, description) if runs or doubts else None


layouts = written_layouts(NAME)


def _arrays(file: Opened) -> tuple[list[Array | None], list[LayerNote]]:
    """Return the arrays in their order, None for each that is not an array of numbers, and what those are. Raises UnreadableError."""
    path = file.path
    stored = file.cached(archives.reader(path, file.head))
    numbers = {name: _NAME.fullmatch(name) for name in [*stored.arrays, *stored.metadata_as(FileMetadata)["unreadable"]]}
    places = {int(match[1]): name for name, match in numbers.items() if match}
    if not numbers or len(places) < len(numbers) or sorted(places) != list(range(len(places))):
        raise UnreadableError(
            path, "its arrays are not called arr_0, arr_1 and so on, as np.savez calls the values of get_all_param_values"
        )
    unreadable = [LayerNote(name, str(why), UNREAD) for name, why in stored.metadata_as(FileMetadata)["unreadable"].items()]
    return [stored.arrays.get(places[place]) for place in range(len(places))], unreadable


def read(path: Path, options: Options) -> Checkpoint:
    """Return every run of arrays that is a layer's, called lstm_0, gru_1 and so on in the file's order.

    Raises UnreadableError for a damaged file or one whose arrays have names, UsageError for places in the options
    that do not fit, RefusedError for peepholes of Lasagne 0.1.
    """
    arrays, unreadable = _arrays(Opened(path))
    return read_row(path, NAME, arrays, unreadable, layouts(options), options, partial(_layer, options), "arr_{}")


def _layer(options: Options, name: str, run: ArrayRun, arrays: Mapping[str, Array]) -> Recurrent:
    """Return a layer in canonical form; what the numbers leave open is asked."""
    cell = run.layout.cell
    if run.layout.kind == "rnn":
        why = "parameters do not hold a RecurrentLayer's function; its default is rectify"
        cell = cell.replace(activation=Activation(options.ask("nonlinearity", name, assumed="relu", why=why)))
    cell = with_functions(cell, run.layout, name, options)
    why = "parameters do not state whether a layer reads from the end (backwards=True)"
    backwards = options.ask("go_backwards", name, assumed="false", why=why) == "true"
    stack = assemble(name, cell, unpack(run.layout, run.sizes, arrays), 1)
    _check_release(name, stack.first, options)
    return each(stack, lambda direction: direction.replace(reverse=backwards))


def _check_release(name: str, direction: Direction, options: Options) -> None:
    """Ask where the output gate's peephole is added. Raises RefusedError where it comes after the gate's function."""
    peephole = direction.get("peephole", "o")
    if peephole is None or not peephole.any():
        return
    why = "Lasagne 0.1 adds the output gate's peephole after its function, later ones before"
    release = options.ask("release", name, assumed="0.2", why=why)
    if release == "0.1":
        raise RefusedError(
            "the peepholes of Lasagne 0.1",
            "the canonical form",
            "it computes o = sigmoid(a) + w * c, but every other LSTM o = sigmoid(a + w * c)",
            "Train on with a newer Lasagne, or with peepholes=False.",
            name,
        )


def write(path: Path, job: Job) -> WriteResult:
    """Write the layers in the order of the source, other arrays of a Lasagne file in their old places."""
    home = job.source.read if isinstance(job.source.read, LayerPlaces) and job.source.format == NAME else LayerPlaces({})
    starts = home.starts
    rows: list[tuple[int | None, list[Array | PiecewiseArray]]] = []
    notes = []
    for part in job.parts:
        for stack in split_stack(part.stack):
            with_states = each(stack, _with_states)
            packed: list[Array | PiecewiseArray] = list(pack(part.layout, with_states, job.dtype, job.watch).values())
            rows.append((starts.get(stack.name), packed))
            notes.append(f"{stack.name} loads into {_constructor(part.layout, with_states)}, from its place on ({len(packed)} arrays)")
    check_places(path, home, [start for start, _ in rows], job.carried)
    others: dict[int, Array | PiecewiseArray] = {}
    dropped = []
    for full, array in job.carried.items():
        match = _NAME.fullmatch(full)
        if match and starts:
            others[int(match[1])] = array
        else:
            dropped.append(full)
    arrays = placed(rows, others)
    if not job.dry_run:
        npz_file.write(path, {f"arr_{number}": array for number, array in enumerate(arrays)})
    notes.append("load all of them with lasagne.layers.set_all_param_values(network, [file['arr_0'], file['arr_1'], ...])")
    return WriteResult(notes, dropped=dropped)


def _with_states(direction: Direction) -> Direction:
    """Add the initial states that every layer of Lasagne has: zeros where there were none."""
    parts = ("initial_hidden", "initial_cell") if direction.cell.kind == "lstm" else ("initial_hidden",)
    zeros: dict[Key, Source | None] = {
        (part, ""): np.zeros(direction.hidden_size, direction.dtype) for part in parts if (part, "") not in direction.arrays
    }
    return direction.with_arrays(zeros)


def _constructor(layout: Layout, stack: Recurrent) -> str:
    """Return the call that makes a layer for these arrays."""
    words = ["...", str(stack.hidden_size)]
    if layout.kind == "lstm" and not stack.first.has_peepholes:
        words.append("peepholes=False")
    if layout.kind == "rnn":
        names = {"relu": "rectify", "linear": "identity"}
        function = str(stack.cell.activation)
        words.append(f"nonlinearity=lasagne.nonlinearities.{names.get(function, function)}")
        words += ["b=None"] if stack.first.biases == "none" else []
    words += ["backwards=True"] if stack.first.reverse else []
    return f"{layout.class_name}({', '.join(words)})"
