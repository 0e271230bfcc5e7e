"""A TFLite model in the common operations, in which a WHILE is a Loop.

Source: tensorflow/lite/schema/schema.fbs; tensorflow/lite/kernels/while.cc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rnnconvert.formats.tflite import lists, variables
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.graph import Operator, Subgraph, TfliteFile
from rnnconvert.formats.tflite.operators import StoredBuffers, Written, dtype
from rnnconvert.graphs.program.lowering import OPSET, Block, LoopLowering, Variable
from rnnconvert.graphs.program.operations import Body, Declared, Program

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
