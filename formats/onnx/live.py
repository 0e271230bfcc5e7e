"""ONNX models in memory: onnx.ModelProto, or onnx_ir.Model."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import MissingPackageError, UsageError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job
from rnnconvert.files.arrays_by_name import in_memory, represented
from rnnconvert.files.convert import element_type
from rnnconvert.files.options import Options
from rnnconvert.files.questions import warn

if TYPE_CHECKING:
    import onnx
    import onnx_ir


def from_onnx(model: onnx.ModelProto | onnx_ir.Model, **options: object) -> dict[str, Recurrent]:
    """Return every recurrent layer of an ONNX model, by name; of an onnx.ModelProto, or of an onnx_ir.Model.

    options  what the model leaves open, as for `load`, such as `input_forget="i"`

    Warns with AssumptionWarning of what is left open, and with UserWarning of recurrent layers that cannot be read. Raises
    UsageError for anything else than a model.
    """
    from rnnconvert.formats.onnx.proto.file import OnnxFile
    from rnnconvert.formats.onnx.read import read_model

    # Whoever hands in a model of onnx_ir's has imported it.
    ir = sys.modules.get("onnx_ir")
    proto = _serialised(model) if ir is not None and isinstance(model, ir.Model) else model
    if not hasattr(proto, "ByteSize") or not hasattr(proto, "graph"):
        raise UsageError(
            f"from_onnx takes an onnx.ModelProto or an onnx_ir.Model, not {type(model).__name__}. For a file use rnnconvert.load"
        )
    file = OnnxFile(Path("(in memory)"), proto, np.zeros(proto.ByteSize(), np.uint8))
    chosen = Options(options)
    contents = read_model(file, file.path, chosen)
    chosen.ledger.check_used("the model")
    warn(chosen.questions)
    for notice in contents.unread:
        warnings.warn(f"not read: {notice}", UserWarning, stacklevel=3)
    return dict(contents.layers)


def _serialised(model: onnx_ir.Model) -> onnx.ModelProto:
    """Return an onnx_ir.Model as a message, with the weights that it has in files of their own."""
    import onnx
    import onnx_ir

    proto = onnx_ir.to_proto(model)
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            held = model.graph.initializers[tensor.name].const_value
            tensor.CopyFrom(onnx_ir.to_proto(onnx_ir.tensor(held.numpy(), dtype=held.dtype, name=tensor.name)))
    return proto


@overload
def to_onnx(layer: Recurrent, dtype: str | None = ..., *, ir: Literal[False] = ..., **options: object) -> onnx.ModelProto: ...
@overload
def to_onnx(layer: Recurrent, dtype: str | None = ..., *, ir: Literal[True], **options: object) -> onnx_ir.Model: ...
def to_onnx(layer: Recurrent, dtype: str | None = None, *, ir: bool = False, **options: object) -> onnx.ModelProto | onnx_ir.Model:
    """Return an ONNX model of the layer that holds its weights; rnnconvert.save writes larger ones without holding them.

    dtype    element type, the layer's own if None
    ir       whether to return an onnx_ir.Model instead of an onnx.ModelProto
    options  rnnconvert.files.options.OPTIONS, such as `opset=14`

    Raises RefusedError if ONNX has no such cell, MissingPackageError if `ir` is asked for without onnx_ir.
    """
    from onnx import numpy_helper

    from rnnconvert.formats.onnx.graph import build

    chosen = Options(options)
    part = represented(layer, "onnx", chosen)
    job = Job([part], element_type(dtype), chosen, in_memory(layer), {}, lambda piece: None)
    model, arrays, _ = build(job)
    chosen.ledger.check_used("an ONNX model")
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(_joined(arrays[tensor.name]), tensor.name))
    if not ir:
        return model
    try:
        import onnx_ir
    except ImportError:
        raise MissingPackageError("onnx-ir", "make an onnx_ir.Model") from None
    return onnx_ir.from_proto(model)


def _joined(array: Array | PiecewiseArray) -> Array:
    return np.asarray(array, order="C")  # np.ascontiguousarray would give a number without axes one
