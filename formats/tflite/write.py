"""The graph of a .tflite file that holds recurrent layers alone.

A stack is a chain of operators. It reads `x` (time, 1, in) and gives `y` (time, 1, out); with several stacks each name is preceded by the
stack's. The signature "serving_default" names them, and an operator's output has the name of its layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array, Pieced
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, unique
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.flatbuffer_write import Fields, Number
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import split_stack

_FUNCTIONS = {name: number for number, name in s.FUNCTIONS.items()}
_VERSIONS = {s.BOTH_LSTM: 2}
_FLOAT, _INT = 0, 2


def build(path: Path, job: Job) -> tuple[Fields, list[str], list[str]]:
    """Return the root table of a file, what a user should know, and lines of Python that run it."""
    graph = _TfliteGraph(job)
    notes = []
    for part in job.parts:
        prefix = "" if len(job.parts) == 1 else f"{part.stack.name}/"
        below = graph.tensor(f"{prefix}x", (1, 1, part.stack.input_size), signature=(-1, 1, part.stack.input_size))
        graph.inputs[f"{prefix}x"] = below
        for single in split_stack(part.stack):
            below = graph.layer(part.layout, single, below)
        graph.outputs[f"{prefix}y"] = below
        notes.append(
            f"{part.stack.name or 'the layer'}: input {prefix}x (time, 1, {part.stack.input_size}), which resize_tensor_input gives "
            f"its number of steps, output {prefix}y; reset_all_variables() before each new sequence"
        )
    recipe = [
        "from ai_edge_litert.interpreter import Interpreter",
        f"interpreter = Interpreter({str(path)!r})",
        *(f"interpreter.resize_tensor_input({tensor}, (time, 1, {graph.widths[tensor]}))" for tensor in graph.inputs.values()),
        "interpreter.allocate_tensors()",
        *(f"interpreter.set_tensor({tensor}, x)" for tensor in graph.inputs.values()),
        "interpreter.invoke()",
        *(f"y = interpreter.get_tensor({tensor})" for tensor in graph.outputs.values()),
    ]
    return graph.root(), notes, recipe


class _TfliteGraph:
    """A graph under construction: its tables, and the places of its inputs and outputs by name."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.tensors: list[Fields] = []
        self.operators: list[Fields] = []
        self.buffers: list[Fields] = [{}]
        self.codes: list[int] = []
        self.inputs: dict[str, int] = {}
        self.outputs: dict[str, int] = {}
        self.widths: dict[int, int] = {}
        self.names: set[str] = set()

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        array: Array | Pieced | None = None,
        kind: int = _FLOAT,
        variable: bool = False,
        signature: Sequence[int] = (),
    ) -> int:
        """Add a tensor, with its numbers if it is a constant; return its place."""
        fields: dict[int, Any] = {s.TENSOR["shape"]: np.array(shape, np.int32), s.TENSOR["name"]: name}
        if kind:
            fields[s.TENSOR["type"]] = Number("b", kind)
        if array is not None:
            fields[s.TENSOR["buffer"]] = Number("I", len(self.buffers))
            self.buffers.append({s.BUFFER["data"]: array})
        if variable:
            fields[s.TENSOR["is_variable"]] = Number("B", 1)
        if signature:
            fields[s.TENSOR["shape_signature"]] = np.array(signature, np.int32)
        self.tensors.append(dict(sorted(fields.items())))
        self.widths[len(self.tensors) - 1] = shape[-1] if shape else 1
        return len(self.tensors) - 1

    def operator(self, code: int, inputs: Sequence[int], output: int, options: dict[str, Number] | None = None) -> int:
        """Add an operator; return its output."""
        if code not in self.codes:
            self.codes.append(code)
        fields: dict[int, Any] = {
            s.OPERATOR["opcode_index"]: Number("I", self.codes.index(code)),
            s.OPERATOR["inputs"]: np.array(inputs, np.int32),
            s.OPERATOR["outputs"]: np.array([output], np.int32),
        }
        if options is not None:
            kind, places = s.OPTIONS[code]
            fields[s.OPERATOR["builtin_options_type"]] = Number("B", kind)
            fields[s.OPERATOR["builtin_options"]] = {places[name]: value for name, value in options.items()}
        self.operators.append(fields)
        return output

    def layer(self, layout: Layout, single: Recurrent, below: int) -> int:
        """Add a layer that reads a tensor; return the tensor of its outputs."""
        directions = single.layers[0].directions
        name = unique(single.name or single.cell.kind, self.names)
        self.names.add(name)
        both, reverse = len(directions) == 2, len(directions) == 1 and directions[0].reverse
        code = {("lstm", False): s.SEQUENCE_LSTM, ("lstm", True): s.BOTH_LSTM, ("rnn", False): s.SEQUENCE_RNN, ("rnn", True): s.BOTH_RNN}[
            single.cell.kind, both
        ]
        if reverse:
            below = self._turned(f"{name}/from the end", below)
        packed = pack(layout, single, self.job.dtype, self.job.watch)
        inputs = [-1] * s.COUNTS[code]
        inputs[0] = below
        for place, local in s.WEIGHTS[code].items():
            if local in packed:
                inputs[place] = self.tensor(f"{name}/{local}", packed[local].shape, packed[local])
        for number, place in enumerate(s.STATES[code]):
            cell = single.cell.kind == "lstm" and number % 2
            width = single.hidden_size if cell else directions[0].output_size
            inputs[place] = self.tensor(f"{name}/{'cell' if cell else 'hidden'}_{number}", (1, width), variable=True)
        options = {"fused_activation_function": Number("b", _FUNCTIONS[single.cell.activation.name]), "time_major": Number("B", 1)}
        for clip in single.cell.clips:
            options["cell_clip" if clip.kind == "cell" else "proj_clip"] = Number("f", clip.high)
        if both:
            options["merge_outputs"] = Number("B", 1)
        width = sum(direction.output_size for direction in directions)
        turned = reverse and single.output_order == "time"
        output = self.operator(code, inputs, self.tensor(name, (1, 1, width), signature=(-1, 1, width)), options)
        return self._turned(f"{name}/in time order", output) if turned else output

    def _turned(self, name: str, below: int) -> int:
        axis = self.tensor(f"{name}/axis", (1,), np.zeros(4, np.uint8), _INT)
        width = self.widths[below]
        return self.operator(s.REVERSE, [below, axis], self.tensor(name, (1, 1, width), signature=(-1, 1, width)))

    def root(self) -> Fields:
        """Return the table of the model."""
        codes = [
            {
                s.CODE["deprecated_builtin_code"]: Number("b", code),
                s.CODE["version"]: Number("i", _VERSIONS.get(code, 1)),
                s.CODE["builtin_code"]: Number("i", code),
            }
            for code in self.codes
        ]
        graph = {
            s.SUBGRAPH["tensors"]: self.tensors,
            s.SUBGRAPH["inputs"]: np.array([*self.inputs.values()], np.int32),
            s.SUBGRAPH["outputs"]: np.array([*self.outputs.values()], np.int32),
            s.SUBGRAPH["operators"]: self.operators,
            s.SUBGRAPH["name"]: "main",
        }
        maps = [
            [{s.TENSOR_MAP["name"]: name, s.TENSOR_MAP["tensor_index"]: Number("I", place)} for name, place in group.items()]
            for group in (self.inputs, self.outputs)
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
            s.MODEL["subgraphs"]: [graph],
            s.MODEL["description"]: "written by rnnconvert",
            s.MODEL["buffers"]: self.buffers,
            s.MODEL["signature_defs"]: [signature],
        }
