"""Recurrent layers that a TFLite graph computes in other operators: WHILE, and steps that are written out.

The graph is written in the common operations, a WHILE as a Loop; in these the layers are recognized and proved (rnnconvert/recognition).
A product of float numbers with a matrix of integers is that with the numbers that these stand for;
other quantized tensors are left alone: no formula of theirs is exact.

Source: tensorflow/lite/schema/schema.fbs; tensorflow/lite/kernels/while.cc; kernels/fully_connected.cc, EvalHybrid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.claims import ROUNDED
from rnnconvert.core.names import is_count
from rnnconvert.core.notes import INTEGERS, LayerNote
from rnnconvert.core.weights import Call
from rnnconvert.formats.tflite import lists, variables
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.graph import Operator, Subgraph, SubgraphTensor, TfliteFile
from rnnconvert.formats.tflite.operators import StoredBuffers, Written, dtype
from rnnconvert.formats.tflite.variables import changes
from rnnconvert.graphs.program.lowering import OPSET, Block, LoopLowering, Variable
from rnnconvert.graphs.program.operations import Body, Declared, Operation, Program
from rnnconvert.recognition import lowered
from rnnconvert.recognition.computed import Computed, RecognisedLayers
from rnnconvert.recognition.flow import RecurrentCall

__all__ = ["Loops", "bodies", "quantised", "read", "tensors"]

_LATER = re.compile(r"^while;|(/while(_\d+)?(/LoopCond/_\d+)?|/StatefulPartitionedCall(_\d+)?|/(MatMul|BiasAdd|add)(_\d+)?)+(;.*)?$")
_MOST_SHOWN = 4
_LACKING = (
    "its weights are not in the file: it reads variables ({names}) that nothing gives a value, and TFLite cannot run it either. Convert "
    "the model again with its variables as constants: TFLiteConverter.from_keras_model, or from_concrete_functions without the "
    "model behind the functions"
)
_CHANGED = "it reads variables ({names}) that the model changes while it runs, and a layer's weights do not change"


@dataclass
class Loops(RecognisedLayers):
    """The layers that the main graph computes, with further facts.

    stored  the numbers that their operators read, by where they lie
    calls   the calls of recurrent operators, by the layer's name
    """

    stored: dict[int, Array] = field(default_factory=dict)
    calls: Mapping[str, tuple[Call, ...]] = field(default_factory=dict)

    def reads(self, tensor: SubgraphTensor, idle: bool) -> bool:
        """Return whether the operators of a layer read a tensor, under this name or another.

        idle  whether no operator reads it; converters leave copies of what a loop holds in the graph around it
        """
        stored = tensor.stored
        if stored is None or stored.ctypes.data in self.stored:
            return stored is not None
        return idle and any(stored.shape == array.shape and np.array_equal(stored, array) for array in self.stored.values())


def read(path: Path, model: TfliteFile, homes: Mapping[str, RecurrentCall] = MappingProxyType({})) -> Loops:
    """Return the layers that the main graph computes, and what its recurrent operators receive."""
    lowering = Lowering(path, model)
    looked, calls = lowered.recognise_in(lowering.program, _LATER, homes.items())
    result = Loops(looked.layers, {**looked.reasons, **_lost(looked, lowering)}, looked.scopes, looked.cells, calls=calls)
    for name, layer in looked.layers.items():
        values = _values(layer.nodes)
        types = sorted({lowering.stored.types[value] for value in values if value in lowering.stored.types})
        if types:
            warning = quantised(name, types, "its input and its states")
            result.layers[name] = replace(layer, warnings=(*layer.warnings, warning))
        sources = lowering.stored.sources
        result.stored |= {sources[value].ctypes.data: sources[value] for value in values if value in sources}
    return result


def received_in(path: Path, model: TfliteFile, number: int, homes: Mapping[str, RecurrentCall]) -> dict[str, tuple[Call, ...]]:
    """Return the calls of the recurrent operators of another graph than the main one."""
    return lowered.received_in(lambda: Lowering(path, model).program(number), homes.items())


def _lost(looked: RecognisedLayers, lowering: Lowering) -> dict[str, str]:
    """Return for each loop that is not read, and for the main graph without layers, which numbers the file lacks."""
    why = _CHANGED if changes(lowering.model) else _LACKING
    return {
        label: why.format(names=", ".join(map(repr, names[:_MOST_SHOWN])))
        for label, names in lowering.lost.items()
        if names and (label in looked.reasons or not looked.layers)
    }


def quantised(name: str, types: Sequence[str], rounded: str) -> LayerNote:
    """Return the note on a layer whose weights are not stored as float32.

    types    their element types
    rounded  further values that kernels for integers round
    """
    text = f"its weights are stored as {' and '.join(types)}, and are read as the float numbers that these stand for."
    if not any("int" in kind for kind in types):
        return LayerNote(name, text)
    return LayerNote(name, f"{text} TFLite's kernel for integers also rounds {rounded}, {ROUNDED}", INTEGERS)


def _values(nodes: Iterable[Operation]) -> set[str]:
    """Return the values that some nodes read, and those that graphs inside them read."""
    values: set[str] = set()
    for node in nodes:
        values.update(node.inputs)
        for _, body in node.bodies:
            values |= _values(body.nodes)
    return values


def tensors(layer: Computed) -> set[int]:
    """Return the tensors of the main graph that a layer's operators read."""
    return {int(name) for node in layer.nodes for name in node.reads if is_count(name)}


