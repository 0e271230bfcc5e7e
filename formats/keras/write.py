"""Keras models of recurrent layers, written without Keras: `.keras`, `.weights.h5` and legacy HDF5.

Paths and attributes are as in keras/src/saving/saving_lib.py and keras/src/legacy/saving/legacy_h5_format.py (3.15).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rnnconvert.containers import hdf5
from rnnconvert.containers.files import lowered
from rnnconvert.files.adapter import Job, WriteResult
from rnnconvert.formats.keras import keras_zip
from rnnconvert.formats.keras.carry import VariableTree, carry
from rnnconvert.formats.keras.config import labels
from rnnconvert.formats.keras.graph import DraftNode, ModelDraft

_VERSION = "3.6.0"
"""The Keras version whose files these resemble: the first that notes the layers' names next to their variables."""


def write(path: Path, job: Job) -> WriteResult:
    """Write a `.keras` model, the `.weights.h5` of one, or a legacy HDF5 model.

    Raises RefusedError, before anything is written, for what Keras or the kind of file cannot hold.
    """
    if lowered(path).name.endswith(".weights.h5"):
        return _write_weights(path, job)
    legacy = lowered(path).suffix != ".keras"
    graph = ModelDraft(job, legacy)
    if legacy and not job.dry_run:
        _write_legacy(path, graph)
    elif not job.dry_run:
        tree = _tree(graph)
        keras_zip.write(path, graph.config(), {"keras_version": _VERSION}, tree.arrays, tree.attributes)
    notes = [f"{_named(name, nodes)}: {_expression(nodes)} in a model of your own" for name, nodes in graph.chains.items()]
    notes.append("inputs and outputs are (batch, time, values)")
    recipe = ["import keras", f"model = keras.models.load_model({str(path)!r})"]
    if job.carried:
        notes.append("the model has only the recurrent layers; write a .weights.h5 file for the weights of a whole model")
    return WriteResult([*notes, *_remarks(graph)], recipe, [*job.carried])


def _write_weights(path: Path, job: Job) -> WriteResult:
    carried = carry(job)
    if carried is not None:
        if not job.dry_run:
            hdf5.write(path, carried.arrays, carried.attributes)
        return WriteResult(carried.notes, dropped=carried.dropped)
    graph = ModelDraft(job)
    if not job.dry_run:
        tree = _tree(graph)
        hdf5.write(path, tree.arrays, tree.attributes)
    expressions = [expression for nodes in graph.chains.values() for expression in _expressions(nodes)]
    notes = [
        "load_weights reads it into a model that has these layers in this order, besides layers without weights: " + ", ".join(expressions)
    ]
    notes += [f"{node.name} is at {path_}" for path_, node in _paths(graph) if len(expressions) > 1 and node.variables]
    if job.carried:
        notes.append("the weights of the other layers are left out: their places in a Keras 3 file are unknown")
    return WriteResult([*notes, *_remarks(graph)], dropped=[*job.carried])


def _named(name: str, nodes: list[DraftNode]) -> str:
    """Return the name of a layer: its own, or if it has none, the names of its pieces in the model."""
    return name or ", ".join(node.name for node in nodes)


def _expressions(nodes: list[DraftNode]) -> list[str]:
    return [node.constructor() for node in nodes]


def _expression(nodes: list[DraftNode]) -> str:
    return " then ".join(_expressions(nodes))


def _remarks(graph: ModelDraft) -> list[str]:
    notes = []
    for node in graph.nodes:
        if node.class_name == "Dense":
            notes.append(f"{node.name} is the folded projection: {node.constructor()} after the last layer")
        if not node.is_layer:
            notes.append(f"after {node.inputs[0].layer} comes keras.ops.flip(y, axis=1)")
    return notes


def _paths(graph: ModelDraft) -> Iterator[tuple[str, DraftNode]]:
    """Yield every layer with its path: numbered by class."""
    layers = [node for node in graph.nodes if node.is_layer]
    for label, node in zip(labels(node.class_name for node in layers), layers, strict=True):
        yield f"layers/{label}", node


def _tree(graph: ModelDraft) -> VariableTree:
    """Return the variables as Keras 3 lays them out."""
    tree = VariableTree({}, {"vars": {"name": "recurrent"}})
    for path, node in _paths(graph):
        tree.name(path, node.name)
        for variables in node.variables:
            tree.put("/".join(filter(None, (path, variables.path))), variables.arrays.values(), variables.label)
    return tree


def _write_legacy(path: Path, graph: ModelDraft) -> None:
    """Write groups by the layers' names, each with the names of its weights in order."""
    layers = [node for node in graph.nodes if node.is_layer]
    about = {"keras_version": _VERSION, "backend": "tensorflow"}
    attributes: dict[str, dict[str, Any]] = {
        "": {**about, "model_config": json.dumps(graph.config())},
        "model_weights": {**about, "layer_names": [node.name for node in layers]},
        "model_weights/top_level_model_weights": {"weight_names": []},
    }
    arrays = {}
    for node in layers:
        weights = {
            "/".join(filter(None, (node.name, variables.scope, name))): array
            for variables in node.variables
            for name, array in variables.arrays.items()
        }
        attributes[f"model_weights/{node.name}"] = {"weight_names": list(weights)}
        arrays.update({f"model_weights/{node.name}/{name}": array for name, array in weights.items()})
    hdf5.write(path, arrays, attributes)
