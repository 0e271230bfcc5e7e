"""Recurrent layers as ONNX models."""

from __future__ import annotations

from pathlib import Path

import onnx

from rnnconvert.files.adapter import Job, Ports, WriteResult, variables
from rnnconvert.formats.onnx.export_to import recipe
from rnnconvert.formats.onnx.graph import build
from rnnconvert.formats.onnx.proto import write as onnx_write

_IN_NUMPY = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.INT32: "int32",
}


def _recipe(path: Path, graph: onnx.GraphProto) -> list[str]:
    """Return Python that runs a model on zeros: 7 steps of 2 sequences; nothing for element types that numpy lacks."""
    if any(value.type.tensor_type.elem_type not in _IN_NUMPY for value in graph.input):
        return []
    names = variables(value.name for value in [*graph.input, *graph.output])
    lines = []
    for model_input in graph.input:
        axes = [axis.dim_param.rpartition("/")[2] or str(axis.dim_value) for axis in model_input.type.tensor_type.shape.dim]
        sizes = ", ".join({"time": "7", "batch": "2"}.get(axis, axis) for axis in axes)
        kind = _IN_NUMPY[model_input.type.tensor_type.elem_type]
        expression = f"np.full(({sizes},), 7, np.{kind})" if kind == "int32" else f"np.zeros(({sizes}), np.{kind})"
        lines.append(f"{names[model_input.name]} = {expression}  # ({', '.join(axes)})")
    read, written = ({value.name: names[value.name] for value in values} for values in (graph.input, graph.output))
    return recipe(path, Ports(read, written, lines))


def write(path: Path, job: Job) -> WriteResult:
    """Write a model with one set of inputs and outputs for each recurrent layer, which any ONNX runtime runs."""
    model, arrays, notes = build(job)
    external = job.options.get("external_data")
    location = ""
    if not job.dry_run:
        location = onnx_write.write(path, model, arrays, None if external is None else external == "true")
    companions = [path.with_name(location)] if location else []
    # A graph of its own has no place for other tensors.
    return WriteResult(notes, _recipe(path, model.graph), [*job.carried], companions)
