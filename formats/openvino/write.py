"""A model of OpenVINO's IR that holds recurrent layers alone: MODEL.xml and MODEL.bin.

A stack is a chain of operations from the parameter `x` (batch, time, in) to the result `y` (batch, time, out); `NAME/h_n` and
`NAME/c_n` are the last states of its layers, (batch, directions, hidden). With several stacks each name is preceded by the stack's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.weights import Layer as Pair
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.adapter import Job, Ports, WriteResult, variables, zeros
from rnnconvert.formats.openvino.export_to import recipe
from rnnconvert.formats.openvino.xml_graph import Out, XmlGraph, companions
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.rewrites import split_stack

_MERGES = {"sum": "ReduceSum", "mul": "ReduceProd", "ave": "ReduceMean"}


def write(path: Path, job: Job) -> WriteResult:
    """Write the two files."""
    graph = _OpenvinoStack(job)
    notes, inputs, outputs, count = [], [], [], 0
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
        inputs.append((f"{prefix}x", part.stack.input_size))
        outputs.append((f"{prefix}y", count))
        count += 1 + len(ends)
        graph.result(f"{prefix}y", below, (-1, -1, part.stack.layers[-1].output_size))
        for name, state, shape in ends:
            graph.result(name, state, shape)
        notes.append(f"{part.stack.name or 'the layer'}: input {prefix}x (batch, time, {part.stack.input_size}), output {prefix}y")
    (weights_file,) = companions(path)
    notes.append(f"its numbers are in {weights_file.name}, which belongs next to it")
    names = variables(name for name, _ in [*inputs, *outputs])
    read, written = ({name: names[name] for name, _ in side} for side in (inputs, outputs))
    lines = [zeros(names[name], {"batch": 2, "time": 7}, width) for name, width in inputs]
    if not job.dry_run:
        graph.write(path)
    return WriteResult(
        notes, recipe(path, Ports(read, written, lines)), [*job.carried]
    )  # a graph of its own has no place for other tensors


class _OpenvinoStack(XmlGraph):
    """A graph of recurrent layers alone."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job

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
        output = self.sequence(name, single, packed, below, states, lengths)
        final: tuple[int, ...] = (-1, count, units)
        ends = [(f"{name}/{letter}_n", (output[0], output[1] + place), final) for place, letter in enumerate("hc"[: len(states)], 1)]
        return self._joined(name, output, pair, units), ends

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
