"""Writing ONNX files: the model goes through protobuf, the numbers straight from memory."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import onnx

from rnnconvert.containers.checksums import Crc32
from rnnconvert.containers.data_files import old_data, replacing_with_data
from rnnconvert.containers.files import replacing, write_pieces
from rnnconvert.containers.wire import prefix
from rnnconvert.core.arrays import Array, PiecewiseArray, nbytes
from rnnconvert.core.errors import UsageError
from rnnconvert.formats.onnx.proto.file import DTYPES, OnnxFile

PROTOBUF_BYTES = (2 << 30) - (16 << 20)
"""The most bytes of one message, with a margin; beyond it the numbers go into a file of their own."""

ALIGNMENT = 4096
"""External numbers begin at multiples of a page, so that runtimes can map them."""

SMALL = 1024
"""Arrays below this many bytes stay in the model."""

_INVALID = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, TypeError, RuntimeError)

# Numbers of fields: onnx.proto
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW = 7, 5, 9
_NUMBERS = ("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data", "external_data", "data_location")


def write(
    path: str | os.PathLike[str],
    model: onnx.ModelProto,
    arrays: Mapping[str, Array | PiecewiseArray],
    external: bool | None = None,
    check: bool = True,
) -> str:
    """Write a model whose initializers have a name, a type and a shape, and whose numbers are `arrays`.

    external  put the numbers into a file next to the model, named after it and its content; None does so where they exceed
              protobuf's 2 GiB. The two files appear together or not at all.
    check     whether the model must be valid ONNX; one that was a file before is as valid as it was

    Returns the name of the file of numbers, "" for none.

    Raises UsageError if an initializer has no numbers or other ones, or the model is not valid ONNX.
    """
    _check_arrays(path, model, arrays)
    if check:
        _check_model(path, model, arrays)
    size = model.ByteSize() + sum(map(nbytes, arrays.values()))
    if external is False and size > PROTOBUF_BYTES:
        raise UsageError(f"{path}: {size} bytes are more than one ONNX file can hold. Use external data")
    outside = {name: array for name, array in arrays.items() if nbytes(array) >= SMALL}
    if not outside or (not external and size <= PROTOBUF_BYTES):
        with replacing(path, old_data(Path(path))) as file:
            _write_model(file, model, arrays)
        return ""
    inside = {name: array for name, array in arrays.items() if name not in outside}
    marked = onnx.ModelProto()
    marked.CopyFrom(model)
    places = _places(marked, outside)

    def fill(data: IO[bytes]) -> str:
        check = Crc32()
        for name, offset in places.items():
            data.seek(offset)
            write_pieces(data, arrays[name], check)
        return f"{check.value:08x}"

    with replacing_with_data(path, fill) as (file, location):
        for tensor in marked.graph.initializer:
            if tensor.name in places:
                size = nbytes(arrays[tensor.name])
                tensor.data_location = onnx.TensorProto.EXTERNAL
                for key, value in (("location", location), ("offset", places[tensor.name]), ("length", size)):
                    tensor.external_data.add(key=key, value=str(value))
        _write_model(file, marked, inside)
    return location


def rewrite(path: str | os.PathLike[str], file: OnnxFile, changed: Iterable[tuple[onnx.TensorProto, Array]]) -> None:
    """Write a file again with other numbers in some of its tensors, of the same types and shapes.

    Numbers in external files move into the model, unless it would exceed protobuf's 2 GiB.

    Raises UnreadableError if other numbers of the file are missing, UsageError if the sizes differ.
    """
    new = {id(tensor): array for tensor, array in changed}
    originals = list(tensors(file.model))  # their identities hold while they are held
    model = onnx.ModelProto()
    model.CopyFrom(file.model)
    graph = {id(tensor) for tensor in file.model.graph.initializer}
    arrays: dict[str, Array] = {}
    for original, copy in zip(originals, tensors(model), strict=True):
        external = original.data_location == onnx.TensorProto.EXTERNAL
        if id(original) not in new and not external and (id(original) not in graph or original.data_type not in DTYPES):
            file.restore(copy)
            continue
        array = new[id(original)] if id(original) in new else file.tensor(original)
        if id(original) in graph:
            clear(copy)
            arrays[original.name] = array
        else:
            put(copy, array)
    write(path, model, arrays, check=False)


def clear(tensor: onnx.TensorProto) -> None:
    """Remove a tensor's numbers, wherever they are stored."""
    for field in _NUMBERS:
        tensor.ClearField(field)


