"""A Core ML program that holds recurrent layers alone: a .mlpackage.

A stack is a chain of operations from the input `x` (steps, 1, width) to the output `y` (steps, 1, width); `NAME_h_n` and `NAME_c_n`
are the last states of its layers. With several stacks each name is preceded by the stack's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rnnconvert.containers.wire import field
from rnnconvert.core.arrays import Array, PiecewiseArray
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult
from rnnconvert.formats.coreml import encode, mil
from rnnconvert.formats.coreml.encode import number
from rnnconvert.formats.coreml.package import NewWeights, new_package
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import split_stack

MOST_STEPS = 4096
"""The longest sequence that the model states: a program needs a bound."""
_VERSIONS = {"float32": (6, "CoreML5", encode.FLOAT32, "fp32"), "float16": (8, "CoreML7", encode.FLOAT16, "fp16")}
"""By the element type: the version of the specification, the set of operations, the number of the type of inputs, and its name."""


def write(path: Path, job: Job) -> WriteResult:
    """Write the package."""
    notes: list[str] = []
    dtype = str(np.dtype(job.dtype or job.parts[0].stack.dtype).newbyteorder("="))
    graph = _ProgramWriter(job, dtype)
    for part in job.parts:
        prefix = "" if len(job.parts) == 1 else f"{mil.plain(part.stack.name)}_"
        below, ends = graph.state(f"{prefix}x", part.stack.input_size), []
        for single in split_stack(part.stack):
            below, states = graph.layer(part.layout, single, below)
            ends += states
        graph.result(f"{prefix}y", below, part.stack.layers[-1].output_size)
        for name, width in ends:
            graph.outputs.append((name, (1, width)))
        notes.append(
            f"{part.stack.name or 'the layer'}: input {prefix}x (steps, 1, {part.stack.input_size}) of at most {MOST_STEPS} steps, output "
            f"{prefix}y"
        )
    if any(part.layout.kind == "gru" for part in job.parts):
        notes.append(
            "Core ML's text of gru shows the reset gate behind the product, and Apple's own tests before it, as written here: compare "
            "one prediction on the device"
        )
    recipe = encode.prediction(path, job)
    message = graph.message()
    if not job.dry_run:
        with new_package(path) as (file, data):
            file.write(message)
            graph.weights.write(data)
    return WriteResult(notes, recipe, [*job.carried])  # a model of its own has no place for other tensors


class _ProgramWriter:
    """A program under construction: its operations as bytes, its inputs and outputs, and the file of its weights."""

    def __init__(self, job: Job, dtype: str) -> None:
        self.job = job
        self.version, self.opset, self.feature_type, self.type = _VERSIONS[dtype]
        self.dtype = np.dtype(dtype)
        self.operations: list[bytes] = []
        self.inputs: list[tuple[str, tuple[int | None, ...]]] = []
        self.outputs: list[tuple[str, tuple[int | None, ...]]] = []
        self.weights = NewWeights()
        self.names = mil.ProgramNames()

    def _type(self, shape: tuple[int | None, ...]) -> bytes:
        """Return the type of a tensor."""
        return mil.tensor(self.type, shape)

    def _add(self, kind: str, name: str, inputs: dict[str, str], outputs: list[tuple[str, bytes]]) -> None:
        """Add an operation."""
        sources = {parameter: [source] for parameter, source in inputs.items()}
        self.operations.append(mil.operation(kind, name, sources, outputs))

    def _const(self, name: str, kind: bytes, value: bytes) -> str:
        name = self.names.unique(name)
        self.operations.append(mil.operation("const", name, {}, [(name, kind)], {"val": value}))
        return name

    def constant(self, name: str, array: Array | PiecewiseArray) -> str:
        """Add numbers that lie in the file of weights."""
        shape = tuple(array.shape)
        return self._const(name, self._type(shape), mil.in_file(self.type, shape, self.weights.add(array)))

    def scalar(self, name: str, value: str | bool | float) -> str:
        """Add a text, a truth or a number that lies in the program itself."""
        if isinstance(value, str):
            return self._const(name, mil.tensor("str"), mil.word(value))
        dtype = "bool" if isinstance(value, bool) else self.type
        return self._const(name, mil.tensor(dtype), mil.immediate(dtype, np.array(value)))

    def state(self, name: str, width: int) -> str:
        """Add an input of the model."""
        name = self.names.unique(name)
        self.inputs.append((name, (None, 1, width)))
        return name

    def result(self, name: str, value: str, width: int) -> None:
        """Add an output of the model: a value under a new name."""
        name = self.names.unique(name)
        self._add("identity", name, {"x": value}, [(name, self._type((None, 1, width)))])
        self.outputs.append((name, (None, 1, width)))

    def layer(self, layout: Layout, single: Recurrent, below: str) -> tuple[str, list[tuple[str, int]]]:
        """Add a layer that reads a value; return its outputs, and its last states by names, with their widths."""
        directions = single.layers[0].directions
        name = self.names.unique(single.name or single.cell.kind)
        packed = pack(layout, single, self.job.dtype, self.job.watch)
        cell, width = single.cell, len(directions) * single.hidden_size
        inputs = {"x": below}
        for parameter in ("initial_h", "initial_c")[: 2 if cell.kind == "lstm" else 1]:
            state = packed.get(parameter)
            inputs[parameter] = self.constant(f"{name}_{parameter}", np.zeros((1, width), self.dtype) if state is None else state)
        inputs |= {local: self.constant(f"{name}_{local}", array) for local, array in packed.items() if not local.startswith("initial")}
        if len(directions) == 2:
            way = "bidirectional"
        elif directions[0].reverse:
            way = "reverse"
        else:
            way = "forward"
        roles = {"activation": cell.activation}
        if cell.kind == "gru":
            roles |= {"recurrent_activation": cell.gate_activation}
        if cell.kind == "lstm":
            roles = {"recurrent_activation": cell.gate_activation, "cell_activation": cell.activation, "activation": cell.output_activation}
        texts: dict[str, str | bool | float] = {
            "direction": way,
            "output_sequence": True,
            **{role: function.name for role, function in roles.items()},
        }
        if cell.clips:
            texts["clip"] = float(cell.clips[0].high)
        inputs |= {parameter: self.scalar(f"{name}_{parameter}", value) for parameter, value in texts.items()}
        sequence = self._type((None, 1, width))
        ends = [self.names.unique(f"{name}_{letter}_n") for letter in "hc"[: 2 if cell.kind == "lstm" else 1]]
        turned = way == "reverse" and single.output_order == "time"
        y = self.names.unique(f"{name}_y")
        self._add(cell.kind, name, inputs, [(y, sequence), *((end, self._type((1, width))) for end in ends)])
        if turned:
            axes = self._const(f"{name}_axes", mil.tensor("int32", (1,)), mil.immediate("int32", np.zeros(1, np.int32)))
            y, before = self.names.unique(f"{name}_in_time_order"), y
            self._add("reverse", y, {"x": before, "axes": axes}, [(y, sequence)])
        return y, [(end, width) for end in ends]

    def message(self) -> bytes:
        """Return the model."""
        main = mil.block(self.operations, [name for name, _ in self.outputs])
        program = mil.program(self.opset, [(name, self._type(shape)) for name, shape in self.inputs], main)
        inputs = [
            encode.feature(
                name, [length or 1 for length in shape], self.feature_type, [(length or 1, length or MOST_STEPS) for length in shape]
            )
            for name, shape in self.inputs
        ]
        outputs = [encode.feature(name, (), self.feature_type) for name, _ in self.outputs]
        description = encode.described(inputs, outputs, {"written by": "rnnconvert"})
        return number(1, self.version) + field(2, description) + field(502, program)
