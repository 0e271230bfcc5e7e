"""Files as trees of facts: each kind of file is opened into plain values, and written again from them.

A tree is made of dictionaries, lists, tuples and the objects of Torch7 and Julia; its leaves are arrays, texts, numbers and
truth values. `facts` lists the leaves by their paths, and `changed` makes a tree with one of them changed.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from rnnconvert.containers import hdf5, json_file, msgpack_file, npy, npz_file, safetensors, tensor_bundle
from rnnconvert.containers.archives import nested
from rnnconvert.formats.mxnet import mxnet_params
from rnnconvert.formats.paddle import lod_tensor, paddle_params
from rnnconvert.formats.torch7 import torch7_file, torch7_write
from rnnconvert.formats.torch7.torch7_file import LuaTable, Object
from tests.helpers import julia_files
from tests.helpers.julia_files import Function, Struct

Path_ = tuple[Any, ...]
GONE = object()
"""What a fact is replaced with to remove it."""


# Trees ----------------------------------------------------------------------------------------------------


def children(tree: Any) -> list[tuple[Any, Any]]:
    """The parts of a value by their keys; none of a leaf."""
    if isinstance(tree, Object):
        return list(tree.fields.items())
    if isinstance(tree, Mapping):
        return list(tree.items())
    return list(enumerate(tree)) if isinstance(tree, list | tuple) else []


def facts(tree: Any, above: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every leaf, and every dictionary or object: facts may be added to these."""
    if not children(tree) or not isinstance(tree, list | tuple):
        yield above, tree
    for key, value in children(tree):
        yield from facts(value, (*above, key))


def changed(tree: Any, path: Path_, value: Any) -> Any:
    """The tree with another value at a path; GONE removes what is there, and a new key is added."""
    if not path:
        return value
    key, *rest = path
    parts = dict(children(tree))
    parts[key] = changed(parts.get(key), tuple(rest), value) if rest else value
    left = {key: value for key, value in parts.items() if value is not GONE}
    if isinstance(tree, Object):
        return Object(tree.name, LuaTable(left))
    if isinstance(tree, Struct):
        return Struct(tree.name, *left.values())
    kind: Any = type(tree)
    return kind(left if isinstance(tree, Mapping) else left.values())


# Files ----------------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """How a kind of file is opened into a tree, and written from one."""

    open: Callable[[Path], Any]
    save: Callable[[Path, Any], None]


def kind(path: Path) -> Kind:
    """How a file is opened and written, by its name."""
    if path.is_dir():
        return Kind(lambda folder: dict(lod_tensor.read_folder(folder).arrays), save_folder)
    return next(entry for suffix, entry in KINDS.items() if path.name.endswith(suffix))


def open_hdf5(path: Path) -> Any:
    with h5py.File(path) as file:
        attributes = {f"{place}@{name}": value for place, group in _groups(file) for name, value in group.attrs.items()}
    return {"arrays": dict(hdf5.read(path).arrays), "attributes": attributes}


def _groups(file: h5py.File) -> list[tuple[str, Any]]:
    groups: list[tuple[str, Any]] = [("", file)]
    file.visititems(lambda name, item: groups.append((name, item)))
    return groups


