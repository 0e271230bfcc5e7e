"""A model of OpenVINO's IR that holds recurrent layers alone: MODEL.xml and MODEL.bin.

A stack is a chain of operations from the parameter `x` (batch, time, in) to the result `y` (batch, time, out); `NAME/h_n` and
`NAME/c_n` are the last states of its layers, (batch, directions, hidden). With several stacks each name is preceded by the stack's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.data_files import replacing_both
from rnnconvert.containers.files import Summed
from rnnconvert.core.arrays import Array, Pieced, nbytes
from rnnconvert.core.weights import Layer as Pair
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult, unique
from rnnconvert.formats.openvino.net import TYPES
from rnnconvert.formats.openvino.xml_file import attribute
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import split_stack

_PRECISIONS = {"f32": "FP32", "f16": "FP16", "i64": "I64"}
_SEQUENCES = {"lstm": "LSTMSequence", "gru": "GRUSequence", "rnn": "RNNSequence"}
_MERGES = {"sum": "ReduceSum", "mul": "ReduceProd", "ave": "ReduceMean"}

Out = tuple[int, int]
"""An operation's number, and which of its ports."""


def companions(path: Path) -> tuple[Path, ...]:
    """Return the file of the numbers."""
    return (path.with_suffix(".bin"),)


def write(path: Path, job: Job) -> WriteResult:
    """Write the two files."""
    graph = _XmlGraph(job)
    notes = []
    for part in job.parts:
        prefix = "" if len(job.parts) == 1 else f"{part.stack.name}/"
        x = graph.add(
            "Parameter",
            f"{prefix}x",
            [],
            [(-1, -1, part.stack.input_size)],
            {"shape": f"?,?,{part.stack.input_size}", "element_type": "f32"},
        )
        below, ends = x, []
        for single in split_stack(part.stack):
            below, states = graph.layer(part.layout, single, below)
            ends += states
        graph.result(f"{prefix}y", below, (-1, -1, part.stack.layers[-1].output_size))
        for name, state, shape in ends:
            graph.result(name, state, shape)
        notes.append(f"{part.stack.name or 'the layer'}: input {prefix}x (batch, time, {part.stack.input_size}), output {prefix}y")
    (weights_file,) = companions(path)
    notes.append(f"its numbers are in {weights_file.name}, which belongs next to it")
    recipe = [
        "import openvino",
        f'model = openvino.Core().compile_model({str(path)!r}, "CPU", {{"INFERENCE_PRECISION_HINT": "f32"}})',
        "y = model(x)[0]",
    ]
    if not job.dry_run:
        with replacing_both(path, weights_file) as (file, data):
            numbers = Summed(data)
            for array in graph.arrays:
                numbers.pieces(array)
                numbers.write(bytes(-nbytes(array) % 8))
            file.write(graph.text(numbers.value).encode())
    return WriteResult(notes, recipe, [*job.carried])  # a graph of its own has no place for other tensors


