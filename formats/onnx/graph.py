"""The ONNX graph of recurrent layers: nodes, joints between them, states and outputs.

A stack `name` becomes a chain of nodes. Its input is `x` (time, batch, in), its outputs are `y` (time, batch, out), `h_n` (layers *
directions, batch, hidden) and `c_n`, ordered as PyTorch orders them; with batch_first=true `x` and `y` are (batch, time, values). Learned
initial states are constants; with states=input each call gives `initial_h` and `initial_c`, of the shapes of `h_n` and `c_n`. With several
stacks each name is preceded by the stack's: `encoder/x`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from rnnconvert.core.arrays import BFLOAT16, Array, PiecewiseArray, Source
from rnnconvert.core.cells import Activation, Cell
from rnnconvert.core.errors import RefusedError, UsageError
from rnnconvert.core.remedies import Flag, Setting
from rnnconvert.core.weights import INPUT, Direction, Layer, Recurrent
from rnnconvert.files.adapter import Job
from rnnconvert.formats.onnx.proto.nodes import ProtoNodes, code_of
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.rewrites.fit_to_layout import Fitted

_OPERATORS = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}
_OPSETS = range(7, 23)
_SPREAD_STATES = 8  # Expand, which spreads a learned state over the batch, came with opset 8
_REVERSED_SLICE = 10  # Slice with a negative step came with opset 10

_NOT_IN_ONNXRUNTIME = ("float64", "bfloat16")
"""Element types that ONNX has but onnxruntime 1.31 does not run: "LSTM operator does not support double yet"."""

Arrays = dict[str, "Array | PiecewiseArray"]


def build(job: Job) -> tuple[onnx.ModelProto, Arrays, list[str]]:
    """Return the model without its numbers, the numbers by initializer, and what a user should know.

    Raises RefusedError or UsageError where the operator set asked for lacks what a layer needs.
    """
    dtypes = {(job.dtype or part.stack.dtype).newbyteorder("=") for part in job.parts}
    opset = job.options.number("opset", 22 if BFLOAT16 in dtypes else 17)
    if opset not in _OPSETS:
        raise UsageError(f"opset is {opset}. Choose one from {_OPSETS.start} to {_OPSETS.stop - 1}")
    if BFLOAT16 in dtypes and opset < 22:
        raise RefusedError(
            "bfloat16",
            f"ONNX opset {opset}",
            "its recurrent operators support it from opset 22 on",
            f"Use {Setting('opset', '22')}, or {Flag('dtype', 'float32')}.",
        )
    graph = _OnnxGraph(opset)
    notes = []
    for part in job.parts:
        prefix = "" if len(job.parts) == 1 else f"{part.stack.name}/"
        stack = _StackNodes(graph, part, prefix, job)
        stack.add()
        notes.append(f"{part.stack.name}: {stack.signature()}".removeprefix(": "))
    lacking = sorted(str(dtype) for dtype in dtypes if str(dtype) in _NOT_IN_ONNXRUNTIME)
    if lacking:
        notes.append(
            f"onnxruntime has no recurrent operators for {' and '.join(lacking)}. To run this model there, write it with "
            f"{Flag('dtype', 'float32')}"
        )
    proto = helper.make_graph(graph.nodes, "recurrent", graph.inputs, graph.outputs, graph.initializers())
    model = helper.make_model(
        proto,
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=max(4, helper.find_min_ir_version_for([helper.make_opsetid("", opset)])),
        producer_name="rnnconvert",
    )
    return model, graph.arrays, notes


class _OnnxGraph(ProtoNodes):
    """A graph under construction."""

    def __init__(self, opset: int) -> None:
        super().__init__()
        self.opset = opset
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def index(self, *values: int) -> str:
        """Return a constant of integers; one number is a scalar with the name of a list's only element."""
        return self.shared("index_" + "_".join(map(str, values)).replace("-", "m"), np.array(values, np.int64))

    def scalar(self, value: int) -> str:
        return self.shared(f"scalar_{value}", np.array(value, np.int64))


