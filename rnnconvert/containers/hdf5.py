"""HDF5 files: Keras `.h5`, `.weights.h5` and any other; datasets are views of the mapped file.

The HDF5 library only ever sees a window on the mapped bytes, so no file can make it open
another one by itself; links to other places are listed as unreadable and never followed. It reads
in a child process (containers.apart): on damaged files it may loop, crash, or take all memory.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from rnnconvert.containers.apart import read_apart
from rnnconvert.containers.files import map_file, view
from rnnconvert.containers.hdf5_write import write
from rnnconvert.containers.reading import charging, open_regular
from rnnconvert.containers.stored import FileMetadata, Stored
from rnnconvert.containers.window import GuardedWindow
from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.errors import RnnConvertError, UnreadableError
from rnnconvert.core.limits import NESTING
from rnnconvert.core.names import natural

__all__ = ["read", "write"]

MAGIC = b"\x89HDF\r\n\x1a\n"
OBJECTS = 100_000
"""The most groups and datasets of one file that are visited."""

EXPANSION = 1100
"""How many bytes one stored byte may stand for; deflate reaches 1032."""

UNPROVEN_BYTES = 1 << 20
"""What a dataset may claim without any stored byte; all such datasets of a file share 256 times that."""


_NAME_LISTS = ("layer_names", "weight_names")
_ATTRIBUTE_CLASSES = {h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING, h5py.h5t.ENUM}
_FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32, h5py.h5z.FILTER_LZF}


def is_hdf5(path: Path) -> bool:
    """Return whether a file begins as HDF5 files do."""
    if not path.is_file():
        return False
    with open_regular(path) as file:
        return file.read(len(MAGIC)) == MAGIC


def read(path: str | os.PathLike[str], source: Array | None = None) -> Stored:
    """Return every dataset by its full path, and in metadata "attributes" and "unreadable" (name: reason).

    The order is that of Keras's `layer_names` and `weight_names` where they exist, else that of
    creation, else the natural one (lstm_2 before lstm_10).

    source  the bytes of the HDF5 file when it lies inside another file; `path` then only names it
    Raises UnreadableError if the file is damaged or claims more than it holds.
    """
    if source is None:
        cache = charging(0).looked(path)
        if _read not in cache:
            cache[_read] = _read(path, map_file(path))
        stored: Stored = cache[_read]
        return Stored(dict(stored.arrays), dict(stored.metadata))
    return _read(path, source)


def _read(path: str | os.PathLike[str], data: Array) -> Stored:
    def walk() -> Stored:
        try:
            with h5py.File(GuardedWindow(data), "r") as file:
                return Hdf5Walk(path, data).read(file)
        except (RnnConvertError, MemoryError):
            raise
        except Exception as error:  # the library raises errors of every type on a damaged file
            raise UnreadableError(path, f"the HDF5 library cannot read it: {first_line(error)}") from None

    return read_apart(walk, data, path)


class Hdf5Walk:
    """One walk over one open file.

    unreadable  names of what could not be read, and why
    """

    def __init__(self, path: object, data: Array) -> None:
        self._path = path
        self._data = data
        self._visited = 0
        self._groups: set[int] = set()
        self._loaded: dict[int, Array] = {}
        self._stored = 0
        self._unproven = 0
        self._attributes: dict[str, dict[str, Any]] = {}
        self._empty: list[str] = []
        self.unreadable: dict[str, str] = {}

    def read(self, file: h5py.File) -> Stored:
        arrays = self._group(file["/"], "", 0)
        return Stored(arrays, FileMetadata(attributes=self._attributes, empty=self._empty, unreadable=self.unreadable))

    def _group(self, group: h5py.Group, prefix: str, depth: int) -> dict[str, Array]:
        """Return the arrays below a group, in order, by their full names."""
        if depth > NESTING:
            raise UnreadableError(self._path, f"groups are nested more than {NESTING} deep at {prefix!r}")
        self._groups.add(h5py.h5o.get_info(group.id).addr)
        attributes = self._read_attributes(group, prefix.rstrip("/"))
        arrays: dict[str, Array] = {}
        decoded: set[str] = set()
        names = self._children(group, attributes.get("layer_names"))
        if not names:
            self._empty.append(prefix.rstrip("/"))
        for raw_name in names:
            name = prefix + raw_name.decode("utf-8", "backslashreplace")
            if name in decoded:
                raise UnreadableError(self._path, f"two names in it are both read as {name!r}, since they are not text")
            decoded.add(name)
            link = group.id.links.get_info(raw_name)
            if link.type != h5py.h5l.TYPE_HARD:
                self.unreadable[name] = "a link by name, possibly to another file; not followed"
                continue
            if b"/" in raw_name or raw_name in (b"", b"."):
                self.unreadable[name] = "not a legal name"
                continue
            child = h5py.h5o.open(group.id, raw_name)
            if isinstance(child, h5py.h5g.GroupID):
                if h5py.h5o.get_info(child).addr in self._groups:
                    self.unreadable[name] = "a second link to a group that was read already"
                else:
                    arrays |= self._group(h5py.Group(child), name + "/", depth + 1)
            elif isinstance(child, h5py.h5d.DatasetID):
                array = self._dataset(h5py.Dataset(child), name)
                if array is not None:
                    arrays[name] = array
        return _in_order(arrays, prefix, attributes.get("weight_names"))

    def _children(self, group: h5py.Group, layer_names: object) -> list[bytes]:
        """Return the names in a group, in order. Raises UnreadableError if the file has too many."""
        names: list[bytes] = []

        def add(name: bytes) -> bool | None:
            names.append(name)
            return True if self._visited + len(names) > OBJECTS else None

        created = group.id.get_create_plist().get_link_creation_order() & h5py.h5p.CRT_ORDER_TRACKED
        by = h5py.h5.INDEX_CRT_ORDER if created else h5py.h5.INDEX_NAME
        group.id.links.iterate(add, idx_type=by, order=h5py.h5.ITER_INC)
        if self._visited + len(names) > OBJECTS:
            raise UnreadableError(self._path, f"more than {OBJECTS} groups and datasets")
        self._visited += len(names)
        if not created:
            names.sort(key=lambda name: natural(name.decode("latin1")))
        if isinstance(layer_names, list):
            wanted = {str(name).encode(): index for index, name in enumerate(layer_names)}
            names.sort(key=lambda name: wanted.get(name, len(wanted)))
        return names

    def _dataset(self, dataset: h5py.Dataset, name: str) -> Array | None:
        """Return a dataset's numbers, mapped or read; None with a note if it holds no plain numbers."""
        return self.numbers(dataset, name, self._read_attributes(dataset, name))

    def numbers(self, dataset: h5py.Dataset, name: str, attributes: Mapping[str, Any]) -> Array | None:
        """Return a dataset's numbers, mapped or read; None with a note in `unreadable` if it holds no plain numbers.

        Raises UnreadableError if it claims more than the file can hold.
        """
        address = h5py.h5o.get_info(dataset.id).addr
        if address in self._loaded:
            return self._loaded[address]
        settings = dataset.id.get_create_plist()
        try:
            dtype = dataset.dtype
        except TypeError as error:
            self.unreadable[name] = f"element type without an equivalent: {first_line(error)}"
            return None
        shape = dataset.shape
        layout = settings.get_layout()
        bfloat16 = _is_bfloat16(dataset, dtype, attributes)
        if dtype.kind not in "biufc" and not bfloat16:
            self.unreadable[name] = f"elements of type {dtype}, which is not a plain number"
        elif shape is None:
            self.unreadable[name] = "a dataset without elements"
        elif layout == h5py.h5d.VIRTUAL or settings.get_external_count():
            self.unreadable[name] = "its data is in other files; not followed"
        elif any(settings.get_filter(i)[0] not in _FILTERS for i in range(settings.get_nfilters())):
            self.unreadable[name] = "compressed in a way that is not supported"
        else:
            offset = dataset.id.get_offset() if layout == h5py.h5d.CONTIGUOUS else None
            plain = bfloat16 or dataset.id.get_type().equal(h5py.h5t.py_create(dtype))
            if offset is not None and plain and dtype.isnative:
                mapped = BFLOAT16 if bfloat16 else dtype
                self._loaded[address] = view(self._data, offset, shape, mapped, self._path, name)
            else:
                self._loaded[address] = self._load(dataset, name, bfloat16)
            return self._loaded[address]
        return None

    def _load(self, dataset: h5py.Dataset, name: str, bfloat16: bool) -> Array:
        """Return a dataset that cannot be mapped, in memory and in the machine's byte order.

        Raises UnreadableError if the bytes in the file cannot account for what it claims.
        """
        stored = int(dataset.id.get_storage_size())
        self._stored += stored
        size = math.prod(dataset.shape) * dataset.dtype.itemsize
        if dataset.chunks:
            size = max(size, math.prod(dataset.chunks) * dataset.dtype.itemsize)
        if size > EXPANSION * stored:
            self._unproven += size
        if self._stored > self._data.size or (size > EXPANSION * stored and size > UNPROVEN_BYTES) or self._unproven > 256 * UNPROVEN_BYTES:
            raise UnreadableError(self._path, f"{name!r} claims {size} bytes, but the file stores only {stored} bytes for it")
        array: Array = np.asarray(dataset[()])
        if bfloat16:
            return array.view(BFLOAT16) if array.dtype.itemsize == 2 else array.astype(BFLOAT16)
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def _read_attributes(self, holder: h5py.Group | h5py.Dataset, name: str) -> dict[str, Any]:
        """Return an object's attributes as plain Python values, joining the lists that Keras had to split."""
        if not len(holder.attrs):
            return {}
        attributes: dict[str, Any] = {}
        for key in sorted(holder.attrs, key=natural):
            identifier = holder.attrs.get_id(key)
            size = math.prod(identifier.shape or ()) * identifier.get_type().get_size()
            if size > 16 * self._data.size:
                raise UnreadableError(self._path, f"the attribute {key!r} of {name!r} claims {size} bytes")
            if identifier.get_type().get_class() not in _ATTRIBUTE_CLASSES:
                # the library crashes on damaged types of variable length other than strings
                self.unreadable[f"{name}@{key}"] = "an attribute that is neither a number nor text"
                continue
            try:
                attributes[key] = _plain(holder.attrs[key])
            except (TypeError, ValueError, OSError, RuntimeError) as error:
                self.unreadable[f"{name}@{key}"] = f"an attribute that cannot be read: {first_line(error)}"
        for base in _NAME_LISTS:
            joined: list[Any] = []
            for index in itertools.count():
                if base in attributes or not isinstance(attributes.get(f"{base}{index}"), list):
                    break
                joined += attributes.pop(f"{base}{index}")
            if joined:
                attributes[base] = joined
        if attributes:
            self._attributes[name] = attributes
        return attributes


