"""A .tflite file as tensors and operators; the numbers of a tensor are a view of the file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rnnconvert.containers.files import shaped
from rnnconvert.containers.reading import charging
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.flatbuffer import FlatBuffer, Table


@dataclass(frozen=True)
class SubgraphTensor:
    """A tensor of a graph.

    stored    its numbers as they lie in the file; None if the graph computes them
    scales    the factor of its integers, one number or one for each index of `axis`; empty for other types
    zeros     the integers that stand for 0
    variable  whether it keeps its value from call to call
    odd       why its numbers cannot be read, or ""
    dims      its axes, None for an axis of any length
    kind      its element type, by the schema's number
    """

    name: str
    shape: tuple[int, ...]
    stored: Array | None
    scales: Array
    zeros: Array
    axis: int
    variable: bool
    odd: str = ""
    dims: tuple[int | None, ...] = ()
    kind: int = 0


@dataclass(frozen=True)
class Operator:
    """An operator: its builtin code, the tensors that it reads and writes (-1 for one that is absent), and its options.

    name  of a custom operator, its own code
    """

    code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Table | None
    name: str = ""

    def input(self, place: int) -> int:
        """Return the tensor that it reads at a place, or -1."""
        return self.inputs[place] if place < len(self.inputs) else -1

    @property
    def label(self) -> str:
        """Its name in the schema; a custom operator's own code."""
        return self.name or s.OPERATORS.get(self.code, f"operator {self.code}")


