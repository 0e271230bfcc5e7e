"""Graph models of TensorFlow.js: a graph of TensorFlow's as JSON, whose constants lie in groups of weights next to it.

Source: tfjs-converter/python/tensorflowjs/converters/tf_saved_model_conversion_v2.py, write_artifacts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rnnconvert.containers import graph_def_json, json_file
from rnnconvert.containers.graph_def import GraphDef
from rnnconvert.files import weight_groups
from rnnconvert.files.opened import Opened


def topology(file: Opened) -> Path | None:
    """Return the file of a graph model, which may be named by its folder; None for any other file."""
    if file.path.is_dir():
        inside = file.path / "model.json"
        return topology(Opened(inside)) if inside.is_file() else None
    document = file.json
    if document is None or not isinstance(document.get("weightsManifest"), list):
        return None
    return file.path if graph_def_json.is_graph(document.get("modelTopology")) else None


def signature(path: Path) -> Mapping[str, Sequence[str]]:
    """Return the values that a graph model calls its "inputs" and its "outputs"; none for any other file, and where it states none."""
    file = topology(Opened(path))
    stated = Opened(file).cached(json_file.read).get("signature") if file is not None else None
    values: dict[str, Sequence[str]] = {}
    for word in ("inputs", "outputs"):
        tensors = stated.get(word) if isinstance(stated, dict) else None
        listed = list(tensors.values()) if isinstance(tensors, dict) else []
        names = [tensor["name"] for tensor in listed if isinstance(tensor, dict) and isinstance(tensor.get("name"), str)]
        values[word] = [name if ":" in name else f"{name}:0" for name in names]
    return values


def read(path: Path) -> tuple[GraphDef, tuple[Path, ...]]:
    """Return the graph of a model, and the files of its numbers. Raises UnreadableError for a damaged one."""
    document = Opened(path).cached(json_file.read)
    arrays, narrow, files = weight_groups.read(path, document.get("weightsManifest"))
    numbers = {name: array.astype(np.float32) if narrow.get(name) == "float16" else array for name, array in arrays.items()}
    return graph_def_json.read(document.get("modelTopology"), numbers, path), tuple(files)