def bodies(operator: Operator) -> set[int]:
    """Return the graphs of a WHILE, by their numbers."""
    options = operator.options
    return set() if options is None else {int(options.number(field, "i")) for field in (0, 1)}


_LIST = 14
"""The number of the element type of a list of tensors (VARIANT)."""


class Lowering:
    """A model on its way.

    stored  its numbers
    lost    variables that hold nothing, by the label of the loop that reads them; "" for the main graph
    """

    def __init__(self, path: Path, model: TfliteFile) -> None:
        self.model, self.stored = model, StoredBuffers(path)
        self.lost: dict[str, list[str]] = {}
        self._values = variables.initial(model)
        self._handles: Mapping[int, str] = {}

    def program(self, number: int = 0) -> Program:
        """Return the main graph of the model, or another one."""
        graph, self._handles, self.lost[""] = variables.resolved(self.model.graphs[number], {}, self._values)
        arrays = self.stored.arrays
        block = Block("", arrays)
        self.stored.constants(graph, block, "")
        for operator in graph.operators:
            self._write(graph, operator, block, "")
        declared = [
            # A file does not tell a number from what is of any number of axes.
            Declared(str(place), dtype(tensor), None if tensor.kind == _LIST or not tensor.dims else _axes(graph, place))
            for place, tensor in enumerate(graph.tensors)
            if str(place) not in arrays
        ]
        inputs = [str(place) for place in graph.inputs if str(place) not in arrays]
        main = Body(block.nodes, inputs, [str(place) for place in graph.outputs], block.stored, declared)
        path = self.stored.path
        return Program(path, main, {"": OPSET}, size=path.stat().st_size if path.is_file() else 0)

    def _write(self, graph: Subgraph, operator: Operator, block: Block, prefix: str) -> None:
        """Add the nodes of an operator; one of another domain where it has no equivalent here.

        One without outputs, as those that fill a variable, gives no value.
        """
        if not operator.outputs:
            return
        written, block.operator = Written(self.stored, graph, operator, block, prefix), operator.label
        if operator.code != s.WHILE or prefix or not self._loop(written):
            written.write()
        block.operator = None

    def _loop(self, written: Written) -> bool:
        """Write a WHILE; return whether its graphs are there."""
        graphs, operator = self.model.graphs, written.operator
        going, steps = (graphs[at] if 0 < at < len(graphs) else None for at in (written.option(0, "i"), written.option(1, "i")))
        count = len(operator.inputs)
        if going is None or steps is None or not count == len(steps.inputs) == len(steps.outputs) == len(going.inputs):
            return False
        fixed = lists.handed_on(operator, steps)
        handed = {
            steps.inputs[number]: self._handles[operator.inputs[number]] for number in fixed if operator.inputs[number] in self._handles
        }
        body, _, lost = variables.resolved(lists.with_constants(written.graph, operator, steps), handed, self._values)
        if lost:
            self.lost[written.label] = lost
        prefix = f"{written.label}/body/"
        block = Block(prefix, self.stored.arrays)
        self.stored.constants(body, block, prefix)
        for inner in body.operators:
            self._write(body, inner, block, prefix)
        first = [written.name(place) for place in operator.inputs]
        begins = self._going(going, first, written.block, f"{written.label}/first/")
        after = [f"{prefix}{place}" for place in body.outputs]
        goes_on = self._going(going, after, block, f"{written.label}/next/")
        states, collected, single = list[Variable](), list[tuple[str, str]](), list[Variable]()
        loop = lists.WhileLoop(written.graph, operator, going, body)

        def variable(number: int, value: int) -> Variable:
            place = body.inputs[number]
            inside = f"{prefix}{place}"
            return Variable(first[number], dtype(body.tensors[place]), inside, f"{prefix}{value}", written.outputs[number])

        for number, (inner_, outer) in enumerate(zip(body.outputs, written.outputs, strict=True)):
            if body.inputs[number] in handed and not lost:
                continue
            if number in fixed:
                if body.tensors[body.inputs[number]].stored is None:
                    states.append(variable(number, body.inputs[number]))
                elif first[number] in self.stored.arrays:
                    written.block.add("Identity", [first[number]], [outer])
                continue
            item = loop.each(number)
            last = loop.last(number)
            if item is not None:
                collected.append((f"{prefix}{item}", outer))
            elif last is not None:
                single.append(variable(number, last))
            else:
                states.append(variable(number, inner_))
        written.block.operator = operator.label
        LoopLowering(written.label, begins, goes_on, states, single, collected).write(written.block, block)
        return True

    def _going(self, graph: Subgraph, values: Sequence[str], block: Block, prefix: str) -> str:
        """Write the condition under which a loop goes on; return its value."""
        self.stored.constants(graph, block, prefix)
        for place, value in zip(graph.inputs, values, strict=True):
            block.add("Identity", [value], [f"{prefix}{place}"])
        for operator in graph.operators:
            self._write(graph, operator, block, prefix)
        return f"{prefix}{graph.outputs[0]}"


def _axes(graph: Subgraph, place: int) -> list[int | str | None]:
    """Return the axes of a tensor; an axis of any length has a name if a run of the graph gives its length."""
    if place not in graph.inputs:
        return [*graph.tensors[place].dims]
    return [f"{place} {axis}" if length is None else length for axis, length in enumerate(graph.tensors[place].dims)]
