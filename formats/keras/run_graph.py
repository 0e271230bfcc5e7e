"""A function of TensorFlow's run operator by operator, so that every value in it can be examined.

Each operator is computed by TensorFlow's own kernel; calls, branches and loops are followed here, since what they compute inside
is otherwise out of reach. Sources: tensorflow/python/eager/execute.py, tensorflow/core/ops/functional_ops.cc (2.21).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rnnconvert.running.sequences import refuse_outside

Values = dict[Any, Any]
"""The values of a function's tensors in one call of it, by the tensor's `ref()`."""

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_BRANCHES = ("If", "StatelessIf")
_LOOPS = ("While", "StatelessWhile")
_NOTHING = ("NoOp", "Assert")


class FunctionRunner:
    """Runs functions.

    called  receives each function that ran, what its tensors were, and the names of the operators that call it, the
            outermost first
    """

    def __init__(self, called: Callable[[Any, Values, Sequence[str]], None]) -> None:
        self._called = called
        self._callers: list[str] = []
        self._graphs: dict[str, Any] = {}

    def run(self, graph: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs of a function.

        graph  its FuncGraph
        inputs  its inputs, captured ones among them

        Raises NotImplementedError for an operator that reaches beyond the model, and for functions that are handed to one.
        """
        values: Values = {tensor.ref(): value for tensor, value in zip(graph.inputs, inputs)}
        for operator in graph.get_operations():
            if operator.type == "Placeholder" or operator.type in _NOTHING:
                continue
            read = [values[tensor.ref()] for tensor in operator.inputs]
            self._callers.append(operator.name)
            outputs = self._operator(operator, read)
            self._callers.pop()
            values.update((tensor.ref(), value) for tensor, value in zip(operator.outputs, outputs))
        self._called(graph, values, self._callers)
        return [values[tensor.ref()] for tensor in graph.outputs]

    def _operator(self, operator: Any, read: list[Any]) -> Sequence[Any]:
        kind = operator.type
        if kind in _CALLS:
            return self.run(self._function(operator, "f"), read)
        if kind in _BRANCHES:
            condition, *rest = read
            branch = "then_branch" if bool(condition) else "else_branch"
            return self.run(self._function(operator, branch), rest)
        if kind in _LOOPS:
            condition, body = (self._function(operator, name) for name in ("cond", "body"))
            while bool(self.run(condition, read)[0]):
                read = self.run(body, read)
            return read
        if kind in ("Identity", "StopGradient"):
            return read  # a handle stays the one that it is
        return _computed(operator, read)

    def _function(self, operator: Any, attribute: str) -> Any:
        """Return the graph of a function that an operator names."""
        from tensorflow.python.eager import context
        from tensorflow.python.framework import function_def_to_graph

        name = operator.node_def.attr[attribute].func.name
        if name not in self._graphs:
            definition = context.context().get_function_def(name)
            self._graphs[name] = function_def_to_graph.function_def_to_graph(definition)
        return self._graphs[name]


def _computed(operator: Any, read: list[Any]) -> Sequence[Any]:
    """Return the outputs of TensorFlow's kernel of an operator."""
    import tensorflow
    from tensorflow.python.eager import context, execute

    refuse_outside(operator.node_def)
    if operator.type == "Const":
        return [tensorflow.constant(tensorflow.make_ndarray(operator.node_def.attr["value"].tensor))]
    attributes: list[Any] = []
    for name, value in operator.node_def.attr.items():
        if not name.startswith("_"):
            attributes += [name, _plain(operator, value)]
    outputs = execute.execute(operator.type.encode(), len(operator.outputs), inputs=read, attrs=tuple(attributes), ctx=context.context())
    return outputs or []


def _plain(operator: Any, value: Any) -> Any:
    """Return an attribute as the eager runtime takes it."""
    kind = value.WhichOneof("value")
    if kind == "func":
        raise NotImplementedError(f"the model has an operator {operator.type}, whose function is not followed")
    if kind == "shape":
        return _shape(value.shape)
    if kind == "list":
        for name in ("s", "i", "f", "b", "type", "shape"):
            several = list(getattr(value.list, name))
            if several:
                return [_shape(tensor) for tensor in several] if name == "shape" else several
        return []
    return getattr(value, kind)


def _shape(stated: Any) -> list[int | None] | None:
    """Return the lengths of axes, None for open ones; None where their number is open."""
    return None if stated.unknown_rank else [dim.size if dim.size >= 0 else None for dim in stated.dim]
