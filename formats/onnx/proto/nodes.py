"""Nodes and numbers of a graph that is being written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rnnconvert.core.arrays import Array, Pieced
from rnnconvert.formats.onnx.proto.file import DTYPES


class ProtoNodes:
    """Nodes under construction.

    nodes   in their order
    arrays  their stored numbers by name
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[str, Array | Pieced] = {}

    def name(self, wanted: str) -> str:
        """Return the name of a new value or node."""
        return wanted

    def node(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], name: str, **attributes: Any) -> None:
        """Add a node of any number of outputs."""
        self.nodes.append(helper.make_node(operator, inputs, outputs, name, **attributes))

    def add(self, operator: str, inputs: Sequence[str], wanted: str, **attributes: Any) -> str:
        """Add a node with one output; return that."""
        name = self.name(wanted)
        self.node(operator, inputs, [name], name, **attributes)
        return name

    def constant(self, wanted: str, array: Array | Pieced) -> str:
        """Add stored numbers; return their name."""
        name = self.name(wanted)
        self.arrays[name] = array
        return name

    def shared(self, wanted: str, array: Array) -> str:
        """Return the name of numbers that are stored once, however often they are needed."""
        self.arrays.setdefault(wanted, array)
        return wanted

    def integers(self, *values: int) -> str:
        """Return a list of whole numbers."""
        return self.shared("integers_" + "_".join(map(str, values)).replace("-", "m"), np.array(values, np.int64))

    def zero(self) -> str:
        """Return the number zero."""
        return self.shared("zero", np.zeros((), np.float32))

    def initializers(self) -> list[onnx.TensorProto]:
        """Return the stored numbers without their contents: their names, shapes and types."""
        return [initializer(name, array) for name, array in self.arrays.items()]


def initializer(name: str, array: Array | Pieced) -> onnx.TensorProto:
    """Return stored numbers without their contents."""
    return onnx.TensorProto(name=name, dims=array.shape, data_type=code_of(array.dtype))


def code_of(dtype: np.dtype[Any]) -> int:
    """Return the number of an element type."""
    plain = dtype.newbyteorder("=")
    return next(code for code, dtype in DTYPES.items() if dtype == plain)
