"""An ONNX model run whole on onnxruntime: what its recurrent nodes read and give are further outputs of its graph.

Sources: the ONNX operators RNN, GRU and LSTM (opset 22), whose values have the axes (time, batch, values), and of their
outputs (time, directions, batch, units).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .run_session import Session, wide

Array = np.ndarray

_LARGEST = 1 << 30
"""Files larger than this many bytes are not run whole: a model that was changed is handed over in one piece of memory."""


def run_whole(request: Mapping[str, Any], find_node: Callable[[Any, str], Any]) -> None:
    """Run a model whole; see rnnconvert.running.

    find_node  returns a recurrent node of the main graph by its name

    Raises NotImplementedError for a model that is too large, for one of onnxruntime's own formats, and for recurrent nodes that the
    provider leaves to the CPU.
    """
    import onnx
    from onnx import helper

    file, seen = Path(request["file"]), request["witness"]
    if file.suffix != ".onnx" or file.stat().st_size > _LARGEST:
        raise NotImplementedError("onnxruntime runs a model whole from a binary file, which ends in .onnx, of at most 1 GiB")
    model = onnx.load(str(file))
    nodes = {}
    for name in seen.layers:
        try:
            nodes[name] = find_node(model, name)
        except NotImplementedError as error:
            seen.explain(name, str(error))
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    rows = _rows(model)
    names = [value.name for value in model.graph.input if value.name not in constants]
    inputs = []
    for value in model.graph.input:
        if value.name not in constants:
            kind = value.type.tensor_type
            if not kind.elem_type:
                raise NotImplementedError(f"its input {value.name} is not a tensor")
            dims = [max(dim.dim_value, 0) or dim.dim_param or None for dim in kind.shape.dim] if kind.HasField("shape") else None
            inputs.append(seen.input(value.name, dims, helper.tensor_dtype_to_np_dtype(kind.elem_type).name, rows))
    calls = seen.calls(inputs)
    fresh = (f"rnnconvert_witness_{number}" for number in itertools.count())
    for node in nodes.values():
        # An output that nothing reads may have no name, or not be listed.
        node.output.extend([""] * ((3 if node.op_type == "LSTM" else 2) - len(node.output)))
        for place, name in enumerate(node.output):
            if not name:
                node.output[place] = next(fresh)
    wanted = dict.fromkeys(name for node in nodes.values() for name in (*_read(node).values(), *node.output))
    wanted = dict.fromkeys(name for name in wanted if name not in names and name not in constants)
    stated = [value.name for value in model.graph.output]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in stated)
    provider = request["variant"]["provider"]
    ready = Session(model.SerializeToString(), provider, profiled=provider != "CPUExecutionProvider")
    fixed = {name: onnx.numpy_helper.to_array(tensor) for name, tensor in constants.items() if name in _used(nodes)}
    every = list(dict.fromkeys([*stated, *wanted]))

    def call(arrays: Sequence[Array]) -> dict[str, Array]:
        feeds = dict(zip(names, arrays))
        values = {**fixed, **feeds, **dict(zip(every, ready.run(every, feeds)))}
        for name, node in nodes.items():
            _record(seen, name, node, {key: wide(values[value]) for key, value in _all(node).items()})
        return {name: wide(values[name]) for name in stated}

    def shake(move: Callable[[Array], Array]) -> None:
        nonlocal ready
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        for tensor in _tensors(changed.graph):
            plain = onnx.numpy_helper.to_array(tensor)
            if plain.dtype.kind == "f" and plain.size > 1:  # one number may be an exponent, or what others are compared with
                tensor.CopyFrom(onnx.numpy_helper.from_array(move(plain), tensor.name))
        ready = Session(changed.SerializeToString(), provider, profiled=False)

    checked = ready
    seen.run(calls, call, shake=shake)
    if provider != "CPUExecutionProvider":
        checked.check_provider()


def _tensors(graph: Any) -> Iterator[Any]:
    """Yield the tensors of a graph, including those of its Constant nodes and of the graphs in its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            for inner in ([attribute.g] if attribute.HasField("g") else [], attribute.graphs):
                for below in inner:
                    yield from _tensors(below)


_INPUTS = {"x": 0, "lengths": 4, "hidden": 5, "cell": 6}


def _read(node: Any) -> dict[str, str]:
    """Return the values that a node reads in addition to its weights, by their roles."""
    return {key: node.input[place] for key, place in _INPUTS.items() if place < len(node.input) and node.input[place]}


def _all(node: Any) -> dict[str, str]:
    return {**_read(node), **dict(zip(("y", "h_n", "c_n"), node.output))}


def _used(nodes: Mapping[str, Any]) -> set[str]:
    return {value for node in nodes.values() for value in _all(node).values()}


def _record(seen: Any, name: str, node: Any, values: Mapping[str, Array]) -> None:
    x, y = values["x"], values["y"]
    steps, batch = x.shape[:2]
    mask = np.arange(steps)[:, None] < values["lengths"] if "lengths" in values else None
    seen.record(
        name,
        x,
        y.transpose(0, 2, 1, 3).reshape(steps, batch, -1),
        mask=mask,
        states=[list(values[key]) if key in values else None for key in ("hidden", "cell")],
        finals=[list(values[key]) if key in values else [] for key in ("h_n", "c_n")],
    )


def _rows(model: Any) -> int | None:
    """Return the fewest rows of a table that integers may choose from."""
    sizes = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if len(tensor.dims) > 1}
    read = [sizes[node.input[0]] for node in model.graph.node if node.op_type == "Gather" and node.input[0] in sizes]
    return min(read, default=None)
