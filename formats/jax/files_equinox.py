"""Equinox: trees of arrays by path (.npz, .msgpack), and its own .eqx, a row of arrays without names.

Source: equinox/_serialisation.py (0.13.8), tree_serialise_leaves: the leaves of a model in the order of its fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rnnconvert.containers import npy, npz_file
from rnnconvert.containers.files import lowered
from rnnconvert.containers.reading import open_regular
from rnnconvert.containers.stored import FileMetadata
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.names import is_count
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult, loading
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import SHAPED, STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.files.positional import ArrayRun, LayerPlaces, check_places, placed, read_row, search, shapes_of
from rnnconvert.formats.jax.files import TreeFiles, constructor
from rnnconvert.language import registry
from rnnconvert.language.packing import assemble, pack, unpack
from rnnconvert.rewrites import split_stack

_ROW = ".eqx"
_LUX = re.compile(r"(.*[/.])?backward_rnn[/.]rnn[/.]weight_ih", re.S)
"""The second direction of Lux's BidirectionalRNN, which has the same names as a cell of Equinox without biases."""


@dataclass(frozen=True)
class EquinoxFiles(TreeFiles):
    """The adapter of Equinox's files: see rnnconvert.files.adapter."""

    def recognise(self, file: Opened) -> FormatClaim | None:
        """Recognize a tree with arrays named as its cells', or a row of arrays with some shaped as theirs."""
        if "npy" not in file.kinds:
            seen = super().recognise(file)
            lux = seen is not None and "npz" in file.kinds and any(map(_LUX.fullmatch, file.cached(npz_file.read).arrays))
            return None if lux else seen
        if lowered(file.path).suffix == _ROW:
            return FormatClaim(STATED, "a row of .npy records, as equinox.tree_serialise_leaves writes")
        try:
            runs, doubts = search(shapes_of(_row(file.path)[0]), registry.layouts_of(self.NAME))
        except UnreadableError:
            return None
        row = "a row of .npy records, some of them shaped as those of Equinox's cells"
        return FormatClaim(SHAPED, row) if runs or doubts else None

    def read(self, path: Path, options: Options) -> Checkpoint:
        """Return every cell; in a row of arrays they are called lstm_0, gru_1 and so on.

        Raises UnreadableError for a damaged file, UsageError for places in the options that do not fit.
        """
        if path.is_dir() or not _is_row(path):
            return super().read(path, options)
        arrays, unreadable = _row(path)
        return read_row(path, self.NAME, arrays, unreadable, registry.layouts_of(self.NAME), options, _layer)

    def write(self, path: Path, job: Job) -> WriteResult:
        """Write a tree by path, or a row where the name ends in .eqx; other arrays of an .eqx keep their places.

        Raises UsageError for arrays by path that should go into a row: their order is unknown.
        """
        if lowered(path).suffix != _ROW:
            return super().write(path, job)
        home = job.source.read if isinstance(job.source.read, LayerPlaces) and job.source.format == self.NAME else LayerPlaces({})
        starts = home.starts
        rows: list[tuple[int | None, list[Array | PiecewiseArray]]] = []
        notes = []
        for part in job.parts:
            for stack in split_stack(part.stack):
                rows.append((starts.get(stack.name), list(pack(part.layout, stack, job.dtype, job.watch).values())))
                notes.append(f"{stack.name or 'the file'} holds the parameters of {constructor(part.layout, stack)}")
        check_places(path, home, [start for start, _ in rows], job.carried)
        others: dict[int, Array | PiecewiseArray] = {}
        for name, array in job.carried.items():
            if starts and not is_count(name):
                raise UsageError(
                    f"{path}: {name!r} does not count a place in a row, and an {_ROW} file names its arrays by theirs: 0, 1, 2 and so on. "
                    "Leave that array out, or give it the number of its place"
                )
            if starts:
                others[int(name)] = array
        recipe = []
        if len(rows) == 1 and not others:
            (part,) = job.parts
            call = constructor(part.layout, part.stack).removesuffix(")") + ", key=jax.random.key(0))"
            recipe = loading(self.NAME, path, call)
        arrays = placed(rows, others)
        if not job.dry_run:
            npy.write_row(path, arrays)
        notes.append("load it with equinox.tree_deserialise_leaves(path, model), where model is one of this structure")
        return WriteResult(notes, recipe)


def _layer(name: str, run: ArrayRun, arrays: Mapping[str, Array]) -> Recurrent:
    return assemble(name, run.layout.cell, unpack(run.layout, run.sizes, arrays), 1)


def _is_row(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(len(npy.MAGIC)) == npy.MAGIC


def _row(path: Path) -> tuple[list[Array | None], list[LayerNote]]:
    """Return the arrays of a row, None for one that cannot be read, and the reasons for these."""
    stored = npy.read_row(path)
    unreadable = stored.metadata_as(FileMetadata)["unreadable"]
    arrays = [stored.arrays.get(str(place)) for place in range(len(stored.arrays) + len(unreadable))]
    return arrays, [LayerNote(f"array {place}", str(why)) for place, why in unreadable.items()]


ADAPTERS = (EquinoxFiles("equinox", registry.endings("equinox")),)
