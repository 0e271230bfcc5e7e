"""Whole ONNX models, in onnxruntime on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnconvert.core.arrays import Array, epsilon
from rnnconvert.core.errors import MissingPackageError, UsageError
from rnnconvert.formats.onnx.run_session import IN_FLOAT
from rnnconvert.models.model import Unit
from rnnconvert.models.runners import FileModel, ModelOutputs, Tap, moved

if TYPE_CHECKING:
    import onnx

NAME = "onnx"


def open_file(path: Path, config: Path | None = None) -> FileModel:
    """Return the model of a file, with its external data; one in text runs as a binary copy."""
    from rnnconvert.formats.onnx.proto.file import TEXT_SUFFIXES

    if path.suffix not in TEXT_SUFFIXES:
        return FileModel(path, ["onnxruntime-cpu"])
    import onnx

    def write(copy: Path) -> str:
        onnx.save(onnx.load(path, format="textproto"), copy)  # onnx takes .onnxtxt for a language of its own
        return ""

    return FileModel.of_copy(path, ["onnxruntime-cpu"], "model.onnx", write)


def saved(live: Any, folder: Path, example: Sequence[Any]) -> Path:
    """Write a model in memory."""
    import onnx

    onnx.save(_proto(live), folder / "model.onnx")
    return folder / "model.onnx"


def run(live: Any, inputs: Sequence[Array], units: Sequence[Unit], before: Sequence[Sequence[Array]] = ()) -> ModelOutputs:
    """Run the model on inputs in its own order, its recurrent operators' outputs added to the model's.

    Raises MissingPackageError without onnxruntime, UsageError for another number of inputs.
    """
    try:
        import onnxruntime
    except ImportError:
        raise MissingPackageError("onnxruntime", "run an ONNX model") from None
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(_proto(live))
    outputs = [value.name for value in model.graph.output]
    heard = _heard(model, units)
    declared = {value.name for value in model.graph.input} | {tensor.name for tensor in model.graph.initializer}
    more = sorted({name for value, _, lengths in heard.values() for name in (value, lengths) if name} - {*outputs, *declared})
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in more)
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 3
    quiet.add_session_config_entry(*IN_FLOAT)
    session = onnxruntime.InferenceSession(model.SerializeToString(), quiet, providers=["CPUExecutionProvider"])
    wanted = session.get_inputs()
    if len(wanted) != len(inputs):
        names = ", ".join(value.name for value in wanted)
        raise UsageError(f"the ONNX model has {len(wanted)} inputs ({names}), but {len(inputs)} were given")
    feeds = {value.name: array.astype(_type(value.type)) for value, array in zip(wanted, inputs, strict=True)}
    results = dict(zip((*outputs, *more), session.run([*outputs, *more], feeds), strict=True))
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer} | feeds | results
    taps = {unit: _tap(results[value], every_step, values.get(lengths)) for unit, (value, every_step, lengths) in heard.items()}
    return ModelOutputs(tuple(results[name] for name in outputs), taps)


def input_names(live: Any) -> list[str]:
    """Return the names of the inputs, without the weights among them."""
    graph = _proto(live).graph
    weights = {tensor.name for tensor in graph.initializer}
    return [value.name for value in graph.input if value.name not in weights]


def _proto(live: Any) -> onnx.ModelProto:
    import onnx

    if isinstance(live, onnx.ModelProto):
        return live
    import onnx_ir

    proto: onnx.ModelProto = onnx_ir.serde.serialize_model(live)
    return proto


def _heard(model: onnx.ModelProto, units: Sequence[Unit]) -> dict[str, tuple[str, bool, str]]:
    """Return for each layer the value that its operator gives, whether it has every step, and the value with its lengths.

    A layer is named as its operator is, or as its first output; one of another name is known by its weights.
    """
    nodes = [node for node in model.graph.node if node.op_type in ("RNN", "GRU", "LSTM")]
    named = {label: node for node in nodes for label in (node.input[1], *node.output[:1], node.name) if label}
    sources = {}
    for unit in units:
        node: Any = next((named[name] for name in (unit.name, *unit.arrays) if name in named), None)
        lengths = "" if node is None else next(iter(node.input[4:5]), "")
        if node is not None and node.output[0]:
            sources[unit.name] = (node.output[0], True, lengths)
        elif node is not None and len(node.output) > 1 and node.output[1]:
            sources[unit.name] = (node.output[1], False, lengths)
    return sources


def _tap(value: Array, every_step: bool, lengths: Array | None) -> Tap:
    """Return a tap: Y is (time, direction, batch, unit), Y_h (direction, batch, unit)."""
    if every_step:
        steps, ways, batch, width = value.shape
        return Tap(value.swapaxes(1, 2).reshape(steps, batch, ways * width), lengths=lengths)
    ways, batch, width = value.shape
    return Tap(last=value.swapaxes(0, 1).reshape(batch, ways * width))


def _type(text: str) -> Any:
    """Return a numpy type by onnxruntime's word for it: tensor(float)."""
    words = {"float": "float32", "double": "float64", "float16": "float16"}
    word = text.removeprefix("tensor(").removesuffix(")")
    return np.dtype(words.get(word, word))


def shaken(live: Any, seed: int) -> onnx.ModelProto:
    """Return a copy with the numbers of every floating-point tensor moved, also in Constant nodes, branches and functions."""
    import onnx
    from onnx import numpy_helper

    from rnnconvert.formats.onnx.proto.write import tensors

    proto = onnx.ModelProto()
    proto.CopyFrom(_proto(live))
    generator = np.random.default_rng(seed)
    for tensor in tensors(proto):
        if tensor.data_type == onnx.TensorProto.STRING:
            continue
        plain = numpy_helper.to_array(tensor)
        if plain.dtype.kind == "f" and plain.size > 1:  # one number may be an exponent, or what others are compared with
            values = moved(plain, epsilon(plain.dtype), generator).astype(plain.dtype)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return proto
