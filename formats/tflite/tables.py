"""The tables of a .tflite file under construction: its graphs, their tensors and operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.flatbuffer import Fields, Number

_VERSIONS = {s.BOTH_LSTM: 2, s.BROADCAST_TO: 2}
"""The first version of an operator that does what is written here, where that is not 1 and the operator does not state it."""
_FLOAT = 0


class ModelTables:
    """A model: the buffers and codes that its graphs share; the first graph is the one that runs."""

    def __init__(self) -> None:
        self.buffers: list[Fields] = [{}]
        self.codes: list[tuple[int, int]] = []
        self.graphs: list[GraphTables] = []

    def root(self) -> Fields:
        """Return the table of the model."""
        codes = [
            {
                s.CODE["deprecated_builtin_code"]: Number("b", min(code, 127)),
                s.CODE["version"]: Number("i", version),
                s.CODE["builtin_code"]: Number("i", code),
            }
            for code, version in self.codes
        ]
        main = self.graphs[0]
        maps = [
            [{s.TENSOR_MAP["name"]: name, s.TENSOR_MAP["tensor_index"]: Number("I", place)} for name, place in group.items()]
            for group in (main.inputs, main.outputs)
        ]
        signature = {
            s.SIGNATURE["inputs"]: maps[0],
            s.SIGNATURE["outputs"]: maps[1],
            s.SIGNATURE["signature_key"]: "serving_default",
            s.SIGNATURE["subgraph_index"]: Number("I", 0),
        }
        return {
            s.MODEL["version"]: Number("I", s.VERSION),
            s.MODEL["operator_codes"]: codes,
            s.MODEL["subgraphs"]: [graph.fields() for graph in self.graphs],
            s.MODEL["description"]: "written by rnnconvert",
            s.MODEL["buffers"]: self.buffers,
            s.MODEL["signature_defs"]: [signature],
        }


class GraphTables:
    """A graph: its tables, its place in the model, and the places of its inputs and outputs by name."""

    def __init__(self, model: ModelTables, name: str) -> None:
        self.model, self.name = model, name
        self.place = len(model.graphs)
        model.graphs.append(self)
        self.tensors: list[Fields] = []
        self.operators: list[Fields] = []
        self.inputs: dict[str, int] = {}
        self.outputs: dict[str, int] = {}

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        array: Array | PiecewiseArray | None = None,
        kind: int = _FLOAT,
        variable: bool = False,
        signature: Sequence[int] = (),
        scales: tuple[Array, int] | None = None,
    ) -> int:
        """Add a tensor, with its numbers if it is a constant; return its place.

        scales  what the integers along an axis are multiplied by, and that axis
        """
        if any(not -(1 << 31) <= length < 1 << 31 for length in (*shape, *signature)):
            raise RefusedError(
                f"an axis of {max(map(abs, (*shape, *signature)))} numbers", "TensorFlow Lite", "its lengths have 32 bits", "", name
            )
        fields: dict[int, Any] = {s.TENSOR["shape"]: np.array(shape, np.int32), s.TENSOR["name"]: name}
        if kind:
            fields[s.TENSOR["type"]] = Number("b", kind)
        if array is not None:
            fields[s.TENSOR["buffer"]] = Number("I", len(self.model.buffers))
            self.model.buffers.append({s.BUFFER["data"]: array})
        if scales is not None:
            numbers, axis = scales
            fields[s.TENSOR["quantization"]] = {
                # A vector is as long as it has numbers; arrays of floating-point numbers are taken for bytes.
                s.QUANTIZATION["scale"]: numbers.astype("<f4").view("<i4"),
                s.QUANTIZATION["zero_point"]: np.zeros(numbers.size, "<i8"),
                s.QUANTIZATION["quantized_dimension"]: Number("i", axis),
            }
        if variable:
            fields[s.TENSOR["is_variable"]] = Number("B", 1)
        if signature:
            fields[s.TENSOR["shape_signature"]] = np.array(signature, np.int32)
        self.tensors.append(dict(sorted(fields.items())))
        return len(self.tensors) - 1

    def operator(
        self,
        code: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: tuple[int, Mapping[int, Any]] | None = None,
        version: int | None = None,
    ) -> None:
        """Add an operator.

        options  the number of its table of options, and the fields of that
        version  the first version of the operator that does this
        """
        key = code, _VERSIONS.get(code, 1) if version is None else version
        if key not in self.model.codes:
            self.model.codes.append(key)
        fields: dict[int, Any] = {
            s.OPERATOR["opcode_index"]: Number("I", self.model.codes.index(key)),
            s.OPERATOR["inputs"]: np.array(inputs, np.int32),
            s.OPERATOR["outputs"]: np.array(outputs, np.int32),
        }
        if options is not None:
            kind, stated = options
            fields[s.OPERATOR["builtin_options_type"]] = Number("B", kind)
            fields[s.OPERATOR["builtin_options"]] = stated
        self.operators.append(fields)

    def fields(self) -> Fields:
        """Return the table of the graph."""
        return {
            s.SUBGRAPH["tensors"]: self.tensors,
            s.SUBGRAPH["inputs"]: np.array([*self.inputs.values()], np.int32),
            s.SUBGRAPH["outputs"]: np.array([*self.outputs.values()], np.int32),
            s.SUBGRAPH["operators"]: self.operators,
            s.SUBGRAPH["name"]: self.name,
        }
