"""JLD2.jl's files of Julia's values, read through HDF5's library: values below the names that were saved.

A value is found from its name on, through the members of compound types and through references. The group `_types`, where
JLD2 keeps what Julia's types are, is never opened: the library reads only a part of it, and anything that it cannot read of an object is
reported for that object.

Source: JuliaIO/JLD2.jl, docs/src/hdf5compat.md and src/dataspaces.jl: structs and named tuples are compound types whose
members are the fields, tuples likewise with members 1, 2, ...; anything but a plain number is mostly a reference to a separate dataset;
fields without data (functions, empty tuples) are left out; the lengths of an array are written last first.
"""

from __future__ import annotations

import os
from typing import Any

import h5py
import numpy as np

from rnnconvert.containers.apart import read_apart
from rnnconvert.containers.files import map_file
from rnnconvert.containers.hdf5 import Hdf5Walk, first_line
from rnnconvert.containers.stored import Stored
from rnnconvert.containers.window import GuardedWindow
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RnnConvertError, UnreadableError
from rnnconvert.formats.julia.julia_tree import OBJECTS, Tree, below

MAGIC = b"HDF5-based Julia Data Format"
REMEDY = 'In Julia, save its numbers in a form that others read: BSON.@save "model.bson" model_state=Flux.state(model).'

_TYPES = b"_types"
_NUMBERS = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.BITFIELD)


def looks_like(head: bytes) -> bool:
    """Return whether a file begins as JLD2's do."""
    return head.startswith(MAGIC)


def read(path: str | os.PathLike[str]) -> Stored:
    """Return every array by its path, as Julia shapes it; in metadata "values", "types" and "unreadable", as in a Tree.

    Raises UnreadableError for a damaged file, and for one in which HDF5's library cannot open anything that holds numbers.
    """
    data = map_file(path)
    return read_apart(lambda: _walked(path, data), data, path)


def _walked(path: str | os.PathLike[str], data: Array) -> Stored:
    tree = Tree(path)
    try:
        with h5py.File(GuardedWindow(data), "r") as file:
            _Jld2Reader(tree, data, file).group(file.id, "")
    except (RnnConvertError, MemoryError):
        raise
    except Exception as error:  # the library raises errors of every type on a damaged file
        raise UnreadableError(path, f"not a valid JLD2 file: {first_line(error)}", REMEDY) from None
    if not tree.arrays:
        why = "; ".join(f"{name}: {reason}" for name, reason in list(tree.unreadable.items())[:3])
        raise UnreadableError(path, "no arrays of numbers can be read from it" + (f" ({why})" if why else ""), REMEDY)
    return tree.stored()