class Subgraph:
    """A subgraph: its tensors, its operators, and which of its tensors are its inputs and outputs."""

    def __init__(
        self, name: str, tensors: list[SubgraphTensor], operators: list[Operator], inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> None:
        self.name, self.tensors, self.operators, self.inputs, self.outputs = name, tensors, operators, inputs, outputs
        self._producers = {tensor: operator for operator in operators for tensor in operator.outputs}
        self._consumers: dict[int, list[Operator]] = {}
        for reader in operators:
            for tensor in set(reader.inputs):
                self._consumers.setdefault(tensor, []).append(reader)

    def producer(self, tensor: int) -> Operator | None:
        """Return the operator that computes a tensor."""
        return self._producers.get(tensor)

    def consumers(self, tensor: int) -> list[Operator]:
        """Return the operators that read a tensor."""
        return self._consumers.get(tensor, [])


def numbers(path: Path, tensor: SubgraphTensor) -> Array:
    """Return the numbers of a tensor that is stored: integers are what they stand for, in single precision.

    Raises UnreadableError where there are not as many scales or zero points as their axis is long.
    """
    stored = tensor.stored
    assert stored is not None
    if stored.dtype.kind == "f":
        return stored
    charging(stored.nbytes).memory(8 * stored.size, path)
    scales, zeros = tensor.scales.astype(np.float64), tensor.zeros.astype(np.float64)
    for values in (scales, zeros):
        if values.size > 1 and not (0 <= tensor.axis < stored.ndim and values.size == stored.shape[tensor.axis]):
            raise UnreadableError(path, f"tensor {tensor.name!r} of shape {stored.shape} has {values.size} scales or zero points")
    spread = [1] * stored.ndim
    if stored.ndim:
        spread[tensor.axis if 0 <= tensor.axis < stored.ndim else 0] = -1
    zero = zeros.reshape(spread if zeros.size > 1 else ()) if zeros.size else 0.0
    with np.errstate(all="ignore"):
        return ((stored - zero) * scales.reshape(spread if scales.size > 1 else ())).astype(np.float32)


@dataclass(frozen=True)
class TfliteFile:
    """A file: its graphs, and what it states about itself."""

    graphs: list[Subgraph]
    description: str
    version: int


def read(path: Path) -> TfliteFile:
    """Read a model. Raises UnreadableError for a damaged file, and one of another version of the format."""
    file = FlatBuffer(path)
    if file.bytes(4, 4).tobytes() != s.IDENTIFIER:
        file.damaged("it does not begin as a TFLite model does")
    root = file.root()
    version = root.number(s.MODEL["version"], "I")
    if version != s.VERSION:
        file.damaged(f"it is of version {version} of the format, and {s.VERSION} is read")
    buffers = [_buffer(file, table) for table in root.tables(s.MODEL["buffers"])]
    codes = [_code(table) for table in root.tables(s.MODEL["operator_codes"])]
    graphs = [_graph(path, table, buffers, codes) for table in root.tables(s.MODEL["subgraphs"])]
    return TfliteFile(graphs, root.text(s.MODEL["description"]), version)


def _buffer(file: FlatBuffer, table: Table) -> Array:
    """Return the bytes of a buffer, in the table or, in files of more than 2 GiB, behind all tables."""
    offset, size = (table.number(s.BUFFER[name], "Q") for name in ("offset", "size"))
    return file.bytes(offset, size) if offset > 1 else table.vector(s.BUFFER["data"], "u1")


def _code(table: Table) -> tuple[int, str]:
    """Return an operator's code, and the name of a custom one: old files have the code in 8 bits."""
    old, new = table.number(s.CODE["deprecated_builtin_code"], "b"), table.number(s.CODE["builtin_code"], "i")
    return int(max(old, new)), table.text(s.CODE["custom_code"])


def _graph(path: Path, table: Table, buffers: list[Array], codes: list[tuple[int, str]]) -> Subgraph:
    tensors = [_tensor(path, entry, buffers) for entry in table.tables(s.SUBGRAPH["tensors"])]
    operators = [_operator(path, entry, codes, len(tensors)) for entry in table.tables(s.SUBGRAPH["operators"])]
    inputs, outputs = (
        _checked(path, table.vector(s.SUBGRAPH[name], "<i4").tolist(), len(tensors), first=0) for name in ("inputs", "outputs")
    )
    return Subgraph(table.text(s.SUBGRAPH["name"]), tensors, operators, inputs, outputs)


def _checked(path: Path, places: Iterable[int], count: int, first: int = -1) -> tuple[int, ...]:
    """Return places of tensors. Raises UnreadableError for one that there is not.

    first  the lowest: -1 stands for what an operator does without
    """
    indices = tuple(places)
    wrong = next((place for place in indices if not first <= place < count), None)
    if wrong is not None:
        raise UnreadableError(path, f"it refers to tensor {wrong} of {count}")
    return indices


def _operator(path: Path, table: Table, codes: list[tuple[int, str]], tensors: int) -> Operator:
    index = table.number(s.OPERATOR["opcode_index"], "I")
    if index >= len(codes):
        raise UnreadableError(path, f"it refers to operator code {index} of {len(codes)}")
    inputs, outputs = (_checked(path, table.vector(s.OPERATOR[name], "<i4").tolist(), tensors) for name in ("inputs", "outputs"))
    kind, options = table.number(s.OPERATOR["builtin_options_type"], "B"), table.table(s.OPERATOR["builtin_options"])
    code, name = codes[index]
    expected = s.OPTIONS.get(code)
    if expected is not None and options is not None and kind != expected[0]:
        raise UnreadableError(path, f"an operator {s.NAMES[code]} has the options of another one ({kind})")
    return Operator(code, inputs, outputs, options, name or "CUSTOM" if code == s.CUSTOM else "")


def _tensor(path: Path, table: Table, buffers: list[Array]) -> SubgraphTensor:
    name, shape = table.text(s.TENSOR["name"]), tuple(table.vector(s.TENSOR["shape"], "<i4").tolist())
    number, kind = table.number(s.TENSOR["buffer"], "I"), table.number(s.TENSOR["type"], "b")
    if number >= len(buffers):
        raise UnreadableError(path, f"tensor {name!r} refers to buffer {number} of {len(buffers)}")
    buffer, odd = buffers[number], ""
    quantization = table.table(s.TENSOR["quantization"])
    scales, zeros, axis = np.zeros(0, "<f4"), np.zeros(0, "<i8"), 0
    if quantization is not None:
        scales = quantization.vector(s.QUANTIZATION["scale"], "<f4")
        zeros = quantization.vector(s.QUANTIZATION["zero_point"], "<i8")
        axis = quantization.number(s.QUANTIZATION["quantized_dimension"], "i")
        odd = "its integers stand for numbers in a way of its own" if quantization.number(4, "B") else ""
    if s.TENSOR["sparsity"] in table:
        odd = "only some of its numbers are stored"
    if table.number(s.TENSOR["external_buffer"], "I"):
        odd = "its numbers lie in another file"
    stored = None
    if buffer.size:
        dtype = s.TYPES.get(kind)
        if dtype is None:
            odd = odd or f"its elements are of type {kind} of the schema"
            stored = buffer
        else:
            stored = _numbers(path, name, buffer, np.dtype(dtype), shape) if not odd else buffer
    elif odd == "its numbers lie in another file":
        stored = buffer
    stated = table.vector(s.TENSOR["shape_signature"], "<i4").tolist() or shape
    dims = tuple(None if length < 0 else int(length) for length in stated)
    variable = bool(table.number(s.TENSOR["is_variable"], "?", False))
    return SubgraphTensor(name, shape, stored, scales, zeros, axis, variable, odd, dims, kind)


def _numbers(path: Path, name: str, buffer: Array, dtype: np.dtype, shape: tuple[int, ...]) -> Array:
    count = 1
    for length in shape:
        count *= length
    if min(shape, default=1) < 0 or count * dtype.itemsize != buffer.size:
        raise UnreadableError(path, f"tensor {name!r} of shape {shape} has {buffer.size} bytes, not {count * dtype.itemsize}")
    return shaped(buffer.view(dtype), shape, path, name)
