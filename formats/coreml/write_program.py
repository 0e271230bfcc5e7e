"""A Core ML program that holds recurrent layers alone: a .mlpackage.

A stack is a chain of operations from the input `x` (steps, 1, width) to the output `y` (steps, 1, width); `NAME_h_n` and `NAME_c_n`
are the last states of its layers. With several stacks each name is preceded by the stack's.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from rnnconvert.containers.wire import field
from rnnconvert.core.arrays import Array, Pieced
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, WriteResult, unique
from rnnconvert.formats.coreml import encode
from rnnconvert.formats.coreml.encode import entry, number, text
from rnnconvert.formats.coreml.package import PLACE, NewWeights, new_package
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import split_stack

MOST_STEPS = 4096
"""The longest sequence that the model states: a program needs a bound."""
_VERSIONS = {"float32": (6, "CoreML5", encode.FLOAT32, 11), "float16": (8, "CoreML7", encode.FLOAT16, 10)}
"""By the element type: the version of the specification, the set of operations, and the type's numbers."""
_STEPS = -1


def write(path: Path, job: Job) -> WriteResult:
    """Write the package."""
    notes: list[str] = []
    dtype = str(np.dtype(job.dtype or job.parts[0].stack.dtype).newbyteorder("="))
    graph = _ProgramWriter(job, dtype)
    for part in job.parts:
        prefix = "" if len(job.parts) == 1 else f"{_name(part.stack.name)}_"
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
    recipe = ["import coremltools", f"model = coremltools.models.MLModel({str(path)!r})", 'y = model.predict({"x": x})["y"]']
    message = graph.message()
    if not job.dry_run:
        with new_package(path) as (file, data):
            file.write(message)
            graph.weights.write(data)
    return WriteResult(notes, recipe, [*job.carried])  # a model of its own has no place for other tensors


def _name(name: str) -> str:
    """Return a name that a program may have: letters, digits and underscores."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII) or "rnn"
    return plain if not plain[0].isdigit() else f"_{plain}"


class _ProgramWriter:
    """A program under construction: its operations as bytes, its inputs and outputs, and the file of its weights."""

    def __init__(self, job: Job, dtype: str) -> None:
        self.job = job
        self.version, self.opset, self.feature_type, self.type = _VERSIONS[dtype]
        self.dtype = np.dtype(dtype)
        self.operations: list[bytes] = []
        self.inputs: list[tuple[str, tuple[int, ...]]] = []
        self.outputs: list[tuple[str, tuple[int, ...]]] = []
        self.weights = NewWeights()
        self.names: set[str] = set()

    def _type(self, shape: tuple[int, ...], kind: int = 0) -> bytes:
        """Return the type of a tensor; a length of -1 is not known."""
        lengths = [field(3, field(2, b"") if length == _STEPS else field(1, number(1, length))) for length in shape]
        return field(1, number(1, kind or self.type) + number(2, len(shape)) + b"".join(lengths))

    def _named(self, name: str, kind: bytes) -> bytes:
        return text(1, name) + field(2, kind)

    def _add(self, kind: str, name: str, inputs: dict[str, str], outputs: list[tuple[str, bytes]], value: bytes = b"") -> None:
        """Add an operation."""
        arguments = b"".join(entry(2, parameter, field(1, text(1, source))) for parameter, source in inputs.items())
        output_fields = b"".join(field(3, self._named(*output)) for output in outputs)
        label = entry(5, "name", field(2, field(1, number(1, 2))) + field(3, field(1, field(4, text(1, name)))))
        self.operations.append(text(1, kind) + arguments + output_fields + label + (entry(5, "val", value) if value else b""))

    def _unique(self, name: str) -> str:
        free = unique(_name(name), self.names)
        self.names.add(free)
        return free

    def constant(self, name: str, array: Array | Pieced) -> str:
        """Add numbers that lie in the file of weights."""
        name, shape = self._unique(name), tuple(array.shape)
        place = text(1, PLACE) + number(2, self.weights.add(array))
        self._add("const", name, {}, [(name, self._type(shape))], field(2, self._type(shape)) + field(5, place))
        return name

    def scalar(self, name: str, value: str | bool | float) -> str:
        """Add a text, a truth or a number that lies in the program itself."""
        name = self._unique(name)
        if isinstance(value, str):
            kind, tensor = self._scalar(2), field(4, text(1, value))
        elif isinstance(value, bool):
            kind, tensor = self._scalar(1), field(3, field(1, bytes([value])))
        else:
            raw = np.array([value], self.dtype).tobytes()
            kind, tensor = self._scalar(self.type), field(1 if self.dtype.itemsize == 4 else 7, field(1, raw))
        self._add("const", name, {}, [(name, kind)], field(2, kind) + field(3, field(1, tensor)))
        return name

    def _scalar(self, kind: int) -> bytes:
        return field(1, number(1, kind))

    def state(self, name: str, width: int) -> str:
        """Add an input of the model."""
        name = self._unique(name)
        self.inputs.append((name, (_STEPS, 1, width)))
        return name

    def result(self, name: str, value: str, width: int) -> None:
        """Add an output of the model: a value under a name of its own."""
        name = self._unique(name)
        self._add("identity", name, {"x": value}, [(name, self._type((_STEPS, 1, width)))])
        self.outputs.append((name, (_STEPS, 1, width)))

    def layer(self, layout: Layout, single: Recurrent, below: str) -> tuple[str, list[tuple[str, int]]]:
        """Add a layer that reads a value; return its outputs, and its last states by names, with their widths."""
        directions = single.layers[0].directions
        name = self._unique(single.name or single.cell.kind)
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
        sequence = self._type((_STEPS, 1, width))
        ends = [self._unique(f"{name}_{letter}_n") for letter in "hc"[: 2 if cell.kind == "lstm" else 1]]
        turned = way == "reverse" and single.output_order == "time"
        y = self._unique(f"{name}_y")
        self._add(cell.kind, name, inputs, [(y, sequence), *((end, self._type((1, width))) for end in ends)])
        if turned:
            axes = self._axes(f"{name}_axes")
            y, before = self._unique(f"{name}_in_time_order"), y
            self._add("reverse", y, {"x": before, "axes": axes}, [(y, sequence)])
        return y, [(end, width) for end in ends]

    def _axes(self, name: str) -> str:
        name = self._unique(name)
        kind = self._type((1,), 23)
        self._add("const", name, {}, [(name, kind)], field(2, kind) + field(3, field(1, field(2, field(1, bytes([0]))))))
        return name

    def message(self) -> bytes:
        """Return the model."""
        block = b"".join(text(2, name) for name, _ in self.outputs) + b"".join(field(3, operation) for operation in self.operations)
        function = b"".join(field(1, self._named(name, self._type(shape))) for name, shape in self.inputs)
        function += text(2, self.opset) + entry(3, self.opset, block)
        program = number(1, 1) + entry(2, "main", function)
        inputs = [
            encode.feature(name, (1, *shape[1:]), self.feature_type, ((1, MOST_STEPS), *((length, length) for length in shape[1:])))
            for name, shape in self.inputs
        ]
        outputs = [encode.feature(name, (), self.feature_type) for name, _ in self.outputs]
        description = encode.described(inputs, outputs, {"written by": "rnnconvert"})
        return number(1, self.version) + field(2, description) + field(502, program)
