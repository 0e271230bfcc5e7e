"""Models as files: model.json, and the file of its numbers, which takes its place first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

from rnnconvert.containers.data_files import replacing_with_data
from rnnconvert.containers.files import ChecksumWriter
from rnnconvert.core.arrays import Array, PiecewiseArray

Weights: TypeAlias = "Mapping[str, Array | PiecewiseArray]"
"""The arrays of a model by name, in their order in the file: of float32, and of int32 and truths in graphs."""


def document_of(model: Mapping[str, Any], weights: Weights, paths: Sequence[str] = ()) -> dict[str, Any]:
    """Return the content of the model.json of a layers model.

    model  the class and the configuration of the model
    paths  the files that hold the arrays
    """
    return _document("layers-model", {"keras_version": "2.15.0", "backend": "tensorflow", "model_config": dict(model)}, weights, paths)


def graph_document(topology: Mapping[str, Any], signature: Mapping[str, Any], weights: Weights) -> dict[str, Any]:
    """Return the content of the model.json of a graph model, without the files that hold the arrays.

    signature  its inputs and outputs by name
    """
    return {**_document("graph-model", topology, weights, ()), "signature": signature}


def _document(kind: str, topology: Mapping[str, Any], weights: Weights, paths: Sequence[str]) -> dict[str, Any]:
    stated = [
        {"name": name, "shape": list(array.shape), "dtype": {"i": "int32", "b": "bool"}.get(array.dtype.kind, "float32")}
        for name, array in weights.items()
    ]
    return {
        "format": kind,
        "generatedBy": "rnnconvert",
        "convertedBy": None,
        "modelTopology": dict(topology),
        "weightsManifest": [{"paths": list(paths), "weights": stated}],
    }


def write_model(path: Path, model: Mapping[str, Any], weights: Weights) -> Path:
    """Write a layers model, and return the file of its numbers next to it. Raises UsageError if nothing can be written there."""
    return write_document(path, document_of(model, weights), weights)


def write_document(path: Path, document: Mapping[str, Any], weights: Weights) -> Path:
    """Write a model, and return the file of its numbers next to it. Raises UsageError if nothing can be written there."""

    def fill(data: IO[bytes]) -> str:
        numbers = ChecksumWriter(data)
        for array in weights.values():
            numbers.pieces(array)
        return f"{numbers.value:08x}"

    (group,) = document["weightsManifest"]
    with replacing_with_data(path, fill) as (file, data_name):
        manifest = [{**group, "paths": [data_name]}]
        file.write(json.dumps({**document, "weightsManifest": manifest}, indent=1).encode() + b"\n")
    return path.with_name(data_name)
