"""A graph of a TFLite file as basic operators are added to it.

Source: tensorflow/lite/schema/schema.fbs, tables of options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rnnconvert.core import int8
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.flatbuffer import Number
from rnnconvert.formats.tflite.operator_values import FLOAT, INT, OperatorValues, computed, kind_of
from rnnconvert.formats.tflite.tables import GraphTables, ModelTables
from rnnconvert.models.names import listing

HALF, WIDE, BYTE = 1, 4, 9
"""The numbers of element types that values of a graph do not have."""
_CODES = {name: code for code, name in s.OPERATORS.items()}
_OPTIONS: Mapping[str, tuple[int, Mapping[str, tuple[int, str]]]] = {
    "ARG_MAX": (40, {"output_type": (0, "b")}),
    "ARG_MIN": (57, {"output_type": (0, "b")}),
    "AVERAGE_POOL_2D": (5, {"padding": (0, "b"), "stride_w": (1, "i"), "stride_h": (2, "i"), "width": (3, "i"), "height": (4, "i")}),
    "BATCH_MATMUL": (101, {}),
    "CAST": (37, {"from": (0, "b"), "to": (1, "b")}),
    "CONCATENATION": (10, {"axis": (0, "i")}),
    "CONV_2D": (1, {"padding": (0, "b"), "stride_w": (1, "i"), "stride_h": (2, "i"), "by_w": (4, "i"), "by_h": (5, "i")}),
    "CUMSUM": (102, {}),
    "DEPTHWISE_CONV_2D": (
        2, {"padding": (0, "b"), "stride_w": (1, "i"), "stride_h": (2, "i"), "multiplier": (3, "i"), "by_w": (5, "i"), "by_h": (6, "i")},
    ),
    "FULLY_CONNECTED": (8, {"keep_num_dims": (2, "B")}),
    "GATHER": (23, {"axis": (0, "i"), "batch_dims": (1, "i")}),
    "GELU": (116, {}),
    "MAX_POOL_2D": (5, {"padding": (0, "b"), "stride_w": (1, "i"), "stride_h": (2, "i"), "width": (3, "i"), "height": (4, "i")}),
    "MIRROR_PAD": (77, {"mode": (0, "b")}),
    "ONE_HOT": (61, {"axis": (0, "i")}),
    "PACK": (59, {"count": (0, "i"), "axis": (1, "i")}),
    "SHAPE": (55, {"out_type": (0, "b")}),
    "SOFTMAX": (9, {"beta": (0, "f")}),
    "SPLIT_V": (79, {"count": (0, "i")}),
    "STRIDED_SLICE": (32, {"begin_mask": (0, "i"), "end_mask": (1, "i"), "shrink_axis_mask": (4, "i")}),
    "TRANSPOSE_CONV": (49, {"padding": (0, "b"), "stride_w": (1, "i"), "stride_h": (2, "i")}),
    "WHILE": (93, {"cond": (0, "i"), "body": (1, "i")}),
    **dict.fromkeys(("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), (27, {"keep_dims": (0, "B")})),
}  # fmt: skip
"""For each operator that has options the number of their table, and their fields."""


Storage = Literal["float32", "float16", "int8"]
"""How weights are held: in the type of their source; as halves behind DEQUANTIZE, as TensorFlow's converter writes them; or matrices as
integers with a scale for each row, which the hybrid kernels of products and convolutions read as they are. Others are behind DEQUANTIZE."""

STORAGES: Mapping[str, Storage] = {"float32": "float32", "float16": "float16", "int8": "int8"}
"""These by their names."""
_HYBRID = {"FULLY_CONNECTED": 12, "CONV_2D": 5, "DEPTHWISE_CONV_2D": 6}
"""The operators that multiply real numbers by integers with scales, and the version from which on they do. Source:
tensorflow/lite/tools/versioning/op_version.cc."""
_HALVES, _BYTES = 3, 5
"""The versions of DEQUANTIZE that take halves, and integers with a scale for each row."""


class StoringTables(ModelTables):
    """A model whose weights are held in a way.

    storage  which
    wide     the arrays that stay float32 since halves do not reach so far
    lost     the largest change of a weight by int8, and the largest weight
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self.storage = storage
        self.wide: list[str] = []
        self.lost = (0.0, 0.0)

    def notes(self) -> list[str]:
        """Return the notes for the user on how the weights are held."""
        notes = []
        if self.wide:
            notes.append(f"in float32, since float16 ends at 65504: {listing(self.wide)}")
        if self.storage == "int8":
            lost, most = self.lost
            notes.append(
                f"in int8 a weight changes by up to {lost:.3g}, of weights of up to {most:.3g}; what the kernels of products and "
                "convolutions read is rounded to int8, too"
            )
        return notes