class _StackNodes:
    """One stack, written into a graph."""

    def __init__(self, graph: _OnnxGraph, part: Fitted, prefix: str, job: Job) -> None:
        self.graph, self.prefix, self.job = graph, prefix, job
        self.stack, self.layout = part.stack, part.layout
        self.dtype = (job.dtype or part.stack.dtype).newbyteorder("=")
        self.units = [unit for layer in part.stack.layers for unit in units(layer)]
        self.alike = len({unit[0].hidden_size for unit in self.units}) == 1
        self.lengths = ""
        self.batch_first = job.options.true("batch_first")
        self.left_to_caller = any(step.rewrite == "initial_state" for step in part.steps)
        self.states_given = self._states_given()

    def name(self, local: str) -> str:
        return self.prefix + local

    def signature(self) -> str:
        """Say how to call the model: its inputs and outputs with their axes."""
        inputs, outputs = (
            ", ".join(f"{value.name} {self._axes_of(value)}" for value in values if value.name.startswith(self.prefix))
            for values in (self.graph.inputs, self.graph.outputs)
        )
        more = [f"{Setting('batch_first', 'true')} puts the batch first"] * (not self.batch_first)
        more += [f"{Setting('sequence_lens', 'true')} adds an input for the lengths"] * (not self.lengths)
        return f"inputs {inputs}; outputs {outputs}; {'; '.join([*more, self._start()])}"

    def _start(self) -> str:
        """Return the sentence on what the layers start from."""
        directions = [direction for _, _, direction in self.stack.directions()]
        if not self.states_given:
            learned = any(map(_learned, directions))
            if learned:
                return "learned initial states are constants of the model"
            as_inputs, streamed = Setting("states", "input"), Setting("states", "stream")
            return f"the initial states are zeros; make them inputs with {as_inputs}, or for streaming with {streamed}"
        computed = " or ".join(dict.fromkeys(call.states for call in self.stack.calls if call.states not in ("", INPUT)))
        first = "the learned initial states" if self.left_to_caller else f"the model's own ({computed})" if computed else "zeros"
        pairs = " and ".join(f"{letter}_n for initial_{letter}" for letter in ("hc" if self._having("c") else "h"))
        on = "" if any(d.reverse for d in directions) else f", and {pairs} where it goes on"
        return f"give {first} where a sequence begins{on}"

    def _axes_of(self, value: onnx.ValueInfoProto) -> str:
        terms = [axis.dim_param.removeprefix(self.prefix) or str(axis.dim_value) for axis in value.type.tensor_type.shape.dim]
        return f"({', '.join(terms)}{',' if len(terms) == 1 else ''})"

    def axes(self, *names: Any) -> list[Any]:
        """Return the axes of an input or output; named axes get the stack's prefix, since each stack has different lengths."""
        return [self.prefix + name if isinstance(name, str) else name for name in names]

    def _input(self, local: str, shape: Sequence[Any], kind: int) -> str:
        name = self.name(local)
        self.graph.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def _output(self, value: str, local: str, shape: Sequence[Any]) -> None:
        name = self.name(local)
        self.graph.add("Identity", [value], name)
        self.graph.outputs.append(helper.make_tensor_value_info(name, code_of(self.dtype), shape))

    def add(self) -> None:
        """Add every node of the stack, its inputs and its outputs."""
        below = [self._by_time(self._input("x", self._sequence_axes(self.stack.input_size), code_of(self.dtype)), "x_by_time")]
        if self.job.options.true("sequence_lens"):
            self.lengths = self._input("sequence_lens", self.axes("batch"), TensorProto.INT32)
        states = self._state_inputs() if self.states_given else self._learned_states(below[0])
        finals: dict[str, list[str]] = {"h": [], "c": []}
        last = self.stack.num_layers - 1
        number = 0
        for index, layer in enumerate(self.stack.layers):
            sequences: list[str] = []
            for unit in units(layer):
                single = Recurrent(self.stack.name, (Layer(unit),))
                label = f"l{index}" if len(unit) == len(layer.directions) else f"l{index}_{len(sequences)}"
                y = self._node(single, label, below[0], states[number], finals)
                for direction in range(len(unit)):
                    row = self.graph.scalar(direction)
                    sequences.append(self.graph.add("Gather", [y, row], self.name(f"{label}_y{direction}"), axis=1))
                number += 1
            if index == last:
                sequences = self._read_out(sequences)
            below = self._merge(sequences, layer.merge, f"l{index}", last=index == last)
        self._finish(below, finals)

    def _states_given(self) -> bool:
        """Return whether every call gives the initial states.

        Raises RefusedError for learned states that would be lost so.
        """
        how = self.job.options.get("states", self.stack.name)
        learned = any(_learned(direction) for _, _, direction in self.stack.directions())
        passed = how is None and not learned and any(call.states for call in self.stack.calls)
        asked = how in ("input", "stream")
        if how == "stream" and any(direction.reverse for _, _, direction in self.stack.directions()):
            raise RefusedError(
                "a direction that reads from the end",
                "ONNX with states=stream",
                "its first step is the last one of the sequence, so a sequence in pieces gives other numbers",
                "Leave out states=stream, and give whole sequences.",
                self.stack.name,
            )
        if asked and learned:
            raise RefusedError(
                "a learned initial state",
                f"ONNX with states={how}",
                "every call would give other initial states, so the learned ones would be lost",
                f"Leave out states={how} to keep them as constants; or add {Setting('initial_state', 'call')}, and pass them at every "
                "call.",
                self.stack.name,
            )
        return asked or passed or self.left_to_caller

    def _state_inputs(self) -> list[dict[str, str]]:
        """Return for each node its states, which are inputs of the model."""
        states: list[dict[str, str]] = [{} for _ in self.units]
        for letter in "hc":
            local, having = f"initial_{letter}", self._having(letter)
            groups = [having] if self.alike else [[n] for n in having]
            for group in filter(None, groups):
                rows = sum(len(self.units[n]) for n in group)
                axes = self.axes(rows, "batch", self.units[group[0]][0].hidden_size)
                value = self._input(local if self.alike else f"{local}_{group[0]}", axes, code_of(self.dtype))
                start = 0
                for n in group:
                    stop = start + len(self.units[n])
                    states[n][local] = value
                    if rows > stop - start:
                        picked = [value, self.graph.index(*range(start, stop))]
                        states[n][local] = self.graph.add("Gather", picked, self.name(f"{local}_n{n}"), axis=0)
                    start = stop
        return states

    def _learned_states(self, x: str) -> list[dict[str, str]]:
        """Return for each node its learned states, spread over the batch; none where they are zero."""
        states: list[dict[str, str]] = [{} for _ in self.units]
        batch = ""
        for n, unit in enumerate(self.units):
            for letter, part in (("h", "initial_hidden"), ("c", "initial_cell")):
                rows = np.stack([_state(direction, part, self.dtype) for direction in unit])[:, None, :]
                if n not in self._having(letter) or not rows.any():
                    continue
                if self.graph.opset < _SPREAD_STATES:
                    raise RefusedError(
                        "a learned initial state",
                        f"ONNX opset {self.graph.opset}",
                        "spreading it over the batch needs Expand, which came with opset 8",
                        f"Use {Setting('opset', 8)} or more.",
                        self.stack.name,
                    )
                if not batch:
                    shape = self.graph.add("Shape", [x], self.name("x_shape"))
                    batch = self.graph.add("Gather", [shape, self.graph.index(1)], self.name("batch_size"), axis=0)
                local = f"initial_{letter}" + (f"_{n}" if len(self.units) > 1 else "")
                value = self.graph.constant(self.name(local), rows)
                sizes = [self.graph.index(len(unit)), batch, self.graph.index(rows.shape[2])]
                size = self.graph.add("Concat", sizes, self.name(f"{local}_shape"), axis=0)
                spread = self.graph.add("Expand", [value, size], self.name(f"{local}_spread"))
                states[n][f"initial_{letter}"] = spread
        return states

    def _having(self, letter: str) -> list[int]:
        """Return the nodes that have a state: all have h, LSTMs have c."""
        return [n for n, unit in enumerate(self.units) if letter == "h" or unit[0].cell.kind == "lstm"]

    def _node(self, single: Recurrent, label: str, x: str, states: dict[str, str], finals: dict[str, list[str]]) -> str:
        layout = self._layout(single.cell)
        stateless = single.replace(layers=tuple(Layer(tuple(map(_without_states, la.directions))) for la in single.layers))
        packed = pack(layout, stateless, self.job.dtype, self.job.watch)
        constants = {local: self.graph.constant(self.name(f"{label}/{local}"), array) for local, array in packed.items()}
        slots = ["W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]
        values = {**constants, **states, "sequence_lens": self.lengths}
        inputs = [x, *(values.get(slot, "") for slot in slots)]
        if layout.kind != "lstm":
            inputs = inputs[:6]
        while not inputs[-1]:
            inputs.pop()
        outputs = [self.name(f"{label}/Y"), self.name(f"{label}/Y_h")]
        finals["h"].append(outputs[1])
        if layout.kind == "lstm":
            outputs.append(self.name(f"{label}/Y_c"))
            finals["c"].append(outputs[2])
        settings = attributes(single)
        # Readers name a layer after its node, and programs in other languages what is made of it.
        name = "_".join([self.stack.name or layout.kind, *([label] if len(self.units) > 1 else [])])
        self.graph.node(_OPERATORS[layout.kind], inputs, outputs, name, **settings)
        return outputs[0]

    def _layout(self, cell: Cell) -> Layout:
        """Return the operator of a cell; two directions may be two operators."""
        return registry.layout("onnx", cell.kind, cell.reset_after)

    def _read_out(self, sequences: list[str]) -> list[str]:
        projected = []
        for number, (value, matrix) in enumerate(zip(sequences, self.stack.readout or [None] * 2, strict=False)):
            if matrix is None:
                return sequences
            weight = np.asarray(matrix).T.astype(self.dtype, copy=False)
            name = self.graph.constant(self.name(f"projection_{number}"), weight)
            projected.append(self.graph.add("MatMul", [value, name], self.name(f"projected_{number}")))
        return projected

    def _merge(self, sequences: list[str], merge: str, label: str, last: bool) -> list[str]:
        if len(sequences) == 1:
            return sequences
        joined = self.name(f"{label}_joined")
        if merge == "none" and last:
            return sequences
        if merge in ("concat", "none"):
            return [self.graph.add("Concat", sequences, joined, axis=-1 if self.graph.opset >= 11 else 2)]
        value = self.graph.add("Mul" if merge == "mul" else "Add", sequences, joined)
        if merge == "ave":
            half = self.graph.constant(self.name("half"), np.array(0.5, self.dtype))
            value = self.graph.add("Mul", [value, half], self.name(f"{label}_halved"))
        return [value]

    def _finish(self, below: list[str], finals: dict[str, list[str]]) -> None:
        if self.stack.output_order == "processing":
            below = [self._reversed(value) for value in below]
        sizes = _output_sizes(self.stack, len(below))
        for number, (value, size) in enumerate(zip(below, sizes, strict=True)):
            local = "y" if len(below) == 1 else ("y_forward", "y_backward")[number]
            self._output(self._by_time(value, f"{local}_by_batch"), local, self._sequence_axes(size))
        for letter, values in finals.items():
            if not values:
                continue
            having = self._having(letter)
            if not self.alike:
                for number, value in zip(having, values, strict=True):
                    unit = self.units[number]
                    self._output(value, f"{letter}_n_{number}", self.axes(len(unit), "batch", unit[0].hidden_size))
                continue
            rows = sum(len(self.units[number]) for number in having)
            joined = values[0]
            if len(values) > 1:
                joined = self.graph.add("Concat", values, self.name(f"{letter}_all"), axis=0)
            self._output(joined, f"{letter}_n", self.axes(rows, "batch", self.units[0][0].hidden_size))

    def _sequence_axes(self, size: int) -> list[Any]:
        """Return the axes of a sequence among the model's inputs and outputs."""
        return self.axes(*(("batch", "time") if self.batch_first else ("time", "batch")), size)

    def _by_time(self, value: str, local: str) -> str:
        """Return a sequence with time and batch exchanged, where the model's inputs and outputs have the batch first."""
        return self.graph.add("Transpose", [value], self.name(local), perm=[1, 0, 2]) if self.batch_first else value

    def _reversed(self, value: str) -> str:
        if self.graph.opset < _REVERSED_SLICE or self.lengths:
            raise RefusedError(
                "outputs in processing order (go_backwards)",
                f"ONNX opset {self.graph.opset}",
                "reversing them needs Slice with a step, of opset 10, and sequences of equal length",
                f"Use {Setting('opset', 10)} or more, without sequence_lens.",
                self.stack.name,
            )
        ends = self.graph.constant("before_first", np.array([np.iinfo(np.int64).min + 1], np.int64))
        inputs = [value, self.graph.index(-1), ends, self.graph.index(0), self.graph.index(-1)]
        return self.graph.add("Slice", inputs, self.name("y_in_processing_order"))


def units(layer: Layer) -> list[tuple[Direction, ...]]:
    """Return the nodes of a layer: one for both directions where they are alike, else one for each."""
    if len(layer.directions) < 2:
        return [layer.directions]
    first, second = layer.directions
    if first.reverse or not second.reverse:  # a node's two directions are forward and backward
        return [(first,), (second,)]
    alike = Recurrent("", (Layer(layer.directions, "none"),)).uniform or _same_node(first, second)
    return [layer.directions] if alike else [(first,), (second,)]


def _same_node(first: Direction, second: Direction) -> bool:
    """Return whether two directions differ only in their activations, which a node has for each."""
    plain = [
        (d.cell.kind, d.cell.reset_after, d.cell.coupled, d.cell.clips, d.hidden_size, d.biases, d.has_peepholes, d.dtype)
        for d in (first, second)
    ]
    return plain[0] == plain[1]


def _without_states(direction: Direction) -> Direction:
    return direction.with_arrays({key: None for key in direction.arrays if key[0].startswith("initial")})


def _learned(direction: Direction) -> bool:
    """Return whether a direction starts from anything but zeros."""
    states = (direction.get(part) for part in ("initial_hidden", "initial_cell"))
    return any(state is not None and np.asarray(state).any() for state in states)


def _state(direction: Direction, part: str, dtype: np.dtype[Any]) -> Array:
    learned = direction.get(part)
    return np.zeros(direction.hidden_size, dtype) if learned is None else learned.astype(dtype)


def _output_sizes(stack: Recurrent, outputs: int) -> list[int]:
    last = stack.layers[-1]
    readout: Sequence[Source] = stack.readout
    sizes = [matrix.shape[0] for matrix in readout] or [direction.output_size for direction in last.directions]
    if outputs == len(sizes):
        return sizes
    return [sum(sizes)] if last.merge in ("concat", "none") else sizes[:1]


def attributes(single: Recurrent) -> dict[str, Any]:
    layer = single.layers[0]
    cell = layer.directions[0].cell
    if len(layer.directions) == 2:
        direction = "bidirectional"
    elif layer.directions[0].reverse:
        direction = "reverse"
    else:
        direction = "forward"
    settings: dict[str, Any] = {"hidden_size": single.hidden_size, "direction": direction}
    if cell.kind == "gru":
        # Written even where it is the default: a reader that fills defaults in may take another path.
        settings["linear_before_reset"] = int(bool(cell.reset_after))
    if cell.coupled == "f":
        settings["input_forget"] = 1
    for clip in cell.clips:
        settings["clip"] = clip.high
    functions = [function for d in layer.directions for function in _functions(d.cell)]
    if any(d.cell.describe() for d in layer.directions):
        settings["activations"] = [_word(function) for function in functions]
        for key, constants in (
            ("activation_alpha", [f.alpha for f in map(_stated, functions) if f.alpha is not None]),
            ("activation_beta", [f.beta for f in map(_stated, functions) if f.beta is not None]),
        ):
            if constants:
                settings[key] = constants
    return settings


def _functions(cell: Cell) -> list[Activation]:
    if cell.kind == "rnn":
        return [cell.activation]
    return [cell.gate_activation, cell.activation, *([cell.output_activation] if cell.kind == "lstm" else [])]


def _stated(function: Activation) -> Activation:
    """Return the function with every constant that its ONNX spelling takes."""
    return Activation("affine_one", 1.0, 0.0) if function.name == "linear" else function


def _word(function: Activation) -> str:
    """Return ONNX's name of a function: it has no identity but Affine with alpha 1 and beta 0."""
    if function.name == "linear":
        return "Affine"
    return "".join(word.capitalize() for word in function.name.split("_"))
