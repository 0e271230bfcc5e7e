"""A frozen graph run whole by TensorFlow, of either version.

Source: tensorflow/python/framework/importer.py, import_graph_def; python/client/session.py.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set

import numpy as np

from rnnconvert.running.sequences import WeightsAloneError, refuse_outside

Array = np.ndarray

_INPUTS = ("Placeholder", "PlaceholderV2")
_UNUSED = re.compile(r"(^|/)unused_control_flow_input(_\d+)?$")
"""Placeholders that TensorFlow leaves where it writes a loop of functions as operations. Nothing comes of them, but it asks for them."""
_FRONT = ("DecodeWav", "AudioSpectrogram", "Mfcc")
"""Operations that make features of a sound."""
_OF_LOOPS = ("Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch")
"""Operations that a loop is made of: a value of theirs that nothing reads is not an output of the graph."""


def witness(request: Mapping[str, Any]) -> None:
    """Run a frozen graph; what its layers read and give stays inside it. See rnnconvert.running."""
    import tensorflow

    seen, path = request["witness"], pathlib.Path(request["file"])
    if path.suffix != ".pb" or seen.handed is None:  # a graph does not state which sizes its operations take
        raise WeightsAloneError("it runs layers by name, and a frozen graph on inputs that are handed in")
    v1 = tensorflow.compat.v1
    graph = v1.GraphDef()
    graph.ParseFromString(path.read_bytes())
    for node in (*graph.node, *(node for function in graph.library.function for node in function.node_def)):
        refuse_outside(node)
    for name in seen.layers:
        seen.explain(name, "its operations stay inside the graph")
    handed = {name for call in seen.handed for name, _ in call}
    ready = _GraphSession(v1, graph, handed)
    calls = seen.calls([seen.input(name, dims, dtype) for name, dims, dtype in ready.inputs])

    def shake(move: Callable[[Array], Array]) -> None:
        nonlocal ready
        ready = _GraphSession(v1, _moved(tensorflow, graph, move), handed)

    seen.run(calls, lambda arrays: ready.call(arrays), shake=shake)


class _GraphSession:
    """A graph in a session.

    handed  the names of inputs that are handed in: those that have a default are inputs only then
    inputs  the names of its placeholders, with their axes and element types
    """

    def __init__(self, v1: Any, definition: Any, handed: Set[str]) -> None:
        graph = v1.Graph()
        with graph.as_default():
            v1.import_graph_def(definition, name="")
        operations = graph.get_operations()
        self._session = v1.Session(graph=graph)
        features = _features(operations)
        begun = {tensor.op for tensor in features}
        defaults = {operation for operation in operations if operation.type == "PlaceholderWithDefault" and operation.name in handed}
        inputs = [*features, *(each.outputs[0] for each in operations if each.type in _INPUTS or each in defaults)]
        # A graph lists its operations in any order, and loops lead back.
        reached = _followed([tensor.op for tensor in inputs], _consumers)
        ends = [operation for operation in reached - begun if operation.type not in (*_OF_LOOPS, *_INPUTS) and not _consumers(operation)]
        values = [tensor for operation in operations if operation in ends for tensor in operation.outputs]
        self._outputs = [tensor for tensor in values if tensor.dtype.is_floating] or values
        needed = _followed([tensor.op for tensor in self._outputs], lambda end: [] if end in begun else _sources(end))
        unused = [tensor for tensor in inputs if _UNUSED.search(tensor.op.name) and (tensor.dtype.is_floating or tensor.dtype.is_integer)]
        self._unused = {tensor: np.zeros([n or 1 for n in _axes(tensor) or ()], tensor.dtype.as_numpy_dtype) for tensor in unused}
        self._placeholders = [tensor for tensor in inputs if tensor.op in needed and not _UNUSED.search(tensor.op.name)]
        self.inputs = [(tensor.op.name, _axes(tensor), tensor.dtype.as_numpy_dtype.__name__) for tensor in self._placeholders]

    def call(self, arrays: Sequence[Array]) -> Dict[str, Array]:
        """Return the outputs of the graph for its inputs, by the names of operations."""
        done = self._session.run(self._outputs, {**dict(zip(self._placeholders, arrays)), **self._unused})
        return {tensor.name: value for tensor, value in zip(self._outputs, done)}


def _features(operations: Sequence[Any]) -> List[Any]:
    """Return the first tensors behind the features of a sound of which no axis but the batch's is open: a model begins there."""
    front = {tensor.name for operation in operations if operation.type in _FRONT for tensor in operation.outputs}
    features: List[Any] = []
    for operation in operations:
        if operation.type not in _FRONT and any(tensor.name in front for tensor in operation.inputs):
            for tensor in operation.outputs:
                stated = tensor.shape.rank is not None and all(tensor.shape.as_list()[1:])
                features += [tensor] if stated else []
                front |= set() if stated else {tensor.name}
    return features


def _consumers(operation: Any) -> List[Any]:
    return [reader for tensor in operation.outputs for reader in tensor.consumers()]


def _sources(operation: Any) -> List[Any]:
    """Return the operations that one reads or waits for: a constant of a branch waits for the branch."""
    return [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]


def _followed(start: Sequence[Any], after: Callable[[Any], Sequence[Any]]) -> Set[Any]:
    """Return the operations that some lead to, these among them."""
    waiting, followed = list(start), set(start)
    while waiting:
        new = set(after(waiting.pop())) - followed
        followed |= new
        waiting += new
    return followed


def _axes(tensor: Any) -> Optional[List[Any]]:
    """Return the lengths of an input's axes, None for open ones, or None where the graph does not state how many it has."""
    return None if tensor.shape.rank is None else list(tensor.shape.as_list())


def _moved(tensorflow: Any, graph: Any, move: Callable[[Array], Array]) -> Any:
    """Return a copy of a graph whose matrices and vectors of floating-point numbers are moved."""
    copy = type(graph)()
    copy.CopyFrom(graph)
    for node in copy.node:
        if node.op != "Const":
            continue
        tensor = node.attr["value"].tensor
        array = tensorflow.make_ndarray(tensor)
        if array.dtype.kind == "f" and array.size > 1:
            tensor.CopyFrom(tensorflow.make_tensor_proto(move(array)))
    return copy
