"""ONNX models as a transplant sees them: live ones, of onnx or onnx_ir, and files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UsageError
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.options import Options
from rnnconvert.models.model import Model, all_or_none

if TYPE_CHECKING:
    import onnx

    from rnnconvert.formats.onnx.stored_model import Changed

NAME = "onnx"
TAKES = "an onnx.ModelProto"


def takes(value: Any) -> bool:
    """Return whether a live object is an onnx.ModelProto or an onnx_ir.Model."""
    return any(
        module is not None and isinstance(value, getattr(module, name))
        for module, name in ((sys.modules.get("onnx"), "ModelProto"), (sys.modules.get("onnx_ir"), "Model"))
    )


def of_live(model: Any) -> Model:
    """Return an onnx.ModelProto or an onnx_ir.Model, either of which is filled in place.

    Raises UsageError for an onnx.ModelProto whose numbers were left in a file of their own, and UnreadableError for a
    model that is damaged.
    """
    import onnx

    if isinstance(model, onnx.ModelProto):
        _check_held(model)
        return _in_memory(model, lambda changed: _fill(model, changed), model)
    import onnx_ir

    held = onnx_ir.to_proto(model)
    stored = _of_ir(model, held)
    return _in_memory(held, lambda changed: _fill_ir(model, stored, changed), model)


def _in_memory(proto: onnx.ModelProto, fill: Callable[[Changed], Any], live: Any) -> Model:
    from rnnconvert.formats.onnx.proto.file import OnnxFile
    from rnnconvert.formats.onnx.read import read_model
    from rnnconvert.formats.onnx.stored_model import OnnxModel

    title = f"ONNX model {proto.graph.name!r}"
    file = OnnxFile(Path("(in memory)"), proto, np.zeros(proto.ByteSize(), np.uint8))
    work = OnnxModel(read_model(file, file.path, Options()))
    return work.model(title).replace(fill=lambda new: fill(work.changed(new)), live=live)


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """Return a file of any exporter."""
    from rnnconvert.formats.onnx.stored_model import OnnxModel

    return OnnxModel(checkpoint).model(checkpoint.path)


def write(path: Path, checkpoint: Checkpoint, arrays: Mapping[str, Array]) -> list[str]:
    """Write the file again with some arrays replaced, in protobuf's binary form; external data move into it if they fit.

    Raises UsageError for a name that stands for ONNX's text form or JSON.
    """
    from rnnconvert.formats.onnx.proto import file as onnx_file
    from rnnconvert.formats.onnx.proto import write as onnx_write
    from rnnconvert.formats.onnx.stored_model import OnnxModel

    if path.suffix.lower() in (*onnx_file.TEXT_SUFFIXES, *onnx_file.JSON_SUFFIXES):
        raise UsageError(f"{path}: ONNX models are written in their binary form. Name the file {path.stem}.onnx")
    work = OnnxModel(checkpoint)
    work.model(checkpoint.path)
    # Who may replace the model may replace the file of numbers that lies beside it.
    onnx_write.rewrite(path, work.read.file, work.changed(arrays))
    return []


def _check_held(model: onnx.ModelProto) -> None:
    """Raise UsageError if numbers of a model in memory are in a file of their own."""
    import onnx

    from rnnconvert.formats.onnx.proto.write import tensors

    for tensor in tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise UsageError(
                f"the numbers of {tensor.name!r} are not in the ONNX model but in a file of their own. Load it with "
                "onnx.load(path), which reads them, or hand in the path"
            )


def _fill(model: onnx.ModelProto, changed: Changed) -> onnx.ModelProto:
    """Put numbers into a model's tensors: all of them or none, even after an error."""
    import onnx

    from rnnconvert.formats.onnx.proto.write import put

    before = [(tensor, onnx.TensorProto()) for tensor, _ in changed]
    for tensor, old in before:
        old.CopyFrom(tensor)

    def undo() -> None:
        for tensor, old in before:
            tensor.CopyFrom(old)

    with all_or_none(undo):
        for tensor, array in changed:
            put(tensor, array)
    return model


def _of_ir(model: Any, held: onnx.ModelProto) -> dict[int, tuple[onnx.TensorProto, Any]]:
    """Return the initializers of a model's main graph: the tensor that each was written as, by its identity, and its value.

    Numbers that onnx_ir has in a file of their own are read.
    """
    import onnx

    from rnnconvert.formats.onnx.proto.write import put

    tensors = {}
    for tensor in held.graph.initializer:
        value = model.graph.initializers[tensor.name]
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            put(tensor, value.const_value.numpy())
        tensors[id(tensor)] = tensor, value
    return tensors


def _fill_ir(model: Any, values: Mapping[int, tuple[onnx.TensorProto, Any]], changed: Changed) -> Any:
    import onnx_ir

    for tensor, _ in changed:
        if id(tensor) not in values:
            raise UsageError(
                f"{tensor.name!r} is not an initializer of the main graph; only those can be filled in an onnx_ir.Model. "
                "Hand in the onnx.ModelProto, onnx_ir.to_proto(model)"
            )
    ready = []
    for tensor, array in changed:
        _, value = values[id(tensor)]
        ready.append((value, onnx_ir.Tensor(np.array(array, order="C"), value.dtype, name=tensor.name)))
    before = [(value, value.const_value) for value, _ in ready]

    def place(tensors: Iterable[tuple[Any, Any]]) -> None:
        for value, tensor in tensors:
            value.const_value = tensor

    with all_or_none(lambda: place(before)):
        place(ready)
    return model
