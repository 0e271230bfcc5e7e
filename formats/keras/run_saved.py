"""A SavedModel run whole on TensorFlow: what goes into the scopes of its recurrent layers, and what comes out of them.

A layer's calls are where the function reads its variables; the operators of a call have the layer's name in theirs
(tf.name_scope). What crosses the border of such a scope is what the layer reads and gives. Sources: keras/src/layers/layer.py
(3.15) and tf_keras/src/engine/base_layer.py (2.21), `__call__`; tensorflow/python/saved_model/load.py (2.21).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .run_graph import FunctionRunner, Values
from .run_loading import check_graph, checked

Array = np.ndarray

_STATES = {4: 2, 3: 1, 1: 1}
"""How many states a cell has whose kernel has so many columns a unit."""


def folder_of(file: str) -> str:
    """Return the folder of a SavedModel; "" for another file."""
    path = Path(file)
    folder = path if path.is_dir() else path.parent
    named = path.is_dir() or path.name == "saved_model.pb"
    return str(folder) if named and (folder / "saved_model.pb").is_file() else ""


def run_whole(folder: str, seen: Any) -> None:
    """Run the signatures of a SavedModel that have the layers; see rnnconvert.running.

    Raises NotImplementedError for a model without a signature, and for what it has that is not run.
    """
    import tensorflow

    meta_graph = checked(folder)
    try:
        loaded = None if _has_references(meta_graph) else tensorflow.saved_model.load(folder)
    except Exception:  # objects that this TensorFlow does not know, such as Keras 2's optimizers: its graph runs without them
        loaded = None
    if loaded is None:
        _run_graph(folder, meta_graph, seen)
        return
    functions = _distinct(loaded.signatures)
    if not functions:
        raise NotImplementedError("the SavedModel has no signature: nothing says which of its functions is the model")
    variables = list({id(variable.handle): variable for function in functions for variable in function.variables}.values())
    watched = [_Watched(name, variables_of) for name, variables_of in _chosen(seen, variables)]
    states = {id(state.handle) for state in _states(loaded)}
    begun = [(v, np.zeros_like(v.numpy()) if id(v.handle) in states else v.numpy()) for v in variables if v.dtype.is_floating]

    def reset() -> None:
        """Undo what a stateful layer keeps; the seeds of randomness go on."""
        for variable, value in begun:
            variable.assign(value)

    def called(graph: Any, values: Values, callers: Sequence[str]) -> None:
        for layer in watched:
            if not any(map(layer.scope.match, callers)):  # what a call of the layer calls itself is no other call
                layer.record(graph, values, seen)

    def shake(move: Callable[[Array], Array]) -> None:
        for number, (variable, value) in enumerate(begun):
            begun[number] = variable, value if value.dtype.name == "bfloat16" else move(loaded_values[number])

    loaded_values = [value for _, value in begun]
    runner = FunctionRunner(called)
    having = [caller for caller in functions if any(layer.is_in(caller) for layer in watched)]
    # What is handed in is for the model; what is drawn is for its layers, each in a function that has it.
    for function in (having or functions)[: None if having and seen.handed is None else 1]:
        names = _output_names(function)

        def call(arrays: Sequence[Array], function: Any = function, names: Sequence[str] = names) -> dict[str, Array]:
            fed = [tensorflow.cast(array, tensor.dtype) for array, tensor in zip(arrays, function.graph.inputs)]
            results = runner.run(function.graph, [*fed, *function.captured_inputs])
            return {name: _array(tensor) for name, tensor in zip(names, results)}

        seen.ordered = False
        seen.run(_inputs(function, variables, seen), call, reset, shake)


def _has_references(meta_graph: Any) -> bool:
    """Return whether a graph has variables of TensorFlow 1, which only a session runs."""
    return any(node.op in ("VariableV2", "Variable") for node in meta_graph.graph_def.node)


def _states(loaded: Any) -> Iterator[Any]:
    """Yield the states that stateful layers keep, which begin with zeros whatever they were saved as."""
    waiting, seen = [loaded], {id(loaded)}
    while waiting:
        for name, part in waiting.pop()._trackable_children().items():
            if name == "keras_api":
                yield from (state for state in getattr(part, "states", ()) if hasattr(state, "handle"))
            elif id(part) not in seen:
                seen.add(id(part))
                waiting.append(part)


def _run_graph(folder: str, meta_graph: Any, seen: Any) -> None:
    """Run what a SavedModel serves, with no object of it but its variables; its layers are not seen.

    Raises NotImplementedError for an operator that reaches beyond the model, and for a SavedModel that serves nothing.
    """
    import tensorflow

    for name in seen.layers:
        seen.explain(name, "TensorFlow does not know the objects of the SavedModel, and its graph shows no layers")
    signatures = {name: meta_graph.signature_def[name] for name in sorted(meta_graph.signature_def) if not name.startswith("__")}
    served = signatures.get("serving_default", next(iter(signatures.values()), None))
    if served is None:
        raise NotImplementedError("the SavedModel has no signature: nothing says which of its functions is the model")
    check_graph(meta_graph, [entry.name for entry in served.outputs.values()])
    graph = tensorflow.Graph()
    log = tensorflow.get_logger()
    log.setLevel("ERROR")  # it would advise the loader that just failed
    with tensorflow.compat.v1.Session(graph=graph) as session:
        with graph.as_default():
            tensorflow.compat.v1.saved_model.load(session, ["serve"], folder)
        places = {name: graph.get_tensor_by_name(entry.name) for name, entry in sorted(served.inputs.items())}
        results = {name: graph.get_tensor_by_name(entry.name) for name, entry in sorted(served.outputs.items())}
        inputs = [
            seen.input(name, None if place.shape.rank is None else list(place.shape), place.dtype.name) for name, place in places.items()
        ]

        def call(arrays: Sequence[Array]) -> dict[str, Array]:
            values = session.run(results, dict(zip(places.values(), arrays)))
            return {name: _array(value) for name, value in values.items()}

        seen.ordered = False
        seen.run(seen.calls(inputs), call)


def _output_names(function: Any) -> list[str]:
    """Return the names of a function's outputs, in the order of its graph: that of their names."""
    structured = function.structured_outputs
    if isinstance(structured, Mapping):
        return [str(key) for key in sorted(structured)][: len(function.graph.outputs)]
    return [str(number) for number in range(len(function.graph.outputs))]


