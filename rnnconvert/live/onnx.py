"""ONNX models in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rnnconvert.adapters import Job
from rnnconvert.arrays import FLOATS, Array, Pieced
from rnnconvert.live.arrays import in_memory, represented
from rnnconvert.options import Options
from rnnconvert.weights import Recurrent

if TYPE_CHECKING:
    import onnx


def from_onnx(model: onnx.ModelProto) -> dict[str, Recurrent]:
    """Every recurrent layer of an ONNX model, by name."""
    from rnnconvert.adapters.onnx import read_model
    from rnnconvert.containers.onnx_file import OnnxFile

    file = OnnxFile(Path("(in memory)"), model, np.zeros(model.ByteSize(), np.uint8))
    return dict(read_model(file, file.path, Options()).layers)


def to_onnx(layer: Recurrent, dtype: str | None = None, **options: object) -> onnx.ModelProto:
    """An ONNX model of the layer, with its weights in it; rnnconvert.save writes larger ones without holding them.

    Raises RefusedError if ONNX has no such cell.
    """
    from onnx import numpy_helper

    from rnnconvert.adapters.onnx_graph import build

    chosen = Options(options)
    part = represented(layer, "onnx", chosen)
    job = Job([part], FLOATS[dtype] if dtype else None, chosen, in_memory(layer), {}, lambda piece: None)
    model, arrays, _ = build(job)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(_whole(arrays[tensor.name]), tensor.name))
    return model


def _whole(array: Array | Pieced) -> Array:
    return np.asarray(array, order="C")  # np.ascontiguousarray would give a number without axes one
