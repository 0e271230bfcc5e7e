"""ONNX graphs in memory that other rooms make of their own graphs, so that layers are recognized in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rnnconvert.core.arrays import Array
from rnnconvert.formats.onnx.proto.file import OnnxFile


class _InMemory(OnnxFile):
    """A model whose numbers are arrays that are there already."""

    arrays: Mapping[str, Array]

    def tensor(self, proto: onnx.TensorProto) -> Array:
        return self.arrays[proto.name] if proto.name in self.arrays else super().tensor(proto)


def in_memory(path: Path, message: onnx.ModelProto, arrays: Mapping[str, Array]) -> OnnxFile:
    """Return a model whose numbers are arrays by the names of its initializers."""
    file = _InMemory(path, message, np.zeros(0, np.uint8))
    object.__setattr__(file, "arrays", arrays)
    return file


class Block:
    """A graph of ONNX's in the making.

    prefix   what the names of its own values begin with
    arrays   numbers by the names of values, for all graphs of the model together
    """

    def __init__(self, prefix: str, arrays: dict[str, Array]) -> None:
        self.prefix, self.arrays = prefix, arrays
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[str] = []
        self._made = 0

    def add(
        self, operator: str, inputs: Sequence[str], outputs: int | Sequence[str] = 1, name: str = "", **extra: Any
    ) -> str:
        """Add a node; return its first output."""
        if isinstance(outputs, int):
            self._made += 1
            outputs = [f"{self.prefix}made_{self._made}:{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), list(outputs), name, **extra))
        return outputs[0]

    def constant(self, array: Array, name: str = "") -> str:
        """Add stored numbers."""
        if not name:
            self._made += 1
            name = f"{self.prefix}stored_{self._made}"
        if name not in self.arrays:
            self.arrays[name] = array
            self.stored.append(name)
        return name

    def tensors(self) -> list[onnx.TensorProto]:
        """Return its stored numbers as initializers, whose numbers are in `arrays`."""
        return [
            onnx.TensorProto(name=name, dims=self.arrays[name].shape, data_type=_code(self.arrays[name]))
            for name in self.stored
        ]


def _code(array: Array) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype.newbyteorder("=")))


def needed(nodes: Sequence[onnx.NodeProto], values: Iterable[str]) -> list[onnx.NodeProto]:
    """Return the nodes by which some values are computed, in their order."""
    wanted = set(values)
    found = []
    for node in reversed(nodes):
        if wanted & set(node.output):
            found.append(node)
            wanted |= set(node.input)
    return found[::-1]
