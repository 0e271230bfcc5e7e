"""The graph of a .tflite file that holds recurrent layers alone.

A stack is a chain of operators. It reads `x` (time, 1, in) and gives `y` (time, 1, out); with several stacks each name is preceded by the
stack's. The signature "serving_default" names them, and an operator's output has the name of its layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, Ports, unique, variables, zeros
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.export_to import recipe
from rnnconvert.formats.tflite.flatbuffer import Fields, Number
from rnnconvert.formats.tflite.tables import GraphTables, ModelTables
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import split_stack

_FUNCTIONS = {name: number for number, name in s.FUNCTIONS.items()}
_INT = 2


def build(path: Path, job: Job) -> tuple[Fields, list[str], list[str]]:
    """Return the root table of a file, what a user should know, and lines of Python that run it."""
    graph = _TfliteStack(job)
    notes = []
    for part in job.parts:
        prefix = "" if len(job.parts) == 1 else f"{part.stack.name}/"
        below = graph.value(f"{prefix}x", part.stack.input_size)
        graph.inputs[f"{prefix}x"] = below
        for single in split_stack(part.stack):
            below = graph.layer(part.layout, single, below)
        graph.outputs[f"{prefix}y"] = below
        notes.append(
            f"{part.stack.name or 'the layer'}: input {prefix}x (time, 1, {part.stack.input_size}), which resize_tensor_input gives "
            f"its number of steps, output {prefix}y; reset_all_variables() before each new sequence"
        )
    names = variables([*graph.inputs, *graph.outputs])
    read, written = ({name: names[name] for name in side} for side in (graph.inputs, graph.outputs))
    lines = [zeros(names[name], {"time": 7, "1": 1}, graph.widths[tensor]) for name, tensor in graph.inputs.items()]
    return graph.model.root(), notes, recipe(path, Ports(read, written, lines))


class _TfliteStack(GraphTables):
    """A graph of recurrent layers alone."""

    def __init__(self, job: Job) -> None:
        super().__init__(ModelTables(), "main")
        self.job = job
        self.widths: dict[int, int] = {}
        self.names: set[str] = set()

    def value(self, name: str, width: int) -> int:
        """Add what an operator gives at every step; return its place."""
        place = self.tensor(name, (1, 1, width), signature=(-1, 1, width))
        self.widths[place] = width
        return place

    def single(self, code: int, inputs: Sequence[int], output: int, options: Mapping[str, Number] | None = None) -> int:
        """Add an operator of one output; return that."""
        kind, places = s.OPTIONS.get(code, (0, {}))
        stated = None if options is None else (kind, {places[name]: value for name, value in options.items()})
        self.operator(code, inputs, [output], stated)
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
        output = self.single(code, inputs, self.value(name, width), options)
        return self._turned(f"{name}/in time order", output) if turned else output

    def _turned(self, name: str, below: int) -> int:
        axis = self.tensor(f"{name}/axis", (1,), np.zeros(4, np.uint8), _INT)
        width = self.widths[below]
        return self.single(s.REVERSE, [below, axis], self.value(name, width))
