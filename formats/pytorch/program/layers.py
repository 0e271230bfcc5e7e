"""The calls of recurrent layers in a program: what each receives, and which of its states are learned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.weights import Call, Layer, Recurrent, Unconvertible, Unknown
from rnnconvert.formats.pytorch import aten
from rnnconvert.formats.pytorch.program import cells
from rnnconvert.formats.pytorch.program import written as program_written
from rnnconvert.formats.pytorch.program.kinds import BRANCH, CELLS, PACKED, RECURRENT, STEPS
from rnnconvert.formats.pytorch.program.program import OperatorCall, OperatorProgram, Ref, lower, refs
from rnnconvert.formats.pytorch.program.states import GivenStates, between
from rnnconvert.formats.pytorch.program.states import kept_names as kept_by
from rnnconvert.graphs.between import calls
from rnnconvert.graphs.graph import CallSizes, Dims, Graph
from rnnconvert.graphs.operators import SAME, Computes

NOT_CALLED = "the model's code shows no call of it that can be followed"


@dataclass
class Received:
    """A program's statements about its layers.

    calls          the calls of each layer
    learned        for each layer that begins with parameters: their arrays, by layer and direction
    unconvertible  further operations of the program on a layer
    warnings       warnings for the user
    """

    calls: dict[str, tuple[Call, ...]] = field(default_factory=dict)
    learned: dict[str, Mapping[str, Array]] = field(default_factory=dict)
    unconvertible: dict[str, Unconvertible] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def of(self, stack: Recurrent) -> Recurrent:
        """Return a layer with what the program states of it."""
        extra = self.unconvertible.get(stack.name)
        learned = self.learned.get(stack.name, {})
        layers = stack.layers
        if learned:
            layers = tuple(
                Layer(
                    tuple(
                        direction.with_arrays(
                            {(part, ""): array[level * len(layer.directions) + number] for part, array in learned.items()}
                        )
                        for number, direction in enumerate(layer.directions)
                    ),
                    layer.merge,
                )
                for level, layer in enumerate(stack.layers)
            )
        return stack.replace(
            layers=layers, calls=self.calls[stack.name], unconvertible=(*stack.unconvertible, *([extra] if extra is not None else []))
        )


def unfollowed(layers: Iterable[str], why: str) -> Received:
    """Return calls of layers of which nothing is known, with the reason."""
    return Received({name: (Call(Unknown(why, stated=True)),) for name in layers})


def received(
    program: OperatorProgram, layers: Mapping[str, Recurrent], weights: Mapping[str, Mapping[str, str]], arrays: Mapping[str, Array]
) -> Received:
    """Return the calls of the layers of a program, with all that they receive.

    weights  the names of each layer's arrays: its own, and the file's
    arrays   every array by its name
    """
    owners = {full: (name, local) for name, names in weights.items() for local, full in names.items()}
    builder = _Calls(program, layers, owners, arrays)
    received_calls = calls(builder.graph(), parts=False)
    result = Received(
        {name: received_calls.get(name, builder.others.get(name, (Call(Unknown(NOT_CALLED, stated=True)),))) for name in layers}
    )
    result.unconvertible = builder.unconvertible
    result.warnings += builder.warnings
    for name, several in result.calls.items():
        learned = builder.learned().get(name, [])
        if len(several) == 1 and len(learned) == 1 and learned[0]:
            result.learned[name] = learned[0]
        elif any(learned):
            several = tuple(replace(call, states=call.states or "learned ones, of one call among several") for call in several)
            result.calls[name] = several
        result.warnings += _warnings(name, several)
    return result


def _warnings(name: str, several: tuple[Call, ...]) -> Iterator[str]:
    states = dict.fromkeys(call.states for call in several if call.states)
    if states:
        yield LayerNote(
            name, f"the model gives its initial state ({', '.join(states)}): pass it at every call", unnamed="the module itself"
        )
    if len(several) > 1:
        yield LayerNote(
            name,
            f"the model calls it {len(several)} times; a conversion writes the layer, and not what the model makes of it",
            unnamed="the module itself",
        )


class _Calls:
    """The calls of a program in the making."""

    def __init__(
        self, program: OperatorProgram, layers: Mapping[str, Recurrent], owners: Mapping[str, tuple[str, str]], arrays: Mapping[str, Array]
    ) -> None:
        self._program, self._layers, self._owners, self._arrays = program, layers, owners, arrays
        self._graph = Graph(aten.DIALECT)
        self._owned: dict[OperatorCall, str] = {}
        self._states = GivenStates(program, self._owned, arrays)
        self.unconvertible: dict[str, Unconvertible] = {}
        self.others: dict[str, tuple[Call, ...]] = {}
        self.warnings: list[str] = []

    def learned(self) -> Mapping[str, list[dict[str, Array]]]:
        """Return the learned states of each layer, for each of its calls."""
        return self._states.learned

    def graph(self) -> Graph:
        """Return the program's graph with its calls of layers."""
        operations = self._program.operations
        for operation in operations:
            if operation.kind in (*RECURRENT, *CELLS) and (owner := self._owner(operation)) is not None:
                self._owned[operation] = owner
        steps, products = program_written.written_out(operations, self._owners)
        for operation, name in self._owned.items():
            if operation.kind in CELLS and (step := cells.native(operation)) is not None:
                steps.setdefault(name, []).append(step)
        runs = {name: cells.runs(several) for name, several in steps.items()}
        for name, count in products.items():
            self._written_out(name, count, runs.get(name))
        # What a run of a cell gives comes from the layer.
        excluded = {
            ref.operation for name, several in steps.items() if not runs[name].reasons for step in several for ref in step.outputs()
        }
        for operation in operations:
            for ref in refs(operation.inputs):
                if ref.stored in self._arrays:
                    self._graph.describe(ref, self._arrays[ref.stored].shape)
                elif ref.operation is None and ref.dims is not None:
                    self._graph.describe(ref, ref.dims)
            recurrent = operation in self._owned and operation.kind in RECURRENT
            if operation not in excluded and not (recurrent and self._sequence(operation, self._owned[operation])):
                lower(self._graph, operation)
        for name, run in runs.items():
            self._cells(name, run)
        return self._graph

    def _written_out(self, name: str, count: int, runs: cells.CellRuns | None) -> None:
        """Note products with a layer's recurrent weights that do not belong to steps as PyTorch writes them."""
        if runs is not None:
            runs.reasons.append(f"{count} of its steps are written out as other operators than PyTorch's cell")
            return
        why = f"the model multiplies with its weights in {count} places, in steps that are written out and not compared with PyTorch's"
        self.others[name] = (Call(Unknown(why, stated=True)),)
        self.warnings.append(LayerNote(name, str(why), unnamed="the module itself"))

    def _owner(self, operation: OperatorCall) -> str | None:
        """Return the layer whose weights an operator reads."""
        weights = (
            operation.inputs[2:]
            if operation.kind in CELLS
            else [argument for argument in operation.inputs[1:] if isinstance(argument, list)]
        )
        names = {
            self._owners[name][0]
            for name in kept_by(refs(weights[-1:] if operation.kind in RECURRENT else weights))
            if name in self._owners
        }
        return names.pop() if len(names) == 1 else None

    def _sequence(self, operation: OperatorCall, name: str) -> bool:
        """Note a call of a layer on a whole sequence; return whether its arguments have the form that is known."""
        inputs, stack = operation.inputs, self._layers[name]
        packed = not isinstance(inputs[1 if operation.kind == "lstm" else 2], list)
        constants = inputs[4 if packed else 3 :]
        if (
            not isinstance(inputs[0], Ref)
            or len(constants) < 5
            or not all(isinstance(constant, bool | int | float) for constant in constants)
        ):
            return False
        self._weights(name, next(operand for operand in reversed(inputs[: 4 if packed else 3]) if isinstance(operand, list)))
        states, batch_first = inputs[2 if packed else 1], not packed and bool(constants[-1])
        hidden, directions = stack.first.output_size, stack.num_directions
        dropout, train = constants[2], constants[3]
        facts = Call(
            Unknown(""),
            self._states.words_of_states(stack, states if isinstance(states, list) else [states]),
            lengths=self._states.lengths(inputs[1]) if packed else "",
            random="dropout between its layers, which is on" if dropout and train and stack.num_layers > 1 else "",
        )
        order = "bt" if batch_first else "tb"
        sequence: Any = inputs[0]
        output: Any = operation.outputs.get(0)
        if packed:
            before = inputs[0].operation
            if before is not None and before.kind == "pack":
                describe(before.inputs[0], lengths(before.attributes["batch_first"], stack), self._graph)
            sequence = (operation, "steps")
            self._graph.add(STEPS, [inputs[0], inputs[1]], [sequence])
            if output is not None:
                self._graph.add(PACKED, [(operation, "output")], [output])
                output = (operation, "output")
        else:
            describe(inputs[0], lengths(batch_first, stack), self._graph)
        self._graph.call(
            name,
            (sequence, f"{order}i"),
            {} if output is None else {output: f"{order}u"},
            {ref: _STATES[min(number, 2)] for number, ref in operation.outputs.items() if number},
            sizes=CallSizes(hidden, directions=directions, dtype=stack.dtype.newbyteorder("="), width=stack.input_size),
            received=facts,
        )
        return True

    def _weights(self, name: str, weights: list[Any]) -> None:
        """Note weights that the model computes from the layer's own before it uses them."""
        for weight in weights:
            value = cells.plain(weight)
            if isinstance(value, Ref) and not value.stored and kept_by([value]) & self._owners.keys():
                labels = dict.fromkeys(operation.label for operation in between(value))
                reason = f"its weights go through {', '.join([*labels][:4])} in the model"
                self.unconvertible[name] = Unconvertible("unaccounted", "weights that the model computes", reason)

    def _cells(self, name: str, several: cells.CellRuns) -> None:
        """Note the runs of a cell, or why they are not a layer's."""
        stack = self._layers[name]
        if several.reasons:
            reason = "; ".join(dict.fromkeys(several.reasons))
            self.unconvertible[name] = Unconvertible("unaccounted", "the model's loop round the cell", reason)
            self.others[name] = (Call(Unknown(f"the model's loop round the cell is not a layer's: {reason}", stated=True)),)
            return
        for run in several.runs:
            first = run.steps[0]
            key, output = (first.operation, "steps"), (first.operation, "sequence")
            if run.sequence is not None:
                sequence: tuple[Any, str] = run.sequence
            else:
                self._graph.add("stack", [step.x for step in run.steps], [key], {"dim": 0}, "stack")
                self._graph.describe(key, [len(run.steps), "batch", stack.input_size])
                sequence = (key, "tbi")
            begins = [first.h, *([] if first.c is None else [first.c])] if run.first is None else list(run.first)
            states: dict[Any, str] = {}
            for number, step in enumerate(run.steps):
                if step.next_c is not None:
                    states[step.next_c] = "a cell state"
                if run.first is not None and step.next_h is not None:
                    states[step.next_h] = "an output in a loop"
                elif step.next_h is not None:
                    place = (step.operation, "number")
                    self._graph.constant((*place, "axis"), np.asarray(0))
                    self._graph.constant(place, np.asarray(number))
                    self._graph.add("select", [output, (*place, "axis"), place], [step.next_h], label="select")
            facts = Call(Unknown(""), self._states.words_of_states(stack, begins, True))
            self._graph.call(
                name,
                sequence,
                {} if run.first is not None else {output: "tbu"},
                states,
                sizes=CallSizes(stack.first.output_size, dtype=stack.dtype.newbyteorder("="), width=stack.input_size),
                received=facts,
            )


