"""Nodes and numbers of an ONNX graph that is being written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.printable import abridged
from rnnconvert.formats.onnx.proto.file import DTYPES
from rnnconvert.graphs.program.building import GraphBuilder
from rnnconvert.graphs.program.operations import StoredNumbers


class ProtoNodes(GraphBuilder):
    """Nodes under construction, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[onnx.NodeProto] = []

    def node(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], name: str, **attributes: Any) -> None:
        self.nodes.append(proto_node(operator, inputs, outputs, name, attributes))

    def initializers(self) -> list[onnx.TensorProto]:
        """Return the stored numbers without their contents: their names, shapes and types."""
        return [initializer(name, array) for name, array in self.arrays.items()]


def proto_node(operator: str, inputs: Sequence[str], outputs: Sequence[str], name: str, attributes: Mapping[str, Any]) -> onnx.NodeProto:
    """Return a node, with element types and tensors of ONNX in place of numpy's.

    Raises RefusedError for an integer that does not fit into 64 bits.
    """
    for key, value in attributes.items():
        for number in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(number, int) and not -(1 << 63) <= number < 1 << 63:
                raise RefusedError(f"{key} = {abridged(str(number))}", "ONNX", "its integers have 64 bits", "", name)
    return helper.make_node(operator, inputs, outputs, name, **{key: _attribute(value) for key, value in attributes.items()})


def _attribute(value: Any) -> Any:
    if isinstance(value, np.dtype):
        return code_of(value)
    if isinstance(value, StoredNumbers):
        return onnx.numpy_helper.from_array(np.asarray(value.numbers))
    return value


def initializer(name: str, array: Array | PiecewiseArray) -> onnx.TensorProto:
    """Return stored numbers without their contents."""
    return onnx.TensorProto(name=name, dims=array.shape, data_type=code_of(array.dtype))


def code_of(dtype: np.dtype[Any]) -> int:
    """Return the number of an element type."""
    plain = dtype.newbyteorder("=")
    return next(code for code, dtype in DTYPES.items() if dtype == plain)
