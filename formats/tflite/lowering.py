"""A TFLite model as a graph of ONNX's in memory, in which a WHILE is a Loop.

Source: tensorflow/lite/schema/schema.fbs; tensorflow/lite/kernels/while.cc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from rnnconvert.core.arrays import Array
from rnnconvert.formats.tflite import lists, variables
from rnnconvert.formats.tflite import schema as s
from rnnconvert.formats.tflite.graph import Graph, Model, Operator
from rnnconvert.formats.tflite.operators import KINDS, Stored, Written
from rnnconvert.graphs.program.block import Block, needed

_LIST = 14
"""The number of the element type of a list of tensors (VARIANT)."""


class Lowering:
    """A model on its way.

    stored  its numbers
    lost    variables that hold nothing, by the label of the loop that reads them; "" for the main graph
    """

    def __init__(self, path: Path, model: Model) -> None:
        self.model, self.stored = model, Stored(path)
        self.lost: dict[str, list[str]] = {}
        self._values = variables.initial(model)
        self._handles: Mapping[int, str] = {}

    def message(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """Return the model, and its stored numbers."""
        graph, self._handles, self.lost[""] = variables.resolved(self.model.graphs[0], {}, self._values)
        arrays = self.stored.arrays
        block = Block("", arrays)
        self.stored.constants(graph, block, "")
        for operator in graph.operators:
            self._write(graph, operator, block, "")
        made = onnx.ModelProto(ir_version=8)
        made.opset_import.append(helper.make_opsetid("", 12))
        made.graph.node.extend(block.nodes)
        made.graph.initializer.extend(block.tensors())
        for place, tensor in enumerate(graph.tensors):
            if str(place) not in arrays:
                field = made.graph.input if place in graph.inputs else made.graph.value_info
                # A file does not tell a number from what is of any number of axes.
                dims = None if tensor.kind == _LIST or not tensor.dims else list(tensor.dims)
                field.append(helper.make_tensor_value_info(str(place), KINDS.get(tensor.kind, 1), dims))
        made.graph.output.extend(onnx.ValueInfoProto(name=str(place)) for place in graph.outputs)
        return made, arrays

    def _write(self, graph: Graph, operator: Operator, block: Block, prefix: str) -> None:
        """Add the nodes of an operator; one of another domain where it has no equivalent here.

        One without outputs, as those that fill a variable, gives no value.
        """
        if not operator.outputs:
            return
        own = Written(self.stored, graph, operator, block, prefix)
        if operator.code == s.WHILE and not prefix and self._loop(own):
            return
        if not own.plain():
            inputs = [own.name(place) for place in operator.inputs]
            block.add(operator.label, inputs, own.outputs, own.label, domain="tflite")

    def _loop(self, own: Written) -> bool:
        """Write a WHILE; return whether its graphs are there."""
        graphs, operator = self.model.graphs, own.operator
        going, steps = (graphs[at] if 0 < at < len(graphs) else None for at in (own.option(0, "i"), own.option(1, "i")))
        count = len(operator.inputs)
        if going is None or steps is None or not count == len(steps.inputs) == len(steps.outputs) == len(going.inputs):
            return False
        fixed = lists.handed_on(operator, steps)
        handed = {
            steps.inputs[number]: self._handles[operator.inputs[number]]
            for number in fixed if operator.inputs[number] in self._handles
        }  # fmt: skip
        body, _, lost = variables.resolved(lists.with_constants(own.graph, operator, steps), handed, self._values)
        if lost:
            self.lost[own.label] = lost
        prefix = f"{own.label}/body/"
        block = Block(prefix, self.stored.arrays)
        self.stored.constants(body, block, prefix)
        for inner in body.operators:
            self._write(body, inner, block, prefix)
        first = [own.name(place) for place in operator.inputs]
        begin = self._going(going, first, own.block, f"{own.label}/first/")
        after = [f"{prefix}{place}" for place in body.outputs]
        on = self._going(going, after, block, f"{own.label}/next/")
        states, collected, single = [], [], []
        loop = lists.Loop(own.graph, operator, going, body)
        for number, (inner_, outer) in enumerate(zip(body.outputs, own.outputs, strict=True)):
            if body.inputs[number] in handed and not lost:
                continue
            if number in fixed:
                if body.tensors[body.inputs[number]].stored is None:
                    states.append((number, f"{prefix}{body.inputs[number]}", outer))
                elif first[number] in self.stored.arrays:
                    own.block.add("Identity", [first[number]], [outer])
                continue
            item = loop.each(number)
            last = loop.last(number)
            if item is not None:
                collected.append((f"{prefix}{item}", outer))
            elif last is not None:
                single.append((number, f"{prefix}{last}", outer))
            else:
                states.append((number, f"{prefix}{inner_}", outer))
        graph = onnx.GraphProto(name="body")
        wanted = [on, *(one[1] for one in states), *(one[1] for one in single), *(one[0] for one in collected)]
        graph.node.extend(needed(block.nodes, wanted))
        graph.initializer.extend(block.tensors())
        graph.input.append(helper.make_tensor_value_info(f"{prefix}iteration", onnx.TensorProto.INT64, []))
        graph.input.append(helper.make_tensor_value_info(f"{prefix}going", onnx.TensorProto.BOOL, []))
        inputs = ["", begin]
        nothing = own.block.constant(np.zeros((), np.float32)) if single else ""
        for number in [*(one[0] for one in states), *(one[0] for one in single)]:
            tensor = body.tensors[body.inputs[number]]
            graph.input.append(onnx.ValueInfoProto(name=f"{prefix}{body.inputs[number]}"))
            graph.input[-1].type.tensor_type.elem_type = KINDS.get(tensor.kind, 1)
            inputs.append(nothing if any(number == one[0] for one in single) else first[number])
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
        outputs = [*(one[2] for one in states), *(f"{one[2]}/last" for one in single), *(one[1] for one in collected)]
        own.block.nodes.append(helper.make_node("Loop", inputs, outputs, own.label, body=graph))
        for _, _, outer in single:
            own.block.add("Unsqueeze", [f"{outer}/last"], [outer], axes=[0])
        return True

    def _going(self, graph: Graph, values: Sequence[str], block: Block, prefix: str) -> str:
        """Write what decides whether a loop goes on; return its value."""
        self.stored.constants(graph, block, prefix)
        for place, value in zip(graph.inputs, values, strict=True):
            block.add("Identity", [value], [f"{prefix}{place}"])
        for operator in graph.operators:
            self._write(graph, operator, block, prefix)
        return f"{prefix}{graph.outputs[0]}"
