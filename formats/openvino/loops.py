"""The loops of OpenVINO's IR, `Loop` and `TensorIterator`, as the common Loop.

Sources: docs.openvino.ai, Operation Sets: Loop-5, TensorIterator-1, LSTMCell-4, GRUCell-3, RNNCell-1; what the frontend of TensorFlow
makes of lists of tensors: src/frontends/tensorflow_common/src/op/tensor_list_operations.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rnnconvert.formats.openvino.net import TYPES, LoopPort, Net, NetOperation, Value, value_name
from rnnconvert.graphs.program.lowering import END, WIDE, Block, LoopLowering, Variable

if TYPE_CHECKING:
    from rnnconvert.formats.openvino.lowering import NetRule

_ALIKE = ("Reshape", "Unsqueeze", "Squeeze", "Convert", "Broadcast")
"""Operations through which a length, or a list that a step goes on filling, is the same."""


@dataclass(eq=False)
class NetLoop:
    """A loop on its way.

    rule   the operation, and the graph around it
    steps  the graph of a step
    """

    rule: NetRule
    steps: Block

    @property
    def layer(self) -> NetOperation:
        """The operation."""
        return self.rule.layer

    @property
    def body(self) -> Net:
        """The graph of a step, as the file has it."""
        return self.layer.bodies[0]

    def inside(self, result: str) -> str:
        """Return the name of the value of a step that a Result hands out."""
        value = self.value_of(result)
        return value_name(self.body, value)

    def value_of(self, result: str) -> Value:
        """Return the value that a Result hands out. Raises ValueError for one without a value."""
        (value,) = self.body.layers[result].inputs
        if value is None:
            raise ValueError(f"a result of the loop {self.layer.name!r} has no value")
        return value

    def write(self, write: Callable[[Net, Block], object]) -> bool:
        """Write the loop; return whether all of it is known.

        write  writes the operations of a graph into another one
        """
        outer, steps, layer = self.rule.block, self.steps, self.layer
        enters = {port.inner: port for port in layer.enters}
        iteration = f"{steps.prefix}iteration"
        count, begins, goes_on = "", "", ""
        if layer.type == "Loop":
            most = self.rule.integers(0)
            count = "" if most is not None and most[0] < 0 else self.rule.wide(0)
            begins = self.rule.inputs[1]
            goes_on = next((self.inside(port.inner) for port in layer.leaves if port.purpose == "execution_condition"), "")
        states, single, collected = list[Variable](), list[Variable](), list[tuple[str, str]]()
        leaves = {port.inner: port for port in layer.leaves if port.outer >= 0 and port.axis is None}
        outputs = self.rule.outputs
        for parameter, port in enters.items():
            name, first = value_name(self.body, (parameter, 0)), self.rule.inputs[port.outer] if port.outer >= 0 else ""
            result = layer.back.get(parameter)
            if port.purpose == "current_iteration":
                wide = self.body.layers[parameter].output_shapes[0]
                dtype = TYPES.get(self.body.layers[parameter].data.get("element_type", ""), WIDE).newbyteorder("=")
                number = steps.add("Cast", [iteration], to=dtype)
                steps.add("Unsqueeze", [number], [name], axes=[0]) if wide else steps.add("Identity", [number], [name])
            elif port.axis is not None:
                length = self._elements(port, first, name)
                if not length:
                    return False
                count = count or length
            elif result is None:
                steps.add("Identity", [first], [name])
            else:
                final = outputs[leaves.pop(result).outer] if result in leaves else ""
                item = self._item(parameter, port, result)
                if item is None:
                    kind = TYPES.get(self.body.layers[parameter].data.get("element_type", ""))
                    states.append(Variable(first, kind and kind.newbyteorder("="), name, self.inside(result), final))
                elif not final:
                    continue
                elif item[0] == "each":
                    collected.append((item[1], final))
                else:
                    single.append(Variable(first, None, name, item[1], final))
        write(self.body, steps)
        for result, port in leaves.items():
            wide_name = f"{outputs[port.outer]}/wide"
            single.append(Variable("", None, f"{steps.prefix}last {result}", self.inside(result), wide_name))
        for port in layer.leaves:
            if port.axis is not None:
                if not port.complete or port.part != 1:
                    return False
                collected.append((self._single(port), f"{outputs[port.outer]}/steps"))
        if layer.type == "TensorIterator":
            goes_on = steps.constant(np.array(True), f"{steps.prefix}goes on")
        if not goes_on or (layer.type == "TensorIterator" and not count):
            return False
        LoopLowering(self.rule.label, begins, goes_on, states, single, collected, count).write(outer, steps)
        for port in leaves.values():
            outer.add("Squeeze", [f"{outputs[port.outer]}/wide"], [outputs[port.outer]], axes=[0])
        for port in layer.leaves:
            if port.axis is not None:
                self._placed(port, f"{outputs[port.outer]}/steps", outputs[port.outer])
        return True

    def _elements(self, port: LoopPort, x: str, name: str) -> str:
        """Write the element of a sequence that a step reads; return how many there are, "" for other parts than single steps."""
        if not port.complete or port.part != 1 or port.axis is None:
            return ""
        outer, steps, rank = self.rule.block, self.steps, self.rule.rank(port.outer)
        axis = outer.constant(np.array(port.axis, np.int64))
        length = outer.add("Gather", [outer.add("Shape", [x]), axis], axis=0)
        order = [port.axis, *(each for each in range(rank) if each != port.axis)]
        x = self._turned(port, outer.add("Transpose", [x], perm=order))
        steps.add("Gather", [x, f"{steps.prefix}iteration"], [element_name(name)], axis=0)
        steps.add("Unsqueeze", [element_name(name)], [name], axes=[port.axis])
        return length

    def _turned(self, port: LoopPort, steps: str) -> str:
        """Return a sequence with the time in front, from its end where the loop goes that way."""
        if port.stride > 0:
            return steps
        starts, ends, axes = (self.rule.block.constant(np.array([number], np.int64)) for number in (-1, -END, 0))
        return self.rule.block.add("Slice", [steps, starts, ends, axes, self.rule.block.constant(np.array([-1], np.int64))])

    def _single(self, port: LoopPort) -> str:
        """Return the output of a step for a sequence, without the axis of the steps."""
        widened = self.body.producer(self.value_of(port.inner))
        if widened is not None and widened.type == "Unsqueeze" and widened.inputs[0] is not None:
            axes = self.body.constant(widened.inputs[1])
            if axes is not None and axes.reshape(-1).tolist() == [port.axis]:
                return value_name(self.body, widened.inputs[0])
        return self.steps.add("Squeeze", [self.inside(port.inner)], axes=[port.axis])

    def _placed(self, port: LoopPort, steps: str, output: str) -> None:
        """Write what the steps gave, with the time in front, as the operation gives it."""
        order = [*range(1, len(self.layer.output_shapes[port.outer]))]
        order.insert(port.axis or 0, 0)
        self.rule.block.add("Transpose", [self._turned(port, steps)], [output], self.rule.label, perm=order)

    # Lists, which are tensors here

    def _item(self, parameter: str, port: LoopPort, result: str) -> tuple[str, str] | None:
        """Return the value that each step puts into a list, where a state is one.

        It is a pair: "each" where each step fills a place of its own, "last" where all fill the only one; and the value. None for another
        state, and for a list that has more or fewer places than there are steps.
        """
        put = self.body.producer(self.value_of(result))
        axis = self.body.constant(put.inputs[3]) if put is not None and len(put.inputs) == 4 else None
        if put is None or put.type != "ScatterUpdate" or axis is None or axis.size != 1 or axis.any():
            return None
        if self._origin(self.body, put.inputs[0]) != (parameter, 0):
            return None
        widened = self.body.producer(put.inputs[2])
        if widened is None or widened.type != "Unsqueeze" or widened.inputs[0] is None:
            return None
        at_front = self.body.constant(widened.inputs[1])
        if at_front is None or at_front.size != 1 or at_front.any():
            return None
        element = value_name(self.body, widened.inputs[0])
        places = self._length(self.layer.inputs[port.outer])
        index = self.body.constant(put.inputs[1])
        if index is not None:
            return ("last", element) if places == 1 and not index.any() else None
        where = self._origin(self.body, put.inputs[1])
        if where is None or not self._counts(where) or places is None:
            return None
        limits = self._limits()
        most = self.rule.integers(0)
        if most is None or (most[0] >= 0 and not (isinstance(places, int) and most[0] >= places)):
            return None  # the loop may end before its condition does
        return ("each", element) if limits and all(limit == places for limit in limits) else None

    def _origin(self, net: Net, value: Value | None) -> Value | None:
        """Return the value that another is, but for its shape or type."""
        for _ in range(8):
            layer = net.producer(value)
            if layer is None or layer.type not in _ALIKE or not layer.inputs:
                break
            value = layer.inputs[0]
        return value

    def _length(self, value: Value | None) -> int | Value | None:
        """Return how many places a list begins with: a number, or the value around the loop that is it."""
        net, layer = self.rule.net, self.rule.net.producer(value)
        if layer is None:
            return None
        if layer.type == "Broadcast":
            shape = net.producer(layer.inputs[1])
            if shape is None or shape.type != "Concat":
                numbers = net.constant(layer.inputs[1])
                return None if numbers is None else int(numbers.reshape(-1)[0])
            return self._origin(net, shape.inputs[0])
        numbers = net.constant(value)
        return None if numbers is None or numbers.ndim < 1 else len(numbers)

    def _counts(self, value: Value) -> bool:
        """Return whether a value of a step is its number, from 0 on."""
        parameter = value[0]
        port = next((port for port in self.layer.enters if port.inner == parameter), None)
        if port is None or port.outer < 0 or parameter not in self.layer.back:
            return False
        first = self.rule.net.constant(self.layer.inputs[port.outer])
        return first is not None and first.size == 1 and not first.any() and self._is_next(self.value_of(self.layer.back[parameter]), value)

    def _is_next(self, value: Value | None, counter: Value) -> bool:
        """Return whether a value of a step is one more than another."""
        layer = self.body.producer(value)
        if layer is None or layer.type != "Add" or counter not in layer.inputs:
            return False
        other = self.body.constant(layer.inputs[1 - layer.inputs.index(counter)])
        return other is not None and other.size == 1 and int(other.reshape(())) == 1

    def _limits(self) -> list[int | Value]:
        """Return with what the number of steps is compared, all of which a step must be below; [] for other conditions."""
        ends = [port.inner for port in self.layer.leaves if port.purpose == "execution_condition"]
        waiting: list[Value | None] = [self.value_of(end) for end in ends]
        limits = list[int | Value]()
        while waiting:
            layer = self.body.producer(waiting.pop())
            if layer is not None and layer.type == "LogicalAnd":
                waiting += layer.inputs
                continue
            if layer is None or layer.type != "Less" or not self._counts_on(layer.inputs[0]):
                return []
            numbers, limit = self.body.constant(layer.inputs[1]), self._origin(self.body, layer.inputs[1])
            port = next((port for port in self.layer.enters if limit is not None and port.inner == limit[0]), None)
            if numbers is not None:
                limits.append(int(numbers.reshape(())))
            elif port is not None and port.outer >= 0 and port.inner not in self.layer.back:
                outer = self.layer.inputs[port.outer]
                stated = self.rule.net.constant(outer)
                origin = self._origin(self.rule.net, outer)
                place = origin if stated is None else int(stated.reshape(()))
                if place is None:
                    return []
                limits.append(place)
            else:
                return []
        return limits

    def _counts_on(self, value: Value | None) -> bool:
        """Return whether a value of a step is the number of the next one."""
        layer = self.body.producer(value)
        return layer is not None and any(each is not None and self._is_next(value, each) and self._counts(each) for each in layer.inputs)


def element_name(part: str) -> str:
    """Return the name of a part of one step without the axis of the steps."""
    return f"{part} alone"


# Cells


def cell(rule: NetRule) -> bool:
    """Write one step of a recurrent layer."""
    layer, add = rule.layer, rule.block.add
    kind = layer.type
    if layer.data.get("clip", "0") not in ("", "0", "0.0") or any(layer.data.get(key) for key in ("activations_alpha", "activations_beta")):
        return False
    count = {"LSTMCell": 4, "GRUCell": 3, "RNNCell": 1}[kind]
    defaults = {"LSTMCell": "sigmoid,tanh,tanh", "GRUCell": "sigmoid,tanh", "RNNCell": "tanh"}[kind]
    words = [word.strip() for word in (layer.data.get("activations") or defaults).split(",")]
    if any(word not in _FUNCTIONS for word in words):
        return False
    functions = [_FUNCTIONS[word] for word in words]
    x, h, *rest = rule.inputs
    c, (w, r, *more) = (rest[0], rest[1:]) if kind == "LSTMCell" else ("", rest)
    size = rule.lengths(1)[1]
    if size < 1 or len(more) > 1:
        return False

    def product(state: str, weight: str) -> str:
        return add("MatMul", [state, add("Transpose", [weight], perm=[1, 0])])

    def gates(value: str, axis: int, parts: int) -> list[str]:
        names = [f"{rule.block.prefix}{layer.id} {value} {number}" for number in range(parts)]
        add("Split", [value, rule.block.constant(np.full(parts, size, np.int64))], names, axis=axis)
        return names

    def plus(*values: str) -> str:
        total, *others = [value for value in values if value]
        for value in others:
            total = add("Add", [total, value])
        return total

    def times(a: str, b: str) -> str:
        return add("Mul", [a, b])

    bias = more[0] if more else ""
    if kind == "RNNCell":
        return rule.add(functions[0], [plus(product(x, w), product(h, r), bias)])
    if kind == "LSTMCell":
        f, i, g, o = gates(plus(product(x, w), product(h, r), bias), 1, count)
        new = plus(times(add(functions[0], [f]), c), times(add(functions[0], [i]), add(functions[1], [g])))
        add("Identity", [new], [rule.outputs[1]])
        add("Mul", [add(functions[0], [o]), add(functions[2], [new])], rule.outputs[:1], rule.label)
        return True
    after = rule.flag("linear_before_reset")
    xz, xr, xn = gates(product(x, w), 1, 3)
    bz, br, bn, *reset = gates(bias, 0, 4 if after else 3) if bias else ("", "", "", "")
    rz, rr, rn = gates(r, 0, 3)
    z = add(functions[0], [plus(xz, product(h, rz), bz)])
    reset_gate = add(functions[0], [plus(xr, product(h, rr), br)])
    inner = times(reset_gate, plus(product(h, rn), *reset)) if after else product(times(reset_gate, h), rn)
    new = add(functions[1], [plus(plus(xn, bn), inner)])
    rest_of = add("Sub", [rule.block.constant(np.array(1, np.float32)), z])
    add("Add", [times(rest_of, new), times(z, h)], rule.outputs[:1], rule.label)
    return True


_FUNCTIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


def written(rule: NetRule, write: Callable[[Net, Block], object]) -> bool:
    """Write a loop; return whether all of it is known.

    write  writes the operations of a graph into another one
    """
    if len(rule.layer.bodies) != 1:
        return False
    return NetLoop(rule, Block(f"{rule.label}/body/", rule.block.arrays)).write(write)
