"""Files of Julia's frameworks, made by hand as their sources say they are: BSON.jl's and JLD2.jl's."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Array = np.ndarray[Any, Any]
_NUMBERS = itertools.count()
REFERENCE = h5py.special_dtype(ref=h5py.Reference)


class Struct(list[Any]):
    """A struct of a whole model: the words of its type's name, and its fields in order."""

    def __init__(self, name: str, *fields: Any) -> None:
        self.name = name
        super().__init__(fields)


class Function(str):
    """A function of Julia's, by its module and name: "NNlib.relu"."""


def lowered(value: Any) -> Any:
    """A value as BSON.jl's `lower` writes it (src/extensions.jl); a dictionary is a named tuple."""
    kind: dict[str, Any]
    if isinstance(value, np.ndarray):
        name = {"f": "Float", "i": "Int", "u": "UInt"}[value.dtype.kind] + str(8 * value.dtype.itemsize)
        kind = {"tag": "datatype", "name": ["Core", name], "params": []}
        return {"tag": "array", "type": kind, "size": list(value.shape), "data": value.tobytes(order="F")}
    if isinstance(value, Function):
        *module, name = value.split(".")
        return {"tag": "struct", "type": {"tag": "datatype", "name": [*module, f"#{name}"], "params": []}, "data": []}
    if isinstance(value, Struct):
        kind = {"tag": "datatype", "name": value.name.split("."), "params": []}
        return {"tag": "struct", "type": kind, "data": [lowered(field) for field in value]}
    if isinstance(value, tuple):
        return {"tag": "tuple", "data": [lowered(part) for part in value]}
    if isinstance(value, dict):
        names = {"tag": "tuple", "data": [{"tag": "symbol", "name": name} for name in value]}
        kind = {"tag": "datatype", "name": ["Core", "NamedTuple"], "params": [names, {"tag": "ref", "path": []}]}
        return {"tag": "struct", "type": kind, "data": [lowered(part) for part in value.values()]}
    return value


def raised(value: Any) -> Any:
    """What `BSON.load` makes of such values: arrays, tuples, and dictionaries for named tuples."""
    if not isinstance(value, dict) or "tag" not in value:
        return {name: raised(part) for name, part in value.items()} if isinstance(value, dict) else value
    if value["tag"] == "array":
        dtype = {"Float16": "<f2", "Float32": "<f4", "Float64": "<f8"}[value["type"]["name"][-1]]
        return np.frombuffer(value["data"], dtype).reshape(value["size"], order="F")
    if value["tag"] == "tuple":
        return tuple(raised(part) for part in value["data"])
    names, _ = value["type"]["params"]
    assert value["type"]["name"] == ["Core", "NamedTuple"]
    return {name["name"]: raised(part) for name, part in zip(names["data"], value["data"], strict=True)}


def bson(path: Path, **values: Any) -> Path:
    """BSON.@save path values..."""
    import bson as library

    path.write_bytes(library.encode({name: lowered(value) for name, value in values.items()}))
    return path


def loaded(path: Path) -> Any:
    """BSON.load(path), by pymongo alone."""
    import bson as library

    return raised(library.decode(path.read_bytes()))


def jld2(path: Path, inline: bool = False, **values: Any) -> Path:
    """jldsave(path; values...), as docs/src/hdf5compat.md and src/dataspaces.jl say; `inline` nests named tuples."""
    with h5py.File(path, "w", userblock_size=512, libver="latest") as file:
        types = file.create_group("_types")
        types.create_dataset("trap", data=np.zeros(()))
        hidden = file.create_group("_objects")  # JLD2 leaves them without names
        for name, value in values.items():
            _store(file, hidden, name, value, inline)
        # They stay reachable through references, as JLD2's are.
        file["_types"]["objects"] = hidden
        del file["_objects"]
    with path.open("r+b") as raw:
        raw.write(b"HDF5-based Julia Data Format, version 0.1.1\x00 (Julia 1.10.4 64-bit LE)\x00")
    return path


def _store(group: h5py.Group, hidden: h5py.Group, name: str, value: Any, inline: bool) -> h5py.Dataset:
    if isinstance(value, np.ndarray):
        return group.create_dataset(name, data=np.ascontiguousarray(value.T))
    if not isinstance(value, (dict, tuple)):
        return group.create_dataset(name, data=value)
    kind, record = _compound(hidden, value, inline)
    types = group.file["_types"]
    types[f"{next(_NUMBERS):08d}"] = kind  # JLD2 commits every type, and refers to it
    dataset = group.create_dataset(name, (), dtype=types[f"{next(_NUMBERS) - 1:08d}"])
    dataset[()] = record
    return dataset


def _compound(hidden: h5py.Group, value: Any, inline: bool) -> tuple[Any, Any]:
    """The type of a structure and its record; fields without data are left out."""
    fields = dict(enumerate(value, 1)) if isinstance(value, tuple) else value
    kinds, parts = [], {}
    for key, member in fields.items():
        if isinstance(member, tuple) and not member:
            continue
        if isinstance(member, (bool, int)):
            kinds.append((str(key), np.dtype("u1" if isinstance(member, bool) else "i8")))
            parts[str(key)] = member
        elif inline and isinstance(member, (dict, tuple)):
            kind, parts[str(key)] = _compound(hidden, member, inline)
            kinds.append((str(key), kind))
        else:
            kinds.append((str(key), REFERENCE))
            parts[str(key)] = _store(hidden, hidden, f"o{next(_NUMBERS)}", member, inline).ref
    record = np.zeros((), np.dtype(kinds))
    for key, part in parts.items():
        record[key] = part
    return np.dtype(kinds), record
