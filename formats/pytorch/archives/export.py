"""PyTorch's .pt2 archives, as torch.export.save writes them: weights by name, and the operators that read them.

Source: torch/export/pt2_archive/_package.py and constants.py, torch/_export/serde/schema.py (schema version 8).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rnnconvert.containers import json_text
from rnnconvert.containers.pickles import RECOVERABLE
from rnnconvert.containers.stored import Stored
from rnnconvert.containers.zips import Archive
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RnnConvertError, UnreadableError
from rnnconvert.core.limits import DESCRIPTION_BYTES
from rnnconvert.core.malformed import Entries
from rnnconvert.formats.pytorch import export_graph
from rnnconvert.formats.pytorch.program.program import OperatorProgram, TooLongError
from rnnconvert.formats.pytorch.torchscript_code import CELLS, SEQUENCES, WeightsCall

_WEIGHTS = "data/weights/model_weights_config.json"
_CONSTANTS = "data/constants/model_constants_config.json"
_GRAPH = "models/model.json"


def root(archive: Iterable[str]) -> str:
    """Return the folder of the one exported program with weights among the entries of a zip archive, or ""."""
    roots = [name.removesuffix(_WEIGHTS) for name in archive if name.endswith(_WEIGHTS)]
    return roots[0] if len(roots) == 1 and roots[0].count("/") == 1 else ""


def read(path: str | os.PathLike[str]) -> Stored:
    """Return the weights by their names in the module; metadata "calls" lists the operators of the graph that read
    them, and "follow" returns what the whole graph computes, or why that is not followed.

    Raises UnreadableError.
    """
    archive = Archive(path)
    folder = root(archive)
    try:
        return _read(archive, folder)
    except RnnConvertError:
        raise
    except RECOVERABLE as error:
        raise UnreadableError(
            path, f"its description of the weights does not have torch.export's form: {type(error).__name__} {error}"
        ) from None


def _read(archive: Archive, root: str) -> Stored:
    if bytes(archive.read(f"{root}byteorder")).strip() != b"little":
        raise UnreadableError(archive.path, "its numbers are not little-endian")
    arrays, unreadable = _arrays(archive, root, _WEIGHTS)
    constants = _arrays(archive, root, _CONSTANTS)[0] if f"{root}{_CONSTANTS}" in archive else {}
    metadata: dict[str, Any] = {"unreadable": unreadable, "root": "an exported program", "torchscript": True}
    if f"{root}{_GRAPH}" in archive:
        program = _json(archive, root + _GRAPH)
        metadata["calls"] = list(_calls(program["graph_module"]))
        stated = {key: program.get(key) for key in ("range_constraints", "guards_code")}
        metadata["follow"] = functools.partial(_follow, {**program["graph_module"], **stated}, constants)
        if isinstance(program.get("torch_version"), str):
            metadata["torch_version"] = program["torch_version"]
    return Stored(arrays, metadata)


def _arrays(archive: Archive, root: str, config: str) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays that a description lists, by their names in the module, and why others are not read."""
    arrays: dict[str, Array] = {}
    unreadable: dict[str, str] = {}
    for name, entry in _json(archive, root + config)["config"].items():
        meta = entry["tensor_meta"]
        dtype = None if meta is None else export_graph.DTYPES.get(meta["dtype"])
        if entry["use_pickle"] or meta is None or dtype is None:
            unreadable[name] = f"it is pickled, or of the type {meta and meta['dtype']}, which is not supported"
            continue
        record = archive.read(f"{root}{config.rpartition('/')[0]}/{entry['path_name']}")
        arrays[name] = _view(archive.path, name, record, meta, dtype)
    return arrays, unreadable


def _follow(module: Any, constants: Mapping[str, Array]) -> OperatorProgram | str:
    """Return the program's operators, or why they are not followed."""
    try:
        program = export_graph.follow(module)
        program.constants = constants
        return program
    except TooLongError as error:
        return str(error)
    except RECOVERABLE as error:
        return f"its graph does not have torch.export's form: {type(error).__name__} {error}"


def _json(archive: Archive, name: str) -> Any:
    if archive.size(name) > DESCRIPTION_BYTES:
        raise UnreadableError(archive.path, f"its {name.rpartition('/')[2]} is larger than {DESCRIPTION_BYTES >> 20} MiB")
    return json_text.loads(bytes(archive.read(name)).decode(), archive.path)


def _view(path: object, name: str, record: Array, meta: Any, dtype: np.dtype[Any]) -> Array:
    shape = tuple(size["as_int"] for size in meta["sizes"])
    strides = tuple(stride["as_int"] for stride in meta["strides"])
    start = meta["storage_offset"]["as_int"]
    numbers = (*shape, *strides, start)
    if len(shape) != len(strides) or not all(type(number) is int and 0 <= number < 1 << 48 for number in numbers):
        raise UnreadableError(path, f"{name!r} has an impossible shape")
    if 0 in shape:
        return np.empty(shape, dtype)
    last = start + sum((length - 1) * step for length, step in zip(shape, strides, strict=True))
    if (last + 1) * dtype.itemsize > record.size or any(not s and n > 1 for n, s in zip(shape, strides, strict=True)):
        raise UnreadableError(path, f"{name!r} of shape {shape} does not lie within its {record.size} bytes")
    return np.ndarray(shape, dtype, record.data, start * dtype.itemsize, tuple(step * dtype.itemsize for step in strides))


def _calls(module: Any) -> list[WeightsCall]:
    """Return the recurrent operators of a graph, and the weights that they read by their names in the module."""
    names: dict[str, str] = {}
    for spec in module["signature"]["input_specs"]:
        for kind, field in (("parameter", "parameter_name"), ("buffer", "buffer_name")):
            if kind in spec:
                names[spec[kind]["arg"]["name"]] = spec[kind][field]
    result = []
    for node in module["graph"]["nodes"]:
        _, _, operator = node["target"].partition("aten.")
        function = operator.split(".")[0]
        arguments = [entry["arg"] for entry in node["inputs"]]
        if function in SEQUENCES:
            flags = [number for number, argument in enumerate(arguments) if "as_bool" in argument]
            weights = [tensor["name"] for tensor in arguments[flags[0] - 1]["as_tensors"]]
            constants = tuple(Entries(argument.values())[0] for argument in arguments[flags[0] :])
        elif function in CELLS:
            weights = [argument["as_tensor"]["name"] for argument in arguments[2:] if "as_tensor" in argument]
            constants = ()
        else:
            continue
        if all(name in names for name in weights):
            result.append(WeightsCall(function, tuple(names[name] for name in weights), constants))
    return result
