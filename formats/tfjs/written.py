"""A layers model as files: model.json, and the file of its numbers, which takes its place first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from rnnconvert.containers.data_files import replacing_with_data
from rnnconvert.containers.files import Summed
from rnnconvert.core.arrays import Array, Pieced


def document_of(model: Mapping[str, Any], weights: Mapping[str, Array | Pieced], paths: Sequence[str] = ()) -> dict[str, Any]:
    """Return what model.json holds.

    model    the class and the configuration of the model
    weights  its arrays of float32 by name, in their order in the file
    paths    the files that hold them
    """
    topology = {"keras_version": "2.15.0", "backend": "tensorflow", "model_config": dict(model)}
    stated = [{"name": name, "shape": list(array.shape), "dtype": "float32"} for name, array in weights.items()]
    return {
        "format": "layers-model",
        "generatedBy": "rnnconvert",
        "convertedBy": None,
        "modelTopology": topology,
        "weightsManifest": [{"paths": list(paths), "weights": stated}],
    }


def write_model(path: Path, model: Mapping[str, Any], weights: Mapping[str, Array | Pieced]) -> Path:
    """Write a model, and return the file of its numbers next to it. Raises UsageError if nothing can be written there."""

    def fill(data: IO[bytes]) -> str:
        numbers = Summed(data)
        for array in weights.values():
            numbers.pieces(array)
        return f"{numbers.value:08x}"

    with replacing_with_data(path, fill) as (file, data_name):
        file.write(json.dumps(document_of(model, weights, [data_name]), indent=1).encode() + b"\n")
    return path.with_name(data_name)