def _distinct(signatures: Mapping[str, Any]) -> list[Any]:
    """Return the functions of signatures, the one that is served first; one of those that call the same functions."""
    named = sorted(signatures.items(), key=lambda item: item[0] != "serving_default")
    distinct: dict[tuple[str, ...], Any] = {}
    for name, function in named:
        nodes = [operator.node_def for operator in function.graph.get_operations()]
        calls = tuple(node.attr["f"].func.name for node in nodes if "f" in node.attr)
        distinct.setdefault(calls or (name,), function)
    return list(distinct.values())


def _chosen(seen: Any, variables: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield each layer that is asked for with its variables; one that their names do not show is explained."""
    paths = [(variable.name.partition(":")[0].split("/"), variable) for variable in variables]
    for name in seen.layers:
        words = name.split("/")
        scopes: dict[tuple[str, ...], list[tuple[str, Any]]] = {}
        for path, variable in paths:
            for end in range(len(words), len(path)):
                if path[end - len(words) : end] == words:
                    scopes.setdefault(tuple(path[:end]), []).append(("/".join(path[end:]), variable))
        several = next(iter(scopes.values()), [])
        if len(scopes) == 1 and len({local for local, _ in several}) == len(several):
            yield name, [variable for _, variable in several]
        else:
            seen.explain(name, f"the names of the SavedModel's variables do not show which layer is {name!r}")


def _inputs(function: Any, variables: Sequence[Any], seen: Any) -> list[list[Array]]:
    """Return the inputs of each call of a function, in its order; what embeddings and masks leave out comes last."""
    count = len(function.graph.inputs) - len(function.captured_inputs)
    rows = [int(variable.shape[0]) for variable in variables if variable.name.partition(":")[0].endswith("/embeddings")]
    keywords = list(function.structured_input_signature[1])
    names = sorted(keywords) if len(keywords) == count else [tensor.op.name for tensor in function.graph.inputs[:count]]
    inputs = []
    for name, tensor in zip(names, function.graph.inputs[:count]):
        if tensor.shape.rank is None:
            raise NotImplementedError(f"the model's input {tensor.name} does not state its axes")
        kind = "int32" if rows and tensor.shape.rank == 2 and seen.handed is None else tensor.dtype.name
        inputs.append(seen.input(name, list(tensor.shape), kind, min(rows, default=None), 0))
    calls: list[list[Array]] = seen.calls(inputs)
    return calls


class _Watched:
    """A layer, whose variables tell its calls."""

    def __init__(self, name: str, variables: Sequence[Any]) -> None:
        self.name = name
        self._handles = {id(variable.handle) for variable in variables}
        self.scope = re.compile(rf"(?:.*/)?{re.escape(name.rpartition('/')[2])}(?:_\d+)?(?=/)", re.S)
        recurrent = [variable for variable in variables if variable.name.partition(":")[0].endswith("/recurrent_kernel")]
        self._units = [int(kernel.shape[0]) for kernel in recurrent]
        self._states = [_STATES.get(int(kernel.shape[1]) // max(int(kernel.shape[0]), 1), 0) for kernel in recurrent]

    def is_in(self, function: Any) -> bool:
        """Return whether a function has the layer's variables."""
        return any(id(variable.handle) in self._handles for variable in function.variables)

    def record(self, graph: Any, values: Values, seen: Any) -> None:
        """Record the calls of the layer that a function has."""
        scopes = []
        for operator in graph.get_operations():
            if any(id(values.get(tensor.ref())) in self._handles for tensor in operator.inputs):
                match = self.scope.match(operator.name)
                scopes += [match[0]] if match else []
        for scope in dict.fromkeys(scopes):
            read, written = ([values[tensor.ref()] for tensor in some] for some in _border(graph, f"{scope}/"))
            self._call(read, written, seen)

    def _call(self, read: Sequence[Any], outputs: Sequence[Any], seen: Any) -> None:
        sequences, states = ([array for array in map(_array, _floats(read)) if array.ndim == axes] for axes in (3, 2))
        masks = [np.asarray(tensor) for tensor in read if tensor.dtype.name == "bool" and tensor.shape.rank == 2]
        if len(sequences) != 1 or len(masks) > 1:
            seen.explain(self.name, f"{len(sequences)} sequences and {len(masks)} masks go into {self.name!r} in its graph")
            return
        every, ends = ([array for array in map(_array, _floats(outputs)) if array.ndim == axes] for axes in (3, 2))
        ends = _apart(ends)
        last = ends[0] if len(ends) == 1 else None
        seen.record(
            self.name,
            sequences[0].swapaxes(0, 1),
            np.concatenate(every, axis=-1).swapaxes(0, 1) if every else last,
            mask=masks[0].T if masks else None,
            states=self._by_kind(states),
            finals=(None, None) if every else self._by_kind(ends),
        )

    def _by_kind(self, states: Sequence[Array]) -> tuple[list[Array] | None, list[Array] | None]:
        """Return hidden and cell states of a layer whose directions each have theirs, the hidden one first."""
        order = [(units, kind) for units, count in zip(self._units, self._states) for kind in range(count)]
        if [state.shape[1] for state in states] != [units for units, _ in order]:
            return None, None
        result = [[state for state, (_, kind) in zip(states, order) if kind == wanted] for wanted in (0, 1)]
        return result[0], result[1]


def _border(graph: Any, scope: str) -> tuple[list[Any], list[Any]]:
    """Return the tensors that the operators of a scope read from outside of it, and their own tensors that others read."""
    read: dict[Any, Any] = {}
    outputs: dict[Any, Any] = {tensor.ref(): tensor for tensor in graph.outputs if tensor.op.name.startswith(scope)}
    for operator in graph.get_operations():
        inside = operator.name.startswith(scope)
        for tensor in operator.inputs:
            if inside != tensor.op.name.startswith(scope):
                (read if inside else outputs)[tensor.ref()] = tensor
    order = {operator.name: number for number, operator in enumerate(graph.get_operations())}
    ordered = sorted(outputs.values(), key=lambda tensor: (order[tensor.op.name], tensor.value_index))
    return list(read.values()), ordered


def _floats(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value.dtype.is_floating]


def _apart(arrays: Sequence[Array]) -> list[Array]:
    """Return arrays without those that are equal to one before: the last step and the last state."""
    different: list[Array] = []
    for array in arrays:
        if not any(np.array_equal(array, other) for other in different):
            different.append(array)
    return different


def _array(tensor: Any) -> Array:
    array: Array = np.asarray(tensor)
    return array.astype(np.float32) if array.dtype.name in ("float16", "bfloat16") else array
