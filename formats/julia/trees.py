"""The common part of the adapters of Julia's frameworks: trees of arrays in .bson, .jld2 and .npz, and flat vectors in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from rnnconvert.containers import npz_file
from rnnconvert.containers.files import lowered
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.names import is_count, renamed
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult, put
from rnnconvert.files.finder import ArrayFiles
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.opened import Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.julia import jld2, julia_bson, julia_bson_write
from rnnconvert.formats.julia.julia_tree import below
from rnnconvert.formats.julia.metadata import JuliaMetadata
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack

Fields: TypeAlias = Mapping[tuple[str, str, int], tuple[str, ...]]
"""The names of a struct's fields, by the module and name of its type and the number of fields; "" for one that stands for all."""
Leaves: TypeAlias = dict[str, Any]
"""The values to write, by paths: arrays, numbers, False, () and {}."""


@dataclass(frozen=True)
class JuliaFiles(ArrayFiles):
    """The adapter of one of Julia's frameworks: see rnnconvert.files.adapter.

    root    the name that a written tree has in a .bson
    always_rooted  whether names in an .npz begin with the root, too
    constants_known  single values of a struct that are read, or change nothing that it computes
    """

    SUFFIXES: tuple[str, ...] = (".bson", ".npz", ".jld2")
    separators: str = "/"
    root: str = "state"
    always_rooted: bool = False
    constants_known: frozenset[str] = frozenset()

    @property
    def fields(self) -> Fields:
        """The fields of its structs, which a .bson has without names."""
        return {}

    def kind(self, file: Opened) -> str:
        """Describe a file of BSON.jl or JLD2.jl, or an archive of .npy files; "" for any other."""
        if not file.path.is_file():
            return ""
        if jld2.looks_like(file.head):
            return "a file of JLD2.jl"
        if julia_bson.looks_like(file.path, file.head):
            return "a file of BSON.jl"
        return file.archive if "npz" in file.kinds else ""

    def stored(self, file: Opened) -> Stored:
        """Return everything in a file, by paths with slashes; single numbers are in metadata "values", and in "values_by_struct"
        by the path of the struct that they stand in and their own name.
        """
        return _by_struct(self._tree(file))

    def _tree(self, file: Opened) -> Stored:
        """Return everything in a file, by paths with slashes."""
        if jld2.looks_like(file.head):
            return file.cached(jld2.read)
        if file.head[:2] == b"PK":
            return _by_paths(file.path, file.cached(npz_file.read))
        return named(file.path, file.cached(julia_bson.read), self.fields)

    def layer(self, group: FoundLayer, stored: Stored, options: Options) -> Recurrent:
        """Return a layer; single values in its struct, and in the one around it, must be known."""
        outer, cell, _ = group.name.rpartition("/cell")
        for place in {group.name, *([outer] if cell else [])} - {""}:
            inside = stored.metadata_as(JuliaMetadata)["values_by_struct"].get(place, {})
            options.facts(group.name, f"the values in {place}", inside, harmless=self.constants_known)
        return super().layer(group, stored, options)

    def write(self, path: Path, job: Job) -> WriteResult:
        """Write a tree in a .bson, or its arrays in an .npz."""
        leaves: Leaves = {}
        notes = []
        stacks = job.stacks()
        tree = lowered(path).suffix == ".bson"
        for (layout, stack), place in zip(stacks, self.places([stack for _, stack in stacks], job), strict=True):
            name = self.rooted(place, job) if tree or self.always_rooted else place
            for local, leaf in self.leaves(layout, stack, name, job).items():
                put(leaves, local, leaf)
            label = name.replace("/", ".") or "the file"
            how = self.loading(layout, name) if tree else ""
            notes.append(f"{label} holds the parameters of {self.constructor(layout, stack)}" + (f": {how}" if how else ""))
        dropped = [*job.carried]
        if not tree:
            leaves = {name: leaf for name, leaf in leaves.items() if not isinstance(leaf, (tuple, dict, bool))}
            dropped = job.carry(leaves)
        if not job.dry_run and tree:
            julia_bson_write.write(path, leaves)
        elif not job.dry_run:
            numbers = {name: np.asarray(leaf) if isinstance(leaf, int) else leaf for name, leaf in leaves.items()}
            npz_file.write(path, numbers)
        return WriteResult(notes, dropped=dropped)

    def rooted(self, name: str, job: Job) -> str:
        """Return a place below the root, also where it was below another name of one of this framework's files."""
        top, _, rest = name.partition("/")
        same = job.source.format == self.NAME
        below_another = same and (top == self.root or lowered(job.source.file).suffix != ".npz")
        return "/".join(filter(None, (self.root, rest if below_another else name)))

    def leaves(self, layout: Layout, stack: Recurrent, name: str, job: Job) -> Leaves:
        """Return everything that is written for a layer, by paths."""
        packed = pack(layout, stack, job.dtype, job.watch)
        return {below(name, local): array for local, array in packed.items()}

    def loading(self, layout: Layout, name: str) -> str:
        """Return how a place in a .bson is loaded into a layer, where Julia's words for it are not plain."""
        return ""

    def constructor(self, layout: Layout, stack: Recurrent) -> str:
        """Return the call that makes a layer for these arrays."""
        return f"{layout.class_name}({stack.input_size} => {stack.hidden_size})"


def _by_struct(stored: Stored) -> Stored:
    structs: dict[str, dict[str, Any]] = {}
    for full, value in stored.metadata_as(JuliaMetadata)["values"].items():
        place, _, name = full.rpartition("/")
        structs.setdefault(place, {})[name] = value
    return Stored(stored.arrays, {**stored.metadata, "values_by_struct": structs})


def _by_paths(path: object, stored: Stored) -> Stored:
    """Return an archive by paths: its names may be words with dots between them, and its single numbers are not arrays."""
    dotted = not any("/" in name for name in stored.arrays)
    by_path = renamed(stored.arrays, lambda name: name.replace(".", "/") if dotted else name, path)
    values = {name: array.item() for name, array in by_path.items() if array.ndim == 0}
    arrays = {name: array for name, array in by_path.items() if array.ndim}
    return Stored(arrays, {**stored.metadata, "values": values, "types": {}})


def _fields_of(kind: tuple[tuple[str, ...], int] | None, fields: Fields) -> tuple[str, ...] | None:
    """Return the names of a struct's fields; for another package's struct of the same name they are unknown."""
    words, count = kind or (("",), 0)
    return next((fields[word, words[-1], count] for word in words[:-1] if (word, words[-1], count) in fields), None)


def named(file: object, stored: Stored, fields: Fields) -> Stored:
    """Return a tree whose structs have the names of their fields; unknown fields keep their number.

    Raises UnreadableError if two arrays would have one name.
    """
    types = stored.metadata_as(JuliaMetadata)["types"]

    def path(full: str, array: Array | None) -> str:
        words: list[str] = []
        at = ""
        for word in full.split("/"):
            fields_known = _fields_of(types.get(at), fields)
            at = below(at, word)
            name = fields_known[int(word) - 1] if fields_known and is_count(word) and int(word) <= len(fields_known) else word
            # One field of old structs is a vector where the same field of new ones is a matrix of one column.
            old, _, new = name.partition("|")
            name = new if new and array is not None and array.ndim == 2 else old
            words += [name] if name else []
        return "/".join(words)

    arrays = renamed(stored.arrays, lambda full: path(full, stored.arrays[full]), file)
    about: dict[str, Mapping[str, Any]] = {
        key: {path(full, None): value for full, value in values.items()} for key, values in stored.metadata.items()
    }
    return Stored(arrays, about)