class _Jld2Reader:
    """One walk over one open file."""

    def __init__(self, tree: Tree, data: Array, file: h5py.File) -> None:
        self._tree = tree
        self._size = data.size
        self._file = file
        self._numbers = Hdf5Walk(tree.path, data)

    def group(self, group: h5py.h5g.GroupID, where: str) -> None:
        """Read the values below the names in a group."""
        names: list[bytes] = []

        def add(name: bytes) -> bool | None:
            names.append(name)
            return True if len(names) > OBJECTS else None

        with self._tree.visit(where, ("group", h5py.h5o.get_info(group).addr)) as new:
            if not new:
                return
            group.links.iterate(add)
            for raw in names:
                if raw == _TYPES and not where:
                    continue
                name = below(where, raw.decode("utf-8", "backslashreplace"))
                if group.links.get_info(raw).type != h5py.h5l.TYPE_HARD:
                    self._tree.unreadable[name] = "a link by name, possibly to another file; not followed"
                    continue
                try:
                    child = h5py.h5o.open(group, raw)
                except (KeyError, RuntimeError, TypeError, OSError, ValueError) as error:
                    self._tree.unreadable[name] = f"HDF5's library cannot open it: {first_line(error)}"
                    continue
                self._object(child, name)

    def _object(self, child: Any, where: str) -> None:
        if isinstance(child, h5py.h5g.GroupID):
            self.group(child, where)
        elif isinstance(child, h5py.h5d.DatasetID):
            with self._tree.visit(where, h5py.h5o.get_info(child).addr) as new:
                if new:
                    self._dataset(h5py.Dataset(child), where)

    def _dataset(self, dataset: h5py.Dataset, where: str) -> None:
        try:
            kind = dataset.id.get_type()
            plain = kind.get_class()
        except (KeyError, RuntimeError, TypeError, OSError, ValueError) as error:
            self._tree.unreadable[where] = f"HDF5's library does not support its type: {first_line(error)}"
            return
        if plain in _NUMBERS:
            self._plain(dataset, where)
        elif plain == h5py.h5t.REFERENCE:
            references = self._read(dataset, where, kind)
            if references is not None:
                self._value(references, where)
        elif plain == h5py.h5t.COMPOUND and dataset.shape == ():
            members = _readable(kind)
            record = self._read(dataset, where, kind, members) if members else None
            if record is not None:
                self._record(record, members, where)
        else:
            self._tree.unreadable[where] = "neither numbers nor a structure"

    def _plain(self, dataset: h5py.Dataset, where: str) -> None:
        array = self._numbers.numbers(dataset, where, {})
        if array is None:
            self._tree.unreadable[where] = self._numbers.unreadable.get(where, "no plain numbers")
        elif array.ndim:
            self._tree.arrays[where] = array.T
        else:
            self._tree.values[where] = array.item()

    def _read(self, dataset: h5py.Dataset, where: str, kind: h5py.h5t.TypeID, members: list[str] | None = None) -> Any:
        """Return the content of a dataset, or only these members of it, if the file can account for it."""
        claimed = kind.get_size() * max(1, int(dataset.id.get_space().get_simple_extent_npoints()))
        if claimed > self._size:
            problem = f"{where[:200]!r} claims {claimed} bytes, but the file has {self._size}"
            raise UnreadableError(self._tree.path, problem, REMEDY)
        try:
            return (dataset.fields(members) if members else dataset)[()]
        except (KeyError, RuntimeError, TypeError, OSError, ValueError) as error:
            self._tree.unreadable[where] = f"HDF5's library cannot read it: {first_line(error)}"
            return None

    def _record(self, record: Any, members: list[str], where: str) -> None:
        for name in members:
            self._value(record[name], below(where, name))

    def _value(self, value: Any, where: str) -> None:
        """Read a member of a structure, or what an array refers to."""
        with self._tree.visit(where, object()):
            if isinstance(value, h5py.Reference):
                if value:
                    self._follow(value, where)
            elif isinstance(value, np.void) and value.dtype.names:
                self._record(value, list(value.dtype.names), where)
            elif isinstance(value, np.ndarray) and value.dtype == object:
                for number, element in enumerate(value.T.reshape(-1, order="F"), 1):
                    self._value(element, below(where, number))
            elif isinstance(value, np.ndarray):
                self._tree.arrays[where] = value.T
            elif isinstance(value, np.generic):
                self._tree.values[where] = value.item()

    def _follow(self, reference: h5py.Reference, where: str) -> None:
        try:
            child = h5py.h5r.dereference(reference, self._file.id)
        except (KeyError, RuntimeError, TypeError, OSError, ValueError) as error:
            self._tree.unreadable[where] = f"HDF5's library cannot follow a reference to it: {first_line(error)}"
            return
        self._object(child, where)


def _readable(kind: h5py.h5t.TypeCompoundID) -> list[str]:
    """Return the members of a compound type that are numbers, references or structures of them; reading others is not safe."""
    names = []
    for number in range(kind.get_nmembers()):
        member = kind.get_member_type(number)
        complete = isinstance(member, h5py.h5t.TypeCompoundID) and len(_readable(member)) == member.get_nmembers()
        if complete or member.get_class() in (*_NUMBERS, h5py.h5t.REFERENCE):
            names.append(kind.get_member_name(number).decode("utf-8", "backslashreplace"))
    return names