def save_hdf5(path: Path, tree: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, array in tree["arrays"].items():
            file[name] = array
        for full, value in tree["attributes"].items():
            place, _, name = full.rpartition("@")
            (file.require_group(place) if place and place not in file else file[place or "/"]).attrs[name] = value


def open_torch(path: Path) -> Any:
    import torch

    return {name: tensor.numpy() for name, tensor in torch.load(path).items()}


def save_torch(path: Path, tree: Any) -> None:
    import torch

    torch.save({name: torch.tensor(np.asarray(tensor)) for name, tensor in tree.items()}, path)


def open_safetensors(path: Path) -> Any:
    stored = safetensors.read(path)
    about = dict(stored.metadata.get("__metadata__", {}))
    described = {key: json.loads(text) if text[:1] in "{[" else text for key, text in about.items()}
    return {"arrays": dict(stored.arrays), "metadata": described}


def save_safetensors(path: Path, tree: Any) -> None:
    about = {str(key): value if isinstance(value, str) else json.dumps(value) for key, value in tree["metadata"].items()}
    safetensors.write(path, tree["arrays"], about)


def open_cudnn(path: Path) -> Any:
    described = json.loads(path.with_name(f"{path.name}.json").read_text())
    return {"description": described, "buffer": np.fromfile(path, "<f4")}


def save_cudnn(path: Path, tree: Any) -> None:
    path.write_bytes(tree["buffer"].tobytes() if isinstance(tree.get("buffer"), np.ndarray) else b"")
    path.with_name(f"{path.name}.json").write_text(json.dumps(tree.get("description")))


def open_mxnet(path: Path) -> Any:
    tree: dict[str, Any] = {"arrays": dict(mxnet_params.read(path).arrays)}
    graph = path.with_name(f"{path.stem}-symbol.json")
    if graph.is_file():
        tree["graph"] = json.loads(graph.read_text())
    return tree


def save_mxnet(path: Path, tree: Any) -> None:
    mxnet_params.write(path, tree.get("arrays", {}))
    if "graph" in tree:
        path.with_name(f"{path.stem}-symbol.json").write_text(json.dumps(tree["graph"]))


def open_dl4j(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("configuration.json"))


def save_dl4j(path: Path, tree: Any) -> None:
    """The configuration alone is changed: the coefficients are those of `whole.dl4j` beside it."""
    with zipfile.ZipFile(path.with_name("whole.dl4j")) as old, zipfile.ZipFile(path, "w") as archive:
        archive.writestr("configuration.json", json.dumps(tree))
        archive.writestr("coefficients.bin", old.read("coefficients.bin"))


_FLUID = {"<f4": 5, "<f8": 6, "<f2": 4, "<i4": 2}


def save_folder(path: Path, tree: Any) -> None:
    """Fluid's parameters: version, no levels, version, the description, the numbers."""
    path.mkdir(exist_ok=True)
    for name, array in tree.items():
        lengths = b"".join(b"\x10" + bytes([length]) for length in array.shape)
        described = b"\x08" + bytes([_FLUID[array.dtype.str]]) + lengths
        head = struct.pack("<IQI", 0, 0, 0) + struct.pack("<i", len(described))
        (path / name).write_bytes(head + described + np.ascontiguousarray(array).tobytes())


def save_t7(path: Path, tree: Any) -> None:
    torch7_write.write(path, tree)


def open_bson(path: Path) -> Any:
    import bson

    return {name: _raised(value) for name, value in bson.decode(path.read_bytes()).items()}


def _raised(value: Any) -> Any:
    """A value of a .bson as tests.helpers.julia_files writes it."""
    if not isinstance(value, dict) or value.get("tag") != "struct":
        if isinstance(value, dict) and value.get("tag") == "tuple":
            return tuple(map(_raised, value["data"]))
        return julia_files.raised(value)
    names, kind = value["type"]["name"], value["type"]["params"]
    if names == ["Core", "NamedTuple"]:
        return {key["name"]: _raised(part) for key, part in zip(kind[0]["data"], value["data"], strict=True)}
    if names[-1].startswith("#"):
        return Function(".".join(names).replace("#", ""))
    return Struct(".".join(names), *map(_raised, value["data"]))


def open_json(path: Path) -> Any:
    return _with_arrays(json.loads(path.read_text()))


def _with_arrays(value: Any) -> Any:
    """A value with its lists of numbers as arrays."""
    if isinstance(value, dict):
        return {key: _with_arrays(part) for key, part in value.items()}
    if not isinstance(value, list):
        return value
    try:
        numbers = np.array(value, np.float32 if value else object)
    except (TypeError, ValueError):
        return [_with_arrays(part) for part in value]
    return [_with_arrays(part) for part in value] if numbers.dtype == object or np.isnan(numbers).any() else numbers


def save_json(path: Path, tree: Any) -> None:
    """Numbers have no element type here: those of another one would be the same file."""
    if any(isinstance(fact, np.ndarray) and fact.dtype != np.float32 for _, fact in facts(tree)):
        raise TypeError
    json_file.write(path, tree)


def open_dynet(path: Path) -> Any:
    lines, tree = path.read_text().splitlines(), {}
    for header, numbers in zip(lines[::2], lines[1::2], strict=True):
        _, name, dims, *_ = header.split()
        tree[name] = np.array(numbers.split(), np.float32).reshape(json.loads(f"[{dims[1:-1]}]"), order="F")
    return tree


def save_dynet(path: Path, tree: Any) -> None:
    if any(np.asarray(array).dtype != np.float32 for array in tree.values()):
        raise TypeError  # numbers have no element type here, as in JSON
    lines = list[str]()
    for name, array in tree.items():
        numbers = " ".join(map(str, np.asarray(array, np.float32).reshape(-1, order="F").tolist()))
        lines += [f"#Parameter# {name} {{{','.join(map(str, np.shape(array)))}}} 0 ZERO_GRAD", numbers]
    path.write_text("\n".join(lines) + "\n")


KINDS = {
    ".weights.h5": Kind(open_hdf5, save_hdf5), ".h5": Kind(open_hdf5, save_hdf5), ".hdf5": Kind(open_hdf5, save_hdf5),
    ".npz": Kind(lambda path: dict(npz_file.read(path).arrays), npz_file.write),
    ".safetensors": Kind(open_safetensors, save_safetensors),
    ".msgpack": Kind(
        lambda path: dict(msgpack_file.read(path).arrays), lambda path, tree: msgpack_file.write(path, nested(tree))
    ),
    ".pt": Kind(open_torch, save_torch),
    ".params": Kind(open_mxnet, save_mxnet),
    ".pdparams": Kind(lambda path: dict(paddle_params.read(path).arrays), paddle_params.write),
    ".t7": Kind(torch7_file.read, save_t7),
    ".bson": Kind(open_bson, lambda path, tree: None),
    ".eqx": Kind(lambda path: list(npy.read_row(path).arrays.values()), npy.write_row),
    ".index": Kind(
        lambda path: dict(tensor_bundle.read(path).arrays), lambda path, tree: tensor_bundle.write(path, tree)
    ),
    ".dynet": Kind(open_dynet, save_dynet),
    ".bin": Kind(open_cudnn, save_cudnn),
    ".dl4j": Kind(open_dl4j, save_dl4j),
    **dict.fromkeys((".json", ".aidax", ".nam"), Kind(open_json, save_json)),
}  # fmt: skip
"""By the ends of their names."""


# Changes --------------------------------------------------------------------------------------------------

WORDS = {
    "lstm": "gru", "gru": "lstm", "rnn_tanh": "rnn_relu", "rnn_relu": "rnn_tanh", "tanh": "relu", "double": "none", "linear": "skip",
    "float32": "float64", "True": "False", "False": "True", "true": "false", "false": "true", "ADD": "MUL",
    "CUDNN_LSTM": "CUDNN_GRU", "CUDNN_UNIDIRECTIONAL": "CUDNN_BIDIRECTIONAL", "CUDNN_LINEAR_INPUT": "CUDNN_SKIP_INPUT",
    "CUDNN_BIDIRECTIONAL": "CUDNN_UNIDIRECTIONAL", "CUDNN_GRU": "CUDNN_LSTM", "CUDNN_RNN_RELU": "CUDNN_RNN_TANH",
}  # fmt: skip
"""Another word that may stand where one stands."""


def others(value: Any) -> Iterator[tuple[str, Any]]:
    """Other values that could stand where one stands, each with what it is."""
    if isinstance(value, bool | np.bool_):
        yield "negated", not value
    elif isinstance(value, int | float | np.number):
        number: Any = type(value)
        yield "another number", number(value + 1)
    elif isinstance(value, Function):
        yield "another function", Function("Main.another")
    elif isinstance(value, str):
        yield "an unknown word", "another"
        if value in WORDS:
            yield "another word", WORDS[value]
        elif value.isdecimal():
            yield "another number", str(int(value) + 1)
    elif isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size:
        yield "other numbers", value + np.asarray(0.25, value.dtype)
        yield "one more row", np.concatenate([value, value[:1]]) if value.ndim else value.reshape(1, 1)
        yield "one row less", value[1:]
        if value.ndim == 2 and value.shape[0] != value.shape[1]:
            yield "transposed", np.ascontiguousarray(value.T)
        if value.ndim > 1:
            yield "flat", value.reshape(-1)
        yield "float64", value.astype("f4" if value.dtype.itemsize == 8 else "f8")
        yield "whole numbers", value.astype("i4")


def added(path: Path_, value: Any) -> Iterator[tuple[str, Path_, Any]]:
    """Facts that could stand beside others in a dictionary or object, each with what it is, its path and its value."""
    inside = dict(children(value))
    names = [name for name, child in inside.items() if isinstance(child, np.ndarray) and isinstance(name, str)]
    flat = [name for name in names if any(mark in name for mark in "/.")]
    if names and len(names) == len(inside):
        places = {name[: max(name.rfind("/"), name.rfind(".")) + 1] for name in flat}
        for place in sorted(places):
            yield "an array beside", (*path, f"{place}unknown_fact"), np.full(4, 0.5, "f4")
    elif isinstance(value, Object):
        yield "a number beside", (*path, "unknown_fact"), 0.5
        yield "an array beside", (*path, "unknown_fact"), np.full(4, 0.5, "f4")
        yield "a truth value beside", (*path, "unknown_fact"), True
    elif isinstance(value, dict) and all(children(child) for child in inside.values()):
        return  # no struct of a layer's
    elif isinstance(value, dict):
        yield "a number beside", (*path, "unknown_fact"), 0.5
        yield "a word beside", (*path, "unknown_fact"), "log"
        if names:
            yield "an array beside", (*path, "unknown_fact"), np.full(4, 0.5, "f4")