def _in_order(arrays: dict[str, Array], prefix: str, weight_names: object) -> dict[str, Array]:
    """Return arrays in the order of a group's `weight_names`; the others follow."""
    if not isinstance(weight_names, list):
        return arrays
    first = [prefix + str(name) for name in weight_names]
    return {name: arrays[name] for name in first if name in arrays} | arrays


def _is_bfloat16(dataset: h5py.Dataset, dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> bool:
    """Return whether a dataset is bfloat16: Keras 3's two opaque bytes, or a separate type in newer files."""
    kind = dataset.id.get_type()
    if isinstance(kind, h5py.h5t.TypeOpaqueID):
        return bool(dtype.itemsize == 2 and attributes.get("dtype") == "bfloat16")
    if isinstance(kind, h5py.h5t.TypeFloatID) and kind.get_size() == 2:
        return bool(kind.get_fields() == (15, 7, 8, 0, 7) and kind.get_order() == h5py.h5t.ORDER_LE)
    return False


def _plain(value: Any) -> Any:
    """Return an attribute as str, number, bool or list of them."""
    if isinstance(value, np.ndarray):
        return [_plain(each) for each in value.tolist()] if value.ndim else _plain(value.item())
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, h5py.Empty):
        return None
    if isinstance(value, (str, int, float, complex)):
        return value
    raise TypeError(f"values of type {type(value).__name__}")


def first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