class _XmlGraph:
    """A graph under construction: its operations and edges as XML, and the arrays of its .bin."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.layers: list[str] = []
        self.edges: list[str] = []
        self.arrays: list[Array | Pieced] = []
        self.size = 0
        self.names: set[str] = set()
        self.kinds: dict[Out, str] = {}

    def add(
        self,
        kind: str,
        name: str,
        inputs: Sequence[Out],
        outputs: Sequence[tuple[int, ...]],
        data: dict[str, Any],
        types: Sequence[str] = (),
    ) -> Out:
        """Add an operation; return its first output."""
        number = len(self.layers)
        version = {"LSTMSequence": 5, "GRUSequence": 5, "RNNSequence": 5, "ShapeOf": 3, "Broadcast": 3, "Gather": 8}.get(kind, 1)
        name = unique(name, self.names)
        self.names.add(name)
        lines = [f'<layer id="{number}" name={attribute(name)} type="{kind}" version="opset{version}">']
        if data:
            lines.append("<data " + " ".join(f"{key}={attribute(str(value))}" for key, value in data.items()) + "/>")
        if inputs:
            lines.append("<input>" + "".join(f'<port id="{port}"/>' for port in range(len(inputs))) + "</input>")
        for port, (source, out) in enumerate(inputs):
            self.edges.append(f'<edge from-layer="{source}" from-port="{out}" to-layer="{number}" to-port="{port}"/>')
        first = len(inputs)
        ports = []
        for port, shape in enumerate(outputs, first):
            code = types[port - first] if types else "f32"
            dims = "".join(f"<dim>{length}</dim>" for length in shape)
            listed = name.replace(",", r"\,")  # a comma separates the names of one value
            label = f" names={attribute(listed)}" if port == first else ""
            ports.append(f'<port id="{port}" precision="{_PRECISIONS[code]}"{label}>{dims}</port>')
        if ports:
            lines.append(f"<output>{''.join(ports)}</output>")
        self.layers.append("".join(lines) + "</layer>")
        return number, first

    def constant(self, name: str, array: Array | Pieced) -> Out:
        """Add a constant; float16 weights become float32 in the graph, as the runtime's own compression has it."""
        code = next(code for code, dtype in TYPES.items() if dtype == array.dtype.newbyteorder("<"))
        shape = tuple(array.shape)
        data = {"element_type": code, "shape": ", ".join(map(str, shape)), "offset": self.size, "size": nbytes(array)}
        self.arrays.append(array)
        self.size += nbytes(array) + -nbytes(array) % 8
        constant = self.add("Const", name, [], [shape], data, [code])
        if code != "f16":
            return constant
        return self.add("Convert", f"{name}/float32", [constant], [shape], {"destination_type": "f32"})

    def integers(self, name: str, *numbers: int) -> Out:
        """Add a constant of whole numbers; of one, a scalar."""
        return self.constant(name, np.array(numbers if len(numbers) > 1 else numbers[0], np.int64))

    def result(self, name: str, value: Out, shape: tuple[int, ...]) -> None:
        """Add an output of the model; the value goes through an operation that has the output's name."""
        same = self.add("Convert", name, [value], [shape], {"destination_type": "f32"})
        self.add("Result", f"{name}/result", [same], [], {})

    def layer(self, layout: Layout, single: Recurrent, below: Out) -> tuple[Out, list[tuple[str, Out, tuple[int, ...]]]]:
        """Add a layer that reads a value; return its outputs, and its last states by names."""
        (pair,) = single.layers
        name, count, units = single.name or single.cell.kind, len(pair.directions), single.hidden_size
        stateless = single.replace(
            layers=(
                Pair(
                    tuple(
                        direction.with_arrays({key: None for key in direction.arrays if key[0].startswith("initial")})
                        for direction in pair.directions
                    ),
                    pair.merge,
                ),
            )
        )
        packed = pack(layout, stateless, self.job.dtype, self.job.watch)
        shape = self.add("ShapeOf", f"{name}/shape", [below], [(3,)], {"output_type": "i64"}, ["i64"])
        axis = self.integers(f"{name}/axis", 0)
        batch = self._row(f"{name}/batch", shape, np.array([0]), axis)
        steps = self._row(f"{name}/steps", shape, np.array([1]), axis)
        lengths = self.add("Broadcast", f"{name}/lengths", [steps, batch], [(-1,)], {"mode": "numpy"}, ["i64"])
        size = self.add(
            "Concat", f"{name}/state shape", [batch, self.constant(f"{name}/state", np.array([count, units]))], [(3,)], {"axis": 0}, ["i64"]
        )
        letters = [("h", "initial_hidden"), ("c", "initial_cell")][: 2 if single.cell.kind == "lstm" else 1]
        states = [self._state(f"{name}/initial_{letter}", single, part, size) for letter, part in letters]
        weights = [self.constant(f"{name}/{local}", packed[local]) for local in ("W", "R", "B")]
        final: tuple[int, ...] = (-1, count, units)
        data = self._data(single)
        output = self.add(
            _SEQUENCES[single.cell.kind],
            name,
            [below, *states, lengths, *weights],
            [(-1, count, -1, units), final, *([final] if single.cell.kind == "lstm" else [])],
            data,
        )
        ends = [(f"{name}/{letter}_n", (output[0], output[1] + place), final) for place, letter in enumerate("hc"[: len(states)], 1)]
        return self._joined(name, output, pair, units), ends

    def _data(self, single: Recurrent) -> dict[str, Any]:
        (pair,) = single.layers
        cell = single.cell
        functions = [cell.gate_activation, cell.activation, cell.output_activation][: {"lstm": 3, "gru": 2}.get(cell.kind, 0)]
        if len(pair.directions) == 2:
            way = "bidirectional"
        elif pair.directions[0].reverse:
            way = "reverse"
        else:
            way = "forward"
        data = {
            "direction": way,
            "hidden_size": single.hidden_size,
            "activations": ", ".join(function.name for function in functions or [cell.activation]),
            "activations_alpha": "",
            "activations_beta": "",
            "clip": cell.clips[0].high if cell.clips else 0,
        }
        return data | ({"linear_before_reset": str(bool(cell.reset_after)).lower()} if cell.kind == "gru" else {})

    def _row(self, name: str, value: Out, index: Array, axis: Out) -> Out:
        place = self.constant(f"{name}/index", index.astype(np.int64))
        return self.add("Gather", name, [value, place, axis], [(1,)], {"batch_dims": 0}, ["i64"])

    def _state(self, name: str, single: Recurrent, part: str, size: Out) -> Out:
        """Add an initial state, spread over the batch: zeros, or the learned one."""
        (pair,) = single.layers
        rows = [direction.get(part) for direction in pair.directions]
        dtype = (self.job.dtype or single.dtype).newbyteorder("<")
        learned = [np.zeros(single.hidden_size) if row is None else row for row in rows]
        stacked = np.stack(learned)[None].astype(dtype)
        value = self.constant(f"{name}/value", stacked if stacked.any() else np.zeros((), dtype))
        return self.add("Broadcast", name, [value, size], [(-1, len(rows), single.hidden_size)], {"mode": "bidirectional"})

    def _joined(self, name: str, sequence: Out, pair: Pair, units: int) -> Out:
        """Join the directions of (batch, directions, time, units) into (batch, time, out)."""
        count = len(pair.directions)
        if count == 2 and pair.merge in _MERGES:
            return self.add(
                _MERGES[pair.merge],
                f"{name}/joined",
                [sequence, self.integers(f"{name}/joined/axis", 1)],
                [(-1, -1, units)],
                {"keep_dims": "false"},
            )
        order = self.integers(f"{name}/order", 0, 2, 1, 3)
        turned = self.add("Transpose", f"{name}/time first", [sequence, order], [(-1, -1, count, units)], {})
        shape = self.integers(f"{name}/y shape", 0, 0, count * units)
        return self.add("Reshape", f"{name}/y", [turned, shape], [(-1, -1, count * units)], {"special_zero": "true"})

    def text(self, checksum: int) -> str:
        """Return the .xml, which knows the numbers by their checksum.

        OpenVINO leaves it out when it saves the model again, as it does any attribute of `info` that it does not know.
        """
        layers, edges = "\n".join(self.layers), "\n".join(self.edges)
        return (
            f'<?xml version="1.0"?>\n<net name="recurrent" version="11">\n<layers>\n{layers}\n</layers>\n<edges>\n{edges}\n</edges>\n'
            f'<rt_info><info name="written by" value="rnnconvert" crc32="{checksum:08x}"/></rt_info>\n</net>\n'
        )