_STATES = ("", "the final hidden state", "the final cell state")


# The axes of what layers read, in programs that do not state them.

_VISITED = 1 << 12
"""The most operators that are followed back from a layer."""


def lengths(batch_first: bool, stack: Recurrent) -> Dims:
    """Return the axes of what a layer reads: time and batch have one name for all layers, which mostly share them."""
    return ["batch", "time", stack.input_size] if batch_first else ["time", "batch", stack.input_size]


def describe(value: Any, dims: Dims, graph: Graph) -> None:
    """Note the axes of what a layer reads, if nothing states them; back through what keeps or permutes axes to an input."""
    for _ in range(_VISITED):
        if not isinstance(value, Ref) or value.dims is not None or value.stored:
            return
        before = _before(value, dims)
        if before is None:
            value.dims = dims
            graph.describe(value, dims)
            return
        value, dims = before


def _before(value: Ref, dims: Dims) -> tuple[Any, Dims] | None:
    """Return the input from which an operator gives axes of some lengths, and the lengths of its axes; None if that is unknown."""
    operation = value.operation
    if operation is None or not operation.inputs:
        return None
    first = operation.inputs[0]
    numbers = [number for number in operation.inputs[1:] if isinstance(number, int)]
    operator = aten.DIALECT.get(operation.kind)
    if operation.kind == BRANCH:
        return (cells.plain(value), dims) if cells.plain(value) is not value else None
    if operation.kind == "transpose" and len(numbers) == 2:
        order = list(range(len(dims)))
        first_axis, other = (number % len(dims) for number in numbers)
        order[first_axis], order[other] = order[other], order[first_axis]
        return first, [dims[axis] for axis in order]
    if operation.kind == "unsqueeze" and len(numbers) == 1 and -len(dims) <= numbers[0] < len(dims):
        return first, [length for axis, length in enumerate(dims) if axis != numbers[0] % len(dims)]
    if operation.kind == "embedding":
        return operation.inputs[1], dims[:-1]
    if operation.kind == "linear":
        return first, [*dims[:-1], None]
    computes = isinstance(operator, Computes) and sum(1 for _ in refs(operation.inputs)) == 1
    return (first, dims) if operator is SAME or computes else None