def put(tensor: onnx.TensorProto, array: Array) -> None:
    """Put numbers into a tensor of their type and shape.

    Raises UsageError if they are of another type or shape.
    """
    if tuple(tensor.dims) != array.shape or DTYPES.get(tensor.data_type) != array.dtype:
        raise UsageError(f"{tensor.name!r} is {tuple(tensor.dims)}, but its array is {array.shape} of {array.dtype}")
    clear(tensor)
    tensor.raw_data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def tensors(message: Any) -> Iterator[onnx.TensorProto]:
    """Yield every tensor in a message, in the order of its fields."""
    for descriptor, value in message.ListFields():
        if descriptor.type != descriptor.TYPE_MESSAGE:
            continue
        for child in (value,) if hasattr(value, "ListFields") else value:
            if isinstance(child, onnx.TensorProto):
                yield child
            else:
                yield from tensors(child)


def _check_arrays(path: object, model: onnx.ModelProto, arrays: Mapping[str, Array | PiecewiseArray]) -> None:
    """Raise UsageError unless every initializer without numbers has an array of its shape and type."""
    missing = set(arrays)
    for tensor in model.graph.initializer:
        if tensor.name not in arrays:
            if math.prod(tensor.dims) and not _has_numbers(tensor):
                raise UsageError(f"{path}: the initializer {tensor.name!r} has no numbers")
            continue
        array = arrays[tensor.name]
        if tuple(tensor.dims) != tuple(array.shape) or DTYPES.get(tensor.data_type) != array.dtype:
            raise UsageError(
                f"{path}: the initializer {tensor.name!r} is {tuple(tensor.dims)} of type "
                f"{tensor.data_type}, but its array is {tuple(array.shape)} of {array.dtype}"
            )
        if tensor.name not in missing or _has_numbers(tensor):
            raise UsageError(f"{path}: the initializer {tensor.name!r} has its numbers twice")
        missing.discard(tensor.name)
    if missing:
        raise UsageError(f"{path}: these arrays have no initializer: {', '.join(sorted(missing))}")


def _has_numbers(tensor: onnx.TensorProto) -> bool:
    return any(descriptor.name.endswith("_data") or descriptor.name == "data_location" for descriptor, _ in tensor.ListFields())


def _check_model(path: object, model: onnx.ModelProto, arrays: Mapping[str, Array | PiecewiseArray]) -> None:
    """Check a stand-in in which the arrays are inputs, so that nothing large is held.

    Raises UsageError with what the checker or the strict shape inference found.
    """
    stand_in = onnx.ModelProto()
    stand_in.CopyFrom(model)
    graph = stand_in.graph
    remaining = [tensor for tensor in model.graph.initializer if tensor.name not in arrays]
    declared = {value.name for value in graph.input}
    for tensor in model.graph.initializer:
        if tensor.name in arrays and tensor.name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    del graph.initializer[:]
    graph.initializer.extend(remaining)
    try:
        onnx.checker.check_model(stand_in)
        onnx.shape_inference.infer_shapes(stand_in, check_type=True, strict_mode=True)
    except _INVALID as error:
        raise UsageError(f"{path}: the model is not valid ONNX: {str(error).strip()}") from None


def _write_model(file: IO[bytes], model: onnx.ModelProto, arrays: Mapping[str, Array | PiecewiseArray]) -> None:
    """Write the model with the arrays' numbers as raw data of its initializers, in one pass."""
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    initializers = list(model.graph.initializer)
    del graph.initializer[:]
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    rest.ClearField("graph")
    # each initializer: what protobuf writes of it, and what stands before its raw data
    headers: list[tuple[bytes, bytes, int]] = []
    for tensor in initializers:
        size = nbytes(arrays[tensor.name]) if tensor.name in arrays else 0
        raw = prefix(_TENSOR_RAW, size) if tensor.name in arrays else b""
        body = tensor.SerializeToString()
        headers.append((body, raw, len(body) + len(raw) + size))
    head = graph.SerializeToString()
    length = len(head) + sum(len(prefix(_GRAPH_INITIALIZER, size)) + size for _, _, size in headers)
    file.write(rest.SerializeToString())
    file.write(prefix(_MODEL_GRAPH, length))
    file.write(head)
    for tensor, (body, raw, size) in zip(initializers, headers, strict=True):
        file.write(prefix(_GRAPH_INITIALIZER, size) + body + raw)
        if tensor.name in arrays:
            write_pieces(file, arrays[tensor.name])


def _places(model: onnx.ModelProto, arrays: Mapping[str, Array | PiecewiseArray]) -> dict[str, int]:
    """Return where each external array begins in the file of numbers, by name."""
    places: dict[str, int] = {}
    end = 0
    for tensor in model.graph.initializer:
        if tensor.name in arrays:
            places[tensor.name] = -(-end // ALIGNMENT) * ALIGNMENT
            end = places[tensor.name] + nbytes(arrays[tensor.name])
    return places