class OperatorGraph(GraphTables, OperatorValues):
    """A graph of a file."""

    model: StoringTables
    title = "TFLite"

    def __init__(self, model: StoringTables, name: str) -> None:
        GraphTables.__init__(self, model, name)
        OperatorValues.__init__(self)
        self._shapes: dict[int, Sequence[int | None]] = {}

    def value(
        self,
        name: str,
        kind: int,
        shape: Sequence[int | None] | None = None,
        array: Array | PiecewiseArray | None = None,
        scales: tuple[Array, int] | None = None,
    ) -> int:
        signature: Sequence[int] = ()
        if shape is not None and None in shape:
            signature = [-1 if length is None else length for length in shape]
        place = self.tensor(
            name, [1 if length is None else length for length in shape or ()], array, kind, signature=signature, scales=scales
        )
        self.kinds.append(kind)
        self._shapes[place] = shape or ()
        return place

    def constant(self, name: str, array: Array | PiecewiseArray) -> int:
        kind = kind_of(array.dtype)
        shape = tuple(array.shape)
        if self.model.storage == "float16" and kind == FLOAT and shape:
            if int8.largest(array) <= float(np.finfo(np.float16).max):
                return self._meant(name, self.value(f"{name}/half", HALF, shape, int8.Float16Array(array)), shape, _HALVES)
            self.model.wide.append(name)
        stored = computed(array)
        if kind == FLOAT:
            return self.value(name, kind, shape, stored)
        return self.value(name, kind, shape, np.frombuffer(np.ascontiguousarray(stored).tobytes(), np.uint8))

    def matrix(self, name: str, array: Array | PiecewiseArray, axis: int = 0, hybrid: bool = True) -> int:
        shape = tuple(array.shape)
        if self.model.storage != "int8" or not all(shape):
            return self.constant(name, array)
        flat = (shape[0], -1) if not axis else (-1, shape[-1])
        rows = int8.as_bytes(array if len(shape) == 2 else np.asarray(array).reshape(flat), by_columns=axis > 0)
        self.model.lost = max(self.model.lost[0], rows.lost), max(self.model.lost[1], rows.most)
        place = self.value(name if hybrid else f"{name}/integers", BYTE, shape, rows.codes, (rows.scales, axis))
        return place if hybrid else self._meant(name, place, shape, _BYTES)

    def _meant(self, name: str, place: int, shape: Sequence[int], version: int) -> int:
        """Add the real numbers that stored ones stand for."""
        output = self.value(name, FLOAT, shape)
        self.operator(_CODES["DEQUANTIZE"], [place], [output], version=version)
        return output

    def inner(self, name: str) -> OperatorGraph:
        return OperatorGraph(self.model, name)

    def list_of_steps(self, size: int, count: int, dims: Sequence[int | None], kind: int, name: str) -> int:
        return self.add("FILL", [size, self.zero(kind)], name, kind, (None, *dims))

    def with_step(self, outputs: int, number: int, output: int, name: str) -> int:
        shape, zero = self._shapes[outputs], self.integer(0)
        place = self.add("PACK", [number, *[zero] * (len(shape) - 1)], f"{name}/place", INT, (len(shape),), count=len(shape), axis=0)
        element = self.add("EXPAND_DIMS", [output, zero], f"{name}/output", shape=(1, *shape[1:]))
        return self.add("DYNAMIC_UPDATE_SLICE", [outputs, element, place], name, shape=shape)

    def stacked(self, outputs: int, dims: Sequence[int | None], kind: int) -> int:
        return outputs

    def several(self, operator: str, inputs: Sequence[int], outputs: Sequence[int], **options: Any) -> None:
        stated = None
        if operator in _OPTIONS:
            table, fields = _OPTIONS[operator]
            numbers = {fields[key][0]: Number(fields[key][1], value) for key, value in options.items() if key in fields}
            stated = table, dict(sorted(numbers.items()))
        hybrid = operator in _HYBRID and self.kinds[inputs[1]] == BYTE
        self.operator(_CODES[operator], inputs, outputs, stated, _HYBRID[operator] if hybrid else None)
